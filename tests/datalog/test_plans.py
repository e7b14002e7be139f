"""Plans: which indexes rules share, with each other and with other queries, and what `explain` says about it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from ikebana import Engine
from ikebana.datalog import Program, check, load, parse
from ikebana.datalog.orders import RelationIndex
from ikebana.errors import DatalogError
from ikebana.graph import transitive_closure
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from tests.dataflow.test_programs import programs_run
from tests.datalog import naive

POINTS_TO = """
.decl assign(x: number, y: number)  .decl deref(x: number, y: number)
.decl flow(x: number, y: number)  .decl flow_deref(x: number, y: number)  .decl alias(x: number, y: number)
flow(x, x) :- assign(x, _) ; assign(_, x) ; deref(x, _).
flow(x, y) :- flow(x, z), assign(z, y).
flow(x, y) :- flow(x, z), alias(z, y).
flow_deref(x, y) :- flow(x, z), deref(z, y).
alias(x, y) :- flow_deref(z, x), flow_deref(z, y).
alias(x, y) :- flow_deref(z, x), alias(z, w), flow_deref(w, y).
"""

CLOSURE = """
.decl edge(src: number, dst: number)  .decl tc(x: number, y: number)
tc(x, y) :- edge(x, y).
tc(x, z) :- tc(x, y), edge(y, z).
"""


def arrangements(program: Program, name: str, scope: int) -> list[ir.Node]:
    """The arrangements that the plan of a relation builds, inside its loop or outside."""
    nodes = walk(program.planner.stored(name).node)
    return [node for node in nodes if ir.is_stored(node) and len(node.scope) == scope]


def test_uses_of_one_relation_are_one_index() -> None:
    """Optimised points-to: 11 look-ups in 5 relations need 5 indexes, one of each relation."""
    with Engine() as engine:
        program = load(engine, POINTS_TO)
        uses = program.planner.choice.uses
        assert uses == {
            RelationIndex("flow", (1,)): 3,
            RelationIndex("assign", (0,)): 1,
            RelationIndex("alias", (0,)): 2,
            RelationIndex("deref", (0,)): 1,
            RelationIndex("flow_deref", (0,)): 4,
        }
        # In the loop: offers and distinct rows of each of three relations, and the first join of the last rule.
        assert len(arrangements(program, "alias", 1)) == 2 * 3 + 1


def test_oracle_points_to() -> None:
    rng = random.Random(5)
    checked = check(parse(POINTS_TO))
    facts = {
        name: {(rng.randrange(12), rng.randrange(12)) for _ in range(count)}
        for name, count in (("assign", 9), ("deref", 6))
    }
    with Engine(workers=2) as engine:
        program = load(engine, POINTS_TO)
        for name, rows in facts.items():
            program.insert(name, rows)
        for row in sorted(facts["assign"])[:4]:
            program.remove("assign", [row])
            facts["assign"].remove(row)
            expected = naive.evaluate(checked, facts)
            assert {name: program.relation(name).rows() for name in expected} == expected


def test_the_results_of_a_loop_are_computed_once() -> None:
    """Several relations of one loop are results: they are kept in one arrangement, which one dataflow maintains."""
    with Engine() as engine:
        load(engine, POINTS_TO)
        names = {status.dataflow for status in engine.status()}
        loops = [name for name in names if any(isinstance(node, ir.Loop) for node in own_nodes(engine, name))]
        assert len(loops) == 1


def own_nodes(engine: Engine, dataflow: str) -> list[ir.Node]:
    """The nodes of a dataflow, down to what other dataflows maintain."""
    root = engine.catalog.arrangement(dataflow)
    nodes, waiting = [], [root]
    for node in waiting:
        if node is root or engine.catalog.maintainer(node) is None:
            nodes.append(node)
            waiting.extend(source for source in node.inputs if source not in waiting)
    return nodes


def test_a_relation_that_two_others_read_is_computed_once() -> None:
    with Engine() as engine:
        program = load(
            engine,
            CLOSURE
            + """
            .decl back(x: number, y: number)  .decl self(x: number)
            back(y, x) :- tc(x, y).
            self(x) :- tc(x, x).
            .output back
            .output self
            """,
        )
        program.insert("edge", [(1, 2), (2, 1)])
        loops = [
            name
            for name in {status.dataflow for status in engine.status()}
            if any(isinstance(node, ir.Loop) for node in own_nodes(engine, name))
        ]
        assert len(loops) == 1
        assert program.relation("self").rows() == {(1,), (2,)}


def test_orders_are_chosen_for_few_indexes() -> None:
    with Engine() as engine:
        program = load(
            engine,
            """
            .decl a(x: number, y: number)  .decl b(x: number, y: number)  .decl c(x: number, y: number)
            c(x, z) :- a(x, y), b(y, z).
            c(x, w) :- b(z, w), a(x, y), b(y, z).
            c(x, y) :- a(x, y), b(x, y).
            """,
        )
        # In the order of its text, the second rule would begin with a product.
        keys = {(index.relation, index.key) for index in program.planner.choice.uses}
        assert keys == {("a", (1,)), ("b", (0,)), ("a", (0, 1)), ("b", (0, 1))}


def test_computed_values_are_looked_up() -> None:
    with Engine() as engine:
        text = ".decl a(s: number, x: number)  .decl b(x: number, y: number)  b(x, y) :- a(s + 1, y), a(s, x)."
        program = load(engine, text)
        assert program.planner.choice.uses == {
            RelationIndex("a", (0,)): 1
        }  # no product: the first atom is read as a whole


def test_explain_names_orders_and_shared_indexes() -> None:
    with Engine() as engine:
        text = load(engine, CLOSURE + ".decl two(x: number)  two(x) :- edge(x, y), edge(y, _), !tc(y, x).").explain()
    assert text.splitlines() == [
        "tc, in a loop",
        "  tc(x, y) :- edge(x, y).",
        "    1. all of edge(x, y)",
        "  tc(x, z) :- tc(x, y), edge(y, z).",
        "    1. tc(x, y) by (y): index 1",
        "    2. edge(y, z) by (src): index 2, shared with 1 other look-up",
        "two",
        "  two(x) :- edge(x, y), edge(y, _), !tc(y, x).",
        "    1. edge(x, y) by (dst): index 3",
        "    2. edge(y, _) by (src): index 2, shared with 1 other look-up",
        "    without tc(y, x)",
        "indexes",
        "  index 1: tc by (y), 1 use",
        "  index 2: edge by (src), 2 uses",
        "  index 3: edge by (dst), 1 use",
    ]


# Tables, inputs and views of the engine.


def not_null(**columns: pa.DataType) -> list[pa.Field]:
    return [pa.field(name, kind, nullable=False) for name, kind in columns.items()]


def test_a_table_is_a_relation_and_its_indexes_are_shared_with_other_queries() -> None:
    with Engine() as engine:
        edges = engine.table("edges", not_null(src=pa.int64(), dst=pa.int64()), key=["src", "dst"])
        closure = engine.install("closure", transitive_closure(edges))
        before = {status.dataflow for status in engine.status()}
        program = load(engine, CLOSURE, relations={"edge": edges})
        new = {status.dataflow for status in engine.status()} - before
        assert new == {f"table {program.name}.tc facts", f"{program.name}.tc"}  # no index of the edges
        edges.insert({"src": [1, 2, 2**40], "dst": [2, 2**40, 4]})
        expected = {(row["src"], row["dst"]) for row in closure.to_arrow().to_pylist()}
        assert program.relation("tc").rows() == expected and (1, 4) in expected
        edges.delete({"src": [2], "dst": [2**40]})
        assert program.relation("tc").rows() == {(1, 2), (2**40, 4)}
        with pytest.raises(DatalogError, match="is a table, input or view of the engine"):
            program.insert("edge", [(1, 2)])


def test_bags_nulls_narrow_numbers_and_other_names() -> None:
    with Engine() as engine:
        edges = engine.table("edges", [pa.field("a", pa.int16(), nullable=True), *not_null(b=pa.int32())])
        program = load(engine, CLOSURE, relations={"edge": edges})
        edges.insert({"a": [1, 1, 2, None], "b": [2, 2, 3, 4]})
        assert program.relation("tc").rows() == {(1, 2), (2, 3), (1, 3)}
        edges.delete({"a": [1], "b": [2]})
        assert program.relation("tc").rows() == {(1, 2), (2, 3), (1, 3)}


def test_a_view_and_strings() -> None:
    with Engine() as engine:
        people = engine.table("people", not_null(name=pa.string(), age=pa.int32()), key="name")
        adults = engine.install("adults", people.select("name"))
        text = ".decl adult(name: symbol)  .decl pair(x: symbol, y: symbol)  pair(x, y) :- adult(x), adult(y), x != y."
        program = load(engine, text, relations={"adult": adults})
        people.insert({"name": ["ann", "bob"], "age": [30, 40]})
        assert program.relation("pair").rows() == {("ann", "bob"), ("bob", "ann")}


def test_rules_derive_into_a_relation_that_is_a_table() -> None:
    with Engine() as engine:
        edges = engine.table("edges", not_null(a=pa.int32(), b=pa.int32()), key=["a", "b"])
        program = load(engine, ".decl edge(x: number, y: number)  edge(y, x) :- edge(x, y).", relations={"edge": edges})
        edges.insert({"a": [1], "b": [2]})
        assert program.relation("edge").rows() == {(1, 2), (2, 1)}
        assert edges.lookup(a=2).num_rows == 0  # the table has its own rows only


def test_a_table_that_does_not_fit_is_refused() -> None:
    with Engine() as engine:
        table = engine.table("t", {"a": pa.string(), "b": pa.int32()})
        with pytest.raises(DatalogError, match='column "a" does not fit relation "edge"'):
            load(engine, CLOSURE, relations={"edge": table})
        with pytest.raises(DatalogError, match="the columns do not fit"):
            load(engine, ".decl e(x: number)", relations={"e": table})
        assert set(engine.tables) == {"t"} and not engine.views


@pytest.mark.usefixtures("small_sweeps_are_programs")
def test_small_changes_run_as_compiled_programs() -> None:
    with Engine() as engine:
        program = load(engine, CLOSURE + ".decl next(x: number)  next(x + 1) :- tc(x, y), x < y.  .output next")
        program.insert("edge", [(node, node + 1) for node in range(5)])
        assert len(program.relation("next")) == 5
        before = programs_run(engine)
        program.remove("edge", [(2, 3)])
        assert program.relation("next").rows() == {(1,), (2,), (4,), (5,)}
        assert programs_run(engine) - before >= 3  # the table, its index, the loop, the result
