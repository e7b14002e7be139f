"""Rows with times and diffs: the common base of updates, independent of how their data is stored.

`TimedRows` has, for some rows, a table of distinct times, the position of each row's time in it, and diff
lanes. `Updates` (data as lanes, for the index) and `Changes` (data as columns, for streams) add the data.
Both are immutable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ikebana.encoding.lanes import Array, Index, Lane, concat_diffs, constant, gather_lane
from ikebana.trace import time_tables

NO_ROWS: Lane = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class TimedRows(ABC):
    """The times and diffs of some rows."""

    times: Lane  # a table of distinct times
    tix: Index  # the position of each row's time in it
    diffs: Lane  # (diff lane, row)

    def __len__(self) -> int:
        return int(self.diffs.shape[1])

    @property
    def dimensions(self) -> int:
        """The number of coordinates of the times."""
        return int(self.times.shape[1])

    def take(self, rows: Array) -> Self:
        """Return the rows at the given positions, in that order."""
        return self._with(tix=gather_lane(self.tix, rows), diffs=gather_lane(self.diffs, rows), **self._taken(rows))

    def slice(self, start: int, end: int) -> Self:
        """Return the rows from `start` up to `end`, without a copy."""
        if end - start == len(self):
            return self
        return self._with(tix=self.tix[start:end], diffs=self.diffs[:, start:end], **self._sliced(start, end))

    def where(self, flags: Array) -> Self:
        """Return the flagged rows."""
        rows = np.flatnonzero(flags)
        return self if len(rows) == len(self) else self.take(rows)

    def at_times(self, flags: Array) -> Self:
        """Return the rows whose time is flagged in the table, with a table that has only such times."""
        if flags.all():
            return self
        if not flags.any():
            return self.take(NO_ROWS)
        return self.where(flags[self.tix])._with_flagged_times(flags)

    def with_times(self, times: Lane) -> Self:
        """Return the same rows with the times of the table replaced, one by one, by `times`."""
        table, positions = time_tables.distinct_times(times)
        if len(table) == 1:
            return self._with(times=table, tix=constant(0, len(self), np.int32))
        return self._with(times=table, tix=positions[self.tix])

    def pruned(self) -> Self:
        """Return the same rows with a table that has only their times."""
        if len(self.times) <= 1:
            return self
        used = np.zeros(len(self.times), bool)
        used[self.tix] = True
        return self if used.all() else self._with_flagged_times(used)

    def _with_flagged_times(self, flags: Array) -> Self:
        """Return the same rows, all of them at flagged times, with a table that has only these times."""
        kept = np.flatnonzero(flags)
        positions = (np.cumsum(flags) - 1).astype(np.int32)
        tix = constant(0, len(self), np.int32) if len(kept) <= 1 else positions[self.tix]
        return self._with(times=self.times[kept], tix=tix)

    def _with(self, **values: Any) -> Self:
        """Return a copy with some fields replaced, like `dataclasses.replace` but three times as fast."""
        copy = object.__new__(type(self))
        for name in self.__dataclass_fields__:
            object.__setattr__(copy, name, values[name] if name in values else getattr(self, name))
        return copy

    @abstractmethod
    def _taken(self, rows: Array) -> dict[str, Any]:
        """Return the data of the rows at the given positions, by field."""

    @abstractmethod
    def _sliced(self, start: int, end: int) -> dict[str, Any]:
        """Return the data of the rows from `start` up to `end`, by field."""

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, in order; there is at least one part."""
        parts = [part for part in parts if len(part)] or parts[:1]
        first = parts[0]
        if len(parts) == 1:
            return first
        times, tixes = common_times(parts)
        tix = constant(0, sum(map(len, parts)), np.int32) if len(times) == 1 else np.concatenate(tixes)
        diffs = concat_diffs([part.diffs for part in parts])
        return first._with(times=times, tix=tix, diffs=diffs, **cls._joined(parts))

    @classmethod
    @abstractmethod
    def _joined(cls, parts: Sequence[Self]) -> dict[str, Any]:
        """Return the data of all parts, by field."""


def common_times(parts: Sequence[TimedRows]) -> tuple[Lane, list[Index]]:
    """Return one table of times for the rows of all parts, and the positions of their times in it, part by part."""
    times, positions = time_tables.union([part.times for part in parts])
    if len(times) == 1:
        return times, [constant(0, len(part), np.int32) for part in parts]
    return times, [own[part.tix] for own, part in zip(positions, parts, strict=True)]
