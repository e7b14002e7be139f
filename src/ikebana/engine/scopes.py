"""Scopes: bringing plans from outside a loop into it.

A node's scope is the tuple of loops that it is inside, outermost first. Operators combine only nodes of the same scope,
so collections from outside must enter the loop; of the rows of an arrangement, the arrangement itself enters, which
copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ikebana.errors import SchemaError
from ikebana.plan import ir


def entered(node: ir.Node, loop: str) -> ir.Node:
    """The node inside one more loop."""
    if isinstance(node, ir.AsStream):
        return ir.make(ir.AsStream, source=ir.make(ir.Enter, source=node.source, loop=loop))
    return ir.make(ir.Enter, source=node, loop=loop)


def inside(node: ir.Node, scope: ir.Scope) -> ir.Node:
    """The node inside all loops of a scope, given that it is inside none or only the outer ones."""
    if scope[: len(node.scope)] != node.scope:
        raise SchemaError(
            "cannot use a variable of a loop outside of the loop",
            detail=f"the variable belongs to {' in '.join(reversed(node.scope))}",
            hint="use what iterate() returns; to start a loop inside another, enter() its initial collection first",
        )
    for loop in scope[len(node.scope) :]:
        node = entered(node, loop)
    return node


def in_one_scope(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """All nodes, inside the scope of the innermost of them."""
    scope = max((node.scope for node in nodes), key=len)
    return [inside(node, scope) for node in nodes]
