"""From a query as Spark planned it to a collection: `lower`. What it is made of is in `ikebana.sql.lowering`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyarrow import types

from ikebana.engine.collection import Collection
from ikebana.errors import SqlError
from ikebana.expressions.core.base import refused
from ikebana.expressions.core.tree import parse
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.lowering import aggregates, generators, join_chains, leaves, python_functions, recursion, rows, windows  # noqa: F401, each registers the nodes that it lowers
from ikebana.sql.lowering.context import Lowering
from ikebana.sql.lowering.limits import shown_order
from ikebana.sql.planned import Planned
from ikebana.sql.relation import DIFF, SourceTable


@dataclass(frozen=True, eq=False)
class Lowered:
    """A query as a collection, and in which order its rows are to be shown."""

    rows: Collection
    order: tuple[SortKey, ...] = ()


def lower(planned: Planned, tables: Mapping[str, SourceTable]) -> Lowered:
    """The collection of a query, under the names that its columns have, over tables by name."""
    names = [field.name for field in planned.columns]
    _check(names)
    for field in planned.columns:
        if types.is_null(field.type):
            raise SqlError(
                f"the column {field.name!r} is NULL without a type, which cannot be maintained",
                hint="say which type it has: CAST(NULL AS INT) AS name",
            )
    try:
        return _lowered(planned, tables, names)
    except SqlError:
        raise
    except Exception as error:
        raise refused(error, "the query") from error


def _lowered(planned: Planned, tables: Mapping[str, SourceTable], names: Sequence[str]) -> Lowered:
    lowering, tree = Lowering(planned, tables), parse(planned.plan)
    part = lowering.part(tree)
    named = zip(names, part.outputs.values(), strict=True)
    return Lowered(part.rows(named), shown_order(lowering, tree, part, names))


def _check(names: Sequence[str]) -> None:
    """Raise if columns of a view cannot have these names."""
    for at, name in enumerate(names):
        if name in names[:at]:
            raise SqlError(
                f"the query has two columns that are called {name!r}", hint="rename one of them: ... AS name"
            )
        if name == DIFF:
            raise SqlError(
                f"a column of a view cannot be called {name!r}",
                detail="views call so how often a row is there",
                hint="rename it: ... AS name",
            )
