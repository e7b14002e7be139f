"""Inspection: what `Engine.status` and `Engine.explain` say about arrangements.

Everything here is computed from the catalogue (`ikebana.engine.catalog`) and from the sizes that workers report.
Cost: a walk over the plan, or over the plans of all arrangements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ikebana.engine.catalog import Catalog
from ikebana.plan import ir
from ikebana.plan.estimates import Columns, Known, estimated_bytes, format_bytes, indexed_columns
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


def known_key(catalog: Catalog, dataflow: str) -> tuple[str, ...]:
    """The key of an arrangement, with the names of columns that users know.

    The columns of a table or view have these names. The key of an index consists of columns of a table, under names
    that only its query knows, or of values that the query computes.
    """
    plan = catalog.arrangement(dataflow)
    names = [field.name for field in ir.schema_of(plan).key.fields]
    if catalog.owners_of(dataflow):
        return tuple(names)
    columns = [indexed_columns(plan, [name]) for name in names]
    return tuple(COMPUTED if column is None else next(iter(column.columns)) for column in columns)


COMPUTED = "(computed)"
"""What stands for a key column that is not a column of a table."""


def indexes(catalog: Catalog, sources: Iterable[str]) -> dict[Columns, str]:
    """The dataflows that maintain indexes of sources by some of their columns, by source and columns."""
    wanted, dataflows = set(sources), dict[Columns, str]()
    for dataflow in catalog.dataflows():
        plan = catalog.arrangement(dataflow)
        if isinstance(plan, ir.Arrange) and plan.key and not catalog.has_failed(dataflow):
            indexed = indexed_columns(plan, plan.key)
            if indexed is not None and not indexed.is_filtered and indexed.source in wanted:
                dataflows.setdefault((indexed.source, indexed.columns), dataflow)
    return dataflows


def _source_names(plan: ir.Node) -> list[str]:
    return sorted({node.name for node in walk(plan) if isinstance(node, ir.Source)})


def explain_plan(
    plan: ir.Node,
    catalog: Catalog,
    sizes: Mapping[str, Size],
    known: Known,
    *,
    share: bool,
) -> str:
    """The plan as a tree. For each arrangement: whether it is reused or built, and its actual or estimated size.

    `known` is what estimates start from; with `share=False` nothing is reused.
    """

    def note(node: ir.Node) -> str:
        if not ir.is_stored(node):
            return ""
        dataflow = catalog.maintainer(node) if share else None
        if dataflow is None:
            estimate = estimated_bytes(node, known)
            return _note("built here", estimate.size, estimate.prefix)
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
