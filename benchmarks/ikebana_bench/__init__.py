"""Benchmarks: the paper's experiments, each one command that verifies its answer.

`ikebana bench list` names them; `ikebana bench NAME [options] --json FILE --figure PATH` runs one.

    scenario   what a benchmark is: claim, place in the paper, parameters, a run that verifies itself
    measure    clocks, memory, distributions, the sort floor, the machine and the commit
    progress   progress bars that stay out of what is measured
    units      units from metric names, and figures for human readers
    report     the table, the JSON document, the figure
    command    the command line of all this
    floor      `sort-floor`, the smallest benchmark
    arrange    `arrange-closed-loop` and `arrange-bulk`, figure 6d and 6e
    counts     `count-closed-loop`, `count-open-loop` and `scaling`, figure 6a to 6d
    queries    `join-proportionality`, figure 6f, and `idle-queries`
    fan_in     `fan-in`: joins of which many inputs change at once, on Spark
    graphs     `graph-batch`, `graph-updates` and `closure`: loops
    ingest     `ingest-load`, `ingest-follow`, `ingest-insert` and `ingest-latency`: on Spark
    tpch       the tables, queries, data and changes of TPC-H; `tpch-verify`,
               `tpch-install`, `tpch-interactive`, `tpch-rates` and `tpch-batch`

A new benchmark is a subclass of `Scenario` and a line in `SCENARIOS`.
"""

from __future__ import annotations

from ikebana_bench.arrange import ArrangeBulk, ArrangeClosedLoop
from ikebana_bench.counts import CountClosedLoop, CountOpenLoop, Scaling
from ikebana_bench.fan_in import FanIn
from ikebana_bench.floor import SortFloor
from ikebana_bench.graphs import Closure, GraphBatch, GraphUpdates
from ikebana_bench.ingest import IngestFollow, IngestInsert, IngestLatency, IngestLoad
from ikebana_bench.queries import IdleQueries, JoinProportionality
from ikebana_bench.scenario import AnyScenario
from ikebana_bench.tpch.batch import TpchBatch
from ikebana_bench.tpch.installing import TpchInstall
from ikebana_bench.tpch.interactive import TpchInteractive
from ikebana_bench.tpch.rates import TpchRates
from ikebana_bench.tpch.verify import TpchVerify

SCENARIOS: tuple[type[AnyScenario], ...] = (
    SortFloor,
    ArrangeClosedLoop,
    ArrangeBulk,
    CountClosedLoop,
    CountOpenLoop,
    Scaling,
    JoinProportionality,
    IdleQueries,
    FanIn,
    GraphBatch,
    GraphUpdates,
    Closure,
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
