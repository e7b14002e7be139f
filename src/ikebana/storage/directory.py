"""Directories: where the files of a storage directory are, and those on local disks.

A `Directory` can read files, list them, delete them, and write a file as a whole: once `write` has returned the file is
there and durable, and before that nobody sees a part of it under its name, unless the filesystem shows files while
they are written (HDFS does; object stores do not). Files are never changed once they are written. A `LocalDirectory`
can also append to files, which logs use: see `Appender`. Those elsewhere are in `ikebana.storage.filesystems`.

Every primitive operation is preceded by a fault point (`ikebana.storage.faults`).

Paths are relative to the root, with slashes. A name that ends with `.tmp` is a file that is being written, or that a
crash has left behind.

Large files are written in pieces. Each is synced before the next one is written, so that a log that is synced meanwhile
never waits for more than a piece. They bypass the system's cache, or are dropped from it, since the rows are in memory.

Cost: `write` takes two syncs on a local disk (file and directory), and one more for each piece of a large file. Errors
of the system are raised as `StorageError` with the path and the reason.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from ikebana.errors import CorruptionError, StorageError
from ikebana.storage.disk import Chunks, Disk
from ikebana.storage.faults import FaultPoint, is_installed, reach

TEMPORARY = ".tmp"

_RESERVED_BYTES = 256 << 10
"""How much space is reserved at once for appending."""

_PIECE_BYTES = 1 << 20
"""Large files are synced, and dropped from the system's cache, after every so many bytes."""

_JOINED_BYTES = 64 << 10
"""Up to this size, chunks are joined before they are written, and space for them is filled with zeros."""

Pace: TypeAlias = Callable[[float], None]
"""Called after each piece of a large file with the seconds that it took; may wait before the next one is written."""


def at_once(seconds: float) -> None:
    """Do not wait."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file in a directory."""

    path: str
    size: int


class Appender(ABC):
    """A file to which bytes are appended. Not safe for use by several threads, except for `sync`."""

    size: int
    """The number of bytes that were appended."""

    is_intact: bool
    """False if a part of a record could not be removed again; nothing may be appended then."""

    @abstractmethod
    def append(self, chunks: Chunks) -> None:
        """Append bytes. If this fails, nothing was appended."""

    @abstractmethod
    def sync(self) -> None:
        """Make everything that was appended before this call durable."""

    @abstractmethod
    def close(self) -> None:
        """Close the file, without a sync."""


class Directory(ABC):
    """A directory of files."""

    uri: str
    """Where it is, for messages."""
    place: str
    """What other processes open it by; it may have credentials."""
    can_append: bool
    can_map: bool
    """Whether files can be mapped into memory."""

    @abstractmethod
    def read(self, path: str, *, mapped: bool = True) -> pa.Buffer:
        """The bytes of a file: mapped into memory where that is possible. FileNotFoundError if it does not exist."""

    def read_all(self, paths: Sequence[str]) -> Iterator[pa.Buffer]:
        """The bytes of files, in order; several may be read at once."""
        return map(self.read, paths)

    @abstractmethod
    def size(self, path: str) -> int | None:
        """The number of bytes of a file; None if it does not exist."""

    @abstractmethod
    def files(self, path: str = "") -> list[FileEntry]:
        """All files below a path, in order of their paths; none if it does not exist."""

    @abstractmethod
    def folders(self, path: str) -> list[str]:
        """The names of the directories in a directory, in order; none if it does not exist."""

    @abstractmethod
    def write(self, path: str, chunks: Chunks, pace: Pace = at_once) -> None:
        """Write a file as a whole; it is durable on return. `pace` is called after each piece, if there are several."""

    @abstractmethod
    def create(self, path: str, head: Chunks) -> Appender:
        """Create a file to append to, which begins with `head`; its name is durable on return."""

    @abstractmethod
    def sync(self, path: str) -> None:
        """Make a file durable that another process may have written without a sync."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file; it may be gone already."""

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete files; several may be deleted at once, in any order."""
        for path in paths:
            self.delete(path)

    @abstractmethod
    def delete_empty_directories(self, path: str) -> None:
        """Delete the directories at and below a path that contain no files."""

    def full(self, path: str) -> str:
        """The whole address of a file, for messages."""
        return f"{self.uri.rstrip('/')}/{path}" if path else self.uri

    def damaged(self, path: str, problem: str, lost: str) -> CorruptionError:
        """The error that a file is damaged or missing; `lost` is what it contained."""
        error = CorruptionError(
            f"the stored file {self.full(path)} is damaged",
            detail=f"{problem}; lost: {lost}",
            hint="restore the file from a copy",
        )
        error.path = path
        return error

    @contextmanager
    def _errors(self, action: str, path: str) -> Iterator[None]:
        """Raise errors of the system as errors of storage; that a file to read does not exist stays what it is."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, FileNotFoundError) and action in ("read", "delete"):
                raise
            hint = self._hint(error)
            raise StorageError(f"cannot {action} {self.full(path)}", detail=str(error), hint=hint) from error

    def _hint(self, error: Exception) -> str:
        """What to do about an error of the system."""
        hints = {
            errno.ENOSPC: "free space on the disk, or move the storage directory to a larger one",
            errno.EDQUOT: "free space, or raise the quota",
            errno.ENOENT: "check the path; if it was in use, it was deleted or renamed meanwhile",
            errno.EACCES: "check the owner and the mode of the directory",
            errno.EROFS: "the filesystem is mounted read-only",
        }
        return hints.get(getattr(error, "errno", None) or 0, "")


class LocalDirectory(Directory):
    """A directory on a disk of this machine, or on a disk that is mounted."""

    can_append = can_map = True

    def __init__(self, path: str | os.PathLike[str], disk: Disk | None = None) -> None:
        self.uri = self.place = os.path.abspath(path)
        self._disk = disk or Disk()
        self.can_lock = type(self._disk) is Disk
        self._known: set[str] = set()  # directories that exist
        self._lock = threading.Lock()

    def read(self, path: str, *, mapped: bool = True) -> pa.Buffer:
        with self._errors("read", path):
            return self._disk.read(self.full(path), mapped)

    def size(self, path: str) -> int | None:
        with self._errors("read", path):
            return self._disk.size(self.full(path))

    def files(self, path: str = "") -> list[FileEntry]:
        with self._errors("list", path):
            _, files = self._disk.tree(self.full(path))
        return sorted((FileEntry(self._relative(full), size) for full, size in files), key=lambda entry: entry.path)

    def folders(self, path: str) -> list[str]:
        with self._errors("list", path):
            directories, _ = self._disk.tree(self.full(path))
        parent = self.full(path)
        return sorted(os.path.basename(full) for full in directories if os.path.dirname(full) == parent)

    def _relative(self, full: str) -> str:
        """The path of a file below the root."""
        return full[len(self.uri) :].lstrip("/")

    def write(self, path: str, chunks: Chunks, pace: Pace = at_once) -> None:
        with self._errors("write", path):
            self._make_parents(path)
            temporary = f"{path}.{secrets.token_hex(4)}{TEMPORARY}"
            try:
                self._write_synced(temporary, chunks, pace)
                reach(FaultPoint.RENAME, path)
                self._disk.rename(self.full(temporary), self.full(path))
            except OSError:
                with suppress(OSError):
                    self._disk.delete(self.full(temporary))
                raise
            self._sync_parent(path)

    def _write_synced(self, path: str, chunks: Chunks, pace: Pace) -> None:
        reach(FaultPoint.CREATE, path)
        file = self._disk.create(self.full(path))
        try:
            offset = 0
            for piece in _pieces(chunks):
                started, size = time.perf_counter(), _size(piece)
                _write(self._disk, file, piece, offset, path, FaultPoint.WRITE, FaultPoint.WRITE_HALF, size)
                reach(FaultPoint.SYNC, path)
                self._disk.sync(file)
                if size >= _PIECE_BYTES:
                    self._disk.drop_cache(file, offset, size)
                    pace(time.perf_counter() - started)
                offset += size
        finally:
            self._disk.close(file)

    def create(self, path: str, head: Chunks) -> Appender:
        with self._errors("create", path):
            self._make_parents(path)
            reach(FaultPoint.CREATE, path)
            appender = _LocalAppender(self, self._disk, path)
            try:
                appender.append(head)
                appender.sync()
                self._sync_parent(path)
            except (StorageError, OSError):
                appender.close()
                self.delete(path)
                raise
            return appender

    def sync(self, path: str) -> None:
        with self._errors("sync", path):
            reach(FaultPoint.SYNC, path)
            self._disk.sync_path(self.full(path))
            self._sync_parent(path)

    def delete(self, path: str) -> None:
        reach(FaultPoint.DELETE, path)
        with self._errors("delete", path), suppress(FileNotFoundError):
            self._disk.delete(self.full(path))

    def delete_empty_directories(self, path: str) -> None:
        with self._errors("delete", path), self._lock:
            directories, _ = self._disk.tree(self.full(path))
            for directory in [*directories, self.full(path)]:
                with suppress(OSError):  # it is not empty, or gone
                    reach(FaultPoint.DELETE, self._relative(directory))
                    self._disk.delete(directory)
                    self._known.discard(directory)

    def create_root(self) -> None:
        """Create the directory itself; it is durable on return."""
        with self._errors("create", ""), self._lock:
            self._make(self.uri)

    def _make_parents(self, path: str) -> None:
        parent = os.path.dirname(self.full(path))
        with self._lock:
            if parent not in self._known:
                self._make(parent)

    def _make(self, directory: str) -> None:
        """Create a directory and those that it is in."""
        parent = os.path.dirname(directory)
        if self._disk.size(directory) is None:
            self._make(parent)
            reach(FaultPoint.MAKE_DIRECTORY, self._relative(directory))
            self._disk.make_directory(directory)
            self._sync(parent)
        self._known.add(directory)

    def _sync_parent(self, path: str) -> None:
        self._sync(os.path.dirname(self.full(path)))

    def _sync(self, directory: str) -> None:
        reach(FaultPoint.SYNC_DIRECTORY, self._relative(directory))
        self._disk.sync_directory(directory)


class _LocalAppender(Appender):
    """A local file with reserved space, which is zeros, after the appended bytes."""

    def __init__(self, directory: LocalDirectory, disk: Disk, path: str) -> None:
        self._directory, self._disk, self._path = directory, disk, path
        self._file = disk.create(directory.full(path))
        self.size, self._reserved, self._dropped = 0, 0, 0
        self.is_intact, self._is_closed = True, False

    def append(self, chunks: Chunks) -> None:
        total = _size(chunks)
        with self._directory._errors("append to", self._path):
            try:
                self._reserve(self.size + total)
                points = (FaultPoint.APPEND, FaultPoint.APPEND_HALF)
                _write(self._disk, self._file, chunks, self.size, self._path, *points, total)
            except (OSError, KeyboardInterrupt):
                self._undo()
                raise
        self.size += total

    def _reserve(self, size: int) -> None:
        """Have space for `size` bytes, so that a full disk is noticed before anything is written.

        Space for small records is filled with zeros: then syncs need not record which blocks of the file are written,
        which takes half as long again, and much longer while other processes change the same filesystem.
        """
        if size > self._reserved:
            more = max(size - self._reserved, _RESERVED_BYTES)
            reach(FaultPoint.RESERVE, self._path)
            self._disk.reserve(self._file, self._reserved, more)
            if size - self.size <= _JOINED_BYTES:
                reach(FaultPoint.RESERVE, self._path)
                self._disk.write(self._file, [bytes(more)], self._reserved)
            self._reserved += more

    def _undo(self) -> None:
        """Remove a record of which only a part was written."""
        self._reserved, self.is_intact = self.size, False
        reach(FaultPoint.TRUNCATE, self._path)
        self._disk.truncate(self._file, self.size)
        self.is_intact = True

    def sync(self) -> None:
        reach(FaultPoint.SYNC, self._path)
        size = self.size
        with self._directory._errors("sync", self._path):
            self._disk.sync(self._file)
            if size - self._dropped >= _PIECE_BYTES:
                self._disk.drop_cache(self._file, self._dropped, size - self._dropped)
                self._dropped = size

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        with self._directory._errors("close", self._path):
            try:
                reach(FaultPoint.TRUNCATE, self._path)
                self._disk.truncate(self._file, self.size)
            finally:
                self._disk.close(self._file)


def _pieces(chunks: Chunks) -> Iterator[Chunks]:
    """Chunks in pieces, after each of which the file is synced.

    If a large file were synced only once, all of it would be in the disk's queue before the next sync of a log, which
    then takes tenths of a second.
    """
    piece: list[Any] = []
    room = _PIECE_BYTES
    for chunk in chunks:
        rest = memoryview(chunk).cast("B") if memoryview(chunk).nbytes else b""
        while len(rest) > room:
            yield [*piece, rest[:room]]
            piece, rest, room = [], rest[room:], _PIECE_BYTES
        piece.append(rest)
        room -= len(rest)
    yield piece


def _size(chunks: Chunks) -> int:
    return sum([memoryview(chunk).nbytes for chunk in chunks])


def _write(
    disk: Disk, file: int, chunks: Chunks, offset: int, path: str, point: FaultPoint, half_point: FaultPoint, size: int
) -> None:
    """Write chunks of some size; in two halves if there may be a fault between them."""
    reach(point, path)
    if size <= _JOINED_BYTES:
        chunks = [b"".join(chunks)]
    if is_installed():
        joined = b"".join(chunks)
        half = len(joined) // 2
        offset = disk.write(file, [joined[:half]], offset)
        reach(half_point, path)
        chunks = [joined[half:]]
    disk.write(file, chunks, offset)
