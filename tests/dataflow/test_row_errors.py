"""Errors are data: a row without a value takes the answer away as long as it is there, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ikebana.cluster.inprocess import NO_FAULTS, Faults, InProcess
from ikebana.encoding import bad_rows
from ikebana.encoding.bad_rows import BadRows, separate_bad_rows
from ikebana.engine import Engine, View
from ikebana.engine.collection import Collection
from ikebana.errors import DataflowError, EvaluationError, SchemaError
from ikebana.operators.row_errors import ErrorLog, RowError
from tests.dataflow.harness import cluster_of, pairs, pairs_input, read, settle

MANY_FAULTS = Faults(delay=0.3, reorder=1, pause=0.3)
POISON = 13
NUMBERS = {"k": pa.int64(), "v": pa.int64()}


def _picky(columns: Any) -> Any:
    if POISON in columns["v"].to_pylist():
        raise ZeroDivisionError("thirteen")
    return columns


def _always(columns: Any) -> Any:
    return _picky(columns) and pa.array([True] * len(columns["v"]))


def _picky_row(row: Any) -> Any:
    if row["v"] == POISON:
        raise ZeroDivisionError("thirteen")
    return [(row["k"], row["v"])]


def _picky_values(key: Any, vals: Any) -> Any:
    if any(val == (POISON,) for val, _ in vals):
        raise ZeroDivisionError("thirteen")
    return vals


def _picky_counts(counts: Any) -> Any:
    if (counts == POISON).any():
        raise ZeroDivisionError("thirteen")
    return counts


def _picky_sums(lanes: Any) -> Any:
    if (lanes[1] % 100 == POISON).any():
        raise ZeroDivisionError("thirteen")
    return [lanes[1]]


def _is_poison(columns: Any) -> Any:
    return pc.equal(columns["v"], POISON)


def _grown(x: Collection) -> Collection:
    """Values go on by one in each round, up to 5; those beyond are 13 at once, if the key is 3."""
    more = x.map(NUMBERS, lambda c: {"k": c["k"], "v": np.minimum(c["v"].to_numpy() + 1, 5)})
    return x.concat(more).distinct()


QUERIES: dict[str, Callable[[Collection], Collection]] = {
    "map": lambda c: c.map(NUMBERS, _picky),
    "map in an arrangement that others could share": lambda c: c.map(NUMBERS, _picky).max("k"),
    "filter": lambda c: c.filter(_always),
    "filter in place": lambda c: c.arrange("k").filter(_always).rows(),
    "map in place": lambda c: c.arrange("k").map({"v": pa.int64()}, lambda columns: {"v": _picky(columns)["v"]}).rows(),
    "flat_map": lambda c: c.flat_map(NUMBERS, _picky_row),
    "explode": lambda c: c.explode(["k", "v"], lambda columns: _picky(columns) and [1]),
    "inspect": lambda c: c.inspect(lambda changes: _picky(changes.named)),
    "reduce": lambda c: c.reduce("k", {"v": pa.int64()}, _picky_values),
    "threshold": lambda c: c.concat(*[c.filter(_is_poison)] * (POISON - 1)).threshold(_picky_counts),
    "aggregate": lambda c: c.aggregate("k", {"v": pa.int64()}, lambda columns: _picky(columns) and [1], list),
    "a loop": lambda c: c.iterate(lambda x: x.map(NUMBERS, _picky).distinct()),
    "a reduction in a loop": lambda c: c.iterate(lambda x: _grown(x).reduce("k", {"v": pa.int64()}, _picky_values)),
    "entering a loop": lambda c: (
        c.select("k")
        .distinct()
        .iterate(
            lambda x: x.concat(c.enter_at(x, lambda columns: [0] * len(_picky(columns)["v"])).select("k")).distinct()
        )
    ),
}


def raises(view: View, what: str = "thirteen") -> EvaluationError:
    with pytest.raises(EvaluationError, match=f"view '{view.name}' has no answer: .*{what}") as caught:
        view.read()
    return caught.value


@pytest.mark.parametrize(("workers", "wrong"), [(1, NO_FAULTS), (3, NO_FAULTS), (3, MANY_FAULTS)])
@pytest.mark.parametrize("query", QUERIES)
def test_a_bad_row_takes_the_answer_of_its_query_alone_and_while_it_is_there(
    query: str, workers: int, wrong: Faults
) -> None:
    engine = Engine(cluster=InProcess(workers, faults=wrong))
    numbers = pairs_input(engine)
    counts = engine.install("counts", numbers.count("k"))
    greatest = engine.install("greatest", numbers.max("k"))
    bad = engine.install("bad", QUERIES[query](numbers))
    onward = engine.install("onward", bad.rows().count("k"))
    numbers.insert(pairs((1, 4), (2, 5)))
    engine.advance()
    before = read(bad)
    numbers.insert(pairs((3, POISON)))
    engine.advance()
    settle(engine)
    for view in (bad, bad, onward):
        assert "k = 3" in raises(view).detail
    assert bad.errors().num_rows and onward.errors() == bad.errors()
    for epoch in range(3):
        numbers.insert(pairs((1, 4)))
        engine.advance()
        assert read(counts) == {(1, 2 + epoch): 1, (2, 1): 1, (3, 1): 1}
        assert read(greatest) == {(1, 4): 1, (2, 5): 1, (3, POISON): 1}
    equal = engine.install("equal", QUERIES[query](numbers))
    raises(equal)
    numbers.remove(pairs((3, POISON), (1, 4), (1, 4), (1, 4)))
    engine.advance()
    settle(engine)
    assert read(bad) == read(equal) == before
    assert not bad.errors().num_rows
    assert read(onward)
    assert not any(worker.failures for worker in cluster_of(engine).workers)


@pytest.mark.parametrize("query", QUERIES)
def test_oracle_answers_are_those_of_a_new_query_whenever_no_row_is_bad(query: str) -> None:
    """Bad rows come and go among others, one or several epochs in a sweep; late queries see what early ones do."""
    for seed in range(4):
        choose = random.Random(seed)
        engine = Engine(choose.choice([1, 2]), seed=seed)
        numbers = pairs_input(engine)
        early = engine.install("early", QUERIES[query](numbers))
        rows: Counter[tuple[int, int]] = Counter()
        for step in range(14):
            row = choose.randrange(1, 4), choose.choice([1, 2, POISON])
            if rows[row]:
                rows[row] -= 1
                numbers.remove(pairs(row))
            else:
                rows[row] += 1
                numbers.insert(pairs(row))
            engine.advance()
            if choose.random() < 0.5:
                continue
            late = engine.install(f"late {step}", QUERIES[query](numbers), share=False)
            if any(rows[key, POISON] for key in range(4)):
                raises(early), raises(late)
                assert early.errors() == late.errors()
            else:
                assert read(early) == read(late)
            late.drop()


def test_a_group_of_sums_without_a_value_is_an_error_until_it_changes() -> None:
    engine = Engine(2)
    numbers = pairs_input(engine)
    one = {"v": pa.int64()}
    sums = numbers.aggregate("k", one, lambda c: [np.ones(len(c["v"]), np.int64), c["v"].to_numpy()], _picky_sums)
    view = engine.install("sums", sums)
    numbers.insert(pairs((1, 10), (2, 7)))
    engine.advance()
    assert read(view) == {(1, 10): 1, (2, 7): 1}
    numbers.insert(pairs((1, 3)))
    engine.advance()
    assert raises(view).detail == "in the row k = 1"
    numbers.insert(pairs((2, 6)))
    engine.advance()
    assert view.errors()["row"].to_pylist() == ["k = 1", "k = 2"]
    numbers.insert(pairs((1, 1), (2, 1)))
    engine.advance()
    assert read(view) == {(1, 14): 1, (2, 14): 1}


def test_views_that_share_what_has_errors_have_them_and_the_rest_goes_on() -> None:
    engine = Engine(2)
    numbers = pairs_input(engine)
    shared = numbers.map(NUMBERS, _picky).arrange("k")
    low = engine.install("low", shared.rows().min("k"))
    high = engine.install("high", shared.rows().max("k"))
    onward = engine.install("onward", high.rows().count("k"))
    plain = engine.install("plain", numbers)
    numbers.insert(pairs((1, POISON)))
    engine.advance()
    settle(engine)
    for view in (low, high, onward):
        raises(view)
    assert read(plain) == {(1, POISON): 1}
    numbers.remove(pairs((1, POISON)))
    numbers.insert(pairs((1, 12)))
    engine.advance()
    assert read(low) == read(high) == {(1, 12): 1} and read(onward) == {(1, 1): 1}


def test_held_epochs_have_the_errors_that_they_had() -> None:
    engine = Engine(2)
    numbers = pairs_input(engine)
    view = engine.install("view", numbers.map(NUMBERS, _picky))
    numbers.insert(pairs((1, POISON)))
    engine.advance()
    with view.hold() as held:
        numbers.remove(pairs((1, POISON)))
        numbers.insert(pairs((1, 1)))
        engine.advance()
        assert read(view) == {(1, 1): 1}
        with pytest.raises(EvaluationError, match="thirteen"):
            held.read()
        assert held.read(held.epoch + 1).num_rows == 1


# Followers.


@pytest.mark.parametrize("onward", [False, True])
def test_followers_are_told_when_errors_come_and_when_they_are_gone(onward: bool) -> None:
    engine = Engine(2)
    table = engine.table("t", NUMBERS, key="k")
    view = engine.install("view", table.map(NUMBERS, _picky))
    if onward:
        view = engine.install("onward", view.rows().filter(lambda c: pc.greater(c["k"], 0)))
    changes = view.changes(timeout=5)
    table.insert({"k": [1, 2], "v": [4, 5]})
    assert next(changes)[0] == 0
    table.upsert({"k": [1], "v": [POISON]})
    with pytest.raises(EvaluationError, match="thirteen"):
        next(changes)
    table.upsert({"k": [2], "v": [6]})  # nothing is told of this yet
    table.insert({"k": [3], "v": [7]})
    table.delete({"k": [3]})
    epoch, table_of_changes = (table.upsert({"k": [1], "v": [4]}), next(changes))[1]
    assert epoch == 5
    assert {(r["k"], r["v"], r["diff"]) for r in table_of_changes.to_pylist()} == {(2, 5, -1), (2, 6, 1)}
    table.upsert({"k": [1], "v": [POISON]})
    with pytest.raises(EvaluationError):
        next(changes)
    table.upsert({"k": [1], "v": [4]})
    epoch, nothing = next(changes)
    assert (epoch, nothing.num_rows, nothing.schema) == (7, 0, table_of_changes.schema)
    table.delete({"k": [1]})
    assert next(changes)[1].to_pylist() == [{"k": 1, "v": 4, "diff": -1}]


def test_a_view_with_errors_at_first_is_told_whole_when_they_are_gone() -> None:
    engine = Engine()
    table = engine.table("t", NUMBERS, key="k")
    table.insert({"k": [1, 2], "v": [4, POISON]})
    view = engine.install("view", table.map(NUMBERS, _picky))
    changes = view.changes(timeout=5)
    with pytest.raises(EvaluationError):
        next(changes)
    table.delete({"k": [2]})
    assert next(changes)[1].to_pylist() == [{"k": 1, "v": 4, "diff": 1}]


def test_callbacks_are_told_of_errors() -> None:
    engine = Engine()
    table = engine.table("t", NUMBERS, key="k")
    view = engine.install("view", table.map(NUMBERS, _picky))
    told: list[Any] = []
    with view.subscribe(lambda epoch, changes: told.append(epoch), on_error=told.append) as subscription:
        table.insert({"k": [1], "v": [POISON]})
        table.upsert({"k": [1], "v": [1]})
        while len(told) < 2 and not subscription.closed:
            engine.run()
    assert isinstance(told[0], EvaluationError) and told[1] == 1


# What is not of a row.


def test_a_function_that_gives_something_else_fails_its_dataflow_and_an_equal_one_can_be_installed() -> None:
    engine = Engine(2)
    numbers = pairs_input(engine)
    broken = [True]

    def function(columns: Any) -> Any:
        return {"k": columns["k"], "v": columns["v"] if not broken else pa.array(["x"] * len(columns["v"]))}

    view = engine.install("view", numbers.map(NUMBERS, function))
    numbers.insert(pairs((1, 1)))
    engine.advance()
    with pytest.raises(DataflowError, match="'view' has failed"):
        view.read()
    broken.clear()
    assert read(engine.install("again", numbers.map(NUMBERS, function))) == {(1, 1): 1}
    with pytest.raises(DataflowError, match="'view' has failed"):
        view.read()


# Setting rows apart.


def test_rows_are_found_by_bisection_or_as_the_exception_says() -> None:
    def function(rows: Any) -> list[int]:
        if (rows % 7 == 3).any():
            raise ValueError("three")
        return rows.tolist()

    result, good, failed = separate_bad_rows(function, 40, list)
    assert result == good.tolist() == [n for n in range(40) if n % 7 != 3]
    assert [(failure.row, failure.reason) for failure in failed] == [(n, "ValueError: three") for n in range(3, 40, 7)]

    def knowing(rows: Any) -> list[int]:
        bad = np.flatnonzero(rows % 7 == 3)
        if len(bad):
            error = EvaluationError("three")
            error.bad_rows = BadRows(bad, lambda at: EvaluationError("three", detail=f"row {rows[bad[at]]}"))
            raise error
        return rows.tolist()

    result, good, failed = separate_bad_rows(knowing, 40, list)
    assert result == good.tolist() and {failure.reason for failure in failed} == {
        f"three: row {n}" for n in range(3, 40, 7)
    }


def test_what_no_row_is_to_blame_for_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def together(rows: Any) -> None:
        if len(rows) > 1:
            raise ValueError("too many")

    with pytest.raises(ValueError, match="too many"):
        separate_bad_rows(together, 8, list)

    def wrong(rows: Any) -> None:
        raise SchemaError("wrong columns")

    with pytest.raises(SchemaError):
        separate_bad_rows(wrong, 8, list)

    def never(rows: Any) -> None:
        if len(rows):
            raise ValueError("never")

    monkeypatch.setattr(bad_rows, "MAX_BAD_ROWS", 5)
    with pytest.raises(ValueError, match="never"):
        separate_bad_rows(never, 8, list)


def test_a_log_adds_up_what_no_reader_tells_apart() -> None:
    log = ErrorLog()
    one, two = RowError(None, "bad", "k = 1"), RowError(None, "bad", "k = 2")
    slow, fast = log.reader(), log.reader()
    for epoch, (error, diff) in enumerate([(one, 1), (two, 1), (one, -1), (two, -1)]):
        log.add(error, epoch, diff)
    fast.forget(3)
    assert [len(slow.at(epoch)) for epoch in range(4)] == [1, 2, 1, 0]
    slow.forget(2)
    assert [len(slow.at(epoch)) for epoch in (2, 3)] == [1, 0] and len(log) == 2
    slow.forget(3)
    assert len(log) == 0
