"""Which rows of one relation match rows of another: the basis of semi, anti, existence and outer joins.

A row of the left relation *matches* if it occurs in the inner join on the same conditions. How that is decided depends
on the conditions:

- All are equalities: a join with the distinct keys of the right relation. A null-safe equality is two keys, whether the
  value is null, and the value with nulls replaced.
- Equalities and one comparison, as in `l.supplier <> r.supplier`: the least or greatest value that the right relation
  has for a key decides; for `<>` the two least distinct values suffice.
- Otherwise: the distinct values of the left relation's columns that the conditions use are joined with the right
  relation, and the values that occur in the result are distinct keys again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ikebana.encoding.columns import bits
from ikebana.expressions import Column, Expression
from ikebana.expressions.core.builders import coalesce_default, disjunction, has_default, is_null
from ikebana.expressions.core.tree import Tree
from ikebana.reducers.ordering import Foremost
from ikebana.sql.expression_steps import not_null
from ikebana.sql.inner_joins import InnerJoin
from ikebana.sql.lowering.context import Lowering
from ikebana.sql.lowering.trees import all_references, references, scalar_subqueries
from ikebana.sql.relation import Relation, from_collection

Aspect = Callable[[Expression], Expression]
"""A function of values that must be equal if the values are."""


def itself(value: Expression) -> Expression:
    """The value; null is equal to nothing."""
    return value


_NULL_SAFE: tuple[Aspect, ...] = (is_null, coalesce_default)


@dataclass(frozen=True)
class Key:
    """An equality: expressions of the left and of the right side, of which an aspect must be equal."""

    left: Tree
    right: Tree
    aspect: Aspect = itself


def _keys_of(lowering: Lowering, condition: Tree, right: Relation) -> list[Key]:
    """The equalities that a condition consists of; none if the condition is something else.

    One side of each refers to attributes of `right` only, the other side to none of them.
    """
    if condition.kind not in ("EqualTo", "EqualNullSafe"):
        return []
    attributes = set(right.outputs)
    first, second = condition.children
    for left_tree, right_tree in ((first, second), (second, first)):
        left_references, right_references = references(left_tree), references(right_tree)
        if not left_references or not right_references:
            continue
        if right_references <= attributes and not left_references & attributes:
            if condition.kind == "EqualTo":
                return [Key(left_tree, right_tree)]
            if has_default(lowering.expression(right_tree, right.outputs).type):
                return [Key(left_tree, right_tree, aspect) for aspect in _NULL_SAFE]
    return []


def keys_of(lowering: Lowering, conditions: Sequence[Tree], right: Relation) -> list[Key] | None:
    """The equalities that conditions consist of; None if there are no conditions, or others than equalities."""
    if scalar_subqueries(conditions):
        return None
    keys = [_keys_of(lowering, condition, right) for condition in conditions]
    return [key for some in keys for key in some] if keys and all(keys) else None


_COMPARISONS = {"LessThan": True, "LessThanOrEqual": True, "GreaterThan": False, "GreaterThanOrEqual": False}
"""For each kind, whether its first operand is the lesser one."""


@dataclass(frozen=True)
class Comparison:
    """A condition that compares a value of the left side with an attribute of the right side.

    For a given value it holds for one of several values of the attribute if it holds for one of the `places` least (or
    greatest) of them.
    """

    condition: Tree
    attribute: int
    places: int
    greatest: bool


def comparison_of(condition: Tree, left: Relation, right: Relation) -> Comparison | None:
    """The condition as a comparison, if it is one and values of the compared attribute fit into a lane."""
    is_unequal = condition.kind == "Not" and condition.only_child.kind == "EqualTo"
    if condition.kind not in _COMPARISONS and not is_unequal:
        return None
    first, second = (condition.only_child if is_unequal else condition).children
    for value, attribute in ((first, second), (second, first)):
        if attribute.kind != "AttributeReference" or attribute.expr_id not in right.outputs:
            continue
        if not references(value) <= set(left.outputs):
            continue
        compared = right.outputs[attribute.expr_id]
        if (bits(pa.field("value", compared.type)) or _TOO_MANY_BITS) >= _TOO_MANY_BITS:
            continue
        greatest = _COMPARISONS.get(condition.kind) == (value is first)
        return Comparison(condition, attribute.expr_id, 2 if is_unequal else 1, greatest)
    return None


_TOO_MANY_BITS = 66
"""The least number of bits, including one for null, that does not fit into a lane."""


def distinct_keys(lowering: Lowering, relation: Relation, keys: Sequence[Key]) -> Relation:
    """The distinct values of the relation's side of keys, without nulls: an attribute for each key.

    The key of a table is distinct already: then these are the rows of the table, looked up in the table's own index.
    """
    columns = [(lowering.new_attribute(), f"key {at}") for at in range(len(keys))]
    outputs = [key.aspect(lowering.expression(key.right, relation.outputs)) for key in keys]
    names = [name for _, name in columns]
    compared = {column.name for column in outputs if isinstance(column, Column)}
    if relation.table is not None and relation.table.index is not None and compared >= {*relation.table.key}:
        attributes = [attribute for attribute, _ in columns]
        return relation.with_outputs(dict(zip(attributes, outputs, strict=True)), dict(columns))
    rows = not_null(relation.rows(zip(names, outputs, strict=True)), names).distinct()
    return from_collection(rows, columns, dict(columns), unique=tuple(rows.columns))


def require(lowering: Lowering, join: InnerJoin, condition: Tree) -> None:
    """Add a condition of Catalyst's to a join."""
    if condition.kind not in ("EqualTo", "EqualNullSafe"):
        join.require(lowering.expression(condition, join.columns))
        return
    left, right = (lowering.expression(operand, join.columns) for operand in condition.children)
    if condition.kind == "EqualTo":
        join.require_equal(left, right)
    elif left.columns and right.columns and left.type == right.type and has_default(left.type):
        for aspect in _NULL_SAFE:
            join.require_equal(aspect(left), aspect(right))
    else:
        join.require(lowering.expression(condition, join.columns))


def require_key(lowering: Lowering, join: InnerJoin, keys: Sequence[Key], distinct: Relation) -> None:
    """Require that keys of one side are equal to the attributes of distinct keys."""
    for key, attribute in zip(keys, distinct.outputs, strict=True):
        join.require_equal(key.aspect(lowering.expression(key.left, join.columns)), join.columns[attribute])


@dataclass(frozen=True, eq=False)
class Match:
    """Two relations and the conditions of their join, from the point of view of the left one."""

    lowering: Lowering
    left: Relation
    right: Relation
    conditions: Sequence[Tree]

    def flipped(self) -> Match:
        """The same match from the point of view of the right relation."""
        return replace(self, left=self.right, right=self.left)

    def pairs(self) -> Relation:
        """The inner join."""
        names = {**self.left.names, **self.right.names}
        return self._joined_with(self.left).result([*self.left.outputs, *self.right.outputs], names)

    def matched(self) -> Relation:
        """The rows of the left relation that match."""
        keys = keys_of(self.lowering, self.conditions, self.right)
        if keys is None:
            return self._matched_by_comparison() or self._matched_by_columns()
        distinct = distinct_keys(self.lowering, self.right, keys)
        join = InnerJoin([self.left, distinct])
        require_key(self.lowering, join, keys, distinct)
        return join.result(list(self.left.outputs), self.left.names)

    def unmatched(self) -> Relation:
        """The rows of the left relation that do not match: all rows minus those that match."""
        left, matched = self.left.materialised(), self.matched().materialised()
        rows = left.source.concat(matched.source.select(*left.source.columns).negate())
        return from_collection(rows, left.columns(), left.names)

    def _matched_by_comparison(self) -> Relation | None:
        """The rows that match if all conditions but one are equalities, and that one is a comparison."""
        others = [tree for tree in self.conditions if not _keys_of(self.lowering, tree, self.right)]
        keys = keys_of(self.lowering, [tree for tree in self.conditions if tree not in others], self.right)
        comparison = comparison_of(others[0], self.left, self.right) if len(others) == 1 else None
        if keys is None or comparison is None or scalar_subqueries(others):
            return None
        foremost = self._foremost(keys, comparison)
        join = InnerJoin([self.left, foremost])
        key_attributes, values = list(foremost.outputs)[: len(keys)], list(foremost.outputs)[len(keys) :]
        require_key(self.lowering, join, keys, foremost.select(key_attributes))
        compared = ({**join.columns, comparison.attribute: join.columns[value]} for value in values)
        join.require(disjunction([self.lowering.expression(comparison.condition, columns) for columns in compared]))
        return join.result(list(self.left.outputs), self.left.names)

    def _foremost(self, keys: Sequence[Key], comparison: Comparison) -> Relation:
        """The keys of the right relation, each with the foremost of the compared values: an attribute for each."""
        relation, outputs = self.right, self.right.outputs
        by = [(f"key {at}", key.aspect(self.lowering.expression(key.right, outputs))) for at, key in enumerate(keys)]
        value = ("value", outputs[comparison.attribute])
        names = relation.key(name for name, _ in by)
        rows = not_null(relation.rows([*by, value]), [*names, "value"])
        rows = rows.arrange_by(names).reduce(Foremost(comparison.places, ("value",), comparison.greatest)).rows()
        columns = [(self.lowering.new_attribute(), name) for name in rows.columns if name not in relation.key()]
        return from_collection(rows, columns, dict(columns), unique=names)

    def _matched_by_columns(self) -> Relation:
        """The rows that match on any conditions, decided once for equal values of the columns that these use."""
        used = [attribute for attribute in self.left.outputs if attribute in all_references(self.conditions)]
        left = self.left.materialised()
        columns = dict(left.columns())
        values = left.rows((columns[attribute], left.outputs[attribute]) for attribute in used).distinct()
        distinct = from_collection(values, [(attribute, columns[attribute]) for attribute in used], left.names)
        matched = self._joined_with(distinct).result(used, left.names)
        keys = matched.rows((columns[attribute], matched.outputs[attribute]) for attribute in used)
        return from_collection(left.source.semijoin(keys), left.columns(), left.names)

    def _joined_with(self, left: Relation) -> InnerJoin:
        join = InnerJoin([left, self.right, *self.lowering.subqueries(self.conditions)])
        for condition in self.conditions:
            require(self.lowering, join, condition)
        return join
