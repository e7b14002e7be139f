"""Batches: immutable, sorted, columnar updates for exactly the times in [lower, upper).

`Batch` is the interface that readers use: find the rows of some keys, and gather rows with their data. Operators
read anything that implements it, whether stored or a view of a stored batch (`ikebana.trace.views`).

`StoredBatch` is what the spine keeps and merges: sorted updates as lanes. `BatchBuilder` is the space into which a
merge writes its output.

Invariants of a stored batch: rows are in order of (key lane, ident, value lane, time); no two rows are equal in
all four; no diff is zero. `ident` is 0 except in the key lanes listed in `collided`.

Cost: `seek` gallops; `gather` copies the requested rows; `window` is free.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any, NamedTuple, Protocol

import numpy as np

from ikebana.encoding import canonical
from ikebana.encoding.lanes import (
    Array,
    Index,
    Lane,
    constant,
    constant_diffs,
    empty_lane,
    held_bytes,
)
from ikebana.encoding.payload import Payload
from ikebana.encoding.schema import Schema
from ikebana.encoding.spaces import Space
from ikebana.kernels import expand_ranges, match_keys, narrow_ranges
from ikebana.time import Antichain
from ikebana.trace import time_tables
from ikebana.trace.description import Description
from ikebana.trace.key_search import KeySearch
from ikebana.trace.updates import Sorted, Updates

CACHED_PREDICATES = 64
"""A stored batch caches the flags of at most this many predicates."""


class Batch(Protocol):
    """The interface of a batch to its readers."""

    @property
    def schema(self) -> Schema: ...
    @property
    def description(self) -> Description: ...
    @property
    def times(self) -> Lane:
        """The table of the distinct times of the rows."""
        ...

    @property
    def nbytes(self) -> int:
        """The number of bytes that the batch takes, in memory and in mapped files."""
        ...

    def __len__(self) -> int:
        """The number of stored rows; a view may show fewer."""
        ...

    def seek(self, keys: Lane) -> tuple[Lane, Lane]:
        """Return where the rows of each key lane start and end; `keys` is ascending."""
        ...

    def seek_values(self, keys: Lane, vals: Lane) -> tuple[Lane, Lane]:
        """Like `seek`, for pairs of a key lane and a value lane, in ascending order; both lanes are exact."""
        ...

    def match(self, keys: Lane) -> Lane:
        """Return, for each key lane that is also in `keys`, its start and end in `keys` and its start and end here.

        `keys` is ascending and may repeat. Unlike `seek`, this is as cheap if `keys` is the longer of the two.
        """
        ...

    def gather(self, rows: Lane | None = None) -> Updates:
        """Return the rows at the given positions, in that order, or all rows; a view may leave out some."""
        ...

    def pick(self, rows: Lane | None = None, columns: Collection[str] | None = None) -> Updates:
        """Like `gather`, but the value lanes may be meaningless and only `columns` are returned."""
        ...


class LaneSlice(NamedTuple):
    """The lanes of consecutive rows."""

    key: Lane
    val: Lane
    ident: Lane
    tix: Index
    diffs: Lane


def rows_of(starts: Lane, ends: Lane) -> Lane:
    """Return the positions of all rows of the ranges that `seek` returns.

    >>> rows_of(np.array([0, 5]), np.array([2, 6])).tolist()
    [0, 1, 5]
    """
    rows = empty_lane(int((ends - starts).sum()))
    expand_ranges(starts, ends, rows)
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class StoredBatch:
    """A batch in memory, or in mapped files: a lane for each field of the index. Constant lanes are stored once.

    `collided` lists, in ascending order, the key lanes in which rows with different data have equal lanes.
    """

    updates: Updates
    ident: Lane
    collided: Lane
    description: Description
    mapped_bytes: int = 0
    """How many of its bytes are in mapped files, which the system can evict from memory."""
    _flags_cache: dict[Any, Array] = dataclass_field(default_factory=dict)
    _search: KeySearch = dataclass_field(default_factory=KeySearch)
    _row_bytes: list[int] = dataclass_field(default_factory=list)  # empty until they are asked for
    addresses: list[Lane] = dataclass_field(default_factory=list)
    """Where the lanes are, for programs: empty, or as `ikebana.trace.cells` has written it."""

    @staticmethod
    def of(rows: Sorted, description: Description) -> StoredBatch:
        """Return a batch of sorted, consolidated updates."""
        return StoredBatch(rows.updates, rows.ident, rows.collided, description)

    @property
    def schema(self) -> Schema:
        return self.updates.schema

    def cached_flags(self, predicate: Any, compute: Callable[[], Array]) -> Array:
        """Return a flag for each row, computed once for equal predicates: batches are immutable."""
        cache = self._flags_cache
        if predicate not in cache:
            if len(cache) == CACHED_PREDICATES:
                del cache[next(iter(cache))]
            cache[predicate] = compute()
        return cache[predicate]

    @property
    def times(self) -> Lane:
        return self.updates.times

    @property
    def payload(self) -> Payload:
        return self.updates.payload

    @property
    def nbytes(self) -> int:
        if not self._row_bytes:
            self._row_bytes.append(self.updates.nbytes + held_bytes(self.ident, self.collided))
        return self._row_bytes[0] + held_bytes(*self._flags_cache.values()) + self._search.nbytes

    def __len__(self) -> int:
        return len(self.updates)

    def seek(self, keys: Lane) -> tuple[Lane, Lane]:
        return self._search.ranges(self.updates.key, keys)

    def seek_values(self, keys: Lane, vals: Lane) -> tuple[Lane, Lane]:
        ranges = self.seek(keys)
        return narrow_ranges(self.updates.val, *ranges, vals) if self.schema.val.fields else ranges

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
        positions = [split + at for at, field in enumerate(schema.val.fields) if field.name in columns]
        narrowed = replace(
            updates,
            schema=carried,
            val=constant(0, len(updates)),
            payload=(*updates.payload[:split], *(updates.payload[at] for at in positions)),
        )
        picked = narrowed if rows is None else narrowed.take(rows)
        stored = picked.payload[split:]
        values = (canonical.declared(array, field) for array, field in zip(stored, fields, strict=True))
        return replace(picked, payload=(*picked.payload[:split], *values))

    def window(self, start: int, end: int) -> LaneSlice:
        """The lanes of the rows from `start` up to `end`, without a copy."""
        u, span = self.updates, slice(start, end)
        return LaneSlice(u.key[span], u.val[span], self.ident[span], u.tix[span], u.diffs[:, span])

    def advanced(self, since: Antichain) -> StoredBatch:
        """The same rows, which have one time, at this time advanced to a frontier."""
        times = time_tables.advanced(self.times, since)
        return replace(self, updates=replace(self.updates, times=times), addresses=[])

    def described(self, description: Description) -> StoredBatch:
        """The same rows under another description."""
        return replace(self, description=description)


class BatchBuilder:
    """Space for the output of a merge: at most `rows` rows with times from the table `times`.

    The merge writes into `out`, a little at a time. Lanes known to be constant take no space.
    """

    def __init__(self, schema: Schema, times: Lane, rows: int, collided: Lane, space: Space) -> None:
        self._schema, self._times, self._collided, self._space = schema, times, collided, space
        self.out = LaneSlice(
            space.empty(rows) if schema.key.fields else constant(0, rows),
            space.empty(rows) if schema.val.fields else constant(0, rows),
            space.empty(rows) if len(collided) else constant(0, rows),
            space.empty(rows, np.int32) if len(times) > 1 else constant(0, rows, np.int32),
            space.empty((len(schema.diffs), rows)),
        )

    def finish(self, rows: int, payload: Payload, description: Description, varied: bool) -> StoredBatch:
        """Return the batch of the first `rows` rows; `varied` is false if all their diffs are equal."""
        out, space = self.out, self._space
        key, val, ident, tix = (space.trimmed(lane, rows) for lane in (out.key, out.val, out.ident, out.tix))
        if varied or not rows:
            diffs = space.trimmed(out.diffs, rows)
        else:
            diffs = constant_diffs(out.diffs[:, 0].copy(), rows)
            space.free(out.diffs)
        updates = Updates(self._times, tix, diffs, self._schema, key, val, payload)
        return StoredBatch(updates, ident, self._collided, description, space.mapped_bytes)
