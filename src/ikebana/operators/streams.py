"""What operators read from each other during a visit: streams and arrangements.

A `Stream` carries the changes of the current visit. An `Arranged` carries the batches of the current visit and opens
readers on the trace behind them. The producer sets `changes` or `fresh` in its visit; consumers are visited later. A
program that did the visit of the producer offers them instead: they are made if a consumer asks. An output is `closed`
once its producer knows that it will never change again; producers set that after a sweep.

A `TraceReader` is a trace handle as operators use it. It shows the trace through the views between the trace and the
operator (entered loops, filters, the epoch at which an import starts), and it counts in epochs rather than frontiers.
It collects the rows of some keys from all batches before it applies the views, because a view costs some tens of
microseconds however few rows it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol, TypeVar, overload

import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding.lanes import Lane
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.span import NEVER
from ikebana.time import Antichain, Time
from ikebana.trace import Batch, Handle, Trace, Updates
from ikebana.trace.reading import accumulate

FEW_ROWS = 1 << 14
"""Parts with at most this many rows in total are joined: that costs less than to treat them one after the other."""


class Stream:
    """The changes of the current visit, in one or several parts.

    A producer of many changes leaves them in the parts in which it computed them. Consumers that treat each change by
    itself read `parts`; for others, `changes` are all of them together. Few changes are always one part.
    """

    def __init__(self, fields: Fields, dimensions: int, lanes: int = 1) -> None:
        self.fields, self.dimensions, self.lanes = fields, dimensions, lanes
        self._parts: list[Changes] = []
        self._offered: Callable[[], Changes] | None = None
        self.closed = False

    def offer(self, make: Callable[[], Changes]) -> None:
        """Have the changes of this visit made if somebody asks for them."""
        self._parts, self._offered = [], make

    @cached_property
    def empty(self) -> Changes:
        """No changes. Most streams of a new dataflow are not read before it answers."""
        return Changes.empty(self.fields, self.dimensions, self.lanes)

    @property
    def parts(self) -> list[Changes]:
        """The changes of the current visit in parts, none of them empty."""
        if self._offered is not None:
            self.changes = self._offered()
        if len(self._parts) > 1 and sum(map(len, self._parts)) <= FEW_ROWS:
            self._parts = [Changes.concat(self._parts)]
        return self._parts

    @parts.setter
    def parts(self, parts: Sequence[Changes]) -> None:
        self._parts, self._offered = [part for part in parts if len(part)], None

    @property
    def changes(self) -> Changes:
        """The changes of the current visit."""
        parts = self.parts
        if len(parts) > 1:
            self._parts = parts = [Changes.concat(parts)]
        return parts[0] if parts else self.empty

    @changes.setter
    def changes(self, changes: Changes) -> None:
        self.parts = [changes]

    def clear(self) -> None:
        """No changes in this visit."""
        self._parts, self._offered = [], None


class RowSource(Protocol):
    """Rows that can be read: a batch, or some rows of several batches."""

    @property
    def schema(self) -> Schema: ...

    def gather(self, rows: Lane | None = None) -> Updates:
        """All rows, or those at some positions, with their data."""
        ...

    def pick(self, rows: Lane | None = None, columns: Collection[str] | None = None) -> Updates:
        """Like `gather`, but the value lanes may be meaningless and only `columns` are returned."""
        ...


class BatchView(Protocol):
    """How stored rows are seen: the view of a batch is a batch, the view of other rows can only be read.

    To read rows, a view (`ikebana.trace.views`) asks no more of what it wraps than a `RowSource` offers.
    """

    @overload
    def __call__(self, rows: Batch, /) -> Batch: ...
    @overload
    def __call__(self, rows: RowSource, /) -> RowSource: ...


RowsT = TypeVar("RowsT")


def as_stored(rows: RowsT, /) -> RowsT:
    """The view that changes nothing."""
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Some rows of several stored batches, one batch after the other, as one `RowSource` that is read as a whole."""

    parts: list[tuple[Batch, Lane]]

    @property
    def schema(self) -> Schema:
        return self.parts[0][0].schema

    def gather(self, rows: Lane | None = None) -> Updates:
        assert rows is None, "read as a whole"
        return Updates.concat([batch.gather(positions) for batch, positions in self.parts])

    def pick(self, rows: Lane | None = None, columns: Collection[str] | None = None) -> Updates:
        assert rows is None, "read as a whole"
        return Updates.concat([batch.pick(positions, columns) for batch, positions in self.parts])


@lru_cache(maxsize=64)
def from_epoch(epoch: int, dimensions: int) -> Antichain:
    """The frontier of all times from an epoch on."""
    return Antichain.of((epoch, *(0,) * (dimensions - 1)))


class TraceReader:
    """A handle on a trace, whose batches are seen through a view."""

    def __init__(self, handle: Handle, view: BatchView, schema: Schema) -> None:
        self._handle, self.view, self._schema = handle, view, schema
        self._dimensions = handle.frontier.dimensions or 1
        self._since = max((time[0] for time in handle.frontier), default=NEVER)

    def batches(self) -> list[Batch]:
        """The batches, oldest first, seen through the view."""
        return [self.view(batch) for batch in self._handle.batches()]

    def match(self, keys: Lane) -> list[tuple[Batch, Lane]]:
        """The stored batches that contain some of the key lanes (ascending), each with the result of `Batch.match`."""
        matches = [(batch, batch.match(keys)) for batch in self._handle.batches()]
        return [(batch, ranges) for batch, ranges in matches if len(ranges)]

    def gather(self, parts: list[tuple[Batch, Lane]]) -> Updates:
        """Some rows of stored batches, at least of one batch, seen through the view."""
        return self.view(StoredRows(parts)).gather()

    def pick(self, parts: list[tuple[Batch, Lane]]) -> Updates:
        """Like `gather`, but the value lanes may be meaningless."""
        return self.view(StoredRows(parts)).pick()

    def forget(self, epoch: int) -> None:
        """Give up all epochs before `epoch` except the last, as of which later visits read.

        A trace that is complete for ever keeps its epochs readable: they are all alike.
        """
        if self._since < epoch - 1 and epoch != NEVER:
            self._since = epoch - 1
            self._handle.advance(from_epoch(epoch - 1, self._dimensions))

    @property
    def trace(self) -> Trace:
        """The trace, for programs."""
        return self._handle.trace

    @property
    def rows(self) -> int:
        """The number of updates that the trace holds."""
        return len(self._handle.trace.spine)

    @property
    def nbytes(self) -> int:
        """The bytes that the trace holds."""
        return self._handle.nbytes

    @property
    def mapped_bytes(self) -> int:
        """How many of these bytes are in mapped files."""
        return self._handle.mapped_bytes

    def clone(self) -> Handle:
        """A new handle at the same frontier."""
        return self._handle.clone()

    def read(self, at: Time) -> pa.Table:
        """The collection at a time."""
        at = self._handle.exact(at)
        return accumulate([batch.gather() for batch in self.batches()], self._schema, at).to_table()

    def drop(self) -> None:
        """Drop the handle."""
        self._handle.drop()


class Arranged:
    """The batches of the current visit, and the trace that they belong to."""

    def __init__(self, schema: Schema, dimensions: int, open_handle: Callable[[], Handle], view: BatchView) -> None:
        self.schema, self.dimensions = schema, dimensions
        self._open_handle, self._view = open_handle, view
        self._fresh: list[Batch] = []
        self._offered: Callable[[], Sequence[Batch]] | None = None
        self.is_stored = True  # whether the view shows all stored rows, each key's in order of value
        self.replayed = False  # whether the fresh batches are history, in which updates may cancel
        self.closed = False

    @property
    def fresh(self) -> list[Batch]:
        """The batches of the current visit."""
        if self._offered is not None:
            self._fresh, self._offered = list(self._offered()), None
        return self._fresh

    @fresh.setter
    def fresh(self, batches: list[Batch]) -> None:
        self._fresh, self._offered = batches, None

    def offer(self, make: Callable[[], Sequence[Batch]]) -> None:
        """Have the batches of this visit made if somebody asks for them."""
        self._offered = make

    def reader(self) -> TraceReader:
        """A new reader of the trace."""
        return TraceReader(self._open_handle(), self._view, self.schema)

    def clear(self) -> None:
        """No batches in this visit."""
        self.fresh, self.replayed = [], False

    def seen_through(self, view: BatchView, schema: Schema | None = None, dimensions: int | None = None) -> Arranged:
        """The same trace under a further view; the producer sets `fresh`."""
        inner = self._view
        arranged = Arranged(
            schema or self.schema,
            dimensions or self.dimensions,
            self._open_handle,
            lambda batch: view(inner(batch)),
        )
        arranged.is_stored = self.is_stored
        return arranged
