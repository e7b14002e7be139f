"""Inspection: what `Engine.status` and `Engine.explain` say about arrangements.

Everything here is computed from the catalogue (`ikebana.engine.catalog`) and from the sizes that workers report.
Cost: a walk over the plan, or over the plans of all arrangements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ikebana.engine.catalog import Catalog
from ikebana.plan import ir
from ikebana.plan.estimates import estimated_bytes, format_bytes
from ikebana.plan.sharing import explain, walk
from ikebana.runtime.messages import ArrangementStatus


class Size(NamedTuple):
    """The rows and bytes of an arrangement, on all workers together."""

    rows: int
    bytes: int


EMPTY = Size(0, 0)


def sizes_by_dataflow(statuses: Iterable[ArrangementStatus]) -> dict[str, Size]:
    """The size of each dataflow's arrangement, added up over all workers."""
    sizes: dict[str, Size] = {}
    for status in statuses:
        rows, size = sizes.get(status.dataflow, EMPTY)
        sizes[status.dataflow] = Size(rows + status.rows, size + status.bytes)
    return sizes


def names_by_dataflow(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """The tables and views that each dataflow maintains; for an index, the tables and inputs that it reads."""
    names: dict[str, tuple[str, ...]] = {}
    for dataflow in catalog.dataflows():
        owners = [owner.name for owner in catalog.owners_of(dataflow)]
        names[dataflow] = tuple(owners or _source_names(catalog.arrangement(dataflow)))
    return names


def _source_names(plan: ir.Node) -> list[str]:
    return sorted({node.name for node in walk(plan) if isinstance(node, ir.Source)})


def explain_plan(
    plan: ir.Node,
    catalog: Catalog,
    sizes: Mapping[str, Size],
    table_rows: Mapping[str, int],
    *,
    share: bool,
) -> str:
    """The plan as a tree. For each arrangement: whether it is reused or built, and its actual or estimated size.

    `table_rows` has the number of rows of each table, for the estimates; with `share=False` nothing is reused.
    """

    def note(node: ir.Node) -> str:
        if not ir.is_stored(node):
            return ""
        dataflow = catalog.maintainer(node) if share else None
        if dataflow is None:
            return _note("built here", estimated_bytes(node, table_rows), "about ")
        return _note(_origin(catalog, dataflow), sizes.get(dataflow, EMPTY).bytes)

    return explain(plan, note)


def _note(origin: str, size: int, prefix: str = "") -> str:
    return f"  <- {origin}, {prefix}{format_bytes(size)}" if size else f"  <- {origin}"


def _origin(catalog: Catalog, dataflow: str) -> str:
    """Where an existing arrangement comes from: the table or view that owns it, or the views that share it."""
    owners = catalog.owners_of(dataflow)
    if owners:
        return f"reused from {owners[0].kind} {owners[0].name}"
    views = [user.name for user in catalog.users_of(dataflow) if user.kind == "view"]
    return f"shared with {', '.join(views)}" if views else f"reused from {dataflow}"
