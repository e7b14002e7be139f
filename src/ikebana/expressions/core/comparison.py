"""Comparisons, IN, and tests for null and NaN.

NaN equals NaN and is greater than every other number; -0.0 equals 0.0. Strings are compared byte by byte. Structs are
compared field by field, arrays element by element, where nulls inside them are equal to each other and less than all
other values. Maps cannot be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import Mask, from_numpy, to_numpy, unpack_bits, validity
from ikebana.errors import SqlError
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, Literal, builds, function, is_nullable
from ikebana.expressions.core.buffers import is_true, operands
from ikebana.expressions.core.scalars import conform
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.nested.lists import ranks
from ikebana.expressions.numbers import decimals

Values = Any
"""An array, or a scalar that is broadcast to the length of the other operand."""

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
    if types.is_map(left.type):
        raise SqlError(
            f"comparing values of type {left.type} is not supported in a maintained view",
            detail=f"in {tree!r}",
            hint="compare their fields or elements",
        )
    return Call(pa.bool_(), name != "is" and is_nullable(children), name, children)


def compare(name: str, left: Values, right: Values) -> pa.Array:
    """The comparison `name` (`equal`, `less`, `greater_equal`, ...) of two operands; null where one is null."""
    kind = left.type
    if types.is_null(kind) or types.is_null(right.type):
        return pa.nulls(len(left if isinstance(left, pa.Array) else right), pa.bool_())
    if types.is_floating(kind):
        return _compare_floats(name, left, right)
    if types.is_decimal(kind) and kind != right.type:
        return _compare_decimals(name, left, right)
    if types.is_struct(kind) or types.is_list(kind):
        one, other = _array(left, right), _array(right, left)
        return _equal_nested(one, other) if name == "equal" else _order_nested(name, one, other)
    return getattr(pc, name)(left, right)


def greater(left: Values, right: Values) -> pa.Array:
    """Whether `left` is greater than `right`; null where one is null."""
    return compare("greater", left, right)


def _compare_floats(name: str, left: Values, right: Values) -> pa.Array:
    """Arrow's comparison, which follows IEEE 754, corrected for NaN."""
    result = getattr(pc, name)(left, right)
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    if not (_any(left_nan) or _any(right_nan)):
        return result
    match name:
        case "equal":
            return pc.or_(result, pc.and_(left_nan, right_nan))
        case "less":
            return pc.or_(result, pc.and_not(right_nan, left_nan))
        case "greater":
            return pc.or_(result, pc.and_not(left_nan, right_nan))
        case "less_equal":
            return pc.or_(result, pc.and_(right_nan, pc.is_valid(left)))
        case _:
            return pc.or_(result, pc.and_(left_nan, pc.is_valid(right)))


def _any(flags: Values) -> bool:
    return bool(pc.any(flags).as_py() if isinstance(flags, pa.Array) else flags.as_py())


def _compare_decimals(name: str, left: Values, right: Values) -> pa.Array:
    one, other = _array(left, right), _array(right, left)
    aligned = decimals.align(decimals.to_unscaled(one), one.type.scale, decimals.to_unscaled(other), other.type.scale)
    return from_numpy(pa.bool_(), getattr(np, name)(*aligned[:2]).astype(bool), validity(one, other))


def _array(operand: Values, other: Values) -> pa.Array:
    """The operand as an array; a scalar is repeated to the length of the other operand."""
    return operand if isinstance(operand, pa.Array) else pa.repeat(operand, len(other))


def null_safe_equal(left: Values, right: Values) -> pa.Array:
    """Whether both are equal or both are null; never null."""
    equal = compare("equal", left, right).fill_null(False)
    left_null, right_null = pc.is_null(left), pc.is_null(right)
    return pc.or_(equal, pc.and_(left_null, right_null)) if _any(left_null) and _any(right_null) else equal


def _equal_nested(left: pa.Array, right: pa.Array) -> pa.Array:
    if types.is_struct(left.type):
        parts = (null_safe_equal(one, other) for one, other in zip(left.flatten(), right.flatten(), strict=True))
        equal = reduce(pc.and_, parts, pa.repeat(pa.scalar(True), len(left)))
        return from_numpy(pa.bool_(), unpack_bits(equal), validity(left, right))
    valid, lengths = validity(left, right), pc.list_value_length(left)
    equal = is_true(pc.equal(lengths, pc.list_value_length(right)))
    if equal.any():
        candidates = pa.array(equal)
        equal[equal] = _equal_elements(left.filter(candidates), right.filter(candidates))
    return from_numpy(pa.bool_(), equal, valid)


def _order_nested(name: str, left: pa.Array, right: pa.Array) -> pa.Array:
    both = ranks(pa.concat_arrays([left, conform(right, left.type)]))
    result = getattr(np, name)(both[: len(left)], both[len(left) :])
    return from_numpy(pa.bool_(), result, validity(left, right))


def _equal_elements(left: pa.Array, right: pa.Array) -> Mask:
    """Whether all elements are the same, for lists of equal lengths."""
    differs = ~unpack_bits(null_safe_equal(left.flatten(), right.flatten()))
    wrong = np.concatenate([[0], np.cumsum(differs)])
    ends = np.cumsum(to_numpy(pc.list_value_length(left)))
    return wrong[ends] == wrong[np.concatenate([[0], ends[:-1]])]


def _comparing(name: str) -> Callable[[Call, ColumnBatch], pa.Array]:
    return lambda call, rows: compare(name, *operands(call.arguments, rows))


for _name in ("equal", "less", "less_equal", "greater", "greater_equal"):
    function(_name, lazy=True)(_comparing(_name))


@function("is", lazy=True)
def _is(call: Call, rows: ColumnBatch) -> pa.Array:
    return null_safe_equal(*operands(call.arguments, rows))


# Membership.


@builds("In")
def _in(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    value, *candidates = children
    constants = [candidate for candidate in candidates if isinstance(candidate, Literal)]
    expressions = [candidate for candidate in candidates if not isinstance(candidate, Literal)]
    nullable = is_nullable(children)
    choices = [Call(pa.bool_(), nullable, "in", (value, *constants))] if constants else []
    choices += [
        Call(pa.bool_(), is_nullable((value, candidate)), "equal", (value, candidate)) for candidate in expressions
    ]
    return reduce(lambda left, right: Call(pa.bool_(), is_nullable((left, right)), "or", (left, right)), choices)


@builds("InSet")
def _in_set(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    raise SqlError(
        "IN with this many constants is not supported in a maintained view",
        detail="Spark's plan does not list the constants",
        hint="set spark.sql.optimizer.inSetConversionThreshold to a larger number than the list has",
    )


@function("in", lazy=True)
def _in_constants(call: Call, rows: ColumnBatch) -> pa.Array:
    value, *constants = call.arguments
    array = value.evaluate(rows)
    scalars = [literal.scalar for literal in constants if isinstance(literal, Literal) and literal.value is not None]
    if types.is_floating(array.type) or types.is_nested(array.type):
        matches = reduce(
            pc.or_, (compare("equal", array, scalar) for scalar in scalars), pa.repeat(pa.scalar(False), len(array))
        )
        matches = pc.and_(matches, array.is_valid())
    else:
        matches = pc.is_in(array, value_set=pa.array([scalar.as_py() for scalar in scalars], array.type))
    valid = validity(array)
    if len(scalars) < len(constants):
        valid = is_true(matches) if valid is None else valid & is_true(matches)
    return from_numpy(pa.bool_(), is_true(matches), valid)


# Nulls and NaN.


@builds("IsNull", "IsNotNull", "IsNaN")
def _null_test(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
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
def _at_least_valid(call: Call, *arrays: pa.Array) -> pa.Array:
    (minimum,) = call.options
    count: Any = np.zeros(len(arrays[0]), np.int64)
    for array in arrays:
        count += unpack_bits(array.is_valid())
        if types.is_floating(array.type):
            count -= is_true(pc.is_nan(array))
    return from_numpy(pa.bool_(), count >= minimum)


@builds("NormalizeNaNAndZero")
def _normal(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    (child,) = children
    return Call(child.type, child.nullable, "normal", children) if types.is_floating(child.type) else child


@function("normal")
def _normalize(call: Call, array: pa.Array) -> pa.Array:
    """The floats with one NaN and one zero, so that equal floats have the same bits."""
    data = to_numpy(array)
    return from_numpy(call.type, np.where(np.isnan(data), np.array(np.nan, data.dtype), data + 0), validity(array))
