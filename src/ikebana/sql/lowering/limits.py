"""LIMIT and OFFSET, and the order in which the rows of a view are shown.

The rows that a limit leaves are maintained. Without an ORDER BY, SQL leaves open which ones; here they are the least.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyarrow import types

from ikebana.errors import SqlError
from ikebana.expressions import Expression
from ikebana.expressions.core.tree import Tree
from ikebana.reducers.ordering import top_rows
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.lowering.context import Lowering, Wanted, lowers
from ikebana.sql.relation import Relation, from_collection, unique_name


@lowers("GlobalLimit", "Offset")
def _limit(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    limit, offset = None, 0
    while tree.kind in ("GlobalLimit", "LocalLimit", "Offset"):
        if tree.kind == "Offset":
            offset += _whole(tree.one("offsetExpr"))
        elif tree.kind == "GlobalLimit":
            here = _whole(tree.one("limitExpr"))
            left = max(0, here - offset)  # what is skipped counts
            limit = left if limit is None else min(limit, left)
        tree = tree.only
    return _limited(lowering, tree, limit, offset)


def _limited(lowering: Lowering, tree: Tree, limit: int | None, offset: int) -> Relation:
    """The first rows of a node; where their order is below projections, which may not have it any more, of that."""
    if tree.kind == "Project" and _is_sorted(tree.only):
        return lowering.computed(_limited(lowering, tree.only, limit, offset), tree.many("projectList"))
    return _top(lowering, tree, limit, offset)


def _is_sorted(tree: Tree) -> bool:
    return tree.kind == "Sort" or (tree.kind == "Project" and _is_sorted(tree.only))


def _whole(tree: Tree) -> int:
    if tree.kind != "Literal":
        raise SqlError("a LIMIT or OFFSET that is not a number is not supported in a maintained view")
    return int(tree.fields["value"])


def _top(lowering: Lowering, tree: Tree, limit: int | None, offset: int) -> Relation:
    orders = tree.many("order") if tree.kind == "Sort" else []
    inner = lowering.part(tree)
    part = lowering.with_subqueries(inner, orders)
    attributes = part.columns(inner.outputs)
    keys, named = list[SortKey](), [(name, part.outputs[attribute]) for attribute, name in attributes]
    for order in orders:
        expression = ordered(lowering.expression(order.only, part.outputs))
        found = next((name for name, output in named if output == expression), None)
        if found is None:
            found = unique_name("order", [name for name, _ in named])
            named.append((found, expression))
        keys.append(sort_key(order, found))
    rows = top_rows(part.rows(named), part.key(), limit, offset, keys)
    return from_collection(rows, attributes, part.names)


def ordered(expression: Expression) -> Expression:
    """The expression, if its values have an order here."""
    if types.is_nested(expression.type):
        raise SqlError(
            f"values of type {expression.type} have no order in a maintained view",
            hint="order by a field of the struct, or by an element of the array",
        )
    return expression


def sort_key(order: Tree, column: str) -> SortKey:
    """How Catalyst orders by a column."""
    return SortKey(column, order.case("direction") == "Ascending", order.case("nullOrdering") == "NullsFirst")


def shown_order(lowering: Lowering, tree: Tree, part: Relation, names: Sequence[str]) -> tuple[SortKey, ...]:
    """The order in which the rows of a query are to be shown, as far as its columns, by these names, have it."""
    visible = {output: name for output, name in zip(part.outputs, names, strict=True)}
    while tree.kind in ("Project", "GlobalLimit", "LocalLimit", "Offset"):
        tree = tree.only
    keys = []
    for order in tree.many("order") if tree.kind == "Sort" else []:
        if order.only.kind != "AttributeReference" or order.only.expr_id not in visible:
            break
        keys.append(sort_key(order, visible[order.only.expr_id]))
    return tuple(keys)
