"""Lists, opened: how many elements each row has, all elements one after the other, and the rows that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import Flags, flags_of
from ikebana.expressions.core.scalars import as_lists, shaped, valid

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lists:
    """Rows that have some of the items each, in order; lists that are null have none."""

    counts: Numbers
    items: pa.Array

    @staticmethod
    def of(array: pa.Array) -> Lists:
        """The lists of an array of lists."""
        return Lists._at(array, array.values)

    @staticmethod
    def keys(array: pa.Array) -> Lists:
        """The keys of an array of maps."""
        return Lists._at(array, array.keys)

    @staticmethod
    def values(array: pa.Array) -> Lists:
        """The values of an array of maps."""
        return Lists._at(array, array.items)

    @staticmethod
    def _at(array: pa.Array, items: pa.Array) -> Lists:
        offsets = np.asarray(array.offsets).astype(np.int64)
        counts, there = np.diff(offsets), valid(array)
        if there is not None:
            counts = np.where(there, counts, 0)
        return Lists(counts, items.take(pa.array(_ranges(offsets[:-1], counts))))

    @property
    def parents(self) -> Numbers:
        """The row of each item."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def positions(self) -> Numbers:
        """Where each item is in its list, from 0."""
        return _ranges(np.zeros(len(self.counts), np.int64), self.counts)

    def keep(self, test: Callable[[pa.Array], Any]) -> Lists:
        """Only the items that pass a test, which gives flags."""
        flags = test(self.items)
        return self.where(flags_of(flags) if isinstance(flags, pa.Array) else flags)

    def where(self, flags: Flags) -> Lists:
        """Only the items that flags mark."""
        counts = np.bincount(self.parents[flags], minlength=len(self.counts)).astype(np.int64)
        return Lists(counts, self.items.filter(pa.array(flags)))

    def ordered(self, order: Numbers) -> Lists:
        """The items in another order, in which rows still follow each other."""
        return Lists(self.counts, self.items.take(pa.array(order)))

    def part(self, starts: Numbers, counts: Numbers) -> Lists:
        """Some items of each row, from one on; there must be as many."""
        begins = np.cumsum(self.counts) - self.counts + starts
        return Lists(counts, self.items.take(pa.array(_ranges(begins, counts))))

    def pick(self, positions: Any, there: Any) -> pa.Array:
        """One item of each row, null where flags say that there is none."""
        begins = np.cumsum(self.counts) - self.counts
        index = np.where(there, begins + positions, 0)
        return self.items.take(pa.array(index, mask=~np.broadcast_to(there, index.shape)))

    def closed(self, kind: pa.DataType, there: Flags | None = None) -> pa.Array:
        """An array of lists of a type, null where flags are not set."""
        offsets = np.concatenate([[0], np.cumsum(self.counts)])
        return as_lists(offsets, shaped(self.items, kind.value_type), kind, there)


def _ranges(starts: Numbers, counts: Numbers) -> Numbers:
    """For each start as many numbers as there are, one after the other."""
    total = np.arange(int(counts.sum()))
    return total + np.repeat(starts - (np.cumsum(counts) - counts), counts)


def codes(items: pa.Array) -> Numbers:
    """A number for each item, in their order; -1 for nulls. NaN is the same as NaN and greater than all others."""
    if pa.types.is_floating(items.type):
        items = pc.add(items, pa.scalar(0.0, items.type))  # -0.0 is 0.0
    encoded = items.dictionary_encode()
    ranks = np.empty(len(encoded.dictionary) + 1, np.int64)
    ranks[np.asarray(pc.array_sort_indices(encoded.dictionary))] = np.arange(len(encoded.dictionary))
    ranks[-1] = -1
    return ranks[np.asarray(pc.fill_null(encoded.indices, len(encoded.dictionary)))]
