"""From a query that Spark has planned to a collection: `lower`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyarrow import types

from ikebana.engine.collection import Collection
from ikebana.errors import SqlError
from ikebana.expressions.core.tree import of_nodes
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.lowering.context import Lowering, unexpected_errors_refused
from ikebana.sql.lowering.handlers import HANDLERS
from ikebana.sql.lowering.limits import display_order
from ikebana.sql.planned import Planned
from ikebana.sql.relation import DIFF, SourceTable


@dataclass(frozen=True, eq=False)
class Lowered:
    """A query as a collection, and the order in which its rows are displayed."""

    rows: Collection
    order: tuple[SortKey, ...] = ()


def lower(planned: Planned, tables: Mapping[str, SourceTable]) -> Lowered:
    """The collection of a query over `tables`, by name; its columns have the names that the query gives them."""
    names = [field.name for field in planned.columns]
    _check_names(names)
    for field in planned.columns:
        if types.is_null(field.type):
            raise SqlError(
                f"the column {field.name!r} is NULL without a type, which cannot be maintained",
                hint="give it a type: CAST(NULL AS INT) AS name",
            )
    with unexpected_errors_refused("the query"):
        lowering, tree = Lowering(planned, tables, HANDLERS), of_nodes(planned.nodes)
        relation = lowering.relation(tree)
        rows = relation.rows(zip(names, relation.outputs.values(), strict=True))
        return Lowered(rows, display_order(tree, relation, names))


def _check_names(names: Sequence[str]) -> None:
    """Raise if columns of a view cannot have these names."""
    for at, name in enumerate(names):
        if name in names[:at]:
            raise SqlError(
                f"the query has two columns that are called {name!r}", hint="rename one of them: ... AS name"
            )
        if name == DIFF:
            raise SqlError(
                f"a column of a view cannot be called {name!r}",
                detail=f"`{DIFF}` is reserved for the row's multiplicity",
                hint="rename it: ... AS name",
            )
