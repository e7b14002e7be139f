"""Semantic checks: `check` turns a syntax tree into a `CheckedProgram`, or raises an error with a place.

Checked are names, arities, types (`ikebana.datalog.types`), groundedness and stratification
(`ikebana.datalog.stratify`); components are instantiated first.

Groundedness. A variable is *grounded* by an argument of an atom that is not negated, or by an equation with an
expression whose variables are grounded. All variables of a rule must be. A variable that occurs only inside an
aggregate belongs to the aggregate, whose body must ground it; other variables in an aggregate are those of the rule.

After checking, constants have one of the four types; the variables of different aggregates of a rule have different
names; and each wildcard in an atom of an aggregate that is not negated is a variable of its own, since the aggregate
ranges over it.

Cost: nearly linear in the program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ikebana.datalog import syntax
from ikebana.datalog.components import instantiate
from ikebana.datalog.errors import did_you_mean, error_at, not_supported
from ikebana.datalog.stratify import Stratum, stratify
from ikebana.datalog.syntax import Atom, Comparison, Negation, Variable, Wildcard
from ikebana.datalog.types import Primitive, RuleTypes, TypeNames


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation: its name, and the names and types of its attributes."""

    name: str
    attributes: tuple[str, ...]
    types: tuple[Primitive, ...]
    position: syntax.Position = syntax.NOWHERE

    @property
    def arity(self) -> int:
        return len(self.attributes)

    def __str__(self) -> str:
        pairs = zip(self.attributes, self.types, strict=True)
        return f"{self.name}({', '.join(f'{name}: {kind}' for name, kind in pairs)})"


@dataclass(frozen=True)
class CheckedRule:
    """A rule that is valid, and the types of its variables."""

    rule: syntax.Rule
    types: Mapping[str, Primitive]

    @property
    def head(self) -> Atom:
        return self.rule.head

    @property
    def body(self) -> tuple[syntax.Literal, ...]:
        return self.rule.body

    def __str__(self) -> str:
        return str(self.rule)


@dataclass(frozen=True)
class CheckedProgram:
    """A valid program: relations, rules, facts (rows of constants) and strata, in an order of computation."""

    relations: Mapping[str, Relation]
    rules: tuple[CheckedRule, ...]
    facts: Mapping[str, tuple[tuple[int | float | str, ...], ...]]
    directives: tuple[syntax.Directive, ...]
    strata: tuple[Stratum, ...]

    @cached_property
    def rules_by_head(self) -> dict[str, list[CheckedRule]]:
        """The rules of each relation."""
        rules: dict[str, list[CheckedRule]] = {name: [] for name in self.relations}
        for rule in self.rules:
            rules[rule.head.relation].append(rule)
        return rules


def check(program: syntax.Program) -> CheckedProgram:
    """Check a program.

    >>> from ikebana.datalog import parse
    >>> edges = ".decl edge(x: number, y: number)  .decl tc(x: number, y: number) "
    >>> checked = check(parse(edges + "tc(x, y) :- edge(x, y).  tc(x, z) :- tc(x, y), edge(y, z)."))
    >>> [stratum.relations for stratum in checked.strata]
    [('edge',), ('tc',)]
    """
    program = instantiate(program)
    names = TypeNames(program.types)
    relations = _relations(program, names)
    for directive in program.directives:
        _known(directive.relation, relations, directive.position)
    checker = _Checker(relations, names)
    checked = [checker.check(rule) for rule in program.rules]
    facts: dict[str, dict[tuple[int | float | str, ...], None]] = {}
    rules = []
    for rule in checked:
        arguments = rule.head.arguments
        if rule.rule.is_fact and all(isinstance(argument, syntax.Constant) for argument in arguments):
            row = tuple(argument.value for argument in arguments if isinstance(argument, syntax.Constant))
            facts.setdefault(rule.head.relation, {})[row] = None
        else:
            rules.append(rule)
    strata = stratify(list(relations), [rule.rule for rule in rules])
    rows = {name: tuple(known) for name, known in facts.items()}
    return CheckedProgram(relations, tuple(rules), rows, program.directives, strata)


def check_rules(rules: Iterable[syntax.Rule], relations: Mapping[str, Relation]) -> list[CheckedRule]:
    """Check rules over relations that are known already, such as those of a rewritten program."""
    checker = _Checker(relations, TypeNames(()))
    return [checker.check(rule) for rule in rules]


def _relations(program: syntax.Program, names: TypeNames) -> dict[str, Relation]:
    relations: dict[str, Relation] = {}
    for declared in program.relations:
        if declared.name in relations:
            earlier = relations[declared.name].position
            raise error_at(
                declared.position, f'relation "{declared.name}" is declared twice', detail=f"also at {earlier}"
            )
        attributes = tuple(attribute.name for attribute in declared.attributes)
        for attribute in declared.attributes:
            if attributes.count(attribute.name) > 1:
                raise error_at(attribute.position, f'"{declared.name}" has two attributes "{attribute.name}"')
        types = tuple(names.resolve(attribute.type, attribute.position) for attribute in declared.attributes)
        relations[declared.name] = Relation(declared.name, attributes, types, declared.position)
    return relations


def _known(name: str, relations: Mapping[str, Relation], position: syntax.Position) -> Relation:
    if name not in relations:
        hint = did_you_mean(name, relations) or f"declare it: .decl {name}(...)"
        raise error_at(position, f'there is no relation "{name}"', hint=hint)
    return relations[name]


class _Checker:
    """Checks one rule after the other."""

    def __init__(self, relations: Mapping[str, Relation], names: TypeNames) -> None:
        self._relations, self._names = relations, names
        self._types = {name: relation.types for name, relation in relations.items()}

    def check(self, rule: syntax.Rule) -> CheckedRule:
        for atom in _atoms(rule):
            self._check_atom(atom)
        rule = _with_own_variables(rule)
        _check_grounded(rule)
        types = RuleTypes(self._types, self._names)
        types.atom(rule.head)
        for literal in rule.body:
            types.literal(literal)
        return CheckedRule(types.typed(rule), types.variables)

    def _check_atom(self, atom: Atom) -> None:
        relation = _known(atom.relation, self._relations, atom.position)
        if len(atom.arguments) != relation.arity:
            what = f'"{relation.name}" has {relation.arity} arguments, not {len(atom.arguments)}'
            raise error_at(atom.position, what, hint=f"it is declared as {relation}")


def _atoms(rule: syntax.Rule) -> Iterable[Atom]:
    """All atoms of a rule, also those inside aggregates."""
    yield rule.head
    yield from _body_atoms(rule.body)
    for aggregate in syntax.aggregates(rule.head):
        yield from _body_atoms(aggregate.body)


def _body_atoms(body: Iterable[syntax.Literal]) -> Iterable[Atom]:
    for literal in body:
        match literal:
            case Atom():
                yield literal
            case Negation(atom=atom):
                yield atom
        for aggregate in syntax.aggregates(literal):
            yield from _body_atoms(aggregate.body)


# Variables of aggregates.


def _with_own_variables(rule: syntax.Rule) -> syntax.Rule:
    """The rule with a name for each variable and wildcard of an aggregate that no other aggregate uses."""
    parts = (rule.head, *rule.body)
    if not any(True for part in parts for _ in syntax.aggregates(part)):
        return rule
    outer = {name for part in parts for name in syntax.variables(part)}
    naming = _Naming(outer)
    head = naming.atom(rule.head, outer)
    return replace(rule, head=head, body=tuple(naming.literal(literal, outer) for literal in rule.body))


class _Naming:
    """Renames variables of aggregates."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def _new(self, name: str) -> str:
        candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
        new = next(candidate for candidate in candidates if candidate not in self._taken and candidate != "_")
        self._taken.add(new)
        return new

    def atom(self, atom: Atom, outer: set[str], names: Mapping[str, str] | None = None, *, inner: bool = False) -> Atom:
        """An atom, with `names` for the variables; the wildcards of an `inner` atom become variables."""
        names = names or {}
        arguments = tuple(
            Variable(self._new("_"), argument.position)
            if inner and isinstance(argument, Wildcard)
            else self.expression(argument, outer, names)
            for argument in atom.arguments
        )
        return replace(atom, arguments=arguments)

    def literal(
        self,
        literal: syntax.Literal,
        outer: set[str],
        names: Mapping[str, str] | None = None,
        *,
        inner: bool = False,
    ) -> syntax.Literal:
        names = names or {}
        match literal:
            case Atom():
                return self.atom(literal, outer, names, inner=inner)
            case Negation():
                return replace(literal, atom=self.atom(literal.atom, outer, names))
            case Comparison():
                left, right = (self.expression(part, outer, names) for part in (literal.left, literal.right))
                return replace(literal, left=left, right=right)

    def expression(self, expression: syntax.Expression, outer: set[str], names: Mapping[str, str]) -> syntax.Expression:
        match expression:
            case Variable(name=name):
                return replace(expression, name=names.get(name, name))
            case syntax.Call():
                arguments = tuple(self.expression(part, outer, names) for part in expression.arguments)
                return replace(expression, arguments=arguments)
            case syntax.Cast():
                return replace(expression, expression=self.expression(expression.expression, outer, names))
            case syntax.Aggregate():
                return self._aggregate(expression, outer, names)
            case _:
                return expression

    def _aggregate(self, aggregate: syntax.Aggregate, outer: set[str], names: Mapping[str, str]) -> syntax.Aggregate:
        parts = (*aggregate.body, *(() if aggregate.target is None else (aggregate.target,)))
        own = sorted({name for part in parts for name in syntax.variables(part)} - outer)
        inner_names = {**names, **{name: self._new(name) for name in own}}
        scope = outer | set(own)
        body = tuple(self.literal(literal, scope, inner_names, inner=True) for literal in aggregate.body)
        target = None if aggregate.target is None else self.expression(aggregate.target, scope, inner_names)
        return replace(aggregate, target=target, body=body)


def shared_variables(aggregate: syntax.Aggregate, outer: Iterable[str]) -> tuple[str, ...]:
    """The variables of the surrounding body that an aggregate of a checked rule refers to, in order of name."""
    return tuple(sorted(syntax.inner_variables(aggregate) & set(outer)))


# Groundedness.


def _check_grounded(rule: syntax.Rule) -> None:
    outer = {name for part in (rule.head, *rule.body) for name in syntax.variables(part)}
    grounded = grounded_variables(rule.body, (), outer)
    _check_body(rule.body, grounded, outer)
    _check_uses(rule.head, grounded, outer)
    for argument in rule.head.arguments:
        if isinstance(argument, Wildcard):
            what = f'_ in the head of a rule for "{rule.head.relation}" has no value'
            raise error_at(argument.position, what, hint="use a variable that the body grounds")


def grounded_variables(body: Iterable[syntax.Literal], given: Iterable[str], outer: set[str]) -> set[str]:
    """The variables that a body grounds, with those given. `outer` are all variables of the body itself."""
    grounded = set(given)
    literals = list(body)
    for literal in literals:
        if isinstance(literal, Atom):
            grounded.update(part.name for part in literal.arguments if isinstance(part, Variable))
    equations = [literal for literal in literals if isinstance(literal, Comparison) and literal.operator == "="]
    while True:
        before = len(grounded)
        for equation in equations:
            for side, other in ((equation.left, equation.right), (equation.right, equation.left)):
                if isinstance(side, Variable) and needed_variables(other, outer) <= grounded:
                    grounded.add(side.name)
        if len(grounded) == before:
            return grounded


def needed_variables(node: syntax.Literal | syntax.Expression, outer: Iterable[str]) -> set[str]:
    """The variables of the surrounding body that a literal or expression refers to, also inside aggregates."""
    needed = set(syntax.variables(node))
    for aggregate in syntax.aggregates(node):
        needed.update(shared_variables(aggregate, outer))
    return needed


def _check_body(body: Iterable[syntax.Literal], grounded: set[str], outer: set[str]) -> None:
    literals = list(body)
    for literal in literals:
        for aggregate in syntax.aggregates(literal):
            _check_shared(aggregate, grounded, outer)
    for literal in literals:
        _check_uses(literal, grounded, outer)


def _check_uses(node: syntax.Literal, grounded: set[str], outer: set[str]) -> None:
    """Check the variables and aggregates of a literal."""
    for expression in syntax.expressions(node):
        match expression:
            case Variable() if expression.name not in grounded:
                raise _ungrounded(expression)
            case syntax.Aggregate():
                _check_aggregate(expression, grounded, outer)
            case syntax.Call(arguments=arguments):
                for argument in arguments:
                    if isinstance(argument, Wildcard):
                        raise error_at(argument.position, "_ has no value here", hint="use a variable")


def _check_shared(aggregate: syntax.Aggregate, grounded: set[str], outer: set[str]) -> None:
    """Check the variables that an aggregate shares with the body around it."""
    missing = set(shared_variables(aggregate, outer)) - grounded
    if missing:
        name = min(missing)
        what = f'variable "{name}" of an aggregate is not grounded outside it'
        hint = f"ground {name} by an atom outside the aggregate, or give the aggregate a variable of its own"
        raise error_at(aggregate.position, what, hint=hint)


def _check_aggregate(aggregate: syntax.Aggregate, grounded: set[str], outer: set[str]) -> None:
    _check_shared(aggregate, grounded, outer)
    shared = set(shared_variables(aggregate, outer))
    parts = (*aggregate.body, *(() if aggregate.target is None else (aggregate.target,)))
    variables = {name for part in parts for name in syntax.variables(part)} | shared
    inner = grounded_variables(aggregate.body, shared, variables)
    _check_body(aggregate.body, inner, variables)
    if aggregate.target is not None:
        for inside in syntax.aggregates(aggregate.target):
            raise not_supported(inside.position, "an aggregate as the target of an aggregate is")
        for expression in syntax.expressions(aggregate.target):
            if isinstance(expression, Variable) and expression.name not in inner:
                raise _ungrounded(expression)


def _ungrounded(variable: Variable) -> Exception:
    return error_at(
        variable.position,
        f'variable "{variable.name}" is not grounded',
        hint=f"use {variable.name} in an atom that is not negated, or equate it with an expression that is grounded",
    )
