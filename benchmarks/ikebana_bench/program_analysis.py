"""`program-analysis` and `program-analysis-interactive`: Graspan's analyses as Datalog programs (§6.3.2).

- `program-analysis` derives *dataflow*, *points-to* and *points-to optimised* from scratch, on synthetic graphs of
  several sizes (`ikebana_bench.program_graphs`), or on the facts of C source (`--source DIR`).
- `program-analysis-interactive` removes the first nulls of the finished dataflow analysis, one in each epoch.
  `removal_cpu` is the processor time of a removal, which other programs on the machine hardly change.

Measured is the time from pushing the facts until all outputs are up to date; making graphs, installing programs,
reading and verifying results are not measured. DuckDB (one thread; dataflow only, which is all that its recursive
queries can express) and nemo answer the same in the same run, if they are installed: of nemo, reading the facts is
measured too. `rust_anchor_ratio` is our speed over the speed of differential dataflow in Rust with one worker, on a
different machine of the same size (`ikebana_bench.arrange` describes how reliable it is), for the default size only.

Verification: dataflow equals a search from every null. Points-to on a small graph equals semi-naive evaluation with
NumPy; on the graph that is measured no rule derives anything that its outputs lack, and the optimised program and nemo
have as many facts as the plain one.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.analysis import programs
from ikebana.analysis.extraction import Extraction
from ikebana.analysis.facts import write_pairs
from ikebana.analysis.live import graph_inputs, push_facts
from ikebana.cluster.processes import Processes
from ikebana.datalog import Program
from ikebana.engine import Engine, Input
from ikebana_bench import program_graphs as graphs
from ikebana_bench.measure import Stopwatch, ccdf, percentiles, resident_bytes
from ikebana_bench.program_graphs import Packed, Pairs
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

Facts = Mapping[str, Pairs]

# Measurements of the Rust reference with one worker and the default size.
RUST_S = {"dataflow": 5.5, "points_to": 14.8, "points_to_optimised": 6.1}
RUST_REMOVAL_MS = 5.0

TEXTS = {
    "dataflow": programs.DATAFLOW,
    "points_to_optimised": programs.POINTS_TO_OPTIMISED,
    "points_to": programs.POINTS_TO,
}

DUCKDB_DATAFLOW = """
    WITH RECURSIVE reaches(x, y) AS (
        SELECT x, y FROM null_ UNION SELECT r.x, a.y FROM reaches r JOIN assign a ON r.y = a.x
    ) SELECT count(*) AS facts FROM reaches
"""


@dataclass(frozen=True)
class AnalysisParameters(Parameters):
    size: str = parameter("anchor", "the size of the synthetic graphs", choices=tuple(graphs.SIZES))
    source: str = parameter("", "a directory of C source to analyse instead of synthetic graphs")
    only: str = parameter("all", "the analysis to measure", choices=("all", *TEXTS))
    processes: int = parameter(0, "worker processes; 0 for a worker in this process", minimum=0)
    peers: bool = parameter(True, "run DuckDB and nemo too, if they are installed")


def graph_of(analysis: str, parameters: AnalysisParameters, extraction: Extraction | None) -> Facts:
    """The facts that an analysis reads."""
    if extraction is not None:
        return _facts_of_source(analysis, extraction)
    size = graphs.SIZES[parameters.size]
    if analysis == "dataflow":
        assign, null = graphs.dataflow_graph(size.procedures)
        return {"assign": assign, "null": null}
    assign, dereference = graphs.points_to_graph(size.variables)
    return {"assign": assign, "dereference": dereference}


def _facts_of_source(analysis: str, extraction: Extraction) -> Facts:
    assign = extraction.facts("assign")
    if analysis == "dataflow":
        return {"assign": assign, "null": extraction.facts("null")}
    cells = [extraction.facts(relation) for relation in ("dereference", "address", "alloc")]
    return {"assign": assign, "dereference": np.unique(np.concatenate(cells), axis=0)}


def extracted(source: str) -> Extraction | None:
    """The facts of a directory of C source, if one is named."""
    if not source:
        return None
    extraction = Extraction(source)
    extraction.load()
    return extraction


@contextmanager
def started(text: str, inputs: Facts, processes: int) -> Iterator[tuple[Engine, dict[str, Input], Program]]:
    """An engine with a program whose facts are yet to come."""
    with Engine(cluster=Processes(processes) if processes else None) as engine:
        sources = graph_inputs(engine, "graph", inputs)
        yield engine, sources, Program(engine, text, relations=sources)


def wait(engine: Engine, program: Program) -> None:
    """Wait until all outputs are up to date."""
    for output in program.outputs:
        program.relation(output).view.wait(engine.epoch - 1)


def push_in_parts(engine: Engine, sources: Mapping[str, Input], facts: Facts) -> None:
    """Push facts, in as many parts as there are workers, and close the epoch."""
    for relation, pairs in facts.items():
        for part in np.array_split(pairs, engine.cluster.size):
            push_facts(sources, {relation: part}, {})
    engine.advance()


def packed(program: Program, relation: str) -> Packed:
    """The facts of a relation, in order."""
    columns = program.relation(relation).to_arrow().columns
    return np.sort(graphs.pack(np.stack([column.to_numpy() for column in columns], axis=1)))


class ProgramAnalysis(Scenario[AnalysisParameters]):
    """Derive each analysis from scratch."""

    name = "program-analysis"
    claim = "Rules analyse a million edges from scratch in seconds, plus milliseconds for each round of a recursion."
    paper = "§6.3.2"
    parameters = AnalysisParameters

    def run(self, parameters: AnalysisParameters, progress: Progress) -> Results:
        results: dict[str, Any] = {}
        extraction = extracted(parameters.source)
        chosen = [analysis for analysis in TEXTS if parameters.only in ("all", analysis)]
        if any(analysis != "dataflow" for analysis in chosen):
            self._verify_small()
        sizes: dict[str, int] = {}
        for analysis in progress.track("analysing", chosen):
            facts = graph_of(analysis, parameters, extraction)
            results[f"{analysis}_edges"] = sum(map(len, facts.values()))
            with started(TEXTS[analysis], facts, parameters.processes) as (engine, sources, program):
                before = resident_bytes()
                watch, cpu = Stopwatch(), process_time()
                push_in_parts(engine, sources, facts)
                wait(engine, program)
                spent, used = watch.seconds, process_time() - cpu
                results[f"{analysis}_s"] = spent
                if not parameters.processes:
                    results[f"{analysis}_cpu_share"] = used / spent
                    results[f"{analysis}_memory_bytes"] = resident_bytes() - before
                results |= self._verify(analysis, program, facts, sizes)
            if parameters.size == "anchor" and not parameters.source:
                results[f"{analysis}_rust_anchor_ratio"] = RUST_S[analysis] / spent
            if parameters.peers:
                results |= self._peers(analysis, facts, sizes)
        return results

    def _verify(self, analysis: str, program: Program, facts: Facts, sizes: dict[str, int]) -> Results:
        """Check the outputs; return and remember their sizes."""
        outputs = {output: packed(program, output) for output in program.outputs}
        if analysis == "dataflow":
            expected = graphs.reached(facts["assign"], facts["null"])
            self.verify(np.array_equal(outputs["reaches"], expected), "dataflow agrees with a search from every null")
        else:
            flow, alias = outputs["value_flow"], outputs["memory_alias"]
            lacking = graphs.lacking(facts["assign"], facts["dereference"], flow, alias)
            self.verify(not lacking, f"no rule of {analysis} derives further facts", detail=f"{lacking} are missing")
        for output, rows in outputs.items():
            agrees = sizes.setdefault(output, len(rows)) == len(rows)
            self.verify(agrees, f"{output} of both programs have as many facts", detail=f"{sizes[output]}, {len(rows)}")
        return {f"{analysis}_{output}_facts": len(rows) for output, rows in outputs.items()}

    def _verify_small(self) -> None:
        assign, dereference = graphs.points_to_graph(graphs.SIZES["small"].variables)
        facts = {"assign": assign, "dereference": dereference}
        flow, alias = graphs.aliases(assign, dereference)
        for analysis in ("points_to", "points_to_optimised"):
            with started(TEXTS[analysis], facts, 0) as (engine, sources, program):
                push_in_parts(engine, sources, facts)
                agrees = np.array_equal(packed(program, "value_flow"), flow)
                self.verify(agrees, f"value_flow of {analysis} agrees with NumPy on a small graph")
                agrees = np.array_equal(packed(program, "memory_alias"), alias)
                self.verify(agrees, f"memory_alias of {analysis} agrees with NumPy on a small graph")

    def _peers(self, analysis: str, facts: Facts, sizes: Mapping[str, int]) -> Results:
        results: dict[str, Any] = {}
        if analysis == "dataflow" and (answer := duckdb_dataflow(facts)) is not None:
            seconds, count = answer
            self.verify(count == sizes["reaches"], "DuckDB has as many facts", detail=str(count))
            results["dataflow_duckdb_s"] = seconds
        outputs = ["reaches"] if analysis == "dataflow" else ["value_flow", "memory_alias"]
        if analysis != "points_to" and (told := nemo(TEXTS[analysis], facts, outputs)) is not None:
            seconds, counts = told
            expected = {output: sizes[output] for output in outputs}
            self.verify(counts == expected, "nemo has as many facts", detail=f"{counts}, {expected}")
            results[f"{analysis}_nemo_s"] = seconds
        return results


def duckdb_dataflow(facts: Facts) -> tuple[float, int] | None:
    """DuckDB's seconds for the dataflow analysis, and the number of facts; None if DuckDB is not installed."""
    try:
        duckdb: Any = importlib.import_module("duckdb")
    except ImportError:
        return None
    with duckdb.connect(config={"threads": 1}) as connection:
        for table, relation in (("null_", "null"), ("assign", "assign")):
            connection.register("rows", pa.table({"x": facts[relation][:, 0], "y": facts[relation][:, 1]}))
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM rows")
        watch = Stopwatch()
        ((count,),) = connection.sql(DUCKDB_DATAFLOW).fetchall()
        return watch.seconds, count


def nemo(text: str, facts: Facts, outputs: list[str]) -> tuple[float, dict[str, int]] | None:
    """nemo's seconds for a program, with reading the facts, and the numbers of facts; None if it is not installed."""
    try:
        module: Any = importlib.import_module("nmo_python")
    except ImportError:
        return None
    with TemporaryDirectory() as folder:
        lines = []
        for relation, pairs in facts.items():
            path = Path(folder) / f"{relation}.tsv"
            write_pairs(path, pairs)
            lines.append(f'@import {relation} :- tsv{{resource="{path}", format=(int,int)}} .')
        program = "\n".join([*lines, *nemo_rules(text), *(f"@output {output} ." for output in outputs)])
        engine = module.NemoEngine(module.load_string(program))
        watch = Stopwatch()
        engine.reason()
        seconds = watch.seconds
        return seconds, {output: sum(1 for _ in engine.result(output)) for output in outputs}


def nemo_rules(text: str) -> list[str]:
    """The rules of a program in nemo's syntax, in which variables start with a question mark.

    >>> nemo_rules(".decl a(x: number)\\na(x) :- b(x, _).  // all of b")
    ['a(?x) :- b(?x, _) .']
    """
    rules = [line.split("//")[0].strip() for line in text.splitlines() if ":-" in line]
    return [re.sub(r"\b([a-z]\w*)(?=[,)])", r"?\1", rule.removesuffix(".")) + " ." for rule in rules]


@dataclass(frozen=True)
class RemovalParameters(Parameters):
    size: str = parameter("anchor", "the size of the synthetic graph", choices=tuple(graphs.SIZES))
    source: str = parameter("", "a directory of C source to analyse instead of a synthetic graph")
    nulls: int = parameter(1_000, "nulls to remove, one per epoch", minimum=1)
    processes: int = parameter(0, "worker processes; 0 for a worker in this process", minimum=0)


class ProgramAnalysisInteractive(Scenario[RemovalParameters]):
    """Remove nulls from the finished dataflow analysis, one at a time."""

    name = "program-analysis-interactive"
    claim = "Removing a null from a finished analysis takes milliseconds, depending only on what the null reaches."
    paper = "§6.3.2"
    parameters = RemovalParameters

    def run(self, parameters: RemovalParameters, progress: Progress) -> Results:
        chosen = AnalysisParameters(size=parameters.size, source=parameters.source)
        facts = graph_of("dataflow", chosen, extracted(parameters.source))
        nulls = facts["null"][: parameters.nulls]
        with started(programs.DATAFLOW, facts, parameters.processes) as (engine, sources, program):
            watch = Stopwatch()
            push_in_parts(engine, sources, facts)
            wait(engine, program)
            scratch = watch.seconds
            self._check(program, facts)
            milliseconds, cpu_milliseconds = [], []
            for at in progress.track("removing", range(len(nulls))):
                watch, cpu = Stopwatch(), process_time()
                push_facts(sources, {}, {"null": nulls[at : at + 1]})
                engine.advance()
                wait(engine, program)
                milliseconds.append(watch.seconds * 1e3)
                cpu_milliseconds.append((process_time() - cpu) * 1e3)
            self._check(program, {**facts, "null": facts["null"][len(nulls) :]})
        median = float(np.median(milliseconds))
        ratio = {"removal_rust_anchor_ratio": RUST_REMOVAL_MS / median} if chosen == AnalysisParameters() else {}
        return {
            "from_scratch_s": scratch,
            **percentiles("removal", "ms", milliseconds),
            **({} if parameters.processes else percentiles("removal_cpu", "ms", cpu_milliseconds)),
            **ratio,
            "from_scratch_over_removal_ratio": scratch * 1e3 / median,
            "removal_ms": ccdf(milliseconds),
        }

    def _check(self, program: Program, facts: Facts) -> None:
        expected = graphs.reached(facts["assign"], facts["null"])
        agrees = np.array_equal(packed(program, "reaches"), expected)
        self.verify(agrees, "dataflow agrees with a search from every null")
