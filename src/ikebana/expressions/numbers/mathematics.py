"""Mathematical functions.

Exponentials, logarithms, cube roots and trigonometric functions use the C library where Spark uses Java's, so the last
digit may differ. All other functions are exact. A logarithm that is undefined is null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import from_numpy
from ikebana.errors import EvaluationError
from ikebana.expressions.core.base import ANSI_HINT, Call, Config
from ikebana.expressions.core.scalars import (
    Value,
    map_distinct,
    maps,
    raise_where,
    row_count,
    to_int64,
    to_numpy_values,
)
from ikebana.expressions.core.tree import Tree

_DOUBLE, _INT, _STRING = pa.float64(), pa.int32(), pa.string()


def _of_one(kind: str, compute: Callable[[Any], Any]) -> None:
    @maps(kind, gives=_DOUBLE, nullable=True)
    def _(call: Call, number: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            return from_numpy(_DOUBLE, compute(to_numpy_values(number)))


def _of_two(kind: str, compute: Callable[[Any, Any], Any]) -> None:
    @maps(kind, gives=_DOUBLE)
    def _(call: Call, one: Value, other: Value) -> pa.Array:
        with np.errstate(all="ignore"):
            return from_numpy(_DOUBLE, compute(to_numpy_values(one), to_numpy_values(other)))


def _asinh(x: Any) -> Any:
    return np.copysign(np.log(np.abs(x) + np.sqrt(x * x + 1.0)), x)


_OF_ONE: dict[str, Callable[[Any], Any]] = {
    "Sqrt": np.sqrt,
    "Cbrt": np.cbrt,
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Cot": lambda x: 1 / np.tan(x),
    "Sec": lambda x: 1 / np.cos(x),
    "Csc": lambda x: 1 / np.sin(x),
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Tanh": np.tanh,
    "Asinh": _asinh,
    "Acosh": lambda x: np.log(x + np.sqrt(x * x - 1.0)),
    "Atanh": lambda x: 0.5 * (np.log1p(x) - np.log1p(-x)),
    "ToDegrees": lambda x: x * 57.29577951308232,
    "ToRadians": lambda x: x * 0.017453292519943295,
    "Signum": lambda x: np.where(x == 0, x, np.sign(x)),
    "Rint": np.rint,
}
for _kind, _compute in _OF_ONE.items():
    _of_one(_kind, _compute)


def _power(base: Any, exponent: Any) -> Any:
    """The power as in Java, where 1 and -1 to the power of NaN or infinity are NaN."""
    is_special = (np.abs(base) == 1) & (np.isnan(exponent) | np.isinf(exponent))
    return np.where(is_special, np.nan, np.power(base, exponent))


_of_two("Pow", _power)
_of_two("Atan2", lambda y, x: np.arctan2(y + 0.0, x + 0.0))
_of_two("Hypot", np.hypot)


# Logarithms.


def _logarithm(kind: str, compute: Callable[[Any], Any], above: float) -> None:
    @maps(kind, gives=_DOUBLE, nullable=True)
    def _(call: Call, number: pa.Array) -> pa.Array:
        value = to_numpy_values(number)
        with np.errstate(all="ignore"):
            return from_numpy(_DOUBLE, compute(value), ~(value <= above))


_logarithm("Log", np.log, 0.0)
_logarithm("Log2", lambda x: np.log(x) / np.log(2.0), 0.0)
_logarithm("Log10", np.log10, 0.0)
_logarithm("Log1p", np.log1p, -1.0)


@maps("Logarithm", gives=_DOUBLE, nullable=True)
def _log(call: Call, base: Value, number: Value) -> pa.Array:
    by, value = np.broadcast_arrays(to_numpy_values(base), to_numpy_values(number))
    with np.errstate(all="ignore"):
        return from_numpy(_DOUBLE, np.log(value) / np.log(by), ~((by <= 0) | (value <= 0)))


# Integers.

_FACTORIALS = np.cumprod([1, *range(1, 21)], dtype=np.int64)


@maps("Factorial", gives=pa.int64(), nullable=True)
def _factorial(call: Call, number: pa.Array) -> pa.Array:
    value = to_int64(number)
    return from_numpy(pa.int64(), _FACTORIALS[np.clip(value, 0, 20)], (value >= 0) & (value <= 20))


@maps("BitwiseCount", gives=_INT)
def _bit_count(call: Call, number: pa.Array) -> pa.Array:
    return from_numpy(_INT, np.bitwise_count(to_int64(number).view(np.uint64)))


@maps("BitwiseGet", gives=pa.int8(), raises=True)
def _bit_get(call: Call, number: Value, position: Value) -> pa.Array:
    value, at = np.broadcast_arrays(to_int64(number), to_int64(position))
    size = number.type.bit_width
    raise_where((at < 0) | (at >= size), call, f"the bit position must be between 0 and {size - 1}", number, position)
    return from_numpy(pa.int8(), value >> np.clip(at, 0, 63) & 1)


@maps("Bin", gives=_STRING)
def _bin(call: Call, number: pa.Array) -> pa.Array:
    return map_distinct(lambda value: f"{value & (2**64 - 1):b}", _STRING, number)


@maps("WidthBucket", gives=pa.int64(), nullable=True)
def _width_bucket(call: Call, value: Value, low: Value, high: Value, count: Value) -> pa.Array:
    x, start, end = (to_numpy_values(argument).astype(float) for argument in (value, low, high))
    buckets = to_int64(count)
    defined = (
        (buckets > 0) & (buckets < 2**63 - 1) & np.isfinite(start) & np.isfinite(end) & (start != end) & ~np.isnan(x)
    )
    lower, upper = np.minimum(start, end), np.maximum(start, end)
    with np.errstate(all="ignore"):
        inside = buckets * (np.where(start < end, x - lower, upper - x) / (upper - lower))
        below, above = np.where(start < end, x < lower, x > upper), np.where(start < end, x >= upper, x <= lower)
        middle = np.where(below | above | ~defined, 0, inside).astype(np.int64) + 1
    bucket = np.where(below, 0, np.where(above, buckets + 1, middle))
    rows = row_count(value, low, high, count)
    return from_numpy(pa.int64(), np.broadcast_to(bucket, rows), np.broadcast_to(defined, rows))


# Number bases.

_UINT64_MAX = 2**64 - 1
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _ansi(tree: Tree, config: Config) -> tuple[Any, ...]:
    return (bool(tree.fields["ansiEnabled"]),)


@maps("Conv", gives=_STRING, nullable=True, options=_ansi, raises=lambda call: bool(call.options[0]))
def _conv(call: Call, text: Value, source: Value, target: Value) -> pa.Array:
    def compute(text: str, source: int, target: int) -> str | None:
        return _converted(text.strip(" "), source, target, call.options[0])

    return map_distinct(compute, _STRING, text, source, target)


def _converted(text: str, source: int, target: int, ansi: bool) -> str | None:
    """Convert a 64-bit number to another base, signed if `target` is negative; ignore characters after the digits."""
    if not (2 <= source <= 36 and 2 <= abs(target) <= 36) or not text:
        return None
    negative = text[0] == "-"
    value = 0
    for character in text[negative:].upper():
        digit = _DIGITS.find(character)
        if not 0 <= digit < source:
            break
        value = value * source + digit
    if value > _UINT64_MAX:
        if ansi:
            raise EvaluationError(
                f"cannot convert {text!r} from base {source}",
                detail="it does not fit into 64 bits",
                hint=ANSI_HINT,
            )
        value = _UINT64_MAX
    if negative and target > 0:
        value = (-value if value <= _UINT64_MAX >> 1 else -1) & _UINT64_MAX
    if target < 0:
        signed = value - (_UINT64_MAX + 1) if value > _UINT64_MAX >> 1 else value
        negative = negative or signed < 0
        value = abs(signed)
    return ("-" if negative and target < 0 else "") + _in_base(value, abs(target))


def _in_base(value: int, base: int) -> str:
    digits = ""
    while value:
        value, digit = divmod(value, base)
        digits = _DIGITS[digit] + digits
    return digits or "0"
