"""Reading a trace: exact contents at a time, look-ups by key, and views of a trace.

A `Reader` has a list of batches, a frontier and an upper frontier. What the batches accumulate to at a time
is exact if the time is beyond the frontier (otherwise history may have been compacted past it) and not beyond the
upper frontier (otherwise updates may still arrive). Handles are readers, and so are the views of them that
`filter`, `project`, `negate` and `enter` return: arrangements that share the index of the handle.

Cost: `read` takes time in proportion to the whole trace, `lookup` in proportion to the rows of its keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from ikebana.encoding import payload as payloads
from ikebana.encoding.lanes import Lane, constant
from ikebana.encoding.schema import Fields, Schema
from ikebana.errors import SchemaError, TimeError
from ikebana.kernels import accumulate_rows, expand_pairs, match_keys
from ikebana.time import Antichain, Time
from ikebana.trace import time_tables
from ikebana.trace.batch import Batch, rows_of
from ikebana.trace.updates import Updates, sort_updates
from ikebana.trace.views import EnteredBatch, Filtered, Negated, Predicate, Projected, Projection

if TYPE_CHECKING:
    from ikebana.trace.handle import BatchQueue

Wrap: TypeAlias = Callable[[Batch], Batch]


class Reader(ABC):
    """A changing collection that can be read at a time."""

    name: str

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns."""

    @property
    @abstractmethod
    def frontier(self) -> Antichain:
        """Reads at times beyond it are exact."""

    @property
    @abstractmethod
    def upper(self) -> Antichain:
        """The times not received yet: times not beyond it are complete."""

    @abstractmethod
    def batches(self) -> list[Batch]:
        """Return the batches, oldest first."""

    @abstractmethod
    def import_(self, wrap: Wrap = lambda batch: batch) -> BatchQueue:
        """Return a queue with the history and then each new batch, all seen through `wrap`."""

    def read(self, at: Time) -> pa.Table:
        """Return the collection at a time: key columns, value columns and accumulated diffs, in any order."""
        at = self.exact(at)
        return accumulate([batch.gather() for batch in self.batches()], self.schema, at).to_table()

    def lookup(self, keys: Any, at: Time) -> pa.Table:
        """Like `read`, but only the rows of some `keys`: a mapping from the names of the key columns to columns."""
        at = self.exact(at)
        probes = Updates.of(self.schema.with_val(()), keys, at, dict.fromkeys(self.schema.diffs, 1))
        lanes = np.unique(probes.key)
        parts = [batch.gather(rows_of(*batch.seek(lanes))) for batch in self.batches()]
        rows = accumulate(parts, self.schema, at)
        return (rows if self.schema.key.exact else _with_key(rows, probes)).to_table()

    def updates(self) -> Updates:
        """Return all stored updates, oldest batch first."""
        nothing = Updates.empty(self.schema, self.upper.dimensions or self.frontier.dimensions or 1)
        return Updates.concat([batch.gather() for batch in self.batches()] or [nothing])

    def filter(self, predicate: Predicate) -> Reader:
        """Return a view of the rows for which `predicate` holds, read from the same index."""
        return ReaderView(self, self.schema, lambda batch: Filtered(batch, predicate))

    def project(self, val: Sequence[str] | Fields, projection: Projection | None = None) -> Reader:
        """Return a view of the same keys with other value columns, read from the same index.

        Give either the names of value columns to keep, or the types of new value columns and a function that computes
        them.
        """
        if projection is None:
            names = list(val)
            schema = self.schema.with_val([self._value_field(name) for name in names])
            return self._project(schema, lambda columns: {name: columns[name] for name in names})
        return self._project(self.schema.with_val(val), projection)

    def _project(self, schema: Schema, projection: Projection) -> Reader:
        return ReaderView(self, schema, lambda batch: Projected(batch, schema, projection))

    def _value_field(self, name: Any) -> pa.Field:
        known = {field.name: field for field in self.schema.val.fields}
        if name not in known:
            raise SchemaError(
                f"{self.name!r} has no value column {name!r}",
                detail=f"its value columns are {', '.join(map(repr, known)) or 'none'}",
                hint="name existing value columns, or give the types of new ones and a function that computes them",
            )
        return known[name]

    def negate(self) -> Reader:
        """Return a view with the sign of every diff changed, read from the same index."""
        return ReaderView(self, self.schema, Negated)

    def enter(self) -> Reader:
        """Return a view of the collection inside a loop: its times have one more coordinate."""
        return ReaderView(self, self.schema, EnteredBatch, Antichain.enter)

    def exact(self, at: Time) -> Time:
        """Return the time, or raise if what the batches accumulate to at that time is not exact."""
        (at,) = Antichain.of(at)
        if not self.frontier.less_equal(at):
            raise TimeError(
                f"cannot read {self.name!r} at {at}",
                detail=f"its handle's frontier is {self.frontier}, and history before it may be compacted",
                hint=f"read at a time beyond {self.frontier}, or keep a handle with an earlier frontier",
            )
        if self.upper.less_equal(at):
            raise TimeError(
                f"cannot read {self.name!r} at {at} yet",
                detail=f"it is complete only before {self.upper}",
                hint="advance its input past that time first, or read at an earlier time",
            )
        return at


class ReaderView(Reader):
    """The batches of another reader, each seen through `wrap`. It is valid as long as the handle behind it."""

    def __init__(
        self,
        base: Reader,
        schema: Schema,
        wrap: Wrap,
        map_frontier: Callable[[Antichain], Antichain] = lambda frontier: frontier,
    ) -> None:
        self.name = base.name
        self._base, self._schema, self._wrap, self._map_frontier = base, schema, wrap, map_frontier

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def frontier(self) -> Antichain:
        return self._map_frontier(self._base.frontier)

    @property
    def upper(self) -> Antichain:
        return self._map_frontier(self._base.upper)

    def batches(self) -> list[Batch]:
        return [self._wrap(batch) for batch in self._base.batches()]

    def import_(self, wrap: Wrap = lambda batch: batch) -> BatchQueue:
        inner = self._wrap  # not self, which would keep the handle alive
        queue = self._base.import_(lambda batch: wrap(inner(batch)))
        queue.upper = self.upper
        return queue


def accumulate(parts: Sequence[Updates], schema: Schema, at: Time) -> Updates:
    """Return what some updates add up to at a time: each (key, value) once, unless its diffs cancel."""
    table = time_tables.table_of([at], len(at))
    parts = [part for part in parts if len(part)]
    if not parts:
        return replace(Updates.empty(schema, len(at)), times=table)
    ordered = sort_updates(Updates.concat(parts))
    updates = ordered.updates
    flags = time_tables.visible(updates.times, at)
    rows, sums = accumulate_rows(updates.key, updates.val, ordered.ident, updates.tix, updates.diffs, flags)
    return replace(updates.take(rows), times=table, tix=constant(0, len(rows), np.int32), diffs=sums)


def _with_key(updates: Updates, probes: Updates) -> Updates:
    """Return, of updates sorted by key lane, those whose key, not just its lane, is one of `probes`."""
    order = np.argsort(probes.key, kind="stable")
    ranges: Lane = match_keys(updates.key, probes.key[order])
    pairs = int(((ranges[:, 1] - ranges[:, 0]) * (ranges[:, 3] - ranges[:, 2])).sum())
    rows, positions = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    expand_pairs(ranges, rows, positions, np.zeros(2, np.int64))
    keys = updates.payload[: updates.schema.key.payload_columns]
    same = payloads.same_rows(keys, rows, probes.payload, order[positions])
    return updates.take(np.unique(rows[same]))
