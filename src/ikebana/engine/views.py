"""Views: the results of standing queries, as readers see them.

    view.read()                              # the result at the last closed epoch, with multiplicities
    view.to_arrow()                          # the same as plain rows
    view.lookup(customer=5)                  # the plain rows with a key, from the worker that owns it
    for epoch, changes in view.changes(): ...
    with view.hold() as held:                # this epoch and later ones stay readable
        held.read(held.epoch)

A view is an arrangement that a dataflow maintains; reading the view accumulates its trace at an epoch, on all workers.
The rows that are read at an epoch are exact for that epoch, across tables and views. The last closed epoch can always
be read, earlier epochs only while they are held.

If an expression has no value for a row (a division by zero, an overflow, a user's function that raises), reading the
view raises an `EvaluationError` that names the row, until the row is corrected or deleted; `errors()` lists such rows.

Calls that wait take a `timeout` in seconds and raise a `WaitTimeoutError` when it is over; None means the engine's
default. For the guarantees about changes see `ikebana.engine.subscriptions`. Any number of threads can read a view
without waiting for each other.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ikebana.cluster.interrupts import defer_interrupts
from ikebana.encoding import Schema
from ikebana.encoding.arrow import to_numpy
from ikebana.engine.catalog import Use, User
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.deadline import Deadline
from ikebana.engine.lookups import checked_keys, common_epoch, given_keys, owner
from ikebana.engine.maintenance import Maintenance, Need
from ikebana.engine.subscriptions import (
    BACKLOG,
    BACKLOG_BYTES,
    OnChange,
    OnError,
    Subscription,
    SubscriptionGroup,
    by_epoch,
)
from ikebana.errors import DataflowError, DroppedError, IkebanaError, TimeError
from ikebana.operators.row_errors import Errors, raise_errors, result_errors, total_errors
from ikebana.plan import ir
from ikebana.runtime.messages import (
    Demand,
    Hold,
    Keys,
    Lookup,
    Ping,
    Read,
    ReadChanges,
    ReadErrors,
    Release,
    RowsOfKeys,
    Shard,
    Wait,
)


class View:
    """The result of a standing query, kept up to date. See `Engine.install`."""

    def __init__(
        self,
        coordinator: Coordinator,
        name: str,
        plan: ir.Node,
        dataflow: str,
        uses: list[Use],
        retire: Callable[[View], None],
        *,
        kind: str = "view",
        maintenance: Maintenance | None = None,
        is_index: bool = False,
    ) -> None:
        """A view of the arrangement `plan`, which `dataflow` maintains.

        `uses` are released by `retire`, which is called when the view is dropped. `kind` says in error messages whether
        users know the rows as a view or as a table. `maintenance` builds the arrangements that `lookup` needs; without
        it the view can be looked up by its own key only. `is_index` says that this is such an arrangement, of which
        users cannot hold epochs.
        """
        self.name, self.dataflow, self.uses, self.plan, self.kind = name, dataflow, uses, plan, kind
        self._coordinator, self._retire, self._dropped = coordinator, retire, False
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()
        self._holds: weakref.WeakSet[HeldEpoch] = weakref.WeakSet()
        self._binding_group: SubscriptionGroup | None = None  # of the subscriptions to single bindings
        self._maintenance, self._is_index = maintenance, is_index
        self._indexes: dict[tuple[str, ...], tuple[Use, View]] = {}  # for look-ups, by columns
        self._checked_epoch = -1  # an epoch at which no worker has errors

    # Reading.

    def read(
        self,
        at: int | None = None,
        keys: Keys | None = None,
        *,
        binding: int | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """Return the result at an epoch as an Arrow table: its columns, and the multiplicities in a column `diff`.

        `at`: the epoch, by default the last closed one. Earlier epochs can be read only while they are held (`hold`).
        `keys`: a mapping of the result's key columns to values; only rows with these keys are returned. This takes time
        in proportion to the rows returned, not to the size of the result.
        `binding`: for views of prepared statements; ignore errors that concern only other bindings of parameters.
        `timeout`: the seconds that the call may take.
        """
        return self.combine(self._shards(at, keys, None, timeout), binding)

    def first_rows(self, limit: int, at: int | None = None, *, timeout: float | None = None) -> tuple[pa.Table, int]:
        """Return at most `limit` rows of the result at an epoch, any of them, and the number of all rows.

        Rows are plain rows, duplicates included. Workers send only the rows that are returned.
        """
        shards = self._shards(at, None, limit, timeout)
        rows = _with_at_most(self.combine(shards, None), limit)
        return plain_rows(rows, self.name).slice(0, limit), sum(shard.total for shard in shards)

    def _shards(self, at: int | None, keys: Keys | None, limit: int | None, timeout: float | None) -> list[Shard]:
        """The result at an epoch, as workers have it."""
        epoch = self._coordinator.epoch - 1 if at is None else at
        deadline = self._coordinator.deadline(timeout, f"reading {self.name!r} at epoch {epoch}")
        self.demand(epoch)
        request = Read(self.dataflow, (epoch,), wait=True, keys=keys, limit=limit)
        try:
            return self._coordinator.ask(request, deadline=deadline)
        except TimeError:
            if at is not None or epoch == self._coordinator.epoch - 1:
                raise self._not_kept(epoch) from None
        with self.hold(timeout=deadline.seconds_left()) as held:  # other threads advance so fast that the epoch is gone
            return held.shards(held.epoch, keys, limit, timeout=deadline.seconds_left())

    def _not_kept(self, epoch: int) -> TimeError:
        """The error for reading an epoch whose rows have been merged into those of later epochs."""
        if self._is_index:
            columns = ", ".join(field.name for field in ir.schema_of(self.plan).key.fields)
            return TimeError(
                f"cannot look up rows of {self.kind} {self.name!r} by {columns} at epoch {epoch}",
                detail=f"the index by these columns only keeps epoch {self._coordinator.epoch - 1} and later",
                hint="hold() keeps earlier epochs for reading, and for look-ups by the own key: filter what is read",
            )
        return TimeError(
            f"cannot read {self.kind} {self.name!r} at epoch {epoch}",
            detail=f"only epoch {self._coordinator.epoch - 1} and later are kept",
            hint="use hold() to keep an epoch readable",
        )

    def combine(self, shards: Sequence[Shard | RowsOfKeys], binding: int | None) -> pa.Table:
        """Return the rows of all workers as one table; raise if there are errors."""
        if any([shard.errors for shard in shards]):
            raise_errors(self.name, (shard.errors for shard in shards), binding)
        return shards[0].rows if len(shards) == 1 else pa.concat_tables([shard.rows for shard in shards])

    def errors(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """Return the rows for which the query cannot be evaluated at an epoch, by default the last closed one.

        The columns are `error` (the reason), `row`, and `diff` (how many times the error occurs). The view can be read
        only while this table is empty.
        """
        epoch = self._coordinator.epoch - 1 if at is None else at
        deadline = self._coordinator.deadline(timeout, f"reading the errors of {self.name!r} at epoch {epoch}")
        return _errors_table(result_errors(total_errors(self._errors_of_workers(epoch, None, deadline))))

    def check_errors(self, epoch: int, hold: int | None, deadline: Deadline) -> None:
        """Raise if the view has errors at an epoch."""
        raise_errors(self.name, self._errors_of_workers(epoch, hold, deadline))

    def _errors_of_workers(self, epoch: int, hold: int | None, deadline: Deadline) -> list[Errors]:
        self.demand(epoch)
        return self._coordinator.ask(ReadErrors(self.dataflow, epoch, hold), deadline=deadline)

    def to_arrow(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """Return the rows of the result at an epoch as an Arrow table, duplicates included.

        Unlike with `read`, a row of multiplicity 2 occurs twice, and there is no column `diff`.
        """
        return plain_rows(self.read(at, timeout=timeout), self.name)

    def to_pandas(self, at: int | None = None, *, timeout: float | None = None) -> Any:
        """Return the rows of the result at an epoch as a pandas DataFrame, duplicates included."""
        return self.to_arrow(at, timeout=timeout).to_pandas()

    # Look-ups.

    def lookup(
        self, keys: Any = None, /, *, at: int | None = None, timeout: float | None = None, **columns: Any
    ) -> pa.Table:
        """Return the rows that have given values in some columns, as an Arrow table, duplicates included.

        `view.lookup(customer=5)` is one key, `view.lookup(customer=[5, 6])` are two. Keys can also be a mapping, a list
        of mappings or an Arrow table, for instance if a column is called `at`. The order of the rows is not defined.

        The rows are those at the last closed epoch when the call began, or at a later one; with `at`, at that epoch,
        which `hold` must keep unless it is the last. Only the workers that own the keys are asked. If the view is not
        arranged by these columns, the first call arranges it, for all later calls and for other queries, until the view
        is dropped: this takes time and memory in proportion to the view.
        """
        self.check_not_dropped()
        names = self._names
        given = given_keys(f"{self.kind} {self.name!r}", names, keys, columns)
        rows = plain_rows(self.index_by(tuple(given)).find(given, at, timeout=timeout), self.name)
        return rows if rows.schema.names == names else rows.select(names)

    @cached_property
    def _names(self) -> list[str]:
        return [field.name for field in self.plan.columns]

    @cached_property
    def _schema(self) -> Schema:
        return ir.schema_of(self.plan)

    @cached_property
    def _key(self) -> set[str]:
        return {field.name for field in self._schema.key.fields}

    def index_by(self, columns: tuple[str, ...]) -> View:
        """Return the view itself if it is arranged by these columns, else an arrangement that is kept for look-ups."""
        if self._key == set(columns) or self._maintenance is None:
            return self
        entry = self._indexes.get(columns)
        if entry is None or self._maintenance.catalog.has_failed(entry[1].dataflow):
            entry = self._new_index(self._maintenance, columns)
        return entry[1]

    def _new_index(self, maintenance: Maintenance, columns: tuple[str, ...]) -> tuple[Use, View]:
        with self._coordinator.lock, defer_interrupts():
            self.check_not_dropped()
            entry = self._indexes.get(columns)
            if entry is not None and maintenance.catalog.has_failed(entry[1].dataflow):
                self.uses.remove(entry[0])
                maintenance.release(self._indexes.pop(columns)[0])
                entry = None
            if entry is None:  # else another thread was faster
                node = self.rows().arrange(*columns).node
                name = f"{self.kind} {self.name} by {', '.join(columns)}"
                use = maintenance.use(Need(node, name, User(self.kind, self.name)))
                self.uses.append(use)
                index = index_view(self._coordinator, self.name, self.kind, node, use.dataflow)
                entry = self._indexes[columns] = use, index
            return entry

    def find(
        self,
        keys: Mapping[str, Any],
        at: int | None = None,
        *,
        binding: int | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """Return the rows with some keys, by the columns of the view's own arrangement, with multiplicities.

        Like `read` with `keys`, by one request to the workers that own the keys. See `ikebana.engine.lookups`.
        """
        self.check_not_dropped()
        epoch = self._coordinator.epoch - 1 if at is None else at
        self._check_closed(epoch)
        deadline = self._coordinator.deadline(timeout, f"looking up rows of {self.name!r} at epoch {epoch}")
        checked, arrays = checked_keys(f"{self.kind} {self.name!r}", self._schema, keys)
        worker = owner(self._schema, arrays, self._coordinator.cluster.size)
        request = Lookup(self.dataflow, epoch, checked, exact=at is not None)
        try:
            rows = self._rows_of_keys(request, worker, binding, deadline)
        except TimeError:
            if at is not None:
                raise self._not_kept(epoch) from None
            rows = None
        if rows is not None:
            return rows
        with self.hold(timeout=deadline.seconds_left()) as held:  # other threads advance so fast that epochs differ
            return held.read(held.epoch, checked, binding=binding, timeout=deadline.seconds_left())

    def _rows_of_keys(
        self, request: Lookup, worker: int | None, binding: int | None, deadline: Deadline
    ) -> pa.Table | None:
        """The rows that workers find; None if their answers are of different epochs."""
        coordinator = self._coordinator
        is_alone = coordinator.cluster.size == 1
        if worker is not None and (is_alone or request.epoch == self._checked_epoch):
            (answer,) = coordinator.ask(request, worker, deadline)
            if is_alone or answer.epoch == self._checked_epoch:
                return self.combine([answer], binding)
        answers = coordinator.ask(request, deadline=deadline)
        epoch = common_epoch(answers)
        if epoch is None:
            return None
        if not any(answer.errors for answer in answers):
            self._checked_epoch = max(epoch, self._checked_epoch)
        return self.combine(answers, binding)

    def wait(self, epoch: int, *, timeout: float | None = None) -> None:
        """Wait until the result at a closed epoch is complete."""
        self.demand(epoch)
        deadline = self._coordinator.deadline(timeout, f"waiting for epoch {epoch} of {self.name!r}")
        self._coordinator.ask(Wait(self.dataflow, epoch + 1), deadline=deadline)

    def demand(self, epoch: int) -> None:
        """Request that the result at a closed epoch is computed, without waiting for it."""
        self.check_not_dropped()
        self._check_closed(epoch)
        self._coordinator.command(Demand(self.dataflow, epoch + 1))

    def _check_closed(self, epoch: int) -> None:
        if epoch >= self._coordinator.epoch:
            raise TimeError(
                f"cannot wait for epoch {epoch} of {self.name!r}",
                detail=f"epoch {self._coordinator.epoch} is still open",
                hint=f"close epoch {epoch} first: advance() the engine, or commit a transaction",
            )

    def hold(self, *, timeout: float | None = None) -> HeldEpoch:
        """Keep the last closed epoch and all later ones readable until the block ends: `with view.hold() as held:`."""
        self.check_not_dropped()
        held = HeldEpoch(self, self._coordinator, timeout)
        self._holds.add(held)
        return held

    def held_epochs(self) -> list[int]:
        """Return the epochs that are held with `hold`, in order."""
        return sorted(held.epoch for held in list(self._holds) if held.is_active)

    # Following changes.

    def changes(
        self,
        since: str | None = None,
        *,
        timeout: float | None = None,
        backlog: int = BACKLOG,
        backlog_bytes: int = BACKLOG_BYTES,
        binding: int | None = None,
    ) -> Subscription:
        """Iterate over the changes of the view: pairs (epoch, Arrow table of the columns and `diff`).

        Every epoch with changes appears exactly once, in order. The first item is the result at the last closed epoch,
        as insertions. If the view gets errors, iterating raises an `EvaluationError` once; the next item has all
        changes since the last epoch without errors.

        `since`: "now" to leave out the first item; None for everything.
        `timeout`: the iteration ends if there is no change for this many seconds; None to wait without limit.
        `backlog`, `backlog_bytes`: how many rows and bytes may wait on each worker until they are consumed; if there
        are more, iterating raises.
        `binding`: for views of prepared statements, which are arranged by binding: only the rows and errors of this
        binding of parameters, and errors that concern all.
        """
        self.check_not_dropped()
        group = None if binding is None else self._group_of_bindings()
        subscription = Subscription(
            self._coordinator,
            self.name,
            self.dataflow,
            ir.schema_of(self.plan),
            since,
            timeout=timeout,
            backlog=backlog,
            backlog_bytes=backlog_bytes,
            binding=binding,
            group=group,
        )
        self._subscriptions.add(subscription)
        return subscription

    def _group_of_bindings(self) -> SubscriptionGroup:
        with self._coordinator.lock:
            if self._binding_group is None:
                self._binding_group = SubscriptionGroup(self._coordinator)
            return self._binding_group

    def subscribe(
        self,
        callback: OnChange,
        since: str | None = None,
        *,
        backlog: int = BACKLOG,
        backlog_bytes: int = BACKLOG_BYTES,
        on_error: OnError | None = None,
    ) -> Subscription:
        """Call `callback(epoch, table)` for every epoch with changes; returns a handle with `close()`.

        The callback runs in a background thread, and gets the items that `changes` iterates over; `since`, `backlog`
        and `backlog_bytes` are as for `changes`. If the callback raises, the subscription is closed; the exception is
        logged, and is the `error` of the handle.

        `on_error(error)` is called with an `EvaluationError` when the view gets errors; by default the error is logged.
        The next call of `callback` means that the errors are gone; its table has all changes since then.
        """
        subscription = self.changes(since, backlog=backlog, backlog_bytes=backlog_bytes)
        subscription.call(callback, on_error)
        return subscription

    # Using and dropping the view.

    def rows(self) -> Collection:
        """Return the result as a collection, for further queries. They share the arrangement while the view exists."""
        self.check_not_dropped()
        return Arrangement(self.plan).rows()

    def drop(self) -> None:
        """Stop maintaining the query, and release everything that only this query used. All its subscriptions end."""
        with self._coordinator.lock, defer_interrupts():
            if not self._dropped:
                self._dropped = True
                self.end_changes()
                self._retire(self)

    def end_changes(self) -> None:
        """End all subscriptions, including iterators over changes."""
        for subscription in list(self._subscriptions):
            subscription.close()

    def check_not_dropped(self) -> None:
        """Raise if the view was dropped."""
        if self._dropped:
            raise DataflowError(f"view {self.name!r} was dropped", hint="install it again")


def index_view(coordinator: Coordinator, name: str, kind: str, node: ir.Node, dataflow: str) -> View:
    """A view of an arrangement that is kept for look-ups in a view or table; who keeps it also releases it."""
    return View(coordinator, name, node, dataflow, [], lambda view: None, kind=kind, is_index=True)


class HeldEpoch:
    """The result of a view from an epoch on, kept readable until the block ends. See `View.hold`."""

    def __init__(self, view: View, coordinator: Coordinator, timeout: float | None = None) -> None:
        self._view, self._coordinator = view, coordinator
        self.dataflow = view.dataflow
        with coordinator.lock, defer_interrupts():
            self.number = coordinator.new_number()
            """Identifies the hold in requests that are sent to workers directly."""
            self.epoch = coordinator.epoch - 1
            """The first epoch that can be read."""
            coordinator.command(Hold(self.number, view.dataflow, max(0, self.epoch)))
            self._release = weakref.finalize(self, _release_hold, coordinator, self.number)
            self._release.atexit = False
        deadline = coordinator.deadline(timeout, f"holding {view.name!r} at epoch {self.epoch}")
        try:
            coordinator.ask(Ping(view.dataflow), deadline=deadline)  # from now on clients of workers see the hold too
        except BaseException:
            self.release()
            raise

    def read(
        self,
        epoch: int | None = None,
        keys: Keys | None = None,
        *,
        binding: int | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """Return the result at a closed epoch, by default the first held one; otherwise like `View.read`."""
        return self._view.combine(self.shards(epoch, keys, timeout=timeout), binding)

    def shards(
        self,
        epoch: int | None = None,
        keys: Keys | None = None,
        limit: int | None = None,
        *,
        timeout: float | None = None,
    ) -> list[Shard]:
        """Return the result at a closed epoch, as workers have it."""
        epoch = self.epoch if epoch is None else epoch
        self._check(epoch)
        self._view.demand(epoch)
        deadline = self._coordinator.deadline(timeout, f"reading {self._view.name!r} at epoch {epoch}")
        request = Read(self.dataflow, (epoch,), self.number, wait=True, keys=keys, limit=limit)
        return self._coordinator.ask(request, deadline=deadline)

    def to_arrow(self, epoch: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """Return the rows of the result at an epoch, by default the first held one, duplicates included."""
        return plain_rows(self.read(epoch, timeout=timeout), self._view.name)

    def changes(self, after: int, at: int, *, timeout: float | None = None) -> Iterator[tuple[int, pa.Table]]:
        """Iterate over the changes at epochs after `after` up to the closed epoch `at`: pairs (epoch, table), in order.

        Epochs without changes are left out.
        """
        self._check(after)
        deadline = self._coordinator.deadline(timeout, f"reading changes of {self._view.name!r} up to epoch {at}")
        self._view.check_errors(at, self.number, deadline)
        answers = self._coordinator.ask(ReadChanges(self.dataflow, after, at, self.number), deadline=deadline)
        return by_epoch([answer for answer in answers if answer[1] is not None])

    @property
    def is_active(self) -> bool:
        """Whether the epoch is still held."""
        return self._release.alive

    def release(self) -> None:
        """Stop holding the epoch. Releasing it twice does nothing."""
        self._release()

    def _check(self, epoch: int) -> None:
        view = self._view
        if not self.is_active:
            raise DroppedError(f"{view.kind} {view.name!r} is not held any more", hint="read inside the `with` block")
        if epoch < self.epoch:
            raise TimeError(
                f"cannot read {view.kind} {view.name!r} at epoch {epoch}",
                detail=f"it is held from epoch {self.epoch} on",
                hint="call hold() while the epoch is the last closed one",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def _release_hold(coordinator: Coordinator, number: int) -> None:
    with suppress(IkebanaError):  # the workers have ended, and the hold with them
        coordinator.command(Release(number))


def _errors_table(errors: Errors) -> pa.Table:
    rows = sorted((error.reason, error.row, diff) for error, diff in errors.items())
    return pa.table(
        {
            "error": pa.array([row[0] for row in rows], pa.string()),
            "row": pa.array([row[1] for row in rows], pa.string()),
            "diff": pa.array([row[2] for row in rows], pa.int64()),
        }
    )


def _with_at_most(rows: pa.Table, copies: int) -> pa.Table:
    """The rows of a result, each with at most this multiplicity."""
    if rows.schema.names[-1] != "diff":
        return rows
    diffs = pa.array(np.minimum(rows.column("diff").to_numpy(), copies))
    return rows.set_column(rows.num_columns - 1, "diff", diffs)


def plain_rows(table: pa.Table, name: str) -> pa.Table:
    """A result without the column `diff`: each row occurs as many times as its multiplicity says."""
    if table.schema.names[-1] != "diff":
        raise DataflowError(
            f"view {name!r} has no plain rows",
            detail="its rows have several diffs each, which are sums and not multiplicities",
            hint="use read()",
        )
    diffs = table.column(table.num_columns - 1)
    counts = to_numpy(diffs.chunk(0) if diffs.num_chunks == 1 else diffs.combine_chunks())
    least = counts.min(initial=1)
    if least < 0:
        example = table.slice(int(counts.argmin()), 1).to_pylist()[0]
        raise DataflowError(
            f"view {name!r} has rows with negative multiplicities",
            detail=f"{int((counts < 0).sum())} of them, for instance {example}",
            hint="use read(), which returns multiplicities, or do not subtract more rows than there are",
        )
    if least != 1 or counts.max(initial=1) != 1:
        table = table.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    return table.drop_columns(["diff"])  # after take: a table without columns has no rows to take
