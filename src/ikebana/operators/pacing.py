"""Pacing: how long an operator computes before other dataflows may run.

A worker looks for messages between two steps of its dataflows, and a step ends where an operator yields, or between two
operators (`ikebana.plan.scopes`). So an operator processes many rows in pieces. How long a row takes depends on what is
computed, above all where that is a function of the user's: `Pace` measures it, and chooses pieces of about
`PIECE_SECONDS`. For users' functions the first piece is a single row.

Contract: pieces do not change a result. They depend on clocks, which change only when other dataflows run. Work that
takes less than `PIECE_SECONDS` altogether is done without yielding.

The size of pieces depends on the processor time that rows take: if the machine is busy with other programs, smaller
pieces would not let other dataflows run any sooner, and cost more. A user's function may wait for something rather than
compute, so there it depends on the time that passes.

Not guaranteed: that a piece takes no longer. A function that takes an hour for one row takes an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter, thread_time

PIECE_SECONDS = 0.02
"""About how long an operator computes before other dataflows may run."""

FIRST_PIECE_ROWS = 1 << 12
"""Rows of the first piece, where no function of the user is called."""

MAX_PIECE_ROWS = 1 << 19
"""Rows of the largest piece."""


class Pace:
    """Chooses how many rows an operator processes at a time.

    The operator calls `is_due` after every range of `pieces`:

    >>> pace = Pace(calls_users=False)
    >>> for start, end in pace.pieces(3):
    ...     print(start, end, pace.is_due(end - start))
    0 3 False
    """

    def __init__(self, *, calls_users: bool) -> None:
        self._rows = 1 if calls_users else FIRST_PIECE_ROWS
        self._clock = perf_counter if calls_users else thread_time
        self._waiting_since = self._began = 0.0

    def pieces(self, count: int) -> Iterator[tuple[int, int]]:
        """Successive ranges of rows (start, end)."""
        start, self._waiting_since = 0, perf_counter()
        while start < count:
            end = min(count, start + self._rows)
            self._began = self._clock()
            yield start, end
            start = end

    def is_due(self, rows: int) -> bool:
        """Note that so many rows, the last piece, were processed; return whether other dataflows should run now."""
        self._learn(rows, self._clock() - self._began)
        now = perf_counter()
        is_due = now - self._waiting_since > PIECE_SECONDS
        if is_due:
            self._waiting_since = now
        return is_due

    def _learn(self, rows: int, seconds: float) -> None:
        if seconds > 2 * PIECE_SECONDS:
            self._rows = max(1, rows // 2)
        elif seconds < PIECE_SECONDS / 2 and rows >= self._rows:
            self._rows = min(MAX_PIECE_ROWS, 2 * self._rows)
