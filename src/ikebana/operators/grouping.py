"""Groups of rows: adding up the diffs of changes whose rows fall into few groups, without sorting them.

An aggregate of a few groups, such as sums by status, has many diff lanes for each row. Sorted like other updates, all
lanes of all rows would be copied twice. `few_groups` numbers the groups with Arrow's dictionaries, which compare values
exactly, or by their bytes if they are strings of one byte; `added_up` adds the diffs lane by lane.

Contract: the result accumulates to the same as the given changes; it has one row for each group and time.

Cost: a few nanoseconds for each row and column, and one or two for each row and lane. If a sample of the rows has many
groups, nothing else is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.lanes import Array, Index, Lane, is_constant
from ikebana.kernels import add_by_group
from ikebana.operators.changes import Changes

LEAST_ROWS = 1 << 12
"""Fewer changes are sorted as usual."""

_SAMPLED, _MOST_SAMPLED = 4, 4
"""One in so many rows is looked at first, and there may be one group for so many of these."""

_MOST_GROUPS = 1 << 16
"""The most groups, counting combinations of values that do not occur."""


@dataclass(frozen=True, slots=True, eq=False)
class FewGroups:
    """The number of the group of each row, and the first row of each group."""

    numbers: Index
    first: Lane


def few_groups(changes: Changes) -> FewGroups | None:
    """The groups of changes with equal columns and times; None if there may be many, or if values have other types."""
    if len(changes) < LEAST_ROWS or not all(_has_exact_dictionary(field.type) for field in changes.fields):
        return None
    sample = changes.slice(0, min(len(changes) // _SAMPLED, LEAST_ROWS))
    sampled = _numbered(sample)
    if sampled is None or len(sampled.first) * _MOST_SAMPLED > len(sample):
        return None
    return _numbered(changes)


def added_up(changes: Changes, groups: FewGroups, factors: Sequence[Array]) -> Changes:
    """The sums of the diffs of each group, which has one lane, multiplied by factors: a lane for each factor."""
    sums = np.zeros((len(factors), len(groups.first)), np.int64)
    for lane, factor in enumerate(factors):
        if not (is_constant(factor) and len(factor) and factor[0] == 0):
            add_by_group(groups.numbers, changes.diffs[0], factor, sums[lane])
    return replace(changes.take(groups.first), diffs=sums)


def _has_exact_dictionary(kind: pa.DataType) -> bool:
    """Whether Arrow distinguishes values of a type as we do: unlike floats, which have two zeros."""
    is_number = types.is_integer(kind) or types.is_boolean(kind) or types.is_date(kind) or types.is_timestamp(kind)
    return bool(is_number or types.is_string(kind))


def _numbered(changes: Changes) -> FewGroups | None:
    """The groups of changes; None if there are too many."""
    size = len(changes.times)
    numbers: Index = changes.tix
    for column in changes.columns:
        codes, values = _codes(column)
        size *= values
        if size > _MOST_GROUPS:
            return None
        numbers = numbers * np.int32(values) + codes
    is_present = np.zeros(size, bool)
    is_present[numbers] = True
    present = np.flatnonzero(is_present)
    first = _first_rows(numbers[:LEAST_ROWS], size)[present]
    if (first < 0).any():
        first = _first_rows(numbers, size)[present]
    positions = np.zeros(size, np.int32)
    positions[present] = np.arange(len(present))
    return FewGroups(positions[numbers], first)


def _codes(column: pa.Array) -> tuple[Index, int]:
    """A number for each value of a column, equal where the values are, and how many numbers there are."""
    characters = _single_bytes(column)
    if characters is None:
        encoded = column.dictionary_encode(null_encoding="encode")
        return encoded.indices.to_numpy(), len(encoded.dictionary)
    is_present = np.zeros(256, bool)
    is_present[characters] = True
    numbers = np.cumsum(is_present, dtype=np.int32) - np.int32(1)
    return numbers[characters], int(numbers[-1]) + 1


def _single_bytes(column: pa.Array) -> Array | None:
    """The bytes of a column of strings of one byte each, like many codes of statuses; None for other columns."""
    if not types.is_string(column.type) or column.null_count:
        return None
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    start, end = int(bounds[0]), int(bounds[-1])
    if end - start != len(column) or (np.diff(bounds) != 1).any():
        return None
    return np.frombuffer(data, np.uint8)[start:end]


def _first_rows(numbers: Index, size: int) -> Lane:
    """The first row that has each number; -1 for numbers of no row."""
    first = np.full(size, -1)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]  # of equal numbers, the last that is written stays
    return first
