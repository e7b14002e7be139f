"""Compare rows of payload where they are stored, pair by pair.

Rows whose hashes are equal have to be compared by the data behind them: in every merge, join and sort of hashed lanes.
Only the compared bytes are read, and nothing is copied.

Contract: `same` has 1 for each pair that is still to be compared, and becomes 0 where the rows differ. Two nulls are
equal, whatever is stored in their place. A bitmap of validity without bytes is all ones.

Cost: two random reads for each pair.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.texts import same_bytes


@helper
def _is_null(bitmap, bit):
    """Whether the value of a bit in a bitmap of validity is null."""
    return len(bitmap) > 0 and (bitmap[bit >> 3] >> (bit & 7)) & 1 == 0


@helper
def _same_by_nulls(a_valid, a_bit, b_valid, b_bit):
    """Whether two values are equal, as 1 or 0, if one of them is null; -1 if they have to be compared."""
    one, other = _is_null(a_valid, a_bit), _is_null(b_valid, b_bit)
    return np.int64(one == other) if one or other else np.int64(-1)


@kernel("void(bytes, bytes, int, bytes, bytes, int, int, lane, lane, flags_out)")
def same_fixed(a, a_valid, a_bit, b, b_valid, b_bit, width, a_rows, b_rows, same):
    """Compare rows of `width` bytes."""
    a_start, b_start = np.int64(a.ctypes.data), np.int64(b.ctypes.data)
    for pair in range(len(same)):
        one, other = a_rows[pair], b_rows[pair]
        by_nulls = _same_by_nulls(a_valid, a_bit + one, b_valid, b_bit + other)
        if by_nulls >= 0:
            same[pair] &= by_nulls
        elif same[pair] != 0:
            same[pair] = same_bytes(a_start + one * width, b_start + other * width, width)


@kernel("void(lane, bytes, bytes, int, lane, bytes, bytes, int, lane, lane, flags_out)")
def same_strings(a_offsets, a, a_valid, a_bit, b_offsets, b, b_valid, b_bit, a_rows, b_rows, same):
    """Compare byte strings: string r of a is a[a_offsets[r]:a_offsets[r + 1]]."""
    a_start, b_start = np.int64(a.ctypes.data), np.int64(b.ctypes.data)
    for pair in range(len(same)):
        one, other = a_rows[pair], b_rows[pair]
        by_nulls = _same_by_nulls(a_valid, a_bit + one, b_valid, b_bit + other)
        if by_nulls >= 0:
            same[pair] &= by_nulls
        elif same[pair] != 0:
            at, place = a_offsets[one], b_offsets[other]
            length = a_offsets[one + 1] - at
            is_equal = b_offsets[other + 1] - place == length
            same[pair] = is_equal and same_bytes(a_start + at, b_start + place, length)
