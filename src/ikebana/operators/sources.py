"""Sources: where a dataflow's changes come from, its own inputs and the arrangements of others.

A source says how far it is complete (`available`: epochs before it can be swept), whether it has anything new (and
anything later than the epoch at which the dataflow starts), and from which epoch on it will not change any more
(`last`). That is what this worker knows: a source is closed once all of them agree, since what arrives here in an
exchange stems from all. `Input` holds changes that were pushed until their epochs are swept. `Import` attaches to a
trace maintained by another dataflow: in the first sweep it gives the whole history, as of the epoch at which the
importing dataflow starts, then each new batch. `Constant` gives rows that never change, at the epoch at which the
dataflow starts; it is complete, and closed, from the start.

An imported trace runs at its own pace. When it is ahead, the import takes from it only what a sweep covers:
the trace is multiversioned, and the importer's handles keep the versions that it still needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ikebana.encoding.lanes import constant, constant_diffs
from ikebana.errors import DroppedError, TimeError
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.protocol import Source
from ikebana.operators.span import NEVER, Span
from ikebana.operators.streams import Arranged, Stream, from_epoch
from ikebana.time import Antichain
from ikebana.trace import Batch, Handle
from ikebana.trace.views import Advanced, Restricted

__all__ = ["NEVER", "ConstantSource", "ImportedArrangement", "InputSource"]


class InputSource(Source[Stream]):
    """Changes pushed from outside, each at an epoch not yet closed."""

    def __init__(self, name: str, fields: Fields) -> None:
        self.name, self.out = name, Stream(fields, 1)
        self._available, self._closed = 0, False
        self._waiting: list[Changes] = []

    @property
    def available(self) -> int:
        return self._available

    @property
    def has_changes(self) -> bool:
        return any((changes.times[:, 0] < self._available).any() for changes in self._waiting)

    @property
    def has_changes_after_start(self) -> bool:
        return self.has_changes

    def push(self, changes: Changes) -> None:
        """Buffer changes at epochs that are still open."""
        if self._closed:
            raise DroppedError(f"input {self.name!r} was closed", hint="make a new input for further changes")
        if len(changes) and changes.times[:, 0].min() < self._available:
            raise TimeError(
                f"cannot push changes at epoch {changes.times[:, 0].min()} into input {self.name!r}",
                detail=f"epochs before {self._available} are closed",
                hint="push changes before advancing the input past their epoch",
            )
        if len(changes):
            self._waiting.append(changes)

    def advance(self, epoch: int) -> None:
        """Close all epochs before `epoch`."""
        self._available = max(self._available, epoch)

    def close(self) -> None:
        """Nothing will be pushed any more."""
        self._closed = True

    @property
    def last(self) -> int:
        return (
            max((int(changes.times[:, 0].max()) + 1 for changes in self._waiting), default=0) if self._closed else NEVER
        )

    def visit(self, span: Span) -> None:
        """The changes of this sweep's epochs."""
        if not self._waiting:
            self.out.clear()
            return
        everything = Changes.concat(self._waiting)
        now = everything.times[:, 0] < span.upper
        later = None if now.all() else everything.at_times(~now).pruned()
        self._waiting = [later] if later is not None and len(later) else []
        changes = everything.at_times(now).pruned()
        if len(changes) and changes.times.min() < span.lower:
            changes = changes.with_times(np.maximum(changes.times, span.lower))
        self.out.changes = changes


class ConstantSource(Source[Stream]):
    """This worker's share of rows that never change."""

    available, last, has_changes, has_changes_after_start = NEVER, 0, True, False

    def __init__(self, fields: Fields, columns: Sequence[pa.Array], rows: int) -> None:
        self.out = Stream(fields, 1)
        self._fields, self._columns, self._rows = fields, tuple(columns), rows

    def visit(self, span: Span) -> None:
        """All of them, in the first sweep."""
        self.out.clear()
        if self.has_changes:
            self.has_changes = False
            times, diffs = np.full((1, 1), span.lower, np.int64), constant_diffs(np.ones(1, np.int64), self._rows)
            tix = constant(0, self._rows, np.int32)
            self.out.changes = Changes(times, tix, diffs, self._fields, self._columns)
            self._columns = ()


class ImportedArrangement(Source[Arranged]):
    """An arrangement that another dataflow maintains."""

    def __init__(
        self,
        handle: Handle,
        demand: Callable[[int], bool],
        start: Callable[[], int],
        is_closed: Callable[[], bool],
        on_news: Callable[[], None],
    ) -> None:
        self._handle, self._demand, self._started_at, self._is_closed = handle, demand, start, is_closed
        self._queue = handle.import_()
        self._queue.on_push = on_news
        self._history: list[Batch] | None = None
        self._waiting: list[Batch] = []
        self._since = max((time[0] for time in handle.frontier), default=0)
        self._start = Antichain.of((self._since,))
        self.out = Arranged(handle.schema, 1, handle.clone, lambda batch: Advanced(batch, self._start))

    @property
    def available(self) -> int:
        return min((time[0] for time in self._handle.upper), default=NEVER)

    @property
    def since(self) -> int:
        """Epochs from it on are exact: where the handle was, or the maintainer has started in the meantime."""
        return max(self._since, self._started_at())

    @property
    def last(self) -> int:
        return self.available if self._is_closed() else NEVER

    @property
    def has_changes(self) -> bool:
        self._waiting += [batch for batch in self._queue.take() if len(batch)]
        return bool(self._waiting) or (self._history is None and any(map(len, self._queue.history)))

    @property
    def has_changes_after_start(self) -> bool:
        if self._history is not None or self._waiting:
            return self.has_changes
        return any((batch.times[:, 0] > self.since).any() for batch in self._queue.history)

    def demand(self, epoch: int) -> bool:
        return self._demand(epoch)

    def start(self, epoch: int) -> None:
        self._start = Antichain.of((epoch,))

    def visit(self, span: Span) -> None:
        """The batches of this sweep's epochs, the history first."""
        self._waiting += [batch for batch in self._queue.take() if len(batch)]
        self.out.replayed = self._history is None
        if self._history is None:
            self._history = []
            self._waiting = [*self._queue.history, *self._waiting]
            self._queue.history = []  # its batches live on only as long as the trace has them
        fresh, later = list[Batch](), list[Batch]()
        for waiting in self._waiting:
            batch = Advanced(waiting, self._start)
            times = batch.times
            due = span.fresh(times)
            if due.any():
                fresh.append(batch if due.all() else Restricted(batch, span.fresh))
            if (times[:, 0] >= span.upper).any():
                later.append(waiting)
        self.out.fresh, self._waiting = fresh, later

    def forget(self, epoch: int) -> None:
        frontier = from_epoch(epoch - 1, 1)
        if epoch > 0 and epoch != NEVER and self._handle.frontier.precedes(frontier):
            self._handle.advance(frontier)

    def drop(self) -> None:
        self._handle.drop()
