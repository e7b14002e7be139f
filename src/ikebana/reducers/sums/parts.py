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
from ikebana.encoding.lanes import Lane
from ikebana.kernels import opcodes
from ikebana.operators.program import NO_COLUMN, ProgramBuilder
from ikebana.operators.registers import Column, Rows
from ikebana.reducers.sums.exact import LANE_SHIFTS, Totals, join, lanes_of, split
from ikebana.reducers.sums.floats import Exact, Numbers

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
        column = Column(rows.columns[self.column].value, 0)
        shifts = LANE_SHIFTS[: self.width]
        slots = [program.evaluated(opcodes.SHIFT, rows.count, column, least=shift).value for shift in shifts[1:]]
        return [column.value, *slots]


@dataclass(frozen=True)
class Floating:
    """The exact sum of a column of floats and, if requested, of their squares: see `floats`."""

    column: str
    squares: bool = False

    @property
    def width(self) -> int:
        """The number of lanes."""
        return 6 if self.squares else 2

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the part reads."""
        return (self.column,)

    def split(self, columns: Columns) -> tuple[Lane, Lane, list[Lane]]:
        """The rows of the values other than zero and null, their bins, and the numbers to sum in each bin."""
        column = columns[self.column].cast(pa.float64())
        values = np.where(valid_flags(column), column.to_numpy(zero_copy_only=False), 0.0)
        rows = np.flatnonzero(values)
        numbers = Numbers.of(values[rows])
        return rows, numbers.bins, numbers.lanes(self.squares)


AnyPart = SumPart | Floating


def wholes(parts: Iterable[AnyPart]) -> tuple[SumPart, ...]:
    """The distinct parts that have lanes in every row."""
    return tuple(dict.fromkeys(part for part in parts if isinstance(part, SumPart)))


def floatings(parts: Iterable[AnyPart]) -> tuple[Floating, ...]:
    """The distinct parts that have rows of their own, one for each bin."""
    return tuple(dict.fromkeys(part for part in parts if isinstance(part, Floating)))


@dataclass(frozen=True, eq=False)
class Sums:
    """The sums of the parts of some groups."""

    rows: Lane
    lanes: Mapping[SumPart, Lane]
    exact: Mapping[Floating, list[Exact]]

    @staticmethod
    def of_lanes(parts: Iterable[SumPart], lanes: Lane, exact: Mapping[Floating, list[Exact]]) -> Sums:
        """Sums from lanes: the first lane counts rows, the lanes of the parts follow in order."""
        by_part, at = {}, 1
        for part in parts:
            by_part[part] = lanes[at : at + part.width]
            at += part.width
        return Sums(lanes[0], by_part, exact)

    def count(self, columns: tuple[str, ...]) -> Lane:
        """The number of rows in which none of some columns is null."""
        return self.lanes[Present(columns)][0] if columns else self.rows

    def total(self, part: Whole) -> Totals:
        """The exact sums of a column."""
        return join(list(self.lanes[part]))

    def totals(self, part: Any) -> list[Exact]:
        """The exact sums of a column of floats."""
        return self.exact[part]


@dataclass(frozen=True, eq=False)
class SumSlots:
    """The sums of the parts of some groups, in a program."""

    program: ProgramBuilder
    register: int
    rows: int
    slots: Mapping[SumPart, Sequence[int]]

    def count(self, columns: tuple[str, ...]) -> Column:
        """The number of rows in which none of some columns is null."""
        return Column(self.slots[Present(columns)][0] if columns else self.rows, 0)

    def total(self, part: Whole) -> Column:
        """The exact sums of a column, if they have 64 bits."""
        slots, total = self.slots[part], self.program.slot()
        self.program.emit(opcodes.TOTAL, self.register, total, len(slots), *slots)
        return Column(total, 0)

    def evaluated(self, opcode: int, *operands: Column, least: int = 0, greatest: int = 0) -> Column:
        """A function of up to two columns."""
        return self.program.evaluated(opcode, self.register, *operands, least=least, greatest=greatest)
