"""Healing: when a worker of an engine with storage dies, all workers are replaced, and the engine goes on.

The driver lives, so it knows everything except the rows: the definitions of tables and dataflows
(`ikebana.engine.definitions`), the open epoch, and what each subscriber was given. New workers are started, get the
rows of durable tables from the storage directory (`ikebana.engine.table_storage`), install the same dataflows under the
same names, and take the place of the old ones in the coordinator. Objects of users (tables, views, statements,
subscriptions) refer to dataflows by name, and notice nothing.

Who heals. Whoever notices that a worker has died: a thread of a caller, or the healer's own thread, which waits for the
death of workers, so that an idle engine heals too. It holds the coordinator's lock meanwhile; readers wait for the lock
up to their timeouts. A transaction that had rows on the old workers cannot be committed any more, and raises.

Epochs. The log of the storage directory has the epoch of each transaction since the last snapshot. New workers start at
the earliest epoch after it that a subscriber or a hold still needs, and repeat all later changes at their own epochs,
so that subscribers get each epoch once. If earlier epochs are needed, workers also keep the history that the batches of
the snapshot have (`KeepHistory`): that of tables that were held, as those of named subscriptions are
(`ikebana.engine.named_subscriptions`). A subscription whose epochs are neither in the log nor in the batches ends with
an error.

Fencing. The storage directory gets a new incarnation (`ikebana.storage.store`): an old worker that is still alive
cannot write to the storage any more, and what it has written since does not count.

Lost are the rows of inputs, and of tables that are not durable: dataflows that read them fail. Views of streams begin
anew, without the rows that have passed; their subscriptions end with an error.

Cost: the start of workers (1 to 3 s), and the time of loading tables and computing views, as when an engine is started
on the directory. Not guaranteed: anything if the driver dies; then connect again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ikebana.cluster import Cluster
from ikebana.cluster.interrupts import defer_interrupts
from ikebana.engine.catalog import Catalog
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.subscriptions import Subscription
from ikebana.errors import DroppedError, IkebanaError, WorkerLostError
from ikebana.runtime.messages import Advance, Demand, Fail, KeepHistory

if TYPE_CHECKING:
    from ikebana.engine.table_storage import Recovered, TableStorage

log = logging.getLogger("ikebana")

RESTARTS = 3
"""How many times workers are replaced within `PERIOD_SECONDS`, by default, before an engine gives up."""

PERIOD_SECONDS = 60.0


class Healing:
    """Replaces the workers of an engine when one of them has died."""

    def __init__(
        self,
        coordinator: Coordinator,
        catalog: Catalog,
        storage: TableStorage,
        on_replaced: Callable[[Recovered], None],
        restarts: int = RESTARTS,
    ) -> None:
        """`on_replaced` gets what was recovered, under the coordinator's lock, whenever workers were replaced.

        `restarts` limits how many times workers are replaced within `PERIOD_SECONDS`.
        """
        self._coordinator, self._catalog, self._storage, self._restarts = coordinator, catalog, storage, restarts
        self._on_replaced = on_replaced
        self._recovered = storage.store.recovery.epoch  # tables may have been changed up to it by earlier engines
        self.on_healed: list[Callable[[], None]] = []
        """Called by a thread of their own, without a lock, after workers were replaced."""
        self._times: deque[float] = deque()  # when workers were last replaced
        self._failure: WorkerLostError | None = None  # why workers are not replaced any more
        self._events: SimpleQueue[str] = SimpleQueue()  # "died", "replaced" or "closed"
        self._is_closed = False
        self.is_replacing = False
        """Whether workers are being replaced now."""
        coordinator.healing = self
        coordinator.cluster.watch(self._on_death)
        self._thread = threading.Thread(target=self._run, name="ikebana healing", daemon=True)
        self._thread.start()

    def _on_death(self) -> None:
        self._events.put("died")

    def _run(self) -> None:
        """Replace workers who have died while nobody asks for anything, and tell who wants to know."""
        for event in iter(self._events.get, "closed"):
            if event == "died":
                with suppress(IkebanaError):  # whoever uses the engine next gets the error
                    self._coordinator.has_replaced(self._coordinator.cluster)
                continue
            for listener in self.on_healed:
                try:
                    listener()
                except Exception:
                    log.exception("after the replacement of workers")

    def close(self) -> None:
        """Do not replace workers any more; waits for a replacement that is under way."""
        self._is_closed = True
        self._events.put("closed")
        self._thread.join()
        with self._coordinator.lock:
            pass

    def heal(self, dead: Cluster, error: WorkerLostError) -> None:
        """Return when a cluster of which a worker has died is replaced; raise if that is not possible."""
        with self._coordinator.lock:
            while self._coordinator.cluster is dead:
                self._check(error)
                self._times.append(time.monotonic())
                log.warning("%s (%s): the workers are replaced", error.what, _first_line(error.detail))
                self.is_replacing = True
                try:
                    self._replace(dead, error)
                except WorkerLostError as another:  # of the new workers
                    error = another
                except DroppedError:
                    raise
                except Exception as failure:
                    self._failure = WorkerLostError(
                        f"{error.what}, and the workers could not be replaced",
                        detail=f"{type(failure).__name__}: {failure}",
                        hint="start the engine again: every transaction that was applied is stored",
                    )
                    log.error("%s", self._failure)
                finally:
                    self.is_replacing = False

    def _check(self, error: WorkerLostError) -> None:
        """Raise if workers must not be replaced again."""
        while self._times and self._times[0] < time.monotonic() - PERIOD_SECONDS:
            self._times.popleft()
        if self._failure is None and len(self._times) >= self._restarts:
            self._failure = WorkerLostError(
                f"{error.what}, and is not replaced again",
                detail=f"workers have died {len(self._times) + 1} times within {PERIOD_SECONDS:.0f} s; {error.detail}",
                hint="find out why, and start the engine again: every transaction that was applied is stored",
            )
            log.error("%s", self._failure)
        self.check()

    def check(self) -> None:
        """Raise if dead workers are not going to be replaced."""
        if self._is_closed:
            raise DroppedError("the engine was closed", hint="start another one")
        if self._failure is not None:
            raise WorkerLostError(self._failure.what, detail=self._failure.detail, hint=self._failure.hint)

    def _replace(self, dead: Cluster, error: WorkerLostError) -> None:
        """Start workers, give them what those of the dead cluster had, and let them take their place."""
        started, cluster = time.perf_counter(), None
        try:
            cluster = dead.start_again()
            start_seconds = time.perf_counter() - started
            self.check()  # it may have been closed meanwhile
            cluster.listen(self._coordinator.on_notification)
            recovered = self._reload(cluster)
            with defer_interrupts():
                dead.hand_over(cluster)
                cluster.watch(self._on_death)
                self._coordinator.cluster = cluster
        except BaseException:
            with defer_interrupts():
                if cluster is not None:
                    cluster.close()
            raise
        recovered = replace(
            recovered,
            reason=f"{error.what}: {_first_line(error.detail)}",
            start_seconds=start_seconds,
            seconds=time.perf_counter() - started,
        )
        self._events.put("replaced")
        self._on_replaced(recovered)
        log.warning("the workers were replaced: %s", recovered)

    def _reload(self, cluster: Cluster) -> Recovered:
        """Give new workers everything that the old ones had, up to the open epoch."""
        coordinator, storage = self._coordinator, self._storage
        definitions = coordinator.definitions
        storage.reopen(cluster)
        recovery = storage.store.recovery
        known = max(recovery.snapshot_epoch, definitions.first_epoch, 0 if recovery.snapshot_epoch < 0 else 1)
        epoch = max(coordinator.epoch, recovery.epoch + 1, known + 1)
        oldest = self._oldest_early(epoch, known)
        if oldest is not None:
            cluster.command(KeepHistory(max(0, oldest)))
            known = max(known, recovery.snapshot_epoch + 1)  # workers start after all batches
            epoch = max(epoch, known + 1)
        coordinator.open_epoch(epoch)
        start = min([epoch - 1, *(at for _, at in self._needed(epoch) if at >= known)])
        self._catalog.forget_failures()
        cluster.command(Advance(start))
        for command in definitions.of_tables():
            cluster.command(command)
        recovered = storage.load(cluster, list(definitions.tables.values()), start)
        began = time.perf_counter()
        for install in definitions.of_queries():
            cluster.command(install)
        for worker, push in definitions.changes_from(start):
            cluster.command(push, worker)
        for dataflow, reason in definitions.lost_dataflows().items():
            cluster.command(Fail(dataflow, reason))
        for subscription, at in self._positions(epoch, known):
            cluster.command(subscription.resumed(at, epoch - 1))
        self._release_unknown(known)
        for hold in definitions.holds.values():
            cluster.command(hold)
        cluster.command(KeepHistory(definitions.kept))
        cluster.command(Advance(epoch))
        for dataflow in definitions.dataflows:
            cluster.command(Demand(dataflow, epoch))
        return replace(recovered, install_seconds=time.perf_counter() - began)

    def _oldest_early(self, epoch: int, known: int) -> int | None:
        """The oldest epoch before `known` that is needed, and that may be in stored batches; None if there is none."""
        definitions = self._coordinator.definitions
        early = [at for dataflow, at in self._needed(epoch) if at < known and definitions.stored_sources(dataflow)]
        if definitions.kept is not None:
            early.append(definitions.kept)
        return min(early, default=None)

    def _first_known(self, dataflow: str, known: int) -> int:
        """The first epoch from which on the changes of a dataflow are known one by one, after tables were loaded."""
        sources = self._coordinator.definitions.stored_sources(dataflow)
        if not sources:
            return known
        return min(known, max(self._storage.stored_since.get(name, 0) for name in sources))

    # Readers.

    def _position(self, subscription: Subscription, epoch: int) -> int | None:
        """The epoch that a subscription was given last; None if it was given nothing yet.

        If its view has not changed since, it counts as having been given everything.
        """
        definitions, at = self._coordinator.definitions, subscription.position
        sources = definitions.sources_of_dataflow(subscription.dataflow)
        last = max((definitions.last_changes.get(name, self._recovered) for name in sources), default=-1)
        return epoch - 1 if at is not None and at >= last else at

    def _needed(self, epoch: int) -> list[tuple[str, int]]:
        """The dataflows whose changes are needed, by subscriptions and holds, and after which epochs."""
        subscriptions = [other for other in self._coordinator.subscriptions if not other.closed]
        given = [(subscription.dataflow, self._position(subscription, epoch)) for subscription in subscriptions]
        held = [(hold.dataflow, hold.at) for hold in self._coordinator.definitions.holds.values()]
        return [*held, *((dataflow, at) for dataflow, at in given if at is not None)]

    def _positions(self, epoch: int, known: int) -> list[tuple[Subscription, int | None]]:
        """The subscriptions that can go on, and the epoch that each was given last, the earliest first.

        Those that cannot go on are ended.
        """
        positions: list[tuple[Subscription, int | None]] = []
        definitions = self._coordinator.definitions
        for subscription in [other for other in self._coordinator.subscriptions if not other.closed]:
            at, first = self._position(subscription, epoch), self._first_known(subscription.dataflow, known)
            lost = sorted(definitions.sources_of_dataflow(subscription.dataflow) & definitions.unstored)
            if lost:
                subscription.end(f"a worker has died, and the rows of {lost[0]!r} are not stored")
            elif at is not None and at < first:
                subscription.end(
                    f"a worker has died, and changes after epoch {at} were not yet taken: only those after epoch "
                    f"{first} are still known one by one"
                )
            else:
                positions.append((subscription, at))
        return sorted(positions, key=lambda pair: epoch if pair[1] is None else pair[1])

    def _release_unknown(self, known: int) -> None:
        """Release holds of epochs that are not known any more."""
        definitions = self._coordinator.definitions
        for number, hold in list(definitions.holds.items()):
            is_lost = definitions.sources_of_dataflow(hold.dataflow) & definitions.unstored
            if is_lost or hold.at < self._first_known(hold.dataflow, known):
                del definitions.holds[number]


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
