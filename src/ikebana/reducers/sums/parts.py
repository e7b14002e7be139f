"""What is added up for aggregates: numbers of rows, of values, and values themselves.

A `Part` gives for each row the numbers to add up in some lanes. Parts are values: aggregates that need the same part
(the sum and the mean of a column) share its lanes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.columns import validity
from ikebana.encoding.lanes import Lane
from ikebana.reducers.sums.exact import Totals, join, lanes_of, split
from ikebana.reducers.sums.floats import Exact, Numbers

Columns = Mapping[str, pa.Array]
"""Columns by name, all of the same length."""


@dataclass(frozen=True)
class SumPart(ABC):
    """Something that is added up."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many lanes it takes."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at."""

    @abstractmethod
    def split(self, columns: Columns) -> list[Lane]:
        """The numbers to add up, a lane each."""


@dataclass(frozen=True)
class Present(SumPart):
    """The number of rows in which none of some columns is null."""

    given: tuple[str, ...]

    @property
    def width(self) -> int:
        return 1

    @property
    def columns(self) -> tuple[str, ...]:
        return self.given

    def split(self, columns: Columns) -> list[Lane]:
        flags = [validity(columns[name]) for name in self.columns]
        return [np.bitwise_and.reduce(flags).astype(np.int64)]


@dataclass(frozen=True)
class Whole(SumPart):
    """The exact sum of a column of whole numbers, durations or decimals."""

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


@dataclass(frozen=True)
class Floating:
    """The exact sum of a column of floats, and of their squares if these are asked for: see `floats`."""

    column: str
    squares: bool = False

    @property
    def width(self) -> int:
        """How many lanes it takes."""
        return 6 if self.squares else 2

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return (self.column,)

    def split(self, columns: Columns) -> tuple[Lane, Lane, list[Lane]]:
        """Of the values other than zero and null: their rows, their bins, and the numbers to add up in each."""
        column = columns[self.column].cast(pa.float64())
        values = np.where(validity(column), column.to_numpy(zero_copy_only=False), 0.0)
        rows = np.flatnonzero(values)
        numbers = Numbers.of(values[rows])
        return rows, numbers.bins, numbers.lanes(self.squares)


AnyPart = SumPart | Floating


def wholes(parts: Iterable[AnyPart]) -> tuple[SumPart, ...]:
    """Those that take lanes of each row, once each."""
    return tuple(dict.fromkeys(part for part in parts if isinstance(part, SumPart)))


def floatings(parts: Iterable[AnyPart]) -> tuple[Floating, ...]:
    """Those that take rows of their own, once each."""
    return tuple(dict.fromkeys(part for part in parts if isinstance(part, Floating)))


@dataclass(frozen=True, eq=False)
class Sums:
    """What some groups' parts add up to."""

    rows: Lane
    lanes: Mapping[SumPart, Lane]
    exact: Mapping[Floating, list[Exact]]

    @staticmethod
    def of_lanes(parts: Iterable[SumPart], lanes: Lane, exact: Mapping[Floating, list[Exact]]) -> Sums:
        """The first lane counts rows; those of the parts follow, one part after the other."""
        found, at = {}, 1
        for part in parts:
            found[part] = lanes[at : at + part.width]
            at += part.width
        return Sums(lanes[0], found, exact)

    def count(self, columns: tuple[str, ...]) -> Lane:
        """The number of rows in which none of some columns is null."""
        return self.lanes[Present(columns)][0] if columns else self.rows

    def total(self, part: Whole) -> Totals:
        """The exact sums of a column."""
        return join(list(self.lanes[part]))

    def totals(self, part: Any) -> list[Exact]:
        """The exact sums of a column of floats."""
        return self.exact[part]
