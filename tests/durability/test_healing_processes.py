"""Worker processes that are killed at random instants, while several threads change and read tables."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, Table, View
from ikebana.errors import IkebanaError, WaitTimeoutError, WorkerLostError
from tests.clusters import SOON, all_end, interrupted, within, workers_below
from tests.dataflow.harness import collected

pytestmark = pytest.mark.usefixtures("forked_workers")

FIELDS = {"id": pa.int64(), "part": pa.int64(), "thread": pa.int64()}
KILLS, THREADS = 3, 3


@pytest.fixture
def engine(place: Path) -> Iterator[Engine]:
    with Engine(cluster=Processes(2), storage=str(place), restarts=100) as engine:
        yield engine


def pids(engine: Engine) -> list[int]:
    assert isinstance(engine.cluster, Processes)
    return engine.cluster.pids


def kill(engine: Engine, worker: int = 1) -> None:
    os.kill(pids(engine)[worker], signal.SIGKILL)


class Writer(threading.Thread):
    """Commits transactions of two rows each, and knows which ones were refused."""

    def __init__(self, engine: Engine, table: Table, number: int) -> None:
        super().__init__()
        self._engine, self._table, self._number = engine, table, number
        self.committed: dict[int, int] = {}
        """The epoch of each transaction."""
        self.refused = 0
        self.failure: BaseException | None = None
        self.is_over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.is_over.is_set():
            number += 1
            ids = [self._number * 1_000_000 + 2 * number, self._number * 1_000_000 + 2 * number + 1]
            rows = {"id": ids, "part": [number] * 2, "thread": [self._number] * 2}
            try:
                if number % 2:
                    epoch = self._table.insert(rows)
                else:
                    with self._engine.transaction() as transaction:
                        self._table.insert(rows)
                    epoch = transaction.epoch
                assert epoch is not None
                self.committed[number] = epoch
            except WorkerLostError as error:
                assert number % 2 == 0 and "nothing of the transaction was applied" in str(error)
                self.refused += 1
            except BaseException as error:
                self.failure = error
                return


def test_oracle_workers_are_killed_at_random_instants(engine: Engine) -> None:
    table = engine.table("t", FIELDS, key="id")
    view = engine.install("counts", table.count("thread"))
    seen: list[tuple[int, dict[Any, int]]] = []
    followed = view.subscribe(lambda epoch, changes: seen.append((epoch, collected(changes))))
    writers = [Writer(engine, table, number) for number in range(THREADS)]
    for writer in writers:
        writer.start()
    assert within(SOON, lambda: bool(seen))  # from then on every epoch must be seen
    chance = random.Random(1)
    for _ in range(KILLS):
        killed = pids(engine)
        time.sleep(chance.uniform(0, 0.5))
        kill(engine, chance.randrange(2))
        read_while(view, lambda killed=killed: pids(engine) == killed)
        assert all_end(killed)
    for writer in writers:
        writer.is_over.set()
    for writer in writers:
        writer.join(SOON)
        assert writer.failure is None
    committed = {(writer._number, number): epoch for writer in writers for number, epoch in writer.committed.items()}
    rows = collected(engine.install("all", table).read())
    found = Counter((thread, part) for _, part, thread in rows)
    assert found == dict.fromkeys(committed, 2)
    check_changes(seen, committed, view)
    assert followed.error is None and not followed.closed


def read_while(view: View, condition: Any) -> None:
    """Read a view until the workers are replaced: readers wait, and see whole transactions."""
    deadline = time.monotonic() + SOON
    while condition():
        counts = view.to_arrow(timeout=SOON)["count"].to_pylist()
        assert all(count % 2 == 0 for count in counts) and time.monotonic() < deadline


def check_changes(seen: list[tuple[int, dict[Any, int]]], committed: dict[Any, int], view: View) -> None:
    """Each epoch was delivered once, in order, and the changes add up to the counts after each epoch."""
    last = max(committed.values())
    assert within(SOON, lambda: bool(seen) and seen[-1][0] == last)
    epochs = [epoch for epoch, _ in seen]
    assert epochs == sorted(set(committed.values()))
    total, expected = Counter[Any](), Counter[int]()
    by_epoch = {epoch: thread for (thread, _), epoch in committed.items()}
    for epoch, changes in seen:
        total.update(changes)
        expected[by_epoch[epoch]] += 2
        assert +total == dict.fromkeys(expected.items(), 1)


def test_an_idle_engine_heals_by_itself(engine: Engine) -> None:
    table, before = engine.table("t", FIELDS, key="id"), pids(engine)
    table.insert({"id": [1], "part": [1], "thread": [1]})
    kill(engine, 0)
    assert within(SOON, lambda: pids(engine) != before)
    assert engine.recovered is not None and "SIGKILL" in engine.recovered.reason
    assert table.lookup(id=1).num_rows == 1 and all_end(before)


@pytest.fixture
def slow_start(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """New workers are started when this is set."""
    event, start_again = threading.Event(), Processes.start_again

    def slow(cluster: Processes) -> Processes:
        event.wait(SOON)
        return start_again(cluster)

    monkeypatch.setattr(Processes, "start_again", slow)
    return event


def test_callers_wait_up_to_their_timeouts(engine: Engine, slow_start: threading.Event) -> None:
    table = engine.table("t", FIELDS, key="id")
    view = engine.install("counts", table.count("part"))
    table.insert({"id": [1], "part": [1], "thread": [1]})
    kill(engine)
    for call in (
        lambda: view.read(timeout=0.1),
        lambda: view.lookup(part=1, timeout=0.1),
        lambda: view.hold(timeout=0.1),
        lambda: engine.wait(timeout=0.1),
        lambda: table.insert({"id": [2], "part": [1], "thread": [1]}, timeout=0.1),
    ):
        with pytest.raises(WaitTimeoutError):
            call()
    threading.Timer(0.2, slow_start.set).start()
    assert collected(view.read(timeout=SOON)) == {(1, 1): 1}
    table.insert({"id": [2], "part": [1], "thread": [1]})
    assert collected(view.read()) == {(1, 2): 1}


def test_an_interrupt_while_workers_are_replaced(place: Path, slow_start: threading.Event) -> None:
    before = workers_below()
    with Engine(cluster=Processes(2), storage=str(place)) as engine:
        table = engine.table("t", FIELDS, key="id")
        table.insert({"id": [1], "part": [1], "thread": [1]})
        kill(engine)
        calling = threading.Event()

        def call() -> None:
            calling.set()
            table.lookup(id=1)

        interrupted(call, lambda: calling.is_set() and not time.sleep(0.3))
        slow_start.set()
        assert table.lookup(id=1).num_rows == 1
        kill(engine)
    assert within(SOON, lambda: workers_below() == before)


def test_closing_while_workers_are_replaced(place: Path, slow_start: threading.Event) -> None:
    before = workers_below()
    engine = Engine(cluster=Processes(2), storage=str(place))
    table = engine.table("t", FIELDS, key="id")
    table.insert({"id": [1], "part": [1], "thread": [1]})
    kill(engine)
    waiting = threading.Thread(target=lambda: _until_error(table))
    waiting.start()
    time.sleep(0.2)
    threading.Timer(0.2, slow_start.set).start()
    engine.close()
    waiting.join(SOON)
    assert not waiting.is_alive() and within(SOON, lambda: workers_below() == before)
    with Engine(storage=str(place)) as again:
        assert again.tables["t"].lookup(id=1).num_rows == 1


def _until_error(table: Table) -> None:
    try:
        while True:
            table.lookup(id=1)
    except IkebanaError:
        return
