"""Sums of integers and decimals, exact under any number of additions and retractions, in 64-bit lanes.

The diffs of an arrangement are lanes of 64-bit integers that wrap around. A sum of wide numbers v is kept in several
lanes: Σ v, Σ (v >> 32), Σ (v >> 64) and so on, each modulo 2**64. The last lane never wraps around, and the difference
between a lane and 2**32 times the next lane is a sum of 32-bit numbers, which does not wrap around either. So all
digits of the total can be computed from the lanes.

Contract: `join` of the sums of the lanes of `split` is exact if a group has fewer than 2**31 rows, counted with their
multiplicities. Lanes are linear: differences of running sums are sums.

Cost: a few passes over a column for each lane; nothing is done value by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import decimal_words, validity
from ikebana.encoding.columns import integers, is_short_decimal
from ikebana.encoding.lanes import Array, Lane, constant

_STEP = 32
LANE_SHIFTS = 0, 32, 63, 63
"""The numbers of each lane, for integers of up to 64 bits: these, shifted right by so many bits."""
_MASK = np.int64((1 << _STEP) - 1)


def lanes_of(kind: pa.DataType) -> int:
    """The number of lanes of a sum of values of a type.

    >>> [lanes_of(kind) for kind in (pa.int32(), pa.int64(), pa.decimal128(18, 2), pa.decimal128(38, 2))]
    [1, 2, 2, 4]
    """
    width = int(10**kind.precision).bit_length() + 1 if types.is_decimal128(kind) else int(kind.bit_width)
    return 1 + max(0, -((_STEP + 1 - width) // _STEP))


def split(array: pa.Array) -> list[Lane]:
    """The numbers to sum in each lane, for a column of integers, durations or decimals; null counts as 0.

    The high lanes of numbers of up to 64 bits without a sign, which most long decimals are, are constant.
    """
    count = lanes_of(array.type)
    if not types.is_decimal128(array.type):
        words = [integers(array)]
    else:
        words = list(decimal_words(array))[: 1 if is_short_decimal(array.type) else 2]
    if (valid := validity(array)) is not None:
        words = [np.where(valid, word, 0) for word in words]
    low, high = words[0], words[-1]
    if len(words) == 1:
        return [low, low >> _STEP][:count]
    if not high.any():
        nothing = constant(0, len(low))
        return [low, (low >> _STEP) & _MASK, nothing, nothing][:count]
    return [low, (low >> _STEP) & _MASK | high << _STEP, high, high >> _STEP][:count]


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Integers of up to 160 bits: digits of 32 bits, least significant first, and the remaining high bits."""

    digits: tuple[Lane, ...]
    top: Lane

    @staticmethod
    def of_words(low: Lane, high: Lane) -> Totals:
        """Integers of up to 127 bits and a sign, given as two words."""
        return Totals((low & _MASK, low >> _STEP & _MASK), high)

    def __len__(self) -> int:
        return len(self.top)

    @property
    def low(self) -> Lane:
        """The numbers modulo 2**64, signed."""
        if not self.digits:
            return self.top
        next_ = self.digits[1] if len(self.digits) > 1 else self.top
        return self.digits[0] | next_ << _STEP

    @property
    def high(self) -> Lane:
        """The numbers shifted right by 64 bits, modulo 2**64, signed."""
        if len(self.digits) < 2:
            return self.top >> (63 if not self.digits else _STEP)
        return self.top if len(self.digits) == 2 else self.digits[2] | self.top << _STEP

    @property
    def fit_a_word(self) -> Array:
        """Whether each number is between -2**63 and 2**63 - 1."""
        return self._fit_two_words & (self.high == self.low >> 63)

    @property
    def _fit_two_words(self) -> Array:
        if len(self.digits) < 3:
            return np.ones(len(self), bool)
        return self.top == (self.top << _STEP) >> _STEP

    def below(self, bound: int) -> Array:
        """Whether the absolute value of each number is below `bound` (at most 2**127)."""
        low, high = self.low.view(np.uint64), self.high
        is_negative = high < 0  # for n < 0, -n < bound means ~n = -n - 1 < bound - 1
        inside = np.where(is_negative, _is_below((~high, ~low), bound - 1), _is_below((high, low), bound))
        return self._fit_two_words & inside

    def to_list(self) -> list[int]:
        """The numbers as Python integers."""
        total = [int(top) << _STEP * len(self.digits) for top in self.top.tolist()]
        for place, digit in enumerate(self.digits):
            total = [high | low << _STEP * place for high, low in zip(total, digit.tolist(), strict=True)]
        return total

    def floats(self) -> Array:
        """The nearest doubles."""
        doubles = self.low.astype(np.float64)
        wide = np.flatnonzero(~self.fit_a_word)
        doubles[wide] = [float(number) for number in self.take(wide).to_list()]
        return doubles

    def take(self, rows: Array) -> Totals:
        """The numbers at some positions."""
        return Totals(tuple(digit[rows] for digit in self.digits), self.top[rows])


def join(lanes: Sequence[Lane]) -> Totals:
    """The totals, given the sums of the lanes of `split`."""
    digits, carry = [], np.zeros(len(lanes[0]), np.int64)
    for low, high in pairwise(lanes):
        digit = low - (high << _STEP) + carry
        digits.append(digit & _MASK)
        carry = digit >> _STEP
    return Totals(tuple(digits), lanes[-1] + carry)


def _is_below(words: tuple[Array, Array], bound: int) -> Array:
    """Whether each non-negative number, given as high and low words, is below `bound`."""
    high, low = words
    bound_high, bound_low = np.int64(bound >> 64), np.uint64(bound & ((1 << 64) - 1))
    return (high < bound_high) | ((high == bound_high) & (low < bound_low))


def words_of(values: Sequence[int]) -> tuple[Lane, Lane]:
    """Low and high words of Python's numbers, which have at most 127 bits and a sign."""
    data = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
    both = np.frombuffer(data, np.int64)
    return both[::2], both[1::2]
