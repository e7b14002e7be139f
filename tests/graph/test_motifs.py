"""Motifs equal a search through all assignments of vertices, after every change of a graph."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine, View
from ikebana.graph import motifs
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


@examples(2, quick=0.8)
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
