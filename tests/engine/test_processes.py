"""Tables and readers with workers in processes: several threads at once, clients that stage, workers that die."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from ikebana.cluster.client import Client
from ikebana.cluster.processes import Processes
from ikebana.cluster.protocol import Grant
from ikebana.engine import Engine, Table, View
from ikebana.errors import ChangeError, DataflowError
from ikebana.runtime.messages import Read
from ikebana.runtime.staging import stages
from tests.clusters import SOON, within
from tests.dataflow.harness import collected
from tests.engine.test_following import insert_and_read
from tests.engine.test_lookups import look_up_while_prices_move

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
    engine.drop_table("t")


def counted(engine: Engine, table: Table) -> View:
    return engine.install("count", table.count("v"))


def test_threads_insert_and_read_at_once(engine: Engine, table: Table) -> None:
    insert_and_read(engine, table, counted(engine, table), threads=4, inserts=25)


def test_lookups_of_threads_are_of_one_epoch_each(engine: Engine) -> None:
    orders = engine.table("orders", {"id": pa.int64(), "who": pa.string(), "price": pa.int64()}, key="id")
    orders.insert({"id": [2, 3], "who": ["x", "y"], "price": [0, 5]})
    look_up_while_prices_move(engine, orders, transactions=20)
    engine.drop_table("orders")


def test_all_views_are_waited_for_at_once(engine: Engine, table: Table) -> None:
    view = counted(engine, table)
    engine.install("rows", table.filter(lambda columns: columns["v"].is_valid()))
    table.insert({"k": [1, 2], "v": [1, 1]})
    engine.wait()
    assert collected(view.read()) == {(1, 2): 1}


def test_one_of_several_threads_wins_a_key(engine: Engine, table: Table) -> None:
    won: list[int] = []

    def work(number: int) -> None:
        for key in range(20):
            try:
                with engine.transaction():
                    table.insert({"k": [key], "v": [number]})
                    table.insert({"k": [1000 + 100 * number + key], "v": [number]})
                won.append(key)
            except ChangeError:
                continue

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(20))
    rows = collected(engine.install("all", table).read())
    assert len(rows) == 40 and set(rows.values()) == {1}
    keys = {k: v for k, v in rows if k < 1000}
    assert {(1000 + 100 * v + k, v) for k, v in keys.items()} == {row for row in rows if row[0] >= 1000}


def test_clients_stage_rows_with_their_owners_and_read_from_them(engine: Engine, table: Table) -> None:
    view = engine.install("all", table)
    transaction = engine.transaction()
    assert isinstance(engine.cluster, Processes)
    grant = Grant(1000.0, stages=((transaction.number, table.spec.name),))
    engine.run()  # the workers know the table
    with Client(engine.cluster.keys.issue(grant)) as client:
        for part in range(4):
            data = {"k": range(part * 1000, (part + 1) * 1000), "v": [part] * 1000}
            for attempt in (0, 1):
                sent = {name: list(column)[: 500 + 500 * attempt] for name, column in data.items()}
                for worker, stage in stages(
                    table.spec,
                    sent,
                    "insert",
                    transaction=transaction.number,
                    part=(part, 0),
                    attempt=attempt,
                    workers=2,
                ):
                    client.send(worker, stage)
    transaction._adopt(table, [((part, 0), 1) for part in range(4)])
    epoch = transaction.commit()
    with view.hold() as held:
        table.delete({"k": range(4000)})
        read = Read(view.dataflow, (epoch,), held.number, wait=True)
        with Client(engine.cluster.keys.issue(Grant(1000.0, holds=((held.number, view.dataflow),)))) as client:
            parts = [client.ask(worker, read).rows for worker in range(2)]
            assert collected(pa.concat_tables(parts)) == {(k, k // 1000): 1 for k in range(4000)}
    assert view.to_arrow().num_rows == 0


def test_changes_of_many_epochs_reach_slow_and_quick_readers(engine: Engine, table: Table) -> None:
    view = counted(engine, table)
    seen: list[int] = []
    slow, called = view.changes(timeout=SOON), view.subscribe(lambda epoch, changes: seen.append(epoch))
    epochs = [table.insert({"k": [k], "v": [k % 3]}) for k in range(200)]
    assert [next(slow)[0] for _ in epochs] == epochs
    assert within(SOON, lambda: seen == epochs)
    called.close()


def test_waiting_for_changes_does_not_keep_others_from_working(engine: Engine, table: Table) -> None:
    view = counted(engine, table)
    epochs: list[int] = []
    changes = view.changes()
    waiting = threading.Thread(target=lambda: epochs.extend(epoch for epoch, _ in changes))
    waiting.start()
    assert within(SOON, lambda: bool(changes._received._waiters))  # type: ignore[attr-defined]
    epoch = table.insert({"k": [1], "v": [1]})
    view.wait(epoch or 0)
    view.drop()
    waiting.join(SOON)
    assert epochs == [epoch]


def test_a_worker_that_dies_ends_the_waiting() -> None:
    with Engine(cluster=Processes(2)) as engine:
        table = engine.table("t", {"k": pa.int64()}, key="k")
        table.insert({"k": [1]})
        changes = engine.install("all", table).changes()
        next(changes)
        assert isinstance(engine.cluster, Processes)
        threading.Timer(0.2, os.kill, (engine.cluster.pids[1], signal.SIGKILL)).start()
        with pytest.raises(DataflowError, match="worker 1 has died"):
            next(changes)
        with pytest.raises(DataflowError, match="worker 1 has died"):
            table.insert({"k": [2]})
        changes.close()
