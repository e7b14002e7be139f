"""Aggregates that are sums at heart: count, sum, mean, variance and deviation, with Spark's types and rules.

An `Aggregate` says which parts it needs added up (`ikebana.reducers.sums.parts`), and computes its column from their
sums. All are exact functions of the group's rows: no order matters, and what was retracted leaves no trace.

Where Spark's own result depends on the order of rows, as sums of floats do, or an overflow on the way to a result that
fits, the result here is that of exact arithmetic, rounded once. A mean of whole numbers is their exact sum as
a double, divided by their number.
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
from ikebana.reducers.sums.exact import Totals, words_of
from ikebana.reducers.sums.parts import AnyPart, Floating, Present, Sums, Whole

_SMALL = 1 << 48
"""Numbers below this can be multiplied by 10**4 and doubled within 63 bits."""


@dataclass(frozen=True)
class Aggregate(ABC):
    """A function of a group's sums."""

    @property
    @abstractmethod
    def type(self) -> pa.DataType:
        """The type of its result."""

    @property
    @abstractmethod
    def nullable(self) -> bool:
        """Whether its result may be null."""

    @property
    @abstractmethod
    def parts(self) -> tuple[AnyPart, ...]:
        """What it needs added up."""

    @abstractmethod
    def finish(self, sums: Sums) -> pa.Array:
        """Its result for each group."""


@dataclass(frozen=True)
class Count(Aggregate):
    """The number of rows in which none of some columns is null; of all rows if none is named."""

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

    def finish(self, sums: Sums) -> pa.Array:
        return pa.array(sums.count(self.columns))


@dataclass(frozen=True)
class OfColumn(Aggregate):
    """A function of a column's values that are not null; null itself where all are.

    What overflows raises an error in ANSI mode, unless the call is `forgiving` (try_sum, try_avg): then it is null.
    """

    column: str
    kind: pa.DataType
    may_be_null: bool = True  # the column
    ansi: bool = True
    forgiving: bool = False

    @property
    def nullable(self) -> bool:
        overflows = types.is_decimal(self.kind) or self.forgiving
        return self.may_be_null or overflows

    @property
    def part(self) -> Whole | Floating:
        """What it needs added up, besides the number of values."""
        return Floating(self.column) if types.is_floating(self.kind) else Whole(self.column, self.kind)

    @property
    def parts(self) -> tuple[AnyPart, ...]:
        return (*((Present(self._counted),) if self._counted else ()), self.part)

    @property
    def _counted(self) -> tuple[str, ...]:
        return (self.column,) if self.may_be_null else ()

    def counts(self, sums: Sums) -> Lane:
        """The number of values."""
        return sums.count(self._counted)

    def totals(self, sums: Sums) -> Totals:
        """The exact sums of whole numbers, durations or decimals."""
        assert isinstance(self.part, Whole)
        return sums.total(self.part)

    def floats(self, sums: Sums) -> Array:
        """The sums of floats."""
        return np.array([each.sum() for each in sums.totals(self.part)], np.float64)

    def check(self, what: str, fit: Array, raises: bool) -> None:
        """Raise an error if some result does not fit its type, and that is not to be null."""
        if raises and not self.forgiving and not fit.all():
            raise EvaluationError(
                f"the {what} of {self.column!r} overflows",
                detail=f"the result of a group does not fit into {self.type}",
                hint="cast the column to a wider type first",
            )


@dataclass(frozen=True)
class Sum(OfColumn):
    """The sum of a column: of whole numbers as a 64-bit number, which wraps unless ANSI mode forbids it."""

    @property
    def type(self) -> pa.DataType:
        return sum_type(self.kind)

    def finish(self, sums: Sums) -> pa.Array:
        there = self.counts(sums) != 0
        if types.is_floating(self.kind):
            return from_numpy(self.type, self.floats(sums), there)
        totals = self.totals(sums)
        if types.is_decimal(self.kind):
            fit = totals.below(10**self.type.precision)
            self.check("sum", fit, self.ansi)
            return from_decimal_words(self.type, totals.low, totals.high, there & fit)
        fit = totals.fit_a_word
        self.check("sum", fit, self.ansi or types.is_duration(self.kind))
        return from_numpy(self.type, totals.low, there & fit if self.forgiving else there)


@dataclass(frozen=True)
class Mean(OfColumn):
    """The mean of a column: a double, except of decimals, which get four more digits, and of durations."""

    @property
    def type(self) -> pa.DataType:
        return mean_type(self.kind)

    def finish(self, sums: Sums) -> pa.Array:
        counts = self.counts(sums)
        there, safe = counts != 0, np.where(counts == 0, 1, counts)
        if types.is_floating(self.kind):
            return from_numpy(self.type, self.floats(sums) / safe, there)
        totals = self.totals(sums)
        if types.is_decimal(self.kind):
            return self._decimals(totals, safe, there)
        if types.is_duration(self.kind):
            fit = totals.fit_a_word
            self.check("avg", fit, True)
            return from_numpy(self.type, _divided(totals, safe, 1).low, there & fit)
        return from_numpy(self.type, totals.floats() / safe, there)

    def _decimals(self, totals: Totals, counts: Lane, there: Array) -> pa.Array:
        means = _divided(totals, counts, 10 ** (self.type.scale - self.kind.scale))
        fit = totals.below(10 ** sum_type(self.kind).precision) & means.below(10**self.type.precision)
        self.check("avg", fit, self.ansi)
        return from_decimal_words(self.type, means.low, means.high, there & fit)


def _divided(totals: Totals, counts: Lane, factor: int) -> Totals:
    """Totals times a factor (at most 10**4), divided by counts, halves rounded away from zero."""
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
    """A quotient of Python's numbers, halves rounded away from zero; of 127 bits at most."""
    quotient = min((2 * abs(dividend) + abs(divisor)) // (2 * abs(divisor)), (1 << 127) - 1)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


@dataclass(frozen=True)
class Variance(Aggregate):
    """The variance of a column of doubles, or the deviation, which is its root.

    Of a `sample` the sum of squares is divided by one less than the number of values; then a single value has
    none: null, or NaN if `undefined_is_nan`.
    """

    column: str
    sample: bool
    root: bool
    may_be_null: bool = True  # the column
    undefined_is_nan: bool = False

    @property
    def type(self) -> pa.DataType:
        return pa.float64()

    @property
    def nullable(self) -> bool:
        return self.may_be_null or self.sample

    @property
    def parts(self) -> tuple[AnyPart, ...]:
        return (*((Present((self.column,)),) if self.may_be_null else ()), Floating(self.column, squares=True))

    def finish(self, sums: Sums) -> pa.Array:
        counts = sums.count((self.column,) if self.may_be_null else ())
        there = counts > (1 if self.sample else 0)
        found = np.where(there, 0.0, np.nan)
        exact = sums.totals(Floating(self.column, squares=True))
        for row in np.flatnonzero(there).tolist():
            count = int(counts[row])
            found[row] = exact[row].variance(count, count - 1 if self.sample else count)
        return from_numpy(
            self.type, np.sqrt(found) if self.root else found, counts > 0 if self.undefined_is_nan else there
        )
