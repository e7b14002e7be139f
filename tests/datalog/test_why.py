"""Why facts hold: proofs are valid and of least height, and end for recursive rules; why others do not."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from ikebana import Engine
from ikebana.datalog import Program, check, parse, parse_atom, syntax
from ikebana.datalog.check import CheckedProgram, CheckedRule
from ikebana.datalog.proofs import Proof
from ikebana.datalog.storage import Storage
from ikebana.datalog.why import Explainer
from ikebana.errors import DatalogError
from ikebana.expressions import ColumnBatch
from tests.datalog import naive
from tests.datalog.test_oracle import FACTS, programs
from tests.profiles import examples

Fact = tuple[str, tuple[Any, ...]]


def instances(rule: CheckedRule, relations: naive.Relations) -> list[tuple[Fact, list[Fact]]]:
    """All facts that a rule derives, each with the facts that its atoms are."""
    names = iter(f"wild{number}" for number in range(100))

    def named(literal: syntax.Literal) -> syntax.Literal:
        if not isinstance(literal, syntax.Atom):
            return literal
        arguments = [syntax.Variable(next(names)) if str(part) == "_" else part for part in literal.arguments]
        return replace(literal, arguments=tuple(arguments))

    body = [named(literal) for literal in rule.body]
    result = []
    for binding in naive.solutions(body, {}, rule, relations):

        def row(atom: syntax.Atom, binding: naive.Binding = binding) -> Fact:
            return atom.relation, tuple(naive.value(part, binding, rule, relations) for part in atom.arguments)

        result.append((row(rule.head), [row(literal) for literal in body if isinstance(literal, syntax.Atom)]))
    return result


def least_heights(program: CheckedProgram, facts: naive.Relations, relations: naive.Relations) -> dict[Fact, float]:
    heights: dict[Fact, float] = {(name, row): 0 for name, rows in facts.items() for row in rows}
    derived = [instance for rule in program.rules for instance in instances(rule, relations)]
    changed = True
    while changed:
        changed = False
        for fact, premises in derived:
            height = 1 + max((heights.get(premise, math.inf) for premise in premises), default=0)
            if height < heights.get(fact, math.inf):
                heights[fact], changed = height, True
    return heights


def explainer(program: CheckedProgram, facts: naive.Relations, relations: naive.Relations) -> Explainer:
    def rows(of: naive.Relations) -> Any:
        def batch(name: str) -> ColumnBatch:
            some = sorted(of.get(name, ()))
            columns = {
                attribute: pa.array([row[place] for row in some], pa.int32())
                for place, attribute in enumerate(program.relations[name].attributes)
            }
            return ColumnBatch(columns, len(some))

        return batch

    return Explainer(program, rows(relations), rows(facts), Storage())


def check_proof(proof: Proof, facts: naive.Relations) -> int:
    """Check that leaves are facts, and return the height."""
    if proof.rule is None:
        atom = parse_atom(proof.fact)
        assert tuple(part.value for part in atom.arguments) in facts[atom.relation]  # type: ignore[union-attr]
        return 0
    if proof.is_repeated:
        return proof.height
    below = [check_proof(premise, facts) for premise in proof.premises if isinstance(premise, Proof)]
    assert proof.height >= 1 + max(below, default=0)
    return 1 + max(below, default=0)


@examples(1, quick=0.5)
@given(programs(), FACTS)
def test_oracle_proofs_are_of_least_height(text: str, some: dict[str, list[Any]]) -> None:
    program = check(parse(text))
    facts: naive.Relations = {name: set(rows) for name, rows in some.items()}
    relations = naive.evaluate(program, facts)
    heights = least_heights(program, facts, relations)
    explain = explainer(program, facts, relations)
    for name in ("p", "q", "s", "t", "u"):
        for row in sorted(relations[name])[:3]:
            proof = explain.why(f"{name}({', '.join(map(str, row))})")
            assert proof.height == heights[name, row]
            check_proof(proof, facts)
        missing = (3,) * len(program.relations[name].attributes)
        if missing not in relations[name]:
            assert len(explain.why_not(f"{name}({', '.join(map(str, missing))})").failures) == len(
                program.rules_by_head[name]
            )


CLOSURE = """
    .decl edge(x: number, y: number)
    .decl tc(x: number, y: number)
    tc(x, y) :- edge(x, y).
    tc(x, z) :- tc(x, y), edge(y, z).
"""


def test_proofs_as_text_and_json() -> None:
    with Engine() as engine:
        program = Program(engine, CLOSURE)
        program.insert("edge", [(1, 2), (2, 3), (3, 1), (1, 4), (4, 3)])
        proof = program.why("tc(1, 3)")
        assert str(proof).splitlines() == [
            "tc(1, 3)    tc(x, z) :- tc(x, y), edge(y, z).",
            "├─ tc(1, 2)    tc(x, y) :- edge(x, y).",
            "│  └─ edge(1, 2)",
            "└─ edge(2, 3)",
        ] or "tc(1, 4)" in str(proof)
        assert json.loads(proof.to_json())["height"] == 2
        program.remove("edge", [(1, 4)])
        program.insert("tc", [(1, 3)])
        assert program.why("tc(1, 3)") == Proof("tc(1, 3)", 0)
        assert not [view for view in engine.views if "facts of" in view]


def test_premises_show_conditions_with_their_values() -> None:
    with Engine() as engine:
        program = Program(
            engine,
            """
            .decl a(x: symbol, n: number) .decl b(x: symbol, n: number)
            b(x, n + 1) :- a(x, n), !a(x, 9), m = count : { a(x, _) }, m < n.
            """,
        )
        program.insert("a", [("v", 2), ("w", 9)])
        assert str(program.why('b("v", 3)')).splitlines()[1:] == [
            '├─ a("v", 2)',
            '├─ !a("v", 9)',
            '├─ 1 = count : { a("v", __1) }',
            "├─ 1 < 2",
            "└─ 3 = (2 + 1)",
        ]
        assert [failure.literal for failure in program.why_not('b("w", 10)').failures] == ["!a(x, 9)"]


def test_why_not_names_the_first_literal_that_fails() -> None:
    with Engine() as engine:
        program = Program(engine, CLOSURE)
        program.insert("edge", [(1, 2), (2, 3), (1, 5)])
        reasons = program.why_not("tc(1, 9)")
        assert str(reasons).splitlines() == [
            "tc(1, 9) was not inserted, and no rule derives it:",
            "  tc(x, y) :- edge(x, y).",
            "    edge(x, y) fails for x = 1, y = 9",
            "  tc(x, z) :- tc(x, y), edge(y, z).",
            "    edge(y, z) fails for x = 1, z = 9, y = 2; x = 1, z = 9, y = 3; x = 1, z = 9, y = 5",
        ]
        assert json.loads(reasons.to_json())["failures"][1]["count"] == 3
        assert str(program.why_not("edge(1, 9)")) == "edge(1, 9) was not inserted, and no rule derives its relation"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ("why('tc(2, 1)')", "does not hold"),
        ("why_not('tc(1, 2)')", "holds"),
        ("why('tcc(1, 2)')", "there is no relation"),
        ("why('tc(x, 2)')", "is not a constant"),
        ("why('tc(1)')", "has 2 arguments"),
        ("why('tc(\"a\", 2)')", "symbol"),
    ],
)
def test_facts_that_cannot_be_explained(ask: str, message: str) -> None:
    with Engine() as engine:
        program = Program(engine, CLOSURE)
        program.insert("edge", [(1, 2)])
        with pytest.raises(DatalogError, match=message):
            eval(f"program.{ask}", {"program": program})


def test_a_long_proof_over_many_rows() -> None:
    program = check(parse(CLOSURE))
    chain = np.arange(1200)  # a proof that is deeper than Python's stack
    edges = np.column_stack([chain, chain + 1])
    closure = np.array([(one, other) for one in range(0, 1201, 40) for other in range(one + 1, 1201)])

    def rows(name: str) -> ColumnBatch:
        some = edges if name == "edge" else closure
        return ColumnBatch({name: pa.array(some[:, at].astype(np.int32)) for at, name in enumerate("xy")}, len(some))

    def facts(name: str) -> ColumnBatch:
        return rows(name) if name == "edge" else ColumnBatch({c: pa.array([], pa.int32()) for c in "xy"}, 0)

    proof = Explainer(program, rows, facts, Storage()).why("tc(0, 1200)")
    assert proof.height == 1200
    assert len(str(proof).splitlines()) == 2400
    assert proof.to_json().count('"fact"') == 2400
    assert proof.to_dict()["height"] == 1200
