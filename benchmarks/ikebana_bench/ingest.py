"""`ingest-load`, `ingest-follow`, `ingest-insert` and `ingest-latency`: how fast changes come in on Spark, and how soon
views have them.

All of them run on a local SparkSession whose tasks host the workers; Spark, its Python and the workers share the
machine's processors. A session that is active already is taken.

`ingest-load` and `ingest-follow` take in the two large tables of TPC-H, from Parquet files that are made once, as a
batch and as a stream of files. The same DataFrame is also handed to Python functions that only count its rows: that
much is Spark's own work, and the rest is ours. Processor time (`cpu_s`) of all processes tells what a load takes where
others use the machine too. `ingest-insert` hands rows from the driver to a keyed table.

`ingest-latency` changes a table of events, which is joined with as large a table of items and summed by group, and
waits until `changes()` has the view's new sums: for one view, for several over the same tables, and for one among many
that have nothing to do. Beside it the same query runs in Structured Streaming: each change is a file that appears in
the folder of its source, and the changed sums are collected on the driver; it gets as many shuffle partitions as there
are workers, since Spark's 200 would make it slower than it is.

Ratios: `target_ratio` is above 1 where the target was met; `spark_ratio` is our time over Spark's own;
`over_ours_ratio` is Structured Streaming's latency over that of one view of ours.
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

from ikebana.engine.collection import Collection
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

LOAD_TARGET_PER_S = {"orders": 1e6}
"""Rows/s that a load should reach on two processors, Spark's work included."""

LATENCY_TARGET_MS = {("alone", 1): 2.0, ("alone", 10_000): 25.0, ("together", 1): 6.0, ("together", 10_000): 100.0}
"""Medians that one view, and ten together, should stay below, by rows in a change."""

MEMORY_TARGET = 1.3
"""Ten views should take less than so many times the memory of one."""

SLOWDOWN_TARGET = 1.2
"""A change should take less than so many times as long when a hundred views stand by."""

WARM = 5
"""Rounds before those that are measured."""


def connected(workers: int) -> Session:
    """A session on Spark."""
    from ikebana.spark import connect  # here, since the other benchmarks need no PySpark, which takes a while

    return connect(workers=workers)


# TPC-H.


def tpch(folder: Path, scale: float, files: int) -> Path:
    """A folder with a folder of Parquet files for each of the large tables, made unless it is there."""
    return tables(scale, folder, files=files, names=KEYS)


def counted(df: Any) -> int:
    """How many rows Python functions of Spark's are handed, which do nothing else with them."""

    def count(batches: Iterable[Any]) -> Iterator[Any]:  # inside, so that it travels by value
        import pyarrow

        yield pyarrow.record_batch({"n": [sum(len(batch) for batch in batches)]})

    return sum(int(row.n) for row in df.mapInArrow(count, "n BIGINT").collect())


def cpu_seconds() -> float:
    """Processor time of this process and all below it, Java included; others that use the machine do not show in it."""
    spent = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.Error):  # it has ended
            spent += sum(process.cpu_times()[:2])
    return spent


def totals(df: Any, column: str) -> tuple[Any, ...]:
    """The number of rows, and the sum of a column."""
    return tuple(df.selectExpr("count(*)", f"sum({column})").first())


@dataclass(frozen=True)
class FileParameters(Parameters):
    """Of what is loaded from files."""

    scale: float = parameter(1.0, "scale factor of TPC-H; orders has 1.5M rows at 1, lineitem 6M", minimum=0.001)
    files: int = parameter(8, "Parquet files of each table", minimum=1)
    workers: int = parameter(2, "workers", minimum=1)
    data: str = parameter("build/tpch", "folder for the data, which is made once")


@dataclass(frozen=True)
class LoadParameters(FileParameters):
    repeats: int = parameter(3, "how often each table is loaded; the best counts", minimum=1)


class IngestLoad(Scenario[LoadParameters]):
    """A DataFrame into a keyed table."""

    name = "ingest-load"
    claim = "Spark's tasks load tables into the workers at a million rows a second, and none pass through the driver."
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
        wanted = totals(df, SUMMED[name])
        own, own_cpu, spent, cpu = [], [], [], []
        before = resident_bytes()
        for repeat in range(parameters.repeats):
            watch, used = Stopwatch(), cpu_seconds()
            counted_rows = counted(df)
            own.append(watch.seconds)
            own_cpu.append(cpu_seconds() - used)
            self.verify(counted_rows == wanted[0], f"Spark hands every row of {name} to Python")
            table = session.create_table(name, df, KEYS[name])
            watch, used = Stopwatch(), cpu_seconds()
            table.load(df, progress=False)
            session.engine.run()
            spent.append(watch.seconds)
            cpu.append(cpu_seconds() - used)
            if repeat == 0:
                yield "driver_growth_bytes", max(0, resident_bytes() - before)
                held = session.status().bytes
                self.verify(totals(table.to_df(), SUMMED[name]) == wanted, f"{name} has all rows, with their values")
            table.drop()
        rate = wanted[0] / min(spent)
        yield "table_rows", wanted[0]
        yield "load_first_s", spent[0]
        yield "load_best_s", min(spent)
        yield "load_cpu_s", min(cpu)
        yield "spark_own_best_s", min(own)
        yield "spark_own_cpu_s", min(own_cpu)
        yield "rows_per_s", rate
        yield "spark_ratio", min(spent) / min(own)
        yield "held_per_row_bytes", held / max(1, wanted[0])
        if name in LOAD_TARGET_PER_S:
            yield "target_ratio", rate / LOAD_TARGET_PER_S[name]


def warm(session: Session) -> None:
    """Load a few rows, so that processes have started and imported what they need."""
    table = session.create_table("warm", "a BIGINT, b STRING", key="a")
    table.load(session.spark.range(100).selectExpr("id AS a", "CAST(id AS STRING) AS b"), progress=False)
    counted(session.spark.range(100))
    table.drop()


@dataclass(frozen=True)
class FollowParameters(FileParameters):
    files_per_epoch: int = parameter(1, "files that Spark takes into a micro-batch, which becomes an epoch", minimum=1)


class IngestFollow(Scenario[FollowParameters]):
    """A stream of files into a keyed table; each micro-batch is an epoch."""

    name = "ingest-follow"
    claim = "A stream is followed nearly as fast as Spark makes micro-batches of it."
    paper = "§6.1 (loading)"
    parameters = FollowParameters

    def run(self, parameters: FollowParameters, progress: Progress) -> Results:
        results: dict[str, float] = {}
        folder = tpch(Path(parameters.data), parameters.scale, parameters.files)
        with connected(parameters.workers) as session:
            warm(session)
            streamed(self._source(session, str(folder / "orders"), parameters))  # not measured: Java compiles
            for name in progress.track("following", list(KEYS)):
                results |= self._follow(session, name, str(folder / name), parameters)
        return results

    def _source(self, session: Session, path: str, parameters: FollowParameters) -> Any:
        """A stream of the files of a table, some at a time."""
        schema = session.spark.read.parquet(path).schema
        stream = session.spark.readStream.schema(schema)
        return stream.option("maxFilesPerTrigger", parameters.files_per_epoch).parquet(path)

    def _follow(self, session: Session, name: str, path: str, parameters: FollowParameters) -> dict[str, float]:
        df = session.spark.read.parquet(path)
        wanted = totals(df, SUMMED[name])
        source = self._source(session, path, parameters)
        watch = Stopwatch()
        batches, rows = streamed(source)
        own = watch.seconds
        self.verify(rows == wanted[0], f"Spark streams every row of {name}")
        table = session.create_table(name, df, KEYS[name])
        watch = Stopwatch()
        following = table.follow(source)
        following.wait()
        session.engine.run()
        spent = watch.seconds
        epochs = following.batches
        following.stop()
        self.verify(epochs == batches, f"each micro-batch of {name} is an epoch", detail=f"{epochs} and {batches}")
        self.verify(totals(table.to_df(), SUMMED[name]) == wanted, f"{name} has all rows, with their values")
        table.drop()
        return {
            f"{name}_table_rows": wanted[0],
            f"{name}_epochs": epochs,
            f"{name}_follow_s": spent,
            f"{name}_epoch_mean_s": spent / epochs,
            f"{name}_rows_per_s": wanted[0] / spent,
            f"{name}_spark_own_s": own,
            f"{name}_spark_ratio": spent / own,
        }


def streamed(stream: Any) -> tuple[int, int]:
    """How many micro-batches and rows a stream has, when each is handed to Python and nothing else is done."""
    rows: list[int] = []
    query = stream.writeStream.foreachBatch(lambda batch, number: rows.append(counted(batch))).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return len(rows), sum(rows)


# Events, and their sums by group.


class Events:
    """Events of items, which are in groups; knows all it has given out, and the sums that follow."""

    SCHEMA = "id BIGINT, item BIGINT NOT NULL, amount BIGINT NOT NULL"

    def __init__(self, items: int, groups: int, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.group_of = self._random.integers(0, groups, items)
        self._items: list[NDArray[np.int64]] = []
        self._amounts: list[NDArray[np.int64]] = []
        self._next = 0

    def batch(self, size: int, least: int = 50) -> dict[str, NDArray[np.int64]]:
        """New events, of amounts from `least` on."""
        ids = np.arange(self._next, self._next + size)
        self._next += size
        self._items.append(self._random.integers(0, len(self.group_of), size))
        self._amounts.append(self._random.integers(least, 100, size))
        return {"id": ids, "item": self._items[-1], "amount": self._amounts[-1]}

    @property
    def items(self) -> dict[str, NDArray[np.int64]]:
        """The items, with the group of each."""
        return {"item": np.arange(len(self.group_of)), "group": self.group_of}

    def sums(self, least: int = 0) -> dict[int, int]:
        """By group, the sum of all amounts of at least so much."""
        items, amounts = np.concatenate(self._items), np.concatenate(self._amounts)
        items, amounts = items[amounts >= least], amounts[amounts >= least]
        sums = np.zeros(int(self.group_of.max()) + 1, np.int64)
        np.add.at(sums, self.group_of[items], amounts)
        return {int(group): int(sums[group]) for group in np.unique(self.group_of[items])}


@dataclass(frozen=True)
class InsertParameters(Parameters):
    batches: int = parameter(200, "batches of each size, a transaction each", minimum=1)
    largest: int = parameter(10_000, "rows of the largest batch", minimum=1)
    rows: int = parameter(1_000_000, "rows in the table before", minimum=1)
    workers: int = parameter(2, "workers", minimum=1)
    seed: int = parameter(0, "seed of the rows", minimum=0)


class IngestInsert(Scenario[InsertParameters]):
    """Rows from the driver into a keyed table, in batches of 1, 100 and 10,000."""

    name = "ingest-insert"
    claim = "Rows of the driver are checked and applied at a rate that grows with the batch."
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
            "the table has all rows, with their values",
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
        whole = Stopwatch()
        for batch in progress.track(f"batches of {size}", prepared):
            watch = Stopwatch()
            table.insert(batch)
            spent.append(watch.seconds * 1e3)
        session.engine.run()
        name = f"batch_{size}"
        return {
            f"{name}_rows_per_s": size * batches / whole.seconds,
            **percentiles(f"{name}_insert", "ms", spent),
            f"{name}_insert_ms": ccdf(spent),
        }


# Latency.


@dataclass(frozen=True)
class LatencyParameters(Parameters):
    events: int = parameter(1_000_000, "events at first", minimum=1)
    items: int = parameter(1_000_000, "items that they are joined with", minimum=1)
    groups: int = parameter(1_000, "groups of items, each with a sum", minimum=1)
    batch: int = parameter(10_000, "rows of a large change", minimum=2)
    views: int = parameter(10, "views over the same tables, all of which change", minimum=2)
    idle: int = parameter(100, "views that stand by", minimum=1)
    changes: int = parameter(200, "changes of one row that are measured", minimum=1)
    large_changes: int = parameter(50, "large changes that are measured", minimum=1)
    streaming: int = parameter(10, "changes of each size measured with Structured Streaming; 0 for none", minimum=0)
    workers: int = parameter(2, "workers", minimum=1)
    seed: int = parameter(0, "seed of the rows", minimum=0)


class IngestLatency(Scenario[LatencyParameters]):
    """From `insert` until `changes()` has the new sums of a join."""

    name = "ingest-latency"
    claim = (
        "A row is in a join and sum over a million rows within 2 ms, 10,000 rows within 25 ms; in ten such views "
        "within 6 and 100 ms, for less than 1.3 times the memory; a hundred idle views add less than 20%."
    )
    paper = "§6.2 (many queries)"
    parameters = LatencyParameters

    def run(self, parameters: LatencyParameters, progress: Progress) -> Results:
        events = Events(parameters.items, parameters.groups, parameters.seed)
        with connected(parameters.workers) as session:
            base = events.batch(parameters.events, least=1)
            results = self._ours(session, events, base, parameters, progress)
            if parameters.streaming:
                results |= self._theirs(session, parameters, progress)
                results |= against(results, (1, parameters.batch))
        return results

    def _ours(
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
        first = session.view("sums above 0", sums_above(table, items, 0))
        first.wait()
        results: dict[str, Any] = {"first_install_ms": watch.seconds * 1e3}
        results |= measure("alone", [first])

        resident, held = resident_workers(session), session.status().bytes
        watch = Stopwatch()
        further = {i: session.view(f"sums above {i}", sums_above(table, items, i)) for i in range(1, parameters.views)}
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
            session.view(f"idle {i}", count_above(items, i)).wait()
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
        self.verify(sums == events.sums(least), f"{view.name!r} has the sums of all events")

    def _theirs(self, session: Session, parameters: LatencyParameters, progress: Progress) -> dict[str, Any]:
        """The same with Structured Streaming."""
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


def against(results: dict[str, Any], sizes: Iterable[int]) -> dict[str, float]:
    """How many times as long Structured Streaming takes as one view of ours."""
    return {
        f"{sized('streaming', size)}_over_ours_ratio": results[f"{sized('streaming', size)}_p50_ms"]
        / results[f"{sized('alone', size)}_p50_ms"]
        for size in sizes
    }


def sums_above(events: Collection, items: Collection, least: int) -> Collection:
    """Amounts of at least so much, summed by the group of their item."""

    def chosen(columns: dict[str, pa.Array]) -> Any:  # inside, so that it travels by value
        return pc.greater_equal(columns["amount"], least)

    return events.join(items, on="item").filter(chosen).sum("group", "amount", "total")


def count_above(items: Collection, least: int) -> Collection:
    """The number of items from one on, by group."""

    def chosen(columns: dict[str, pa.Array]) -> Any:
        return pc.greater_equal(columns["item"], least)

    return items.filter(chosen).count("group")


def changed(
    table: Table, views: Sequence[View], events: Events, size: int, rounds: int, progress: Progress
) -> list[float]:
    """Milliseconds from each insert until `changes()` of all views has had it."""
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
    """The name of what changes of so many rows take."""
    return f"{name}_{size}_row{'s' if size > 1 else ''}"


def latencies(name: str, size: int, spent: list[float]) -> Iterator[tuple[str, Any]]:
    """Metrics of what changes of so many rows took."""
    full = sized(name, size)
    yield from percentiles(full, "ms", spent).items()
    if (name, size) in LATENCY_TARGET_MS:
        yield f"{full}_target_ratio", LATENCY_TARGET_MS[name, size] / float(np.median(spent))
    yield f"{full}_ms", ccdf(spent)


def resident_workers(session: Session) -> int:
    """Memory that all workers hold when they have rested for a second: then they have given back what sweeps took."""
    time.sleep(1.0)
    cluster: Any = session.engine.cluster
    return sum([int(psutil.Process(pid).memory_info().rss) for pid in cluster.pids])


def memory(before: int, after: int, held_before: int, held: int) -> dict[str, float]:
    """What further views add to that of one."""
    return {
        "alone_resident_bytes": before,
        "together_resident_bytes": after,
        "together_memory_ratio": after / before,
        "together_memory_target_ratio": MEMORY_TARGET * before / after,
        "alone_held_bytes": held_before,
        "together_held_bytes": held,
    }


Change = Callable[[dict[str, NDArray[np.int64]]], tuple[float, dict[int, int]]]
"""Hands events to a stream; the milliseconds until their sums are there, and all sums."""


@contextmanager
def streaming(session: Session, events: Events, folder: Path) -> Iterator[Change]:
    """A stream of events in Structured Streaming, joined with items and summed by group."""
    spark: Any = session.spark
    source, making = folder / "source", folder / "made.parquet"
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
        pq.write_table(pa.table(batch), making)
        watch = Stopwatch()
        os.rename(making, source / f"{int(batch['id'][0])}.parquet")
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
    """The next answer of a streaming query, which may have failed instead."""
    while True:
        try:
            return answers.get(timeout=1.0)
        except queue.Empty:
            if not query.isActive:
                raise IkebanaError("the streaming query has ended", detail=str(query.exception())) from None
