"""Match two sorted key lanes, and expand the matches into pairs of rows.

`match_keys` walks both lanes with alternating seeks: the side that is behind gallops to the key of the other.
Its cost depends on the smaller side, even if the larger one is an entire arrangement in one batch.

`expand_pairs` expands matched ranges to pairs of rows, every row of one range with every row of the other.
The output may be far larger than the inputs, so it stops when the output is full, and can be called again to continue.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import kernel
from ikebana.kernels.seek import gallop, gallop_past

GROUP, OFFSET = range(2)


@kernel("lanes_new(lane, lane)")
def match_keys(a, b):
    """Return a row for each key in both lanes: start and end of its range in a, start and end in b."""
    matches = np.empty((min(len(a), len(b)), 4), np.int64)
    count, i, j = 0, 0, 0
    while i < len(a) and j < len(b):
        if a[i] < b[j]:
            i = gallop(a, i, b[j])
        elif b[j] < a[i]:
            j = gallop(b, j, a[i])
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
        a_start, b_start = ranges[group, 0], ranges[group, 2]
        width = ranges[group, 3] - b_start
        total = (ranges[group, 1] - a_start) * width
        done = state[OFFSET]
        end = min(total, done + len(a_rows) - out)
        for pair in range(done, end):
            a_rows[out] = a_start + pair // width
            b_rows[out] = b_start + pair % width
            out += 1
        if end == total:
            state[GROUP], state[OFFSET] = group + 1, 0
        else:
            state[OFFSET] = end
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
