"""Window functions: values computed from a row's place in its partition, or from its frame.

All functions work on whole columns, in the positions of a `Window`. Results have Spark's types. Sums and means of
integers and decimals are exact (`ikebana.reducers.sums`): they are differences of running sums. Floats are added in the
order of rows if a frame starts or ends with its partition, and pairwise within other frames, so their sums may differ
from Spark's in the last digits.

Cost: a few passes over the rows. Minimum and maximum take one pass for each doubling of the frame's width; sums of
floats over frames with two bounds take time in proportion to the width of the frame.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import from_numpy
from ikebana.encoding.columns import valid_flags
from ikebana.encoding.lanes import Array, Lane
from ikebana.expressions.core.buffers import is_true
from ikebana.reducers.ordering import comparable, ranks_in_order
from ikebana.reducers.sort_keys import SortKey
from ikebana.reducers.sums.aggregates import Count, Mean, Sum
from ikebana.reducers.sums.parts import PartSums, SumPart
from ikebana.reducers.windows.partitions import RUNNING, Frame, Window, maxima

Known = Mapping[str, pa.Field]
"""The columns of the rows, by name."""


@dataclass(frozen=True)
class WindowCall(ABC):
    """A window function, and the name of its column."""

    name: str

    @abstractmethod
    def field(self, known: Known) -> pa.Field:
        """The column of the result."""

    @abstractmethod
    def evaluate(self, window: Window) -> pa.Array:
        """The result at each position."""


_Rank = Literal["row_number", "rank", "dense_rank", "percent_rank", "cume_dist"]


@dataclass(frozen=True)
class Rank(WindowCall):
    """The rank of a row in its partition, in one of several definitions."""

    function: _Rank

    def field(self, known: Known) -> pa.Field:
        is_fraction = self.function in ("percent_rank", "cume_dist")
        return pa.field(self.name, pa.float64() if is_fraction else pa.int32(), nullable=False)

    def evaluate(self, window: Window) -> pa.Array:
        start, end = window.partitions
        first, after = window.peer_ranges
        match self.function:
            case "row_number":
                rank = window.positions - start + 1
            case "rank":
                rank = first - start + 1
            case "dense_rank":
                rank = window.peers - window.peers[start] + 1
            case "percent_rank":
                return pa.array((first - start) / np.maximum(end - start - 1, 1))
            case "cume_dist":
                return pa.array((after - start) / (end - start))
        return pa.array(rank.astype(np.int32))


@dataclass(frozen=True)
class Ntile(WindowCall):
    """The number of a row's bucket, if the partition is divided into equal buckets; the first may have one row more."""

    parts: int

    def field(self, known: Known) -> pa.Field:
        return pa.field(self.name, pa.int32(), nullable=False)

    def evaluate(self, window: Window) -> pa.Array:
        start, end = window.partitions
        place = window.positions - start
        size, larger = np.divmod(end - start, self.parts)
        in_larger = larger * (size + 1)
        part = np.where(
            place < in_larger,
            place // (size + 1),
            larger + (place - in_larger) // np.maximum(size, 1),
        )
        return pa.array((part + 1).astype(np.int32))


# Values of other rows.


@dataclass(frozen=True)
class DefaultValue:
    """A Python value for every row, in the type of the column."""

    value: Any


@dataclass(frozen=True)
class Shift(WindowCall):
    """The value of a column `by` rows later (lead), or earlier if `by` is negative (lag).

    With `ignore_nulls`, rows in which the column is null are not counted. If there is no such row, the result is
    `default`: the value of a column in the current row, a constant, or null.
    """

    column: str
    by: int
    default: str | DefaultValue | None = None
    ignore_nulls: bool = False

    def field(self, known: Known) -> pa.Field:
        return known[self.column].with_name(self.name).with_nullable(True)

    def evaluate(self, window: Window) -> pa.Array:
        start, end = window.partitions
        column = window.columns[self.column]
        at = window.positions + self.by
        if self.ignore_nulls and self.by:
            valid = MarkedPositions(valid_flags(column))
            here = valid.before(window.positions)
            at = valid.at(here - 1 + self.by + valid.flags) if self.by > 0 else valid.at(here + self.by)
        is_inside = (at >= start) & (at < end)
        values = _take(column, at, is_inside)
        if self.default is None:
            return values
        default = window.columns[self.default] if isinstance(self.default, str) else self._constant(column)
        return pc.if_else(pa.array(is_inside), values, default)

    def _constant(self, column: pa.Array) -> pa.Scalar:
        assert isinstance(self.default, DefaultValue)
        return pa.scalar(self.default.value, column.type)


@dataclass(frozen=True)
class Nth(WindowCall):
    """The value of a column in the n-th row of the frame: 1 is the first, -1 the last; null if there is none.

    With `ignore_nulls`, rows in which the column is null are not counted; with `where`, only rows in which that column
    is true are counted.
    """

    column: str
    nth: int
    frame: Frame = RUNNING
    ignore_nulls: bool = False
    where: str | None = None

    def field(self, known: Known) -> pa.Field:
        return known[self.column].with_name(self.name).with_nullable(True)

    def evaluate(self, window: Window) -> pa.Array:
        lower, upper = window.frame(self.frame)
        column = window.columns[self.column]
        if self.ignore_nulls or self.where is not None:
            valid = MarkedPositions(self._is_counted(window))
            at = valid.at(valid.before(lower) + self.nth - 1 if self.nth > 0 else valid.before(upper) + self.nth)
        else:
            at = lower + self.nth - 1 if self.nth > 0 else upper + self.nth
        return _take(column, at, (at >= lower) & (at < upper))

    def _is_counted(self, window: Window) -> Array:
        is_counted = valid_flags(window.columns[self.column]) if self.ignore_nulls else np.ones(len(window), bool)
        return is_counted if self.where is None else is_counted & is_true(window.columns[self.where])


class MarkedPositions:
    """Marked positions, for example those at which a column is not null."""

    def __init__(self, flags: Array) -> None:
        self.flags = flags.astype(np.int64)
        self._positions = np.flatnonzero(self.flags)
        self._before = np.append(0, np.cumsum(self.flags))

    def before(self, positions: Lane) -> Lane:
        """The number of marked positions before each position."""
        return self._before[positions]

    def at(self, nth: Lane) -> Lane:
        """The n-th marked position, from 0; -1 if there is none."""
        inside = (nth >= 0) & (nth < len(self._positions))
        positions = np.full(len(nth), -1)
        positions[inside] = self._positions[nth[inside]]
        return positions


def _take(column: pa.Array, positions: Lane, valid: Array) -> pa.Array:
    """The values at some positions, null where `valid` is false."""
    return column.take(pa.array(np.where(valid, positions, 0), mask=~valid))


# Functions of frames.


@dataclass(frozen=True)
class Extreme(WindowCall):
    """The greatest (or least) value of a column in the frame, where NaN is the greatest; null if there is none."""

    column: str
    greatest: bool
    frame: Frame = RUNNING

    def field(self, known: Known) -> pa.Field:
        return known[self.column].with_name(self.name).with_nullable(True)

    def evaluate(self, window: Window) -> pa.Array:
        column = window.columns[self.column]
        by = comparable(column, SortKey(self.column, self.greatest, nulls_first=True))
        order = np.lexsort(by[::-1])  # nulls first, the best value last
        places = np.empty(len(column), np.int64)
        places[order] = ranks_in_order(by, order)
        rows = np.empty(len(column), np.int64)
        rows[places[order]] = order
        best = maxima(places, *window.frame(self.frame), empty=-1)
        return _take(column, rows[best], best >= 0)


@dataclass(frozen=True)
class OverFrame(WindowCall):
    """The count, sum or mean of the rows in the frame."""

    aggregate: Count | Sum | Mean
    frame: Frame = RUNNING

    def field(self, known: Known) -> pa.Field:
        null_if_empty = not isinstance(self.aggregate, Count)
        return pa.field(self.name, self.aggregate.type, null_if_empty)

    def evaluate(self, window: Window) -> pa.Array:
        lower, upper = window.frame(self.frame)
        wholes = [part for part in self.aggregate.parts if isinstance(part, SumPart)]
        lanes = {part: _sums_of_ranges(part.split(window.columns), lower, upper) for part in wholes}
        sums = PartSums(upper - lower, lanes, {})
        has_floats = len(wholes) < len(self.aggregate.parts)
        return self._floats(window, sums) if has_floats else self.aggregate.finish(sums)

    def _floats(self, window: Window, sums: PartSums) -> pa.Array:
        aggregate = self.aggregate
        assert isinstance(aggregate, Sum | Mean)
        column = window.columns[aggregate.column].cast(pa.float64())
        values = np.where(valid_flags(column), column.to_numpy(zero_copy_only=False), 0.0)
        counts = aggregate.counts(sums)
        result = _float_sums(values, window, self.frame)
        if isinstance(aggregate, Mean):
            result = result / np.maximum(counts, 1)
        return from_numpy(pa.float64(), result, counts > 0)


def _sums_of_ranges(lanes: list[Lane], lower: Lane, upper: Lane) -> Lane:
    """The sums of lanes over ranges of positions, modulo 2**64."""
    running = np.zeros((len(lanes), len(lower) + 1), np.int64)
    np.cumsum(np.stack(lanes), axis=1, out=running[:, 1:])
    return running[:, upper] - running[:, lower]


def _float_sums(values: Array, window: Window, frame: Frame) -> Array:
    """The sums of floats over frames."""
    lower, upper = window.frame(frame)
    sums = np.zeros(len(values))
    nonempty = np.flatnonzero(upper > lower)
    if frame.lower is None:
        sums[nonempty] = _running_sums(values, window, 1)[upper[nonempty] - 1]
    elif frame.upper is None:
        sums[nonempty] = _running_sums(values, window, -1)[lower[nonempty]]
    elif len(nonempty):
        pairs = np.stack([lower[nonempty], upper[nonempty]], axis=1).ravel()
        sums[nonempty] = np.add.reduceat(np.append(values, 0.0), pairs)[::2]
    return sums + 0.0


def _running_sums(values: Array, window: Window, step: int) -> Array:
    """Running sums within partitions, from the first row, or from the last row if `step` is -1."""
    starts, _ = window.partitions
    sums = np.empty(len(values))
    for first, after in pairwise([*np.flatnonzero(starts == window.positions).tolist(), len(values)]):
        np.cumsum(values[first:after][::step], out=sums[first:after][::step])
    return sums
