"""Graphs of a session: tables, views and DataFrames as vertices and edges, results as views of SQL."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pyarrow as pa
import pytest

from ikebana.errors import DataflowError, SchemaError
from ikebana.spark import Session, View

pytestmark = pytest.mark.spark

PEOPLE = ["ann", "bob", "cleo", "dan", "eve", "finn"]
FOLLOWS = [("ann", "bob"), ("bob", "cleo"), ("cleo", "ann"), ("cleo", "dan"), ("dan", "eve"), (None, "ann")]


@pytest.fixture
def people(session: Session) -> Session:
    session.create_table("people", "name STRING, age INT").insert([(name, len(name)) for name in PEOPLE])
    session.create_table("follows", "who STRING, whom STRING, since INT").insert([(*edge, 1) for edge in FOLLOWS])
    return session


def rows(view: View) -> set[tuple[Any, ...]]:
    return {tuple(map(_comparable, row.values())) for row in view.to_arrow().to_pylist()}


def _comparable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else round(value, 6) if isinstance(value, float) else value


def test_methods_create_views_that_follow_the_tables(people: Session) -> None:
    with people.graph("people", "follows", src="who", dst="whom", id="name") as g:
        parts, distances = g.connected_components(), g.shortest_paths(["eve"])
        eve = people.table("people").to_df().where("name = 'eve'").select("name")
        paths, similar = g.bfs(["ann"], eve), g.jaccard([("ann", "dan")])
        degrees = g.degrees(name="popularity")
        g.pagerank()
        top = people.view("top", "SELECT node FROM pagerank ORDER BY rank DESC LIMIT 1")
        assert rows(parts) == {*((name, "ann") for name in PEOPLE[:5]), ("finn", "finn")}
        assert paths.to_df().collect()[0]["path"] == ["ann", "bob", "cleo", "dan", "eve"]
        assert rows(similar) == {("ann", "dan", 1, 0.333333)}
        assert ("cleo", 2, 1, 3) in rows(degrees) and ("finn", 0, 0, 0) in rows(degrees)
        assert rows(top) == {(_most_important(FOLLOWS[:5]),)}

        with people.transaction():
            people.table("follows").delete([("cleo", "dan", 1)])
            people.table("follows").insert([("finn", "dan", 2), ("dan", "finn", 2), ("bob", "finn", 2)])
        edges = {*FOLLOWS[:5], ("finn", "dan"), ("dan", "finn"), ("bob", "finn")} - {("cleo", "dan")}
        reachable = nx.single_source_shortest_path_length(nx.DiGraph(edges).reverse(), "eve")
        assert rows(distances) == {(node, "eve", distance) for node, distance in reachable.items()}
        assert {component for _, component in rows(parts)} == {"ann"}
        assert rows(top) == {(_most_important(edges),)}
        assert [view.name for view in g.views][:2] == ["connected_components", "shortest_paths"]
        top.drop()
    assert list(people.views()) == []


def _most_important(edges: Any) -> str:
    from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

    network = nx.DiGraph(edges)
    network.add_nodes_from(PEOPLE)
    ranks = _pagerank_python(network)
    return max(ranks, key=lambda node: ranks[node])


def test_graphs_over_views_and_dataframes(people: Session) -> None:
    """The nodes that one graph reaches are the vertices of another."""
    people.create_table("roots", "id STRING").insert([("dan",)])
    frame = people.table("follows").to_df().where("since >= 1").selectExpr("whom AS dst", "who AS src")
    first = people.graph(None, people.view("old", "SELECT who AS src, whom AS dst FROM follows WHERE since < 2"))
    reached = first.reach("roots", name="reached")
    assert rows(reached) == {("dan",), ("eve",)}
    second = people.graph(reached, frame, id="node", prefix="second ")
    cores = second.core_number()
    assert cores.name == "second core_number" and dict(rows(cores)) == {
        "ann": 2,
        "bob": 2,
        "cleo": 2,
        "dan": 1,
        "eve": 1,
    }
    people.table("roots").insert([("gus",), ("cleo",)])
    assert rows(reached) == {(name,) for name in PEOPLE[:5]}
    people.table("follows").insert([("gus", "hal", 1)])
    assert rows(reached) == {(name,) for name in [*PEOPLE[:5], "gus", "hal"]}
    assert dict(rows(cores))["hal"] == 1
    second.close()
    first.close()


def test_motifs_and_interactive_queries(people: Session) -> None:
    g = people.graph("people", "follows", src="who", dst="whom", id="name")
    triads = g.find("(a)-[e]->(b); (b)-[]->(c); !(a)-[]->(c)", name="triads")
    found = {(row["a"], row["b"], row["c"]) for row in triads.to_df().where("e.since = 1").collect()}
    assert found == {(a, b, c) for a, b in FOLLOWS[:5] for x, c in FOLLOWS[:5] if b == x and (a, c) not in FOLLOWS}
    with g.interactive().shortest_path() as paths, paths.open(source="ann", target="eve") as path:
        assert path.path() == ["ann", "bob", "cleo", "dan", "eve"]
        people.table("follows").insert([("ann", "dan", 2)])
        assert path.length() == 2
    in_sql = people.view("in_sql", "SELECT a, c FROM triads WHERE b = 'dan'")
    assert rows(in_sql) == {("cleo", "eve"), ("ann", "eve")}
    in_sql.drop()
    g.close()


def test_bad_arguments(people: Session) -> None:
    with pytest.raises(DataflowError, match="no table or view 'persons'"):
        people.graph("persons", "follows")
    with pytest.raises(SchemaError, match="edges have no column 'src'"):
        people.graph("people", "follows", id="name")
    with pytest.raises(SchemaError, match="must all have the same type"):
        people.graph("people", "follows", src="who", dst="whom", id="age")
    with pytest.raises(SchemaError, match="edges cannot be a value of type int"):
        people.graph("people", 5)  # type: ignore[arg-type]
    g = people.graph("people", "follows", src="who", dst="whom", id="name")
    with pytest.raises(SchemaError, match="k is 0"):
        g.k_core(0)
    with pytest.raises(SchemaError, match="sources must be ids"):
        g.reach([pa])
    g.degrees()
    with pytest.raises(DataflowError):
        g.degrees()
    assert [view.name for view in people.views()] == ["degrees"]
