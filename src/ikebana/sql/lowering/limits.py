"""LIMIT and OFFSET, and the order in which the rows of a view are displayed.

The rows that a limit selects are maintained. Without an ORDER BY, SQL does not define which rows these are; here they
are the least.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyarrow import types

from ikebana.errors import SqlError
from ikebana.expressions import Expression
from ikebana.expressions.core.tree import Tree
from ikebana.reducers.ordering import top_rows
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.lowering.context import Lowering, Required
from ikebana.sql.relation import Relation, from_collection, unique_name


def limit(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """LIMIT and OFFSET: a chain of these nodes is one limit and one offset."""
    most, offset = None, 0
    while tree.kind in ("GlobalLimit", "LocalLimit", "Offset"):
        if tree.kind == "Offset":
            offset += _integer(tree.expression("offsetExpr"))
        elif tree.kind == "GlobalLimit":
            remaining = max(0, _integer(tree.expression("limitExpr")) - offset)  # skipped rows count
            most = remaining if most is None else min(most, remaining)
        tree = tree.only_child
    return _limited(lowering, tree, most, offset)


def _limited(lowering: Lowering, tree: Tree, most: int | None, offset: int) -> Relation:
    """The first rows of a node.

    Projections above a Sort are computed after the limit: their result may lack the columns of the order.
    """
    if tree.kind == "Project" and _is_sorted(tree.only_child):
        return lowering.computed(_limited(lowering, tree.only_child, most, offset), tree.expressions("projectList"))
    return _top(lowering, tree, most, offset)


def _is_sorted(tree: Tree) -> bool:
    return tree.kind == "Sort" or (tree.kind == "Project" and _is_sorted(tree.only_child))


def _integer(tree: Tree) -> int:
    if tree.kind != "Literal":
        raise SqlError("a LIMIT or OFFSET that is not a number is not supported in a maintained view")
    return int(tree.fields["value"])


def _top(lowering: Lowering, tree: Tree, most: int | None, offset: int) -> Relation:
    orders = tree.expressions("order") if tree.kind == "Sort" else []
    inner = lowering.relation(tree)
    relation = lowering.with_subqueries(inner, orders)
    attributes = relation.columns(inner.outputs)
    keys, named = list[SortKey](), [(name, relation.outputs[attribute]) for attribute, name in attributes]
    for order in orders:
        expression = ordered(lowering.expression(order.only_child, relation.outputs))
        column = next((name for name, output in named if output == expression), None)
        if column is None:
            column = unique_name("order", [name for name, _ in named])
            named.append((column, expression))
        keys.append(sort_key(order, column))
    rows = top_rows(relation.rows(named), relation.key(), most, offset, keys)
    return from_collection(rows, attributes, relation.names)


def ordered(expression: Expression) -> Expression:
    """The expression; an error if values of its type cannot be ordered."""
    if types.is_map(expression.type):
        raise SqlError(
            f"values of type {expression.type} have no order",
            hint="order by map_entries of the map, or by a value in it",
        )
    return expression


def sort_key(order: Tree, column: str) -> SortKey:
    """Catalyst's sort order of a column."""
    return SortKey(
        column, order.scala_name("direction") == "Ascending", order.scala_name("nullOrdering") == "NullsFirst"
    )


def display_order(tree: Tree, visible: Mapping[int, str]) -> tuple[SortKey, ...]:
    """The order in which the rows of a query are displayed, by the columns that attributes have become.

    A collection has no order, so lowering drops the final ORDER BY, and this function finds it in the plan a second
    time: below projections and limits. Only the leading sort keys that are columns of the result are used.
    """
    while tree.kind in ("Project", "GlobalLimit", "LocalLimit", "Offset"):
        tree = tree.only_child
    keys = []
    for order in tree.expressions("order") if tree.kind == "Sort" else []:
        if order.only_child.kind != "AttributeReference" or order.only_child.expr_id not in visible:
            break
        keys.append(sort_key(order, visible[order.only_child.expr_id]))
    return tuple(keys)
