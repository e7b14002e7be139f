"""What the benchmarks of TPC-H on Spark share: tables of a session, rounds of changes, and comparison with Spark.

`lineitem` is either a stored table like the others, or a stream as in the paper. The rows of a stream are not stored: a
query sees only the rows that arrive after its installation. The first answer of a query that reads the stream is
therefore computed over no line items.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa

from ikebana.spark.answers import LARGE, QUICK, SparkAnswers
from ikebana_bench.measure import Series, Stopwatch
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Figure, Results
from ikebana_bench.tpch.answers import expected, wrong
from ikebana_bench.tpch.schemas import KEYS, QUERIES, SCHEMAS, TABLES, query, tables_of
from ikebana_bench.tpch.stream import Round

if TYPE_CHECKING:
    from ikebana.spark import Session

WITHOUT_LINEITEM = (2, 11, 13, 16, 22)
"""The numbers of the queries that do not read lineitem."""

FROM_LINEITEM = tuple(number for number in QUERIES if number not in WITHOUT_LINEITEM)
"""The numbers of the queries that read lineitem."""

Times = dict[str, float]
"""The measurements of a query, by metric."""

_WARM_ROWS = 200
_FILL_ROWS = 500_000
_QUICK_SCALE = 0.05  # below this scale, Spark answers faster with its QUICK settings


@contextmanager
def spark_session(workers: int, config: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """The active SparkSession, or else a new one with slots for `workers`, which is stopped at the end of the block."""
    from ikebana.spark import spark_session  # imported late: PySpark is slow to import

    active = spark_session.active_session()
    spark = active or spark_session.start(workers, config=config)
    try:
        yield spark
    finally:
        if active is None:
            spark.stop()


def create(session: Session, *, stream: bool) -> None:
    """Create the eight tables, without rows; if `stream`, `lineitem` is a stream."""
    for name in TABLES:
        if stream and name == "lineitem":
            session.create_table(name, SCHEMAS[name], stream=True)
        else:
            session.create_table(name, SCHEMAS[name], KEYS[name])


def fill(session: Session, tables: Mapping[str, pa.Table], progress: Progress) -> dict[str, float]:
    """Insert rows from the driver into all stored tables."""
    watch = Stopwatch()
    for name in progress.track("loading", TABLES):
        if session.table(name).kind != "stream":
            for start in range(0, tables[name].num_rows, _FILL_ROWS):
                session.table(name).insert(tables[name].slice(start, _FILL_ROWS))
    session.engine.run()
    return {"load_s": watch.seconds}


def apply(session: Session, changes: Round) -> None:
    """Apply one round of changes in one transaction; to a stream, only insert the new rows."""
    with session.transaction():
        for name, change in changes.items():
            table = session.table(name)
            if table.kind == "stream":
                table.insert(change.upserts)
                continue
            if change.deletes.num_rows:
                table.delete(change.deletes)
            if change.upserts.num_rows:
                table.upsert(change.upserts)


def warm(
    session: Session, tables: Mapping[str, pa.Table], numbers: Sequence[int], progress: Progress, *, stream: bool
) -> dict[int, float]:
    """Install the queries over a few rows and drop them, so that all processes have loaded the code that they need.

    Return the milliseconds of each query to its first answer. Most of that is Java planning the query for the first
    time.
    """
    spent = {}
    create(session, stream=stream)
    for number in progress.track("warming up", numbers):
        watch = Stopwatch()
        session.view(f"q{number}", query(number)).to_arrow()
        spent[number] = watch.seconds * 1e3
    with session.transaction():
        for name, rows in tables.items():
            session.table(name).insert(rows.slice(0, _WARM_ROWS))
    session.engine.run()
    for number in numbers:
        session.drop_view(f"q{number}")
    for name in TABLES:
        session.drop_table(name)
    session.engine.run()
    return spent


def resident(session: Session) -> int:
    """Return the unshared resident memory of all workers; shared library code does not count."""
    cluster: Any = session.engine.cluster
    return sum([int(psutil.Process(pid).memory_full_info().uss) for pid in cluster.pids])


def listed(results: Mapping[int, Times]) -> Iterator[tuple[str, float]]:
    """Yield all measurements of each query as metrics."""
    for number, times in results.items():
        for metric, value in times.items():
            yield f"q{number}_{metric}", value


def by_query(results: Mapping[int, Times], metric: str) -> Series:
    """Return one metric of all queries, by query number."""
    return Series(tuple(map(float, results)), tuple(times[metric] for times in results.values()))


def panel_by_query(title: str, y_label: str, results: Results, metrics: Mapping[str, str]) -> Figure:
    """Return a panel with a point for each query; `metrics` maps labels to the names of series from `by_query`."""
    curves = {label: series for label, name in metrics.items() if isinstance(series := results.get(name), Series)}
    return Figure(title, "query", curves, y_label, x_scale="linear", points=True)


class Oracle:
    """Spark's answers over given tables. A table is written to a file again only when it has changed."""

    def __init__(self, spark: Any, scale: float) -> None:
        self._batch = SparkAnswers(spark, QUICK if scale < _QUICK_SCALE else LARGE)
        self._folder = TemporaryDirectory()
        self._written: dict[str, pa.Table] = {}
        self._files = 0

    def expected(self, number: int, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Return Spark's answer to a query over these tables, without its LIMIT."""
        for name in tables_of(number):
            rows = tables[name]
            if self._written.get(name) is not rows:
                self._files += 1
                self._batch.write(Path(self._folder.name) / str(self._files), {name: rows})
                self._written[name] = rows
        return expected(self._batch, number)

    def wrong(self, number: int, answer: pa.Table, tables: Mapping[str, pa.Table]) -> str:
        """Return how an answer to a query over these tables differs from Spark's; empty if it is correct."""
        return wrong(number, answer, self.expected(number, tables))

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()
