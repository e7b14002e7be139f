"""Rows of partitions in order, and the frames of rows in them.

A `Window` has the rows of some partitions, one partition after the other, each in the order of its sort keys; a row
that counts twice is there twice. Positions count from the first row of the first partition, so that ranges of
positions say all that functions need to know: which partition a row is of, which rows are its peers (equal in all sort
keys), and which rows its frame has.

Cost: sorting, and a few passes over arrays for each distinct frame. Nothing is done row by row or partition by
partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.columns import integers, validity
from ikebana.encoding.lanes import Array, Lane
from ikebana.errors import EvaluationError
from ikebana.expressions.core.base import ColumnBatch, Expression
from ikebana.operators.reducers import group_extents
from ikebana.reducers.ordering import comparable, order_of, ranks_in_order
from ikebana.reducers.sort_keys import SortKey

_MANY_DIGITS = 75


Bound = int | float | Decimal | Expression | None
"""Where a frame starts or ends: see `Frame`."""

VALUE = "value"
"""What an expression for a bound calls the value of the sort key."""


@dataclass(frozen=True)
class Frame:
    """Which rows of its partition a row's function is about: from `lower` to `upper`, both included.

    Bounds are None (unbounded), 0 (the current row, in ranges with all its peers), or how far they are off, negative
    for what precedes: rows, or in ranges what is added to the value of the one sort key (subtracted if it descends),
    in its own type. For dates and timestamps, whose months differ in length, a bound is an expression: what it is for
    a row whose sort key is the column `VALUE`.

    A whole number that is beyond its type wraps around. If it is `checked`, that is an error where Spark looks at it.
    """

    unit: Literal["rows", "range"] = "range"
    lower: Bound = None
    upper: Bound = 0
    checked: bool = False


RUNNING = Frame()
"""All rows up to the current one and its peers: the frame of windows that have an order, if nothing else is said."""

WHOLE = Frame("rows", None, None)
"""All rows of the partition: the frame of windows without an order."""


class InOrder(Mapping[str, pa.Array]):
    """Columns in the order of a window; each is put in order when it is asked for."""

    def __init__(self, columns: Mapping[str, pa.Array], rows: Lane) -> None:
        self._columns, self._rows = columns, pa.array(rows)
        self._taken: dict[str, pa.Array] = {}

    def __getitem__(self, name: str) -> pa.Array:
        if name not in self._taken:
            self._taken[name] = self._columns[name].take(self._rows)
        return self._taken[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class Window:
    """Rows of partitions in order."""

    def __init__(self, columns: Mapping[str, pa.Array], group: Lane, counts: Lane, keys: Sequence[SortKey]) -> None:
        """Rows of groups (ascending), and how often each counts; values for ties are in the columns too."""
        order = order_of(columns, keys, group)
        self.rows: Lane = np.repeat(order, counts[order])
        """For each position the row that is there."""
        self.columns = InOrder(columns, self.rows)
        self._keys = tuple(keys)
        by = [part for key in keys for part in comparable(columns[key.column], key)]
        self._partition = ranks_in_order([group], self.rows)
        self.peers: Lane = ranks_in_order([group, *by], self.rows)
        """A number for each position, the same for peers, that goes up by one from peers to the next."""
        self._frames: dict[Frame, tuple[Lane, Lane]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def positions(self) -> Lane:
        """All positions."""
        return np.arange(len(self))

    @cached_property
    def partitions(self) -> tuple[Lane, Lane]:
        """Where the partition of each position starts and ends."""
        return _extents(self._partition)

    @cached_property
    def peer_ranges(self) -> tuple[Lane, Lane]:
        """Where the peers of each position start and end."""
        return _extents(self.peers)

    def frame(self, frame: Frame) -> tuple[Lane, Lane]:
        """Where the frame of each position starts and ends: at the same place if it has no rows."""
        if frame not in self._frames:
            lower, upper = self._rows(frame) if frame.unit == "rows" else self._range(frame)
            self._frames[frame] = lower, np.maximum(lower, upper)
        return self._frames[frame]

    def _rows(self, frame: Frame) -> tuple[Lane, Lane]:
        start, end = self.partitions
        assert not isinstance(frame.lower, Expression) and not isinstance(frame.upper, Expression)
        lower = start if frame.lower is None else np.clip(self.positions + int(frame.lower), start, end)
        upper = end if frame.upper is None else np.clip(self.positions + int(frame.upper) + 1, start, end)
        return lower, upper

    def _range(self, frame: Frame) -> tuple[Lane, Lane]:
        """Where frames start and end. As in Spark, frames of later rows never start or end earlier than those before.

        That matters where bounds are not in the order of rows: those that wrap around, and times on days on which
        clocks are set forward.
        """
        (lower, low_beyond), (upper, high_beyond) = self._bound(frame.lower, 0), self._bound(frame.upper, 1)
        ends = np.maximum.accumulate(upper)
        starts = np.maximum.accumulate(np.minimum(lower, ends))
        if frame.checked:
            start, end = self.partitions
            first = self.positions == start
            starts_before, ends_before = (np.where(first, start, np.roll(each, 1)) for each in (starts, ends))
            if frame.upper is None:
                low_is_asked = starts_before < end
            else:
                low_is_asked = (starts_before < ends_before) | (ends > ends_before)
            if (low_beyond & low_is_asked).any() or (high_beyond & (ends_before < end)).any():
                raise EvaluationError(
                    "a bound of a RANGE frame overflows",
                    detail=f"it does not fit into {self.columns[self._keys[0].column].type}",
                    hint="cast the column in ORDER BY to a wider type",
                )
        return starts, ends

    def _bound(self, bound: Bound, side: int) -> tuple[Lane, Array]:
        """Where frames start (`side` 0) or end (1) by themselves, and for which rows the bound is beyond its type."""
        nowhere = np.zeros(len(self), bool)
        if bound is None:
            return self.partitions[side], nowhere
        if not isinstance(bound, Expression) and bound == 0:
            return self.peer_ranges[side], nowhere
        (key,) = self._keys
        values = self.columns[key.column]
        if isinstance(bound, Expression):
            moved, beyond = bound.evaluate(ColumnBatch({VALUE: values}, len(values))), nowhere
        else:
            values = _computable(values)
            moved, beyond = _moved(values, bound if key.ascending else -bound)
        return self._reached(values, moved, after_equals=side == 1), beyond

    def _reached(self, values: pa.Array, bounds: pa.Array, *, after_equals: bool) -> Lane:
        """For each position where in its partition the value that its bound is would stand, before or after equals.

        Values and bounds are sorted together: a bound stands after as many values as come before it.
        """
        both = comparable(pa.concat_arrays([values, bounds]), self._keys[0])
        is_bound = np.repeat([0, 1], len(self))
        last = is_bound if after_equals else 1 - is_bound
        order = np.lexsort([last, *both[::-1], np.tile(self._partition, 2)])
        before = np.cumsum(1 - is_bound[order])
        reached = np.empty(2 * len(self), np.int64)
        reached[order] = before
        return reached[len(self) :]


def _extents(ranks: Lane) -> tuple[Lane, Lane]:
    """For ranks in order, which go up by one: where those of each position start and end."""
    starts, sizes = group_extents(ranks)
    return starts[ranks], (starts + sizes)[ranks]


def _computable(column: pa.Array) -> pa.Array:
    """A column of sort values in a type in which numbers can be added to them."""
    kind = column.type
    if types.is_floating(kind):
        return column
    if types.is_decimal(kind):
        return column.cast(pa.decimal256(_MANY_DIGITS, kind.scale))
    whole = pa.int64() if types.is_duration(kind) else kind
    return pa.array(integers(column), pa.int64(), mask=validity(column) == 0).cast(whole)


def _moved(values: pa.Array, offset: Any) -> tuple[pa.Array, Array]:
    """The values that are so far off, in their own type, and which of them are beyond it, and wrap around."""
    kind, valid = values.type, validity(values) != 0
    if types.is_floating(kind):
        return pc.add(values, pa.scalar(offset, kind)), np.zeros(len(values), bool)
    if types.is_decimal(kind):
        return pc.add(values, pa.scalar(Decimal(offset), kind)).cast(kind), np.zeros(len(values), bool)
    numbers, limits = integers(values), np.iinfo(f"int{kind.bit_width}")
    by = np.array([offset & (1 << 64) - 1], np.uint64).view(np.int64).astype(limits.dtype)[0]
    with np.errstate(over="ignore"):
        moved = numbers.astype(limits.dtype) + by
    beyond = (moved < numbers) != (by < 0) if by else np.zeros(len(values), bool)
    return pa.array(moved, kind, mask=~valid), valid & (beyond | (int(by) != offset))


def maxima(numbers: Array, lower: Lane, upper: Lane, nothing: int) -> Array:
    """The greatest number of each range of positions; `nothing` where it is empty.

    Ranges of twice the width are made of two of the last width, and every range is two of those that it is at least as
    wide as: a pass over all positions for each doubling of the widest.
    """
    found = np.full(len(lower), nothing, numbers.dtype)
    widths = upper - lower
    level, table = 0, numbers
    while True:
        width = 1 << level
        rows = np.flatnonzero((widths >= width) & (widths < 2 * width))
        found[rows] = np.maximum(table[lower[rows]], table[upper[rows] - width])
        if not (widths >= 2 * width).any():
            return found
        table = np.maximum(table[:-width], table[width:])
        level += 1
