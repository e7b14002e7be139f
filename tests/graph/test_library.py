"""The programs of the graph library equal networkx on graphs that change: duplicates, loops, nodes without edges."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import graph
from ikebana.engine import Engine, View
from ikebana.errors import EvaluationError, SchemaError
from tests.graph.library import LIBRARY, Inputs, Row, State
from tests.graph.oracles import Edge, weight
from tests.profiles import examples


class LibraryRun:
    """An engine with a changing graph, its present value, and some programs."""

    def __init__(self, kind: pa.DataType | None = None, **options: Any) -> None:
        node = kind or pa.int64()
        self.engine, self.state, self.views = Engine(**options), State(), dict[str, View]()
        self.edges = self.engine.input("edges", {"src": node, "dst": node, "weight": pa.int64()}, key="src")
        self.nodes = self.engine.input("nodes", {"node": node})
        self.roots = self.engine.input("roots", {"node": node})
        self.pairs = self.engine.input("pairs", {"src": node, "dst": node})

    def install(self, names: Iterable[str]) -> None:
        inputs = Inputs(self.edges, self.nodes, self.roots, self.pairs)
        for name in names:
            self.views[name] = self.engine.install(name, LIBRARY[name].plan(inputs))

    def change(self, edges: Mapping[Edge, int], nodes: set[int] = frozenset(), roots: set[int] = frozenset()) -> None:
        """One epoch: each edge gets another multiplicity; nodes, roots and pairs of roots come or go."""
        state = self.state
        changed = [(edge, count - state.edges[edge]) for edge, count in edges.items() if count != state.edges[edge]]
        rows = [edge for edge, _ in changed]
        data = {**_columns(rows), "weight": [weight(edge) for edge in rows]}
        self.edges.push(data, [diff for _, diff in changed])
        state.edges = +Counter({**state.edges, **edges})
        pairs = {(root, (root + 2) % 5) for root in roots}
        for collection, present, toggled in ((self.nodes, state.nodes, nodes), (self.roots, state.roots, roots)):
            collection.insert({"node": sorted(toggled - present)})
            collection.remove({"node": sorted(toggled & present)})
        self.pairs.insert(_columns(sorted(pairs - state.pairs)))
        self.pairs.remove(_columns(sorted(pairs & state.pairs)))
        state.nodes, state.roots, state.pairs = state.nodes ^ nodes, state.roots ^ roots, state.pairs ^ pairs
        self.engine.advance()

    def check(self) -> None:
        for name, view in self.views.items():
            assert rows_of(view.read()) == LIBRARY[name].rows(self.state), name


def _columns(pairs: list[Edge]) -> dict[str, list[int]]:
    return {"src": [a for a, _ in pairs], "dst": [b for _, b in pairs]}


def rows_of(table: pa.Table) -> set[Row]:
    """The rows of a result, each of which must have multiplicity 1."""
    assert set(table["diff"].to_pylist()) <= {1}
    columns = table.drop_columns("diff").to_pydict().values()
    return {tuple(map(_comparable, row)) for row in zip(*columns, strict=True)}


def _comparable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return round(value, 6) if isinstance(value, float) else value


NODES = st.integers(0, 6)
EDGES = st.dictionaries(st.tuples(NODES, NODES), st.integers(0, 2), max_size=14)
CHANGES = st.tuples(EDGES, st.sets(NODES, max_size=3), st.sets(NODES, max_size=2), st.booleans())


@examples(2, quick=0.7)
@given(
    names=st.lists(st.sampled_from(sorted(LIBRARY)), min_size=1, max_size=3, unique=True),
    epochs=st.lists(CHANGES, min_size=1, max_size=4),
    workers=st.integers(1, 3),
    kind=st.sampled_from([pa.int32(), pa.int64()]),
)
def test_oracle_changing_graphs(
    names: list[str],
    epochs: list[tuple[dict[Edge, int], set[int], set[int], bool]],
    workers: int,
    kind: pa.DataType,
) -> None:
    """Several epochs, read at some: a sweep then covers those in between. The last program is installed late."""
    world = LibraryRun(kind, workers=workers)
    world.install(names[:-1])
    for edges, nodes, roots, read in epochs:
        world.change(edges, nodes, roots)
        if read:
            world.install({names[-1]} - world.views.keys())
            world.check()
    world.check()


@pytest.mark.parametrize("workers", [1, 2])
def test_oracle_random_graph(workers: int) -> None:
    """All programs on one engine, a graph with many triangles, and many small changes."""
    chance = random.Random(3)
    pairs = [(a, b) for a in range(30) for b in range(30) if (a - b) % 30 in (0, 1, 2, 3, 29) or chance.random() < 0.03]
    world = LibraryRun(pa.int32(), workers=workers)
    world.install(LIBRARY)
    world.change({pair: chance.choice([1, 1, 2]) for pair in chance.sample(pairs, 80)}, {1, 5, 50}, {0, 17})
    world.check()
    for _ in range(2):
        world.change({pair: chance.choice([0, 0, 1, 2]) for pair in chance.sample(pairs, 8)}, {chance.randrange(60)})
        world.check()


# Weights.


def test_weights_of_all_number_types() -> None:
    """Decimals are exact; floats are added up along the path, as networkx does."""
    kinds = {"d": pa.decimal128(5, 2), "f": pa.float64(), "h": pa.float32(), "i": pa.int16()}
    engine = Engine()
    edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32(), **kinds})
    roots = engine.input("roots", {"node": pa.int32()})
    views = {name: engine.install(name, graph.shortest_paths(edges, roots, name)) for name in kinds}
    rows = [(0, 1, "0.10"), (1, 2, "0.20"), (0, 2, "0.31"), (2, 3, "999.99"), (2, 3, "1000.00")]
    edges.insert(
        {
            "src": [row[0] for row in rows],
            "dst": [row[1] for row in rows],
            "d": [min(Decimal(row[2]), Decimal("999.99")) for row in rows],
            "f": [float(row[2]) for row in rows],
            "h": [0.5] * 5,
            "i": [3, 4, 8, 9, 9],
        }
    )
    roots.insert({"node": [0]})
    engine.advance()
    found = {name: dict(zip(*view.to_arrow().to_pydict().values(), strict=True)) for name, view in views.items()}
    assert found["d"] == {0: Decimal(0), 1: Decimal("0.10"), 2: Decimal("0.30"), 3: Decimal("1000.29")}
    assert found["f"] == {0: 0.0, 1: 0.1, 2: 0.1 + 0.2, 3: 0.1 + 0.2 + 999.99}
    assert found["h"] == {0: 0.0, 1: 0.5, 2: 0.5, 3: 1.0} and found["i"] == {0: 0, 1: 3, 2: 7, 3: 16}


@pytest.mark.parametrize("program", [graph.shortest_paths, graph.landmark_distances])
def test_negative_weights_are_errors_while_they_exist(program: Any) -> None:
    """Also on a cycle, around which a distance would decrease for ever; null weights are no edges."""
    engine = Engine()
    edges = engine.input("edges", [*_ends(), pa.field("w", pa.float64())])
    roots = engine.input("roots", {"node": pa.int64()})
    view = engine.install("distances", program(edges, roots, "w"))
    roots.insert({"node": [1]})
    edges.insert({"src": [1, 2, 1, 3], "dst": [2, 3, 3, 1], "w": [1.0, 2.0, None, 0.0]})
    engine.advance()
    first = rows_of(view.read())
    assert len(first) == 3
    for wrong in (-4.0, float("nan")):
        edges.insert({"src": [2], "dst": [1], "w": [wrong]})
        engine.advance()
        with pytest.raises(EvaluationError, match="negative or not a number"):
            view.read()
        edges.remove({"src": [2], "dst": [1], "w": [wrong]})
        engine.advance()
        assert rows_of(view.read()) == first


def test_negative_personalization_is_an_error() -> None:
    engine = Engine()
    edges = engine.input("edges", _ends())
    weights = engine.input("weights", [pa.field("node", pa.int64(), nullable=False), pa.field("weight", pa.int32())])
    view = engine.install("ranks", graph.pagerank(edges, personalization=weights))
    edges.insert({"src": [1], "dst": [2]})
    weights.insert({"node": [1, 2], "weight": [1, -1]})
    engine.advance()
    with pytest.raises(EvaluationError, match="a weight of the personalization"):
        view.read()


def _ends() -> list[pa.Field]:
    return [pa.field(name, pa.int64(), nullable=False) for name in ("src", "dst")]


def test_columns_of_arguments_are_checked() -> None:
    engine = Engine()
    edges = engine.input("edges", _ends())
    other = engine.input("other", {"node": pa.string(), "src": pa.int64()})
    for call in (
        lambda: graph.reach(edges, other),
        lambda: graph.degrees(edges, other),
        lambda: graph.bfs(edges, other, other),
        lambda: graph.common_neighbors(edges, other),
        lambda: graph.pagerank(edges, personalization=other),
    ):
        with pytest.raises(SchemaError, match="of the type of the edges' ends"):
            call()
