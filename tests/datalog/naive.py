"""Naive evaluation of checked programs in plain Python: the oracle of the tests.

Every stratum applies all its rules to all rows until nothing is new. Bodies are solved by trying every row of every
relation. Numbers have 32 bits. Nothing is optimised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ikebana.datalog import CheckedProgram, CheckedRule, syntax
from ikebana.datalog.types import type_of

Relations = dict[str, set[tuple[Any, ...]]]
Binding = dict[str, Any]


def evaluate(program: CheckedProgram, facts: Mapping[str, set[tuple[Any, ...]]]) -> Relations:
    """All relations of a program, given the facts of each (those in the text of the program included)."""
    relations: Relations = {name: set(facts.get(name, ())) for name in program.relations}
    for stratum in program.strata:
        rules = [rule for name in stratum.relations for rule in program.rules_by_head[name]]
        while True:
            new = [(rule.head.relation, row) for rule in rules for row in derived(rule, relations)]
            before = sum(map(len, relations.values()))
            for name, row in new:
                relations[name].add(row)
            if sum(map(len, relations.values())) == before:
                break
    return relations


def derived(rule: CheckedRule, relations: Relations) -> Iterator[tuple[Any, ...]]:
    """The rows that a rule derives."""
    for binding in solutions(list(rule.body), {}, rule, relations):
        yield tuple(value(argument, binding, rule, relations) for argument in rule.head.arguments)


def solutions(
    body: list[syntax.Literal], binding: Binding, rule: CheckedRule, relations: Relations
) -> Iterator[Binding]:
    """All bindings of variables that satisfy a body, and extend a binding."""
    atom = next((literal for literal in body if isinstance(literal, syntax.Atom)), None)
    if atom is not None:
        others = [literal for literal in body if literal is not atom]
        computed = [argument for argument in atom.arguments if isinstance(argument, syntax.Call)]
        for row in relations[atom.relation]:
            extended = matched(atom, row, binding)
            if extended is not None:
                equations = [
                    syntax.Comparison("=", argument, syntax.Constant(row[atom.arguments.index(argument)], "number"))
                    for argument in computed
                ]
                yield from solutions([*others, *equations], extended, rule, relations)
        return
    for literal in body:
        if isinstance(literal, syntax.Comparison) and literal.operator == "=":
            for side, other in ((literal.left, literal.right), (literal.right, literal.left)):
                if isinstance(side, syntax.Variable) and side.name not in binding and is_bound(other, binding, rule):
                    others = [part for part in body if part is not literal]
                    try:
                        extended = {**binding, side.name: value(other, binding, rule, relations)}
                    except NoValueError:
                        return
                    yield from solutions(others, extended, rule, relations)
                    return
    try:
        if all(holds(literal, binding, rule, relations) for literal in body):
            yield binding
    except NoValueError:
        return


class NoValueError(Exception):
    """An aggregate over nothing has no value."""


def matched(atom: syntax.Atom, row: tuple[Any, ...], binding: Binding) -> Binding | None:
    """The binding extended by a row, if the row fits; arguments that are computed are left out."""
    extended = dict(binding)
    for argument, entry in zip(atom.arguments, row, strict=True):
        if isinstance(argument, syntax.Constant) and argument.value != entry:
            return None
        if isinstance(argument, syntax.Variable) and extended.setdefault(argument.name, entry) != entry:
            return None
    return extended


def is_bound(expression: syntax.Expression, binding: Binding, rule: CheckedRule) -> bool:
    """Whether all variables of the rule itself that an expression needs are bound."""
    names = set(syntax.variables(expression))
    outer = {name for part in (rule.head, *rule.body) for name in syntax.variables(part)}
    for aggregate in syntax.aggregates(expression):
        names |= syntax.inner_variables(aggregate) & outer
    return names <= binding.keys()


def holds(literal: syntax.Literal, binding: Binding, rule: CheckedRule, relations: Relations) -> bool:
    if isinstance(literal, syntax.Negation):
        arguments = [
            None if isinstance(argument, syntax.Wildcard) else value(argument, binding, rule, relations)
            for argument in literal.atom.arguments
        ]
        return not any(
            all(argument is None or argument == entry for argument, entry in zip(arguments, row, strict=True))
            for row in relations[literal.atom.relation]
        )
    assert isinstance(literal, syntax.Comparison)
    left, right = (value(side, binding, rule, relations) for side in (literal.left, literal.right))
    match literal.operator:
        case "=":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
        case "match" | "!match":
            return (re.fullmatch(left, right) is not None) == (literal.operator == "match")
        case "contains" | "!contains":
            return (left in right) == (literal.operator == "contains")


def value(expression: syntax.Expression, binding: Binding, rule: CheckedRule, relations: Relations) -> Any:
    match expression:
        case syntax.Variable(name=name):
            return binding[name]
        case syntax.Constant(value=constant):
            return constant
        case syntax.Aggregate():
            return aggregated(expression, binding, rule, relations)
        case syntax.Cast(expression=inner):
            return wrapped(value(inner, binding, rule, relations), type_of(expression, rule.types))
        case syntax.Call(functor=functor, arguments=arguments):
            values = [value(argument, binding, rule, relations) for argument in arguments]
            return wrapped(FUNCTORS[functor](*values), type_of(expression, rule.types))
    raise AssertionError(expression)


def aggregated(aggregate: syntax.Aggregate, binding: Binding, rule: CheckedRule, relations: Relations) -> Any:
    inner = syntax.inner_variables(aggregate)
    given = {name: entry for name, entry in binding.items() if name in inner}
    bindings = {tuple(sorted(found.items())) for found in solutions(list(aggregate.body), given, rule, relations)}
    if aggregate.target is None:
        return len(bindings)
    values = [value(aggregate.target, dict(found), rule, relations) for found in bindings]
    if aggregate.function == "sum":
        return wrapped(sum(values), type_of(aggregate, rule.types))
    if not values:
        raise NoValueError
    if aggregate.function == "mean":
        return sum(values) / len(values)
    return (min if aggregate.function == "min" else max)(values)


def wrapped(number: Any, kind: str) -> Any:
    """An integer in the range of its type."""
    if kind == "number":
        return (int(number) + 2**31) % 2**32 - 2**31
    return int(number) % 2**32 if kind == "unsigned" else number


def quotient(one: Any, other: Any) -> Any:
    if isinstance(one, float):
        return one / other
    return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)


FUNCTORS: dict[str, Any] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": quotient,
    "%": lambda one, other: one - other * quotient(one, other),
    "^": lambda one, other: one**other,
    "neg": lambda one: -one,
    "band": lambda one, other: one & other,
    "bor": lambda one, other: one | other,
    "bxor": lambda one, other: one ^ other,
    "bnot": lambda one: ~one,
    "bshl": lambda one, other: one << (other & 31),
    "bshr": lambda one, other: one >> (other & 31),
    "bshru": lambda one, other: (one % 2**32) >> (other & 31),
    "land": lambda one, other: int(bool(one and other)),
    "lor": lambda one, other: int(bool(one or other)),
    "lxor": lambda one, other: int(bool(one) != bool(other)),
    "lnot": lambda one: int(not one),
    "min": min,
    "max": max,
    "cat": lambda *texts: "".join(texts),
    "strlen": len,
    "substr": lambda text, at, count: text[at : at + count] if 0 <= at < len(text) else "",
    "to_number": int,
    "to_unsigned": int,
    "to_float": float,
    "to_string": str,
    **{name: (lambda number: number) for name in ("itou", "utoi", "ftoi", "ftou")},
    **{name: float for name in ("itof", "utof")},
}
