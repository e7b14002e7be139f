"""What a session reports about itself: its tables and views, their state, who holds old epochs, and totals.

Everything is requested from the workers when it is called, with one request to all of them, and one more for each view
whose state is reported. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from ikebana.engine.engine import Engine
from ikebana.engine.holds import history_after
from ikebana.errors import DataflowError
from ikebana.runtime.messages import ArrangementStatus
from ikebana.spark.info import ArrangementInfo, HoldInfo, SessionStatus, SubscriptionInfo, TableInfo, ViewInfo
from ikebana.spark.listing import Bytes, Listing
from ikebana.spark.memory_use import MemoryInfo, memory_infos
from ikebana.spark.monitoring import Monitor
from ikebana.spark.relations import Relations
from ikebana.spark.view import View


def table_infos(relations: Relations) -> Listing[TableInfo]:
    """All tables."""
    with relations.lock:
        tables = list(relations.tables.values())
    return Listing((TableInfo(t.name, t.kind, tuple(t.key), tuple(t.columns)) for t in tables), TableInfo)


def view_infos(engine: Engine, relations: Relations, monitor: Monitor, timeout: float | None) -> Listing[ViewInfo]:
    """All views, by name."""
    with relations.lock:
        views = sorted(relations.views.items())
    statuses: dict[str, list[ArrangementStatus]] = {}
    for status in engine.status(timeout=timeout):
        statuses.setdefault(status.dataflow, []).append(status)
    shards = {name: statuses.get(view._inner.dataflow, []) for name, view in views}
    rates = monitor.rates.update({name: changes_of(shards[name]) for name, _ in views})
    return Listing(
        (_view_info(engine, monitor, view, shards[name], rates[name], timeout) for name, view in views), ViewInfo
    )


def _view_info(
    engine: Engine,
    monitor: Monitor,
    view: View,
    shards: list[ArrangementStatus],
    rate: float,
    timeout: float | None,
) -> ViewInfo:
    state, reason, since = monitor.state_of(view, timeout)
    complete = min((shard.upper for shard in shards), default=engine.epoch)
    return ViewInfo(
        view.name,
        state,
        reason,
        _shown(since),
        rows=sum(shard.rows for shard in shards),
        bytes=Bytes(sum(shard.bytes + shard.inner_bytes for shard in shards)),
        changes_per_second=rate,
        epochs_behind=max(0, engine.epoch - complete),
        seconds_behind=round(engine.coordinator.seconds_since(complete), 1),
        created=_shown(view.created),
        columns=tuple(view.columns),
    )


def changes_of(shards: Iterable[ArrangementStatus]) -> int:
    """How many changes an arrangement has had, on all workers."""
    return sum(shard.changes for shard in shards)


def _shown(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")


def memory_listing(engine: Engine, timeout: float | None) -> Listing[MemoryInfo]:
    """The memory of all tables and views."""
    statuses = engine.status(timeout=timeout)
    with engine.coordinator.lock:
        return Listing(memory_infos(engine.catalog, statuses), MemoryInfo)


def hold_infos(engine: Engine, relations: Relations, readers: Iterable[tuple[str, int, str]]) -> Listing[HoldInfo]:
    """The epochs that are kept readable, by `hold()` and by readers of the data source, the oldest first.

    `readers` are the latter: the table or view, the epoch, and who holds it.
    """
    last = engine.epoch - 1
    with relations.lock:
        views = [(view.name, view._inner) for view in relations.views.values()]
        views += [(table.name, table._rows) for table in relations.tables.values()]
    held = [(name, epoch, "hold()") for name, view in views for epoch in view.held_epochs()]
    held += [(name, view.retention.epoch, str(view.retention)) for name, view in views if view.retention is not None]
    dataflows = {name: view.dataflow for name, view in views}

    def size(name: str, epoch: int) -> Bytes:
        with suppress(DataflowError):  # it was dropped meanwhile, or has failed
            if name in dataflows:
                return Bytes(history_after(engine.coordinator, dataflows[name], epoch).bytes)
        return Bytes(0)

    infos = [HoldInfo(name, epoch, last - epoch, by, size(name, epoch)) for name, epoch, by in (*held, *readers)]
    return Listing(sorted(infos, key=lambda info: (info.epoch, info.name, info.held_by)), HoldInfo)


def subscription_infos(engine: Engine) -> Listing[SubscriptionInfo]:
    """The named subscriptions, in the order in which they were created."""
    last = engine.epoch - 1
    return Listing(
        (
            SubscriptionInfo(
                status.name,
                status.view,
                status.state,
                status.reason,
                status.epoch,
                None if status.epoch is None else last - status.epoch,
                Bytes(status.bytes),
                str(status.retain),
                Bytes(status.retain_bytes),
            )
            for status in engine.subscriptions
        ),
        SubscriptionInfo,
    )


def arrangement_infos(engine: Engine, timeout: float | None) -> Listing[ArrangementInfo]:
    """All arrangements, on each worker."""
    return Listing(map(ArrangementInfo.of, engine.status(timeout=timeout)), ArrangementInfo)


def session_status(engine: Engine, relations: Relations, timeout: float | None) -> SessionStatus:
    """The totals of a session."""
    statuses = engine.status(timeout=timeout)
    return SessionStatus(
        workers=engine.cluster.size,
        epoch=engine.epoch,
        tables=len(relations.tables),
        views=len(relations.views),
        arrangements=sum(status.worker == 0 for status in statuses),
        rows=sum(status.rows for status in statuses),
        bytes=sum(status.bytes + status.inner_bytes for status in statuses),
    )
