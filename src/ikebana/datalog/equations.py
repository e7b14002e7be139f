"""Equations in place of arguments that are computed, so that arguments are variables, constants or wildcards.

    p(x, x + 1) :- q(x), r(count : { s(x, _) }).       p(x, v1) :- q(x), r(v2), v2 = count : { s(x, _) }, v1 = x + 1.

Cost: linear in the rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ikebana.datalog.check import CheckedRule, Relation
from ikebana.datalog.syntax import (
    Atom,
    Call,
    Cast,
    Comparison,
    Literal,
    Negation,
    Rule,
    Variable,
    Wildcard,
    aggregates,
    inner_variables,
    variables,
)


class _Names:
    """New variables of a rule, with their types."""

    def __init__(self, rule: CheckedRule, relations: Mapping[str, Relation]) -> None:
        self.types, self._relations, self._count = dict(rule.types), relations, 0
        taken = {name for part in (rule.head, *rule.body) for name in _all_variables(part)}
        self._tail = "_" * (1 + max((len(name) - len(name.rstrip("_")) for name in taken), default=0))

    def new(self, atom: Atom, place: int) -> Variable:
        """A variable for an argument."""
        self._count += 1
        name = f"v{self._count}{self._tail}"
        self.types[name] = self._relations[atom.relation].types[place]
        return Variable(name)


def with_equations(rule: CheckedRule, relations: Mapping[str, Relation], adornment: str) -> CheckedRule:
    """The rule with equations for computed arguments of its head in bound places, and for aggregates in arguments."""
    names, equations = _Names(rule, relations), list[Literal]()

    def plain(atom: Atom, adornment: str = "") -> Atom:
        arguments = list(atom.arguments)
        for place, argument in enumerate(atom.arguments):
            is_question = adornment[place : place + 1] == "b" and isinstance(argument, Call | Cast)
            if is_question or any(aggregates(argument)):
                arguments[place] = names.new(atom, place)
                equations.append(Comparison("=", arguments[place], argument))
        return replace(atom, arguments=tuple(arguments))

    def plain_literal(literal: Literal) -> Literal:
        match literal:
            case Atom():
                return plain(literal)
            case Negation(atom=atom):
                return replace(literal, atom=plain(atom))
        return literal

    body = [plain_literal(literal) for literal in rule.body]
    head = plain(rule.head, adornment)
    return CheckedRule(Rule(head, (*body, *equations), rule.rule.position), names.types)


def without_wildcards(rule: CheckedRule, relations: Mapping[str, Relation]) -> CheckedRule:
    """The rule with a variable for each wildcard of an atom that is not negated."""
    names = _Names(rule, relations)

    def named(literal: Literal) -> Literal:
        if not isinstance(literal, Atom):
            return literal
        arguments = (
            names.new(literal, place) if isinstance(argument, Wildcard) else argument
            for place, argument in enumerate(literal.arguments)
        )
        return replace(literal, arguments=tuple(arguments))

    body = tuple(named(literal) for literal in rule.body)
    return CheckedRule(replace(rule.rule, body=body), names.types)


def _all_variables(literal: Literal) -> set[str]:
    """The variables of a literal, also those of its aggregates."""
    names = set(variables(literal))
    for aggregate in aggregates(literal):
        names |= inner_variables(aggregate)
    return names
