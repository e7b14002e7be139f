"""What a new query shares: which of its arrangements it imports, and which it has to itself.

A query imports an arrangement that is maintained already, and lets a dataflow of its own maintain one that other
queries may want later (`ikebana.plan.sharing.is_shareable`). It never shares what it computes from streams, since it
sees only the rows of a stream that arrive after it was installed: its result then belongs to an owner of its own, so
that no other query finds it by accident (`ikebana.plan.ir.with_owner`).
"""

from __future__ import annotations

from ikebana.encoding import Schema
from ikebana.engine.catalog import Catalog
from ikebana.plan import ir
from ikebana.plan.sharing import is_shareable, walk


def result_node(node: ir.Node) -> ir.Node:
    """The arrangement that holds the result of a query: the query's own, if it is the rows of an arrangement."""
    arrangement = node.source if isinstance(node, ir.AsStream) else node
    if ir.is_stored(arrangement):
        return arrangement
    fields = node.columns
    by_first = Schema(fields[:1], fields[1:])
    first_alone = not by_first.hashed and Schema(fields).hashed  # two lanes that are exact, rather than a hash
    key = (fields[0].name,) if first_alone else tuple(field.name for field in fields)
    return ir.make(ir.Arrange, source=node, key=key)


def imported_arrangements(plan: ir.Node, catalog: Catalog, *, share: bool) -> list[ir.Node]:
    """The arrangements below a plan's root that the plan imports, inputs first.

    With `share=False` these are only arrangements that are maintained already.
    """

    def is_imported(node: ir.Node) -> bool:
        return catalog.maintainer(node) is not None or (share and is_shareable(node))

    return [node for node in walk(plan) if node is not plan and is_imported(node)]
