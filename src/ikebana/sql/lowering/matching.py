"""Which rows of one part have a partner in another: what semi, anti, existence and outer joins are made of.

A row of the left part *matches* if the inner join on the same conditions has it. Where all conditions are equalities,
that is a join with the distinct keys of the right part; a null-safe equality is two, of what is null and of what the
values are otherwise. If there are equalities and one comparison, as in `l.supplier <> r.supplier`, the least or
greatest value that the right part has for a key decides: one is unlike a given value if one of the two least ones is.
Otherwise the columns of the left part that the conditions look at decide: their distinct values are joined with the
right part, and those that are found are distinct keys again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ikebana.encoding.columns import bits
from ikebana.expressions import Expression
from ikebana.expressions.core.builders import disjunction, has_some, is_null, or_some
from ikebana.expressions.core.tree import Tree
from ikebana.reducers.ordering import Foremost
from ikebana.sql.joins import InnerJoin
from ikebana.sql.lowering.context import Lowering, all_references, references, scalar_subqueries
from ikebana.sql.relation import Relation, from_collection
from ikebana.sql.steps import not_null

Aspect = Callable[[Expression], Expression]
"""What of two values must be equal, for the values to be so."""


def itself(value: Expression) -> Expression:
    """All of a value: it is not equal to anything if it is null."""
    return value


_NULL_SAFE: tuple[Aspect, ...] = (is_null, or_some)


@dataclass(frozen=True)
class Key:
    """An equality: what must be equal, on this side and on the other."""

    ours: Tree
    theirs: Tree
    aspect: Aspect = itself


def _keys_of(lowering: Lowering, condition: Tree, right: Relation) -> list[Key]:
    """The equalities that a condition is, between something of the right part and something of none of its attributes;
    none for any other condition."""
    if condition.kind not in ("EqualTo", "EqualNullSafe"):
        return []
    attributes = set(right.outputs)
    one, two = condition.children
    for ours, theirs in ((one, two), (two, one)):
        mine, others = references(ours), references(theirs)
        if mine and others and others <= attributes and not mine & attributes:
            if condition.kind == "EqualTo":
                return [Key(ours, theirs)]
            if has_some(lowering.expression(theirs, right.outputs).type):
                return [Key(ours, theirs, aspect) for aspect in _NULL_SAFE]
    return []


def keys_of(lowering: Lowering, conditions: Sequence[Tree], right: Relation) -> list[Key] | None:
    """The equalities that conditions are, if all of them are; there is at least one."""
    if scalar_subqueries(conditions):
        return None
    found = [_keys_of(lowering, each, right) for each in conditions]
    return [key for keys in found for key in keys] if found and all(found) else None


_COMPARISONS = {"LessThan": True, "LessThanOrEqual": True, "GreaterThan": False, "GreaterThanOrEqual": False}
"""For each kind, whether its first value is the lesser one."""


@dataclass(frozen=True)
class Comparison:
    """A condition that compares a value of this side with an attribute of the other: for a given value it holds of one
    of several others if it holds of one of the `places` foremost."""

    condition: Tree
    theirs: Tree
    places: int
    greatest: bool


def comparison_of(condition: Tree, left: Relation, right: Relation) -> Comparison | None:
    """The comparison that a condition is, if the attribute compared fits into a lane."""
    is_unlike = condition.kind == "Not" and condition.only.kind == "EqualTo"
    if condition.kind not in _COMPARISONS and not is_unlike:
        return None
    one, two = (condition.only if is_unlike else condition).children
    for ours, theirs in ((one, two), (two, one)):
        mine = references(ours)
        if theirs.kind != "AttributeReference" or theirs.expr_id not in right.outputs or not mine <= set(left.outputs):
            continue
        value = right.outputs[theirs.expr_id]
        if (bits(pa.field("value", value.type)) or _TOO_WIDE) >= _TOO_WIDE:
            continue
        return Comparison(condition, theirs, 2 if is_unlike else 1, _COMPARISONS.get(condition.kind) == (ours is one))
    return None


_TOO_WIDE = 66
"""So many bits, one for null included, do not fit into a lane."""


def distinct_keys(lowering: Lowering, part: Relation, keys: Sequence[Key]) -> Relation:
    """The distinct values of what must be equal in a part, none of them null: an attribute for each key."""
    columns = [(lowering.new_attribute(), f"key {at}") for at in range(len(keys))]
    outputs = (key.aspect(lowering.expression(key.theirs, part.outputs)) for key in keys)
    named = tuple((name, output) for (_, name), output in zip(columns, outputs, strict=True))
    rows = not_null(part.rows(named), [name for name, _ in named]).distinct()
    return from_collection(rows, columns, dict(columns), unique=tuple(rows.columns))


def require(lowering: Lowering, join: InnerJoin, condition: Tree) -> None:
    """A condition of Catalyst's for a join."""
    if condition.kind not in ("EqualTo", "EqualNullSafe"):
        join.require(lowering.expression(condition, join.columns))
        return
    one, two = (lowering.expression(each, join.columns) for each in condition.children)
    if condition.kind == "EqualTo":
        join.require_equal(one, two)
    elif one.columns and two.columns and one.type == two.type and has_some(one.type):
        for aspect in _NULL_SAFE:
            join.require_equal(aspect(one), aspect(two))
    else:
        join.require(lowering.expression(condition, join.columns))


def require_key(lowering: Lowering, join: InnerJoin, keys: Sequence[Key], distinct: Relation) -> None:
    """Keys of one side that must be equal to the attributes of distinct keys."""
    for key, attribute in zip(keys, distinct.outputs, strict=True):
        join.require_equal(key.aspect(lowering.expression(key.ours, join.columns)), join.columns[attribute])


@dataclass(frozen=True, eq=False)
class Match:
    """Two parts and the conditions of their join, seen from the left one."""

    lowering: Lowering
    left: Relation
    right: Relation
    conditions: Sequence[Tree]

    def flipped(self) -> Match:
        """The same, seen from the right one."""
        return replace(self, left=self.right, right=self.left)

    def pairs(self) -> Relation:
        """The inner join."""
        names = {**self.left.names, **self.right.names}
        return self._joined_with(self.left).result([*self.left.outputs, *self.right.outputs], names)

    def found(self) -> Relation:
        """The rows of the left part that match."""
        keys = keys_of(self.lowering, self.conditions, self.right)
        if keys is None:
            return self._found_by_comparison() or self._found_by_columns()
        distinct = distinct_keys(self.lowering, self.right, keys)
        join = InnerJoin([self.left, distinct])
        require_key(self.lowering, join, keys, distinct)
        return join.result(list(self.left.outputs), self.left.names)

    def missing(self) -> Relation:
        """The rows of the left part that do not match: all, less those that do."""
        left, found = self.left.materialised(), self.found().materialised()
        rows = left.source.concat(found.source.select(*left.source.columns).negate())
        return from_collection(rows, left.columns(), left.names)

    def _found_by_comparison(self) -> Relation | None:
        """The rows that match if all conditions but one are equalities, and that is a comparison."""
        others = [each for each in self.conditions if not _keys_of(self.lowering, each, self.right)]
        keys = keys_of(self.lowering, [each for each in self.conditions if each not in others], self.right)
        comparison = comparison_of(others[0], self.left, self.right) if len(others) == 1 else None
        if keys is None or comparison is None or scalar_subqueries(others):
            return None
        foremost = self._foremost(keys, comparison)
        join = InnerJoin([self.left, foremost])
        by, values = list(foremost.outputs)[: len(keys)], list(foremost.outputs)[len(keys) :]
        require_key(self.lowering, join, keys, foremost.select(by))
        compared = ({**join.columns, comparison.theirs.expr_id: join.columns[each]} for each in values)
        join.require(disjunction([self.lowering.expression(comparison.condition, each) for each in compared]))
        return join.result(list(self.left.outputs), self.left.names)

    def _foremost(self, keys: Sequence[Key], comparison: Comparison) -> Relation:
        """For each key of the right part, an attribute for each, the foremost of the values that are compared."""
        part, outputs = self.right, self.right.outputs
        by = tuple(
            (f"key {at}", key.aspect(self.lowering.expression(key.theirs, outputs))) for at, key in enumerate(keys)
        )
        value = ("value", outputs[comparison.theirs.expr_id])
        names = part.key(name for name, _ in by)
        rows = not_null(part.rows((*by, value)), [*names, "value"])
        rows = rows.arrange_by(names).reduce(Foremost(comparison.places, ("value",), comparison.greatest)).rows()
        columns = [(self.lowering.new_attribute(), name) for name in rows.columns if name not in part.key()]
        return from_collection(rows, columns, dict(columns), unique=names)

    def _found_by_columns(self) -> Relation:
        looked_at = [each for each in self.left.outputs if each in all_references(self.conditions)]
        left = self.left.materialised()
        columns = dict(left.columns())
        compared = left.rows((columns[each], left.outputs[each]) for each in looked_at)
        values = from_collection(compared.distinct(), [(each, columns[each]) for each in looked_at], left.names)
        matched = self._joined_with(values).result(looked_at, left.names)
        keys = matched.rows((columns[each], matched.outputs[each]) for each in looked_at)
        return from_collection(left.source.semijoin(keys), left.columns(), left.names)

    def _joined_with(self, left: Relation) -> InnerJoin:
        join = InnerJoin([left, self.right, *self.lowering.subqueries(self.conditions)])
        for condition in self.conditions:
            require(self.lowering, join, condition)
        return join
