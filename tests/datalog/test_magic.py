"""Magic sets: rewritten programs, evaluated naively, have the rows that were asked for."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.datalog import check, parse
from ikebana.datalog.check import CheckedProgram
from ikebana.datalog.magic import MagicProgram, rewrite
from tests.datalog import naive
from tests.datalog.test_oracle import FACTS, programs
from tests.profiles import examples

NUMBERS = ".decl e(x: number, y: number) .decl f(x: number, y: number) .decl u(x: number) "
DERIVED = ".decl p(x: number, y: number) .decl q(x: number, y: number) .decl tc(x: number, y: number) "
CLOSURE = "tc(x, y) :- e(x, y). tc(x, z) :- tc(x, y), e(y, z). "


def program(rules: str) -> CheckedProgram:
    return check(parse(NUMBERS + DERIVED + rules))


def check_rewriting(
    checked: CheckedProgram, facts: naive.Relations, name: str, adornment: str, seeds: set[tuple[Any, ...]]
) -> MagicProgram:
    """Compare the rows that the rewritten program derives with those of the relation."""
    derived = [relation for relation, rules in checked.rules_by_head.items() if rules]
    rewriting = rewrite(checked, name, adornment, derived)
    if rewriting.is_magic:
        full = naive.evaluate(checked, facts)
        given = {relation: full[relation] for relation in rewriting.program.relations if relation in full}
        given |= {own: facts.get(base, set()) for base, own in rewriting.facts.items()}
        rows = naive.evaluate(rewriting.program, {**given, rewriting.seed: seeds})[rewriting.answer]
        places = [place for place, letter in enumerate(adornment) if letter == "b"]

        def asked(row: tuple[Any, ...]) -> bool:
            return tuple(row[place] for place in places) in seeds

        assert {row for row in rows if asked(row)} == {row for row in full[name] if asked(row)}
        assert rows <= full[name]
    return rewriting


@examples(1, quick=0.5)
@given(programs(), FACTS, st.data())
def test_oracle_rewritten_programs_have_the_rows_asked_for(
    text: str, facts: dict[str, list[Any]], data: st.DataObject
) -> None:
    checked = check(parse(text))
    rows: naive.Relations = {name: set(some) for name, some in facts.items()}
    seeds = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=2))
    for name in ("p", "s", "t", "u"):
        for letters in itertools.product("bf", repeat=checked.relations[name].arity):
            adornment = "".join(letters)
            check_rewriting(checked, rows, name, adornment, {seed[: adornment.count("b")] for seed in seeds})


def rules_of(text: str, name: str, adornment: str) -> list[str]:
    return [str(rule) for rule in rewrite(program(text), name, adornment).program.rules]


def test_left_recursion_passes_its_argument_on() -> None:
    assert rules_of(CLOSURE, "tc", "bf") == [
        "tc_bf(x, y) :- seed_tc_bf(x), e(x, y).",
        "tc_bf(x, z) :- tc_bf(x, y), e(y, z).",
    ]


def test_supplementary_relations_serve_magic_and_rest() -> None:
    rules = "p(x, y) :- e(x, y), f(y, x). p(x, y) :- e(x, v), f(v, w), p(w, z), e(z, u), p(u, y)."
    assert rules_of(rules, "p", "bf") == [
        "magic_p_bf(x) :- seed_p_bf(x).",
        "p_bf(x, y) :- magic_p_bf(x), e(x, y), f(y, x).",
        "sup_p_bf_2_1(w, x) :- magic_p_bf(x), e(x, v), f(v, w).",
        "magic_p_bf(w) :- magic_p_bf(x), e(x, v), f(v, w).",
        "sup_p_bf_2_2(u, x) :- sup_p_bf_2_1(w, x), p_bf(w, z), e(z, u).",
        "magic_p_bf(u) :- sup_p_bf_2_2(u, x).",
        "p_bf(x, y) :- sup_p_bf_2_2(u, x), p_bf(u, y).",
    ]


def test_negated_relations_get_magic_of_their_own_where_they_can() -> None:
    rewriting = rewrite(program(CLOSURE + "p(x, y) :- f(x, y), !tc(x, y)."), "p", "bf")
    assert not rewriting.in_full
    assert "p_bf(x, y) :- sup_p_bf_1_1(x, y), !tc_bb(x, y)." in map(str, rewriting.program.rules)


def test_negated_relations_are_evaluated_in_full_where_strata_would_be_lost() -> None:
    rules = CLOSURE + "p(x, y) :- f(x, y), !tc(x, y). q(x, y) :- p(x, y). q(x, z) :- q(x, y), e(y, z), !tc(z, x)."
    rewriting = rewrite(program(rules), "q", "bf")
    assert rewriting.is_magic and list(rewriting.in_full) == ["tc"]
    assert "tc is evaluated in full: it is negated or aggregated" in str(rewriting)


def test_aggregates_ask_only_for_their_groups() -> None:
    rewriting = rewrite(program(CLOSURE + "p(x, n) :- u(x), n = count : { tc(x, _) }."), "p", "bf")
    assert not rewriting.in_full
    assert "tc_bf" in str(rewriting)


@pytest.mark.parametrize(
    ("rules", "adornment", "reason"),
    [
        (CLOSURE, "ff", "no argument is bound"),
        ("tc(x, y) :- e(x, y). tc(x, y) :- tc(y, z), u(x).", "bf", "no argument of tc(y, z) is bound"),
    ],
)
def test_questions_that_need_everything_say_so(rules: str, adornment: str, reason: str) -> None:
    rewriting = rewrite(program(rules), "tc", adornment)
    assert not rewriting.is_magic
    assert reason in str(rewriting)


def test_arithmetic_on_values_of_questions_alone_is_not_done() -> None:
    """Otherwise the magic relation of the rule would count down without end."""
    checked = program("q(n, v) :- e(n, v). q(n, v) :- k = n - 1, q(k, v), u(n).")
    facts: naive.Relations = {"e": {(1, 5)}, "u": {(2,), (3,), (7,)}}
    assert check_rewriting(checked, facts, "q", "bf", {(3,), (9,)}).is_magic


def test_relations_without_rules_are_read() -> None:
    assert str(rewrite(program(CLOSURE), "e", "bf")) == "e (bf): read from the relation: it has no rules"
