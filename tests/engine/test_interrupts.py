"""Interrupts (Ctrl-C) while a call waits for worker processes: the engine goes on as if there had been no call."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ikebana.cluster.interrupts import defer_interrupts
from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, Table
from ikebana.runtime.messages import Commit, Install, Ping, Read
from tests.clusters import SOON, Brake, interrupt, interrupted, within
from tests.dataflow.harness import collected

pytestmark = pytest.mark.usefixtures("forked_workers")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(cluster=Processes(2)) as engine:
        yield engine


@pytest.fixture
def table(engine: Engine) -> Iterator[Table]:
    yield engine.table("t", {"k": pa.int64(), "v": pa.int64()}, key="k")
    for view in list(engine.views.values()):
        view.drop()
    for name in list(engine.tables):
        engine.drop_table(name)


def calls_under_way(engine: Engine) -> int:
    assert isinstance(engine.cluster, Processes)
    return len(engine.cluster._connections._calls)


def test_regression_a_late_reply_is_ignored(engine: Engine, table: Table, tmp_path: Path) -> None:
    brake = Brake(tmp_path / "brake")
    slow = engine.install("slow", table.filter(brake))
    quick = engine.install("quick", table.count("v"))
    table.insert({"k": [1, 2, 3], "v": [7, 7, 8]})
    for wait in (slow.read, lambda: slow.wait(engine.epoch - 1), engine.wait):
        interrupted(wait, lambda: brake.works() and calls_under_way(engine))
    assert not calls_under_way(engine)
    brake.release()
    assert collected(quick.read()) == {(7, 2): 1, (8, 1): 1}  # not the rows that the first one asked for
    assert collected(slow.read()) == {(1, 7): 1, (2, 7): 1, (3, 8): 1}
    table.delete({"k": [3]})
    assert collected(slow.read()) == {(1, 7): 1, (2, 7): 1}


def test_regression_an_interrupted_transaction_leaves_nothing(engine: Engine, table: Table, tmp_path: Path) -> None:
    brake = Brake(tmp_path / "brake")
    engine.install("slow", table.filter(brake))
    table.insert({"k": [1], "v": [1]})
    assert within(SOON, brake.works)
    epoch, ask = engine.epoch, engine.coordinator.cluster.ask

    def interrupted_ask(request: Any, worker: int | None = None) -> Any:
        interrupt()
        return ask(request, worker)

    engine.coordinator.cluster.ask = interrupted_ask  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        table.insert({"k": [2], "v": [2]})
    interrupted_epoch = engine.epoch
    with pytest.raises(KeyboardInterrupt), engine.transaction():
        table.insert({"k": list(range(2, 9)), "v": [2] * 7})  # on both workers
        table.insert({"k": [9], "v": [3]})
    engine.coordinator.cluster.ask = ask  # type: ignore[method-assign]
    assert epoch <= interrupted_epoch == engine.epoch and not engine.coordinator._open
    brake.release()
    assert table.insert({"k": [2], "v": [5]}) == interrupted_epoch
    assert collected(engine.install("all", table).read()) == {(1, 1): 1, (2, 5): 1}


def test_a_transaction_that_is_interrupted_after_its_commit_is_applied(engine: Engine, table: Table) -> None:
    view, ask = engine.install("all", table), engine.coordinator.cluster.ask
    changes = view.changes("now")

    def interrupted_ask(request: Any, worker: int | None = None) -> Any:
        ask(request, worker)
        interrupt()

    for k in (1, 2, 3):  # of both workers
        engine.coordinator.cluster.ask = interrupted_ask  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            table.insert({"k": [k], "v": [k]})
        engine.coordinator.cluster.ask = ask  # type: ignore[method-assign]
        epoch = table.insert({"k": [10 * k], "v": [k]})
        assert collected(next(changes)[1]) == {(k, k): 1}
        assert (epoch, {(10 * k, k): 1}) == ((item := next(changes))[0], collected(item[1]))
    assert collected(view.read()) == {(k, k // 10 or k): 1 for k in (1, 2, 3, 10, 20, 30)}


def test_regression_a_view_whose_installation_is_interrupted_is_removed(
    engine: Engine, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.insert({"k": [1, 2], "v": [1, 1]})
    before = {status.dataflow for status in engine.status()}
    send = Processes.command

    def interrupted_command(self: Processes, command: Any, worker: int | None = None, **options: Any) -> None:
        if isinstance(command, Install | Commit):
            interrupt()
        send(self, command, worker, **options)

    monkeypatch.setattr(Processes, "command", interrupted_command)
    for make in (
        lambda: engine.install("counts", table.count("v").join(table, "v")),
        lambda: engine.table("more", {"k": pa.int64()}, key="k"),
    ):
        with pytest.raises(KeyboardInterrupt):
            make()
    with pytest.raises(KeyboardInterrupt):
        table.insert({"k": [3], "v": [1]})  # checked, and on its way: it counts
    monkeypatch.undo()
    assert list(engine.views) == [] and list(engine.tables) == ["t"]
    assert {status.dataflow for status in engine.status()} == before
    assert collected(engine.install("counts", table.count("v")).read()) == {(1, 3): 1}
    assert engine.table("more", {"k": pa.int64()}, key="k").insert({"k": [1]}) == engine.epoch - 1


def test_regression_changes_go_on_after_an_interrupt(engine: Engine, table: Table) -> None:
    view = engine.install("all", table)
    changes = view.changes()
    epochs = [table.insert({"k": [1], "v": [1]})]
    assert next(changes)[0] == epochs[0]
    interrupted(lambda: next(changes), lambda: changes._received._waiters)  # type: ignore[attr-defined]
    epochs = [table.insert({"k": [k], "v": [1]}) for k in range(2, 40)]
    assert [next(changes)[0] for _ in epochs] == epochs
    with pytest.raises(KeyboardInterrupt), view.hold() as held:
        interrupt()
        held.read()
    assert engine.coordinator.ask(Ping(view.dataflow)) == [None, None]
    assert sum(shard.rows.num_rows for shard in engine.coordinator.ask(Read(view.dataflow, (engine.epoch - 1,)))) == 39


def test_deferred_interrupts_come_at_the_end() -> None:
    seen = []
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        with defer_interrupts():
            interrupt()
            seen.append("inside")
        seen.append("still inside")
    assert seen == ["inside", "still inside"]
    handler = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=lambda: seen.append(defer_interrupts().__enter__()))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is handler and seen[-1] is None
