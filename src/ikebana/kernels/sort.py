"""The order of updates by key, then value, then time.

Sorting three 64-bit lanes by comparison would cost n log n cache misses. Instead the fields of each row, minus
their minima, are concatenated to an integer of as many bits as their ranges need; its leading bits and
the position of the row are packed into 64 bits, and a radix sort by the leading bits alone puts the
positions in order. Rows that are equal in all leading bits (few, if keys are spread out) are then ordered by
comparison, run by run; a run too long for that (one key with many values) is returned to the caller, to be sorted again
by the remaining bits.

Cost: a few sequential passes, about 10 ns a row up to 10M rows. Stable: equal rows keep their order.
Not guaranteed: speed for adversarial keys, which cost one more round for every long run they force.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel

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
    for row in range(1, len(lane)):
        low = min(low, lane[row])
        high = max(high, lane[row])
    return low, high


@helper
def place(value, low, shift):
    """Return the bits of `value - low`, shifted left by `shift` (right if negative)."""
    offset = np.uint64(value) - np.uint64(low)
    if shift >= 0:
        return offset << np.uint64(shift)
    if shift > -64:
        return offset >> np.uint64(-shift)
    return np.uint64(0)


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


@kernel("Tuple((lane_new, lane_new))(lane, lane, index)")
def sort_leading(key, val, tix):
    """Return the order of the rows, and the bounds (start, end, start, end, ...) of runs that are too long to sort."""
    n = len(key)
    order = np.arange(n)
    long_runs = np.empty(0, np.int64)
    if is_sorted(key, val, tix):
        return order, long_runs
    key_low, key_high = extent(key)
    val_low, val_high = extent(val)
    tix_low, tix_high = extent(tix)
    val_bits, tix_bits = bits(val_low, val_high), bits(tix_low, tix_high)
    total = bits(key_low, key_high) + val_bits + tix_bits
    row_bits = bits(0, n - 1)
    leading = min(total, 64 - row_bits)
    if total > row_bits + 2 * _SPARE_BITS:
        leading = min(leading, (row_bits + _SPARE_BITS + _DIGIT_BITS - 1) // _DIGIT_BITS * _DIGIT_BITS)
    dropped = total - leading

    packed = np.empty(n, np.uint64)
    for row in range(n):
        prefix = place(key[row], key_low, val_bits + tix_bits - dropped)
        prefix |= place(val[row], val_low, tix_bits - dropped)
        prefix |= place(tix[row], tix_low, -dropped)
        packed[row] = (prefix << np.uint64(row_bits)) | np.uint64(row)
    packed = radix_sort(packed, np.empty(n, np.uint64), row_bits, leading)
    row_mask = (np.uint64(1) << np.uint64(row_bits)) - np.uint64(1)
    for row in range(n):
        order[row] = packed[row] & row_mask
    if dropped == 0:
        return order, long_runs

    spare = np.empty(n, np.int64)
    long_runs = np.empty(2 * (n // LONGEST_RUN), np.int64)
    bounds = 0
    start = 0
    for row in range(1, n + 1):
        if row < n and packed[row] >> np.uint64(row_bits) == packed[start] >> np.uint64(row_bits):
            continue
        length = row - start
        if length > LONGEST_RUN:
            long_runs[bounds], long_runs[bounds + 1] = start, row
            bounds += 2
        elif length > _INSERTION_SORT_ROWS:
            _merge_sort(order, spare, start, row, key, val, tix)
        elif length > 1:
            _insertion_sort(order, start, row, key, val, tix)
        start = row
    return order, long_runs[:bounds].copy()


def sort_order(key: np.ndarray, val: np.ndarray, tix: np.ndarray) -> np.ndarray:
    """Return the permutation that sorts rows by key, value and time position; equal rows keep their order.

    >>> sort_order(np.array([2, 1, 2]), np.array([0, 9, 0]), np.array([1, 0, 0], np.int32)).tolist()
    [1, 2, 0]
    """
    order: np.ndarray
    order, long_runs = sort_leading(key, val, tix)
    for start, end in long_runs.reshape(-1, 2):
        rows = order[start:end].copy()
        order[start:end] = rows[sort_order(key[rows], val[rows], tix[rows])]
    return order
