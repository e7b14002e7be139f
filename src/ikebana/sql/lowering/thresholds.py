"""Rows compared with a single value that changes, such as `amount > (SELECT avg(amount) FROM orders)`.

As an ordinary join, every change of the value, however small, would compare all rows with the value before and with the
value now. Nearly all rows are far from both. So rows are compared by magnitude first
(`ikebana.expressions.numbers.magnitudes`), and are joined in parts, each of which finds other rows:

    1. rows whose magnitude decides the comparison, with the magnitude of the value
    2. rows of the same magnitude, with the value

A small change of the value is a change of the second part only, where the index has few rows for each magnitude.

This is done where one condition compares an expression over one relation with the value of one scalar subquery, which
the query does not use otherwise. Everything else is left to `ikebana.sql.inner_joins`.

Cost: a change of the value costs in proportion to the rows of its magnitude (for evenly distributed values, one in some
tens), and to all rows if its magnitude changes. A value that moves so far at every change, as it may in large
batches, or that moves around zero, gains nothing. The rows are indexed once for each part, so batches of 100,000 rows
take a fifth longer than with an ordinary join (Q11 and Q22 of TPC-H), and small ones less time. A third part would make
changes of the magnitude cheaper, and large batches slower still.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ikebana.expressions import Expression
from ikebana.expressions.core.base import Call
from ikebana.expressions.core.builders import less
from ikebana.expressions.numbers.magnitudes import has_magnitude, magnitude
from ikebana.sql.inner_joins import InnerJoin
from ikebana.sql.lowering.context import Lowering
from ikebana.sql.relation import Relation, from_collection, union_all

BITS = 5
"""The leading bits of magnitudes."""

_LESS, _GREATER = ("less", "less_equal"), ("greater", "greater_equal")


def joined(lowering: Lowering, join: InnerJoin, attributes: Sequence[int], names: Mapping[int, str]) -> Relation:
    """The result of a join (`InnerJoin.result`), in parts if it compares rows with a single value."""
    comparison = _comparison(join, attributes)
    if comparison is None:
        return join.result(attributes, names)
    parts = comparison.by_magnitude(lowering), comparison.by_value(lowering)
    return union_all([part.result(attributes, names) for part in parts])


@dataclass(frozen=True)
class _Comparison:
    """A comparison of rows with a single value: an operand over the source of each of two relations."""

    relations: Sequence[Relation]
    operands: Sequence[Expression]
    condition: Call

    def by_magnitude(self, lowering: Lowering) -> InnerJoin:
        """The join that finds the rows of the first part."""
        compared = [lowering.new_attribute() for _ in self.relations]
        relations = []
        for relation, operand, attribute in zip(self.relations, self.operands, compared, strict=True):
            added = {attribute: magnitude(operand, BITS)}
            relations.append(_with(relation, added) if relation.unique != () else _distinct(relation, added))
        join = InnerJoin(relations)
        left, right = (join.columns[attribute] for attribute in compared)
        join.require(less(left, right) if self.condition.function in _LESS else less(right, left))
        return join

    def by_value(self, lowering: Lowering) -> InnerJoin:
        """The join that finds the rows of the second part."""
        attributes = [(lowering.new_attribute(), lowering.new_attribute()) for _ in self.relations]
        relations = [
            _with(relation, {compared: operand, equal: magnitude(operand, BITS)})
            for relation, operand, (compared, equal) in zip(self.relations, self.operands, attributes, strict=True)
        ]
        join = InnerJoin(relations)
        (left, left_equal), (right, right_equal) = attributes
        join.require_equal(join.columns[left_equal], join.columns[right_equal])
        join.require(self.condition.with_inputs((join.columns[left], join.columns[right])))
        return join


def _comparison(join: InnerJoin, attributes: Sequence[int]) -> _Comparison | None:
    """The comparison that a join consists of, if its result has attributes of the compared rows only."""
    if len(join.relations) != 2 or len(join.residual) != 1 or join.has_equalities:
        return None
    (condition,) = join.residual
    if not isinstance(condition, Call) or condition.function not in (*_LESS, *_GREATER):
        return None
    left, right = condition.arguments
    owners = [join.owners(left), join.owners(right)]
    if owners not in ([{0}, {1}], [{1}, {0}]) or left.type != right.type or not has_magnitude(left.type):
        return None
    relations = [join.relations[at] for (at,) in owners]
    if any(relation.is_bound or relation.source.node.scope for relation in relations):
        return None
    rows = [relation for relation in relations if relation.unique != ()]
    if len(rows) != 1 or not rows[0].outputs.keys() >= set(attributes):
        return None
    return _Comparison(relations, (join.inside(left), join.inside(right)), condition)


def _with(relation: Relation, added: Mapping[int, Expression]) -> Relation:
    """A relation with further attributes."""
    return relation.with_outputs({**relation.outputs, **added}, {**relation.names, **_names(added)})


def _distinct(relation: Relation, attributes: Mapping[int, Expression]) -> Relation:
    """The distinct values of some attributes, which change only if one of these does."""
    names = _names(attributes)
    rows = relation.rows((names[attribute], value) for attribute, value in attributes.items()).distinct()
    return from_collection(rows, names.items(), names)


def _names(attributes: Mapping[int, Expression]) -> dict[int, str]:
    return {attribute: f"level {number}" for number, attribute in enumerate(attributes)}
