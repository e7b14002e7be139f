"""Columns of lists in flat form: the length of each list, and the items of all lists in one array.

Functions of arrays compute on all items at once, and use `parents` and `positions` to relate an item to its list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import Mask, unpack_bits
from ikebana.expressions.core.scalars import conform, list_array, validity_of

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lists:
    """One list per row: `counts` are the lengths, `items` the items of all lists in order. Null lists are empty."""

    counts: Integers
    items: pa.Array

    @staticmethod
    def from_array(array: pa.Array) -> Lists:
        """The lists of an Arrow array of lists."""
        return Lists._from_offsets(array, array.values)

    @staticmethod
    def from_map_keys(array: pa.Array) -> Lists:
        """The keys of an Arrow array of maps."""
        return Lists._from_offsets(array, array.keys)

    @staticmethod
    def from_map_values(array: pa.Array) -> Lists:
        """The values of an Arrow array of maps."""
        return Lists._from_offsets(array, array.items)

    @staticmethod
    def _from_offsets(array: pa.Array, items: pa.Array) -> Lists:
        offsets = np.asarray(array.offsets).astype(np.int64)
        counts, is_valid = np.diff(offsets), validity_of(array)
        if is_valid is not None:
            counts = np.where(is_valid, counts, 0)
        return Lists(counts, items.take(pa.array(_ranges(offsets[:-1], counts))))

    @property
    def parents(self) -> Integers:
        """The row of each item."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def positions(self) -> Integers:
        """The position of each item in its list, from 0."""
        return _ranges(np.zeros(len(self.counts), np.int64), self.counts)

    def filter(self, flags: Mask) -> Lists:
        """The lists with only those items whose flag is set."""
        counts = np.bincount(self.parents[flags], minlength=len(self.counts)).astype(np.int64)
        return Lists(counts, self.items.filter(pa.array(flags)))

    def where(self, flags: Mask) -> Lists:
        """The same lists, empty for rows whose flag is not set."""
        return Lists(np.where(flags, self.counts, 0), self.items.filter(pa.array(flags[self.parents])))

    def drop_nulls(self) -> Lists:
        """The lists without items that are null."""
        return self.filter(unpack_bits(pc.is_valid(self.items)))

    def any(self, flags: Mask) -> Mask:
        """The rows that have an item whose flag is set."""
        return np.bincount(self.parents[flags], minlength=len(self.counts)) > 0

    def reorder(self, order: Integers) -> Lists:
        """The items in the order of these indices, which must keep items of the same row together."""
        return Lists(self.counts, self.items.take(pa.array(order)))

    def sort(self, keys: Integers) -> Lists:
        """Each list ordered by the keys of its items; items with equal keys keep their order."""
        return self.reorder(np.lexsort((keys, self.parents)))

    def slice(self, starts: Integers, counts: Integers) -> Lists:
        """For each row, `counts` items from position `starts` on. These items must exist."""
        begins = np.cumsum(self.counts) - self.counts + starts
        return Lists(counts, self.items.take(pa.array(_ranges(begins, counts))))

    def pick(self, positions: Any, exists: Any) -> pa.Array:
        """The item at a position of each row, null where `exists` is false."""
        begins = np.cumsum(self.counts) - self.counts
        index = np.where(exists, begins + positions, 0)
        return self.items.take(pa.array(index, mask=~np.broadcast_to(exists, index.shape)))

    def to_array(self, kind: pa.DataType, is_valid: Mask | None = None) -> pa.Array:
        """An Arrow array of lists of type `kind`, null where `is_valid` is false."""
        return list_array(self._offsets, conform(self.items, kind.value_type), kind, is_valid)

    def to_map(self, kind: pa.DataType, keys: pa.Array, values: pa.Array, is_valid: Mask | None = None) -> pa.Array:
        """An Arrow array of maps of a type, with a key and a value for each item, null where `is_valid` is false."""
        pairs = [conform(keys, kind.key_type), conform(values, kind.item_type)]
        entries = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
        buffers = [None, pa.array(np.asarray(self._offsets, np.int32)).buffers()[1]]
        if is_valid is not None:
            buffers[0] = pa.array(is_valid).buffers()[1]
        return pa.Array.from_buffers(kind, len(self.counts), buffers, children=[entries])

    @property
    def _offsets(self) -> Integers:
        return np.concatenate([[0], np.cumsum(self.counts)])


def _ranges(starts: Integers, counts: Integers) -> Integers:
    """The concatenation of `range(start, start + count)` for each start and count."""
    total = np.arange(int(counts.sum()))
    return total + np.repeat(starts - (np.cumsum(counts) - counts), counts)


def has_map(kind: pa.DataType) -> bool:
    """Whether a type is a map or contains one."""
    return pa.types.is_map(kind) or any(has_map(kind.field(at).type) for at in range(kind.num_fields))


def ranks(items: pa.Array) -> Integers:
    """The rank of each item among the distinct items; -1 for nulls.

    NaN equals NaN and is greater than all others. Structs are ordered by their fields, lists by their elements, where
    nulls come first.
    """
    if pa.types.is_struct(items.type):
        return _dense([ranks(field) for field in items.flatten()], unpack_bits(items.is_valid()))
    if pa.types.is_list(items.type):
        return _ranks_of_lists(items)
    if pa.types.is_floating(items.type):
        items = pc.add(items, pa.scalar(0.0, items.type))  # -0.0 becomes 0.0
    encoded = items.dictionary_encode()
    by_code = np.empty(len(encoded.dictionary) + 1, np.int64)
    by_code[np.asarray(pc.array_sort_indices(encoded.dictionary))] = np.arange(len(encoded.dictionary))
    by_code[-1] = -1
    return by_code[np.asarray(pc.fill_null(encoded.indices, len(encoded.dictionary)))]


def _ranks_of_lists(array: pa.Array) -> Integers:
    """Lists are compared element by element; one that is a prefix of another is less."""
    lists = Lists.from_array(array)
    items, begins = ranks(lists.items), np.cumsum(lists.counts) - lists.counts
    order = np.zeros(len(array), np.int64)
    for position in range(int(lists.counts.max(initial=0))):
        has_item = lists.counts > position
        element = np.full(len(array), -2)
        element[has_item] = items[begins[has_item] + position]
        order = _dense([order, element], None)
    return _dense([order], unpack_bits(array.is_valid()))


def _dense(keys: list[Integers], is_valid: Mask | None) -> Integers:
    """The rank of each row among the distinct rows, in the order of some keys; -1 where `is_valid` is false."""
    if not keys:
        result = np.zeros(0 if is_valid is None else len(is_valid), np.int64)
    else:
        order = np.lexsort(keys[::-1])
        changed = np.zeros(len(order), bool)
        for key in keys:
            changed[1:] |= key[order[1:]] != key[order[:-1]]
        result = np.empty(len(order), np.int64)
        result[order] = np.cumsum(changed)
    return result if is_valid is None else np.where(is_valid, result, -1)
