"""Plain-Python oracles: naive evaluation of positive rules, written for being obviously right.

`evaluate` takes the text of a program and applies all rules to all facts until nothing changes. It knows declarations,
and rules of atoms with variables and wildcards, which is all that the programs of `ikebana.analysis` consist of.
`close` derives all edges of a grammar in the same way, without Datalog.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from ikebana.analysis.grammar import Grammar, Symbol

Facts = dict[str, set[tuple[int, ...]]]
_ATOM = re.compile(r"(\w+)\(([^)]*)\)")


def evaluate(text: str, given: Mapping[str, set[tuple[int, int]]]) -> Facts:
    """All facts of a program over given facts."""
    lines = [line.split("//")[0].strip() for line in text.splitlines()]
    facts: Facts = {line.split()[1].split("(")[0]: set() for line in lines if line.startswith(".decl")}
    for relation, rows in given.items():
        facts[relation] |= rows
    rules = [[(name, arguments(inner)) for name, inner in _ATOM.findall(line)] for line in lines if ":-" in line]
    changed = True
    while changed:
        changed = False
        for (head, columns), *body in rules:
            new = {tuple(row[name] for name in columns) for row in solutions(body, facts)} - facts[head]
            facts[head] |= new
            changed = changed or bool(new)
    return facts


def arguments(inner: str) -> list[str]:
    """The variables of an atom; each wildcard is a variable of its own."""
    numbers = itertools.count()
    return [f"_{next(numbers)}" if name.strip() == "_" else name.strip() for name in inner.split(",")]


def solutions(body: list[tuple[str, list[str]]], facts: Facts) -> Iterator[dict[str, int]]:
    """The values of the variables with which all atoms are facts."""
    known: list[dict[str, int]] = [{}]
    for relation, names in body:
        longer = (extended(values, names, row) for values in known for row in facts[relation])
        known = [values for values in longer if values is not None]
    yield from known


def extended(values: dict[str, int], names: list[str], row: tuple[int, ...]) -> dict[str, int] | None:
    """The values with those of a row; None if they differ."""
    values = {name: value for name, value in values.items() if not name.startswith("_")}
    for name, value in zip(names, row, strict=True):
        if values.setdefault(name, value) != value:
            return None
    return values


def close(grammar: Grammar, edges: Mapping[str, set[tuple[int, int]]]) -> dict[str, set[tuple[int, int]]]:
    """All edges that a grammar derives from a graph."""
    facts = {name: set(edges.get(name, ())) for name in (*grammar.labels, *grammar.derived)}
    nodes = {node for name in grammar.labels for edge in facts[name] for node in edge}

    def paths(symbol: Symbol) -> set[tuple[int, int]]:
        return {(b, a) if symbol.inverse else (a, b) for a, b in facts[symbol.name]}

    while True:
        before = sum(map(len, facts.values()))
        for production in grammar.productions:
            ends = {(node, node) for node in nodes}
            if production.body:
                first, *rest = map(paths, production.body)
                ends = {(a, d) for a, b in first for c, d in rest[0] if b == c} if rest else first
            facts[production.head] |= ends
        if sum(map(len, facts.values())) == before:
            return facts
