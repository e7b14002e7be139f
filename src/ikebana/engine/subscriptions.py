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

New workers. If workers are replaced (`ikebana.engine.healing`), changes that not all of the old ones have sent are
forgotten, and the new ones send the changes after the last epoch that is complete (`position`, `resumed`).

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
from typing import Self, TypeAlias

import pyarrow as pa

from ikebana.cluster.interrupts import defer_interrupts
from ikebana.encoding import Schema
from ikebana.engine.changes_by_epoch import Part, by_epoch, consolidated, parts_before, split_parts
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

    def forget(self) -> None:
        """Forget what workers have told: they were replaced."""
        self.uppers = [0] * len(self.uppers)
        self._incomplete.clear()

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
        since: int | str | None = None,
        *,
        timeout: float | None = None,
        backlog: int = BACKLOG,
        backlog_bytes: int = BACKLOG_BYTES,
        binding: int | None = None,
        group: SubscriptionGroup | None = None,
    ) -> None:
        """Subscribe to the changes of `dataflow`, which maintains `view`. The other parameters are as for `changes`.

        An epoch `since` must be held, unless it is the last closed one. With `binding`, the changes are those of one
        binding of a prepared statement; `group` is the statement's.
        """
        self.view, self._coordinator, self._timeout = view, coordinator, timeout
        self.dataflow = dataflow
        """The dataflow whose changes these are."""
        self.error: BaseException | None = None
        """The exception that ended the subscription in `call`, if any."""
        self._received = threading.Condition()  # guards what the notification thread stores
        self._uppers = [0] * coordinator.cluster.size  # each worker has sent all changes before this epoch
        self._group = group
        self._is_attached = [False] * coordinator.cluster.size  # whether this also holds for the group's epoch
        self._changes: list[Part] = []  # received, not yet split
        self._received_messages, self._received_bytes = 0, 0  # credit that they have used up
        self._error_changes: list[tuple[int, Errors]] = []
        self._items: deque[tuple[int, pa.Table | IkebanaError]] = deque()  # ready to be handed out
        self._schema, self._binding, self._backlog, self._backlog_bytes = schema, binding, backlog, backlog_bytes
        self._errors: Errors = Counter()  # all errors of the view at the last epoch that was processed
        self._has_errors = False  # whether any of them concerns this subscription
        self._withheld: list[pa.Table] = []  # changes at epochs with errors
        self._upper = -1  # epochs before this one have been processed
        self._resumptions = 0  # how often workers were replaced
        self._resumed_from = 0  # everything before this epoch was received from workers who were replaced
        self._closed, self._end_reason, self._end_hint = False, "", ""
        with coordinator.lock, defer_interrupts():
            self._number, last = coordinator.new_number(), coordinator.epoch - 1
            at = since if isinstance(since, int) else last
            self._given = None if since is None else at  # the epoch up to which nothing has to be sent
            coordinator.add_listener(self._number, self._on_notification)
            coordinator.subscriptions.add(self)
            coordinator.command(self._subscribe(at, past=at < last))
            coordinator.command(Demand(dataflow, last + 1))
            self._unsubscribe = weakref.finalize(self, _unsubscribe, coordinator, self._number)
            self._unsubscribe.atexit = False

    def _subscribe(self, at: int, *, past: bool = False) -> Subscribe:
        """The command that lets workers send changes after an epoch, and before them all rows, if none were given.

        `past` says that the epoch is not the last closed one, but one that is held.
        """
        limits = CREDIT, CREDIT_BYTES, self._backlog, self._backlog_bytes
        routing = self._binding, -1 if self._group is None else self._group.number
        return Subscribe(self._number, self.dataflow, at, self._given is None, *limits, *routing, past)

    # New workers.

    @property
    def position(self) -> int | None:
        """The last epoch up to which all workers have sent everything; None if they have sent nothing yet."""
        with self._received:
            complete = self._complete_upper() - 1
            if self._given is None:
                return complete if complete >= 0 else None
            return max(self._given, complete)

    def resumed(self, at: int | None, last: int) -> Subscribe:
        """The command that lets new workers go on after the epoch `at`; if it is None, begin at the epoch `last`.

        What the old workers have sent of later epochs is forgotten. The first message of each new worker has all errors
        of the view up to `at`, which are known already.
        """
        with self._received:
            upper = 0 if at is None else at + 1
            self._changes = parts_before(self._changes, upper)
            self._error_changes = [change for change in self._error_changes if change[0] < upper]
            self._uppers = [upper] * len(self._uppers)
            self._is_attached = [False] * len(self._uppers)
            self._given, self._resumed_from = at, upper
            self._resumptions += 1
            self._received_messages = self._received_bytes = 0
            if self._group is not None:
                self._group.forget()
        return self._subscribe(last if at is None else at)

    def end(self, reason: str) -> None:
        """End the subscription with an error, after all that is complete."""
        self._on_notification(0, SubscriptionEnded(self._number, reason, "subscribe again, and begin with all rows"))

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
                        self._received_messages += 1
                        self._received_bytes += notification.size
                    self._error_changes += [change for change in notification.errors if change[0] >= self._resumed_from]
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
            self._coordinator.ask(Ping(self.dataflow), deadline=Deadline(seconds, f"following {self.view!r}"))
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
            received, self._changes, resumptions = self._changes, [], self._resumptions
            errors = [change for change in self._error_changes if change[0] < upper]
            self._error_changes = [change for change in self._error_changes if change[0] >= upper]
            self._upper = upper
        complete, incomplete = split_parts(received, upper)
        with self._received:
            if resumptions != self._resumptions:  # new workers send the rest again
                incomplete = parts_before(incomplete, self._resumed_from)
            if incomplete:
                self._changes = incomplete + self._changes
        if errors or self._errors:
            self._process_with_errors(dict(by_epoch(complete)), errors)
        else:
            self._items.extend(by_epoch(complete))
        self._return_credit()
        return bool(self._items)

    def _return_credit(self) -> None:
        """Let the workers send more once half of their credit is used up."""
        if self._received_messages >= CREDIT // 2 or self._received_bytes >= CREDIT_BYTES // 2:
            with self._received:
                self._received_messages = self._received_bytes = 0
            self._coordinator.tell(Resume(self._number, CREDIT, CREDIT_BYTES))

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

    def ack(self, epoch: int | None = None) -> None:
        """Acknowledge an epoch, and all before it; by default the last delivered one. Only if it has a name.

        A subscription that has a name is stored with its position (`ikebana.engine.named_subscriptions`).
        """
        raise DataflowError(
            f"cannot acknowledge epoch {epoch} of view {self.view!r}",
            detail="a subscription without a name has no position",
            hint='give it a name: changes(name="billing")',
        )

    # The end.

    def end_with(self, reason: str, hint: str) -> None:
        """Let the consumer fail for a reason, after the epochs that it has received."""
        with self._received:
            self._end_reason, self._end_hint = reason, hint
            self._received.notify_all()

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

    def _on_handled(self, epoch: int) -> None:
        """Called after a callback has handled an epoch."""

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
                self._on_handled(item[0])
        except BaseException as error:  # an error of one subscriber must not affect others
            self.error = error
            log.exception("a subscription to view %r has ended", self.view)
        finally:
            self.close()


def _unsubscribe(coordinator: Coordinator, number: int) -> None:
    coordinator.remove_listener(number)
    coordinator.tell(Unsubscribe(number))
