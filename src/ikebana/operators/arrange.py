"""Arrange: updates in, batches out, and a trace that others can share.

`Arrange` buffers updates. When its frontier advances, it seals the updates that the frontier has passed into an
immutable batch, appends the batch to its trace, and returns it. It knows nothing about dataflows.

`Maintainer` is the base of the operators that maintain an arrangement in a dataflow. `ArrangeStream`, the arrange
operator, is one; the reductions (`ikebana.operators.reduce`) are the others. `AsStream` is the way back: the changes
of an arrangement as a stream.

Contract of `Arrange`. The time of an update is beyond the frontier when the update is pushed. Each call of `advance`
returns exactly one batch, possibly empty; the upper frontier of a batch is the lower frontier of the next. An update is
in the batch whose [lower, upper) contains its time. The trace is held weakly: once all handles are dropped the trace is
freed, while batches are still sealed and returned. An error leaves `Arrange` and its trace unchanged.

Contract of `ArrangeStream`. Each visit exchanges the visit's changes by key (`ikebana.operators.exchange`) and seals
what arrives here into one batch, the visit's `fresh`.

Cost: sealing sorts the updates that it takes; maintenance of the trace is bounded as described in
`ikebana.trace.spine`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ikebana.encoding import Schema
from ikebana.encoding.spill_files import SpillFiles
from ikebana.errors import DroppedError, SchemaError
from ikebana.operators.changes import Changes
from ikebana.operators.exchange import Exchange
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.protocol import Operator, Output, Steps
from ikebana.operators.replay import replayed
from ikebana.operators.span import Span
from ikebana.operators.streams import Arranged, Stream, TraceReader, as_stored, from_epoch
from ikebana.time import Antichain, Time
from ikebana.trace import EFFORT, Batch, Batcher, Handle, Trace, Updates, Writer
from ikebana.trace.description import frontier_of
from ikebana.trace.views import Restricted


class Arrange:
    """Arrange updates by key, on a single worker.

    >>> import pyarrow as pa
    >>> edges = Arrange(Schema(key={"src": pa.int64()}, val={"dst": pa.int64()}), name="edges")
    >>> handle = edges.handle()
    >>> edges.update({"src": [1, 1, 2], "dst": [2, 3, 3]}, time=(0,))
    >>> edges.update({"src": [1], "dst": [2]}, time=(1,), diff=-1)
    >>> len(edges.advance((2,)))
    4
    >>> handle.lookup({"src": [1]}, at=(0,)).num_rows, handle.lookup({"src": [1]}, at=(1,)).num_rows
    (2, 1)
    """

    def __init__(
        self,
        schema: Schema,
        *,
        name: str = "arrangement",
        dimensions: int = 1,
        effort: str = "default",
        spill: SpillFiles | None = None,
    ) -> None:
        if effort not in EFFORT:
            raise SchemaError(
                f"unknown merge effort {effort!r} for {name!r}", hint=f"choose one of {', '.join(EFFORT)}"
            )
        self.schema, self.name = schema, name
        lower = Antichain.minimum(dimensions)
        self._batcher = Batcher(schema, lower, name, spill)
        trace = Trace(schema, lower, name=name, effort=effort, spill=spill)
        self._first: Handle | None = Handle(trace, lower)
        self._writer = Writer(trace)

    @property
    def frontier(self) -> Antichain:
        """Updates at times beyond the frontier may still be pushed."""
        return self._batcher.lower

    @property
    def buffered(self) -> int:
        """The number of updates that wait for the frontier to pass them."""
        return len(self._batcher)

    def handle(self) -> Handle:
        """The first handle on the trace; clone it for further readers. Can be called once.

        Until then `Arrange` holds the handle, and so keeps the trace alive.
        """
        if self._first is None:
            raise DroppedError(
                f"the first handle on {self.name!r} was taken already",
                hint="clone() the first handle",
            )
        first, self._first = self._first, None
        return first

    def update(self, data: Any, time: Time | Any, diff: Any = 1) -> None:
        """Buffer updates: columns by name, and one time and diff for all rows or one for each row.

        NumPy arrays are not copied: do not change them before the frontier has passed their times.
        """
        self.push(Updates.of(self.schema, data, time, diff))

    def push(self, updates: Updates) -> None:
        """Buffer updates that are in columnar form already."""
        if updates.schema != self.schema:
            raise SchemaError(
                f"cannot push updates into {self.name!r}",
                detail=f"their schema is {updates.schema}, the arrangement's is {self.schema}",
                hint="create the updates with the schema of the arrangement",
            )
        self._batcher.append(updates)

    def advance(self, frontier: Antichain | Time | Iterable[Time]) -> Batch:
        """Advance the frontier; return the batch of the updates that it has passed."""
        batch = self._batcher.seal(frontier_of(frontier))
        self._writer.insert(batch)
        return batch

    def advance_in_steps(self, frontier: Antichain) -> Generator[None, None, Batch]:
        """Like `advance`, with pauses in which other dataflows can run; until it is complete, call nothing else."""
        batch = yield from self._batcher.seal_in_steps(frontier)
        self._writer.insert(batch)
        return batch

    def advance_to(self, frontier: Antichain) -> None:
        """Advance the frontier, unless it is there already."""
        if self._batcher.lower != frontier:
            self.advance(frontier)

    def merge_some(self, rows: int) -> bool:
        """Move up to about `rows` rows of the trace in idle time. Return whether there was anything to do."""
        return self._writer.merge_some(rows)

    def close(self) -> Batch:
        """End the input: seal all remaining updates."""
        return self.advance(Antichain())


class Maintainer(Operator[Arranged]):
    """An operator that maintains an arrangement: it writes a trace of its own, which other dataflows can import."""

    def __init__(self, source: Output, schema: Schema, name: str, effort: str, spill: SpillFiles | None = None) -> None:
        self._source = source
        self._arrange = Arrange(schema, name=name, dimensions=source.dimensions, effort=effort, spill=spill)
        handle = self._arrange.handle()
        self.out = Arranged(schema, source.dimensions, handle.clone, as_stored)
        self._published = TraceReader(handle, as_stored, schema)
        self._readers = [self._published]

    def _open(self, arranged: Arranged) -> TraceReader:
        """A reader that forgets epochs as sweeps complete."""
        reader = arranged.reader()
        self._readers.append(reader)
        return reader

    def _seal(self, span: Span) -> Iterator[None]:
        """Write the visit's output to the trace, as one batch."""
        batch = yield from self._arrange.advance_in_steps(span.frontier)
        if len(batch):
            self.out.fresh = [batch]

    @property
    def trace(self) -> Trace:
        """The trace that the operator writes."""
        return self._published.trace

    def complete(self, epoch: int) -> None:
        """Show importers that the arrangement has all epochs before `epoch`."""
        self._arrange.advance_to(from_epoch(epoch, self.out.dimensions))

    @property
    def nbytes(self) -> int:
        return self._published.nbytes

    @property
    def mapped_bytes(self) -> int:
        return self._published.mapped_bytes

    def merge_some(self, rows: int) -> bool:
        return self._arrange.merge_some(rows)

    def forget(self, epoch: int) -> None:
        for reader in self._readers:
            reader.forget(epoch)
        self.trace.store_unread()
        self.out.closed = self._source.closed

    def drop(self) -> None:
        for reader in self._readers:
            reader.drop()


class ArrangeStream(Maintainer):
    """Arranges a stream by key: exchanges the changes of a visit by key, then seals what arrives into one batch."""

    def __init__(
        self,
        source: Stream,
        schema: Schema,
        *,
        name: str = "arrange",
        effort: str = "default",
        spill: SpillFiles | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        super().__init__(source, schema, name, effort, spill)
        self._stream, self._exchange = source, exchange

    def visit(self, span: Span) -> Steps:
        self.out.fresh = []
        for updates in (yield from self._arrived()):
            self._arrange.push(updates)
        if self._arrange.buffered:
            yield from self._seal(span)

    def _arrived(self) -> Generator[object, None, Iterable[Updates]]:
        """The visit's changes of the keys that this worker owns."""
        updates = (changes.keyed(self.out.schema) for changes in self._stream.parts)
        if self._exchange is None:
            return updates
        return (yield from self._exchange.by_key(list(updates)))

    def lower(self, program: ProgramBuilder) -> bool:
        source, index = program.stream(self._stream), program.index(self.out.schema, self.trace)
        if source is None or index is None:
            return False
        exchanges = self._exchange is not None
        return program.stored(source, index, exchanges=exchanges) and program.write(self.out, index)


class AsStream(Operator[Stream]):
    """The changes of an arrangement, as a stream; with `later`, only changes after the epoch at which the dataflow
    starts."""

    def __init__(self, source: Arranged, *, later: bool = False) -> None:
        self._source, self._later = source, later
        fields = (*source.schema.key.fields, *source.schema.val.fields)
        self.out = Stream(fields, source.dimensions, len(source.schema.diffs))

    def visit(self, span: Span) -> None:
        """Pass on the rows of the visit's batches; of history without those that cancel in it."""
        batches = self._source.fresh
        if self._later and span.starts:
            batches = [Restricted(batch, span.after_start) for batch in batches if span.after_start(batch.times).any()]
        parts = [batch.pick() for batch in batches]
        self.out.parts = replayed(parts) if self._source.replayed else [Changes.of_updates(part) for part in parts]

    def forget(self, epoch: int) -> None:
        self.out.closed = self._source.closed

    def lower(self, program: ProgramBuilder) -> bool:
        index = program.arranged(self._source)
        if index is None:
            return False
        rows = index.fresh_rows(program, [field.name for field in self.out.fields])
        return program.write(self.out, None if rows is None else replace(rows, fields=self.out.fields))
