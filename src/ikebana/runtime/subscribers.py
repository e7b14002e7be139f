"""Subscriptions: the changes of a dataflow's result, told to the driver as they are complete.

A subscription starts at an epoch that all workers have in common. It first tells what the result was then (unless
told not to), then all changes at later epochs, each with its epoch. Whenever a sweep is complete it tells what the
sweep has changed, and up to which epoch that is everything. All workers complete the same sweeps, so an epoch is over
for a subscriber when all have told that much.

Pace. A subscription has credit for so many messages with rows in them, and for so many bytes of rows; without any it is
paused, and keeps the batches that come until it has credit again. Nobody else waits for it: not the dataflow, not its
other readers. A subscription that would have to keep more than `backlog` rows, or more than `backlog_bytes` bytes, is
ended, and says so. A message is never divided: the last one may exceed the credit of bytes.

Cost: the rows that change, twice; nothing for a dataflow that nobody follows or that does not change. The first
message takes as much as reading the result does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.lanes import Lane, gathered
from ikebana.operators.row_errors import Errors
from ikebana.plan.estimates import shown_bytes
from ikebana.runtime.dataflow import Dataflow
from ikebana.runtime.messages import Changed, Resume, Subscribe, SubscriptionEnded
from ikebana.trace import Batch, Updates
from ikebana.trace.updates import consolidate

Tell = Callable[[Any], None]


class Subscriptions:
    """The subscriptions on one worker."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._all: dict[int, _Subscription] = {}

    def open(self, command: Subscribe, flow: Dataflow) -> None:
        """Follow a dataflow from now on."""
        self._all[command.number] = _Subscription(command, flow, self._tell)
        self.on_sweep(flow.name)

    def refuse(self, number: int, reason: str) -> None:
        """There is nothing to follow."""
        self._tell(SubscriptionEnded(number, reason))

    def resume(self, command: Resume) -> None:
        """There is credit again."""
        subscription = self._all.get(command.number)
        if subscription is not None:
            subscription.credit, subscription.credit_bytes = command.credit, command.credit_bytes
            self._go_on(subscription)

    def close(self, number: int) -> None:
        """Nobody follows any more."""
        self._all.pop(number, None)

    def on_sweep(self, dataflow: str) -> None:
        """A sweep of a dataflow may be complete."""
        if self._all:
            for each in [each for each in self._all.values() if each.dataflow == dataflow]:
                self._go_on(each)

    def on_end(self, dataflow: str, reason: str) -> None:
        """A dataflow has failed, or was retired."""
        for each in [each for each in self._all.values() if each.dataflow == dataflow]:
            self._end(each, reason)

    def _go_on(self, each: _Subscription) -> None:
        each.go_on()
        rows, size = each.waiting() if each.is_paused else (0, 0)
        if rows > each.backlog or size > each.backlog_bytes:
            waits = f"{rows} rows ({shown_bytes(size)}) of changes wait for it on one worker"
            limits = f"{each.backlog} rows and {shown_bytes(each.backlog_bytes)}"
            self._end(each, f"the subscriber is too slow: {waits}; the limits are {limits}", _FASTER)

    def _end(self, each: _Subscription, reason: str, hint: str = "") -> None:
        del self._all[each.number]
        self._tell(SubscriptionEnded(each.number, reason, hint))


_FASTER = "take changes faster, or give a larger `backlog` (rows) or `backlog_bytes`; then follow it again from now on"


class _Subscription:
    def __init__(self, command: Subscribe, flow: Dataflow, tell: Tell) -> None:
        self.number, self.dataflow = command.number, command.dataflow
        self.backlog, self.backlog_bytes = command.backlog, command.backlog_bytes
        self.credit, self.credit_bytes = command.credit, command.credit_bytes
        self.is_paused = False
        self._flow, self._tell, self._start, self._told_errors = flow, tell, command.at, ALL
        with flow.reader.clone() as handle:
            self._queue = handle.import_()
        self._errors = [reader.clone() for reader in flow.error_readers]
        self._waiting: list[Batch] = self._queue.history if command.snapshot else []
        self._history, self._queue.history = len(self._waiting), []
        self._next = ALL if command.snapshot else command.at + 1  # epochs before it were told, or do not count

    def waiting(self) -> tuple[int, int]:
        """How many rows wait to be told, and how many bytes these keep, besides what was there at the start."""
        batches = self._waiting[self._history :]
        return sum(map(len, batches)), sum(batch.nbytes for batch in batches)

    def go_on(self) -> None:
        """Tell what is complete and was not told yet; without credit for it, pause."""
        upper = self._flow.lower
        self._waiting += [batch for batch in self._queue.take() if len(batch)]
        if upper <= max(self._next, self._start):
            return
        self.is_paused = bool(self._waiting) and min(self.credit, self.credit_bytes) <= 0
        if self.is_paused:
            return
        updates = epochs_of(self._waiting, self._next, upper)
        epochs, table = changes_of(updates, self._start) if updates is not None else (None, None)
        if table is not None:
            self.credit -= 1
            self.credit_bytes -= table.nbytes
        self._tell(Changed(self.number, upper, epochs, table, self._errors_before(upper)))
        self._waiting = [batch for batch in self._waiting if (batch.times[:, 0] >= upper).any()]
        self._next, self._history = upper, 0

    def _errors_before(self, upper: int) -> tuple[tuple[int, Errors], ...]:
        """How errors have changed at epochs that were not told yet; first, all that there are."""
        first = ALL if self._told_errors < 0 else self._told_errors
        changes = [change for reader in self._errors for change in reader.log.since(first, upper)]
        self._told_errors = upper
        for reader in self._errors:
            reader.forget(upper - 1)
        return tuple((max(epoch, self._start), errors) for epoch, errors in changes)


ALL = -1
"""An epoch before all others."""


def epochs_of(batches: Sequence[Batch], first: int, upper: int) -> Updates | None:
    """The updates of batches at epochs from `first` up to, and without, `upper`; None if there are none."""

    def chosen(times: Lane) -> Any:
        return (times[:, 0] >= first) & (times[:, 0] < upper)

    found = [batch.gather() for batch in batches if chosen(batch.times).any()]
    parts = [part for updates in found if len(part := updates.at_times(chosen(updates.times)))]
    return Updates.concat(parts) if parts else None


def changes_of(updates: Updates, start: int) -> tuple[Lane, pa.Table] | tuple[None, None]:
    """Updates as epochs and rows, those before `start` as of then, equal ones added up; None if nothing is left."""
    if (updates.times[:, 0] < start).any():
        updates = updates.with_times(np.maximum(updates.times, start))
    updates = consolidate(updates).updates
    if not len(updates):
        return None, None
    return gathered(updates.times[:, 0], updates.tix), updates.to_table()
