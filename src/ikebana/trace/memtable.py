"""The memtable of a trace: its latest rows, in a form that compiled programs write; and the table by which they read.

A program (`ikebana.kernels.program`) adds a few rows to a trace in nanoseconds, where a batch takes a hundred
microseconds to seal and to store. The rows of a memtable are sorted like those of a batch. To all other readers the
memtable is the newest batch of the trace. When it is full, or the trace is given a batch, its rows become a batch of
the spine (*flush*).

A table of integers describes the trace by addresses (`ikebana.kernels.addresses`): the memtable, and all batches of the
spine. The memtable holds on to these batches, and makes the table again when the spine has changed.

A program that waits for other workers has not committed what it has written: nobody else sees these rows yet.

Columns behind hashed lanes are lanes of slots (`ikebana.encoding.slots`); the bytes of texts are on a heap of the
memtable's own. Times have one or two coordinates; those of rows with payload have one.

Invariants: rows are in order of (key, value, time), no two are equal in all three, no diff is zero.

Cost: `MOST_ROWS` rows at most, so that an insertion moves few; memory for `FEW_ROWS` at first. A single change may need
up to `LARGEST_ROWS`: then there is room for these until the change is complete.

Not known to programs: batches with collisions of hashes (`has_collisions`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from ikebana.encoding import slots
from ikebana.encoding.lanes import Array, Lane, constant
from ikebana.encoding.schema import Schema
from ikebana.encoding.slots import address_of
from ikebana.kernels import layout
from ikebana.trace import time_tables
from ikebana.trace.batch import StoredBatch
from ikebana.trace.cells import cells_of, payload_fields
from ikebana.trace.description import Description
from ikebana.trace.updates import NO_KEYS, Sorted, Updates, compressed_diffs

FEW_ROWS, FEW_BYTES = 16, 1 << 11
"""The capacity of a new memtable, and its bytes if rows are wide: most traces of idle queries stay empty."""

GROWTH = 4
"""How many times as many rows fit into a memtable after it has grown."""

MOST_ROWS = 512
"""The greatest capacity between changes: larger memtables cost more to insert into than a flush saves."""

MOST_ROWS_IF_FILLED_FAST, FEW_CHANGES, MANY_CHANGES = 1024, 16, 256
"""The same for a memtable that a few changes have filled, and how many these are: a flush costs 0.2 ms, and copying the
rows of a larger memtable in each change up to 10 us. After many small changes, it is small again."""

LARGEST_ROWS = 1 << 15
"""The greatest capacity during a change. An insertion moves up to that many rows, 0.1 ms at most; without room, all
operators would have to be visited in every round of a loop."""

MOST_DIMENSIONS = 2
"""Programs know one loop: the epoch and a round."""

CHECKS_BOUNDS = bool(os.environ.get("IKEBANA_CHECK_BOUNDS"))
GUARDS, GUARD = 8 if CHECKS_BOUNDS else 0, 0x5A
"""With this environment variable, there are cells behind the lanes and each piece of the heap that must not change.
`NUMBA_BOUNDSCHECK=1` checks the accesses to arrays, in kernels that were compiled with it."""

LEAST_HEAP, MOST_HEAP = 1 << 12, 1 << 16
"""The bytes for texts that an empty memtable has room for."""


def can_have_memtable(schema: Schema, dimensions: int) -> bool:
    """Whether programs can read and write a trace."""
    if schema.key.carried or schema.val.carried:
        return False
    return dimensions <= (1 if schema.hashed else MOST_DIMENSIONS)


class Memtable:
    """The latest rows of a trace."""

    outdated: ClassVar[int] = 0
    """How often a table of any memtable has become invalid: as long as that does not change, no address does."""

    def __init__(self, schema: Schema, dimensions: int) -> None:
        self._schema, self._dimensions = schema, dimensions
        self._snapshot: tuple[bytes, StoredBatch] | None = None
        self._batches: Sequence[StoredBatch] = ()
        self.has_collisions = False  # in some batch
        self.known_address = 0  # of the table; 0 if it must be made again
        self.most_rows = MOST_ROWS  # the greatest capacity between changes
        self.changes = 0  # made by programs since it was empty
        self._columns = payload_fields(schema)
        self._size = layout.CELLS + layout.COLUMN_CELLS * len(self._columns)  # of the cells of a batch
        self._table = np.zeros(layout.HEADER + self._size, np.int64)
        self._heap: list[Array] = []  # the bytes of texts, in pieces that are never written again
        self._first_payload = layout.FIRST_DIFF_LANE + len(schema.diffs)  # lane
        self._lane_count = self._first_payload + 2 * len(self._columns)
        self._allocate(min(FEW_ROWS, FEW_BYTES // (16 * self._lane_count) + 1))

    def _allocate(self, capacity: int) -> None:
        """Make an empty memtable of another capacity; the table must be made again."""
        first, lanes = self._first_payload, self._lane_count
        block = np.zeros(2 * lanes * capacity + GUARDS, np.int64)
        self._lanes, self._guards = (
            block[: 2 * lanes * capacity].reshape(lanes, 2 * capacity),
            block[len(block) - GUARDS :],
        )
        self._guards[:] = GUARD
        self.capacity = capacity
        table = self._table
        keys = self._schema.key.payload_columns
        table[: layout.HEAP] = 1, capacity, len(self._schema.diffs), -1, len(self._columns), keys
        start, pitch = address_of(self._lanes), 16 * capacity
        cells = table[layout.HEADER : layout.HEADER + self._size]
        cells[: layout.CELLS] = (
            0,
            start + pitch * layout.KEY_LANE,
            8,
            start + pitch * layout.VAL_LANE,
            8,
            0,
            0,
            start + pitch * layout.EPOCH_LANE,
            8,
            start + pitch * layout.ROUND_LANE,
            8,
            start + pitch * layout.FIRST_DIFF_LANE,
            8,
            pitch,
        )
        for number, field in enumerate(self._columns):
            place = start + pitch * (first + 2 * number)
            form = layout.TEXT_SLOT if slots.is_text(field.type) else layout.SLOT
            at = layout.CELLS + layout.COLUMN_CELLS * number
            cells[at : at + layout.COLUMN_CELLS] = form, place, 8, 0, place + pitch, 0
        self._version, self.known_address = -1, 0
        Memtable.outdated += 1

    def __len__(self) -> int:
        """The number of rows, without those of a program that has not committed."""
        saved = int(self._table[layout.SAVED])
        return int(self._table[layout.HEADER + layout.ROWS]) if saved < 0 else saved

    @property
    def _committed(self) -> Lane:
        """The rows, lane by lane, without those of a program that has not committed."""
        start = 0 if self._table[layout.SAVED] < 0 else self.capacity
        return self._lanes[:, start : start + len(self)]

    @property
    def nbytes(self) -> int:
        """The number of bytes that the memtable and its table take."""
        return self._lanes.nbytes + self._table.nbytes + sum(piece.nbytes for piece in self._heap)

    # Programs.

    def address(self, batches: Callable[[], Sequence[StoredBatch]], version: int) -> int:
        """The address of the table that describes the memtable and the batches of a version of the spine."""
        if self._version != version:
            self._describe(batches())
            self._version = version
        return self.known_address

    def release(self) -> None:
        """Let go of the batches: the table must be made again before it is read."""
        self._batches, self._version, self.known_address = (), -1, 0
        Memtable.outdated += 1

    @property
    def held(self) -> tuple[object, ...]:
        """What must be kept so that references to texts, which programs have read, stay valid."""
        return (*self._batches, *self._heap)

    def _describe(self, batches: Sequence[StoredBatch]) -> None:
        self._table = np.concatenate([self._table[: layout.HEADER + self._size], *map(cells_of, batches)])
        self._table[layout.BATCHES] = 1 + len(batches)
        self._batches, self.known_address = batches, address_of(self._table)
        self.has_collisions = any(len(batch.collided) for batch in batches)

    # Everybody else.

    def grow(self) -> bool:
        """Make room for what a program could not insert, if the memtable can have more; return whether it has.

        The program may have written rows before, which can still be undone.
        """
        if self._table[layout.WANTED_BYTES]:
            self._add_heap()
            return True
        if self.capacity == LARGEST_ROWS:
            return False
        rows, saved = int(self._table[layout.HEADER + layout.ROWS]), int(self._table[layout.SAVED])
        lanes, room = self._lanes, self.capacity
        self._allocate(min(GROWTH * room, self.most_rows if room < self.most_rows else LARGEST_ROWS))
        self._lanes[:, :rows] = lanes[:, :rows]
        if saved >= 0:
            self._lanes[:, self.capacity : self.capacity + saved] = lanes[:, room : room + saved]
        self._table[layout.HEADER + layout.ROWS], self._table[layout.SAVED] = rows, saved
        return True

    def _add_heap(self) -> None:
        """Make room for the texts that the last insertion lacked room for.

        A new piece is larger than the last one, which may have been empty: an insertion that needs more than a piece
        gets it after a few attempts.
        """
        wanted = GROWTH * int(self._table[layout.WANTED_BYTES])
        last = len(self._heap[-1]) if self._heap else 0
        self._open_heap(max(wanted, 2 * last, LEAST_HEAP))

    def _open_heap(self, size: int) -> None:
        piece = np.empty(size + GUARDS, np.uint8)
        piece[size:] = GUARD
        self._heap.append(piece)
        start = address_of(piece)
        self._table[layout.HEAP : layout.HEADER] = start, start + size, start, 0

    def check_bounds(self) -> None:
        """Raise if a program has written beyond the lanes, or beyond a piece of the heap."""
        table, rows = self._table, self._table[layout.HEADER + layout.ROWS]
        beyond = [self._guards, *(piece[len(piece) - GUARDS :] for piece in self._heap)]
        has_room = max(rows, table[layout.SAVED]) <= self.capacity and table[layout.HEAP] <= table[layout.HEAP_END]
        if not has_room or any((cells != GUARD).any() for cells in beyond):
            raise AssertionError(f"a program has written beyond the memtable of {self._schema!r}")

    def commit(self) -> None:
        """Keep what a program has written: it cannot be undone any more."""
        self._table[layout.SAVED] = -1

    def clear(self) -> None:
        """Remove all rows, and give back room that only a large change needed."""
        if 1 < self.changes < FEW_CHANGES:
            self.most_rows = min(GROWTH * self.most_rows, MOST_ROWS_IF_FILLED_FAST)
        elif self.changes > MANY_CHANGES:
            self.most_rows = MOST_ROWS
        if self.capacity > self.most_rows:
            self._allocate(self.most_rows)
        self.changes = 0
        self._table[layout.HEADER + layout.ROWS] = 0
        self._snapshot = None
        if self._heap:  # programs that wait may still read the old one
            used, self._heap = sum(piece.nbytes for piece in self._heap), []
            self._open_heap(min(max(used, LEAST_HEAP), MOST_HEAP))

    def batch(self, description: Description) -> StoredBatch:
        """The rows as a batch, which later insertions do not change."""
        lanes = self._committed
        content = lanes.tobytes()
        if self._snapshot is None or self._snapshot[0] != content:
            self._snapshot = content, self._stored(lanes.copy(), description)
        return self._snapshot[1].described(description)

    def _stored(self, lanes: Lane, description: Description) -> StoredBatch:
        times = lanes[layout.EPOCH_LANE : layout.EPOCH_LANE + self._dimensions].T
        table, tix = time_tables.distinct_times(np.ascontiguousarray(times))
        first = self._first_payload
        diffs = compressed_diffs(lanes[layout.FIRST_DIFF_LANE : first])
        key, val = lanes[layout.KEY_LANE], lanes[layout.VAL_LANE]
        payload = [
            slots.to_canonical(lanes[first + 2 * at], lanes[first + 2 * at + 1] if field.nullable else None, field)
            for at, field in enumerate(self._columns)
        ]
        updates = Updates(table, tix, diffs, self._schema, key, val, tuple(payload))
        return StoredBatch.of(Sorted(updates, constant(0, len(key)), NO_KEYS), description)
