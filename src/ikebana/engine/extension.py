"""Which extensions of rows are done in place, and which as look-ups.

A single worker reads all indexes of `Collection.extend` where they are stored (`ikebana.operators.extend`). Where rows
have to travel between workers, where values are hashed, or where an index is seen through a view, the extension is
replaced by look-ups when a plan is installed (`ikebana.engine.extension_lookups`).

Cost: one pass over the plan. The module that writes look-ups is imported when a plan needs it: it computes with
expressions, which processes that only read views never do.
"""

from __future__ import annotations

from importlib import import_module

from ikebana.plan import ir
from ikebana.plan.sharing import replaced, walk


def for_workers(plan: ir.Node, workers: int) -> ir.Node:
    """The plan for a number of workers, in which only those extensions are left that one worker can do in place."""

    def is_expanded(node: ir.Node) -> bool:
        return isinstance(node, ir.Extend) and (workers > 1 or not node.is_in_place)

    if not any(is_expanded(node) for node in walk(plan)):
        return plan
    expanded = import_module("ikebana.engine.extension_lookups").expanded
    return replaced(plan, lambda node: expanded(node) if is_expanded(node) else node)
