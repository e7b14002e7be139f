"""Stored history: views and tables that keep their history (`ikebana.engine.retention`) do so beyond a restart.

The storage directory has, for each of them, for how long its history is kept, and since which epoch. Its rows of the
past follow from those of the tables that it reads: snapshots store their batches with the epochs of all changes that
are held, and the log has the epoch and the time of each transaction. A new engine has its workers keep history from the
oldest epoch on that is needed (`KeepHistory`), until all views are installed again: they compute the changes of every
epoch since then. After that, the retention of each view holds what it needs.

Nothing is stored while time passes. What has become too old while no engine was running is given up at the start.

Contract: whoever opens an engine with `restores_history` installs the views of `entries`, calls `restore` for each, and
then `Engine.end_recovery`.

Not guaranteed: that history begins where it did. It begins later if the tables of a view were stored without it, for
instance by an earlier version, or if a column was added to one of them since.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ikebana.engine.coordinator import Coordinator
from ikebana.engine.epoch_times import now_us
from ikebana.engine.table_storage import EPOCH_TIMES, TableStorage
from ikebana.errors import StorageError
from ikebana.storage import DeleteEntry, PutEntry

if TYPE_CHECKING:
    from ikebana.engine.results import Result
    from ikebana.engine.retention import Retention

_KIND = "retention"
"""The kind of entries in the catalogue of the storage directory: by table or view."""


class StoredHistory:
    """What the storage directory knows of the history of views and tables."""

    def __init__(self, coordinator: Coordinator, storage: TableStorage, *, is_restored: bool) -> None:
        """The rows of tables are not loaded yet. `is_restored`: whether `restore` and `end` will be called."""
        self._coordinator, self._storage = coordinator, storage
        self._waiting: dict[str, int] = {}  # by name: the first epoch that is needed
        entries = storage.store.catalog.entries(_KIND)
        if entries and is_restored:
            self._restore_times()
            first_epochs = {name: entry["epoch"] for name, entry in entries.items() if "epoch" in entry}
            for name, first in first_epochs.items():
                at = coordinator.epoch_times.at(now_us() - round(entries[name]["seconds"] * 1e6))
                self._waiting[name] = first if at is None else max(first, at)
            coordinator.retentions.need_later(self.oldest)

    def _restore_times(self) -> None:
        store = self._storage.store
        stored = store.catalog.get(*EPOCH_TIMES, [[], []])
        self._coordinator.epoch_times.restore(stored, store.recovery.times())

    @property
    def oldest(self) -> int | None:
        """The first epoch that views to be installed need; None if there are none."""
        return min(self._waiting.values(), default=None)

    def entries(self) -> dict[str, tuple[timedelta, int | None]]:
        """By table or view: for how long it keeps its history, and up to how many bytes."""
        entries = self._storage.store.catalog.entries(_KIND).items()
        return {name: (timedelta(seconds=entry["seconds"]), entry["bytes"]) for name, entry in entries}

    def save(self, name: str, kept: Retention | None) -> None:
        """Store for how long a table or view keeps its history; None if it keeps none."""
        with self._storage.catalog() as catalog:
            if kept is not None:
                entry = {"seconds": kept.after.total_seconds(), "bytes": kept.limit, "epoch": kept.epoch}
                catalog.update([PutEntry(_KIND, name, entry)])
            elif catalog.get(_KIND, name) is not None:
                catalog.update([DeleteEntry(_KIND, name)])

    def restore(self, name: str, result: Result) -> None:
        """Let a table or view, which is installed again, keep its history, as far as that was stored."""
        entry = self.entries().get(name)
        if entry is None:
            raise StorageError(f"the storage directory does not know that {name!r} keeps its history")
        with self._coordinator.lock:
            result.retain(*entry, since=self._first_epoch(name, result))

    def _first_epoch(self, name: str, result: Result) -> int | None:
        """The first epoch of the history of a view or table; None if it begins anew."""
        sources = self._coordinator.definitions.stored_sources(result.dataflow)
        if name not in self._waiting or sources is None:
            return None
        stored_since = (self._storage.stored_since.get(table, 0) for table in sources)
        first = max(0, self._waiting[name], *stored_since)
        return first if first < self._coordinator.epoch - 1 else None

    def end(self) -> None:
        """All views that could be installed again are: the others need no history."""
        self._waiting = {}
        self._coordinator.retentions.need_later(None)
