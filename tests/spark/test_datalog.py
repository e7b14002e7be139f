"""Datalog programs of a session: relations are tables and views, outputs are views, and answers come top down."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ikebana.errors import DatalogError, DroppedError, IkebanaError
from ikebana.spark import Session

pytestmark = pytest.mark.spark

REACH = """
.decl edge(src: symbol, dst: symbol)
.decl blocked(node: symbol)
.decl reach(src: symbol, dst: symbol)
.output reach
reach(x, y) :- edge(x, y), !blocked(y).
reach(x, z) :- reach(x, y), edge(y, z), !blocked(z).
"""


@pytest.fixture
def edges(session: Session) -> Session:
    """A table of edges, with nulls and duplicates allowed."""
    session.create_table("edge", "src STRING, dst STRING, weight INT").insert(
        [("a", "b", 1), ("b", "c", 1), ("b", "c", 2), ("c", "d", 1), (None, "x", 1)]
    )
    return session


def pairs(session: Session, name: str) -> set[tuple[object, ...]]:
    return {tuple(row) for row in session.read(name).collect()}


def rows(table: pa.Table) -> set[tuple[object, ...]]:
    return {tuple(row.values()) for row in table.to_pylist()}


def test_outputs_are_views_over_tables_of_the_session(edges: Session) -> None:
    with edges.datalog(REACH) as program:
        assert pairs(edges, "reach") == {("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")}
        counts = edges.view("counts", "SELECT src, count(*) AS n FROM reach GROUP BY src")
        changes = program.view("reach").changes(since="now", timeout=30)

        with program.transaction():
            program.insert("blocked", [("c",)])
            edges.table("edge").insert([("d", "a", 1)])
        assert rows(counts.to_arrow()) == {("a", 1), ("c", 3), ("d", 2)}
        _, changed = next(changes)
        assert rows(changed) >= {("a", "c", -1), ("d", "a", 1)}
        changes.close()

        program.remove("blocked", edges.spark.createDataFrame([("c",)], "node STRING"))
        assert ("b", "c") in pairs(edges, "reach")
        assert "edge" in program.explain()
        assert 'edge("a", "b")' in str(program.why('reach("a", "c")'))
        counts.drop()
    assert [view.name for view in edges.views()] == [] and [table.name for table in edges.tables()] == ["edge"]
    with pytest.raises(DroppedError):
        program.query("reach(x, ?)")


def test_questions_are_answered_top_down(edges: Session) -> None:
    with edges.datalog(REACH, prefix="graph ") as program:
        assert [view.name for view in edges.views()] == ["graph reach"]
        query = program.query("reach(x, ?)")
        assert {row[-1] for row in rows(query.read(x="b"))} == {"c", "d"}
        answer = query.open(x="c")
        assert {row[-1] for row in answer.rows()} == {"d"}
        edges.table("edge").insert([("d", "e", 1)])
        assert {row[-1] for row in answer.rows()} == {"d", "e"}


def test_relations_of_other_names_and_unsigned_numbers(session: Session) -> None:
    session.create_table("orders", "id INT, customer INT NOT NULL", key="id").insert([(1, 5), (2, 5), (3, 6)])
    text = """
    .decl bought(id: number, customer: number)
    .decl total(customer: number, n: unsigned)
    total(c, itou(n)) :- bought(_, c), n = count : { bought(_, c) }.
    """
    with session.datalog(text, relations={"bought": "orders"}):
        assert pairs(session, "total") == {(5, 2), (6, 1)}
        assert session.read("total").schema["n"].dataType.simpleString() == "bigint"


def test_errors_leave_nothing_behind(edges: Session) -> None:
    with pytest.raises(DatalogError, match="no relation"):
        edges.datalog(REACH, relations={"edges": "edge"})
    with pytest.raises(IkebanaError, match="nothing"):
        edges.datalog(REACH, relations={"edge": "nothing"})
    with pytest.raises(DatalogError, match="weight"):
        edges.datalog(".decl edge(src: symbol, weight: float) .decl a(x: symbol) a(x) :- edge(x, _).")
    edges.view("reach", "SELECT src FROM edge")
    with pytest.raises(IkebanaError, match="reach"):
        edges.datalog(REACH)
    assert [view.name for view in edges.views()] == ["reach"]
    assert set(edges.engine.tables) == {"edge"}
