"""The groups that a reduction has seen in a sweep: a set of pairs of a key lane and a value lane that only grows.

Cost: at most a probe of a hash table for each group (`ikebana.kernels.groups`), and 40 to 80 bytes for each group in
the set; far less if many values of a key are neighbours.
"""

from __future__ import annotations

import numpy as np

from ikebana.encoding.lanes import Lane, empty_lane
from ikebana.kernels import add_groups, copy_groups
from ikebana.kernels.layout import GROUP_CELLS, SLOT_CELLS, TAKEN

FIRST_SLOTS = 1 << 10
"""The number of slots of a new table."""


class KnownGroups:
    """A set of groups.

    >>> known = KnownGroups()
    >>> known.add(np.array([1, 1, 2]), np.array([5, 6, 5])).tolist()
    [0, 1, 2]
    >>> known.add(np.array([1, 2]), np.array([5, 6])).tolist()
    [1]
    """

    def __init__(self) -> None:
        self._table = np.zeros(SLOT_CELLS * FIRST_SLOTS, np.int64)
        self._state = np.zeros(GROUP_CELLS, np.int64)

    def add(self, key: Lane, val: Lane) -> Lane:
        """Add groups, which are distinct; return the positions of those that were not in the set."""
        rows = empty_lane(len(key))
        new = start = 0
        while True:
            added = add_groups(self._table, self._state, key[start:], val[start:], rows[new:])
            rows[new : new + added] += start
            start, new = start + int(self._state[TAKEN]), new + added
            if start == len(key):
                return rows[:new]
            self._grow()

    def _grow(self) -> None:
        larger = np.zeros(2 * len(self._table), np.int64)
        copy_groups(self._table, larger)
        self._table = larger
