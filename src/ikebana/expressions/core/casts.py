"""Casts between all types that Spark can cast, also inside arrays and structs, except intervals and maps.

In ANSI mode a value that cannot be cast raises an error. Otherwise the result is null, except that a number that is out
of the range of an integer type wraps (integers, decimals, timestamps) or is clamped (floats), as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import (
    Mask,
    and_validity,
    from_numpy,
    is_instant,
    is_local_timestamp,
    to_numpy,
    unpack_bits,
    validity,
)
from ikebana.encoding.lanes import Array
from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions.core import parsing, printing
from ikebana.expressions.core.base import ANSI_HINT, Call, Column, Config, Expression, builds, function
from ikebana.expressions.core.buffers import fail_where
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import arrow_type
from ikebana.expressions.numbers import decimals
from ikebana.expressions.temporal import zones

_INT64 = pa.int64()
_FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "boolean": types.is_boolean,
    "integer": types.is_integer,
    "float": types.is_floating,
    "decimal": types.is_decimal,
    "string": types.is_string,
    "binary": types.is_binary,
    "date": types.is_date,
    "timestamp": is_instant,
    "timestamp_ntz": is_local_timestamp,
    "void": types.is_null,
}


@dataclass(frozen=True)
class Conversion:
    """How values of one family of types are cast to another, and for which types a value may fail to be cast."""

    run: Callable[[Call, pa.Array], pa.Array]
    can_fail: Callable[[pa.DataType, pa.DataType], bool]


_CONVERSIONS: dict[tuple[str, str], Conversion] = {}


def _conversion(
    *pairs: str, fails: bool | Callable[[pa.DataType, pa.DataType], bool] = False
) -> Callable[[Callable[[Call, pa.Array], pa.Array]], Callable[[Call, pa.Array], pa.Array]]:
    """Register a conversion for pairs of families such as "integer decimal"."""
    can_fail = fails if callable(fails) else lambda source, target: bool(fails)

    def register(run: Callable[[Call, pa.Array], pa.Array]) -> Callable[[Call, pa.Array], pa.Array]:
        for pair in pairs:
            source, target = pair.split()
            _CONVERSIONS[source, target] = Conversion(run, can_fail)
        return run

    return register


def _family(kind: pa.DataType) -> str:
    return next((name for name, has in _FAMILIES.items() if has(kind)), "other")


@builds("Cast", "CheckOverflow")
def _cast(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    (child,), spark = children, tree.fields["dataType"]
    target = arrow_type(spark)
    if child.type == target and (_is_full_interval(spark) if _is_interval(spark) else not _has_months(tree)):
        return child
    parts = list(_parts(child.type, target))
    if _is_interval(spark) or _has_months(tree) or any(_families(*pair) not in _CONVERSIONS for pair in parts):
        shown = spark if isinstance(spark, str) else target
        raise SqlError(f"a cast from {child.type} to {shown} is not supported in a maintained view")
    nullable = child.nullable or (not config.ansi and any(_can_fail(*pair) for pair in parts))
    return Call(target, nullable, "cast", children, (config.ansi, tree.fields.get("timeZoneId") or config.time_zone))


def _parts(source: pa.DataType, target: pa.DataType) -> Iterator[tuple[pa.DataType, pa.DataType]]:
    """The pairs of different types to cast between, also inside arrays and structs."""
    if source == target:
        return
    if types.is_list(source) and types.is_list(target):
        yield from _parts(source.value_type, target.value_type)
    elif types.is_struct(source) and types.is_struct(target):
        for one, other in zip(source.fields, target.fields, strict=True):
            yield from _parts(one.type, other.type)
    else:
        yield source, target


def _families(source: pa.DataType, target: pa.DataType) -> tuple[str, str]:
    return _family(source), _family(target)


def _can_fail(source: pa.DataType, target: pa.DataType) -> bool:
    return _CONVERSIONS[_families(source, target)].can_fail(source, target)


def _is_interval(spark: Any) -> bool:
    return str(spark).startswith("interval")


def _is_full_interval(spark: Any) -> bool:
    """Whether a cast to an interval keeps every value: an interval that ends in months or seconds loses nothing."""
    return str(spark).endswith(("month", "second"))


def _has_months(tree: Tree) -> bool:
    """Whether the operand contains year-month intervals, which are stored as integers but not cast like integers."""
    nodes = [node for child in tree.children for node in child.walk()]
    kinds = (str(node.fields.get("dataType", "")) for node in nodes)
    return any("YMInterval" in node.kind for node in nodes) or any(
        kind.startswith(("interval year", "interval month")) for kind in kinds
    )


def _raises(call: Call) -> bool:
    parts = list(_parts(call.arguments[0].type, call.type))
    return any(_families(*pair) in _RAISING_IN_BOTH_MODES for pair in parts) or (
        call.options[0] and any(_can_fail(*pair) for pair in parts)
    )


_RAISING_IN_BOTH_MODES = {("string", "timestamp"), ("binary", "string")}
"""The casts that may raise in both modes."""


@function("cast", raises=_raises)
def _run(call: Call, array: pa.Array) -> pa.Array:
    if array.type == call.type:
        return array
    if types.is_list(array.type):
        return _list(call, array)
    if types.is_struct(array.type):
        return _struct(call, array)
    return _CONVERSIONS[_families(array.type, call.type)].run(call, array)


def _cast_inside(call: Call, array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The elements or a field of nested values, cast to a type."""
    part = Column(array.type, True, str(call.arguments[0]))
    return _run(Call(kind, True, call.function, (part,), call.options), array)


def _list(call: Call, array: pa.Array) -> pa.Array:
    elements = _cast_inside(call, array.flatten(), call.type.value_type)
    lengths = to_numpy(pc.list_value_length(array).fill_null(0))
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(ends, elements, call.type, mask=array.is_null() if array.null_count else None)


def _struct(call: Call, array: pa.Array) -> pa.Array:
    fields = list(call.type.fields)
    parts = [_cast_inside(call, part, field.type) for part, field in zip(array.flatten(), fields, strict=True)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)


def _error(call: Call, value: Any, reason: str) -> EvaluationError:
    return EvaluationError(
        f"cannot cast {value} from {call.arguments[0].type} to {call.type}",
        detail=f"{reason}, in {call}",
        hint=ANSI_HINT,
    )


def _check(call: Call, array: pa.Array, bad: Mask, reason: str) -> None:
    """In ANSI mode, raise an error if a row is bad."""
    if call.options[0]:
        fail_where(bad, validity(array), lambda row: _error(call, _show(array[row]), reason))


def _show(scalar: pa.Scalar) -> str:
    try:
        return repr(scalar.as_py()) if types.is_string(scalar.type) else str(scalar.as_py())
    except (ValueError, OverflowError):  # the year is out of Python's range
        return f"the value {scalar.value}"


# To integers.


def _narrows(source: pa.DataType, target: pa.DataType) -> bool:
    return bool(source.bit_width > target.bit_width)


@_conversion("integer integer", fails=_narrows)
def _integer_integer(call: Call, array: pa.Array) -> pa.Array:
    numbers = to_numpy(array)
    if _narrows(array.type, call.type):
        limits = np.iinfo(call.type.to_pandas_dtype())
        _check(call, array, (numbers < limits.min) | (numbers > limits.max), "it is out of range")
    return from_numpy(call.type, numbers.astype(call.type.to_pandas_dtype()), validity(array))


@_conversion("float integer", fails=True)
def _float_integer(call: Call, array: pa.Array) -> pa.Array:
    numbers = to_numpy(array).astype(np.float64)
    low, high = _limits(call.type)
    bad = ~((np.floor(numbers) <= float(high)) & (np.ceil(numbers) >= float(low)))
    _check(call, array, bad, "it is out of range")
    first = call.type if call.type.bit_width >= 32 else pa.int32()
    return from_numpy(call.type, _truncated(numbers, first).astype(call.type.to_pandas_dtype()), validity(array))


def _limits(kind: pa.DataType) -> tuple[int, int]:
    limits = np.iinfo(kind.to_pandas_dtype())
    return int(limits.min), int(limits.max)


def _truncated(numbers: Array, kind: pa.DataType) -> Array:
    """Floats truncated to integers and clamped to the range of a type; NaN becomes 0."""
    low, high = _limits(kind)
    numbers = np.where(np.isnan(numbers), 0.0, numbers)
    above, below = numbers >= float(high), numbers <= float(low)
    truncated = np.where(above | below, 0.0, numbers).astype(np.int64)
    return np.where(above, high, np.where(below, low, truncated))


@_conversion("decimal integer", fails=True)
def _decimal_integer(call: Call, array: pa.Array) -> pa.Array:
    if call.options[0] and array.type.precision > 18 and call.type.bit_width < 64:
        return _float_integer(call, _nearest(array, pa.float64()))  # as Spark does
    integers: Any = decimals.divide_truncating(decimals.to_unscaled(array), 10**array.type.scale)
    low, high = _limits(call.type)
    _check(call, array, np.asarray((integers < low) | (integers > high), bool), "it is out of range")
    return from_numpy(call.type, decimals.low_words(integers).astype(call.type.to_pandas_dtype()), validity(array))


@_conversion("string integer", fails=True)
def _string_integer(call: Call, array: pa.Array) -> pa.Array:
    return _parsed(call, array, parsing.to_integer(array, call.type, truncate=not call.options[0]))


def _parsed(call: Call, array: pa.Array, parsed: pa.Array) -> pa.Array:
    """The values parsed from strings; in ANSI mode, raise an error if a string could not be parsed."""
    if call.options[0] and parsed.null_count > array.null_count:
        _check(call, array, unpack_bits(parsed.is_null()), "it is not a valid value of that type")
    return parsed


@_conversion("boolean integer", "boolean float")
def _boolean_number(call: Call, array: pa.Array) -> pa.Array:
    return array.cast(call.type)


@_conversion("timestamp integer", fails=_narrows)
def _timestamp_integer(call: Call, array: pa.Array) -> pa.Array:
    seconds = to_numpy(array) // zones.SECOND
    low, high = _limits(call.type)
    bad = (seconds < low) | (seconds > high)
    _check(call, array, bad, "it is out of range")
    return from_numpy(call.type, seconds.astype(call.type.to_pandas_dtype()), and_validity(validity(array), ~bad))


# To floats.


@_conversion("integer float", "float float")
def _number_float(call: Call, array: pa.Array) -> pa.Array:
    with np.errstate(over="ignore"):
        return from_numpy(call.type, to_numpy(array).astype(call.type.to_pandas_dtype()), validity(array))


@_conversion("decimal float")
def _decimal_float(call: Call, array: pa.Array) -> pa.Array:
    """The nearest float: by a correctly rounded division where possible, else by parsing the digits."""
    return _nearest(array, call.type)


def _nearest(array: pa.Array, kind: pa.DataType) -> pa.Array:
    unscaled, scale = decimals.to_unscaled(array), array.type.scale
    exact, max_scale = (2**53, 22) if kind == pa.float64() else (2**24, 10)
    if decimals.max_magnitude(unscaled) <= exact and scale <= max_scale:
        dtype: Any = kind.to_pandas_dtype()
        return from_numpy(kind, unscaled.astype(dtype) / dtype(10**scale), validity(array))
    return array.cast(pa.string()).cast(kind)


@_conversion("string float", fails=True)
def _string_float(call: Call, array: pa.Array) -> pa.Array:
    return _parsed(call, array, parsing.to_float(array, call.type))


@_conversion("timestamp float")
def _timestamp_float(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, to_numpy(array) / float(zones.SECOND), validity(array))


# To decimals.


def _loses_digits(source: pa.DataType, target: pa.DataType) -> bool:
    if types.is_boolean(source):
        return bool(target.precision == target.scale)
    digits = {8: 3, 16: 5, 32: 10, 64: 19}
    before = digits[source.bit_width] if types.is_integer(source) else source.precision - source.scale
    room = target.precision - target.scale
    rounds_up = types.is_decimal(source) and source.scale > target.scale
    return bool(before + rounds_up > room)


def _fitted(call: Call, array: pa.Array, unscaled: Any, valid: Mask | None) -> pa.Array:
    return decimals.checked_decimals(
        call.type,
        unscaled,
        valid,
        call.options[0],
        lambda row: _error(call, _show(array[row]), "it has too many digits"),
    )


@_conversion("integer decimal", "boolean decimal", fails=_loses_digits)
def _integer_decimal(call: Call, array: pa.Array) -> pa.Array:
    unscaled = decimals.rescale(to_numpy(array).astype(np.int64), call.type.scale)
    return _fitted(call, array, unscaled, validity(array))


@_conversion("decimal decimal", fails=_loses_digits)
def _decimal_decimal(call: Call, array: pa.Array) -> pa.Array:
    unscaled = decimals.rescale(decimals.to_unscaled(array), call.type.scale - array.type.scale)
    return _fitted(call, array, unscaled, validity(array))


@_conversion("float decimal", fails=True)
def _float_decimal(call: Call, array: pa.Array) -> pa.Array:
    """The decimal digits of the float, rounded half up; NaN and infinities become null in both modes."""
    numbers, valid = to_numpy(array).astype(np.float64), validity(array)
    finite = np.isfinite(numbers)
    numbers, valid = np.where(finite, numbers, 0.0), valid if finite.all() else and_validity(valid, finite)
    return _fitted(call, array, decimals.round_floats(numbers, call.type.scale), valid)


@_conversion("timestamp decimal", fails=True)
def _timestamp_decimal(call: Call, array: pa.Array) -> pa.Array:
    return _fitted(call, array, decimals.rescale(to_numpy(array), call.type.scale - 6), validity(array))


@_conversion("string decimal", fails=True)
def _string_decimal(call: Call, array: pa.Array) -> pa.Array:
    return _parsed(call, array, parsing.to_decimal(array, call.type))


# To booleans.


@_conversion("integer boolean", "float boolean", "timestamp boolean")
def _number_boolean(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, to_numpy(array) != 0, validity(array))


@_conversion("decimal boolean")
def _decimal_boolean(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, np.not_equal(decimals.to_unscaled(array), 0), validity(array))


@_conversion("string boolean", fails=True)
def _string_boolean(call: Call, array: pa.Array) -> pa.Array:
    return _parsed(call, array, parsing.to_boolean(array))


# To strings and bytes.


@_conversion("integer string", "boolean string")
def _plain_string(call: Call, array: pa.Array) -> pa.Array:
    return array.cast(call.type)


@_conversion("float string")
def _float_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_float(array)


@_conversion("decimal string")
def _decimal_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_decimal(array, plain=call.options[0])


@_conversion("date string")
def _date_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_date(array)


@_conversion("timestamp string")
def _timestamp_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_local_time(zones.to_clock(to_numpy(array), call.options[1]), validity(array))


@_conversion("timestamp_ntz string")
def _timestamp_ntz_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_local_time(to_numpy(array), validity(array))


@_conversion("binary string")
def _binary_string(call: Call, array: pa.Array) -> pa.Array:
    try:
        return array.cast(call.type)
    except pa.ArrowInvalid:
        raise EvaluationError(
            f"{call.arguments[0]} is not valid UTF-8",
            detail="binary values are cast to strings only if they are UTF-8",
            hint="use base64() or hex() instead of the cast",
        ) from None


@_conversion("string binary")
def _string_binary(call: Call, array: pa.Array) -> pa.Array:
    return array.cast(call.type)


@_conversion("integer binary")
def _integer_binary(call: Call, array: pa.Array) -> pa.Array:
    """The bytes of an integer in big-endian order."""
    data = to_numpy(array).byteswap()
    width = data.dtype.itemsize
    fixed = pa.Array.from_buffers(pa.binary(width), len(data), [None, pa.py_buffer(np.ascontiguousarray(data))])
    return pc.if_else(array.is_valid(), fixed.cast(call.type), pa.scalar(None, call.type))


# To dates and times.


@_conversion("string date", fails=True)
def _string_date(call: Call, array: pa.Array) -> pa.Array:
    return _parsed(call, array, parsing.to_date(array))


@_conversion("string timestamp", fails=True)
def _string_timestamp(call: Call, array: pa.Array) -> pa.Array:
    return _parsed(call, array, parsing.to_timestamp(array, call.options[1]))


@_conversion("string timestamp_ntz", fails=True)
def _string_timestamp_ntz(call: Call, array: pa.Array) -> pa.Array:
    return _parsed(call, array, parsing.to_timestamp_ntz(array))


@_conversion("timestamp date")
def _timestamp_date(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, zones.to_clock(to_numpy(array), call.options[1]) // zones.DAY, validity(array))


@_conversion("timestamp_ntz date")
def _timestamp_ntz_date(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, to_numpy(array) // zones.DAY, validity(array))


@_conversion("date timestamp", "date timestamp_ntz")
def _date_timestamp(call: Call, array: pa.Array) -> pa.Array:
    midnight = to_numpy(array).astype(np.int64) * zones.DAY
    if call.type.tz is not None:
        midnight = zones.to_instant(midnight, call.options[1])
    return from_numpy(call.type, midnight, validity(array))


@_conversion("timestamp timestamp_ntz")
def _timestamp_timestamp_ntz(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, zones.to_clock(to_numpy(array), call.options[1]), validity(array))


@_conversion("timestamp_ntz timestamp")
def _timestamp_ntz_timestamp(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, zones.to_instant(to_numpy(array), call.options[1]), validity(array))


@_conversion("integer timestamp")
def _integer_timestamp(call: Call, array: pa.Array) -> pa.Array:
    """Seconds since 1970, clamped to the range of timestamps."""
    seconds = to_numpy(array).astype(np.int64)
    low, high = _limits(_INT64)
    most = high // zones.SECOND
    micros = np.clip(seconds, -most, most) * zones.SECOND
    return from_numpy(
        call.type, np.where(seconds > most, high, np.where(seconds < -most, low, micros)), validity(array)
    )


@_conversion("float timestamp", fails=True)
def _float_timestamp(call: Call, array: pa.Array) -> pa.Array:
    seconds = to_numpy(array).astype(np.float64)
    bad = ~np.isfinite(seconds)
    with np.errstate(all="ignore"):
        micros = seconds * zones.SECOND
    low, high = _limits(_INT64)
    outside = bad | ~((np.floor(micros) <= float(high)) & (np.ceil(micros) >= float(low)))
    _check(call, array, outside, "it is out of range")
    return from_numpy(call.type, _truncated(micros, _INT64), and_validity(validity(array), ~bad))


@_conversion("decimal timestamp", fails=True)
def _decimal_timestamp(call: Call, array: pa.Array) -> pa.Array:
    unscaled: Any = decimals.to_unscaled(array)
    if decimals.max_magnitude(unscaled) * zones.SECOND >= 2**63:
        unscaled = decimals.as_objects(unscaled)
    micros: Any = decimals.divide_truncating(unscaled * zones.SECOND, 10**array.type.scale)
    return from_numpy(call.type, decimals.low_words(micros), validity(array))


@_conversion("boolean timestamp")
def _boolean_timestamp(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, to_numpy(array).astype(np.int64), validity(array))


@_conversion(*(f"date {name}" for name in ("boolean", "integer", "float", "decimal")), fails=True)
def _all_null(call: Call, array: pa.Array) -> pa.Array:
    return pa.nulls(len(array), call.type)


for _name in _FAMILIES:
    _conversion(f"void {_name}")(_all_null)


# Decimals and their unscaled values.


@builds("UnscaledValue")
def _unscaled(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    return Call(_INT64, children[0].nullable, "unscaled", children)


@function("unscaled")
def _run_unscaled(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(_INT64, decimals.low_words(decimals.to_unscaled(array)), validity(array))


@builds("MakeDecimal")
def _make_decimal(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    kind = pa.decimal128(int(tree.fields["precision"]), int(tree.fields["scale"]))
    nullable = children[0].nullable or not config.ansi
    return Call(kind, nullable, "make decimal", children, (config.ansi,))


@function("make decimal", raises=lambda call: bool(call.options[0]))
def _run_make_decimal(call: Call, array: pa.Array) -> pa.Array:
    return _fitted(call, array, to_numpy(array), validity(array))
