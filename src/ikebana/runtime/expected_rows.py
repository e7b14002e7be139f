"""What programs have done before, and what they are therefore expected to do.

A program with many rows in its registers is slower than visits (`RowsPerInput`), and one that finds a memtable full has
to start again after there is room (`RowsAdded`). Both are estimated from the rows of earlier changes, in proportion to
the rows of input. Nothing depends on an estimate but time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from ikebana.trace.handle import Trace

ALWAYS_FEW = 4
"""Sweeps with so few rows of input are done by programs, whatever was observed: most rows cause less than the mean.
This does not hold for programs that read groups as a whole."""

MOST_ROWS = 20_000
"""Sweeps of programs without loops that would have more rows in all registers than this are done by visits: with so
many rows, visits are faster."""


MANY_ADDED, OBSERVED_AFTER = 64, 16
"""A change that adds so many rows to a trace is large, however few rows of input it has; and after how many changes
those with few rows of input are no longer observed, if none of them is large."""


class RowsPerInput:
    """How many rows a program has in its registers for each row of its inputs, as observed.

    Some inputs cause more rows than others, so the observations are kept apart by which inputs have changed. They count
    less and less, and are forgotten sooner where they keep the program from running.
    """

    _KEPT, _KEPT_UNUSED = 0.9, 0.98

    def __init__(self, always_few: int) -> None:
        """Up to `always_few` rows of input are few, whatever was observed."""
        self._always_few = always_few
        self._observed: dict[tuple[int, ...], tuple[float, float]] = {}  # rows of input, and rows in all registers

    def observe(self, given: Sequence[int], rows: int) -> None:
        """Note how many rows a program has had in all registers, with so many rows of each input."""
        changed = _changed(given)
        inputs, registers = self._observed.get(changed, (0.0, 0.0))
        self._observed[changed] = self._KEPT * inputs + sum(given), self._KEPT * registers + rows

    def are_few(self, given: Sequence[int]) -> bool:
        """Whether a program probably has at most `MOST_ROWS` rows in its registers, with so many rows of each input."""
        changed = _changed(given)
        inputs, registers = self._observed.get(changed, (1.0, 0.0))
        if sum(given) * registers <= MOST_ROWS * inputs or sum(given) <= self._always_few:
            return True
        self._observed[changed] = inputs, self._KEPT_UNUSED * registers
        return False


def _changed(given: Sequence[int]) -> tuple[int, ...]:
    return tuple([number for number, rows in enumerate(given) if rows])


class RowsAdded:
    """How many rows a program adds to the memtable of each trace that it writes, for each row of its inputs.

    The greatest numbers count, less and less. Changes with few rows of input are observed only after one of them has
    found a memtable full: usually they add few rows, and observing them would take a part of their time.
    """

    _KEPT = 0.98

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._traces = traces
        self._before = [0] * len(traces)  # the rows of each memtable before the present change
        self._rates = [0.0] * len(traces)
        self._observed = 0  # how many more changes with few rows of input are observed

    def lacked_room(self) -> None:
        """Note that a memtable was full."""
        self._observed = OBSERVED_AFTER

    def reserve(self, given: int) -> None:
        """Make room for what a change with so many rows of input probably adds."""
        if given > ALWAYS_FEW or self._observed:
            expected = [ceil(given * rate) for rate in self._rates]
            self._before = [trace.reserve(rows) for trace, rows in zip(self._traces, expected, strict=True)]

    def observe(self, given: int) -> None:
        """Note how many rows the change has added, for which there was room."""
        if given > ALWAYS_FEW or self._observed:
            added = [trace.memtable_rows - rows for trace, rows in zip(self._traces, self._before, strict=True)]
            rates = zip(added, self._rates, strict=True)
            self._rates = [max(rows / max(given, 1), self._KEPT * rate) for rows, rate in rates]
            is_large = max(added, default=0) > MANY_ADDED
            self._observed = OBSERVED_AFTER if is_large else max(0, self._observed - 1)
