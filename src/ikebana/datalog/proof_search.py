"""The search for a proof of least height of one fact.

The *height* of a fact that was inserted is 0, and that of a derived fact is one more than that of its highest premise,
by the rule and the values for which this is least. Negated atoms, comparisons and aggregates are premises without a
proof of their own; they add nothing to the height.

The rules are read backwards: for the facts of each level, all premises that the relations contain are looked up, a
level at a time; these are the facts of the next level. Heights are passed back as soon as they are known. A proof of
height h uses no facts below level h, so the search ends at the level where no proof can be lower than the one that was
found. Every fact is looked up once, so it ends for recursive rules, too.

Cost: for each level and rule, a pass over the relations of its body in Arrow (`ikebana.datalog.matching`). What is done
in Python is in proportion to the premises of the facts that a proof of that height could use.

Not guaranteed: which of several proofs of least height is returned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ikebana.datalog.check import CheckedRule
from ikebana.datalog.matching import take
from ikebana.datalog.proofs import Proof
from ikebana.datalog.syntax import (
    Aggregate,
    Atom,
    Call,
    Cast,
    Comparison,
    Constant,
    Expression,
    Literal,
    Negation,
    Variable,
    Wildcard,
)
from ikebana.expressions import ColumnBatch

if TYPE_CHECKING:
    from ikebana.datalog.why import Explainer

Row = tuple[Any, ...]
Fact = tuple[str, Row]
"""A relation and a row, as it is stored."""

FACT = " fact"
"""A column with the number of the fact that a solution derives; variables have no spaces."""


@dataclass(eq=False, slots=True)
class _Node:
    """A fact in the search."""

    fact: Fact
    height: float = math.inf
    best: _Instance | None = None
    """The rule and values of the lowest proof so far; None if the fact was inserted."""
    used_by: list[_Instance] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Instance:
    """A rule that derives a fact for some values of its variables."""

    derives: _Node
    premises: tuple[_Node, ...]
    rule: int
    solutions: ColumnBatch
    row: int

    @property
    def height(self) -> float:
        return 1 + max((node.height for node in self.premises), default=0)


class ProofSearch:
    """The search for a proof of one fact."""

    def __init__(self, explainer: Explainer, fact: Fact) -> None:
        self._explainer = explainer
        self._goal = _Node(fact)
        self._nodes = {fact: self._goal}
        self._rules: dict[str, list[CheckedRule]] = {}

    def proof(self) -> Proof:
        """A proof of least height."""
        level, depth = [self._goal], 0
        while level and self._goal.height > depth:
            level = self._expand(level)
            depth += 1
        return self._tree()

    # Searching.

    def _expand(self, level: Sequence[_Node]) -> list[_Node]:
        """Look up the premises of some facts; return those that are new."""
        by_relation: dict[str, list[_Node]] = {}
        for node in level:
            by_relation.setdefault(node.fact[0], []).append(node)
        new: list[_Node] = []
        for relation, nodes in by_relation.items():
            inserted = self._explainer.matching([node.fact[1] for node in nodes], relation)
            for number in inserted:
                nodes[number].height = 0
                self._pass_on(nodes[number])
            derived = [node for number, node in enumerate(nodes) if number not in inserted]
            if derived:
                for number in range(len(self._rules_of(relation))):
                    new += self._apply_backwards(relation, number, derived)
        return new

    def _rules_of(self, relation: str) -> list[CheckedRule]:
        if relation not in self._rules:
            self._rules[relation] = self._explainer.rules_of(relation)
        return self._rules[relation]

    def _apply_backwards(self, relation: str, number: int, nodes: Sequence[_Node]) -> list[_Node]:
        """Look up the premises of some facts by one rule."""
        explainer, rule = self._explainer, self._rules_of(relation)[number]
        start = explainer.head_solutions(rule, [node.fact[1] for node in nodes], range(len(nodes)))
        if not start.count:
            return []
        solutions = explainer.solve(rule, start)
        atoms = [literal for literal in rule.body if isinstance(literal, Atom)]
        atoms = [atom for atom in atoms if explainer.is_derived(atom.relation)]
        premises = [self._rows(rule, atom, solutions) for atom in atoms]
        new: list[_Node] = []
        for row, of in enumerate(solutions.columns[FACT].to_pylist()):
            used = tuple(
                self._node((atom.relation, rows[row]), new) for atom, rows in zip(atoms, premises, strict=True)
            )
            instance = _Instance(nodes[of], used, number, solutions, row)
            for node in used:
                node.used_by.append(instance)
            self._improve(instance)
        return new

    def _rows(self, rule: CheckedRule, atom: Atom, solutions: ColumnBatch) -> list[Row]:
        """The row of an atom in each solution."""
        values = (self._explainer.value(argument, rule, solutions).to_pylist() for argument in atom.arguments)
        return list(zip(*values, strict=True)) if atom.arguments else [()] * solutions.count

    def _node(self, fact: Fact, new: list[_Node]) -> _Node:
        node = self._nodes.get(fact)
        if node is None:
            node = self._nodes[fact] = _Node(fact)
            new.append(node)
        return node

    def _improve(self, instance: _Instance) -> None:
        """Take an instance as the proof of its fact if it is lower than the present one."""
        waiting = [instance]
        while waiting:
            instance = waiting.pop()
            if instance.height < instance.derives.height:
                instance.derives.height, instance.derives.best = instance.height, instance
                waiting += instance.derives.used_by

    def _pass_on(self, node: _Node) -> None:
        for instance in node.used_by:
            self._improve(instance)

    # The result. Proofs may be deeper than Python's stack, so they are built from below.

    def _tree(self) -> Proof:
        """The lowest proof; the proof of a fact that is used several times is shown where it comes first."""
        first_use = self._first_uses()
        proofs: dict[Fact, Proof] = {}
        for node in sorted((self._nodes[fact] for fact in first_use), key=lambda node: node.height):
            proofs[node.fact] = self._proof_of(node, proofs, first_use)
        return proofs[self._goal.fact]

    def _first_uses(self) -> dict[Fact, tuple[Fact, int]]:
        """Where each fact comes first in the text of the proof: as which premise of which fact."""
        uses: dict[Fact, tuple[Fact, int]] = {}
        waiting: list[tuple[_Node, tuple[Fact, int]]] = [(self._goal, (self._goal.fact, -1))]
        while waiting:
            node, use = waiting.pop()
            if node.fact not in uses:
                uses[node.fact] = use
                premises = list(enumerate(node.best.premises if node.best else ()))
                waiting += [(premise, (node.fact, number)) for number, premise in reversed(premises)]
        return uses

    def _proof_of(self, node: _Node, proofs: Mapping[Fact, Proof], first_use: Mapping[Fact, tuple[Fact, int]]) -> Proof:
        """The proof of a fact, given those of its premises."""
        explainer, instance = self._explainer, node.best
        fact, height = explainer.shown_fact(node.fact), int(node.height)
        if instance is None:
            return Proof(fact, height)
        rule = self._rules_of(node.fact[0])[instance.rule]
        values = explainer.constants(rule, instance.solutions, instance.row)
        numbers, premises = iter(range(len(instance.premises))), list[Proof | str]()
        for literal in rule.body:
            if not isinstance(literal, Atom):
                premises.append(str(_substituted(literal, values)))
            elif explainer.is_derived(literal.relation):
                number = next(numbers)
                used = instance.premises[number].fact
                proof = proofs[used]
                if proof.rule is not None and first_use[used] != (node.fact, number):
                    proof = replace(proof, premises=(), is_repeated=True)
                premises.append(proof)
            else:
                (row,) = self._rows(rule, literal, take(instance.solutions, np.array([instance.row])))
                premises.append(Proof(explainer.shown_fact((literal.relation, row)), 0))
        return Proof(fact, height, explainer.rule_text(node.fact[0], instance.rule), tuple(premises))


def _substituted(literal: Literal, values: Mapping[str, Constant]) -> Literal:
    """A literal with values in place of variables."""
    match literal:
        case Atom(arguments=arguments):
            return replace(literal, arguments=tuple(_with_values(argument, values) for argument in arguments))
        case Negation(atom=atom):
            return Negation(Atom(atom.relation, tuple(_with_values(argument, values) for argument in atom.arguments)))
        case Comparison(left=left, right=right):
            return replace(literal, left=_with_values(left, values), right=_with_values(right, values))


def _with_values(expression: Expression, values: Mapping[str, Constant]) -> Expression:
    match expression:
        case Variable(name=name):
            return values.get(name, expression)
        case Call(arguments=arguments):
            return replace(expression, arguments=tuple(_with_values(argument, values) for argument in arguments))
        case Cast(expression=inner):
            return replace(expression, expression=_with_values(inner, values))
        case Aggregate(target=target, body=body):
            target = None if target is None else _with_values(target, values)
            return replace(expression, target=target, body=tuple(_substituted(part, values) for part in body))
        case Constant() | Wildcard():
            return expression
