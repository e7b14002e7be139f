"""What tables refuse: each with an error that names the table and the rows, and nothing half applied."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from ikebana.engine import Engine, Table
from ikebana.errors import ChangeError, DataflowError, DroppedError, IkebanaError, SchemaError
from ikebana.runtime.messages import Install
from tests.dataflow.harness import cluster_of, collected

COLUMNS = [pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=True), pa.field("n", pa.int32(), False)]


@pytest.fixture(params=[1, 3])
def engine(request: Any) -> Engine:
    return Engine(request.param)


@pytest.fixture
def people(engine: Engine) -> Table:
    table = engine.table("people", COLUMNS, key="id")
    table.insert({"id": [1, 2, 3], "name": ["a", None, "c"], "n": [1, 2, 3]})
    return table


def rows(*ids: int | None, **others: Any) -> dict[str, Any]:
    return {"id": list(ids), "name": ["x"] * len(ids), "n": [0] * len(ids), **others}


REFUSED: dict[str, tuple[Callable[[Table], Any], type[IkebanaError], str]] = {
    "a key that exists": (
        lambda t: t.insert(rows(7, 2)),
        ChangeError,
        r"cannot insert into table 'people': 1 row with a key that exists already\n  detail: \(id=2\)\n",
    ),
    "several keys that exist": (
        lambda t: t.insert(rows(1, 2, 3, 4)),
        ChangeError,
        r"3 rows with a key that exists already\n  detail: \(id=\d\); \(id=\d\); \(id=\d\)",
    ),
    "a key twice": (
        lambda t: t.insert(rows(8, 9, 8)),
        ChangeError,
        r"cannot insert into table 'people': 1 row with a key that was inserted before in the same trans.*\n.*\(id=8\)",
    ),
    "many keys twice": (
        lambda t: t.insert(rows(*range(10, 60), *range(10, 60))),
        ChangeError,
        r"50 rows with a key that was inserted before(.|\n)*for instance \(id=\d+\); \(id=\d+\); \(id=\d+\)\n",
    ),
    "an insert after an upsert of the key": (
        lambda t: t.change(rows(9, 9), ["upsert", "insert"]),
        ChangeError,
        "inserted before in the same transaction",
    ),
    "deleting a key that is not there": (
        lambda t: t.delete({"id": [1, 77]}),
        ChangeError,
        r"cannot delete from table 'people': 1 row that does not exist\n  detail: \(id=77\)",
    ),
    "deleting a key twice": (lambda t: t.delete({"id": [1, 1]}), ChangeError, r"1 row that does not exist(.|\n)*id=1"),
    "a null in a key": (
        lambda t: t.insert(rows(5, None, None)),
        SchemaError,
        r"cannot change table 'people': key column 'id' has a null in 2 rows\n  detail: the first is row 1; a key",
    ),
    "a null in a key to delete": (lambda t: t.delete({"id": [1, None]}), SchemaError, "key column 'id' has a null"),
    "a null where none may be": (
        lambda t: t.upsert(rows(5, 6, n=[1, None])),
        SchemaError,
        r"cannot change table 'people': column 'n' has a null in row 1",
    ),
    "a null where none may be, in a feed": (
        lambda t: t.change(rows(1, 5, n=[None, None]), ["delete", "upsert"]),
        SchemaError,
        r"column 'n' has a null in 1 row\n  detail: the first is row 1",
    ),
    "a missing column": (lambda t: t.insert({"id": [5], "n": [1]}), SchemaError, "table 'people'.*\n.*missing: 'name'"),
    "an extra column": (lambda t: t.insert(rows(5, age=[1])), SchemaError, "table 'people'.*\n.*unknown: 'age'"),
    "an extra column to delete by": (lambda t: t.delete({"id": [5], "age": [1]}), SchemaError, "unknown: 'age'"),
    "a missing key to delete by": (lambda t: t.delete({"name": ["a"]}), SchemaError, "missing: 'id'"),
    "a wrong type": (
        lambda t: t.insert(rows(5, n=["x"])),
        SchemaError,
        r"cannot change table 'people': column 'n' is not of type int32",
    ),
    "a number that is too large": (lambda t: t.insert(rows(5, n=np.array([1 << 40]))), SchemaError, "not of type int3"),
    "ragged columns": (lambda t: t.insert(rows(5, n=[1, 2])), SchemaError, "different lengths"),
    "an unknown op": (lambda t: t.change(rows(5), ["merge"]), SchemaError, "there is no op 'merge'"),
    "too few ops": (
        lambda t: t.change(rows(5, 6, 7), ["insert", "delete"]),
        SchemaError,
        "there are 3 rows, but 2 ops",
    ),
    "too few ops, all alike": (lambda t: t.change(rows(5, 6), ["insert"]), SchemaError, "there are 2 rows, but 1 op"),
    "no columns at all": (lambda t: t.insert([1, 2]), SchemaError, "cannot change table 'people'.*from a list"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_rows_are_refused_and_nothing_is_applied(engine: Engine, people: Table, case: str) -> None:
    function, kind, message = REFUSED[case]
    other = engine.table("other", {"x": pa.int64()})
    views = [engine.install("all", people), engine.install("others", other)]
    before = [collected(view.read()) for view in views]
    epoch = engine.epoch
    with pytest.raises(kind, match=message):
        function(people)
    with pytest.raises(kind, match=message), engine.transaction():
        other.insert({"x": [1, 1]})
        people.upsert(rows(100))
        function(people)
        other.insert({"x": [2]})
    assert engine.epoch == epoch
    assert [collected(view.read()) for view in views] == before
    assert not any(worker._transactions._open for worker in engine.cluster.workers)  # type: ignore[attr-defined]
    assert people.upsert(rows(1)) == epoch
    assert collected(views[0].read())[1, "x", 0] == 1


def test_a_bag_is_not_overdrawn(engine: Engine) -> None:
    bag = engine.table("bag", {"word": pa.string(), "n": pa.int64()})
    bag.insert({"word": ["a", "a", "b"], "n": [1, 1, 2]})
    with pytest.raises(ChangeError, match=r"delete from table 'bag': 2 rows that do not exist\n.*word='a', n=1"):
        bag.delete({"word": ["a", "b", "a", "a", "a"], "n": [1, 2, 1, 1, 1]})
    with pytest.raises(SchemaError, match="cannot upsert rows of table 'bag'"):
        bag.upsert({"word": ["a"], "n": [1]})
    with pytest.raises(SchemaError, match="missing: 'n'"):
        bag.delete({"word": ["a"]})
    bag.change({"word": ["c", "c", "a"], "n": [0, 0, 1]}, ["delete", "insert", "delete"])  # it adds up
    assert collected(engine.install("all", bag).read()) == {("a", 1): 1, ("b", 2): 1}


def test_problems_of_all_workers_are_one_error() -> None:
    engine = Engine(3)
    table = engine.table("t", {"k": pa.int64()}, key="k")
    table.insert({"k": range(100)})
    with pytest.raises(ChangeError, match=r"100 rows with a key that exists already(.|\n)*1 other kind of problem"):
        table.insert({"k": [*range(100), 200, 200]})


def test_a_stream_takes_inserts_only(engine: Engine) -> None:
    stream = engine.table("events", {"k": pa.int64()}, kind="stream")
    with pytest.raises(SchemaError, match=r"cannot delete rows of table 'events'(.|\n)*it is a stream"):
        stream.delete({"k": [1]})
    with pytest.raises(DataflowError, match="cannot keep an arrangement of 'events'"):
        stream.arrange(by="k")
    with pytest.raises(SchemaError, match="stream 'other' cannot have a key"):
        engine.table("other", {"k": pa.int64()}, key="k", kind="stream")
    stream.insert({"k": [1]})


def test_tables_that_cannot_be_made(engine: Engine, people: Table) -> None:
    with pytest.raises(DataflowError, match="the name 'people' is taken"):
        engine.table("people", {"x": pa.int64()})
    with pytest.raises(SchemaError, match="has no column 'y' to be its key"):
        engine.table("t", {"x": pa.int64()}, key=["x", "y"])
    with pytest.raises(SchemaError, match="decimal256"):
        engine.table("t", {"x": pa.int64(), "y": pa.list_(pa.decimal256(50, 2))}, key="x")
    with pytest.raises(SchemaError, match="has no columns"):
        engine.table("t", {})
    with pytest.raises(SchemaError, match="cannot create 't' with kind 'heap'"):
        engine.table("t", {"x": pa.int64()}, kind="heap")
    assert engine.table("t", {"x": pa.int64()}).kind == "bag"


def test_a_block_that_raises_applies_nothing(engine: Engine, people: Table) -> None:
    view = engine.install("all", people)
    before = collected(view.read())
    with pytest.raises(ZeroDivisionError), engine.transaction():
        people.delete({"id": [1]})
        raise ZeroDivisionError
    assert collected(view.read()) == before
    assert not any(worker._transactions._open for worker in engine.cluster.workers)  # type: ignore[attr-defined]
    with engine.transaction() as transaction:
        assert people.delete({"id": [1]}) is None
        with pytest.raises(DataflowError, match="already open in this thread"), engine.transaction():
            pass
    assert transaction.epoch == engine.epoch - 1
    with pytest.raises(DroppedError, match="the transaction has ended"):
        transaction.insert(people, rows(1))


def test_what_changes_nothing_is_no_change(engine: Engine, people: Table) -> None:
    seen: list[int] = []
    view = engine.install("all", people.inspect(lambda changes, size=engine.cluster.size: seen.append(len(changes))))
    view.read()
    del seen[:]
    people.upsert({"id": [1, 2, 3], "name": ["a", None, "c"], "n": [1, 2, 3]})
    people.change({"id": [1, 1], "name": ["x", "a"], "n": [1, 1]}, ["update", "update"])
    people.change({"id": [9, 9], "name": ["x", None], "n": [1, None]}, ["insert", "delete"])
    view.read()
    assert sum(seen) == 0
    people.upsert({"id": [1, 2], "name": ["a", "b"], "n": [1, 2]})
    view.read()
    assert sum(seen) == 2


def test_late_rows_of_an_ended_transaction_are_forgotten(engine: Engine, people: Table) -> None:
    from ikebana.runtime.staging import stages

    workers = engine.cluster.workers  # type: ignore[attr-defined]
    first, second = engine.transaction(), engine.transaction()
    size = engine.cluster.size
    second.abort()
    for number in (first.number, second.number):
        for worker, stage in stages(people.spec, rows(9), "insert", transaction=number, part=0, workers=size):
            engine.cluster.command(stage, worker)
    engine.run()
    assert {number for worker in workers for number in worker._transactions._open} == {first.number}
    first._adopt(people, [(0, 0)])
    first.commit()
    people.upsert(rows(10))
    engine.run()
    assert all(not worker._transactions._open and not worker._transactions._ended for worker in workers)
    assert collected(engine.install("all", people).read())[9, "x", 0] == 1


def test_a_verdict_waits_for_what_was_committed_before(engine: Engine, people: Table) -> None:
    first, second, third = (engine.transaction() for _ in range(3))
    first.change(people, rows(9, 1), ["insert", "delete"])
    second.insert(people, rows(9))
    third.insert(people, rows(1))
    engine.run()
    first.commit()
    cluster = cluster_of(engine)
    for worker, commands in zip(cluster.workers, cluster._commands, strict=True):
        while commands:
            worker.command(commands.popleft())  # and yet nothing is in the trace
    with pytest.raises(ChangeError, match=r"exists already\n.*id=9"):
        second.commit()
    assert third.commit() == 2


def test_a_transaction_that_is_lost_is_dropped_with_the_next(engine: Engine, people: Table) -> None:
    engine.transaction().insert(people, rows(9))
    gc.collect()
    assert people.insert(rows(9)) is not None
    engine.run()
    assert not any(worker._transactions._open for worker in engine.cluster.workers)  # type: ignore[attr-defined]


def test_rows_are_taken_as_they_are_when_they_are_given(engine: Engine) -> None:
    table = engine.table("t", {"k": pa.int64(), "v": pa.int64()}, key="k")
    view = engine.install("all", table)
    k, v = np.arange(5), np.arange(5)
    with engine.transaction():
        table.insert({"k": k, "v": v})
        k += 10
        v *= 2
        table.insert({"k": k, "v": v})
        k[:] = v[:] = 0
    assert collected(view.read()) == {**{(n, n): 1 for n in range(5)}, **{(n + 10, 2 * n): 1 for n in range(5)}}


# Dropping and arranging.
def test_a_table_is_dropped_when_nothing_needs_it(engine: Engine, people: Table) -> None:
    view = engine.install("names", people.select("name"))
    onward = engine.install("onward", view.rows().distinct())
    with pytest.raises(DataflowError, match=r"cannot drop table 'people'\n.*used by 'names', 'onward'"):
        engine.drop_table("people")
    onward.drop()
    view.drop()
    people.arrange(by="name")
    engine.drop_table("people")
    with pytest.raises(DroppedError, match="table 'people' was dropped"):
        people.insert(rows(5))
    with pytest.raises(DataflowError, match="there is no table 'people'"):
        engine.drop_table("people")
    engine.run()
    assert engine.status() == []
    with pytest.raises(DataflowError, match="it reads 'people', which was dropped"):
        engine.install("gone", people)
    again = engine.table("people", {"id": pa.string()}, key="id")
    again.insert({"id": ["x"]})
    assert collected(engine.install("again", again).read()) == {("x",): 1}


def test_a_transaction_does_not_meet_another_table_of_the_same_name(engine: Engine, people: Table) -> None:
    transaction = engine.transaction()
    transaction.insert(people, rows(9))
    engine.drop_table("people")
    again = engine.table("people", COLUMNS, key="id")
    with pytest.raises(DroppedError, match="table 'people' was dropped"):
        transaction.commit()
    again.insert(rows(9))
    engine.run()
    assert not any(worker._transactions._open for worker in engine.cluster.workers)  # type: ignore[attr-defined]


def test_a_query_that_cannot_be_sent_leaves_nothing_behind(engine: Engine, people: Table) -> None:
    engine.run()
    before, send = engine.status(), engine.coordinator.command

    def refuse(command: Any, worker: int | None = None, **options: Any) -> None:
        if isinstance(command, Install) and command.dataflow.startswith("bad"):
            raise DataflowError("cannot send dataflow 'bad'")
        send(command, worker, **options)

    with patch.object(engine.coordinator, "command", refuse):
        for _ in range(2):
            with pytest.raises(DataflowError, match="cannot send"):
                engine.install("bad", people.distinct("name"))
    assert engine.status() == before
    assert engine.install("bad", people.distinct("name")).to_arrow().num_rows == 3


def test_further_arrangements_are_kept_and_shared(engine: Engine, people: Table) -> None:
    people.arrange(by=["name", "n"])
    people.arrange(by="name")
    assert people.arrange(by="name").node is people.arrange("name").node
    kept = {(status.names, status.key) for status in engine.status()}
    assert kept == {(("people",), ("id",)), (("people",), ("name", "n")), (("people",), ("name",))}
    view = engine.install("by name", people.distinct("name"))
    assert collected(view.read()) == {("a", 1, 1): 1, (None, 2, 2): 1, ("c", 3, 3): 1}
    flows = {status.dataflow for status in engine.status()}
    assert len(flows) == 4
    people.drop_arrangement("name")
    assert {status.dataflow for status in engine.status()} == flows  # the view needs it
    view.drop()
    engine.run()
    assert len({status.dataflow for status in engine.status()}) == 2
    with pytest.raises(DataflowError, match=r"keeps no further arrangement by name\n.*name, n"):
        people.drop_arrangement("name")


def test_status_says_how_large_arrangements_are(engine: Engine, people: Table) -> None:
    view = engine.install("all by name", people.select("name", "n"))
    view.read()
    statuses = engine.status()
    assert [status.worker for status in statuses] == sorted(list(range(engine.cluster.size)) * 2)
    for name, columns in (("people", ("id", "name", "n")), ("all by name", ("name", "n"))):
        ours = [status for status in statuses if status.names == (name,)]
        assert sum(status.rows for status in ours) == 3
        assert all(status.columns == columns and status.upper == 1 and status.readers >= 1 for status in ours)
        assert all(status.bytes > 0 for status in ours if status.rows)
