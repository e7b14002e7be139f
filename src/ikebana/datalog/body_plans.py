"""Plans of rules' bodies: what a body consists of, and in which order its atoms are joined.

`Parts` takes a body apart: atoms become patterns (`ikebana.datalog.orders`), expressions in atoms become equations, and
aggregates become variables, each with the aggregate that computes it. `plan_body` chooses the order of the patterns,
also of those in the bodies of aggregates. `ikebana.datalog.bodies` solves a body by its plan.

Cost: that of choosing orders; independent of the data.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ikebana.datalog import syntax
from ikebana.datalog.check import grounded_variables, shared_variables
from ikebana.datalog.orders import IndexChoice, Order, SearchPattern


class Parts:
    """The literals of a body: patterns, and what is to be applied once its variables are known.

    Expressions in atoms become equations; aggregates become variables, each with the aggregate that computes it.
    """

    def __init__(self, body: Iterable[syntax.Literal], numbers: Iterator[int]) -> None:
        """`numbers` make the names of new variables different from all others of the rule."""
        self._numbers = numbers
        self.patterns: list[SearchPattern] = []
        self.comparisons: list[syntax.Comparison] = []
        self.negations: list[SearchPattern] = []
        self.aggregates: list[tuple[str, syntax.Aggregate]] = []
        self.fresh: dict[str, syntax.Expression | tuple[str, int]] = {}
        for literal in body:
            match literal:
                case syntax.Atom():
                    self.patterns.append(self._with_variable(self._pattern(literal)))
                case syntax.Negation(atom=atom):
                    self.negations.append(self._pattern(atom))
                case syntax.Comparison():
                    left, right = self._without_aggregates(literal.left), self._without_aggregates(literal.right)
                    self.comparisons.append(replace(literal, left=left, right=right))

    def _new(self, kind: str) -> str:
        return f"#{kind}{next(self._numbers)}"

    def _pattern(self, atom: syntax.Atom) -> SearchPattern:
        columns: dict[str, int] = {}
        constants, repeats = [], []
        for at, argument in enumerate(atom.arguments):
            match argument:
                case syntax.Wildcard():
                    pass
                case syntax.Constant():
                    constants.append((at, argument))
                case syntax.Variable(name=name):
                    if name in columns:
                        repeats.append((columns[name], at))
                    columns.setdefault(name, at)
                case _:
                    name = self._new("argument")
                    columns[name] = at
                    self.fresh[name] = (atom.relation, at)
                    left = syntax.Variable(name, argument.position)
                    right = self._without_aggregates(argument)
                    self.comparisons.append(syntax.Comparison("=", left, right, argument.position))
        return SearchPattern(atom, tuple(columns.items()), tuple(constants), tuple(repeats))

    def _with_variable(self, pattern: SearchPattern) -> SearchPattern:
        """A pattern with at least one variable, so that its solutions have a column."""
        if pattern.columns:
            return pattern
        name = self._new("present")
        self.fresh[name] = (pattern.atom.relation, 0)
        return replace(pattern, columns=((name, 0),))

    def _without_aggregates(self, expression: syntax.Expression) -> syntax.Expression:
        match expression:
            case syntax.Aggregate():
                name = self._new("aggregate")
                self.aggregates.append((name, expression))
                self.fresh[name] = expression
                return syntax.Variable(name, expression.position)
            case syntax.Call():
                arguments = tuple(self._without_aggregates(argument) for argument in expression.arguments)
                return replace(expression, arguments=arguments)
            case syntax.Cast():
                return replace(expression, expression=self._without_aggregates(expression.expression))
            case _:
                return expression

    @property
    def variables(self) -> set[str]:
        """The variables of the body, other than those that occur only inside aggregates."""
        names = {variable for pattern in (*self.patterns, *self.negations) for variable in pattern.variables}
        for comparison in self.comparisons:
            names.update(syntax.variables(comparison))
        return names

    @property
    def definitions(self) -> list[tuple[str, frozenset[str]]]:
        """The variables that equations may define, with the variables that they need."""
        return [
            (side.name, frozenset(syntax.variables(other)))
            for comparison in self.comparisons
            if comparison.operator == "="
            for side, other in ((comparison.left, comparison.right), (comparison.right, comparison.left))
            if isinstance(side, syntax.Variable)
        ]


@dataclass(frozen=True)
class BodyPlan:
    """How a body is solved: its parts, the order of its atoms, and the plans of its aggregates by their variables."""

    parts: Parts
    order: Order
    inner: Mapping[str, BodyPlan]

    @property
    def orders(self) -> Iterator[Order]:
        """The order of the body, and those of its aggregates."""
        yield self.order
        for plan in self.inner.values():
            yield from plan.orders


def plan_body(literals: Iterable[syntax.Literal], choice: IndexChoice) -> BodyPlan:
    """The plan of a rule's body: its parts, and an order of its atoms in which few indexes serve many rules."""
    return _plan_body(literals, choice, itertools.count(), set(), set())


def _plan_body(
    literals: Iterable[syntax.Literal], choice: IndexChoice, numbers: Iterator[int], outer: set[str], known: set[str]
) -> BodyPlan:
    """`outer` and `known` are variables of the body around an aggregate: all of them, and those that it needs first."""
    parts = Parts(literals, numbers)
    order = choice.order(parts.patterns, known, parts.definitions)
    variables = parts.variables | outer
    inner = {
        name: _plan_body(
            aggregate.body,
            choice,
            numbers,
            set(shared_variables(aggregate, variables)),
            missing_variables(aggregate, variables),
        )
        for name, aggregate in parts.aggregates
    }
    return BodyPlan(parts, order, inner)


def missing_variables(aggregate: syntax.Aggregate, outer: Iterable[str]) -> set[str]:
    """The variables of the rule that an aggregate refers to, and that its own body does not ground."""
    shared = set(shared_variables(aggregate, outer))
    variables = syntax.inner_variables(aggregate)
    return shared - grounded_variables(aggregate.body, (), variables)
