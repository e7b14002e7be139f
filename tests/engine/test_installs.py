"""Installing and dropping queries, over and over: nothing is left behind, whether they work or fail."""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Callable
from unittest.mock import patch
from weakref import WeakSet, WeakValueDictionary

import pyarrow as pa
import pytest

from ikebana.cluster.connections import WorkerConnections
from ikebana.cluster.inprocess import InProcess
from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, Table
from ikebana.errors import DataflowError
from ikebana.plan import ir
from ikebana.runtime import worker
from tests.clusters import rows

CONTAINERS = (dict, set, list, deque, WeakSet, WeakValueDictionary)


def sizes(engine: Engine) -> dict[str, int]:
    """The number of entries in everything that the engine and its workers keep, and of nodes and bytes.

    Queues that are bounded are left out.
    """
    assert isinstance(engine.cluster, InProcess)
    gc.collect()
    workers = engine.cluster.workers
    parts = [part for peer in workers for part in (peer, peer._inputs, peer._results, peer.scheduler)]
    owners = [engine, engine.catalog, engine.coordinator, engine.cluster, *parts]
    counts = {
        f"{type(owner).__name__} {at} {name}": len(value)
        for at, owner in enumerate(owners)
        for name, value in vars(owner).items()
        if isinstance(value, CONTAINERS) and getattr(value, "maxlen", None) is None
    }
    sources = [inputs for peer in workers for inputs in peer._inputs._sources.values()]
    held = sum(status.bytes + status.inner_bytes for status in engine.status())
    return {**counts, "sources": sum(map(len, sources)), "nodes": len(ir._interned), "bytes": held}


def tables(engine: Engine) -> tuple[Table, Table]:
    orders = engine.table("orders", {"id": pa.int64(), "who": pa.int64()}, key="id")
    events = engine.table("events", {"id": pa.int64(), "n": pa.int64()}, kind="stream")
    orders.insert({"id": [1, 2, 3], "who": [7, 7, 8]})
    return orders, events


def install_and_drop(engine: Engine, orders: Table, events: Table, name: str) -> None:
    joined = events.join(orders, "id")
    views = [
        engine.install(f"{name} counts", joined.count("who")),
        engine.install(f"{name} sums", joined.sum("who", "n")),
        engine.install(f"{name} orders", orders.count("who")),
        engine.install(f"{name} alone", orders.count("who"), share=False),
    ]
    events.insert({"id": [1, 3, 4], "n": [10, 20, 30]})
    assert [rows(view.to_arrow()) for view in views] == [
        [(7, 1), (8, 1)],
        [(7, 10), (8, 20)],
        [(7, 2), (8, 1)],
        [(7, 2), (8, 1)],
    ]
    for view in views:
        view.drop()
    engine.run()


def fail_and_drop(engine: Engine, orders: Table, events: Table, name: str) -> None:
    elsewhere = Engine().table("strange", {"id": pa.int64(), "n": pa.int64()}, key="id")
    with patch.object(engine._sources, "check"):  # which would refuse it before workers see it
        view = engine.install(name, events.concat(elsewhere))
    with pytest.raises(DataflowError, match=f"'{name}[^']*' has failed"):
        view.read()
    view.drop()
    engine.run()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("once", [install_and_drop, fail_and_drop])
def test_many_installs_leave_nothing_behind(
    workers: int, once: Callable[[Engine, Table, Table, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "MAX_RETIRED", 3)
    engine = Engine(workers)
    orders, events = tables(engine)
    for _ in range(5):
        once(engine, orders, events, "view")
    before = sizes(engine)
    for _ in range(10):
        once(engine, orders, events, "view")
    after = sizes(engine)
    assert after.pop("nodes") <= before.pop("nodes")  # those of other engines of this process may be gone by now
    assert after == before


def test_all_dataflows_of_a_query_are_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(cluster=Processes(1)) as engine:
        orders, events = tables(engine)
        sent: list[int] = []
        send_all = WorkerConnections._send_all
        monkeypatch.setattr(WorkerConnections, "_send_all", lambda self: (sent.append(len(self._out)), send_all(self)))
        view = engine.install("view", events.join(orders, "id").join(orders.count("who"), "who"))
        assert sent == [2]  # orders by who, and the query itself
        again = engine.install("again", orders.count("who"))
        assert sent == [2, 1]
        notes = engine.input("notes", {"id": pa.int64()})
        notes.insert({"id": [2]})
        assert sent == [2, 1]
        engine.advance()
        assert sent == [
            2,
            1,
            5,
        ]  # creating the input, the open epoch, the dataflow of its rows, the row, and the end of the epoch
        assert rows(again.to_arrow()) == [(7, 2), (8, 1)]
        assert not len(view.to_arrow())


def test_an_input_that_is_created_late_begins_at_the_open_epoch() -> None:
    with Engine(cluster=Processes(2)) as engine:
        engine.advance(5)
        notes = engine.input("notes", {"id": pa.int64()})
        view = engine.install("view", notes)
        assert not len(view.to_arrow())
        notes.insert({"id": [2]})
        engine.advance()
        assert rows(view.to_arrow()) == [(2,)]


def test_workers_need_not_talk_about_the_changes_of_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []
    send = worker.Worker._send
    monkeypatch.setattr(
        worker.Worker, "_send", lambda self, peer, message: (sent.append(message), send(self, peer, message))
    )
    with Engine(workers=3) as engine:
        notes = engine.input("notes", {"who": pa.string(), "n": pa.float64()}, key="who")
        view = engine.install("view", notes.arrange("who"))
        engine.run()
        for at in range(10):
            notes.insert({"who": [f"who {at}", "all"], "n": [0.0, -0.0]})
            engine.advance()
            engine.run()
        assert not sent
        assert Counter(rows(view.to_arrow())) == {**{(f"who {at}", 0.0): 1 for at in range(10)}, ("all", 0.0): 10}
        shards = [peer.flows[view.dataflow].reader.rows for peer in engine.cluster.workers]  # type: ignore[attr-defined]
        assert all(0 < shard < 20 for shard in shards)
