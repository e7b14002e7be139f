"""Batches: immutable, sorted, columnar updates for exactly the times in [lower, upper).

`Batch` is the interface that readers use: find the rows of some keys, and gather rows with their data. Operators
read anything that implements it, whether stored or a view of a stored batch (`ikebana.trace.views`).

`StoredBatch` is what the spine keeps and merges: sorted updates as lanes. `BatchBuilder` is the space into which a
merge writes its output.

Invariants of a stored batch: rows are in order of (key lane, ident, value lane, time); no two are equal in
all four; no diff is zero. `ident` is 0 except in the key lanes listed in `collided`.

Cost: `seek` gallops; `gather` copies the rows asked for; `window` is free.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from ikebana.encoding import canonical
from ikebana.encoding.lanes import (
    Array,
    Index,
    Lane,
    constant,
    constant_diffs,
    held_bytes,
    room,
    room_for_diffs,
    trimmed,
)
from ikebana.encoding.payload import Payload
from ikebana.encoding.schema import Schema
from ikebana.kernels import expand_ranges, match_keys, narrow_ranges, seek_ranges
from ikebana.trace.description import Description
from ikebana.trace.updates import Sorted, Updates


class Batch(Protocol):
    """What readers see of a batch."""

    @property
    def schema(self) -> Schema: ...
    @property
    def description(self) -> Description: ...
    @property
    def times(self) -> Lane:
        """The table of the times that occur."""
        ...

    @property
    def nbytes(self) -> int:
        """The bytes that the batch keeps in memory."""
        ...

    def __len__(self) -> int:
        """How many rows are stored; a view may show fewer."""
        ...

    def seek(self, keys: Lane) -> tuple[Lane, Lane]:
        """For each key lane (ascending) where its rows start and end."""
        ...

    def seek_values(self, keys: Lane, vals: Lane) -> tuple[Lane, Lane]:
        """The same for each key lane and value lane (ascending together); both are exact."""
        ...

    def match(self, keys: Lane) -> Lane:
        """The key lanes in common with `keys` (ascending, repeats allowed): start and end there, start and
        end here.

        Unlike `seek` it costs as little where `keys` is the longer of the two.
        """
        ...

    def gather(self, rows: Lane | None = None) -> Updates:
        """The named rows with their data, in the given order, or all; a view may leave some out."""
        ...

    def pick(self, rows: Lane | None = None, columns: Collection[str] | None = None) -> Updates:
        """The same for somebody who compares no values: these may only be carried, and columns not named left out."""
        ...


class LaneSlice(NamedTuple):
    """The lanes of consecutive rows."""

    key: Lane
    val: Lane
    ident: Lane
    tix: Index
    diffs: Lane


def rows_of(starts: Lane, ends: Lane) -> Lane:
    """Every row of the ranges that `seek` gives.

    >>> rows_of(np.array([0, 5]), np.array([2, 6])).tolist()
    [0, 1, 5]
    """
    rows = room(int((ends - starts).sum()))
    expand_ranges(starts, ends, rows)
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class StoredBatch:
    """A batch in memory: a lane for each field of the index. Constant lanes are stored once.

    `collided` lists, in ascending order, the key lanes in which rows with different data have equal lanes.
    """

    updates: Updates
    ident: Lane
    collided: Lane
    description: Description
    _remembered: dict[Any, Array] = field(default_factory=dict)

    @staticmethod
    def of(rows: Sorted, description: Description) -> StoredBatch:
        """A batch of sorted, consolidated updates."""
        return StoredBatch(rows.updates, rows.ident, rows.collided, description)

    @property
    def schema(self) -> Schema:
        return self.updates.schema

    def remembered(self, question: Any, answer: Callable[[], Array]) -> Array:
        """What the answer to a question about all rows was, or is: batches do not change."""
        if question not in self._remembered:
            self._remembered[question] = answer()
        return self._remembered[question]

    @property
    def times(self) -> Lane:
        return self.updates.times

    @property
    def payload(self) -> Payload:
        return self.updates.payload

    @property
    def nbytes(self) -> int:
        return self.updates.nbytes + held_bytes(self.ident, self.collided, *self._remembered.values())

    def __len__(self) -> int:
        return len(self.updates)

    def seek(self, keys: Lane) -> tuple[Lane, Lane]:
        return seek_ranges(self.updates.key, keys)

    def seek_values(self, keys: Lane, vals: Lane) -> tuple[Lane, Lane]:
        return narrow_ranges(self.updates.val, *self.seek(keys), vals)

    def match(self, keys: Lane) -> Lane:
        return match_keys(keys, self.updates.key)

    def gather(self, rows: Lane | None = None) -> Updates:
        return self.updates if rows is None else self.updates.take(rows)

    def pick(self, rows: Lane | None = None, columns: Collection[str] | None = None) -> Updates:
        updates, schema = self.updates, self.schema
        if schema.val.exact or columns is None:
            return self.gather(rows)
        split, carried = schema.key.payload_columns, schema.carrying_some(columns)
        fields = carried.val.fields
        wanted = [at for at, each in enumerate(schema.val.fields) if each.name in columns]
        few = replace(
            updates,
            schema=carried,
            val=constant(0, len(updates)),
            payload=(*updates.payload[:split], *(updates.payload[split + at] for at in wanted)),
        )
        picked = few if rows is None else few.take(rows)
        values = picked.payload[split:]
        shown = (canonical.declared(array, each) for array, each in zip(values, fields, strict=True))
        return replace(picked, payload=(*picked.payload[:split], *shown))

    def window(self, start: int, end: int) -> LaneSlice:
        """The lanes of the rows from `start` up to `end`, without a copy."""
        u, span = self.updates, slice(start, end)
        return LaneSlice(u.key[span], u.val[span], self.ident[span], u.tix[span], u.diffs[:, span])

    def described(self, description: Description) -> StoredBatch:
        """The same rows under another description."""
        return replace(self, description=description)


class BatchBuilder:
    """Space for the output of a merge: at most `rows` rows with times from the table `times`.

    The merge writes into `out`. Lanes known to be constant take no space.
    """

    def __init__(self, schema: Schema, times: Lane, rows: int, collided: Lane) -> None:
        self._schema, self._times, self._collided = schema, times, collided
        self.out = LaneSlice(
            room(rows) if schema.key.fields else constant(0, rows),
            room(rows) if schema.val.fields else constant(0, rows),
            room(rows) if len(collided) else constant(0, rows),
            room(rows, np.int32) if len(times) > 1 else constant(0, rows, np.int32),
            room_for_diffs(len(schema.diffs), rows),
        )

    def finish(self, rows: int, payload: Payload, description: Description, varied: bool) -> StoredBatch:
        """Return the batch of the first `rows` rows; `varied` is false if all their diffs are equal."""
        out = self.out
        diffs = trimmed(out.diffs, rows) if varied or not rows else constant_diffs(out.diffs[:, 0].copy(), rows)
        key, val, tix = trimmed(out.key, rows), trimmed(out.val, rows), trimmed(out.tix, rows)
        updates = Updates(self._times, tix, diffs, self._schema, key, val, payload)
        return StoredBatch(updates, trimmed(out.ident, rows), self._collided, description)
