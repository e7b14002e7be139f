"""Memory budgets: a view that would exceed its budget fails alone, and rows that would not fit are rejected.

A worker has a *limit*, by default its share of 80% of the machine's memory (or of the control group's, if that is
less). A dataflow has a *budget*, by default half of the limit, for its own arrangements and for the working memory of
its current sweep. A dataflow that exceeds its budget, or that makes the worker reach its limit, fails: otherwise the
system would kill the worker, with all its tables. The dataflows of tables never fail: rows that would not fit are
rejected when they are staged.

The working memory of a sweep is spread over the arrays of many operators, so it is measured as the growth of the
process since the sweep began. A measurement takes a few microseconds, and is made after every
`MEASURE_EVERY_SECONDS` of work. It includes what other dataflows allocate in between, which is little. If large batches
are in spill files (`ikebana.encoding.spill_files`), the memory of mapped files does not count.

A worker keeps the memory of freed arrays (`keep_freed_memory`), which counts as memory in use. It returns that memory
to the system when it is idle, when it has reached its limit, and when more is unused than used.

Not guaranteed: that a single step of an operator does not allocate too much at once. Against that, a worker process
also has a limit in the operating system, if possible (`limit_process`): the allocation raises, and the dataflow fails.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from time import perf_counter

import psutil
import pyarrow as pa

from ikebana.encoding.spill_files import SpillFiles
from ikebana.errors import MemoryBudgetError
from ikebana.plan.estimates import format_bytes

MEASURE_EVERY_SECONDS = 0.005
"""Memory is measured after this much work of a dataflow."""

_SHARE_OF_MACHINE, _SHARE_OF_VIEW = 0.8, 0.5
_PROCESS_LIMIT_FACTOR = 1.2
"""The system's limit also counts memory that is reserved and never written to, so it must exceed the worker's."""

_STAGED_COPIES = 2
"""Staged rows are in memory twice: as received, and indexed."""

_CGROUP_LIMIT = "/sys/fs/cgroup/memory.max"


def default_limit(workers: int) -> int:
    """The default limit, in bytes, of each of several workers on this machine."""
    total = psutil.virtual_memory().total
    with suppress(OSError, ValueError):  # no control group, or one without a limit
        total = min(total, int(Path(_CGROUP_LIMIT).read_text()))
    return int(total * _SHARE_OF_MACHINE) // workers


def resident_bytes() -> int:
    """The memory in use by this process."""
    try:
        return _statm_bytes(_RESIDENT)
    except OSError:  # not Linux
        return int(psutil.Process().memory_info().rss)


def anonymous_bytes() -> int:
    """The memory in use by this process, without that of mapped files, which the system can evict."""
    try:
        return _statm_bytes(_RESIDENT) - _statm_bytes(_SHARED)
    except OSError:  # not Linux
        return resident_bytes()


_RESIDENT, _SHARED, _DATA = 1, 2, 5


def _statm_bytes(field: int) -> int:
    """A field of /proc/self/statm, in bytes."""
    return int(os.pread(_statm_file(os.getpid()), _STATM_BYTES, 0).split()[field]) * mmap.PAGESIZE


@lru_cache(1)
def _statm_file(process: int) -> int:
    """A descriptor of /proc/self/statm that stays open: opening it takes three times as long as reading it."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


_STATM_BYTES = 256


def array_bytes(arrays: Sequence[pa.Array]) -> int:
    """The bytes of some arrays. Few bytes are counted with all that the arrays are slices of, which is quicker."""
    held = sum([array.get_total_buffer_size() for array in arrays])
    return held if held < _FEW_BYTES else sum([array.nbytes for array in arrays])


_FEW_BYTES = 1 << 16


def keep_freed_memory(limit: int) -> None:
    """Let the C library keep the memory of freed arrays for the next ones, up to shares of a worker's `limit`.

    A sweep allocates and frees arrays all the time. By default, the C library returns large ones to the system at once,
    and the first write to each page of the next array then takes longer than the work on it: the points-to analysis of
    `ikebana bench program-analysis` took 13 s instead of 8.
    """
    with suppress(AttributeError, OSError):  # the C library has no such function
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, min(limit // 32, _MOST_BYTES))
        mallopt(_M_TRIM_THRESHOLD, min(limit // 8, _MOST_BYTES))


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _MOST_BYTES = -1, -3, (1 << 31) - 1


def release_unused_memory() -> None:
    """Return freed memory, which allocators keep for later use, to the operating system."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):  # the C library has no such function
        ctypes.CDLL(None).malloc_trim(0)


def release_if_mostly_unused() -> None:
    """Return freed memory if there is more of it than memory in use. Cost: some microseconds if there is not."""
    if 2 * _freed_bytes() > resident_bytes():
        release_unused_memory()


class _MallocInfo(ctypes.Structure):
    """What the C library says of its memory (`mallinfo2`)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "_")
    )


def _freed_bytes() -> int:
    """The memory that the C library keeps for later use; 0 if it does not say."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return 0
    mallinfo.restype = _MallocInfo
    return int(mallinfo().fordblks)


def limit_process(limit: int) -> None:
    """Make allocations fail that would take this process far beyond its limit, if the system supports that."""
    try:
        import resource
    except ImportError:  # not Unix
        return
    with suppress(OSError, ValueError):  # not Linux, or not allowed
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = _statm_bytes(_DATA) + int(limit * _PROCESS_LIMIT_FACTOR)
        if hard == resource.RLIM_INFINITY or soft < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def worker_budget(limit: int, view_limit: int | None, spill: SpillFiles | None) -> Budget:
    """The budget of a worker, whose large batches are in spill files, or in memory."""
    return Budget(limit, view_limit, resident_bytes if spill is None else anonymous_bytes)


class Budget:
    """The memory that a worker may use, and the memory that it uses."""

    def __init__(
        self,
        limit: int | None = None,
        view_limit: int | None = None,
        measure: Callable[[], int] = resident_bytes,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Without a limit nothing is ever rejected. `view_limit` is by default half of the limit."""
        self.limit = limit
        self.view_limit = int(limit * _SHARE_OF_VIEW) if view_limit is None and limit is not None else view_limit
        self._measure, self._used = measure, measure()
        self.now = clock
        """The time, in seconds."""

    def measure_growth(self) -> int:
        """By how many bytes the memory in use has grown since the last measurement."""
        before, self._used = self._used, self._measure()
        return self._used - before

    def is_measurement_due(self, worked: float) -> bool:
        """Whether memory should be measured after `worked` seconds of work."""
        return worked > MEASURE_EVERY_SECONDS

    def check(self, needed: int, limit: int | None) -> None:
        """Raise if a dataflow needs more than its `limit` (by default `view_limit`), or if the worker is at its own."""
        most = self.view_limit if limit is None else limit
        if most is not None and needed > most:
            raise MemoryBudgetError(
                f"it needs more than its {format_bytes(most)} of memory on a worker",
                detail=f"it was about to use {format_bytes(needed)}",
                hint="give the view or the workers more memory (memory=...), or let the view store fewer rows",
            )
        if self.limit is not None and needed > 0 and self._is_full(0):
            raise MemoryBudgetError(
                f"a worker has reached its {format_bytes(self.limit)} of memory",
                detail=f"the dataflow was about to use {format_bytes(needed)}, of {format_bytes(self._used)} in use",
                hint="drop views, or give the workers more memory (memory=...)",
            )

    def rejection(self, row_bytes: int) -> str | None:
        """Why rows of this size cannot be staged; None if they can."""
        if self.limit is None or not self._is_full(_STAGED_COPIES * row_bytes):
            return None
        requested = f"{format_bytes(_STAGED_COPIES * row_bytes)} more were asked for"
        return f"a worker has {format_bytes(self._used)} of its {format_bytes(self.limit)} in use, and {requested}"

    def _is_full(self, additional: int) -> bool:
        """Whether `additional` bytes would exceed the limit, even after unused memory is released."""
        assert self.limit is not None
        self._used = self._measure()
        if self._used + additional > self.limit:
            release_unused_memory()
            self._used = self._measure()
        return self._used + additional > self.limit
