"""When a worker dies, others take its place: every transaction is there or was refused, and readers notice nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine, Table, View, definitions
from ikebana.engine.deadline import Deadline
from ikebana.errors import DataflowError, DroppedError, EvaluationError, WorkerLostError
from ikebana.operators.row_errors import BINDING
from tests.dataflow.harness import collected
from tests.durability.conftest import IN_MEMORY, Place, anywhere, everywhere
from tests.durability.dying_workers import Countdown, dying_workers
from tests.profiles import examples

ROWS = {"id": pa.int64(), BINDING: pa.int64(), "v": pa.int64()}
NUMBERS = {"k": pa.int64(), "v": pa.int64()}
Rows = dict[int, tuple[int, int]]
"""A binding and a value by id; 12 divided by the value is an error if it is zero."""


def parts_of(table: Table) -> Any:
    """12 divided by each value, arranged by binding."""
    return table.map(ROWS, lambda columns: {**columns, "v": pc.divide(12, columns["v"])}).arrange(BINDING)


def part_rows(rows: Rows, binding: int | None) -> Counter[Any] | None:
    """The rows of the view for a binding, or for all; None if it has errors."""
    mine = {id_: row for id_, row in rows.items() if binding in (None, row[0])}
    if any(value == 0 for _, value in mine.values()):
        return None
    return Counter({(id_, of, 12 // value): 1 for id_, (of, value) in mine.items()})


class Follower:
    """A subscriber, who checks that each item leads to the result of its epoch."""

    def __init__(self, view: View, binding: int | None, states: dict[int, Rows]) -> None:
        self.binding, self._states = binding, states
        self.start = max(states)
        self._changes = view.changes(timeout=0, binding=binding)
        self._rows: Counter[Any] = Counter()
        self._epoch = -1
        self._is_behind = False  # so far that the changes in between are not known any more

    def take(self, engine: Engine) -> None:
        """Take all that is available."""
        idle = 0
        while idle < 3 and not self._is_behind:
            engine.run()
            try:
                item = self._changes.take(0)
            except EvaluationError:
                continue
            except DataflowError as error:
                found = re.search(
                    r"changes after epoch (\d+) were not yet taken: only those after epoch (\d+)", str(error)
                )
                assert found and self._epoch <= int(found[1]) < min(int(found[2]), max(self._states))
                self._is_behind = True
                return
            if item is None:
                idle += 1
                continue
            epoch, changes = item
            assert epoch > self._epoch
            skipped = [self._result(at) for at in self._states if self._epoch < at < epoch]
            assert self._epoch < 0 or all(result in (None, +self._rows) for result in skipped)
            self._epoch = epoch
            for row in changes.to_pylist():
                self._rows[row["id"], row[BINDING], row["v"]] += row["diff"]
            assert +self._rows == self._result(epoch) and all(count >= 0 for count in self._rows.values())

    def check_end(self) -> None:
        """All that was committed was taken, unless there are errors now."""
        final = self._result(max(self._states))
        assert self._is_behind or final is None or +self._rows == final

    def _result(self, epoch: int) -> Counter[Any] | None:
        return part_rows(self._states[max(at for at in self._states if at <= epoch)], self.binding)


def changes_of_rows() -> st.SearchStrategy[dict[int, tuple[int, int] | None]]:
    row = st.none() | st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 2, 3, 4]))
    return st.dictionaries(st.integers(0, 5), row, min_size=1, max_size=4)


@examples(1)
@given(st.data())
def test_oracle_deaths_at_any_action(data: Any) -> None:
    """Transactions, reads and subscriptions, while workers die at any action, also of those that replace others."""
    countdown, workers = Countdown(), data.draw(st.integers(1, 3))
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        cluster = dying_workers(countdown, workers, data.draw(st.integers(0, 9)))
        with Engine(cluster=cluster, storage=f"{folder}/store", restarts=100) as engine:
            table = engine.table("rows", ROWS, key="id")
            view = engine.install("parts", parts_of(table))
            engine.advance()
            rows: Rows = {}
            states: dict[int, Rows] = {0: {}}
            followers = [Follower(view, None, states)]
            for _ in range(data.draw(st.integers(1, 8))):
                countdown.left = data.draw(st.none() | st.integers(0, 80))
                match data.draw(st.sampled_from(["change", "change", "upsert", "read", "follow", "take", "snapshot"])):
                    case "change":
                        rows = changed(engine, table, rows, data.draw(changes_of_rows()), states)
                    case "upsert":
                        new = data.draw(st.integers(0, 5)), (data.draw(st.integers(0, 2)), 3)
                        epoch = table.upsert({"id": [new[0]], BINDING: [new[1][0]], "v": [new[1][1]]})
                        rows = {**rows, new[0]: new[1]}
                        states[epoch] = rows
                    case "read":
                        check_read(view, rows)
                    case "follow":
                        followers.append(Follower(view, data.draw(st.integers(0, 2)), states))
                    case "take":
                        data.draw(st.sampled_from(followers)).take(engine)
                    case _:
                        with_deaths(engine.storage.snapshot)
            countdown.left = None
            check_read(view, rows)
            for follower in followers:
                follower.take(engine)
                follower.check_end()
        with Engine(storage=f"{folder}/store") as engine:
            engine.advance()
            check_read(engine.install("parts", parts_of(engine.tables["rows"])), rows)


def changed(
    engine: Engine, table: Table, rows: Rows, changes: dict[int, tuple[int, int] | None], states: dict[int, Rows]
) -> Rows:
    """The rows after a transaction of several changes; it is there as a whole, or refused as a whole."""
    changes = {id_: row for id_, row in changes.items() if row is not None or id_ in rows}
    after = {id_: row for id_, row in {**rows, **changes}.items() if row is not None}
    put = [(id_, *row) for id_, row in changes.items() if row is not None]
    gone = [id_ for id_, row in changes.items() if row is None]
    try:
        with engine.transaction() as transaction:
            table.upsert(dict(zip(ROWS, map(list, zip(*put, strict=True)), strict=True)) if put else no_rows())
            table.delete({"id": gone})
    except WorkerLostError as error:
        assert "nothing of the transaction was applied" in str(error)
        return rows
    assert transaction.epoch is not None
    states[transaction.epoch] = after
    return after


def no_rows() -> dict[str, Any]:
    return {name: pa.array([], kind) for name, kind in ROWS.items()}


def with_deaths(work: Callable[[], object]) -> None:
    try:
        work()
    except WorkerLostError:
        return


def check_read(view: View, rows: Rows) -> None:
    expected = part_rows(rows, None)
    if expected is None:
        with pytest.raises(EvaluationError):
            view.read()
    else:
        assert collected(view.read().select(["id", BINDING, "v", "diff"])) == expected


# Single cases.


@pytest.fixture
def countdown() -> Countdown:
    return Countdown()


def open_(place: Place, countdown: Countdown, workers: int = 2, **options: Any) -> tuple[Engine, Table]:
    engine = Engine(cluster=dying_workers(countdown, workers), storage=str(place), **options)
    return engine, engine.tables.get("t") or engine.table("t", NUMBERS, key="k")


def kill(engine: Engine) -> None:
    engine.cluster.kill(0)  # type: ignore[attr-defined]


def test_without_storage_the_error_says_that_storage_would_have_helped(countdown: Countdown) -> None:
    with Engine(cluster=dying_workers(countdown, 2)) as engine:
        table = engine.table("t", NUMBERS, key="k")
        kill(engine)
        with pytest.raises(
            WorkerLostError, match=r"worker 0 has died(.|\n)*with storage=\.\.\. they would still be there"
        ):
            table.insert({"k": [1], "v": [1]})


@anywhere
def test_an_engine_gives_up_if_workers_die_again_and_again(place: Place, countdown: Countdown) -> None:
    engine, table = open_(place, countdown, restarts=2)
    with engine:
        for key in range(2):
            kill(engine)
            table.insert({"k": [key], "v": [0]})
        kill(engine)
        for _ in range(2):
            with pytest.raises(WorkerLostError, match=r"not replaced again(.|\n)*died 3 times within 60 s"):
                table.insert({"k": [7], "v": [0]})
    with Engine(storage=str(place)) as engine:
        assert engine.tables["t"].lookup(k=[0, 1, 7]).num_rows == 2


def test_workers_that_are_not_to_be_replaced(place: Path, countdown: Countdown) -> None:
    engine, table = open_(place, countdown, restarts=0)
    with engine:
        kill(engine)
        with pytest.raises(WorkerLostError, match="worker 0 has died"):
            table.insert({"k": [7], "v": [0]})


@anywhere
def test_what_was_recovered_and_how_long_it_took(place: Place, countdown: Countdown) -> None:
    engine, table = open_(place, countdown)
    with engine:
        table.insert({"k": range(100), "v": [0] * 100})
        kill(engine)
        assert table.lookup(k=5).num_rows == 1
        recovered = engine.recovered
        assert recovered is not None and recovered.reason.startswith("worker 0 has died")
        assert (recovered.tables, recovered.batch_rows + recovered.log_rows, recovered.epoch) == (1, 100, 0)
        assert 0 < recovered.install_seconds < recovered.seconds
        assert "100 changes from the log" in str(recovered) and "because worker 0 has died" in str(recovered)


def test_a_transaction_that_has_staged_rows_is_refused_and_the_next_one_is_not(
    place: Path, countdown: Countdown
) -> None:
    engine, table = open_(place, countdown)
    with engine:
        transaction = engine.transaction()
        transaction.insert(table, {"k": [1], "v": [1]})
        kill(engine)
        assert table.lookup(k=1).num_rows == 0
        with pytest.raises(WorkerLostError, match="nothing of the transaction was applied"):
            transaction.commit()
        table.insert({"k": [1], "v": [2]})
        assert table.lookup(k=1)["v"].to_pylist() == [2]


def load_compacted(storage: Any) -> Callable[..., Any]:
    """Loads tables as if the batches of the last snapshot had been compacted when they were written."""
    load = storage.load

    def loading(*arguments: Any) -> Any:
        recovered = load(*arguments)
        storage.stored_since = dict.fromkeys(storage.stored_since, storage.store.recovery.snapshot_epoch)
        return recovered

    return loading


@everywhere
def test_views_indexes_and_holds_come_back(place: Place, countdown: Countdown) -> None:
    engine, table = open_(place, countdown, restarts=4)
    with engine:
        table.insert({"k": range(10), "v": [1] * 10})
        sums, twice = engine.install("sums", table.sum("v", "k")), None
        twice = engine.install("twice", sums.rows().filter(lambda columns: pc.greater(columns["sum"], 0)))
        assert sums.lookup(sum=45).num_rows == 1  # builds an index
        with sums.hold() as held:
            table.delete({"k": [9]})
            kill(engine)
            assert collected(held.read(held.epoch)) == {(1, 45): 1}
            assert collected(twice.read()) == {(1, 36): 1}
            assert sums.lookup(sum=36).num_rows == 1
            engine.storage.snapshot()  # type: ignore[union-attr]
            kill(engine)
            assert collected(twice.read()) == {(1, 36): 1}
            assert collected(held.read(held.epoch)) == {(1, 45): 1}  # the batches of the snapshot have it
            with patch.object(engine.storage, "load", load_compacted(engine.storage)):
                kill(engine)
                assert collected(twice.read()) == {(1, 36): 1}
            with pytest.raises(DroppedError, match="a worker has died, and the rows at epoch"):
                held.read(held.epoch)
        twice.drop()
        sums.drop()
        kill(engine)
        engine.install("sums", table.sum("v", "k")).read()


@anywhere
def test_columns_that_were_added_come_back(place: Place, countdown: Countdown) -> None:
    engine, table = open_(place, countdown)
    with engine:
        table.insert({"k": range(4), "v": [1] * 4})
        before = engine.install("before", table.sum("v", "k"))
        wider = engine.add_column("t", pa.field("x", pa.int64()), 7)
        after = engine.install("after", wider.sum("x", "k"))
        wider.insert({"k": [10], "v": [1], "x": [8]})
        for _ in range(2):
            kill(engine)
            assert collected(before.read()) == {(1, 16): 1}
            assert collected(after.read()) == {(7, 6): 1, (8, 10): 1}
            engine.storage.snapshot()  # type: ignore[union-attr]
        kill(engine)
        wider.upsert({"k": [0, 1], "v": [1, 2], "x": [7, 8]})
        assert collected(before.read()) == {(1, 15): 1, (2, 1): 1}
        assert collected(after.read()) == {(7, 5): 1, (8, 11): 1}


def test_a_slow_subscriber_whose_changes_are_gone_gets_an_error(place: Path, countdown: Countdown) -> None:
    engine, table = open_(place, countdown, workers=1)
    with engine:
        view = engine.install("counts", table.count("v"))
        slow, quick = view.changes(timeout=0), view.changes(timeout=0)
        for key in range(3):
            table.insert({"k": [key], "v": [0]})
        engine.run()
        assert slow.take(0) is not None
        # Nothing that the driver has received is lost; what waits on the workers is.
        slow._uppers = [1]
        engine.storage.snapshot()  # type: ignore[union-attr]
        with patch.object(engine.storage, "load", load_compacted(engine.storage)):
            kill(engine)
            view.read()
        assert [item[0] for item in quick][-1] == 2
        with pytest.raises(DataflowError, match=r"cannot follow view 'counts'(.|\n)*changes after epoch 0 were not"):
            while slow.take(0) is not None:
                pass


def test_rows_that_are_not_stored_are_lost_and_views_of_them_fail(place: Path, countdown: Countdown) -> None:
    engine, table = open_(place, countdown)
    with engine:
        edges = engine.input("edges", NUMBERS)
        stream = engine.table("stream", NUMBERS, kind="stream")
        of_edges, of_stream = engine.install("e", edges.count("v")), engine.install("s", stream.count("v"))
        of_table = engine.install("t2", table.count("v"))
        edges.insert({"k": [1], "v": [1]})
        stream.insert({"k": [1], "v": [1]})
        table.insert({"k": [1], "v": [1]})
        changes = of_stream.changes(timeout=0)
        kill(engine)
        assert collected(of_table.read()) == {(1, 1): 1}
        with pytest.raises(DataflowError, match="the rows of 'edges' are not stored"):
            of_edges.read()
        with pytest.raises(DataflowError, match="rows of inputs are not stored"):
            edges.insert({"k": [1], "v": [1]})
        assert not of_stream.read().num_rows
        with pytest.raises(DataflowError, match="the rows of 'stream' are not stored"):
            changes.take(0)
        stream.insert({"k": [1], "v": [1]})
        assert of_stream.read().num_rows == 1


@pytest.mark.parametrize("most", [4, 1000])
def test_tables_that_only_the_driver_changes(
    place: Path, countdown: Countdown, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(definitions, "MOST_CHANGES", most)
    engine, table = open_(place, countdown, restarts=100)
    with engine:
        parameters = engine.table("parameters", {"k": pa.int64(), "w": pa.int64()}, key="k", durable=False)
        view = engine.install("joined", table.join(parameters, "k"))
        table.insert({"k": range(20), "v": [7] * 20})
        changes, total = view.changes(timeout=0), Counter[Any]()
        for key in range(20):
            parameters.apply({"k": [key], "w": [key]}, [1], Deadline(None, ""))
            if key >= 3:
                parameters.apply({"k": [key - 3], "w": [key - 3]}, [-1], Deadline(None, ""))
            if key % 5 == 4:
                kill(engine)
            assert {row[0] for row in collected(view.read())} == set(range(max(0, key - 2), key + 1))
        for _, items in changes:
            total.update(collected(items))
        assert +total == collected(view.read())


@anywhere
def test_positions_of_streams_survive(place: Place, countdown: Countdown) -> None:
    engine, table = open_(place, countdown)
    with engine:
        with engine.transaction() as transaction:
            transaction.note = {"position": ["t#1 s", 4]}
            table.insert({"k": [1], "v": [1]})
        kill(engine)
        table.lookup(k=1)
        engine.storage.store_note({"position": ["t#1 s", 5]})  # type: ignore[union-attr]
    with Engine(storage=str(place)) as engine:
        assert engine.storage is not None and engine.storage.positions == {"t#1 s": 5}
