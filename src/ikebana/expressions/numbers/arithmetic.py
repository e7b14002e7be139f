"""Arithmetic on integers, floats and intervals, and the choice of the function for the operand types.

In ANSI mode an integer overflow or a division by zero raises an error; otherwise the result wraps or is null. An
overflow of an interval always raises an error. Floats never overflow, but a float division by zero is treated like any
other. For decimals see `decimals`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import and_validity, from_numpy, to_numpy, validity
from ikebana.encoding.lanes import Array
from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions.core.base import (
    ANSI_HINT,
    CASE_HINT,
    Call,
    ColumnBatch,
    Config,
    Expression,
    builds,
    function,
    is_nullable,
)
from ikebana.expressions.core.buffers import fail_where, operands, reinterpret
from ikebana.expressions.core.comparison import greater
from ikebana.expressions.core.scalars import conform
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import common_type
from ikebana.expressions.numbers import decimals

_BINARY = {
    "Add": "add",
    "Subtract": "subtract",
    "Multiply": "multiply",
    "Divide": "divide",
    "IntegralDivide": "quotient",
    "Remainder": "remainder",
    "Pmod": "pmod",
}


@builds(*_BINARY)
def _binary(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    name, (left, right) = _BINARY[tree.kind], children
    if types.is_decimal(left.type) and types.is_decimal(right.type):
        return _binary_decimal(name, left, right, config)
    if left.type != right.type or not _is_number(left.type):
        raise SqlError(
            f"{left.type} {decimals.SYMBOLS[name]} {right.type} is not supported in a maintained view",
            hint="cast the operands to a common numeric type",
        )
    kind = pa.int64() if name == "quotient" else left.type
    nullable = is_nullable(children) or (not config.ansi and name in decimals.DIVISIONS)
    return Call(kind, nullable, name, children, (config.ansi,))


def _binary_decimal(name: str, left: Expression, right: Expression, config: Config) -> Expression:
    if name == "quotient":
        kind, overflows = pa.int64(), True
    else:
        kind, overflows = decimals.result_type(name, left.type, right.type, config.decimal_precision_loss)
    fails = overflows or name in decimals.DIVISIONS
    nullable = is_nullable((left, right)) or (not config.ansi and fails)
    return Call(kind, nullable, f"decimal {name}", (left, right), (config.ansi,))


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_duration(kind))


# Decimals.

_WITHOUT_FRACTION = frozenset({"remainder", "pmod", "quotient"})


def _decimal_raises(call: Call) -> bool:
    (ansi,), name = call.options, call.function.removeprefix("decimal ")
    left, right = (argument.type for argument in call.arguments)
    if name in _WITHOUT_FRACTION and decimals.may_have_long_quotients(left, right):
        return True
    return bool(ansi) and (name in decimals.DIVISIONS or decimals.result_type(name, left, right)[1])


for _name in ("add", "subtract", "multiply", "divide", "remainder", "pmod"):
    function(f"decimal {_name}", lazy=True, raises=_decimal_raises)(decimals.operation(_name))


@function("decimal quotient", lazy=True, raises=_decimal_raises)
def _decimal_quotient(call: Call, rows: ColumnBatch) -> pa.Array:
    left, right = (argument.type for argument in call.arguments)
    (one, other), valid = decimals.unscaled_arguments(call.arguments, rows)
    (ansi,) = call.options
    zero = np.broadcast_to(np.equal(other, 0), rows.count)
    if ansi:
        fail_where(zero, valid, lambda row: _error("division by zero", call))
    other, valid = np.where(zero, 1, other), and_validity(valid, ~zero)
    decimals.check_quotient_digits(
        one, left, other, right, valid, lambda row: _error("quotient with too many digits", call)
    )
    one, other, _ = decimals.align(one, left.scale, other, right.scale)
    quotients = np.broadcast_to(decimals.divide_truncating(one, other), rows.count)
    limit = 10 ** decimals.quotient_type(left, right).precision
    bad = np.asarray(np.abs(quotients) >= limit, bool)
    if ansi:
        fail_where(bad, valid, lambda row: _error("overflow", call))
    return from_numpy(pa.int64(), decimals.low_words(quotients), and_validity(valid, ~bad))


# Integers, floats and intervals.


def _overflows(call: Call) -> bool:
    (ansi,), kind = call.options, call.arguments[0].type
    return bool(types.is_duration(kind) or (ansi and types.is_integer(kind)))


def _divides(call: Call) -> bool:
    return bool(call.options[0])


def _checked(name: str) -> Callable[[Call, ColumnBatch], pa.Array]:
    """An Arrow function that wraps on overflow, or its variant that raises an error, depending on the call."""
    wrapping, checking = getattr(pc, name), getattr(pc, f"{name}_checked")

    def run(call: Call, rows: ColumnBatch) -> pa.Array:
        values = operands(call.arguments, rows)
        try:
            return (checking if _overflows(call) else wrapping)(*values)
        except pa.ArrowInvalid:
            arrays = [argument.evaluate(rows) for argument in call.arguments]
            exact = _EXACT[name](*(to_numpy(array).astype(object) for array in arrays))
            limits = np.iinfo(f"int{call.type.bit_width}")
            bad = np.asarray((exact < int(limits.min)) | (exact > int(limits.max)), bool)
            fail_where(bad, validity(*arrays), lambda row: _error("overflow", call))
            raise

    return run


_EXACT: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "negate": operator.neg,
    "abs": operator.abs,
}
"""The functions over Python's integers, which find the rows that overflow."""


for _name in ("add", "subtract", "multiply", "negate", "abs"):
    function(_name, lazy=True, raises=_overflows)(_checked(_name))


def _error(what: str, call: Call) -> EvaluationError:
    name = call.function.removeprefix("decimal ")
    shown = (
        f" {decimals.SYMBOLS.get(name, name)} ".join(map(str, call.arguments))
        if len(call.arguments) == 2
        else str(call)
    )
    is_ansi_only = bool(call.options and call.options[0]) and not types.is_duration(call.type)
    hint = ANSI_HINT if is_ansi_only else CASE_HINT
    return EvaluationError(f"{what} in {shown}", detail=f"the result type is {call.type}", hint=hint)


def _division(compute: Callable[[Array, Array], Array]) -> Callable[..., pa.Array]:
    """A function of two numbers that is undefined where the second is zero."""

    def run(call: Call, left: pa.Array, right: pa.Array) -> pa.Array:
        one, other, valid = to_numpy(left), to_numpy(right), validity(left, right)
        zero = other == 0
        if zero.any():
            if call.options[0]:
                fail_where(zero, valid, lambda row: _error("division by zero", call))
            other, valid = np.where(zero, np.ones(1, other.dtype), other), and_validity(valid, ~zero)
        with np.errstate(all="ignore"):
            return from_numpy(call.type, compute(one, other), valid)

    return run


def _positive_remainder(one: Array, other: Array) -> Array:
    remainder = np.fmod(one, other)
    return np.where(remainder < 0, np.fmod(_wide(remainder) + other, other), remainder).astype(one.dtype)


def _wide(numbers: Array) -> Array:
    """The numbers in the type in which Java adds them: bytes and shorts as ints."""
    return numbers.astype(np.int32) if numbers.dtype.itemsize < 4 else numbers


function("divide", raises=_divides)(_division(lambda one, other: one / other))
function("remainder", raises=_divides)(_division(np.fmod))
function("pmod", raises=_divides)(_division(_positive_remainder))


@function("quotient", raises=_divides)
def _quotient(call: Call, left: pa.Array, right: pa.Array) -> pa.Array:
    minimum = np.iinfo(np.int64).min
    if call.options[0] and not types.is_duration(left.type):  # in Spark intervals wrap here
        overflow = (to_numpy(left) == minimum) & (to_numpy(right) == -1)
        fail_where(overflow, validity(left, right), lambda row: _error("overflow", call))
    return _division(_truncated)(call, left, right)


def _truncated(one: Array, other: Array) -> Array:
    one, other = one.astype(np.int64), other.astype(np.int64)
    return (one - np.fmod(one, other)) // other


# Signs.


@builds("UnaryMinus", "Abs")
def _sign(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    (child,) = children
    if not (_is_number(child.type) or types.is_decimal(child.type)):
        raise SqlError(f"{tree.kind} of {child.type} is not supported in a maintained view")
    name = "negate" if tree.kind == "UnaryMinus" else "abs"
    if types.is_duration(child.type):
        return Call(child.type, child.nullable, f"interval {name}", children)
    if types.is_decimal(child.type):
        return Call(child.type, child.nullable, f"decimal {name}", children)
    return Call(child.type, child.nullable, name, children, (config.ansi,))


@builds("UnaryPositive")
def _plus(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    return children[0]


def _is_long(call: Call) -> bool:
    return bool(call.type.precision > 34)


@function("decimal negate", raises=_is_long)
def _decimal_negate(call: Call, array: pa.Array) -> pa.Array:
    return decimals.negate(call.type, array, only_negative=False)


@function("decimal abs", raises=_is_long)
def _decimal_abs(call: Call, array: pa.Array) -> pa.Array:
    return decimals.negate(call.type, array, only_negative=True)


def _interval(name: str) -> Callable[[Call, pa.Array], pa.Array]:
    checked = getattr(pc, f"{name}_checked")

    def run(call: Call, array: pa.Array) -> pa.Array:
        try:
            return reinterpret(checked(reinterpret(array, pa.int64())), call.type)
        except pa.ArrowInvalid:
            raise _error("overflow", call) from None

    return run


for _name in ("negate", "abs"):
    function(f"interval {_name}", raises=True)(_interval(_name))


# Intervals and numbers.

_SCALING = {"MultiplyDTInterval": "*", "MultiplyYMInterval": "*", "DivideDTInterval": "/", "DivideYMInterval": "/"}


@builds(*_SCALING)
def _scaling(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    return Call(children[0].type, is_nullable(children), f"interval {_SCALING[tree.kind]}", children)


def _scaled(multiply: bool) -> Callable[[Call, pa.Array, pa.Array], pa.Array]:
    """An interval multiplied or divided by a number, rounded half up; overflow and division by zero raise an error."""

    def run(call: Call, interval: pa.Array, number: pa.Array) -> pa.Array:
        valid, spans = validity(interval, number), to_numpy(interval).astype(np.int64)
        numbers = decimals.to_unscaled(number) if types.is_decimal(number.type) else to_numpy(number)
        if not multiply:
            zero = numbers == 0
            fail_where(np.asarray(zero, bool), valid, lambda row: _error("division by zero", call))
            numbers = np.where(zero, 1, numbers)
        if types.is_floating(number.type):
            with np.errstate(all="ignore"):
                results = _rounded((np.multiply if multiply else np.divide)(spans, numbers.astype(np.float64)))
        else:
            scale = number.type.scale if types.is_decimal(number.type) else 0
            results = _exactly(spans, numbers if numbers.dtype == object else numbers.astype(np.int64), scale, multiply)
        limits = np.iinfo(to_numpy(interval).dtype)
        bad = ~np.asarray((results >= int(limits.min)) & (results <= int(limits.max)), bool)
        fail_where(bad, valid, lambda row: _error("overflow", call))
        return from_numpy(call.type, np.where(bad, 0, results).astype(np.int64), valid)

    return run


def _rounded(numbers: Array) -> Array:
    """Floats rounded half up to integers; 2**63, which is out of range, for those that do not fit into 64 bits."""
    nearest = np.rint(numbers)
    nearest = np.where(np.abs(numbers - nearest) == 0.5, numbers + np.copysign(0.5, numbers), nearest)
    fits = (nearest >= -(2.0**63)) & (nearest < 2.0**63)
    integers = np.where(fits, nearest, 0).astype(np.int64)
    return integers if fits.all() else np.where(fits, integers.astype(object), 2**63)


def _exactly(spans: Array, numbers: Array, scale: int, multiply: bool) -> Array:
    """Integers multiplied or divided by unscaled decimals of a scale."""
    if multiply:
        if decimals.max_magnitude(spans) * decimals.max_magnitude(numbers) >= 2**63:
            spans = spans.astype(object)
        return decimals.rescale(spans * numbers, -scale)
    return decimals.divide_half_up(decimals.rescale(spans, scale), numbers)


function("interval *", raises=True)(_scaled(True))
function("interval /", raises=True)(_scaled(False))


# Bits.

_BITS = {"BitwiseAnd": "bit_wise_and", "BitwiseOr": "bit_wise_or", "BitwiseXor": "bit_wise_xor"}


@builds(*_BITS, "BitwiseNot")
def _bitwise(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    name = _BITS.get(tree.kind, "bit_wise_not")
    return Call(children[0].type, is_nullable(children), name, children)


def _of_arrow(name: str) -> Callable[[Call, ColumnBatch], pa.Array]:
    compute: Callable[..., pa.Array] = getattr(pc, name)
    return lambda call, rows: compute(*operands(call.arguments, rows))


for _name in (*_BITS.values(), "bit_wise_not"):
    function(_name, lazy=True)(_of_arrow(_name))

_SHIFTS = {"ShiftLeft": "shift left", "ShiftRight": "shift right", "ShiftRightUnsigned": "shift right unsigned"}


@builds(*_SHIFTS)
def _shift(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    return Call(children[0].type, is_nullable(children), _SHIFTS[tree.kind], children)


def _shifting(compute: Callable[[Array, Array], Array], unsigned: bool) -> Callable[..., pa.Array]:
    def run(call: Call, left: pa.Array, right: pa.Array) -> pa.Array:
        bits, dtype = to_numpy(left), to_numpy(left).dtype
        places = (to_numpy(right) & (8 * dtype.itemsize - 1)).astype(dtype)
        if unsigned:
            as_unsigned: Any = f"u{dtype.name}"
            bits, places = bits.view(as_unsigned), places.view(as_unsigned)
        return from_numpy(call.type, compute(bits, places).view(dtype), validity(left, right))

    return run


function("shift left")(_shifting(np.left_shift, False))
function("shift right")(_shifting(np.right_shift, False))
function("shift right unsigned")(_shifting(np.right_shift, True))


# GREATEST and LEAST.


@builds("Greatest", "Least")
def _extreme(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    nullable = all(child.nullable for child in children)
    return Call(common_type(children), nullable, tree.kind.lower(), children)


def _choosing(greatest: bool) -> Callable[..., pa.Array]:
    def run(call: Call, *arrays: pa.Array) -> pa.Array:
        best, *others = (conform(array, call.type) for array in arrays)
        for array in others:
            better = greater(array, best) if greatest else greater(best, array)
            best = pc.if_else(pc.or_kleene(better, best.is_null()).fill_null(False), array, best)
        return best

    return run


function("greatest")(_choosing(True))
function("least")(_choosing(False))
