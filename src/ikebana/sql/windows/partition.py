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

from ikebana.operators.logic import extents
from ikebana.sql.ordering import comparable, order_of, ranks_in_order
from ikebana.sql.prefixes import SortKey
from ikebana.trace.columns import integers, validity
from ikebana.trace.lanes import Array, Lane

_WORD = np.iinfo(np.int64)
_MANY_DIGITS = 75


@dataclass(frozen=True)
class Frame:
    """Which rows of its partition a row's function is about: from `lower` to `upper`, both included.

    Bounds are None (unbounded), 0 (the current row, in ranges with all its peers), or how far they are off, negative
    for what precedes: rows, or in ranges what is added to the value of the one sort key (subtracted if it descends).
    That is in units of the column: days for dates, microseconds for timestamps, a `Decimal` for decimals.
    """

    unit: Literal["rows", "range"] = "range"
    lower: int | float | Decimal | None = None
    upper: int | float | Decimal | None = 0


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
        lower = start if frame.lower is None else np.clip(self.positions + int(frame.lower), start, end)
        upper = end if frame.upper is None else np.clip(self.positions + int(frame.upper) + 1, start, end)
        return lower, upper

    def _range(self, frame: Frame) -> tuple[Lane, Lane]:
        bounds = []
        for side, offset in enumerate((frame.lower, frame.upper)):
            if offset is None:
                bounds.append(self.partitions[side])
            elif offset == 0:
                bounds.append(self.peer_ranges[side])
            else:
                bounds.append(self._reached(offset, after_equals=side == 1))
        return bounds[0], bounds[1]

    def _reached(self, offset: int | float | Decimal, *, after_equals: bool) -> Lane:
        """For each position where in its partition the value that is so far off would stand, before or after equals.

        Values and bounds are sorted together: a bound stands after as many values as come before it.
        """
        (key,) = self._keys
        values = _computable(self.columns[key.column], offset)
        bounds = _moved(values, offset if key.ascending else -offset)
        both = comparable(pa.concat_arrays([values, bounds]), key)
        is_bound = np.repeat([0, 1], len(self))
        last = is_bound if after_equals else 1 - is_bound
        order = np.lexsort([last, *both[::-1], np.tile(self._partition, 2)])
        before = np.cumsum(1 - is_bound[order])
        reached = np.empty(2 * len(self), np.int64)
        reached[order] = before
        return reached[len(self) :]


def _extents(ranks: Lane) -> tuple[Lane, Lane]:
    """For ranks in order, which go up by one: where those of each position start and end."""
    starts, sizes = extents(ranks)
    return starts[ranks], (starts + sizes)[ranks]


def _computable(column: pa.Array, offset: Any) -> pa.Array:
    """A column of sort values in a type that has room for what is added to them."""
    kind = column.type
    if types.is_floating(kind):
        return column.cast(pa.float64())
    if types.is_decimal(kind):
        scale = max(kind.scale, -int(Decimal(offset).as_tuple().exponent))
        return column.cast(pa.decimal256(_MANY_DIGITS, scale))
    return pa.array(integers(column), pa.int64(), mask=validity(column) == 0)


def _moved(values: pa.Array, offset: Any) -> pa.Array:
    """The values that are so far off; the least or greatest number where it would be beyond."""
    if types.is_floating(values.type):
        return pc.add(values, float(offset))
    if types.is_decimal(values.type):
        return pc.add(values, pa.scalar(Decimal(offset), values.type)).cast(values.type)
    numbers = integers(values)
    room = _WORD.max - offset if offset > 0 else _WORD.min - offset
    beyond = numbers > room if offset > 0 else numbers < room
    moved = np.where(beyond, _WORD.max if offset > 0 else _WORD.min, numbers + np.int64(offset))
    return pa.array(moved, mask=validity(values) == 0)


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
