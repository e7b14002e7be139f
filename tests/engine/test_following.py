"""Readers of views: changes epoch by epoch, held epochs, plain rows; and that none of them disturbs another."""

from __future__ import annotations

import gc
import logging
import threading
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ikebana.cluster.inprocess import InProcess
from ikebana.engine import Engine, Table, View, subscriptions
from ikebana.engine.subscriptions import CREDIT, Subscription
from ikebana.errors import DataflowError, DroppedError, TimeError
from ikebana.runtime.messages import FAILURES
from tests.clusters import SOON, within
from tests.dataflow.harness import Setup, collected, engine_of

POISON = 13


@pytest.fixture(params=[1, 2])
def engine(request: Any) -> Engine:
    return Engine(request.param)


def table_of(engine: Engine, name: str = "t") -> Table:
    return engine.table(name, {"k": pa.int64(), "v": pa.int64()}, key="k")


def items(subscription: Subscription) -> list[tuple[int, dict[tuple[Any, ...], int]]]:
    """All items that are available now."""
    subscription._coordinator.run()
    available = []
    while (item := subscription.take(0)) is not None:
        available.append((item[0], collected(item[1])))
    return available


def poisoned(table: Table) -> Any:
    def check(columns: Any) -> Any:
        """Returns no booleans if there is a poisoned row: an error of the function, not of the row."""
        return columns["v"] if POISON in columns["v"].to_pylist() else pc.greater_equal(columns["v"], 0)

    return table.filter(check)


def test_changes_come_epoch_by_epoch(engine: Engine) -> None:
    table = table_of(engine)
    view = engine.install("by v", table.count("v"))
    first = view.changes()
    assert items(first) == []
    table.insert({"k": [1, 2], "v": [5, 5]})
    table.insert({"k": [3], "v": [6]})
    second = view.changes()
    now = view.changes(since="now")
    table.upsert({"k": [3], "v": [6]})
    table.upsert({"k": [2], "v": [6]})
    last = (3, {(5, 2): -1, (5, 1): 1, (6, 1): -1, (6, 2): 1})
    assert items(first) == [(0, {(5, 2): 1}), (1, {(6, 1): 1}), last]
    assert items(second) == [(1, {(5, 2): 1, (6, 1): 1}), last]
    assert items(now) == [last]
    assert items(view.changes()) == [(3, {(5, 1): 1, (6, 2): 1})]
    with pytest.raises(DataflowError, match="since 'yesterday'"):
        view.changes(since="yesterday")


def test_iterating_waits_for_what_comes(engine: Engine) -> None:
    table = table_of(engine)
    changes = engine.install("all", table).changes(timeout=0.05)
    for epoch in range(5):
        table.insert({"k": [epoch], "v": [0]})
        assert next(changes)[0] == epoch
    with pytest.raises(StopIteration):
        next(changes)
    table.insert({"k": [9], "v": [0]})
    assert next(changes)[0] == 5


def test_dropping_the_view_ends_the_iterator_after_complete_epochs(engine: Engine) -> None:
    table = table_of(engine)
    view = engine.install("all", table)
    changes = view.changes()
    table.insert({"k": [1], "v": [1]})
    view.read()
    view.drop()
    assert [epoch for epoch, _ in changes] == [0]
    assert changes.closed
    assert list(changes) == []
    with pytest.raises(DataflowError, match="was dropped"):
        view.changes()


def test_a_view_that_fails_raises_in_the_iterator_after_complete_epochs(engine: Engine) -> None:
    table = table_of(engine)
    bad, good = engine.install("bad", poisoned(table)), engine.install("good", table)
    changes, others = bad.changes(), good.changes()
    table.insert({"k": [1], "v": [1]})
    engine.run()
    table.insert({"k": [2], "v": [POISON]})
    engine.run()
    assert next(changes)[0] == 0
    with pytest.raises(DataflowError, match=r"cannot follow view 'bad' any further\n.*it has failed.*boolean"):
        next(changes)
    assert list(changes) == []
    late = bad.changes()
    with pytest.raises(DataflowError, match="boolean"):
        next(late)
    assert [epoch for epoch, _ in items(others)] == [0, 1]


def backlog(engine: Engine) -> int:
    assert isinstance(engine.cluster, InProcess)
    subscribers = [sub for worker in engine.cluster.workers for sub in worker._subscriptions._all.values()]
    return sum(len(batch) for subscriber in subscribers for batch in subscriber._waiting)


def test_a_slow_reader_waits_on_the_workers_and_misses_nothing(engine: Engine) -> None:
    table = table_of(engine)
    view = engine.install("all", table)
    slow, quick = view.changes(), view.changes()
    many = 4 * CREDIT
    for epoch in range(many):
        table.insert({"k": [epoch], "v": [0]})
        assert items(quick) == [(epoch, {(epoch, 0): 1})]
    assert len(slow._changes) <= CREDIT * engine.cluster.size
    assert backlog(engine) >= many - CREDIT * engine.cluster.size > 0
    received = [item for _ in range(many) for item in items(slow)]
    assert received == [(epoch, {(epoch, 0): 1}) for epoch in range(many)]
    assert backlog(engine) == 0


def test_a_reader_that_is_too_slow_gets_an_error(engine: Engine) -> None:
    table = table_of(engine)
    view = engine.install("all", table)
    slow, quick = view.changes(backlog=10), view.changes()
    seen = 0
    for epoch in range(engine.cluster.size * (CREDIT + 30)):
        table.insert({"k": [epoch], "v": [0]})
        seen += len(items(quick))
    assert backlog(engine) == 0
    received = 0
    with pytest.raises(DataflowError, match=r"too slow: 11 rows .* wait for it.*limits are 10 rows and 1.0 GB"):
        for _ in slow:
            received += 1
    assert CREDIT <= received < seen == engine.epoch


def test_regression_backlogs_are_bounded_in_bytes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    large = 50_000
    monkeypatch.setattr(subscriptions, "CREDIT_BYTES", 4 * large)
    table = engine.table("t", {"k": pa.int64(), "text": pa.string()}, key="k")
    view = engine.install("all", table)
    slow, late, quick = view.changes(), view.changes(backlog_bytes=3 * large), view.changes()
    many = 20 * engine.cluster.size
    for epoch in range(many):
        table.insert({"k": [epoch], "text": ["x" * large]})
        assert [epoch for epoch, _ in items(quick)] == [epoch]
    for changes in (slow, late):  # received: at most one message more than the credit, from each worker
        assert sum(table.nbytes for _, table in changes._changes) <= engine.cluster.size * 5.1 * large
    with pytest.raises(DataflowError, match=r"too slow: 3 rows \(150 kB\)(.|\n)*larger `backlog` .*`backlog_bytes`"):
        for _ in late:
            pass
    assert [epoch for _ in range(many) for epoch, _ in items(slow)] == list(range(many))
    assert backlog(engine) == 0


def test_a_garbage_collected_subscription_is_closed(engine: Engine) -> None:
    table = table_of(engine)
    view = engine.install("all", table)
    for _ in view.changes(timeout=0):
        pass
    gc.collect()
    engine.run()
    assert isinstance(engine.cluster, InProcess)
    assert not any(worker._subscriptions._all for worker in engine.cluster.workers)
    assert set(engine.coordinator._listeners) == {FAILURES}


def test_callbacks(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    table = table_of(engine)
    view = engine.install("all", table)
    seen: list[int] = []

    def picky(epoch: int, changes: pa.Table) -> None:
        if epoch == 1:
            raise ZeroDivisionError("one")

    good = view.subscribe(lambda epoch, changes: seen.append(epoch))
    with caplog.at_level(logging.CRITICAL, logger="ikebana"):
        bad = view.subscribe(picky)
        for epoch in range(3):
            table.insert({"k": [epoch], "v": [0]})
        assert within(SOON, lambda: bad.closed and len(seen) == 3)
    assert seen == [0, 1, 2]
    assert isinstance(bad.error, ZeroDivisionError)
    good.close()
    table.insert({"k": [3], "v": [0]})
    engine.run()
    assert seen == [0, 1, 2]


# Holding.
def test_held_epochs_stay_readable(engine: Engine) -> None:
    table = table_of(engine)
    view = engine.install("sums", table.sum("v", "k"))
    table.insert({"k": [1, 2], "v": [0, 1]})
    expected = {}
    with view.hold() as held:
        for epoch in range(300):
            expected[engine.epoch - 1] = collected(view.read())
            table.upsert({"k": [epoch % 7], "v": [epoch % 3]})
        assert held.epoch == 0
        assert {epoch: collected(held.read(epoch)) for epoch in expected} == expected
        sums = dict(expected[0])
        for epoch, changes in held.changes(0, 200):
            for row, diff in collected(changes).items():
                sums[row] = sums.get(row, 0) + diff
            assert {row: n for row, n in sums.items() if n} == expected[epoch]
        with pytest.raises(TimeError, match=r"at epoch -1(.|\n)*held from epoch 0 on"):
            held.read(-1)
        with pytest.raises(TimeError, match="still open"):
            held.read(engine.epoch)
    with pytest.raises(DroppedError, match="not held any more"):
        held.read(3)
    table.upsert({"k": range(300), "v": range(300)})
    engine.run()
    with pytest.raises(
        TimeError, match=r"cannot read view .* at epoch 3\n  detail: only epoch \d+ and later are kept\n.*hold\(\)"
    ):
        view.read(at=3)


def test_holds_are_released(engine: Engine) -> None:
    table = table_of(engine)
    view = engine.install("all", table.count("v"))
    view._coordinator.run()
    readers = [status.readers for status in engine.status()]
    held = view.hold()
    lost = view.hold()
    assert [status.readers for status in engine.status()] != readers
    held.release()
    held.release()
    del lost
    gc.collect()
    assert [status.readers for status in engine.status()] == readers
    with view.hold():
        view.drop()
    engine.run()


# Plain rows.
def test_plain_rows(engine: Engine) -> None:
    bag = engine.table("bag", {"w": pa.string()})
    bag.insert({"w": ["a", "b", "a"]})
    view = engine.install("all", bag)
    assert sorted(view.to_arrow().to_pydict()["w"]) == ["a", "a", "b"]
    assert sorted(view.to_pandas()["w"]) == ["a", "a", "b"]
    with view.hold() as held:
        assert sorted(held.to_arrow()["w"].to_pylist()) == ["a", "a", "b"]
    assert engine.install("once", bag.distinct()).to_arrow().schema.names == ["w"]
    with pytest.raises(DataflowError, match=r"view 'less' has rows with negative multiplicities(.|\n)*2 of them"):
        engine.install("less", bag.negate()).to_arrow()
    exploded = engine.install("sums", bag.explode(["w"], lambda columns: [1, 2]))
    with pytest.raises(DataflowError, match="has no plain rows"):
        exploded.to_arrow()
    assert exploded.read().num_rows == 2


def test_reading_before_any_epoch_is_closed(engine: Engine) -> None:
    view = engine.install("all", table_of(engine))
    assert view.read().num_rows == 0
    assert items(view.changes()) == []


def test_invariance_threads_share_workers_of_this_process() -> None:
    with engine_of(Setup(workers=2)) as engine:
        table = table_of(engine)
        view = engine.install("count", table.select("v").count("v"))
        insert_and_read(engine, table, view, threads=4, inserts=15)


def insert_and_read(engine: Engine, table: Table, view: View, threads: int, inserts: int) -> None:
    """Threads that insert and read concurrently: results never go back in time, and all rows arrive in the end."""
    failures: list[BaseException] = []
    start = engine.epoch
    follower = view.changes(timeout=SOON)

    def work(number: int) -> None:
        try:
            least = 0
            for at in range(inserts):
                epoch = table.insert({"k": [number * inserts + at], "v": [7]})
                count = view.read().to_pydict()["count"][0]
                assert count >= max(least, at + 1)
                least = count
                if at % 5 == 0:
                    with view.hold() as held:
                        assert held.epoch >= epoch
                        assert held.read().to_pydict() == held.read(held.epoch).to_pydict()
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failures, failures
    assert collected(view.read()) == {(7, threads * inserts): 1}
    for expected in range(threads * inserts):
        epoch, changes = next(follower)
        assert epoch == start + expected
        assert collected(changes)[7, expected + 1] == 1
