"""Arrange: updates in, batches out, and a trace that others can share.

The operator buffers updates. When its frontier advances it seals those that the frontier has passed into an
immutable batch, appends the batch to its trace, and emits it.

Contract. Every update's time is beyond the frontier when it is given. Each call of `advance` emits exactly
one batch, possibly empty; lower and upper frontiers of successive batches follow each other without gap. An
update is in the batch whose [lower, upper) has its time. The operator holds its trace weakly: once all
handles are dropped the trace is freed, and batches are still sealed and emitted.

Errors leave the operator and its trace as they were.

Cost: sealing sorts the updates that it takes; the trace's maintenance is bounded as `ikebana.trace.spine`
says.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from ikebana.encoding import Schema
from ikebana.errors import DroppedError, SchemaError
from ikebana.time import Antichain, Time
from ikebana.trace import EFFORT, Batch, Batcher, Handle, Trace, Updates, Writer
from ikebana.trace.description import frontier_of


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
    ) -> None:
        if effort not in EFFORT:
            raise SchemaError(
                f"unknown merge effort {effort!r} for {name!r}", hint=f"choose one of {', '.join(EFFORT)}"
            )
        self.schema, self.name = schema, name
        lower = Antichain.minimum(dimensions)
        self._batcher = Batcher(schema, lower, name)
        trace = Trace(schema, lower, name=name, effort=effort)
        self._first: Handle | None = Handle(trace, lower)
        self._writer = Writer(trace)

    @property
    def frontier(self) -> Antichain:
        """Updates at times beyond it may still be given."""
        return self._batcher.lower

    def handle(self) -> Handle:
        """The first handle on the trace; clone it for further readers. Can be had once.

        Until it is asked for the operator keeps it, and so the trace, alive.
        """
        if self._first is None:
            raise DroppedError(
                f"the first handle on {self.name!r} was handed out already",
                hint="clone() the handle that you have",
            )
        first, self._first = self._first, None
        return first

    def update(self, data: Any, time: Time | Any, diff: Any = 1) -> None:
        """Buffer updates: columns by name, one time for all or a time for each row, and likewise diffs.

        NumPy arrays are not copied: do not change them before the frontier has passed their times.
        """
        self.push(Updates.of(self.schema, data, time, diff))

    def push(self, updates: Updates) -> None:
        """Buffer updates that are in columnar form already."""
        if updates.schema != self.schema:
            raise SchemaError(
                f"cannot take updates into {self.name!r}",
                detail=f"they are of {updates.schema}, it has {self.schema}",
                hint="make the updates with the schema of the arrangement",
            )
        self._batcher.append(updates)

    def advance(self, frontier: Antichain | Time | Iterable[Time]) -> Batch:
        """Move the frontier on; returns the batch of the updates that it has passed."""
        batch = self._batcher.seal(frontier_of(frontier))
        self._writer.insert(batch)
        return batch

    def advance_in_steps(self, frontier: Antichain) -> Generator[None, None, Batch]:
        """The same, with pauses in which others can run; nothing else may be done with it until it is complete."""
        batch = yield from self._batcher.seal_in_steps(frontier)
        self._writer.insert(batch)
        return batch

    def advance_to(self, frontier: Antichain) -> None:
        """The same, if the frontier is not there yet and nobody asks for the batch."""
        if self._batcher.lower != frontier:
            self.advance(frontier)

    def close(self) -> Batch:
        """No more updates: seals everything that is left."""
        return self.advance(Antichain())
