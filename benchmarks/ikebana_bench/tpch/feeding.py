"""Runs a single query of TPC-H over tables that are fed to it in batches, on an engine without Spark.

`lineitem` is a stream: its rows are not stored, except in the query's own indexes. The other tables are keyed tables,
whose rows are checked and indexed as in a session, or streams as well. The tables have the key columns and the columns
that the query mentions, or all columns. Spark plans the query beforehand, over tables with the same columns.

A logical batch is one epoch, with the next `batch` rows of every table that the query reads and that has rows left.

A single worker runs in this process, in one thread: the answer is brought up to date for each batch before the next
one is fed. Several workers run in separate processes, and several batches are in progress at a time. Workers bring the
answer up to date for all of them that have arrived; with one batch in progress, for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ikebana.cluster.processes import Processes
from ikebana.engine import Engine
from ikebana.reducers.ordering import sort_table
from ikebana.spark.answers import SparkAnswers
from ikebana.sql import LoweredQuery, Planned, SourceTable
from ikebana.sql.lowering.query import lower
from ikebana_bench.measure import Stopwatch
from ikebana_bench.scenario import Parameters, parameter
from ikebana_bench.tpch.schemas import KEYS, MINIMUM_SCALE, SCHEMAS, TABLES, query, tables_of

if TYPE_CHECKING:
    from ikebana.engine import tables

_WARM_ROWS = 200


def columns_of(number: int, name: str, *, used: bool = True) -> list[str]:
    """Return the columns of a table for a query: the key and the columns it mentions if `used`, or all columns.

    >>> columns_of(6, "lineitem")[4:]
    ['l_discount', 'l_shipdate']
    """
    words = set(re.findall(r"\w+", query(number))).union(KEYS[name])
    return [column for column in SCHEMAS[name].names if not used or column in words]


@dataclass(frozen=True)
class Job:
    """A query, planned over some columns of the tables that it reads."""

    number: int
    planned: Planned
    columns: Mapping[str, list[str]]
    keyed: bool
    """Whether all tables except `lineitem` are keyed tables; otherwise they are streams."""

    def rows(self, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Return the columns that the query needs of the tables that it reads."""
        return {name: tables[name].select(columns) for name, columns in self.columns.items()}


@dataclass(frozen=True)
class FedParameters(Parameters):
    """Parameters of the benchmarks that feed queries."""

    scale: float = parameter(1.0, "scale factor of TPC-H; lineitem has 6M rows at 1", minimum=MINIMUM_SCALE)
    queries: str = parameter("all", "query numbers separated by commas, or all")
    tables: str = parameter(
        "keyed", "kind of all tables except lineitem, which is a stream", choices=("keyed", "streams")
    )
    columns: str = parameter(
        "used", "columns of the tables: those that the query mentions, or all", choices=("used", "all")
    )
    workers: int = parameter(2, "number of workers", minimum=1)
    in_progress: int = parameter(16, "batches in progress at a time with several workers", minimum=1)
    repeats: int = parameter(1, "number of measurements per query; the fastest counts", minimum=1)
    peers: str = parameter("none", "other systems to measure, separated by commas; see the benchmark's module")
    data: str = parameter("build/tpch", "folder for the generated data")

    def job(self, spark: Any, number: int) -> Job:
        """Return a query, planned by Spark."""
        return job(spark, number, keyed=self.tables == "keyed", used=self.columns == "used")


def job(spark: Any, number: int, *, keyed: bool, used: bool) -> Job:
    """Return a query, planned by Spark; for `keyed` and `used` see `Job` and `columns_of`."""
    from ikebana.spark.planning import Planner

    planner = Planner(spark)
    columns = {name: columns_of(number, name, used=used) for name in tables_of(number)}
    for name, names in columns.items():
        planner.add_table(name, [SCHEMAS[name].field(column) for column in names])
    return Job(number, planner.plan(query(number)), columns, keyed)


@contextmanager
def engine_of(workers: int) -> Iterator[Engine]:
    """An engine with one worker in this process, or with several workers in separate processes."""
    with Engine(cluster=Processes(workers) if workers > 1 else None) as engine:
        yield engine


class Fed:
    """A query installed over empty tables that can be fed; a context manager that drops the query and the tables."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._tables = {name: self._table(name, job) for name in job.columns}
        relations = {
            name: SourceTable(name, table, tuple(table.key), table.kind == "stream")
            for name, table in self._tables.items()
        }
        self._lowered: LoweredQuery = lower(job.planned, relations)
        self._view = engine.install(f"q{job.number}", self._lowered.rows)

    def _table(self, name: str, job: Job) -> tables.Table:
        fields = [SCHEMAS[name].field(column) for column in job.columns[name]]
        if job.keyed and name != "lineitem":
            return self._engine.table(name, fields, KEYS[name])
        return self._engine.table(name, fields, kind="stream")

    def feed(self, rows: Mapping[str, pa.Table], batch: int, in_progress: int = 1) -> float:
        """Feed all rows in batches, and return the seconds until the answer for the last batch is complete."""
        epochs: list[int] = []
        watch = Stopwatch()
        for start in range(0, max(table.num_rows for table in rows.values()), batch):
            with self._engine.transaction():
                for name, table in rows.items():
                    if start < table.num_rows:
                        self._tables[name].insert(table.slice(start, batch))
            epochs.append(self._engine.epoch - 1)
            if len(epochs) >= in_progress:
                self._view.wait(epochs[-in_progress])
        self._view.wait(epochs[-1])
        return watch.seconds

    def answer(self) -> pa.Table:
        """Return the current answer."""
        answer = self._view.to_arrow()
        return sort_table(answer, self._lowered.order) if self._lowered.order else answer

    def __enter__(self) -> Fed:
        return self

    def __exit__(self, *error: object) -> None:
        self._view.drop()
        for name in self._tables:
            self._engine.drop_table(name)
        self._engine.run()


def warm(engine: Engine, job: Job, rows: Mapping[str, pa.Table]) -> None:
    """Feed a few rows, so that the measurement does not include loading code."""
    with Fed(engine, job) as fed:
        fed.feed({name: table.slice(0, _WARM_ROWS) for name, table in rows.items()}, _WARM_ROWS)
        fed.answer()


def batch_over(spark: Any, folder: Path, partitions: int) -> SparkAnswers:
    """Return an object that answers queries with Spark over the Parquet files of all tables."""
    batch = SparkAnswers(spark, {"spark.sql.shuffle.partitions": partitions})
    for name in TABLES:
        batch.read(name, folder / name)
    return batch
