"""Components: `instantiate` replaces every `.init` by the relations, rules and types of its component.

A relation `r` of an instance `c` is named `c.r`; inside the component, names mean what the component or its bases
declare, and otherwise what the surrounding program declares. A component has everything that its bases have, except
the rules for relations that it overrides.

Cost: linear in the result. A component that instantiates itself is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ikebana.datalog import syntax
from ikebana.datalog.errors import did_you_mean, error_at
from ikebana.datalog.syntax import Component, ComponentType, Program

_MAX_DEPTH = 50

Definitions = Mapping[str, Component]


def instantiate(program: Program) -> Program:
    """The same program without components."""
    return _flat(program, {}, 0)


def _flat(unit: Program, outer: Definitions, depth: int) -> Program:
    """The contents of a program or component with its instances expanded, under names relative to the unit."""
    definitions = {**outer, **{component.type.name: component for component in unit.components}}
    parts = [replace(unit, components=(), instances=())]
    for instance in unit.instances:
        if depth >= _MAX_DEPTH:
            raise error_at(instance.position, f"component {instance.type.name} contains itself")
        contents = _contents(instance.type, definitions, frozenset(), depth)
        parts.append(_prefixed(_flat(contents, definitions, depth + 1), f"{instance.name}."))
    return _merged(parts)


def _contents(kind: ComponentType, definitions: Definitions, overridden: frozenset[str], depth: int) -> Program:
    """What a component has, with that of its bases; rules for overridden relations are left out."""
    component = definitions.get(kind.name)
    if component is None:
        hint = did_you_mean(kind.name, definitions)
        raise error_at(kind.position, f'there is no component "{kind.name}"', hint=hint)
    parameters = component.type.arguments
    if len(parameters) != len(kind.arguments):
        what = f"component {component.type} takes {len(parameters)} types, not {len(kind.arguments)}"
        raise error_at(kind.position, what)
    if depth >= _MAX_DEPTH:
        raise error_at(kind.position, f"component {kind.name} inherits from itself")
    bindings = dict(zip(parameters, kind.arguments, strict=True))
    own = _bound(component.contents, bindings)
    overrides = frozenset(component.overrides)
    inherited = [
        _contents(_bound_type(base, bindings), definitions, overridden | overrides, depth + 1)
        for base in component.bases
    ]
    for base in inherited:
        _check_overrides(component, base)
    rules = tuple(rule for rule in own.rules if rule.head.relation not in overridden)
    return _merged([*inherited, replace(own, rules=rules)])


def _check_overrides(component: Component, base: Program) -> None:
    for relation in base.relations:
        if relation.name in component.overrides and "overridable" not in relation.qualifiers:
            what = f'component {component.type.name} overrides "{relation.name}", which is not overridable'
            raise error_at(component.position, what, hint="add the qualifier overridable to its declaration")


def _merged(parts: list[Program]) -> Program:
    return Program(
        tuple(item for part in parts for item in part.types),
        tuple(item for part in parts for item in part.relations),
        tuple(item for part in parts for item in part.rules),
        tuple(item for part in parts for item in part.directives),
        tuple(item for part in parts for item in part.components),
        tuple(item for part in parts for item in part.instances),
    )


def _bound_type(kind: ComponentType, bindings: Mapping[str, str]) -> ComponentType:
    arguments = tuple(bindings.get(argument, argument) for argument in kind.arguments)
    return replace(kind, name=bindings.get(kind.name, kind.name), arguments=arguments)


def _bound(program: Program, bindings: Mapping[str, str]) -> Program:
    """A component's contents with its type parameters replaced."""
    if not bindings:
        return program
    program = _renamed(program, _Renaming(lambda name: name, lambda name: bindings.get(name, name)))
    instances = tuple(replace(instance, type=_bound_type(instance.type, bindings)) for instance in program.instances)
    components = tuple(_bound_component(component, bindings) for component in program.components)
    return replace(program, instances=instances, components=components)


def _bound_component(component: Component, bindings: Mapping[str, str]) -> Component:
    """A nested component, whose own parameters hide those of the same names outside."""
    visible = _without(bindings, component.type.arguments)
    bases = tuple(_bound_type(base, visible) for base in component.bases)
    return replace(component, bases=bases, contents=_bound(component.contents, visible))


def _without(bindings: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in bindings.items() if name not in names}


def _prefixed(program: Program, prefix: str) -> Program:
    """The same program with a prefix to everything that it declares."""
    relations = {relation.name for relation in program.relations}
    types = {declaration.name for declaration in program.types}

    def with_prefix(names: set[str]) -> Callable[[str], str]:
        return lambda name: prefix + name if name in names else name

    return _renamed(program, _Renaming(with_prefix(relations), with_prefix(types)))


# Renaming.


@dataclass(frozen=True)
class _Renaming:
    relation: Callable[[str], str]
    type: Callable[[str], str]


def _renamed(program: Program, to: _Renaming) -> Program:
    return replace(
        program,
        types=tuple(
            replace(declaration, name=to.type(declaration.name), bases=tuple(map(to.type, declaration.bases)))
            for declaration in program.types
        ),
        relations=tuple(
            replace(
                relation,
                name=to.relation(relation.name),
                attributes=tuple(replace(item, type=to.type(item.type)) for item in relation.attributes),
            )
            for relation in program.relations
        ),
        rules=tuple(_rule(rule, to) for rule in program.rules),
        directives=tuple(
            replace(directive, relation=to.relation(directive.relation)) for directive in program.directives
        ),
    )


def _rule(rule: syntax.Rule, to: _Renaming) -> syntax.Rule:
    return replace(rule, head=_atom(rule.head, to), body=tuple(_literal(literal, to) for literal in rule.body))


def _atom(atom: syntax.Atom, to: _Renaming) -> syntax.Atom:
    arguments = tuple(_expression(argument, to) for argument in atom.arguments)
    return replace(atom, relation=to.relation(atom.relation), arguments=arguments)


def _literal(literal: syntax.Literal, to: _Renaming) -> syntax.Literal:
    match literal:
        case syntax.Atom():
            return _atom(literal, to)
        case syntax.Negation():
            return replace(literal, atom=_atom(literal.atom, to))
        case syntax.Comparison():
            return replace(literal, left=_expression(literal.left, to), right=_expression(literal.right, to))


def _expression(expression: syntax.Expression, to: _Renaming) -> syntax.Expression:
    match expression:
        case syntax.Call():
            return replace(expression, arguments=tuple(_expression(part, to) for part in expression.arguments))
        case syntax.Cast():
            inner = _expression(expression.expression, to)
            return replace(expression, expression=inner, type=to.type(expression.type))
        case syntax.Aggregate():
            target = None if expression.target is None else _expression(expression.target, to)
            return replace(expression, target=target, body=tuple(_literal(part, to) for part in expression.body))
        case _:
            return expression
