"""Aggregates: functions of groups of rows, computed by reductions that are maintained separately.

| reduction | aggregates | cost of a change |
|---|---|---|
| sums | count, sum, avg, stddev, skewness, corr etc. (`ikebana.reducers.sums`) | an addition, however large the group |
| sums of distinct values | the same, with DISTINCT | the same, and a check whether the value is new |
| an extreme | min, max; first and any_value with IGNORE NULLS | a few rows at the end of the group |
| one row | first, any_value: the same row for all of them | a few rows |
| gathered values | collect_set, percentile, max_by etc. (`ikebana.reducers.gathering`) | the whole group |

Every reduction is by the same key and leaves an index by that key, through which the results are joined. An aggregate
without GROUP BY has a row even if there are no input rows: that of an empty group.

A FILTER replaces the argument of sums and extremes by null where its condition is not true; they ignore nulls. Other
aggregates take the condition as a column: `first` prefers such rows, and aggregates that
gather values are given no others. Where SQL does not define which row is meant (first, any_value), it is the least.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa

from ikebana.engine.collection import Collection
from ikebana.errors import SqlError
from ikebana.expressions import Column, Expression, Literal, translate
from ikebana.expressions.core.builders import choose, is_true, null_safe_equal, null_unless
from ikebana.expressions.core.tree import Tree
from ikebana.reducers import sums
from ikebana.reducers.gathering import FilteredCall, GatherCall, Pivoted, gather
from ikebana.reducers.ordering import top_rows
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.inner_joins import PLACEHOLDER
from ikebana.sql.lowering.aggregate_functions import (
    BIVARIATE,
    GATHERED,
    OF_DISTINCT,
    SUMS,
    WITH_LITERALS,
    both_or_neither,
    gathered_by,
    sum_of,
)
from ikebana.sql.lowering.context import Lowering, Required, cross_join
from ikebana.sql.lowering.limits import ordered, sort_key
from ikebana.sql.lowering.sessions import with_sessions
from ikebana.sql.lowering.trees import all_references, scalar_subqueries, without_try
from ikebana.sql.relation import Relation, columns_of, from_collection, substituted, unique_name

_REFUSED = {
    "Last": ("last", "say which row is meant: max_by(value, order)"),
}
"""Aggregates that cannot be maintained: the SQL name, and what to use instead."""


def aggregate(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """GROUP BY, or aggregates of all rows."""
    groupings, outputs = tree.expressions("groupingExpressions"), tree.expressions("aggregateExpressions")
    relation = lowering.relation(tree.only_child, all_references([*groupings, *outputs]))
    calls = [node for output in outputs for node in output.walk() if node.kind == "AggregateExpression"]
    late = lowering.subqueries([subquery for output in outputs for subquery in _late_subqueries(output, groupings)])
    relation = with_sessions(lowering, lowering.with_subqueries(relation, [*groupings, *calls]), groupings)
    grouped = Grouped(lowering, relation, groupings, late)
    results = {output.expr_id: grouped.output(output) for output in outputs}
    rows = grouped.rows()
    columns = columns_of(rows.node.columns)
    result = Relation(rows, {}, {}, unique=grouped.key)
    if late:
        attributes = {lowering.new_attribute(): name for name in rows.columns}
        result = cross_join([from_collection(rows, attributes.items(), attributes), *late])
        columns = {name: result.outputs[attribute] for attribute, name in (attributes | grouped.late_columns).items()}
    return result.with_outputs(
        {attribute: substituted(expression, columns) for attribute, expression in results.items()},
        {output.expr_id: output.fields["name"] for output in outputs},
    )


def _late_subqueries(tree: Tree, groupings: Sequence[Tree]) -> Iterator[Tree]:
    """The scalar subqueries of an output that neither groupings nor aggregates use: they are joined after grouping."""
    if tree.kind == "ScalarSubquery" and tree.expr_id not in scalar_subqueries(groupings):
        yield tree
    elif tree.kind != "AggregateExpression":
        for child in tree.children:
            yield from _late_subqueries(child, groupings)


@dataclass(frozen=True)
class _Call:
    """A call of an aggregate function: of the rows in which `where` is true."""

    name: str
    """The column that its result becomes."""
    function: Tree
    arguments: Sequence[Expression]
    where: Expression | None
    is_distinct: bool
    is_try: bool = False
    """Whether the result is null where it would overflow."""

    def filtered_arguments(self) -> list[Expression]:
        """The arguments, the first of them null where `where` is not true."""
        first, *others = self.arguments
        return [first if self.where is None else null_unless(self.where, first), *others]


class Grouped:
    """A relation in groups, and the aggregates that are computed of them, each of which becomes a column.

    The values of `late` subqueries are columns of the outputs too, but not of `rows`.
    """

    def __init__(
        self, lowering: Lowering, relation: Relation, groupings: Sequence[Tree], late: Sequence[Relation]
    ) -> None:
        self._lowering, self._relation = lowering, relation
        self._taken: list[str] = []
        self._late = {
            number: Column(value.type, value.nullable, self._new("subquery"))
            for subquery in late
            for number, value in subquery.outputs.items()
        }
        self._groups: dict[Expression, Column] = {}
        for grouping in groupings:
            expression = lowering.expression(grouping, relation.outputs)
            if expression not in self._groups:
                name = self._new(grouping.fields.get("name", "group"))
                self._groups[expression] = Column(expression.type, expression.nullable, name)
        self._inputs: dict[Expression, Column] = {}
        self._calls: dict[Any, Column] = {}
        self._sums: dict[tuple[Column, ...] | None, list[tuple[str, sums.Aggregate]]] = {}  # by the distinct columns
        self._extremes: list[tuple[str, Column, bool]] = []
        self._firsts: dict[Column | None, list[tuple[str, Column]]] = {}  # by the column of the FILTER
        self._gathered: dict[tuple[Column, ...] | None, list[GatherCall]] = {}  # by the distinct columns
        self._empty: list[tuple[str, Expression]] = []
        """The value of each aggregate for a group without rows."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that make groups."""
        return self._relation.key(column.name for column in self._groups.values())

    @property
    def late_columns(self) -> dict[int, str]:
        """The columns that late subqueries become, by expression id."""
        return {number: column.name for number, column in self._late.items()}

    def _new(self, name: str) -> str:
        self._taken.append(unique_name(name, self._taken))
        return self._taken[-1]

    # Calls of aggregates.

    def output(self, tree: Tree) -> Expression:
        """An expression on groups and aggregates, over the columns of `rows`."""
        return translate(tree, self._leaf, self._lowering.config)

    def _leaf(self, tree: Tree) -> Expression | None:
        if tree.kind == "AggregateExpression":
            return self._result_of(tree)
        if tree.kind == "ScalarSubquery" and tree.expr_id in self._late:
            return self._late[tree.expr_id]
        if any(self._is_of_groups(node) for node in tree.walk()) or tree.kind in ("Alias", "Literal"):
            return None
        expression = self._lowering.expression(tree, self._relation.outputs)
        return self._groups.get(expression) if tree.kind != "AttributeReference" else self._groups[expression]

    def _is_of_groups(self, tree: Tree) -> bool:
        return tree.kind == "AggregateExpression" or (tree.kind == "ScalarSubquery" and tree.expr_id in self._late)

    def _result_of(self, tree: Tree) -> Expression:
        """The column of an aggregate's result; equal calls have one column."""
        marked, *conditions = tree.children
        function, is_try = without_try(marked)
        if function.kind == "PivotFirst":
            return self._pivot(function)
        arguments = [self._lowering.expression(child, self._relation.outputs) for child in _arguments(function)]
        where = next((is_true(self._lowering.expression(node, self._relation.outputs)) for node in conditions), None)
        is_distinct = bool(tree.fields["isDistinct"]) or function.kind == "HyperLogLogPlusPlus"
        orders = tuple(_order_of(child) for child in function.children if child.kind == "SortOrder")
        options = (*(function.fields.get(option) for option in _OPTIONS), is_try, orders)
        identity = (function.kind, tuple(arguments), where, is_distinct, options)
        if identity not in self._calls:
            call = _Call(self._new("result"), function, arguments, where, is_distinct, is_try)
            self._calls[identity] = self._add(call)
        return self._calls[identity]

    def _pivot(self, function: Tree) -> Column:
        """The columns of a PIVOT, as an array: planning gives its values together with its column."""
        named, value = function.children
        column, *values = (self._lowering.expression(child, self._relation.outputs) for child in named.children)
        place: Expression = Literal(pa.int32(), True, None)
        for number, wanted in enumerate(values):  # the last of equal values counts, as in Spark
            place = choose(null_safe_equal(column, wanted), Literal(pa.int32(), False, number), place)
        inputs = [self._input(self._lowering.expression(value, self._relation.outputs)), self._input(place)]
        pivoted = Pivoted(self._new("result"), inputs[0].name, inputs[1].name, len(values))
        return self._add_call(pivoted, inputs, None)

    def _add(self, call: _Call) -> Column:
        """Add an aggregate to the reduction that computes it."""
        kind = call.function.kind
        if kind in _REFUSED:
            sql_name, hint = _REFUSED[kind]
            raise SqlError(f"{sql_name} is not supported in a maintained view", hint=hint)
        if kind in GATHERED:
            return self._add_gathered(call)
        if kind in SUMS:
            return self._add_sum(call)
        if kind in ("Min", "Max"):
            return self._add_extreme(call, ordered(call.filtered_arguments()[0]))
        if kind == "First":
            ignores_nulls = call.function.fields["ignoreNulls"]
            return self._add_extreme(call, call.filtered_arguments()[0]) if ignores_nulls else self._add_first(call)
        raise SqlError(f"the aggregate {kind} is not supported in a maintained view")

    def _add_sum(self, call: _Call) -> Column:
        arguments = call.filtered_arguments()
        if call.function.kind in BIVARIATE:
            arguments = both_or_neither(*arguments)
        columns = [self._input(argument) for argument in arguments]
        how = sum_of(call.function, columns, self._lowering.config.ansi, call.is_try)
        self._sums.setdefault(tuple(columns) if call.is_distinct else None, []).append((call.name, how))
        is_count = isinstance(how, sums.Count)
        return self._result(call.name, how.type, how.nullable, Literal(how.type, not is_count, 0 if is_count else None))

    def _add_extreme(self, call: _Call, argument: Expression) -> Column:
        column = self._input(argument)
        self._extremes.append((call.name, column, call.function.kind == "Max"))
        return self._result(call.name, column.type, column.nullable)

    def _add_first(self, call: _Call) -> Column:
        column = self._input(call.filtered_arguments()[0])
        where = None if call.where is None else self._input(call.where)
        self._firsts.setdefault(where, []).append((call.name, column))
        return self._result(call.name, column.type, column.nullable)

    def _add_gathered(self, call: _Call) -> Column:
        first, *others = call.arguments
        inputs: list[Expression] = [self._input(first)]
        for argument in others:
            is_option = call.function.kind in WITH_LITERALS and isinstance(argument, Literal)
            inputs.append(argument if is_option else self._input(argument))
        gathered = gathered_by(call.name, call.function, inputs, call.is_distinct)
        where = None if call.where is None else self._input(call.where)
        columns = [column for column in inputs if isinstance(column, Column)]
        is_of_distinct = call.is_distinct and call.function.kind in OF_DISTINCT
        distinct = tuple([*columns, *([] if where is None else [where])]) if is_of_distinct else None
        call_or_filtered = gathered if where is None else FilteredCall(call.name, gathered, where.name)
        return self._add_call(call_or_filtered, columns, distinct)

    def _add_call(self, call: GatherCall, inputs: Sequence[Column], distinct: tuple[Column, ...] | None) -> Column:
        """Add an aggregate of gathered values; with `distinct`, of the rows that differ in these columns."""
        self._gathered.setdefault(distinct, []).append(call)
        field = call.field({column.name: _field(column) for column in inputs})
        empty = Literal(field.type, field.nullable, None if field.nullable else call.empty)
        return self._result(call.name, field.type, field.nullable, empty)

    def _result(self, name: str, kind: pa.DataType, nullable: bool, empty: Expression | None = None) -> Column:
        self._empty.append((name, empty or Literal(kind, True, None)))
        return Column(kind, nullable, name)

    def _input(self, expression: Expression) -> Column:
        """The column of an argument, before it is aggregated."""
        if expression not in self._inputs:
            self._inputs[expression] = Column(expression.type, expression.nullable, self._new("input"))
        return self._inputs[expression]

    # Collections.

    def rows(self) -> Collection:
        """A row for each group: its key, and a column for each aggregate."""
        if not self._groups and not self._calls:
            return self._lowering.always(self._relation).rows([("any", PLACEHOLDER)])
        reductions = list(self._reductions()) or [self._given([]).distinct()]
        rows = reduce(lambda one, two: one.arrange_by(self.key).join(two.arrange_by(self.key)), reductions)
        return rows if self._groups else self._with_empty(rows)

    def _reductions(self) -> Iterator[Collection]:
        for distinct, calls in self._sums.items():
            yield sums.aggregate(self._rows_of(distinct), self.key, tuple(calls))
        for name, column, greatest in self._extremes:
            order = [SortKey(column.name, ascending=not greatest, nulls_first=False)]
            yield top_rows(self._given([column]), self.key, 1, 0, order).select(*self.key, **{name: column.name})
        for where, firsts in self._firsts.items():
            conditions = [] if where is None else [where]
            rows = self._given([*conditions, *(column for _, column in firsts)])
            order = [SortKey(column.name, ascending=False) for column in conditions]
            renamed = {name: column.name for name, column in firsts}
            yield top_rows(rows, self.key, 1, 0, order).select(*self.key, **renamed)
        for distinct, gathered in self._gathered.items():
            yield gather(self._rows_of(distinct), self.key, tuple(gathered))

    def _rows_of(self, distinct: tuple[Column, ...] | None) -> Collection:
        """The rows to be aggregated; with `distinct`, those that differ in some of the arguments."""
        if distinct is None:
            return self._given(list(self._inputs.values()))
        return self._given(list(dict.fromkeys(distinct))).distinct()

    def _given(self, columns: Sequence[Column]) -> Collection:
        """The rows to be aggregated: the key, and some of the arguments."""
        names = {column.name for column in columns}
        groups = [(column.name, expression) for expression, column in self._groups.items()]
        inputs = [(column.name, expression) for expression, column in self._inputs.items() if column.name in names]
        return self._relation.rows([*groups, *inputs])

    def _with_empty(self, rows: Collection) -> Collection:
        """The rows, and that of an empty group where there is none."""
        empty = self._lowering.always(self._relation).rows(self._empty)
        return rows.concat(empty.antijoin(rows.select(*self.key)).select(*rows.columns))


_OPTIONS = ("ignoreNulls", "reverse", "reverseOpt", "nullOnDivideByZero")
"""The fields of Catalyst's aggregate functions that distinguish calls with the same arguments."""


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, column.type, nullable=column.nullable)


def _arguments(function: Tree) -> list[Tree]:
    """The arguments of an aggregate function; of an order, the expressions that it is by."""
    return [child.only_child if child.kind == "SortOrder" else child for child in function.children]


def _order_of(order: Tree) -> SortKey:
    return sort_key(order, "")
