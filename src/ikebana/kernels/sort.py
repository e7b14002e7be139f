"""The order of updates by key, then value, then time.

Sorting three 64-bit lanes by comparison would cost n log n cache misses. Instead the fields of each row, minus
their minima, are concatenated to an integer of as many bits as their ranges need; its leading bits and
the position of the row are packed into 64 bits, and sorting these numbers puts the positions in order. Rows that are
equal in all leading bits (few, if keys are spread out) are then ordered by comparison, run by run; a run too long for
that (one key with many values) is returned to the caller, to be sorted again by the remaining bits.

The numbers are sorted digit by digit, or by NumPy, whose sort uses the vector instructions of the CPU. Which of the two
is faster depends on the CPU: 1M numbers take NumPy 10 ms with AVX-512 on a Xeon, and 51 ms on an EPYC (Zen 4), where a
radix sort of all 64 bits takes 13 ms. So both are measured once in each process, when many numbers are sorted.

Cost: a few sequential passes, about 10 ns a row up to 10M rows. Stable: equal rows keep their order.
Not guaranteed: speed for adversarial keys, which cost one more round for every long run they force.
"""

from __future__ import annotations

from functools import cache
from timeit import repeat

import numpy as np

from ikebana.kernels.compile import helper, is_compiled, kernel

FEW_ROWS = 1 << 13
"""Fewer rows are sorted in one call, by the radix sort, which is as fast for them."""

_SAMPLE_ROWS = 1 << 14
"""So many numbers are sorted to find out which sort is faster: it takes 2 ms."""

LONGEST_RUN = 4096
"""Runs of rows with equal leading bits are ordered by comparison up to this length."""

_INSERTION_SORT_ROWS = 12
_DIGIT_BITS = 8
_SPARE_BITS = 8
"""Leading bits in addition to those that number the rows, so that few rows are equal in all leading bits."""


@helper
def bits(low, high):
    """Return how many bits the integers 0 .. high - low need."""
    span = np.uint64(high) - np.uint64(low)
    bits = 0
    while span > np.uint64(0):
        span >>= np.uint64(1)
        bits += 1
    return bits


@helper
def extent(lane):
    """Return the least and the greatest entry."""
    low = high = lane[0]
    if lane.strides[0] == 0:  # a constant lane
        return low, high
    for row in range(1, len(lane)):
        low = min(low, lane[row])
        high = max(high, lane[row])
    return low, high


@helper
def _before(key, val, tix, a, b):
    """Whether row `a` comes strictly before row `b`."""
    if key[a] != key[b]:
        return key[a] < key[b]
    if val[a] != val[b]:
        return val[a] < val[b]
    return tix[a] < tix[b]


@helper
def is_sorted(key, val, tix):
    """Whether the rows are in order already, like many results that operators compute from sorted batches."""
    for row in range(1, len(key)):
        if _before(key, val, tix, row, row - 1):
            return False
    return True


@helper
def _insertion_sort(order, lo, hi, key, val, tix):
    for end in range(lo + 1, hi):
        row = order[end]
        at = end
        while at > lo and _before(key, val, tix, row, order[at - 1]):
            order[at] = order[at - 1]
            at -= 1
        order[at] = row


@helper
def _merge_sort(order, spare, lo, hi, key, val, tix):
    """Bottom-up merge sort: short runs by insertion, then merges of doubling width through `spare`."""
    for start in range(lo, hi, _INSERTION_SORT_ROWS):
        _insertion_sort(order, start, min(start + _INSERTION_SORT_ROWS, hi), key, val, tix)
    width = _INSERTION_SORT_ROWS
    while width < hi - lo:
        for start in range(lo, hi, 2 * width):
            middle, end = min(start + width, hi), min(start + 2 * width, hi)
            a, b = start, middle
            for out in range(start, end):
                if b >= end or (a < middle and not _before(key, val, tix, order[b], order[a])):
                    spare[out] = order[a]
                    a += 1
                else:
                    spare[out] = order[b]
                    b += 1
        for row in range(lo, hi):
            order[row] = spare[row]
        width *= 2


@helper
def radix_sort(packed, spare, low_bit, bits):
    """Sort by `bits` bits from `low_bit` up, lowest digit first; return the array with the result."""
    digits = (bits + _DIGIT_BITS - 1) // _DIGIT_BITS
    counts = np.zeros((digits, 1 << _DIGIT_BITS), np.int64)
    mask = np.uint64((1 << _DIGIT_BITS) - 1)
    for row in range(len(packed)):
        field = packed[row] >> np.uint64(low_bit)
        for digit in range(digits):
            counts[digit, field & mask] += 1
            field >>= np.uint64(_DIGIT_BITS)
    for digit in range(digits):
        shift = np.uint64(low_bit + digit * _DIGIT_BITS)
        starts = counts[digit]
        if starts[(packed[0] >> shift) & mask] == len(packed):
            continue
        total = 0
        for value in range(1 << _DIGIT_BITS):
            count = starts[value]
            starts[value] = total
            total += count
        for row in range(len(packed)):
            value = (packed[row] >> shift) & mask
            spare[starts[value]] = packed[row]
            starts[value] += 1
        packed, spare = spare, packed
    return packed


@helper
def _add_bits(packed, lane, low, width, shift):
    """Add the bits of a lane, less its least entry, which have some `width`, shifted left (right if negative)."""
    least = np.uint64(low)
    if width == 0 or shift <= -64:
        return
    if shift >= 0:
        for row in range(len(packed)):
            packed[row] |= (np.uint64(lane[row]) - least) << np.uint64(shift)
    else:
        for row in range(len(packed)):
            packed[row] |= (np.uint64(lane[row]) - least) >> np.uint64(-shift)


@helper
def _pack(key, val, tix, most_leading):
    """Return the leading bits of each row with its position.

    Also the numbers of bits of a position, of those before it, and of those that are dropped.
    """
    n = len(key)
    key_low, key_high = extent(key)
    val_low, val_high = extent(val)
    tix_low, tix_high = extent(tix)
    key_bits, val_bits, tix_bits = bits(key_low, key_high), bits(val_low, val_high), bits(tix_low, tix_high)
    total = key_bits + val_bits + tix_bits
    row_bits = bits(0, n - 1)
    leading = min(total, 64 - row_bits)
    if total > row_bits + 2 * _SPARE_BITS:
        leading = min(leading, most_leading)
    dropped = total - leading
    packed = np.zeros(n, np.uint64)
    _add_bits(packed, key, key_low, key_bits, val_bits + tix_bits - dropped)
    _add_bits(packed, val, val_low, val_bits, tix_bits - dropped)
    _add_bits(packed, tix, tix_low, tix_bits, -dropped)
    for row in range(n):
        packed[row] = (packed[row] << np.uint64(row_bits)) | np.uint64(row)
    return packed, row_bits, leading, dropped


@helper
def _order(packed, row_bits, dropped, key, val, tix):
    """Return the order of rows packed and sorted by their leading bits, and the runs that are too long to sort."""
    n, shift = len(packed), np.uint64(row_bits)
    order = np.empty(n, np.int64)
    row_mask = (np.uint64(1) << shift) - np.uint64(1)
    for row in range(n):
        order[row] = packed[row] & row_mask
    if dropped == 0:
        return order, np.empty(0, np.int64)

    spare = np.empty(n, np.int64)
    long_runs = np.empty(2 * (n // LONGEST_RUN), np.int64)
    bounds = 0
    row = 1
    while row < n:
        if (packed[row] ^ packed[row - 1]) >> shift:
            row += 1
            continue
        start = row - 1
        while row < n and (packed[row] ^ packed[start]) >> shift == np.uint64(0):
            row += 1
        if row - start > LONGEST_RUN:
            long_runs[bounds], long_runs[bounds + 1] = start, row
            bounds += 2
        elif row - start > _INSERTION_SORT_ROWS:
            _merge_sort(order, spare, start, row, key, val, tix)
        else:
            _insertion_sort(order, start, row, key, val, tix)
    return order, long_runs[:bounds].copy()


@kernel("Tuple((lane_new, lane_new))(lane, lane, index)")
def sort_leading(key, val, tix):
    """Return the order of the rows, and the bounds (start, end, start, end, ...) of runs that are too long to sort."""
    if is_sorted(key, val, tix):
        return np.arange(len(key)), np.empty(0, np.int64)
    digits = (bits(0, len(key) - 1) + _SPARE_BITS + _DIGIT_BITS - 1) // _DIGIT_BITS
    packed, row_bits, leading, dropped = _pack(key, val, tix, digits * _DIGIT_BITS)
    packed = radix_sort(packed, np.empty(len(key), np.uint64), row_bits, leading)
    return _order(packed, row_bits, dropped, key, val, tix)


@kernel("words_new(words, int)")
def radix_sorted(words, width):
    """Return numbers of `width` bits in ascending order."""
    if len(words) == 0:
        return np.empty(0, np.uint64)
    return radix_sort(words.copy(), np.empty(len(words), np.uint64), 0, width)


@kernel("Tuple((words_new, int, int))(lane, lane, index)")
def pack_leading(key, val, tix):
    """Return numbers whose order is that of the rows by their leading bits; none if the rows are in order already.

    The other results are for `order_packed`: how many bits of each number are the row's position, and how many bits of
    the row the number lacks.
    """
    if is_sorted(key, val, tix):
        return np.empty(0, np.uint64), 0, 0
    packed, row_bits, _, dropped = _pack(key, val, tix, 64)
    return packed, row_bits, dropped


@kernel("Tuple((lane_new, lane_new))(words, int, int, lane, lane, index)")
def order_packed(packed, row_bits, dropped, key, val, tix):
    """Return what `sort_leading` does, given the sorted numbers of `pack_leading` and what that returned with them."""
    return _order(packed, row_bits, dropped, key, val, tix)


@cache
def radix_digits() -> float:
    """Return how many digits of each number a radix sort gets done while NumPy sorts the numbers, on this machine."""
    if not is_compiled():
        return 0.0
    words = np.random.default_rng(0).integers(0, 1 << 63, _SAMPLE_ROWS, np.uint64)
    radix = min(repeat(lambda: radix_sorted(words, 64), number=1, repeat=3))
    return 64 // _DIGIT_BITS * min(repeat(lambda: np.sort(words), number=1, repeat=3)) / radix


def sort_words(words: np.ndarray, width: int) -> np.ndarray:
    """Return numbers of `width` bits in ascending order; the given array may be overwritten.

    >>> sort_words(np.array([3, 1, 2], np.uint64), 2).tolist()
    [1, 2, 3]
    """
    if width <= _DIGIT_BITS * radix_digits():
        return radix_sorted(words, width)
    words.sort()
    return words


def leading_order(key: np.ndarray, val: np.ndarray, tix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the order of the rows, and the bounds of runs that are too long to sort, by the faster of both sorts."""
    leading = len(key).bit_length() + _SPARE_BITS
    if len(key) < FEW_ROWS or leading <= _DIGIT_BITS * radix_digits():
        order, long_runs = sort_leading(key, val, tix)
        return order, long_runs
    packed, row_bits, dropped = pack_leading(key, val, tix)
    if not len(packed):
        return np.arange(len(key)), np.empty(0, np.int64)
    packed.sort()
    order, long_runs = order_packed(packed, row_bits, dropped, key, val, tix)
    return order, long_runs


def sort_order(key: np.ndarray, val: np.ndarray, tix: np.ndarray) -> np.ndarray:
    """Return the permutation that sorts rows by key, value and time position; equal rows keep their order.

    >>> sort_order(np.array([2, 1, 2]), np.array([0, 9, 0]), np.array([1, 0, 0], np.int32)).tolist()
    [1, 2, 0]
    """
    order, long_runs = leading_order(key, val, tix)
    for start, end in long_runs.reshape(-1, 2):
        rows = order[start:end].copy()
        order[start:end] = rows[sort_order(key[rows], val[rows], tix[rows])]
    return order
