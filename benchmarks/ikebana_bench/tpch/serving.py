"""What benchmarks of TPC-H on Spark have in common: tables of a session, rounds of changes, and comparing with Spark.

`lineitem` is a kept table like the others, or a stream as in the paper: of that nothing is kept, and a query sees the
rows that come after it was installed. A query that reads it then has an answer at once, over no line items at all.
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
"""The queries that do not read line items."""

FROM_LINEITEM = tuple(number for number in QUERIES if number not in WITHOUT_LINEITEM)
"""Those that do."""

Times = dict[str, float]
"""What was measured of a query, by metric."""

_WARM_ROWS = 200
_FILL_ROWS = 500_000
_FEW = 0.05  # the scale up to which Spark is faster without compiling anything


@contextmanager
def spark_session(workers: int, config: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """The SparkSession that is active, or else one that ends with the block, with slots for so many workers."""
    from ikebana.spark import spark_session  # here, since the other benchmarks need no PySpark, which takes a while

    active = spark_session.active_session()
    spark = active or spark_session.start(workers, config=config)
    try:
        yield spark
    finally:
        if active is None:
            spark.stop()


def create(session: Session, *, stream: bool) -> None:
    """The eight tables, empty; `lineitem` as a stream if so."""
    for name in TABLES:
        if stream and name == "lineitem":
            session.create_table(name, SCHEMAS[name], stream=True)
        else:
            session.create_table(name, SCHEMAS[name], KEYS[name])


def fill(session: Session, tables: Mapping[str, pa.Table], progress: Progress) -> dict[str, float]:
    """Insert rows into all kept tables, from this process."""
    watch = Stopwatch()
    for name in progress.track("loading", TABLES):
        if session.table(name).kind != "stream":
            for start in range(0, tables[name].num_rows, _FILL_ROWS):
                session.table(name).insert(tables[name].slice(start, _FILL_ROWS))
    session.engine.run()
    return {"load_s": watch.seconds}


def apply(session: Session, changes: Round) -> None:
    """One round of changes, as one transaction; to a stream rows are only added."""
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
    """Install the queries over a few rows, then forget them: processes have then loaded the code that they need.

    Returns how many milliseconds each view took, most of which is Java's start: it has not planned anything before.
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
    """Memory that all workers hold now, each by itself: the code of libraries, which they share, does not count."""
    cluster: Any = session.engine.cluster
    return sum([int(psutil.Process(pid).memory_full_info().uss) for pid in cluster.pids])


def listed(results: Mapping[int, Times]) -> Iterator[tuple[str, float]]:
    """All that was measured of each query."""
    for number, times in results.items():
        for metric, value in times.items():
            yield f"q{number}_{metric}", value


def by_query(results: Mapping[int, Times], metric: str) -> Series:
    """One metric of all queries, over their numbers."""
    return Series(tuple(map(float, results)), tuple(times[metric] for times in results.values()))


def panel_by_query(title: str, y_label: str, results: Results, metrics: Mapping[str, str]) -> Figure:
    """A panel with a point for each query: `metrics` has labels, and the series that `by_query` made."""
    curves = {label: series for label, name in metrics.items() if isinstance(series := results.get(name), Series)}
    return Figure(title, "query", curves, y_label, x_scale="linear", points=True)


class Oracle:
    """Spark's answers over given rows. A table is written to a file once, for as long as it stays the same."""

    def __init__(self, spark: Any, scale: float) -> None:
        self._batch = SparkAnswers(spark, QUICK if scale < _FEW else LARGE)
        self._folder = TemporaryDirectory()
        self._written: dict[str, pa.Table] = {}
        self._files = 0

    def expected(self, number: int, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The answer to one of the 22 over these tables, without its LIMIT."""
        for name in tables_of(number):
            rows = tables[name]
            if self._written.get(name) is not rows:
                self._files += 1
                self._batch.write(Path(self._folder.name) / str(self._files), {name: rows})
                self._written[name] = rows
        return expected(self._batch, number)

    def wrong(self, number: int, answer: pa.Table, tables: Mapping[str, pa.Table]) -> str:
        """What is wrong with an answer to one of the 22 over these tables; nothing if it is right."""
        return wrong(number, answer, self.expected(number, tables))

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()
