"""Waking a thread that waits for something that happens once.

A `threading.Event` takes a lock in the thread that sets it and again in each thread that it wakes, because any number
of threads may wait, and it may be cleared. Here one thread waits, for one thing.

Cost: a fourth of the time of an event.
"""

from __future__ import annotations

import threading
from contextlib import suppress


class Wakeup:
    """Something that one thread waits for, and that others say has happened. It may be said again."""

    __slots__ = ("_lock", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()  # held until it has happened
        self._lock.acquire()

    def set(self) -> None:
        """Say that it has happened."""
        self.is_set = True
        with suppress(RuntimeError):  # it was said before
            self._lock.release()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has happened, for at most some seconds; return whether it has."""
        return self.is_set or self._lock.acquire(timeout=-1 if seconds is None else seconds) or self.is_set
