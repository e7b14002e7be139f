"""Logs: records that are appended and synced, by any number of threads.

A log is a sequence of files, its segments. `append` writes a record to the operating system and returns a position;
`sync` returns once everything up to a position is durable. While one thread syncs, others append, and the next sync
covers all of them: group commit. `when_synced` calls a function instead of waiting.

On a filesystem that cannot append, records are kept in memory, and a sync writes those that wait as one file.

Segments end at a size. `trim` deletes the segments whose records are all of epochs that snapshots cover, except those
that are held: `hold` keeps the segments of all records that are appended from then on, until `release`, which says up
to which epoch they are needed.

If an append fails, nothing of it stays in the log. If a sync fails, it is not known what is durable: the log is broken,
and everything that is done with it raises. An interrupt (Ctrl-C) of a sync is no failure.

Cost: an append is one system call, and takes 20 us with a body of a kilobyte; a sync is that of the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias

from ikebana.errors import StorageError
from ikebana.storage.directory import Appender, Directory, FileEntry
from ikebana.storage.records import FileHeader, Kind, LogFile, Record, Stored

SEGMENT_BYTES = 64 << 20

_RETRIES = 10
"""How often segments are listed and read again, because one was deleted in between."""

_FILE_BYTES = 64 << 10
"""What each file of a log costs, besides its bytes, where every sync writes one."""

_TRIMMED_BYTES = 1 << 20
"""A current segment that is at least this long is ended when all its records are covered."""

WhenSynced: TypeAlias = Callable[[Exception | None], None]
Guard: TypeAlias = Callable[[], None]
Pins: TypeAlias = list[tuple[str, int]]
"""The files of a log, in order, and up to where each is read."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Files that were deleted."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Collected) -> Collected:
        return Collected(self.files + other.files, self.bytes + other.bytes)


def _nothing() -> None:
    """Nobody else uses the directory."""


@dataclass(frozen=True, slots=True)
class Guards:
    """What is called before every sync, and raises if others write by now; after it, and raises if others may have read
    before; and before files are deleted, and raises if others may need them."""

    before_sync: Guard = _nothing
    after_sync: Guard = _nothing
    before_deletion: Guard = _nothing


NO_GUARDS = Guards()


@dataclass(slots=True, eq=False)
class _Segment:
    number: int
    path: str
    bytes: int
    last_epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class SegmentHold:
    """Keeps the segments of a log from a number on."""

    segment: int


class Log:
    """A log that is being written."""

    def __init__(
        self,
        directory: Directory,
        path: str,
        incarnation: int,
        shard: int,
        guards: Guards = NO_GUARDS,
        *,
        segment_bytes: int | None = None,
    ) -> None:
        """`path` is that of its segments, without their numbers."""
        self._directory, self._path, self._guards = directory, path, guards
        self._segment_bytes = SEGMENT_BYTES if segment_bytes is None else segment_bytes
        self._incarnation, self._shard = incarnation, shard
        self._append_lock = threading.Lock()
        self._changed = threading.Condition()  # guards all fields below
        self._failure: Exception | None = None
        self._is_syncing = False
        self._appended = self._synced = 0
        self._segments: list[_Segment] = []  # those that are complete
        self._holds: set[SegmentHold] = set()
        self._number, self._last_epoch, self._segment_epoch, self._earlier_size = 0, -1, -1, 0
        self._waiting: list[Record] = []  # of a filesystem that cannot append
        self._appender: Appender | None = None
        self._synced_size = 0  # of the current segment
        self._syncer: _Syncer | None = None
        self.syncs = 0

    @property
    def can_append(self) -> bool:
        """Whether records are written when they are appended, and not when they are synced."""
        return self._directory.can_append

    @property
    def bytes(self) -> int:
        """The number of bytes of all records, including those that were trimmed.

        On a filesystem that cannot append, a file counts as more than its bytes: what it costs to read and delete.
        """
        return self._appended if self.can_append else self._appended + self._number * _FILE_BYTES

    # Appending.

    def prepare(self) -> None:
        """Create the first segment, so that there is space for a few records even if the disk is full by then."""
        with self._append_lock:
            if self._directory.can_append and self._appender is None:
                self._new_segment()

    def append(self, record: Record) -> int:
        """Append a record; return the position up to which to sync."""
        return self.append_all([record])

    def append_all(self, records: Sequence[Record]) -> int:
        """Append records with one write: all or none. Return the position up to which to sync."""
        can_append = self._directory.can_append
        with self._append_lock:
            self._raise_failure()
            length = self._append_to_file(records) if can_append else _chunks_of(records, 0, None)[1]
            with self._changed:
                if can_append:
                    self._segment_epoch = max(self._segment_epoch, *(record.epoch for record in records))
                else:
                    self._waiting += records
                self._appended += length
                return self._appended

    def _append_to_file(self, records: Sequence[Record]) -> int:
        if self._appender is not None and self._appender.size >= self._segment_bytes:
            self._end_segment()
        appender = self._appender or self._new_segment()
        before = appender.size
        try:
            appender.append(_chunks_of(records, before, self._synced_size)[0])
        except Exception as error:
            if not appender.is_intact:
                self._fail(error)
            raise
        return appender.size - before

    def _new_segment(self) -> Appender:
        self._guards.before_sync()
        appender = self._directory.create(self._segment_path(), [self._header().encode()])
        with self._changed:
            self._appender, self._synced_size = appender, appender.size
        return appender

    def _segment_path(self) -> str:
        return f"{self._path}{self._number:06d}"

    def _header(self) -> FileHeader:
        return FileHeader(self._incarnation, self._shard, self._number, self._last_epoch, self._earlier_size)

    def _end_segment(self) -> None:
        """Sync and close the current segment; the append lock is held."""
        self.sync()
        with self._changed:
            while self._is_syncing:
                self._changed.wait()
            appender, self._appender = self._appender, None
            if appender is not None:
                self._complete(appender.size, self._segment_epoch)
                self._segment_epoch = -1
        if appender is not None:
            appender.close()

    def _complete(self, size: int, epoch: int) -> None:
        """Note that the current segment is complete, and its last epoch."""
        self._segments.append(_Segment(self._number, self._segment_path(), size, epoch))
        self._last_epoch = max(self._last_epoch, epoch)
        self._number, self._earlier_size = self._number + 1, size

    # Syncing.

    def sync(self, position: int | None = None) -> None:
        """Return once everything up to a position, or all that was appended, is durable."""
        with self._changed:
            position = self._appended if position is None else position
            while self._is_syncing and self._synced < position:
                self._changed.wait()
            if self._synced >= position:
                return
            self._raise_failure()
            self._is_syncing = True
            target, appender, waiting = self._appended, self._appender, self._waiting
            size = 0 if appender is None else appender.size
            self._waiting = []
        is_done = False
        try:
            self._guards.before_sync()
            if appender is not None:
                appender.sync()
            elif waiting:
                self._write_group(waiting)
            self._guards.after_sync()
            is_done = True
        except Exception as error:
            self._fail(error)
            raise
        finally:
            with self._changed:
                self._is_syncing, self.syncs = False, self.syncs + 1
                if is_done:
                    self._synced, self._synced_size = target, size
                else:  # an interrupt: the next sync does it again
                    self._waiting = waiting + self._waiting
                self._changed.notify_all()

    def _write_group(self, records: list[Record]) -> None:
        """Write records as a file of their own."""
        header = self._header().encode()
        chunks, size = _chunks_of(records, len(header), None)
        self._directory.write(self._segment_path(), [header, *chunks])
        with self._changed:
            self._complete(size, max(record.epoch for record in records))

    def when_synced(self, position: int, callback: WhenSynced) -> None:
        """Call a function once everything up to a position is durable, or an error if that fails.

        The function is called by a thread of the log, and must be quick.
        """
        with self._changed:
            if self._syncer is None:
                self._syncer = _Syncer(self)
            syncer = self._syncer
        syncer.add(position, callback)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise StorageError(
                f"the log {self._directory.full(self._path)} cannot be written any more",
                detail=f"writing it failed before: {self._failure}",
                hint="restart the workers: they continue from what is stored",
            ) from self._failure

    # Ends.

    def trim(self, covered: int) -> Collected:
        """Delete the first segments, as far as all their records are of epochs up to `covered`.

        What covers them was published before: whoever has read less has claimed the directory by then.
        """
        with self._append_lock:
            current = self._appender
            if current is not None and current.size >= _TRIMMED_BYTES and self._segment_epoch <= covered:
                self._end_segment()
                self._new_segment()
        segments = self._first_covered(covered)
        if segments:
            self._guards.before_deletion()
            self._directory.delete_all(segment.path for segment in segments)
            with self._changed:
                self._segments = self._segments[len(segments) :]
        return Collected(len(segments), sum(segment.bytes for segment in segments))

    def _first_covered(self, covered: int) -> list[_Segment]:
        """The first segments, as far as they are complete, and nothing in them is needed."""
        with self._changed:
            held = min((hold.segment for hold in self._holds), default=self._number)
            return list(takewhile(lambda first: first.last_epoch <= covered and first.number < held, self._segments))

    def hold(self) -> SegmentHold:
        """Keep the segments of all records that are appended from now on."""
        with self._append_lock, self._changed:
            hold = SegmentHold(self._number)
            self._holds.add(hold)
            return hold

    def release(self, hold: SegmentHold, epoch: int) -> None:
        """Keep the segments that were held only until all records up to an epoch are covered; -1: no longer."""
        with self._changed:
            self._holds.discard(hold)
            for segment in self._segments:
                if segment.number >= hold.segment:
                    segment.last_epoch = max(segment.last_epoch, epoch)

    def close(self) -> None:
        """Sync and close the log, unless it is broken."""
        if self._syncer is not None:
            self._syncer.close()
        with self._append_lock:
            try:
                if self._failure is None:
                    self.sync()
            finally:
                appender, self._appender = self._appender, None
                if self._failure is None:
                    self._failure = StorageError("the log is closed")
                if appender is not None:
                    appender.close()


def _chunks_of(records: Sequence[Record], start: int, synced: int | None) -> tuple[list[Any], int]:
    """The bytes of records, to be written at an offset of a file, and where they end.

    The file is synced up to `synced`; None if it is written as a whole: then a record is there if a later one is.
    """
    chunks: list[Any] = []
    for record in records:
        pieces = record.chunks(start, start if synced is None else synced)
        chunks += pieces
        start += sum(memoryview(piece).nbytes for piece in pieces)
    return chunks, start


class _Syncer:
    """A thread that syncs a log for those who do not want to wait."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._changed = threading.Condition()
        self._waiting: list[tuple[int, WhenSynced]] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="ikebana-log-sync", daemon=True)
        self._thread.start()

    def add(self, position: int, callback: WhenSynced) -> None:
        with self._changed:
            self._waiting.append((position, callback))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._is_closed:
                        return
                    self._changed.wait()
                taken, self._waiting = self._waiting, []
            failure: Exception | None = None
            try:
                self._log.sync(max(position for position, _ in taken))
            except Exception as error:
                failure = error
            for _, callback in taken:
                callback(failure)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()


# Reading.


def find_segments(directory: Directory, path: str) -> list[FileEntry]:
    """The segments of a log, in order."""
    parent = path.rpartition("/")[0]
    return [entry for entry in directory.files(parent) if _is_segment(entry.path, path)]


def _is_segment(path: str, prefix: str) -> bool:
    return path.startswith(prefix) and path[len(prefix) :].isdigit()


def sync_log(directory: Directory, path: str) -> None:
    """Make a log durable, of which a process that was killed may not have synced all records."""
    for entry in find_segments(directory, path):
        directory.sync(entry.path)


def scan_log(directory: Directory, path: str, covered: int) -> tuple[Pins, list[Stored]]:
    """The segments of a log that are needed and where their records end, and the records of all segments.

    `covered` is the epoch up to which nothing of the log is needed: a missing segment with later records is an error.
    The first segments are left out if nothing in them is needed: whoever wrote the log may still delete them.
    """
    pins: Pins = []
    segments: list[list[Stored]] = []
    for name, content in _read_segments(directory, path):
        file = LogFile(directory, name, content)
        if file.header is not None:  # else a crash while it was created
            if not _continues(directory, path, file.header, pins, covered):
                pins, segments = [], []
            own = list(file.records())
            pins.append((name, own[-1].end if own else file.start))
            segments.append(own)
    unneeded = sum(1 for _ in takewhile(lambda own: _are_covered(own, covered), segments))
    return pins[unneeded:], [stored for own in segments for stored in own]


def _are_covered(segment: list[Stored], covered: int) -> bool:
    """Whether the records of a segment are all of transactions of epochs up to `covered`."""
    kinds = (Kind.TRANSACTION, Kind.ABORT)
    return all(stored.record.kind in kinds and stored.record.epoch <= covered for stored in segment)


def _read_segments(directory: Directory, path: str) -> list[tuple[str, Any]]:
    """The segments of a log, with their contents.

    Where there are no locks, a worker of an incarnation that is over may still delete some that are not needed.
    """
    for _ in range(_RETRIES):
        with suppress(FileNotFoundError):
            return _segments_now(directory, path)
    return _segments_now(directory, path)


def _segments_now(directory: Directory, path: str) -> list[tuple[str, Any]]:
    paths = [entry.path for entry in find_segments(directory, path)]
    return list(zip(paths, directory.read_all(paths), strict=True))


def _continues(directory: Directory, path: str, header: FileHeader, pins: Pins, covered: int) -> bool:
    """Whether a segment continues those before it. If not, those are not needed; if they are, raise."""
    if not header.segment:
        return True
    before = f"{path}{header.segment - 1:06d}"
    if pins and pins[-1] == (before, header.earlier_size):
        return True
    if header.earlier_epoch <= covered:  # they were trimmed; a crash may have brought some back
        return False
    problem = "it is shorter than it was" if pins and pins[-1][0] == before else "it is missing"
    raise directory.damaged(before, problem, f"transactions of epochs up to {header.earlier_epoch}")


def read_log(directory: Directory, pins: Pins) -> Iterator[Stored]:
    """The records of a log, in the order in which they were appended."""
    contents = directory.read_all([path for path, _ in pins])
    for path, length in pins:
        try:
            content = next(contents)
        except FileNotFoundError:
            raise directory.damaged(path, "it is missing", "the transactions in it") from None
        yield from LogFile(directory, path, content).records(length)
