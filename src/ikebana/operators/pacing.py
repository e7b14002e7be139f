"""Pacing: how long an operator computes before other dataflows may run.

A worker looks for messages between two steps of its dataflows, and a step ends where an operator yields. So an operator
processes many rows in pieces. How long a row takes depends on what is computed, above all where that is a function of
the user's: `Pace` measures it, and chooses pieces of about `PIECE_SECONDS`. For users' functions the first piece is a
single row.

Contract: pieces do not change a result. They depend on a clock, which changes only when other dataflows run. Work that
takes less than `PIECE_SECONDS` altogether is done without yielding.

Not guaranteed: that a piece takes no longer. A function that takes an hour for one row takes an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

PIECE_SECONDS = 0.02
"""About how long an operator computes before other dataflows may run."""

FIRST_PIECE_ROWS = 1 << 12
"""Rows of the first piece, where no function of the user is called."""

MAX_PIECE_ROWS = 1 << 19
"""Rows of the largest piece."""


class Pace:
    """Chooses how many rows an operator processes at a time."""

    def __init__(self, *, calls_users: bool) -> None:
        self._rows = 1 if calls_users else FIRST_PIECE_ROWS

    def pieces(self, count: int) -> Iterator[tuple[int, int, bool]]:
        """Successive ranges of rows (start, end), each with a flag: whether to yield before the range is processed."""
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
            self._rows = min(MAX_PIECE_ROWS, 2 * self._rows)
