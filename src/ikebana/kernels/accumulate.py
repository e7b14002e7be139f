"""Accumulate updates at a time: for each (key, value), the sum of the diffs at the times a reader sees.

The caller decides for each distinct time whether it is visible; the kernel looks up that flag by position. Rows are
grouped by data (sorted by key, ident, value). Groups that add up to zero are left out.

`sum_ranges` does the same for many pairs (group, time) at once, given where the rows of each group are, and adds to the
sums of other batches.

`add_by_group` needs no order at all: the rows have the numbers of their groups.

Cost: one pass over the rows, with `sum_ranges` one for each time of their group.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import kernel


@kernel("Tuple((lane_new, lanes_new))(lane, lane, lane, index, lanes, flags)")
def accumulate_rows(key, val, ident, tix, diffs, visible):
    """Return the first row of each group with a non-zero sum, and the sums, by diff lane."""
    n, lanes = len(key), diffs.shape[0]
    rows = np.empty(n, np.int64)
    sums = np.zeros((lanes, n), np.int64)
    out = 0
    start = 0
    while start < n:
        end = start
        while end < n and key[end] == key[start] and val[end] == val[start] and ident[end] == ident[start]:
            if visible[tix[end]] != 0:
                for lane in range(lanes):
                    sums[lane, out] += diffs[lane, end]
            end += 1
        rows[out] = start
        nonzero = False
        for lane in range(lanes):
            nonzero = nonzero or sums[lane, out] != 0
        if nonzero:
            out += 1
        start = end
    return rows[:out].copy(), sums[:, :out].copy()


@kernel("void(lane, index, lanes, lane, lane, index, lanes, lanes, lanes_out)")
def sum_ranges(groups, at_of, at, starts, ends, tix, diffs, times, sums):
    """Add to the sums of each moment, a pair of a group and a time `at[at_of]`, the diffs that are visible then.

    The rows of a group are those from `starts` to `ends`; row r has the time `times[tix[r]]`.
    """
    for moment in range(len(groups)):
        group, time = groups[moment], at_of[moment]
        for row in range(starts[group], ends[group]):
            visible = True
            for coordinate in range(times.shape[1]):
                visible = visible and times[tix[row], coordinate] <= at[time, coordinate]
            if visible:
                for lane in range(diffs.shape[0]):
                    sums[lane, moment] += diffs[lane, row]


@kernel("void(index, lane, lane, lane_out)")
def add_by_group(groups, diffs, factors, sums):
    """Add the diff of each row, multiplied by its factor, to the sum of its group."""
    for row in range(len(groups)):
        sums[groups[row]] += diffs[row] * factors[row]
