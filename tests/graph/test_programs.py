"""Graph programs equal networkx, or plain Python, at every epoch of graphs that change."""

from __future__ import annotations

import inspect
import itertools
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import graph
from ikebana.engine import Engine, View
from ikebana.errors import SchemaError
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from tests.graph.oracles import PROGRAMS, Edge, Rows, rows_of, weight
from tests.profiles import examples


class GraphRun:
    """An engine with changing edges and roots, their present values, and some programs."""

    def __init__(self, **options: Any) -> None:
        kind, weight_kind = options.pop("kind", pa.int64()), options.pop("weight_kind", pa.int64())
        self.engine = Engine(**options)
        columns = {"src": kind, "dst": kind, "weight": weight_kind}
        self.edge_input = self.engine.input("edges", columns, key="src")
        self.root_input = self.engine.input("roots", {"node": kind})
        self.edges: set[Edge] = set()
        self.roots: set[int] = set()
        self.views: dict[str, View] = {}

    def install(self, *names: str) -> None:
        for name in names:
            plan = PROGRAMS[name].plan(self.edge_input, self.root_input)
            self.views[name] = self.engine.install(name, plan)

    def toggle(self, edges: set[Edge], roots: set[int] = frozenset()) -> None:
        """One epoch: edges and roots that exist are removed, others are inserted."""
        for change, chosen in ((1, edges - self.edges), (-1, edges & self.edges)):
            rows = sorted(chosen)
            data = {"src": [a for a, _ in rows], "dst": [b for _, b in rows], "weight": [weight(row) for row in rows]}
            self.edge_input.push(data, change)
        self.root_input.insert({"node": sorted(roots - self.roots)})
        self.root_input.remove({"node": sorted(roots & self.roots)})
        self.edges ^= edges
        self.roots ^= roots
        self.engine.advance()

    def result(self, name: str) -> Rows:
        return rows_of(self.views[name].read())

    def check(self) -> None:
        for name in self.views:
            assert self.result(name) == PROGRAMS[name].rows(self.edges, self.roots), name


NODES = st.integers(0, 6)
CHANGES = st.tuples(st.sets(st.tuples(NODES, NODES), max_size=10), st.sets(NODES, max_size=2), st.booleans())


@examples(1, quick=0.6)
@given(
    names=st.lists(st.sampled_from(sorted(PROGRAMS)), min_size=1, max_size=3, unique=True),
    epochs=st.lists(CHANGES, min_size=1, max_size=4),
    installed=st.integers(0, 2),
    workers=st.integers(1, 3),
    seed=st.integers(0, 99),
    kind=st.sampled_from([pa.int32(), pa.int64()]),
)
def test_oracle_changing_graphs(
    names: list[str],
    epochs: list[tuple[set[Edge], set[int], bool]],
    installed: int,
    workers: int,
    seed: int,
    kind: pa.DataType,
) -> None:
    """Several epochs, read at some: a sweep then covers those in between. The last program is installed late."""
    world = GraphRun(workers=workers, seed=seed, kind=kind)
    world.install(*names[:-1])
    for at, (edges, roots, read) in enumerate(epochs):
        if at == installed:
            world.install(names[-1])
        world.toggle(edges, roots)
        if read:
            world.check()
    world.check()


def both_ways(edges: list[Edge]) -> list[Edge]:
    return edges + [(b, a) for a, b in edges]


CLASSICS: dict[str, list[Edge]] = {
    "empty": [],
    "one loop": [(3, 3)],
    "chain": [(n, n + 1) for n in range(9)],
    "chain downward": [(n + 1, n) for n in range(9)],
    "cycle": [(n, (n + 1) % 7) for n in range(7)],
    "two cycles and a bridge": [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)],
    "star outward": [(0, n) for n in range(1, 9)],
    "star inward": [(n, 0) for n in range(1, 9)],
    "complete": [(a, b) for a in range(5) for b in range(5) if a != b],
    "grid": [(4 * y + x, 4 * y + x + 1) for y in range(4) for x in range(3)] + [(n, n + 4) for n in range(12)],
    "tree": [(n, 2 * n + side) for n in range(1, 8) for side in (0, 1)],
    "two components": [*both_ways([(1, 2), (2, 3), (3, 1)]), (7, 8), (8, 9)],
    "loops on every node": [(n, n) for n in range(4)] + [(0, 1), (1, 2), (2, 3)],
    "negative and large numbers": [(-5, 2**30), (2**30, 7), (7, -5), (2**30, 0)],
}


@pytest.mark.parametrize("name", CLASSICS)
def test_oracle_classic_graphs(name: str) -> None:
    """All programs at once, on one engine: the graph, then without an edge of its middle, then with it again."""
    edges = CLASSICS[name]
    world = GraphRun()
    world.install(*PROGRAMS)
    world.toggle(set(edges), {min((a for a, _ in edges), default=0)})
    world.check()
    middle = set(edges[len(edges) // 2 :][:1])
    for _ in range(2):
        world.toggle(middle)
        world.check()


NESTED = {"strongly"}
"""Programs with loops in loops: a change of a graph with hundreds of nodes takes them a second or more."""


@pytest.mark.parametrize(
    ("names", "nodes"),
    [(PROGRAMS.keys() - {"closure", "generation"} - NESTED, 150), (NESTED, 45)],
    ids=["flat", "nested"],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_oracle_random_graph(names: set[str], nodes: int, workers: int) -> None:
    """Many nodes and many epochs: batches merge, and history is compacted."""
    chance = random.Random(7)
    pairs = list(itertools.product(range(nodes), repeat=2))
    world = GraphRun(workers=workers, kind=pa.int32())
    world.install(*sorted(names))
    world.toggle(set(chance.sample(pairs, 5 * nodes // 3)), {0})
    for _ in range(8 // workers):
        gone = set(chance.sample(sorted(world.edges), 3))
        world.toggle(gone | set(chance.sample(pairs, 3)))
        world.check()


def test_invariance_duplicates_do_not_matter_where_programs_say_so() -> None:
    once, twice = GraphRun(), GraphRun()
    names = ("reach", "hops", "connected", "strongly", "closure", "generation", "core 2")
    for world in (once, twice):
        world.install(*names)
        world.toggle(set(CLASSICS["two cycles and a bridge"]), {0})
    rows = sorted(twice.edges)
    data = {"src": [a for a, _ in rows], "dst": [b for _, b in rows], "weight": [9] * len(rows)}
    twice.edge_input.insert(data)
    twice.engine.advance()
    for name in names:
        assert once.result(name) == twice.result(name), name
    twice.edge_input.remove(data)
    twice.engine.advance()
    twice.check()


# Plans.


def arrangements(plan: ir.Node) -> tuple[list[str], list[str]]:
    """The arrangements of a plan outside and inside loops, by their key columns."""
    keys = [(node.scope, ",".join(node.key)) for node in walk(plan) if isinstance(node, ir.Arrange)]
    return [key for scope, key in keys if not scope], [key for scope, key in keys if scope]


@pytest.mark.parametrize(
    ("name", "outside", "inside"),
    [
        ("reach", ["src"], ["node"]),
        ("hops", ["src"], ["node"]),
        ("connected", ["src", "dst"], ["node"]),
        ("ranks", ["node", "src", "node"], ["node"]),
        ("core 2", ["src"], ["node"]),
        ("closure", ["src"], ["dst"]),
    ],
)
def test_plans_index_nothing_twice(name: str, outside: list[str], inside: list[str]) -> None:
    """A loop indexes only the offers: the output of the reduction is joined directly, the edges come from outside."""
    world = GraphRun()
    plan = PROGRAMS[name].plan(world.edge_input, world.root_input).node
    keys = arrangements(plan)
    assert (sorted(keys[0]), sorted(keys[1])) == (sorted(outside), sorted(inside))


def test_programs_share_the_index_of_the_edges() -> None:
    world = GraphRun()
    explained = world.engine.explain(graph.reach(world.edge_input, world.root_input))
    assert "arrange by src  <- reused" in explained
    assert "arrange by node  <- built" in explained


def test_dropped_programs_leave_only_the_inputs() -> None:
    world = GraphRun(workers=2)
    world.install(*PROGRAMS)
    world.toggle(set(CLASSICS["grid"]), {0})
    world.check()
    for view in world.views.values():
        view.drop()
    world.engine.run()
    assert all(set(worker.flows) == {"input edges", "input roots"} for worker in world.engine.cluster.workers)


def test_columns_are_checked() -> None:
    engine = Engine()
    wrong = engine.input("wrong", {"src": pa.int64(), "dst": pa.string()})
    for program in (graph.degrees, graph.connected_components, graph.transitive_closure):
        with pytest.raises(SchemaError, match="same type"):
            program(wrong)
    with pytest.raises(SchemaError, match="rounds"):
        graph.pagerank_units(engine.input("edges", {"src": pa.int64(), "dst": pa.int64()}), 0)


# Small changes.

AS_PROGRAMS = [
    *("connected_components", "degrees", "reach", "same_generation", "shortest_paths", "transitive_closure"),
]
"""Those without loops in loops, whose steps all have instructions."""


@pytest.mark.usefixtures("small_sweeps_are_programs")
@pytest.mark.parametrize(
    ("name", "further"),
    [*((name, ()) for name in AS_PROGRAMS), ("shortest_paths", ("weight",))],
)
def test_small_changes_run_as_programs(name: str, further: tuple[str, ...]) -> None:
    """Each of them, in the dataflow of the graph program and in that of the edges."""
    program = getattr(graph, name)
    world = GraphRun(kind=pa.int32(), weight_kind=pa.int32())
    inputs = {"edges": world.edge_input, "roots": world.root_input}
    given_inputs = [inputs[argument] for argument in inspect.signature(program).parameters if argument in inputs]
    world.views[name] = view = world.engine.install(name, program(*given_inputs, *further))
    world.toggle(set(CLASSICS["two cycles and a bridge"]), {0})
    first = world.result(name)
    (worker,) = world.engine.cluster.workers
    flow, edges = worker.flows[view.dataflow], worker.flows["input edges"]
    for turn, change in enumerate([{(2, 3)}, {(5, 1), (1, 2)}, {(5, 1), (1, 2)}, {(2, 3)}]):
        world.toggle(change)
        result = world.result(name)
        assert (flow.programs_run, edges.programs_run) == (turn + 1, turn + 1)
    assert first and result == first
