"""Random programs under random insertions and removals: every relation equals naive evaluation after every change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ikebana import Engine
from ikebana.datalog import Program, check, parse
from tests.datalog import naive
from tests.datalog.test_programs import PROGRAMS
from tests.profiles import examples

VARIABLES = ["x", "y", "z", "w"]
VALUES = st.integers(0, 3)
ARITIES = {"e": 2, "f": 1, "g": 2, "p": 2, "q": 2, "r": 1, "s": 2, "t": 2, "u": 1}
LEVELS = [("e", "f", "g"), ("p", "q"), ("r", "s"), ("t", "u")]
"""Facts, and three levels of derived relations; negation and aggregates read lower levels."""


@st.composite
def rows_by_relation(draw: st.DrawFn, columns: dict[str, list[st.SearchStrategy[Any]]]) -> dict[str, list[Any]]:
    """Some rows of some relations, given the values of their attributes."""
    names = draw(st.lists(st.sampled_from(sorted(columns)), unique=True, max_size=4))
    return {name: draw(st.lists(st.tuples(*columns[name]), min_size=1, max_size=4)) for name in names}


FACTS = rows_by_relation({name: [VALUES] * arity for name, arity in ARITIES.items()})


@st.composite
def atoms(draw: st.DrawFn, names: tuple[str, ...], *, wildcards: bool = True) -> tuple[str, list[str]]:
    """An atom, and the variables that it grounds."""
    name = draw(st.sampled_from(names))
    others = ["0", "2", *(["_"] if wildcards else [])]
    arguments = [draw(st.sampled_from([*VARIABLES, *VARIABLES, *others])) for _ in range(ARITIES[name])]
    return f"{name}({', '.join(arguments)})", [argument for argument in arguments if argument in VARIABLES]


@st.composite
def extras(draw: st.DrawFn, bound: list[str], lower: tuple[str, ...]) -> tuple[str, list[str]]:
    """A further literal over bound variables, and the variable that it grounds, if any."""
    one, other = (draw(st.sampled_from(bound)) for _ in range(2))
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return f"{one} {draw(st.sampled_from(['!=', '<', '<=', '=']))} {other}", []
    if kind == 1:
        return f"v = ({one} + {other} * 2) % 4", ["v"]
    if kind == 2 and lower:
        name = draw(st.sampled_from(lower))
        arguments = [draw(st.sampled_from([one, other, "_", f"({one} + 1) % 4"])) for _ in range(ARITIES[name])]
        return f"!{name}({', '.join(arguments)})", []
    if kind in (3, 4) and lower:
        name = draw(st.sampled_from(lower))
        arguments = [draw(st.sampled_from([one, "i", "j", "_", "1"])) for _ in range(ARITIES[name])]
        body = f"{name}({', '.join(arguments)})"
        inner = [argument for argument in arguments if argument in "ij"]
        if draw(st.booleans()):
            body += f", {draw(st.sampled_from([*inner, one]))} {draw(st.sampled_from(['<', '!=']))} {other}"
        functions = ["sum", "min", "max"] if inner else ["count"]
        function = draw(st.sampled_from([*functions, "count"]))
        target = "" if function == "count" else f"{inner[0]} + {other}"
        return f"v = {function} {target} : {{ {body} }}", ["v"]
    return f"{one} <= 2", []


@st.composite
def rules(draw: st.DrawFn, level: int) -> str:
    lower = tuple(name for names in LEVELS[:level] for name in names)
    parts, bound = [], []
    for _ in range(draw(st.integers(1, 3))):
        text, grounded = draw(atoms((*lower, *LEVELS[level])))
        parts.append(text)
        bound += grounded
    if bound and draw(st.booleans()):
        text, grounded = draw(extras(bound, lower))
        parts.append(text)
        bound += [] if "sum" in text or "count" in text else grounded  # the domain stays small
    head = draw(st.sampled_from(LEVELS[level]))
    arguments = [draw(st.sampled_from([*bound, "1"])) for _ in range(ARITIES[head])]
    return f"{head}({', '.join(arguments)}) :- {', '.join(parts)}."


@st.composite
def programs(draw: st.DrawFn) -> str:
    declarations = [
        f".decl {name}({', '.join(f'a{at}: number' for at in range(arity))})" for name, arity in ARITIES.items()
    ]
    lines = [draw(rules(level)) for level in (1, 1, 1, 2, 2, 2, 3, 3)]
    return "\n".join([*declarations, *lines])


Changes = list[tuple[dict[str, list[Any]], dict[str, list[Any]]]]
"""Rows by relation that are inserted, and rows that are then removed, at each epoch."""


def change(
    program: Program, facts: naive.Relations, inserted: Mapping[str, set[Any]], removed: Mapping[str, set[Any]]
) -> None:
    """Insert and remove facts in one epoch, in a program and in the facts of naive evaluation."""
    with program.transaction():
        for name, rows in inserted.items():
            program.insert(name, rows)
            facts[name].update(rows)
        for name, rows in removed.items():
            program.remove(name, rows)
            facts[name].difference_update(rows)


def check_changes(text: str, changes: Changes, workers: int, seed: int = 0) -> None:
    """Apply changes to a program, and compare all relations after each."""
    checked = check(parse(text))
    facts: naive.Relations = {name: set(checked.facts.get(name, ())) for name in checked.relations}
    with Engine(workers=workers, seed=seed) as engine:
        program = Program(engine, text)
        for inserted, removed in changes:
            change(program, facts, inserted, removed)
            expected = naive.evaluate(checked, facts)
            for name in checked.relations:
                assert program.relation(name).rows() == expected[name], name


@examples(2, quick=0.25)
@given(programs(), st.lists(st.tuples(FACTS, FACTS), min_size=2, max_size=4), st.integers(1, 3), st.integers(0, 3))
def test_oracle_relations_equal_naive_evaluation(text: str, changes: Changes, workers: int, seed: int) -> None:
    check_changes(text, changes, workers, seed)


VALUES_OF: dict[str, st.SearchStrategy[Any]] = {
    "number": st.integers(-2, 6),
    "unsigned": st.integers(0, 5),
    "float": st.integers(-4, 4).map(lambda number: number / 2),
    "symbol": st.sampled_from(["", "a", "ann", "bob", "né", "12"]),
}


@examples(2, quick=0.25)
@given(st.data(), st.sampled_from(sorted(PROGRAMS)), st.integers(1, 3))
def test_oracle_known_programs_under_changes(data: st.DataObject, name: str, workers: int) -> None:
    text, _ = PROGRAMS[name]
    relations = check(parse(text)).relations.values()
    facts = rows_by_relation({relation.name: [VALUES_OF[kind] for kind in relation.types] for relation in relations})
    check_changes(text, data.draw(st.lists(st.tuples(facts, facts), min_size=1, max_size=3)), workers)
