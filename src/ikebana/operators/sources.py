"""Sources: where the changes of a dataflow come from.

| source | gives |
|---|---|
| `InputSource` | changes that were pushed into an input, once their epochs are complete |
| `ConstantSource` | rows that never change, at the epoch at which the dataflow starts |
| `ImportedArrangement` | the history of an arrangement that another dataflow maintains, then each new batch |

History counts as of the epoch at which the importing dataflow starts.

What a source says of itself (`ikebana.operators.protocol.Source`) is what this worker knows. A source is closed only
once all workers agree, because the rows that arrive here in an exchange come from all workers.

An imported trace advances at its own pace. When the trace is ahead, the import takes from it only the updates that a
sweep covers: the trace is multiversioned, and the importer's handles keep the versions that are still needed. In a
coalesced sweep (`ikebana.operators.span`), an import shows the sweep's epochs as one, in new batches and in the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ikebana.encoding.lanes import constant, constant_diffs
from ikebana.errors import DroppedError, TimeError
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.protocol import Source
from ikebana.operators.span import NEVER, Span
from ikebana.operators.streams import Arranged, Stream, from_epoch
from ikebana.trace import Batch, Handle, Trace
from ikebana.trace.batch import StoredBatch
from ikebana.trace.merge import merged_at_once
from ikebana.trace.views import Advanced, Coalesced, Restricted, under_times

__all__ = ["NEVER", "ConstantSource", "ImportedArrangement", "InputSource"]

MOST_MERGED_ROWS = 1 << 18
"""In a coalesced sweep, new batches of at most this many rows in total are merged: that takes a few milliseconds."""


class InputSource(Source[Stream]):
    """Changes pushed from outside, each at an epoch that is still open."""

    def __init__(self, name: str, fields: Fields) -> None:
        self.name, self.out = name, Stream(fields, 1)
        self._available, self._closed = 0, False
        self._waiting: list[tuple[int, Changes]] = []  # each with its least epoch
        self._first = NEVER  # the least epoch of all of them
        self._is_awaited = False  # whether the dataflow waits for another epoch to be closed

    @property
    def available(self) -> int:
        return self._available

    @property
    def has_changes(self) -> bool:
        return self._first < self._available

    @property
    def has_changes_after_start(self) -> bool:
        return self.has_changes

    @property
    def waiting_rows(self) -> int:
        return sum(len(changes) for _, changes in self._waiting)

    def push(self, changes: Changes) -> None:
        """Buffer changes at epochs that are still open."""
        if self._closed:
            raise DroppedError(f"input {self.name!r} was closed", hint="create a new input for further changes")
        if not len(changes):
            return
        changes = changes.pruned()  # there are rows at all of its times
        first = _first_epoch(changes)
        if first < self._available:
            raise TimeError(
                f"cannot push changes at epoch {first} into input {self.name!r}",
                detail=f"epochs before {self._available} are closed",
                hint="push changes before advancing the input past their epoch",
            )
        self._waiting.append((first, changes))
        self._first = min(first, self._first)

    def advance(self, epoch: int) -> bool:
        """Close all epochs before `epoch`; return whether the dataflow may have something to do now."""
        self._available = max(self._available, epoch)
        is_awaited, self._is_awaited = self._is_awaited, False
        return is_awaited or self._first < epoch

    def demand(self, epoch: int) -> bool:
        self._is_awaited = True
        return False

    def close(self) -> None:
        """End the input: nothing can be pushed any more."""
        self._closed = True

    @property
    def last(self) -> int:
        if not self._closed:
            return NEVER
        return max((int(changes.times[:, 0].max()) + 1 for _, changes in self._waiting), default=0)

    def visit(self, span: Span) -> None:
        """Give the changes at the epochs of this sweep."""
        due, later = list[Changes](), list[tuple[int, Changes]]()
        for first, changes in self._waiting:
            now = changes.times[:, 0] < span.upper
            if now.all():
                due.append(changes)
            elif now.any():
                due.append(changes.at_times(now).pruned())
                rest = changes.at_times(~now).pruned()
                later.append((_first_epoch(rest), rest))
            else:
                later.append((first, changes))
        self._keep(later)
        self.out.parts = [_not_before(span.earliest, changes) for changes in due]

    def _keep(self, waiting: list[tuple[int, Changes]]) -> None:
        self._waiting, self._first = waiting, min([first for first, _ in waiting], default=NEVER)

    def lower(self, program: ProgramBuilder) -> bool:
        return program.write_input(self, self.out)

    def load(self, epoch: int) -> Sequence[Changes] | None:
        """The changes at an epoch, for a program; None if they are not apart from those at other epochs."""
        if self._first > epoch:
            return ()
        due = [(first, changes) for first, changes in self._waiting if first <= epoch]
        if any([first != epoch or len(changes.times) > 1 for first, changes in due]):
            return None
        return [changes for _, changes in due]

    def loaded(self, epoch: int) -> None:
        """Forget the changes that a program has processed."""
        if self._first <= epoch:
            self._keep([(first, changes) for first, changes in self._waiting if first > epoch])

    def next_change(self) -> int:
        """The least epoch of the changes that wait."""
        return self._first


def _as_one(batches: list[Batch], epoch: int) -> list[Batch]:
    """Batches that are seen at one epoch; merged into one that is stored, if that is possible and does not take long.

    Operators call functions for each batch, and a program reads no more than one.
    """
    stored = [batch for batch in map(under_times, batches) if isinstance(batch, StoredBatch)]
    if not stored or len(stored) < len(batches) or sum(map(len, stored)) > MOST_MERGED_ROWS:
        return batches
    merged = merged_at_once(stored, from_epoch(epoch, 1))
    return [merged] if len(merged) else []


def _not_before(epoch: int, changes: Changes) -> Changes:
    """The changes, with earlier epochs replaced by `epoch`."""
    if _first_epoch(changes) >= epoch:
        return changes
    return changes.with_times(np.maximum(changes.times, epoch))


def _first_epoch(changes: Changes) -> int:
    """The least epoch of some changes."""
    times = changes.times
    return int(times[0, 0] if len(times) == 1 else times[:, 0].min())


class ConstantSource(Source[Stream]):
    """This worker's share of rows that never change."""

    available, last, has_changes, has_changes_after_start = NEVER, 0, True, False

    def __init__(self, fields: Fields, columns: Sequence[pa.Array], rows: int) -> None:
        self.out = Stream(fields, 1)
        self._fields, self._columns, self._rows = fields, tuple(columns), rows

    def visit(self, span: Span) -> None:
        """Give all rows, in the first sweep."""
        self.out.clear()
        if self.has_changes:
            self.has_changes = False
            times, diffs = np.full((1, 1), span.lower, np.int64), constant_diffs(np.ones(1, np.int64), self._rows)
            tix = constant(0, self._rows, np.int32)
            self.out.changes = Changes(times, tix, diffs, self._fields, self._columns)
            self._columns = ()

    def lower(self, program: ProgramBuilder) -> bool:
        """After the first sweep, there are no changes."""
        return program.write(self.out, program.rows(self.out.fields, self.out.lanes))


class ImportedArrangement(Source[Arranged]):
    """An arrangement that another dataflow maintains."""

    def __init__(
        self,
        handle: Handle,
        demand: Callable[[int], bool],
        start: Callable[[], int],
        upstream: Arranged,
        on_batch: Callable[[], None],
        known_upper: Callable[[], int],
    ) -> None:
        """`upstream` is what the maintaining dataflow writes.

        `known_upper` returns the epoch before which that dataflow has no changes that the trace lacks. It may be later
        than the trace says: a dataflow without changes does nothing.
        """
        self._known_upper, self._reached = known_upper, 0
        self._handle, self._demand, self._started_at, self._upstream = handle, demand, start, upstream
        self._queue = handle.import_()
        self._queue.on_push = on_batch
        self._has_replayed = False  # whether a sweep has processed the history
        self._waiting: list[Batch] = []
        self._first = NEVER  # the least epoch of these
        self._offered: StoredBatch | None = None  # for a program, before it is in the trace
        self._since = max((time[0] for time in handle.frontier), default=0)
        self._start = from_epoch(self._since, 1)
        self._coalesced: Span | None = None  # the sweep that is under way, if it is coalesced
        self.out = Arranged(handle.schema, 1, handle.clone, lambda batch: self._seen(batch))

    def _seen(self, batch: Batch) -> Batch:
        """A batch, or other rows of the trace, as operators see them."""
        advanced, span = Advanced(batch, self._start), self._coalesced
        if span is None:
            return advanced
        return Coalesced(advanced, span.lower, span.earliest)

    @property
    def available(self) -> int:
        upper = self._handle.upper  # of one time at most
        return max(upper.first[0], self._reached) if upper else NEVER

    @property
    def trace(self) -> Trace:
        """The trace, for programs."""
        return self._handle.trace

    @property
    def since(self) -> int:
        """The epoch from which on the trace is exact: that of the handle, or of the maintaining dataflow's start."""
        return max(self._since, self._started_at())

    @property
    def last(self) -> int:
        return self.available if self._upstream.closed else NEVER

    @property
    def has_changes(self) -> bool:
        return self.next_change() != NEVER or self._must_replay

    @property
    def waiting_rows(self) -> int:
        return sum(map(len, self._waiting))

    def _take(self) -> None:
        """Take the batches that have arrived."""
        if self._queue.waiting:
            self._keep([*self._waiting, *(batch for batch in self._queue.take() if len(batch))])

    def _keep(self, waiting: list[Batch]) -> None:
        self._waiting, self._first = waiting, min([int(batch.times[0, 0]) for batch in waiting], default=NEVER)

    @property
    def _must_replay(self) -> bool:
        """Whether there is history that no sweep has processed."""
        return not self._has_replayed and any(map(len, self._queue.history))

    @property
    def has_changes_after_start(self) -> bool:
        if self._has_replayed or self._waiting:
            return self.has_changes
        return any((batch.times[:, 0] > self.since).any() for batch in self._queue.history)

    def known_upper(self) -> int:
        return max(self.available, self._known_upper())

    def demand(self, epoch: int) -> bool:
        self._reached = max(self._reached, self._known_upper())
        return self._reached < epoch and self._demand(epoch)

    def start(self, epoch: int) -> None:
        self._start = from_epoch(epoch, 1)

    def visit(self, span: Span) -> None:
        """Give the batches at the epochs of this sweep, the history first."""
        self._take()
        self._coalesced = span if span.coalesced else None
        self.out.replayed, all_waiting = self._must_replay, self._waiting
        if not self._has_replayed:
            self._has_replayed = True
            all_waiting = [*self._queue.history, *self._waiting]
            self._queue.history = []  # so that the batches live only as long as the trace holds them
        fresh, later = list[Batch](), list[Batch]()
        for waiting in all_waiting:
            batch = self._seen(waiting)
            times = batch.times
            due = span.fresh(times)
            if due.any():
                fresh.append(batch if due.all() else Restricted(batch, span.fresh))
            if (times[:, 0] >= span.upper).any():
                later.append(waiting)
        self.out.fresh = _as_one(fresh, span.earliest) if span.coalesced else fresh
        self._keep(later)

    def lower(self, program: ProgramBuilder) -> bool:
        return program.write_imported(self, self.out, self.trace)

    def offer(self, batch: StoredBatch | None) -> None:
        """Offer a batch to a program that runs together with the one that makes the batch; None to take it back."""
        self._offered = batch

    def load(self, epoch: int) -> list[StoredBatch] | None:
        """The batches at an epoch, for a program; None if they also have changes at other epochs, or are history."""
        due: list[StoredBatch] = [] if self._offered is None else [self._offered]
        if self.next_change() > epoch:
            return None if self._must_replay else due
        for batch in self._waiting:
            first = batch.times[0, 0]
            if first > epoch:
                continue
            if first < epoch or len(batch.times) > 1 or not isinstance(batch, StoredBatch):
                return None
            due.append(batch)
        return None if self._must_replay else due

    def loaded(self, epoch: int) -> None:
        """Forget the changes that a program has processed."""
        self._offered = None
        if self._queue.waiting:
            self._take()
        if self._first <= epoch:
            self._keep([batch for batch in self._waiting if batch.times[0, 0] > epoch])

    def next_change(self) -> int:
        """The least epoch of the changes that wait."""
        if self._queue.waiting:
            self._take()
        return self._first

    def forget(self, epoch: int) -> None:
        self._coalesced = None
        frontier = from_epoch(epoch - 1, 1)
        if epoch > 0 and epoch != NEVER and self._handle.frontier.precedes(frontier):
            self._handle.advance(frontier)

    def drop(self) -> None:
        self._handle.drop()
