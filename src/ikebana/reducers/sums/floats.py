"""Sums of floats, exact under any number of additions and retractions, and rounded once, at the end.

A double is a whole number of 53 bits times a power of two. Powers are put in bins of 11, so that within a bin all
doubles are whole multiples, of up to 63 bits, of the same power. What is added up for a bin are these multiples, 32
bits at a time in a lane each (and their squares, in four lanes). The sum of a group is that of its few bins, as a
whole number of any length. It does not depend on any order, and what is retracted leaves no trace. NaN and the
infinities have bins of their own, in which only their number counts.

Not the same as Spark's to the last bit: Spark rounds after each addition, in whichever order rows come.

Cost: a few passes over a column; for each group and bin some arithmetic with Python's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ikebana.encoding.lanes import Array, Lane

NAN, INFINITY, MINUS_INFINITY = 253, 254, 255
"""The bins of what is no number; those of numbers are below."""

BINS = 256
_WIDTH = 11
_LEAST = 1074  # the least power of two that a double is a multiple of is 2**-1074
_MASK = np.uint64((1 << 32) - 1)
_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Doubles as multiples of the power of two of their bin."""

    bins: Lane
    multiples: Array  # uint64, below 2**63; zero for what is no number
    signs: Lane

    @staticmethod
    def of(values: Array) -> Numbers:
        """Any doubles."""
        bits = values.view(np.int64)
        exponent, fraction = bits >> 52 & 0x7FF, bits & ((1 << 52) - 1)
        mantissa = np.where(exponent > 0, fraction | 1 << 52, fraction)
        power = np.maximum(exponent, 1) - 1  # above the least
        bins, shift = power // _WIDTH, power % _WIDTH
        signs = np.where(bits < 0, -1, 1)
        multiples = (mantissa << shift).view(np.uint64)
        strange = exponent == 0x7FF
        if strange.any():
            infinite = np.where(bits < 0, MINUS_INFINITY, INFINITY)
            bins = np.where(strange, np.where(fraction != 0, NAN, infinite), bins)
            multiples = np.where(strange, np.uint64(0), multiples)
        return Numbers(bins, multiples, signs)

    def lanes(self, squares: bool) -> list[Lane]:
        """The multiples, 32 bits in each lane, least first; then their squares in the same way, if they are wanted."""
        low, high = self.multiples & _MASK, self.multiples >> _HALF
        parts = [self.signs * part.view(np.int64) for part in (low, high)]
        if squares:
            parts += [part.view(np.int64) for part in _square(low, high)]
        return parts


def _square(low: Array, high: Array) -> list[Array]:
    """The square of low + high * 2**32 (high below 2**31), 32 bits at a time, least first."""
    lowest, middle, highest = low * low, low * high << np.uint64(1), high * high
    first = (lowest >> _HALF) + (middle & _MASK)
    second = (first >> _HALF) + (middle >> _HALF) + (highest & _MASK)
    return [lowest & _MASK, first & _MASK, second & _MASK, (second >> _HALF) + (highest >> _HALF)]


@dataclass(slots=True)
class Exact:
    """An exact sum of doubles and of their squares, in the least units that there are; or what is no number."""

    total: int = 0
    squares: int = 0
    has_nan: bool = False
    infinities: int = 0  # bit 0: there is a positive one; bit 1: there is a negative one

    def add(self, bin_: int, lanes: Iterable[int]) -> None:
        """What a bin adds up to; lanes as in `Numbers.lanes`."""
        if bin_ == NAN:
            self.has_nan = True
        elif bin_ in (INFINITY, MINUS_INFINITY):
            self.infinities |= 1 if bin_ == INFINITY else 2
        else:
            low, high, *squares = lanes
            self.total += low + (high << 32) << _WIDTH * bin_
            self.squares += sum(part << 32 * place for place, part in enumerate(squares)) << 2 * _WIDTH * bin_

    @property
    def is_finite(self) -> bool:
        """Whether only numbers were added."""
        return not self.has_nan and not self.infinities

    def sum(self) -> float:
        """The sum, rounded once."""
        if self.is_finite:
            return ratio(self.total, 1 << _LEAST)
        if self.has_nan or self.infinities == 3:
            return math.nan
        return math.inf if self.infinities == 1 else -math.inf

    def variance(self, count: int, freedom: int) -> float:
        """The mean square distance from the mean, the sum of squares being divided by `freedom`, rounded once."""
        if not self.is_finite:
            return math.nan
        return ratio(count * self.squares - self.total**2, count * freedom << 2 * _LEAST)


def ratio(one: int, other: int) -> float:
    """The double nearest to a fraction; infinite where there is none."""
    try:
        return one / other
    except OverflowError:
        return math.inf if one > 0 else -math.inf
