"""Skewness, kurtosis, correlation, covariance and linear regression, from exact sums of powers and products.

All results are those of exact arithmetic, rounded once or twice: they do not depend on the order of rows, and retracted
rows leave no error behind. Spark rounds at every row, so its last digits may differ. A group that contains NaN or an
infinity has the result NaN.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import from_numpy
from ikebana.reducers.sums.aggregates import Aggregate
from ikebana.reducers.sums.floats import UNIT, Exact, ratio
from ikebana.reducers.sums.parts import AnyPart, Floating, PartSums, Present, Products

_UNIT_2 = UNIT * UNIT


@dataclass(frozen=True)
class MomentAggregate(Aggregate):
    """A double for each group that has values; null for others.

    A result that is undefined, for example because all values are equal, is null, or NaN if `undefined_is_nan`.
    """

    undefined_is_nan: bool

    @property
    def type(self) -> pa.DataType:
        return pa.float64()

    @property
    def nullable(self) -> bool:
        return True

    @property
    @abstractmethod
    def counted(self) -> tuple[str, ...]:
        """The nullable columns: rows in which none of them is null count."""

    @abstractmethod
    def results(self, sums: PartSums, counts: list[int]) -> list[float | None]:
        """The result of each group; None if it is undefined. It is not used where the count is 0."""

    @property
    def _present(self) -> tuple[AnyPart, ...]:
        return (Present(self.counted),) if self.counted else ()

    def finish(self, sums: PartSums) -> pa.Array:
        counts = sums.count(self.counted)
        results = self.results(sums, np.maximum(counts, 1).tolist())
        is_defined = np.array([result is not None for result in results], bool)
        values = np.array([math.nan if result is None else result for result in results], np.float64)
        return from_numpy(self.type, values, (counts > 0) & (is_defined | self.undefined_is_nan))


# Moments of one column.


def _central_2(count: int, sums: Exact) -> int:
    """The sum of squared distances from the mean, times the count."""
    return count * sums.powers[1] - sums.powers[0] ** 2


def _signed_root(square: float, sign: int) -> float:
    """The square root, with the sign of a number."""
    return -math.sqrt(square) if sign < 0 else math.sqrt(square)


def _skewness(count: int, sums: Exact) -> float | None:
    first, second, third, *_ = sums.powers
    squares = _central_2(count, sums)
    cubes = count**2 * third - 3 * count * first * second + 2 * first**3
    return _signed_root(ratio(cubes**2, squares**3), cubes) if squares else None


def _kurtosis(count: int, sums: Exact) -> float | None:
    first, second, third, fourth = sums.powers
    squares = _central_2(count, sums)
    fourths = count**3 * fourth - 4 * count**2 * first * third + 6 * count * first**2 * second - 3 * first**4
    return ratio(fourths - 3 * squares**2, squares**2) if squares else None


def _sum_of_squares(count: int, sums: Exact) -> float:
    return ratio(_central_2(count, sums), count * _UNIT_2)


_MOMENTS: dict[str, tuple[int, Callable[[int, Exact], float | None]]] = {
    "skewness": (3, _skewness),
    "kurtosis": (4, _kurtosis),
    "sum of squares": (2, _sum_of_squares),
}


@dataclass(frozen=True)
class Moment(MomentAggregate):
    """A function of the distribution of a column of doubles: see `_MOMENTS`."""

    function: str
    column: str
    column_nullable: bool = True

    @property
    def counted(self) -> tuple[str, ...]:
        return (self.column,) if self.column_nullable else ()

    @property
    def _part(self) -> Floating:
        return Floating(self.column, _MOMENTS[self.function][0])

    @property
    def parts(self) -> tuple[AnyPart, ...]:
        return (*self._present, self._part)

    def results(self, sums: PartSums, counts: list[int]) -> list[float | None]:
        compute = _MOMENTS[self.function][1]
        pairs = zip(counts, sums.totals(self._part), strict=True)
        return [compute(count, exact) if exact.is_finite else math.nan for count, exact in pairs]


# Two columns.


@dataclass(frozen=True, slots=True)
class _Pair:
    """The exact sums of two columns x and y; sums of squares and products are those of distances from the means."""

    count: int
    sum_x: int
    sum_y: int
    xx: int  # times the count, like the next two
    yy: int
    xy: int


def _correlation(pair: _Pair) -> float | None:
    if pair.count == 1 or not pair.xx or not pair.yy:
        return None
    return _signed_root(ratio(pair.xy**2, pair.xx * pair.yy), pair.xy)


def _slope(pair: _Pair) -> float | None:
    return ratio(pair.xy, pair.xx) if pair.xx else None


def _intercept(pair: _Pair) -> float | None:
    return ratio(pair.sum_y * pair.xx - pair.xy * pair.sum_x, pair.count * pair.xx * UNIT) if pair.xx else None


def _determination(pair: _Pair) -> float | None:
    if not pair.xx:
        return None
    return ratio(pair.xy**2, pair.xx * pair.yy) if pair.yy else 1.0


_BIVARIATE: dict[str, Callable[[_Pair], float | None]] = {
    "corr": _correlation,
    "covar_pop": lambda pair: ratio(pair.xy, pair.count**2 * _UNIT_2),
    "covar_samp": lambda pair: ratio(pair.xy, pair.count * (pair.count - 1) * _UNIT_2) if pair.count > 1 else None,
    "regr_sxy": lambda pair: ratio(pair.xy, pair.count * _UNIT_2),
    "regr_slope": _slope,
    "regr_intercept": _intercept,
    "regr_r2": _determination,
}


@dataclass(frozen=True)
class Bivariate(MomentAggregate):
    """A function of two columns of doubles, which must be null in the same rows: see `_BIVARIATE`."""

    function: str
    x: str
    y: str
    columns_nullable: bool = True

    @property
    def counted(self) -> tuple[str, ...]:
        return (self.x,) if self.columns_nullable else ()

    @property
    def parts(self) -> tuple[AnyPart, ...]:
        return (*self._present, Floating(self.x, 2), Floating(self.y, 2), Products(self.x, self.y))

    def results(self, sums: PartSums, counts: list[int]) -> list[float | None]:
        compute = _BIVARIATE[self.function]
        of_x, of_y, products = (sums.totals(part) for part in self.parts[-3:])
        results: list[float | None] = []
        for count, x, y, xy in zip(counts, of_x, of_y, products, strict=True):
            if not (x.is_finite and y.is_finite):
                results.append(math.nan)
                continue
            mixed = count * xy.total - x.total * y.total
            results.append(compute(_Pair(count, x.total, y.total, _central_2(count, x), _central_2(count, y), mixed)))
        return results
