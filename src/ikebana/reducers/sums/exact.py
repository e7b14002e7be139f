"""Sums of whole numbers and decimals, exact for any number of additions and retractions, in 64-bit lanes.

The diffs of an arrangement are lanes of 64-bit numbers that wrap. A sum of wide numbers v is kept in several of them:
Σ v, Σ (v >> 32), Σ (v >> 64) and so on, each modulo 2**64. The last lane never wraps, and the difference between a lane
and 2**32 times the next is a sum of numbers of 32 bits, which does not wrap either. So all digits of the total can be
told from the lanes, whatever wrapped on the way.

Contract: `join` of sums of what `split` gave is exact, as long as a group has less than 2**31 rows, counted with their
multiplicities. Lanes are linear: differences of running sums are sums themselves.

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
from ikebana.encoding.lanes import Array, Lane

_STEP = 32
_MASK = np.int64((1 << _STEP) - 1)


def lanes_of(kind: pa.DataType) -> int:
    """How many lanes a sum of values of a type takes.

    >>> [lanes_of(kind) for kind in (pa.int32(), pa.int64(), pa.decimal128(18, 2), pa.decimal128(38, 2))]
    [1, 2, 2, 4]
    """
    width = int(10**kind.precision).bit_length() + 1 if types.is_decimal128(kind) else int(kind.bit_width)
    return 1 + max(0, -((_STEP + 1 - width) // _STEP))


def split(array: pa.Array) -> list[Lane]:
    """The numbers to add up in each lane, for a column of whole numbers, durations or decimals; null counts as 0."""
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
    return [low, (low >> _STEP) & _MASK | high << _STEP, high, high >> _STEP][:count]


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Whole numbers of up to 160 bits: 32 bits at a time, least first, and all that is above them."""

    digits: tuple[Lane, ...]
    top: Lane

    @staticmethod
    def of_words(low: Lane, high: Lane) -> Totals:
        """Numbers of up to 127 bits and a sign, as two words."""
        return Totals((low & _MASK, low >> _STEP & _MASK), high)

    def __len__(self) -> int:
        return len(self.top)

    @property
    def low(self) -> Lane:
        """The numbers modulo 2**64, with a sign."""
        if not self.digits:
            return self.top
        next_ = self.digits[1] if len(self.digits) > 1 else self.top
        return self.digits[0] | next_ << _STEP

    @property
    def high(self) -> Lane:
        """The numbers shifted by 64 bits, modulo 2**64, with a sign."""
        if len(self.digits) < 2:
            return self.top >> (63 if not self.digits else _STEP)
        return self.top if len(self.digits) == 2 else self.digits[2] | self.top << _STEP

    @property
    def fit_a_word(self) -> Array:
        """Flags those between -2**63 and 2**63 - 1."""
        return self._fit_two_words & (self.high == self.low >> 63)

    @property
    def _fit_two_words(self) -> Array:
        if len(self.digits) < 3:
            return np.ones(len(self), bool)
        return self.top == (self.top << _STEP) >> _STEP

    def below(self, bound: int) -> Array:
        """Flags those less than `bound` (below 2**127) from zero, on either side."""
        low, high = self.low.view(np.uint64), self.high
        sign = high < 0  # a number n < 0 is more than -bound where ~n, which is -n - 1, is less than bound - 1
        inside = np.where(sign, _is_below((~high, ~low), bound - 1), _is_below((high, low), bound))
        return self._fit_two_words & inside

    def to_list(self) -> list[int]:
        """Python's numbers."""
        total = [int(top) << _STEP * len(self.digits) for top in self.top.tolist()]
        for place, digit in enumerate(self.digits):
            total = [whole | part << _STEP * place for whole, part in zip(total, digit.tolist(), strict=True)]
        return total

    def floats(self) -> Array:
        """The nearest doubles."""
        found = self.low.astype(np.float64)
        wide = np.flatnonzero(~self.fit_a_word)
        found[wide] = [float(each) for each in self.take(wide).to_list()]
        return found

    def take(self, rows: Array) -> Totals:
        """Some of them."""
        return Totals(tuple(digit[rows] for digit in self.digits), self.top[rows])


def join(lanes: Sequence[Lane]) -> Totals:
    """The totals behind sums of what `split` gave."""
    rest = [low - (high << _STEP) for low, high in pairwise(lanes)]
    digits, carry = [], np.zeros(len(lanes[0]), np.int64)
    for part in rest:
        whole = part + carry
        digits.append(whole & _MASK)
        carry = whole >> _STEP
    return Totals(tuple(digits), lanes[-1] + carry)


def _is_below(words: tuple[Array, Array], bound: int) -> Array:
    """Flags the numbers, given as high and low words and not negative, that are below `bound`."""
    high, low = words
    bound_high, bound_low = np.int64(bound >> 64), np.uint64(bound & ((1 << 64) - 1))
    return (high < bound_high) | ((high == bound_high) & (low < bound_low))


def words_of(values: Sequence[int]) -> tuple[Lane, Lane]:
    """Low and high words of Python's numbers, which have at most 127 bits and a sign."""
    data = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
    both = np.frombuffer(data, np.int64)
    return both[::2], both[1::2]
