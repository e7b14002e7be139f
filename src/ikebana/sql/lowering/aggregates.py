"""Aggregates: functions of groups of rows, made of pieces that are maintained apart.

| piece | aggregates | a change costs |
|---|---|---|
| sums | count, sum, avg, stddev, variance (`ikebana.reducers.sums`) | an addition, however large the group |
| sums of distinct values | the same, with DISTINCT | the same, and a look at whether the value is new |
| an extreme | min, max; first and any_value of what is not null | a few rows at the end of the group |
| one row | first, any_value: the same row for all of them | a few rows |
| gathered values | collect_set, percentile, max_by and so on (`ikebana.reducers.gathering`) | the whole group |

Each piece is a reduction by the same key, which leaves an index by it; pieces are joined through these. An aggregate of
everything, by no key, has a row even where there are no rows: that of an empty group.

A FILTER makes the argument of sums and extremes null where it is not true, which these leave out. What does not leave
nulls out has a column that says which rows count: of `first`, rows that count are chosen first; what gathers values is
given no others. Where SQL leaves open which row is meant (first, any_value), it is the least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa

from ikebana.engine.collection import Collection
from ikebana.errors import SqlError
from ikebana.expressions import Column, Expression, Literal, translate
from ikebana.expressions.core.builders import is_true, only_if
from ikebana.expressions.core.tree import Tree
from ikebana.reducers import sums
from ikebana.reducers.gathering import Collect, ExtremeBy, GatherCall, Mode, Percentile, Where, gather
from ikebana.reducers.ordering import top_rows
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.joins import ANY
from ikebana.sql.lowering.context import Lowering, Wanted, all_references, joined, lowers, scalar_subqueries
from ikebana.sql.lowering.limits import ordered
from ikebana.sql.relation import Relation, columns_of, from_collection, substituted, unique_name

_REFUSED = {
    "HyperLogLogPlusPlus": ("approx_count_distinct", "count(DISTINCT ...) is exact, and maintained"),
    "ApproximatePercentile": ("approx_percentile", "percentile is exact, and maintained"),
    "PivotFirst": ("PIVOT", "write an aggregate with FILTER (WHERE ...) for each column"),
    "Last": ("last", "say which row is meant: max_by(value, order)"),
}
"""Aggregates that cannot be maintained, what users call them, and what they can use instead."""


@lowers("Aggregate")
def _aggregate(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    groupings, outputs = tree.many("groupingExpressions"), tree.many("aggregateExpressions")
    part = lowering.part(tree.only, all_references([*groupings, *outputs]))
    before = [*groupings, *(each for output in outputs for each in output.walk() if each.kind == "AggregateExpression")]
    later = lowering.subqueries([each for output in outputs for each in _later(output, groupings)])
    grouped = Grouped(lowering, lowering.with_subqueries(part, before), groupings, later)
    results = {each.expr_id: grouped.output(each) for each in outputs}
    rows = grouped.rows()
    columns = columns_of(rows.node.columns)
    found = Relation(rows, {}, {}, unique=grouped.key)
    if later:
        known = {lowering.new_attribute(): name for name in rows.columns}
        found = joined([from_collection(rows, known.items(), known), *later])
        columns = {name: found.outputs[each] for each, name in (known | grouped.later).items()}
    return found.with_outputs(
        {attribute: substituted(each, columns) for attribute, each in results.items()},
        {each.expr_id: each.fields["name"] for each in outputs},
    )


def _later(tree: Tree, groupings: Sequence[Tree]) -> Iterator[Tree]:
    """The scalar subqueries of an output that are no matter of rows nor of groups: their values are put in at last."""
    if tree.kind == "ScalarSubquery" and tree.expr_id not in scalar_subqueries(groupings):
        yield tree
    elif tree.kind != "AggregateExpression":
        for child in tree.children:
            yield from _later(child, groupings)


class Grouped:
    """A part in groups, and the aggregates that are asked for, each of which becomes a column.

    What subqueries give that are put in `later` are columns too, which `rows` does not have.
    """

    def __init__(
        self, lowering: Lowering, part: Relation, groupings: Sequence[Tree], later: Sequence[Relation]
    ) -> None:
        self._lowering, self._part = lowering, part
        self._taken: list[str] = []
        self._later = {
            number: Column(each.type, each.nullable, self._new("subquery"))
            for subquery in later
            for number, each in subquery.outputs.items()
        }
        self._groups: dict[Expression, Column] = {}
        self._key: list[tuple[str, Expression]] = []
        for grouping in groupings:
            expression = lowering.expression(grouping, part.outputs)
            if expression not in self._groups:
                name = self._new(grouping.fields.get("name", "group"))
                self._groups[expression] = Column(expression.type, expression.nullable, name)
                self._key.append((name, expression))
        self._inputs: dict[Expression, Column] = {}
        self._calls: dict[Any, Column] = {}
        self._sums: dict[tuple[Column, ...] | None, list[tuple[str, sums.Aggregate]]] = {}  # by what is distinct
        self._extremes: list[tuple[str, Column, bool]] = []
        self._firsts: dict[Column | None, list[tuple[str, Column]]] = {}  # by the column that says which rows count
        self._gathered: list[GatherCall] = []
        self._empty: list[tuple[str, Expression]] = []
        """What each aggregate is for a group without rows."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that make groups."""
        return self._part.key(name for name, _ in self._key)

    @property
    def later(self) -> dict[int, str]:
        """The columns that subqueries become which are put in later."""
        return {number: column.name for number, column in self._later.items()}

    def _new(self, name: str) -> str:
        self._taken.append(unique_name(name, self._taken))
        return self._taken[-1]

    # What is asked for.

    def output(self, tree: Tree) -> Expression:
        """An expression over groups and aggregates, over the columns of `rows`."""
        return translate(tree, self._leaf, self._lowering.config)

    def _leaf(self, tree: Tree) -> Expression | None:
        if tree.kind == "AggregateExpression":
            return self._called(tree)
        if tree.kind == "ScalarSubquery" and tree.expr_id in self._later:
            return self._later[tree.expr_id]
        if any(self._is_of_groups(each) for each in tree.walk()) or tree.kind in ("Alias", "Literal"):
            return None
        found = self._lowering.expression(tree, self._part.outputs)
        return self._groups.get(found) if tree.kind != "AttributeReference" else self._groups[found]

    def _is_of_groups(self, tree: Tree) -> bool:
        return tree.kind == "AggregateExpression" or (tree.kind == "ScalarSubquery" and tree.expr_id in self._later)

    def _called(self, tree: Tree) -> Column:
        function, *conditions = tree.children
        arguments = [self._lowering.expression(each, self._part.outputs) for each in function.children]
        where = next((is_true(self._lowering.expression(each, self._part.outputs)) for each in conditions), None)
        is_distinct = bool(tree.fields["isDistinct"])
        options = tuple(
            function.fields.get(each) for each in ("ignoreNulls", "reverse", "reverseOpt", "nullOnDivideByZero")
        )
        call = (function.kind, tuple(arguments), where, is_distinct, options)
        if call not in self._calls:
            self._calls[call] = self._piece(function, arguments, where, is_distinct)
        return self._calls[call]

    def _piece(
        self, function: Tree, arguments: Sequence[Expression], where: Expression | None, is_distinct: bool
    ) -> Column:
        """One more aggregate, as a column, of the rows in which `where` is true."""
        kind, name = function.kind, self._new("result")
        if kind in _REFUSED:
            called, hint = _REFUSED[kind]
            raise SqlError(f"{called} is not supported in a maintained view", hint=hint)
        if kind in _GATHERED:
            return self._gather(name, function, arguments, where, is_distinct)
        if where is not None:
            arguments = [only_if(where, arguments[0]), *arguments[1:]]
        if kind in _SUMS:
            columns = [self._input(each) for each in arguments]
            call = _SUMS[kind](columns, self._lowering.config.ansi)
            if isinstance(call, sums.Variance) and not function.fields.get("nullOnDivideByZero", True):
                call = replace(call, undefined_is_nan=True)
            distinct = tuple(columns) if is_distinct else None
            self._sums.setdefault(distinct, []).append((name, call))
            empty = Literal(call.type, kind != "Count", 0 if kind == "Count" else None)
            return self._result(name, call.type, call.nullable, empty)
        if kind in ("Min", "Max") or (kind == "First" and function.fields["ignoreNulls"]):
            column = self._input(arguments[0] if kind == "First" else ordered(arguments[0]))
            self._extremes.append((name, column, kind == "Max"))
            return self._result(name, column.type, column.nullable)
        if kind == "First":
            column = self._input(arguments[0])
            self._firsts.setdefault(None if where is None else self._input(where), []).append((name, column))
            return self._result(name, column.type, column.nullable)
        raise SqlError(f"the aggregate {kind} is not supported in a maintained view")

    def _gather(
        self, name: str, function: Tree, arguments: Sequence[Expression], where: Expression | None, is_distinct: bool
    ) -> Column:
        """One more aggregate that needs the values of a group."""
        kind = function.kind
        written_out = kind.startswith("Percentile")  # fractions are
        given: list[Expression] = [self._input(arguments[0])]
        for each in arguments[1:]:
            given.append(each if written_out and isinstance(each, Literal) else self._input(each))
        gathered = _GATHERED[_distinct_kind(kind) if is_distinct else kind](name, function, given)
        self._gathered.append(gathered if where is None else Where(name, gathered, self._input(where).name))
        made = gathered.field({each.name: _field(each) for each in given if isinstance(each, Column)})
        nothing = Literal(made.type, made.nullable, None if made.nullable else ())
        return self._result(name, made.type, made.nullable, nothing)

    def _result(self, name: str, kind: pa.DataType, nullable: bool, empty: Expression | None = None) -> Column:
        self._empty.append((name, empty or Literal(kind, True, None)))
        return Column(kind, nullable, name)

    def _input(self, expression: Expression) -> Column:
        """The column that an argument is, before it is aggregated."""
        if expression not in self._inputs:
            self._inputs[expression] = Column(expression.type, expression.nullable, self._new("input"))
        return self._inputs[expression]

    # What there is.

    def rows(self) -> Collection:
        """A row for each group: its key, and a column for each aggregate."""
        if not self._groups and not self._calls:
            return self._lowering.always(self._part).rows([("any", ANY)])
        pieces = list(self._pieces()) or [self._given([]).distinct()]
        found = reduce(lambda one, two: one.arrange_by(self.key).join(two.arrange_by(self.key)), pieces)
        return found if self._groups else self._with_empty(found)

    def _pieces(self) -> Iterator[Collection]:
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
            counted = [] if where is None else [where]
            rows = self._given([*counted, *(column for _, column in firsts)])
            order = [SortKey(each.name, ascending=False) for each in counted]
            renamed = {name: column.name for name, column in firsts}
            yield top_rows(rows, self.key, 1, 0, order).select(*self.key, **renamed)
        if self._gathered:
            yield gather(self._given(list(self._inputs.values())), self.key, tuple(self._gathered))

    def _given(self, columns: Sequence[Column]) -> Collection:
        """The rows to be aggregated: the key, and some of the arguments."""
        wanted = {column.name for column in columns}
        inputs = tuple((column.name, each) for each, column in self._inputs.items() if column.name in wanted)
        return self._part.rows((*self._key, *inputs))

    def _with_empty(self, rows: Collection) -> Collection:
        """The rows, and one of an empty group where there is none."""
        empty = self._lowering.always(self._part).rows(self._empty)
        return rows.concat(empty.antijoin(rows.select(*self.key)).select(*rows.columns))


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


# Aggregates that need a group's values.

Arguments = Sequence[Expression]


def _collect(*, distinct: bool) -> Callable[[str, Tree, Arguments], GatherCall]:
    return lambda name, tree, given: Collect(name, _name(given[0]), distinct, tree.fields.get("ignoreNulls") is False)


def _extreme_by(*, greatest: bool) -> Callable[[str, Tree, Arguments], GatherCall]:
    return lambda name, tree, given: ExtremeBy(name, _name(given[0]), _name(ordered(given[1])), greatest)


def _mode(name: str, tree: Tree, given: Arguments) -> GatherCall:
    return Mode(name, _name(given[0]), greatest=tree.fields.get("reverseOpt") is False)


def _percentile(*, discrete: bool) -> Callable[[str, Tree, Arguments], GatherCall]:
    def made(name: str, tree: Tree, given: Arguments) -> GatherCall:
        value, fraction, *frequency = given
        if not isinstance(fraction, Literal):
            raise SqlError("the fraction of a percentile must be written out in a maintained view")
        many = isinstance(fraction.value, Sequence)
        fractions = tuple(float(each) for each in (fraction.value if many else [fraction.value]))
        counted = next((_name(each) for each in frequency if isinstance(each, Column)), None)
        return Percentile(name, _name(value), fractions, many, discrete, bool(tree.fields.get("reverse")), counted)

    return made


def _distinct_kind(kind: str) -> str:
    """The aggregate that one with DISTINCT is."""
    if kind == "CollectList":
        return "CollectSet"
    if kind in ("CollectSet", "MaxBy", "MinBy"):
        return kind
    raise SqlError(
        f"{kind} of DISTINCT values is not supported in a maintained view",
        hint="aggregate a subquery that is SELECT DISTINCT",
    )


def _name(argument: Expression) -> str:
    """The column that an argument is."""
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
