"""Truth, and expressions of which only some are evaluated: AND, OR, CASE, COALESCE.

What is not reached must not raise. An expression that cannot raise is evaluated for all rows, since that is faster than
picking some; any other is evaluated for those rows alone that reach it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import Flags, flags_of, validity
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, Literal, builds, function, is_nullable
from ikebana.expressions.core.buffers import is_true, operand, scatter
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import with_nulls_of

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
    return pc.and_kleene(first, where(right, rows, is_true(first) | _null(first)))


@function("or", lazy=True)
def _or(call: Call, rows: ColumnBatch) -> pa.Array:
    left, right = call.arguments
    first = left.evaluate(rows)
    if not right.can_raise:
        return pc.or_kleene(first, right.evaluate(rows))
    return pc.or_kleene(first, where(right, rows, ~is_true(first)))


def where(expression: Expression, rows: ColumnBatch, flags: Flags) -> pa.Array:
    """The values of an expression for some rows; null for the others, about which it is not asked."""
    if flags.all():
        return expression.evaluate(rows)
    if not flags.any():
        return pa.nulls(rows.count, expression.type)
    return scatter(expression.type, rows.count, [(flags, expression.evaluate(_chosen(expression, rows, flags)))])


def _chosen(expression: Expression, rows: ColumnBatch, flags: Flags) -> ColumnBatch:
    """Some rows, and of those the columns that an expression may read."""
    names = {getattr(each, "name", None) for each in expression.walk()}
    return rows.keeping(names).where(flags)


def _null(array: pa.Array) -> Flags:
    valid = validity(array)
    return np.zeros(len(array), bool) if valid is None else ~valid


# Choices.


@builds("If", "CaseWhen", "UnresolvedFunction")  # the last is what planning makes of a CASE that is nested
def _case_when(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    values = (*children[1::2], *(children[-1:] if len(children) % 2 else ()))
    kind = reduce(with_nulls_of, (each.type for each in values))
    if len(children) % 2 == 0:
        children = (*children, Literal(kind, True, None))
    last = len(children) - 1
    children = tuple(_as(kind, each) if at % 2 or at == last else each for at, each in enumerate(children))
    *pairs, otherwise = children
    if isinstance(otherwise, Call) and otherwise.function == "case" and otherwise.type == kind:
        children = (*pairs, *otherwise.arguments)
    return Call(kind, is_nullable((*children[1::2], children[-1])), "case", children)


def _as(kind: pa.DataType, value: Expression) -> Expression:
    """A value in a type that differs at most in what may be null inside."""
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
    """Conditions and values in turn, and the value of what meets none."""
    if any(each.can_raise for each in call.arguments[1:]):
        return _case_by_row(call, rows)
    *pairs, otherwise = call.arguments
    if len(pairs) == 2:
        chosen = pc.if_else(_met(pairs[0], rows), operand(pairs[1], rows), operand(otherwise, rows))
    else:
        conditions = [_met(each, rows) for each in pairs[::2]]
        struct = pa.StructArray.from_arrays(conditions, names=[str(each) for each in range(len(conditions))])
        chosen = pc.case_when(struct, *(operand(each, rows) for each in (*pairs[1::2], otherwise)))
    return chosen


def _met(condition: Expression, rows: ColumnBatch) -> pa.Array:
    found = condition.evaluate(rows)
    return found.fill_null(False) if found.null_count else found


def _case_by_row(call: Call, rows: ColumnBatch) -> pa.Array:
    *pairs, otherwise = call.arguments
    left: Flags = np.ones(rows.count, bool)  # rows that have met no condition so far
    parts: list[tuple[Flags, pa.Array]] = []
    for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
        met = left & is_true(where(condition, rows, left))
        parts.append((met, value.evaluate(_chosen(value, rows, met))))
        left = left & ~met
    parts.append((left, otherwise.evaluate(_chosen(otherwise, rows, left))))
    return scatter(call.type, rows.count, parts)


@builds("Coalesce")
def _coalesce(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    kind = reduce(with_nulls_of, (each.type for each in children))
    values = tuple(_as(kind, each) for each in children)
    return Call(kind, all(each.nullable for each in children), "coalesce", values)


@function("coalesce", lazy=True)
def _first_there(call: Call, rows: ColumnBatch) -> pa.Array:
    first, *others = call.arguments
    if not any(each.can_raise for each in others):
        return pc.coalesce(first.evaluate(rows), *(operand(each, rows) for each in others))
    found = first.evaluate(rows)
    for each in others:
        missing = flags_of(found.is_null())
        if not missing.any():
            break
        found = pc.coalesce(found, where(each, rows, missing))
    return found


@builds("NaNvl")
def _nanvl(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    return Call(children[0].type, is_nullable(children), "nanvl", children)


@function("nanvl", lazy=True)
def _instead_of_nan(call: Call, rows: ColumnBatch) -> pa.Array:
    first, second = call.arguments
    found = first.evaluate(rows)
    nan = is_true(pc.is_nan(found))
    if not nan.any():
        return found
    return pc.if_else(pa.array(nan), where(second, rows, nan), found)
