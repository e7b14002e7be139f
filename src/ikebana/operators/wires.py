"""Wires: what operators read from each other during a visit.

A wire is `closed` once its producer knows that it will never change again; producers say so when a sweep is complete.

A `Stream` carries the changes of the present visit. An `Arranged` carries the batches of the present visit,
and opens readers on the trace behind it. Whoever produces them sets `changes` or `fresh` in its visit;
consumers come later in the same visit.

A `TraceReader` is a handle as operators use it: seen through the views on the way (entered loops, filters,
the epoch at which a late import starts), and told epochs rather than frontiers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa

from ikebana.operators.changes import Changes, Fields
from ikebana.operators.span import NEVER
from ikebana.time import Antichain, Time
from ikebana.trace import Batch, Handle, Schema
from ikebana.trace.reading import Wrap, accumulate


class Stream:
    """Changes of the present visit."""

    def __init__(self, fields: Fields, dimensions: int, lanes: int = 1) -> None:
        self.fields, self.dimensions, self.lanes = fields, dimensions, lanes
        self.nothing = Changes.empty(fields, dimensions, lanes)
        self.changes = self.nothing
        self.closed = False

    def clear(self) -> None:
        """Nothing in this visit."""
        self.changes = self.nothing


@lru_cache(maxsize=64)
def _since(epoch: int, dimensions: int) -> Antichain:
    """The frontier of readers who are done with the epochs before `epoch`."""
    return Antichain.of((max(0, epoch - 1), *(0,) * (dimensions - 1)))


class TraceReader:
    """A handle, its batches seen through `wrap`."""

    def __init__(self, handle: Handle, wrap: Wrap, schema: Schema) -> None:
        self._handle, self._wrap, self._schema = handle, wrap, schema

    def batches(self) -> list[Batch]:
        """The batches, oldest first."""
        return [self._wrap(batch) for batch in self._handle.batches()]

    def forget(self, epoch: int) -> None:
        """Epochs before `epoch` are done with: only the last of them is still looked at.

        Of what is complete for ever, all epochs are alike, and stay readable.
        """
        if epoch == NEVER:
            return
        frontier = _since(epoch, self._handle.frontier.dimensions or 1)
        if self._handle.frontier.precedes(frontier):
            self._handle.advance(frontier)

    def clone(self) -> Handle:
        """A handle for somebody else, at the same frontier."""
        return self._handle.clone()

    def read(self, at: Time) -> pa.Table:
        """The collection at a time."""
        at = self._handle.exact(at)
        return accumulate([batch.gather() for batch in self.batches()], self._schema, at).to_table()

    def drop(self) -> None:
        """Give up the trace."""
        self._handle.drop()


class Arranged:
    """Batches of the present visit, and the trace they belong to."""

    def __init__(self, schema: Schema, dimensions: int, open_handle: Callable[[], Handle], wrap: Wrap) -> None:
        self.schema, self.dimensions = schema, dimensions
        self._open_handle, self._wrap = open_handle, wrap
        self.fresh: list[Batch] = []
        self.is_stored = True  # whether batches have the rows that are stored, and in the order of their values
        self.replayed = False  # whether they are history, in which updates may cancel
        self.closed = False

    def reader(self) -> TraceReader:
        """A new reader of the trace."""
        return TraceReader(self._open_handle(), self._wrap, self.schema)

    def clear(self) -> None:
        """Nothing in this visit."""
        self.fresh = []

    def seen_through(self, wrap: Wrap, schema: Schema | None = None, dimensions: int | None = None) -> Arranged:
        """The same trace under a further view; its producer sets `fresh`."""
        inner = self._wrap
        made = Arranged(
            schema or self.schema,
            dimensions or self.dimensions,
            self._open_handle,
            lambda batch: wrap(inner(batch)),
        )
        made.is_stored = self.is_stored
        return made
