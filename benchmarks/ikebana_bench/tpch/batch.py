"""`tpch-batch`: the time from Parquet files to the answer of each query, compared with Spark SQL (appendix B).

Our time (`elapsed`) is that of a single query (`ikebana_bench.tpch.feeding`) over whole tables: planning the query with
Spark (`plan`), reading the columns that it needs from the files (`read`), feeding them in one batch per worker, and
reading the answer (`feed`). A few rows are fed before to load the code. Not measured: starting Spark and the engine.

Spark SQL answers from the same files, with one thread and one shuffle partition per worker. It has answered each query
once before, so that the JVM is warm. With `--peers duckdb`, DuckDB answers from the same files too, with one thread per
worker.

All systems are measured equally often, and the fastest measurement counts. `spark_ratio` and `duckdb_ratio` are our
speed over the speed of the other system; above 1, we are faster. Our answers are compared with Spark's; of DuckDB's
answers, only the number of rows is checked. Differences from the paper: scale 1 instead of 10, and 2 workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ikebana.engine import Engine
from ikebana_bench.measure import Series, Stopwatch
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Figure, Results, Scenario, parameter
from ikebana_bench.tpch import data
from ikebana_bench.tpch.answers import expected, wrong
from ikebana_bench.tpch.feeding import Fed, FedParameters, Job, batch_over, engine_of, warm
from ikebana_bench.tpch.peers import has_as_many_rows, named
from ikebana_bench.tpch.peers.duck import Duck
from ikebana_bench.tpch.schemas import SCHEMAS, TABLES, numbers, query
from ikebana_bench.tpch.serving import Times, by_query, listed, panel_by_query, spark_session

SPARK_TARGET = 0.5
"""Target for the fraction of queries for which we are faster than Spark SQL."""

PEERS = ("duckdb",)
"""The systems that can be measured in addition to Spark SQL."""


@dataclass(frozen=True)
class BatchParameters(FedParameters):
    files: int = parameter(8, "number of Parquet files per table", minimum=1)


class TpchBatch(Scenario[BatchParameters]):
    """Measure the elapsed time to load the tables of each query and answer it."""

    name = "tpch-batch"
    claim = "As a batch processor, from files to answers, Ikebana is faster than Spark SQL for half of the 22 queries."
    paper = "appendix B (elapsed times)"
    parameters = BatchParameters

    def run(self, parameters: BatchParameters, progress: Progress) -> Results:
        duckdb = "duckdb" in named(parameters.peers, PEERS)
        folder = data.tables(parameters.scale, Path(parameters.data), files=parameters.files)
        times = {}
        master = {"spark.master": f"local[{parameters.workers}]"}
        with spark_session(0, master) as spark, engine_of(parameters.workers) as engine:
            for number in progress.track("answering", numbers(parameters.queries)):
                times[number], spark_answer = self._measure(spark, engine, folder, number, parameters)
                if duckdb:
                    times[number] |= self._duckdb(folder, number, spark_answer, times[number], parameters)
        return {**dict(summarised(times)), **dict(listed(times))}

    def figures(self, results: Results) -> Sequence[Figure]:
        """Return one panel with a point for each query."""
        metrics = {"ikebana": "elapsed_s", "Spark SQL": "spark_s", "DuckDB": "duckdb_s"}
        return [panel_by_query(self.name, "seconds", results, metrics)]

    def _measure(
        self, spark: Any, engine: Engine, folder: Path, number: int, parameters: BatchParameters
    ) -> tuple[Times, pa.Table]:
        """Return our times and Spark's for a query, and Spark's answer."""
        batch = batch_over(spark, folder, parameters.workers)
        spark_answer = expected(batch, number)  # also warms up the JVM
        job = parameters.job(spark, number)
        warm(engine, job, read(folder, job))
        ours, spark_seconds = [], []
        for _ in range(parameters.repeats):
            times, answer = answered(spark, engine, folder, number, parameters)
            problem = wrong(number, answer, spark_answer)
            self.verify(not problem, f"Q{number} equals Spark's answer", detail=problem)
            ours.append(times)
            spark_seconds.append(timed(lambda: batch.answer(query(number)))[0])
        best = min(ours, key=lambda times: times["elapsed_s"]) | {"spark_s": min(spark_seconds)}
        best["spark_ratio"] = best["spark_s"] / best["elapsed_s"]
        return best, spark_answer

    def _duckdb(
        self, folder: Path, number: int, spark_answer: pa.Table, ours: Times, parameters: BatchParameters
    ) -> Times:
        spent = []
        with Duck(parameters.workers) as duck:
            for name in TABLES:
                duck.read(name, folder / name)
            for _ in range(parameters.repeats):
                seconds, answer = timed(lambda: duck.answer(query(number)))
                spent.append(seconds)
        self.verify(
            has_as_many_rows(number, answer, spark_answer),
            f"DuckDB's answer to Q{number} has the expected number of rows",
        )
        return {"duckdb_s": min(spent), "duckdb_ratio": min(spent) / ours["elapsed_s"]}


def answered(
    spark: Any, engine: Engine, folder: Path, number: int, parameters: BatchParameters
) -> tuple[Times, pa.Table]:
    """Answer a query from files, and return the times and the answer."""
    watch = Stopwatch()
    job = parameters.job(spark, number)
    plan = watch.lap()
    rows = read(folder, job)
    reading = watch.lap()
    with Fed(engine, job) as fed:
        workers = engine.cluster.size
        fed.feed(rows, ceil(max(table.num_rows for table in rows.values()) / workers), in_progress=workers)
        answer = fed.answer()
        times = {"elapsed_s": watch.seconds, "plan_s": plan, "read_s": reading, "feed_s": watch.lap()}
    return times, answer


def read(folder: Path, job: Job) -> dict[str, pa.Table]:
    """Read the columns that a query needs."""
    tables = {}
    for name, columns in job.columns.items():
        schema = pa.schema([SCHEMAS[name].field(column) for column in columns])
        tables[name] = pq.read_table(folder / name, columns=columns).cast(schema)
    return tables


def timed(answer: Callable[[], pa.Table]) -> tuple[float, pa.Table]:
    """Call a function, and return the seconds that it took and its result."""
    watch = Stopwatch()
    result = answer()
    return watch.seconds, result


def summarised(results: Mapping[int, Times]) -> Iterator[tuple[str, float | Series]]:
    """Yield for how many queries we are faster, the median factor, and the total times."""
    for peer in ("spark", "duckdb"):
        ratios = [times[f"{peer}_ratio"] for times in results.values() if f"{peer}_ratio" in times]
        if ratios:
            yield f"faster_than_{peer}", sum(ratio > 1 for ratio in ratios)
            yield f"{peer}_p50_ratio", float(np.median(ratios))
        if ratios and peer == "spark":
            yield "spark_target_ratio", float(np.mean([ratio > 1 for ratio in ratios])) / SPARK_TARGET
    for name in ("elapsed_s", "spark_s", "duckdb_s"):
        if all(name in times for times in results.values()):
            yield f"all_{name}", sum(times[name] for times in results.values())
            yield name, by_query(results, name)
