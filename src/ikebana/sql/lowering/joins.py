"""Catalyst's joins: chains of inner and semi joins become one join; other joins are composed of matching rows.

A chain consists of inner joins, filters with scalar subqueries, and semi joins on equalities alone, also below
projections that only drop columns. Each scalar subquery becomes a relation of one row, and each semi join a relation of
distinct keys, so that all are looked up alike (`ikebana.sql.inner_joins`). Aggregates in a chain are computed only for
the groups that the chain can use (`ikebana.sql.lowering.sideways`). Rows that are compared with one changing value are
joined in parts (`ikebana.sql.lowering.thresholds`).

| join | rows |
|---|---|
| semi | those that match (`ikebana.sql.lowering.matching`) |
| anti | those that do not match |
| existence | those that match, with true, and the others, with false |
| left outer | the inner join, and the rows that do not match, with nulls |
| full outer | the inner join, and the rows of either side that do not match, with nulls |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ikebana.errors import SqlError
from ikebana.expressions import Column, Literal
from ikebana.expressions.core.tree import Tree
from ikebana.sql.inner_joins import InnerJoin
from ikebana.sql.lowering.context import Lowering, Required
from ikebana.sql.lowering.matching import Key, Match, distinct_keys, itself, keys_of, require, require_key
from ikebana.sql.lowering.sideways import Equalities, Selection, is_grouped, restricted_aggregate
from ikebana.sql.lowering.temporal import is_temporal
from ikebana.sql.lowering.thresholds import joined
from ikebana.sql.lowering.trees import conjuncts, scalar_subqueries
from ikebana.sql.relation import Relation, union_all

_CHAINED = ("Inner", "Cross", "LeftSemi")
"""The types of joins that chains consist of."""


def is_join(tree: Tree) -> bool:
    """Whether a node is part of a chain of joins."""
    if tree.kind == "Join":
        return tree.scala_name("joinType") in _CHAINED
    if tree.kind == "Filter":
        condition = tree.expression("condition")
        return not is_temporal(condition) and (is_join(tree.only_child) or bool(scalar_subqueries([condition])))
    return _only_drops_columns(tree) and is_join(tree.only_child)


def _only_drops_columns(tree: Tree) -> bool:
    return tree.kind == "Project" and all(
        named.kind == "AttributeReference" for named in tree.expressions("projectList")
    )


def join_chain(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """The result of a chain of joins."""
    chain = _Chain(lowering)
    chain.add(tree)
    return chain.result(required)


def restricted(lowering: Lowering, relation: Relation, conditions: Sequence[Tree]) -> Relation:
    """The rows of a relation that satisfy conditions, which may contain scalar subqueries."""
    if not conditions:
        return relation
    inner_join = InnerJoin([relation, *lowering.subqueries(conditions)])
    for condition in conditions:
        require(lowering, inner_join, condition)
    return joined(lowering, inner_join, list(relation.outputs), relation.names)


@dataclass(eq=False)
class _Chain:
    """The members of a chain of joins, and the conditions on which they are joined."""

    lowering: Lowering
    members: list[Relation | Tree] = field(default_factory=list)
    """What is joined; of aggregates the plan, since they are lowered last."""
    conditions: list[Tree] = field(default_factory=list)
    semijoins: list[tuple[list[Key], Relation]] = field(default_factory=list)
    hidden: set[int] = field(default_factory=set)
    """Attributes that only conditions use."""
    selections: list[Selection] = field(default_factory=list)
    """What may restrict aggregates."""

    def add(self, tree: Tree) -> None:
        """Add a node: what it joins if it is part of the chain, else its result."""
        if not is_join(tree):
            self._add_member(tree)
        elif tree.kind == "Project":
            self.add(tree.only_child)
        elif tree.kind == "Join" and tree.scala_name("joinType") == "LeftSemi":
            self._add_semijoin(tree)
        else:
            conditions = conjuncts(tree.optional_expression("condition"))
            for child in tree.children:
                self.add(child)
            self._add_hidden(self.lowering.subqueries(conditions))
            self.conditions += conditions

    def _add_member(self, tree: Tree) -> None:
        if is_grouped(tree):
            self.members.append(tree)
            return
        relation = self.lowering.relation(tree)
        self.members.append(relation)
        self.selections.append(Selection(tree, relation))

    def _add_hidden(self, relations: Sequence[Relation]) -> None:
        self.members += relations
        self.hidden |= {attribute for relation in relations for attribute in relation.outputs}

    def _add_semijoin(self, tree: Tree) -> None:
        left, right = tree.children
        inner = self.lowering.relation(right)
        keys = keys_of(self.lowering, conjuncts(tree.optional_expression("condition")), inner)
        if keys is None:
            self.members.append(_match(self.lowering, tree).matched())
            return
        self.add(left)
        distinct = distinct_keys(self.lowering, inner, keys)
        self._add_hidden([distinct])
        self.semijoins.append((keys, distinct))
        self.selections.append(Selection(right, inner))

    def result(self, required: Required) -> Relation:
        """The join of all members."""
        relations = self._relations()
        inner_join = InnerJoin(relations)
        for condition in self.conditions:
            require(self.lowering, inner_join, condition)
        for keys, distinct in self.semijoins:
            require_key(self.lowering, inner_join, keys, distinct)
        names = {attribute: name for relation in relations for attribute, name in relation.names.items()}
        visible = [key for relation in relations for key in relation.outputs if key not in self.hidden]
        attributes = [key for key in visible if required is None or key in required]
        return joined(self.lowering, inner_join, attributes, names)

    def _relations(self) -> list[Relation]:
        """The members as relations: aggregates are restricted to the groups that the chain can use."""
        pairs = [tree.children for tree in self.conditions if tree.kind == "EqualTo"]
        pairs += [(key.left, key.right) for keys, _ in self.semijoins for key in keys if key.aspect is itself]
        equalities = Equalities(pairs)
        return [
            self.lowering.relation(restricted_aggregate(member, self.selections, equalities))
            if isinstance(member, Tree)
            else member
            for member in self.members
        ]


def join(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """A join of any type."""
    kind = tree.scala_name("joinType")
    if kind in _CHAINED:
        return join_chain(lowering, tree, required)
    if kind not in _MATCHED:
        raise SqlError(f"a join of type {kind} is not supported in a maintained view")
    return _MATCHED[kind](_match(lowering, tree), tree)


def _match(lowering: Lowering, tree: Tree) -> Match:
    conditions = conjuncts(tree.optional_expression("condition"))
    sides = [lowering.relation(child) for child in tree.children]
    # A row may have a match for one set of parameter values and none for another.
    left, right = lowering.bound_alike(sides, lowering.subqueries(conditions))
    return Match(lowering, left, right, conditions)


def _anti(match: Match, tree: Tree) -> Relation:
    return match.unmatched()


def _existence(match: Match, tree: Tree) -> Relation:
    attribute = int(tree.fields["joinType"]["exists"][0]["exprId"]["id"])
    return union_all([_marked(match.matched(), attribute, True), _marked(match.unmatched(), attribute, False)])


def _marked(relation: Relation, attribute: int, exists: bool) -> Relation:
    outputs = {**relation.outputs, attribute: Literal(pa.bool_(), False, exists)}
    return relation.with_outputs(outputs, {**relation.names, attribute: "exists"})


def _left_outer(match: Match, tree: Tree) -> Relation:
    return union_all([match.pairs(), _padded(match)])


def _right_outer(match: Match, tree: Tree) -> Relation:
    return _left_first(union_all([match.flipped().pairs(), _padded(match.flipped())]), match)


def _full_outer(match: Match, tree: Tree) -> Relation:
    return union_all([match.pairs(), _padded(match), _left_first(_padded(match.flipped()), match)])


def _left_single(match: Match, tree: Tree) -> Relation:
    """A correlated scalar subquery: an outer join with at most one match for each row."""
    keys = keys_of(match.lowering, conjuncts(tree.optional_expression("condition")), match.right) or []
    compared = {match.lowering.expression(key.right, match.right.outputs) for key in keys}
    names = {column.name for column in compared if isinstance(column, Column)}
    table = match.right.table
    unique = match.right.unique if table is None or not table.key else table.key
    if unique is None or not names >= set(unique):
        raise SqlError(
            "a correlated scalar subquery that may have several rows is not supported in a maintained view",
            detail="it does not compare all columns of a table's key for equality",
            hint="aggregate it: (SELECT max(value) FROM ...)",
        )
    return _left_outer(match, tree)


def _padded(match: Match) -> Relation:
    """The rows of the left side that do not match, with nulls for the attributes of the right side."""
    relation = match.unmatched()
    nulls = {attribute: Literal(output.type, True, None) for attribute, output in match.right.outputs.items()}
    return relation.with_outputs({**relation.outputs, **nulls}, {**relation.names, **match.right.names})


def _left_first(relation: Relation, match: Match) -> Relation:
    """The relation with the attributes of the left side first."""
    return relation.select([*match.left.outputs, *match.right.outputs])


_MATCHED: dict[str, Callable[[Match, Tree], Relation]] = {
    "LeftAnti": _anti,
    "ExistenceJoin": _existence,
    "LeftOuter": _left_outer,
    "LeftSingle": _left_single,
    "RightOuter": _right_outer,
    "FullOuter": _full_outer,
}
"""The types of joins that are composed of the rows that match and those that do not."""
