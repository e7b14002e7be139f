"""Waiting no longer than asked: for what workers answer, and for locks.

    within(work, 5.0, "reading view 'late'")       # the result of work(), or a WaitTimeoutError after five seconds

The work is done by a thread of its own, which goes on when the time is over and whose outcome is then dropped: a
request that was sent cannot be taken back. So it must be such that nobody misses its outcome; what the caller has begun
with it (a transaction, a hold) the caller ends. Without a limit the work is done by the calling thread, as ever.

Cost: a thread for each call that has a limit, about a tenth of a millisecond.
Not guaranteed: that a call ends in time while workers of this very process work, which hold up everything else here.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ikebana.errors import WaitTimeoutError

Result = TypeVar("Result")


class Lock(Protocol):
    """What `threading.RLock` gives."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


class Deadline:
    """How much time is left for a call; None, or infinity, for any amount."""

    def __init__(self, seconds: float | None, what: str) -> None:
        self.seconds, self.what = None if seconds is None or math.isinf(seconds) else max(0.0, seconds), what
        self._end = None if self.seconds is None else time.monotonic() + self.seconds

    def left(self) -> float:
        """The seconds that are left: zero at the end, infinity if there is none."""
        return math.inf if self._end is None else max(0.0, self._end - time.monotonic())

    def expired(self) -> WaitTimeoutError:
        """What is raised when the time is over."""
        return WaitTimeoutError(
            f"{self.what} took longer than {self.seconds:g} s",
            detail="the workers have not answered by then: they are busy, or wait for each other",
            hint="give it more seconds with timeout=..., or as many as it takes with timeout=float('inf')",
        )

    def run(self, work: Callable[[], Result]) -> Result:
        """The result of some work, if it is there in time."""
        if self._end is None:
            return work()
        done, outcome = threading.Event(), list[Any]()

        def run() -> None:
            try:
                outcome.append((work(), None))
            except BaseException as error:
                outcome.append((None, error))
            done.set()

        threading.Thread(target=run, name=f"ikebana: {self.what}", daemon=True).start()
        if not done.wait(self.left()):
            raise self.expired()
        ((result, error),) = outcome
        if error is not None:
            raise error
        return result

    @contextmanager
    def holding(self, lock: Lock) -> Iterator[None]:
        """A block in which a lock is held, if it can be had in time."""
        if not lock.acquire(timeout=-1 if self._end is None else self.left()):
            raise self.expired()
        try:
            yield
        finally:
            lock.release()


def within(work: Callable[[], Result], seconds: float | None, what: str) -> Result:
    """The result of some work, if it is there within so many seconds."""
    return Deadline(seconds, what).run(work)
