"""Progress bars that do not disturb measurements.

A bar is redrawn between two steps, at most ten times a second, and never from another thread, so a scenario that times
each step inside the loop does not measure the drawing. Without a terminal nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from time import monotonic
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

S = TypeVar("S")

REDRAW_SECONDS = 0.1


class Progress:
    """Shows the progress of a run on a console; a context manager that clears its bars at the end."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bars = Bars(
            *columns, console=console, auto_refresh=False, transient=True, disable=not console.is_terminal
        )

    def track(self, label: str, steps: Collection[S]) -> Iterator[S]:
        """Yield the steps, and show their progress on a bar."""
        bar = self._bars.add_task(label, total=len(steps))
        drawn = float("-inf")
        for done, step in enumerate(steps):
            if monotonic() - drawn > REDRAW_SECONDS:
                self._bars.update(bar, completed=done, refresh=True)
                drawn = monotonic()
            yield step
        self._bars.update(bar, completed=len(steps), refresh=True)

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()
