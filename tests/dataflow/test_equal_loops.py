"""Loops that are described in the same way are the same nodes: shared between views and inside a plan, with the right
results; loops that differ in anything are not."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ikebana import graph
from ikebana.engine import Engine, Input, View
from ikebana.engine.collection import Collection, iterate
from ikebana.errors import SchemaError
from ikebana.plan import ir
from ikebana.plan.scopes import LoopScope, Scope
from ikebana.plan.sharing import make_private, walk
from tests.dataflow.harness import cluster_of, pairs, pairs_input, read, settle

N = {"n": pa.int64()}
SIZE = 12


def loops(view: View) -> int:
    """How many loops a view's own dataflow has, nested ones included."""

    def count(scope: Scope) -> int:
        return sum(1 + count(item) for item in scope.items if isinstance(item, LoopScope))

    settle(view._coordinator)
    return count(cluster_of(view._coordinator).workers[0].flows[view.dataflow]._root)


def loop_nodes(collection: Collection) -> list[ir.Loop]:
    return [node for node in walk(collection.node) if isinstance(node, ir.Loop)]


# Queries, each with what it means.
def onward(edges: Collection, reached: Collection) -> Collection:
    return reached.select(k="n").join(edges, on="k").select(n="v")


def reach(edges: Collection, roots: Collection, rounds: int | None = None) -> Collection:
    """The nodes that can be reached from some, in any number of steps or in so many."""
    return roots.iterate(lambda reached: reached.concat(onward(edges, reached)).distinct(), rounds)


def reached_from(edges: set[tuple[int, int]], roots: set[int], rounds: int = SIZE) -> set[int]:
    for _ in range(rounds):
        roots = roots | {v for k, v in edges if k in roots}
    return roots


def halves(numbers: Collection, by: int = 2) -> Collection:
    """Numbers divided again and again: a loop that reads nothing from outside."""
    return numbers.iterate(lambda x: x.concat(x.map(N, lambda c: {"n": pc.divide(c["n"], by)})).distinct())


def halved(numbers: set[int], by: int = 2) -> set[int]:
    for _ in range(SIZE):
        numbers = numbers | {n // by for n in numbers}
    return numbers


def nested(edges: Collection, roots: Collection, by: int = 2, rounds: int | None = None) -> Collection:
    """Nodes reached, and the halves of each; again, until nothing is new."""
    return roots.iterate(lambda nodes: halves(reach(edges, nodes, rounds), by))


def nested_from(edges: set[tuple[int, int]], roots: set[int], by: int = 2, rounds: int = SIZE) -> set[int]:
    for _ in range(SIZE):
        roots = halved(reached_from(edges, roots, rounds), by)
    return roots


EDGES = {(1, 2), (2, 3), (3, 9), (4, 11), (5, 0), (9, 10)}
MORE = {(10, 8), (2, 7)}
ROOTS = {1, 6}


def world(workers: int = 1, share: bool = True) -> tuple[Engine, Input, Input]:
    engine = Engine(workers, share=share)
    edges, roots = pairs_input(engine, "edges"), engine.input("roots", N)
    return engine, edges, roots


def fill(edges: Input, roots: Input) -> None:
    edges.insert(pairs(*EDGES))
    roots.insert({"n": sorted(ROOTS)})


def once(rows: set[int], times: int = 1) -> dict[tuple[int], int]:
    return {(row,): times for row in rows}


# The same nodes.
QUERIES: dict[str, Callable[[Collection, Collection], Collection]] = {
    "a loop": reach,
    "with rounds": lambda edges, roots: reach(edges, roots, 2),
    "nothing from outside": lambda edges, roots: halves(roots),
    "one after the other": lambda edges, roots: halves(reach(edges, roots)),
    "nested": nested,
    "mutual": lambda edges, roots: iterate(
        lambda x: {"a": x["b"].concat(x["a"]).distinct(), "b": onward(edges, x["a"]).distinct()},
        {"a": roots, "b": roots},
    )["b"],
    "entered at a round": lambda edges, roots: roots.iterate(
        lambda x: x.concat(edges.select(n="k").enter_at(x, lambda c: c["n"])).distinct()
    ),
    "of a graph program": lambda edges, roots: graph.reach(edges.select(src="k", dst="v"), roots.select(node="n")),
    "nested in a graph program": lambda edges, roots: graph.strongly_connected_components(
        edges.select(src="k", dst="v")
    ),
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_equal_loops_are_the_same_node(query: Callable[[Collection, Collection], Collection]) -> None:
    _, edges, roots = world()
    first = query(edges, roots)
    assert query(edges, roots).node is first.node
    assert cloudpickle.loads(cloudpickle.dumps(first.node)).digest == first.node.digest
    assert make_private(first.node, "me") is make_private(query(edges, roots).node, "me")
    assert make_private(first.node, "me").shape != make_private(first.node, "you").shape != first.node.shape


def test_different_loops_are_different_nodes() -> None:
    _, edges, roots = world()

    def named(one: str, two: str) -> Collection:
        return iterate(lambda x: {one: x[one].concat(x[two]).distinct(), two: x[two]}, {one: roots, two: roots})[one]

    def entered(delay: int) -> Collection:
        return roots.iterate(lambda x: x.concat(roots.enter_at(x, lambda c: pc.add(c["n"], delay))).distinct())

    several = [
        *(reach(edges, roots, rounds) for rounds in (None, 1, 2)),
        reach(edges.select(k="v", v="k"), roots),
        reach(edges, roots.distinct()),
        reach(edges, roots.negate()),
        *(halves(roots, by) for by in (2, 3)),
        *(halves(reach(edges, roots), by) for by in (2, 3)),
        *(nested(edges, roots, by) for by in (2, 3)),
        *(nested(edges, roots, 2, rounds) for rounds in (1, 2)),
        *(named(*names) for names in ("ab", "ba", "cd")),
        *(entered(delay) for delay in (0, 1)),
    ]
    assert len({query.node.digest for query in several}) == len(several)
    names = [{loop.id for loop in loop_nodes(query) if not loop.scope} for query in several]
    assert len(set().union(*names)) == len(several)  # two have two loops, one of them that of the first


def test_which_of_two_loops_a_variable_belongs_to_matters() -> None:
    """The same body but for whether the inner loop adds the outer variable or its own."""
    _, _, roots = world()

    def body(choose: Callable[[Collection, Collection], Collection]) -> Collection:
        return roots.iterate(
            lambda outer: outer.iterate(lambda inner: inner.concat(choose(outer.enter(inner), inner)).distinct())
        )

    one, two = body(lambda outer, inner: outer), body(lambda outer, inner: inner)
    assert one.node is not two.node
    assert one.node is body(lambda outer, inner: outer).node


# Shared between views.
@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_query_with_an_equal_loop_shares_the_dataflow(workers: int) -> None:
    engine, edges, roots = world(workers)
    fill(edges, roots)
    engine.advance()
    one = engine.install("one", nested(edges, roots))
    settle(engine)
    flows = set(cluster_of(engine).workers[0].flows)
    assert engine.explain(nested(edges, roots).arrange()).startswith("arrange by n  <- reused")
    assert engine.explain(nested(edges, roots, 3).arrange()).startswith("arrange by n  <- built")
    two = engine.install("two", nested(edges, roots))
    settle(engine)
    assert two.dataflow == one.dataflow and set(cluster_of(engine).workers[0].flows) == flows
    other = engine.install("other", nested(edges, roots, 3))
    assert other.dataflow != one.dataflow
    one.drop()
    edges.insert(pairs(*MORE))
    edges.remove(pairs((9, 10)))
    engine.advance()
    now = EDGES - {(9, 10)} | MORE
    assert read(two) == once(nested_from(now, ROOTS))
    assert read(other) == once(nested_from(now, ROOTS, 3))


def test_a_query_on_top_of_an_equal_loop_imports_it() -> None:
    engine, edges, roots = world()
    fill(edges, roots)
    engine.install("reached", reach(edges, roots).distinct())
    onward_again = onward(edges, reach(edges, roots).distinct()).distinct()
    assert "reduce with threshold  <- reused" in engine.explain(onward_again)
    view = engine.install("onward", onward_again)
    engine.advance()
    assert loops(view) == 0
    assert read(view) == once({v for k, v in EDGES if k in reached_from(EDGES, ROOTS)})


# Both in one plan.
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("workers", [1, 2])
def test_both_copies_of_a_loop_in_one_plan_are_computed_once(share: bool, workers: int) -> None:
    engine, edges, roots = world(workers, share)
    view = engine.install("twice", nested(edges, roots).concat(nested(edges, roots)))
    apart = engine.install("apart", nested(edges, roots).concat(nested(edges, roots, 3)))
    fill(edges, roots)
    engine.advance()
    two, three = nested_from(EDGES, ROOTS), nested_from(EDGES, ROOTS, 3)
    assert loops(view) == 3
    assert loops(apart) == 6
    assert read(view) == once(two, 2)
    assert read(apart) == {(n,): (n in two) + (n in three) for n in two | three}
    roots.remove({"n": [1]})
    engine.advance()
    assert read(view) == once(nested_from(EDGES, {6}), 2)


def test_equal_loops_inside_one_loop_are_one() -> None:
    engine, edges, roots = world()
    query = roots.iterate(lambda nodes: reach(edges, nodes).concat(reach(edges, nodes)).distinct())
    view = engine.install("view", query)
    fill(edges, roots)
    engine.advance()
    assert loops(view) == 2
    assert read(view) == once(reached_from(EDGES, ROOTS))


def test_equal_loops_inside_different_loops_are_not() -> None:
    """Their names are the same, but not the loops around them."""
    engine, edges, roots = world()
    one = roots.iterate(lambda nodes: reach(edges, nodes, 1), 2)
    two = roots.iterate(lambda nodes: reach(edges, nodes, 1), 3)
    inner = [[loop.id for loop in loop_nodes(query) if loop.scope] for query in (one, two)]
    assert inner[0] == inner[1] and len(inner[0]) == 1
    view = engine.install("view", one.concat(two))
    fill(edges, roots)
    engine.advance()
    assert loops(view) == 4
    near, far = reached_from(EDGES, ROOTS, 2), reached_from(EDGES, ROOTS, 3)
    assert near < far
    assert read(view) == {(n,): (n in near) + (n in far) for n in far}


def test_regression_a_loop_of_which_a_part_was_forgotten_is_made_whole() -> None:
    """One variable's result keeps the loop's node alive; the other's is made again, from another building."""
    engine, edges, roots = world()

    def build() -> dict[str, Collection]:
        return iterate(
            lambda x: {"a": x["a"].concat(onward(edges, x["a"])).distinct(), "b": x["a"].concat(x["b"]).distinct()},
            {"a": roots, "b": roots.negate()},
        )

    first = build()["a"]
    gc.collect()
    second = build()["b"]
    view = engine.install("view", first.concat(second))
    fill(edges, roots)
    engine.advance()
    assert loops(view) == 1
    assert read(view) == once(reached_from(EDGES, ROOTS), 2)


def test_a_variable_is_still_refused_outside_its_loop() -> None:
    _, edges, roots = world()
    kept: list[Any] = []

    def body(x: Collection) -> Collection:
        kept.append(x)
        return x.concat(onward(edges, x)).distinct()

    roots.iterate(body)
    with pytest.raises(SchemaError, match="outside"):
        roots.iterate(lambda x: x.concat(kept[0]).distinct())
