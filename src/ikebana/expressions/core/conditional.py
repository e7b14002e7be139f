"""Boolean logic and short-circuiting expressions: NOT, AND, OR, CASE, COALESCE, NANVL.

A branch must not raise for rows that do not reach it. A branch that cannot raise is evaluated for all rows, because
that is faster than selecting rows; any other branch is evaluated only for the rows that reach it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import Mask, unpack_bits, validity
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, Literal, builds, function, is_nullable
from ikebana.expressions.core.buffers import is_true, operand, scatter
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import merge_nullability

_BOOL = pa.bool_()


@builds("Not", "And", "Or")
def _logic(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    return Call(_BOOL, is_nullable(children), tree.kind.lower(), children)


@function("not")
def _not(call: Call, array: pa.Array) -> pa.Array:
    return pc.invert(array)


@function("and", lazy=True)
def _and(call: Call, rows: ColumnBatch) -> pa.Array:
    left, right = call.arguments
    first = left.evaluate(rows)
    if not right.can_raise:
        return pc.and_kleene(first, right.evaluate(rows))
    return pc.and_kleene(first, evaluate_where(right, rows, is_true(first) | _null(first)))


@function("or", lazy=True)
def _or(call: Call, rows: ColumnBatch) -> pa.Array:
    left, right = call.arguments
    first = left.evaluate(rows)
    if not right.can_raise:
        return pc.or_kleene(first, right.evaluate(rows))
    return pc.or_kleene(first, evaluate_where(right, rows, ~is_true(first)))


def evaluate_where(expression: Expression, rows: ColumnBatch, flags: Mask) -> pa.Array:
    """The values of an expression for the rows that `flags` marks; null for the others, where it is not evaluated."""
    if flags.all():
        return expression.evaluate(rows)
    if not flags.any():
        return pa.nulls(rows.count, expression.type)
    return scatter(expression.type, rows.count, [(flags, expression.evaluate(_select(expression, rows, flags)))])


def _select(expression: Expression, rows: ColumnBatch, flags: Mask) -> ColumnBatch:
    """The rows that `flags` marks, with the columns that the expression reads."""
    names = {getattr(node, "name", None) for node in expression.walk()}
    return rows.select(names).filter(flags)


def _null(array: pa.Array) -> Mask:
    valid = validity(array)
    return np.zeros(len(array), bool) if valid is None else ~valid


# CASE, COALESCE and NANVL.


@builds("If", "CaseWhen", "case")  # planning writes a nested CASE as a call of `case`
def _case_when(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    values = (*children[1::2], *(children[-1:] if len(children) % 2 else ()))
    kind = reduce(merge_nullability, (value.type for value in values))
    if len(children) % 2 == 0:
        children = (*children, Literal(kind, True, None))
    last = len(children) - 1
    children = tuple(_as(kind, child) if at % 2 or at == last else child for at, child in enumerate(children))
    *pairs, otherwise = children
    if isinstance(otherwise, Call) and otherwise.function == "case" and otherwise.type == kind:
        children = (*pairs, *otherwise.arguments)
    return Call(kind, is_nullable((*children[1::2], children[-1])), "case", children)


def _as(kind: pa.DataType, value: Expression) -> Expression:
    """The value converted to a type that differs from its own at most in the nullability of nested fields."""
    if value.type == kind or not types.is_nested(kind):
        return value
    if isinstance(value, Literal):
        return replace(value, type=kind)
    return Call(kind, value.nullable, "with nulls inside", (value,))


@function("with nulls inside")
def _with_nulls_inside(call: Call, array: pa.Array) -> pa.Array:
    return array.cast(call.type)


@function("case", lazy=True)
def _case(call: Call, rows: ColumnBatch) -> pa.Array:
    """Evaluate alternating conditions and values, followed by the ELSE value."""
    if any(argument.can_raise for argument in call.arguments[1:]):
        return _case_by_row(call, rows)
    *pairs, otherwise = call.arguments
    if len(pairs) == 2:
        chosen = pc.if_else(_is_met(pairs[0], rows), operand(pairs[1], rows), operand(otherwise, rows))
    else:
        conditions = [_is_met(condition, rows) for condition in pairs[::2]]
        struct = pa.StructArray.from_arrays(conditions, names=[str(at) for at in range(len(conditions))])
        chosen = pc.case_when(struct, *(operand(value, rows) for value in (*pairs[1::2], otherwise)))
    return chosen


def _is_met(condition: Expression, rows: ColumnBatch) -> pa.Array:
    met = condition.evaluate(rows)
    return met.fill_null(False) if met.null_count else met


def _case_by_row(call: Call, rows: ColumnBatch) -> pa.Array:
    *pairs, otherwise = call.arguments
    remaining: Mask = np.ones(rows.count, bool)  # rows that have met no condition so far
    parts: list[tuple[Mask, pa.Array]] = []
    for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
        met = remaining & is_true(evaluate_where(condition, rows, remaining))
        parts.append((met, value.evaluate(_select(value, rows, met))))
        remaining = remaining & ~met
    parts.append((remaining, otherwise.evaluate(_select(otherwise, rows, remaining))))
    return scatter(call.type, rows.count, parts)


@builds("Coalesce")
def _coalesce(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    kind = reduce(merge_nullability, (child.type for child in children))
    values = tuple(_as(kind, child) for child in children)
    return Call(kind, all(child.nullable for child in children), "coalesce", values)


@function("coalesce", lazy=True)
def _run_coalesce(call: Call, rows: ColumnBatch) -> pa.Array:
    first, *others = call.arguments
    if not any(argument.can_raise for argument in others):
        return pc.coalesce(first.evaluate(rows), *(operand(argument, rows) for argument in others))
    result = first.evaluate(rows)
    for argument in others:
        missing = unpack_bits(result.is_null())
        if not missing.any():
            break
        result = pc.coalesce(result, evaluate_where(argument, rows, missing))
    return result


@builds("NaNvl")
def _nanvl(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    return Call(children[0].type, is_nullable(children), "nanvl", children)


@function("nanvl", lazy=True)
def _run_nanvl(call: Call, rows: ColumnBatch) -> pa.Array:
    first, second = call.arguments
    values = first.evaluate(rows)
    nan = is_true(pc.is_nan(values))
    if not nan.any():
        return values
    return pc.if_else(pa.array(nan), evaluate_where(second, rows, nan), values)
