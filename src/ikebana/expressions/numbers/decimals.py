"""Arithmetic of decimals as Spark has it: exact, then rounded half up to the type of the result.

A column of decimals is a column of whole numbers, in units of the last digit. Here they are int64 where the values that
a call has allow it, whatever their type would, and Python's integers otherwise: a call looks at the largest value and
computes with int64 if nothing can overflow. That costs about ten nanoseconds for each row; the other way hundreds.
A literal is one number, not a column.

Types are those of Spark with spark.sql.decimalOperations.allowPrecisionLoss, which is its default.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import Flags, and_validity, decimal_words, from_decimal_words, validity
from ikebana.encoding.lanes import Array
from ikebana.errors import EvaluationError
from ikebana.expressions.core.base import Call, ColumnBatch, Expression, Literal
from ikebana.expressions.core.buffers import fail_where
from ikebana.expressions.core.types import adjusted, bounded

_LIMIT = 2**63
_WORD = 2**64
_EXACT = Context(prec=400)
_QUOTIENT_DIGITS = 39
_SIGN_DIGITS = 34

Whole = Any
"""An array of whole numbers, int64 or Python's; or one of Python's for all rows."""


# Columns as whole numbers, and back.


def unscaled(array: pa.Array) -> Array:
    """A column in units of its last digit: int64 where all values fit, else Python's integers."""
    low, high = decimal_words(array)
    if array.type.precision <= 18 or np.array_equal(high, low >> 63):
        return low
    wide = high.astype(object) * _WORD + low.view(np.uint64).astype(object)
    valid = validity(array)
    return wide if valid is None else np.where(valid, wide, 0)


def made_decimal(kind: pa.DataType, whole: Array, valid: Flags | None) -> pa.Array:
    """A column of decimals from whole numbers in units of its last digit, that must fit."""
    low = lowest(whole).astype(np.int64, copy=False)
    return from_decimal_words(kind, low, whole >> 64 if whole.dtype == object else low >> 63, valid)


def lowest(whole: Array) -> Array:
    """The lower 64 bits of each number."""
    return whole if whole.dtype != object else (whole & (_WORD - 1)).astype(np.uint64).view(np.int64)


def rounded(numbers: Array, scale: int) -> Array:
    """What doubles print as, in units of so many digits after the point, rounded half up.

    What a double prints as is within a rounding of what it is: only near a half can that decide, and only there, and
    where numbers are large, are they printed.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        shifted = np.abs(numbers) * 10.0**scale
        near = np.abs(shifted - np.floor(shifted) - 0.5) <= shifted * 2.0**-50
    whole, doubtful = np.floor(shifted + 0.5), near | (shifted >= 2.0**50)
    found = np.where(doubtful, 0, np.where(numbers < 0, -whole, whole)).astype(np.int64)
    if not doubtful.any():
        return found
    exact = [
        int(Decimal(repr(each)).scaleb(scale, _EXACT).to_integral_value(ROUND_HALF_UP))
        for each in numbers[doubtful].tolist()
    ]
    if max(map(abs, exact)) >= _LIMIT:
        found = found.astype(object)
    found[doubtful] = exact
    return found


def largest(whole: Whole) -> int:
    """The largest absolute value."""
    if isinstance(whole, int):
        return abs(whole)
    return max(int(whole.max()), -int(whole.min())) if len(whole) else 0


def wide(whole: Whole) -> Whole:
    """The same as Python's integers, which cannot overflow."""
    return whole if isinstance(whole, int) else whole.astype(object)


def scaled(whole: Whole, digits: int) -> Whole:
    """With so many more digits after the point, or so many less, rounded half up."""
    if digits == 0:
        return whole
    factor = 10 ** abs(digits)
    if digits > 0:
        return (whole if max(largest(whole), 1) * factor < _LIMIT else wide(whole)) * factor
    return divided(whole, factor)


def divided(one: Whole, other: Whole) -> Whole:
    """The quotient, rounded half up: away from zero."""
    if 2 * largest(one) + largest(other) >= _LIMIT:
        one, other = wide(one), wide(other)
    size = (2 * abs(one) + abs(other)) // (2 * abs(other))
    return np.where((np.less(one, 0)) != (np.less(other, 0)), -size, size)


def negated(kind: pa.DataType, array: pa.Array, *, only_negative: bool) -> pa.Array:
    """The negative of all values, or of the negative ones.

    Of what it negates Spark keeps 34 digits; if they then do not fit it raises, in either mode.
    """
    given, valid = unscaled(array), validity(array)
    whole: Whole = -(given if largest(given) < _LIMIT else wide(given))
    if largest(whole) >= 10**_SIGN_DIGITS:
        context = Context(prec=_SIGN_DIGITS, rounding=ROUND_HALF_EVEN)
        whole = np.array([int(context.create_decimal(each)) for each in whole.tolist()], object)
    if only_negative:
        whole = np.where(np.less(given, 0), whole, given)

    def error(row: int) -> EvaluationError:
        return EvaluationError(f"{whole[row]} has too many digits for {kind}", hint="cast it to fewer digits first")

    return fitted(kind, whole, valid, True, error)


def _absolute(one: Whole, other: Whole) -> tuple[Whole, Whole]:
    """The same two, so that both have an absolute value."""
    return (one, other) if max(largest(one), largest(other)) < _LIMIT else (wide(one), wide(other))


def truncated(one: Whole, other: Whole) -> Whole:
    """The quotient, rounded towards zero."""
    one, other = _absolute(one, other)
    size = abs(one) // abs(other)
    return np.where((np.less(one, 0)) != (np.less(other, 0)), -size, size)


def fitted(
    kind: pa.DataType, whole: Array, valid: Flags | None, ansi: bool, error: Callable[[int], EvaluationError]
) -> pa.Array:
    """A column of decimals; what has more digits than the type raises in ANSI mode, else it is null."""
    limit = 10**kind.precision
    if largest(whole) >= limit:
        bad = np.asarray((whole >= limit) | (whole <= -limit), bool)
        if ansi:
            fail_where(bad, valid, error)
        whole, valid = np.where(bad, 0, whole), and_validity(valid, ~bad)
    return made_decimal(kind, whole, valid)


# Arithmetic.


def result_type(name: str, left: pa.DataType, right: pa.DataType, loses: bool = True) -> tuple[pa.DataType, bool]:
    """The type of a result, and whether it may have too few digits for it.

    Where it would need more than 38 digits, it gives up some after the point if it `loses` precision; otherwise it
    keeps them, and has fewer before it.
    """
    whole, scale = max(left.precision - left.scale, right.precision - right.scale), max(left.scale, right.scale)
    match name:
        case "add" | "subtract":
            precision = whole + scale + 1
        case "multiply":
            precision, scale = left.precision + right.precision + 1, left.scale + right.scale
        case "divide":
            scale = max(6, left.scale + right.precision + 1)
            precision = left.precision - left.scale + right.scale + scale
        case "remainder" | "pmod":
            precision = min(left.precision - left.scale, right.precision - right.scale) + scale
    if loses:
        return adjusted(precision, scale), precision > 38
    kept = _lossless_quotient(left, right) if name == "divide" else bounded(precision, scale)
    return kept, precision > 38


def _lossless_quotient(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type of a quotient that loses no precision: missing digits are taken from both sides of the point."""
    whole = min(38, left.precision - left.scale + right.scale)
    scale = min(38, max(6, left.scale + right.precision + 1))
    missing = whole + scale - 38
    if missing > 0:
        scale -= missing // 2 + 1
        whole = 38 - scale
    return bounded(whole + scale, scale)


def quotient_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The decimal that holds a quotient without its fraction."""
    return bounded(max(left.precision - left.scale + right.scale, 1), 0)


def has_long_quotients(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether there are quotients that have more digits than Spark computes."""
    return bool(left.precision - left.scale + max(left.scale, right.scale) > _QUOTIENT_DIGITS)


def refuse_long(
    one: Whole, left: pa.DataType, other: Whole, right: pa.DataType, valid: Flags | None, error: Callable[[int], Any]
) -> None:
    """Raise, in either mode, where Spark cannot divide: the whole quotient has more digits than it computes."""
    if not has_long_quotients(left, right):
        return
    one, other, _ = aligned(one, left.scale, other, right.scale)
    if largest(one) < 10**_QUOTIENT_DIGITS:
        return
    sizes = np.broadcast_to(abs(truncated(one, other)), np.broadcast_shapes(np.shape(one), np.shape(other)))
    long = [len(str(each)) > _QUOTIENT_DIGITS and bool(str(each)[_QUOTIENT_DIGITS:].strip("0")) for each in sizes]
    fail_where(np.array(long), valid, error)


def numbers(expressions: tuple[Expression, ...], rows: ColumnBatch) -> tuple[list[Whole], Flags | None]:
    """Arguments as whole numbers, literals as one, and where none is null."""
    found: list[Whole] = []
    valid: Flags | None = None
    for each in expressions:
        if isinstance(each, Literal) and each.value is not None:
            found.append(int(unscaled(pa.repeat(each.scalar, 1))[0]))
        else:
            array = each.evaluate(rows)
            found.append(unscaled(array))
            valid = and_validity(valid, validity(array))
    return found, valid


def arithmetic(name: str, symbol: str) -> Callable[[Call, ColumnBatch], pa.Array]:
    """How calls of an operation on decimals are evaluated."""

    def run(call: Call, rows: ColumnBatch) -> pa.Array:
        left, right = (each.type for each in call.arguments)
        (one, other), valid = numbers(call.arguments, rows)
        (ansi,) = call.options

        def error(what: str) -> Callable[[int], EvaluationError]:
            def made(row: int) -> EvaluationError:
                shown = f"{_shown(one, left.scale, row)} {symbol} {_shown(other, right.scale, row)}"
                return EvaluationError(f"{what} in {shown}", detail=f"the result is {call.type}", hint=HINT)

            return made

        if name in DIVISIONS:
            zero = np.equal(other, 0)
            if zero.any():
                zero = np.broadcast_to(zero, rows.count)
                if ansi:
                    fail_where(zero, valid, error("division by zero"))
                other, valid = np.where(zero, 1, other), and_validity(valid, ~zero)
        if name in ("remainder", "pmod"):
            refuse_long(one, left, other, right, valid, error("too long a quotient"))
        whole, scale = _OPERATIONS[name](one, left.scale, other, right.scale, call.type)
        result = np.broadcast_to(np.asarray(scaled(whole, call.type.scale - scale)), rows.count)
        return fitted(call.type, result, valid, ansi, error("overflow"))

    return run


def _shown(whole: Whole, scale: int, row: int) -> str:
    number = int(whole if isinstance(whole, int) else whole[row])
    digits = str(abs(number)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if number < 0 else text


HINT = "change the data or the query, or set spark.sql.ansi.enabled to false to have null"
DIVISIONS = frozenset({"divide", "remainder", "pmod", "quotient"})


def aligned(one: Whole, scale: int, other: Whole, other_scale: int) -> tuple[Whole, Whole, int]:
    """Two numbers in the units of the finer one."""
    common = max(scale, other_scale)
    return scaled(one, common - scale), scaled(other, common - other_scale), common


def _sum(one: Whole, scale: int, other: Whole, other_scale: int, sign: int) -> tuple[Whole, int]:
    one, other, scale = aligned(one, scale, other, other_scale)
    if largest(one) + largest(other) >= _LIMIT:
        one, other = wide(one), wide(other)
    return one + other if sign > 0 else one - other, scale


def _product(one: Whole, scale: int, other: Whole, other_scale: int) -> tuple[Whole, int]:
    if largest(one) * largest(other) >= _LIMIT:
        one, other = wide(one), wide(other)
    return one * other, scale + other_scale


def _quotient(one: Whole, scale: int, other: Whole, other_scale: int, kind: pa.DataType) -> tuple[Whole, int]:
    one = scaled(one, kind.scale - scale + other_scale)
    return divided(one, other), kind.scale


def _remainder(one: Whole, scale: int, other: Whole, other_scale: int) -> tuple[Whole, int]:
    one, other, scale = aligned(one, scale, other, other_scale)
    return _signed_remainder(one, other), scale


def _signed_remainder(one: Whole, other: Whole) -> Whole:
    one, other = _absolute(one, other)
    size = abs(one) % abs(other)
    return np.where(np.less(one, 0), -size, size)


def _positive_remainder(one: Whole, scale: int, other: Whole, other_scale: int) -> tuple[Whole, int]:
    one, other, scale = aligned(one, scale, other, other_scale)
    rest = _signed_remainder(one, other)
    if largest(other) * 2 >= _LIMIT:
        rest, other = wide(rest), wide(other)
    return np.where(np.less(rest, 0), _signed_remainder(rest + other, other), rest), scale


_OPERATIONS: dict[str, Callable[[Any, int, Any, int, pa.DataType], tuple[Any, int]]] = {
    "add": lambda one, scale, other, other_scale, kind: _sum(one, scale, other, other_scale, 1),
    "subtract": lambda one, scale, other, other_scale, kind: _sum(one, scale, other, other_scale, -1),
    "multiply": lambda one, scale, other, other_scale, kind: _product(one, scale, other, other_scale),
    "divide": _quotient,
    "remainder": lambda one, scale, other, other_scale, kind: _remainder(one, scale, other, other_scale),
    "pmod": lambda one, scale, other, other_scale, kind: _positive_remainder(one, scale, other, other_scale),
}
