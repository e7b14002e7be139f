"""A budget of memory: a view that would outgrow it fails alone, and rows that would are refused.

A worker has a *limit*, by default its share of 80% of the machine's memory (or of the control group's, if that is
less). A dataflow has a budget, by default half of that: what it arranges for itself, and what its present sweep has in
hand. A dataflow that needs more, or that makes the worker reach its limit, fails, before the system would kill the
worker with all tables. The dataflows of tables never do: what would not fit is refused when it is staged.

What a sweep has in hand is measured, as the growth of the process since the sweep began: it lies in arrays of many
operators. Reading it takes some microseconds, so it is read after every `LOOK_SECONDS` of work, and it counts
what others allocate in between, which is little.

Not guaranteed: that a single step of an operator does not allocate too much at once. For that a worker process has a
limit of the system's too (`limit_process`), where there is one: then the allocation raises, which fails the dataflow.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import psutil
import pyarrow as pa

from ikebana.errors import MemoryBudgetError
from ikebana.plan.estimates import shown_bytes

LOOK_SECONDS = 0.005
"""Memory is measured after so much work."""

_SHARE_OF_MACHINE, _SHARE_OF_VIEW = 0.8, 0.5
_SPARE = 1.2
"""What is reserved and never written counts for the system: so it may be more, beyond what libraries have reserved."""

_COPIES = 2
"""Staged rows take so often their size: as they came, and as they are indexed."""

_CGROUP = "/sys/fs/cgroup/memory.max"


def default_limit(workers: int) -> int:
    """The bytes that one of several workers on this machine may use."""
    total = psutil.virtual_memory().total
    with suppress(OSError, ValueError):  # no control group, or one without a limit
        total = min(total, int(Path(_CGROUP).read_text()))
    return int(total * _SHARE_OF_MACHINE) // workers


def resident_bytes() -> int:
    """The memory that this process has in use."""
    try:
        return _pages(_RESIDENT)
    except OSError:  # not Linux
        return int(psutil.Process().memory_info().rss)


_RESIDENT, _DATA = 1, 5


def _pages(which: int) -> int:
    """A number of /proc/self/statm, in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[which]) * os.sysconf("SC_PAGE_SIZE")


def give_memory_back() -> None:
    """What a large sweep took and has freed is kept by allocators, in case it is needed again soon."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):  # where the C library has no such function
        ctypes.CDLL(None).malloc_trim(0)


def limit_process(limit: int) -> None:
    """Have allocations fail that would take this process far beyond its limit, where the system can do that."""
    try:
        import resource
    except ImportError:  # not Unix
        return
    with suppress(OSError, ValueError):  # not Linux, or not allowed
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = _pages(_DATA) + int(limit * _SPARE)
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


class Budget:
    """What a worker may use, and what it does."""

    def __init__(
        self,
        limit: int | None = None,
        view_limit: int | None = None,
        measure: Callable[[], int] = resident_bytes,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Without a limit nothing is ever refused; `view_limit` is by default half of it."""
        self.limit = limit
        self.view_limit = int(limit * _SHARE_OF_VIEW) if view_limit is None and limit is not None else view_limit
        self._measure, self._clock, self._used = measure, clock, measure()

    def look(self) -> int:
        """By how much the memory in use has grown since it was last looked at."""
        before, self._used = self._used, self._measure()
        return self._used - before

    def started(self) -> float:
        """When a step begins."""
        return self._clock()

    def is_due(self, spent: float) -> bool:
        """Whether so much work (seconds) is worth a look."""
        return spent > LOOK_SECONDS

    def seconds_since(self, start: float) -> float:
        """How long a step has taken."""
        return self._clock() - start

    def check(self, needed: int, limit: int | None) -> None:
        """Raise if a dataflow needs more than it may, or the worker is at its limit; `limit` is the view's own."""
        most = self.view_limit if limit is None else limit
        if most is not None and needed > most:
            raise MemoryBudgetError(
                f"it needs more than its {shown_bytes(most)} of memory on a worker",
                detail=f"it was about to use {shown_bytes(needed)}",
                hint="give the view more (memory=...), or the workers, or let it keep fewer rows",
            )
        if self.limit is not None and needed > 0 and self._is_full(0):
            raise MemoryBudgetError(
                f"a worker has reached its {shown_bytes(self.limit)} of memory",
                detail=f"it was about to use {shown_bytes(needed)}, of {shown_bytes(self._used)} in use",
                hint="drop views, or give the workers more memory (memory=...)",
            )

    def refusal(self, wanted: int) -> str | None:
        """Why so many bytes of rows cannot be taken in; None if they can."""
        if self.limit is None or not self._is_full(_COPIES * wanted):
            return None
        asked = f"{shown_bytes(_COPIES * wanted)} more were asked for"
        return f"a worker has {shown_bytes(self._used)} of its {shown_bytes(self.limit)} in use, and {asked}"

    def _is_full(self, more: int) -> bool:
        """Whether the limit would be passed, also after what is not needed was given back."""
        assert self.limit is not None
        self._used = self._measure()
        if self._used + more > self.limit:
            give_memory_back()
            self._used = self._measure()
        return self._used + more > self.limit
