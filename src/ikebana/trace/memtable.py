"""The memtable of a trace: its latest rows, in a form that compiled programs write; and the table by which they read.

A program (`ikebana.kernels.program`) adds a few rows to a trace in nanoseconds, where a batch takes a hundred
microseconds to seal and to store. The rows of a memtable are sorted like those of a batch. To all other readers the
memtable is the newest batch of the trace. When it is full, or the trace is given a batch, its rows become a batch of
the spine (*spill*).

A table of integers describes the trace by addresses (`ikebana.kernels.addresses`): the memtable, and all batches of the
spine. The memtable holds on to these batches, and makes the table again when the spine has changed.

A program that waits for other workers has not committed what it has written: nobody else sees these rows yet.

Only traces whose lanes are exact have a memtable: rows have no payload. Times have one or two coordinates.

Invariants: rows are in order of (key, value, time), no two are equal in all three, no diff is zero.

Cost: `MOST_ROWS` rows at most, so that an insertion moves few; memory for `FEW_ROWS` at first. A single change may need
up to `LARGEST_ROWS`: then there is room for these until the change is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ikebana.encoding.lanes import Array, Lane, constant
from ikebana.encoding.schema import Schema
from ikebana.kernels import layout
from ikebana.trace import time_tables
from ikebana.trace.batch import StoredBatch
from ikebana.trace.description import Description
from ikebana.trace.updates import NO_KEYS, Sorted, Updates, compressed_diffs

FEW_ROWS = 64
"""The capacity of a new memtable."""

MOST_ROWS = 512
"""The greatest capacity between changes: larger memtables cost more to insert into than a spill saves."""

LARGEST_ROWS = 8192
"""The greatest capacity during a change. An insertion moves up to that many rows, a few microseconds; without room, all
operators would have to be visited in every round of a loop."""

MOST_DIMENSIONS = 2
"""Programs know one loop: the epoch and a round."""


def can_have_memtable(schema: Schema, dimensions: int) -> bool:
    """Whether programs can read and write a trace."""
    return not schema.hashed and dimensions <= MOST_DIMENSIONS


class Memtable:
    """The latest rows of a trace."""

    def __init__(self, schema: Schema, dimensions: int) -> None:
        self._schema, self._dimensions = schema, dimensions
        self._snapshot: tuple[bytes, StoredBatch] | None = None
        self._batches: Sequence[StoredBatch] = ()
        self._arrays: list[Lane] = []
        self._table = np.zeros(layout.HEADER + layout.CELLS, np.int64)
        self._allocate(FEW_ROWS)

    def _allocate(self, capacity: int) -> None:
        """Make an empty memtable of another capacity; the table must be made again."""
        lanes = layout.FIRST_DIFF_LANE + len(self._schema.diffs)
        self._lanes = np.zeros((lanes, 2 * capacity), np.int64)
        self.capacity = capacity
        table = self._table
        table[: layout.HEADER] = 1, capacity, len(self._schema.diffs), -1
        start, pitch = address_of(self._lanes), 16 * capacity
        cells = table[layout.HEADER : layout.HEADER + layout.CELLS]
        cells[:] = (
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
        self._version = -1

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
        return self._lanes.nbytes + self._table.nbytes

    # Programs.

    def address(self, batches: Callable[[], Sequence[StoredBatch]], version: int) -> int:
        """The address of the table that describes the memtable and the batches of a version of the spine."""
        if self._version != version:
            self._describe(batches())
            self._version = version
        return self._address

    def release(self) -> None:
        """Let go of the batches: the table must be made again before it is read."""
        self._batches, self._arrays, self._version = (), [], -1

    def _describe(self, batches: Sequence[StoredBatch]) -> None:
        head = layout.HEADER + layout.CELLS
        table = np.empty(head + layout.CELLS * len(batches), np.int64)
        table[:head] = self._table[:head]
        table[layout.BATCHES] = 1 + len(batches)
        self._batches, self._arrays = batches, []
        for number, batch in enumerate(batches):
            start = head + number * layout.CELLS
            table[start : start + layout.CELLS] = self._cells(batch)
        self._table, self._address = table, address_of(table)

    def _cells(self, batch: StoredBatch) -> list[int]:
        """The addresses and strides of a batch's lanes."""
        updates = batch.updates
        times = np.ascontiguousarray(updates.times)
        self._arrays.append(times)
        epoch, step = address_of(times), times.strides[0]
        round_ = epoch + 8 if times.shape[1] > 1 else 0
        key, val, tix, diffs = updates.key, updates.val, updates.tix, updates.diffs
        return [
            len(batch),
            address_of(key),
            key.strides[0],
            address_of(val),
            val.strides[0],
            address_of(tix),
            tix.strides[0],
            epoch,
            step,
            round_,
            step,
            address_of(diffs),
            diffs.strides[1],
            diffs.strides[0],
        ]

    # Everybody else.

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        rows, lanes = len(self), self._lanes
        self._allocate(capacity)
        self._lanes[:, :rows] = lanes[:, :rows]
        self._table[layout.HEADER + layout.ROWS] = rows

    def commit(self) -> None:
        """Keep what a program has written: it cannot be undone any more."""
        self._table[layout.SAVED] = -1

    def clear(self) -> None:
        """Remove all rows, and give back room that only a large change needed."""
        if self.capacity > MOST_ROWS:
            self._allocate(MOST_ROWS)
        self._table[layout.HEADER + layout.ROWS] = 0
        self._snapshot = None

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
        diffs = compressed_diffs(lanes[layout.FIRST_DIFF_LANE :])
        key, val = lanes[layout.KEY_LANE], lanes[layout.VAL_LANE]
        updates = Updates(table, tix, diffs, self._schema, key, val, ())
        return StoredBatch.of(Sorted(updates, constant(0, len(key)), NO_KEYS), description)


def address_of(array: Array) -> int:
    """The address of an array's first cell."""
    return int(array.__array_interface__["data"][0])
