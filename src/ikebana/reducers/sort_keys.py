"""Sort keys, and order-preserving prefixes: the leading sort columns as one 64-bit number.

If a row sorts before another, its prefix is not greater. Equal prefixes say nothing about the order: values are cut off
where they do not fit into their bits, and columns after a cut-off value are left out.

| column | bits of the prefix |
|---|---|
| integers, dates, times, decimals | the value if it fits into 48 bits, else the leading bits as a float |
| floats | the leading bits |
| strings, binaries | the first bytes, as far as there is room |

A nullable column takes one more bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import decimal_words
from ikebana.encoding.canonical import canonical, string_buffers
from ikebana.encoding.columns import bits, is_binary, is_string, ordered_bits, valid_flags
from ikebana.encoding.lanes import Array
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.linear import Step
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.registers import Rows

_LANE_BITS = 64
_MAX_NUMBER_BITS = 48
_EXPONENT_BITS = 12
"""The bits of a float before its fraction."""
_SIGN = np.int64(-(1 << 63))
_FLOAT = pa.field("float", pa.float64(), nullable=False)


@dataclass(frozen=True)
class SortKey:
    """A sort column, its direction, and the place of its nulls."""

    column: str
    ascending: bool = True
    nulls_first: bool = True


@dataclass(frozen=True)
class Prefix(Step):
    """A linear step that adds a column with the prefix of each row."""

    name: str
    sorted_by: tuple[tuple[pa.Field, SortKey], ...]

    @staticmethod
    def of(name: str, fields: Sequence[pa.Field], keys: Sequence[SortKey]) -> Prefix | None:
        """The prefix of an order by these columns; None if the first column is not a number."""
        if not _is_number(fields[0].type):
            return None
        return Prefix(name, tuple(zip(fields, keys, strict=True)))

    def fields(self, given: Fields) -> Fields:
        return (*given, pa.field(self.name, pa.uint64(), nullable=False))

    def __call__(self, changes: Changes) -> Changes:
        prefixes = pa.array(self.prefixes(changes.named, len(changes)))
        return changes.with_columns(self.fields(changes.fields), (*changes.columns, prefixes))

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows | None:
        """Written as a call with the columns of the order."""
        field = self.fields(())[-1]

        def prefix(changes: Changes) -> Changes:
            return changes.with_columns((field,), (pa.array(self.prefixes(changes.named, len(changes))),))

        given = rows.select(field.name for field, _ in self.sorted_by)
        place = program.called(given, (field,), prefix).columns[self.name]
        return replace(rows, fields=self.fields(rows.fields), columns={**rows.columns, self.name: place})

    def prefixes(self, columns: dict[str, pa.Array], rows: int) -> Array:
        """The prefix of each row. `is_exact` marks the rows of which no value was cut off so far."""
        out, is_exact, bits_left = np.zeros(rows, np.uint64), np.ones(rows, bool), _LANE_BITS
        for field, key in self.sorted_by:
            room = bits_left - field.nullable
            if room <= 0 or not (_is_number(field.type) or _is_text(field.type)):
                break
            width = room if _is_text(field.type) else min(room, _number_bits(field))
            if width < _EXPONENT_BITS:
                break
            valid = valid_flags(columns[field.name]).astype(bool)
            numbers, is_complete = _leading(columns[field.name], field, width)
            bits_left -= width + field.nullable
            own = _in_direction(numbers, valid, field, key, width) << np.uint64(bits_left)
            out |= np.where(is_exact, own, np.uint64(0))
            is_exact &= is_complete | ~valid
        return out


def _is_number(kind: pa.DataType) -> bool:
    return bits(pa.field("", kind)) is not None or bool(types.is_decimal128(kind))


def _number_bits(field: pa.Field) -> int:
    return min(_MAX_NUMBER_BITS, bits(field.with_nullable(False)) or _MAX_NUMBER_BITS)


def _is_text(kind: pa.DataType) -> bool:
    return is_string(kind) or is_binary(kind)


def _leading(array: pa.Array, field: pa.Field, width: int) -> tuple[Array, Array]:
    """Numbers of `width` bits in the order of a column, and for which rows they represent the value completely."""
    if _is_text(field.type):
        return _first_bytes(array, width)
    known = bits(field.with_nullable(False))
    if known is not None and known <= width:
        return ordered_bits(array, field.with_nullable(False)), np.ones(len(array), bool)
    floats = array.cast(pa.float64()) if types.is_floating(field.type) else pa.array(_as_floats(array, field, known))
    numbers = ordered_bits(floats, _FLOAT) >> np.uint64(_LANE_BITS - width)
    if types.is_floating(field.type):
        return numbers, np.zeros(len(array), bool)
    return numbers, np.abs(floats.to_numpy()) < 2.0 ** (width - _EXPONENT_BITS)


def _as_floats(array: pa.Array, field: pa.Field, known: int | None) -> Array:
    """Integers, and the unscaled integers of decimals, as the nearest floats."""
    if known is not None:
        numbers = ordered_bits(array, field.with_nullable(False)).view(np.int64)
        return (numbers ^ _SIGN if known == _LANE_BITS else numbers - (1 << known - 1)).astype(np.float64)
    low, high = decimal_words(array)
    return np.where(low >> 63 == high, low.astype(np.float64), high * 2.0**_LANE_BITS + low.view(np.uint64))


def _first_bytes(array: pa.Array, width: int) -> tuple[Array, Array]:
    text = canonical(array).cast(pa.large_binary())
    offsets, data = string_buffers(text)
    starts, lengths = offsets[:-1], np.diff(offsets)
    out, count = np.zeros(len(array), np.uint64), width // 8
    for at in range(count):
        is_long = lengths > at
        byte = np.zeros(len(array), np.uint64)
        byte[is_long] = data[starts[is_long] + at]
        out = out << np.uint64(8) | byte
    return out << np.uint64(width - 8 * count), np.zeros(len(array), bool)


def _in_direction(numbers: Array, valid: Array, field: pa.Field, key: SortKey, width: int) -> Array:
    """The numbers in the direction of the key, preceded by a null bit if the column is nullable."""
    directed = numbers if key.ascending else numbers ^ np.uint64((1 << width) - 1)
    if not field.nullable:
        return directed
    null_bit = valid if key.nulls_first else ~valid
    return np.where(valid, directed, np.uint64(0)) | null_bit.astype(np.uint64) << np.uint64(width)
