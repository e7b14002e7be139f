"""Rows with times and diffs: what updates have in common, whatever their data looks like.

`Timed` holds, for some rows, a table of distinct times, the position of each row's time in it, and diff
lanes. `Updates` (data as lanes, for the index) and `Changes` (data as columns, for streams) add the data.
Neither ever changes once made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ikebana.encoding.lanes import Array, Index, Lane, constant, gathered
from ikebana.trace import timetable

NO_ROWS: Lane = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Timed(ABC):
    """Times and diffs of some rows."""

    times: Lane  # a table of distinct times
    tix: Index  # the position of each row's time in it
    diffs: Lane  # (diff lane, row)

    def __len__(self) -> int:
        return int(self.diffs.shape[1])

    @property
    def dimensions(self) -> int:
        """How many coordinates the times have."""
        return int(self.times.shape[1])

    def take(self, rows: Array) -> Self:
        """The named rows, in the given order."""
        return self._with(tix=gathered(self.tix, rows), diffs=gathered(self.diffs, rows), **self._taken(rows))

    def where(self, flags: Array) -> Self:
        """The rows that are flagged."""
        chosen = np.flatnonzero(flags)
        return self if len(chosen) == len(self) else self.take(chosen)

    def at_times(self, flags: Array) -> Self:
        """The rows whose time is flagged in the table."""
        if flags.all():
            return self
        return self.where(flags[self.tix]) if flags.any() else self.take(NO_ROWS)

    def with_times(self, times: Lane) -> Self:
        """The same rows with each time of the table replaced by the one in its place."""
        table, positions = timetable.distinct_times(times)
        if len(table) == 1:
            return self._with(times=table, tix=constant(0, len(self), np.int32))
        return self._with(times=table, tix=positions[self.tix])

    def pruned(self) -> Self:
        """The same rows with only those times in the table that occur."""
        if len(self.times) <= 1:
            return self
        used = np.zeros(len(self.times), bool)
        used[self.tix] = True
        if used.all():
            return self
        positions = (np.cumsum(used) - 1).astype(np.int32)
        few = np.count_nonzero(used) <= 1
        tix = constant(0, len(self), np.int32) if few else positions[self.tix]
        return self._with(times=self.times[used], tix=tix)

    def _with(self, **values: Any) -> Self:
        """The same with some fields replaced: what `dataclasses.replace` does, at a third of its cost."""
        made = object.__new__(type(self))
        for name in self.__dataclass_fields__:
            object.__setattr__(made, name, values[name] if name in values else getattr(self, name))
        return made

    @abstractmethod
    def _taken(self, rows: Array) -> dict[str, Any]:
        """The data of the named rows, by field."""

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Several of one kind, one after the other; at least one."""
        parts = [part for part in parts if len(part)] or parts[:1]
        first = parts[0]
        if len(parts) == 1:
            return first
        times, positions = timetable.distinct_times(np.concatenate([part.times for part in parts]))
        starts = np.cumsum([0, *(len(part.times) for part in parts)])
        if len(times) == 1:
            tix = constant(0, sum(map(len, parts)), np.int32)
        else:
            tix = np.concatenate([positions[start:][part.tix] for start, part in zip(starts, parts, strict=False)])
        diffs = np.concatenate([part.diffs for part in parts], axis=1)
        return first._with(times=times, tix=tix, diffs=diffs, **cls._joined(parts))

    @classmethod
    @abstractmethod
    def _joined(cls, parts: Sequence[Self]) -> dict[str, Any]:
        """The data of all parts, by field."""
