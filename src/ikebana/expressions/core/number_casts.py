"""Casts to integers, floats, decimals and booleans.

In ANSI mode, numbers that are out of the range of the result raise an error. Otherwise integers, decimals and
timestamps wrap, floats are clamped, and decimals with too many digits are null, as in Spark.

Cost: one pass over the column, on integers where values fit into 64 bits; decimals of more than 18 digits take Python's
integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import Mask, and_validity, from_numpy, to_numpy, validity
from ikebana.expressions.core import parsing
from ikebana.expressions.core.base import Call, Config, Expression, builds, function
from ikebana.expressions.core.conversions import (
    cast_error,
    check_rows,
    conversion,
    integer_limits,
    parsed_values,
    shown_value,
    truncated_floats,
)
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.numbers import decimals
from ikebana.expressions.temporal import zones

_INT64 = pa.int64()

# To integers.


def _narrows(source: pa.DataType, target: pa.DataType) -> bool:
    return bool(source.bit_width > target.bit_width)


@conversion("integer integer", fails=_narrows)
def _integer_integer(call: Call, array: pa.Array) -> pa.Array:
    numbers = to_numpy(array)
    if _narrows(array.type, call.type):
        limits = np.iinfo(call.type.to_pandas_dtype())
        check_rows(call, array, (numbers < limits.min) | (numbers > limits.max), "it is out of range")
    return from_numpy(call.type, numbers.astype(call.type.to_pandas_dtype()), validity(array))


@conversion("float integer", fails=True)
def _float_integer(call: Call, array: pa.Array) -> pa.Array:
    numbers = to_numpy(array).astype(np.float64)
    low, high = integer_limits(call.type)
    bad = ~((np.floor(numbers) <= float(high)) & (np.ceil(numbers) >= float(low)))
    check_rows(call, array, bad, "it is out of range")
    first = call.type if call.type.bit_width >= 32 else pa.int32()
    return from_numpy(call.type, truncated_floats(numbers, first).astype(call.type.to_pandas_dtype()), validity(array))


@conversion("decimal integer", fails=True)
def _decimal_integer(call: Call, array: pa.Array) -> pa.Array:
    if call.options[0] and array.type.precision > 18 and call.type.bit_width < 64:
        return _float_integer(call, _nearest(array, pa.float64()))  # as Spark does
    integers: Any = decimals.divide_truncating(decimals.to_unscaled(array), 10**array.type.scale)
    low, high = integer_limits(call.type)
    check_rows(call, array, np.asarray((integers < low) | (integers > high), bool), "it is out of range")
    return from_numpy(call.type, decimals.low_words(integers).astype(call.type.to_pandas_dtype()), validity(array))


@conversion("string integer", fails=True)
def _string_integer(call: Call, array: pa.Array) -> pa.Array:
    return parsed_values(call, array, parsing.to_integer(array, call.type, truncate=not call.options[0]))


@conversion("boolean integer", "boolean float")
def _boolean_number(call: Call, array: pa.Array) -> pa.Array:
    return array.cast(call.type)


@conversion("timestamp integer", fails=_narrows)
def _timestamp_integer(call: Call, array: pa.Array) -> pa.Array:
    seconds = to_numpy(array) // zones.SECOND
    low, high = integer_limits(call.type)
    bad = (seconds < low) | (seconds > high)
    check_rows(call, array, bad, "it is out of range")
    return from_numpy(call.type, seconds.astype(call.type.to_pandas_dtype()), and_validity(validity(array), ~bad))


# To floats.


@conversion("integer float", "float float")
def _number_float(call: Call, array: pa.Array) -> pa.Array:
    with np.errstate(over="ignore"):
        return from_numpy(call.type, to_numpy(array).astype(call.type.to_pandas_dtype()), validity(array))


@conversion("decimal float")
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


@conversion("string float", fails=True)
def _string_float(call: Call, array: pa.Array) -> pa.Array:
    return parsed_values(call, array, parsing.to_float(array, call.type))


@conversion("timestamp float")
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
        lambda row: cast_error(call, shown_value(array[row]), "it has too many digits"),
    )


@conversion("integer decimal", "boolean decimal", fails=_loses_digits)
def _integer_decimal(call: Call, array: pa.Array) -> pa.Array:
    unscaled = decimals.rescale(to_numpy(array).astype(np.int64), call.type.scale)
    return _fitted(call, array, unscaled, validity(array))


@conversion("decimal decimal", fails=_loses_digits)
def _decimal_decimal(call: Call, array: pa.Array) -> pa.Array:
    unscaled = decimals.rescale(decimals.to_unscaled(array), call.type.scale - array.type.scale)
    return _fitted(call, array, unscaled, validity(array))


@conversion("float decimal", fails=True)
def _float_decimal(call: Call, array: pa.Array) -> pa.Array:
    """The decimal digits of the float, rounded half up; NaN and infinities become null in both modes."""
    numbers, valid = to_numpy(array).astype(np.float64), validity(array)
    finite = np.isfinite(numbers)
    numbers, valid = np.where(finite, numbers, 0.0), valid if finite.all() else and_validity(valid, finite)
    return _fitted(call, array, decimals.round_floats(numbers, call.type.scale), valid)


@conversion("timestamp decimal", fails=True)
def _timestamp_decimal(call: Call, array: pa.Array) -> pa.Array:
    return _fitted(call, array, decimals.rescale(to_numpy(array), call.type.scale - 6), validity(array))


@conversion("string decimal", fails=True)
def _string_decimal(call: Call, array: pa.Array) -> pa.Array:
    return parsed_values(call, array, parsing.to_decimal(array, call.type))


# To booleans.


@conversion("integer boolean", "float boolean", "timestamp boolean")
def _number_boolean(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, to_numpy(array) != 0, validity(array))


@conversion("decimal boolean")
def _decimal_boolean(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, np.not_equal(decimals.to_unscaled(array), 0), validity(array))


@conversion("string boolean", fails=True)
def _string_boolean(call: Call, array: pa.Array) -> pa.Array:
    return parsed_values(call, array, parsing.to_boolean(array))


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
