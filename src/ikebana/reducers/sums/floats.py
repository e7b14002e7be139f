"""Sums of floats, exact under any number of additions and retractions, and rounded once.

A double is an integer of 53 bits times a power of two. The powers are divided into bins of 11, so that within a bin all
doubles are integer multiples, of up to 63 bits, of the same power. These multiples are summed for each bin, in two
lanes of 32 bits each (and their squares in four lanes, their cubes in six, and so on). The sum of a group is the sum of
its few bins, as an integer of any length. It does not depend on the order of rows, and retracted rows leave no rounding
error behind. NaN and the infinities have bins of their own, which only count them. The bin of a product of two doubles
is the sum of their bins.

The result may differ from Spark's in the last digits: Spark rounds after each addition.

Cost: a few passes over a column; some arithmetic with Python integers for each group and bin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ikebana.encoding.lanes import Array, Lane

NAN, INFINITY, MINUS_INFINITY = 509, 510, 511
"""The bins of NaN and the infinities; the bins of finite numbers are below."""

BINS = 512
_BIN_EXPONENTS = 11
UNIT = 1 << 1074
"""Every double is a multiple of one divided by this."""
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

    def lanes(self, power: int) -> list[Lane]:
        """The multiples, then their squares, and so on up to `power`: 32 bits in each lane, least significant first."""
        digits = powers = self.digits
        lanes = [self.signs * part.view(np.int64) for part in digits]
        for exponent in range(2, power + 1):
            powers = _square(*digits) if exponent == 2 else _product(powers, digits)
            lanes += [(self.signs if exponent % 2 else 1) * part.view(np.int64) for part in powers]
        return lanes

    @property
    def digits(self) -> list[Array]:
        """The multiples in digits of 32 bits, least significant first."""
        return [self.multiples & _MASK, self.multiples >> _HALF]

    def product_lanes(self, other: Numbers) -> list[Lane]:
        """The products with other multiples."""
        signs = self.signs * other.signs
        return [signs * part.view(np.int64) for part in _product(self.digits, other.digits)]


def _product(left: list[Array], right: list[Array]) -> list[Array]:
    """The product of two numbers in digits of 32 bits, least significant first."""
    result = [np.zeros(len(left[0]), np.uint64) for _ in range(len(left) + len(right))]
    for place, digit in enumerate(left):
        carry = np.zeros(len(digit), np.uint64)
        for offset, other in enumerate(right):
            total = result[place + offset] + digit * other + carry  # at most 2**64 - 1
            result[place + offset], carry = total & _MASK, total >> _HALF
        result[place + len(right)] = carry
    return result


def _square(low: Array, high: Array) -> list[Array]:
    """The square of low + high * 2**32 (high below 2**31), in digits of 32 bits, least significant first."""
    lowest, middle, highest = low * low, low * high << np.uint64(1), high * high
    first = (lowest >> _HALF) + (middle & _MASK)
    second = (first >> _HALF) + (middle >> _HALF) + (highest & _MASK)
    return [lowest & _MASK, first & _MASK, second & _MASK, (second >> _HALF) + (highest >> _HALF)]


@dataclass(slots=True)
class Exact:
    """Exact sums of doubles and of their powers, in units of 2**-1074, and whether NaN or infinities were added."""

    powers: list[int]
    """The sum of the doubles, that of their squares, and so on."""
    has_nan: bool = False
    infinities: int = 0  # bit 0: positive infinity; bit 1: negative infinity

    def add(self, bin_: int, lanes: Sequence[int]) -> None:
        """Add the sums of a bin, with lanes as in `Numbers.lanes`."""
        if bin_ == NAN:
            self.has_nan = True
        elif bin_ in (INFINITY, MINUS_INFINITY):
            self.infinities |= 1 if bin_ == INFINITY else 2
        else:
            at = 0
            for exponent in range(1, len(self.powers) + 1):
                total = _whole(lanes[at : at + 2 * exponent])
                self.powers[exponent - 1] += total << exponent * _BIN_EXPONENTS * bin_
                at += 2 * exponent

    @property
    def total(self) -> int:
        """The sum of the doubles."""
        return self.powers[0]

    @property
    def squares(self) -> int:
        """The sum of their squares."""
        return self.powers[1]

    @property
    def is_finite(self) -> bool:
        """Whether only finite numbers were added."""
        return not self.has_nan and not self.infinities

    def sum(self) -> float:
        """The sum, rounded once."""
        if self.is_finite:
            return ratio(self.total, UNIT)
        if self.has_nan or self.infinities == 3:
            return math.nan
        return math.inf if self.infinities == 1 else -math.inf

    def variance(self, count: int, freedom: int) -> float:
        """The variance: the sum of squared distances from the mean divided by `freedom`, rounded once."""
        if not self.is_finite:
            return math.nan
        return ratio(count * self.squares - self.total**2, count * freedom * UNIT**2)


@dataclass(slots=True)
class ExactProduct:
    """An exact sum of products of two finite doubles, in units of 2**-2148."""

    total: int = 0

    def add(self, bin_: int, lanes: Sequence[int]) -> None:
        """Add the sum of a bin, with lanes as in `Numbers.product_lanes`."""
        self.total += _whole(lanes) << _BIN_EXPONENTS * bin_


def _whole(digits: Sequence[int]) -> int:
    """A number from sums of its digits of 32 bits."""
    return sum(digit << 32 * place for place, digit in enumerate(digits))


def ratio(numerator: int, denominator: int) -> float:
    """The double nearest to a fraction; infinite if the fraction is out of range."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf
