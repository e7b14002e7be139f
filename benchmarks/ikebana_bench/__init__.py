"""Benchmarks that repeat the paper's experiments. Each is one command and verifies its own results.

`ikebana bench list` lists the benchmarks; `ikebana bench NAME [options] --json FILE --figure PATH` runs one.

    scenario   the base class of benchmarks: claim, place in the paper, parameters, run, verification
    measure    clocks, memory, distributions, the sort floor, the commit
    progress   progress bars that do not disturb measurements
    units      the units of metrics, and how values are formatted
    report     the result table, the JSON document and the figure
    command    the command line
    floor      `sort-floor`, the smallest benchmark
    arrange    `arrange-closed-loop`, `arrange-inserts` and `arrange-bulk` (figure 6d, 6e)
    counts     `count-closed-loop`, `count-open-loop` and `scaling` (figure 6a to 6d)
    worker_counts   `worker-counts`: messages, bytes and rows of each of 1 to 8 workers
    queries    `join-proportionality` (figure 6f) and `idle-queries`
    memory     `memory`: what workers take while a table grows and shrinks, and bytes by column type
    beyond_memory   `beyond-memory`: a table that is larger than the memory of its worker
    lookups    `lookups`: reading by key, and prepared statements, on Spark
    fan_in     `fan-in`: joins with many inputs that change at the same time, on Spark
    graph_batch   `graph-batch`: iterative queries from scratch, on random and RMAT graphs (appendix C)
    graphs     `graph-updates` and `closure`: iterative queries
    triangles  `graph-triangles`: a motif with a cycle, on the graphs of `rmat`
    graph_interactive   `graph-interactive`: look-ups, hops and paths while a graph changes (figure 5)
    datalog    `datalog` and `datalog-interactive`: recursive programs, bottom-up and top-down
    program_analysis   `program-analysis` and `program-analysis-interactive`, on the graphs of `program_graphs`
    durability `durability`: commits with storage, and coming back
    healing    `healing`: the time until answers come again after the death of a worker
    first_answer   `first-answer`: new views over large tables, on Spark
    ingest     `ingest-load`, `ingest-follow`, `ingest-insert` and `ingest-latency`, on Spark
    tpch       TPC-H: `tpch-verify`, `tpch-install`, `tpch-interactive`, `tpch-rates` and `tpch-batch`

To add a benchmark, write a subclass of `Scenario` and add it to `SCENARIOS`.
"""

from __future__ import annotations

from ikebana_bench.arrange import ArrangeBulk, ArrangeClosedLoop, ArrangeInserts
from ikebana_bench.beyond_memory import BeyondMemory
from ikebana_bench.counts import CountClosedLoop, CountOpenLoop, Scaling
from ikebana_bench.datalog import Datalog, DatalogInteractive
from ikebana_bench.durability import Durability
from ikebana_bench.fan_in import FanIn
from ikebana_bench.first_answer import FirstAnswer
from ikebana_bench.floor import SortFloor
from ikebana_bench.graph_batch import GraphBatch
from ikebana_bench.graph_interactive import GraphInteractive
from ikebana_bench.graphs import Closure, GraphUpdates
from ikebana_bench.healing import Healing
from ikebana_bench.ingest import IngestFollow, IngestInsert, IngestLatency, IngestLoad
from ikebana_bench.lookups import Lookups
from ikebana_bench.memory import Memory
from ikebana_bench.program_analysis import ProgramAnalysis, ProgramAnalysisInteractive
from ikebana_bench.queries import IdleQueries, JoinProportionality
from ikebana_bench.scenario import AnyScenario
from ikebana_bench.tpch.batch import TpchBatch
from ikebana_bench.tpch.installing import TpchInstall
from ikebana_bench.tpch.interactive import TpchInteractive
from ikebana_bench.tpch.rates import TpchRates
from ikebana_bench.tpch.verify import TpchVerify
from ikebana_bench.triangles import GraphTriangles
from ikebana_bench.worker_counts import WorkerCounts

SCENARIOS: tuple[type[AnyScenario], ...] = (
    SortFloor,
    ArrangeClosedLoop,
    ArrangeInserts,
    ArrangeBulk,
    CountClosedLoop,
    CountOpenLoop,
    Scaling,
    WorkerCounts,
    JoinProportionality,
    IdleQueries,
    Memory,
    BeyondMemory,
    Lookups,
    FanIn,
    GraphBatch,
    GraphUpdates,
    GraphInteractive,
    Closure,
    GraphTriangles,
    Datalog,
    DatalogInteractive,
    ProgramAnalysis,
    ProgramAnalysisInteractive,
    Durability,
    Healing,
    FirstAnswer,
    IngestLoad,
    IngestFollow,
    IngestInsert,
    IngestLatency,
    TpchVerify,
    TpchInstall,
    TpchInteractive,
    TpchRates,
    TpchBatch,
)
