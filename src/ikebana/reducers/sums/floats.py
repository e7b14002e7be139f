"""Sums of floats, exact under any number of additions and retractions, and rounded once.

A double is an integer of 53 bits times a power of two. The powers are divided into bins of 11, so that within a bin all
doubles are integer multiples, of up to 63 bits, of the same power. These multiples are summed for each bin, in two
lanes of 32 bits each (and their squares in four lanes). The sum of a group is the sum of its few bins, as an integer of
any length. It does not depend on the order of rows, and retracted rows leave no rounding error behind. NaN and the
infinities have bins of their own, which only count them.

The result may differ from Spark's in the last digits: Spark rounds after each addition.

Cost: a few passes over a column; some arithmetic with Python integers for each group and bin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ikebana.encoding.lanes import Array, Lane

NAN, INFINITY, MINUS_INFINITY = 253, 254, 255
"""The bins of NaN and the infinities; the bins of finite numbers are below."""

BINS = 256
_BIN_EXPONENTS = 11
_LEAST_EXPONENT = 1074  # every double is a multiple of 2**-1074
_MASK = np.uint64((1 << 32) - 1)
_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Doubles as multiples of the power of two of their bin."""

    bins: Lane
    multiples: Array  # uint64, below 2**63; zero for NaN and the infinities
    signs: Lane

    @staticmethod
    def of(values: Array) -> Numbers:
        """Split any doubles."""
        bits = values.view(np.int64)
        exponent, fraction = bits >> 52 & 0x7FF, bits & ((1 << 52) - 1)
        mantissa = np.where(exponent > 0, fraction | 1 << 52, fraction)
        power = np.maximum(exponent, 1) - 1  # relative to the least exponent
        bins, shift = power // _BIN_EXPONENTS, power % _BIN_EXPONENTS
        signs = np.where(bits < 0, -1, 1)
        multiples = (mantissa << shift).view(np.uint64)
        is_special = exponent == 0x7FF  # NaN or infinite
        if is_special.any():
            infinite = np.where(bits < 0, MINUS_INFINITY, INFINITY)
            bins = np.where(is_special, np.where(fraction != 0, NAN, infinite), bins)
            multiples = np.where(is_special, np.uint64(0), multiples)
        return Numbers(bins, multiples, signs)

    def lanes(self, squares: bool) -> list[Lane]:
        """The multiples, 32 bits in each lane, least significant first; then, if requested, their squares likewise."""
        low, high = self.multiples & _MASK, self.multiples >> _HALF
        parts = [self.signs * part.view(np.int64) for part in (low, high)]
        if squares:
            parts += [part.view(np.int64) for part in _square(low, high)]
        return parts


def _square(low: Array, high: Array) -> list[Array]:
    """The square of low + high * 2**32 (high below 2**31), in digits of 32 bits, least significant first."""
    lowest, middle, highest = low * low, low * high << np.uint64(1), high * high
    first = (lowest >> _HALF) + (middle & _MASK)
    second = (first >> _HALF) + (middle >> _HALF) + (highest & _MASK)
    return [lowest & _MASK, first & _MASK, second & _MASK, (second >> _HALF) + (highest >> _HALF)]


@dataclass(slots=True)
class Exact:
    """An exact sum of doubles and of their squares, in units of 2**-1074, and whether NaN or infinities were added."""

    total: int = 0
    squares: int = 0
    has_nan: bool = False
    infinities: int = 0  # bit 0: positive infinity; bit 1: negative infinity

    def add(self, bin_: int, lanes: Iterable[int]) -> None:
        """Add the sum of a bin, with lanes as in `Numbers.lanes`."""
        if bin_ == NAN:
            self.has_nan = True
        elif bin_ in (INFINITY, MINUS_INFINITY):
            self.infinities |= 1 if bin_ == INFINITY else 2
        else:
            low, high, *squares = lanes
            self.total += low + (high << 32) << _BIN_EXPONENTS * bin_
            self.squares += sum(part << 32 * place for place, part in enumerate(squares)) << 2 * _BIN_EXPONENTS * bin_

    @property
    def is_finite(self) -> bool:
        """Whether only finite numbers were added."""
        return not self.has_nan and not self.infinities

    def sum(self) -> float:
        """The sum, rounded once."""
        if self.is_finite:
            return ratio(self.total, 1 << _LEAST_EXPONENT)
        if self.has_nan or self.infinities == 3:
            return math.nan
        return math.inf if self.infinities == 1 else -math.inf

    def variance(self, count: int, freedom: int) -> float:
        """The variance: the sum of squared distances from the mean divided by `freedom`, rounded once."""
        if not self.is_finite:
            return math.nan
        return ratio(count * self.squares - self.total**2, count * freedom << 2 * _LEAST_EXPONENT)


def ratio(numerator: int, denominator: int) -> float:
    """The double nearest to a fraction; infinite if the fraction is out of range."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf
