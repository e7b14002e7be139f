"""`ingest-load`, `ingest-follow`, `ingest-insert` and `ingest-latency`: loading tables on Spark, and update latency.

All four run on a local SparkSession whose tasks host the workers; the JVM, Spark's Python processes and the workers
share the cores of the machine. If a SparkSession is already active, it is used. Not measured: starting Spark, and
writing the Parquet files.

`ingest-load` and `ingest-follow` load the two largest tables of TPC-H from Parquet files, as a batch and as a stream of
files. For comparison, Spark passes the same DataFrame to Python functions that only count the rows (`spark_own`): the
difference is our work. `cpu_s` is the processor time of all processes, which other programs on the machine hardly
influence. `ingest-insert` inserts rows from the driver into a keyed table.

`ingest-latency` inserts into a table of events, which is joined with a table of items and summed by group. It measures
the time from `insert` until `changes()` returns the new sums: for one view, for several views over the same tables, and
for one view among many idle ones. The same query also runs in Structured Streaming: each change is a new file in the
source folder, and the changed sums are collected on the driver. Structured Streaming gets one shuffle partition per
worker, because it would be slower with Spark's default of 200.

Ratios: `target_ratio` is above 1 if the target was met; `spark_ratio` is our time over Spark's own time;
`over_ours_ratio` is the latency of Structured Streaming over the latency of one of our views.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ikebana.errors import IkebanaError
from ikebana_bench.measure import Stopwatch, ccdf, percentiles, resident_bytes
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter
from ikebana_bench.tpch import schemas
from ikebana_bench.tpch.data import tables

if TYPE_CHECKING:
    from ikebana.spark import Session
    from ikebana.spark.table import Table
    from ikebana.spark.view import View

KEYS = {name: schemas.KEYS[name] for name in ("orders", "lineitem")}
SUMMED = {"orders": "o_totalprice", "lineitem": "l_extendedprice"}

LOAD_TARGET_PER_S = {"orders": 1.2e6}
"""Target for the rows per second of a load on two cores, including Spark's own work."""

LATENCY_TARGET_MS = {("alone", 1): 2.0, ("alone", 10_000): 25.0, ("together", 1): 6.0, ("together", 10_000): 100.0}
"""Targets for the median latency of one view (alone) and of ten views (together), by rows in a change."""

MEMORY_TARGET = 1.3
"""Target for the memory of ten views over the memory of one."""

SLOWDOWN_TARGET = 1.2
"""Target for the latency among a hundred idle views over the latency of a view alone."""

WARM = 5
"""Number of rounds before the measurement starts."""


def connected(workers: int) -> Session:
    """Return a session on Spark."""
    from ikebana.spark import connect  # imported late: PySpark is slow to import, and other benchmarks do not need it

    return connect(workers=workers)


# TPC-H.


def tpch(folder: Path, scale: float, files: int) -> Path:
    """Return a folder with a subfolder of Parquet files for each large table; missing files are generated."""
    return tables(scale, folder, files=files, names=KEYS)


def counted(df: Any) -> int:
    """Return the number of rows of a DataFrame, counted by Python functions in Spark's tasks."""

    def count(batches: Iterable[Any]) -> Iterator[Any]:  # a local function, so that it is pickled by value
        import pyarrow

        yield pyarrow.record_batch({"n": [sum(len(batch) for batch in batches)]})

    return sum(int(row.n) for row in df.mapInArrow(count, "n BIGINT").collect())


def cpu_seconds() -> float:
    """Return the processor time of this process and of all its descendants, including Java."""
    spent = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.Error):  # the process has ended
            spent += sum(process.cpu_times()[:2])
    return spent


def totals(df: Any, column: str) -> tuple[Any, ...]:
    """Return the number of rows of a DataFrame, and the sum of a column."""
    return tuple(df.selectExpr("count(*)", f"sum({column})").first())


@dataclass(frozen=True)
class FileParameters(Parameters):
    """Parameters of the benchmarks that load files."""

    scale: float = parameter(1.0, "scale factor of TPC-H; orders has 1.5M rows at 1, lineitem 6M", minimum=0.001)
    files: int = parameter(8, "number of Parquet files per table", minimum=1)
    workers: int = parameter(2, "number of workers", minimum=1)
    data: str = parameter("build/tpch", "folder for the generated data")


@dataclass(frozen=True)
class LoadParameters(FileParameters):
    repeats: int = parameter(3, "number of times each table is loaded; the fastest counts", minimum=1)


class IngestLoad(Scenario[LoadParameters]):
    """Load a DataFrame into a keyed table."""

    name = "ingest-load"
    claim = (
        "Spark's tasks load tables into the workers at over a million rows per second; no rows pass through the driver."
    )
    paper = "§6.1 (loading)"
    parameters = LoadParameters

    def run(self, parameters: LoadParameters, progress: Progress) -> Results:
        results: dict[str, float] = {}
        folder = tpch(Path(parameters.data), parameters.scale, parameters.files)
        with connected(parameters.workers) as session:
            warm(session)
            for name in progress.track("loading", list(KEYS)):
                df = session.spark.read.parquet(str(folder / name))
                results |= {f"{name}_{metric}": value for metric, value in self._load(session, name, df, parameters)}
        return results

    def _load(self, session: Session, name: str, df: Any, parameters: LoadParameters) -> Iterator[tuple[str, float]]:
        expected = totals(df, SUMMED[name])
        spark_own, spark_own_cpu, spent, cpu = [], [], [], []
        before = resident_bytes()
        for repeat in range(parameters.repeats):
            watch, used = Stopwatch(), cpu_seconds()
            counted_rows = counted(df)
            spark_own.append(watch.seconds)
            spark_own_cpu.append(cpu_seconds() - used)
            self.verify(counted_rows == expected[0], f"Spark passes every row of {name} to Python")
            table = session.create_table(name, df, KEYS[name])
            watch, used = Stopwatch(), cpu_seconds()
            table.load(df, progress=False)
            session.engine.run()
            spent.append(watch.seconds)
            cpu.append(cpu_seconds() - used)
            if repeat == 0:
                yield "driver_growth_bytes", max(0, resident_bytes() - before)
                held = session.status().bytes
                self.verify(totals(table.to_df(), SUMMED[name]) == expected, f"{name} has all rows with their values")
            table.drop()
        rate = expected[0] / min(spent)
        yield "table_rows", expected[0]
        yield "load_first_s", spent[0]
        yield "load_best_s", min(spent)
        yield "load_cpu_s", min(cpu)
        yield "spark_own_best_s", min(spark_own)
        yield "spark_own_cpu_s", min(spark_own_cpu)
        yield "rows_per_s", rate
        yield "spark_ratio", min(spent) / min(spark_own)
        yield "held_per_row_bytes", held / max(1, expected[0])
        if name in LOAD_TARGET_PER_S:
            yield "target_ratio", rate / LOAD_TARGET_PER_S[name]


def warm(session: Session) -> None:
    """Load a few rows, so that the measurement does not include starting processes and importing modules."""
    table = session.create_table("warm", "a BIGINT, b STRING", key="a")
    table.load(session.spark.range(100).selectExpr("id AS a", "CAST(id AS STRING) AS b"), progress=False)
    counted(session.spark.range(100))
    table.drop()


@dataclass(frozen=True)
class FollowParameters(FileParameters):
    files_per_epoch: int = parameter(1, "files per micro-batch; each micro-batch becomes an epoch", minimum=1)


class IngestFollow(Scenario[FollowParameters]):
    """Follow a stream of files into a keyed table; each micro-batch is an epoch."""

    name = "ingest-follow"
    claim = "A table follows a stream nearly as fast as Spark produces the micro-batches."
    paper = "§6.1 (loading)"
    parameters = FollowParameters

    def run(self, parameters: FollowParameters, progress: Progress) -> Results:
        results: dict[str, float] = {}
        folder = tpch(Path(parameters.data), parameters.scale, parameters.files)
        with connected(parameters.workers) as session:
            warm(session)
            streamed(self._source(session, str(folder / "orders"), parameters))  # warms up the JVM
            for name in progress.track("following", list(KEYS)):
                results |= self._follow(session, name, str(folder / name), parameters)
        return results

    def _source(self, session: Session, path: str, parameters: FollowParameters) -> Any:
        """Return a stream of the files of a table, `files_per_epoch` at a time."""
        schema = session.spark.read.parquet(path).schema
        stream = session.spark.readStream.schema(schema)
        return stream.option("maxFilesPerTrigger", parameters.files_per_epoch).parquet(path)

    def _follow(self, session: Session, name: str, path: str, parameters: FollowParameters) -> dict[str, float]:
        df = session.spark.read.parquet(path)
        expected = totals(df, SUMMED[name])
        source = self._source(session, path, parameters)
        watch = Stopwatch()
        batches, rows = streamed(source)
        spark_own = watch.seconds
        self.verify(rows == expected[0], f"Spark streams every row of {name}")
        table = session.create_table(name, df, KEYS[name])
        watch = Stopwatch()
        following = table.follow(source)
        following.wait()
        session.engine.run()
        spent = watch.seconds
        epochs = following.batches
        following.stop()
        self.verify(
            epochs == batches, f"each micro-batch of {name} is an epoch", detail=f"{epochs} epochs, {batches} batches"
        )
        self.verify(totals(table.to_df(), SUMMED[name]) == expected, f"{name} has all rows with their values")
        table.drop()
        return {
            f"{name}_table_rows": expected[0],
            f"{name}_epochs": epochs,
            f"{name}_follow_s": spent,
            f"{name}_epoch_mean_s": spent / epochs,
            f"{name}_rows_per_s": expected[0] / spent,
            f"{name}_spark_own_s": spark_own,
            f"{name}_spark_ratio": spent / spark_own,
        }


def streamed(stream: Any) -> tuple[int, int]:
    """Return the number of micro-batches and rows of a stream, counted by Python functions in Spark's tasks."""
    rows: list[int] = []
    query = stream.writeStream.foreachBatch(lambda batch, number: rows.append(counted(batch))).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return len(rows), sum(rows)


# Events and their sums by group.


class Events:
    """Generates random events of items, which belong to groups, and computes the sums of all generated events."""

    SCHEMA = "id BIGINT, item BIGINT NOT NULL, amount BIGINT NOT NULL"

    def __init__(self, items: int, groups: int, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.group_of = self._random.integers(0, groups, items)
        self._items: list[NDArray[np.int64]] = []
        self._amounts: list[NDArray[np.int64]] = []
        self._next = 0

    def batch(self, size: int, least: int = 50) -> dict[str, NDArray[np.int64]]:
        """Return `size` new events with amounts of at least `least`."""
        ids = np.arange(self._next, self._next + size)
        self._next += size
        self._items.append(self._random.integers(0, len(self.group_of), size))
        self._amounts.append(self._random.integers(least, 100, size))
        return {"id": ids, "item": self._items[-1], "amount": self._amounts[-1]}

    @property
    def items(self) -> dict[str, NDArray[np.int64]]:
        """The items and their groups."""
        return {"item": np.arange(len(self.group_of)), "group": self.group_of}

    def sums(self, least: int = 0) -> dict[int, int]:
        """Return, for each group, the sum of all amounts that are at least `least`."""
        items, amounts = np.concatenate(self._items), np.concatenate(self._amounts)
        items, amounts = items[amounts >= least], amounts[amounts >= least]
        sums = np.zeros(int(self.group_of.max()) + 1, np.int64)
        np.add.at(sums, self.group_of[items], amounts)
        return {int(group): int(sums[group]) for group in np.unique(self.group_of[items])}


@dataclass(frozen=True)
class InsertParameters(Parameters):
    batches: int = parameter(200, "batches of each size, one transaction per batch", minimum=1)
    largest: int = parameter(10_000, "rows in the largest batch", minimum=1)
    rows: int = parameter(1_000_000, "rows in the table before the measurement", minimum=1)
    workers: int = parameter(2, "number of workers", minimum=1)
    seed: int = parameter(0, "seed of the rows", minimum=0)


class IngestInsert(Scenario[InsertParameters]):
    """Insert rows from the driver into a keyed table, in batches of 1, 100 and 10,000."""

    name = "ingest-insert"
    claim = "Rows from the driver are checked and applied at a rate that grows with the batch size."
    paper = "§6.1 (loading)"
    parameters = InsertParameters

    def run(self, parameters: InsertParameters, progress: Progress) -> Results:
        events = Events(parameters.rows, 1_000, parameters.seed)
        results: dict[str, Any] = {}
        with connected(parameters.workers) as session:
            table = session.create_table("events", Events.SCHEMA, key="id")
            table.insert(events.batch(parameters.rows))
            for size in (1, 100, 10_000):
                if size <= parameters.largest:
                    results |= self._insert(session, table, events, size, parameters.batches, progress)
            rows = table.to_arrow()
        self.verify(
            (len(rows), pc.sum(rows["amount"]).as_py()) == (events._next, sum(events.sums().values())),
            "the table has all rows with their values",
        )
        return results

    def _insert(
        self, session: Session, table: Table, events: Events, size: int, batches: int, progress: Progress
    ) -> dict[str, Any]:
        for _ in range(WARM):
            table.insert(events.batch(size))
        session.engine.run()
        prepared = [events.batch(size) for _ in range(batches)]
        spent = []
        total = Stopwatch()
        for batch in progress.track(f"batches of {size}", prepared):
            watch = Stopwatch()
            table.insert(batch)
            spent.append(watch.seconds * 1e3)
        session.engine.run()
        name = f"batch_{size}"
        return {
            f"{name}_rows_per_s": size * batches / total.seconds,
            **percentiles(f"{name}_insert", "ms", spent),
            f"{name}_insert_ms": ccdf(spent),
        }


# Latency.


@dataclass(frozen=True)
class LatencyParameters(Parameters):
    events: int = parameter(1_000_000, "events before the measurement", minimum=1)
    items: int = parameter(1_000_000, "items that the events are joined with", minimum=1)
    groups: int = parameter(1_000, "groups of items, each with a sum", minimum=1)
    batch: int = parameter(10_000, "rows in a large change", minimum=2)
    views: int = parameter(10, "views over the same tables that all change", minimum=2)
    idle: int = parameter(100, "number of idle views", minimum=1)
    changes: int = parameter(200, "measured changes of one row", minimum=1)
    large_changes: int = parameter(50, "measured large changes", minimum=1)
    streaming: int = parameter(10, "measured changes of each size in Structured Streaming; 0 for none", minimum=0)
    workers: int = parameter(2, "number of workers", minimum=1)
    seed: int = parameter(0, "seed of the rows", minimum=0)


class IngestLatency(Scenario[LatencyParameters]):
    """Measure the time from `insert` until `changes()` returns the new sums of a join."""

    name = "ingest-latency"
    claim = (
        "A join and sum over a million rows reflects one new row within 2 ms and 10,000 rows within 25 ms; ten such "
        "views within 6 and 100 ms, using less than 1.3 times the memory; a hundred idle views add less than 20%."
    )
    paper = "§6.2 (many queries)"
    parameters = LatencyParameters

    def run(self, parameters: LatencyParameters, progress: Progress) -> Results:
        events = Events(parameters.items, parameters.groups, parameters.seed)
        with connected(parameters.workers) as session:
            base = events.batch(parameters.events, least=1)
            results = self._ikebana(session, events, base, parameters, progress)
            if parameters.streaming:
                results |= self._structured_streaming(session, parameters, progress)
                results |= compared(results, (1, parameters.batch))
        return results

    def _ikebana(
        self,
        session: Session,
        events: Events,
        base: dict[str, NDArray[np.int64]],
        parameters: LatencyParameters,
        progress: Progress,
    ) -> dict[str, Any]:
        table = session.create_table("events", Events.SCHEMA, key="id")
        items = session.create_table("items", "item BIGINT, `group` BIGINT NOT NULL", key="item")
        items.insert(events.items)
        table.insert(base)

        def measure(name: str, views: Sequence[View]) -> dict[str, Any]:
            sizes = {1: parameters.changes, parameters.batch: parameters.large_changes}
            return {
                key: value
                for size, rounds in sizes.items()
                for key, value in latencies(name, size, changed(table, views, events, size, rounds, progress))
            }

        watch = Stopwatch()
        first = session.view("sums above 0", sums_above(0))
        first.wait()
        results: dict[str, Any] = {"first_install_ms": watch.seconds * 1e3}
        results |= measure("alone", [first])

        resident, held = resident_workers(session), session.status().bytes
        watch = Stopwatch()
        further = {i: session.view(f"sums above {i}", sums_above(i)) for i in range(1, parameters.views)}
        for view in further.values():
            view.wait()
        results["further_install_ms"] = watch.seconds * 1e3 / len(further)
        session.engine.run()
        results |= memory(resident, resident_workers(session), held, session.status().bytes)
        results |= measure("together", [first, *further.values()])
        for least, view in {0: first, **further}.items():
            self._check(view, events, least)
            if least:
                view.drop()

        results |= measure("alone_again", [first])
        for i in progress.track("installing idle views", range(parameters.idle)):
            session.view(f"idle {i}", count_above(i)).wait()
        results |= measure("among_idle", [first])
        for size in (1, parameters.batch):
            name = sized("among_idle", size)
            ratio = results[f"{name}_p50_ms"] / results[f"{sized('alone_again', size)}_p50_ms"]
            results[f"{name}_slowdown_ratio"] = ratio
            results[f"{name}_slowdown_target_ratio"] = SLOWDOWN_TARGET / ratio
        self._check(first, events, 0)
        return results

    def _check(self, view: View, events: Events, least: int) -> None:
        answer = view.to_arrow()
        sums = dict(zip(answer["group"].to_pylist(), answer["total"].to_pylist(), strict=True))
        self.verify(sums == events.sums(least), f"view {view.name!r} has the sums of all events")

    def _structured_streaming(
        self, session: Session, parameters: LatencyParameters, progress: Progress
    ) -> dict[str, Any]:
        """Measure the same query in Structured Streaming."""
        events = Events(parameters.items, parameters.groups, parameters.seed)
        results: dict[str, Any] = {}
        with TemporaryDirectory() as folder, streaming(session, events, Path(folder)) as change:
            watch = Stopwatch()
            change(events.batch(parameters.events, least=1))
            results["streaming_start_s"] = watch.seconds
            for size in (1, parameters.batch):
                change(events.batch(size))
                rounds = range(parameters.streaming)
                prepared = [events.batch(size) for _ in rounds]
                spent = [change(batch)[0] for batch in progress.track(f"streaming, {size} rows", prepared)]
                results |= latencies("streaming", size, spent)
            sums = change(events.batch(1))[1]
        self.verify(sums == events.sums(), "Structured Streaming has the sums of all events")
        return results


def compared(results: dict[str, Any], sizes: Iterable[int]) -> dict[str, float]:
    """Return the latency of Structured Streaming over the latency of one of our views."""
    return {
        f"{sized('streaming', size)}_over_ours_ratio": results[f"{sized('streaming', size)}_p50_ms"]
        / results[f"{sized('alone', size)}_p50_ms"]
        for size in sizes
    }


def sums_above(least: int) -> str:
    """Return a query: the sum of amounts that are at least `least`, by group of their item."""
    return (
        f"SELECT `group`, sum(amount) AS total FROM events JOIN items USING (item) WHERE amount >= {least} "
        "GROUP BY `group`"
    )


def count_above(least: int) -> str:
    """Return a query: the number of items that are at least `least`, by group."""
    return f"SELECT `group`, count(*) AS count FROM items WHERE item >= {least} GROUP BY `group`"


def changed(
    table: Table, views: Sequence[View], events: Events, size: int, rounds: int, progress: Progress
) -> list[float]:
    """Return the milliseconds from each insert until `changes()` of all views has returned its epoch."""
    followers = [view.changes("now") for view in views]
    spent = []
    for at in progress.track(f"{size} rows, {len(views)} views", range(WARM + rounds)):
        batch = events.batch(size)
        watch = Stopwatch()
        epoch = table.insert(batch)
        for follower in followers:
            while next(follower)[0] != epoch:
                pass
        if at >= WARM:
            spent.append(watch.seconds * 1e3)
    for follower in followers:
        follower.close()
    return spent


def sized(name: str, size: int) -> str:
    """Return the metric name of changes of `size` rows."""
    return f"{name}_{size}_row{'s' if size > 1 else ''}"


def latencies(name: str, size: int, spent: list[float]) -> Iterator[tuple[str, Any]]:
    """Yield the metrics of the latencies of changes of `size` rows."""
    full = sized(name, size)
    yield from percentiles(full, "ms", spent).items()
    if (name, size) in LATENCY_TARGET_MS:
        yield f"{full}_target_ratio", LATENCY_TARGET_MS[name, size] / float(np.median(spent))
    yield f"{full}_ms", ccdf(spent)


def resident_workers(session: Session) -> int:
    """Return the resident memory of all workers after an idle second, in which they release temporary memory."""
    time.sleep(1.0)
    cluster: Any = session.engine.cluster
    return sum([int(psutil.Process(pid).memory_info().rss) for pid in cluster.pids])


def memory(before: int, after: int, held_before: int, held: int) -> dict[str, float]:
    """Return the memory metrics of one view and of several views together."""
    return {
        "alone_resident_bytes": before,
        "together_resident_bytes": after,
        "together_memory_ratio": after / before,
        "together_memory_target_ratio": MEMORY_TARGET * before / after,
        "alone_held_bytes": held_before,
        "together_held_bytes": held,
    }


Change = Callable[[dict[str, NDArray[np.int64]]], tuple[float, dict[int, int]]]
"""Passes events to a streaming query, and returns the milliseconds until it has their sums, and all sums."""


@contextmanager
def streaming(session: Session, events: Events, folder: Path) -> Iterator[Change]:
    """A Structured Streaming query that joins a stream of events with items and sums them by group."""
    spark: Any = session.spark
    source, temporary = folder / "source", folder / "temporary.parquet"
    source.mkdir()
    pq.write_table(pa.table(events.items), folder / "items.parquet")
    items = spark.read.parquet(str(folder / "items.parquet")).cache()
    items.count()
    answers: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    sums: dict[int, int] = {}

    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", str(session.workers))
    stream = spark.readStream.schema("id BIGINT, item BIGINT, amount BIGINT").parquet(str(source))
    summed = stream.join(items, "item").groupBy("group").agg({"amount": "sum"})
    writer = summed.writeStream.outputMode("update").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.foreachBatch(lambda batch, number: answers.put(batch.collect())).start()

    def change(batch: dict[str, NDArray[np.int64]]) -> tuple[float, dict[int, int]]:
        pq.write_table(pa.table(batch), temporary)
        watch = Stopwatch()
        os.rename(temporary, source / f"{int(batch['id'][0])}.parquet")
        rows = _answer(query, answers)
        spent = watch.seconds * 1e3
        sums.update((row[0], row[1]) for row in rows)
        return spent, sums

    try:
        yield change
    finally:
        query.stop()
        items.unpersist()
        spark.conf.set("spark.sql.shuffle.partitions", before)


def _answer(query: Any, answers: queue.SimpleQueue[list[Any]]) -> list[Any]:
    """Return the next answer of a streaming query; raise if the query has failed."""
    while True:
        try:
            return answers.get(timeout=1.0)
        except queue.Empty:
            if not query.isActive:
                raise IkebanaError(
                    "the streaming query has ended unexpectedly", detail=str(query.exception())
                ) from None
