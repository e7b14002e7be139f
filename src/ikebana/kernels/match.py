"""Match two sorted key lanes, and expand the matches into pairs of rows.

`match_keys` walks both lanes with alternating seeks: the side that is behind gallops to the key of the other. A gallop
begins with the average of the last distances: neighbouring keys tend to be equally far apart. Few keys are sought in a
long lane side by side, as in `seek_ranges`.
Its cost depends on the smaller side, even if the larger one is an entire arrangement in one batch.

`expand_pairs` expands matched ranges to pairs of rows, every row of one range with every row of the other.
The output may be far larger than the inputs, so it stops when the output is full, and can be called again to continue.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.seek import BLOCK, gallop, gallop_past, seek_blocks

GROUP, OFFSET = range(2)


@helper
def _match_few(few, many, matches, few_at, many_at):
    """Write the matches of few keys, at the columns `few_at` and `many_at`; return how many there are."""
    starts = np.empty(len(few), np.int64)
    seek_blocks(many, many[::BLOCK], BLOCK, few, starts)
    count, i = 0, 0
    while i < len(few):
        start, end, key = starts[i], i + 1, few[i]
        while end < len(few) and few[end] == key:
            end += 1
        if start < len(many) and many[start] == key:
            matches[count, few_at], matches[count, few_at + 1] = i, end
            matches[count, many_at], matches[count, many_at + 1] = start, gallop_past(many, start, key)
            count += 1
        i = end
    return count


@kernel("lanes_new(lane, lane)")
def match_keys(a, b):
    """Return a row for each key in both lanes: start and end of its range in a, start and end in b."""
    matches = np.empty((min(len(a), len(b)), 4), np.int64)
    if len(b) // BLOCK > len(a) // 2:
        return matches[: _match_few(a, b, matches, 0, 2)].copy()
    if len(a) // BLOCK > len(b) // 2:
        return matches[: _match_few(b, a, matches, 2, 0)].copy()
    count, i, j, a_stride, b_stride = 0, 0, 0, 1, 1
    while i < len(a) and j < len(b):
        if a[i] < b[j]:
            before = i
            i = gallop(a, i, b[j], a_stride)
            a_stride = max(1, (i - before + a_stride) // 2)
        elif b[j] < a[i]:
            before = j
            j = gallop(b, j, a[i], b_stride)
            b_stride = max(1, (j - before + b_stride) // 2)
        else:
            matches[count, 0], matches[count, 2] = i, j
            key = a[i]
            i, j = gallop_past(a, i, key), gallop_past(b, j, key)
            matches[count, 1], matches[count, 3] = i, j
            count += 1
    return matches[:count].copy()


@kernel("int(lanes, lane_out, lane_out, lane_out)")
def expand_pairs(ranges, a_rows, b_rows, state):
    """Write pairs until the output is full, and return how many; `state` is the range and the pairs done in it."""
    out = 0
    while state[GROUP] < ranges.shape[0] and out < len(a_rows):
        group = state[GROUP]
        a, b_start, b_end = ranges[group, 0], ranges[group, 2], ranges[group, 3]
        b, before = b_start, out
        if state[OFFSET] > 0:
            a, b = a + state[OFFSET] // (b_end - b_start), b_start + state[OFFSET] % (b_end - b_start)
        while a < ranges[group, 1] and out < len(a_rows):
            stop = min(b_end, b + len(a_rows) - out)
            for row in range(b, stop):
                a_rows[out], b_rows[out] = a, row
                out += 1
            if stop < b_end:
                break
            a, b = a + 1, b_start
        if a == ranges[group, 1]:
            state[GROUP], state[OFFSET] = group + 1, 0
        else:
            state[OFFSET] += out - before
    return out


@kernel("int(lane, lane, lane_out)")
def expand_ranges(starts, ends, rows):
    """Write the rows of all ranges in order, and return how many."""
    out = 0
    for group in range(len(starts)):
        for row in range(starts[group], ends[group]):
            rows[out] = row
            out += 1
    return out
