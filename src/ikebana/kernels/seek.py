"""Find sorted keys in a sorted lane by galloping.

Probes come in ascending order, and each search starts where the one before ended, doubling its stride until
it has passed the probe and then halving. So a few probes into a large lane cost a few cache misses each, and
many probes cost about a scan. Where probes are far apart each search misses the cache several times; then all
of them are first brought to within a block of rows and finished there side by side, in half the time.

Cost: probes x log(distance between neighbouring probes).
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel

BLOCK = 512
"""Rows in which probes that are far apart are found side by side."""


@helper
def gallop(lane, start, probe, stride=1):
    """The first position at or after `start` whose key is not less than `probe`; `stride` is a guess how far it is."""
    end = len(lane)
    if start >= end or lane[start] >= probe:
        return start
    low = start  # lane[low] < probe, always
    while low + stride < end and lane[low + stride] < probe:
        low += stride
        stride *= 2
    high = min(low + stride, end)  # lane[high] >= probe, or the end
    while high - low > 1:
        middle = (low + high) // 2
        if lane[middle] < probe:
            low = middle
        else:
            high = middle
    return high


@helper
def gallop_past(lane, start, probe):
    """The first position at or after `start` whose key is greater than `probe`."""
    if probe == np.iinfo(np.int64).max:
        return len(lane)
    return gallop(lane, start, probe + 1)


@helper
def first_in_block(lane, start, probe):
    """The first position in a block of rows from `start` on whose key is not less than `probe`, or where it ends.

    Where the block is whole nothing branches on the keys, so that searches for several probes overlap in the processor.
    """
    if start + BLOCK > len(lane):
        return gallop(lane, start, probe)
    half = BLOCK // 2
    while half > 0:
        start += half * (lane[start + half - 1] < probe)
        half //= 2
    return start + (lane[start] < probe)


@helper
def seek_far(lane, probes, starts):
    """Write where each probe would be; for few probes in a long lane. First the blocks of all probes, then the rest."""
    firsts = lane[::BLOCK]
    at, stride = 0, 1
    for p in range(len(probes)):
        before = at
        at = gallop(firsts, at, probes[p], stride)
        stride = max(1, (at - before + stride) // 2)
        starts[p] = max(0, at - 1) * BLOCK
    for p in range(len(probes)):
        starts[p] = first_in_block(lane, starts[p], probes[p])


@helper
def seek_near(lane, probes, starts):
    """Write where each probe would be; each search starts where the one before ended."""
    at, stride = 0, 1
    for p in range(len(probes)):
        before = at
        at = gallop(lane, at, probes[p], stride)
        stride = max(1, (at - before + stride) // 2)  # neighbouring probes tend to be equally far apart
        starts[p] = at


@kernel("Tuple((lane_new, lane_new))(lane, lane)")
def seek_ranges(lane, probes):
    """For each probe (ascending) the rows that hold it: starts and ends; equal where it is absent."""
    starts = np.empty(len(probes), np.int64)
    ends = np.empty(len(probes), np.int64)
    if len(lane) // BLOCK > len(probes) // 2:
        seek_far(lane, probes, starts)
    else:
        seek_near(lane, probes, starts)
    for p in range(len(probes)):
        repeated = p > 0 and probes[p] == probes[p - 1]
        ends[p] = ends[p - 1] if repeated else gallop_past(lane, starts[p], probes[p])
    return starts, ends


@kernel("Tuple((lane_new, lane_new))(lane, lane, lane, lane)")
def narrow_ranges(lane, starts, ends, probes):
    """For each range of rows, ascending in `lane`, the part that holds its probe: starts and ends.

    A range may come several times in succession, with ascending probes.
    """
    firsts = np.empty(len(probes), np.int64)
    lasts = np.empty(len(probes), np.int64)
    for p in range(len(probes)):
        rows = lane[: ends[p]]
        again = p > 0 and starts[p] == starts[p - 1] and ends[p] == ends[p - 1]
        firsts[p] = gallop(rows, firsts[p - 1] if again else starts[p], probes[p])
        lasts[p] = gallop_past(rows, firsts[p], probes[p])
    return firsts, lasts
