"""Functions of arrays that are given a function: transform, filter, exists, forall, aggregate, and array_sort.

The function's body is an expression of its parameters and of the columns around it. It is evaluated once for all
elements of all arrays (`aggregate`: once for each position), with what is around it repeated for each element.
Parameters are named by how deep their function is nested, not by the plan: the same text is the same expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import Flags, flags_of, from_numpy
from ikebana.errors import SqlError
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, builds, function, is_nullable
from ikebana.expressions.core.buffers import is_true, scatter
from ikebana.expressions.core.scalars import Arguments, shaped, valid
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import arrow_type
from ikebana.expressions.nested.functions import list_of
from ikebana.expressions.nested.lists import Lists, codes


@dataclass(frozen=True)
class Parameter(Expression):
    """A parameter of a function: a column of the rows that its body is evaluated for."""

    name: str

    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        return rows.columns[self.name]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Lambda(Expression):
    """A function: its body, the names of its parameters, and how many functions are nested in it.

    It has the type of its body, and no value of its own.
    """

    body: Expression
    parameters: tuple[str, ...]
    depth: int

    @property
    def inputs(self) -> tuple[Expression, ...]:
        return (self.body,)

    def with_inputs(self, inputs: tuple[Expression, ...]) -> Expression:
        return replace(self, body=inputs[0])

    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        """The body, for rows that have the parameters among their columns."""
        return self.body.evaluate(rows)

    @property
    def around(self) -> frozenset[str]:
        """The columns and parameters that it uses and that are not its own."""
        named = {each.name for each in self.body.walk() if isinstance(each, Parameter)}
        inner = {name for each in self.body.walk() if isinstance(each, Lambda) for name in each.parameters}
        return self.body.columns | (named - inner - set(self.parameters))

    def applied(self, rows: ColumnBatch, index: Any, *arguments: pa.Array) -> pa.Array:
        """The values of the body for arguments, each of which belongs to a row that `index` has."""
        chosen = pa.array(index)
        columns = {name: rows.columns[name].take(chosen) for name in self.around}
        columns.update(zip(self.parameters, arguments, strict=False))
        return self.body.evaluate(ColumnBatch(columns, len(index)))

    def __str__(self) -> str:
        return f"({', '.join(self.parameters)}) -> {self.body}"


@builds("NamedLambdaVariable")
def _parameter(tree: Tree, children: Arguments, config: Config) -> Expression:
    return Parameter(arrow_type(tree.fields["dataType"]), bool(tree.fields["nullable"]), f"#{tree.expr_id}")


@builds("LambdaFunction")
def _lambda(tree: Tree, children: Arguments, config: Config) -> Expression:
    body, *parameters = children
    depth = max((each.depth + 1 for each in body.walk() if isinstance(each, Lambda)), default=0)
    names = {each.name: f"lambda{depth}.{at}" for at, each in enumerate(parameters) if isinstance(each, Parameter)}
    return Lambda(body.type, body.nullable, _renamed(body, names), tuple(names.values()), depth)


def _renamed(expression: Any, names: Mapping[str, str]) -> Any:
    """An expression with other names for some parameters."""
    if isinstance(expression, tuple):
        return tuple(_renamed(each, names) for each in expression)
    if not isinstance(expression, Expression):
        return expression
    if isinstance(expression, Parameter):
        return replace(expression, name=names.get(expression.name, expression.name))
    return replace(
        expression, **{each.name: _renamed(getattr(expression, each.name), names) for each in fields(expression)}
    )


def _parts(call: Call, rows: ColumnBatch) -> tuple[pa.Array, Lists, pa.Array]:
    """The arrays, opened, and what the function gives for each element (and its position, if it wants it)."""
    array, compute = call.arguments[0].evaluate(rows), call.arguments[1]
    assert isinstance(compute, Lambda)
    opened = Lists.of(array)
    found = compute.applied(rows, opened.parents, opened.items, from_numpy(pa.int32(), opened.positions))
    return array, opened, found


@builds("ArrayTransform")
def _build_transform(tree: Tree, children: Arguments, config: Config) -> Expression:
    array, compute = children
    return Call(list_of(compute.type, compute.nullable), array.nullable, "transform", children)


@function("transform", lazy=True)
def _transform(call: Call, rows: ColumnBatch) -> pa.Array:
    array, opened, found = _parts(call, rows)
    return Lists(opened.counts, found).closed(call.type, valid(array))


@builds("ArrayFilter")
def _build_filter(tree: Tree, children: Arguments, config: Config) -> Expression:
    return Call(children[0].type, children[0].nullable, "filter", children)


@function("filter", lazy=True)
def _filter(call: Call, rows: ColumnBatch) -> pa.Array:
    array, opened, found = _parts(call, rows)
    return opened.where(is_true(found)).closed(call.type, valid(array))


@builds("ArrayExists", "ArrayForAll")
def _build_test(tree: Tree, children: Arguments, config: Config) -> Expression:
    three_valued = bool(tree.fields.get("followThreeValuedLogic", True))
    nullable = children[0].nullable or (three_valued and children[1].nullable)
    return Call(pa.bool_(), nullable, "exists", children, (tree.kind == "ArrayExists", three_valued))


@function("exists", lazy=True)
def _exists(call: Call, rows: ColumnBatch) -> pa.Array:
    """Whether an element passes (or none fails); null if it is not so, and might be for elements without an answer."""
    wanted, three_valued = call.options
    array, opened, found = _parts(call, rows)
    answered = flags_of(found.is_valid())
    decisive = _marked(opened, answered & (flags_of(found) == wanted))
    there: Any = np.asarray(array.is_valid())
    if three_valued:
        there = there & (decisive | ~_marked(opened, ~answered))
    return from_numpy(pa.bool_(), decisive == wanted, there)


def _marked(opened: Lists, flags: Flags) -> Any:
    return np.bincount(opened.parents[flags], minlength=len(opened.counts)) > 0


@builds("ArrayAggregate")
def _build_aggregate(tree: Tree, children: Arguments, config: Config) -> Expression:
    array, _, _, finish = children
    return Call(finish.type, array.nullable or finish.nullable, "aggregate", children)


@function("aggregate", lazy=True)
def _aggregate(call: Call, rows: ColumnBatch) -> pa.Array:
    array, state = (each.evaluate(rows) for each in call.arguments[:2])
    merge, finish = call.arguments[2:]
    assert isinstance(merge, Lambda) and isinstance(finish, Lambda)
    opened = Lists.of(array)
    begins = np.cumsum(opened.counts) - opened.counts
    for number in range(int(opened.counts.max(initial=0))):
        longer = opened.counts > number
        index = np.flatnonzero(longer)
        items = opened.items.take(pa.array(begins[index] + number))
        merged = shaped(merge.applied(rows, index, state.take(pa.array(index)), items), state.type)
        state = scatter(state.type, rows.count, [(longer, merged), (~longer, state.filter(pa.array(~longer)))])
    there = np.flatnonzero(np.asarray(array.is_valid()))
    result = finish.applied(rows, there, state.take(pa.array(there)))
    return scatter(call.type, rows.count, [(np.asarray(array.is_valid()), result)])


# Sorting.

_DEFAULT = [
    *(
        "If",
        "And",
        "IsNull",
        "left",
        "IsNull",
        "right",
        "0",
        "If",
        "IsNull",
        "left",
        "1",
        "If",
        "IsNull",
        "right",
        "-1",
    ),
    *("If", "LessThan", "left", "right", "-1", "If", "GreaterThan", "left", "right", "1", "0"),
]
"""How elements are compared if nothing else is said: nulls come last."""


@builds("ArraySort")
def _build_sort(tree: Tree, children: Arguments, config: Config) -> Expression:
    body = tree.children[1].children[0]
    told = [str(each.fields.get("name") or each.fields.get("value") or each.kind) for each in body.walk()]
    if told != _DEFAULT or pa.types.is_nested(children[0].type.value_type):
        raise SqlError(
            "array_sort with a function of its own, or of nested elements, is not supported in a maintained view",
            hint="use sort_array or array_sort(array)",
        )
    return Call(children[0].type, is_nullable(children[:1]), "sort", children[:1])


@function("sort")
def _sort(call: Call, array: pa.Array) -> pa.Array:
    opened = Lists.of(array)
    numbers = codes(opened.items)
    last = np.where(numbers < 0, len(numbers), numbers)
    return opened.ordered(np.lexsort((last, opened.parents))).closed(call.type, valid(array))
