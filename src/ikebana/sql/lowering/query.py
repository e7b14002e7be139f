"""From a query that Spark has planned to a collection: `lower`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyarrow import types

from ikebana.engine.collection import Collection
from ikebana.errors import SqlError
from ikebana.expressions.core.tree import of_nodes
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.lowering.context import Lowering, unexpected_errors_refused
from ikebana.sql.lowering.handlers import HANDLERS
from ikebana.sql.lowering.limits import display_order
from ikebana.sql.lowering.trees import listed_outputs
from ikebana.sql.planned import Planned
from ikebana.sql.relation import SourceTable, column_names


@dataclass(frozen=True, eq=False)
class LoweredQuery:
    """A query as a collection, and the order in which its rows are displayed."""

    rows: Collection
    order: tuple[SortKey, ...] = ()

    def renamed(self, names: Sequence[str]) -> LoweredQuery:
        """The same query with other names for its columns."""
        columns = self.rows.columns
        if len(names) != len(columns) or len(set(names)) != len(names):
            raise SqlError(
                f"the query has {len(columns)} columns, which need as many different names",
                detail=f"its columns are {', '.join(map(repr, columns))}; the names are {', '.join(map(repr, names))}",
                hint="give a name for each column: columns=[...]",
            )
        new_names = dict(zip(columns, names, strict=True))
        rows = self.rows.select(**{new: old for old, new in new_names.items()})
        return LoweredQuery(rows, tuple(replace(key, column=new_names[key.column]) for key in self.order))


def lower(planned: Planned, tables: Mapping[str, SourceTable]) -> LoweredQuery:
    """The collection of a query over `tables`, by name; its columns have the names that the query gives them.

    Columns that have the same name are numbered (`column_names`).
    """
    names = column_names([field.name for field in planned.columns])
    for field in planned.columns:
        if types.is_null(field.type):
            raise SqlError(
                f"the column {field.name!r} is NULL without a type, which cannot be maintained",
                hint="give it a type: CAST(NULL AS INT) AS name",
            )
    with unexpected_errors_refused("the query"):
        lowering, tree = Lowering(planned, tables, HANDLERS), of_nodes(planned.nodes)
        relation = lowering.relation(tree)
        outputs = listed_outputs(tree, relation)
        rows = relation.rows((name, relation.outputs[output]) for name, output in zip(names, outputs, strict=True))
        return LoweredQuery(rows, display_order(tree, dict(zip(outputs, names, strict=True))))
