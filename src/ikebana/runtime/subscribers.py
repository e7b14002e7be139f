"""Subscriptions on a worker: the changes of a dataflow's result, sent to the driver as they become complete.

A subscription starts at an epoch that all workers have in common. It first sends the result at that epoch (if a
snapshot is requested), then all changes at later epochs, each with its epoch. Whenever a sweep is complete, the
subscription sends what the sweep has changed, and up to which epoch the changes are complete. All workers complete the
same sweeps, so an epoch is complete for the subscriber when all workers have reported it.

Flow control. A subscription has credit for a number of messages with rows, and for a number of bytes of rows. Without
credit it is paused, and keeps new batches until it receives credit again. Neither the dataflow nor its other readers
wait for it. A subscription that would have to keep more than `backlog` rows, or more than `backlog_bytes` bytes, is
ended with a message to that effect. Messages are never divided: the last one may exceed the byte credit.

Groups. Subscriptions to single bindings of a prepared statement form a group, which takes the batches of a sweep once
and sends each subscription the rows of its own binding. A subscription that a sweep does not concern receives nothing:
the group is told, in one message, up to which epoch the changes of all its subscriptions were sent. A subscription
that is paused is told so before, since this does not hold for it.

Cost: two passes over the rows that change; nothing for a dataflow that has no subscriptions or does not change. The
first message costs as much as reading the result; in a group, as much as looking up the rows of a binding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.lanes import Lane, constant, gather_lane, is_constant
from ikebana.operators.row_errors import Errors
from ikebana.plan.estimates import format_bytes
from ikebana.runtime.dataflow import Dataflow
from ikebana.runtime.holds import ResultHold
from ikebana.runtime.messages import Changed, Resume, Subscribe, SubscriptionEnded, SubscriptionPaused
from ikebana.trace import Batch, Updates
from ikebana.trace.batch import StoredBatch
from ikebana.trace.updates import consolidate

Notify = Callable[[Any], None]


class Subscriptions:
    """The subscriptions on one worker."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._all: dict[int, _Subscription | _Member] = {}
        self._by_dataflow: dict[str, dict[int, _Subscription]] = {}
        self._groups: dict[str, _Group] = {}  # by dataflow

    def open(self, command: Subscribe, flow: Dataflow, past: ResultHold | None = None) -> None:
        """Subscribe to a dataflow. `past` keeps the epoch at which the subscription starts, if it is not the last."""
        if command.binding is None:
            subscription = _Subscription(command, flow, self._notify, past)
            self._all[command.number] = subscription
            self._by_dataflow.setdefault(flow.name, {})[command.number] = subscription
            self._continue(subscription)
            return
        if flow.name not in self._groups:
            self._groups[flow.name] = _Group(command, flow, self._notify)
        member = self._all[command.number] = self._groups[flow.name].add(command)
        self._continue(member)

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
        if number in self._all:
            self._remove(self._all[number])

    def followed(self) -> list[str]:
        """The dataflows that have subscriptions."""
        return [*(dataflow for dataflow, by_number in self._by_dataflow.items() if by_number), *self._groups]

    def on_sweep(self, dataflow: str) -> None:
        """Called when a sweep of a dataflow may be complete."""
        for subscription in list(self._by_dataflow.get(dataflow, {}).values()):
            self._continue(subscription)
        group = self._groups.get(dataflow)
        if group is not None:
            for member in group.take_complete():
                self._continue(member)
            group.report()

    def on_end(self, dataflow: str, reason: str) -> None:
        """Called when a dataflow has failed or was retired."""
        for subscription in self._of(dataflow):
            self._end(subscription, reason)

    def _of(self, dataflow: str) -> list[_Subscription | _Member]:
        return [subscription for subscription in self._all.values() if subscription.dataflow == dataflow]

    def _continue(self, subscription: _Subscription | _Member) -> None:
        subscription.send_complete()
        rows, size = subscription.waiting() if subscription.is_paused else (0, 0)
        if rows > subscription.backlog or size > subscription.backlog_bytes:
            waiting = f"{rows} rows ({format_bytes(size)}) of changes wait for it on one worker"
            limits = f"{subscription.backlog} rows and {format_bytes(subscription.backlog_bytes)}"
            self._end(subscription, f"the subscriber is too slow: {waiting}; the limits are {limits}", _TOO_SLOW_HINT)

    def _end(self, subscription: _Subscription | _Member, reason: str, hint: str = "") -> None:
        self._remove(subscription)
        self._notify(SubscriptionEnded(subscription.number, reason, hint))

    def _remove(self, subscription: _Subscription | _Member) -> None:
        del self._all[subscription.number]
        if isinstance(subscription, _Subscription):
            del self._by_dataflow[subscription.dataflow][subscription.number]
        elif self._groups[subscription.dataflow].remove(subscription):
            del self._groups[subscription.dataflow]


_TOO_SLOW_HINT = "take changes faster, or give a larger `backlog` (rows) or `backlog_bytes`; then subscribe again"


class _Subscription:
    def __init__(self, command: Subscribe, flow: Dataflow, notify: Notify, past: ResultHold | None) -> None:
        self.number, self.dataflow = command.number, command.dataflow
        self.backlog, self.backlog_bytes = command.backlog, command.backlog_bytes
        self.credit, self.credit_bytes = command.credit, command.credit_bytes
        self.is_paused = False
        self._flow, self._notify, self._start = flow, notify, command.at
        self._next_errors = BEFORE_ALL  # errors at epochs before it were sent
        with flow.reader.clone() if past is None else past.result.clone() as handle:
            self._queue = handle.import_()
        self._errors = [reader.clone() for reader in (flow.error_readers if past is None else past.errors)]
        self._waiting: list[Batch] = self._queue.history if command.snapshot or past is not None else []
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
        errors, size = self._errors_before(upper), 0
        if table is not None:
            size = _size(table)
            self.credit -= 1
            self.credit_bytes -= size
        self._notify(Changed(self.number, upper, _compact(epochs), table, errors, size))
        if self._waiting:
            self._waiting = [batch for batch in self._waiting if _reaches(batch, upper)]
        self._next, self._history = upper, 0

    def _errors_before(self, upper: int) -> tuple[tuple[int, Errors], ...]:
        """The changes of the errors at epochs that were not sent yet; the first time, all errors."""
        logged = [reader for reader in self._errors if reader.log.epochs and len(reader.log)]
        changes = [change for reader in logged for change in reader.log.since(self._next_errors, upper)]
        self._next_errors = upper
        for reader in logged:
            reader.forget(upper - 1)
        return tuple([(max(epoch, self._start), errors) for epoch, errors in changes])


BEFORE_ALL = -1
"""An epoch before all others."""


class _Member:
    """A subscription to one binding, and what is complete but not sent to it yet."""

    def __init__(self, command: Subscribe, flow: Dataflow, notify: Notify) -> None:
        assert command.binding is not None
        self.number, self.dataflow, self.binding = command.number, command.dataflow, command.binding
        self.backlog, self.backlog_bytes = command.backlog, command.backlog_bytes
        self.credit, self.credit_bytes = command.credit, command.credit_bytes
        self.is_paused = False
        self.start = command.at
        self.is_started = False
        self._notify = notify
        self._snapshot = flow.reader.clone() if command.snapshot else None  # keeps the epoch `start` readable
        self._upper = BEFORE_ALL
        self._waiting: list[tuple[Lane, pa.Table]] = []  # the epoch of each row, and the rows
        self._waiting_errors: list[tuple[int, Errors]] = []

    def begin(self, errors: list[tuple[int, Errors]]) -> None:
        """Take the result at the first epoch, which is complete now, and the errors up to then."""
        self.is_started = True
        if self._snapshot is not None:
            with self._snapshot as handle:
                (name,) = (field.name for field in handle.schema.key.fields)
                rows = handle.lookup({name: [self.binding]}, (self.start,))
            self._snapshot = None
            if rows.num_rows:
                self._waiting.append((np.full(rows.num_rows, self.start), rows))
        self.take(self.start + 1, None, [(max(epoch, self.start), change) for epoch, change in errors])

    def take(self, upper: int, rows: tuple[Lane, pa.Table] | None, errors: list[tuple[int, Errors]]) -> None:
        """Take the changes that a sweep has completed."""
        self._upper = upper
        if rows is not None:
            self._waiting.append(rows)
        self._waiting_errors += errors

    def waiting(self) -> tuple[int, int]:
        """The number of rows that wait to be sent, and the bytes that they occupy."""
        tables = [table for _, table in self._waiting]
        return sum(map(len, tables)), sum(table.nbytes for table in tables)

    def send_complete(self) -> None:
        """Send what waits; without credit, pause."""
        if self._upper == BEFORE_ALL:
            return
        was_paused, self.is_paused = self.is_paused, bool(self._waiting) and min(self.credit, self.credit_bytes) <= 0
        if self.is_paused:
            if not was_paused:
                self._notify(SubscriptionPaused(self.number))
            return
        epochs, table, size = None, None, 0
        if self._waiting:
            is_one = len(self._waiting) == 1
            epochs = self._waiting[0][0] if is_one else np.concatenate([epochs for epochs, _ in self._waiting])
            table = self._waiting[0][1] if is_one else pa.concat_tables([table for _, table in self._waiting])
            size = _size(table)
            self.credit -= 1
            self.credit_bytes -= size
        self._notify(Changed(self.number, self._upper, _compact(epochs), table, tuple(self._waiting_errors), size))
        self._upper, self._waiting, self._waiting_errors = BEFORE_ALL, [], []


class _Group:
    """The subscriptions to single bindings of a dataflow's result, which is arranged by binding."""

    def __init__(self, command: Subscribe, flow: Dataflow, notify: Notify) -> None:
        self.number, self._flow, self._notify = command.group, flow, notify
        with flow.reader.clone() as handle:
            self._queue = handle.import_()
        self._queue.history = []
        self._errors = [reader.clone() for reader in flow.error_readers]
        self._batches: list[Batch] = []
        self._next = (
            command.at + 1
        )  # changes at earlier epochs were taken; that one is the open epoch, so none is later
        self._members: dict[int, list[_Member]] = {}  # by binding
        self._starting: list[_Member] = []

    def add(self, command: Subscribe) -> _Member:
        """Add a subscription; it begins at once if its first epoch is complete."""
        member = _Member(command, self._flow, self._notify)
        self._members.setdefault(member.binding, []).append(member)
        self._starting.append(member)
        self._begin_members(self._flow.lower)
        return member

    def remove(self, member: _Member) -> bool:
        """Remove a subscription; return whether it was the last one."""
        members = self._members[member.binding]
        members.remove(member)
        if not members:
            del self._members[member.binding]
        if member in self._starting:
            self._starting.remove(member)
        return not self._members

    def _begin_members(self, upper: int) -> list[_Member]:
        """Begin the subscriptions whose first epoch is complete, and return them."""
        begun = [member for member in self._starting if member.start < upper]
        self._starting = [member for member in self._starting if member.start >= upper]
        for member in begun:
            member.begin(self._errors_of(member, BEFORE_ALL, member.start + 1))
        return begun

    def take_complete(self) -> list[_Member]:
        """Take what a sweep has completed; return the subscriptions that have something to send."""
        upper = self._flow.lower
        self._batches += [batch for batch in self._queue.take() if len(batch)]
        concerned = dict.fromkeys(self._begin_members(upper))
        for member in concerned:
            member.send_complete()
        if upper <= self._next:
            return list(concerned)
        routed = self._route(updates_between(self._batches, self._next, upper))
        has_errors = any(True for reader in self._errors for _ in reader.log.since(self._next, upper))
        for binding in self._members if has_errors else routed:
            for member in self._members.get(binding, ()):
                if member.is_started:
                    first = max(self._next, member.start + 1)
                    errors = self._errors_of(member, first, upper) if has_errors else []
                    rows = _since(routed.get(binding), first)
                    if rows is not None or errors:
                        member.take(upper, rows, errors)
                        concerned[member] = None
        self._forget(upper)
        return list(concerned)

    def _route(self, updates: Updates | None) -> dict[int, tuple[Lane, pa.Table]]:
        """The changes of each binding that is subscribed to: the epoch of each row, and the rows."""
        if updates is None:
            return {}
        changed = np.unique(updates.key)
        updates = updates.where(np.isin(updates.key, [key for key in changed.tolist() if key in self._members]))
        epochs, table = epochs_and_rows(updates, self._next) if len(updates) else (None, None)
        if epochs is None or table is None:
            return {}
        bindings = table.column(0).to_numpy()
        order = np.argsort(bindings, kind="stable")
        table, bindings, epochs = table.take(pa.array(order)), bindings[order], epochs[order]
        starts = np.flatnonzero(np.append(True, bindings[1:] != bindings[:-1])).tolist()
        ends = [*starts[1:], len(bindings)]
        return {
            int(bindings[start]): (epochs[start:end], table.slice(start, end - start))
            for start, end in zip(starts, ends, strict=True)
        }

    def _errors_of(self, member: _Member, first: int, upper: int) -> list[tuple[int, Errors]]:
        """The changes of the errors that concern a binding, at epochs from `first` up to, but excluding, `upper`."""
        changes = (change for reader in self._errors for change in reader.log.since(first, upper))
        own = (
            (epoch, Errors({error: diff for error, diff in errors.items() if error.binding in (None, member.binding)}))
            for epoch, errors in changes
        )
        return [(epoch, errors) for epoch, errors in own if errors]

    def _forget(self, upper: int) -> None:
        self._batches = [batch for batch in self._batches if _reaches(batch, upper)]
        self._next = upper
        for reader in self._errors:
            reader.forget(upper - 1)

    def report(self) -> None:
        """Tell the subscribers up to which epoch everything was sent, except to subscriptions that are paused."""
        self._notify(Changed(self.number, self._flow.lower, None, None))


def _since(rows: tuple[Lane, pa.Table] | None, first: int) -> tuple[Lane, pa.Table] | None:
    """The rows at epochs from `first` on, with their epochs; None if there are none."""
    if rows is None or rows[0].min() >= first:
        return rows
    is_later = rows[0] >= first
    return (rows[0][is_later], rows[1].filter(pa.array(is_later))) if is_later.any() else None


def _reaches(batch: Batch, epoch: int) -> bool:
    """Whether a batch has updates at an epoch or later."""
    times = batch.times
    return bool(times[0, 0] >= epoch if len(times) == 1 else (times[:, 0] >= epoch).any())


def updates_between(batches: Sequence[Batch], first: int, upper: int) -> Updates | None:
    """The consolidated updates of batches at epochs from `first` up to, but excluding, `upper`; None if there are none.

    Those of a single stored batch, the usual case after a small change, are consolidated as they are. In a view of a
    batch, epochs may have become equal.
    """
    if len(batches) == 1 and isinstance(batches[0], StoredBatch) and len(batches[0].times) == 1:
        return batches[0].gather() if first <= batches[0].times[0, 0] < upper else None

    def is_between(times: Lane) -> Any:
        return (times[:, 0] >= first) & (times[:, 0] < upper)

    chosen = [batch for batch in batches if is_between(batch.times).any()]
    candidates = [batch.gather() for batch in chosen]
    parts = [part for updates in candidates if len(part := updates.at_times(is_between(updates.times)))]
    if len(parts) > 1 or (parts and not all(isinstance(batch, StoredBatch) for batch in chosen)):
        return consolidate(Updates.concat(parts)).updates
    return parts[0] if parts else None


def epochs_and_rows(updates: Updates, start: int) -> tuple[Lane, pa.Table] | tuple[None, None]:
    """The epoch of each update and a table of the updates, which are consolidated; (None, None) if nothing is left.

    Updates at epochs before `start` are moved to `start`.
    """
    if len(updates.times) == 1 and len(updates) and updates.times[0, 0] >= start:
        return constant(int(updates.times[0, 0]), len(updates)), updates.to_table()
    if (updates.times[:, 0] < start).any():
        updates = consolidate(updates.with_times(np.maximum(updates.times, start))).updates
    if not len(updates):
        return None, None
    return gather_lane(updates.times[:, 0], updates.tix), updates.to_table()


def _compact(epochs: Lane | None) -> Lane | int | None:
    """One epoch if it is that of all rows."""
    return int(epochs[0]) if epochs is not None and is_constant(epochs) else epochs


def _size(table: pa.Table) -> int:
    """The bytes of a table, or a few more: what small tables are slices of counts."""
    held: int = table.get_total_buffer_size()
    return held if held < _SMALL_BYTES else table.nbytes


_SMALL_BYTES = 1 << 16
