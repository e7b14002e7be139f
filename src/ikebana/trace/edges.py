"""A layout for pairs of integers, such as the edges of a graph: each key once, with the offset of its rows.

The key lane of a graph's edges repeats every node as often as it has neighbours. Here a batch holds the
distinct keys and where the rows of each start (as compressed sparse rows do), so a key costs 16 bytes
however many rows it has, a row 8 bytes for its value, and `seek` searches the distinct keys only.

For schemas whose key and value are exact lanes. A window of rows spells out the key lane again, for its rows
alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from ikebana.encoding.lanes import Index, Lane, constant, gathered, held_bytes, room, trimmed
from ikebana.encoding.payload import Payload
from ikebana.encoding.schema import Schema
from ikebana.errors import SchemaError
from ikebana.kernels import match_keys, narrow_ranges, seek_ranges
from ikebana.trace.batch import FlatBuilder, LaneSlice
from ikebana.trace.description import Description
from ikebana.trace.updates import NO_KEYS, Sorted, Updates


@dataclass(frozen=True, slots=True, eq=False)
class EdgeBatch:
    """Rows without a key lane: distinct `keys`, and `offsets`, one more than there are keys."""

    schema: Schema
    keys: Lane
    offsets: Lane
    val: Lane
    times: Lane
    tix: Index
    diffs: Lane
    description: Description

    @property
    def payload(self) -> Payload:
        return ()

    @property
    def collided(self) -> Lane:
        return NO_KEYS

    @property
    def nbytes(self) -> int:
        return held_bytes(self.keys, self.offsets, self.val, self.tix, self.diffs) + self.times.nbytes

    def __len__(self) -> int:
        return len(self.val)

    def seek(self, keys: Lane) -> tuple[Lane, Lane]:
        starts, ends = seek_ranges(self.keys, keys)
        return self.offsets[starts], self.offsets[ends]

    def seek_values(self, keys: Lane, vals: Lane) -> tuple[Lane, Lane]:
        return narrow_ranges(self.val, *self.seek(keys), vals)

    def match(self, keys: Lane) -> Lane:
        found: Lane = match_keys(keys, self.keys)
        found[:, 2:] = self.offsets[found[:, 2:]]
        return found

    def gather(self, rows: Lane | None = None) -> Updates:
        if rows is None:
            window = self.window(0, len(self))
            return Updates(self.times, self.tix, self.diffs, self.schema, window.key, self.val, ())
        key = self.keys[np.searchsorted(self.offsets, rows, side="right") - 1]
        tix, diffs = gathered(self.tix, rows), gathered(self.diffs, rows)
        return Updates(self.times, tix, diffs, self.schema, key, self.val[rows], ())

    def pick(self, rows: Lane | None = None, columns: Collection[str] | None = None) -> Updates:
        return self.gather(rows)

    def window(self, start: int, end: int) -> LaneSlice:
        first = max(0, int(np.searchsorted(self.offsets, start, side="right")) - 1)
        last = int(np.searchsorted(self.offsets, end, side="left"))
        bounds = np.clip(self.offsets[first : last + 1], start, end)
        key = np.repeat(self.keys[first:last], np.diff(bounds))
        span = slice(start, end)
        return LaneSlice(key, self.val[span], constant(0, end - start), self.tix[span], self.diffs[:, span])

    def described(self, description: Description) -> EdgeBatch:
        return replace(self, description=description)


class EdgeBuilder:
    """A flat builder whose key lane is condensed as rows become final, and given up in the end."""

    def __init__(self, schema: Schema, times: Lane, rows: int) -> None:
        self._flat = FlatBuilder(schema, times, rows, NO_KEYS)
        self._keys, self._offsets = room(rows), room(rows + 1)
        self._count = self._final = 0

    @property
    def out(self) -> LaneSlice:
        return self._flat.out

    def commit(self, final: int) -> None:
        self._flat.commit(final)
        if final == self._final:
            return
        key = self._flat.out.key[self._final : final]
        starts = _starts(key)
        if self._count and key[0] == self._keys[self._count - 1]:
            starts = starts[1:]  # the rows of a key committed before go on
        end = self._count + len(starts)
        self._keys[self._count : end] = key[starts]
        self._offsets[self._count : end] = starts + self._final
        self._count, self._final = end, final

    def finish(self, payload: Payload, description: Description, varied: bool) -> EdgeBatch:
        flat = self._flat.finish(payload, description, varied).updates
        self._offsets[self._count] = self._final
        keys, offsets = trimmed(self._keys, self._count), trimmed(self._offsets, self._count + 1)
        return EdgeBatch(flat.schema, keys, offsets, flat.val, flat.times, flat.tix, flat.diffs, description)


class EdgeLayout:
    """Makes edge batches."""

    name = "edges"

    def store(self, rows: Sorted, description: Description) -> EdgeBatch:
        flat = rows.updates
        _check(flat.schema)
        starts = _starts(flat.key)
        offsets = np.append(starts, len(flat))
        return EdgeBatch(
            flat.schema, flat.key[starts], offsets, flat.val, flat.times, flat.tix, flat.diffs, description
        )

    def builder(self, schema: Schema, times: Lane, rows: int, collided: Lane) -> EdgeBuilder:
        return EdgeBuilder(schema, times, rows)


def _starts(key: Lane) -> Lane:
    """Where each distinct key starts in a sorted lane."""
    changes = np.ones(len(key), bool)
    np.not_equal(key[1:], key[:-1], out=changes[1:])
    return np.flatnonzero(changes)


def _check(schema: Schema) -> None:
    if schema.hashed:
        raise SchemaError(
            f"the edge layout cannot hold {schema}",
            detail="its key or value does not fit into 64 bits, and would be hashed",
            hint="use the flat layout, or integer keys and values",
        )


EDGES = EdgeLayout()
