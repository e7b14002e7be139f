"""Named subscriptions: changes of a view that wait for their consumer, whatever dies in between.

    billing = view.changes(name="billing")
    for epoch, changes in billing:
        charge(epoch, changes)
        billing.ack(epoch)                        # never again

A named subscription is stored: its view, and its position, which is the last epoch that the consumer has acknowledged.
Whoever opens the subscription next, in this session or in a later one, gets the changes after its position.

Guarantee. Every epoch with changes is delivered in order, and again until it is acknowledged: at least once. It has
exactly one effect if the effect of the consumer is atomic with the number of the epoch, as in a database that stores
both in one transaction; or if the effect is a change of tables of the same engine, and `ack` is called in the same
transaction: then both are stored as one record. The changes of an epoch are the same however often it is delivered, as
long as the functions of the query are deterministic.

Where changes come from after a restart. Views are not stored, but computed again from tables. So the tables that a view
reads are held at the position (`ikebana.engine.holds`): snapshots then store their batches with the epochs of all later
changes, and the log has the epoch of each transaction anyway. A new engine has its workers keep history from the oldest
position on (`KeepHistory`) until the views of all subscriptions are installed again: they start at that epoch, and
compute the changes of every epoch after it, as they did before. Nothing has to be stored while changes happen.

Bounds. A subscription whose first waiting changes are older than a time, or whose changes and those of its tables take
more bytes than a limit, fails: it says so from then on, and holds nothing up. After a restart, the time of epochs
before it counts from the restart. If a view has no changes after the position, the position advances by itself. If
workers are replaced (`ikebana.engine.healing`), the new ones keep history from the oldest position on, as after a
restart.

Cost: one sync of the driver's log for each acknowledgement. Changes after the position stay in memory, in the view and
in its tables. Views that read what is not stored (streams, inputs, the time) are refused. One consumer at a time can
read a subscription.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ikebana.engine.coordinator import Coordinator
from ikebana.engine.stored_history import StoredHistory
from ikebana.engine.subscription_positions import (
    KIND,
    POSITION,
    NamedSubscription,
    SubscriptionStatus,
    columns_of,
)
from ikebana.engine.subscription_readers import DurableSubscription, NamedStream
from ikebana.engine.table_storage import TableStorage
from ikebana.errors import DataflowError
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from ikebana.runtime.messages import KeepHistory
from ikebana.storage import DeleteEntry

if TYPE_CHECKING:
    from ikebana.engine.tables import Table
    from ikebana.engine.views import View

RETAIN, RETAIN_BYTES = timedelta(days=7), 1_000_000_000
"""For how long, and up to how many bytes, changes wait by default."""


class NamedSubscriptions:
    """All named subscriptions of an engine with a storage directory."""

    def __init__(
        self, coordinator: Coordinator, storage: TableStorage, tables: Mapping[str, Table], history: StoredHistory
    ) -> None:
        """`tables` are those of the engine, whose rows are not loaded yet: history is kept for the views to come.

        `history` says what else needs history.
        """
        self._coordinator, self._storage, self._tables, self._history = coordinator, storage, tables, history
        catalog = storage.store.catalog
        entries = catalog.entries(KIND).items()
        self._keeps_history = False
        self._all = {name: self._named(name, entry) for name, entry in entries}
        known = {entry["position"] for _, entry in entries}
        for name in [name for name in storage.positions if name.startswith(f"{KIND} ") and name not in known]:
            del storage.positions[name]  # of a subscription that was dropped
        for named in self._all.values():
            coordinator.retentions.add(named)
        needed = [named.epoch for named in self._all.values() if named.is_waiting_for_view]
        needed += [history.oldest] if history.oldest is not None else []
        self._keeps_history = bool(needed) and min(needed) < storage.store.recovery.epoch
        if self._keeps_history:
            coordinator.command(KeepHistory(max(0, min(needed))))

    def _named(self, name: str, entry: dict[str, Any]) -> NamedSubscription:
        return NamedSubscription(self._coordinator, self._storage, name, entry, self._tables, self.end_history)

    def attach(self, view: View) -> None:
        """Let the subscriptions of a view, which was installed again, hold their positions."""
        with self._coordinator.lock:
            for named in self._all.values():
                if named.view_name == view.name and named.failure is None and not named.is_of(view):
                    try:
                        self._attach(named, view)
                    except DataflowError as error:
                        named.fail(f"{error.what}: {error.detail}" if error.detail else error.what)
            self.end_history()

    def _attach(self, named: NamedSubscription, view: View) -> None:
        named.check_columns(view)
        tables = self._tables_of(view)
        for table in tables:
            since = self._storage.stored_since.get(table.name, -1)
            if named.kept is not None and since > max(0, named.kept):
                raise DataflowError(
                    f"the changes of table {table.name!r} after epoch {named.kept} were not stored",
                    detail=f"only those after epoch {since} are: a column was added to the table, "
                    "or an engine without this subscription wrote them",
                )
        named.attach(view, tables)

    def end_history(self) -> None:
        """Let the workers compact what is not held, once the views are installed that need history."""
        is_needed = self._history.oldest is not None or any(named.is_waiting_for_view for named in self._all.values())
        if self._keeps_history and not is_needed:
            self._keeps_history = False
            self._coordinator.command(KeepHistory(None))

    def _tables_of(self, view: View) -> list[Table]:
        """The tables that a view reads; raises unless all of them are stored."""
        names = dict.fromkeys(node.name for node in walk(view.plan) if isinstance(node, ir.Source))
        for name in names:
            table = self._tables.get(name)
            if table is None or not table.spec.stored_as:
                what = "a stream" if table is not None and table.kind == "stream" else "not stored"
                raise DataflowError(
                    f"view {view.name!r} cannot have a named subscription",
                    detail=f"it reads {name!r}, which is {what}: its changes would not come back after a restart",
                    hint="follow it without a name, or define it over tables that are stored",
                )
        return [self._tables[name] for name in names]

    def open(
        self,
        view: View,
        name: str,
        since: object,
        retain: timedelta | None,
        retain_bytes: int | None,
        options: Mapping[str, Any],
    ) -> DurableSubscription:
        """Continue a subscription, or create it."""
        with self._coordinator.lock:
            named = self._all.get(name)
            if named is None:
                named = self._create(view, name, since, retain or RETAIN, retain_bytes or RETAIN_BYTES)
            else:
                self._check(named, view, since)
                named.set_limits(retain, retain_bytes)
            position = named.position
            if not named.is_held:
                named.hold(self._coordinator.epoch - 1)
            subscription = DurableSubscription(named, self._coordinator, view, position, **options)
            named.read_by(subscription)
            return subscription

    def open_stream(self, view: View, name: str) -> NamedStream:
        """Continue a subscription, or create it, for a consumer that keeps track of what it has processed.

        A stream that has read it before does not read it any more.
        """
        with self._coordinator.lock:
            named, last = self._all.get(name), self._coordinator.epoch - 1
            if named is None:
                named = self._create(view, name, None, RETAIN, RETAIN_BYTES)
            elif isinstance(named.reader, NamedStream):
                named.close_reader()
            self._check(named, view, None)
            if named.kept is None:
                named.hold(last)
                self._storage.store_note(named.note(last, last - 1, new=True))
            stream = NamedStream(named, self._storage.positions[named.position_key])
            named.read_by(stream)
            return stream

    def _create(self, view: View, name: str, since: object, retain: timedelta, limit: int) -> NamedSubscription:
        if since not in (None, "now"):
            raise DataflowError(
                f"cannot create subscription {name!r} since {since!r}",
                hint='`since` is None, to begin with the current result, or "now"',
            )
        tables, storage = self._tables_of(view), self._storage
        entry = {
            "view": view.name,
            "columns": columns_of(view),
            "position": f"{KIND} {name}#{storage.store.new_transaction()}",
            "seconds": retain.total_seconds(),
            "bytes": limit,
            "failure": None,
        }
        named = self._named(name, entry)
        named.attach(view, tables)
        if since == "now":
            named.hold(self._coordinator.epoch - 1)
            storage.store_note(named.note(self._coordinator.epoch - 1))
        storage.store.catalog.put(KIND, name, entry)
        self._all[name] = named
        self._coordinator.retentions.add(named)
        return named

    def _check(self, named: NamedSubscription, view: View, since: object) -> None:
        """Raise if a subscription cannot be continued."""
        if named.view_name != view.name:
            raise DataflowError(
                f"subscription {named.name!r} belongs to view {named.view_name!r}", hint="choose another name"
            )
        named.check_holds()
        named.check_not_failed()
        if since is not None:
            raise DataflowError(
                f"subscription {named.name!r} exists, and continues after epoch {named.position}",
                hint="leave out `since`, or drop the subscription first",
            )
        if named.reader is not None:
            raise DataflowError(
                f"subscription {named.name!r} is being read",
                hint="close the other reader first, or choose another name",
            )

    def drop(self, name: str) -> None:
        """Drop a subscription."""
        with self._coordinator.lock:
            if name not in self._all:
                known = ", ".join(map(repr, self._all)) or "none"
                raise DataflowError(f"there is no subscription {name!r}", detail=f"subscriptions are: {known}")
            named = self._all.pop(name)
            named.close_reader()
            self._coordinator.retentions.remove(named)
            key = named.position_key
            stored = self._storage.store.catalog.get(POSITION, key) is not None
            self._storage.store.catalog.update([DeleteEntry(KIND, name), *([DeleteEntry(POSITION, key)] * stored)])
            self._storage.positions.pop(key, None)
            self.end_history()

    def drop_all_of(self, view: View) -> None:
        """Drop the subscriptions of a view, which is dropped."""
        for named in [named for named in self._all.values() if named.is_of(view)]:
            self.drop(named.name)

    def end_all_of(self, view: View, reason: str) -> None:
        """Let the subscriptions of a view fail."""
        for named in [named for named in self._all.values() if named.is_of(view)]:
            named.fail(reason)

    def statuses(self) -> list[SubscriptionStatus]:
        """The state of all subscriptions, in the order in which they were created."""
        with self._coordinator.lock:
            return [named.status() for named in self._all.values()]
