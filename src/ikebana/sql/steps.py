"""Expressions inside dataflows: the functions that linear steps and wrappers call, made of expressions.

All are values: two queries that filter or compute alike have equal steps, and share what follows from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.lanes import Lane
from ikebana.engine.collection import Arrangement, Collection
from ikebana.expressions import Column, ColumnBatch, Expression, PythonFunction
from ikebana.expressions.core.builders import conjunction, conjuncts, is_not_null
from ikebana.operators import linear
from ikebana.operators.changes import Changes, Fields
from ikebana.trace.views import row_flags

Named = tuple[tuple[str, Expression], ...]
"""Expressions, and the columns that they become."""


@dataclass(frozen=True)
class Predicate:
    """For arrangements that are filtered in place: a condition on the columns."""

    condition: Expression

    @property
    def uses(self) -> frozenset[str] | None:
        """The columns that it looks at; if it is none, it wants one to know how many rows there are."""
        return self.condition.columns or None

    @property
    def is_total(self) -> bool:
        """Whether it can be asked about any row: there is something to look at, and nothing that would raise."""
        return bool(self.condition.columns) and not self.condition.can_raise

    def __call__(self, columns: linear.Columns) -> pa.Array:
        return self.condition.evaluate(ColumnBatch.of(columns))


@dataclass(frozen=True)
class RowCondition:
    """A linear step: the rows for which a condition on the columns is true, and of these all columns or some.

    Of conditions that must all be true, the later ones are asked about the rows that are left, once these are few.
    """

    condition: Expression
    kept: tuple[str, ...] | None = None

    label = "where"

    @property
    def calls_users(self) -> bool:
        """Whether it calls functions of the user's, which may take long."""
        return calls_users([self.condition])

    def fields(self, given: Fields) -> Fields:
        return given if self.kept is None else tuple(field for field in given if field.name in self.kept)

    def __call__(self, changes: Changes) -> Changes:
        rows = ColumnBatch.given(changes.named, len(changes))
        fields = self.fields(changes.fields)
        return changes.with_columns(fields, [rows.columns[field.name] for field in fields]).take(self._chosen(rows))

    def _chosen(self, rows: ColumnBatch) -> Lane:
        """The rows for which all conditions are true."""
        conditions = conjuncts(self.condition)
        chosen, flags = np.arange(rows.count), np.ones(rows.count, bool)
        for at, condition in enumerate(conditions):
            flags &= row_flags(condition.evaluate(rows), rows.count)
            left = conditions[at + 1 :]
            if left and np.count_nonzero(flags) < rows.count * _FEW:
                chosen = chosen[flags]
                rows = _columns_of(left, rows).where(flags)
                flags = np.ones(rows.count, bool)
        return chosen[flags]


_FEW = 0.4
"""The fraction of rows below which it pays to leave the others out, when there are more questions about them."""


def _columns_of(conditions: Iterable[Expression], rows: ColumnBatch) -> ColumnBatch:
    """Only the columns that some conditions are about."""
    wanted = frozenset[str]().union(*(each.columns for each in conditions))
    return rows.keeping(wanted)


@dataclass(frozen=True)
class Projection:
    """For arrangements that are projected in place: expressions of the columns, under new names."""

    named: Named

    @property
    def uses(self) -> frozenset[str] | None:
        """The columns that it looks at; if it is none, it wants one to know how many rows there are."""
        return frozenset(name for _, each in self.named for name in each.columns) or None

    @property
    def is_total(self) -> bool:
        """Whether it can be computed for any row: there is nothing that would raise."""
        return not any(each.can_raise for _, each in self.named)

    def __call__(self, columns: linear.Columns) -> dict[str, Any]:
        rows = ColumnBatch.of(columns)
        return {name: expression.evaluate(rows) for name, expression in self.named}


@dataclass(frozen=True)
class Computed:
    """A linear step: expressions of the columns, under new names."""

    named: Named

    @property
    def calls_users(self) -> bool:
        """Whether it calls functions of the user's, which may take long."""
        return calls_users([each for _, each in self.named])

    def fields(self, given: Fields) -> Fields:
        return fields_of(self.named)

    def __call__(self, changes: Changes) -> Changes:
        rows = ColumnBatch.given(changes.named, len(changes))
        return changes.with_columns(fields_of(self.named), [each.evaluate(rows) for _, each in self.named])


@dataclass(frozen=True)
class Repeat:
    """A linear step: every diff multiplied by a whole number that a column has, which is left out."""

    column: str

    def fields(self, given: Fields) -> Fields:
        return tuple(field for field in given if field.name != self.column)

    def __call__(self, changes: Changes) -> Changes:
        factor = changes.named[self.column].to_numpy(zero_copy_only=False).astype(np.int64)
        kept = linear.Select(tuple((field.name, field.name) for field in self.fields(changes.fields)))(changes)
        return kept.scaled(factor[None, :])


def calls_users(expressions: Iterable[Expression]) -> bool:
    """Whether expressions call functions of the user's."""
    return any(isinstance(part, PythonFunction) for each in expressions for part in each.walk())


def fields_of(named: Iterable[tuple[str, Expression]]) -> Fields:
    """The columns that expressions become."""
    return tuple(pa.field(name, each.type, nullable=each.nullable) for name, each in named)


def filtered(collection: Collection, conditions: Sequence[Expression], kept: Iterable[str] | None = None) -> Collection:
    """The rows for which all conditions are true; of columns only some, if it is known which are needed later."""
    if not conditions:
        return collection
    needed = None if kept is None else set(kept)
    names = None if needed is None else tuple(name for name in collection.columns if name in needed)
    return collection.step(RowCondition(conjunction(conditions), names or None))


def projected(collection: Collection, named: Named) -> Collection:
    """Expressions of the columns; where they are columns as they are, these are only given their names."""
    if all(isinstance(each, Column) for _, each in named):
        pairs = tuple((name, each.name) for name, each in named if isinstance(each, Column))
        if pairs == tuple((name, name) for name in collection.columns):
            return collection
        return collection.select(**dict(pairs)) if pairs else collection.select()
    return collection.step(Computed(named))


def not_null(collection: Collection, names: Iterable[str]) -> Collection:
    """The rows in which some columns are not null, declared so: such keys have the index of a column never null."""
    wanted = set(names)
    doubtful = [field for field in collection.node.columns if field.nullable and field.name in wanted]
    if not doubtful:
        return collection
    conditions = [is_not_null(Column(field.type, True, field.name)) for field in doubtful]
    fields = tuple(field.with_nullable(field.nullable and field not in doubtful) for field in collection.node.columns)
    return collection.step(RowCondition(conjunction(conditions))).declare(fields)


def seen(index: Arrangement, conditions: Sequence[Expression], values: Named) -> Arrangement:
    """An arrangement filtered and with other value columns, in place."""
    if conditions:
        index = index.filter(Predicate(conjunction(conditions)))
    if all(isinstance(each, Column) for _, each in values):
        return index.select(**{name: each.name for name, each in values if isinstance(each, Column)})
    return index.map(fields_of(values), Projection(values))
