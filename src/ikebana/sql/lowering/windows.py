"""Window functions: each row with what its place in a partition, or the rows of its frame, say
(`ikebana.reducers.windows`).

A change costs its partition. Where only the first rows of partitions are asked for (a condition that a row number is
small), they are found first, by what `ikebana.reducers.ordering` maintains, and the rest of a partition costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from pyarrow import types

from ikebana.errors import SqlError
from ikebana.expressions import Column, Config, Expression, Literal
from ikebana.expressions.core.builders import is_true, later, only_if
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.temporal.zones import DAY
from ikebana.reducers import windows
from ikebana.reducers.ordering import top_rows
from ikebana.reducers.sums import Count, Mean, Sum
from ikebana.reducers.windows import VALUE, Bound, Frame
from ikebana.sql.lowering.context import Lowering, Wanted, lowers
from ikebana.sql.lowering.limits import ordered, sort_key
from ikebana.sql.relation import Relation, from_collection, unique_name


@lowers("Window")
def _window(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    return windowed(lowering, tree, None)


def windowed(lowering: Lowering, tree: Tree, most: int | None) -> Relation:
    """The rows of a window; with `most`, those of the first so many of each partition."""
    child, orders = _in_order(tree)
    part = lowering.part(child)
    given = _Given(lowering, part)
    by = [given.column(lowering.expression(each, part.outputs)).name for each in tree.many("partitionSpec")]
    order = tuple(
        sort_key(each, given.column(ordered(lowering.expression(each.only, part.outputs))).name) for each in orders
    )
    named = {each.expr_id: each for each in _calls(tree)}
    calls = {number: given.call(each.only) for number, each in named.items()}
    key = part.key(dict.fromkeys(by))
    rows = part.rows(given.named)
    if most is not None:
        rows = top_rows(rows, key, most, 0, order)
    made = rows.arrange_by(key).reduce(windows.WindowLogic(order, tuple(calls.values()))).rows()
    columns = [*given.attributes, *((number, call.name) for number, call in calls.items())]
    names = {**part.names, **{number: each.fields["name"] for number, each in named.items()}}
    return from_collection(made, columns, names)


def _calls(tree: Tree) -> list[Tree]:
    """The functions of a window, each under an alias; attributes among them are those of its rows."""
    return [each for each in tree.many("windowExpressions") if each.kind != "AttributeReference"]


def _row_numbers(tree: Tree) -> set[int]:
    """The functions of a window that number rows."""
    return {each.expr_id for each in _calls(tree) if each.only.children[0].kind == "RowNumber"}


def _in_order(tree: Tree) -> tuple[Tree, list[Tree]]:
    """What a window is about, and in which order.

    Row numbers without an order are in that of the rows below: Spark makes these of a LIMIT in a correlated subquery.
    """
    child, orders = tree.only, tree.many("orderSpec")
    if not orders and len(_row_numbers(tree)) == len(_calls(tree)):
        below = child
        while below.kind == "Project":
            below = below.only
        if below.kind == "Sort":
            orders = below.many("order")
            child = _passing_on(child, [each for order in orders for each in _attributes(order)])
    return child, orders


def _attributes(tree: Tree) -> list[Tree]:
    return [each for each in tree.walk() if each.kind == "AttributeReference"]


def _passing_on(tree: Tree, attributes: Sequence[Tree]) -> Tree:
    """Projections that do not leave out some attributes of what they are about."""
    if tree.kind != "Project":
        return tree
    listed = list(tree.fields["projectList"])
    known = {each.expr_id for each in tree.many("projectList")}
    listed += [[attribute.fields] for attribute in attributes if attribute.expr_id not in known]
    return Tree(tree.kind, {**tree.fields, "projectList": listed}, (_passing_on(tree.only, attributes),))


def at_most(tree: Tree, conditions: Sequence[Tree]) -> int | None:
    """How many rows of each partition of a window satisfy conditions at most, if they say so of its row number."""
    if tree.kind != "Window":
        return None
    numbers = _row_numbers(tree)
    if not numbers or len(numbers) != len(_calls(tree)):
        return None
    bounds = [bound for each in conditions if (bound := _bound(each, numbers)) is not None]
    return max(0, min(bounds)) if bounds else None


def _bound(condition: Tree, numbers: set[int]) -> int | None:
    """The greatest row number that satisfies a condition, where it is `number <= literal` or the like."""
    if condition.kind not in ("LessThan", "LessThanOrEqual", "EqualTo") or len(condition.children) != 2:
        return None
    left, right = condition.children
    if left.kind != "AttributeReference" or left.expr_id not in numbers or right.kind != "Literal":
        return None
    return int(right.fields["value"]) - (condition.kind == "LessThan")


class _Given:
    """The rows of partitions: attributes, and expressions that functions and orders are about, as columns."""

    def __init__(self, lowering: Lowering, part: Relation) -> None:
        self._lowering, self._part = lowering, part
        self.attributes = part.columns()
        self.named = [(name, part.outputs[attribute]) for attribute, name in self.attributes]
        self._taken = {name for name, _ in self.named}

    def new(self, name: str) -> str:
        """A name that no column has."""
        found = unique_name(name, self._taken)
        self._taken.add(found)
        return found

    def column(self, expression: Expression) -> Column:
        """The column that an expression is."""
        for name, known in self.named:
            if known == expression:
                return Column(expression.type, expression.nullable, name)
        self.named.append((self.new("input"), expression))
        return Column(expression.type, expression.nullable, self.named[-1][0])

    def inputs(self, function: Tree) -> list[Expression]:
        """What a function is given."""
        return [self._lowering.expression(each, self._part.outputs) for each in function.children]

    def call(self, tree: Tree) -> windows.WindowCall:
        """A window function of Catalyst's."""
        function, specification = tree.children
        name, frame = self.new("result"), self._frame(specification.children[-1], specification)
        if function.kind == "AggregateExpression":
            return self._aggregate(function, name, frame)
        maker = _FUNCTIONS.get(function.kind)
        if maker is None:
            raise SqlError(f"the window function {function.kind} is not supported in a maintained view")
        return maker(self, function, name, frame)

    def _frame(self, tree: Tree, specification: Tree) -> Frame:
        lower, upper = tree.children
        if tree.case("frameType") == "RowFrame":
            return Frame("rows", _rows_off(lower), _rows_off(upper))
        order = next((each for each in specification.children if each.kind == "SortOrder"), None)
        by = None if order is None else self._lowering.expression(order.only, self._part.outputs)
        is_ascending = order is None or order.case("direction") == "Ascending"
        bounds = [_bound_of(each, by, is_ascending, self._lowering.config) for each in (lower, upper)]
        checked = self._lowering.config.ansi or (by is not None and types.is_duration(by.type))
        return Frame("range", bounds[0], bounds[1], checked and any(_can_overflow(each) for each in bounds))

    def _aggregate(self, tree: Tree, name: str, frame: Frame) -> windows.WindowCall:
        function, *conditions = tree.children
        inputs = self.inputs(function)
        where = next((is_true(self._lowering.expression(each, self._part.outputs)) for each in conditions), None)
        if where is not None:
            inputs[0] = only_if(where, inputs[0])
        columns = [self.column(each) for each in inputs]
        first, ansi = columns[0], self._lowering.config.ansi
        match function.kind:
            case "Count":
                nullable = tuple(each.name for each in columns if each.nullable)
                return windows.OverFrame(name, Count(nullable), frame)
            case "Sum":
                return windows.OverFrame(name, Sum(first.name, first.type, first.nullable, ansi), frame)
            case "Average":
                return windows.OverFrame(name, Mean(first.name, first.type, first.nullable, ansi), frame)
            case "Min" | "Max":
                return windows.Extreme(name, self.column(ordered(inputs[0])).name, function.kind == "Max", frame)
            case "First" | "Last":
                nth, ignore_nulls = 1 if function.kind == "First" else -1, bool(function.fields["ignoreNulls"])
                counted = None if where is None or ignore_nulls else self.column(where).name
                return windows.Nth(name, first.name, nth, frame, ignore_nulls, counted)
            case other:
                raise SqlError(f"the aggregate {other} over a window is not supported in a maintained view")


def _ranked(function: Any) -> Callable[[_Given, Tree, str, Frame], windows.WindowCall]:
    return lambda given, tree, name, frame: windows.Rank(name, function)


def _ntile(given: _Given, tree: Tree, name: str, frame: Frame) -> windows.WindowCall:
    return windows.Ntile(name, _whole(given.inputs(tree)[0], "ntile"))


def _shifted(given: _Given, tree: Tree, name: str, frame: Frame) -> windows.WindowCall:
    value, offset, default = given.inputs(tree)
    by = _whole(offset, tree.kind) * (-1 if tree.kind == "Lag" else 1)
    other: str | windows.ConstantFunction | None
    if isinstance(default, Literal):
        other = None if default.value is None else windows.ConstantFunction(default.value)
    else:
        other = given.column(default).name
    return windows.Shift(name, given.column(value).name, by, other, bool(tree.fields["ignoreNulls"]))


def _nth(given: _Given, tree: Tree, name: str, frame: Frame) -> windows.WindowCall:
    value, nth = given.inputs(tree)
    return windows.Nth(
        name, given.column(value).name, _whole(nth, "nth_value"), frame, bool(tree.fields["ignoreNulls"])
    )


_FUNCTIONS: dict[str, Callable[[_Given, Tree, str, Frame], windows.WindowCall]] = {
    "RowNumber": _ranked("row_number"),
    "Rank": _ranked("rank"),
    "DenseRank": _ranked("dense_rank"),
    "PercentRank": _ranked("percent_rank"),
    "CumeDist": _ranked("cume_dist"),
    "NTile": _ntile,
    "Lag": _shifted,
    "Lead": _shifted,
    "NthValue": _nth,
}


def _whole(expression: Expression, what: str) -> int:
    if not isinstance(expression, Literal) or expression.value is None:
        raise SqlError(f"the number that {what} is given must be written out in a maintained view")
    return int(expression.value)


# Frames.


def _rows_off(tree: Tree) -> int | None:
    """How many rows off a bound is; None if it is unbounded."""
    if tree.kind.startswith("Unbounded"):
        return None
    return 0 if tree.kind == "CurrentRow" else int(_written_out(tree))


def _bound_of(tree: Tree, by: Expression | None, is_ascending: bool, config: Config) -> Bound:
    """Where a bound is, for rows in the order of an expression."""
    if tree.kind.startswith("Unbounded"):
        return None
    if tree.kind == "CurrentRow" or by is None:
        return 0
    value, kind = _written_out(tree), str(tree.fields["dataType"])
    if types.is_date(by.type) or types.is_timestamp(by.type):
        if kind == "integer":  # days
            value, kind = str(int(value) * DAY), "interval day"
        months = "month" in kind or "year" in kind
        time = Column(by.type, by.nullable, VALUE)
        return later(time, int(value) if is_ascending else -int(value), months, config)
    if types.is_decimal(by.type):
        return Decimal(value)
    return float(value) if types.is_floating(by.type) else int(value)


def _written_out(tree: Tree) -> str:
    if tree.kind != "Literal" or tree.fields["value"] is None:
        raise SqlError("a frame whose bounds are not numbers is not supported in a maintained view")
    return str(tree.fields["value"])


def _can_overflow(bound: Bound) -> bool:
    return isinstance(bound, int) and bound != 0
