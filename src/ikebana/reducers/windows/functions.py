"""Window functions: what is computed for each row from its place in the partition, or from its frame.

All are functions of whole columns: of the positions that a `Window` gives. Results have Spark's types. Sums and means
of whole numbers and decimals are exact (`ikebana.reducers.sums`): differences of running sums. Floats are added up in
the order of rows where a frame starts or ends with its partition, and pairwise within other frames: their sums may
differ from Spark's in the last bits.

Cost: a few passes over the rows; the least and the greatest of a frame take one for each doubling of its width, sums of
floats over frames of both bounds one for each row of a frame.
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
from ikebana.encoding.columns import validity
from ikebana.encoding.lanes import Array, Lane
from ikebana.expressions.core.buffers import is_true
from ikebana.reducers.ordering import comparable, ranks_in_order
from ikebana.reducers.sort_keys import SortKey
from ikebana.reducers.sums.aggregates import Count, Mean, Sum
from ikebana.reducers.sums.parts import SumPart, Sums
from ikebana.reducers.windows.partitions import RUNNING, Frame, Window, maxima

Known = Mapping[str, pa.Field]
"""The columns of a partition's rows, by name."""


@dataclass(frozen=True)
class WindowCall(ABC):
    """A function of a row's place, and the name of its column."""

    name: str

    @abstractmethod
    def field(self, known: Known) -> pa.Field:
        """Its column."""

    @abstractmethod
    def evaluate(self, window: Window) -> pa.Array:
        """Its value for each position."""


_Rank = Literal["row_number", "rank", "dense_rank", "percent_rank", "cume_dist"]


@dataclass(frozen=True)
class Rank(WindowCall):
    """A row's place in its partition, counted in one of several ways."""

    function: _Rank

    def field(self, known: Known) -> pa.Field:
        is_fraction = self.function in ("percent_rank", "cume_dist")
        return pa.field(self.name, pa.float64() if is_fraction else pa.int32(), nullable=False)

    def evaluate(self, window: Window) -> pa.Array:
        start, end = window.partitions
        first, after = window.peer_ranges
        match self.function:
            case "row_number":
                found = window.positions - start + 1
            case "rank":
                found = first - start + 1
            case "dense_rank":
                found = window.peers - window.peers[start] + 1
            case "percent_rank":
                return pa.array((first - start) / np.maximum(end - start - 1, 1))
            case "cume_dist":
                return pa.array((after - start) / (end - start))
        return pa.array(found.astype(np.int32))


@dataclass(frozen=True)
class Ntile(WindowCall):
    """Which of so many parts of the partition a row is in; the first ones have a row more if they cannot be equal."""

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
class ConstantFunction:
    """A Python value for every row, of the column's type."""

    value: Any


@dataclass(frozen=True)
class Shift(WindowCall):
    """The value of a column so many rows later (lead), or earlier if that is negative (lag).

    Rows in which it is null do not count if those are ignored. Where there is no such row, the row's own value of the
    column `default`, or a constant, or null.
    """

    column: str
    by: int
    default: str | ConstantFunction | None = None
    ignore_nulls: bool = False

    def field(self, known: Known) -> pa.Field:
        return known[self.column].with_name(self.name).with_nullable(True)

    def evaluate(self, window: Window) -> pa.Array:
        start, end = window.partitions
        column = window.columns[self.column]
        at = window.positions + self.by
        if self.ignore_nulls and self.by:
            valid = Valid(validity(column))
            here = valid.before(window.positions)
            at = valid.at(here - 1 + self.by + valid.flags) if self.by > 0 else valid.at(here + self.by)
        found = _taken(column, at, (at >= start) & (at < end))
        if self.default is None:
            return found
        other = window.columns[self.default] if isinstance(self.default, str) else self._constant(column)
        return pc.if_else(pa.array((at >= start) & (at < end)), found, other)

    def _constant(self, column: pa.Array) -> pa.Scalar:
        assert isinstance(self.default, ConstantFunction)
        return pa.scalar(self.default.value, column.type)


@dataclass(frozen=True)
class Nth(WindowCall):
    """The value of a column in the n-th row of the frame: 1 is the first, -1 the last; null if there is none.

    Rows in which it is null do not count if those are ignored; with `where`, only rows in which that column is true.
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
            valid = Valid(self._counted(window))
            at = valid.at(valid.before(lower) + self.nth - 1 if self.nth > 0 else valid.before(upper) + self.nth)
        else:
            at = lower + self.nth - 1 if self.nth > 0 else upper + self.nth
        return _taken(column, at, (at >= lower) & (at < upper))

    def _counted(self, window: Window) -> Array:
        """Which rows count."""
        there = validity(window.columns[self.column]) if self.ignore_nulls else np.ones(len(window), bool)
        return there if self.where is None else there & is_true(window.columns[self.where])


class Valid:
    """The positions that are marked: at which a column is not null, for example."""

    def __init__(self, flags: Array) -> None:
        self.flags = flags.astype(np.int64)
        self._positions = np.flatnonzero(self.flags)
        self._before = np.append(0, np.cumsum(self.flags))

    def before(self, positions: Lane) -> Lane:
        """How many of them are before each position."""
        return self._before[positions]

    def at(self, nth: Lane) -> Lane:
        """The n-th of them, counted from 0; -1 if there is none."""
        inside = (nth >= 0) & (nth < len(self._positions))
        found = np.full(len(nth), -1)
        found[inside] = self._positions[nth[inside]]
        return found


def _taken(column: pa.Array, at: Lane, there: Array) -> pa.Array:
    """The values at some positions, null where they are not there."""
    return column.take(pa.array(np.where(there, at, 0), mask=~there))


# Functions of frames.


@dataclass(frozen=True)
class Extreme(WindowCall):
    """The greatest (or least) value of a column in the frame, NaN being above all else; null if there is none."""

    column: str
    greatest: bool
    frame: Frame = RUNNING

    def field(self, known: Known) -> pa.Field:
        return known[self.column].with_name(self.name).with_nullable(True)

    def evaluate(self, window: Window) -> pa.Array:
        column = window.columns[self.column]
        by = comparable(column, SortKey(self.column, self.greatest, nulls_first=True))
        order = np.lexsort(by[::-1])  # nulls, then the values, the one that is looked for last
        places = np.empty(len(column), np.int64)
        places[order] = ranks_in_order(by, order)
        rows = np.empty(len(column), np.int64)
        rows[places[order]] = order
        found = maxima(places, *window.frame(self.frame), nothing=-1)
        return _taken(column, rows[found], found >= 0)


@dataclass(frozen=True)
class OverFrame(WindowCall):
    """A count, a sum or a mean of the frame's rows."""

    aggregate: Count | Sum | Mean
    frame: Frame = RUNNING

    def field(self, known: Known) -> pa.Field:
        null_if_empty = not isinstance(self.aggregate, Count)
        return pa.field(self.name, self.aggregate.type, null_if_empty)

    def evaluate(self, window: Window) -> pa.Array:
        lower, upper = window.frame(self.frame)
        wholes = [part for part in self.aggregate.parts if isinstance(part, SumPart)]
        lanes = {part: _sums_of_ranges(part.split(window.columns), lower, upper) for part in wholes}
        sums = Sums(upper - lower, lanes, {})
        has_floats = len(wholes) < len(self.aggregate.parts)
        return self._floats(window, sums) if has_floats else self.aggregate.finish(sums)

    def _floats(self, window: Window, sums: Sums) -> pa.Array:
        aggregate = self.aggregate
        assert isinstance(aggregate, Sum | Mean)
        column = window.columns[aggregate.column].cast(pa.float64())
        values = np.where(validity(column), column.to_numpy(zero_copy_only=False), 0.0)
        counts = aggregate.counts(sums)
        found = _float_sums(values, window, self.frame)
        if isinstance(aggregate, Mean):
            found = found / np.maximum(counts, 1)
        return from_numpy(pa.float64(), found, counts > 0)


def _sums_of_ranges(lanes: list[Lane], lower: Lane, upper: Lane) -> Lane:
    """The sums of lanes over ranges of positions, modulo 2**64."""
    running = np.zeros((len(lanes), len(lower) + 1), np.int64)
    np.cumsum(np.stack(lanes), axis=1, out=running[:, 1:])
    return running[:, upper] - running[:, lower]


def _float_sums(values: Array, window: Window, frame: Frame) -> Array:
    """The sums of frames."""
    lower, upper = window.frame(frame)
    found = np.zeros(len(values))
    some = np.flatnonzero(upper > lower)
    if frame.lower is None:
        found[some] = _running(values, window, 1)[upper[some] - 1]
    elif frame.upper is None:
        found[some] = _running(values, window, -1)[lower[some]]
    elif len(some):
        pairs = np.stack([lower[some], upper[some]], axis=1).ravel()
        found[some] = np.add.reduceat(np.append(values, 0.0), pairs)[::2]
    return found + 0.0


def _running(values: Array, window: Window, step: int) -> Array:
    """Running sums within partitions, from the first row on, or from the last if the step is -1."""
    starts, _ = window.partitions
    sums = np.empty(len(values))
    for first, after in pairwise([*np.flatnonzero(starts == window.positions).tolist(), len(values)]):
        np.cumsum(values[first:after][::step], out=sums[first:after][::step])
    return sums
