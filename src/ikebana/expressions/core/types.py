"""The mapping from Spark types to Arrow types, and Spark's rules for result types of decimals, sums and means.

TIMESTAMP is in microseconds and UTC, TIMESTAMP_NTZ is local time in microseconds. Day-time intervals are durations in
microseconds, year-month intervals are integers in months.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa

from ikebana.errors import SqlError

MONTHS = pa.month_day_nano_interval()
"""A calendar interval of months, days and microseconds; not supported as the type of a column."""

MAX_PRECISION = 38
_MIN_ADJUSTED_SCALE = 6

_PLAIN = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "interval": MONTHS,
}


def arrow_type(spark: Any) -> pa.DataType:
    """The Arrow type of a Spark type in a plan, which is a name or, for nested types, a mapping.

    >>> arrow_type("decimal(15,2)"), arrow_type({"type": "array", "elementType": "long", "containsNull": False})
    (Decimal128Type(decimal128(15, 2)), ListType(list<element: int64 not null>))
    """
    if isinstance(spark, Mapping):
        return _nested(spark)
    name = str(spark)
    if name in _PLAIN:
        return _PLAIN[name]
    decimal = re.fullmatch(r"decimal\((\d+),\s*(-?\d+)\)", name)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if re.fullmatch(r"(var)?char\(\d+\)", name):
        return pa.string()
    if name.startswith("interval"):
        return pa.int32() if "month" in name or "year" in name else pa.duration("us")
    raise SqlError(f"a column of type {name} is not supported in a maintained view", hint="cast it to another type")


def _nested(spark: Mapping[str, Any]) -> pa.DataType:
    match spark["type"]:
        case "array":
            return pa.list_(_part("element", spark["elementType"], spark["containsNull"]))
        case "struct":
            return pa.struct([_part(field["name"], field["type"], field["nullable"]) for field in spark["fields"]])
        case "map":
            value = _part("value", spark["valueType"], spark["valueContainsNull"])
            return pa.map_(arrow_type(spark["keyType"]), value)
        case "udt":
            return arrow_type(spark["sqlType"])
        case other:
            raise SqlError(
                f"a column of type {other} is not supported in a maintained view", hint="cast it to another type"
            )


def _part(name: str, spark: Any, nullable: bool) -> pa.Field:
    """A field of a nested type; a field of type null is always nullable because Arrow requires it."""
    kind = arrow_type(spark)
    return pa.field(name, kind, nullable or pa.types.is_null(kind))


def merge_nullability(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The common type of two types that differ at most in the nullability of nested fields, as Spark merges them."""
    if left == right or left.id != right.id or left.num_fields != right.num_fields:
        return left
    fields = [_merged(left.field(at), right.field(at)) for at in range(left.num_fields)]
    if pa.types.is_list(left):
        return pa.list_(fields[0])
    if pa.types.is_struct(left):
        return pa.struct(fields)
    return pa.map_(*fields[0].type) if pa.types.is_map(left) else left


def common_type(values: Iterable[Any]) -> pa.DataType:
    """The common type of expressions whose types differ at most in the nullability of nested fields."""
    return reduce(merge_nullability, (value.type for value in values))


def _merged(left: pa.Field, right: pa.Field) -> pa.Field:
    return pa.field(left.name, merge_nullability(left.type, right.type), left.nullable or right.nullable)


# Decimals.


def bounded_decimal(precision: int, scale: int) -> pa.DataType:
    """A decimal type whose precision and scale are limited to 38.

    >>> bounded_decimal(45, 4)
    Decimal128Type(decimal128(38, 4))
    """
    return pa.decimal128(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def adjusted_decimal(precision: int, scale: int) -> pa.DataType:
    """A decimal type that loses digits after the decimal point, not before it, if its precision exceeds 38.

    >>> adjusted_decimal(45, 20)
    Decimal128Type(decimal128(38, 13))
    """
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _MIN_ADJUSTED_SCALE)))


def decimal_type_for(kind: pa.DataType) -> pa.DataType:
    """The decimal type that can represent all values of an integer type; decimal types are returned as they are.

    >>> decimal_type_for(pa.int32())
    Decimal128Type(decimal128(10, 0))
    """
    if pa.types.is_decimal128(kind):
        return kind
    return pa.decimal128({8: 3, 16: 5, 32: 10, 64: 20}[kind.bit_width], 0)


def sum_type(kind: pa.DataType) -> pa.DataType:
    """The type of a sum."""
    if pa.types.is_decimal128(kind):
        return bounded_decimal(kind.precision + 10, kind.scale)
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_duration(kind):
        return kind
    return pa.float64()


def mean_type(kind: pa.DataType) -> pa.DataType:
    """The type of a mean."""
    if pa.types.is_decimal128(kind):
        return bounded_decimal(kind.precision + 4, kind.scale + 4)
    return kind if pa.types.is_duration(kind) else pa.float64()
