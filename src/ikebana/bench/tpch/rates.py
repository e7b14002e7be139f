"""`tpch-rates`: tuples a second of each of the 22 queries, fed in large batches (appendix B).

Each query runs by itself (`ikebana.bench.tpch.feeding`), with one worker and with several. Its rows are in memory
already. Every batch is an epoch with so many rows of each table that the query reads, and the answer is brought up to
date for each. Tuples are the rows of all these tables; the clock runs from the first batch to the complete answer. A
few rows were fed before, so that code is loaded. With one worker `cpu` is the processor time of it, which others that
use the machine do not change.

Spark plans the queries beforehand and answers them over the same tables, to compare the final answers with; it has
nothing to do while queries are fed.

With `--duckdb`, DuckDB answers anew after every batch, with as many threads as there are workers. Its answers are only
checked for their number of rows. `duckdb_ratio` compares speeds, ours over its own: above 1 we are faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa

from ikebana.bench.measure import Series, Stopwatch
from ikebana.bench.progress import Progress
from ikebana.bench.scenario import Figure, Results, Scenario, parameter
from ikebana.bench.tpch import data
from ikebana.bench.tpch.answers import expected, wrong
from ikebana.bench.tpch.duck import Duck, has_as_many_rows
from ikebana.bench.tpch.feeding import Fed, FedParameters, Job, batch_over, engine_of, warm
from ikebana.bench.tpch.schemas import numbers
from ikebana.bench.tpch.serving import Times, by_query, listed, panel_by_query, spark_session
from ikebana.bench.units import split
from ikebana.engine import Engine

Rows = Mapping[str, pa.Table]


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
        folder = data.tables(parameters.scale, Path(parameters.data))
        tables, chosen = data.read(folder), numbers(parameters.queries)
        found: dict[int, Times] = {number: {} for number in chosen}
        with spark_session(0) as spark:
            batch = batch_over(spark, folder, parameters.workers)
            jobs = {number: parameters.job(spark, number) for number in progress.track("planning", chosen)}
            wanted = {number: expected(batch, number) for number in progress.track("asking Spark", chosen)}
        for workers in sorted({1, parameters.workers}):
            with engine_of(workers) as engine:
                for number in progress.track(f"feeding, workers: {workers}", chosen):
                    times = self._feed(engine, jobs[number], jobs[number].rows(tables), wanted[number], parameters)
                    found[number] |= {f"workers_{workers}_{metric}": value for metric, value in times.items()}
        for number in progress.track("DuckDB", chosen if parameters.duckdb else []):
            found[number] |= self._recompute(number, jobs[number].rows(tables), wanted[number], parameters)
        return {**dict(summarised(found, parameters)), **dict(listed(found))}

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
        found = {"tuples_per_s": tuples(rows) / min(spent), "elapsed_s": min(spent)}
        return found | ({"cpu_s": min(cpu)} if engine.cluster.size == 1 else {})

    def _recompute(self, number: int, rows: Rows, wanted: pa.Table, parameters: RatesParameters) -> Times:
        """What DuckDB takes to answer after every batch."""
        spent, size = 0.0, parameters.batch
        with Duck(parameters.workers) as duck:
            for end in range(size, max(each.num_rows for each in rows.values()) + size, size):
                for name, each in rows.items():
                    duck.show(name, each.slice(0, end))
                watch = Stopwatch()
                answer = duck.answer(number)
                spent += watch.seconds
        self.verify(has_as_many_rows(number, answer, wanted), f"DuckDB has as many rows for Q{number}")
        return {"duckdb_tuples_per_s": tuples(rows) / spent, "duckdb_elapsed_s": spent}


def tuples(rows: Rows) -> int:
    """How many rows there are in all."""
    return sum(each.num_rows for each in rows.values())


def summarised(found: Mapping[int, Times], parameters: RatesParameters) -> Iterator[tuple[str, float | Series]]:
    """Over all queries: the slowest, the median, the fastest; and DuckDB beside."""
    for workers in sorted({1, parameters.workers}):
        rates = [times[f"workers_{workers}_tuples_per_s"] for times in found.values()]
        for name, value in {"min": min(rates), "p50": float(np.median(rates)), "max": max(rates)}.items():
            yield f"workers_{workers}_{name}_tuples_per_s", value
        yield f"workers_{workers}_tuples_per_s", by_query(found, f"workers_{workers}_tuples_per_s")
    if parameters.duckdb:
        name = f"workers_{parameters.workers}_tuples_per_s"
        yield "duckdb_tuples_per_s", by_query(found, "duckdb_tuples_per_s")
        yield "duckdb_ratio", float(np.median([each[name] / each["duckdb_tuples_per_s"] for each in found.values()]))
