"""Find sorted keys in a sorted lane by galloping.

Probes are in ascending order, and each search starts where the previous one ended, doubling its stride until
it has passed the probe and then halving it. So a few probes into a large lane cost a few cache misses each, and
many probes cost about a scan. If probes are far apart, each search misses the cache several times; then all
searches are first narrowed to a block of rows each and finished there side by side, in half the time. If a lane is
searched again and again, `seek_sampled` finds the blocks in a *sample*, every `SAMPLED`-th key of the lane, which is
so small that it stays in the cache.

Cost: probes x log(distance between neighbouring probes).
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.layout import SAMPLED

BLOCK = 512
"""The number of rows of a block in which a probe is found without branches."""


@helper
def gallop(lane, start, probe, stride=1):
    """Return the first position from `start` on whose key is not less than `probe`; `stride` estimates its distance."""
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
    """Return the first position from `start` on whose key is greater than `probe`."""
    if probe == np.iinfo(np.int64).max:
        return len(lane)
    return gallop(lane, start, probe + 1)


@helper
def first_in_block(lane, start, probe, block):
    """Return the first position in the `block` rows at `start` whose key is not less than `probe`, or their end.

    In a complete block nothing branches on the keys, so that the processor overlaps the searches for several probes.
    """
    if start + block > len(lane):
        return gallop(lane, start, probe)
    half = block // 2
    while half > 0:
        start += half * (lane[start + half - 1] < probe)
        half //= 2
    return start + (lane[start] < probe)


@helper
def seek_blocks(lane, firsts, block, probes, starts):
    """Write the first position of each probe, given the first key of each block: find blocks, then positions."""
    at, stride = 0, 1
    for p in range(len(probes)):
        before = at
        at = gallop(firsts, at, probes[p], stride)
        stride = max(1, (at - before + stride) // 2)
        starts[p] = max(0, at - 1) * block
    for p in range(len(probes)):
        starts[p] = first_in_block(lane, starts[p], probes[p], block)


@helper
def seek_near(lane, probes, starts):
    """Write the first position of each probe; each search starts where the previous one ended."""
    at, stride = 0, 1
    for p in range(len(probes)):
        before = at
        at = gallop(lane, at, probes[p], stride)
        stride = max(1, (at - before + stride) // 2)  # neighbouring probes tend to be equally far apart
        starts[p] = at


@helper
def ends_of(lane, probes, starts):
    """Return the end of the rows of each probe, given their starts."""
    ends = np.empty(len(probes), np.int64)
    for p in range(len(probes)):
        repeated = p > 0 and probes[p] == probes[p - 1]
        ends[p] = ends[p - 1] if repeated else gallop_past(lane, starts[p], probes[p])
    return ends


@helper
def seek_starts(lane, probes, starts):
    """Write the first position of each probe, by blocks if probes are far apart."""
    if len(lane) // BLOCK > len(probes) // 2:
        seek_blocks(lane, lane[::BLOCK], BLOCK, probes, starts)
    else:
        seek_near(lane, probes, starts)


@kernel("Tuple((lane_new, lane_new))(lane, lane)")
def seek_ranges(lane, probes):
    """Return starts and ends of the rows of each probe, in ascending order; equal if it is absent."""
    starts = np.empty(len(probes), np.int64)
    seek_starts(lane, probes, starts)
    return starts, ends_of(lane, probes, starts)


@kernel("Tuple((lane_new, lane_new))(lane, lane, lane)")
def seek_sampled(lane, sample, probes):
    """Like `seek_ranges`, given every `SAMPLED`-th key of the lane."""
    starts = np.empty(len(probes), np.int64)
    seek_blocks(lane, sample, SAMPLED, probes, starts)
    return starts, ends_of(lane, probes, starts)


@kernel("Tuple((lane_new, lane_new))(lane, lane, lane, lane)")
def narrow_ranges(lane, starts, ends, probes):
    """Return starts and ends of the rows with its probe in each range of rows, which are ascending in `lane`.

    A range may be repeated in succession, with ascending probes.
    """
    new_starts = np.empty(len(probes), np.int64)
    new_ends = np.empty(len(probes), np.int64)
    for p in range(len(probes)):
        rows = lane[: ends[p]]
        repeated = p > 0 and starts[p] == starts[p - 1] and ends[p] == ends[p - 1]
        new_starts[p] = gallop(rows, new_starts[p - 1] if repeated else starts[p], probes[p])
        new_ends[p] = gallop_past(rows, new_starts[p], probes[p])
    return new_starts, new_ends
