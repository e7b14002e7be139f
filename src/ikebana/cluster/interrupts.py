"""Blocks of code that interrupts (Ctrl-C, a notebook's stop button) must not divide: there, interrupts are deferred.

    with defer_interrupts():
        epoch = next_epoch()          # never one without the other
        send(Commit(epoch))

Python raises KeyboardInterrupt between any two instructions of the main thread. Where the state of this process must
change together with what workers are sent, an interrupt is deferred until the block ends, and then passed to the
handler that was installed before. Such blocks only send: code that waits is outside of them, and can be interrupted.

Blocks may be nested; the outermost one delivers the interrupt. Python only interrupts the main thread, so in other
threads `defer_interrupts` does nothing. A handler that is installed inside a block remains installed.

Cost: 3 us. Not guaranteed: anything about exceptions that other threads inject.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")

_is_deferring = False
"""Whether the main thread is inside a block."""


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer interrupts of the main thread until the end of the block."""
    global _is_deferring
    if _is_deferring or threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        yield
        return
    interrupts: list[Any] = []

    def remember(*interrupt: Any) -> None:
        interrupts.append(interrupt)

    signal.signal(signal.SIGINT, remember)
    _is_deferring = True
    try:
        yield
    finally:
        _is_deferring = False
        current = signal.getsignal(signal.SIGINT)
        if current is remember:
            current = handler
            signal.signal(signal.SIGINT, handler)
        if interrupts and callable(current):
            current(*interrupts[0])


def complete_or_undo(make: Callable[[], Result], undo: Callable[[Result], object]) -> Result:
    """Return the result of `make`. After an interrupt during the call, `undo` the result and raise the interrupt."""
    results: list[Result] = []
    try:
        with defer_interrupts():
            results.append(make())
    except BaseException:
        if results:
            undo(results[0])
        raise
    return results[0]
