"""Aggregates: functions of groups of rows, computed by reductions that are maintained separately.

| reduction | aggregates | cost of a change |
|---|---|---|
| sums | count, sum, avg, stddev, variance (`ikebana.reducers.sums`) | an addition, however large the group |
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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa

from ikebana.engine.collection import Collection
from ikebana.errors import SqlError
from ikebana.expressions import Column, Expression, Literal, translate
from ikebana.expressions.core.builders import is_true, null_unless
from ikebana.expressions.core.tree import Tree
from ikebana.reducers import sums
from ikebana.reducers.gathering import Collect, ExtremeBy, FilteredCall, GatherCall, Mode, Percentile, gather
from ikebana.reducers.ordering import top_rows
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.inner_joins import PLACEHOLDER
from ikebana.sql.lowering.context import Lowering, Required, cross_join
from ikebana.sql.lowering.limits import ordered
from ikebana.sql.lowering.trees import all_references, scalar_subqueries
from ikebana.sql.relation import Relation, columns_of, from_collection, substituted, unique_name

_REFUSED = {
    "HyperLogLogPlusPlus": ("approx_count_distinct", "count(DISTINCT ...) is exact, and maintained"),
    "ApproximatePercentile": ("approx_percentile", "percentile is exact, and maintained"),
    "PivotFirst": ("PIVOT", "write an aggregate with FILTER (WHERE ...) for each column"),
    "Last": ("last", "say which row is meant: max_by(value, order)"),
}
"""Aggregates that cannot be maintained: the SQL name, and what to use instead."""


def aggregate(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """GROUP BY, or aggregates of all rows."""
    groupings, outputs = tree.expressions("groupingExpressions"), tree.expressions("aggregateExpressions")
    relation = lowering.relation(tree.only_child, all_references([*groupings, *outputs]))
    calls = [node for output in outputs for node in output.walk() if node.kind == "AggregateExpression"]
    late = lowering.subqueries([subquery for output in outputs for subquery in _late_subqueries(output, groupings)])
    grouped = Grouped(lowering, lowering.with_subqueries(relation, [*groupings, *calls]), groupings, late)
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
        self._gathered: list[GatherCall] = []
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

    def _result_of(self, tree: Tree) -> Column:
        """The column of an aggregate's result; equal calls have one column."""
        function, *conditions = tree.children
        arguments = [self._lowering.expression(child, self._relation.outputs) for child in function.children]
        where = next((is_true(self._lowering.expression(node, self._relation.outputs)) for node in conditions), None)
        is_distinct = bool(tree.fields["isDistinct"])
        options = tuple(function.fields.get(option) for option in _OPTIONS)
        identity = (function.kind, tuple(arguments), where, is_distinct, options)
        if identity not in self._calls:
            self._calls[identity] = self._add(_Call(self._new("result"), function, arguments, where, is_distinct))
        return self._calls[identity]

    def _add(self, call: _Call) -> Column:
        """Add an aggregate to the reduction that computes it."""
        kind = call.function.kind
        if kind in _REFUSED:
            sql_name, hint = _REFUSED[kind]
            raise SqlError(f"{sql_name} is not supported in a maintained view", hint=hint)
        if kind in _GATHERED:
            return self._add_gathered(call)
        if kind in _SUMS:
            return self._add_sum(call)
        if kind in ("Min", "Max"):
            return self._add_extreme(call, ordered(call.filtered_arguments()[0]))
        if kind == "First":
            ignores_nulls = call.function.fields["ignoreNulls"]
            return self._add_extreme(call, call.filtered_arguments()[0]) if ignores_nulls else self._add_first(call)
        raise SqlError(f"the aggregate {kind} is not supported in a maintained view")

    def _add_sum(self, call: _Call) -> Column:
        kind, columns = call.function.kind, [self._input(argument) for argument in call.filtered_arguments()]
        how = _SUMS[kind](columns, self._lowering.config.ansi)
        if isinstance(how, sums.Variance) and not call.function.fields.get("nullOnDivideByZero", True):
            how = replace(how, undefined_is_nan=True)
        self._sums.setdefault(tuple(columns) if call.is_distinct else None, []).append((call.name, how))
        empty = Literal(how.type, kind != "Count", 0 if kind == "Count" else None)
        return self._result(call.name, how.type, how.nullable, empty)

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
        kind = call.function.kind
        has_literals = kind.startswith("Percentile")  # its fractions
        first, *others = call.arguments
        inputs: list[Expression] = [self._input(first)]
        for argument in others:
            inputs.append(argument if has_literals and isinstance(argument, Literal) else self._input(argument))
        gathered = _GATHERED[_distinct_kind(kind) if call.is_distinct else kind](call.name, call.function, inputs)
        where = call.where
        self._gathered.append(gathered if where is None else FilteredCall(call.name, gathered, self._input(where).name))
        field = gathered.field({column.name: _field(column) for column in inputs if isinstance(column, Column)})
        empty = Literal(field.type, field.nullable, None if field.nullable else ())
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
            if distinct is None:
                rows = self._given(list(self._inputs.values()))
            else:
                rows = self._given(list(dict.fromkeys(distinct))).distinct()
            yield sums.aggregate(rows, self.key, tuple(calls))
        for name, column, greatest in self._extremes:
            order = [SortKey(column.name, ascending=not greatest, nulls_first=False)]
            yield top_rows(self._given([column]), self.key, 1, 0, order).select(*self.key, **{name: column.name})
        for where, firsts in self._firsts.items():
            conditions = [] if where is None else [where]
            rows = self._given([*conditions, *(column for _, column in firsts)])
            order = [SortKey(column.name, ascending=False) for column in conditions]
            renamed = {name: column.name for name, column in firsts}
            yield top_rows(rows, self.key, 1, 0, order).select(*self.key, **renamed)
        if self._gathered:
            yield gather(self._given(list(self._inputs.values())), self.key, tuple(self._gathered))

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


# Sums.


def _count(columns: Sequence[Column], ansi: bool) -> sums.Aggregate:
    return sums.Count(tuple(column.name for column in columns if column.nullable))


def _sum(columns: Sequence[Column], ansi: bool) -> sums.Aggregate:
    return sums.Sum(columns[0].name, columns[0].type, columns[0].nullable, ansi)


def _mean(columns: Sequence[Column], ansi: bool) -> sums.Aggregate:
    return sums.Mean(columns[0].name, columns[0].type, columns[0].nullable, ansi)


def _variance(*, sample: bool, root: bool) -> Callable[[Sequence[Column], bool], sums.Aggregate]:
    return lambda columns, ansi: sums.Variance(columns[0].name, sample, root, columns[0].nullable)


_SUMS: dict[str, Callable[[Sequence[Column], bool], sums.Aggregate]] = {
    "Count": _count,
    "Sum": _sum,
    "Average": _mean,
    "StddevSamp": _variance(sample=True, root=True),
    "StddevPop": _variance(sample=False, root=True),
    "VarianceSamp": _variance(sample=True, root=False),
    "VariancePop": _variance(sample=False, root=False),
}


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, column.type, nullable=column.nullable)


# Gathered values.

Arguments = Sequence[Expression]


def _collect(*, distinct: bool) -> Callable[[str, Tree, Arguments], GatherCall]:
    return lambda name, tree, inputs: Collect(name, _name(inputs[0]), distinct, tree.fields.get("ignoreNulls") is False)


def _extreme_by(*, greatest: bool) -> Callable[[str, Tree, Arguments], GatherCall]:
    return lambda name, tree, inputs: ExtremeBy(name, _name(inputs[0]), _name(ordered(inputs[1])), greatest)


def _mode(name: str, tree: Tree, inputs: Arguments) -> GatherCall:
    return Mode(name, _name(inputs[0]), greatest=tree.fields.get("reverseOpt") is False)


def _percentile(*, discrete: bool) -> Callable[[str, Tree, Arguments], GatherCall]:
    def percentile(name: str, tree: Tree, inputs: Arguments) -> GatherCall:
        value, fraction, *frequencies = inputs
        if not isinstance(fraction, Literal):
            raise SqlError("the fraction of a percentile must be a constant in a maintained view")
        is_list = isinstance(fraction.value, Sequence)
        fractions = tuple(map(float, fraction.value if is_list else [fraction.value]))
        frequency = next((_name(column) for column in frequencies if isinstance(column, Column)), None)
        return Percentile(name, _name(value), fractions, is_list, discrete, bool(tree.fields.get("reverse")), frequency)

    return percentile


def _distinct_kind(kind: str) -> str:
    """The aggregate that is equivalent to another one with DISTINCT."""
    if kind == "CollectList":
        return "CollectSet"
    if kind in ("CollectSet", "MaxBy", "MinBy"):
        return kind
    raise SqlError(
        f"{kind} of DISTINCT values is not supported in a maintained view",
        hint="aggregate a subquery that is SELECT DISTINCT",
    )


def _name(argument: Expression) -> str:
    """The name of an argument that is a column."""
    if not isinstance(argument, Column):
        raise SqlError("an aggregate of a constant is not supported in a maintained view", detail=f"of {argument}")
    return argument.name


_GATHERED: dict[str, Callable[[str, Tree, Arguments], GatherCall]] = {
    "CollectSet": _collect(distinct=True),
    "CollectList": _collect(distinct=False),
    "MaxBy": _extreme_by(greatest=True),
    "MinBy": _extreme_by(greatest=False),
    "Mode": _mode,
    "Percentile": _percentile(discrete=False),
    "PercentileCont": _percentile(discrete=False),
    "PercentileDisc": _percentile(discrete=True),
}
