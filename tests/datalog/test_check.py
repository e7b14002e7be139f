"""Semantic checks: components, types, groundedness and strata, with the errors that users see."""

from __future__ import annotations

import pytest

from ikebana.datalog import CheckedProgram, check, parse
from ikebana.errors import DatalogError

DECLARATIONS = """
.decl n(x: number)  .decl u(x: unsigned)  .decl f(x: float)  .decl s(x: symbol)
.decl edge(x: number, y: number)  .decl tc(x: number, y: number)
"""


def checked(text: str) -> CheckedProgram:
    return check(parse(DECLARATIONS + text))


def error_of(text: str) -> DatalogError:
    with pytest.raises(DatalogError) as error:
        checked(text)
    return error.value


# Strata.


def test_relations_that_depend_on_each_other_are_one_stratum() -> None:
    program = checked("""
        .decl even(x: number)  .decl odd(x: number)  .decl rest(x: number)
        even(0).
        odd(y) :- even(x), edge(x, y).
        even(y) :- odd(x), edge(x, y).
        rest(x) :- n(x), !even(x).
    """)
    strata = {stratum.relations: stratum.is_recursive for stratum in program.strata}
    assert strata[("even", "odd")] and not strata[("rest",)] and not strata[("edge",)]
    order = [name for stratum in program.strata for name in stratum.relations]
    assert order.index("edge") < order.index("even") < order.index("rest")


def test_negation_through_recursion_is_refused_with_the_cycle() -> None:
    error = error_of(".decl win(x: number)  win(x) :- edge(x, y), !win(y).")
    assert "depends on itself through negation" in error.what
    assert "the cycle is win -> !win" in error.detail


def test_aggregates_through_recursion_are_refused_with_the_cycle() -> None:
    error = error_of("""
        .decl size(c: number)
        tc(x, c) :- edge(x, _), size(c).
        size(c) :- c = count : { tc(_, _) }.
    """)
    assert "through an aggregate" in error.what
    assert "the cycle is size -> tc -> size" in error.detail


# Groundedness.


@pytest.mark.parametrize(
    ("rule", "variable", "column"),
    [
        ("n(x) :- n(y).", "x", 3),
        ("n(x) :- n(x), !edge(x, y).", "y", 24),
        ("n(x) :- n(x), y > 3.", "y", 15),
        ("n(x) :- n(x + 1).", "x", 11),
        ("n(x) :- x = y, y = x.", "x", 9),
        ("n(x) :- n(x), 1 = sum y : { n(z) }.", "y", 23),
    ],
)
def test_ungrounded_variables_are_refused(rule: str, variable: str, column: int) -> None:
    error = error_of("\n" + rule)
    assert error.what == f'variable "{variable}" is not grounded'
    assert error.position.column == column


def test_equations_ground_variables() -> None:
    checked("n(z) :- z = y + 1, y = x * 2, n(x).")
    checked("n(c) :- c = count : { edge(x, _) }.")


def test_variables_of_aggregates_must_be_grounded_outside_if_they_are_used_outside() -> None:
    assert "not grounded outside" in error_of("tc(x, c) :- c = count : { edge(x, _) }.").what
    checked("tc(x, c) :- n(x), c = count : { edge(x, _) }.")


def test_aggregates_get_variables_of_their_own() -> None:
    (rule,) = checked("tc(a, b) :- a = sum y : { edge(_, y) }, b = count : { edge(y, _) }.").rules
    assert str(rule) == "tc(a, b) :- a = sum y : { edge(__1, y) }, b = count : { edge(y_1, __2) }."


def test_wildcards_have_no_value() -> None:
    assert "_ in the head" in error_of("n(_) :- n(_).").what
    assert "_ has no value" in error_of("n(x) :- n(x), x > _.").what


# Names and arities.


def test_unknown_names_get_a_suggestion() -> None:
    assert error_of("n(x) :- edgee(x, _).").hint == 'did you mean "edge"?'
    assert error_of(".decl a(x: numbr)").hint == 'did you mean "number"?'
    assert error_of(".output tcc").hint == 'did you mean "tc"?'


def test_arities_are_checked() -> None:
    error = error_of("n(x) :- edge(x).")
    assert error.what == '"edge" has 2 arguments, not 1'
    assert error.hint == "it is declared as edge(x: number, y: number)"


def test_relations_are_declared_once() -> None:
    assert "declared twice" in error_of(".decl n(x: number)").what
    assert "two attributes" in error_of(".decl a(x: number, x: number)").what


# Types.


@pytest.mark.parametrize(
    "rule",
    [
        "n(x) :- s(x).",
        'n("a").',
        "n(1.5).",
        "n(x) :- n(x), s(y), x = y.",
        "n(x) :- n(x), f(y), x < y.",
        "n(x + y) :- n(x), u(y).",
        "n(strlen(x)) :- n(x).",
        "f(x % 2.0) :- f(x).",
        'n(x) :- n(x), match("a", x).',
        "n(c) :- c = sum x : { s(x) }.",
        "n(m) :- m = mean x : { n(x) }.",
        "n(as(x, number)) :- s(x).",
    ],
)
def test_types_that_do_not_agree_are_refused(rule: str) -> None:
    assert error_of(rule).position.line == 4


def test_constants_take_the_type_that_is_needed() -> None:
    program = checked("f(x + 1) :- f(x), x > 2, y = 3, y < 4.  u(1).  f(2).")
    assert str(program.rules[0]) == "f((x + 1.0)) :- f(x), x > 2.0, y = 3, y < 4."
    assert program.rules[0].types == {"x": "float", "y": "number"}
    assert program.facts == {"u": ((1,),), "f": ((2.0,),)}


def test_subtypes_and_unions_are_their_primitive_type() -> None:
    program = checked("""
        .type A <: symbol
        .type B = A | symbol
        .decl a(x: A, y: B)
        a(x, y) :- s(x), a(y, x).
    """)
    assert program.relations["a"].types == ("symbol", "symbol")
    assert "unites" in error_of(".type A = number | symbol").what
    assert "defined by itself" in error_of(".type A = B  .type B = A").what


# Components.


def test_components_are_instantiated_with_their_types_and_bases() -> None:
    program = checked("""
        .comp Base<T> {
            .decl node(x: T)
            .decl pair(x: T, y: T) overridable
            pair(x, x) :- node(x).
        }
        .comp Graph<T> : Base<T> {
            .type Id <: T
            .decl ids(x: Id)
            .override pair
            pair(x, y) :- node(x), node(y), edge(1, 2).
            ids(x) :- pair(x, _).
        }
        .comp Outer { .init inner = Graph<symbol>   .decl all(x: symbol)   all(x) :- inner.ids(x). }
        .init g = Graph<number>
        .init o = Outer
        n(x) :- g.ids(x).
        s(x) :- o.all(x).
    """)
    assert program.relations["g.ids"].types == ("number",)
    assert program.relations["o.inner.pair"].types == ("symbol", "symbol")
    rules = {str(rule) for rule in program.rules}
    assert "g.pair(x, y) :- g.node(x), g.node(y), edge(1, 2)." in rules
    assert "o.all(x) :- o.inner.ids(x)." in rules
    assert not any(rule.startswith("g.pair(x, x)") for rule in rules)


def test_parameters_of_nested_components_hide_those_outside() -> None:
    program = checked("""
        .comp A { .decl x(s: symbol) }
        .comp Top<Z> {
            .comp Foo<Z> : Bar<Z> {}
            .comp Bar<Q> { .init inner = Q  .output inner.x() }
            .init foo = Foo<Z>
        }
        .init top = Top<A>
    """)
    assert [directive.relation for directive in program.directives] == ["top.foo.inner.x"]


def test_components_that_do_not_fit_are_refused() -> None:
    assert "no component" in error_of(".init x = Nothing").what
    assert "takes 1 types" in error_of(".comp C<T> {}  .init x = C").what
    assert "contains itself" in error_of(".comp C { .init x = C }  .init y = C").what
    assert (
        "not overridable" in error_of(".comp A { .decl r(x: number) }  .comp B : A { .override r }  .init b = B").what
    )
