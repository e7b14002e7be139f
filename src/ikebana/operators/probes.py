"""Probes: the changes that a lookup makes meet the rows of a trace, and how these are paired.

A trace is asked for ascending keys, and its rows are in order of key. Probes are not in order. Either they are sorted
by key, and both sides are paired in one pass; or, if their keys are exact and lie close together, as consecutive ids
do, the rows of each key are found by its offset from the least key, and the probes stay as they are.

Contract: all pairs of a probe and a row with equal keys, each once, in any order, about `QUANTUM` at a time, or one for
each probe.

Cost: sorting copies every column of the probes; tables of offsets take a few bytes for each key of the range, and
nothing is copied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ikebana.encoding.lanes import Array, Lane
from ikebana.operators.join import Pairs, join_updates, pieces
from ikebana.trace import Updates
from ikebana.trace.batch import rows_of
from ikebana.trace.updates import sorted_by_key

LEAST_ROWS = 1 << 12
"""Fewer probes are sorted: that takes fewer calls."""

_NO_ROW = -1
_MOST_KEYS = 4
"""The range of the keys may be so many times the number of probes."""


@dataclass(frozen=True, slots=True, eq=False)
class Probes(ABC):
    """Updates that look for rows with equal keys."""

    updates: Updates

    @property
    @abstractmethod
    def keys(self) -> Lane:
        """The key lanes of the probes, ascending."""

    @abstractmethod
    def join(self, rows: Updates, order: Lane | None = None) -> Iterator[Pairs]:
        """All pairs of a probe and a row with equal keys.

        The keys of the rows are keys of probes. The rows are in order of key lane, or `order` lists them in that order.
        """


class SortedProbes(Probes):
    """Probes in order of key lane."""

    @property
    def keys(self) -> Lane:
        return self.updates.key

    def join(self, rows: Updates, order: Lane | None = None) -> Iterator[Pairs]:
        return join_updates(self.updates, rows, order)


@dataclass(frozen=True, slots=True, eq=False)
class OffsetProbes(Probes):
    """Probes with exact keys in any order: `offsets` from the least key, and flags for the offsets that occur."""

    least: int
    offsets: Lane
    is_present: Array

    @property
    def keys(self) -> Lane:
        return np.flatnonzero(self.is_present) + self.least

    def join(self, rows: Updates, order: Lane | None = None) -> Iterator[Pairs]:
        at = rows.key - self.least
        sizes = np.bincount(at, minlength=len(self.is_present))
        if sizes.max(initial=0) <= 1:
            yield from self._join_unique(rows, at)
            return
        starts, sizes = (np.cumsum(sizes) - sizes)[self.offsets], sizes[self.offsets]
        for start, end in pieces(sizes):
            some = slice(start, end)
            probes = np.repeat(np.arange(start, end), sizes[some])
            met = rows_of(starts[some], starts[some] + sizes[some])
            if len(met):
                yield Pairs(self.updates, probes, rows, met if order is None else order[met])

    def _join_unique(self, rows: Updates, at: Lane) -> Iterator[Pairs]:
        """All pairs, if each key has at most one row; `at` are the offsets of the rows."""
        row_at = np.full(len(self.is_present), _NO_ROW)
        row_at[at] = np.arange(len(at))
        met = row_at[self.offsets]
        found = met != _NO_ROW
        if found.all():
            yield Pairs(self.updates, np.arange(len(met)), rows, met, has_each_of_a=True)
            return
        probes = np.flatnonzero(found)
        if len(probes):
            yield Pairs(self.updates, probes, rows, met[probes])


def probes_of(updates: Updates) -> Probes:
    """Probes of some updates, at least one."""
    if len(updates) >= LEAST_ROWS and updates.schema.key.exact:
        least = int(updates.key.min())
        keys = int(updates.key.max()) - least + 1
        if keys <= _MOST_KEYS * len(updates):
            offsets, is_present = updates.key - least, np.zeros(keys, bool)
            is_present[offsets] = True
            return OffsetProbes(updates, least, offsets, is_present)
    return SortedProbes(sorted_by_key(updates))
