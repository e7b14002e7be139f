"""Typed columns: checking what users hand in, and turning Arrow arrays into bits and back.

Three forms of a column occur. As *declared*: the Arrow type of the schema, what users give and get. As
*ordered bits*: an unsigned integer of fixed width whose order is that of the values, nulls first; what exact
lanes are packed from. As *canonical*: an Arrow array in which equal values are equal bytes, of a type with
few physical layouts; what payloads hold (`ikebana.encoding.canonical`).

Cost: a pass over the column for each conversion; none for 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def matched(data: Any, fields: Sequence[pa.Field]) -> list[pa.Array]:
    """The columns that `fields` names, checked: all there, none besides, of the right types, equally long.

    `data` is a mapping from names to columns, an Arrow table or a record batch; a column is an Arrow array,
    a NumPy array or a sequence.
    """
    given = _by_name(data)
    expected = [field.name for field in fields]
    missing, extra = [n for n in expected if n not in given], [n for n in given if n not in expected]
    if missing or extra:
        raise SchemaError(
            "the columns do not fit the schema",
            detail="; ".join(
                f"{what}: {', '.join(map(repr, names))}"
                for what, names in (("missing", missing), ("unknown", extra))
                if names
            ),
            hint=f"give exactly the columns {', '.join(map(repr, expected))}",
        )
    arrays = [_checked(given[field.name], field) for field in fields]
    lengths = {field.name: len(array) for field, array in zip(fields, arrays, strict=True)}
    if len(set(lengths.values())) > 1:
        raise SchemaError(
            "the columns are ragged",
            detail=", ".join(f"{name!r} has {length} rows" for name, length in lengths.items()),
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
                hint="give every column a name of its own",
            )
        return dict(zip(names, data.columns, strict=True))
    raise SchemaError(
        f"cannot take updates from a {type(data).__name__}",
        hint="give a mapping from column names to columns, an Arrow table or a record batch",
    )


def _checked(column: Any, field: pa.Field) -> pa.Array:
    """The column as an Arrow array of the field's type, or an error that names it."""
    array = _as_array(column, field)
    if array.type != field.type:
        array = _converted(array, field)
    if array.null_count and not field.nullable:
        first = pc.index(array.is_null(), True).as_py()
        raise SchemaError(
            f"column {field.name!r} has a null in row {first}",
            detail=f"the schema declares it as {field.type}, never null",
            hint="filter such rows out, or declare the column with pyarrow.field(..., nullable=True)",
        )
    inside = _null_inside(array)
    if inside:
        raise SchemaError(
            f"column {field.name!r} has a null {inside}",
            detail=f"the schema declares it as {field.type}",
            hint="filter such rows out, or declare what is inside as nullable",
        )
    return array


def _null_inside(array: pa.Array) -> str:
    """Where in the values of a nested column there is a null that its type excludes; nothing if there is none."""
    for field, child in _inside(array):
        if child.null_count and not field.nullable:
            return f"in {field.name!r}"
        if found := _null_inside(child):
            return found
    return ""


def _inside(array: pa.Array) -> list[tuple[pa.Field, pa.Array]]:
    """What the values of a nested column are made of; nothing of values that are null."""
    kind = array.type
    if types.is_struct(kind):
        there = array.is_valid()
        return [(field, child.filter(there)) for field, child in zip(kind, array.flatten(), strict=True)]
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
        check_values(column, field)
        if _is_whole(field.type) and any(isinstance(value, float | Decimal) for value in column):
            raise TypeError("it has fractions")  # which Arrow would cut off
        return pa.array(column, type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _wrong_type(field, type(column).__name__, str(error)) from error


def _converted(array: pa.Array, field: pa.Field) -> pa.Array:
    """Widen within a family of types where nothing can be lost; refuse everything else."""
    source = array.type.value_type if types.is_dictionary(array.type) else array.type
    check_type(source, field)
    if not _can_widen(source, field.type):
        raise _wrong_type(field, str(array.type))
    try:
        return array.cast(field.type)
    except pa.ArrowException as error:
        raise _wrong_type(field, str(array.type), str(error)) from error


def _can_widen(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether two types are of a family, all through where they are nested."""
    if source == target or types.is_null(source):
        return True
    if is_nested(source):
        return _are_built_alike(source, target) and all(
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


def _are_built_alike(source: pa.DataType, target: pa.DataType) -> bool:
    if types.is_struct(source) and types.is_struct(target):
        return [field.name for field in source] == [field.name for field in target]
    return is_list(source) and is_list(target) and types.is_map(source) == types.is_map(target)


def _wrong_type(field: pa.Field, given: str, reason: str = "") -> SchemaError:
    return SchemaError(
        f"column {field.name!r} is not of type {field.type}",
        detail=f"it is of type {given}" + (f": {reason}" if reason else ""),
        hint=f"convert it to {field.type} first, or declare the column differently",
    )


def _is_whole(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_temporal(kind))


def is_string(kind: pa.DataType) -> bool:
    """Text, however its length is stored."""
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Byte strings, however their length is stored."""
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


@lru_cache(maxsize=4096)
def is_list(kind: pa.DataType) -> bool:
    """Lists, however their length is stored; maps are lists of entries."""
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_map)
    return any(is_one(kind) for is_one in lists)


@lru_cache(maxsize=4096)
def is_nested(kind: pa.DataType) -> bool:
    """Lists, structs and maps."""
    return is_list(kind) or bool(types.is_struct(kind))


def _is_text(kind: pa.DataType) -> bool:
    return is_string(kind) or is_binary(kind)


def check_supported(field: pa.Field) -> None:
    """Raise an error that names the column if its type cannot be indexed."""
    refused = _unsupported(field.type)
    if refused is not None:
        inside = "" if refused == field.type else f"; in it, {refused} is not"
        raise SchemaError(
            f"column {field.name!r} has type {field.type}, which cannot be indexed",
            detail="supported: integers, floats, booleans, dates, times, decimal128, strings and binaries, and lists, "
            f"structs and maps of these{inside}",
            hint="make it a column of these types",
        )


def _unsupported(kind: pa.DataType, *, inside: bool = False) -> pa.DataType | None:
    """The type, or one inside it, that is not supported, if there is any. What is always null can only be inside."""
    if is_nested(kind):
        found = (_unsupported(kind.field(at).type, inside=True) for at in range(kind.num_fields))
        return next((each for each in found if each is not None), None)
    if inside and types.is_null(kind):
        return None
    is_flat = _width(kind) is not None or _is_text(kind) or types.is_decimal128(kind)
    return None if is_flat else kind


# Exact lanes: ordered bits.


def _width(kind: pa.DataType) -> int | None:
    """How many bits every value of the type fits into; None for types that have no such number up to 64."""
    if types.is_boolean(kind):
        return 1
    if types.is_decimal128(kind):
        return int(10**kind.precision).bit_length() + 1 if is_short_decimal(kind) else None
    if types.is_integer(kind) or types.is_temporal(kind) or types.is_float32(kind) or types.is_float64(kind):
        return None if types.is_interval(kind) else int(kind.bit_width)
    return None


def bits(field: pa.Field) -> int | None:
    """The width of the field's ordered bits, with one for null where it may be null."""
    width = _width(field.type)
    return None if width is None else width + field.nullable


def is_plain_integer(field: pa.Field) -> bool:
    """Whether a lane can hold the column's own values: integers, dates, timestamps, never null."""
    kind = field.type
    return _is_whole(kind) and not types.is_uint64(kind) and not field.nullable


def integers(array: pa.Array) -> Lane:
    """A column of whole numbers, dates or times as int64; 64-bit columns without a copy."""
    return _raw(array).astype(np.int64, copy=False)


def from_integers(lane: Lane, kind: pa.DataType) -> pa.Array:
    """The column of type `kind` that `integers` made the lane from."""
    return from_numpy(kind, lane)


def ordered_bits(array: pa.Array, field: pa.Field) -> Any:
    """The column as unsigned integers of `bits(field)` bits, in the order of its values; null is 0."""
    kind, width = field.type, _width(field.type) or 0
    sign = np.uint64(1 << (width - 1))
    if types.is_boolean(kind) or types.is_unsigned_integer(kind):
        out = _raw(array).astype(np.uint64)
    elif types.is_floating(kind):
        raw = _raw(canonical_floats(array))
        unsigned = raw.view(f"uint{width}").astype(np.uint64)
        out = np.where(unsigned & sign, ~unsigned, unsigned | sign)
    else:
        out = _raw(array).astype(np.int64).view(np.uint64) ^ sign
    out &= np.uint64((1 << width) - 1)
    if field.nullable:
        valid = validity(array)
        out = np.where(valid, out | np.uint64(1 << width), np.uint64(0))
    return out


def from_ordered_bits(unsigned: Any, field: pa.Field) -> pa.Array:
    """The column that `ordered_bits` made these from."""
    kind, width = field.type, _width(field.type) or 0
    sign, mask = np.uint64(1 << (width - 1)), np.uint64((1 << width) - 1)
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
    """Whether all values of a type are decimals that fit into 64 bits."""
    return bool(types.is_decimal128(kind) and kind.precision <= _EXACT_DECIMAL_DIGITS)


def unscaled(array: pa.Array) -> pa.Array:
    """Short decimals as 64-bit integers, without their point."""
    values = np.ascontiguousarray(_raw(array))
    return pa.array(values, mask=~validity(array).astype(bool) if array.null_count else None)


def scaled(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The short decimals that `unscaled` made the integers from."""
    signed = _raw(array)
    return from_decimal_words(kind, signed, signed >> 63, arrow.validity(array))


def canonical_floats(array: pa.Array) -> pa.Array:
    """The column with one zero and one NaN."""
    array = pc.if_else(pc.equal(array, 0.0), pa.scalar(0.0, array.type), array)
    return pc.if_else(pc.is_nan(array), pa.scalar(np.nan, array.type), array)


def _raw(array: pa.Array) -> Array:
    """The column's values as a NumPy array, whatever stands where it is null."""
    return decimal_words(array)[0] if types.is_decimal128(array.type) else to_numpy(array)


@lru_cache(maxsize=4096)
def no_values(kind: pa.DataType) -> pa.Array:
    """A column without rows."""
    return pa.array([], kind)


def validity(array: pa.Array) -> Flags:
    """1 where the column has a value, 0 where it is null."""
    valid = arrow.validity(array)
    return np.ones(len(array), np.uint8) if valid is None else valid.view(np.uint8)
