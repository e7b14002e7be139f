"""Strata: the order in which relations are computed, and which of them are computed together.

A relation depends on the relations in the bodies of its rules. Relations that depend on each other form a stratum, and
are computed in one loop; the strata are in an order in which each depends on earlier ones only. A dependency through
negation or an aggregate must lead to an earlier stratum.

Cost: linear in the program (Tarjan's algorithm).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ikebana.datalog import syntax
from ikebana.datalog.errors import error_at


@dataclass(frozen=True, slots=True)
class Stratum:
    """Relations that are computed together; `is_recursive` if their rules need a loop."""

    relations: tuple[str, ...]
    is_recursive: bool


@dataclass(frozen=True, slots=True)
class Dependency:
    """The relation of a rule's head depends on `relation`; `through` is "", "negation" or "an aggregate"."""

    relation: str
    through: str
    position: syntax.Position


def dependencies(body: Iterable[syntax.Literal], through: str = "") -> Iterator[Dependency]:
    """The relations that a body reads."""
    for literal in body:
        match literal:
            case syntax.Atom():
                yield Dependency(literal.relation, through, literal.position)
            case syntax.Negation(atom=atom):
                yield Dependency(atom.relation, through or "negation", literal.position)
        for aggregate in syntax.aggregates(literal):
            yield from dependencies(aggregate.body, "an aggregate")


def rule_dependencies(rule: syntax.Rule) -> Iterator[Dependency]:
    """The relations that a rule reads, also in aggregates of its head."""
    yield from dependencies(rule.body)
    for aggregate in syntax.aggregates(rule.head):
        yield from dependencies(aggregate.body, "an aggregate")


def stratify(relations: Sequence[str], rules: Iterable[syntax.Rule]) -> tuple[Stratum, ...]:
    """The strata of a program; raises if negation or an aggregate is part of a cycle."""
    reads: dict[str, list[Dependency]] = {name: [] for name in relations}
    for rule in rules:
        reads[rule.head.relation] += rule_dependencies(rule)
    strata = []
    for component in _components({name: [read.relation for read in found] for name, found in reads.items()}):
        members = set(component)
        inner = [(name, read) for name in component for read in reads[name] if read.relation in members]
        for name, read in inner:
            if read.through:
                raise _not_stratified(name, read, reads, members)
        strata.append(Stratum(tuple(sorted(component, key=relations.index)), bool(inner)))
    return tuple(strata)


def _not_stratified(name: str, read: Dependency, reads: Mapping[str, list[Dependency]], members: set[str]) -> Exception:
    path = _path(
        read.relation, name, {key: [r.relation for r in reads[key] if r.relation in members] for key in members}
    )
    cycle = f"{name} -> {'!' if read.through == 'negation' else ''}{' -> '.join(path)}"
    return error_at(
        read.position,
        f'"{name}" depends on itself through {read.through}',
        detail=f"the cycle is {cycle}",
        hint="relations below negation or an aggregate must not depend on the result: split the relation in two",
    )


def _path(start: str, goal: str, reads: Mapping[str, Sequence[str]]) -> list[str]:
    """A shortest path between two relations."""
    paths = {start: [start]}
    waiting = [start]
    for name in waiting:
        if name == goal:
            break
        for other in reads[name]:
            if other not in paths:
                paths[other] = [*paths[name], other]
                waiting.append(other)
    return paths[goal]


def _components(graph: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Strongly connected components, those without dependencies first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    result: list[list[str]] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            name, others = work[-1]
            for other in others:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(graph[other])))
                    break
                if other in on_stack:
                    low[name] = min(low[name], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    at = stack.index(name)
                    result.append(stack[at:])
                    on_stack.difference_update(stack[at:])
                    del stack[at:]
    return result
