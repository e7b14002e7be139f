"""Filters and projections of collections and arrangements by expressions (`ikebana.operators.expression_steps`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ikebana.engine.collection import Arrangement, Collection
from ikebana.expressions import Column, Expression
from ikebana.expressions.core.builders import conjunction, is_not_null
from ikebana.operators.expression_steps import (
    Computed,
    Named,
    Predicate,
    Projection,
    Repeat,
    RowCondition,
    fields_of,
)

__all__ = ["Named", "Repeat", "fields_of", "filtered", "in_place", "not_null", "projected"]


def filtered(
    collection: Collection, conditions: Sequence[Expression], needed: Iterable[str] | None = None
) -> Collection:
    """The rows for which all conditions are true; a filter drops the columns that are not `needed`."""
    if not conditions:
        return collection
    names = None
    if needed is not None:
        kept = set(needed)
        names = tuple(name for name in collection.columns if name in kept)
    return collection.step(RowCondition(conjunction(conditions), names or None))


def projected(collection: Collection, named: Named) -> Collection:
    """Expressions over the columns; if all of them are plain columns, these are only selected and renamed."""
    if all(isinstance(expression, Column) for _, expression in named):
        pairs = tuple((name, column.name) for name, column in named if isinstance(column, Column))
        if pairs == tuple((name, name) for name in collection.columns):
            return collection
        return collection.select(**dict(pairs)) if pairs else collection.select()
    return collection.step(Computed(named))


def not_null(collection: Collection, names: Iterable[str]) -> Collection:
    """The rows in which the named columns are not null, with these columns declared not null.

    So an index by such columns is the same as that of columns that were never nullable.
    """
    required = set(names)
    nullable = [field for field in collection.node.columns if field.nullable and field.name in required]
    if not nullable:
        return collection
    conditions = [is_not_null(Column(field.type, True, field.name)) for field in nullable]
    fields = tuple(field.with_nullable(field.nullable and field not in nullable) for field in collection.node.columns)
    return collection.step(RowCondition(conjunction(conditions))).declare(fields)


def in_place(index: Arrangement, conditions: Sequence[Expression], values: Named) -> Arrangement:
    """A view of an arrangement: its rows filtered, with other value columns."""
    if conditions:
        index = index.filter(Predicate(conjunction(conditions)))
    if all(isinstance(value, Column) for _, value in values):
        return index.select(**{name: column.name for name, column in values if isinstance(column, Column)})
    return index.map(fields_of(values), Projection(values))
