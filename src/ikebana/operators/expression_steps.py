"""Expressions as steps of dataflows: conditions, projections and multiplicities computed from columns.

All steps are values: two queries that filter or compute alike have equal steps, and share what follows from them.

Cost: one pass over the columns for each function of an expression; in programs, some nanoseconds for each row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.lanes import Array
from ikebana.expressions import Column, ColumnBatch, Expression, PythonFunction
from ikebana.expressions.core.builders import conjuncts
from ikebana.operators import linear
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.expression_program import lowered
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.registers import ColumnSlots, Rows
from ikebana.operators.repeated_parts import Evaluation
from ikebana.trace.views import row_flags

Named = tuple[tuple[str, Expression], ...]
"""Expressions, each with the name of the column that it becomes."""


@dataclass(frozen=True)
class Predicate:
    """A condition on the columns, for arrangements that are filtered in place."""

    condition: Expression

    @property
    def uses(self) -> frozenset[str] | None:
        """The columns that the condition reads; None, for all columns, if it reads none: it must know the row count."""
        return self.condition.columns or None

    @property
    def is_total(self) -> bool:
        """Whether the condition can be evaluated for any row: it reads columns, and cannot raise."""
        return bool(self.condition.columns) and not self.condition.can_raise

    def __call__(self, columns: linear.Columns) -> pa.Array:
        return self.condition.evaluate(ColumnBatch.from_columns(columns))

    def lower(self, program: ProgramBuilder, rows: Rows) -> ColumnSlots | None:
        return lowered(program, rows, self.condition)


@dataclass(frozen=True)
class RowCondition(linear.ColumnsKept):
    """A linear step: the rows for which a condition on the columns is true, with all columns or some.

    Conditions combined by AND are evaluated one after the other; once few rows are left, only for these.
    """

    condition: Expression
    names: tuple[str, ...] | None = None
    """The columns of the result; None for all."""

    label = "where"
    is_selective = True

    @cached_property
    def calls_users(self) -> bool:
        """Whether the condition calls a user's function, which may take long."""
        return calls_users([self.condition])

    def fields(self, given: Fields) -> Fields:
        return given if self.names is None else tuple(field for field in given if field.name in self.names)

    def __call__(self, changes: Changes) -> Changes:
        rows = ColumnBatch.from_input(changes.named, len(changes))
        fields = self.fields(changes.fields)
        return changes.with_columns(fields, [rows.columns[field.name] for field in fields]).where(self._selected(rows))

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows | None:
        flag = lowered(program, rows, self.condition)
        if flag is None:
            return None
        fields = self.fields(rows.fields)
        kept = replace(rows, fields=fields, columns={field.name: rows.columns[field.name] for field in fields})
        return program.filtered(kept, flag)

    def _selected(self, rows: ColumnBatch) -> Array:
        """Flags for the rows for which all conditions are true."""
        count, conditions = rows.count, conjuncts(self.condition)
        positions: Array | None = None  # of the rows that are left, once others were removed
        flags = row_flags(conditions[0].evaluate(rows), count)
        for at, condition in enumerate(conditions[1:], start=1):
            if np.count_nonzero(flags) < rows.count * _COMPACTION_FRACTION:
                left = np.flatnonzero(flags)
                positions = left if positions is None else positions[left]
                rows = _columns_of(conditions[at:], rows).filter(flags)
                flags = row_flags(condition.evaluate(rows), rows.count)
            else:
                flags = flags & row_flags(condition.evaluate(rows), rows.count)
        if positions is None:
            return flags
        selected = np.zeros(count, bool)
        selected[positions[flags]] = True
        return selected


_COMPACTION_FRACTION = 0.4
"""The fraction of rows below which it pays to remove the others before further conditions are evaluated."""


def _columns_of(conditions: Iterable[Expression], rows: ColumnBatch) -> ColumnBatch:
    """The rows with only the columns that conditions read."""
    return rows.select(frozenset[str]().union(*(condition.columns for condition in conditions)))


@dataclass(frozen=True)
class Projection:
    """Expressions over the columns, under new names, for arrangements that are projected in place."""

    named: Named

    @property
    def uses(self) -> frozenset[str] | None:
        """The columns that the expressions read; None, for all columns, if they read none."""
        return frozenset(name for _, expression in self.named for name in expression.columns) or None

    @property
    def is_total(self) -> bool:
        """Whether the expressions can be evaluated for any row: none of them can raise."""
        return not any(expression.can_raise for _, expression in self.named)

    def __call__(self, columns: linear.Columns) -> dict[str, Any]:
        rows = ColumnBatch.from_columns(columns)
        return {name: expression.evaluate(rows) for name, expression in self.named}

    def lower_columns(self, program: ProgramBuilder, rows: Rows, names: Iterable[str]) -> dict[str, ColumnSlots] | None:
        wanted = set(names)
        return lowered_columns(program, rows, [pair for pair in self.named if pair[0] in wanted])


@dataclass(frozen=True)
class Computed(linear.Step):
    """A linear step: expressions over the columns, under new names."""

    named: Named

    @cached_property
    def calls_users(self) -> bool:
        """Whether an expression calls a user's function, which may take long."""
        return calls_users([expression for _, expression in self.named])

    def fields(self, given: Fields) -> Fields:
        return fields_of(self.named)

    @cached_property
    def _evaluation(self) -> Evaluation:
        return Evaluation([expression for _, expression in self.named])

    def __call__(self, changes: Changes) -> Changes:
        rows = ColumnBatch.from_input(changes.named, len(changes))
        return changes.with_columns(fields_of(self.named), self._evaluation(rows))

    def origin(self, name: str) -> str | None:
        expression = dict(self.named)[name]
        return expression.name if isinstance(expression, Column) else None

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows | None:
        columns = lowered_columns(program, rows, self.named)
        return None if columns is None else replace(rows, fields=fields_of(self.named), columns=columns)


@dataclass(frozen=True)
class Repeat(linear.ColumnsKept):
    """A linear step: every diff multiplied by the integer in a column, which is dropped."""

    column: str

    def fields(self, given: Fields) -> Fields:
        return tuple(field for field in given if field.name != self.column)

    def __call__(self, changes: Changes) -> Changes:
        factor = changes.named[self.column].to_numpy(zero_copy_only=False).astype(np.int64)
        others = linear.Select(tuple((field.name, field.name) for field in self.fields(changes.fields)))(changes)
        return others.scaled(factor[None, :])

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows | None:
        factor = rows.columns[self.column]
        if factor.null:
            return None
        diffs = tuple(program.multiplied(rows.count, diff, factor.value) for diff in rows.diffs)
        return replace(rows.select(field.name for field in self.fields(rows.fields)), diffs=diffs)


def lowered_columns(
    program: ProgramBuilder, rows: Rows, named: Iterable[tuple[str, Expression]]
) -> dict[str, ColumnSlots] | None:
    """The slots of expressions; None if one of them cannot be written as instructions."""
    columns = {}
    for name, expression in named:
        column = lowered(program, rows, expression)
        if column is None:
            return None
        columns[name] = column
    return columns


def calls_users(expressions: Iterable[Expression]) -> bool:
    """Whether expressions call users' functions."""
    return any(isinstance(node, PythonFunction) for expression in expressions for node in expression.walk())


def fields_of(named: Iterable[tuple[str, Expression]]) -> Fields:
    """The columns that expressions become."""
    return tuple(pa.field(name, expression.type, nullable=expression.nullable) for name, expression in named)
