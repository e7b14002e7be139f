"""Rounding: to whole numbers, and to digits after the point or before it.

Doubles are rounded by the digits that they print with, as in Spark: 2.675 to two digits is 2.68. Only near a half, and
where numbers are large, are they printed; all else is computed for whole columns.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import from_numpy, to_numpy
from ikebana.errors import EvaluationError
from ikebana.expressions.core.base import Call, Config, Expression, Literal, builds, function
from ikebana.expressions.core.scalars import Arguments, refuse_where, valid
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import MAX_PRECISION, bounded
from ikebana.expressions.numbers.decimals import fitted, largest, unscaled, wide

_EXACT = Context(prec=400)
_DECIMAL_MODES = {"Round": ROUND_HALF_UP, "BRound": ROUND_HALF_EVEN}
_LIMIT = 2**63


def rounded_type(kind: pa.DataType, digits: int) -> pa.DataType:
    """The type of a number that was rounded to some digits after the point."""
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
def _build_whole(tree: Tree, children: Arguments, config: Config) -> Expression:
    (number,) = children
    kind, ansi = pa.int64(), bool(tree.fields.get("failOnError", config.ansi))
    if types.is_decimal(number.type):
        before = number.type.precision - number.type.scale + 1
        kind = bounded(before, 0) if number.type.scale else number.type
    return Call(kind, True, "round", (number,), (f"Round{tree.kind}", 0, ansi))


def _may_raise(call: Call) -> bool:
    return not types.is_floating(call.type)


@function("round", raises=_may_raise)
def _round(call: Call, number: pa.Array) -> pa.Array:
    mode, digits, ansi = call.options
    if types.is_decimal(number.type):
        return _decimals(call, number, mode, digits)
    if types.is_integer(number.type):
        return number if digits >= 0 else _integers(call, number, mode, digits, ansi)
    if types.is_integer(call.type):
        return _whole(call, number, mode, ansi)
    rounded = _doubles(to_numpy(number).astype(np.float64), digits, _DECIMAL_MODES[mode])
    return from_numpy(call.type, rounded.astype(to_numpy(number).dtype), valid(number))


def _decimals(call: Call, number: pa.Array, mode: str, digits: int) -> pa.Array:
    """What has too many digits raises in either mode, as in Spark."""
    whole = unscaled(number)
    if digits < number.type.scale:
        whole = _divided(whole, 10 ** (number.type.scale - digits), mode)
    if digits < 0:
        whole = (whole if largest(whole) * 10**-digits < _LIMIT else wide(whole)) * 10**-digits
    return fitted(call.type, whole, valid(number), True, lambda row: _overflow(call))


def _overflow(call: Call) -> EvaluationError:
    return EvaluationError(f"cannot evaluate {call}", detail=f"a result is out of the range of {call.type}")


def _divided(whole: Any, factor: int, mode: str) -> Any:
    """Whole numbers divided, and rounded."""
    if factor >= 2**61 or largest(whole) >= 2**61:
        whole = wide(whole)
    if mode == "RoundFloor":
        return whole // factor
    if mode == "RoundCeil":
        return -(-whole // factor)
    size, rest = abs(whole) // factor, abs(whole) % factor
    half = (2 * rest > factor) | ((2 * rest == factor) & ((mode == "Round") | (size % 2 == 1)))
    return np.where(whole < 0, -(size + half), size + half)


def _integers(call: Call, number: pa.Array, mode: str, digits: int, ansi: bool) -> pa.Array:
    """What overflows raises in ANSI mode, and wraps otherwise."""
    whole = to_numpy(number).astype(np.int64)
    limits = np.iinfo(to_numpy(number).dtype)
    if digits < -18 or limits.bits == 64:
        whole = whole.astype(object)
    result = _divided(whole, 10**-digits, mode) * 10**-digits
    if ansi:
        refuse_where(np.asarray((result < limits.min) | (result > limits.max), bool), call, "it overflows", number)
    if result.dtype == object:
        result = (result & (2**64 - 1)).astype(np.uint64).view(np.int64)
    return from_numpy(call.type, result.astype(to_numpy(number).dtype), valid(number))


def _whole(call: Call, number: pa.Array, mode: str, ansi: bool) -> pa.Array:
    """Doubles as whole numbers: the nearest of 64 bits for those that are out of range, 0 for NaN."""
    found = (np.ceil if mode == "RoundCeil" else np.floor)(to_numpy(number))
    outside = ~(np.abs(found) < _LIMIT)
    if ansi:
        refuse_where(outside & (found != -_LIMIT) & ~np.isnan(found), call, "a number is too large", number)
    limits = np.iinfo(np.int64)
    nearest = np.where(np.isnan(found), 0, np.where(found > 0, limits.max, limits.min))
    return from_numpy(
        pa.int64(), np.where(outside, nearest, np.where(outside, 0, found).astype(np.int64)), valid(number)
    )


def _doubles(numbers: Any, digits: int, mode: str) -> Any:
    if abs(digits) > 22:
        return _printed(numbers, np.isfinite(numbers), digits, mode, numbers.copy())
    with np.errstate(over="ignore", invalid="ignore"):
        shifted = np.abs(numbers) * 10.0**digits if digits >= 0 else np.abs(numbers) / 10.0**-digits
        whole = np.floor(shifted + 0.5)
        near = np.abs(shifted - np.floor(shifted) - 0.5) <= (shifted + 1) * 2.0**-50
        found = whole / 10.0**digits if digits >= 0 else whole * 10.0**-digits
        found = np.where(numbers < 0, -found, found) + 0.0
        doubtful = near | (shifted >= 2.0**50) | (np.abs(found) >= 2.0**53)
    finite = np.isfinite(numbers)
    return _printed(numbers, doubtful & finite, digits, mode, np.where(finite, found, numbers))


def _printed(numbers: Any, which: Any, digits: int, mode: str, found: Any) -> Any:
    """The exact way, for some of the numbers."""
    if which.any():
        step = Decimal(1).scaleb(-digits)
        found[which] = [
            float(Decimal(repr(each)).quantize(step, mode, _EXACT)) + 0.0 for each in numbers[which].tolist()
        ]
    return found
