"""Where rows begin in an order: the leading sort columns as one 64-bit number.

If a row comes before another, its number is not greater. Equal numbers say nothing: values are cut off where they do
not fit into their bits, and whatever would come after such a value is left out.

| column | bits |
|---|---|
| integers, dates, times, decimals | as they are if they fit into 48, else those of a float that is as large |
| floats | the leading ones |
| strings, binaries | their first bytes, as far as there is room |

A null takes one bit of a column that may be null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import decimal_words
from ikebana.encoding.canonical import canonical, text_buffers
from ikebana.encoding.columns import bits, is_binary, is_string, ordered_bits, validity
from ikebana.encoding.lanes import Array
from ikebana.operators.changes import Changes, Fields

_LANE, _MOST = 64, 48
_EXPONENT = 12
"""The bits of a float before its fraction."""
_SIGN = np.int64(-(1 << 63))
_FLOAT = pa.field("float", pa.float64(), nullable=False)


@dataclass(frozen=True)
class SortKey:
    """A column to sort by, in which direction, and where its nulls go."""

    column: str
    ascending: bool = True
    nulls_first: bool = True


@dataclass(frozen=True)
class Prefix:
    """A linear step: one more column, where each row begins in an order."""

    name: str
    sorted_by: tuple[tuple[pa.Field, SortKey], ...]

    @staticmethod
    def of(name: str, fields: Sequence[pa.Field], keys: Sequence[SortKey]) -> Prefix | None:
        """Where rows begin in an order by these columns; None if it begins with a string, or with what has no bits."""
        if not _is_number(fields[0].type):
            return None
        return Prefix(name, tuple(zip(fields, keys, strict=True)))

    def fields(self, given: Fields) -> Fields:
        return (*given, pa.field(self.name, pa.uint64(), nullable=False))

    def __call__(self, changes: Changes) -> Changes:
        begins = pa.array(self.begins(changes.named, len(changes)))
        return changes.with_columns(self.fields(changes.fields), (*changes.columns, begins))

    def begins(self, columns: dict[str, pa.Array], rows: int) -> Array:
        """Where each row begins."""
        out, exact, left = np.zeros(rows, np.uint64), np.ones(rows, bool), _LANE
        for field, key in self.sorted_by:
            room = left - field.nullable
            if room <= 0 or not (_is_number(field.type) or _is_text(field.type)):
                break
            width = room if _is_text(field.type) else min(room, _MOST, bits(field.with_nullable(False)) or _MOST)
            if width < _EXPONENT:
                break
            valid = validity(columns[field.name]).astype(bool)
            numbers, whole = _leading(columns[field.name], field, width)
            left -= width + field.nullable
            own = _placed(numbers, valid, field, key, width) << np.uint64(left)
            out |= np.where(exact, own, np.uint64(0))
            exact &= whole | ~valid
        return out


def _is_number(kind: pa.DataType) -> bool:
    return bits(pa.field("", kind)) is not None or bool(types.is_decimal128(kind))


def _is_text(kind: pa.DataType) -> bool:
    return is_string(kind) or is_binary(kind)


def _leading(array: pa.Array, field: pa.Field, width: int) -> tuple[Array, Array]:
    """Numbers of so many bits in the order of a column, null or not; and which of them tell all there is to tell."""
    if _is_text(field.type):
        return _first_bytes(array, width)
    known = bits(field.with_nullable(False))
    if known is not None and known <= width:
        return ordered_bits(array, field.with_nullable(False)), np.ones(len(array), bool)
    floats = array.cast(pa.float64()) if types.is_floating(field.type) else pa.array(_as_floats(array, field, known))
    numbers = ordered_bits(floats, _FLOAT) >> np.uint64(_LANE - width)
    if types.is_floating(field.type):
        return numbers, np.zeros(len(array), bool)
    return numbers, np.abs(floats.to_numpy()) < 2.0 ** (width - _EXPONENT)


def _as_floats(array: pa.Array, field: pa.Field, known: int | None) -> Array:
    """Whole numbers, and decimals without their point, as floats that are as large, or nearly so."""
    if known is not None:
        numbers = ordered_bits(array, field.with_nullable(False)).view(np.int64)
        return (numbers ^ _SIGN if known == _LANE else numbers - (1 << known - 1)).astype(np.float64)
    low, high = decimal_words(array)
    return np.where(low >> 63 == high, low.astype(np.float64), high * 2.0**_LANE + low.view(np.uint64))


def _first_bytes(array: pa.Array, width: int) -> tuple[Array, Array]:
    text = canonical(array).cast(pa.large_binary())
    offsets, data = text_buffers(text)
    starts, lengths = offsets[:-1], np.diff(offsets)
    out, count = np.zeros(len(array), np.uint64), width // 8
    for at in range(count):
        there = lengths > at
        byte = np.zeros(len(array), np.uint64)
        byte[there] = data[starts[there] + at]
        out = out << np.uint64(8) | byte
    return out << np.uint64(width - 8 * count), np.zeros(len(array), bool)


def _placed(numbers: Array, valid: Array, field: pa.Field, key: SortKey, width: int) -> Array:
    """The numbers in the direction that a key wants, after a bit that says whether they are null."""
    turned = numbers if key.ascending else numbers ^ np.uint64((1 << width) - 1)
    if not field.nullable:
        return turned
    first = valid if key.nulls_first else ~valid
    return np.where(valid, turned, np.uint64(0)) | first.astype(np.uint64) << np.uint64(width)
