"""Joins of Catalyst's: chains of inner and semi joins become one join, others are made of which rows match.

A chain is what inner joins, filters with scalar subqueries and semi joins on equality alone combine, seen through
projections that only leave columns out. Each scalar subquery is a part of one row, and each semi join a part of
distinct keys: so all are looked up alike (`ikebana.sql.joins`).

| join | rows |
|---|---|
| semi | those that match (`ikebana.sql.lowering.matching`) |
| anti | those that do not |
| existence | those that match, with true, and the others, with false |
| left outer | the inner join, and those that do not match, with nulls |
| full outer | the inner join, and those of either side that do not match, with nulls |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ikebana.errors import SqlError
from ikebana.expressions import Column, Literal
from ikebana.expressions.core.tree import Tree
from ikebana.sql.joins import InnerJoin
from ikebana.sql.lowering.context import Lowering, Wanted, conjuncts, lowers, scalar_subqueries
from ikebana.sql.lowering.matching import Key, Match, distinct_keys, keys_of, require, require_key
from ikebana.sql.lowering.temporal import is_temporal
from ikebana.sql.relation import Relation, union_all

_IN_CHAINS = ("Inner", "Cross", "LeftSemi")


def is_join(tree: Tree) -> bool:
    """Whether a node is part of a chain of joins."""
    if tree.kind == "Join":
        return tree.case("joinType") in _IN_CHAINS
    if tree.kind == "Filter":
        condition = tree.one("condition")
        return not is_temporal(condition) and (is_join(tree.only) or bool(scalar_subqueries([condition])))
    only_leaves_out = tree.kind == "Project" and all(e.kind == "AttributeReference" for e in tree.many("projectList"))
    return only_leaves_out and is_join(tree.only)


def join_of(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    """The result of a chain of joins."""
    chain = _Chain(lowering)
    chain.add(tree)
    return chain.result(wanted)


def restricted(lowering: Lowering, part: Relation, conditions: Sequence[Tree]) -> Relation:
    """The rows of a part for which conditions hold, in which there may be scalar subqueries."""
    if not conditions:
        return part
    join = InnerJoin([part, *lowering.subqueries(conditions)])
    for condition in conditions:
        require(lowering, join, condition)
    return join.result(list(part.outputs), part.names)


@dataclass(eq=False)
class _Chain:
    """The parts of a chain of joins, and on which conditions they are joined."""

    lowering: Lowering
    parts: list[Relation] = field(default_factory=list)
    conditions: list[Tree] = field(default_factory=list)
    semijoins: list[tuple[list[Key], Relation]] = field(default_factory=list)
    hidden: set[int] = field(default_factory=set)
    """Attributes that only conditions are about."""

    def add(self, tree: Tree) -> None:
        """A node of the chain, or a part."""
        if not is_join(tree):
            self.parts.append(self.lowering.part(tree))
        elif tree.kind == "Project":
            self.add(tree.only)
        elif tree.kind == "Join" and tree.case("joinType") == "LeftSemi":
            self._add_semijoin(tree)
        else:
            conditions = conjuncts(tree.maybe("condition"))
            for child in tree.children:
                self.add(child)
            self._add_hidden(self.lowering.subqueries(conditions))
            self.conditions += conditions

    def _add_hidden(self, parts: Sequence[Relation]) -> None:
        self.parts += parts
        self.hidden |= {attribute for part in parts for attribute in part.outputs}

    def _add_semijoin(self, tree: Tree) -> None:
        left, right = tree.children
        inner = self.lowering.part(right)
        keys = keys_of(self.lowering, conjuncts(tree.maybe("condition")), inner)
        if keys is None:
            self.parts.append(_match(self.lowering, tree).found())
            return
        self.add(left)
        distinct = distinct_keys(self.lowering, inner, keys)
        self._add_hidden([distinct])
        self.semijoins.append((keys, distinct))

    def result(self, wanted: Wanted) -> Relation:
        """The join of all parts."""
        join = InnerJoin(self.parts)
        for condition in self.conditions:
            require(self.lowering, join, condition)
        for keys, distinct in self.semijoins:
            require_key(self.lowering, join, keys, distinct)
        names = {attribute: name for part in self.parts for attribute, name in part.names.items()}
        given = [each for part in self.parts for each in part.outputs if each not in self.hidden]
        return join.result([each for each in given if wanted is None or each in wanted], names)


@lowers("Join")
def _join(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    kind = tree.case("joinType")
    if kind in _IN_CHAINS:
        return join_of(lowering, tree, wanted)
    if kind not in _OTHERS:
        raise SqlError(f"a join of type {kind} is not supported in a maintained view")
    return _OTHERS[kind](_match(lowering, tree), tree)


def _match(lowering: Lowering, tree: Tree) -> Match:
    conditions = conjuncts(tree.maybe("condition"))
    parts = [lowering.part(child) for child in tree.children]
    # A row may have a match for one set of parameter values and none for another.
    left, right = lowering.bound_alike(parts, lowering.subqueries(conditions))
    return Match(lowering, left, right, conditions)


def _anti(match: Match, tree: Tree) -> Relation:
    return match.missing()


def _existence(match: Match, tree: Tree) -> Relation:
    attribute = int(tree.fields["joinType"]["exists"][0]["exprId"]["id"])
    return union_all([_marked(match.found(), attribute, True), _marked(match.missing(), attribute, False)])


def _marked(part: Relation, attribute: int, is_there: bool) -> Relation:
    outputs = {**part.outputs, attribute: Literal(pa.bool_(), False, is_there)}
    return part.with_outputs(outputs, {**part.names, attribute: "exists"})


def _left_outer(match: Match, tree: Tree) -> Relation:
    return union_all([match.pairs(), _padded(match)])


def _right_outer(match: Match, tree: Tree) -> Relation:
    return _ordered(union_all([match.flipped().pairs(), _padded(match.flipped())]), match)


def _full_outer(match: Match, tree: Tree) -> Relation:
    return union_all([match.pairs(), _padded(match), _ordered(_padded(match.flipped()), match)])


def _left_single(match: Match, tree: Tree) -> Relation:
    """A correlated scalar subquery: an outer join that finds one row at most."""
    keys = keys_of(match.lowering, conjuncts(tree.maybe("condition")), match.right) or []
    found = {match.lowering.expression(key.theirs, match.right.outputs) for key in keys}
    names = {each.name for each in found if isinstance(each, Column)}
    table = match.right.table
    key = match.right.unique if table is None or not table.key else table.key
    if key is None or not names >= set(key):
        raise SqlError(
            "a correlated scalar subquery that may have several rows is not supported in a maintained view",
            detail="it does not compare all columns of a table's key with something for equality",
            hint="aggregate it: (SELECT max(value) FROM ...)",
        )
    return _left_outer(match, tree)


def _padded(match: Match) -> Relation:
    """The rows of the left part that do not match, with nulls for the right part's attributes."""
    part = match.missing()
    nulls = {attribute: Literal(output.type, True, None) for attribute, output in match.right.outputs.items()}
    return part.with_outputs({**part.outputs, **nulls}, {**part.names, **match.right.names})


def _ordered(part: Relation, match: Match) -> Relation:
    """The attributes of the left part first."""
    return part.select([*match.left.outputs, *match.right.outputs])


_OTHERS: dict[str, Callable[[Match, Tree], Relation]] = {
    "LeftAnti": _anti,
    "ExistenceJoin": _existence,
    "LeftOuter": _left_outer,
    "LeftSingle": _left_single,
    "RightOuter": _right_outer,
    "FullOuter": _full_outer,
}
