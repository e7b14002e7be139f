"""Fixed bugs of dataflows, each with a minimal case."""

from __future__ import annotations

import contextlib
import gc
import time
import weakref
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from ikebana.engine import Engine
from ikebana.engine.collection import Collection, constant, iterate
from ikebana.engine.delta_join import natural_join
from ikebana.errors import DataflowError, SchemaError, TimeError
from ikebana.operators import join
from ikebana.runtime.messages import Read
from tests.dataflow.harness import cluster_of, pairs, pairs_input, read, settle
from tests.dataflow.test_programs import fused
from tests.trace.trace_run import merge_all

NUMBERS = {"k": pa.int64(), "v": pa.int64()}
MAYBE = [pa.field("k", pa.int64(), nullable=True), pa.field("v", pa.int64(), nullable=False)]


# Dataflows that come and go.
def test_regression_a_name_used_again_got_no_messages() -> None:
    """Messages for the new dataflow were discarded, since a dataflow of the same name had been dropped."""
    engine = Engine(2)
    numbers = pairs_input(engine)
    for epoch in range(3):
        view = engine.install("view", numbers.filter(lambda columns: pa.array([True] * len(columns["k"]))))
        numbers.insert(pairs((1, epoch)))
        engine.advance()
        assert read(view) == {(1, n): 1 for n in range(epoch + 1)}
        view.drop()


def test_regression_a_name_used_again_while_others_need_the_old_dataflow() -> None:
    """A view that is dropped lives on as long as another view reads it, beside the new view of its name."""
    engine = Engine(2)
    numbers = pairs_input(engine)
    first = engine.install("view", numbers.count("k"))
    onward = engine.install("onward", first.rows().max("count"))
    first.drop()
    second = engine.install("view", numbers.min("k"))
    numbers.insert(pairs((1, 5), (1, 6)))
    engine.advance()
    assert read(onward) == {(2, 1): 1}
    assert read(second) == {(1, 5): 1}


def test_regression_a_shared_arrangement_that_fails_left_its_readers_waiting() -> None:
    """The function is part of an arrangement with a dataflow of its own; the view just never completed."""
    engine = Engine(2)
    maybe = engine.input("maybe", [pa.field("k", pa.int64()), pa.field("v", pa.int64())])
    view = engine.install("sums", maybe.sum("k", "v"))
    maybe.insert({"k": [1, 1], "v": [None, 3]})
    engine.advance()
    settle(engine)
    with pytest.raises(DataflowError, match=r"'sums' has failed(.|\n)*must return integers"):
        view.read()
    view.drop()
    maybe.remove({"k": [1], "v": [None]})
    engine.advance()
    settle(engine)
    assert read(engine.install("sums", maybe.sum("k", "v"))) == {(1, 3): 1}


def test_regression_history_that_cancels_was_shown_to_functions() -> None:
    """A view installed after a bad row was taken back met that row all the same, and failed."""
    engine = Engine()
    numbers = pairs_input(engine)
    numbers.insert(pairs((1, 0)))
    engine.advance()
    settle(engine)
    numbers.remove(pairs((1, 0)))
    numbers.insert(pairs((1, 2)))
    engine.advance()
    settle(engine)
    inverse = numbers.map(NUMBERS, lambda c: {"k": c["k"], "v": pa.array([10 // v for v in c["v"].to_pylist()])})
    assert read(engine.install("inverse", inverse)) == {(1, 5): 1}


def test_regression_an_import_kept_the_batches_of_history() -> None:
    """Batches that were merged away lived on as long as any view that was installed when they were there."""
    engine = Engine()
    numbers = pairs_input(engine)
    numbers.insert(pairs((1, 1)))
    engine.advance()
    settle(engine)
    handle = cluster_of(engine).workers[0].flows["input pairs"].reader._handle
    old = weakref.ref(handle.batches()[0].updates.key)
    view = engine.install("counts", numbers.count("k"))
    for n in range(2, 6):
        numbers.insert(pairs((n, n)))
        engine.advance()
        read(view)
    merge_all(handle)
    gc.collect()
    assert old() is None


def test_regression_a_view_of_views_that_had_not_started_answered_for_epochs_before_they_did() -> None:
    """A view on one that was behind and one that started later: until they met, it joined with nothing."""
    with patch.object(join, "QUANTUM", 16):
        engine = Engine()
        numbers, cluster = pairs_input(engine), cluster_of(engine)
        numbers.insert(pairs(*((1, n) for n in range(60))))
        engine.advance()
        settle(engine)
        slow = engine.install("slow", numbers.join(numbers.select("k", w="v"), on="k"))
        behind = engine.install("behind", slow.rows().max("k"))
        cluster.run_some(30)
        for epoch in range(1, 6):
            numbers.insert(pairs((1, 100 + epoch)))
            engine.advance()
            cluster.run_some(20)
        ahead = engine.install("ahead", numbers.count("k"))
        view = engine.install("view", behind.rows().join(ahead.rows(), on="k"))
        while not cluster.run_some(2):
            if view.dataflow in cluster.workers[0].flows:
                with contextlib.suppress(TimeError):
                    assert cluster.read(view.dataflow, (0,)).num_rows == 1
        assert read(view) == {(1, 105, 105, 65): 1}


def test_regression_a_refused_input_kept_its_name() -> None:
    """The name of an input that was refused can be given to another input."""
    engine = Engine()
    with pytest.raises(SchemaError):
        engine.input("numbers", NUMBERS, key="x")
    with pytest.raises(SchemaError):
        engine.input("numbers", {"x": pa.list_(pa.float16())})
    engine.input("numbers", NUMBERS)


def test_regression_planning_took_time_exponential_in_the_depth_of_the_plan() -> None:
    """A plan of forty nodes, one above the other, is installed within seconds."""
    engine = Engine()
    collection: Collection = pairs_input(engine)
    start = time.process_time()
    for _ in range(20):
        collection = collection.select(v="k", k="v").distinct()
    engine.install("deep", collection)
    settle(engine)
    assert time.process_time() - start < 20


# Inputs that are closed.
def test_regression_an_input_was_taken_for_closed_while_peers_had_changes() -> None:
    """A worker whose share of an input was closed dropped the index that its peers' changes were to probe."""
    engine = Engine(2)
    numbers = pairs_input(engine)
    view = engine.install("self", numbers.join(numbers.select("k", w="v"), on="k"))
    engine.advance()
    settle(engine)
    for epoch in range(1, 4):
        numbers.push(pairs(*((k, epoch) for k in range(8))), 1, [epoch] * 8)
    numbers.close()
    for epoch in range(1, 4):
        engine.advance()
        assert read(view) == {(k, a + 1, b + 1): 1 for k in range(8) for a in range(epoch) for b in range(epoch)}


@pytest.mark.parametrize("seed", range(8))
def test_regression_a_close_that_reaches_workers_at_different_times(seed: int) -> None:
    """A worker that knows of the close still receives changes from a worker that does not."""
    engine = Engine(2, seed=seed)
    numbers = pairs_input(engine)
    view = engine.install("self", numbers.join(numbers.select("k", w="v"), on="k"))
    numbers.insert(pairs(*((k, 0) for k in range(8))))
    engine.advance()
    read(view)
    numbers.insert(pairs(*((k, 1) for k in range(8))))
    numbers.close()
    engine.advance()
    assert read(view) == {(k, a, b): 1 for k in range(8) for a in range(2) for b in range(2)}


# Nulls and types.
def test_regression_joins_of_keys_that_may_and_may_not_be_null_found_nothing() -> None:
    """A nullable key has other lanes than a key that is never null, although the values are equal."""
    engine = Engine(2)
    maybe, numbers = engine.input("maybe", MAYBE), pairs_input(engine)
    others = numbers.select("k", w="v")
    views = {
        "join": engine.install("join", maybe.join(others, on="k")),
        "turned": engine.install("turned", others.join(maybe, on="k")),
        "semi": engine.install("semi", numbers.semijoin(maybe.select("k"))),
        "anti": engine.install("anti", numbers.antijoin(maybe.select("k"))),
        "semi maybe": engine.install("semi maybe", maybe.semijoin(numbers.select("k"))),
    }
    maybe.insert({"k": [1, None], "v": [5, 6]})
    numbers.insert(pairs((1, 7), (2, 8)))
    engine.advance()
    assert {name: read(view) for name, view in views.items()} == {
        "join": {(1, 5, 7): 1},
        "turned": {(1, 7, 5): 1},
        "semi": {(1, 7): 1},
        "anti": {(2, 8): 1},
        "semi maybe": {(1, 5): 1},
    }
    with pytest.raises(SchemaError, match="different types"):
        maybe.arrange("k").join(others.arrange("k"))


def test_regression_nulls_were_lost_in_a_concatenation() -> None:
    """The columns of a concatenation are nullable if those of any input are."""
    engine = Engine()
    numbers, maybe = pairs_input(engine), engine.input("maybe", MAYBE)
    view = engine.install("both", numbers.concat(maybe))
    maybe.insert({"k": [None], "v": [5]})
    numbers.insert(pairs((0, 5)))
    engine.advance()
    assert read(view) == {(None, 5): 1, (0, 5): 1}


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float64(), pa.string()], ids=str)
def test_regression_the_order_of_nulls_depended_on_the_width_of_the_column(kind: pa.DataType) -> None:
    """A null is before all else, whether or not the column fits into a lane."""
    engine = Engine()
    values = engine.input("values", [pa.field("v", kind, nullable=True)])
    least, greatest = engine.install("least", values.min(())), engine.install("greatest", values.max(()))
    low, high = ("a", "b") if kind == pa.string() else (1, 2)
    values.insert({"v": pa.array([low, None, high], kind)})
    engine.advance()
    assert (read(least), read(greatest)) == ({(None,): 1}, {(high,): 1})


@pytest.mark.parametrize("others", [0, 1], ids=["one column", "two columns"])
def test_regression_the_order_of_nan_depended_on_the_width_of_the_row(others: int) -> None:
    """NaN is after all else, as in exact lanes."""
    engine = Engine()
    fields = [pa.field("v", pa.float64(), nullable=False), pa.field("w", pa.float64(), nullable=False)][: 1 + others]
    values = engine.input("values", fields)
    least, greatest = engine.install("least", values.min(())), engine.install("greatest", values.max(()))
    values.insert({field.name: [1.0, float("nan"), float("-inf")] for field in fields})
    engine.advance()
    assert read(least) == {(float("-inf"),) * len(fields): 1}
    assert all(np.isnan(value) for row in read(greatest) for value in row)


# Operators.
def test_regression_a_python_reduction_of_nothing_raised() -> None:
    """A group that has lost all its rows has no output."""
    engine = Engine()
    numbers = pairs_input(engine)
    view = engine.install("view", numbers.reduce("k", {"n": pa.int64()}, lambda key, vals: [(len(vals), 1)]))
    numbers.insert(pairs((1, 5)))
    engine.advance()
    assert read(view) == {(1, 1): 1}
    numbers.remove(pairs((1, 5)))
    engine.advance()
    assert read(view) == {}


def test_regression_no_key_was_taken_for_all_columns() -> None:
    """With an empty key all rows are one group."""
    engine = Engine(2)
    numbers = pairs_input(engine)
    others = numbers.select(a="k", b="v")
    views = [
        engine.install("min", numbers.min((), "v")),
        engine.install("top", numbers.top_k((), 2, "v")),
        engine.install("count", numbers.count(())),
        engine.install("reduce", numbers.reduce((), {"n": pa.int64()}, lambda key, vals: [(len(vals), 1)])),
        engine.install("cross", numbers.join(others, on=())),
    ]
    numbers.insert(pairs((1, 5), (2, 4), (3, 6)))
    engine.advance()
    least, top, count, reduced, cross = map(read, views)
    assert (least, top) == ({(2, 4): 1}, {(3, 6): 1, (1, 5): 1})
    assert (count, reduced) == ({(3,): 1}, {(3,): 1})
    assert len(cross) == 9


def test_regression_explode_named_the_columns_it_kept_in_another_order() -> None:
    """Columns are in the order in which the caller lists them."""
    engine = Engine()
    numbers = pairs_input(engine)
    turned = numbers.explode(["v", "k"], lambda columns: [1])
    assert turned.columns == ["v", "k"]
    view = engine.install("view", turned.concat(numbers.select("v", "k")))
    numbers.insert(pairs((1, 5)))
    engine.advance()
    assert read(view) == {(5, 1): 2}


def test_regression_flat_map_lost_rows_without_columns() -> None:
    """The number of rows cannot be read from columns if there are none."""
    engine = Engine()
    numbers = pairs_input(engine)
    view = engine.install("view", numbers.select().flat_map({"x": pa.int64()}, lambda row: [(7,)]))
    numbers.insert(pairs((1, 5), (2, 5)))
    engine.advance()
    assert read(view) == {(7,): 2}


@pytest.mark.parametrize(
    "query",
    [
        lambda c: c.reduce("k", {"x": pa.int64()}, lambda key, vals: [(None, 1)]),
        lambda c: c.reduce("k", {"x": pa.int64()}, lambda key, vals: [(1, 1.5)]),
        lambda c: c.reduce("k", {"x": pa.int64()}, lambda key, vals: [((1, 2), 1)]),
        lambda c: c.threshold(lambda counts: counts * 0.5),
        lambda c: c.threshold(lambda counts: counts[:0]),
        lambda c: c.aggregate("k", {"x": pa.int64()}, lambda columns: [1], lambda sums: [[None] * len(sums[0])]),
    ],
    ids=["null", "fraction", "two columns", "half", "too few", "null aggregate"],
)
def test_regression_what_a_function_must_not_give_was_made_into_something_else(query: Any) -> None:
    """Results of a wrong type or shape fail the dataflow; they are not converted."""
    engine = Engine()
    numbers = pairs_input(engine)
    view = engine.install("view", query(numbers))
    numbers.insert(pairs((1, 5)))
    engine.advance()
    with pytest.raises(DataflowError, match="SchemaError"):
        view.read()


def test_regression_unknown_columns_were_noticed_only_when_data_came() -> None:
    """Columns and lanes are checked when the plan is built."""
    numbers = pairs_input(Engine())
    for attempt in (
        lambda: numbers.max("k", "x"),
        lambda: numbers.sum("k", "x"),
        lambda: numbers.concat(numbers.explode(["k", "v"], lambda columns: [1, 2])),
    ):
        with pytest.raises(SchemaError):
            attempt()


# Loops.
def test_regression_a_loop_body_with_other_columns_was_taken_by_position() -> None:
    """The body of a loop must return the columns of its variable, with their names and types."""
    numbers = pairs_input(Engine())
    for body in (
        lambda x: x.select("v", "k"),
        lambda x: x.select("k"),
        lambda x: x.map(MAYBE, lambda columns: columns),
    ):
        with pytest.raises(SchemaError, match="variable 'it'"):
            numbers.iterate(body)
    with pytest.raises(SchemaError, match="the variables are"):
        iterate(lambda x: {"b": x["a"]}, {"a": numbers})


def test_regression_collections_from_outside_had_to_enter_a_loop_by_hand() -> None:
    """Where they did not, the result was empty, or an error from deep inside."""
    engine = Engine(2)
    numbers = pairs_input(engine)
    onward = numbers.select(k="v", w="k")
    views = [
        engine.install(
            "left", numbers.iterate(lambda x: numbers.join(x.select("k", w="v"), on="k").select("k", "v"), 2)
        ),
        engine.install("right", numbers.iterate(lambda x: x.join(onward, on="k").select("k", v="w").distinct(), 1)),
        engine.install("sum", numbers.iterate(lambda x: numbers.concat(x).distinct())),
    ]
    numbers.insert(pairs((1, 2), (2, 3)))
    engine.advance()
    assert [read(view) for view in views] == [{(1, 2): 1, (2, 3): 1}, {(2, 1): 1}, {(1, 2): 1, (2, 3): 1}]
    leaked: list[Collection] = []
    numbers.iterate(lambda x: leaked.append(x) or x)  # type: ignore[func-returns-value]
    with pytest.raises(SchemaError, match="outside of the loop"):
        numbers.iterate(lambda x: x.concat(leaked[0]))
    with pytest.raises(DataflowError, match="inside a loop"):
        engine.install("leaked", leaked[0])


def test_regression_delta_joins_of_three_in_a_loop_met_what_came_later() -> None:
    """What a change finds may be due at a later round; the third collection was then looked up as of that round."""
    engine = Engine()
    numbers = pairs_input(engine)

    def thrice(x: Collection) -> Collection:
        met = natural_join(x, x.select("k", a="v"), x.select("k", b="v"))
        return x.concat(met.select("k", "v")).distinct()

    view = engine.install("view", numbers.iterate(thrice))
    numbers.push(pairs((0, 0)), [3])
    engine.advance()
    numbers.push(pairs((0, 0)), [3])
    engine.advance()
    assert read(view) == {(0, 0): 1}
    numbers.insert(pairs((0, 1)))
    engine.advance()
    assert read(view) == {(0, 0): 1, (0, 1): 1}


@pytest.mark.parametrize("order", [("inner", "outer"), ("outer", "inner")])
def test_regression_a_nested_loop_could_not_start_from_inside_and_outside(order: tuple[str, str]) -> None:
    """One variable starts in the outer loop and one outside of both loops, in either order."""
    engine = Engine()
    numbers = pairs_input(engine)

    def body(x: Collection) -> Collection:
        start = {"inner": x, "outer": numbers.select(k="v", v="k")}
        both = iterate(
            lambda v: {"inner": v["inner"].concat(v["outer"]).distinct(), "outer": v["outer"]},
            {name: start[name] for name in order},
        )
        return both["inner"]

    view = engine.install("view", numbers.iterate(body))
    numbers.insert(pairs((1, 2)))
    engine.advance()
    assert read(view) == {(1, 2): 1, (2, 1): 1}


def test_regression_a_nested_loop_that_starts_from_a_constant_is_told_to_enter_it() -> None:
    """The error said to use what iterate returns, which was no help."""
    engine = Engine()
    numbers = pairs_input(engine)
    few = constant(pa.table({"k": [1], "v": [1]}, schema=pa.schema([pa.field(n, pa.int64(), False) for n in "kv"])))

    def program(start: Callable[[Collection], Collection]) -> Collection:
        def inner(outer: Collection) -> Collection:
            return start(outer).iterate(lambda rows: rows.concat(outer).distinct())

        return numbers.iterate(lambda outer: outer.concat(inner(outer)).distinct())

    with pytest.raises(SchemaError, match=r"enter\(\) its initial collection"):
        program(lambda outer: few)
    view = engine.install("view", program(few.enter))
    numbers.insert(pairs((2, 3)))
    engine.advance()
    assert read(view) == {(1, 1): 1, (2, 3): 1}


def test_regression_no_rounds_were_taken_for_any_number() -> None:
    """With `rounds=0` the body is never applied."""
    engine = Engine()
    numbers = pairs_input(engine)
    view = engine.install("view", numbers.iterate(lambda x: x.concat(x), rounds=0))
    numbers.insert(pairs((1, 2)))
    engine.advance()
    assert read(view) == {(1, 2): 1}


def test_regression_a_loop_passed_on_a_copy_of_a_row_for_each_way_to_it() -> None:
    """Copies with equal diffs were never added up, so that rows doubled with every round."""
    engine = Engine()
    numbers, passed = pairs_input(engine), list[int]()

    def twice(x: Collection) -> Collection:
        seen = x.inspect(lambda changes: passed.append(len(changes)))
        return seen.flat_map(NUMBERS, lambda row: [(row["k"], row["v"])] * 2)

    view = engine.install("view", numbers.iterate(twice, rounds=12))
    numbers.insert(pairs((1, 2)))
    engine.advance()
    assert read(view) == {(1, 2): 1 << 12}
    assert max(passed) == 2


def test_regression_columns_come_as_declared_where_the_key_is_not_the_first() -> None:
    """The index of a table has its key first, and joins on a column that may be null took the columns by position."""
    engine = Engine(2)
    people = engine.table("people", [pa.field("name", pa.string()), pa.field("id", pa.int64())], key="id")
    bag = engine.table("bag", [pa.field("id", pa.int64())])
    numbers = engine.input("numbers", {"a": pa.int64(), "b": pa.int64()}, key="b")
    more = engine.input("more", {"a": pa.int64(), "b": pa.int64()})
    joined = engine.install("joined", people.join(bag, "id"))
    both = engine.install("both", numbers.concat(more))
    people.insert({"name": ["x", "y"], "id": [1, 2]})
    bag.insert({"id": [2, 3, None]})
    numbers.insert({"a": [1], "b": [2]})
    more.insert({"a": [3], "b": [4]})
    engine.advance()
    assert joined.read().to_pylist() == [{"id": 2, "name": "y", "diff": 1}]
    assert sorted(both.read().to_pydict()["a"]) == [1, 3]


def test_regression_rows_that_a_program_has_joined_were_unknown_to_visits() -> None:
    """A join was left out of a large sweep because one side had, for all that visits knew, never had any rows."""
    engine = Engine()
    left, right = (engine.input(name, {"k": pa.int64(), name: pa.int64()}, key="k") for name in ("left", "right"))
    view = engine.install("view", left.join(right, "k"))
    left.insert({"k": [0], "left": [0]})
    engine.advance()
    engine.run()
    right.insert({"k": [1], "right": [1]})
    engine.advance()
    engine.run()
    left.insert({"k": np.full(5000, 1), "left": np.arange(5000)})
    engine.advance()
    assert view.read().num_rows == 5000


def test_regression_a_commit_that_the_driver_does_not_know_of_yet_was_an_error_of_readers() -> None:
    """A worker that checks and commits a change at once may have released the epoch that another thread reads."""
    engine = Engine()
    table = engine.table("t", {"id": pa.int64()}, key="id")
    view = engine.install("all", table)
    table.insert({"id": [1]})
    ask, refused = engine.coordinator.ask, []

    def refuse_first(request: Any, *arguments: Any, **options: Any) -> list[Any]:
        if isinstance(request, Read) and request.hold is None and not refused:
            refused.append(request)
            raise TimeError("the epoch is not kept any more")
        return ask(request, *arguments, **options)

    with patch.object(engine.coordinator, "ask", refuse_first):
        assert view.read().to_pylist() == [{"id": 1, "diff": 1}]
        assert refused
    with pytest.raises(TimeError, match="cannot read view 'all' at epoch 0"):
        table.insert({"id": [2]})
        view.read(at=0)


def test_regression_reading_before_the_first_epoch_is_closed() -> None:
    """It raised an error about epoch -1; the result is empty then, and has its columns."""
    with Engine(2) as engine:
        edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
        view = engine.install("fans", edges.count("src"))
        edges.insert({"src": [1, 1], "dst": [2, 3]})
        before = view.read()
        assert before.num_rows == view.to_arrow().num_rows == view.lookup(src=1).num_rows == 0
        assert view.first_rows(5)[1] == 0
        engine.advance()
        assert view.read().schema == before.schema and view.read().num_rows == 1
        assert view.lookup(src=1).num_rows == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_regression_distinct_over_the_history_of_several_epochs(workers: int) -> None:
    """A row that was inserted at two of them counted twice, if programs had written both to one memtable."""
    with Engine(workers) as engine:
        rows = engine.input("rows", {"x": pa.int64()})
        steps = engine.install("steps", rows.iterate(lambda row: row.consolidate().concat(rows.enter(row)).distinct()))
        for x in (1, 2, 2):
            rows.insert({"x": [x]})
            engine.advance()
            assert steps.read().num_rows == min(x, 2)
        late = engine.install("late", rows.distinct())
        engine.advance()
        assert sorted((row["x"], row["diff"]) for row in late.read().to_pylist()) == [(1, 1), (2, 1)]


def test_regression_a_called_function_was_given_columns_that_no_instruction_had_read() -> None:
    """Programs called a function before they read the stored texts that it was given: it saw what was there before."""
    with fused("always"), Engine(share=False) as engine:
        words = engine.input("words", {"k": pa.string(), "v": pa.string()}, key="k")
        view = engine.install("least", words.min("k").concat(words))
        for k, v in (("a", "x"), ("a", "w"), ("b", "w")):
            words.insert({"k": [k], "v": [v]})
            engine.advance()
            settle(engine)
        assert read(view) == {("a", "w"): 2, ("b", "w"): 2, ("a", "x"): 1}
