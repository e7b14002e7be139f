"""How many rows programs are expected to have in their registers.

A program takes more time for each row than visits do, and visits take more time for each operator. So a program is
slower once many rows are in each register, in the mean of those that have rows. Their number is estimated from earlier
changes, in proportion to the rows of input. Nothing depends on the estimate but time.
"""

from __future__ import annotations

from collections.abc import Sequence

ALWAYS_FEW = 4
"""Sweeps with so few rows of input are done by programs, whatever was observed: most rows cause less than the mean.
This does not hold for programs that read groups as a whole."""

MOST_ROWS = 2_500
"""Sweeps of programs without loops that would have more rows than this in a register, in the mean of those that have
rows, are done by visits: with so many rows, visits are faster."""


class RowsPerInput:
    """How many rows a program has in a register for each row of its inputs, as observed.

    Some inputs cause more rows than others, so the observations are kept apart by which inputs have changed. They count
    less and less, and are forgotten sooner where they keep the program from running.
    """

    _KEPT, _KEPT_UNUSED = 0.9, 0.98

    def __init__(self, always_few: int) -> None:
        """Up to `always_few` rows of input are few, whatever was observed."""
        self._always_few = always_few
        self._observed: dict[tuple[int, ...], tuple[float, float]] = {}  # rows of input, and rows in a register

    def observe(self, given: Sequence[int], rows: float) -> None:
        """Note how many rows a program has had in a register, in the mean, with so many rows of each input."""
        changed = _changed(given)
        inputs, registers = self._observed.get(changed, (0.0, 0.0))
        self._observed[changed] = self._KEPT * inputs + sum(given), self._KEPT * registers + rows

    def are_few(self, given: Sequence[int]) -> bool:
        """Whether a program probably has at most `MOST_ROWS` rows in a register, with so many rows of each input."""
        changed = _changed(given)
        inputs, registers = self._observed.get(changed, (1.0, 0.0))
        if sum(given) * registers <= MOST_ROWS * inputs or sum(given) <= self._always_few:
            return True
        self._observed[changed] = inputs, self._KEPT_UNUSED * registers
        return False


def _changed(given: Sequence[int]) -> tuple[int, ...]:
    return tuple([number for number, rows in enumerate(given) if rows])
