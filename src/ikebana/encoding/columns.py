"""Typed columns: checking input data, and converting Arrow arrays to bits and back.

A column has three forms. *Declared*: an array of the Arrow type of the schema, as users give and receive it. *Ordered
bits*: unsigned integers of fixed width in the order of the values, nulls first; exact lanes are packed from these.
*Canonical*: an Arrow array in which equal values are equal bytes, of a type with few physical layouts; payloads store
these (`ikebana.encoding.canonical`).

Cost: a pass over the column for each conversion; none for 64-bit integers.
"""

from __future__ import annotations

import reprlib
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding import arrow
from ikebana.encoding.arrow import (
    decimal_words,
    from_decimal_words,
    from_numpy,
    is_instant,
    is_local_timestamp,
    to_numpy,
)
from ikebana.encoding.lanes import Array, Flags, Lane
from ikebana.encoding.structs import check_type, check_values, has_structs
from ikebana.errors import SchemaError

_SIGN = np.uint64(1 << 63)
_EXACT_DECIMAL_DIGITS = 18
_FRACTIONS = (float, Decimal)
_REASON_WIDTH = 160
"""How much of what Arrow says about a value is shown: it may repeat the value."""

_NOT_OF_TYPE = (pa.ArrowException, TypeError, ValueError, OverflowError)


def match_columns(data: Any, fields: Sequence[pa.Field]) -> list[pa.Array]:
    """Return the columns of `fields`, or raise if columns are missing, unknown, of wrong types or unequal length.

    `data` is a mapping from names to columns, an Arrow table or a record batch; a column is an Arrow array,
    a NumPy array or a sequence.
    """
    columns = _by_name(data)
    expected = [field.name for field in fields]
    if len(columns) != len(expected) or any([name not in columns for name in expected]):
        missing, extra = [n for n in expected if n not in columns], [n for n in columns if n not in expected]
        raise SchemaError(
            "the columns do not fit the schema",
            detail="; ".join(
                f"{what}: {', '.join(map(repr, names))}"
                for what, names in (("missing", missing), ("unknown", extra))
                if names
            ),
            hint=f"give exactly the columns {', '.join(map(repr, expected))}",
        )
    arrays = [_checked(columns[name], field) for name, field in zip(expected, fields, strict=True)]
    if len({len(array) for array in arrays}) > 1:
        lengths = [(name, len(array)) for name, array in zip(expected, arrays, strict=True)]
        raise SchemaError(
            "the columns have different lengths",
            detail=", ".join(f"{name!r} has {length} rows" for name, length in lengths),
            hint="give every column the same number of rows",
        )
    return arrays


def _by_name(data: Any) -> Mapping[str, Any]:
    if isinstance(data, Mapping):
        return data
    if isinstance(data, pa.Table | pa.RecordBatch):
        names = data.schema.names
        if len(set(names)) < len(names):
            raise SchemaError(
                f"the table names {', '.join(repr(n) for n in dict.fromkeys(names) if names.count(n) > 1)} twice",
                hint="give every column a different name",
            )
        return dict(zip(names, data.columns, strict=True))
    raise SchemaError(
        f"cannot read columns from a {type(data).__name__}",
        hint="give a mapping from column names to columns, an Arrow table or a record batch",
    )


def _checked(column: Any, field: pa.Field) -> pa.Array:
    """Return the column as an Arrow array of the field's type, or raise an error that names it."""
    array = _as_array(column, field)
    if array.type != field.type:
        array = _converted(array, field)
    if array.null_count and not field.nullable:
        first = pc.index(array.is_null(), True).as_py()
        raise SchemaError(
            f"column {field.name!r} has a null in row {first}",
            detail=f"the schema declares it as {field.type}, not null",
            hint="filter such rows out, or declare the column so that it may be null: without NOT NULL in SQL, with "
            "nullable=True in Arrow",
        )
    inside = _null_inside(array) if array.type.num_fields else ""
    if inside:
        raise SchemaError(
            f"column {field.name!r} has a null {inside}",
            detail=f"the schema declares it as {field.type}",
            hint="filter such rows out, or declare the inner field as nullable",
        )
    return array


def _null_inside(array: pa.Array) -> str:
    """Return where a nested column has a null that its type excludes; an empty string if it has none."""
    for field, child in _inside(array):
        if child.null_count and not field.nullable:
            return f"in {field.name!r}"
        if path := _null_inside(child):
            return path
    return ""


def _inside(array: pa.Array) -> list[tuple[pa.Field, pa.Array]]:
    """Return the child columns of a nested column, without children of null values."""
    kind = array.type
    if types.is_struct(kind):
        valid = array.is_valid()
        return [(field, child.filter(valid)) for field, child in zip(kind, array.flatten(), strict=True)]
    if types.is_map(kind):
        return [(kind.key_field, array.keys), (kind.item_field, array.items)]
    return [(kind.value_field, array.flatten())] if is_list(kind) else []


def _as_array(column: Any, field: pa.Field) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.Array):
        return column
    try:
        if isinstance(column, np.ndarray) and not (column.dtype == object and has_structs(field.type)):
            return pa.array(column)
        if type(column) is list and len(column) == 1 and type(column[0]) is int and types.is_integer(field.type):
            with suppress(OverflowError):
                return _one_integer(column[0], field.type)
        return _from_values(column, field)
    except _NOT_OF_TYPE as error:
        reason = textwrap.shorten(str(error), _REASON_WIDTH, placeholder=" ...")
        raise _wrong_type(field, _described(column, field), reason) from error


def _from_values(column: Any, field: pa.Field) -> pa.Array:
    """The array of Python values, each of which has to be of the field's type."""
    check_values(column, field)
    if _is_integral(field.type) and any([isinstance(value, _FRACTIONS) for value in column]):
        raise TypeError("not an integer")  # Arrow would truncate it
    return pa.array(column, type=field.type)


def _described(column: Any, field: pa.Field) -> str:
    """The first value that is not of the field's type, or else the type of the column."""
    for row, value in enumerate(column if isinstance(column, list | tuple) else ()):
        try:
            _from_values([value], field)
        except _NOT_OF_TYPE:
            where = f"row {row} has" if len(column) > 1 else "it is"
            return f"{where} {reprlib.repr(value)}, of type {type(value).__name__}"
    return f"it is of type {type(column).__name__}"


def _one_integer(value: int, kind: pa.DataType) -> pa.Array:
    """What `pa.array` makes of one integer, as keys often are. Arrow would release the interpreter's lock three times.

    Where many threads look up keys, waiting for the lock again takes longer than everything else.
    """
    stored = value.to_bytes(kind.bit_width // 8, sys.byteorder, signed=not types.is_unsigned_integer(kind))
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(stored)])


def _converted(array: pa.Array, field: pa.Field) -> pa.Array:
    """Widen the column within a family of types if no value is lost; raise otherwise."""
    source = array.type.value_type if types.is_dictionary(array.type) else array.type
    check_type(source, field)
    if is_instant(field.type) and is_local_timestamp(source):
        raise SchemaError(
            f"column {field.name!r} is not of type {field.type}",
            detail=f"it is of type {array.type}, without a time zone",
            hint='give it one, in pandas by column.dt.tz_localize("Europe/Oslo"), in Arrow by '
            'pyarrow.compute.assume_timezone(column, "Europe/Oslo"), or declare it as a timestamp without a time zone',
        )
    if not _can_widen(source, field.type):
        raise _wrong_type(field, f"it is of type {array.type}")
    try:
        return array.cast(field.type)
    except pa.ArrowException as error:
        raise _wrong_type(field, f"it is of type {array.type}", str(error)) from error


def _can_widen(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether two types, and all types nested in them, are of the same family."""
    if source == target or types.is_null(source):
        return True
    if is_nested(source):
        return _have_same_structure(source, target) and all(
            _can_widen(source.field(at).type, target.field(at).type) for at in range(source.num_fields)
        )
    families = (
        types.is_integer,
        types.is_floating,
        types.is_decimal,
        is_string,
        is_binary,
        is_instant,
        is_local_timestamp,
    )
    return any(family(source) and family(target) for family in families)


def _have_same_structure(source: pa.DataType, target: pa.DataType) -> bool:
    if types.is_struct(source) and types.is_struct(target):
        return [field.name for field in source] == [field.name for field in target]
    return is_list(source) and is_list(target) and types.is_map(source) == types.is_map(target)


def _wrong_type(field: pa.Field, given: str, reason: str = "") -> SchemaError:
    return SchemaError(
        f"column {field.name!r} is not of type {field.type}",
        detail=given + (f": {reason}" if reason else ""),
        hint=f"convert it to {field.type} first, or declare the column differently",
    )


def _is_integral(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_temporal(kind))


def is_string(kind: pa.DataType) -> bool:
    """Whether the type is a string type of any layout."""
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Whether the type is a binary type of any layout."""
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


@lru_cache(maxsize=4096)
def is_list(kind: pa.DataType) -> bool:
    """Whether the type is a list type of any layout; maps are lists of entries."""
    checks = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_map)
    return any(check(kind) for check in checks)


@lru_cache(maxsize=4096)
def is_nested(kind: pa.DataType) -> bool:
    """Whether the type is a list, struct or map."""
    return is_list(kind) or bool(types.is_struct(kind))


def _is_text(kind: pa.DataType) -> bool:
    return is_string(kind) or is_binary(kind)


def check_supported(field: pa.Field) -> None:
    """Raise an error that names the column if its type cannot be indexed."""
    unsupported = _unsupported(field.type)
    if unsupported is not None:
        inside = "" if unsupported == field.type else f"; it contains {unsupported}, which is not supported"
        raise SchemaError(
            f"column {field.name!r} has type {field.type}, which cannot be indexed",
            detail="supported: integers, floats, booleans, dates, times, decimal128, strings and binaries, and lists, "
            f"structs and maps of these{inside}",
            hint="convert it to a supported type",
        )


def _unsupported(kind: pa.DataType, *, inside: bool = False) -> pa.DataType | None:
    """Return the type, or a type inside it, that is not supported, if any. The null type is supported only inside."""
    if is_nested(kind):
        children = (_unsupported(kind.field(at).type, inside=True) for at in range(kind.num_fields))
        return next((child for child in children if child is not None), None)
    if inside and types.is_null(kind):
        return None
    is_flat = _width(kind) is not None or _is_text(kind) or types.is_decimal128(kind)
    return None if is_flat else kind


# Exact lanes: ordered bits.


def _width(kind: pa.DataType) -> int | None:
    """Return the number of bits that every value of the type fits into; None if it varies or is above 64."""
    if types.is_boolean(kind):
        return 1
    if types.is_decimal128(kind):
        return int(10**kind.precision).bit_length() + 1 if is_short_decimal(kind) else None
    if types.is_integer(kind) or types.is_temporal(kind) or types.is_float32(kind) or types.is_float64(kind):
        return None if types.is_interval(kind) else int(kind.bit_width)
    return None


def bits(field: pa.Field) -> int | None:
    """Return the width of the field's ordered bits, including one for nullable fields."""
    width = _width(field.type)
    return None if width is None else width + field.nullable


def is_plain_integer(field: pa.Field) -> bool:
    """Whether a lane can store the values themselves: integers, dates or timestamps, not null."""
    kind = field.type
    return _is_integral(kind) and not types.is_uint64(kind) and not field.nullable


def is_signed(kind: pa.DataType) -> bool:
    """Whether `register_values` of a type are its values: signed integers, dates, times, and short decimals."""
    return (_is_integral(kind) and not types.is_unsigned_integer(kind)) or is_short_decimal(kind)


def register_values(array: pa.Array, field: pa.Field) -> Lane:
    """Convert a column with ordered bits to integers: the values if the type is signed, otherwise ordered bits."""
    if is_signed(field.type):
        return _raw(array).astype(np.int64, copy=False)
    return ordered_bits(array, field.with_nullable(False)).view(np.int64)


def integers(array: pa.Array) -> Lane:
    """Convert a column of integers, dates or times to int64, without a copy if it has 64 bits."""
    return _raw(array).astype(np.int64, copy=False)


def from_integers(lane: Lane, kind: pa.DataType) -> pa.Array:
    """Convert a lane to a column of type `kind`: the inverse of `integers`."""
    return from_numpy(kind, lane)


def _has_sign_bit(kind: pa.DataType) -> bool:
    """Whether values are stored as signed integers of as many bits as the type has; ordered bits differ in one bit."""
    return _is_integral(kind) and not types.is_unsigned_integer(kind)


def ordered_bits(array: pa.Array, field: pa.Field) -> Any:
    """Convert a column to unsigned integers of `bits(field)` bits, in the order of its values; null is 0."""
    kind, width = field.type, _width(field.type) or 0
    sign = np.uint64(1 << (width - 1))
    if _has_sign_bit(kind) and not field.nullable:
        return (_raw(array).view(f"uint{width}") ^ sign.astype(f"uint{width}")).astype(np.uint64)
    if types.is_boolean(kind) or types.is_unsigned_integer(kind):
        out = _raw(array).astype(np.uint64)
    elif types.is_floating(kind):
        unsigned = _canonical_values(array).view(f"uint{width}").astype(np.uint64)
        out = np.where(unsigned & sign, ~unsigned, unsigned | sign)
    else:
        out = _raw(array).astype(np.int64).view(np.uint64) ^ sign
    out &= np.uint64((1 << width) - 1)
    if field.nullable:
        valid = valid_flags(array)
        out = np.where(valid, out | np.uint64(1 << width), np.uint64(0))
    return out


def from_ordered_bits(unsigned: Any, field: pa.Field) -> pa.Array:
    """Convert ordered bits to a column: the inverse of `ordered_bits`."""
    kind, width = field.type, _width(field.type) or 0
    sign, mask = np.uint64(1 << (width - 1)), np.uint64((1 << width) - 1)
    if _has_sign_bit(kind) and not field.nullable:
        low = unsigned.astype(f"uint{width}")
        low ^= sign.astype(f"uint{width}")
        return from_numpy(kind, low.view(f"int{width}"))
    values = unsigned & mask
    if types.is_boolean(kind):
        array = pa.array(values.astype(bool))
    elif types.is_unsigned_integer(kind):
        array = pa.array(values.astype(kind.to_pandas_dtype()))
    elif types.is_floating(kind):
        raw = np.where(values & sign, values ^ sign, ~values & mask)
        array = pa.array(raw.astype(f"uint{width}").view(f"float{width}"))
    else:
        shift = np.uint64(64 - width)
        signed = ((values ^ sign) << shift).view(np.int64) >> np.int64(64 - width)
        array = _from_signed(signed, kind)
    if not field.nullable:
        return array
    return pc.if_else(pa.array(unsigned > mask), array, pa.scalar(None, kind))


def _from_signed(signed: Lane, kind: pa.DataType) -> pa.Array:
    return from_decimal_words(kind, signed, signed >> 63) if types.is_decimal(kind) else from_numpy(kind, signed)


def is_short_decimal(kind: pa.DataType) -> bool:
    """Whether the type is a decimal whose unscaled values fit into 64 bits."""
    return bool(types.is_decimal128(kind) and kind.precision <= _EXACT_DECIMAL_DIGITS)


def short_decimals_to_integers(array: pa.Array) -> pa.Array:
    """Convert short decimals to their unscaled values, 64-bit integers."""
    values = np.ascontiguousarray(_raw(array))
    return pa.array(values, mask=~valid_flags(array).astype(bool) if array.null_count else None)


def integers_to_short_decimals(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert unscaled values to short decimals: the inverse of `short_decimals_to_integers`."""
    signed = _raw(array)
    return from_decimal_words(kind, signed, signed >> 63, arrow.validity(array))


def canonical_floats(array: pa.Array) -> pa.Array:
    """Return the column with -0.0 replaced by 0.0, and all NaNs by the same NaN."""
    return from_numpy(array.type, _canonical_values(array), arrow.validity(array))


def _canonical_values(array: pa.Array) -> Array:
    """Return the values of `canonical_floats`; arbitrary ones where the column is null."""
    with np.errstate(invalid="ignore"):  # signaling NaNs
        values = _raw(array) + 0.0  # -0.0 + 0.0 is 0.0
    is_nan = np.isnan(values)
    if is_nan.any():
        values[is_nan] = np.nan
    return values


def _raw(array: pa.Array) -> Array:
    """Return the values as a NumPy array, with arbitrary values where the column is null."""
    return decimal_words(array)[0] if types.is_decimal128(array.type) else to_numpy(array)


@lru_cache(maxsize=4096)
def empty_array(kind: pa.DataType) -> pa.Array:
    """Return a column without rows."""
    return pa.array([], kind)


def valid_flags(array: pa.Array) -> Flags:
    """Return 1 for each value, 0 for each null."""
    valid = arrow.validity(array)
    return np.ones(len(array), np.uint8) if valid is None else valid.view(np.uint8)
