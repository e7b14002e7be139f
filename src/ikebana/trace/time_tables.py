"""Tables of distinct times.

A batch stores each distinct time of its updates once, in a table (a row for each time, a column for each coordinate,
rows distinct and in lexicographic order), and for each update the position of its time. Lexicographic order
extends the partial order, so sorting updates by position visits every time after all times before it.
Operations on times alone (compaction, visibility, entering a loop) are applied to the table, for all updates
at once.

Cost: a table is as long as the number of distinct times, which compaction keeps small; in the worst case as long as
the number of updates.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from ikebana.encoding.lanes import Flags, Index, Lane, constant
from ikebana.kernels import advance_times, rank_times, sort_order, times_beyond, times_visible
from ikebana.time import Antichain, Time

INSERTION_SORT_TIMES = 64
"""Tables of at most this many times are sorted by insertion, which takes a microsecond or two."""

ALL_PAIRS = 1024
"""Up to this many pairs of distinct times, joins are computed once for each pair rather than for each row."""


@lru_cache(maxsize=64)
def _frontier_table(frontier: Antichain, dimensions: int) -> Lane:
    """Return the elements of a frontier as a table. Cached, since operators use the same few repeatedly."""
    table = table_of(frontier, dimensions)
    table.flags.writeable = False
    return table


def table_of(times: Iterable[Time], dimensions: int) -> Lane:
    """Return a table with the given times as its rows, in that order.

    >>> table_of([(0, 1), (2, 3)], 2).tolist()
    [[0, 1], [2, 3]]
    """
    return np.array(list(times), np.int64).reshape(-1, dimensions)


def distinct_times(times: Lane) -> tuple[Lane, Index]:
    """Return the distinct rows of `times` in order, and the position of each row among them.

    >>> table, positions = distinct_times(np.array([[5, 0], [3, 1], [5, 0]]))
    >>> table.tolist(), positions.tolist()
    ([[3, 1], [5, 0]], [1, 0, 1])
    """
    if len(times) <= INSERTION_SORT_TIMES:
        return rank_times(times)
    order = _order(times)
    ordered = times[order]
    first = np.ones(len(times), bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    positions = np.empty(len(times), np.int32)
    positions[order] = np.cumsum(first) - 1
    return ordered[first], positions


def union(tables: Iterable[Lane]) -> tuple[Lane, list[Index]]:
    """Return the times of all tables, at least one, as a table; and for each table the positions of its times in it.

    >>> table, positions = union([np.array([[0, 1]]), np.array([[0, 0], [0, 1]])])
    >>> table.tolist(), [part.tolist() for part in positions]
    ([[0, 0], [0, 1]], [[1], [0, 1]])
    """
    tables = list(tables)
    if len(tables) == 1:
        return tables[0], [np.arange(len(tables[0]), dtype=np.int32)]
    times, positions = distinct_times(np.concatenate(tables))
    return times, np.split(positions, np.cumsum([len(table) for table in tables[:-1]]))


def _order(times: Lane) -> Lane:
    """Return the order of many times; times of up to two coordinates are sorted like updates."""
    if times.shape[1] > 2:
        return np.lexsort(times.T[::-1])
    rows = len(times)
    rounds = times[:, 1] if times.shape[1] == 2 else constant(0, rows)
    return sort_order(times[:, 0], rounds, constant(0, rows, np.int32))


def rank_integers(numbers: Lane) -> tuple[Lane, Index]:
    """Return the distinct numbers in order, and the position of each number among them; there is at least one.

    >>> distinct, positions = rank_integers(np.array([7, 5, 7]))
    >>> distinct.tolist(), positions.tolist()
    ([5, 7], [1, 0, 1])
    """
    first = int(numbers.min())
    if int(numbers.max()) - first > len(numbers):
        distinct, inverse = np.unique(numbers, return_inverse=True)
        return distinct, inverse.astype(np.int32)
    is_present = np.bincount(numbers - first) > 0
    positions: Index = np.cumsum(is_present, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(is_present) + first, positions[numbers - first]


def compacted_times(table: Lane, frontier: Antichain) -> tuple[Lane, Index]:
    """Return the table of the compaction representatives, and the position of each time's representative."""
    if not frontier:
        return table, np.arange(len(table), dtype=np.int32)
    return distinct_times(advanced(table, frontier))


def advanced(table: Lane, frontier: Antichain) -> Lane:
    """Return the compaction representative of each time, in the same order; the frontier is not empty."""
    return advance_times(table, _frontier_table(frontier, table.shape[1]))


def beyond(table: Lane, frontier: Antichain) -> Flags:
    """Flag the times beyond the frontier."""
    return times_beyond(table, _frontier_table(frontier, table.shape[1]))


def visible(table: Lane, at: Time) -> Flags:
    """Flag the times that are visible at `at`: less than or equal to it."""
    return times_visible(table, np.array(at, np.int64))


def join_times(a_times: Lane, a_tix: Index, b_times: Lane, b_tix: Index) -> tuple[Lane, Index]:
    """Return the joins of pairs of times, row by row, as a table and positions.

    >>> one, two = np.array([[0, 3]]), np.array([[2, 1], [4, 0]])
    >>> table, tix = join_times(one, np.zeros(2, np.int32), two, np.array([1, 0], np.int32))
    >>> table[tix].tolist()
    [[4, 3], [2, 3]]
    """
    pairs = len(a_times) * len(b_times)
    if pairs > max(len(a_tix), ALL_PAIRS):
        return distinct_times(np.maximum(a_times[a_tix], b_times[b_tix]))
    table, positions = distinct_times(
        np.maximum(a_times[:, None, :], b_times[None, :, :]).reshape(pairs, a_times.shape[1])
    )
    if len(table) == 1:
        return table, constant(0, len(a_tix), np.int32)
    return table, positions[a_tix.astype(np.int64) * len(b_times) + b_tix]
