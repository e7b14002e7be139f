"""Handles: how readers share a trace, and how far its history may be compacted.

A `Trace` is a spine with its readers. Each reader has a `Handle` with a frontier of its own: reads at times
beyond it are exact; history before it may be compacted. Merges compact to the meet of all handles'
frontiers, so the slowest reader determines the memory, without any effect on the results of other readers. In idle
time, `merge_some` merges and compacts what insertions have left; so memory is freed after the slowest reader has left.

Ownership. Handles own the trace; the operator that writes it has only a weak reference (`Writer`). When the last handle
is dropped, explicitly or because nothing refers to it any more, the spine is freed; the operator continues to emit
batches.

Not guaranteed: anything under concurrent use. A trace belongs to one worker and is used by one thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable
from functools import reduce
from typing import Self

from ikebana.encoding.schema import Schema
from ikebana.encoding.spill_files import SpillFiles
from ikebana.errors import DroppedError, TimeError
from ikebana.time import Antichain, Time
from ikebana.trace.batch import Batch, StoredBatch
from ikebana.trace.description import frontier_of
from ikebana.trace.memtable import Memtable
from ikebana.trace.reading import Reader, Wrap
from ikebana.trace.spine import Spine
from ikebana.trace.views import Advanced

ALL_ALIKE = (1 << 62) - 1
"""An epoch after all others: no reader tells epochs apart."""


class Trace:
    """A spine and the frontiers of its readers. Used through handles only."""

    def __init__(
        self,
        schema: Schema,
        lower: Antichain,
        *,
        name: str = "trace",
        effort: str = "default",
        spill: SpillFiles | None = None,
    ) -> None:
        self.schema, self.name = schema, name
        self.spine = Spine(lower, effort, spill)
        self._frontiers: dict[int, Antichain] = {}
        self.changes = 0
        """How many updates were ever written, by visits and by programs; those that cancel later count, too."""
        self._moved = False
        self._queues: list[weakref.ref[BatchQueue]] = []  # in the order in which they were attached
        self._next = 0

    @property
    def readers(self) -> int:
        """The number of handles."""
        return len(self._frontiers)

    def reader_numbers(self) -> frozenset[int]:
        """What identifies each handle."""
        return frozenset(self._frontiers)

    def first_distinct(self, known: Collection[int]) -> int:
        """The first epoch that a handle, other than the `known` ones, tells from later epochs."""
        frontiers = [frontier for reader, frontier in self._frontiers.items() if reader not in known]
        return min([time[0] for frontier in frontiers for time in frontier], default=ALL_ALIKE)

    def insert(self, batch: StoredBatch) -> None:
        """Append a batch, and pass it to every attached queue."""
        self._set_since()
        self.changes += len(batch)
        self.spine.insert(batch)
        self._push(batch)

    def publish(self, batch: StoredBatch | None, upper: Antichain, changes: int = 0) -> None:
        """Note that a program has completed all times before `upper`; pass what it has written to every queue.

        `changes` is the number of updates that it has written.
        """
        self.changes += changes
        self.spine.upper = upper
        if batch is not None:
            self._push(batch)

    def _push(self, batch: StoredBatch) -> None:
        for reference in tuple(self._queues):
            queue = reference()
            if queue is not None:
                queue.push(batch)

    @property
    def has_queues(self) -> bool:
        """Whether new batches are passed on to queues."""
        return bool(self._queues)

    def commit_memtable(self) -> None:
        """Keep what a program has written to the memtable."""
        memtable = self.spine.memtable
        if memtable is not None:
            memtable.commit()

    def grow_memtable(self) -> bool:
        """Make room for what a program could not insert; return whether there is more than before."""
        return self.spine.memtable is not None and self.spine.memtable.grow()

    def keep_small(self) -> None:
        """Note that a program has changed the trace; flush a memtable that a large change has filled."""
        memtable = self.spine.memtable
        if memtable is not None:
            memtable.changes += 1
            if memtable.capacity > memtable.most_rows:
                self.flush_memtable()

    def flush_memtable(self) -> None:
        """Turn the rows of the memtable into a batch."""
        self._set_since()
        self.spine.flush_memtable()

    def store_unread(self) -> None:
        """Place the batches that nobody has read yet."""
        self._set_since()
        self.spine.store_unread()

    def take_memtable(self) -> StoredBatch | None:
        """Remove the rows of the memtable, and return them."""
        return self.spine.take_memtable()

    def address(self) -> int:
        """The address by which programs read and write the trace, valid until it is changed otherwise."""
        spine = self.spine
        if spine.memtable is None:
            spine.memtable = Memtable(self.schema, spine.dimensions)
        return spine.memtable.known_address or spine.address()

    def check_bounds(self) -> None:
        """Raise if a program has written beyond the memtable."""
        if self.spine.memtable is not None:
            self.spine.memtable.check_bounds()

    @property
    def has_collisions(self) -> bool:
        """Whether programs cannot read the trace that `address` describes, because hashes collide in it."""
        memtable = self.spine.memtable
        return memtable is not None and memtable.has_collisions

    @property
    def held(self) -> tuple[object, ...]:
        """What programs must keep to read texts of the trace that `address` describes."""
        memtable = self.spine.memtable
        return () if memtable is None else memtable.held

    def merge_some(self, rows: int) -> bool:
        """Move up to about `rows` rows in idle time. Return whether there was anything to do."""
        self._set_since()
        return self.spine.merge_some(rows)

    def _set_since(self) -> None:
        """Set the frontier of compaction to the meet of the readers' frontiers."""
        if self._moved:
            self.spine.since = reduce(Antichain.meet, set(self._frontiers.values()))
            self._moved = False

    def register(self, frontier: Antichain) -> int:
        """Add a reader, and return its number."""
        self._next += 1
        self._frontiers[self._next] = frontier
        self._moved = True
        return self._next

    def advance(self, reader: int, frontier: Antichain) -> None:
        self._frontiers[reader] = frontier
        self._moved = True

    def release(self, reader: int) -> None:
        del self._frontiers[reader]
        self._moved = bool(self._frontiers)

    def follow(self, queue: BatchQueue) -> None:
        self._queues.append(weakref.ref(queue, self._queues.remove))


class Handle(Reader):
    """A reader's reference to a trace.

    A handle is dropped at the end of `with handle:`, by `drop()`, or when nothing refers to it any more.
    """

    def __init__(self, trace: Trace, frontier: Antichain) -> None:
        self._trace: Trace | None = trace
        self.name, self._schema, self._frontier = trace.name, trace.schema, frontier
        self._reader = trace.register(frontier)

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def frontier(self) -> Antichain:
        """Reads at times beyond it are exact."""
        self._alive("ask for the frontier")
        return self._frontier

    @property
    def upper(self) -> Antichain:
        """The times that the trace has not received yet: times not beyond it are complete."""
        return self._alive("ask for the upper frontier").spine.upper

    @property
    def dropped(self) -> bool:
        """Whether the handle was dropped."""
        return self._trace is None

    @property
    def nbytes(self) -> int:
        """The number of bytes that the trace takes, for all its readers together."""
        return self._alive("measure it").spine.nbytes

    @property
    def mapped_bytes(self) -> int:
        """How many of these bytes are in mapped files."""
        return self._alive("measure it").spine.mapped_bytes

    @property
    def readers(self) -> int:
        """The number of handles on the trace, including this one."""
        return self._alive("count its readers").readers

    @property
    def rows_moved(self) -> int:
        """The number of rows that merges of the trace have moved up to now: the cost of its maintenance."""
        return self._alive("measure its merges").spine.rows_moved

    def batches(self) -> list[Batch]:
        return list(self._alive("read it").spine.batches())

    def advance(self, frontier: Antichain | Time | Iterable[Time]) -> None:
        """Advance the frontier: from now on this reader reads only at times beyond it."""
        trace = self._alive("advance it")
        if not isinstance(frontier, Antichain):
            frontier = frontier_of(frontier)
        if not self._frontier.precedes(frontier):
            raise TimeError(
                f"cannot advance a handle on {self.name!r} to {frontier}",
                detail=f"its frontier is already {self._frontier}, and history before it may be compacted",
                hint="advance to a frontier beyond the current one, or keep another handle that stays behind",
            )
        self._frontier = frontier
        trace.advance(self._reader, frontier)

    def clone(self) -> Handle:
        """Return another handle on the same trace, at the same frontier."""
        return Handle(self._alive("clone it"), self._frontier)

    def drop(self) -> None:
        """Release the trace; dropping a handle twice does nothing."""
        trace, self._trace = self._trace, None
        if trace is not None:
            trace.release(self._reader)

    def __del__(self) -> None:  # cheaper than `weakref.finalize`, of which a new query would need dozens
        self.drop()

    def import_(self, wrap: Wrap = lambda batch: batch) -> BatchQueue:
        """Return a queue with the history, compacted to this handle's frontier, and then each new batch.

        To import the full history, use a handle whose frontier was never advanced.
        """
        frontier = self._frontier
        return BatchQueue(self._alive("import it"), lambda batch: Advanced(batch, frontier), wrap)

    @property
    def trace(self) -> Trace:
        """The trace, for programs that read and write it by address."""
        return self._alive("read it")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.drop()

    def __repr__(self) -> str:
        if self._trace is None:
            return f"<handle on {self.name!r}: dropped>"
        spine = self._trace.spine
        held = f"{len(spine)} updates in {len(spine.batches())} batches, {spine.nbytes} bytes"
        return f"<handle on {self.name!r} at {self._frontier}: {held}, complete up to {spine.upper}>"

    def _alive(self, what: str) -> Trace:
        if self._trace is None:
            raise DroppedError(
                f"cannot {what}: this handle on {self.name!r} was dropped",
                hint="keep a clone() of the handle for as long as you read the trace",
            )
        return self._trace


class BatchQueue:
    """The batches of a trace for a new reader: `history` has the batches up to now, `take()` returns later ones.

    There is no gap: the first batch taken starts where the history ends. The queue keeps the batches that were not
    taken yet, but not the trace: to read the trace as well, keep a handle.
    """

    def __init__(self, trace: Trace, wrap_history: Wrap, wrap: Wrap) -> None:
        self.name, self._wrap = trace.name, wrap
        self.history = [wrap(wrap_history(batch)) for batch in trace.spine.batches()]
        self.upper = trace.spine.upper
        self.waiting: list[Batch] = []
        """The batches that were added since the last call of `take`, as they were added."""
        self.on_push: Callable[[], None] | None = None  # called for every batch that is not empty
        trace.follow(self)

    def push(self, batch: Batch) -> None:
        self.waiting.append(batch)
        if self.on_push is not None and len(batch):
            self.on_push()

    def take(self) -> list[Batch]:
        """Return the batches added since the last call, in order, including empty ones."""
        batches = [self._wrap(batch) for batch in self.waiting]
        self.waiting.clear()
        if batches:
            self.upper = batches[-1].description.upper
        return batches


class Writer:
    """A weak reference to a trace, for the operator that writes it."""

    def __init__(self, trace: Trace) -> None:
        self._trace = weakref.ref(trace)

    def insert(self, batch: StoredBatch) -> None:
        """Append a batch if the trace still has readers."""
        trace = self._trace()
        if trace is not None and trace.readers:
            trace.insert(batch)

    def merge_some(self, rows: int) -> bool:
        """Let the trace use idle time, if it still has readers. Return whether there was anything to do."""
        trace = self._trace()
        return trace is not None and bool(trace.readers) and trace.merge_some(rows)
