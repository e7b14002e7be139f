"""The sums behind aggregates: counts of rows, counts of values, and sums of values.

A `SumPart` gives the numbers of each row to sum in its lanes. Parts are values: aggregates that need the same part (the
sum and the mean of a column) share its lanes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.columns import valid_flags
from ikebana.encoding.lanes import Array, Lane
from ikebana.kernels import opcodes
from ikebana.operators.program import NO_COLUMN, ProgramBuilder
from ikebana.operators.registers import ColumnSlots, Rows
from ikebana.reducers.sums.exact import LANE_SHIFTS, Totals, join, lanes_of, split
from ikebana.reducers.sums.floats import BINS, Exact, ExactProduct, Numbers

Columns = Mapping[str, pa.Array]
"""Columns by name, all of the same length."""


@dataclass(frozen=True)
class SumPart(ABC):
    """A sum that is kept in some lanes."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of lanes."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that the part reads."""

    @abstractmethod
    def split(self, columns: Columns) -> list[Lane]:
        """The numbers to sum, lane by lane."""

    @abstractmethod
    def lower(self, program: ProgramBuilder, rows: Rows) -> list[int] | None:
        """Write the numbers to sum as instructions of a program: return their slots, or None."""


@dataclass(frozen=True)
class Present(SumPart):
    """The number of rows in which none of some columns is null."""

    names: tuple[str, ...]

    @property
    def width(self) -> int:
        return 1

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    def split(self, columns: Columns) -> list[Lane]:
        flags = [valid_flags(columns[name]) for name in self.columns]
        return [np.bitwise_and.reduce(flags).astype(np.int64)]

    def lower(self, program: ProgramBuilder, rows: Rows) -> list[int] | None:
        any_null = NO_COLUMN
        for name in self.columns:
            is_null = program.evaluated(opcodes.IS_NULL, rows.count, rows.columns[name], nullable=False)
            any_null = program.evaluated(opcodes.OR, rows.count, any_null, is_null)
        return [program.evaluated(opcodes.NOT, rows.count, any_null).value]


@dataclass(frozen=True)
class Whole(SumPart):
    """The exact sum of a column of integers, durations or decimals."""

    column: str
    kind: pa.DataType

    @property
    def width(self) -> int:
        return lanes_of(self.kind)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def split(self, columns: Columns) -> list[Lane]:
        return split(columns[self.column])

    def lower(self, program: ProgramBuilder, rows: Rows) -> list[int] | None:
        column = ColumnSlots(rows.columns[self.column].value, 0)
        shifts = LANE_SHIFTS[: self.width]
        slots = [program.evaluated(opcodes.SHIFT, rows.count, column, least=shift).value for shift in shifts[1:]]
        return [column.value, *slots]


@dataclass(frozen=True)
class BinnedPart(ABC):
    """A sum that has rows of its own, one for each bin: see `floats`."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of lanes."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that the part reads."""

    @abstractmethod
    def split(self, columns: Columns) -> tuple[Lane, Lane, list[Lane]]:
        """The rows of the values other than zero and null, their bins, and the numbers to sum in each bin."""

    @abstractmethod
    def zero(self) -> Exact | ExactProduct:
        """The sum of no rows."""


@dataclass(frozen=True)
class Floating(BinnedPart):
    """The exact sum of a column of floats and, if requested, of their squares and higher powers."""

    column: str
    power: int = 1

    @property
    def width(self) -> int:
        return self.power * (self.power + 1)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def split(self, columns: Columns) -> tuple[Lane, Lane, list[Lane]]:
        values = _doubles(columns[self.column])
        rows = np.flatnonzero(values)
        numbers = Numbers.of(values[rows])
        return rows, numbers.bins, numbers.lanes(self.power)

    def zero(self) -> Exact:
        return Exact([0] * self.power)


@dataclass(frozen=True)
class Products(BinnedPart):
    """The exact sum of the products of two columns of floats, where both are finite."""

    left: str
    right: str

    @property
    def width(self) -> int:
        return 4

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.left, self.right)

    def split(self, columns: Columns) -> tuple[Lane, Lane, list[Lane]]:
        left, right = (_doubles(columns[name]) for name in self.columns)
        rows = np.flatnonzero((left != 0) & (right != 0) & np.isfinite(left) & np.isfinite(right))
        one, other = Numbers.of(left[rows]), Numbers.of(right[rows])
        return rows, one.bins + other.bins, one.product_lanes(other)

    def zero(self) -> ExactProduct:
        return ExactProduct()


def _doubles(column: pa.Array) -> Array:
    """A column as doubles, 0 where it is null."""
    doubles = column.cast(pa.float64())
    return np.where(valid_flags(doubles), doubles.to_numpy(zero_copy_only=False), 0.0)


AnyPart = SumPart | BinnedPart


def wholes(parts: Iterable[AnyPart]) -> tuple[SumPart, ...]:
    """The distinct parts that have lanes in every row."""
    return tuple(dict.fromkeys(part for part in parts if isinstance(part, SumPart)))


def binned(parts: Iterable[AnyPart]) -> tuple[BinnedPart, ...]:
    """The distinct parts that have rows of their own."""
    return tuple(dict.fromkeys(part for part in parts if isinstance(part, BinnedPart)))


@dataclass(frozen=True, eq=False)
class PartSums:
    """The sums of the parts of some groups."""

    rows: Lane
    lanes: Mapping[SumPart, Lane]
    exact: Mapping[BinnedPart, list[Any]]

    @staticmethod
    def of_lanes(parts: Iterable[SumPart], lanes: Lane, exact: Mapping[BinnedPart, list[Any]]) -> PartSums:
        """Sums from lanes: the first lane counts rows, the lanes of the parts follow in order."""
        by_part, at = {}, 1
        for part in parts:
            by_part[part] = lanes[at : at + part.width]
            at += part.width
        return PartSums(lanes[0], by_part, exact)

    def count(self, columns: tuple[str, ...]) -> Lane:
        """The number of rows in which none of some columns is null."""
        return self.lanes[Present(columns)][0] if columns else self.rows

    def total(self, part: Whole) -> Totals:
        """The exact sums of a column."""
        return join(list(self.lanes[part]))

    def totals(self, part: Any) -> list[Any]:
        """The exact sums of a binned part: `Exact`, or `ExactProduct` for products."""
        return self.exact[part]


@dataclass(frozen=True, eq=False)
class SumSlots:
    """The sums of the parts of some groups, in a program."""

    program: ProgramBuilder
    register: int
    rows: int
    slots: Mapping[SumPart, Sequence[int]]

    def count(self, columns: tuple[str, ...]) -> ColumnSlots:
        """The number of rows in which none of some columns is null."""
        return ColumnSlots(self.slots[Present(columns)][0] if columns else self.rows, 0)

    def total(self, part: Whole) -> ColumnSlots:
        """The exact sums of a column, if they have 64 bits."""
        slots, total = self.slots[part], self.program.slot()
        self.program.emit(opcodes.TOTAL, self.register, total, len(slots), *slots)
        return ColumnSlots(total, 0)

    def evaluated(self, opcode: int, *operands: ColumnSlots, least: int = 0, greatest: int = 0) -> ColumnSlots:
        """A function of up to two columns."""
        return self.program.evaluated(opcode, self.register, *operands, least=least, greatest=greatest)


def exact_sums(
    parts: Sequence[BinnedPart], group: Lane, slots: Lane, lanes: Lane, groups: int
) -> dict[BinnedPart, list[Any]]:
    """The sums of groups for each binned part, from the rows of bins.

    A row has the position of its group, its slot (the position of its part times `BINS`, plus its bin), and lanes.
    """
    totals: list[list[Any]] = [[part.zero() for _ in range(groups)] for part in parts]
    places, bins = np.divmod(slots, BINS)
    rows = zip(places.tolist(), group.tolist(), bins.tolist(), lanes.T.tolist(), strict=True)
    for place, at, bin_, sums in rows:
        totals[place][at].add(bin_, sums[: parts[place].width])
    return dict(zip(parts, totals, strict=True))
