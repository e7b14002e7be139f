"""`Graph`: programs over ids of any type, with vertices of their own; bad arguments."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import networkx as nx
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import graph
from ikebana.engine import Engine, View
from ikebana.engine.collection import Collection
from ikebana.errors import EvaluationError, SchemaError
from ikebana.expressions import Column, ColumnBatch
from ikebana.expressions.core.builders import positive_hash
from ikebana.graph import Graph
from tests.graph import library
from tests.graph.library import Row, State
from tests.graph.oracles import Edge, named, weight
from tests.graph.test_library import EDGES, NODES, rows_of
from tests.profiles import examples

KINDS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int16": (pa.int16(), lambda node: node - 3),
    "uint64": (pa.uint64(), lambda node: 2**63 + node),
    "string": (pa.string(), lambda node: f"node {node}"),
    "decimal": (pa.decimal128(30, 2), lambda node: node),
    "date": (pa.date32(), lambda node: datetime.date(2020, 1, 1 + node)),
}
"""Types of ids, and ids in the order of small integers."""

METHODS: dict[str, tuple[Callable[[Graph, Collection], Collection], Callable[[State], set[Row]]]] = {
    "degrees": (lambda g, roots: g.degrees(), library.degrees),
    "reach": (lambda g, roots: g.reach(roots), lambda s: {row[:1] for row in _nearest(s)}),
    "distances": (lambda g, roots: g.distances(roots, "weight"), lambda s: _nearest(s)),
    "shortest_paths": (
        lambda g, roots: g.shortest_paths(roots),
        lambda s: {row for row in library.distances(s, None) if row[1] in s.directed},
    ),
    "connected": (lambda g, roots: g.connected_components(), lambda s: named(nx.connected_components(s.simple))),
    "strongly": (lambda g, roots: g.strongly_connected_components(), library.strongly_connected),
    "core_number": (lambda g, roots: g.core_number(), lambda s: set(nx.core_number(s.simple).items())),
    "k_core": (lambda g, roots: g.k_core(2), lambda s: {(node,) for node in nx.k_core(s.simple, 2)}),
    "k_truss": (lambda g, roots: g.k_truss(3), lambda s: library.truss(s, 3)),
    "pagerank": (lambda g, roots: g.pagerank(tolerance=1e-12, max_iterations=300), library.ranks),
    "triangles": (lambda g, roots: g.triangle_count(), lambda s: set(nx.triangles(s.simple).items())),
    "clustering": (lambda g, roots: g.clustering(), lambda s: library.rounded(nx.clustering(s.simple).items())),
    "common": (lambda g, roots: g.common_neighbors(), lambda s: library.common(s, None)),
    "jaccard": (lambda g, roots: g.jaccard(), lambda s: library.jaccard(s, None)),
}
"""Methods, given a graph and nodes that are arguments, and the expected rows."""

ID_COLUMNS = {"node", "landmark", "component", "src", "dst"}


def _nearest(state: State) -> set[Row]:
    network, roots = state.directed, state.roots & set(state.directed)
    return set(nx.multi_source_dijkstra_path_length(network, roots).items()) if roots else set()


class GraphOfKind:
    """A graph whose ids are of some type, over a table of vertices and a table of edges with properties."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.kind, self.id_of = KINDS[kind]
        self.node_of = {self.id_of(node): node for node in range(10)}
        self.engine, self.state, self.views = Engine(**options), State(), dict[str, View]()
        nullable = pa.field("who", self.kind)
        self.edges = self.engine.table(
            "edges", [pa.field("note", pa.string()), nullable, pa.field("whom", self.kind), ("weight", pa.int32())]
        )
        self.vertices = self.engine.table("vertices", [pa.field("name", self.kind)])
        self.roots = self.engine.table("roots", {"id": self.kind})
        self.graph = Graph(self.vertices, self.edges, src="who", dst="whom", id="name")

    def install(self, *names: str) -> None:
        for name in names:
            self.views[name] = self.engine.install(name, METHODS[name][0](self.graph, self.roots))

    def ids(self, nodes: list[int]) -> list[Any]:
        return [self.id_of(node) for node in nodes]

    def change(self, edges: dict[Edge, int], nodes: set[int], roots: set[int]) -> None:
        """One transaction; rows with null ids come along."""
        state = self.state
        with self.engine.transaction():
            for edge, count in edges.items():
                difference = count - state.edges[edge]
                rows = self._edge_rows([edge] * abs(difference))
                (self.edges.insert if difference > 0 else self.edges.delete)(rows)
            self.edges.insert(self._edge_rows([(0, 1)], source=None))
            for table, present, toggled, name in (
                (self.vertices, state.nodes, nodes, "name"),
                (self.roots, state.roots, roots, "id"),
            ):
                table.insert({name: self.ids(sorted(toggled - present))})
                table.delete({name: self.ids(sorted(toggled & present))})
            self.vertices.insert({"name": [None]})
        state.edges = +Counter({**state.edges, **edges})
        state.nodes, state.roots = state.nodes ^ nodes, state.roots ^ roots

    def _edge_rows(self, edges: list[Edge], **ends: Any) -> dict[str, list[Any]]:
        source = [ends["source"]] if "source" in ends else self.ids([a for a, _ in edges])
        return {
            "note": [None] * len(edges),
            "who": source,
            "whom": self.ids([b for _, b in edges]),
            "weight": list(map(weight, edges)),
        }

    def check(self) -> None:
        for name, view in self.views.items():
            assert self.rows(view.read()) == METHODS[name][1](self.state), name

    def rows(self, table: pa.Table) -> set[Row]:
        """The rows of a result, with small integers as ids."""
        is_id = [name in ID_COLUMNS for name in table.column_names]
        return {
            tuple(self.node_of[value] if id_ else value for value, id_ in zip(row, is_id, strict=False))
            for row in rows_of(table)
        }


@examples(1, quick=0.4)
@given(
    names=st.lists(st.sampled_from(sorted(METHODS)), min_size=1, max_size=2, unique=True),
    kind=st.sampled_from(sorted(KINDS)),
    epochs=st.lists(st.tuples(EDGES, st.sets(NODES, max_size=3), st.sets(NODES, max_size=2)), min_size=1, max_size=3),
    workers=st.integers(1, 3),
)
def test_oracle_ids_of_any_type(
    names: list[str], kind: str, epochs: list[tuple[dict[Edge, int], set[int], set[int]]], workers: int
) -> None:
    world = GraphOfKind(kind, workers=workers)
    world.install(*names)
    for edges, nodes, roots in epochs:
        world.change(edges, nodes, roots)
        world.check()


def test_oracle_all_methods_over_strings() -> None:
    """All methods on one engine, and many small changes; a view that is dropped in between leaves the others alone."""
    chance, world = random.Random(5), GraphOfKind("string")
    world.install(*METHODS)
    for _ in range(4):
        edges = {(chance.randrange(9), chance.randrange(9)): chance.choice([0, 1, 1, 2]) for _ in range(12)}
        world.change(edges, {chance.randrange(10)}, {chance.randrange(10)})
        world.check()
    world.views.pop("jaccard").drop()
    world.change({(0, 1): 1, (1, 2): 1}, set(), {3})
    world.check()


@pytest.mark.parametrize("kind", ["int16", "string"])
def test_oracle_choices_among_equals(kind: str) -> None:
    """Paths and communities depend on an order of nodes: that of ids, or of their hashes."""
    world = GraphOfKind(kind)
    g = world.graph
    bfs = world.engine.install("bfs", g.bfs(world.roots, g.vertices.select("id")))
    labels = world.engine.install("labels", g.label_propagation(3))
    chance = random.Random(8)
    for _ in range(3):
        edges = {(chance.randrange(7), chance.randrange(7)): chance.choice([0, 1, 2]) for _ in range(9)}
        world.change(edges, {chance.randrange(9)}, {chance.randrange(7)})
        order = _order(world)
        state = State(
            Counter({(order[a], order[b]): count for (a, b), count in world.state.edges.items()}),
            {order[node] for node in world.state.nodes},
            {order[node] for node in world.state.roots & set(world.state.directed)},
        )
        nodes = {number: world.id_of(node) for node, number in order.items()}
        expected = {
            (nodes[a], nodes[b], length, tuple(nodes[node] for node in path))
            for a, b, length, path in library.bfs(state, None)
        }
        assert rows_of(bfs.read()) == expected
        assert rows_of(labels.read()) == {(nodes[a], nodes[b]) for a, b in library.communities(state, 3)}


def _order(world: GraphOfKind) -> dict[int, int]:
    """The numbers by which nodes are ordered."""
    if world.kind != pa.string():
        return {node: node for node in range(10)}
    ids = pa.array(world.ids(list(range(10))), world.kind)
    hashes = positive_hash(Column(world.kind, False, "id")).evaluate(ColumnBatch.from_columns({"id": ids}))
    return dict(enumerate(hashes.to_pylist()))


def test_arguments_may_be_lists() -> None:
    world = GraphOfKind("string")
    g, install = world.graph, world.engine.install
    world.change({(0, 1): 1, (1, 2): 1, (2, 0): 1, (2, 3): 1}, {5}, set())
    assert rows_of(install("reach", g.reach(["node 3", "nobody"])).read()) == {("node 3",)}
    path = install("bfs", g.bfs(["node 0"], ["node 3"], max_path_length=3)).read()["path"].to_pylist()
    assert path == [["node 0", "node 1", "node 2", "node 3"]]
    assert install("far", g.bfs(["node 0"], ["node 3"], max_path_length=2)).read().num_rows == 0
    pairs = install("pairs", g.jaccard([("node 0", "node 3"), ("node 3", "node 5")]))
    assert {row[2:] for row in rows_of(pairs.read())} == {(1, 0.5), (0, 0.0)}
    common = install("common", g.common_neighbors([("node 3", "node 0")]))
    assert rows_of(common.read()) == {("node 3", "node 0", "node 2")}
    ranks = install("ranks", g.pagerank(personalization={"node 5": 1.0}))
    assert {node for node, rank in rows_of(ranks.read()) if rank > 0.99} == {"node 5"}
    assert {row[0] for row in rows_of(install("in", g.in_degrees()).read()) if not row[1]} == {"node 5"}
    assert {row[0] for row in rows_of(install("out", g.out_degrees()).read()) if not row[1]} == {"node 3", "node 5"}


def test_graphs_over_views_without_vertices() -> None:
    engine = Engine()
    edges = engine.table("edges", {"src": pa.int32(), "dst": pa.int32(), "kind": pa.string()})
    friends = engine.install("friends", edges.filter(lambda rows: pa.compute.equal(rows["kind"], "friend")))
    g = Graph(None, friends)
    parts = engine.install("parts", g.connected_components())
    edges.insert({"src": [1, 2, 8], "dst": [2, 3, 9], "kind": ["friend", "friend", "enemy"]})
    assert rows_of(parts.read()) == {(1, 1), (2, 1), (3, 1)}
    assert g.vertices.columns == ["id"] and g.edges.columns == ["src", "dst", "kind"]


def test_programs_of_a_graph_share_two_indexes_of_edges() -> None:
    world = GraphOfKind("int16")
    world.install("reach", "distances", "connected")
    explained = world.engine.explain(world.graph.connected_components())
    assert explained.count("arrange by src  <- shared") + explained.count("arrange by src  <- reused") == 1
    assert "arrange by dst  <- built" not in explained


# Errors.


@pytest.fixture
def engine() -> Engine:
    return Engine()


def test_motifs_and_interactive_queries_read_the_indexes_of_programs() -> None:
    engine = Engine()
    people = engine.table("people", {"name": pa.string(), "age": pa.int32()}, key="name")
    follows = engine.table("follows", {"who": pa.string(), "whom": pa.string(), "days": pa.int32()})
    g = Graph(people, follows, src="who", dst="whom", id="name")
    people.insert({"name": ["ann", "bob", "cid"], "age": [30, 40, 50]})
    follows.insert({"who": ["ann", "bob"], "whom": ["bob", "cid"], "days": [1, 2]})

    open_triads = engine.install("open", g.find("(a)-[e]->(b); (b)-[]->(c); !(a)-[]->(c)", properties=True))
    (match,) = open_triads.to_arrow().to_pylist()
    assert match["a"] == {"id": "ann", "age": 30} and match["e"] == {"src": "ann", "dst": "bob", "days": 1}
    counts = engine.install("counts", g.count("(a)-[]->(b); (b)-[]->(c)", by=["b"]))
    assert counts.to_arrow().to_pylist() == [{"b": "bob", "count": 1}]
    assert "delta join" in g.explain("(a)-[]->(b); (b)-[]->(c)")
    before = _indexes_of_edges(engine)

    queries = g.interactive(engine)
    with queries.look_up() as ages, queries.neighbours() as neighbours, queries.shortest_path(3) as paths:
        assert ages.read(node="cid").to_pylist() == [{"age": 50}]
        path = paths.open(source="ann", target="cid")
        assert path.path() == ["ann", "bob", "cid"]
        follows.insert({"who": ["ann"], "whom": ["cid"], "days": [3]})
        assert path.length() == 1 and set(neighbours.read(node="ann")["node"].to_pylist()) == {"bob", "cid"}
        assert _indexes_of_edges(engine) == before
    assert open_triads.to_arrow().num_rows == 0


def _indexes_of_edges(engine: Engine) -> list[str]:
    """The dataflows that maintain indexes of edges without their properties."""
    return sorted(one.dataflow for one in engine.status() if set(one.columns) == {"src", "dst"})


def test_columns_are_checked(engine: Engine) -> None:
    edges = engine.table("edges", {"a": pa.int64(), "b": pa.int64(), "src": pa.int64()})
    names = engine.table("names", {"id": pa.string(), "number": pa.int32()})
    for vertices, options, message in (
        (None, {"src": "x", "dst": "b"}, "edges have no column 'x'"),
        (None, {"src": "a", "dst": "b"}, "have a column 'src', but"),
        (names, {"src": "src", "dst": "b"}, "must all have the same type"),
        (names, {"src": "src", "dst": "b", "id": "number"}, "vertices have a column 'id', but"),
        (names, {"src": "src", "dst": "b", "id": "key"}, "vertices have no column 'key'"),
        ([1, 2], {"src": "src", "dst": "b"}, "cannot be a value of type list"),
    ):
        with pytest.raises(SchemaError, match=message):
            Graph(vertices, edges, **options)


def test_arguments_are_checked(engine: Engine) -> None:
    edges = engine.table("edges", {"src": pa.int64(), "dst": pa.int64(), "note": pa.string()})
    g, other = Graph(None, edges), engine.table("other", {"node": pa.string()})
    for call, message in (
        (lambda: g.k_core(0), "k is 0"),
        (lambda: g.k_truss(1), "k is 1"),
        (lambda: g.label_propagation(0), "max_iterations is 0"),
        (lambda: g.bfs([1], [2], 0), "max_path_length is 0"),
        (lambda: g.pagerank(damping=1.5), "damping is 1.5"),
        (lambda: g.pagerank(tolerance=0), "tolerance is 0"),
        (lambda: g.pagerank(max_iterations=0), "max_iterations is 0"),
        (lambda: g.pagerank(personalization=other), "is of type string, but ids are of type int64"),
        (lambda: g.pagerank(personalization=edges.select(node="src")), "column 'weight' of numbers"),
        (lambda: g.reach(["a"]), "sources must be ids of nodes, which are of type int64"),
        (lambda: g.reach([None]), "one of them is null"),
        (lambda: g.reach("ann"), "must be a list of ids, not the single value 'ann'"),
        (lambda: g.jaccard([(1, 2, 3)]), "is not a pair of nodes"),
        (lambda: g.pagerank(personalization={1: "much"}), "weights of the personalization must be numbers"),
        (lambda: g.reach(other), "is of type string, but ids are of type int64"),
        (lambda: g.shortest_paths([1], weight="miles"), "edges have no column 'miles'"),
        (lambda: g.distances([1], weight="note"), "a weight must be a number"),
    ):
        with pytest.raises(SchemaError, match=message):
            call()


def test_programs_need_ids_that_are_not_null(engine: Engine) -> None:
    edges = engine.table("edges", [pa.field("src", pa.int64()), pa.field("dst", pa.int64())])
    with pytest.raises(SchemaError, match="may be null"):
        graph.degrees(edges)


def test_two_ids_of_one_hash_are_an_error(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ikebana.graph.ids.positive_hash", lambda value: graph.plans.integer(7))
    edges = engine.table("edges", {"src": pa.string(), "dst": pa.string()})
    view = engine.install("degrees", Graph(None, edges).degrees())
    edges.insert({"src": ["a"], "dst": ["a"]})
    assert view.to_arrow().num_rows == 1
    edges.insert({"src": ["a"], "dst": ["b"]})
    with pytest.raises(EvaluationError, match="the same hash"):
        view.to_arrow()
    edges.delete({"src": ["a"], "dst": ["b"]})
    assert view.to_arrow().num_rows == 1
