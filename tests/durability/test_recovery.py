"""Tables come back from storage as they were, on any number of workers, after a close or a crash."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine, Table, durable_commits
from ikebana.engine.collection import Collection
from ikebana.errors import ChangeError, StorageError, StorageInUseError, WaitTimeoutError
from ikebana.runtime.background import BackgroundWork
from ikebana.runtime.messages import Commit
from ikebana.storage.faults import FaultPoint, installed
from tests.clusters import SOON, within
from tests.dataflow.harness import collected
from tests.durability.conftest import IN_MEMORY, Place, S3Place, anywhere, everywhere
from tests.engine.table_model import Model, allowed, apply, create, expected, models, transactions
from tests.profiles import examples

NUMBERS = {"k": pa.int64(), "v": pa.int64()}


def open_(place: Place, workers: int = 1) -> Engine:
    return Engine(workers, storage=str(place))


P = TypeVar("P", Path, S3Place)


def crashed(engine: Engine, place: P) -> P:
    """A copy of a storage directory that is in use, and does not change meanwhile: what a crash would leave."""
    assert engine.storage is not None
    with engine.storage._snapshot_lock:
        if isinstance(place, S3Place):
            return place.copied()
        copy = place.with_name(f"{place.name}+")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy)
        return copy


def rows(engine: Engine, name: str) -> dict[tuple[Any, ...], int]:
    table = engine.tables[name]
    view = engine.install(f"all {name}", table)
    try:
        return collected(view.read().select([*table.columns, "diff"]))
    finally:
        view.drop()


def check(engine: Engine, tables: list[Model]) -> None:
    for model in tables:
        assert rows(engine, model.name) == dict(model.rows)


@examples(0.3)
@given(st.data())
def test_oracle_tables_come_back(data: Any) -> None:
    tables, epoch = models(), 0
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        place = Path(folder) / "store"
        for _ in range(data.draw(st.integers(2, 4))):
            with open_(place, data.draw(st.integers(1, 3))) as engine:
                assert engine.recovered is not None and epoch <= engine.epoch == engine.recovered.epoch + 1
                real = [engine.tables.get(model.name) or create(engine, model) for model in tables]
                if epoch:
                    check(engine, tables)
                for transaction in data.draw(st.lists(transactions(tables), max_size=4)):
                    after = expected(tables, transaction)
                    new = engine.transaction()
                    for feed in transaction:
                        apply(new, real[feed.table], tables[feed.table], feed)
                    assert allowed(new.commit) == (after is not None)
                    tables = after or tables
                    epoch = engine.epoch if any(feed.rows for feed in transaction) and after else epoch
                    if data.draw(st.booleans()):
                        assert engine.storage is not None
                        engine.storage.snapshot()
                if data.draw(st.booleans()):
                    place = crashed(engine, place)


ADDED = [pa.field("n", pa.int8(), nullable=True), pa.field("t", pa.string(), nullable=False)]


@examples(0.2)
@given(st.data(), st.booleans())
def test_oracle_added_columns_come_back(data: Any, is_keyed: bool) -> None:
    numbers = [pa.field(name, kind, nullable=False) for name, kind in NUMBERS.items()]
    model, former = Model("t", numbers, ["k"] if is_keyed else []), list[tuple[Any, int]]()
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        place = Path(folder) / "store"
        for step in range(4):
            with open_(place, data.draw(st.integers(1, 3))) as engine:
                table = engine.tables.get("t") or create(engine, model)
                if engine.epoch:
                    check(engine, [model])
                    check_former(engine, model, former)
                for is_after in (False, True):
                    model = change(engine, table, model, data)
                    if data.draw(st.booleans()):
                        assert engine.storage is not None
                        engine.storage.snapshot()
                    if step in (1, 2) and not is_after:
                        former.append((table.node, len(model.fields)))
                        default = data.draw(st.sampled_from([None, 3] if step == 1 else ["", "a"]))
                        table = engine.add_column("t", ADDED[step - 1], default)
                        rows = Counter({(*row, default): count for row, count in model.rows.items()})
                        model = Model("t", [*model.fields, ADDED[step - 1]], model.key, rows)
                if data.draw(st.booleans()):
                    place = crashed(engine, place)


def change(engine: Engine, table: Table, model: Model, data: Any) -> Model:
    """Apply a random transaction to a table; return what it has then."""
    (feeds,) = [data.draw(transactions([model]))]
    after, new = expected([model], feeds), engine.transaction()
    for feed in feeds:
        apply(new, table, model, feed)
    assert allowed(new.commit) == (after is not None)
    return after[0] if after else model


def check_former(engine: Engine, model: Model, former: list[tuple[Any, int]]) -> None:
    """Queries that were built before columns were added see the others."""
    for node, width in former:
        view = engine.install("former", Collection(node))
        shown: Counter[Any] = Counter()
        for row, count in model.rows.items():
            shown[row[:width]] += count
        names = [field.name for field in model.fields[:width]]
        assert collected(view.read().select([*names, "diff"])) == dict(shown)
        view.drop()


@anywhere
def test_a_column_that_could_not_be_added_is_not_stored(place: Place) -> None:
    with filled(place) as engine:
        field = pa.field("x", pa.int64())
        failing = patch.object(engine._table_lifecycle, "_installed", side_effect=KeyboardInterrupt)
        with failing, pytest.raises(KeyboardInterrupt):
            engine.add_column("t", field, 7)
        copy = crashed(engine, place)
    with open_(copy) as engine:
        assert rows(engine, "t") == {(0, 0): 1}
        engine.add_column("t", field, 7).insert({"k": [1], "v": [1], "x": [8]})
    with open_(copy) as engine:
        assert rows(engine, "t") == {(0, 0, 7): 1, (1, 1, 8): 1}


def filled(place: Place, workers: int = 1, rows: int = 1) -> Engine:
    engine = open_(place, workers)
    engine.table("t", NUMBERS, key="k").insert({"k": list(range(rows)), "v": [0] * rows})
    return engine


@everywhere
def test_what_was_found_is_reported(place: Place) -> None:
    with filled(place, rows=1000) as engine:
        assert engine.recovered is not None and engine.recovered.epoch == -1 and engine.recovered.tables == 0
    with open_(place) as engine:
        assert engine.recovered is not None
        assert (engine.recovered.epoch, engine.recovered.tables, engine.recovered.batch_rows) == (0, 1, 1000)
        engine.tables["t"].insert({"k": [-1], "v": [7]})
        copy = crashed(engine, place)
    with open_(copy, 2) as engine:
        assert engine.recovered is not None
        assert (engine.recovered.batch_rows + engine.recovered.log_rows, engine.epoch) == (1001, 2)
        assert len(rows(engine, "t")) == 1001


@anywhere
def test_a_dropped_table_is_gone_and_a_new_one_of_its_name_is_empty(place: Place) -> None:
    with filled(place) as engine:
        engine.drop_table("t")
        engine.table("t", {"x": pa.string()}).insert({"x": ["new"]})
    with open_(place) as engine:
        assert rows(engine, "t") == {("new",): 1}
        engine.drop_table("t")
    with open_(place) as engine:
        assert not engine.tables


@anywhere
def test_streams_and_internal_tables_have_no_stored_rows(place: Place) -> None:
    with open_(place) as engine:
        engine.table("stream", NUMBERS, kind="stream").insert({"k": [1], "v": [1]})
        engine.table("internal", NUMBERS, key="k", durable=False).insert({"k": [1], "v": [1]})
    with open_(place) as engine:
        assert list(engine.tables) == ["stream"] and engine.tables["stream"].kind == "stream"
        view = engine.install("seen", engine.tables["stream"])
        engine.tables["stream"].insert({"k": [2], "v": [2]})
        assert collected(view.read()) == {(2, 2): 1}


@everywhere
def test_a_directory_in_use_is_refused(place: Place) -> None:
    with filled(place) as engine:
        with patch("ikebana.engine.table_storage.WAIT_SECONDS", 0.0), pytest.raises(StorageInUseError):
            open_(place)
        engine.tables["t"].insert({"k": [5], "v": [5]})
    with open_(place) as engine:
        assert len(rows(engine, "t")) == 2


@everywhere
def test_a_transaction_that_one_worker_rejects_does_not_come_back(place: Place) -> None:
    with filled(place, workers=3, rows=20) as engine:
        with pytest.raises(ChangeError):
            engine.tables["t"].insert({"k": list(range(19, 60)), "v": [1] * 41})
        with open_(crashed(engine, place), 2) as other:
            assert rows(other, "t") == {(k, 0): 1 for k in range(20)}


# Several threads.


def by_threads(count: int, work: Callable[[int], None]) -> list[BaseException]:
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("workers", [1, 3])
@anywhere
def test_threads_share_syncs(workers: int, place: Place) -> None:
    with filled(place, workers) as engine:
        table = engine.tables["t"]

        def insert(number: int) -> None:
            for at in range(20):
                table.insert({"k": [1000 * (number + 1) + at], "v": [at]})

        assert not by_threads(8, insert)
        assert engine.epoch == 161
        expected_rows = {(0, 0): 1} | {(1000 * (n + 1) + at, at): 1 for n in range(8) for at in range(20)}
        assert rows(engine, "t") == expected_rows
        with open_(crashed(engine, place)) as other:
            assert rows(other, "t") == expected_rows and other.epoch == engine.epoch


def test_workers_are_told_of_a_group_of_commits_by_one_command(place: Path) -> None:
    with filled(place) as engine:
        coordinator, commits, told = engine.coordinator, engine.coordinator.durable_commits, list[Commit]()
        assert commits is not None
        send = coordinator.send

        def watched(command: Any, *arguments: Any, hold: bool = False) -> None:
            if isinstance(command, Commit):
                told.append(command)
            send(command, *arguments, hold=hold)

        def release() -> None:
            with coordinator.lock:  # until all wait for the first one, who waits for the lock
                is_locked.set()
                assert within(SOON, lambda: len(commits._queue) == 8)

        is_locked, releasing = threading.Event(), threading.Thread(target=release)
        releasing.start()
        is_locked.wait()
        with patch.object(coordinator, "send", watched):
            errors = by_threads(8, lambda number: engine.tables["t"].insert({"k": [number], "v": [0]}))
        releasing.join()
        assert [type(error) for error in errors] == [ChangeError]  # there was a row with the key 0
        (commit,) = told
        epochs = [epoch for _, epoch in commit.transactions]
        assert len(set(epochs)) == 7 and epochs == sorted(epochs) and engine.epoch == epochs[-1] + 1
        assert rows(engine, "t") == {(k, 0): 1 for k in range(8)}


def test_the_thread_that_completes_a_group_leads_it(place: Path) -> None:
    """The leader waits for as many as before, and is not woken when they are there: it would wait for seconds here."""
    with filled(place) as engine, patch.object(durable_commits, "_LONGEST_WAIT", SOON):
        commits, leaders, errors = engine.coordinator.durable_commits, list[str](), list[BaseException]()
        assert commits is not None
        lead = commits._lead

        def watched(candidate: Any) -> None:
            leaders.append(threading.current_thread().name)
            lead(candidate)

        def insert(number: int) -> None:
            try:
                engine.tables["t"].insert({"k": [number], "v": [0]})
            except BaseException as error:
                errors.append(error)

        commits._sizes.append(3)
        commits._seconds = 10 * SOON
        threads = [threading.Thread(target=insert, args=(number,), name=str(number)) for number in (1, 2, 3)]
        with patch.object(commits, "_lead", watched):
            for waiting, thread in enumerate(threads):
                assert within(SOON, lambda waiting=waiting: len(commits._queue) == waiting)
                thread.start()
            for thread in threads:
                thread.join(SOON)
        assert not errors and leaders == ["3"] and commits._gathering is None
        assert rows(engine, "t") == {(k, 0): 1 for k in range(4)}


@anywhere
def test_transactions_begin_and_stage_rows_while_another_is_committed(place: Place) -> None:
    with filled(place) as engine:
        staged = threading.Thread(target=lambda: engine.transaction().insert(engine.tables["t"], {"k": [1], "v": [1]}))
        with engine.coordinator.lock:  # as long as a transaction is committed
            staged.start()
            staged.join(20)
            assert not staged.is_alive()


@anywhere
def test_transactions_are_committed_while_files_are_written_and_deleted(place: Place) -> None:
    """The worker does neither itself: a transaction would otherwise wait until the disk has done that."""
    reached, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def wait(point: FaultPoint, path: str) -> None:
        if threading.current_thread().name in ("ikebana snapshot", "ikebana trim"):
            reached.release()
            assert go_on.acquire(timeout=20)

    with filled(place) as engine:
        assert engine.storage is not None
        engine.storage.snapshot()
        engine.tables["t"].insert({"k": [1], "v": [1]})
        with installed(wait):
            snapshot = threading.Thread(target=engine.storage.snapshot)
            snapshot.start()
            number = 1
            while snapshot.is_alive():
                if reached.acquire(timeout=0.01):
                    number += 1
                    engine.tables["t"].insert({"k": [number], "v": [number]}, timeout=20)
                    go_on.release()
        assert number > 5
        assert rows(engine, "t") == {(k, k): 1 for k in range(number + 1)}


def test_regression_each_worker_deletes_files_once_for_a_snapshot(place: Path) -> None:
    """A worker that was done began again when it was asked again, and a snapshot ended when all were done at once."""
    started: list[str] = []

    def begun(name: str, work: Callable[[], object]) -> BackgroundWork:
        started.append(name)
        return BackgroundWork(name, work)

    def slow(point: FaultPoint, path: str) -> None:
        if threading.current_thread().name == "ikebana trim" and "shard-0001" in path:
            time.sleep(0.1)

    with open_(place, 2) as engine, patch("ikebana.runtime.durability.BackgroundWork", begun), installed(slow):
        table = engine.table("t", NUMBERS, key="k")
        assert engine.storage is not None
        for number in range(2):
            table.insert({"k": range(10 * number, 10 * number + 10), "v": range(10)})
            engine.storage.snapshot()
        assert started.count("ikebana trim") == 4


@anywhere
def test_transactions_with_the_same_keys_are_applied_one_after_the_other(place: Place) -> None:
    with filled(place) as engine:
        table, epochs = engine.tables["t"], dict[int, int]()

        def replace(number: int) -> None:
            for at in range(20):
                epoch = table.upsert({"k": [0], "v": [100 * number + at]})
                assert epoch is not None
                epochs[epoch] = 100 * number + at

        assert not by_threads(8, replace)
        assert len(epochs) == 160 and rows(engine, "t") == {(0, epochs[max(epochs)]): 1}
        errors = by_threads(8, lambda number: table.insert({"k": [1], "v": [number]}) and None)
        assert len(errors) == 7 and all(isinstance(error, ChangeError) for error in errors)
        with open_(crashed(engine, place)) as other:
            assert rows(other, "t") == rows(engine, "t")


# Failures.


def no_space(*points: FaultPoint) -> Callable[[FaultPoint, str], None]:
    def fault(point: FaultPoint, path: str) -> None:
        if point in points and "shard" in path:
            raise StorageError("no space is left on the disk")

    return fault


def test_a_full_disk_fails_a_transaction_and_nothing_else(place: Path) -> None:
    with filled(place) as engine:
        table = engine.tables["t"]
        with installed(no_space(FaultPoint.APPEND)), pytest.raises(StorageError):
            table.insert({"k": [1], "v": [1]})
        table.insert({"k": [2], "v": [2]})
        assert rows(engine, "t") == {(0, 0): 1, (2, 2): 1}
        with open_(crashed(engine, place)) as other:
            assert rows(other, "t") == rows(engine, "t")


def test_a_failed_sync_aborts_the_transaction_and_ends_changes(place: Path) -> None:
    with filled(place) as engine:
        table = engine.tables["t"]
        with installed(no_space(FaultPoint.SYNC)), pytest.raises(StorageError):
            table.insert({"k": [1], "v": [1]})
        with pytest.raises(StorageError):
            table.insert({"k": [2], "v": [2]})
        assert rows(engine, "t") == {(0, 0): 1}
    with open_(place) as engine:
        assert rows(engine, "t") == {(0, 0): 1}


@anywhere
def test_a_transaction_that_took_too_long_does_not_come_back(place: Place) -> None:
    with filled(place) as engine:
        table, over, ask = engine.tables["t"], threading.Event(), engine.cluster.ask

        def late(*arguments: Any) -> Any:
            answer = ask(*arguments)  # it is in the log by now
            over.wait()
            return answer

        with patch.object(engine.cluster, "ask", late), pytest.raises(WaitTimeoutError):
            table.insert({"k": [1], "v": [1]}, timeout=0.05)
        over.set()
        table.insert({"k": [2], "v": [2]})
        with open_(crashed(engine, place)) as other:
            assert rows(other, "t") == {(0, 0): 1, (2, 2): 1} == rows(engine, "t")


@everywhere
def test_positions_and_rows_are_stored_together(place: Place) -> None:
    def move(engine: Engine, number: int, table: Table) -> None:
        with engine.transaction() as transaction:
            transaction.note = {"position": ["stream", number]}
            table.upsert({"k": [0], "v": [number]})

    with filled(place) as engine:
        for number in range(3):
            move(engine, number, engine.tables["t"])
            if number == 1:
                assert engine.storage is not None
                engine.storage.snapshot()
        with open_(crashed(engine, place)) as other:
            assert other.storage is not None and other.storage.positions == {"stream": 2}
    with open_(place) as engine:
        assert engine.storage is not None and engine.storage.positions == {"stream": 2}
        assert rows(engine, "t") == {(0, 2): 1}


@anywhere
def test_an_interrupted_transaction_does_not_come_back(place: Place) -> None:
    with filled(place) as engine:
        table, ask = engine.tables["t"], engine.cluster.ask

        def interrupted(*arguments: Any) -> Any:
            ask(*arguments)  # it is in the log by now
            raise KeyboardInterrupt

        with patch.object(engine.cluster, "ask", interrupted), pytest.raises(KeyboardInterrupt):
            table.insert({"k": [1], "v": [1]})
        table.insert({"k": [2], "v": [2]})
        assert not by_threads(4, lambda number: table.insert({"k": [10 + number], "v": [0]}) and None)
        with open_(crashed(engine, place)) as other:
            assert (1, 1) not in rows(other, "t") and rows(other, "t") == rows(engine, "t")
