"""Deadlines: waiting for answers of workers, and for locks, no longer than a limit.

    within(work, 5.0, "reading view 'late'")       # the result of work(), or a WaitTimeoutError after five seconds

Work with a limit runs in a thread of its own. When the time is over, the thread goes on and its outcome is discarded,
since a request cannot be recalled once it was sent. The work must therefore be such that its outcome can be ignored; if
the caller has begun something with it (a transaction, a hold), the caller has to end that. Without a limit the work
runs in the calling thread.

Cost: a thread for each call with a limit, about 0.1 ms. Not guaranteed: that a call ends in time while workers of this
very process work, since they block all other threads.
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
    """The interface of `threading.RLock`."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


class Deadline:
    """The time limit of a call."""

    def __init__(self, seconds: float | None, what: str) -> None:
        """`seconds` from now; None or infinity for no limit. `what` names the call in the error."""
        self.seconds, self.what = None if seconds is None or math.isinf(seconds) else max(0.0, seconds), what
        self._end = None if self.seconds is None else time.monotonic() + self.seconds

    def seconds_left(self) -> float:
        """Return the seconds that remain: zero when the time is over, infinity if there is no limit."""
        return math.inf if self._end is None else max(0.0, self._end - time.monotonic())

    def seconds_or_none(self) -> float | None:
        """Return the seconds that remain, as most functions of `threading` take them: None if there is no limit."""
        return None if self._end is None else self.seconds_left()

    def timeout_error(self) -> WaitTimeoutError:
        """Return the error to raise when the time is over."""
        return WaitTimeoutError(
            f"{self.what} took longer than {self.seconds:g} s",
            detail="the workers did not answer in time: they are busy, or wait for each other",
            hint="raise the limit with timeout=..., or remove it with timeout=float('inf')",
        )

    def run(self, work: Callable[[], Result]) -> Result:
        """Return the result of `work()`; raise if the time is over before it ends."""
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
        if not done.wait(self.seconds_left()):
            raise self.timeout_error()
        ((result, error),) = outcome
        if error is not None:
            raise error
        return result

    @contextmanager
    def holding(self, lock: Lock) -> Iterator[None]:
        """A block in which a lock is held; raises if the lock is not available in time."""
        if not lock.acquire(timeout=-1 if self._end is None else self.seconds_left()):
            raise self.timeout_error()
        try:
            yield
        finally:
            lock.release()


def run_within(work: Callable[[], Result], seconds: float | None, what: str) -> Result:
    """Return the result of `work()`; raise if it takes longer than `seconds`. `what` names the work in the error."""
    return Deadline(seconds, what).run(work)
