"""History: whether a result at an epoch depends on more than the inputs at that epoch.

Most results do not: they are what the query gives for the rows that the inputs have at the epoch. A look-up's is not,
nor that of an extension: they join each change with what an arrangement has at the time of the change, so it matters
which changes have the same time. The paths of a delta join consist of look-ups, but the sum of all paths is a join.

| node | its result |
|---|---|
| a look-up, an extension | is a path |
| linear steps and unions of paths | are a path |
| the sum of all paths of a delta join (`Union.is_delta_join`) | depends on one epoch only |
| anything else that reads a path | depends on history |

Contract: this follows from the plan alone, so all workers come to the same.

Cost: a look at each node, when a dataflow first has several epochs to do.
"""

from __future__ import annotations

from ikebana.plan import ir

_EXACT, _PATH, _HISTORICAL = range(3)


def depends_on_history(plan: ir.Node) -> bool:
    """Whether the result of a plan at an epoch depends on which earlier changes had the same time."""
    known: dict[str, int] = {}
    for node in plan.graph:
        known[node.digest] = _kind(node, max([known[source.digest] for source in node.inputs], default=_EXACT))
    return known[plan.digest] != _EXACT


def _kind(node: ir.Node, read: int) -> int:
    """What kind of result a node has, given the greatest kind among its inputs."""
    if read == _HISTORICAL:
        return _HISTORICAL
    match node:
        case ir.Lookup() | ir.Extend():
            return _PATH
        case ir.Union(is_delta_join=True):
            return _EXACT
        case ir.Steps() | ir.Union():
            return read
        case _:
            return _EXACT if read == _EXACT else _HISTORICAL
