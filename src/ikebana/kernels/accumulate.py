"""Accumulate updates at a time: for each (key, value), the sum of the diffs at the times a reader sees.

The caller decides for each distinct time whether it is visible; the kernel looks up that flag by position. Rows are
grouped by data (sorted by key, ident, value). Groups that add up to zero are left out.

`sum_visible` does the same for many pairs (key, time) at once, for keys without values: it needs the rows in order of
key only, and adds to the sums of other runs of rows.

Cost: one pass; `sum_visible` gallops over rows of other keys.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import kernel
from ikebana.kernels.seek import gallop


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


@kernel("void(lane, index, lanes, lane, index, lanes, lanes, lanes_out)")
def sum_visible(probes, at_of, at, key, tix, diffs, times, sums):
    """Add to each probe's sums the diffs of the rows of its key whose times are visible at its time, `at[at_of]`.

    Probes and keys are ascending; both may repeat.
    """
    start = 0
    for probe in range(len(probes)):
        start = gallop(key, start, probes[probe])
        row = start
        while row < len(key) and key[row] == probes[probe]:
            visible = True
            for coordinate in range(times.shape[1]):
                visible = visible and times[tix[row], coordinate] <= at[at_of[probe], coordinate]
            if visible:
                for lane in range(diffs.shape[0]):
                    sums[lane, probe] += diffs[lane, row]
            row += 1
