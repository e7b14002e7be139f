"""Views of batches: wrappers that read the same index and copy nothing.

A view wraps a batch and is itself a batch to its readers: keys are sought in the wrapped index, and the view is
applied to the rows that are gathered. This is possible because a view never changes the key.

| view | shows |
|---|---|
| `Filtered` | the rows for which a predicate holds |
| `Projected` | other value columns, computed from the row |
| `Negated` | every diff with its sign changed |
| `EnteredBatch` | times with one more coordinate, 0: the batch inside a loop |
| `Restricted` | only the updates at some times |
| `Advanced` | times advanced to a frontier: as compacted as a reader at that frontier may see the batch |
| `Coalesced` | successive epochs as the last of them: as a sweep sees them whose epochs no reader tells apart |

A predicate or projection takes the columns of some rows (Arrow arrays by name) and returns an array, or columns, of
the same length. It is evaluated whenever rows are gathered, and must depend on nothing but the row. Rows for which it
raises are not shown. It may declare more about itself: see `RowFunction`.

Cost: that of the wrapped batch, plus the function for the gathered rows. Not guaranteed: that the rows of a key are in
order of value, or that equal updates are added up; `len` counts the stored rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import unpack_bits
from ikebana.encoding.bad_rows import separate_bad_rows
from ikebana.encoding.columns import match_columns
from ikebana.encoding.lanes import Array, Lane
from ikebana.encoding.schema import Schema
from ikebana.errors import SchemaError
from ikebana.time import Antichain
from ikebana.trace import time_tables
from ikebana.trace.batch import Batch, StoredBatch
from ikebana.trace.description import Description
from ikebana.trace.updates import Updates

CACHING_FRACTION = 4
"""A total predicate is evaluated for a whole batch once at least one in this many rows is read."""

Columns: TypeAlias = dict[str, pa.Array]


class RowFunction(Protocol):
    """A predicate or projection that declares which columns it reads and whether it may raise.

    Equal functions must return equal results: what one of them returned may be used for the other. A plain function
    declares nothing: it is given all columns, and evaluated whenever rows are gathered.
    """

    @property
    def uses(self) -> Collection[str] | None:
        """The names of the columns that it reads, None for all; `pick` need not copy the others."""
        ...

    @property
    def is_total(self) -> bool:
        """Whether it returns a result for every possible row, and never raises."""
        ...

    def __call__(self, columns: Columns, /) -> Any: ...


Predicate: TypeAlias = RowFunction | Callable[[Columns], Any]
Projection: TypeAlias = RowFunction | Callable[[Columns], Mapping[str, Any]]


def used_columns(function: Predicate | Projection) -> Collection[str] | None:
    """Return the columns that a function declares to read; None if it reads all or declares nothing."""
    return getattr(function, "uses", None)


def is_total(function: Predicate | Projection) -> bool:
    """Whether a function declares that it never raises."""
    return getattr(function, "is_total", False)


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """The wrapped batch unchanged: the base of the views."""

    batch: Batch

    @property
    def schema(self) -> Schema:
        return self.batch.schema

    @property
    def description(self) -> Description:
        return self.batch.description

    @property
    def times(self) -> Lane:
        return self.batch.times

    @property
    def nbytes(self) -> int:
        return self.batch.nbytes

    def __len__(self) -> int:
        return len(self.batch)

    def seek(self, keys: Lane) -> tuple[Lane, Lane]:
        return self.batch.seek(keys)

    def seek_values(self, keys: Lane, vals: Lane) -> tuple[Lane, Lane]:
        return self.batch.seek_values(keys, vals)

    def match(self, keys: Lane) -> Lane:
        return self.batch.match(keys)

    def gather(self, rows: Lane | None = None) -> Updates:
        return self.shown(self.batch.gather(rows))

    def pick(self, rows: Lane | None = None, columns: Collection[str] | None = None) -> Updates:
        return self.shown(self.batch.pick(rows, columns))

    def shown(self, updates: Updates) -> Updates:
        """Return what readers see of updates of the batch."""
        return updates


@dataclass(frozen=True, slots=True, eq=False)
class Filtered(_View):
    """The rows for which `predicate` is true: neither false nor null.

    A stored batch, at whatever times it is seen, caches for which of its rows a total predicate holds.
    """

    predicate: Predicate

    def pick(self, rows: Lane | None = None, columns: Collection[str] | None = None) -> Updates:
        flags = self._cached_flags(rows)
        if flags is not None:
            return self.batch.pick(np.flatnonzero(flags) if rows is None else rows[flags[rows]], columns)
        uses = used_columns(self.predicate)
        return self.shown(self.batch.pick(rows, None if columns is None or uses is None else {*columns, *uses}))

    def _cached_flags(self, rows: Lane | None) -> Array | None:
        """Whether the predicate holds, for all rows of the batch, if it pays to compute and cache that."""
        batch = under_times(self.batch)  # which has the same rows
        if not isinstance(batch, StoredBatch) or not is_total(self.predicate):
            return None
        if rows is not None and len(rows) * CACHING_FRACTION < len(batch):
            return None
        return batch.cached_flags(self.predicate, self._flags)

    def _flags(self) -> Array:
        """Whether the predicate holds, for each row of the batch."""
        picked = self.batch.pick(None, used_columns(self.predicate))
        return row_flags(self.predicate(picked.columns()), len(self.batch))

    def shown(self, updates: Updates) -> Updates:
        return without_bad_rows(self._shown, updates, self.schema)

    def _shown(self, updates: Updates) -> Updates:
        return updates.where(row_flags(self.predicate(updates.columns()), len(updates)))


def without_bad_rows(function: Callable[[Updates], Updates], updates: Updates, schema: Schema) -> Updates:
    """Apply a function that treats each row by itself to the rows for which it does not raise."""
    try:
        return function(updates)
    except Exception:
        nothing = Updates.empty(schema, updates.dimensions)
        return separate_bad_rows(lambda rows: function(updates.take(rows)), len(updates), lambda: nothing)[0]


def row_flags(result: Any, rows: int) -> Any:
    """Convert the result of a predicate for some rows to a NumPy array of booleans; null becomes false."""
    if isinstance(result, pa.BooleanArray):
        result = unpack_bits(result.fill_null(False) if result.null_count else result)
    elif isinstance(result, pa.Array | pa.ChunkedArray):
        result = result.fill_null(False) if types.is_boolean(result.type) else result
        result = result.to_numpy(zero_copy_only=False)
    flags = np.asarray(result)
    if flags.dtype != bool or flags.shape != (rows,):
        raise SchemaError(
            "a filter's predicate must return a boolean for each row",
            detail=f"it returned an array of shape {flags.shape} and type {flags.dtype} for {rows} rows",
            hint="return a boolean Arrow or NumPy array of the same length as the columns",
        )
    return flags


@dataclass(frozen=True, slots=True, eq=False)
class Projected(_View):
    """The key, and the value columns of the schema `projected`, computed by `projection`."""

    projected: Schema
    projection: Projection

    @property
    def schema(self) -> Schema:
        return self.projected

    def gather(self, rows: Lane | None = None) -> Updates:
        return self._shown(self.batch.gather(rows), self.projected)

    def pick(self, rows: Lane | None = None, columns: Collection[str] | None = None) -> Updates:
        picked = self.batch.pick(rows, used_columns(self.projection))
        return self._shown(picked, self.projected.carrying(self.projected.val.fields))

    def _shown(self, updates: Updates, schema: Schema) -> Updates:
        return without_bad_rows(lambda rows: self._computed(rows, schema), updates, schema)

    def _computed(self, updates: Updates, schema: Schema) -> Updates:
        columns = updates.columns()
        keys = {field.name: columns[field.name] for field in schema.key.fields}
        computed = self.projection(columns)
        if not isinstance(computed, Mapping):
            raise SchemaError(
                "a projection must return its columns by name",
                detail=f"it returned a {type(computed).__name__}",
                hint=f"return a mapping with the columns {', '.join(repr(f.name) for f in self.schema.val.fields)}",
            )
        arrays = match_columns({**computed, **keys}, (*schema.key.fields, *schema.val.fields))
        val, payload = schema.val.encode(arrays[len(keys) :], len(updates))
        split = schema.key.payload_columns
        return replace(updates, schema=schema, val=val, payload=(*updates.payload[:split], *payload))


@dataclass(frozen=True, slots=True, eq=False)
class Negated(_View):
    """Every diff with its sign changed."""

    def shown(self, updates: Updates) -> Updates:
        return replace(updates, diffs=-updates.diffs)


@dataclass(frozen=True, slots=True, eq=False)
class EnteredBatch(_View):
    """The batch inside a loop: its updates are at the first round."""

    @property
    def description(self) -> Description:
        return self.batch.description.enter()

    @property
    def times(self) -> Lane:
        return enter_times(self.batch.times)

    def shown(self, updates: Updates) -> Updates:
        return replace(updates, times=enter_times(updates.times))


def enter_times(times: Lane) -> Lane:
    """Return the times at the first round of a loop."""
    entered = np.zeros((len(times), times.shape[1] + 1), np.int64)
    entered[:, :-1] = times
    return entered


@dataclass(frozen=True, slots=True, eq=False)
class Advanced(_View):
    """Times advanced to `frontier`."""

    frontier: Antichain

    @property
    def description(self) -> Description:
        return replace(self.batch.description, since=self.batch.description.since.join(self.frontier))

    @property
    def times(self) -> Lane:
        return time_tables.compacted_times(self.batch.times, self.frontier)[0]

    def shown(self, updates: Updates) -> Updates:
        if not self.frontier:
            return updates
        return updates.with_times(time_tables.advanced(updates.times, self.frontier))


@dataclass(frozen=True, slots=True, eq=False)
class Coalesced(_View):
    """The epochs from `lower` to `epoch` as `epoch`; other times as they are."""

    lower: int
    epoch: int

    @property
    def times(self) -> Lane:
        return time_tables.distinct_times(self.moved(self.batch.times))[0]

    def shown(self, updates: Updates) -> Updates:
        return updates.with_times(self.moved(updates.times))

    def moved(self, times: Lane) -> Lane:
        """Return the times as which those of a table are seen, in the same order."""
        epochs = times[:, 0]
        moved = times.copy()
        moved[(epochs >= self.lower) & (epochs <= self.epoch), 0] = self.epoch
        return moved


def under_times(batch: Batch) -> Batch:
    """Return the batch under views that change nothing but times."""
    while isinstance(batch, Advanced | Coalesced):
        batch = batch.batch
    return batch


def rows_in_place(batch: Batch) -> Updates | None:
    """Return all rows of a batch without a copy; None for views that compute other rows.

    If times are changed, the table may have equal times.
    """
    if isinstance(batch, StoredBatch):
        return batch.updates
    if not isinstance(batch, Advanced | Coalesced):
        return None
    updates = rows_in_place(batch.batch)
    if updates is None:
        return None
    if isinstance(batch, Coalesced):
        return replace(updates, times=batch.moved(updates.times))
    return replace(updates, times=time_tables.advanced(updates.times, batch.frontier)) if batch.frontier else updates


@dataclass(frozen=True, slots=True, eq=False)
class Restricted(_View):
    """The updates at the times that `choose` flags in a table of times."""

    choose: Callable[[Lane], Any]

    def shown(self, updates: Updates) -> Updates:
        return updates.at_times(self.choose(updates.times))
