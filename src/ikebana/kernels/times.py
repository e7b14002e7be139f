"""Times as columns: the lattice operations of `ikebana.time`, over tables of times.

A table of times is an int64 array of shape (times, coordinates); a frontier is a table of its elements.
Batches store each distinct time once, in such a table, and a position in it for each update. Hence these
kernels run over distinct times, not over updates, and the kernels for updates are independent of the
number of coordinates.

Cost: times x frontier elements x coordinates.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper, kernel


@helper
def _compare(times, a, b):
    """Compare rows `a` and `b` lexicographically: return -1, 0 or 1."""
    for c in range(times.shape[1]):
        if times[a, c] != times[b, c]:
            return -1 if times[a, c] < times[b, c] else 1
    return 0


@kernel("lanes_new(lanes, lanes)")
def advance_times(times, frontier):
    """Return the compaction representative of each time: the meet, over the frontier, of join(time, element)."""
    count, coordinates = times.shape
    out = np.empty((count, coordinates), np.int64)
    for row in range(count):
        for c in range(coordinates):
            least = times[row, c]
            for f in range(frontier.shape[0]):
                joined = max(times[row, c], frontier[f, c])
                least = joined if f == 0 else min(least, joined)
            out[row, c] = least
    return out


@kernel("flags_new(lanes, lanes)")
def times_beyond(times, frontier):
    """Flag the times that are beyond the frontier: at or after some element of it."""
    out = np.zeros(times.shape[0], np.uint8)
    for row in range(times.shape[0]):
        for f in range(frontier.shape[0]):
            beyond = True
            for c in range(times.shape[1]):
                beyond = beyond and frontier[f, c] <= times[row, c]
            if beyond:
                out[row] = 1
                break
    return out


@kernel("flags_new(lanes, lane)")
def times_visible(times, at):
    """Flag the times that are visible to a reader at `at`: those less than or equal to it."""
    out = np.zeros(times.shape[0], np.uint8)
    for row in range(times.shape[0]):
        visible = True
        for c in range(times.shape[1]):
            visible = visible and times[row, c] <= at[c]
        if visible:
            out[row] = 1
    return out


@kernel("Tuple((lanes_new, index_new))(lanes)")
def rank_times(times):
    """Return the distinct rows in lexicographic order, and the position of each row; cost is quadratic in the rows."""
    count, coordinates = times.shape
    order = np.arange(count)
    for end in range(1, count):
        row, at = order[end], end
        while at > 0 and _compare(times, row, order[at - 1]) < 0:
            order[at] = order[at - 1]
            at -= 1
        order[at] = row
    table, positions = np.empty((count, coordinates), np.int64), np.empty(count, np.int32)
    distinct = 0
    for at in range(count):
        if at == 0 or _compare(times, order[at], order[at - 1]) != 0:
            table[distinct] = times[order[at]]
            distinct += 1
        positions[order[at]] = distinct - 1
    return table[:distinct].copy(), positions


@kernel("Tuple((lanes_new, index_new, index_new))(lanes, lanes)")
def union_times(a, b):
    """Merge two tables of distinct rows in lexicographic order; also return the new position of each row of a and b."""
    coordinates = a.shape[1]
    out = np.empty((len(a) + len(b), coordinates), np.int64)
    a_rank, b_rank = np.empty(len(a), np.int32), np.empty(len(b), np.int32)
    i, j, count = 0, 0, 0
    while i < len(a) or j < len(b):
        order = 0  # negative: a's row comes first; positive: b's; zero: they are equal
        if i == len(a):
            order = 1
        elif j == len(b):
            order = -1
        else:
            for c in range(coordinates):
                if a[i, c] != b[j, c]:
                    order = -1 if a[i, c] < b[j, c] else 1
                    break
        row = a[i] if order <= 0 else b[j]
        for c in range(coordinates):
            out[count, c] = row[c]
        if order <= 0:
            a_rank[i] = count
            i += 1
        if order >= 0:
            b_rank[j] = count
            j += 1
        count += 1
    return out[:count].copy(), a_rank, b_rank
