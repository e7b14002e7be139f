"""Subscriptions: the changes of a view, every epoch exactly once, in order, from all workers together.

Workers send the changes of an epoch as notifications when the epoch is complete (`ikebana.runtime.subscribers` is their
side). An epoch is handed out when all workers have sent it; since every row lives on one worker, their changes together
are consolidated.

Pace. Notifications arrive in a thread that must not block, so it only stores them; the consumer splits them into
epochs. Each worker may be `CREDIT` messages (of `CREDIT_BYTES` in all) ahead of the consumer, and then waits. This
bounds the memory that a slow consumer uses here; further changes wait on the workers, where they delay no other reader.
When more than `backlog` rows or `backlog_bytes` bytes wait on a worker, the subscription ends with an error. Epochs are
never skipped or merged.

Errors. While a view has errors (`ikebana.operators.row_errors`), no changes are handed out. At the epoch at which the
errors appear, iterating raises an `EvaluationError` once, or the callback `on_error` is called. The subscription goes
on: the first epoch without errors is handed out with all changes since the last epoch without errors, even if there are
none; `backlog` bounds the changes that may wait until then.

Ends. Iterating stops when the subscription is closed or its view is dropped (after all epochs that were complete by
then), and raises when the view fails, a worker dies, or the consumer is too slow. An interrupt (Ctrl-C) ends waiting;
the next call continues at the same place.

Groups. The subscriptions to single bindings of a prepared statement receive only what concerns them. How far that is
complete, the workers tell their group, once for all (`SubscriptionGroup`).

Cost: one message from each worker for each sweep of the view, and one message to the workers for every few of those.
Not guaranteed: the use of one subscription by several threads.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa

from ikebana.cluster.interrupts import defer_interrupts
from ikebana.encoding import Schema
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.deadline import Deadline
from ikebana.errors import DataflowError, EvaluationError, IkebanaError, WaitTimeoutError
from ikebana.operators.row_errors import Errors, exception_of, result_errors, total_errors
from ikebana.plan.estimates import format_bytes
from ikebana.runtime.messages import (
    Changed,
    Demand,
    Ping,
    Resume,
    Subscribe,
    SubscriptionEnded,
    SubscriptionPaused,
    Unsubscribe,
)
from ikebana.trace import Updates
from ikebana.trace.updates import consolidate

CREDIT = 32
"""The number of messages with rows that each worker may be ahead of the consumer."""

CREDIT_BYTES = 64 << 20
"""The size of these messages together; a single message may be larger."""

BACKLOG = 10_000_000
"""The default number of rows that may wait on each worker for a slow consumer."""

BACKLOG_BYTES = 1_000_000_000
"""The default number of bytes that may wait on each worker for a slow consumer."""

_HEALTH_CHECK_SECONDS = 1.0
"""While there are no changes, check this often whether all workers are alive."""

_RUN_SECONDS = 0.02
"""While there are no changes, let workers that do not run by themselves work this often."""

OnChange: TypeAlias = Callable[[int, pa.Table], object]
"""A function that is called with an epoch and its changes."""

OnError: TypeAlias = Callable[[EvaluationError], object]
"""A function that is called with the error when a view gets errors."""

log = logging.getLogger("ikebana")


class SubscriptionGroup:
    """How far the workers have sent the changes of all bindings of a statement that are subscribed to."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.uppers = [0] * coordinator.cluster.size
        """Each worker has sent all changes before this epoch, except to subscriptions that are paused."""
        self._incomplete: dict[Subscription, None] = {}  # those that have received changes that are not complete yet
        self.number = coordinator.new_number()
        coordinator.add_listener(self.number, self._on_notification)
        weakref.finalize(self, coordinator.remove_listener, self.number).atexit = False

    def add_incomplete(self, subscription: Subscription) -> None:
        """Wake a subscription when what it has received is complete. Called by the notification thread."""
        self._incomplete[subscription] = None

    def _on_notification(self, worker: int, notification: Changed) -> None:
        self.uppers[worker] = notification.upper
        for subscription in list(self._incomplete):
            if subscription.wake_if_complete():
                del self._incomplete[subscription]


class Subscription(Iterator[tuple[int, pa.Table]]):
    """The changes of a view: an iterator over pairs (epoch, Arrow table with `diff`). See `View.changes`."""

    def __init__(
        self,
        coordinator: Coordinator,
        view: str,
        dataflow: str,
        schema: Schema,
        since: str | None = None,
        *,
        timeout: float | None = None,
        backlog: int = BACKLOG,
        backlog_bytes: int = BACKLOG_BYTES,
        binding: int | None = None,
        group: SubscriptionGroup | None = None,
    ) -> None:
        """Subscribe to the changes of `dataflow`, which maintains `view`. The other parameters are as for `changes`.

        With `binding`, the changes are those of one binding of a prepared statement; `group` is the statement's.
        """
        if since not in (None, "now"):
            raise DataflowError(
                f"cannot follow view {view!r} since {since!r}",
                hint='`since` is None, to begin with the present result, or "now"',
            )
        self.view, self._dataflow, self._coordinator, self._timeout = view, dataflow, coordinator, timeout
        self.error: BaseException | None = None
        """The exception that ended the subscription in `call`, if any."""
        self._received = threading.Condition()  # guards what the notification thread stores
        self._uppers = [0] * coordinator.cluster.size  # each worker has sent all changes before this epoch
        self._group = group
        self._is_attached = [False] * coordinator.cluster.size  # whether this also holds for the group's epoch
        self._changes: list[tuple[Any, pa.Table]] = []  # received, not yet split: the epoch of each row, and the rows
        self._error_changes: list[tuple[int, Errors]] = []
        self._items: deque[tuple[int, pa.Table | IkebanaError]] = deque()  # ready to be handed out
        self._schema, self._binding, self._backlog, self._backlog_bytes = schema, binding, backlog, backlog_bytes
        self._errors: Errors = Counter()  # all errors of the view at the last epoch that was processed
        self._has_errors = False  # whether any of them concerns this subscription
        self._withheld: list[pa.Table] = []  # changes at epochs with errors
        self._used_messages, self._used_bytes = 0, 0  # credit used up since the last `Resume`
        self._upper = -1  # epochs before this one have been processed
        self._closed, self._end_reason, self._end_hint = False, "", ""
        with coordinator.lock, defer_interrupts():
            self._number, at = coordinator.new_number(), coordinator.epoch - 1
            coordinator.add_listener(self._number, self._on_notification)
            limits = CREDIT, CREDIT_BYTES, backlog, backlog_bytes
            routing = () if group is None else (binding, group.number)
            coordinator.command(Subscribe(self._number, dataflow, at, since is None, *limits, *routing))
            coordinator.command(Demand(dataflow, at + 1))
            self._unsubscribe = weakref.finalize(self, _unsubscribe, coordinator, self._number)
            self._unsubscribe.atexit = False

    # Notifications, in the thread that receives them.

    def _on_notification(self, worker: int, notification: Changed | SubscriptionPaused | SubscriptionEnded) -> None:
        with self._received:
            match notification:
                case SubscriptionEnded(reason=reason, hint=hint):
                    if not self._end_reason:
                        self._end_reason, self._end_hint = reason, hint
                case SubscriptionPaused():
                    self._uppers[worker], self._is_attached[worker] = self._upper_of(worker), False
                case _:
                    self._uppers[worker], self._is_attached[worker] = notification.upper, True
                    if notification.changes is not None:
                        self._changes.append((notification.epochs, notification.changes))
                    self._error_changes += notification.errors
            self._received.notify_all()
        if self._group is not None and not self.wake_if_complete():
            self._group.add_incomplete(self)

    def wake_if_complete(self) -> bool:
        """Wake the consumer if all workers have sent what this worker has; return whether they have."""
        with self._received:
            is_complete = self._complete_upper() >= max(self._uppers)
            if is_complete:
                self._received.notify_all()
            return is_complete or self._closed

    def _upper_of(self, worker: int) -> int:
        """The epoch before which a worker has sent all changes."""
        if self._group is None or not self._is_attached[worker]:
            return self._uppers[worker]
        return max(self._uppers[worker], self._group.uppers[worker])

    def _complete_upper(self) -> int:
        """The epoch before which all workers have sent all changes."""
        return min(map(self._upper_of, range(len(self._uppers))))

    # The consumer.

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, pa.Table]:
        item = self.take(self._timeout)
        if item is None:
            raise StopIteration
        return item

    def take(self, timeout: float | None = None) -> tuple[int, pa.Table] | None:
        """Return the next epoch with changes, and its changes.

        Returns None when the subscription has ended, or when there was no change for `timeout` seconds. Raises an
        `EvaluationError`, once, when the view gets errors.
        """
        end = None if timeout is None else time.monotonic() + timeout
        checked = time.monotonic()
        while not self._items and not self._process():
            if self._end_reason and not self._closed:
                self._fail()
            now = time.monotonic()
            if self._closed or (end is not None and now >= end):
                return None
            if now - checked > _HEALTH_CHECK_SECONDS:
                checked = now
                if not self._check_workers(None if end is None else end - now):
                    return None
            self._wait(_HEALTH_CHECK_SECONDS if end is None else min(_HEALTH_CHECK_SECONDS, end - now))
        epoch, item = self._items.popleft()
        if isinstance(item, IkebanaError):
            raise item
        return epoch, item

    def _check_workers(self, seconds: float | None) -> bool:
        """Raise if a worker has died; return whether all workers have answered within some seconds."""
        try:
            self._coordinator.ask(Ping(self._dataflow), deadline=Deadline(seconds, f"following {self.view!r}"))
        except WaitTimeoutError:
            return False
        except IkebanaError:
            if not self._closed and not self._end_reason:
                raise
        return True

    def _process(self) -> bool:
        """Turn complete epochs into items; return whether there are any. An interrupt does not lose changes."""
        with defer_interrupts():
            return self._process_complete_epochs()

    def _process_complete_epochs(self) -> bool:
        with self._received:
            upper = self._complete_upper()
            if upper <= self._upper:
                return False
            received, self._changes = self._changes, []
            errors = [change for change in self._error_changes if change[0] < upper]
            self._error_changes = [change for change in self._error_changes if change[0] >= upper]
            self._upper = upper
        complete, incomplete = _split_at(received, upper)
        with self._received:
            self._changes = incomplete + self._changes
        if errors or self._errors:
            self._process_with_errors(dict(by_epoch(complete)), errors)
        else:
            self._items.extend(by_epoch(complete))
        self._return_credit(len(received), sum(table.nbytes for _, table in received))
        return bool(self._items)

    def _return_credit(self, messages: int, size: int) -> None:
        """Let the workers send more once half of their credit is used up."""
        self._used_messages += messages
        self._used_bytes += size
        if self._used_messages >= CREDIT // 2 or self._used_bytes >= CREDIT_BYTES // 2:
            self._used_messages = self._used_bytes = 0
            self._coordinator.command(Resume(self._number, CREDIT, CREDIT_BYTES))

    def _process_with_errors(self, changes: dict[int, pa.Table], errors: Sequence[tuple[int, Errors]]) -> None:
        """Turn epochs without errors into items, withhold the changes of the others, and report when errors appear."""
        for epoch in sorted({*changes, *(epoch for epoch, _ in errors)}):
            had_errors = self._has_errors
            self._errors = total_errors([self._errors, *(change for at, change in errors if at == epoch)])
            present_errors = result_errors(self._errors, self._binding)
            self._has_errors = bool(present_errors)
            table = changes.get(epoch)
            if present_errors:
                self._withhold(table)
                if not had_errors:
                    self._items.append((epoch, exception_of(self.view, present_errors)))
            elif had_errors:
                parts = self._withheld if table is None else [*self._withheld, table]
                self._withheld = []
                self._items.append((epoch, consolidated(parts, self._schema)))
            elif table is not None:
                self._items.append((epoch, table))

    def _withhold(self, table: pa.Table | None) -> None:
        if table is not None:
            self._withheld.append(table)
        rows, size = sum(map(len, self._withheld)), sum(part.nbytes for part in self._withheld)
        if rows > self._backlog or size > self._backlog_bytes:
            self._end_reason = (
                f"{rows} rows of changes ({format_bytes(size)}) wait until the view has no errors any more"
            )
            self._end_hint = (
                "correct the rows that errors() lists and subscribe again, or allow more with a larger `backlog`"
            )

    def _wait(self, seconds: float) -> None:
        """Wait for notifications, for some seconds at most."""
        if not self._coordinator.cluster.runs_by_itself:
            before = self._complete_upper(), self._end_reason
            self._coordinator.run()
            if (self._complete_upper(), self._end_reason) != before:
                return
            seconds = min(seconds, _RUN_SECONDS)
        with self._received:
            if self._complete_upper() <= self._upper and not self._end_reason and not self._closed:
                self._received.wait(seconds)

    def _fail(self) -> None:
        self.close()
        raise DataflowError(
            f"cannot follow view {self.view!r} any further",
            detail=self._end_reason,
            hint=self._end_hint or "read() shows whether the view has failed; if not, subscribe again",
        )

    # The end.

    def close(self) -> None:
        """End the subscription; iterating stops. Closing it twice does nothing.

        A subscription that is garbage-collected is closed, too.
        """
        with self._received:
            self._closed = True
            self._received.notify_all()
        self._unsubscribe()

    @property
    def closed(self) -> bool:
        """Whether the subscription was closed, or has ended."""
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Callbacks.

    def call(self, callback: OnChange, on_error: OnError | None = None) -> None:
        """Call `callback(epoch, table)` for each item in a background thread; see `View.subscribe`."""
        target, name = self._call, f"changes of {self.view}"
        threading.Thread(target=target, args=(callback, on_error), name=name, daemon=True).start()

    def _call(self, callback: OnChange, on_error: OnError | None) -> None:
        try:
            while True:
                try:
                    item = self.take(self._timeout)
                except EvaluationError as error:
                    if on_error is None:
                        log.warning("%s", error)
                    else:
                        on_error(error)
                    continue
                if item is None or self._closed:
                    return
                callback(*item)
        except BaseException as error:  # an error of one subscriber must not affect others
            self.error = error
            log.exception("a subscription to view %r has ended", self.view)
        finally:
            self.close()


def _unsubscribe(coordinator: Coordinator, number: int) -> None:
    coordinator.remove_listener(number)
    with suppress(IkebanaError):  # the workers have ended
        coordinator.command(Unsubscribe(number))


# Tables of changes.


def consolidated(tables: Sequence[pa.Table], schema: Schema) -> pa.Table:
    """The changes of several epochs as one table: diffs of equal rows added up, rows with diff zero left out."""
    if not tables:
        return Updates.empty(schema, 1).to_table()
    table = pa.concat_tables(tables)
    diffs = {name: table[name].to_numpy() for name in schema.diffs}
    return consolidate(Updates.of(schema, table.select(schema.names), (0,), diffs)).updates.to_table()


def by_epoch(parts: Sequence[tuple[Any, pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
    """Pairs (epoch, rows), in order of epochs, from tables that come with the epoch of each row."""
    pieces: dict[int, list[pa.Table]] = {}
    for epochs, table in parts:
        for epoch, piece in _split_by_epoch(epochs, table):
            pieces.setdefault(epoch, []).append(piece)
    for epoch in sorted(pieces):
        yield epoch, pa.concat_tables(pieces[epoch])


def _split_at(
    parts: Sequence[tuple[Any, pa.Table]], upper: int
) -> tuple[list[tuple[Any, pa.Table]], list[tuple[Any, pa.Table]]]:
    """The rows at epochs before `upper`, and the others; both with the epoch of each row."""
    before, after = [], []
    for epochs, table in parts:
        if epochs.max() < upper:
            before.append((epochs, table))
        else:
            is_before = epochs < upper
            before.append((epochs[is_before], table.filter(pa.array(is_before))))
            after.append((epochs[~is_before], table.filter(pa.array(~is_before))))
    return before, after


def _split_by_epoch(epochs: Any, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of a table, grouped by epoch."""
    if not len(epochs):
        return
    if (epochs == epochs[0]).all():
        yield int(epochs[0]), table
        return
    order = np.argsort(epochs, kind="stable")
    ordered, table = epochs[order], table.take(pa.array(order))
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    for start, end in zip(starts, [*starts[1:], len(ordered)], strict=True):
        yield int(ordered[start]), table.slice(start, end - start)
