"""ASOF joins: each row of the left side with the nearest of the rows of the right side that match it.

The matches of the distinct rows of the left side are found like those of any join; the nearest one of each is
maintained, and the rows of the left side are joined with it. Among several that are equally near, it is the least row.

Cost of a change: the matches of the row, that is, all rows of the right side before (or after) it that satisfy the
other conditions. So an ASOF join should have an equality among its conditions.
"""

from __future__ import annotations

from ikebana.engine.collection import Collection
from ikebana.errors import SqlError
from ikebana.expressions import Literal
from ikebana.expressions.core.tree import Tree
from ikebana.reducers.ordering import top_rows
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.lowering.context import Lowering, Required
from ikebana.sql.lowering.matching import Match
from ikebana.sql.lowering.trees import conjuncts
from ikebana.sql.relation import Relation, from_collection, union_all, unique_name

_OUTER = {"Inner": False, "LeftOuter": True}


def asof_join(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """An inner or left outer ASOF join."""
    kind = tree.scala_name("joinType")
    if kind not in _OUTER:
        raise SqlError(f"an ASOF join of type {kind} is not supported in a maintained view")
    conditions = [*conjuncts(tree.expression("asOfCondition")), *conjuncts(tree.optional_expression("condition"))]
    left, right = lowering.bound_alike([lowering.relation(child) for child in tree.children])
    columns = left.columns()
    rows = left.rows((name, left.outputs[attribute]) for attribute, name in columns)
    pairs = Match(lowering, from_collection(rows.distinct(), columns, left.names), right, conditions).pairs()
    nearest, all_columns = _nearest(lowering, tree, pairs, columns)
    given = {field.name: field for field in rows.node.columns}  # a condition may have made a column not nullable
    nearest = nearest.declare([given.get(field.name, field) for field in nearest.node.columns])
    names = {**left.names, **right.names}
    matched = from_collection(rows.arrange_by(rows.columns).join(nearest.arrange_by(rows.columns)), all_columns, names)
    if not _OUTER[kind]:
        return matched
    rest = from_collection(rows.antijoin(nearest.select(*rows.columns)), columns, names)
    nulls = {attribute: Literal(output.type, True, None) for attribute, output in right.outputs.items()}
    return union_all([matched, rest.with_outputs({**rest.outputs, **nulls}, names).select(matched.outputs)])


def _nearest(
    lowering: Lowering, tree: Tree, pairs: Relation, left: list[tuple[int, str]]
) -> tuple[Collection, list[tuple[int, str]]]:
    """The nearest match of each row of the left side, and the columns of all attributes."""
    columns = list(left)
    for attribute in pairs.outputs:
        if attribute not in dict(left):
            columns.append((attribute, unique_name(pairs.names[attribute], [name for _, name in columns])))
    distance = unique_name("distance", [name for _, name in columns])
    named = [(name, pairs.outputs[attribute]) for attribute, name in columns]
    named.append((distance, lowering.expression(tree.expression("orderExpression"), pairs.outputs)))
    key = pairs.key(name for _, name in left)
    nearest = top_rows(pairs.rows(named), key, 1, 0, [SortKey(distance)])
    return nearest.select(*(name for name in nearest.columns if name != distance)), columns
