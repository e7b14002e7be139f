"""The position of a named subscription: which changes its consumer has acknowledged, and what keeps the others.

The position is stored; the changes after it are held, on all workers, in the view and in the tables that it reads
(`ikebana.engine.holds`). Once in a second the position is checked: it advances over epochs without changes, and the
subscription fails if its changes are too old or take too many bytes. One that has failed holds nothing, and says why.

The lock of the coordinator guards the state. Cost: a request to all workers for each check. For the guarantees as a
whole see `ikebana.engine.named_subscriptions`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ikebana.engine.coordinator import Coordinator
from ikebana.engine.epoch_times import now_us
from ikebana.engine.holds import EpochHold, history_after
from ikebana.engine.subscription_readers import DurableSubscription, NamedStream
from ikebana.engine.table_storage import TableStorage
from ikebana.errors import DataflowError, IkebanaError
from ikebana.plan.estimates import format_bytes

if TYPE_CHECKING:
    from ikebana.engine.tables import Table
    from ikebana.engine.views import View

KIND, POSITION = "subscription", "position"
"""The kinds of entries in the catalogue of the storage directory."""

_RENEW = "drop the subscription, and create it again: it then begins with the whole result"


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """A named subscription.

    state: "read" while there is a consumer, "waiting" otherwise, or "failed".
    reason: why it has failed.
    epoch: the last one that was acknowledged; None before the first.
    bytes: what is kept for it, of the changes of its view and tables after that epoch, on all workers.
    """

    name: str
    view: str
    state: str
    reason: str
    epoch: int | None
    bytes: int
    retain: timedelta
    retain_bytes: int


class NamedSubscription:
    """A named subscription as the engine keeps it: its position, and the holds that keep the changes after it."""

    def __init__(
        self,
        coordinator: Coordinator,
        storage: TableStorage,
        name: str,
        entry: dict[str, Any],
        tables: Mapping[str, Table],
        on_failure: Callable[[], None],
    ) -> None:
        """`entry` is what the catalogue has of it, `tables` are those of the engine.

        `on_failure` is called when it has failed.
        """
        self._coordinator, self._storage, self.name, self._entry = coordinator, storage, name, entry
        self._all_tables, self._on_failure = tables, on_failure
        self.view_name: str = entry["view"]
        self._view: View | None = None  # once it is installed
        self._tables: list[str] = []  # the dataflows of the tables that it reads
        self._holds: list[EpochHold] = []
        self._reader: weakref.ref[DurableSubscription | NamedStream] | None = None

    @property
    def reader(self) -> DurableSubscription | NamedStream | None:
        """The consumer, if there is one."""
        reader = None if self._reader is None else self._reader()
        return None if reader is None or reader.closed else reader

    @property
    def failure(self) -> str | None:
        """Why it has failed."""
        return self._entry["failure"]

    @property
    def _value(self) -> dict[str, Any] | None:
        """What is stored as the position; None if nothing is kept.

        "epoch": changes after it are kept, and those before it are not. "acknowledged": the last epoch that the
        consumer has acknowledged; there were no changes between the two. "new": instead, the consumer is to begin with
        the result at the epoch after it.
        """
        return self._storage.positions.get(self.position_key)

    @property
    def position_key(self) -> str:
        """The name under which the position is stored; a later subscription of the same name has another."""
        return self._entry["position"]

    @property
    def position(self) -> int | None:
        """The last epoch that was acknowledged, or a later one up to which nothing has changed; None before that."""
        value = self._value
        return None if value is None or value["new"] else value["epoch"]

    @property
    def kept(self) -> int | None:
        """The epoch after which changes have to be kept, also beyond a restart; None if there is none."""
        value = self._value
        return None if value is None else value["epoch"]

    @property
    def epoch(self) -> int:
        """The epoch after which changes are kept."""
        if self.failure is not None:
            return self._last
        kept = self.kept
        return kept if kept is not None else min((hold.epoch for hold in self._holds), default=self._last)

    @property
    def _last(self) -> int:
        return self._coordinator.epoch - 1

    @property
    def is_waiting_for_view(self) -> bool:
        """Whether its view is not installed yet, and has to have a history then."""
        return self._view is None and self.failure is None and self.kept is not None

    def is_of(self, view: View) -> bool:
        """Whether it is a subscription to this very view."""
        return self._view is view

    # Positions.

    def acknowledge(self, epoch: int) -> None:
        """Make an epoch the position, if it is later; durable on return."""
        self._storage.store_note(self.note(epoch), lambda: self.position is None or epoch > self.position)
        self._advance_holds()

    def note(self, epoch: int, acknowledged: int | None = None, *, new: bool = False) -> dict[str, Any]:
        """The note of a transaction that makes an epoch the position; see `_value`."""
        value = {"epoch": epoch, "acknowledged": epoch if acknowledged is None else acknowledged, "new": new}
        return {"position": [self.position_key, value]}

    def _advance_holds(self) -> None:
        """Give up what is not needed after the position."""
        kept = self.kept
        if kept is not None:
            for hold in self._holds:
                hold.advance(kept)

    # Holds.

    def attach(self, view: View, tables: Sequence[Table]) -> None:
        """Take note of the view, which is installed, and of the tables that it reads."""
        self._view, self._tables = view, [table.spec.dataflow for table in tables]
        if self.kept is not None:
            self.hold(self.kept)

    @property
    def is_held(self) -> bool:
        """Whether the changes of the view are kept by now."""
        return bool(self._holds)

    def hold(self, epoch: int) -> None:
        """Keep the changes of the view, and of its tables, after an epoch."""
        assert self._view is not None
        dataflows = [self._view.dataflow, *self._tables]
        self._holds = [EpochHold(self._coordinator, dataflow, epoch) for dataflow in dataflows]

    def release(self) -> None:
        """Keep nothing any more."""
        for hold in self._holds:
            hold.release()
        self._holds = []

    def read_by(self, reader: DurableSubscription | NamedStream) -> None:
        """Take note of the consumer."""
        self._reader = weakref.ref(reader)

    def close_reader(self) -> None:
        """End the consumer's iteration."""
        reader = self.reader
        if reader is not None:
            reader.close()

    # Bounds.

    def advance(self) -> None:
        """Give up what is not needed; fail if too much is kept."""
        with self._coordinator.lock:
            if self.failure is not None:
                return
            if self.kept is None and self.reader is None:
                self.release()  # whoever asks for it next begins with the whole result
                return
        self.check_holds()
        if self.failure is not None:
            return
        self._advance_holds()
        if self._view is not None and self._holds:
            self._pass_epochs_without_changes(self._view)
        reason = self._excess()
        if reason:
            self.fail(f"{reason} were not acknowledged")

    def check_holds(self) -> None:
        """Fail if workers were replaced, and did not know the changes after the position any more."""
        if self.failure is None and any(hold.is_lost for hold in self._holds):
            self.fail(f"the workers were replaced, and changes after epoch {self.epoch} are in the last snapshot only")

    def _pass_epochs_without_changes(self, view: View) -> None:
        """Advance the position up to where the view has not changed, if its tables have.

        Not while a stream reads it, which acknowledges epochs without changes as well.
        """
        value = self._value
        if value is None or isinstance(self.reader, NamedStream):
            return
        if any(self._history(table).rows for table in self._tables):
            status = self._history(view.dataflow)
            passed = min(status.upper - 1, self._last)
            if not status.rows and passed > value["epoch"]:
                note = self.note(passed, value["acknowledged"], new=value["new"])
                self._storage.store_note(note, lambda: self._value == value)
                self._advance_holds()

    def _history(self, dataflow: str) -> Any:
        return history_after(self._coordinator, dataflow, self.epoch)

    @property
    def bytes(self) -> int:
        """The bytes of the changes that are kept, of the view and of its tables; of all, until it is installed."""
        dataflows = {hold.dataflow for hold in self._holds}
        if self.is_waiting_for_view:
            dataflows = {table.spec.dataflow for table in list(self._all_tables.values()) if table.spec.schema}
        return sum(self._history(dataflow).bytes for dataflow in dataflows)

    def _excess(self) -> str:
        """What exceeds the limits; empty if nothing does."""
        size = self.bytes
        if size > self._entry["bytes"]:
            return f"{format_bytes(size)} of changes of the view and its tables after epoch {self.epoch}"
        first = self.epoch + 1 if self._view is None else self._history(self._view.dataflow).first
        closed = None if first is None else self._coordinator.epoch_times.of(first)
        if closed is not None and now_us() - closed > self._entry["seconds"] * 1e6:
            return f"changes of {timedelta(seconds=self._entry['seconds'])} ago or more, after epoch {self.epoch},"
        return ""

    def fail(self, reason: str) -> None:
        """Give the subscription up, and say why to its consumer, now or later."""
        with self._coordinator.lock:
            self._entry = {**self._entry, "failure": reason}
            with suppress(IkebanaError):  # the storage has failed: then it fails again when it is opened next
                self._storage.store.catalog.put(KIND, self.name, self._entry)
            self.release()
            self._view = None
            self._on_failure()
        reader = self.reader
        if reader is not None:
            reader.end_with(reason, _RENEW)

    def check_not_failed(self) -> None:
        """Raise if it has failed."""
        if self.failure is not None:
            raise DataflowError(f"subscription {self.name!r} has failed", detail=self.failure, hint=_RENEW)

    def set_limits(self, retain: timedelta | None, retain_bytes: int | None) -> None:
        """Change for how long, and up to how many bytes, changes wait; None to leave that as it is."""
        seconds = self._entry["seconds"] if retain is None else retain.total_seconds()
        size = self._entry["bytes"] if retain_bytes is None else retain_bytes
        if (seconds, size) != (self._entry["seconds"], self._entry["bytes"]):
            self._entry = {**self._entry, "seconds": seconds, "bytes": size}
            self._storage.store.catalog.put(KIND, self.name, self._entry)

    def check_columns(self, view: View) -> None:
        """Raise if the view has other columns than when the subscription was created."""
        if self._entry["columns"] != columns_of(view):
            raise DataflowError(f"view {view.name!r} has other columns than before")

    def status(self) -> SubscriptionStatus:
        """The state and the size of the subscription."""
        state = "failed" if self.failure is not None else "waiting" if self.reader is None else "read"
        size = 0
        with suppress(DataflowError):  # its view has failed
            size = self.bytes
        retain = timedelta(seconds=self._entry["seconds"])
        reason, limit = self.failure or "", self._entry["bytes"]
        return SubscriptionStatus(self.name, self.view_name, state, reason, self.position, size, retain, limit)


def columns_of(view: View) -> list[list[str]]:
    """The names and types of a view's columns."""
    return [[field.name, str(field.type)] for field in view.plan.columns]
