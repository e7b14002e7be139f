"""Consolidation: updates with equal data and time are added up, and those that cancel are removed.

Works in place on lanes in which rows with equal key, ident, value and time are neighbours; the remaining rows move to
the front. Lanes may be constant, except the diffs, which are added up. `ident` distinguishes rows with equal lanes
but different data (a hash collision); without collisions it is a constant lane of zeros.

If the ranges of key, value, time and diff together need at most 64 bits (`measure_rows`), rows are packed into integers
(`pack_rows`). The caller sorts the integers; `add_up_packed` consolidates them, and `unpack_rows` turns them into lanes
again. No rows have to be gathered, which takes a third of the time.

Cost: one sequential pass, 2-3 ns a row. Rows must be gathered into order before: in one loop with
the comparisons, cache misses would not overlap and cost ten times as much.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.layout import (
    ASCENDING,
    DIFF_FIELD,
    DIFF_HIGH,
    DIFF_LOW,
    KEY_FIELD,
    KEY_HIGH,
    KEY_LOW,
    MEASURED,
    TIX_FIELD,
    VAL_FIELD,
    VAL_HIGH,
    VAL_LOW,
)


@helper
def is_zero(diffs, row):
    """Whether a row's diff is zero in every lane."""
    zero = True
    for lane in range(diffs.shape[0]):
        zero = zero and diffs[lane, row] == 0
    return zero


@kernel("int(lane_out, lane_out, lane_out, index_out, lanes_out, lane_out)")
def consolidate_rows(key, val, ident, tix, diffs, src):
    """Consolidate sorted rows in place, and return how many remain. `src`, rows with equal data, moves with them."""
    rows, lanes = len(key), diffs.shape[0]
    if rows == 0:
        return 0
    out = 0
    last_key, last_val, last_ident, last_tix = key[0], val[0], ident[0], tix[0]
    last_zero = is_zero(diffs, 0)
    for row in range(1, rows):
        same = key[row] == last_key and val[row] == last_val and ident[row] == last_ident
        if same and tix[row] == last_tix:
            last_zero = True
            for lane in range(lanes):
                diffs[lane, out] += diffs[lane, row]
                last_zero = last_zero and diffs[lane, out] == 0
            continue
        if not last_zero:
            out += 1
        last_key, last_val, last_ident, last_tix = key[row], val[row], ident[row], tix[row]
        key[out], val[out], ident[out], tix[out], src[out] = (
            last_key,
            last_val,
            last_ident,
            last_tix,
            src[row],
        )
        last_zero = True
        for lane in range(lanes):
            diff = diffs[lane, row]
            diffs[lane, out] = diff
            last_zero = last_zero and diff == 0
    return out if last_zero else out + 1


@helper
def unpack(packed, shift, width, low):
    """Return the field of `width` bits at `shift`, plus `low`."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1) if width < 64 else ~np.uint64(0)
    return np.int64(((packed >> np.uint64(shift & 63)) & mask) + np.uint64(low))


@kernel("void(lane, lane, index, lane, lane_out)")
def measure_rows(key, val, tix, diff, measure):
    """Note what is to be known of rows (`MEASURE_CELLS`), in addition to the rows that were measured before."""
    if len(key) == 0:
        return
    if measure[MEASURED] == 0:
        measure[KEY_LOW] = measure[KEY_HIGH] = key[0]
        measure[VAL_LOW] = measure[VAL_HIGH] = val[0]
        measure[DIFF_LOW] = measure[DIFF_HIGH] = diff[0]
        measure[ASCENDING] = 1
    else:
        measure[ASCENDING] = 0
    key_low, key_high = measure[KEY_LOW], measure[KEY_HIGH]
    val_low, val_high = measure[VAL_LOW], measure[VAL_HIGH]
    diff_low, diff_high = measure[DIFF_LOW], measure[DIFF_HIGH]
    ascending = measure[ASCENDING] != 0
    for row in range(len(key)):
        if ascending and row > 0:
            ascending = key[row] > key[row - 1]
            if key[row] == key[row - 1]:
                ascending = val[row] > val[row - 1] or (val[row] == val[row - 1] and tix[row] > tix[row - 1])
        key_low, key_high = min(key_low, key[row]), max(key_high, key[row])
        val_low, val_high = min(val_low, val[row]), max(val_high, val[row])
        diff_low, diff_high = min(diff_low, diff[row]), max(diff_high, diff[row])
    measure[MEASURED] += len(key)
    measure[ASCENDING] = ascending
    measure[KEY_LOW], measure[KEY_HIGH], measure[VAL_LOW], measure[VAL_HIGH] = key_low, key_high, val_low, val_high
    measure[DIFF_LOW], measure[DIFF_HIGH] = diff_low, diff_high


@kernel("void(lane, lane, index, lane, index, lane, words_out)")
def pack_rows(key, val, tix, diff, rank, fields, packed):
    """Pack each row into an integer of 64 bits, in the order of key, value and `rank` of the time."""
    at_tix = fields[DIFF_FIELD + 1]
    at_val = at_tix + fields[TIX_FIELD + 1]
    at_key = at_val + fields[VAL_FIELD + 1]
    shift_key, shift_val, shift_tix = np.uint64(at_key & 63), np.uint64(at_val & 63), np.uint64(at_tix & 63)
    key_low, val_low, diff_low = (
        np.uint64(fields[KEY_FIELD]),
        np.uint64(fields[VAL_FIELD]),
        np.uint64(fields[DIFF_FIELD]),
    )
    for row in range(len(packed)):
        packed[row] = (
            (np.uint64(key[row]) - key_low) << shift_key
            | (np.uint64(val[row]) - val_low) << shift_val
            | np.uint64(rank[tix[row]]) << shift_tix
            | (np.uint64(diff[row]) - diff_low)
        )


@kernel("int(words_out, lane, lane_out)")
def add_up_packed(packed, fields, totals):
    """Consolidate packed rows that are in order: move those that remain to the front, and write their sums of diffs.

    Return how many remain. Nothing branches on the rows while they are added up: where every few rows are equal, most
    branches would be mispredicted.
    """
    diff_low, diff_bits = fields[DIFF_FIELD], fields[DIFF_FIELD + 1]
    update, total, last = np.int64(-1), np.int64(0), np.uint64(0)
    for row in range(len(packed)):
        word = packed[row]
        data = word >> np.uint64(diff_bits) if diff_bits < 64 else np.uint64(0)
        is_next = np.int64(row == 0 or data != last)
        total = total * (1 - is_next) + unpack(word, 0, diff_bits, diff_low)
        update, last = update + is_next, data
        packed[update], totals[update] = word, total
    rows = 0
    for at in range(update + 1):
        if totals[at] != 0:
            packed[rows], totals[rows] = packed[at], totals[at]
            rows += 1
    return rows


@kernel("void(words, lane, lane_out, lane_out, index_out)")
def unpack_rows(packed, fields, key, val, tix):
    """Write the keys, values and times of packed rows; of lanes that have fewer rows, only these."""
    tix_bits, diff_bits = fields[TIX_FIELD + 1], fields[DIFF_FIELD + 1]
    at_val = diff_bits + tix_bits
    at_key = at_val + fields[VAL_FIELD + 1]
    for row in range(len(key)):
        key[row] = unpack(packed[row], at_key, fields[KEY_FIELD + 1], fields[KEY_FIELD])
    for row in range(len(val)):
        val[row] = unpack(packed[row], at_val, fields[VAL_FIELD + 1], fields[VAL_FIELD])
    for row in range(len(tix)):
        tix[row] = unpack(packed[row], diff_bits, tix_bits, 0)
