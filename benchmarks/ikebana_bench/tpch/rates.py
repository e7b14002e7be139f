"""`tpch-rates`: tuples per second of each of the 22 queries, fed in large batches (appendix B).

Each query runs by itself (`ikebana_bench.tpch.feeding`), with one worker and with `--workers`. Every batch is an epoch
with `--batch` rows of each table that the query reads. Tuples are the rows of all these tables. Measured is the time
from the first batch to the complete answer, with the rows already in memory; a few rows are fed before to load the
code. `cpu_s` is the processor time of a single worker, which other programs on the machine hardly influence.
`workers_N_p50_ratio` is the median speed of N workers over that of one; N workers are given the next batches while
the last ones are in progress (`--in-progress`).

Not measured: Spark, which plans the queries beforehand and answers them over the same tables for comparison with the
final answers. It is idle while queries are fed.

Differences from the paper: scale 1 instead of 10, and 1 and 2 workers. All tables except `lineitem` are keyed tables,
whose rows are checked and indexed (see `--tables`), with only the columns that the query mentions (see `--columns`).

With `--peers`, other systems get the same rows in the same batches, with `--workers` workers. Each query is measured
once. `ikebana_bench.tpch.peers` describes how each system is fed, and what its time excludes:

    duckdb      answers from scratch after every batch; only the number of rows of its answers is checked
    pathway     maintains all 22 queries; answers are compared with Spark's, as floating-point numbers
    structured  Spark Structured Streaming, for the queries that it supports; answers are compared with Spark's

Tuples of a peer are counted like ours, so `NAME_ratio` is the peer's time over ours; above 1, we are faster. Queries
that a peer cannot run are missing from the results: `NAME_queries` is the number of queries that it can run, and the
reasons are logged. `--scale 0.1` has shorter runs with fewer batches, so DuckDB answers less often.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa

from ikebana.engine import Engine
from ikebana_bench.measure import Series
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Figure, Results, Scenario, parameter
from ikebana_bench.tpch import data
from ikebana_bench.tpch.answers import expected, wrong
from ikebana_bench.tpch.feeding import Fed, FedParameters, Job, batch_over, engine_of, warm
from ikebana_bench.tpch.peers import CannotRun, Peer, Rows, named, peer
from ikebana_bench.tpch.schemas import numbers
from ikebana_bench.tpch.serving import Times, by_query, listed, panel_by_query, spark_session
from ikebana_bench.units import split

PEERS = ("duckdb", "pathway", "structured")
"""The systems that can be measured for comparison."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RatesParameters(FedParameters):
    batch: int = parameter(100_000, "rows of each table in a logical batch, which is one epoch", minimum=1)
    repeats: int = parameter(3, "number of measurements per query; the fastest counts", minimum=1)


class TpchRates(Scenario[RatesParameters]):
    """Measure tuples per second in logical batches, with one worker and with several."""

    name = "tpch-rates"
    claim = "Each of the 22 queries is maintained at hundreds of thousands to millions of tuples per second."
    paper = "appendix B (rates)"
    parameters = RatesParameters

    def run(self, parameters: RatesParameters, progress: Progress) -> Results:
        peers = [peer(name, parameters.workers) for name in named(parameters.peers, PEERS)]
        folder = data.tables(parameters.scale, Path(parameters.data))
        tables, chosen = data.read(folder), numbers(parameters.queries)
        results: dict[int, Times] = {number: {} for number in chosen}
        with spark_session(0) as spark:
            batch = batch_over(spark, folder, parameters.workers)
            jobs = {number: parameters.job(spark, number) for number in progress.track("planning", chosen)}
            spark_answers = {number: expected(batch, number) for number in progress.track("asking Spark", chosen)}
        for workers in sorted({1, parameters.workers}):
            with engine_of(workers) as engine:
                for number in progress.track(f"feeding, workers: {workers}", chosen):
                    rows = jobs[number].rows(tables)
                    times = self._feed(engine, jobs[number], rows, spark_answers[number], parameters)
                    results[number] |= {f"workers_{workers}_{metric}": value for metric, value in times.items()}
        ours = f"workers_{parameters.workers}_tuples_per_s"
        for system in peers:
            with system:
                for number in progress.track(system.title, chosen):
                    rows = jobs[number].rows(tables)
                    times = self._feed_peer(system, number, rows, spark_answers[number], parameters.batch)
                    results[number] |= times | speedup(system.name, times, results[number][ours])
        return {**dict(summarised(results, parameters)), **dict(listed(results))}

    def figures(self, results: Results) -> Sequence[Figure]:
        """Return one panel with a point for each query."""
        series = [name for name, value in results.items() if isinstance(value, Series)]
        metrics = {split(name)[0].removesuffix(" tuples"): name for name in series}
        return [panel_by_query(self.name, "tuples per second", results, metrics)]

    def _feed(self, engine: Engine, job: Job, rows: Rows, spark_answer: pa.Table, parameters: RatesParameters) -> Times:
        warm(engine, job, rows)
        spent, cpu = [], []
        for _ in range(parameters.repeats):
            with Fed(engine, job) as fed:
                used = process_time()
                in_progress = parameters.in_progress if engine.cluster.size > 1 else 1
                spent.append(fed.feed(rows, parameters.batch, in_progress))
                cpu.append(process_time() - used)
                problem = wrong(job.number, fed.answer(), spark_answer)
            self.verify(not problem, f"Q{job.number} equals Spark's answer", detail=problem)
        rates = {"tuples_per_s": tuples(rows) / min(spent), "elapsed_s": min(spent)}
        return rates | ({"cpu_s": min(cpu)} if engine.cluster.size == 1 else {})

    def _feed_peer(self, peer: Peer, number: int, rows: Rows, spark_answer: pa.Table, batch: int) -> Times:
        """Return the times of a peer for the same rows; empty if the peer cannot run the query."""
        try:
            spent, answer = peer.feed(number, rows, batch)
        except CannotRun as error:
            _log.warning("%s", error)
            return {}
        problem = peer.wrong(number, answer, spark_answer)
        self.verify(not problem, f"{peer.title}'s answer to Q{number} is correct", detail=problem)
        return {f"{peer.name}_tuples_per_s": tuples(rows) / spent, f"{peer.name}_elapsed_s": spent}


def speedup(name: str, times: Times, ours: float) -> Times:
    """Return our speed over the speed of a peer; empty if the peer could not run the query."""
    return {f"{name}_ratio": ours / times[f"{name}_tuples_per_s"]} if times else {}


def tuples(rows: Rows) -> int:
    """Return the total number of rows."""
    return sum(table.num_rows for table in rows.values())


def summarised(results: Mapping[int, Times], parameters: RatesParameters) -> Iterator[tuple[str, float | Series]]:
    """Yield the minimum, median and maximum rate over all queries, and the comparison with each peer."""
    for workers in sorted({1, parameters.workers}):
        rates = [times[f"workers_{workers}_tuples_per_s"] for times in results.values()]
        for name, value in {"min": min(rates), "p50": float(np.median(rates)), "max": max(rates)}.items():
            yield f"workers_{workers}_{name}_tuples_per_s", value
        yield f"workers_{workers}_tuples_per_s", by_query(results, f"workers_{workers}_tuples_per_s")
    if parameters.workers > 1:
        yield from _scaled(f"workers_{parameters.workers}", results)
    for name in named(parameters.peers, PEERS):
        yield from compared(name, results)


def _scaled(several: str, results: Mapping[int, Times]) -> Iterator[tuple[str, float]]:
    """Yield the minimum, median and maximum of the speed of several workers over that of one."""
    ratios = [times[f"{several}_tuples_per_s"] / times["workers_1_tuples_per_s"] for times in results.values()]
    for name, value in {"min": min(ratios), "p50": float(np.median(ratios)), "max": max(ratios)}.items():
        yield f"{several}_{name}_ratio", value


def compared(name: str, results: Mapping[int, Times]) -> Iterator[tuple[str, float | Series]]:
    """Yield how many queries a peer could run, for how many of them we are faster, and by what factor."""
    supported = {number: times for number, times in results.items() if f"{name}_ratio" in times}
    ratios = [times[f"{name}_ratio"] for times in supported.values()]
    yield f"{name}_queries", len(supported)
    yield f"faster_than_{name}", sum(ratio > 1 for ratio in ratios)
    if ratios:
        yield f"{name}_min_ratio", min(ratios)
        yield f"{name}_p50_ratio", float(np.median(ratios))
        yield f"{name}_tuples_per_s", by_query(supported, f"{name}_tuples_per_s")
