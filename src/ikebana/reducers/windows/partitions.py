"""Sorted partitions and the frames of their rows.

A `Window` has the rows of some partitions, one partition after the other, each sorted by the sort keys; a row of
multiplicity two appears twice. Positions count from the first row of the first partition. Ranges of positions therefore
describe all that functions need: the partition of a row, its peers (rows with equal sort keys), and its frame.

Cost: sorting, and a few passes over arrays for each distinct frame; no loops over rows or partitions.
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

from ikebana.encoding.columns import integers, valid_flags
from ikebana.encoding.lanes import Array, Lane
from ikebana.errors import EvaluationError
from ikebana.expressions.core.base import ColumnBatch, Expression
from ikebana.operators.reducers import group_extents
from ikebana.reducers.ordering import comparable, order_of, ranks_in_order
from ikebana.reducers.sort_keys import SortKey

_DECIMAL_DIGITS = 75

Bound = int | float | Decimal | Expression | None
"""The lower or upper bound of a frame: see `Frame`."""

VALUE = "value"
"""The name of the sort key's value in an expression for a bound."""


@dataclass(frozen=True)
class Frame:
    """The rows of its partition that a row's function covers: from `lower` to `upper`, both included.

    A bound is None (unbounded), 0 (the current row, in ranges with all its peers), or an offset, negative if it
    precedes the current row: a number of rows, or in ranges a value that is added to the value of the single sort key
    (subtracted if the key is descending), in the type of the key. For dates and timestamps, whose months differ in
    length, a bound is an expression over the column `VALUE`, the value of the sort key.

    An integer that overflows its type wraps around. In a `checked` frame it is an error if Spark would evaluate it.
    """

    unit: Literal["rows", "range"] = "range"
    lower: Bound = None
    upper: Bound = 0
    checked: bool = False


RUNNING = Frame()
"""All rows up to the current row and its peers: the default frame of windows with an order."""

WHOLE = Frame("rows", None, None)
"""All rows of the partition: the frame of windows without an order."""


class SortedColumns(Mapping[str, pa.Array]):
    """Columns in the order of a window; a column is sorted when it is first used."""

    def __init__(self, columns: Mapping[str, pa.Array], rows: Lane) -> None:
        self._columns, self._rows = columns, pa.array(rows)
        self._sorted: dict[str, pa.Array] = {}

    def __getitem__(self, name: str) -> pa.Array:
        if name not in self._sorted:
            self._sorted[name] = self._columns[name].take(self._rows)
        return self._sorted[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class Window:
    """The sorted rows of some partitions."""

    def __init__(self, columns: Mapping[str, pa.Array], group: Lane, counts: Lane, keys: Sequence[SortKey]) -> None:
        """Sort rows, given their partitions (`group`, ascending) and multiplicities; ties are broken by all columns."""
        order = order_of(columns, keys, group)
        self.rows: Lane = np.repeat(order, counts[order])
        """The row at each position."""
        self.columns = SortedColumns(columns, self.rows)
        self._keys = tuple(keys)
        by = [lane for key in keys for lane in comparable(columns[key.column], key)]
        self._partition = ranks_in_order([group], self.rows)
        self.peers: Lane = ranks_in_order([group, *by], self.rows)
        """A number for each position that is equal for peers and increases by one from peers to the next peers."""
        self._frames: dict[Frame, tuple[Lane, Lane]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def positions(self) -> Lane:
        """All positions."""
        return np.arange(len(self))

    @cached_property
    def partitions(self) -> tuple[Lane, Lane]:
        """The start and end of the partition of each position."""
        return _extents(self._partition)

    @cached_property
    def peer_ranges(self) -> tuple[Lane, Lane]:
        """The start and end of the peers of each position."""
        return _extents(self.peers)

    def frame(self, frame: Frame) -> tuple[Lane, Lane]:
        """The start and end of the frame of each position; equal if the frame is empty."""
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
        """The start and end of frames. As in Spark, neither decreases from one row to the next.

        This matters if bounds are not in the order of rows: if they wrap around, and for times on days on which clocks
        are set forward.
        """
        (lower, lower_overflows), (upper, upper_overflows) = self._bound(frame.lower, 0), self._bound(frame.upper, 1)
        ends = np.maximum.accumulate(upper)
        starts = np.maximum.accumulate(np.minimum(lower, ends))
        if frame.checked:
            start, end = self.partitions
            first = self.positions == start
            starts_before, ends_before = (np.where(first, start, np.roll(lane, 1)) for lane in (starts, ends))
            if frame.upper is None:
                lower_is_used = starts_before < end
            else:
                lower_is_used = (starts_before < ends_before) | (ends > ends_before)
            if (lower_overflows & lower_is_used).any() or (upper_overflows & (ends_before < end)).any():
                raise EvaluationError(
                    "a bound of a RANGE frame overflows",
                    detail=f"it does not fit into {self.columns[self._keys[0].column].type}",
                    hint="cast the column in ORDER BY to a wider type",
                )
        return starts, ends

    def _bound(self, bound: Bound, side: int) -> tuple[Lane, Array]:
        """The start (`side` 0) or end (1) of frames, and for which rows the bound overflows its type."""
        no_overflow = np.zeros(len(self), bool)
        if bound is None:
            return self.partitions[side], no_overflow
        if not isinstance(bound, Expression) and bound == 0:
            return self.peer_ranges[side], no_overflow
        (key,) = self._keys
        values = self.columns[key.column]
        if isinstance(bound, Expression):
            bounds, overflows = bound.evaluate(ColumnBatch({VALUE: values}, len(values))), no_overflow
        else:
            values = _as_addable(values)
            bounds, overflows = _add_offset(values, bound if key.ascending else -bound)
        return self._positions_of(values, bounds, after_equals=side == 1), overflows

    def _positions_of(self, values: pa.Array, bounds: pa.Array, *, after_equals: bool) -> Lane:
        """The position in its partition at which each bound would be inserted, before or after equal values.

        Values and bounds are sorted together: the position of a bound is the number of values that come before it.
        """
        both = comparable(pa.concat_arrays([values, bounds]), self._keys[0])
        is_bound = np.repeat([0, 1], len(self))
        last = is_bound if after_equals else 1 - is_bound
        order = np.lexsort([last, *both[::-1], np.tile(self._partition, 2)])
        before = np.cumsum(1 - is_bound[order])
        positions = np.empty(2 * len(self), np.int64)
        positions[order] = before
        return positions[len(self) :]


def _extents(ranks: Lane) -> tuple[Lane, Lane]:
    """The start and end of the positions with the same rank, for sorted ranks without gaps."""
    starts, sizes = group_extents(ranks)
    return starts[ranks], (starts + sizes)[ranks]


def _as_addable(column: pa.Array) -> pa.Array:
    """A sort column in a type to which offsets can be added."""
    kind = column.type
    if types.is_floating(kind):
        return column
    if types.is_decimal(kind):
        return column.cast(pa.decimal256(_DECIMAL_DIGITS, kind.scale))
    integer = pa.int64() if types.is_duration(kind) else kind
    return pa.array(integers(column), pa.int64(), mask=valid_flags(column) == 0).cast(integer)


def _add_offset(values: pa.Array, offset: Any) -> tuple[pa.Array, Array]:
    """The values plus an offset, in their own type, and which of them overflow and wrap around."""
    kind, valid = values.type, valid_flags(values) != 0
    if types.is_floating(kind):
        return pc.add(values, pa.scalar(offset, kind)), np.zeros(len(values), bool)
    if types.is_decimal(kind):
        return pc.add(values, pa.scalar(Decimal(offset), kind)).cast(kind), np.zeros(len(values), bool)
    numbers, limits = integers(values), np.iinfo(f"int{kind.bit_width}")
    by = np.array([offset & (1 << 64) - 1], np.uint64).view(np.int64).astype(limits.dtype)[0]
    with np.errstate(over="ignore"):
        sums = numbers.astype(limits.dtype) + by
    overflows = (sums < numbers) != (by < 0) if by else np.zeros(len(values), bool)
    return pa.array(sums, kind, mask=~valid), valid & (overflows | (int(by) != offset))


def maxima(numbers: Array, lower: Lane, upper: Lane, empty: int) -> Array:
    """The greatest number of each range of positions; `empty` for empty ranges.

    A sparse table: the maxima of ranges of width 2w are computed from those of width w, and every range is the union of
    two ranges of the largest power of two that fits. One pass over all positions for each doubling of the width.
    """
    result = np.full(len(lower), empty, numbers.dtype)
    widths = upper - lower
    level, table = 0, numbers
    while True:
        width = 1 << level
        rows = np.flatnonzero((widths >= width) & (widths < 2 * width))
        result[rows] = np.maximum(table[lower[rows]], table[upper[rows] - width])
        if not (widths >= 2 * width).any():
            return result
        table = np.maximum(table[:-width], table[width:])
        level += 1
