"""The order of updates by key, then value, then time.

Sorting three 64-bit lanes by comparison would cost n log n cache misses. Instead each row's fields, less
their minima, are laid end to end into one number of as many bits as their ranges need; its leading bits and
the row's own position are packed into 64 bits, and a radix sort over the leading bits alone puts the
positions in order. Rows that agree in all leading bits (few, when keys are spread out) are then ordered by
comparison, run by run; a run too long for that (one key with many values) is handed back, to be sorted again
by the bits that are left.

Cost: a few sequential passes, about 10 ns a row up to 10M rows. Stable: equal rows keep their order.
Not guaranteed: speed for adversarial keys, which cost one more round for every long run they force.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel

LONGEST_RUN = 4096
"""Runs of rows with equal leading bits are ordered by comparison up to this length."""

_SHORT_RUN = 12
_DIGIT = 8
_SPARE_BITS = 8


@helper
def bits(low, high):
    """How many bits the numbers 0 .. high - low need."""
    span = np.uint64(high) - np.uint64(low)
    bits = 0
    while span > np.uint64(0):
        span >>= np.uint64(1)
        bits += 1
    return bits


@helper
def extent(lane):
    """The least and the greatest entry."""
    low = high = lane[0]
    for row in range(1, len(lane)):
        low = min(low, lane[row])
        high = max(high, lane[row])
    return low, high


@helper
def place(value, low, shift):
    """The bits of `value - low`, moved left by `shift` (right when it is negative)."""
    offset = np.uint64(value) - np.uint64(low)
    if shift >= 0:
        return offset << np.uint64(shift)
    if shift > -64:
        return offset >> np.uint64(-shift)
    return np.uint64(0)


@helper
def _before(key, val, tix, a, b):
    """Whether row `a` belongs strictly before row `b`."""
    if key[a] != key[b]:
        return key[a] < key[b]
    if val[a] != val[b]:
        return val[a] < val[b]
    return tix[a] < tix[b]


@helper
def is_sorted(key, val, tix):
    """Whether the rows are in order already: often so for what operators make of sorted batches."""
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
    """Bottom-up: short stretches by insertion, then merges of doubling width through `spare`."""
    for start in range(lo, hi, _SHORT_RUN):
        _insertion_sort(order, start, min(start + _SHORT_RUN, hi), key, val, tix)
    width = _SHORT_RUN
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
    """Sort by the bits from `low_bit` up, lowest digit first; returns the array with the result."""
    digits = (bits + _DIGIT - 1) // _DIGIT
    counts = np.zeros((digits, 1 << _DIGIT), np.int64)
    mask = np.uint64((1 << _DIGIT) - 1)
    for row in range(len(packed)):
        rest = packed[row] >> np.uint64(low_bit)
        for digit in range(digits):
            counts[digit, rest & mask] += 1
            rest >>= np.uint64(_DIGIT)
    for digit in range(digits):
        shift = np.uint64(low_bit + digit * _DIGIT)
        starts = counts[digit]
        if starts[(packed[0] >> shift) & mask] == len(packed):
            continue
        total = 0
        for value in range(1 << _DIGIT):
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
    """The order of the rows, and the bounds (start, end, start, end, ...) of runs left for another round."""
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
        leading = min(leading, (row_bits + _SPARE_BITS + _DIGIT - 1) // _DIGIT * _DIGIT)
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
    found = 0
    start = 0
    for row in range(1, n + 1):
        if row < n and packed[row] >> np.uint64(row_bits) == packed[start] >> np.uint64(row_bits):
            continue
        length = row - start
        if length > LONGEST_RUN:
            long_runs[found], long_runs[found + 1] = start, row
            found += 2
        elif length > _SHORT_RUN:
            _merge_sort(order, spare, start, row, key, val, tix)
        elif length > 1:
            _insertion_sort(order, start, row, key, val, tix)
        start = row
    return order, long_runs[:found].copy()


def sort_order(key: np.ndarray, val: np.ndarray, tix: np.ndarray) -> np.ndarray:
    """The permutation that sorts the rows by key, value and time position; equal rows keep their order.

    >>> sort_order(np.array([2, 1, 2]), np.array([0, 9, 0]), np.array([1, 0, 0], np.int32)).tolist()
    [1, 2, 0]
    """
    order: np.ndarray
    order, long_runs = sort_leading(key, val, tix)
    for start, end in long_runs.reshape(-1, 2):
        rows = order[start:end].copy()
        order[start:end] = rows[sort_order(key[rows], val[rows], tix[rows])]
    return order
