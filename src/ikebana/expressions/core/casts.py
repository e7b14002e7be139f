"""Casts between all types that Spark casts, inside of arrays and structs too; except intervals and maps.

In ANSI mode what cannot be cast raises; otherwise it is null, except that numbers that are too large for a type of
whole numbers wrap (whole numbers, decimals, timestamps) or are cut off at its limits (floats), as in Spark.
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
    Flags,
    and_validity,
    flags_of,
    from_numpy,
    is_instant,
    is_local_timestamp,
    to_numpy,
    validity,
)
from ikebana.encoding.lanes import Array
from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions.core import parsing, printing
from ikebana.expressions.core.base import Call, Column, Config, Expression, builds, function
from ikebana.expressions.core.buffers import fail_where
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import arrow_type
from ikebana.expressions.numbers import decimals
from ikebana.expressions.temporal import zones

_INT64 = pa.int64()
_FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "boolean": types.is_boolean,
    "whole": types.is_integer,
    "real": types.is_floating,
    "decimal": types.is_decimal,
    "string": types.is_string,
    "binary": types.is_binary,
    "date": types.is_date,
    "instant": is_instant,
    "clock": is_local_timestamp,
    "void": types.is_null,
}


@dataclass(frozen=True)
class Way:
    """How values of one family become values of another, and for which types that may fail."""

    run: Callable[[Call, pa.Array], pa.Array]
    fails: Callable[[pa.DataType, pa.DataType], bool]


_WAYS: dict[tuple[str, str], Way] = {}


def _way(
    *pairs: str, fails: bool | Callable[[pa.DataType, pa.DataType], bool] = False
) -> Callable[[Callable[[Call, pa.Array], pa.Array]], Callable[[Call, pa.Array], pa.Array]]:
    """Register a way for pairs such as "whole decimal"."""
    can = fails if callable(fails) else lambda source, target: bool(fails)

    def register(run: Callable[[Call, pa.Array], pa.Array]) -> Callable[[Call, pa.Array], pa.Array]:
        for pair in pairs:
            source, target = pair.split()
            _WAYS[source, target] = Way(run, can)
        return run

    return register


def _family(kind: pa.DataType) -> str:
    return next((name for name, has in _FAMILIES.items() if has(kind)), "other")


@builds("Cast", "CheckOverflow")
def _cast(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    (child,), spark = children, tree.fields["dataType"]
    target = arrow_type(spark)
    if child.type == target and (_is_whole_interval(spark) if _is_interval(spark) else not _has_months(tree)):
        return child
    parts = list(_parts(child.type, target))
    if _is_interval(spark) or _has_months(tree) or any(_families(*pair) not in _WAYS for pair in parts):
        shown = spark if isinstance(spark, str) else target
        raise SqlError(f"a cast from {child.type} to {shown} is not supported in a maintained view")
    nullable = child.nullable or (not config.ansi and any(_fails(*pair) for pair in parts))
    return Call(target, nullable, "cast", children, (config.ansi, tree.fields.get("timeZoneId") or config.time_zone))


def _parts(source: pa.DataType, target: pa.DataType) -> Iterator[tuple[pa.DataType, pa.DataType]]:
    """Pairs of types between which values are cast, inside of arrays and structs too."""
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


def _fails(source: pa.DataType, target: pa.DataType) -> bool:
    return _WAYS[_families(source, target)].fails(source, target)


def _is_interval(spark: Any) -> bool:
    return str(spark).startswith("interval")


def _is_whole_interval(spark: Any) -> bool:
    """Whether a cast to an interval leaves the number as it is: with months or seconds nothing is cut off."""
    return str(spark).endswith(("month", "second"))


def _has_months(tree: Tree) -> bool:
    """Whether intervals of months are among what is cast: they look like whole numbers, and are not cast like these."""
    nodes = [node for child in tree.children for node in child.walk()]
    kinds = (str(node.fields.get("dataType", "")) for node in nodes)
    return any("YMInterval" in node.kind for node in nodes) or any(
        each.startswith(("interval year", "interval month")) for each in kinds
    )


def _raises(call: Call) -> bool:
    parts = list(_parts(call.arguments[0].type, call.type))
    return any(_families(*pair) in _ALWAYS for pair in parts) or (
        call.options[0] and any(_fails(*pair) for pair in parts)
    )


_ALWAYS = {("string", "instant"), ("binary", "string")}
"""Casts that may raise in either mode."""


@function("cast", raises=_raises)
def _run(call: Call, array: pa.Array) -> pa.Array:
    if array.type == call.type:
        return array
    if types.is_list(array.type):
        return _list(call, array)
    if types.is_struct(array.type):
        return _struct(call, array)
    return _WAYS[_families(array.type, call.type)].run(call, array)


def _inside(call: Call, array: pa.Array, kind: pa.DataType) -> pa.Array:
    """What is inside of arrays or structs, cast to a type."""
    part = Column(array.type, True, str(call.arguments[0]))
    return _run(Call(kind, True, call.function, (part,), call.options), array)


def _list(call: Call, array: pa.Array) -> pa.Array:
    elements = _inside(call, array.flatten(), call.type.value_type)
    lengths = to_numpy(pc.list_value_length(array).fill_null(0))
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(ends, elements, call.type, mask=array.is_null() if array.null_count else None)


def _struct(call: Call, array: pa.Array) -> pa.Array:
    fields = list(call.type.fields)
    parts = [_inside(call, part, each.type) for part, each in zip(array.flatten(), fields, strict=True)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)


def _error(call: Call, value: Any, reason: str) -> EvaluationError:
    return EvaluationError(
        f"cannot cast {value} from {call.arguments[0].type} to {call.type}",
        detail=f"{reason}, in {call}",
        hint="change the data or the query, use try_cast, or set spark.sql.ansi.enabled to false",
    )


def _refused(call: Call, array: pa.Array, bad: Flags, reason: str) -> None:
    """Raise in ANSI mode if some row is bad."""
    if call.options[0]:
        fail_where(bad, validity(array), lambda row: _error(call, _shown(array[row]), reason))


def _shown(scalar: pa.Scalar) -> str:
    try:
        return repr(scalar.as_py()) if types.is_string(scalar.type) else str(scalar.as_py())
    except (ValueError, OverflowError):  # a year that Python does not have
        return f"the value {scalar.value}"


# To and from whole numbers.


def _narrows(source: pa.DataType, target: pa.DataType) -> bool:
    return bool(source.bit_width > target.bit_width)


@_way("whole whole", fails=_narrows)
def _whole_whole(call: Call, array: pa.Array) -> pa.Array:
    found = to_numpy(array)
    if _narrows(array.type, call.type):
        limits = np.iinfo(call.type.to_pandas_dtype())
        _refused(call, array, (found < limits.min) | (found > limits.max), "it is out of range")
    return from_numpy(call.type, found.astype(call.type.to_pandas_dtype()), validity(array))


@_way("real whole", fails=True)
def _real_whole(call: Call, array: pa.Array) -> pa.Array:
    found = to_numpy(array).astype(np.float64)
    low, high = _limits(call.type)
    bad = ~((np.floor(found) <= float(high)) & (np.ceil(found) >= float(low)))
    _refused(call, array, bad, "it is out of range")
    first = call.type if call.type.bit_width >= 32 else pa.int32()
    return from_numpy(call.type, _cut(found, first).astype(call.type.to_pandas_dtype()), validity(array))


def _limits(kind: pa.DataType) -> tuple[int, int]:
    limits = np.iinfo(kind.to_pandas_dtype())
    return int(limits.min), int(limits.max)


def _cut(numbers: Array, kind: pa.DataType) -> Array:
    """Floats as whole numbers, cut off at the limits; NaN is 0."""
    low, high = _limits(kind)
    numbers = np.where(np.isnan(numbers), 0.0, numbers)
    above, below = numbers >= float(high), numbers <= float(low)
    whole = np.where(above | below, 0.0, numbers).astype(np.int64)
    return np.where(above, high, np.where(below, low, whole))


@_way("decimal whole", fails=True)
def _decimal_whole(call: Call, array: pa.Array) -> pa.Array:
    if call.options[0] and array.type.precision > 18 and call.type.bit_width < 64:
        return _real_whole(call, _nearest(array, pa.float64()))  # as Spark does
    whole: Any = decimals.truncated(decimals.unscaled(array), 10**array.type.scale)
    low, high = _limits(call.type)
    _refused(call, array, np.asarray((whole < low) | (whole > high), bool), "it is out of range")
    return from_numpy(call.type, decimals.lowest(whole).astype(call.type.to_pandas_dtype()), validity(array))


@_way("string whole", fails=True)
def _string_whole(call: Call, array: pa.Array) -> pa.Array:
    return _read(call, array, parsing.to_integer(array, call.type, truncate=not call.options[0]))


def _read(call: Call, array: pa.Array, found: pa.Array) -> pa.Array:
    """What was read from strings; in ANSI mode all of it must have been."""
    if call.options[0] and found.null_count > array.null_count:
        _refused(call, array, flags_of(found.is_null()), "it cannot be read as such")
    return found


@_way("boolean whole", "boolean real")
def _boolean_number(call: Call, array: pa.Array) -> pa.Array:
    return array.cast(call.type)


@_way("instant whole", fails=_narrows)
def _instant_whole(call: Call, array: pa.Array) -> pa.Array:
    seconds = to_numpy(array) // zones.SECOND
    low, high = _limits(call.type)
    bad = (seconds < low) | (seconds > high)
    _refused(call, array, bad, "it is out of range")
    return from_numpy(call.type, seconds.astype(call.type.to_pandas_dtype()), and_validity(validity(array), ~bad))


# To floats.


@_way("whole real", "real real")
def _to_real(call: Call, array: pa.Array) -> pa.Array:
    with np.errstate(over="ignore"):
        return from_numpy(call.type, to_numpy(array).astype(call.type.to_pandas_dtype()), validity(array))


@_way("decimal real")
def _decimal_real(call: Call, array: pa.Array) -> pa.Array:
    """The nearest float: by dividing where that is exact up to its rounding, else by its digits."""
    return _nearest(array, call.type)


def _nearest(array: pa.Array, kind: pa.DataType) -> pa.Array:
    whole, scale = decimals.unscaled(array), array.type.scale
    exact, digits = (2**53, 22) if kind == pa.float64() else (2**24, 10)
    if decimals.largest(whole) <= exact and scale <= digits:
        dtype: Any = kind.to_pandas_dtype()
        return from_numpy(kind, whole.astype(dtype) / dtype(10**scale), validity(array))
    return array.cast(pa.string()).cast(kind)


@_way("string real", fails=True)
def _string_real(call: Call, array: pa.Array) -> pa.Array:
    return _read(call, array, parsing.to_real(array, call.type))


@_way("instant real")
def _instant_real(call: Call, array: pa.Array) -> pa.Array:
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


def _fitted(call: Call, array: pa.Array, whole: Any, valid: Flags | None) -> pa.Array:
    return decimals.fitted(
        call.type,
        whole,
        valid,
        call.options[0],
        lambda row: _error(call, _shown(array[row]), "it has too many digits"),
    )


@_way("whole decimal", "boolean decimal", fails=_loses_digits)
def _whole_decimal(call: Call, array: pa.Array) -> pa.Array:
    whole = decimals.scaled(to_numpy(array).astype(np.int64), call.type.scale)
    return _fitted(call, array, whole, validity(array))


@_way("decimal decimal", fails=_loses_digits)
def _decimal_decimal(call: Call, array: pa.Array) -> pa.Array:
    whole = decimals.scaled(decimals.unscaled(array), call.type.scale - array.type.scale)
    return _fitted(call, array, whole, validity(array))


@_way("real decimal", fails=True)
def _real_decimal(call: Call, array: pa.Array) -> pa.Array:
    """What a float prints as, rounded half up; NaN and infinities are null in either mode."""
    numbers, valid = to_numpy(array).astype(np.float64), validity(array)
    finite = np.isfinite(numbers)
    numbers, valid = np.where(finite, numbers, 0.0), valid if finite.all() else and_validity(valid, finite)
    return _fitted(call, array, decimals.rounded(numbers, call.type.scale), valid)


@_way("instant decimal", fails=True)
def _instant_decimal(call: Call, array: pa.Array) -> pa.Array:
    return _fitted(call, array, decimals.scaled(to_numpy(array), call.type.scale - 6), validity(array))


@_way("string decimal", fails=True)
def _string_decimal(call: Call, array: pa.Array) -> pa.Array:
    return _read(call, array, parsing.to_decimal(array, call.type))


# To booleans.


@_way("whole boolean", "real boolean", "instant boolean")
def _number_boolean(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, to_numpy(array) != 0, validity(array))


@_way("decimal boolean")
def _decimal_boolean(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, np.not_equal(decimals.unscaled(array), 0), validity(array))


@_way("string boolean", fails=True)
def _string_boolean(call: Call, array: pa.Array) -> pa.Array:
    return _read(call, array, parsing.to_boolean(array))


# To strings and bytes.


@_way("whole string", "boolean string")
def _plain_string(call: Call, array: pa.Array) -> pa.Array:
    return array.cast(call.type)


@_way("real string")
def _real_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_real(array)


@_way("decimal string")
def _decimal_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_decimal(array, plain=call.options[0])


@_way("date string")
def _date_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_date(array)


@_way("instant string")
def _instant_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_clock(zones.to_clock(to_numpy(array), call.options[1]), validity(array))


@_way("clock string")
def _clock_string(call: Call, array: pa.Array) -> pa.Array:
    return printing.of_clock(to_numpy(array), validity(array))


@_way("binary string")
def _binary_string(call: Call, array: pa.Array) -> pa.Array:
    try:
        return array.cast(call.type)
    except pa.ArrowInvalid:
        raise EvaluationError(
            f"the bytes of {call.arguments[0]} are no text", detail="they are not UTF-8", hint="encode them with base64"
        ) from None


@_way("string binary")
def _string_binary(call: Call, array: pa.Array) -> pa.Array:
    return array.cast(call.type)


@_way("whole binary")
def _whole_binary(call: Call, array: pa.Array) -> pa.Array:
    """The bytes of a number, the highest first."""
    data = to_numpy(array).byteswap()
    width = data.dtype.itemsize
    fixed = pa.Array.from_buffers(pa.binary(width), len(data), [None, pa.py_buffer(np.ascontiguousarray(data))])
    return pc.if_else(array.is_valid(), fixed.cast(call.type), pa.scalar(None, call.type))


# To dates and times.


@_way("string date", fails=True)
def _string_date(call: Call, array: pa.Array) -> pa.Array:
    return _read(call, array, parsing.to_date(array))


@_way("string instant", fails=True)
def _string_instant(call: Call, array: pa.Array) -> pa.Array:
    return _read(call, array, parsing.to_timestamp(array, call.options[1]))


@_way("string clock", fails=True)
def _string_clock(call: Call, array: pa.Array) -> pa.Array:
    return _read(call, array, parsing.to_clock(array))


@_way("instant date")
def _instant_date(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, zones.to_clock(to_numpy(array), call.options[1]) // zones.DAY, validity(array))


@_way("clock date")
def _clock_date(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, to_numpy(array) // zones.DAY, validity(array))


@_way("date instant", "date clock")
def _date_time(call: Call, array: pa.Array) -> pa.Array:
    midnight = to_numpy(array).astype(np.int64) * zones.DAY
    if call.type.tz is not None:
        midnight = zones.to_instant(midnight, call.options[1])
    return from_numpy(call.type, midnight, validity(array))


@_way("instant clock")
def _instant_clock(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, zones.to_clock(to_numpy(array), call.options[1]), validity(array))


@_way("clock instant")
def _clock_instant(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, zones.to_instant(to_numpy(array), call.options[1]), validity(array))


@_way("whole instant")
def _whole_instant(call: Call, array: pa.Array) -> pa.Array:
    """Seconds; cut off at the limits."""
    seconds = to_numpy(array).astype(np.int64)
    low, high = _limits(_INT64)
    most = high // zones.SECOND
    micros = np.clip(seconds, -most, most) * zones.SECOND
    return from_numpy(
        call.type, np.where(seconds > most, high, np.where(seconds < -most, low, micros)), validity(array)
    )


@_way("real instant", fails=True)
def _real_instant(call: Call, array: pa.Array) -> pa.Array:
    seconds = to_numpy(array).astype(np.float64)
    bad = ~np.isfinite(seconds)
    with np.errstate(all="ignore"):
        micros = seconds * zones.SECOND
    low, high = _limits(_INT64)
    outside = bad | ~((np.floor(micros) <= float(high)) & (np.ceil(micros) >= float(low)))
    _refused(call, array, outside, "it is out of range")
    return from_numpy(call.type, _cut(micros, _INT64), and_validity(validity(array), ~bad))


@_way("decimal instant", fails=True)
def _decimal_instant(call: Call, array: pa.Array) -> pa.Array:
    whole: Any = decimals.unscaled(array)
    if decimals.largest(whole) * zones.SECOND >= 2**63:
        whole = decimals.wide(whole)
    micros: Any = decimals.truncated(whole * zones.SECOND, 10**array.type.scale)
    return from_numpy(call.type, decimals.lowest(micros), validity(array))


@_way("boolean instant")
def _boolean_instant(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(call.type, to_numpy(array).astype(np.int64), validity(array))


@_way(*(f"date {name}" for name in ("boolean", "whole", "real", "decimal")), fails=True)
def _nothing(call: Call, array: pa.Array) -> pa.Array:
    return pa.nulls(len(array), call.type)


for _name in _FAMILIES:
    _way(f"void {_name}")(_nothing)


# Decimals and the whole numbers that they are made of.


@builds("UnscaledValue")
def _unscaled(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    return Call(_INT64, children[0].nullable, "unscaled", children)


@function("unscaled")
def _run_unscaled(call: Call, array: pa.Array) -> pa.Array:
    return from_numpy(_INT64, decimals.lowest(decimals.unscaled(array)), validity(array))


@builds("MakeDecimal")
def _make_decimal(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    kind = pa.decimal128(int(tree.fields["precision"]), int(tree.fields["scale"]))
    nullable = children[0].nullable or not config.ansi
    return Call(kind, nullable, "make decimal", children, (config.ansi,))


@function("make decimal", raises=lambda call: bool(call.options[0]))
def _run_make_decimal(call: Call, array: pa.Array) -> pa.Array:
    return _fitted(call, array, to_numpy(array), validity(array))
