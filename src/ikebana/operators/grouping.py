"""Groups of rows: adding up the diffs of changes whose rows fall into few groups, without sorting them.

An aggregate of a few groups, such as sums by status, has many diff lanes for each row. Sorted like other updates, all
lanes of all rows would be copied twice. `few_groups` numbers the groups with Arrow's dictionaries, which compare values
exactly; `added_up` adds the diffs lane by lane.

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

from ikebana.encoding.lanes import Array, Index, Lane
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
        encoded = column.dictionary_encode(null_encoding="encode")
        size *= len(encoded.dictionary)
        if size > _MOST_GROUPS:
            return None
        numbers = numbers * np.int32(len(encoded.dictionary)) + encoded.indices.to_numpy()
    first = np.full(size, -1)
    first[numbers[::-1]] = np.arange(len(changes))[::-1]  # of equal numbers, the last that is written stays
    present = np.flatnonzero(first >= 0)
    positions = np.zeros(size, np.int32)
    positions[present] = np.arange(len(present))
    return FewGroups(positions[numbers], first[present])
