"""One query of TPC-H by itself, over tables that are fed to it in batches, on an engine without Spark.

`lineitem` is a stream, of which nothing is kept but what the query indexes for itself. The others are keyed tables,
whose rows are checked and indexed, as users of a session have them; or they are streams too. A query gets the columns
that its text mentions, and keys, or all columns. Spark plans it beforehand, over tables of just these.

Batches are logical: each is an epoch, with so many rows of every table that the query reads, as long as that has any;
the query's answer is brought up to date for each. As many batches as there are workers are under way at a time: rows
of a stream that come in one transaction go to one worker.

One worker is in this process, in one thread; several are in processes of their own.
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
from ikebana.sql import Lowered, Planned, SourceTable
from ikebana.sql.lowering.query import lower
from ikebana_bench.measure import Stopwatch
from ikebana_bench.scenario import Parameters, parameter
from ikebana_bench.tpch.schemas import KEYS, MINIMUM_SCALE, SCHEMAS, TABLES, query, tables_of

if TYPE_CHECKING:
    from ikebana.engine import tables

_WARM_ROWS = 200


def columns_of(number: int, name: str, *, used: bool = True) -> list[str]:
    """The columns of a table that a query gets: those that it mentions, with the key; or all.

    >>> columns_of(6, "lineitem")[4:]
    ['l_discount', 'l_shipdate']
    """
    words = set(re.findall(r"\w+", query(number))).union(KEYS[name])
    return [column for column in SCHEMAS[name].names if not used or column in words]


@dataclass(frozen=True)
class Job:
    """One of the 22, planned over some columns of the tables that it reads."""

    number: int
    planned: Planned
    columns: Mapping[str, list[str]]
    kept: bool
    """Whether all tables but `lineitem` are keyed ones."""

    def rows(self, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """What it gets of some tables."""
        return {name: tables[name].select(columns) for name, columns in self.columns.items()}


@dataclass(frozen=True)
class FedParameters(Parameters):
    """Of benchmarks that feed queries."""

    scale: float = parameter(1.0, "scale factor of TPC-H; lineitem has 6M rows at 1", minimum=MINIMUM_SCALE)
    queries: str = parameter("all", "numbers of the queries, with commas between")
    tables: str = parameter(
        "keyed", "what tables are: keyed ones but for lineitem, a stream; or all streams", choices=("keyed", "streams")
    )
    columns: str = parameter("used", "the columns of tables: those that a query mentions", choices=("used", "all"))
    workers: int = parameter(2, "workers", minimum=1)
    repeats: int = parameter(1, "how often each query is measured; the best counts", minimum=1)
    peers: str = parameter("none", "other systems to measure too, with commas between: see the benchmark's text")
    data: str = parameter("build/tpch", "folder for the data, which is made once")

    def job(self, spark: Any, number: int) -> Job:
        """One of the queries, planned."""
        return job(spark, number, kept=self.tables == "keyed", used=self.columns == "used")


def job(spark: Any, number: int, *, kept: bool, used: bool) -> Job:
    """Have Spark plan one of the 22."""
    from ikebana.spark.planning import Planner

    planner = Planner(spark)
    columns = {name: columns_of(number, name, used=used) for name in tables_of(number)}
    for name, names in columns.items():
        planner.add_table(name, [SCHEMAS[name].field(column) for column in names])
    return Job(number, planner.plan(query(number)), columns, kept)


@contextmanager
def engine_of(workers: int) -> Iterator[Engine]:
    """An engine with one worker in this process, or with several in processes of their own."""
    with Engine(cluster=Processes(workers) if workers > 1 else None) as engine:
        yield engine


class Fed:
    """A query installed over empty tables, to be fed; a context manager that drops both."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._tables = {name: self._table(name, job) for name in job.columns}
        relations = {
            name: SourceTable(name, table, tuple(table.key), table.kind == "stream")
            for name, table in self._tables.items()
        }
        self._lowered: Lowered = lower(job.planned, relations)
        self._view = engine.install(f"q{job.number}", self._lowered.rows)

    def _table(self, name: str, job: Job) -> tables.Table:
        fields = [SCHEMAS[name].field(column) for column in job.columns[name]]
        if job.kept and name != "lineitem":
            return self._engine.table(name, fields, KEYS[name])
        return self._engine.table(name, fields, kind="stream")

    def feed(self, rows: Mapping[str, pa.Table], batch: int) -> float:
        """Seconds that it takes to feed all rows, in batches, until the answer for the last is complete."""
        epochs: list[int] = []
        watch = Stopwatch()
        for start in range(0, max(table.num_rows for table in rows.values()), batch):
            with self._engine.transaction():
                for name, table in rows.items():
                    if start < table.num_rows:
                        self._tables[name].insert(table.slice(start, batch))
            epochs.append(self._engine.epoch - 1)
            if len(epochs) >= self._engine.cluster.size:
                self._view.wait(epochs[-self._engine.cluster.size])
        self._view.wait(epochs[-1])
        return watch.seconds

    def answer(self) -> pa.Table:
        """The answer as it is now."""
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
    """Feed a few rows, so that code is loaded."""
    with Fed(engine, job) as fed:
        fed.feed({name: table.slice(0, _WARM_ROWS) for name, table in rows.items()}, _WARM_ROWS)
        fed.answer()


def batch_over(spark: Any, folder: Path, partitions: int) -> SparkAnswers:
    """Spark's own answers over the Parquet files of all tables, with so many shuffle partitions."""
    batch = SparkAnswers(spark, {"spark.sql.shuffle.partitions": partitions})
    for name in TABLES:
        batch.read(name, folder / name)
    return batch
