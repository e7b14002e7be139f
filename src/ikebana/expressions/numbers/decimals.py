"""Decimal arithmetic with Spark's semantics: exact, then rounded half up to the result type.

A column of decimals is represented by its unscaled values: integers in units of the last digit. They are int64 if the
actual values allow it, whatever the type, and Python integers otherwise: each call determines the largest magnitude and
computes in int64 if nothing can overflow. int64 costs about ten nanoseconds per row, Python integers hundreds. A
literal is a single integer, not a column. Sums and products inside other operations stay unscaled values.

Result types follow spark.sql.decimalOperations.allowPrecisionLoss, which is on by default.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import Mask, and_validity, decimal_words, from_decimal_words, validity
from ikebana.encoding.lanes import Array
from ikebana.errors import EvaluationError
from ikebana.expressions.core.base import ANSI_HINT, CASE_HINT, Call, ColumnBatch, Expression, Literal
from ikebana.expressions.core.buffers import fail_where
from ikebana.expressions.core.types import adjusted_decimal, bounded_decimal

_LIMIT = 2**63
_WORD = 2**64
_EXACT = Context(prec=400)
_QUOTIENT_DIGITS = 39
_SIGN_DIGITS = 34

Integers = Any
"""Unscaled values: an array of int64 or of Python integers, or a single Python integer for all rows."""


# Conversion from and to unscaled values.


def to_unscaled(array: pa.Array) -> Array:
    """The unscaled values of a decimal array: int64 if all values fit, else Python integers."""
    low, high = decimal_words(array)
    if array.type.precision <= 18 or np.array_equal(high, low >> 63):
        return low
    wide = high.astype(object) * _WORD + low.view(np.uint64).astype(object)
    valid = validity(array)
    return wide if valid is None else np.where(valid, wide, 0)


def from_unscaled(kind: pa.DataType, integers: Array, valid: Mask | None) -> pa.Array:
    """A decimal array from unscaled values, which must fit the type."""
    low = low_words(integers).astype(np.int64, copy=False)
    return from_decimal_words(kind, low, integers >> 64 if integers.dtype == object else low >> 63, valid)


def low_words(integers: Array) -> Array:
    """The low 64 bits of each integer."""
    return integers if integers.dtype != object else (integers & (_WORD - 1)).astype(np.uint64).view(np.int64)


def round_floats(numbers: Array, scale: int) -> Array:
    """The unscaled values, for a scale, of the decimal digits that doubles print as, rounded half up.

    The printed digits of a double differ from its value by less than a rounding error, which matters only close to a
    half. Only such numbers, and large ones, are actually printed.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        shifted = np.abs(numbers) * 10.0**scale
        near = np.abs(shifted - np.floor(shifted) - 0.5) <= shifted * 2.0**-50
    magnitude, doubtful = np.floor(shifted + 0.5), near | (shifted >= 2.0**50)
    result = np.where(doubtful, 0, np.where(numbers < 0, -magnitude, magnitude)).astype(np.int64)
    if not doubtful.any():
        return result
    exact = [
        int(Decimal(repr(number)).scaleb(scale, _EXACT).to_integral_value(ROUND_HALF_UP))
        for number in numbers[doubtful].tolist()
    ]
    if max(map(abs, exact)) >= _LIMIT:
        result = result.astype(object)
    result[doubtful] = exact
    return result


def max_magnitude(integers: Integers) -> int:
    """The largest absolute value."""
    if isinstance(integers, int):
        return abs(integers)
    return max(int(integers.max()), -int(integers.min())) if len(integers) else 0


def as_objects(integers: Integers) -> Integers:
    """The same values as Python integers, which cannot overflow."""
    return integers if isinstance(integers, int) else integers.astype(object)


def rescale(integers: Integers, digits: int) -> Integers:
    """Unscaled values for a scale that is larger by `digits`, or smaller if negative, rounded half up."""
    if digits == 0:
        return integers
    factor = 10 ** abs(digits)
    if digits > 0:
        return (integers if max(max_magnitude(integers), 1) * factor < _LIMIT else as_objects(integers)) * factor
    return divide_half_up(integers, factor)


def divide_half_up(one: Integers, other: Integers) -> Integers:
    """The quotient, rounded half up, that is, away from zero."""
    if 2 * max_magnitude(one) + max_magnitude(other) >= _LIMIT:
        one, other = as_objects(one), as_objects(other)
    magnitude = (2 * abs(one) + abs(other)) // (2 * abs(other))
    return np.where((np.less(one, 0)) != (np.less(other, 0)), -magnitude, magnitude)


def negate(kind: pa.DataType, array: pa.Array, *, only_negative: bool) -> pa.Array:
    """The values negated, or only the negative ones: their absolute values.

    Spark rounds negated values to 34 digits and, in both modes, raises an error if the result does not fit the type.
    """
    values, valid = to_unscaled(array), validity(array)
    integers: Integers = -(values if max_magnitude(values) < _LIMIT else as_objects(values))
    if max_magnitude(integers) >= 10**_SIGN_DIGITS:
        context = Context(prec=_SIGN_DIGITS, rounding=ROUND_HALF_EVEN)
        integers = np.array([int(context.create_decimal(value)) for value in integers.tolist()], object)
    if only_negative:
        integers = np.where(np.less(values, 0), integers, values)

    def error(row: int) -> EvaluationError:
        return EvaluationError(f"{_format(integers, kind.scale, row)} has too many digits for {kind}", hint=CASE_HINT)

    return checked_decimals(kind, integers, valid, True, error)


def _absolute(one: Integers, other: Integers) -> tuple[Integers, Integers]:
    """Both operands in a representation in which their absolute values do not overflow."""
    return (
        (one, other) if max(max_magnitude(one), max_magnitude(other)) < _LIMIT else (as_objects(one), as_objects(other))
    )


def divide_truncating(one: Integers, other: Integers) -> Integers:
    """The quotient, rounded towards zero."""
    one, other = _absolute(one, other)
    magnitude = abs(one) // abs(other)
    return np.where((np.less(one, 0)) != (np.less(other, 0)), -magnitude, magnitude)


def checked_decimals(
    kind: pa.DataType, integers: Array, valid: Mask | None, ansi: bool, error: Callable[[int], EvaluationError]
) -> pa.Array:
    """A decimal array; values with too many digits for the type raise an error in ANSI mode and are null otherwise."""
    return from_unscaled(kind, *_checked(kind, integers, valid, ansi, error))


def _checked(
    kind: pa.DataType, integers: Array, valid: Mask | None, ansi: bool, error: Callable[[int], EvaluationError]
) -> tuple[Array, Mask | None]:
    """The unscaled values and validity of `checked_decimals`."""
    limit = 10**kind.precision
    if integers.dtype != object and limit > _LIMIT:  # 64-bit integers fit
        return integers, valid
    if max_magnitude(integers) >= limit:
        bad = np.asarray((integers >= limit) | (integers <= -limit), bool)
        if ansi:
            fail_where(bad, valid, error)
        integers, valid = np.where(bad, 0, integers), and_validity(valid, ~bad)
    return integers, valid


# Arithmetic.


def result_type(
    name: str, left: pa.DataType, right: pa.DataType, loses_precision: bool = True
) -> tuple[pa.DataType, bool]:
    """The type of the result of an operation, and whether a result may overflow it.

    If the result needs more than 38 digits, the type drops digits after the decimal point if `loses_precision`, and
    digits before the decimal point otherwise.
    """
    before_point, scale = max(left.precision - left.scale, right.precision - right.scale), max(left.scale, right.scale)
    match name:
        case "add" | "subtract":
            precision = before_point + scale + 1
        case "multiply":
            precision, scale = left.precision + right.precision + 1, left.scale + right.scale
        case "divide":
            scale = max(6, left.scale + right.precision + 1)
            precision = left.precision - left.scale + right.scale + scale
        case "remainder" | "pmod":
            precision = min(left.precision - left.scale, right.precision - right.scale) + scale
    if loses_precision:
        return adjusted_decimal(precision, scale), precision > 38
    kind = _lossless_quotient(left, right) if name == "divide" else bounded_decimal(precision, scale)
    return kind, precision > 38


def _lossless_quotient(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type of a quotient without precision loss: excess digits are dropped on both sides of the decimal point."""
    before_point = min(38, left.precision - left.scale + right.scale)
    scale = min(38, max(6, left.scale + right.precision + 1))
    excess = before_point + scale - 38
    if excess > 0:
        scale -= excess // 2 + 1
        before_point = 38 - scale
    return bounded_decimal(before_point + scale, scale)


def quotient_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The decimal type of the integral part of a quotient."""
    return bounded_decimal(max(left.precision - left.scale + right.scale, 1), 0)


def may_have_long_quotients(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether a quotient of these types may have more digits than Spark computes."""
    return bool(left.precision - left.scale + max(left.scale, right.scale) > _QUOTIENT_DIGITS)


def check_quotient_digits(
    one: Integers,
    left: pa.DataType,
    other: Integers,
    right: pa.DataType,
    valid: Mask | None,
    error: Callable[[int], Any],
) -> None:
    """Raise an error, in both modes, where Spark fails: the integral quotient has more digits than Spark computes."""
    if not may_have_long_quotients(left, right):
        return
    one, other, _ = align(one, left.scale, other, right.scale)
    if max_magnitude(one) < 10**_QUOTIENT_DIGITS:
        return
    sizes = np.broadcast_to(abs(divide_truncating(one, other)), np.broadcast_shapes(np.shape(one), np.shape(other)))
    is_too_long = [
        len(str(size)) > _QUOTIENT_DIGITS and bool(str(size)[_QUOTIENT_DIGITS:].strip("0")) for size in sizes
    ]
    fail_where(np.array(is_too_long), valid, error)


def unscaled_arguments(expressions: tuple[Expression, ...], rows: ColumnBatch) -> tuple[list[Integers], Mask | None]:
    """The unscaled values of the arguments, a single integer for a literal, and where no argument is null."""
    results: list[Integers] = []
    valid: Mask | None = None
    for expression in expressions:
        if isinstance(expression, Literal) and expression.value is not None:
            results.append(_unscaled_literal(expression.value, expression.type))
            continue
        if isinstance(expression, Call) and expression.function in _NESTED and not expression.raises:
            integers, is_valid = _computed(_NESTED[expression.function], expression, rows)
        else:
            array = expression.evaluate(rows)
            integers, is_valid = to_unscaled(array), validity(array)
        results.append(integers)
        valid = and_validity(valid, is_valid)
    return results, valid


@lru_cache(maxsize=1024)
def _unscaled_literal(value: Any, kind: pa.DataType) -> int:
    """The unscaled value of a literal."""
    return int(to_unscaled(pa.array([value], kind))[0])


def operation(name: str) -> Callable[[Call, ColumnBatch], pa.Array]:
    """The implementation of an arithmetic operation on decimals."""

    def run(call: Call, rows: ColumnBatch) -> pa.Array:
        return from_unscaled(call.type, *_computed(name, call, rows))

    return run


def _computed(name: str, call: Call, rows: ColumnBatch) -> tuple[Array, Mask | None]:
    """The unscaled values of an operation, and where they are not null. Operations in it are not made Arrow arrays."""
    left, right = (argument.type for argument in call.arguments)
    (one, other), valid = unscaled_arguments(call.arguments, rows)
    (ansi,) = call.options

    def error(what: str) -> Callable[[int], EvaluationError]:
        def at_row(row: int) -> EvaluationError:
            shown = f"{_format(one, left.scale, row)} {SYMBOLS[name]} {_format(other, right.scale, row)}"
            return EvaluationError(
                f"{what} in {shown}",
                detail=f"the result type is {call.type}",
                hint=ANSI_HINT if ansi else CASE_HINT,
            )

        return at_row

    if name in DIVISIONS:
        zero = np.equal(other, 0)
        if zero.any():
            zero = np.broadcast_to(zero, rows.count)
            if ansi:
                fail_where(zero, valid, error("division by zero"))
            other, valid = np.where(zero, 1, other), and_validity(valid, ~zero)
    if name in ("remainder", "pmod"):
        check_quotient_digits(one, left, other, right, valid, error("quotient with too many digits"))
    integers, scale = _OPERATIONS[name](one, left.scale, other, right.scale, call.type)
    result = np.broadcast_to(np.asarray(rescale(integers, call.type.scale - scale)), rows.count)
    return _checked(call.type, result, valid, ansi, error("overflow"))


def _format(integers: Integers, scale: int, row: int) -> str:
    number = int(integers if isinstance(integers, int) else integers[row])
    digits = str(abs(number)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if number < 0 else text


SYMBOLS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "remainder": "%",
    "pmod": "pmod",
    "quotient": "div",
}
"""How errors show an operation."""

DIVISIONS = frozenset({"divide", "remainder", "pmod", "quotient"})


def align(one: Integers, scale: int, other: Integers, other_scale: int) -> tuple[Integers, Integers, int]:
    """Unscaled values of two operands for the larger of their scales, and that scale."""
    common = max(scale, other_scale)
    return rescale(one, common - scale), rescale(other, common - other_scale), common


def _sum(
    one: Integers, scale: int, other: Integers, other_scale: int, kind: pa.DataType, sign: int
) -> tuple[Integers, int]:
    one, other, scale = align(one, scale, other, other_scale)
    if kind.precision > 18 and max_magnitude(one) + max_magnitude(other) >= _LIMIT:
        one, other = as_objects(one), as_objects(other)
    return one + other if sign > 0 else one - other, scale


def _product(one: Integers, scale: int, other: Integers, other_scale: int) -> tuple[Integers, int]:
    if max_magnitude(one) * max_magnitude(other) >= _LIMIT:
        one, other = as_objects(one), as_objects(other)
    return one * other, scale + other_scale


def _quotient(one: Integers, scale: int, other: Integers, other_scale: int, kind: pa.DataType) -> tuple[Integers, int]:
    one = rescale(one, kind.scale - scale + other_scale)
    return divide_half_up(one, other), kind.scale


def _remainder(one: Integers, scale: int, other: Integers, other_scale: int) -> tuple[Integers, int]:
    one, other, scale = align(one, scale, other, other_scale)
    return _signed_remainder(one, other), scale


def _signed_remainder(one: Integers, other: Integers) -> Integers:
    one, other = _absolute(one, other)
    magnitude = abs(one) % abs(other)
    return np.where(np.less(one, 0), -magnitude, magnitude)


def _positive_remainder(one: Integers, scale: int, other: Integers, other_scale: int) -> tuple[Integers, int]:
    one, other, scale = align(one, scale, other, other_scale)
    remainder = _signed_remainder(one, other)
    if max_magnitude(other) * 2 >= _LIMIT:
        remainder, other = as_objects(remainder), as_objects(other)
    return np.where(np.less(remainder, 0), _signed_remainder(remainder + other, other), remainder), scale


_OPERATIONS: dict[str, Callable[[Any, int, Any, int, pa.DataType], tuple[Any, int]]] = {
    "add": lambda one, scale, other, other_scale, kind: _sum(one, scale, other, other_scale, kind, 1),
    "subtract": lambda one, scale, other, other_scale, kind: _sum(one, scale, other, other_scale, kind, -1),
    "multiply": lambda one, scale, other, other_scale, kind: _product(one, scale, other, other_scale),
    "divide": _quotient,
    "remainder": lambda one, scale, other, other_scale, kind: _remainder(one, scale, other, other_scale),
    "pmod": lambda one, scale, other, other_scale, kind: _positive_remainder(one, scale, other, other_scale),
}

_NESTED = {f"decimal {name}": name for name in ("add", "subtract", "multiply")}
"""The operations that are computed as part of others, by the names of their functions."""
