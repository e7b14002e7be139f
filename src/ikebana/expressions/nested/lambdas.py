"""Higher-order functions of arrays: transform, filter, exists, forall, aggregate, and array_sort.

The body of a lambda function is an expression over its parameters and over columns and parameters of the enclosing
scope (its captures). It is evaluated once for all elements of all arrays (`aggregate`: once for each position), with
the captures repeated for each element. Parameters are named by the nesting depth of their function, not by Spark's
expression ids: equal SQL gives equal expressions.

Unsupported: array_sort with a comparison function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import from_numpy, unpack_bits
from ikebana.errors import SqlError
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, builds, function, is_nullable
from ikebana.expressions.core.buffers import is_true, scatter
from ikebana.expressions.core.scalars import Arguments, conform, validity_of
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import arrow_type
from ikebana.expressions.nested.functions import list_of
from ikebana.expressions.nested.lists import Lists, ranks


@dataclass(frozen=True)
class Parameter(Expression):
    """A parameter of a lambda function: a column of the rows for which its body is evaluated."""

    name: str

    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        return rows.columns[self.name]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Lambda(Expression):
    """A lambda function: its body, the names of its parameters, and the depth of lambda functions nested in it.

    Its type is the type of its body.
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
        """The values of the body, for rows that have the parameters among their columns."""
        return self.body.evaluate(rows)

    @property
    def captures(self) -> frozenset[str]:
        """The columns and parameters of the enclosing scope that the body uses."""
        used = {node.name for node in self.body.walk() if isinstance(node, Parameter)}
        inner = {name for node in self.body.walk() if isinstance(node, Lambda) for name in node.parameters}
        return self.body.columns | (used - inner - set(self.parameters))

    def apply(self, rows: ColumnBatch, index: Any, *arguments: pa.Array) -> pa.Array:
        """The values of the body for arguments; captures are those of the row in `index` for each argument."""
        taken = pa.array(index)
        columns = {name: rows.columns[name].take(taken) for name in self.captures}
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
    depth = max((node.depth + 1 for node in body.walk() if isinstance(node, Lambda)), default=0)
    names = {
        parameter.name: f"lambda{depth}.{number}"
        for number, parameter in enumerate(parameters)
        if isinstance(parameter, Parameter)
    }
    return Lambda(body.type, body.nullable, _renamed(body, names), tuple(names.values()), depth)


def _renamed(expression: Any, names: Mapping[str, str]) -> Any:
    """An expression with its parameters renamed."""
    if isinstance(expression, tuple):
        return tuple(_renamed(item, names) for item in expression)
    if not isinstance(expression, Expression):
        return expression
    if isinstance(expression, Parameter):
        return replace(expression, name=names.get(expression.name, expression.name))
    return replace(
        expression, **{field.name: _renamed(getattr(expression, field.name), names) for field in fields(expression)}
    )


def _apply_to_elements(call: Call, rows: ColumnBatch) -> tuple[pa.Array, Lists, pa.Array]:
    """The arrays, their lists, and the result of the function for each element (and its position)."""
    array, compute = call.arguments[0].evaluate(rows), call.arguments[1]
    assert isinstance(compute, Lambda)
    lists = Lists.from_array(array)
    results = compute.apply(rows, lists.parents, lists.items, from_numpy(pa.int32(), lists.positions))
    return array, lists, results


@builds("ArrayTransform")
def _build_transform(tree: Tree, children: Arguments, config: Config) -> Expression:
    array, compute = children
    return Call(list_of(compute.type, compute.nullable), array.nullable, "transform", children)


@function("transform", lazy=True)
def _transform(call: Call, rows: ColumnBatch) -> pa.Array:
    array, lists, results = _apply_to_elements(call, rows)
    return Lists(lists.counts, results).to_array(call.type, validity_of(array))


@builds("ArrayFilter")
def _build_filter(tree: Tree, children: Arguments, config: Config) -> Expression:
    return Call(children[0].type, children[0].nullable, "filter", children)


@function("filter", lazy=True)
def _filter(call: Call, rows: ColumnBatch) -> pa.Array:
    array, lists, results = _apply_to_elements(call, rows)
    return lists.filter(is_true(results)).to_array(call.type, validity_of(array))


@builds("ArrayExists", "ArrayForAll")
def _build_test(tree: Tree, children: Arguments, config: Config) -> Expression:
    three_valued = bool(tree.fields.get("followThreeValuedLogic", True))
    nullable = children[0].nullable or (three_valued and children[1].nullable)
    return Call(pa.bool_(), nullable, "exists", children, (tree.kind == "ArrayExists", three_valued))


@function("exists", lazy=True)
def _exists(call: Call, rows: ColumnBatch) -> pa.Array:
    """exists: whether the predicate is true for an element; forall: whether it is false for none.

    If no element decides the result but the predicate is null for some element, the result is null; without
    three-valued logic (a legacy mode of exists), it is false.
    """
    decisive_value, three_valued = call.options
    array, lists, results = _apply_to_elements(call, rows)
    has_result = unpack_bits(results.is_valid())
    is_decided = lists.any(has_result & (unpack_bits(results) == decisive_value))
    is_valid: Any = np.asarray(array.is_valid())
    if three_valued:
        is_valid = is_valid & (is_decided | ~lists.any(~has_result))
    return from_numpy(pa.bool_(), is_decided == decisive_value, is_valid)


@builds("ArrayAggregate")
def _build_aggregate(tree: Tree, children: Arguments, config: Config) -> Expression:
    array, _, _, finish = children
    return Call(finish.type, array.nullable or finish.nullable, "aggregate", children)


@function("aggregate", lazy=True)
def _aggregate(call: Call, rows: ColumnBatch) -> pa.Array:
    array, state = (argument.evaluate(rows) for argument in call.arguments[:2])
    merge, finish = call.arguments[2:]
    assert isinstance(merge, Lambda) and isinstance(finish, Lambda)
    lists, is_valid = Lists.from_array(array), np.asarray(array.is_valid())
    begins = np.cumsum(lists.counts) - lists.counts
    for position in range(int(lists.counts.max(initial=0))):
        has_item = lists.counts > position
        index = np.flatnonzero(has_item)
        items = lists.items.take(pa.array(begins[index] + position))
        merged = conform(merge.apply(rows, index, state.take(pa.array(index)), items), state.type)
        state = scatter(state.type, rows.count, [(has_item, merged), (~has_item, state.filter(pa.array(~has_item)))])
    index = np.flatnonzero(is_valid)
    result = finish.apply(rows, index, state.take(pa.array(index)))
    return scatter(call.type, rows.count, [(is_valid, result)])


# Sorting.

_DEFAULT_COMPARATOR = (
    "If And IsNull left IsNull right 0 If IsNull left 1 If IsNull right -1"
    " If LessThan left right -1 If GreaterThan left right 1 0"
)
"""The body of the comparison function that Spark supplies by default, in pre-order: nulls come last."""


@builds("ArraySort")
def _build_sort(tree: Tree, children: Arguments, config: Config) -> Expression:
    body = tree.children[1].children[0]
    words = [str(node.fields.get("name") or node.fields.get("value") or node.kind) for node in body.walk()]
    if words != _DEFAULT_COMPARATOR.split():
        raise SqlError(
            "array_sort with a comparison function is not supported in a maintained view",
            hint="use array_sort(array) or sort_array(array), or compute it in a Python UDF",
        )
    return Call(children[0].type, is_nullable(children[:1]), "sort", children[:1])


@function("sort")
def _sort(call: Call, array: pa.Array) -> pa.Array:
    lists = Lists.from_array(array)
    codes = ranks(lists.items)
    nulls_last = np.where(codes < 0, len(codes), codes)
    return lists.sort(nulls_last).to_array(call.type, validity_of(array))
