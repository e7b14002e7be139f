"""From a query as Spark planned it to a collection: `lower`. What it is made of is in `ikebana.sql.nodes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ikebana.collection import Collection
from ikebana.sql.lowering import Lowering
from ikebana.sql.nodes.limits import shown_order
from ikebana.sql.ordering import SortKey
from ikebana.sql.planned import Planned
from ikebana.sql.relations import Table
from ikebana.sql.tree import parse


@dataclass(frozen=True, eq=False)
class Lowered:
    """A query as a collection, and in which order its rows are to be shown."""

    rows: Collection
    order: tuple[SortKey, ...] = ()


def lower(planned: Planned, tables: Mapping[str, Table]) -> Lowered:
    """The collection of a query, under the names that its columns have, over tables by name."""
    lowering, tree = Lowering(planned, tables), parse(planned.plan)
    part = lowering.part(tree)
    names = [field.name for field in planned.columns]
    named = (*part.opening, *zip(names, part.outputs.values(), strict=True))
    return Lowered(part.rows(named), shown_order(lowering, tree, part, names))
