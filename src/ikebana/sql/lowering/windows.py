"""Window functions: functions of a row's place in its partition, or of the rows of its frame.

`ikebana.reducers.windows` computes them. A change costs time in proportion to its partition. If a condition on row
numbers selects only the first rows of each partition, these are maintained first (`ikebana.reducers.ordering`), and the
rest of a partition costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from pyarrow import types

from ikebana.errors import SqlError
from ikebana.expressions import Column, Config, Expression, Literal
from ikebana.expressions.core.builders import add_interval, is_true, null_unless
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.temporal.zones import DAY
from ikebana.reducers import windows
from ikebana.reducers.gathering import Collect, FilteredCall, GatherCall
from ikebana.reducers.ordering import top_rows
from ikebana.reducers.sums import Count, Mean, Sum
from ikebana.reducers.windows import VALUE, Bound, Frame
from ikebana.sql.lowering.aggregate_functions import (
    BIVARIATE,
    GATHERED,
    SUMS,
    WITH_LITERALS,
    both_or_neither,
    gathered_by,
    sum_of,
)
from ikebana.sql.lowering.context import Lowering, Required
from ikebana.sql.lowering.limits import ordered, sort_key
from ikebana.sql.lowering.trees import without_try
from ikebana.sql.relation import Relation, from_collection, unique_name


def window(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """Window functions with the same partitions and order."""
    return windowed(lowering, tree, None)


def windowed(lowering: Lowering, tree: Tree, limit: int | None) -> Relation:
    """The rows of a window, with its functions; with `limit`, only the first rows of each partition."""
    child, orders = _child_and_order(tree)
    relation = lowering.relation(child)
    inputs = _Inputs(lowering, relation)
    partition = [lowering.expression(expression, relation.outputs) for expression in tree.expressions("partitionSpec")]
    by = [inputs.column(expression).name for expression in partition]
    sorted_by = [(order, ordered(lowering.expression(order.only_child, relation.outputs))) for order in orders]
    sort_keys = tuple(sort_key(order, inputs.column(expression).name) for order, expression in sorted_by)
    aliases = {alias.expr_id: alias for alias in _calls(tree)}
    calls = {attribute: inputs.call(alias.only_child) for attribute, alias in aliases.items()}
    key = relation.key(dict.fromkeys(by))
    rows = relation.rows(inputs.named)
    if limit is not None:
        rows = top_rows(rows, key, limit, 0, sort_keys)
    result = rows.arrange_by(key).reduce(windows.WindowReducer(sort_keys, tuple(calls.values()))).rows()
    columns = [*inputs.attributes, *((attribute, call.name) for attribute, call in calls.items())]
    names = {**relation.names, **{attribute: alias.fields["name"] for attribute, alias in aliases.items()}}
    return from_collection(result, columns, names)


def _calls(tree: Tree) -> list[Tree]:
    """The functions of a window, each under an alias; its other expressions are attributes of its rows."""
    return [
        expression for expression in tree.expressions("windowExpressions") if expression.kind != "AttributeReference"
    ]


def _row_numbers(tree: Tree) -> set[int]:
    """The attributes of a window that are row numbers."""
    return {alias.expr_id for alias in _calls(tree) if alias.only_child.children[0].kind == "RowNumber"}


def _child_and_order(tree: Tree) -> tuple[Tree, list[Tree]]:
    """The child of a window, and the order of its rows.

    Row numbers without an order use that of a Sort below: Spark turns a LIMIT in a correlated subquery into these.
    """
    child, orders = tree.only_child, tree.expressions("orderSpec")
    if not orders and len(_row_numbers(tree)) == len(_calls(tree)):
        below = child
        while below.kind == "Project":
            below = below.only_child
        if below.kind == "Sort":
            orders = below.expressions("order")
            child = _passing_on(child, [attribute for order in orders for attribute in _attributes(order)])
    return child, orders


def _attributes(tree: Tree) -> list[Tree]:
    return [node for node in tree.walk() if node.kind == "AttributeReference"]


def _passing_on(tree: Tree, attributes: Sequence[Tree]) -> Tree:
    """The projections at the top of a tree, extended by attributes of their input."""
    if tree.kind != "Project":
        return tree
    listed = list(tree.fields["projectList"])
    present = {named.expr_id for named in tree.expressions("projectList")}
    listed += [[attribute.fields] for attribute in attributes if attribute.expr_id not in present]
    return Tree(tree.kind, {**tree.fields, "projectList": listed}, (_passing_on(tree.only_child, attributes),))


def row_number_limit(tree: Tree, conditions: Sequence[Tree]) -> int | None:
    """The greatest row number of a window that can satisfy conditions; None if they do not limit it."""
    if tree.kind != "Window":
        return None
    numbers = _row_numbers(tree)
    if not numbers or len(numbers) != len(_calls(tree)):
        return None
    bounds = [bound for condition in conditions if (bound := _bound(condition, numbers)) is not None]
    return max(0, min(bounds)) if bounds else None


def _bound(condition: Tree, numbers: set[int]) -> int | None:
    """The greatest row number that satisfies a condition of the form `number <= literal`, `<` or `=`."""
    if condition.kind not in ("LessThan", "LessThanOrEqual", "EqualTo") or len(condition.children) != 2:
        return None
    left, right = condition.children
    if left.kind != "AttributeReference" or left.expr_id not in numbers or right.kind != "Literal":
        return None
    return int(right.fields["value"]) - (condition.kind == "LessThan")


class _Inputs:
    """The rows of partitions: attributes, and the expressions that functions and orders use, as columns."""

    def __init__(self, lowering: Lowering, relation: Relation) -> None:
        self._lowering, self._relation = lowering, relation
        self.attributes = relation.columns()
        self.named = [(name, relation.outputs[attribute]) for attribute, name in self.attributes]
        self._taken = {name for name, _ in self.named}

    def new(self, name: str) -> str:
        """A name that no column has."""
        new = unique_name(name, self._taken)
        self._taken.add(new)
        return new

    def column(self, expression: Expression) -> Column:
        """The column of an expression, added if there is none."""
        for name, known in self.named:
            if known == expression:
                return Column(expression.type, expression.nullable, name)
        self.named.append((self.new("input"), expression))
        return Column(expression.type, expression.nullable, self.named[-1][0])

    def arguments(self, function: Tree) -> list[Expression]:
        """The arguments of a function."""
        return [self._lowering.expression(child, self._relation.outputs) for child in function.children]

    def call(self, tree: Tree) -> windows.WindowCall:
        """A window function of Catalyst's."""
        function, specification = tree.children
        name, frame = self.new("result"), self._frame(specification.children[-1], specification)
        if function.kind == "AggregateExpression":
            return self._aggregate(function, name, frame)
        if function.kind not in _FUNCTIONS:
            raise SqlError(f"the window function {function.kind} is not supported in a maintained view")
        return _FUNCTIONS[function.kind](self, function, name, frame)

    def _frame(self, tree: Tree, specification: Tree) -> Frame:
        lower, upper = tree.children
        if tree.scala_name("frameType") == "RowFrame":
            return Frame("rows", _rows_off(lower), _rows_off(upper))
        order = next((child for child in specification.children if child.kind == "SortOrder"), None)
        by = None if order is None else self._lowering.expression(order.only_child, self._relation.outputs)
        is_ascending = order is None or order.scala_name("direction") == "Ascending"
        bounds = [_bound_of(bound, by, is_ascending, self._lowering.config) for bound in (lower, upper)]
        checked = self._lowering.config.ansi or (by is not None and types.is_duration(by.type))
        return Frame("range", bounds[0], bounds[1], checked and any(_can_overflow(bound) for bound in bounds))

    def _aggregate(self, tree: Tree, name: str, frame: Frame) -> windows.WindowCall:
        marked, *conditions = tree.children
        function, is_try = without_try(marked)
        if function.kind in GATHERED:
            return windows.Gathered(name, self._gathered(function, conditions, name), frame)
        arguments = self.arguments(function)
        where = next((is_true(self._lowering.expression(tree, self._relation.outputs)) for tree in conditions), None)
        if where is not None:
            arguments[0] = null_unless(where, arguments[0])
        if function.kind in BIVARIATE:
            arguments = both_or_neither(*arguments)
        columns = [self.column(argument) for argument in arguments]
        first, ansi = columns[0], self._lowering.config.ansi
        match function.kind:
            case "HyperLogLogPlusPlus":
                return windows.Gathered(name, windows.CountDistinct(name, first.name), frame)
            case kind if kind in SUMS:
                aggregate = sum_of(function, columns, ansi, is_try)
                if isinstance(aggregate, Count | Sum | Mean):
                    return windows.OverFrame(name, aggregate, frame)
                return windows.Gathered(name, windows.SumsCall(name, aggregate), frame)
            case "Min" | "Max":
                return windows.Extreme(name, self.column(ordered(arguments[0])).name, function.kind == "Max", frame)
            case "First" | "Last":
                nth, ignore_nulls = 1 if function.kind == "First" else -1, bool(function.fields["ignoreNulls"])
                condition = None if where is None or ignore_nulls else self.column(where).name
                return windows.Nth(name, first.name, nth, frame, ignore_nulls, condition)
            case other:
                raise SqlError(f"the aggregate {other} over a window is not supported in a maintained view")

    def _gathered(self, function: Tree, conditions: Sequence[Tree], name: str) -> GatherCall:
        """An aggregate of all values of a frame; a list has them in the order of the window."""
        first, *others = (
            self._lowering.expression(child.only_child if child.kind == "SortOrder" else child, self._relation.outputs)
            for child in function.children
        )
        has_options = function.kind in WITH_LITERALS
        inputs: list[Expression] = [self.column(first)]
        inputs += [item if has_options and isinstance(item, Literal) else self.column(item) for item in others]
        call = gathered_by(name, function, inputs, is_distinct=False)
        if isinstance(call, Collect) and not call.distinct:
            call = replace(call, ascending=False)
        for condition in conditions:
            where = self.column(is_true(self._lowering.expression(condition, self._relation.outputs)))
            call = FilteredCall(name, call, where.name)
        return call


def _rank(function: Any) -> Callable[[_Inputs, Tree, str, Frame], windows.WindowCall]:
    return lambda inputs, tree, name, frame: windows.Rank(name, function)


def _ntile(inputs: _Inputs, tree: Tree, name: str, frame: Frame) -> windows.WindowCall:
    return windows.Ntile(name, _integer(inputs.arguments(tree)[0], "ntile"))


def _shift(inputs: _Inputs, tree: Tree, name: str, frame: Frame) -> windows.WindowCall:
    value, offset, default = inputs.arguments(tree)
    by = _integer(offset, tree.kind) * (-1 if tree.kind == "Lag" else 1)
    other: str | windows.DefaultValue | None
    if isinstance(default, Literal):
        other = None if default.value is None else windows.DefaultValue(default.value)
    else:
        other = inputs.column(default).name
    return windows.Shift(name, inputs.column(value).name, by, other, bool(tree.fields["ignoreNulls"]))


def _nth(inputs: _Inputs, tree: Tree, name: str, frame: Frame) -> windows.WindowCall:
    value, nth = inputs.arguments(tree)
    column, ignore_nulls = inputs.column(value).name, bool(tree.fields["ignoreNulls"])
    return windows.Nth(name, column, _integer(nth, "nth_value"), frame, ignore_nulls)


_FUNCTIONS: dict[str, Callable[[_Inputs, Tree, str, Frame], windows.WindowCall]] = {
    "RowNumber": _rank("row_number"),
    "Rank": _rank("rank"),
    "DenseRank": _rank("dense_rank"),
    "PercentRank": _rank("percent_rank"),
    "CumeDist": _rank("cume_dist"),
    "NTile": _ntile,
    "Lag": _shift,
    "Lead": _shift,
    "NthValue": _nth,
}


def _integer(expression: Expression, function: str) -> int:
    if not isinstance(expression, Literal) or expression.value is None:
        raise SqlError(f"the number that {function} takes must be a constant in a maintained view")
    return int(expression.value)


# Frames.


def _rows_off(tree: Tree) -> int | None:
    """The number of rows between the current row and a bound; None if it is unbounded."""
    if tree.kind.startswith("Unbounded"):
        return None
    return 0 if tree.kind == "CurrentRow" else int(_constant(tree))


def _bound_of(tree: Tree, by: Expression | None, is_ascending: bool, config: Config) -> Bound:
    """A bound of a RANGE frame, for rows in the order of an expression."""
    if tree.kind.startswith("Unbounded"):
        return None
    if tree.kind == "CurrentRow" or by is None:
        return 0
    value, kind = _constant(tree), str(tree.fields["dataType"])
    if types.is_date(by.type) or types.is_timestamp(by.type):
        if kind == "integer":  # days
            value, kind = str(int(value) * DAY), "interval day"
        months = "month" in kind or "year" in kind
        time = Column(by.type, by.nullable, VALUE)
        return add_interval(time, int(value) if is_ascending else -int(value), months, config)
    if types.is_decimal(by.type):
        return Decimal(value)
    return float(value) if types.is_floating(by.type) else int(value)


def _constant(tree: Tree) -> str:
    if tree.kind != "Literal" or tree.fields["value"] is None:
        raise SqlError("a frame whose bounds are not constants is not supported in a maintained view")
    return str(tree.fields["value"])


def _can_overflow(bound: Bound) -> bool:
    return isinstance(bound, int) and bound != 0
