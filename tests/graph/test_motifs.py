"""Motifs equal a search through all assignments of vertices, after every change of a graph."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine, View
from ikebana.errors import MotifError, SchemaError
from ikebana.graph import motifs
from ikebana.graph.motifs.pattern import parse
from ikebana.operators import extend, lookup
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from ikebana.runtime import program
from tests.graph.motif_oracle import matches, rows_of
from tests.profiles import examples

PATTERNS = (
    "(a)-[]->(b)",
    "(a)-[e]->(b); (b)-[f]->(c); !(a)-[]->(c)",
    "(a)-[]->(b); (b)-[]->(c); (c)-[]->(a)",
    "(a)-[e]->(b); (b)-[f]->(c); (a)-[g]->(c)",
    "(a)-[]->(b); (b)-[]->(c); (c)-[]->(d); (a)-[]->(c); (a)-[]->(d); (b)-[]->(d)",
    "(a)-[]->(b)-[]->(c)-[]->(d)-[]->(a)",
    "(a)-[]-(b); (b)-[]-(c); (a)-[e]-(c)",
    "(a)-[e]-(b)",
    "(a)<-[e]-(b); (a)-[]->()",
    "(a)<-[]->(b); !(a)-[]->(a)",
    "(a)-[e]->(a); (a)-[]->(b)",
    "()-[e]->()",
    "(a)-[]->()-[]->()-[]->(b)",
    "(a); !(a)-[]->()",
    "(a)-[]->(b); (c); !(c)-[]-(a)",
    "(a)-[e*1..3]->(b)",
    "(a)-[e*2]-(b); !(a)-[]-(b)",
    "(a)-[*..2]->(b); (b)-[f]->(a)",
    "(a)-[e*1..2]->(b); (b)-[f]->(c); (a)-[]->(c)",
    "(a)-[e]->(b); (a)-[f]->(b)",
    "(a)-[]->(b); !(b)-[*1..2]->(a)",
    "(a)-[e*1..2]->(a)",
)
KINDS = {"int32": (pa.int32(), int), "int64": (pa.int64(), int), "string": (pa.string(), lambda id_: f"v{id_}")}


class MotifRun:
    """An engine with a changing graph, its present edges and vertices, and some motifs."""

    def __init__(self, *, kind: str = "int64", weights: bool = False, vertices: bool = False, **options: Any) -> None:
        self.engine = Engine(**options)
        type_, self._id = KINDS[kind]
        columns = {"src": type_, "dst": type_, **({"weight": pa.int64()} if weights else {})}
        self._edges = self.engine.input("edges", columns)
        self._vertices = self.engine.input("vertices", {"id": type_, "colour": pa.string()}) if vertices else None
        self._weights = weights
        self.edges: Counter[Any] = Counter()
        self.vertices: Counter[Any] | None = Counter() if vertices else None
        self.views: dict[str, View] = {}

    def install(self, *patterns: str, paths: bool = False) -> None:
        for pattern in patterns:
            plan = motifs.find(self._vertices, self._edges, pattern, paths=paths)
            self.views[pattern] = self.engine.install(f"motif {len(self.views)}", plan)
        self.paths = paths

    def change(self, edges: list[tuple[int, int, int, int]], vertices: list[int] = ()) -> None:  # type: ignore[assignment]
        """One epoch: insert edges (or remove them, if they exist and that is asked for), and toggle vertices."""
        for src, dst, weight, change in edges:
            row = (self._id(src), self._id(dst), *([weight] if self._weights else []))
            change = 1 if not self.edges[row] else change
            self._edges.push(dict(zip(self._edges.columns, ([value] for value in row), strict=True)), change)
            self.edges[row] += change
        self.edges = +self.edges
        for vertex in map(self._id, vertices if self._vertices is not None else ()):
            assert self.vertices is not None and self._vertices is not None
            change = -1 if self.vertices[vertex] else 1
            self._vertices.push({"id": [vertex], "colour": [f"colour of {vertex}"]}, change)
            self.vertices[vertex] += change
        self.engine.advance()

    def check(self) -> None:
        for pattern, view in self.views.items():
            expected = matches(pattern, self.edges, self.vertices, paths=self.paths)
            assert rows_of(view.read()) == expected, pattern


NODES = st.integers(0, 4)
EDGES = st.lists(st.tuples(NODES, NODES, st.integers(0, 1), st.sampled_from([1, -1, -1])), max_size=8)


@examples(2, quick=0.5)
@given(
    patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3, unique=True),
    epochs=st.lists(st.tuples(EDGES, st.lists(NODES, max_size=3), st.booleans()), min_size=1, max_size=4),
    installed=st.integers(0, 2),
    workers=st.integers(1, 3),
    seed=st.integers(0, 99),
    kind=st.sampled_from(sorted(KINDS)),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_oracle_changing_graphs(
    patterns: list[str],
    epochs: list[tuple[list[tuple[int, int, int, int]], list[int], bool]],
    installed: int,
    workers: int,
    seed: int,
    kind: str,
    flags: tuple[bool, bool, bool],
) -> None:
    """Several epochs, read at some: a sweep then covers those in between. The last motif is installed late."""
    weights, vertices, paths = flags
    run = MotifRun(workers=workers, seed=seed, kind=kind, weights=weights, vertices=vertices)
    run.install(*patterns[:-1], paths=paths)
    for at, (edges, toggled, read) in enumerate(epochs):
        if at == installed:
            run.install(patterns[-1], paths=paths)
        run.change(edges, toggled)
        if read:
            run.check()
    run.check()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_oracle_each_pattern(pattern: str) -> None:
    """A graph with a loop, repeated edges and edges in both directions; then without some; then without vertices."""
    run = MotifRun(weights=True, vertices=True)
    run.install(pattern)
    run.change([(0, 1, 0, 1), (1, 2, 0, 1), (2, 0, 0, 1), (0, 2, 1, 1), (1, 1, 0, 1), (2, 3, 0, 1)], [0, 1, 2, 3])
    run.check()
    run.change([(0, 1, 0, 1), (0, 1, 1, 1), (3, 0, 0, 1), (3, 3, 1, 1)])
    run.check()
    run.change([(0, 1, 0, -1), (1, 2, 0, -1), (1, 3, 0, 1)], [2])
    run.check()


def test_an_edge_inserted_twice_and_removed_once_is_still_there() -> None:
    with Engine() as engine:
        edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
        plans = {
            "triangle": "(a)-[]->(b); (b)-[]->(c); (c)-[]->(a)",
            "open": "(a)-[]->(b); (b)-[]->(c); !(a)-[]->(c)",
            "walk": "(a)-[e*1..2]->(b)",
        }
        views = {name: engine.install(name, motifs.find(None, edges, pattern)) for name, pattern in plans.items()}
        edges.insert({"src": [1, 2, 3, 1], "dst": [2, 3, 1, 2]})
        engine.advance()
        counts = {name: sum(rows_of(view.read()).values()) for name, view in views.items()}
        assert counts == {"triangle": 6, "open": 5, "walk": 6}
        edges.remove({"src": [1], "dst": [2]})
        engine.advance()
        counts = {name: sum(rows_of(view.read()).values()) for name, view in views.items()}
        assert counts == {"triangle": 3, "open": 3, "walk": 6}
        edges.remove({"src": [1], "dst": [2]})
        engine.advance()
        counts = {name: sum(rows_of(view.read()).values()) for name, view in views.items()}
        assert counts == {"triangle": 0, "open": 1, "walk": 3}


def test_properties_of_vertices_are_structs() -> None:
    with Engine() as engine:
        edges = engine.input("edges", {"src": pa.string(), "dst": pa.string(), "since": pa.int32()})
        people = engine.input("people", {"id": pa.string(), "age": pa.int32()})
        plan = motifs.find(people, edges, "(a)-[e]-(b); (b)-[]->()", properties=True)
        view = engine.install("friends", plan)
        edges.insert({"src": ["ann"], "dst": ["bob"], "since": [2001]})
        people.insert({"id": ["ann", "bob"], "age": [30, 40]})
        engine.advance()
        (row,) = view.read().drop_columns("diff").to_pylist()
        assert row == {
            "a": {"id": "bob", "age": 40},
            "e": {"src": "ann", "dst": "bob", "since": 2001},
            "b": {"id": "ann", "age": 30},
        }
        people.remove({"id": ["bob"], "age": [40]})
        engine.advance()
        assert not view.read().num_rows


def test_counts_are_those_of_matches() -> None:
    with Engine() as engine:
        edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
        pattern = "(a)-[]-(b); (b)-[]-(c); (a)-[]-(c)"
        total = engine.install("total", motifs.count(None, edges, pattern))
        by_vertex = engine.install("by vertex", motifs.count(None, edges, pattern, by=["a"]))
        engine.advance()
        assert total.read().num_rows == 0
        edges.insert({"src": [1, 2, 3, 3], "dst": [2, 3, 1, 4]})
        engine.advance()
        assert total.read()["count"].to_pylist() == [6]
        assert by_vertex.read().sort_by("a").select(["a", "count"]).to_pylist() == [
            {"a": node, "count": 2} for node in (1, 2, 3)
        ]
        with pytest.raises(MotifError, match="there is no vertex 'd'"):
            motifs.count(None, edges, pattern, by=["d"])


def test_null_ends_are_ignored() -> None:
    with Engine() as engine:
        edges = engine.input("edges", [pa.field("src", pa.int64()), pa.field("dst", pa.int64())])
        view = engine.install("paths", motifs.find(None, edges, "(a)-[]->(b); (b)-[]->(c)"))
        edges.insert({"src": [1, None, 2, 2], "dst": [2, 2, 3, None]})
        engine.advance()
        assert rows_of(view.read()) == {(1, 2, 3): 1}


# Intermediate results.


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each look-up and extension puts out, from now on."""
    sizes: list[int] = []

    def counted(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            changes = function(*arguments)
            sizes.append(len(changes))
            return changes

        return call

    monkeypatch.setattr(lookup, "emit", counted(lookup.emit))
    monkeypatch.setattr(extend.Extend, "_extended", counted(extend.Extend._extended))
    return sizes


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "pattern",
    [
        "(a)-[]->(b); (b)-[]->(c); (c)-[]->(a)",
        "(a)-[]->(b); (b)-[]->(c); (a)-[]->(c)",
        "(a)-[]->(b); (b)-[]->(c); (c)-[]->(d); (a)-[]->(c); (a)-[]->(d); (b)-[]->(d)",
    ],
)
def test_cycles_through_a_hub_do_not_explode(
    pattern: str, workers: int, emitted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every spoke leads to the hub and from it, so the hub is in the middle of a million paths of two edges."""
    monkeypatch.setattr(program, "FUSE", "never")  # the rows of operators that are visited are counted
    spokes = 1000
    run = MotifRun(workers=workers, kind="int32")
    nodes = list(range(1, spokes + 1))
    run._edges.insert({"src": nodes, "dst": [0] * spokes})
    run._edges.insert({"src": [0] * spokes, "dst": nodes})
    run._edges.insert({"src": nodes, "dst": [*nodes[1:], 1]})
    run.engine.advance()
    run.install(pattern)
    (view,) = run.views.values()
    matches_at_first = view.read().num_rows
    edges, relations = 3 * spokes, pattern.count("[")
    steps = 6 if workers > 1 else 1  # counts and proposals are rows of look-ups, too
    assert sum(emitted) <= steps * relations * (edges + matches_at_first)
    emitted.clear()
    run._edges.insert({"src": [5], "dst": [50]})
    run._edges.remove({"src": [0], "dst": [7]})
    run.engine.advance()
    view.read()
    changed = 2
    assert changed * relations <= sum(emitted) <= changed * steps * relations * relations


# Sharing and explanations.


def test_motifs_share_two_indexes() -> None:
    """However many motifs there are: the edges by source, and by target."""
    with Engine() as engine:
        edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()}, key="src")
        for at, pattern in enumerate(
            [
                "(a)-[]->(b); (b)-[]->(c); (c)-[]->(a)",
                "(a)-[]->(b); (b)-[]->(c); (a)-[]->(c)",
                "(a)-[]->(b); (b)-[]->(c); (c)-[]->(d)",
                "(a)-[]->(b); (b)-[]->(c); (c)-[]->(d); (a)-[]->(c); (a)-[]->(d); (b)-[]->(d)",
            ]
        ):
            view = engine.install(f"motif {at}", motifs.find(None, edges, pattern))
            arrangements = {node.digest for node in walk(view.plan) if ir.is_stored(node)}
            assert arrangements == {
                view.plan.digest,
                edges.arrange("src").node.digest,
                edges.arrange("dst").node.digest,
            }


@pytest.mark.parametrize(
    ("pattern", "strategy"),
    [
        ("(a)-[e]->(b)", "the rows of a single relation"),
        ("(a)-[e]->(b); (b)-[f]->(c); (c)-[]->(d)", "delta join, because the edges form no cycle"),
        ("(a)-[e]->(b); (b)-[f]->(a)", "delta join, because the edges form no cycle"),
        ("(a)-[]->(b); (b)-[]->(c); (c)-[]->(a)", "worst-case optimal extension, because the edges form a cycle"),
    ],
)
def test_explain_says_which_strategy(pattern: str, strategy: str) -> None:
    with Engine() as engine:
        edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
        assert f"strategy: {strategy}\n" in motifs.explain(None, edges, pattern)


# Errors.


@pytest.mark.parametrize(
    ("pattern", "what", "at"),
    [
        ("(a)-[e]>(b)", "expected '-' or '->' after ']'", 7),
        ("(a)-[e]->(b); (b)-[e]->(a)", "two edges are named 'e'", 19),
        ("(a)-[a]->(b)", "'a' is the name of a vertex and of an edge", 5),
        ("!(a)-[e]->(b)", "a negated edge has no name", 6),
        ("(a); !(a)-[]->(b)", "vertex 'b' occurs only in negated edges", 14),
        ("(a)-[*]->(b)", "the number of edges is missing", 5),
        ("(a)-[*2..]->(b)", "expected the greatest number of edges after '..'", 9),
        ("(a)-[e*3..2]->(b)", "a length is from 1 to 32 edges, the least number first", 6),
        ("(a)-[e]->(b) (c)", "expected ';' between terms", 13),
        ("(a)-[e]->(b); #", "unexpected character '#'", 14),
        ("()-[]->()", "a term without any name says nothing about a match", 0),
        ("()", "a vertex alone needs a name", 0),
        ("!(a)", "only edges can be negated", 0),
        ("(a); !(a)-[]->(a)-[]->(a)", "a negated term has one edge", 17),
        ("(a)<-[e]->(b)", "an edge in both directions has no name", 6),
        ("(1)", "expected a name for the vertex", 1),
    ],
)
def test_errors_show_the_place(pattern: str, what: str, at: int) -> None:
    with pytest.raises(MotifError) as raised:
        parse(pattern)
    assert raised.value.what == what
    line, caret = raised.value.detail.splitlines()
    assert line == pattern
    assert caret.index("^") == at + len("  detail: ")
    assert raised.value.hint


def test_wrong_columns() -> None:
    with Engine() as engine:
        edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
        other = engine.input("other", {"src": pa.int32(), "target": pa.int32()})
        mixed = engine.input("mixed", {"src": pa.int32(), "dst": pa.int64()})
        people = engine.input("people", {"id": pa.int64()})
        for given_edges in (other, mixed):
            with pytest.raises(SchemaError, match="edges must have columns 'src' and 'dst' of the same type"):
                motifs.find(None, given_edges, "(a)-[]->(b)")
        with pytest.raises(SchemaError, match="vertices must have a column 'id'"):
            motifs.find(edges, edges, "(a)-[]->(b)")
        with pytest.raises(SchemaError, match="ids of different types"):
            motifs.find(people, edges, "(a)-[]->(b)")
        with pytest.raises(MotifError, match="'e_path' is the column for the path of 'e'"):
            motifs.find(None, edges, "(a)-[e*2]->(e_path)", paths=True)
        with pytest.raises(MotifError, match="the motif is empty"):
            motifs.find(None, edges, " ")
