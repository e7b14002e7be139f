"""Spill files: the arrays of large batches in memory-mapped files, so that they need not fit into memory.

A batch of at least `batch_bytes` lives in files of a directory that the user gives. Its arrays are ordinary NumPy
arrays and Arrow buffers, whose pages the system reads when they are used, and evicts when memory is needed for
something else. Merges write their output to such files from the start, so that a merge does not need the memory either.

**Files.** They have no names: they are created without one where the system can do that (`O_TMPFILE`), and are unlinked
at once otherwise. So nothing is left behind, however a process ends, and a file is freed with the last array in it.
Their mode is 0600; the directory is created with mode 0700 if it does not exist. They are a place for memory, and not
storage: nothing is synced, and nothing is ever read by another process.

**Space.** A batch has one file for every `SEGMENT_BYTES`, which are reserved as addresses and not on disk. Disk space
is allocated for each array before it is written (`posix_fallocate`): if the disk is full, that is an error of this
call, and not a signal that ends the process at some later write. What a merge has not used is given back to the disk.

**A full disk**, or any other error of the directory, is logged; the array is in memory instead, and so are new batches
for the next `PAUSE_SECONDS`.

Cost: a page that is written for the first time takes about a microsecond, and the system writes it to the disk some
seconds later, also if memory is plentiful. A page that was evicted takes as long as the disk takes to read it.

Not guaranteed: that a process survives errors of the disk itself when it reads an evicted page (SIGBUS); that a disk
whose filesystem copies on write (btrfs, ZFS) keeps the space that was allocated on it.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import time
import weakref
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from ikebana.encoding.lanes import Array, is_constant
from ikebana.encoding.spaces import IN_MEMORY, Shape, Space
from ikebana.errors import StorageError

BATCH_BYTES = 64 << 20
"""By default, batches of at least this size are in files."""

SEGMENT_BYTES = 1 << 30
"""The addresses that are reserved for a file. Larger arrays have larger files of their own."""

PAUSE_SECONDS = 60.0
"""How long new batches stay in memory after an error."""

_ZEROS = bytes(1 << 20)
_log = logging.getLogger("ikebana")


class SpillFiles:
    """The directory for large batches of a worker, and which batches are large."""

    def __init__(self, directory: str, batch_bytes: int | None = None) -> None:
        """`batch_bytes` is the size from which on batches are in files, by default `BATCH_BYTES`."""
        self.directory = os.path.abspath(directory)
        self._batch_bytes = BATCH_BYTES if batch_bytes is None else batch_bytes
        self._paused_until = 0.0

    def open(self) -> None:
        """Create the directory if it does not exist; raise if no file can be created in it."""
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            _Segment(self.directory, mmap.PAGESIZE)
        except OSError as error:
            raise StorageError(
                f"cannot use the spill directory {self.directory}",
                detail=f"creating a file in it raised {type(error).__name__}: {error}",
                hint="give a directory on a local disk in which the workers may create files (spill=...)",
            ) from error

    def is_large(self, size: int) -> bool:
        """Whether a batch of `size` bytes belongs in files, now."""
        return size >= self._batch_bytes and time.monotonic() >= self._paused_until

    def space_for(self, size: int) -> Space:
        """Return the space for a batch that will have about `size` bytes."""
        return MappedSpace(self) if self.is_large(size) else IN_MEMORY

    def pause(self, error: OSError) -> None:
        """Keep new batches in memory for a while because of an error."""
        now = time.monotonic()
        if now >= self._paused_until:
            _log.warning("cannot spill to %s: %s; new batches stay in memory for a while", self.directory, error)
        self._paused_until = now + PAUSE_SECONDS


class MappedSpace:
    """Arrays of one batch in files; in memory if that fails."""

    def __init__(self, files: SpillFiles) -> None:
        self._files = files
        self._segment: _Segment | None = None  # the last file
        self._places: dict[int, tuple[_Segment, int, int]] = {}  # of each array, by address: its file and range there
        self.mapped_bytes = 0

    def empty(self, shape: Shape, dtype: Any = np.int64) -> Any:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if not size:
            return IN_MEMORY.empty(shape, dtype)
        try:
            segment = self._segment_with(size)
            offset = segment.allocate(size)
        except OSError as error:
            self._files.pause(error)
            return IN_MEMORY.empty(shape, dtype)
        array: Array = np.ndarray(shape, dtype, segment.mapping, offset)
        self._places[array.ctypes.data] = segment, offset, size
        return array

    def _segment_with(self, size: int) -> _Segment:
        """Return a file that has room for `size` bytes."""
        if self._segment is None or self._segment.room < size:
            self._segment = _Segment(self._files.directory, max(SEGMENT_BYTES, _whole_pages(size)))
        return self._segment

    def trimmed(self, array: Array, rows: int) -> Any:
        place = None if is_constant(array) else self._places.pop(array.ctypes.data, None)
        if place is None:
            return IN_MEMORY.trimmed(array, rows)
        segment, offset, size = place
        result = _first_rows(array, rows)
        segment.free(offset + result.nbytes, offset + size)
        self.mapped_bytes += result.nbytes
        return result

    def free(self, array: Array) -> None:
        place = None if is_constant(array) else self._places.pop(array.ctypes.data, None)
        if place is not None:
            segment, offset, size = place
            segment.free(offset, offset + size)


class _Segment:
    """A file without a name, mapped into memory, of which ranges are allocated one after the other.

    It is open for as long as ranges may be allocated; the mapping stays for as long as there are arrays in it.
    """

    def __init__(self, directory: str, size: int) -> None:
        self._file = TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        os.ftruncate(self._file.fileno(), size)  # takes no space yet
        self.mapping = mmap.mmap(self._file.fileno(), size)
        self._size, self._end = size, 0

    @property
    def room(self) -> int:
        """The bytes that can still be allocated."""
        return self._size - self._end

    def allocate(self, size: int) -> int:
        """Allocate space on the disk, and return where it begins; OSError if there is not enough."""
        start = self._end
        try:
            _allocate(self._file.fileno(), start, size)
        except OSError:
            self.free(start, start + size)
            raise
        self._end = start + _whole_pages(size)
        return start

    def free(self, start: int, end: int) -> None:
        """Give the whole pages of a range back to the disk, if the filesystem can do that."""
        first, last = _whole_pages(start), _whole_pages(end)
        if first < last and hasattr(mmap, "MADV_REMOVE"):
            with suppress(OSError):
                self.mapping.madvise(mmap.MADV_REMOVE, first, last - first)


def _allocate(file: int, start: int, size: int) -> None:
    """Make sure that a range of a file can be written."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, start, size)
        return
    for offset in range(start, start + size, len(_ZEROS)):  # macOS
        os.pwrite(file, _ZEROS[: start + size - offset], offset)


def _whole_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _first_rows(array: Array, rows: int) -> Array:
    """Return the first rows of an array; if it has several lanes, these are moved together, without a copy."""
    if array.ndim == 1:
        return array[:rows]
    lanes, size = len(array), rows * array.itemsize
    for lane in range(1, lanes):
        ctypes.memmove(array.ctypes.data + lane * size, array[lane].ctypes.data, size)
    return array.reshape(-1)[: lanes * rows].reshape(lanes, rows)
