"""Blocks of code that interrupts (Ctrl-C, a notebook's stop button) must not divide: there, interrupts are deferred.

    with defer_interrupts():
        epoch = next_epoch()          # never one without the other
        send(Commit(epoch))

Python raises KeyboardInterrupt between any two instructions of the main thread. Where the state of this process must
change together with what workers are sent, an interrupt is deferred until the block ends, and then passed to the
handler that was installed before. Such blocks only send: code that waits is outside of them, and can be interrupted.

Blocks may be nested; the outermost one delivers the interrupt. Python only interrupts the main thread, so in other
threads `defer_interrupts` does nothing. A handler that is installed inside a block remains installed.

Cost: 1 us. Not guaranteed: anything about exceptions that other threads inject.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` converts all to enumerations: 8 us in each block
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

Result = TypeVar("Result")

_is_deferring = False
"""Whether the main thread is inside a block."""


def defer_interrupts() -> AbstractContextManager[None]:
    """A block during which interrupts of the main thread are deferred."""
    if _is_deferring or threading.get_ident() != threading.main_thread().ident:
        return _NOTHING
    return _Deferral()


_NOTHING = nullcontext()


class _Deferral(AbstractContextManager[None]):
    """The outermost block."""

    def __enter__(self) -> None:
        global _is_deferring
        self._interrupts: list[Any] = []
        self._handler = _signal.getsignal(_signal.SIGINT)
        if callable(self._handler):
            _signal.signal(_signal.SIGINT, self._on_interrupt)
            _is_deferring = True

    def _on_interrupt(self, *interrupt: Any) -> None:
        self._interrupts.append(interrupt)

    def __exit__(self, *error: object) -> None:
        global _is_deferring
        if not callable(self._handler):
            return
        _is_deferring = False
        current = _signal.getsignal(_signal.SIGINT)
        if current == self._on_interrupt:
            current = self._handler
            _signal.signal(_signal.SIGINT, current)
        if self._interrupts and callable(current):
            current(*self._interrupts[0])


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
