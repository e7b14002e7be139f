"""Aggregates computed from sums: count, sum, mean, variance and standard deviation, with Spark's types and rules.

An `Aggregate` lists the parts that have to be summed (`ikebana.reducers.sums.parts`) and computes its column from their
sums. Results are exact functions of the group's rows: they do not depend on the order of rows, and retracted rows leave
no rounding error behind.

Where Spark's result depends on the order of rows (sums of floats, overflows of intermediate sums), the result here is
that of exact arithmetic, rounded once. A mean of integers is their exact sum as a double, divided by their number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import from_decimal_words, from_numpy
from ikebana.encoding.lanes import Array, Lane
from ikebana.errors import EvaluationError
from ikebana.expressions.core.types import mean_type, sum_type
from ikebana.kernels import opcodes
from ikebana.operators.program import NO_COLUMN
from ikebana.operators.registers import ColumnSlots
from ikebana.reducers.sums.exact import Totals, words_of
from ikebana.reducers.sums.parts import AnyPart, Floating, PartSums, Present, SumSlots, Whole

_SMALL = 1 << 48
"""Numbers below this bound can be multiplied by 10**4 and doubled within 63 bits."""


@dataclass(frozen=True)
class Aggregate(ABC):
    """A function of a group's sums."""

    @property
    @abstractmethod
    def type(self) -> pa.DataType:
        """The type of the result."""

    @property
    @abstractmethod
    def nullable(self) -> bool:
        """Whether the result may be null."""

    @property
    @abstractmethod
    def parts(self) -> tuple[AnyPart, ...]:
        """The parts whose sums the aggregate needs."""

    @abstractmethod
    def finish(self, sums: PartSums) -> pa.Array:
        """The result for each group."""

    def lower(self, sums: SumSlots) -> ColumnSlots | None:
        """Write the result as instructions of a program; None if there are none for it."""
        return None


@dataclass(frozen=True)
class Count(Aggregate):
    """The number of rows in which none of some columns is null; without columns, the number of rows."""

    columns: tuple[str, ...] = ()

    @property
    def type(self) -> pa.DataType:
        return pa.int64()

    @property
    def nullable(self) -> bool:
        return False

    @property
    def parts(self) -> tuple[AnyPart, ...]:
        return (Present(self.columns),) if self.columns else ()

    def finish(self, sums: PartSums) -> pa.Array:
        return pa.array(sums.count(self.columns))

    def lower(self, sums: SumSlots) -> ColumnSlots | None:
        return sums.count(self.columns)


@dataclass(frozen=True)
class ColumnAggregate(Aggregate):
    """An aggregate of the non-null values of a column; null if there are none.

    In ANSI mode an overflow raises an error. With `null_on_overflow` the result is null instead.
    """

    column: str
    kind: pa.DataType
    column_nullable: bool = True
    ansi: bool = True
    null_on_overflow: bool = False

    @property
    def nullable(self) -> bool:
        return self.column_nullable or self.null_on_overflow or types.is_decimal(self.kind)

    @property
    def part(self) -> Whole | Floating:
        """The sum that the aggregate needs in addition to the number of values."""
        return Floating(self.column) if types.is_floating(self.kind) else Whole(self.column, self.kind)

    @property
    def parts(self) -> tuple[AnyPart, ...]:
        return (*((Present(self._counted_columns),) if self._counted_columns else ()), self.part)

    @property
    def _counted_columns(self) -> tuple[str, ...]:
        return (self.column,) if self.column_nullable else ()

    def counts(self, sums: PartSums) -> Lane:
        """The number of values."""
        return sums.count(self._counted_columns)

    def totals(self, sums: PartSums) -> Totals:
        """The exact sums of integers, durations or decimals."""
        assert isinstance(self.part, Whole)
        return sums.total(self.part)

    def floats(self, sums: PartSums) -> Array:
        """The sums of floats."""
        return np.array([total.sum() for total in sums.totals(self.part)], np.float64)

    def lowered_totals(self, sums: SumSlots) -> ColumnSlots | None:
        """The sums in a program, null where there are no values; None for floats and durations."""
        if not isinstance(self.part, Whole) or types.is_duration(self.kind):
            return None
        total = sums.total(self.part)
        if types.is_decimal(self.kind):
            bound = min(10 ** sum_type(self.kind).precision, 1 << 63) - 1
            total = sums.evaluated(opcodes.ADD, total, least=-bound, greatest=bound)
        if not self._counted_columns:
            return total
        none = sums.evaluated(opcodes.EQUAL, sums.count(self._counted_columns), NO_COLUMN)
        return ColumnSlots(total.value, none.value)

    def check(self, what: str, fit: Array, raises: bool) -> None:
        """Raise an error if a result does not fit its type and must not become null."""
        if raises and not self.null_on_overflow and not fit.all():
            raise EvaluationError(
                f"the {what} of {self.column!r} overflows",
                detail=f"the result of a group does not fit into {self.type}",
                hint="cast the column to a wider type first",
            )


@dataclass(frozen=True)
class Sum(ColumnAggregate):
    """The sum of a column. Sums of integers have 64 bits and wrap around, except in ANSI mode."""

    @property
    def type(self) -> pa.DataType:
        return sum_type(self.kind)

    def finish(self, sums: PartSums) -> pa.Array:
        valid = self.counts(sums) != 0
        if types.is_floating(self.kind):
            return from_numpy(self.type, self.floats(sums), valid)
        totals = self.totals(sums)
        if types.is_decimal(self.kind):
            fit = totals.below(10**self.type.precision)
            self.check("sum", fit, self.ansi)
            return from_decimal_words(self.type, totals.low, totals.high, valid & fit)
        fit = totals.fit_a_word
        self.check("sum", fit, self.ansi or types.is_duration(self.kind))
        return from_numpy(self.type, totals.low, valid & fit if self.null_on_overflow else valid)

    def lower(self, sums: SumSlots) -> ColumnSlots | None:
        return self.lowered_totals(sums)


@dataclass(frozen=True)
class Mean(ColumnAggregate):
    """The mean of a column: a double; for decimals a decimal with four more digits; for durations a duration."""

    @property
    def type(self) -> pa.DataType:
        return mean_type(self.kind)

    def finish(self, sums: PartSums) -> pa.Array:
        counts = self.counts(sums)
        valid, divisors = counts != 0, np.where(counts == 0, 1, counts)
        if types.is_floating(self.kind):
            return from_numpy(self.type, self.floats(sums) / divisors, valid)
        totals = self.totals(sums)
        if types.is_decimal(self.kind):
            return self._decimals(totals, divisors, valid)
        if types.is_duration(self.kind):
            fit = totals.fit_a_word
            self.check("avg", fit, True)
            return from_numpy(self.type, _divided(totals, divisors, 1).low, valid & fit)
        return from_numpy(self.type, totals.floats() / divisors, valid)

    def lower(self, sums: SumSlots) -> ColumnSlots | None:
        totals = self.lowered_totals(sums) if types.is_decimal(self.kind) else None
        if totals is None:
            return None
        factor = 10 ** (self.type.scale - self.kind.scale)
        return sums.evaluated(opcodes.MEAN, totals, sums.count(self._counted_columns), least=factor)

    def _decimals(self, totals: Totals, counts: Lane, valid: Array) -> pa.Array:
        means = _divided(totals, counts, 10 ** (self.type.scale - self.kind.scale))
        fit = totals.below(10 ** sum_type(self.kind).precision) & means.below(10**self.type.precision)
        self.check("avg", fit, self.ansi)
        return from_decimal_words(self.type, means.low, means.high, valid & fit)


def _divided(totals: Totals, counts: Lane, factor: int) -> Totals:
    """Totals times a factor (at most 10**4), divided by counts, rounded half away from zero."""
    small = totals.below(_SMALL)
    dividends, divisors = np.where(small, totals.low, 0), np.abs(counts)
    signs = np.where((dividends < 0) == (counts < 0), 1, -1)
    quotients = signs * ((2 * factor * np.abs(dividends) + divisors) // (2 * divisors))
    low, high = quotients, quotients >> 63
    wide = np.flatnonzero(~small)
    if len(wide):
        pairs = zip(totals.take(wide).to_list(), counts[wide].tolist(), strict=True)
        low[wide], high[wide] = words_of([rounded(factor * total, count) for total, count in pairs])
    return Totals.of_words(low, high)


def rounded(dividend: int, divisor: int) -> int:
    """The quotient of two Python integers, rounded half away from zero and limited to 127 bits."""
    quotient = min((2 * abs(dividend) + abs(divisor)) // (2 * abs(divisor)), (1 << 127) - 1)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


@dataclass(frozen=True)
class Variance(Aggregate):
    """The variance of a column of doubles, or its square root, the standard deviation.

    The variance of a `sample` divides the sum of squares by the number of values minus one. For a single value it is
    undefined: null, or NaN if `undefined_is_nan`.
    """

    column: str
    sample: bool
    root: bool
    column_nullable: bool = True
    undefined_is_nan: bool = False

    @property
    def type(self) -> pa.DataType:
        return pa.float64()

    @property
    def nullable(self) -> bool:
        return self.column_nullable or self.sample

    @property
    def parts(self) -> tuple[AnyPart, ...]:
        return (*((Present((self.column,)),) if self.column_nullable else ()), Floating(self.column, 2))

    def finish(self, sums: PartSums) -> pa.Array:
        counts = sums.count((self.column,) if self.column_nullable else ())
        is_defined = counts > (1 if self.sample else 0)
        variances = np.where(is_defined, 0.0, np.nan)
        exact = sums.totals(Floating(self.column, 2))
        for row in np.flatnonzero(is_defined).tolist():
            count = int(counts[row])
            variances[row] = exact[row].variance(count, count - 1 if self.sample else count)
        values = np.sqrt(variances) if self.root else variances
        return from_numpy(self.type, values, counts > 0 if self.undefined_is_nan else is_defined)
