"""Statements that are look-ups: the answer for any parameter values is found by key, without a dataflow of its own.

    SELECT id, price FROM orders WHERE customer = :customer AND price > :least

selects, filters and computes over the rows of one table or view that have the values of parameters in some columns.
`key_lookup` recognises such a plan: projections and conditions over one table, at least one of which is the equality of
a column and a parameter. The rows with that key are looked up in an arrangement of the table, which no parameter
affects, and the other conditions and the expressions are evaluated for these few rows by whoever asks.

Not recognised: joins, aggregates, limits, conditions on the current time, streams, and expressions that may raise,
whose errors a dataflow keeps. These have a dataflow with a row for each set of values (`ikebana.sql.statements`).

Cost: one pass over the plan; an answer takes a look-up and the evaluation of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from ikebana.expressions import Column, ColumnBatch, Expression
from ikebana.expressions.core.tree import Tree, of_nodes
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.expression_steps import Named
from ikebana.sql.lowering.context import Lowering
from ikebana.sql.lowering.handlers import HANDLERS
from ikebana.sql.lowering.leaves import leaf, table_name
from ikebana.sql.lowering.limits import display_order
from ikebana.sql.lowering.rowwise import pass_through
from ikebana.sql.lowering.trees import conjuncts, is_clock, listed_outputs, scalar_subqueries
from ikebana.sql.planned import PARAMETERS, Planned
from ikebana.sql.relation import Relation, SourceTable, column_names
from ikebana.trace.views import row_flags


@dataclass(frozen=True, eq=False)
class KeyLookup:
    """How answers are found: the key to look up in a table, and what to do with the rows."""

    source: SourceTable
    key: Mapping[str, str]
    """The parameter that each column of the key is equal to."""
    filters: tuple[Expression, ...]
    """Further conditions over the columns of the source, and over parameters (`parameter_column`)."""
    outputs: Named
    """The columns of the answer, as expressions over the same."""
    order: tuple[SortKey, ...]

    def answer(self, rows: pa.Table, parameters: Mapping[str, pa.Array]) -> pa.Table:
        """The answer, given the rows with the key, and one value for each parameter."""
        if self._selected is not None:
            selected, names = self._selected
            return pa.Table.from_arrays([rows.column(name) for name in selected], names)
        columns = {name: rows[name].combine_chunks() for name in rows.column_names if name in self._read}
        for name, value in parameters.items():
            if parameter_column(name) in self._read:
                columns[parameter_column(name)] = pa.repeat(value[0], rows.num_rows)
        batch = ColumnBatch.from_input(columns, rows.num_rows)
        for condition in self.filters:
            batch = batch.filter(row_flags(condition.evaluate(batch), batch.count))
        return pa.table({name: expression.evaluate(batch) for name, expression in self.outputs})

    @cached_property
    def _read(self) -> frozenset[str]:
        """The columns and parameters that conditions and outputs are computed from."""
        expressions = (*self.filters, *(expression for _, expression in self.outputs))
        return frozenset().union(*(expression.columns for expression in expressions))

    @cached_property
    def _selected(self) -> tuple[list[str], list[str]] | None:
        """The columns of the source that are the answer, and their names there; None if there is more to compute."""
        expressions = [expression for _, expression in self.outputs]
        columns = [expression.name for expression in expressions if isinstance(expression, Column)]
        if self.filters or len(columns) < len(expressions) or not set(columns) <= set(self.source.rows.columns):
            return None
        return columns, [name for name, _ in self.outputs]


def parameter_column(name: str) -> str:
    """The name of the column that holds the value of a parameter, which no table's column has."""
    return f"{PARAMETERS} {name}"


def key_lookup(planned: Planned, tables: Mapping[str, SourceTable]) -> KeyLookup | None:
    """How the answers of a statement are looked up by key; None if they are not."""
    plan = _Plan(Lowering(planned, tables, HANDLERS))
    tree = of_nodes(planned.nodes)
    relation = plan.relation(tree)
    if relation is None or relation.table is None:
        return None
    names, listed = column_names([field.name for field in planned.columns]), listed_outputs(tree, relation)
    outputs = tuple((name, relation.outputs[output]) for name, output in zip(names, listed, strict=True))
    key, rest = _split(plan.equalities, relation.table)
    expressions = [*relation.filters, *rest, *(expression for _, expression in outputs)]
    if not key or any(expression.can_raise for expression in expressions):
        return None
    order = display_order(tree, dict(zip(listed, names, strict=True)))
    return KeyLookup(relation.table, key, (*relation.filters, *rest), outputs, order)


@dataclass(frozen=True, eq=False)
class _Equality:
    """A column of the source that is equal to a parameter, and the condition that says so."""

    column: str
    parameter: str
    condition: Expression


def _split(equalities: list[_Equality], table: SourceTable) -> tuple[dict[str, str], list[Expression]]:
    """The key to look up, which is the table's own key if its columns are given, and the remaining conditions."""
    first = {equality.column: equality for equality in reversed(equalities)}
    if table.key and set(table.key) <= first.keys():
        first = {column: first[column] for column in table.key}
    rest = [equality.condition for equality in equalities if first.get(equality.column) is not equality]
    return {column: equality.parameter for column, equality in first.items()}, rest


class _Plan:
    """A plan of projections and conditions over one table, as far as it is one."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering
        self.equalities: list[_Equality] = []

    def relation(self, tree: Tree) -> Relation | None:
        """The rows of the table with the attributes of a node, without the equalities; None if it is no such plan."""
        handler = HANDLERS.get(tree.kind)
        if handler is leaf:
            return self._table(tree)
        if handler is not pass_through and tree.kind not in ("Project", "Filter"):
            return None
        if tree.kind == "LocalLimit":
            return None
        inner = self.relation(tree.only_child)
        if inner is None or handler is pass_through:
            return inner
        return self._projected(inner, tree) if tree.kind == "Project" else self._filtered(inner, tree)

    def _table(self, tree: Tree) -> Relation | None:
        if table_name(tree) is None:
            return None
        relation = self._lowering.relation(tree)
        return None if relation.table is None or relation.table.is_stream else relation

    def _projected(self, inner: Relation, tree: Tree) -> Relation | None:
        named = tree.expressions("projectList")
        known = self._with_parameters(inner, named)
        if known is None:
            return None
        outputs = {expression.expr_id: self._lowering.expression(expression, known) for expression in named}
        return inner.with_outputs(outputs, {expression.expr_id: expression.fields["name"] for expression in named})

    def _filtered(self, inner: Relation, tree: Tree) -> Relation | None:
        conditions = conjuncts(tree.expression("condition"))
        known = self._with_parameters(inner, conditions)
        if known is None:
            return None
        filters = []
        for condition in conditions:
            expression = self._lowering.expression(condition, known)
            equality = next(self._equalities(condition, known, expression), None)
            if equality is None:
                filters.append(expression)
            else:
                self.equalities.append(equality)
        return replace(inner, filters=(*inner.filters, *filters))

    def _with_parameters(self, inner: Relation, trees: list[Tree]) -> Mapping[int, Expression] | None:
        """The attributes of a relation and the parameters in expressions; None if there are other subqueries."""
        parameters: dict[int, Expression] = {}
        for number, subquery in scalar_subqueries(trees).items():
            plan = of_nodes(subquery.fields["plan"])
            if is_clock(subquery) or not _reads_parameters(plan):
                return None
            relation = self._lowering.relation(plan)
            ((attribute, column),) = relation.outputs.items()
            name = parameter_column(relation.names[attribute])
            parameters[number] = Column(column.type, column.nullable, name)
        return {**inner.outputs, **parameters}

    def _equalities(
        self, condition: Tree, known: Mapping[int, Expression], expression: Expression
    ) -> Iterator[_Equality]:
        """The condition as an equality of a column and a parameter, if it is one."""
        if condition.kind != "EqualTo":
            return
        sides = [self._lowering.expression(child, known) for child in condition.children]
        for column, parameter in (sides, sides[::-1]):
            if isinstance(column, Column) and isinstance(parameter, Column) and column.type == parameter.type:
                prefix = parameter_column("")
                if parameter.name.startswith(prefix) and not column.name.startswith(prefix):
                    yield _Equality(column.name, parameter.name.removeprefix(prefix), expression)


def _reads_parameters(plan: Tree) -> bool:
    """Whether the plan of a subquery selects a parameter."""
    while len(plan.children) == 1:
        plan = plan.only_child
    return table_name(plan) == PARAMETERS if "output" in plan.fields else False
