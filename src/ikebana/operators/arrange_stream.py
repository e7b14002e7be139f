"""Arrange as an operator of a dataflow: exchange by key, then seal a batch for each visit.

Contract. In a visit the operator sends each peer its share of the visit's changes, exactly one message (None if there
are none), and waits for one from each. What it receives is sealed into one batch, the visit's `fresh`,
and written to the trace.

The exchange is given from outside, as a coroutine, since how messages travel is the business of the dataflow.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from ikebana.encoding import Schema
from ikebana.encoding.lanes import Lane
from ikebana.kernels import shard_rows
from ikebana.operators.arrange import Arrange
from ikebana.operators.changes import Changes
from ikebana.operators.span import Span
from ikebana.operators.streams import Arranged, Stream, TraceReader, from_epoch
from ikebana.trace import Updates
from ikebana.trace.views import Restricted

Parts = list[Updates | None]
"""Updates for each worker, or from each; None where there are none."""

Exchange = Callable[[Parts], Generator[object, None, Parts]]


class ArrangeStream:
    """Driver: reads a stream, writes an arrangement."""

    def __init__(
        self,
        source: Stream,
        schema: Schema,
        *,
        name: str = "arrange",
        effort: str = "default",
        exchange: Exchange | None = None,
        workers: int = 1,
    ) -> None:
        self._source, self._exchange, self._workers = source, exchange, workers
        self.arrange = Arrange(schema, name=name, dimensions=source.dimensions, effort=effort)
        handle = self.arrange.handle()
        self.out = Arranged(schema, source.dimensions, handle.clone, lambda batch: batch)
        self._published = TraceReader(handle, lambda batch: batch, schema)

    def visit(self, span: Span) -> Iterator[object]:
        """Exchange this visit's changes, and seal what arrives."""
        self.out.fresh = []
        changes = self._source.changes
        updates = changes.keyed(self.arrange.schema) if len(changes) else None
        if self._exchange is None:
            arrived = [] if updates is None else [updates]
        else:
            arrived = yield from exchanged(updates, self._exchange, self._workers)
        if not arrived:
            return
        for part in arrived:
            self.arrange.push(part)
        batch = yield from self.arrange.advance_in_steps(span.frontier)
        if len(batch):
            self.out.fresh = [batch]

    def complete(self, epoch: int) -> None:
        """Show those who import the arrangement that it has all epochs before `epoch`."""
        self.arrange.advance_to(from_epoch(epoch, self._source.dimensions))

    @property
    def nbytes(self) -> int:
        """The bytes that the arrangement holds."""
        return self._published.nbytes

    def forget(self, epoch: int) -> None:
        """A sweep up to `epoch` is complete."""
        self._published.forget(epoch)
        self.out.closed = self._source.closed

    def drop(self) -> None:
        """Release the trace."""
        self._published.drop()


class AsStream:
    """The changes of an arrangement, as a stream; `later`, those after the epoch at which the dataflow starts."""

    def __init__(self, source: Arranged, *, later: bool = False) -> None:
        self._source, self._later = source, later
        fields = (*source.schema.key.fields, *source.schema.val.fields)
        self.out = Stream(fields, source.dimensions, len(source.schema.diffs))

    def visit(self, span: Span) -> None:
        """This visit's batches, one after the other. Of history, only what is left of it: functions see no more."""
        batches = self._source.fresh
        if self._later and span.starts:
            batches = [Restricted(each, span.after_start) for each in batches if span.after_start(each.times).any()]
        parts = [Changes.of_updates(batch.pick()) for batch in batches]
        self.out.changes = Changes.concat(parts) if parts else self.out.nothing
        if self._source.replayed and (self.out.changes.diffs < 0).any():
            self.out.changes = self.out.changes.consolidated()

    def forget(self, epoch: int) -> None:
        """A sweep up to `epoch` is complete."""
        self.out.closed = self._source.closed


def exchanged(updates: Updates | None, exchange: Exchange, workers: int) -> Generator[object, None, list[Updates]]:
    """Send each worker what is its own; returns what has arrived here, of those who had anything."""
    received = yield from exchange([None] * workers if updates is None else split(updates, workers))
    return [part for part in received if part is not None]


def split(updates: Updates, shards: int) -> Parts:
    """The updates of each shard, by key lane; None for those that have none."""
    return split_by_shard(updates, shard_rows(updates.key, shards), shards)


def split_by_shard(rows: Any, shard_of: Lane, shards: int) -> list[Any]:
    """The rows of each shard, by `take`, where `shard_of` has the shard of each row; None for a shard without rows."""
    counts = np.bincount(shard_of, minlength=shards).tolist()
    if len(rows) in counts:
        return [rows if count else None for count in counts]
    return [rows.take(np.flatnonzero(shard_of == shard)) if count else None for shard, count in enumerate(counts)]
