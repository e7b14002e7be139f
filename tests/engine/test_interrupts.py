"""Interrupts (Ctrl-C) while a call waits for worker processes: the engine goes on as if there had been no call."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ikebana.cluster.interrupts import defer_interrupts
from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, Table
from ikebana.runtime.messages import Commit, Install, Ping, Read
from tests.clusters import within
from tests.dataflow.harness import collected

pytestmark = pytest.mark.usefixtures("forked_workers")

LONG = 60.0


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


def interrupt() -> None:
    """What Ctrl-C does, and a notebook's stop button."""
    os.kill(os.getpid(), signal.SIGINT)


def interrupted_when(condition: Callable[[], object], wait: Callable[[], object]) -> None:
    """Call `wait`, which is interrupted once a condition holds; the condition only holds while `wait` waits."""

    def watch() -> None:
        assert within(LONG, lambda: bool(condition()))
        interrupt()

    thread = threading.Thread(target=watch)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        wait()
    thread.join()


class Brake:
    """A function for workers that reports when it runs, and returns when it is released."""

    def __init__(self, folder: Path) -> None:
        self._works, self._free = folder / "works", folder / "free"

    def __call__(self, columns: Any) -> Any:
        if not len(columns["v"]):
            return columns["v"].is_valid()
        self._works.touch()
        while not self._free.exists():
            time.sleep(0.01)
        return columns["v"].is_valid()

    def works(self) -> bool:
        return self._works.exists()

    def release(self) -> None:
        self._free.touch()


def calls_under_way(engine: Engine) -> int:
    assert isinstance(engine.cluster, Processes)
    return len(engine.cluster._connections._calls)


def test_regression_a_late_reply_is_ignored(engine: Engine, table: Table, tmp_path: Path) -> None:
    brake = Brake(tmp_path)
    slow = engine.install("slow", table.filter(brake))
    quick = engine.install("quick", table.count("v"))
    table.insert({"k": [1, 2, 3], "v": [7, 7, 8]})
    for wait in (slow.read, lambda: slow.wait(engine.epoch - 1), engine.wait):
        interrupted_when(lambda: brake.works() and calls_under_way(engine), wait)
    assert not calls_under_way(engine)
    brake.release()
    assert collected(quick.read()) == {(7, 2): 1, (8, 1): 1}  # not the rows that the first one asked for
    assert collected(slow.read()) == {(1, 7): 1, (2, 7): 1, (3, 8): 1}
    table.delete({"k": [3]})
    assert collected(slow.read()) == {(1, 7): 1, (2, 7): 1}


def test_regression_an_interrupted_transaction_leaves_nothing(engine: Engine, table: Table, tmp_path: Path) -> None:
    brake = Brake(tmp_path)
    engine.install("slow", table.filter(brake))
    table.insert({"k": [1], "v": [1]})
    assert within(LONG, brake.works)
    epoch, ask = engine.epoch, engine.coordinator.cluster.ask

    def interrupted(request: Any, worker: int | None = None) -> Any:
        interrupt()
        return ask(request, worker)

    engine.coordinator.cluster.ask = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        table.insert({"k": [2], "v": [2]})
    with pytest.raises(KeyboardInterrupt), engine.transaction():
        table.insert({"k": [2], "v": [2]})
        table.insert({"k": [3], "v": [3]})
    engine.coordinator.cluster.ask = ask  # type: ignore[method-assign]
    assert engine.epoch == epoch and not engine.coordinator._open
    brake.release()
    table.insert({"k": [2], "v": [5]})
    assert collected(engine.install("all", table).read()) == {(1, 1): 1, (2, 5): 1}


def test_regression_a_view_whose_installation_is_interrupted_is_removed(
    engine: Engine, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.insert({"k": [1, 2], "v": [1, 1]})
    before = {status.dataflow for status in engine.status()}
    send = Processes.command

    def interrupted(self: Processes, command: Any, worker: int | None = None) -> None:
        if isinstance(command, Install | Commit):
            interrupt()
        send(self, command, worker)

    monkeypatch.setattr(Processes, "command", interrupted)
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
    interrupted_when(lambda: changes._received._waiters, lambda: next(changes))  # type: ignore[attr-defined]
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
