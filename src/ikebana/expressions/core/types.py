"""Spark's types as Arrow's, and what Spark computes from types: which result a sum, a product or a mean has.

Timestamps are microseconds, in UTC; without a zone they are what a clock shows. Intervals of days and seconds are
durations in microseconds, intervals of months are whole numbers of months.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ikebana.errors import SqlError

MONTHS = pa.month_day_nano_interval()
"""An interval that has months, and days of any length: of no use as a column."""

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
    """The Arrow type of a Spark type as plans have it: a name, or a mapping for nested ones.

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
    raise SqlError(f"a column of type {name} cannot be maintained", hint="cast it to another type")


def _nested(spark: Mapping[str, Any]) -> pa.DataType:
    match spark["type"]:
        case "array":
            return pa.list_(_part("element", spark["elementType"], spark["containsNull"]))
        case "struct":
            return pa.struct([_part(each["name"], each["type"], each["nullable"]) for each in spark["fields"]])
        case "map":
            value = _part("value", spark["valueType"], spark["valueContainsNull"])
            return pa.map_(arrow_type(spark["keyType"]), value)
        case "udt":
            return arrow_type(spark["sqlType"])
        case other:
            raise SqlError(f"a column of type {other} cannot be maintained", hint="cast it to another type")


def _part(name: str, spark: Any, nullable: bool) -> pa.Field:
    """A field inside a type; one without a type of its own may be null, whatever Spark says, or Arrow refuses it."""
    kind = arrow_type(spark)
    return pa.field(name, kind, nullable or pa.types.is_null(kind))


def with_nulls_of(one: pa.DataType, two: pa.DataType) -> pa.DataType:
    """A type that has the values of two which differ only in what of them may be null, as Spark merges them."""
    if one == two or one.id != two.id or one.num_fields != two.num_fields:
        return one
    fields = [_merged(one.field(at), two.field(at)) for at in range(one.num_fields)]
    if pa.types.is_list(one):
        return pa.list_(fields[0])
    if pa.types.is_struct(one):
        return pa.struct(fields)
    return pa.map_(*fields[0].type) if pa.types.is_map(one) else one


def _merged(one: pa.Field, two: pa.Field) -> pa.Field:
    return pa.field(one.name, with_nulls_of(one.type, two.type), one.nullable or two.nullable)


# Decimals.


def bounded(precision: int, scale: int) -> pa.DataType:
    """A decimal with as many digits as fit.

    >>> bounded(45, 4)
    Decimal128Type(decimal128(38, 4))
    """
    return pa.decimal128(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def adjusted(precision: int, scale: int) -> pa.DataType:
    """A decimal that gives up digits after the point, rather than before it, where it has too many.

    >>> adjusted(45, 20)
    Decimal128Type(decimal128(38, 13))
    """
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _MIN_ADJUSTED_SCALE)))


def as_decimal(kind: pa.DataType) -> pa.DataType:
    """The decimal that holds all values of a type of whole numbers; decimals are what they are.

    >>> as_decimal(pa.int32())
    Decimal128Type(decimal128(10, 0))
    """
    if pa.types.is_decimal128(kind):
        return kind
    return pa.decimal128({8: 3, 16: 5, 32: 10, 64: 20}[kind.bit_width], 0)


def sum_type(kind: pa.DataType) -> pa.DataType:
    """The type of a sum."""
    if pa.types.is_decimal128(kind):
        return bounded(kind.precision + 10, kind.scale)
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_duration(kind):
        return kind
    return pa.float64()


def mean_type(kind: pa.DataType) -> pa.DataType:
    """The type of a mean."""
    if pa.types.is_decimal128(kind):
        return bounded(kind.precision + 4, kind.scale + 4)
    return kind if pa.types.is_duration(kind) else pa.float64()
