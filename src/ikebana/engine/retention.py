"""Retention: the history of a view or table, kept readable for a time.

    view.retain("1 hour")
    view.to_arrow(at=datetime(2026, 5, 1, 12, 30))
    view.changes(since=1234)

A retention holds the result at the last epoch that was closed before the time began, so that the result at every moment
since then can be read, and all changes. As time passes, the hold is advanced, and workers compact what is before it.
With a limit in bytes, the hold is advanced further when the changes since then take more: by half of its epochs, until
they take less.

The history begins when the retention is set. A thread advances the holds once in `PERIOD_SECONDS`, so that for about as
long a little more is kept than was requested.

With a storage directory, the tables that a view reads are held as well, so that snapshots store their history, from
which that of the view is computed again: for new workers (`ikebana.engine.healing`), and after a restart
(`ikebana.engine.stored_history`). History of views that read what is not stored begins anew.

Cost: the changes of the result within the time stay in memory, even if they cancel, and so do those of the tables if
they are stored; reading costs more, since they have to be added up.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from ikebana.engine.epoch_times import now_us
from ikebana.engine.holds import EpochHold, history_after
from ikebana.errors import IkebanaError
from ikebana.plan.estimates import format_bytes

if TYPE_CHECKING:
    from ikebana.engine.coordinator import Coordinator

PERIOD_SECONDS = 1.0
"""How often holds are advanced."""


class Retention:
    """The history of one dataflow's result, from `epoch` on."""

    def __init__(
        self,
        coordinator: Coordinator,
        dataflow: str,
        after: timedelta,
        limit: int | None = None,
        epoch: int | None = None,
    ) -> None:
        """Keep what is not older than `after`, as long as it takes at most `limit` bytes on all workers together.

        The history begins now, or at an earlier `epoch` that is kept.
        """
        self._coordinator, self._dataflow, self.after, self.limit = coordinator, dataflow, after, limit
        self._holds = self._held(epoch)

    def _held(self, epoch: int | None) -> list[EpochHold]:
        """Holds of the dataflow, which is the first, and of the tables that it reads, if all of them are stored."""
        with self._coordinator.lock:
            definitions = self._coordinator.definitions
            tables = definitions.tables
            stored = sorted(definitions.stored_sources(self._dataflow) or ())
            dataflows = dict.fromkeys([self._dataflow, *(tables[name].dataflow for name in stored)])
            return [EpochHold(self._coordinator, dataflow, epoch) for dataflow in dataflows]

    @property
    def epoch(self) -> int:
        """The first epoch that can be read."""
        return self._holds[0].epoch

    @property
    def since(self) -> datetime:
        """Since when the history is kept, in local time."""
        return local_time(self._coordinator.epoch_times.of(self.epoch) or now_us())

    def advance(self) -> None:
        """Give up what is too old, or too much."""
        if self._holds[0].is_lost:
            self.release()
            self._holds = self._held(None)
        epoch = self._coordinator.epoch_times.at(now_us() - round(self.after.total_seconds() * 1e6))
        if epoch is not None:
            self._advance_to(epoch)
        if self.limit is not None:
            self._advance_to_limit(self.limit)

    def _advance_to(self, epoch: int) -> None:
        for hold in self._holds:
            hold.advance(epoch)

    def _advance_to_limit(self, limit: int) -> None:
        while self.bytes > limit and (epochs := self._coordinator.epoch - 1 - self.epoch) > 0:
            self._advance_to(self.epoch + (epochs + 1) // 2)

    @property
    def bytes(self) -> int:
        """The bytes of all changes since `epoch`, on all workers; without history they would take less.

        Those of tables that are stored count as well.
        """
        return sum(history_after(self._coordinator, hold.dataflow, self.epoch).bytes for hold in self._holds)

    def release(self) -> None:
        """Give up all history."""
        for hold in self._holds:
            hold.release()

    def __str__(self) -> str:
        return f"retain {self.after}" + ("" if self.limit is None else f" or {format_bytes(self.limit)}")


class Kept(Protocol):
    """Something that keeps history: a retention, or a subscription that waits for its consumer."""

    @property
    def epoch(self) -> int:
        """The first epoch that is kept."""

    def advance(self) -> None:
        """Give up what is too old, or too much."""

    def release(self) -> None:
        """Give up all history."""


class Retentions:
    """All that keeps history in an engine, and the thread that advances it."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._all: list[Kept] = []
        self._needed_later: int | None = None
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, kept: Kept) -> None:
        """Advance something from now on."""
        with self._lock:
            self._all.append(kept)
            self._set_needed()
            if self._thread is None:
                arguments = weakref.ref(self), self._stop
                self._thread = threading.Thread(target=_run, args=arguments, name="ikebana retention", daemon=True)
                self._thread.start()

    def remove(self, kept: Kept) -> None:
        """Give up what something keeps, and advance it no longer."""
        with self._lock:
            self._all.remove(kept)
            self._set_needed()
        kept.release()

    def advance(self) -> None:
        """Give up what is too old, or too much, everywhere."""
        with self._lock:
            everything = list(self._all)
        for kept in everything:
            with suppress(IkebanaError):  # its dataflow has failed, or the workers have ended
                kept.advance()
        with self._lock:
            self._set_needed()

    def need_later(self, epoch: int | None) -> None:
        """Keep the times from an epoch on, which something that is not there yet will need; None: no longer."""
        with self._lock:
            self._needed_later = epoch
            self._set_needed()

    def _set_needed(self) -> None:
        needed = [kept.epoch for kept in self._all]
        needed += [self._needed_later] if self._needed_later is not None else []
        self._coordinator.epoch_times.needed = min(needed, default=None)

    def close(self) -> None:
        """End the thread. The workers must have ended, so that a request in progress fails."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


def _run(reference: weakref.ref[Retentions], stop: threading.Event) -> None:
    while not stop.wait(PERIOD_SECONDS):
        retentions = reference()
        if retentions is None:
            return
        retentions.advance()
        del retentions


def local_time(time_us: int) -> datetime:
    """A time in microseconds since 1970, as local time."""
    return datetime.fromtimestamp(time_us / 1e6)
