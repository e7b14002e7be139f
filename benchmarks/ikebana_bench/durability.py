"""`durability`: what a storage directory costs, and how long it takes to come back.

Workers are processes of this machine. Measured, with and without storage, by two engines that take turns, so that other
work of the machine affects both:

- inserts of one row, one after the other: their latency, beside the time that the disk itself takes to append as many
  bytes to a file and sync it (`fdatasync`);
- inserts of one row by several threads, which share syncs;
- transactions of many rows, and one that loads a whole table;
- inserts of one row while a snapshot of a table that was just loaded is being written; without storage, as many after
  the same loads. In both cases the table has been read before, so that its rows are sorted by then. Beside it, the
  time of the disk's own sync while another thread writes and syncs pieces of a large file, as snapshots do.

With storage: *write amplification*, the bytes that the system was given to write by driver and workers over those of
the net changes, in transactions that replace random rows, with the snapshots and merges that they cause and one
snapshot at the end. A replaced row counts twice, as it was and as it is.

Then engines are opened on what is stored: the rows of one table, from a snapshot, and small transactions since the last
snapshot, from the log; with no view, one and several, until all have answered. The time to load the same rows into an
empty table is the reference. All of this is done for two sizes: the names of the metrics of the larger one begin with
`more`.

Not measured: Spark. Ratios: `commit_over_sync_ms` is by how much the median commit is slower than the disk's own sync;
`threads_ratio` is the rate of several threads over that of one, `stored_ratio` and `load_ratio` are the rates of large
transactions and of loads with storage over those without, `snapshot_ratio` is the 99th percentile of an insert beside a
snapshot, less that of a sync beside such writes, over that without storage, and `load_over_recovery_ratio` the time of
loading over the time of coming back.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, Table, table_storage
from ikebana.storage.disk import Disk
from ikebana_bench.measure import Stopwatch, ccdf, percentiles
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

FIELDS = {"id": pa.int64(), "group": pa.int64(), "value": pa.int64()}
ROW_BYTES = 8 * len(FIELDS)
RECORD_BYTES = 1024
"""The size of what is appended to measure the disk: about that of a logged row with its schema."""

PIECE_BYTES, PIECES = 1 << 20, 64
"""The size of what snapshots write before each sync, and of how many pieces a file consists here."""

LARGE_IDS, THREAD_IDS, SNAPSHOT_IDS = 1 << 40, 1 << 30, 1 << 31
"""Where the ids of the rows of a step begin."""

BLOCK = 10
"""How many changes an engine makes before it is the other one's turn."""

THREADS_BLOCK = 50
"""The same for each of several threads: so many that it counts little that they start, and that the last ones have no
others to share a sync with."""

SMALL_THREADS, NO_SNAPSHOT = 32, 1 << 60
"""Threads that write small transactions before an engine comes back, and a size that no log reaches meanwhile."""


@dataclass(frozen=True)
class DurabilityParameters(Parameters):
    workers: int = parameter(1, "number of worker processes", minimum=1)
    commits: int = parameter(1000, "inserts of one row, by one thread", minimum=1)
    threads: int = parameter(8, "threads that insert rows at the same time", minimum=1)
    large: int = parameter(10_000, "rows of a large transaction", minimum=1)
    large_commits: int = parameter(50, "number of large transactions", minimum=1)
    snapshots: int = parameter(5, "snapshots beside which rows are inserted", minimum=1)
    replacements: int = parameter(300, "large transactions that replace rows, for write amplification", minimum=1)
    rows: int = parameter(1_000_000, "rows of the tables that are loaded and come back", minimum=1)
    more_rows: int = parameter(10_000_000, "rows of a larger table that comes back", minimum=1)
    views: int = parameter(10, "views of the table that comes back", minimum=1)
    small: int = parameter(1000, "small transactions since the last snapshot, when the engine comes back", minimum=0)
    more_small: int = parameter(100_000, "small transactions before the larger table comes back", minimum=0)
    folder: str = parameter("", "where to store; a folder for temporary files by default")


class Durability(Scenario[DurabilityParameters]):
    name = "durability"
    claim = "Batches are immutable, so durable tables cost little more than a sync, and come back quickly."
    paper = "section 7 leaves persistence open"
    parameters = DurabilityParameters

    def run(self, parameters: DurabilityParameters, progress: Progress) -> Results:
        with TemporaryDirectory(dir=parameters.folder or None) as folder:
            names = ("sync", "changes", "replacements", "recovery", "more recovery")
            steps = iter(progress.track("measuring", names))
            next(steps)
            syncs = sync_milliseconds(Path(folder) / "syncs", parameters.commits)
            with writing_pieces(Path(folder) / "pieces"):
                busy_syncs = sync_milliseconds(Path(folder) / "syncs", parameters.commits)
            next(steps)
            with engine_on(Path(folder) / "changes", parameters) as engine:
                with engine_on(None, parameters) as other:
                    stored, plain = self._changes(Side(engine), Side(other), parameters)
                next(steps)
                amplification = self._amplification(engine, parameters)
            next(steps)
            recovery = self._recovery(Path(folder) / "recovery", parameters, parameters.rows, parameters.small)
            next(steps)
            place, sizes = Path(folder) / "more", (parameters.more_rows, parameters.more_small)
            more = self._recovery(place, parameters, *sizes)
            recovery |= {f"more_{name}": value for name, value in more.items()}
        one_row = parameters.commits / (sum(stored.commits) / 1e3)
        by_threads = parameters.threads * (parameters.commits // parameters.threads) / stored.threads_seconds
        large_rows = parameters.large_commits * parameters.large
        load, plain_load = (float(np.median(side.load_seconds)) for side in (stored, plain))
        return {
            **percentiles("sync", "ms", syncs),
            **percentiles("commit", "ms", stored.commits),
            **percentiles("plain_commit", "ms", plain.commits),
            "commit_over_sync_ms": float(np.median(stored.commits) - np.median(syncs)),
            "commits_per_s": one_row,
            "plain_commits_per_s": parameters.commits / (sum(plain.commits) / 1e3),
            "threads_commits_per_s": by_threads,
            "threads_ratio": by_threads / one_row,
            "large_rows_per_s": large_rows / stored.large_seconds,
            "plain_large_rows_per_s": large_rows / plain.large_seconds,
            "stored_ratio": plain.large_seconds / stored.large_seconds,
            "loaded_rows_per_s": parameters.rows / load,
            "plain_loaded_rows_per_s": parameters.rows / plain_load,
            "load_ratio": plain_load / load,
            **percentiles("commit_beside_snapshot", "ms", stored.beside),
            **percentiles("plain_commit_after_load", "ms", plain.beside),
            **percentiles("sync_beside_writes", "ms", busy_syncs),
            "snapshot_ratio": (p99(stored.beside) - p99(busy_syncs)) / p99(plain.beside),
            **amplification,
            **recovery,
            "commit_ms": ccdf(stored.commits),
            "plain_commit_ms": ccdf(plain.commits),
            "commit_beside_snapshot_ms": ccdf(stored.beside),
            "sync_ms": ccdf(syncs),
        }

    # With and without storage.

    def _changes(self, stored: Side, plain: Side, parameters: DurabilityParameters) -> tuple[Side, Side]:
        """What changes cost, with and without storage."""
        sides = (stored, plain)
        for first in range(0, parameters.commits, BLOCK):
            for side in sides:
                numbers = range(first, min(first + BLOCK, parameters.commits))
                side.commits += [insert_one(side.table, number) for number in numbers]
        share = parameters.commits // parameters.threads
        for first in range(0, share, THREADS_BLOCK):
            for side in sides:
                numbers = range(first, min(first + THREADS_BLOCK, share))
                side.threads_seconds += insert_by_threads(side.table, parameters.threads, numbers)
        for first in range(0, parameters.large_commits, BLOCK):
            for side in sides:
                watch = Stopwatch()
                for number in range(first, min(first + BLOCK, parameters.large_commits)):
                    side.table.insert(columns(LARGE_IDS + number * parameters.large, parameters.large))
                side.large_seconds += watch.seconds
        for _ in range(parameters.snapshots):
            self._beside_snapshot(stored, parameters.rows, None)
            self._beside_snapshot(plain, parameters.rows, len(stored.beside))
        rows = parameters.commits + parameters.threads * share + parameters.large_commits * parameters.large
        for side in sides:
            self.verify(count(side.engine) == rows + len(side.beside), "the table has all rows")
        return sides

    def _beside_snapshot(self, side: Side, rows: int, inserts: int | None) -> None:
        """Load a table, and insert rows into the other one, beside a snapshot, or until there are so many inserts."""
        loaded, content = new_table(side.engine, "loaded"), columns(0, rows)
        watch = Stopwatch()
        loaded.insert(content)
        side.load_seconds.append(watch.seconds)
        self.verify(loaded.lookup(id=0).num_rows == 1, "the loaded rows can be read")
        if inserts is None:
            side.beside += insert_beside(side.table, len(side.beside), partial(take_snapshot, side.engine))
        else:
            side.beside += [insert_one(side.table, SNAPSHOT_IDS + at) for at in range(len(side.beside), inserts)]
        side.engine.drop_table("loaded")

    def _amplification(self, engine: Engine, parameters: DurabilityParameters) -> dict[str, float]:
        """Write amplification, if the system counts the bytes that processes write."""
        table, random = new_table(engine, "replaced"), np.random.default_rng(0)
        table.insert(columns(0, parameters.rows))
        take_snapshot(engine)
        before, changed = written_bytes(engine), 0
        for number in range(parameters.replacements):
            ids = np.unique(random.integers(0, parameters.rows, parameters.large))
            table.upsert({"id": ids, "group": ids % 7, "value": ids * 3 + number + 1})
            changed += 2 * len(ids)
        take_snapshot(engine)
        written = written_bytes(engine) - before
        self.verify(count(engine, "replaced") == parameters.rows, "rows were replaced")
        net_bytes = changed * ROW_BYTES
        if not written:
            return {"net_changes_bytes": net_bytes}
        return {
            "net_changes_bytes": net_bytes,
            "written_bytes": written,
            "write_amplification_ratio": written / net_bytes,
        }

    # Coming back.

    def _recovery(self, place: Path, parameters: DurabilityParameters, rows: int, small: int) -> dict[str, float]:
        with engine_on(place, parameters) as engine:
            table, content = new_table(engine), columns(0, rows)
            watch = Stopwatch()
            table.insert(content)
            self.verify(count(engine) == rows, "the table is loaded")
            load_seconds = watch.seconds
        del content
        with engine_on(place, parameters) as engine:
            recovered, watch = recovered_seconds(engine), Stopwatch()
            self._view(engine, 0, rows)
            with_view = recovered + watch.seconds
            for number in range(1, parameters.views):
                self._view(engine, number, rows)
            with_views = recovered + watch.seconds
            with patch.object(table_storage, "SNAPSHOT_BYTES", NO_SNAPSHOT):
                insert_small(engine.tables["rows"], small)
            engine.cluster.close()  # as in a crash: no further snapshot is taken
        with engine_on(place, parameters) as engine:
            found = engine.recovered
            assert found is not None
            self.verify(found.log_rows == small, "all small transactions were in the log")
            self.verify(count(engine) == rows + small, "small transactions have come back")
        return {
            "load_s": load_seconds,
            "recovery_s": recovered,
            "recovery_with_one_view_s": with_view,
            "recovery_with_views_s": with_views,
            "recovery_with_log_s": found.seconds,
            "load_over_recovery_ratio": load_seconds / recovered,
        }

    def _view(self, engine: Engine, number: int, rows: int) -> None:
        """Install a view and read it: how many rows of each group have a value above a limit, different in each."""
        above = partial(_is_above, limit=3 * number)
        view = engine.install(f"view {number}", engine.tables["rows"].filter(above).count("group"))
        counted = int(np.sum(view.to_arrow()["count"].to_numpy()))
        self.verify(counted == max(0, rows - number - 1), "a view has come back")


def _is_above(row: Any, *, limit: int) -> Any:
    return pc.greater(row["value"], limit)


@dataclass
class Side:
    """An engine with or without storage, and what was measured: milliseconds of inserts of one row, and seconds."""

    engine: Engine
    commits: list[float] = field(default_factory=list)
    threads_seconds: float = 0.0
    large_seconds: float = 0.0
    load_seconds: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = new_table(self.engine)


@contextmanager
def engine_on(place: Path | None, parameters: DurabilityParameters) -> Iterator[Engine]:
    """An engine with worker processes, and storage if there is a place for it."""
    cluster = Processes(parameters.workers)
    with Engine(cluster=cluster, storage=None if place is None else str(place)) as engine:
        yield engine


def new_table(engine: Engine, name: str = "rows") -> Table:
    """An empty table."""
    return engine.table(name, FIELDS, key="id")


def columns(start: int, rows: int) -> dict[str, NDArray[np.int64]]:
    """Rows with consecutive ids."""
    ids = np.arange(start, start + rows, dtype=np.int64)
    return {"id": ids, "group": ids % 7, "value": ids * 3}


def insert_one(table: Table, number: int) -> float:
    """Insert a row, and return the milliseconds that this took."""
    watch = Stopwatch()
    table.insert({"id": [number], "group": [number % 7], "value": [number]})
    return watch.seconds * 1e3


def count(engine: Engine, table: str = "rows") -> int:
    """The number of rows of a table, once all changes are applied."""
    view = engine.install("count", engine.tables[table].count("group"))
    try:
        return int(np.sum(view.to_arrow()["count"].to_numpy()))
    finally:
        view.drop()


def take_snapshot(engine: Engine) -> None:
    """Take a snapshot, if there is storage."""
    if engine.storage is not None:
        engine.storage.snapshot()


def recovered_seconds(engine: Engine) -> float:
    """How long the engine took to come back."""
    assert engine.recovered is not None
    return engine.recovered.seconds


def p99(samples: list[float]) -> float:
    """The 99th percentile."""
    return float(np.quantile(samples, 0.99, method="higher"))


def written_bytes(engine: Engine) -> int:
    """How many bytes driver and workers have given the system to write to disks; 0 if the system does not count."""
    assert isinstance(engine.cluster, Processes)
    processes = (psutil.Process(pid) for pid in (os.getpid(), *engine.cluster.pids))
    return sum(process.io_counters().write_bytes for process in processes if hasattr(process, "io_counters"))


def sync_milliseconds(path: Path, times: int) -> list[float]:
    """How long the disk takes to append a record to a file and sync it, each of some times."""
    milliseconds, record = [], os.urandom(RECORD_BYTES)
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            watch = Stopwatch()
            file.write(record)
            os.fdatasync(file.fileno())
            milliseconds.append(watch.seconds * 1e3)
    return milliseconds


@contextmanager
def writing_pieces(path: Path) -> Iterator[None]:
    """A block during which another thread writes and syncs a file piece by piece, as snapshots do, again and again."""
    disk, piece, is_over = Disk(), os.urandom(PIECE_BYTES), threading.Event()

    def write() -> None:
        file = disk.create(str(path))
        for number in itertools.cycle(range(PIECES)):
            if is_over.is_set():
                break
            disk.write(file, [piece], number * PIECE_BYTES)
            disk.sync(file)
        disk.close(file)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def insert_by_threads(table: Table, threads: int, numbers: range) -> float:
    """The seconds in which several threads insert rows, one at a time, each of them with these numbers."""
    watch = Stopwatch()
    work = partial(_insert_of_thread, table, numbers)
    in_threads(threads, work, len(numbers))
    return watch.seconds


def _insert_of_thread(table: Table, numbers: range, thread: int, at: int) -> float:
    return insert_one(table, THREAD_IDS + (thread << 20) + numbers[at])


def insert_beside(table: Table, first: int, work: Callable[[], None]) -> list[float]:
    """Insert rows, one at a time, while another thread does some work; return the milliseconds of each insert."""
    milliseconds: list[float] = []
    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        milliseconds.append(insert_one(table, SNAPSHOT_IDS + first + len(milliseconds)))
    return milliseconds


def insert_small(table: Table, rows: int) -> None:
    """Insert rows with negative ids, one at a time, in many threads."""
    numbers = -(-rows // SMALL_THREADS)

    def insert(thread: int, number: int) -> None:
        row = thread * numbers + number
        if row < rows:
            insert_one(table, -1 - row)

    in_threads(SMALL_THREADS, insert, numbers)


def in_threads(threads: int, work: Callable[[int, int], object], times: int) -> None:
    """Call a function some times in each of several threads, with the numbers of thread and call."""

    def run(thread: int) -> None:
        for number in range(times):
            work(thread, number)

    running = [threading.Thread(target=run, args=(thread,)) for thread in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
