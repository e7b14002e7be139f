"""Subscriptions: a view's changes, each epoch once, in order, over all workers.

Workers tell what has changed as news, when it is complete (`ikebana.runtime.subscribers`). An epoch is handed out
when all of them have told that much; since every row lives on one worker, their changes together are consolidated.

Pace. News are taken by a thread that must not wait, so they are only put aside here; splitting them into epochs is up
to the consumer. Workers may send so many messages ahead of it (`CREDIT` each, of `CREDIT_BYTES` in all), then wait:
a slow consumer bounds what lies here, and the rest waits on the workers, where nobody else is held up by it. When more
than `backlog` rows or `backlog_bytes` bytes wait on a worker the subscription ends with an error that says so. It never
leaves out an epoch, nor merges two.

Errors. While a view has errors (`ikebana.operators.row_errors`) there is nothing to hand out. The subscriber is told at
the epoch at which they come: iterating raises an `EvaluationError`, once, and a callback's `on_error` is called. The
subscription goes on: the first epoch without errors is handed out, also if nothing has changed in the end, with all
changes since the last epoch that was; `backlog` bounds what may wait until then.

Ends. Iterating ends quietly when the subscription is closed or its view dropped (after what was complete by then), and
raises when the view fails, a worker dies, or the consumer is too slow. Waiting can be interrupted (Ctrl-C); the next
call then goes on where it was.

Cost: one message from each worker for each sweep of the view, and one to them for every few of these.
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

from ikebana.cluster.interrupts import deferred
from ikebana.encoding import Schema
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.deadline import Deadline
from ikebana.errors import DataflowError, EvaluationError, IkebanaError, WaitTimeoutError
from ikebana.operators.row_errors import Errors, exception_of, present, total
from ikebana.plan.estimates import shown_bytes
from ikebana.runtime.messages import Changed, Demand, Resume, Subscribe, SubscriptionEnded, Unsubscribe, Wait
from ikebana.trace import Updates
from ikebana.trace.updates import consolidate

CREDIT = 32
"""So many messages with rows each worker may be ahead of the consumer."""

CREDIT_BYTES = 64 << 20
"""Of so many bytes these messages may be in all; a single one may be larger."""

BACKLOG = 10_000_000
"""So many rows may wait on each worker for a slow consumer, unless told otherwise."""

BACKLOG_BYTES = 1_000_000_000
"""And so many bytes."""

_LOOK = 1.0
"""Look after the workers at least this often (seconds) while nothing comes."""

_DRIVE = 0.02
"""Let workers of this process work at least this often (seconds)."""

OnChange: TypeAlias = Callable[[int, pa.Table], object]
"""Called with an epoch and its changes."""

OnError: TypeAlias = Callable[[EvaluationError], object]
"""Called with the error of a view, when it comes."""

log = logging.getLogger("ikebana")


class Subscription(Iterator[tuple[int, pa.Table]]):
    """A view's changes: an iterator over (epoch, Arrow table with `diff`)."""

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
        opening: int | None = None,
    ) -> None:
        """`opening`, of a prepared statement: errors of others do not count."""
        if since not in (None, "now"):
            raise DataflowError(
                f"cannot follow view {view!r} since {since!r}", hint='give None, for all there is, or "now"'
            )
        self.view, self._dataflow, self._coordinator, self._timeout = view, dataflow, coordinator, timeout
        self.error: BaseException | None = None
        """What a callback has raised."""
        self._news = threading.Condition()
        self._uppers = [0] * coordinator.cluster.size
        self._told: list[tuple[Any, pa.Table]] = []
        self._told_errors: list[tuple[int, Errors]] = []
        self._items: deque[tuple[int, pa.Table | IkebanaError]] = deque()
        self._schema, self._opening, self._backlog, self._backlog_bytes = schema, opening, backlog, backlog_bytes
        self._errors: Errors = Counter()  # at the last epoch that was looked at
        self._has_errors = False  # that count
        self._withheld: list[pa.Table] = []  # changes at epochs with errors
        self._used, self._used_bytes, self._handed = 0, 0, -1
        self._closed, self._reason, self._hint = False, "", ""
        with coordinator.lock, deferred():
            self._number, at = coordinator.new_number(), coordinator.epoch - 1
            coordinator.follow(self._number, self._hear)
            limits = CREDIT, CREDIT_BYTES, backlog, backlog_bytes
            coordinator.command(Subscribe(self._number, dataflow, at, since is None, *limits))
            coordinator.command(Demand(dataflow, at + 1))
            self._leave = weakref.finalize(self, _leave, coordinator, self._number)
            self._leave.atexit = False

    # News, from the thread that takes them.

    def _hear(self, worker: int, item: Changed | SubscriptionEnded) -> None:
        with self._news:
            if isinstance(item, SubscriptionEnded):
                if not self._reason:
                    self._reason, self._hint = item.reason, item.hint
            else:
                self._uppers[worker] = item.upper
                if item.changes is not None:
                    self._told.append((item.epochs, item.changes))
                self._told_errors += item.errors
            self._news.notify_all()

    # The consumer.

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, pa.Table]:
        found = self.take(self._timeout)
        if found is None:
            raise StopIteration
        return found

    def take(self, timeout: float | None = None) -> tuple[int, pa.Table] | None:
        """The next epoch with changes; None when the subscription has ended, or nothing came for so many seconds.

        Raises, once, when the view has errors.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        looked = time.monotonic()
        while not self._items and not self._gather():
            if self._reason and not self._closed:
                self._fail()
            now = time.monotonic()
            if self._closed or (deadline is not None and now >= deadline):
                return None
            if now - looked > _LOOK:
                looked = now
                if not self._check_workers(None if deadline is None else deadline - now):
                    return None
            self._wait(_LOOK if deadline is None else min(_LOOK, deadline - now))
        epoch, found = self._items.popleft()
        if isinstance(found, IkebanaError):
            raise found
        return epoch, found

    def _check_workers(self, seconds: float | None) -> bool:
        """Raise if a worker has died; returns whether all have answered within so many seconds."""
        try:
            self._coordinator.ask(Wait(self._dataflow, 0), deadline=Deadline(seconds, f"following {self.view!r}"))
        except WaitTimeoutError:
            return False
        except IkebanaError:
            if not self._closed and not self._reason:
                raise
        return True

    def _gather(self) -> bool:
        """Take what is complete, epoch by epoch; returns whether there was anything. An interrupt loses none of it."""
        with deferred():
            return self._gathered()

    def _gathered(self) -> bool:
        with self._news:
            upper = min(self._uppers)
            if upper <= self._handed:
                return False
            told, self._told = self._told, []
            errors = [each for each in self._told_errors if each[0] < upper]
            self._told_errors = [each for each in self._told_errors if each[0] >= upper]
            self._handed = upper
        now, later = [], []
        for epochs, table in told:
            if epochs.max() < upper:
                now.append((epochs, table))
            else:
                done = epochs < upper
                now.append((epochs[done], table.filter(pa.array(done))))
                later.append((epochs[~done], table.filter(pa.array(~done))))
        with self._news:
            self._told = later + self._told
        if errors or self._errors:
            self._take_errors(dict(by_epoch(now)), errors)
        else:
            self._items.extend(by_epoch(now))
        self._used += len(told)
        self._used_bytes += sum(table.nbytes for _, table in told)
        if self._used >= CREDIT // 2 or self._used_bytes >= CREDIT_BYTES // 2:
            self._used = self._used_bytes = 0
            self._coordinator.command(Resume(self._number, CREDIT, CREDIT_BYTES))
        return bool(self._items)

    def _take_errors(self, changes: dict[int, pa.Table], errors: Sequence[tuple[int, Errors]]) -> None:
        """Hand out what there is at epochs without errors; tell when they come, and keep what comes while they last."""
        for epoch in sorted({*changes, *(epoch for epoch, _ in errors)}):
            had_errors = self._has_errors
            self._errors = total([self._errors, *(each for at, each in errors if at == epoch)])
            there = present(self._errors, self._opening)
            self._has_errors = bool(there)
            table = changes.get(epoch)
            if there:
                self._withhold(table)
                if not had_errors:
                    self._items.append((epoch, exception_of(self.view, there)))
            elif had_errors:
                parts = self._withheld if table is None else [*self._withheld, table]
                self._withheld = []
                self._items.append((epoch, added_up(parts, self._schema)))
            elif table is not None:
                self._items.append((epoch, table))

    def _withhold(self, table: pa.Table | None) -> None:
        if table is not None:
            self._withheld.append(table)
        rows, size = sum(map(len, self._withheld)), sum(each.nbytes for each in self._withheld)
        if rows > self._backlog or size > self._backlog_bytes:
            self._reason = f"{rows} rows of changes ({shown_bytes(size)}) wait for the errors of the view to end"
            self._hint = "correct the rows that errors() lists, and follow the view again; or give a larger `backlog`"

    def _wait(self, seconds: float) -> None:
        """Wait for news, or for so long."""
        if not self._coordinator.cluster.runs_by_itself:
            before = self._uppers[:], self._reason
            self._coordinator.run()
            if (self._uppers, self._reason) != before:
                return
            seconds = min(seconds, _DRIVE)
        with self._news:
            if min(self._uppers) <= self._handed and not self._reason and not self._closed:
                self._news.wait(seconds)

    def _fail(self) -> None:
        self.close()
        raise DataflowError(
            f"cannot follow view {self.view!r} any further",
            detail=self._reason,
            hint=self._hint or "read() says how the view is; follow it again from now on",
        )

    # Ends.

    def close(self) -> None:
        """Follow no longer; iterating ends. Closing twice does nothing; losing the last reference closes it too."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._leave()

    @property
    def closed(self) -> bool:
        """Whether it was closed, or has ended."""
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Callbacks.

    def call(self, callback: OnChange, on_error: OnError | None = None) -> None:
        """Call a function for each item, in a thread of its own; `on_error` when the view gets errors."""
        target, name = self._call, f"changes of {self.view}"
        threading.Thread(target=target, args=(callback, on_error), name=name, daemon=True).start()

    def _call(self, callback: OnChange, on_error: OnError | None) -> None:
        try:
            while True:
                try:
                    found = self.take(self._timeout)
                except EvaluationError as error:
                    if on_error is None:
                        log.warning("%s", error)
                    else:
                        on_error(error)
                    continue
                if found is None or self._closed:
                    return
                callback(*found)
        except BaseException as error:  # a subscriber's fault is nobody else's
            self.error = error
            log.exception("a subscription to view %r has ended", self.view)
        finally:
            self.close()


def _leave(coordinator: Coordinator, number: int) -> None:
    coordinator.unfollow(number)
    with suppress(IkebanaError):  # the workers are gone
        coordinator.command(Unsubscribe(number))


def added_up(tables: Sequence[pa.Table], schema: Schema) -> pa.Table:
    """The changes of several epochs as one: equal rows added up, those that cancel left out."""
    if not tables:
        return Updates.empty(schema, 1).to_table()
    table = pa.concat_tables(tables)
    diffs = {name: table[name].to_numpy() for name in schema.diffs}
    return consolidate(Updates.of(schema, table.select(schema.names), (0,), diffs)).updates.to_table()


def by_epoch(parts: Sequence[tuple[Any, pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of some tables, whose epochs are given, put together by epoch, in order."""
    pieces: dict[int, list[pa.Table]] = {}
    for epochs, table in parts:
        for epoch, piece in _split(epochs, table):
            pieces.setdefault(epoch, []).append(piece)
    for epoch in sorted(pieces):
        yield epoch, pa.concat_tables(pieces[epoch])


def _split(epochs: Any, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """A table's rows by epoch."""
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
