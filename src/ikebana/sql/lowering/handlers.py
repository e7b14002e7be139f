"""The table of handlers: which function lowers which class of Catalyst's plan nodes.

A class that is not listed is refused by `Lowering.part`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ikebana.sql.lowering import (
    aggregates,
    asof_joins,
    generators,
    joins,
    leaves,
    limits,
    python_functions,
    recursion,
    rowwise,
    windows,
)
from ikebana.sql.lowering.context import Handler

HANDLERS: Mapping[str, Handler] = {
    "LogicalRelation": leaves.leaf,
    "LogicalRDD": leaves.leaf,
    "DataSourceV2Relation": leaves.leaf,
    "DataSourceV2ScanRelation": leaves.leaf,
    "LocalRelation": leaves.leaf,
    "Range": leaves.leaf,
    "OneRowRelation": leaves.one_row,
    "Sort": rowwise.pass_through,
    "Repartition": rowwise.pass_through,
    "RepartitionByExpression": rowwise.pass_through,
    "RebalancePartitions": rowwise.pass_through,
    "ResolvedHint": rowwise.pass_through,
    "CollectMetrics": rowwise.pass_through,
    "LocalLimit": rowwise.pass_through,
    "Project": rowwise.project,
    "Filter": rowwise.filter_rows,
    "Union": rowwise.union,
    "Expand": rowwise.expand,
    "GlobalLimit": limits.limit,
    "Offset": limits.limit,
    "Join": joins.join,
    "AsOfJoin": asof_joins.asof_join,
    "Aggregate": aggregates.aggregate,
    "Window": windows.window,
    "Generate": generators.generate,
    "BatchEvalPython": python_functions.evaluate,
    "ArrowEvalPython": python_functions.evaluate,
    "UnionLoop": recursion.loop,
    "UnionLoopRef": recursion.loop_variable,
}
"""Handlers by the name of the node's class, without its package."""
