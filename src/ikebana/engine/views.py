"""Views: the results of standing queries.

    view.to_arrow()                          # the rows now
    view.lookup(customer=5)                  # the rows with a key, from the worker that owns it
    for epoch, changes in view.changes(): ...
    view.drop()

A view is a result (`ikebana.engine.results`) that users have installed: it can also be followed, and looked up by any
of its columns. `ikebana.engine.subscriptions` says what is guaranteed about changes, and what they cost.

Dropping a view ends its subscriptions and releases the arrangements that only it used, with the indexes that look-ups
have built. Not guaranteed: that a view follows the tables that it reads at any speed; it may lag behind, and reading
waits for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa

from ikebana.cluster.interrupts import defer_interrupts
from ikebana.engine.catalog import Use, User
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.durations import duration
from ikebana.engine.lookups import given_keys
from ikebana.engine.maintenance import Maintenance, Need
from ikebana.engine.result_tables import plain_rows
from ikebana.engine.results import At, LookupIndex, Result
from ikebana.engine.subscription_readers import DurableSubscription
from ikebana.engine.subscriptions import (
    BACKLOG,
    BACKLOG_BYTES,
    OnChange,
    OnError,
    Subscription,
    SubscriptionGroup,
)
from ikebana.errors import DataflowError
from ikebana.plan import ir

Since: TypeAlias = int | datetime | str | None
"""Where changes begin: after an epoch or a time; "now"; or None to begin with the result."""


class View(Result):
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
    ) -> None:
        """A view of the arrangement `plan`, which `dataflow` maintains.

        `uses` are released by `retire`, which is called when the view is dropped. `kind` says in error messages whether
        users know the rows as a view or as a table. `maintenance` builds the arrangements that `lookup` needs; without
        it the view can be looked up by its own key only.
        """
        super().__init__(coordinator, name, plan, dataflow, kind)
        self.uses, self._retire, self._maintenance = uses, retire, maintenance
        self._subscriptions: dict[int, weakref.ref[Subscription]] = {}  # by identity
        self._binding_group: SubscriptionGroup | None = None  # of the subscriptions to single bindings
        self._indexes: dict[tuple[str, ...], tuple[Use, LookupIndex]] = {}  # for look-ups, by columns

    # Look-ups.

    def lookup(self, keys: Any = None, /, *, at: At = None, timeout: float | None = None, **columns: Any) -> pa.Table:
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
    def _key(self) -> set[str]:
        return {field.name for field in self._schema.key.fields}

    def index_by(self, columns: tuple[str, ...]) -> Result:
        """Return the view itself if it is arranged by these columns, else an arrangement that is kept for look-ups."""
        if self._key == set(columns) or self._maintenance is None:
            return self
        entry = self._indexes.get(columns)
        if entry is None or self._maintenance.catalog.has_failed(entry[1].dataflow):
            entry = self._new_index(self._maintenance, columns)
        return entry[1]

    def _new_index(self, maintenance: Maintenance, columns: tuple[str, ...]) -> tuple[Use, LookupIndex]:
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
                index = LookupIndex(self._coordinator, self.name, node, use.dataflow, self.kind)
                entry = self._indexes[columns] = use, index
            return entry

    # Following changes.

    def changes(
        self,
        since: Since = None,
        *,
        timeout: float | None = None,
        backlog: int = BACKLOG,
        backlog_bytes: int = BACKLOG_BYTES,
        binding: int | None = None,
        name: str | None = None,
        retain: str | timedelta | None = None,
        retain_bytes: int | None = None,
    ) -> Subscription:
        """Iterate over the changes of the view: pairs (epoch, Arrow table of the columns and `diff`).

        Every epoch with changes appears exactly once, in order. The first item is the result at the last closed epoch,
        as insertions. If the view gets errors, iterating raises an `EvaluationError` once; the next item has all
        changes since the last epoch without errors.

        `since`: "now" to leave out the first item; an epoch, or a time, for the changes after it, which must be held or
        retained; None for everything.
        `timeout`: the iteration ends if there is no change for this many seconds; None to wait without limit.
        `backlog`, `backlog_bytes`: how many rows and bytes may wait on each worker until they are consumed; if there
        are more, iterating raises.
        `binding`: for views of prepared statements, which are arranged by binding: only the rows and errors of this
        binding of parameters, and errors that concern all.
        `name`: the name of a subscription that is stored, and is created if there is none. It delivers what it has
        not delivered before, and again what was not acknowledged with `ack`, also after a crash or a restart
        (`ikebana.engine.named_subscriptions`). `since` is only for a new one.
        `retain`, `retain_bytes`: for how long, and up to how many bytes, changes wait to be acknowledged, by default "7
        days" and 1 GB; then the subscription fails.
        """
        self.check_not_dropped()
        if name is not None:
            options = {"timeout": timeout, "backlog": backlog, "backlog_bytes": backlog_bytes}
            named = self._named_changes(name, since, retain, retain_bytes, **options)
            self._remember(named)
            return named
        group = None if binding is None else self._group_of_bindings()
        with self._coordinator.lock:
            subscription = Subscription(
                self._coordinator,
                self.name,
                self.dataflow,
                ir.schema_of(self.plan),
                self._checked_since(since, binding),
                timeout=timeout,
                backlog=backlog,
                backlog_bytes=backlog_bytes,
                binding=binding,
                group=group,
            )
        self._remember(subscription)
        return subscription

    def _remember(self, subscription: Subscription) -> None:
        subscriptions, key = self._subscriptions, id(subscription)
        subscriptions[key] = weakref.ref(subscription, lambda _: subscriptions.pop(key, None))

    def _named_changes(
        self, name: str, since: Since, retain: str | timedelta | None, retain_bytes: int | None, **options: Any
    ) -> DurableSubscription:
        named = self._coordinator.named_subscriptions
        if named is None:
            raise DataflowError(
                f"cannot create subscription {name!r}",
                detail="a subscription that has a name is stored, and there is no storage directory",
                hint="give a directory: storage=...",
            )
        after = None if retain is None else duration(retain, "retain")
        return named.open(self, name, since, after, retain_bytes, options)

    def _checked_since(self, since: Since, binding: int | None) -> int | str | None:
        """Where a subscription starts, with an epoch in place of a time; raises if that is not kept."""
        if since is None or since == "now":
            return None if since is None else "now"
        if isinstance(since, str | bool) or binding is not None:
            raise DataflowError(
                f"cannot follow view {self.name!r} since {since!r}",
                hint='`since` is None, to begin with the current result, "now", or an epoch or time that is retained',
            )
        epoch = self.epoch_of(since)
        self._check_closed(epoch)
        self.check_kept(epoch, "follow the changes of")
        return epoch

    def _group_of_bindings(self) -> SubscriptionGroup:
        with self._coordinator.lock:
            if self._binding_group is None:
                self._binding_group = SubscriptionGroup(self._coordinator)
            return self._binding_group

    def subscribe(
        self,
        callback: OnChange,
        since: Since = None,
        *,
        backlog: int = BACKLOG,
        backlog_bytes: int = BACKLOG_BYTES,
        on_error: OnError | None = None,
        name: str | None = None,
    ) -> Subscription:
        """Call `callback(epoch, table)` for every epoch with changes; returns a handle with `close()`.

        The callback runs in a background thread, and gets the items that `changes` iterates over; `since`, `backlog`
        and `backlog_bytes` are as for `changes`. If the callback raises, the subscription is closed; the exception is
        logged, and is the `error` of the handle.

        `on_error(error)` is called with an `EvaluationError` when the view gets errors; by default the error is logged.
        The next call of `callback` means that the errors are gone; its table has all changes since then.

        With `name`, the subscription is stored, and an epoch is acknowledged when `callback` has returned.
        """
        subscription = self.changes(since, backlog=backlog, backlog_bytes=backlog_bytes, name=name)
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
                self.retain(None)
                if self._coordinator.named_subscriptions is not None:
                    self._coordinator.named_subscriptions.drop_all_of(self)
                self._dropped = True
                self.end_changes()
                self._retire(self)

    def end_changes(self) -> None:
        """End all subscriptions, including iterators over changes."""
        for reference in list(self._subscriptions.values()):
            subscription = reference()
            if subscription is not None:
                subscription.close()
