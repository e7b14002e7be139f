"""`tpch-rates`: tuples a second of each of the 22 queries, fed in large batches (appendix B).

Each query runs by itself (`ikebana_bench.tpch.feeding`), with one worker and with several. Its rows are in memory
already. Every batch is an epoch with so many rows of each table that the query reads, and the answer is brought up to
date for each. Tuples are the rows of all these tables; the clock runs from the first batch to the complete answer. A
few rows were fed before, so that code is loaded. With one worker `cpu` is the processor time of it, which others that
use the machine do not change.

Spark plans the queries beforehand and answers them over the same tables, to compare the final answers with; it has
nothing to do while queries are fed.

With `--peers`, other systems take the same rows in the same batches, with as many workers as ours has at most, each
query once (`ikebana_bench.tpch.peers` says how each is fed, and what that leaves out in its favour):

    duckdb      answers anew after every batch; answers are only checked for their number of rows
    pathway     keeps all 22 up to date; answers are compared with Spark's, in floating-point numbers
    structured  Spark Structured Streaming, where Spark accepts the query; answers are compared with Spark's

A peer's tuples are counted as ours are, so `NAME_ratio` compares elapsed times: above 1 we are faster. What a peer
cannot run is not in the results: `NAME_queries` says how many it could, and the reasons are logged. `--scale 0.1` makes
for shorter runs, with fewer batches: DuckDB then answers less often.
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
"""What can be measured beside ours."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RatesParameters(FedParameters):
    batch: int = parameter(100_000, "rows of each table in a logical batch", minimum=1)


class TpchRates(Scenario[RatesParameters]):
    """Tuples a second, with logical batches, for one worker and for several."""

    name = "tpch-rates"
    claim = "Each of the 22 queries is kept up to date at hundreds of thousands to millions of tuples a second."
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
            wanted = {number: expected(batch, number) for number in progress.track("asking Spark", chosen)}
        for workers in sorted({1, parameters.workers}):
            with engine_of(workers) as engine:
                for number in progress.track(f"feeding, workers: {workers}", chosen):
                    times = self._feed(engine, jobs[number], jobs[number].rows(tables), wanted[number], parameters)
                    results[number] |= {f"workers_{workers}_{metric}": value for metric, value in times.items()}
        ours = f"workers_{parameters.workers}_tuples_per_s"
        for other in peers:
            with other:
                for number in progress.track(other.title, chosen):
                    rows = jobs[number].rows(tables)
                    times = self._beside(other, number, rows, wanted[number], parameters.batch)
                    results[number] |= times | against(other.name, times, results[number][ours])
        return {**dict(summarised(results, parameters)), **dict(listed(results))}

    def figures(self, results: Results) -> Sequence[Figure]:
        """A point for each query."""
        series = [name for name, value in results.items() if isinstance(value, Series)]
        metrics = {split(name)[0].removesuffix(" tuples"): name for name in series}
        return [panel_by_query(self.name, "tuples per second", results, metrics)]

    def _feed(self, engine: Engine, job: Job, rows: Rows, wanted: pa.Table, parameters: RatesParameters) -> Times:
        warm(engine, job, rows)
        spent, cpu = [], []
        for _ in range(parameters.repeats):
            with Fed(engine, job) as fed:
                used = process_time()
                spent.append(fed.feed(rows, parameters.batch))
                cpu.append(process_time() - used)
                problem = wrong(job.number, fed.answer(), wanted)
            self.verify(not problem, f"Q{job.number} equals Spark's answer", detail=problem)
        rates = {"tuples_per_s": tuples(rows) / min(spent), "elapsed_s": min(spent)}
        return rates | ({"cpu_s": min(cpu)} if engine.cluster.size == 1 else {})

    def _beside(self, peer: Peer, number: int, rows: Rows, wanted: pa.Table, batch: int) -> Times:
        """What a peer takes for the same; nothing if it cannot run the query."""
        try:
            spent, answer = peer.feed(number, rows, batch)
        except CannotRun as error:
            _log.warning("%s", error)
            return {}
        problem = peer.wrong(number, answer, wanted)
        self.verify(not problem, f"{peer.title}'s answer to Q{number} is right", detail=problem)
        return {f"{peer.name}_tuples_per_s": tuples(rows) / spent, f"{peer.name}_elapsed_s": spent}


def against(name: str, times: Times, ours: float) -> Times:
    """How many times as fast as a peer we are, if that could run."""
    return {f"{name}_ratio": ours / times[f"{name}_tuples_per_s"]} if times else {}


def tuples(rows: Rows) -> int:
    """How many rows there are in all."""
    return sum(table.num_rows for table in rows.values())


def summarised(results: Mapping[int, Times], parameters: RatesParameters) -> Iterator[tuple[str, float | Series]]:
    """Over all queries: the slowest, the median, the fastest; and peers beside."""
    for workers in sorted({1, parameters.workers}):
        rates = [times[f"workers_{workers}_tuples_per_s"] for times in results.values()]
        for name, value in {"min": min(rates), "p50": float(np.median(rates)), "max": max(rates)}.items():
            yield f"workers_{workers}_{name}_tuples_per_s", value
        yield f"workers_{workers}_tuples_per_s", by_query(results, f"workers_{workers}_tuples_per_s")
    for name in named(parameters.peers, PEERS):
        yield from compared(name, results)


def compared(name: str, results: Mapping[int, Times]) -> Iterator[tuple[str, float | Series]]:
    """How many queries a peer could run, for how many of these we are faster, and by what factor."""
    could = {number: times for number, times in results.items() if f"{name}_ratio" in times}
    ratios = [times[f"{name}_ratio"] for times in could.values()]
    yield f"{name}_queries", len(could)
    yield f"faster_than_{name}", sum(ratio > 1 for ratio in ratios)
    if ratios:
        yield f"{name}_min_ratio", min(ratios)
        yield f"{name}_p50_ratio", float(np.median(ratios))
        yield f"{name}_tuples_per_s", by_query(could, f"{name}_tuples_per_s")
