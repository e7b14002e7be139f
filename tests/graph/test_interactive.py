"""Interactive graph queries equal a breadth-first search from scratch, after every change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine
from ikebana.errors import DroppedError, SchemaError
from ikebana.graph import interactive
from ikebana.graph.graph_queries import GraphQuery
from ikebana.graph.interactive import Interactive
from ikebana.runtime import program
from ikebana.runtime.dataflow import Dataflow
from tests.dataflow.harness import cluster_of
from tests.profiles import examples

Edge = tuple[int, int]

IDS = {
    "int32": (pa.int32(), int),
    "int64": (pa.int64(), lambda node: node * 3_000_000_000 - 1),
    "string": (pa.string(), lambda node: f"node {node}"),
}
"""Types of ids, and how a test's nodes are written in them."""


class World:
    """An engine with a graph and all queries of it, the present edges, and the answers that are open."""

    def __init__(
        self, ids: str = "int64", nullable: bool = False, hops: int = 4, share: bool = True, **options: Any
    ) -> None:
        kind, self.id = IDS[ids]
        self.engine, self.hops = Engine(**options), hops
        fields = [pa.field(name, kind, nullable) for name in ("src", "dst")]
        self.input = self.engine.input("edges", fields, key="src")
        self.edges: Counter[Edge] = Counter()
        queries = Interactive(self.engine, self.input, share=share)
        self.look_up, self.neighbours, self.two_hops = queries.look_up(), queries.neighbours(), queries.two_hops()
        self.paths = queries.shortest_path(hops)
        self.open: list[tuple[str, tuple[int, ...], Any]] = []

    def change(self, changes: Counter[Edge]) -> None:
        """One epoch of changes of multiplicities."""
        rows = sorted(changes)
        data = {"src": [self.id(a) for a, _ in rows], "dst": [self.id(b) for _, b in rows]}
        self.input.push(data, [changes[row] for row in rows])
        self.engine.advance()
        self.edges.update(changes)

    def toggle(self, edges: set[Edge]) -> None:
        """Insert edges; of those that exist, one copy is removed instead."""
        self.change(Counter({edge: -1 if self.edges[edge] > 0 else 1 for edge in edges}))

    def arguments(self, name: str, nodes: tuple[int, ...]) -> dict[str, Any]:
        names = ("source", "target") if name == "paths" else ("node",)
        return {name: self.id(node) for name, node in zip(names, nodes, strict=False)}

    def show(self, name: str, nodes: tuple[int, ...]) -> None:
        """Open an answer."""
        self.open.append((name, nodes, getattr(self, name).open(self.arguments(name, nodes))))

    def successors(self, nodes: set[int]) -> set[int]:
        return {b for (a, b), count in self.edges.items() if count > 0 and a in nodes}

    def expected(self, name: str, nodes: tuple[int, ...]) -> list[Any]:
        """The answer, computed from scratch."""
        first = {nodes[0]}
        if name == "look_up":
            count = sum(count for (a, _), count in self.edges.items() if a == nodes[0])
            return [count] if count else []
        if name != "paths":
            reached = self.successors(first)
            return sorted(map(self.id, self.successors(reached) if name == "two_hops" else reached))
        reached = first
        for length in range(self.hops + 1):
            if nodes[1] in reached:
                return [length]
            reached = self.successors(reached)
        return []

    def check(self) -> None:
        for name, nodes, answer in self.open:
            expected = self.expected(name, nodes)
            assert sorted(answer.to_arrow().column(0).to_pylist()) == expected, (name, nodes)
            rows = getattr(self, name).read(self.arguments(name, nodes))
            assert sorted(rows.column(0).to_pylist()) == expected, (name, nodes)
            if name == "paths":
                self.check_path(nodes, answer.path(), answer.length())

    def check_path(self, nodes: tuple[int, ...], path: list[Any] | None, length: int | None) -> None:
        if length is None:
            assert path is None
            return
        assert path is not None and len(path) == length + 1
        assert (path[0], path[-1]) == (self.id(nodes[0]), self.id(nodes[1]))
        present = {(self.id(a), self.id(b)) for (a, b), count in self.edges.items() if count > 0}
        assert set(pairwise(path)) <= present


NODES = st.integers(0, 7)
QUERIES = st.tuples(st.sampled_from(["look_up", "neighbours", "two_hops", "paths"]), st.tuples(NODES, NODES))
EPOCHS = st.lists(
    st.tuples(st.sets(st.tuples(NODES, NODES), max_size=10), st.lists(QUERIES, max_size=3), st.booleans()),
    min_size=1,
    max_size=5,
)


@examples(1, quick=0.5)
@given(
    epochs=EPOCHS,
    workers=st.integers(1, 3),
    ids=st.sampled_from(sorted(IDS)),
    nullable=st.booleans(),
    hops=st.integers(1, 7),
    seed=st.integers(0, 99),
)
def test_oracle_changing_graphs(
    epochs: list[tuple[set[Edge], list[tuple[str, tuple[int, int]]], bool]],
    workers: int,
    ids: str,
    nullable: bool,
    hops: int,
    seed: int,
) -> None:
    """Answers are opened, read, and now and then closed, while edges appear, twice if need be, and disappear."""
    world = World(ids, nullable, hops, workers=workers, seed=seed)
    for edges, queries, closes in epochs:
        world.toggle(edges)
        for name, nodes in queries:
            world.show(name, nodes)
        if closes and world.open:
            world.open.pop(0)[2].close()
        world.check()


@pytest.mark.parametrize("ids", sorted(IDS))
def test_oracle_random_graph(ids: str) -> None:
    """A graph with hundreds of nodes; answers opened by `open_many` and as a set."""
    world, numbers = World(ids, workers=2), random.Random(3)
    pick = lambda: numbers.randrange(120)  # noqa: E731
    world.change(Counter((pick(), pick()) for _ in range(300)))
    for name in ("look_up", "neighbours", "two_hops", "paths"):
        chosen = [(pick(), pick()) for _ in range(10)]
        answers = getattr(world, name).open_many([world.arguments(name, nodes) for nodes in chosen])
        world.open += [(name, nodes, answer) for nodes, answer in zip(chosen, answers, strict=True)]
    for _ in range(3):
        world.check()
        world.toggle({(pick(), pick()) for _ in range(30)} | set(list(world.edges)[:10]))
    world.check()


def sets_of(world: World, name: str, chosen: list[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
    """The rows that a set of answers should have: arguments and answer."""
    for nodes in chosen:
        arguments = tuple(world.arguments(name, nodes).values())
        yield from ((*arguments, value) for value in world.expected(name, nodes))


def test_oracle_sets_of_answers() -> None:
    world, numbers = World(), random.Random(4)
    pick = lambda: numbers.randrange(50)  # noqa: E731
    world.change(Counter((pick(), pick()) for _ in range(150)))
    for name in ("look_up", "neighbours", "two_hops", "paths"):
        query = getattr(world, name)
        chosen = [(pick(), pick()) for _ in range(40)]
        arguments = [world.arguments(name, nodes) for nodes in chosen]
        answers = query.open_columns(pa.Table.from_pylist(arguments))
        other = query.open_columns({key: [row[key] for row in arguments[:3]] for key in arguments[0]})
        for _ in range(2):
            world.toggle({(pick(), pick()) for _ in range(30)})
            for opened, nodes in ((answers, chosen), (other, chosen[:3])):
                rows = list(zip(*opened.to_arrow().to_pydict().values(), strict=True))
                assert sorted(rows) == sorted(sets_of(world, name, nodes))
        once = query.read_columns({key: [row[key] for row in arguments] for key in arguments[0]})
        assert set(zip(*once.to_pydict().values(), strict=True)) == set(sets_of(world, name, chosen))
        other.close()
        other.close()
        assert len(answers) == 40 and answers.to_arrow().num_rows
        with pytest.raises(DroppedError):
            other.to_arrow()
        assert not len(query.open_columns(pa.Table.from_pylist(arguments)[:0]).to_arrow())


def test_edges_inserted_twice() -> None:
    """An edge that was inserted twice and removed once is still there."""
    world = World()
    for name, nodes in (("look_up", (1,)), ("neighbours", (1,)), ("two_hops", (1,)), ("paths", (1, 3))):
        world.show(name, nodes)
    world.change(Counter({(1, 2): 2, (2, 3): 3}))
    world.check()
    world.change(Counter({(1, 2): -1, (2, 3): -2}))
    world.check()
    assert world.open[-1][2].length() == 2
    world.change(Counter({(1, 2): -1}))
    world.check()
    assert world.open[-1][2].length() is None


def test_changes_of_an_answer() -> None:
    world = World()
    with world.paths.open(world.arguments("paths", (1, 3))) as answer:
        changes = answer.changes("now", timeout=5)
        for change in ({(1, 2): 1, (2, 3): 1}, {(1, 3): 1}, {(5, 6): 1}, {(1, 3): -1}):
            world.change(Counter(change))
        shown = [next(changes)[1].to_pylist() for _ in range(3)]
        assert [sorted((row["length"], row["diff"]) for row in rows) for rows in shown] == [
            [(2, 1)],
            [(1, 1), (2, -1)],
            [(1, -1), (2, 1)],
        ]


def test_nulls_in_edges_are_ignored() -> None:
    """Null is not a node: no path leads through it."""
    engine = Engine()
    edges = engine.input("edges", [pa.field("src", pa.int64(), True), pa.field("dst", pa.int64(), True)])
    queries = Interactive(engine, edges)
    edges.insert({"src": [1, None, 1, 2], "dst": [None, 3, 2, None]})
    engine.advance()
    assert queries.neighbours().read(node=1)["node"].to_pylist() == [2]
    assert queries.neighbours().open(node=1).to_arrow()["node"].to_pylist() == [2]
    assert queries.neighbours().read_columns({"node": [1]}).to_pydict() == {"of_node": [1], "node": [2]}
    assert queries.two_hops().read(node=1)["node"].to_pylist() == []
    answer = queries.shortest_path().open(source=1, target=3)
    assert answer.length() is None and answer.path() is None


def test_vertices_are_looked_up() -> None:
    engine = Engine()
    edges = engine.input("edges", {"src": pa.string(), "dst": pa.string()})
    people = engine.table("people", {"id": pa.string(), "age": pa.int64(), "town": pa.string()}, key="id")
    query = Interactive(engine, edges, vertices=people).look_up()
    answer = query.open(node="ann")
    people.insert({"id": ["ann", "bob"], "age": [30, 40], "town": ["Bern", "Rome"]})
    assert answer.to_arrow().to_pylist() == query.read(node="ann").to_pylist() == [{"age": 30, "town": "Bern"}]
    assert query.read(node="cid").num_rows == 0
    rows = query.read_columns({"node": ["ann", "cid", "ann"]})
    assert rows.to_pylist() == [{"node": "ann", "age": 30, "town": "Bern"}]
    named = Interactive(engine, edges, vertices=people.select("id", node="town")).look_up()
    assert named.read_columns({"node": ["ann"]}).to_pylist() == [{"of_node": "ann", "node": "Bern"}]
    assert named.open_columns({"node": ["ann"]}).to_arrow().to_pylist() == [{"of_node": "ann", "node": "Bern"}]


def test_edges_with_further_columns() -> None:
    """Edges that differ in other columns are several edges to one neighbour."""
    engine = Engine()
    edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64(), "weight": pa.int64()}, key="src")
    queries = Interactive(engine, edges)
    edges.insert({"src": [1, 1, 2], "dst": [2, 2, 3], "weight": [5, 6, 7]})
    engine.advance()
    assert queries.look_up().read(node=1).to_pydict() == {"edges": [2]}
    assert queries.neighbours().read(node=1).to_pydict() == {"node": [2]}
    assert queries.neighbours().read_columns({"node": [1]}).to_pydict() == {"of_node": [1], "node": [2]}
    assert queries.neighbours().open(node=1).to_arrow().to_pydict() == {"node": [2]}
    assert queries.shortest_path().open(source=1, target=3).path() == [1, 2, 3]


# Sharing.


def test_five_uses_of_two_indexes() -> None:
    """The queries read two indexes of the edges, and store nothing that grows with the graph."""
    world, numbers = World("int32"), random.Random(1)
    world.change(Counter((numbers.randrange(5_000), numbers.randrange(5_000)) for _ in range(20_000)))
    for name in ("look_up", "neighbours", "two_hops", "paths"):
        world.show(name, (1, 2))
    world.check()
    views = {world.look_up.name, world.neighbours.name, world.two_hops.name, world.paths.name}
    catalog, status = world.engine.catalog, world.engine.status()
    uses = {
        flow: {user.name for user in catalog.users_of(flow) if user.kind == "view" and user.name in views}
        for flow in catalog.dataflows()
        if not {user.name for user in catalog.owners_of(flow)} & views
    }
    assert sorted(len(users) for users in uses.values()) == [1, 4]
    sizes = {flow: sum(one.bytes + one.inner_bytes for one in status if one.dataflow == flow) for flow in uses}
    others = sum(one.bytes + one.inner_bytes for one in status if one.dataflow not in uses)
    assert min(sizes.values()) > 100_000 > others


def test_without_sharing_every_join_has_an_index() -> None:
    world, numbers = World("int32", share=False), random.Random(1)
    world.change(Counter((numbers.randrange(5_000), numbers.randrange(5_000)) for _ in range(20_000)))
    for name in ("look_up", "neighbours", "two_hops", "paths"):
        world.show(name, (1, 2))
    world.engine.wait()
    sizes = {one.dataflow: one.bytes + one.inner_bytes for one in world.engine.status()}
    index = sizes.pop("input edges")
    assert 7 < sum(sizes.values()) / index < 9


def flow_of(world: World, query: GraphQuery[Any]) -> Dataflow:
    """The dataflow of a query, on the only worker."""
    (worker,) = cluster_of(world.engine).workers
    return worker.flows[query._view.dataflow]


@pytest.mark.usefixtures("small_sweeps_are_programs")
@pytest.mark.parametrize("ids", sorted(IDS))
@pytest.mark.parametrize("name", ["look_up", "neighbours", "two_hops", "paths"])
def test_openings_and_changes_run_as_programs(name: str, ids: str) -> None:
    world = World(ids)
    world.change(Counter({(1, 2): 1, (2, 3): 1, (3, 4): 1}))
    world.show(name, (1, 4))
    world.check()
    query = getattr(world, name)
    flow = flow_of(world, query)
    before = flow.programs_run, flow.sweeps
    world.show(name, (2, 3))
    query.wait()
    world.change(Counter({(2, 3): -1, (2, 4): 1}))
    query.wait()
    ran, swept = flow.programs_run - before[0], flow.sweeps - before[1]
    assert ran == swept >= 2


def test_large_openings_are_visited() -> None:
    """A program is left to visits where it has had many rows for each argument, and runs again for few arguments."""
    world, numbers = World("int32"), random.Random(1)
    world.change(Counter((numbers.randrange(300), numbers.randrange(300)) for _ in range(2_000)))
    query = world.two_hops
    query.open(node=1)
    query.wait()
    flow = flow_of(world, query)
    with patch.object(program, "FUSE", "small"):
        ran = []
        for size in (50, 50, 200, 200, 1):
            before = flow.programs_run, flow.sweeps
            query.open_columns({"node": list(range(size))})
            query.wait()
            ran.append((flow.programs_run - before[0]) / (flow.sweeps - before[1]))
    assert ran[2:] == [0, 0, 1]


# Arguments.


def test_wrong_arguments() -> None:
    world = World()
    for hops in (0, -3, "four"):
        with pytest.raises(SchemaError, match=r"`hops` must be at least 1"):
            Interactive(world.engine, world.input).shortest_path(hops)  # type: ignore[arg-type]
    for query, values, message in (
        (world.neighbours, {"node": None}, "null"),
        (world.neighbours, {"node": "ann"}, "node"),
        (world.neighbours, {"source": 1}, "its parameters are node"),
        (world.paths, {"source": 1}, "its parameters are source, target"),
        (world.paths, {"source": 1, "target": 2.5}, "target"),
    ):
        for call in (query.open, query.read):
            with pytest.raises(SchemaError, match=message):
                call(values)
        with pytest.raises(SchemaError, match=message):
            query.open_columns({key: [value] for key, value in values.items()})
    assert world.neighbours.read(node=77).num_rows == 0
    assert world.paths.open(source=77, target=78).length() is None
    assert world.paths.open(source=77, target=77).path() == [77]


def test_wrong_graphs() -> None:
    engine = Engine()
    pairs = engine.input("pairs", {"a": pa.int64(), "b": pa.int64()})
    mixed = engine.input("mixed", {"src": pa.int64(), "dst": pa.string()})
    people = engine.input("people", {"id": pa.string()})
    with pytest.raises(SchemaError, match="no column 'src'"):
        Interactive(engine, pairs)
    with pytest.raises(SchemaError, match="same type"):
        Interactive(engine, mixed)
    with pytest.raises(SchemaError, match="same type"):
        Interactive(engine, pairs.select(src="a", dst="b"), vertices=people)


def test_closing_releases_everything() -> None:
    world = World()
    answer, answers = world.paths.open(source=1, target=2), world.paths.open_columns({"source": [1], "target": [2]})
    world.show("neighbours", (1,))
    world.check()
    answer.path()
    for query in (world.look_up, world.neighbours, world.two_hops, world.paths):
        query.close()
        query.close()
    assert list(world.engine.views) == list(world.engine.tables) == []
    assert len(world.engine.catalog.dataflows()) == 1
    with pytest.raises(DroppedError):
        world.paths.open(source=1, target=2)
    with pytest.raises(DroppedError):
        answers.to_arrow()


def test_numbers_of_32_bits_are_used_again() -> None:
    """Numbers of bindings start again from the beginning, without those that are open."""
    with patch.object(interactive, "_MOST_SMALL_NUMBERS", 8):
        world = World("int32")
        world.change(Counter({(1, 2): 1, (2, 3): 1}))
        kept = world.paths.open(source=1, target=3)
        with world.paths.open_columns({"source": [1, 2], "target": [2, 2]}) as answers:
            for _ in range(12):
                with world.paths.open(source=2, target=3) as answer:
                    assert answer.length() == 1
            assert answers.to_arrow()["length"].to_pylist() == [1, 0]
        assert kept.length() == 2
