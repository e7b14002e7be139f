"""Wires: what operators read from each other during a visit.

A wire is `closed` once its producer knows that it will never change again; producers say so when a sweep is complete.

A `Stream` carries the changes of the present visit. An `Arranged` carries the batches of the present visit,
and opens readers on the trace behind it. Whoever produces them sets `changes` or `fresh` in its visit;
consumers come later in the same visit.

A `TraceReader` is a handle as operators use it: seen through the views on the way (entered loops, filters,
the epoch at which a late import starts), and told epochs rather than frontiers. It finds the rows of some keys in all
batches together: views, which cost some tens of microseconds however few rows they show, are applied once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding.lanes import Lane
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.span import NEVER
from ikebana.time import Antichain, Time
from ikebana.trace import Batch, Handle, Updates
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
def from_epoch(epoch: int, dimensions: int) -> Antichain:
    """The frontier of all times from an epoch on."""
    return Antichain.of((epoch, *(0,) * (dimensions - 1)))


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some rows of several batches, one batch after the other: what views can be put on top of, and no more."""

    parts: list[tuple[Batch, Lane]]

    @property
    def schema(self) -> Schema:
        """That of the batches."""
        return self.parts[0][0].schema

    def gather(self, rows: None = None) -> Updates:
        """All of them, with their data."""
        return Updates.concat([batch.gather(chosen) for batch, chosen in self.parts])

    def pick(self, rows: None = None, columns: Collection[str] | None = None) -> Updates:
        """The same for somebody who compares no values."""
        return Updates.concat([batch.pick(chosen, columns) for batch, chosen in self.parts])


def as_stored(batch: Batch) -> Batch:
    """The view of a trace that shows its batches as they are."""
    return batch


class TraceReader:
    """A handle, its batches seen through `wrap`."""

    def __init__(self, handle: Handle, wrap: Wrap, schema: Schema) -> None:
        self._handle, self._wrap, self._schema = handle, wrap, schema
        self._dimensions = handle.frontier.dimensions or 1
        self._since = max((time[0] for time in handle.frontier), default=NEVER)

    def batches(self) -> list[Batch]:
        """The batches, oldest first."""
        return [self._wrap(batch) for batch in self._handle.batches()]

    def match(self, keys: Lane) -> list[tuple[Batch, Lane]]:
        """The batches that have some key lanes (ascending), as they are stored, and what `Batch.match` says of each."""
        found = [(batch, batch.match(keys)) for batch in self._handle.batches()]
        return [(batch, ranges) for batch, ranges in found if len(ranges)]

    def pick(self, parts: list[tuple[Batch, Lane]]) -> Updates:
        """Some rows of stored batches, at least of one, as they are seen; for somebody who compares no values."""
        return self.see(cast(Batch, Rows(parts))).pick()

    def gather(self, parts: list[tuple[Batch, Lane]]) -> Updates:
        """The same for somebody who compares values."""
        return self.see(cast(Batch, Rows(parts))).gather()

    def see(self, batch: Batch) -> Batch:
        """A stored batch as it is seen."""
        return self._wrap(batch)

    def forget(self, epoch: int) -> None:
        """Epochs before `epoch` are done with: only the last of them is still looked at.

        Of what is complete for ever, all epochs are alike, and stay readable.
        """
        if self._since < epoch - 1 and epoch != NEVER:
            self._since = epoch - 1
            self._handle.advance(from_epoch(epoch - 1, self._dimensions))

    @property
    def nbytes(self) -> int:
        """The bytes that the trace holds."""
        return self._handle.nbytes

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
