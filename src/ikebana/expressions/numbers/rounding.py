"""Rounding to integers, or to a number of digits after or before the decimal point.

Doubles are rounded by their printed digits, as in Spark: 2.675 rounded to two digits is 2.68. Only numbers close to a
half, and large numbers, are actually printed, one by one; all others are rounded by vectorised arithmetic.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import from_numpy, to_numpy
from ikebana.errors import EvaluationError
from ikebana.expressions.core.base import CASE_HINT, Call, Config, Expression, Literal, builds, function
from ikebana.expressions.core.scalars import Arguments, raise_where, validity_of
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import MAX_PRECISION, bounded_decimal
from ikebana.expressions.numbers.decimals import as_objects, checked_decimals, low_words, max_magnitude, to_unscaled

_EXACT = Context(prec=400)
_DECIMAL_MODES = {"Round": ROUND_HALF_UP, "BRound": ROUND_HALF_EVEN}
_LIMIT = 2**63


def rounded_type(kind: pa.DataType, digits: int) -> pa.DataType:
    """The type of a number that is rounded to `digits` digits after the decimal point."""
    if not types.is_decimal(kind):
        return kind
    before = kind.precision - kind.scale + 1
    if digits < 0:
        return pa.decimal128(min(max(before, 1 - digits), MAX_PRECISION), 0)
    after = min(kind.scale, digits)
    return pa.decimal128(min(before + after, MAX_PRECISION), after)


@builds("Round", "BRound", "RoundCeil", "RoundFloor")
def _build(tree: Tree, children: Arguments, config: Config) -> Expression:
    number, digits = children
    if not isinstance(digits, Literal) or digits.value is None:
        return Literal(rounded_type(number.type, 0), True, None)
    ansi = bool(tree.fields.get("ansiEnabled", config.ansi))
    kind = rounded_type(number.type, digits.value)
    return Call(kind, True, "round", (number,), (tree.kind, digits.value, ansi))


@builds("Ceil", "Floor")
def _build_ceil_floor(tree: Tree, children: Arguments, config: Config) -> Expression:
    (number,) = children
    kind, ansi = pa.int64(), bool(tree.fields.get("failOnError", config.ansi))
    if types.is_decimal(number.type):
        before = number.type.precision - number.type.scale + 1
        kind = bounded_decimal(before, 0) if number.type.scale else number.type
    return Call(kind, True, "round", (number,), (f"Round{tree.kind}", 0, ansi))


def _may_raise(call: Call) -> bool:
    return not types.is_floating(call.type)


@function("round", raises=_may_raise)
def _round(call: Call, number: pa.Array) -> pa.Array:
    mode, digits, ansi = call.options
    if types.is_decimal(number.type):
        return _round_decimals(call, number, mode, digits)
    if types.is_integer(number.type):
        return number if digits >= 0 else _round_integers(call, number, mode, digits, ansi)
    if types.is_integer(call.type):
        return _to_integers(call, number, mode, ansi)
    rounded = _round_doubles(to_numpy(number).astype(np.float64), digits, _DECIMAL_MODES[mode])
    return from_numpy(call.type, rounded.astype(to_numpy(number).dtype), validity_of(number))


def _round_decimals(call: Call, number: pa.Array, mode: str, digits: int) -> pa.Array:
    """Round decimals; a result with too many digits raises an error in both modes, as in Spark."""
    integers = to_unscaled(number)
    if digits < number.type.scale:
        integers = _divided(integers, 10 ** (number.type.scale - digits), mode)
    if digits < 0:
        integers = (integers if max_magnitude(integers) * 10**-digits < _LIMIT else as_objects(integers)) * 10**-digits
    return checked_decimals(call.type, integers, validity_of(number), True, lambda row: _overflow(call))


def _overflow(call: Call) -> EvaluationError:
    return EvaluationError(
        f"cannot evaluate {call}",
        detail=f"a result is out of the range of {call.type}",
        hint=CASE_HINT,
    )


def _divided(integers: Any, factor: int, mode: str) -> Any:
    """Integers divided by a factor and rounded by a mode."""
    if factor >= 2**61 or max_magnitude(integers) >= 2**61:
        integers = as_objects(integers)
    if mode == "RoundFloor":
        return integers // factor
    if mode == "RoundCeil":
        return -(-integers // factor)
    quotient, remainder = abs(integers) // factor, abs(integers) % factor
    half = (2 * remainder > factor) | ((2 * remainder == factor) & ((mode == "Round") | (quotient % 2 == 1)))
    return np.where(integers < 0, -(quotient + half), quotient + half)


def _round_integers(call: Call, number: pa.Array, mode: str, digits: int, ansi: bool) -> pa.Array:
    """Round integers; an overflow raises an error in ANSI mode and wraps otherwise."""
    integers = to_numpy(number).astype(np.int64)
    limits = np.iinfo(to_numpy(number).dtype)
    if digits < -18 or limits.bits == 64:
        integers = integers.astype(object)
    result = _divided(integers, 10**-digits, mode) * 10**-digits
    if ansi:
        raise_where(
            np.asarray((result < limits.min) | (result > limits.max), bool), call, "the result overflows", number
        )
    return from_numpy(call.type, low_words(result).astype(to_numpy(number).dtype), validity_of(number))


def _to_integers(call: Call, number: pa.Array, mode: str, ansi: bool) -> pa.Array:
    """Floor or ceiling of doubles as int64; out of range, the nearest int64; 0 for NaN."""
    rounded = (np.ceil if mode == "RoundCeil" else np.floor)(to_numpy(number))
    outside = ~(np.abs(rounded) < _LIMIT)
    if ansi:
        raise_where(outside & (rounded != -_LIMIT) & ~np.isnan(rounded), call, "a number is too large", number)
    limits = np.iinfo(np.int64)
    nearest = np.where(np.isnan(rounded), 0, np.where(rounded > 0, limits.max, limits.min))
    return from_numpy(
        pa.int64(), np.where(outside, nearest, np.where(outside, 0, rounded).astype(np.int64)), validity_of(number)
    )


def _round_doubles(numbers: Any, digits: int, mode: str) -> Any:
    if abs(digits) > 22:
        return _round_exactly(numbers, np.isfinite(numbers), digits, mode, numbers.copy())
    with np.errstate(over="ignore", invalid="ignore"):
        shifted = np.abs(numbers) * 10.0**digits if digits >= 0 else np.abs(numbers) / 10.0**-digits
        magnitude = np.floor(shifted + 0.5)
        near = np.abs(shifted - np.floor(shifted) - 0.5) <= (shifted + 1) * 2.0**-50
        result = magnitude / 10.0**digits if digits >= 0 else magnitude * 10.0**-digits
        result = np.where(numbers < 0, -result, result) + 0.0
        doubtful = near | (shifted >= 2.0**50) | (np.abs(result) >= 2.0**53)
    finite = np.isfinite(numbers)
    return _round_exactly(numbers, doubtful & finite, digits, mode, np.where(finite, result, numbers))


def _round_exactly(numbers: Any, which: Any, digits: int, mode: str, result: Any) -> Any:
    """`result`, where the numbers that `which` marks are rounded exactly, by their printed digits."""
    if which.any():
        step = Decimal(1).scaleb(-digits)
        result[which] = [
            float(Decimal(repr(number)).quantize(step, mode, _EXACT)) + 0.0 for number in numbers[which].tolist()
        ]
    return result
