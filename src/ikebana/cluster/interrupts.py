"""Interrupts (Ctrl-C, a notebook's stop button) at places where they must not come: they wait until the place is left.

    with deferred():
        epoch = next_epoch()          # never one without the other
        send(Commit(epoch))

Python raises KeyboardInterrupt between any two instructions of the main thread. Where state in this process and what
workers were told must change together, an interrupt is remembered and delivered when the block ends, by the handler
that would have had it. Blocks only send: whatever waits for somebody else is outside of them, and can be interrupted.

Blocks may be nested; the outermost one delivers. Only the main thread is ever interrupted: elsewhere this does nothing.
A handler that somebody installs inside a block stays.

Cost: 3 us. Not guaranteed: anything about exceptions that other threads inject.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Made = TypeVar("Made")

_depth = 0
"""How many blocks the main thread is in."""


@contextmanager
def deferred() -> Iterator[None]:
    """Let an interrupt of the main thread wait for the end of the block."""
    global _depth
    before = signal.getsignal(signal.SIGINT)
    if _depth or threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[Any] = []

    def remember(*interrupt: Any) -> None:
        came.append(interrupt)

    signal.signal(signal.SIGINT, remember)
    _depth = 1
    try:
        yield
    finally:
        _depth = 0
        now = signal.getsignal(signal.SIGINT)
        if now is remember:
            now = before
            signal.signal(signal.SIGINT, before)
        if came and callable(now):
            now(*came[0])


def completed(make: Callable[[], Made], undo: Callable[[Made], object]) -> Made:
    """What a function makes. If an interrupt comes meanwhile, it is undone before the interrupt is raised."""
    done: list[Made] = []
    try:
        with deferred():
            done.append(make())
    except BaseException:
        if done:
            undo(done[0])
        raise
    return done[0]
