"""Subscriptions on a worker: the changes of a dataflow's result, sent to the driver as they become complete.

A subscription starts at an epoch that all workers have in common. It first sends the result at that epoch (if a
snapshot is requested), then all changes at later epochs, each with its epoch. Whenever a sweep is complete, the
subscription sends what the sweep has changed, and up to which epoch the changes are complete. All workers complete the
same sweeps, so an epoch is complete for the subscriber when all workers have reported it.

Flow control. A subscription has credit for a number of messages with rows, and for a number of bytes of rows. Without
credit it is paused, and keeps new batches until it receives credit again. Neither the dataflow nor its other readers
wait for it. A subscription that would have to keep more than `backlog` rows, or more than `backlog_bytes` bytes, is
ended with a message to that effect. Messages are never divided: the last one may exceed the byte credit.

Cost: two passes over the rows that change; nothing for a dataflow that has no subscriptions or does not change. The
first message costs as much as reading the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.lanes import Lane, gather_lane
from ikebana.operators.row_errors import Errors
from ikebana.plan.estimates import format_bytes
from ikebana.runtime.dataflow import Dataflow
from ikebana.runtime.messages import Changed, Resume, Subscribe, SubscriptionEnded
from ikebana.trace import Batch, Updates
from ikebana.trace.updates import consolidate

Notify = Callable[[Any], None]


class Subscriptions:
    """The subscriptions on one worker."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._all: dict[int, _Subscription] = {}

    def open(self, command: Subscribe, flow: Dataflow) -> None:
        """Subscribe to a dataflow."""
        self._all[command.number] = _Subscription(command, flow, self._notify)
        self.on_sweep(flow.name)

    def refuse(self, number: int, reason: str) -> None:
        """End a subscription that could not be opened."""
        self._notify(SubscriptionEnded(number, reason))

    def resume(self, command: Resume) -> None:
        """Give a subscription new credit."""
        subscription = self._all.get(command.number)
        if subscription is not None:
            subscription.credit, subscription.credit_bytes = command.credit, command.credit_bytes
            self._continue(subscription)

    def close(self, number: int) -> None:
        """Remove a subscription that the subscriber has closed."""
        self._all.pop(number, None)

    def on_sweep(self, dataflow: str) -> None:
        """Called when a sweep of a dataflow may be complete."""
        if self._all:
            for subscription in self._of(dataflow):
                self._continue(subscription)

    def on_end(self, dataflow: str, reason: str) -> None:
        """Called when a dataflow has failed or was retired."""
        for subscription in self._of(dataflow):
            self._end(subscription, reason)

    def _of(self, dataflow: str) -> list[_Subscription]:
        return [subscription for subscription in self._all.values() if subscription.dataflow == dataflow]

    def _continue(self, subscription: _Subscription) -> None:
        subscription.send_complete()
        rows, size = subscription.waiting() if subscription.is_paused else (0, 0)
        if rows > subscription.backlog or size > subscription.backlog_bytes:
            waiting = f"{rows} rows ({format_bytes(size)}) of changes wait for it on one worker"
            limits = f"{subscription.backlog} rows and {format_bytes(subscription.backlog_bytes)}"
            self._end(subscription, f"the subscriber is too slow: {waiting}; the limits are {limits}", _TOO_SLOW_HINT)

    def _end(self, subscription: _Subscription, reason: str, hint: str = "") -> None:
        del self._all[subscription.number]
        self._notify(SubscriptionEnded(subscription.number, reason, hint))


_TOO_SLOW_HINT = "take changes faster, or give a larger `backlog` (rows) or `backlog_bytes`; then subscribe again"


class _Subscription:
    def __init__(self, command: Subscribe, flow: Dataflow, notify: Notify) -> None:
        self.number, self.dataflow = command.number, command.dataflow
        self.backlog, self.backlog_bytes = command.backlog, command.backlog_bytes
        self.credit, self.credit_bytes = command.credit, command.credit_bytes
        self.is_paused = False
        self._flow, self._notify, self._start = flow, notify, command.at
        self._next_errors = BEFORE_ALL  # errors at epochs before it were sent
        with flow.reader.clone() as handle:
            self._queue = handle.import_()
        self._errors = [reader.clone() for reader in flow.error_readers]
        self._waiting: list[Batch] = self._queue.history if command.snapshot else []
        self._history, self._queue.history = len(self._waiting), []
        self._next = BEFORE_ALL if command.snapshot else command.at + 1  # earlier epochs were sent, or are not wanted

    def waiting(self) -> tuple[int, int]:
        """The number of rows that wait to be sent, and the bytes that they occupy, without the initial snapshot."""
        batches = self._waiting[self._history :]
        return sum(map(len, batches)), sum(batch.nbytes for batch in batches)

    def send_complete(self) -> None:
        """Send the changes that are complete and not sent yet; without credit, pause."""
        upper = self._flow.lower
        self._waiting += [batch for batch in self._queue.take() if len(batch)]
        if upper <= max(self._next, self._start):
            return
        self.is_paused = bool(self._waiting) and min(self.credit, self.credit_bytes) <= 0
        if self.is_paused:
            return
        updates = updates_between(self._waiting, self._next, upper)
        epochs, table = epochs_and_rows(updates, self._start) if updates is not None else (None, None)
        if table is not None:
            self.credit -= 1
            self.credit_bytes -= table.nbytes
        self._notify(Changed(self.number, upper, epochs, table, self._errors_before(upper)))
        self._waiting = [batch for batch in self._waiting if (batch.times[:, 0] >= upper).any()]
        self._next, self._history = upper, 0

    def _errors_before(self, upper: int) -> tuple[tuple[int, Errors], ...]:
        """The changes of the errors at epochs that were not sent yet; the first time, all errors."""
        changes = [change for reader in self._errors for change in reader.log.since(self._next_errors, upper)]
        self._next_errors = upper
        for reader in self._errors:
            reader.forget(upper - 1)
        return tuple((max(epoch, self._start), errors) for epoch, errors in changes)


BEFORE_ALL = -1
"""An epoch before all others."""


def updates_between(batches: Sequence[Batch], first: int, upper: int) -> Updates | None:
    """The updates of batches at epochs from `first` up to, but excluding, `upper`; None if there are none."""

    def is_between(times: Lane) -> Any:
        return (times[:, 0] >= first) & (times[:, 0] < upper)

    candidates = [batch.gather() for batch in batches if is_between(batch.times).any()]
    parts = [part for updates in candidates if len(part := updates.at_times(is_between(updates.times)))]
    return Updates.concat(parts) if parts else None


def epochs_and_rows(updates: Updates, start: int) -> tuple[Lane, pa.Table] | tuple[None, None]:
    """The epoch of each update and a table of the updates, consolidated; (None, None) if nothing is left.

    Updates at epochs before `start` are moved to `start`.
    """
    if (updates.times[:, 0] < start).any():
        updates = updates.with_times(np.maximum(updates.times, start))
    updates = consolidate(updates).updates
    if not len(updates):
        return None, None
    return gather_lane(updates.times[:, 0], updates.tix), updates.to_table()
