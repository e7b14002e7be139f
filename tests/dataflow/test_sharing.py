"""What is shared: nodes of plans, arrangements between operators, between views and with later ones; and what it costs
not to change."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ikebana.engine import Engine, View
from ikebana.engine.collection import Collection, iterate
from ikebana.operators.arrange import ArrangeStream
from ikebana.operators.join import Join
from ikebana.operators.reduce import Reduction
from ikebana.operators.sources import ImportedArrangement
from tests.dataflow.harness import cluster_of, pairs, pairs_input, read, settle


def operators(view: View, kind: type, worker: int = 0) -> int:
    """How many operators of a kind a view's own dataflow has."""
    flow = cluster_of(view._coordinator).workers[worker].flows[view.dataflow]
    return sum(isinstance(operator, kind) for operator in flow._root.operators())


# Nodes.
def _scaled(c: Collection, by: int) -> Collection:
    return c.map({"k": pa.int64(), "v": pa.int64()}, lambda columns: {**columns, "v": pc.multiply(columns["v"], by)})


def test_equal_plans_are_the_same_node() -> None:
    numbers = pairs_input(Engine())
    for query in (
        lambda: numbers.select("k"),
        lambda: numbers.filter(lambda columns: pc.greater(columns["v"], 3)),
        lambda: _scaled(numbers, 2),
        lambda: _scaled(numbers, 2).count("k"),
        lambda: numbers.join(_scaled(numbers, 2).select("k", w="v"), on="k").distinct().max("k", "v"),
        lambda: numbers.reduce("k", {"x": pa.int64()}, lambda key, vals: [(key[0], 1)]),
        lambda: numbers.concat(numbers.negate()),
        lambda: numbers.antijoin(numbers.select("k")),
    ):
        assert query().node is query().node


def test_different_plans_are_different_nodes() -> None:
    numbers = pairs_input(Engine())
    several = [
        numbers.select("k"),
        numbers.select("v"),
        _scaled(numbers, 2),
        _scaled(numbers, 3),
        numbers.count("k"),
        numbers.count("v"),
        numbers.count("k", "n"),
        numbers.sum("k", "v"),
        numbers.min("k"),
        numbers.max("k"),
        numbers.top_k("k", 1),
        numbers.top_k("k", 2),
        numbers.threshold(lambda counts: counts),
        numbers.distinct(),
        numbers.concat(numbers),
        numbers.concat(numbers, numbers),
    ]
    assert len({query.node.digest for query in several}) == len(several)


# Inside a dataflow.
@pytest.mark.parametrize("share", [True, False])
def test_the_output_of_a_reduction_is_joined_without_another_index(share: bool) -> None:
    engine = Engine(2, share=share)
    numbers = pairs_input(engine)
    extent = numbers.min("k").select("k", low="v").join(numbers.max("k"), on="k")
    view = engine.install("extent", numbers.max("k").join(numbers.count("k"), on="k"))
    also = engine.install("also", extent)
    numbers.insert(pairs((1, 5), (1, 8), (2, 5)))
    engine.advance()
    assert read(view) == {(1, 8, 2): 1, (2, 5, 1): 1}
    assert read(also) == {(1, 5, 8): 1, (2, 5, 5): 1}
    assert (operators(view, Reduction), operators(view, Join)) == (2, 1)
    # The view's result, and without sharing what the two reductions read; nothing for the join.
    assert operators(view, ArrangeStream) == (1 if share else 3)
    # Here the least values are renamed, which makes them a stream again.
    assert operators(also, ArrangeStream) == (2 if share else 3)


def test_what_is_used_twice_is_rendered_once() -> None:
    engine = Engine()
    numbers = pairs_input(engine)
    counts = numbers.count("k")
    twice = counts.join(counts.select("k", again="count"), on="k")
    view = engine.install("twice", twice.concat(twice.negate()))
    numbers.insert(pairs((1, 5), (1, 8), (2, 5)))
    engine.advance()
    assert read(view) == {}
    assert (operators(view, Reduction), operators(view, Join)) == (1, 1)


def test_arrangements_enter_loops_without_a_copy() -> None:
    engine = Engine()
    edges = pairs_input(engine, "edges")
    by_source = edges.arrange("k")

    def step(reached: Collection) -> Collection:
        onward = reached.join(by_source.rows(), on="k").select(k="v")
        return onward.concat(reached).distinct()

    view = engine.install("reach", edges.select("k").filter(lambda c: pc.equal(c["k"], 0)).iterate(step))
    edges.insert(pairs((0, 1), (1, 2), (5, 6)))
    engine.advance()
    assert read(view) == {(0,): 1, (1,): 1, (2,): 1}
    # What is reached: for the join, for the reduction, and after the loop. The edges are imported.
    assert operators(view, ArrangeStream) == 3
    assert by_source.node.digest in cluster_of(engine).workers[0].flows


# Between dataflows.
@pytest.mark.parametrize("workers", [1, 2])
def test_an_arrangement_that_two_views_need_is_maintained_once(workers: int) -> None:
    engine = Engine(workers)
    numbers = pairs_input(engine)
    one = engine.install("one", numbers.max("k"))
    settle(engine)
    flows = list(cluster_of(engine).workers[0].flows)
    two = engine.install("two", numbers.min("k"))
    settle(engine)
    by_k = numbers.arrange("k").node.digest
    assert list(cluster_of(engine).workers[0].flows) == [*flows, "two"]
    assert by_k in flows
    for view in (one, two):
        assert (operators(view, ImportedArrangement), operators(view, ArrangeStream)) == (1, 0)
    alone = Engine(workers, share=False)
    numbers = pairs_input(alone)
    views = [alone.install("one", numbers.max("k")), alone.install("two", numbers.min("k"))]
    settle(alone)
    assert list(cluster_of(alone).workers[0].flows) == ["input pairs", "one", "two"]
    assert [operators(view, ArrangeStream) for view in views] == [1, 1]


def test_views_with_the_same_plan_share_one_dataflow() -> None:
    engine = Engine(2)
    numbers = pairs_input(engine)
    one, two = (engine.install(name, numbers.count("k")) for name in ("one", "two"))
    assert one.dataflow == two.dataflow
    numbers.insert(pairs((1, 5)))
    engine.advance()
    one.drop()
    numbers.insert(pairs((1, 6)))
    engine.advance()
    assert read(two) == {(1, 2): 1}
    assert read(engine.install("one", numbers.count("k"))) == {(1, 2): 1}


def test_an_input_kept_by_key_is_that_arrangement() -> None:
    engine = Engine(2)
    numbers = engine.input("pairs", {"k": pa.int64(), "v": pa.int64()}, key="k")
    view = engine.install("most", numbers.max("k"))
    numbers.insert(pairs((1, 5), (1, 6)))
    engine.advance()
    assert read(view) == {(1, 6): 1}
    assert list(cluster_of(engine).workers[0].flows) == ["input pairs", "most"]


def test_a_view_is_an_arrangement_for_others() -> None:
    engine = Engine(2)
    numbers = pairs_input(engine)
    counts = engine.install("counts", numbers.arrange("k").rows().count("k").arrange("k"))
    numbers.insert(pairs((1, 5), (1, 6), (2, 7)))
    engine.advance()
    read(counts)
    view = engine.install("with counts", numbers.join(counts.rows(), on="k"))
    assert read(view) == {(1, 5, 2): 1, (1, 6, 2): 1, (2, 7, 1): 1}
    assert (operators(view, Reduction), operators(view, ImportedArrangement)) == (0, 2)


# Explained.
def explained(engine: Engine, query: Any) -> str:
    """The text, with loops numbered from 0."""
    text = engine.explain(query)
    for number, loop in enumerate(dict.fromkeys(re.findall(r"loop \d+", text))):
        text = re.sub(rf"{loop}\b", f"loop {chr(97 + number)}", text)
    return "\n" + text


def often(numbers: Collection) -> Collection:
    return numbers.max("k").join(numbers.count("k"), on="k").filter(lambda c: pc.greater(c["count"], 1)).select("k")


def test_golden_explain_a_join() -> None:
    engine = Engine()
    numbers = pairs_input(engine)
    query = often(numbers)
    built = """
filter | select
└─ join on k
   ├─ reduce with top k  <- built here
   │  └─ arrange by k  <- built here
   │     └─ input pairs
   └─ reduce with linear  <- built here
      └─ arrange by k  <- built here
         └─ explode
            └─ input pairs  (see above)"""
    assert explained(engine, query) == built
    low = engine.install("low", numbers.min("k"))
    shared = built.replace("arrange by k  <- built here", "arrange by k  <- shared with low", 1)
    assert explained(engine, query) == shared
    engine.install("most", numbers.max("k"))
    low.drop()
    both = shared.replace("top k  <- built here", "top k  <- reused from view most").replace("with low", "with most")
    assert explained(engine, query) == both
    apart = Engine(share=False)
    alone = explained(apart, often(pairs_input(apart)))
    assert "reused" not in alone and "shared" not in alone


def test_explain_tells_how_much_memory_is_meant() -> None:
    engine = Engine(workers=2)
    table = engine.table("numbers", {"k": pa.int64(), "v": pa.int64(), "s": pa.string()}, key="k")
    table.insert({"k": range(1000), "v": range(1000), "s": ["text"] * 1000})
    shown = engine.explain(table.select("v", "k").arrange("v"))
    assert "arrange by v  <- built here, about 16 kB" in shown
    engine.install("by v", table.select("v", "k").arrange("v"))
    assert "arrange by v  <- reused from view by v, 16 kB" in engine.explain(table.select("v", "k").arrange("v"))
    assert re.search("arrange by k  <- reused from table numbers, [0-9]+ kB", engine.explain(table.arrange("k")))


def test_golden_explain_a_loop() -> None:
    engine = Engine()
    numbers = pairs_input(engine)
    query = iterate(
        lambda x: {"a": x["a"].concat(x["b"]).distinct(), "b": x["b"].concat(numbers).distinct()},
        {"a": numbers, "b": numbers.negate()},
        rounds=3,
    )["b"]
    assert (
        explained(engine, query)
        == """
leave loop a
├─ rows
│  └─ reduce with threshold  <- built here
│     └─ arrange by k, v  <- built here
│        └─ concat
│           ├─ variable b of loop a
│           │  └─ enter loop a
│           │     └─ negate
│           │        └─ input pairs
│           └─ enter loop a
│              └─ input pairs  (see above)
└─ loop a, 3 rounds
   ├─ variable a of loop a
   │  └─ enter loop a  (see above)
   ├─ variable b of loop a  (see above)
   ├─ rows
   │  └─ reduce with threshold  <- built here
   │     └─ arrange by k, v  <- built here
   │        └─ concat
   │           ├─ variable a of loop a  (see above)
   │           └─ variable b of loop a  (see above)
   └─ rows  (see above)"""
    )


# Idle dataflows.
@pytest.mark.parametrize("workers", [1, 2])
def test_dataflows_over_what_does_not_change_do_nothing(workers: int) -> None:
    engine = Engine(workers)
    still, lively = pairs_input(engine, "still"), pairs_input(engine, "lively")
    still.insert(pairs((1, 5), (2, 6)))
    views = [engine.install(f"idle {n}", _scaled(still, n).max("k").join(still.count("k"), on="k")) for n in range(100)]
    busy = engine.install("busy", lively.count("k"))
    engine.advance()
    settle(engine)
    workers_ = cluster_of(engine).workers
    sweeps = [{name: flow.sweeps for name, flow in worker.flows.items()} for worker in workers_]
    for epoch in range(5):
        lively.insert(pairs((1, epoch)))
        engine.advance()
        assert read(busy) == {(1, 1 + epoch): 1}
    swept = [{name: flow.sweeps for name, flow in worker.flows.items()} for worker in workers_]
    moved = {name for was, now in zip(sweeps, swept, strict=True) for name in now if now[name] != was[name]}
    assert "busy" in moved
    assert all("lively" in str(workers_[0].flows[name].plan) for name in moved)
    assert read(views[7]) == {(1, 35, 1): 1, (2, 42, 1): 1}  # but they are complete on demand
