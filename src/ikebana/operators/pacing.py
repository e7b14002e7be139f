"""Pacing: how much an operator computes before it lets others run.

A worker looks for messages between two steps of its dataflows, and a step ends where an operator yields. An operator
that is given many rows computes them in pieces. How long a piece takes depends on what is computed, above all where
that is a function of the user's: `Pace` learns it, and has pieces of about `PIECE_SECONDS`. Where users' functions are
called it starts with a single row.

Contract: pieces do not change a result; that they depend on a clock changes when others run, and nothing else. What
takes less than `PIECE_SECONDS` in all is done without yielding.

Not guaranteed: that a piece takes no longer. A function that takes an hour for one row takes an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

PIECE_SECONDS = 0.02
"""About how long an operator computes before it lets others run."""

LEAST = 1 << 12
"""Rows of the first piece, where no function of the user's is called."""

MOST = 1 << 19
"""Rows of the largest piece."""


class Pace:
    """How many rows an operator computes at a time."""

    def __init__(self, *, calls_users: bool) -> None:
        self._rows = 1 if calls_users else LEAST

    def pieces(self, count: int) -> Iterator[tuple[int, int, bool]]:
        """Ranges of rows to compute one after the other, and whether to let others run before each of them."""
        start, waited = 0, perf_counter()
        while start < count:
            began = perf_counter()
            end = min(count, start + self._rows)
            is_due = start > 0 and began - waited > PIECE_SECONDS
            yield start, end, is_due
            if is_due:
                waited = began
            self._learn(end - start, perf_counter() - began)
            start = end

    def _learn(self, rows: int, seconds: float) -> None:
        if seconds > 2 * PIECE_SECONDS:
            self._rows = max(1, rows // 2)
        elif seconds < PIECE_SECONDS / 2 and rows >= self._rows:
            self._rows = min(MOST, 2 * self._rows)
