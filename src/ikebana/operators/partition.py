"""Partition rows: by the shard that owns them, by the round for which they wait, or by any other number.

Cost: each row is copied once, whatever the number of parts; nothing if one part has all rows. The parts of lanes are
slices of the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ikebana.encoding.lanes import Lane, common_diffs, constant, empty_diffs
from ikebana.kernels import partition_halves, partition_order, partition_words, shard_rows
from ikebana.trace import Updates
from ikebana.trace.timed_rows import common_times


def owned_lanes(shards: int) -> list[int]:
    """For each shard the least key lane, from 0 on, that it owns.

    >>> owned_lanes(2)
    [0, 1]
    """
    lanes = np.arange(shards)
    while len(firsts := np.unique(shard_rows(lanes, shards), return_index=True)[1]) < shards:
        lanes = np.arange(2 * len(lanes))
    return [int(first) for first in firsts]


def split_rows(rows: Any, numbers: Lane, parts: int) -> list[Any]:
    """The rows with each number below `parts`, by `take`; None for a number without rows."""
    order, bounds = partition_order(numbers, parts)
    sizes = np.diff(bounds).tolist()
    if len(rows) in sizes:
        return [rows if size else None for size in sizes]
    return [rows.take(order[start:end]) if end > start else None for start, end in pairwise(bounds.tolist())]


def split_updates(parts: Sequence[Updates], shards: int) -> list[Updates | None]:
    """The updates of all parts for each shard, by key lane; None for a shard without any."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return [None] * shards
    if parts[0].payload:
        updates = Updates.concat(parts)
        return split_rows(updates, shard_rows(updates.key, shards), shards)
    numbers = [shard_rows(part.key, shards) for part in parts]
    sizes: Lane = np.sum([np.bincount(own, minlength=shards) for own in numbers], axis=0)
    if np.count_nonzero(sizes) == 1:
        updates = Updates.concat(parts)
        return [updates if size else None for size in sizes.tolist()]
    ends = np.cumsum(sizes)
    updates = _moved(parts, numbers, ends - sizes)
    return [updates.slice(end - size, end) if size else None for end, size in zip(ends, sizes, strict=True)]


def _moved(parts: Sequence[Updates], numbers: Sequence[Lane], starts: Lane) -> Updates:
    """The updates of all parts, which have no payload, with those of each shard together, from its start on."""
    rows = sum(map(len, parts))

    def move(lanes: Sequence[Any], kernel: Callable[..., None], out: Any) -> Any:
        cursors = starts.copy()
        for lane, own in zip(lanes, numbers, strict=True):
            kernel(lane, own, cursors, out)
        return out

    times, tixes = common_times(parts)
    diffs = common_diffs([part.diffs for part in parts])
    if diffs is None:
        diffs = empty_diffs(len(parts[0].diffs), rows)
        for at, out in enumerate(diffs):
            move([part.diffs[at] for part in parts], partition_words, out)
    return Updates(
        times,
        constant(0, rows, np.int32) if len(times) == 1 else move(tixes, partition_halves, np.empty(rows, np.int32)),
        diffs,
        parts[0].schema,
        move([part.key for part in parts], partition_words, np.empty(rows, np.int64)),
        move([part.val for part in parts], partition_words, np.empty(rows, np.int64)),
        (),
    )
