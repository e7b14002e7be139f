"""Batches seen differently: wrappers that read the same index and copy nothing.

Each wraps a batch and is a batch to its readers: keys are sought in the wrapped index, and what differs is
applied to the rows that are gathered. The key stays as it is, which is what makes this possible.

| view | shows |
|---|---|
| `Filtered` | the rows for which a predicate holds |
| `Projected` | other value columns, computed from the row |
| `Negated` | every diff with its sign changed |
| `Entered` | times with one more coordinate, 0: the batch inside a loop |
| `Restricted` | the updates at some times only |
| `Advanced` | times advanced to a frontier: as compacted as a reader there may see it |

A predicate or projection takes the columns of some rows (a dict of Arrow arrays by name) and gives an array,
or columns, as long. It is applied every time rows are gathered, and must depend on nothing but them. If it has an
attribute `uses`, the names of the columns that it looks at, those who `pick` rows need not copy the others. Rows for
which it raises are not shown.

Cost: that of the wrapped batch, plus the function for the rows gathered. Not guaranteed: that the rows of a
key are in order of value, or that equal updates are added up; `len` counts the rows stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.bad_rows import set_apart
from ikebana.encoding.lanes import Array, Lane
from ikebana.encoding.schema import Schema
from ikebana.errors import SchemaError
from ikebana.time import Antichain
from ikebana.trace import timetable
from ikebana.trace.batch import Batch
from ikebana.trace.description import Description
from ikebana.trace.updates import Updates

Columns: TypeAlias = dict[str, pa.Array]
Predicate: TypeAlias = Callable[[Columns], Any]
Projection: TypeAlias = Callable[[Columns], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """Everything as it is in the batch wrapped."""

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
        """What readers see of updates of the batch."""
        return updates


@dataclass(frozen=True, slots=True, eq=False)
class Filtered(_View):
    """The rows for which `predicate` holds; where it is null it does not.

    If the predicate says that it `is_total`, a stored batch remembers for which of its rows it holds: then it can be
    asked about any row, without harm, and is equal to others that would say the same.
    """

    predicate: Predicate

    def pick(self, rows: Lane | None = None, columns: Collection[str] | None = None) -> Updates:
        uses = used(self.predicate)
        if self._pays_to_remember(rows):
            flags = self.batch.remembered(self.predicate, self._flags)  # type: ignore[attr-defined]
            return self.batch.pick(np.flatnonzero(flags) if rows is None else rows[flags[rows]], columns)
        return self.shown(self.batch.pick(rows, None if columns is None or uses is None else {*columns, *uses}))

    def _pays_to_remember(self, rows: Lane | None) -> bool:
        """Whether so much of a stored batch is read that it may well be asked about all its rows, once and for all."""
        can = hasattr(self.batch, "remembered") and getattr(self.predicate, "is_total", False)
        return can and (rows is None or len(rows) * _PART >= len(self.batch))

    def _flags(self) -> Array:
        """For each row of the batch, whether the predicate holds."""
        return row_flags(self.predicate(self.batch.pick(None, used(self.predicate)).columns()), len(self.batch))

    def shown(self, updates: Updates) -> Updates:
        return without_bad_rows(self._shown, updates, self.schema)

    def _shown(self, updates: Updates) -> Updates:
        return updates.where(row_flags(self.predicate(updates.columns()), len(updates)))


_PART = 4
"""A predicate is asked about all of a batch when one of so many rows is read."""


def without_bad_rows(function: Callable[[Updates], Updates], updates: Updates, schema: Schema) -> Updates:
    """A function of updates that treats each row by itself, for those rows for which it does not raise."""
    try:
        return function(updates)
    except Exception:
        nothing = Updates.empty(schema, updates.dimensions)
        return set_apart(lambda rows: function(updates.take(rows)), len(updates), lambda: nothing)[0]


def used(function: Predicate | Projection) -> Collection[str] | None:
    """The columns that a predicate or a projection looks at, if it says so."""
    return getattr(function, "uses", None)


def row_flags(chosen: Any, rows: int) -> Any:
    """What a predicate gave for some rows, as a NumPy array of booleans; null is false."""
    if isinstance(chosen, pa.Array | pa.ChunkedArray):
        chosen = chosen.fill_null(False) if types.is_boolean(chosen.type) else chosen
        chosen = chosen.to_numpy(zero_copy_only=False)
    flags = np.asarray(chosen)
    if flags.dtype != bool or flags.shape != (rows,):
        raise SchemaError(
            "a filter's predicate must give a boolean for each row",
            detail=f"it gave {flags.shape} of type {flags.dtype} for {rows} rows",
            hint="return a boolean Arrow or NumPy array as long as the columns it is given",
        )
    return flags


@dataclass(frozen=True, slots=True, eq=False)
class Projected(_View):
    """The key with the value columns of `projected`, computed by `projection`."""

    projected: Schema
    projection: Projection

    @property
    def schema(self) -> Schema:
        return self.projected

    def gather(self, rows: Lane | None = None) -> Updates:
        return self._shown(self.batch.gather(rows), self.projected)

    def pick(self, rows: Lane | None = None, columns: Collection[str] | None = None) -> Updates:
        picked = self.batch.pick(rows, used(self.projection))
        return self._shown(picked, self.projected.carrying(self.projected.val.fields))

    def _shown(self, updates: Updates, schema: Schema) -> Updates:
        return without_bad_rows(lambda rows: self._computed(rows, schema), updates, schema)

    def _computed(self, updates: Updates, schema: Schema) -> Updates:
        columns = updates.columns()
        keys = {field.name: columns[field.name] for field in schema.key.fields}
        computed = self.projection(columns)
        if not isinstance(computed, Mapping):
            raise SchemaError(
                "a projection must give its columns by name",
                detail=f"it gave a {type(computed).__name__}",
                hint=f"return a mapping with the columns {', '.join(repr(f.name) for f in self.schema.val.fields)}",
            )
        _, val, payload = schema.encode({**computed, **keys}, len(updates))
        kept = schema.key.payload_columns
        return replace(updates, schema=schema, val=val, payload=(*updates.payload[:kept], *payload[kept:]))


@dataclass(frozen=True, slots=True, eq=False)
class Negated(_View):
    """Every diff with its sign changed."""

    def shown(self, updates: Updates) -> Updates:
        return replace(updates, diffs=-updates.diffs)


@dataclass(frozen=True, slots=True, eq=False)
class EnteredBatch(_View):
    """The batch inside a loop: its updates are there from the first round."""

    @property
    def description(self) -> Description:
        return self.batch.description.enter()

    @property
    def times(self) -> Lane:
        return enter_times(self.batch.times)

    def shown(self, updates: Updates) -> Updates:
        return replace(updates, times=enter_times(updates.times))


def enter_times(times: Lane) -> Lane:
    """The times at the first round of a loop."""
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
        return timetable.compacted_times(self.batch.times, self.frontier)[0]

    def shown(self, updates: Updates) -> Updates:
        if not self.frontier:
            return updates
        return updates.with_times(timetable.advanced(updates.times, self.frontier))


@dataclass(frozen=True, slots=True, eq=False)
class Restricted(_View):
    """The updates whose times `choose` flags, given a table of times."""

    choose: Callable[[Lane], Any]

    def shown(self, updates: Updates) -> Updates:
        return updates.at_times(self.choose(updates.times))
