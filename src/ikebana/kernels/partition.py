"""Partition rows: bring together the rows with the same number, such as the rows of each shard.

This is a counting sort. `partition_order` returns the order of the rows; `partition_words` and `partition_halves` move
the cells of a lane to where they belong without an order, reading and writing in sequence.

Contract: a row's number is at least 0 and less than the number of parts. Rows of a part keep their order.

Cost: two passes, 1 to 2 ns a row and lane, as long as there are few parts.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel


@kernel("Tuple((lane_new, lane_new))(lane, int)")
def partition_order(numbers, parts):
    """Return the positions of the rows, part by part, and where each part starts, with the end of the last one."""
    bounds = np.zeros(parts + 1, np.int64)
    for row in range(len(numbers)):
        bounds[numbers[row] + 1] += 1
    for part in range(parts):
        bounds[part + 1] += bounds[part]
    cursors = bounds[:parts].copy()
    order = np.empty(len(numbers), np.int64)
    for row in range(len(numbers)):
        part = numbers[row]
        order[cursors[part]] = row
        cursors[part] += 1
    return order, bounds


@helper
def _move(lane, numbers, cursors, out):
    for row in range(len(numbers)):
        part = numbers[row]
        out[cursors[part]] = lane[row]
        cursors[part] += 1


@kernel("void(lane, lane, cells, cells)")
def partition_words(lane, numbers, cursors, out):
    """Copy the entries of a lane to `out`: those of a part to where its cursor is, which is advanced."""
    _move(lane, numbers, cursors, out)


@kernel("void(index, lane, cells, halves_out)")
def partition_halves(lane, numbers, cursors, out):
    """The same for entries of 32 bits."""
    _move(lane, numbers, cursors, out)
