"""Comparing values, and asking whether they are null.

Two NaN are equal, and greater than all else; -0.0 equals 0.0. Strings are compared byte by byte. Structs and arrays can
be tested for equality, in which two nulls inside are equal; which of them is less is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import Flags, flags_of, from_numpy, to_numpy, validity
from ikebana.errors import SqlError
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, Literal, builds, function, is_nullable
from ikebana.expressions.core.buffers import is_true, operands
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.numbers import decimals

Values = Any
"""An array, or a scalar that stands for as many."""

_NAMES = {
    "EqualTo": "equal",
    "EqualNullSafe": "is",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
}


@builds(*_NAMES)
def _comparison(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    name, left = _NAMES[tree.kind], children[0]
    if types.is_map(left.type) or (types.is_nested(left.type) and name not in ("equal", "is")):
        raise SqlError(
            f"comparing values of type {left.type} is not supported in a maintained view",
            detail=f"in {tree!r}",
            hint="compare their parts",
        )
    return Call(pa.bool_(), name != "is" and is_nullable(children), name, children)


def compare(name: str, left: Values, right: Values) -> pa.Array:
    """Whether one is `equal`, `less`, `greater` and so on than the other; null where one is null."""
    kind = left.type
    if types.is_null(kind) or types.is_null(right.type):
        return pa.nulls(len(left if isinstance(left, pa.Array) else right), pa.bool_())
    if types.is_floating(kind):
        return _compare_floats(name, left, right)
    if types.is_decimal(kind) and kind != right.type:
        return _compare_decimals(name, left, right)
    if types.is_struct(kind) or types.is_list(kind):
        return _equal_nested(_array(left, right), _array(right, left))
    return getattr(pc, name)(left, right)


def greater(left: Values, right: Values) -> pa.Array:
    """Where the left is greater."""
    return compare("greater", left, right)


def _compare_floats(name: str, left: Values, right: Values) -> pa.Array:
    """Arrow compares as processors do; where there is NaN the answer is another."""
    found = getattr(pc, name)(left, right)
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    if not (_any(left_nan) or _any(right_nan)):
        return found
    match name:
        case "equal":
            return pc.or_(found, pc.and_(left_nan, right_nan))
        case "less":
            return pc.or_(found, pc.and_not(right_nan, left_nan))
        case "greater":
            return pc.or_(found, pc.and_not(left_nan, right_nan))
        case "less_equal":
            return pc.or_(found, pc.and_(right_nan, pc.is_valid(left)))
        case _:
            return pc.or_(found, pc.and_(left_nan, pc.is_valid(right)))


def _any(flags: Values) -> bool:
    return bool(pc.any(flags).as_py() if isinstance(flags, pa.Array) else flags.as_py())


def _compare_decimals(name: str, left: Values, right: Values) -> pa.Array:
    one, other = _array(left, right), _array(right, left)
    aligned = decimals.aligned(decimals.unscaled(one), one.type.scale, decimals.unscaled(other), other.type.scale)
    return from_numpy(pa.bool_(), getattr(np, name)(*aligned[:2]).astype(bool), validity(one, other))


def _array(given: Values, other: Values) -> pa.Array:
    """A scalar repeated as often as the other has values."""
    return given if isinstance(given, pa.Array) else pa.repeat(given, len(other))


def same(left: Values, right: Values) -> pa.Array:
    """Whether both are equal, or both null; never null."""
    equal = compare("equal", left, right).fill_null(False)
    left_null, right_null = pc.is_null(left), pc.is_null(right)
    return pc.or_(equal, pc.and_(left_null, right_null)) if _any(left_null) and _any(right_null) else equal


def _equal_nested(left: pa.Array, right: pa.Array) -> pa.Array:
    if types.is_struct(left.type):
        parts = (same(one, other) for one, other in zip(left.flatten(), right.flatten(), strict=True))
        equal = reduce(pc.and_, parts, pa.repeat(pa.scalar(True), len(left)))
        return from_numpy(pa.bool_(), flags_of(equal), validity(left, right))
    valid, lengths = validity(left, right), pc.list_value_length(left)
    equal = is_true(pc.equal(lengths, pc.list_value_length(right)))
    if equal.any():
        candidates = pa.array(equal)
        equal[equal] = _equal_elements(left.filter(candidates), right.filter(candidates))
    return from_numpy(pa.bool_(), equal, valid)


def _equal_elements(left: pa.Array, right: pa.Array) -> Flags:
    """Whether all elements of lists of the same lengths are the same."""
    differs = ~flags_of(same(left.flatten(), right.flatten()))
    wrong = np.concatenate([[0], np.cumsum(differs)])
    ends = np.cumsum(to_numpy(pc.list_value_length(left)))
    return wrong[ends] == wrong[np.concatenate([[0], ends[:-1]])]


def _comparing(name: str) -> Callable[[Call, ColumnBatch], pa.Array]:
    return lambda call, rows: compare(name, *operands(call.arguments, rows))


for _name in ("equal", "less", "less_equal", "greater", "greater_equal"):
    function(_name, lazy=True)(_comparing(_name))


@function("is", lazy=True)
def _is(call: Call, rows: ColumnBatch) -> pa.Array:
    return same(*operands(call.arguments, rows))


# Membership.


@builds("In")
def _in(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    value, *candidates = children
    constants = [each for each in candidates if isinstance(each, Literal)]
    others = [each for each in candidates if not isinstance(each, Literal)]
    nullable = is_nullable(children)
    choices = [Call(pa.bool_(), nullable, "in", (value, *constants))] if constants else []
    choices += [Call(pa.bool_(), is_nullable((value, each)), "equal", (value, each)) for each in others]
    return reduce(lambda one, other: Call(pa.bool_(), is_nullable((one, other)), "or", (one, other)), choices)


@builds("InSet")
def _in_set(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    raise SqlError(
        "IN with this many constants cannot be maintained",
        detail="Spark's plan does not say which they are",
        hint="set spark.sql.optimizer.inSetConversionThreshold to more than there are",
    )


@function("in", lazy=True)
def _in_constants(call: Call, rows: ColumnBatch) -> pa.Array:
    value, *constants = call.arguments
    array = value.evaluate(rows)
    scalars = [each.scalar for each in constants if isinstance(each, Literal) and each.value is not None]
    if types.is_floating(array.type) or types.is_nested(array.type):
        found = reduce(
            pc.or_, (compare("equal", array, each) for each in scalars), pa.repeat(pa.scalar(False), len(array))
        )
        found = pc.and_(found, array.is_valid())
    else:
        found = pc.is_in(array, value_set=pa.array([each.as_py() for each in scalars], array.type))
    valid = validity(array)
    if len(scalars) < len(constants):
        valid = is_true(found) if valid is None else valid & is_true(found)
    return from_numpy(pa.bool_(), is_true(found), valid)


# Nulls and NaN.


@builds("IsNull", "IsNotNull", "IsNaN")
def _asked(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    name = {"IsNull": "is null", "IsNotNull": "is not null", "IsNaN": "is nan"}[tree.kind]
    return Call(pa.bool_(), False, name, children)


@function("is null")
def _is_null(call: Call, array: pa.Array) -> pa.Array:
    return array.is_null()


@function("is not null")
def _is_not_null(call: Call, array: pa.Array) -> pa.Array:
    return array.is_valid()


@function("is nan")
def _is_nan(call: Call, array: pa.Array) -> pa.Array:
    return pc.is_nan(array).fill_null(False)


@builds("AtLeastNNonNulls")
def _at_least(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    return Call(pa.bool_(), False, "at least", children, (int(tree.fields["n"]),))


@function("at least")
def _count_there(call: Call, *arrays: pa.Array) -> pa.Array:
    (least,) = call.options
    count: Any = np.zeros(len(arrays[0]), np.int64)
    for array in arrays:
        count += flags_of(array.is_valid())
        if types.is_floating(array.type):
            count -= is_true(pc.is_nan(array))
    return from_numpy(pa.bool_(), count >= least)


@builds("NormalizeNaNAndZero")
def _normal(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    (child,) = children
    return Call(child.type, child.nullable, "normal", children) if types.is_floating(child.type) else child


@function("normal")
def _normalised(call: Call, array: pa.Array) -> pa.Array:
    """Floats of which equal ones have the same bits."""
    data = to_numpy(array)
    return from_numpy(call.type, np.where(np.isnan(data), np.array(np.nan, data.dtype), data + 0), validity(array))
