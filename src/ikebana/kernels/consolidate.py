"""Consolidation: updates with equal data and time become one, and those that cancel vanish.

Input rows are named by a sorted order, so that gathering and adding up are one pass. `ident` tells apart rows whose
lanes agree although their data does not (a hash collision); without collisions it is a constant lane of zeros.

Cost: one pass; writes at most as many rows as it reads.
"""

from __future__ import annotations

from ikebana.kernels.compile import helper, kernel


@helper
def is_zero(diffs, row):
    """Whether a row's diff is zero in every lane."""
    zero = True
    for lane in range(diffs.shape[0]):
        zero = zero and diffs[lane, row] == 0
    return zero


@kernel(
    "int(lane, lane, lane, lane, index, lanes, lane_out, lane_out, lane_out, index_out, lanes_out, lane_out)"
)
def consolidate_rows(
    order, key, val, ident, tix, diffs, key_out, val_out, ident_out, tix_out, diffs_out, src_out
):
    """Write the consolidated rows; returns how many. `src_out` names for each an input row with the same data."""
    out = 0
    for position in range(len(order)):
        row = order[position]
        if out > 0:
            last = out - 1
            if (
                key_out[last] == key[row]
                and val_out[last] == val[row]
                and ident_out[last] == ident[row]
                and tix_out[last] == tix[row]
            ):
                for lane in range(diffs.shape[0]):
                    diffs_out[lane, last] += diffs[lane, row]
                continue
            if is_zero(diffs_out, last):
                out = last
        key_out[out] = key[row]
        val_out[out] = val[row]
        ident_out[out] = ident[row]
        tix_out[out] = tix[row]
        src_out[out] = row
        for lane in range(diffs.shape[0]):
            diffs_out[lane, out] = diffs[lane, row]
        out += 1
    if out > 0 and is_zero(diffs_out, out - 1):
        out -= 1
    return out
