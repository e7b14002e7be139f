"""Slots: columns as the 64-bit integers that programs compute with (`ikebana.kernels.program`).

Every column has such a form, also those that have no exact lane: texts, and nested values in their canonical bytes, are
references to bytes that stay where they are; decimals of more than 18 digits are integers, if they fit. The value of a
null is 0.

`values` returns None if a value does not fit into a slot: a long text, or a large decimal.

Contract: references are valid as long as the canonical array that they were made of.

Cost: a few passes over the column.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding import columns
from ikebana.encoding.arrow import decimal_words, dtype_of, from_decimal_words, from_numpy, pack_validity
from ikebana.encoding.canonical import canonical, declared, string_buffers
from ikebana.encoding.lanes import Array, Lane
from ikebana.kernels import gather_texts, layout, opcodes

NO_VALUES: Lane = np.empty(0, np.int64)

INTEGER = pa.int64()

MOST_BYTES = (1 << (64 - layout.ADDRESS_BITS)) - 1
"""The length of the longest text that fits into a slot."""

FORMS = {
    opcodes.SIGNED: layout.SIGNED,
    opcodes.UNSIGNED: layout.UNSIGNED,
    opcodes.FLOAT: layout.FLOAT,
    opcodes.WIDE: layout.WIDE,
    opcodes.TEXT: layout.TEXT,
}
"""How payload columns of each kind are stored."""


@lru_cache(maxsize=4096)
def kind_of(kind: pa.DataType) -> int:
    """What a slot has of a column of this type."""
    if columns.is_signed(kind):
        return opcodes.SIGNED
    if types.is_floating(kind):
        return opcodes.FLOAT
    if types.is_boolean(kind) or types.is_unsigned_integer(kind):
        return opcodes.UNSIGNED
    return opcodes.WIDE if types.is_decimal128(kind) else opcodes.TEXT


def stored_bits(kind: pa.DataType) -> int:
    """The number of bits of a stored value of fixed width."""
    if types.is_boolean(kind):
        return 8
    return 64 if types.is_decimal128(kind) else int(kind.bit_width)


def is_text(kind: pa.DataType) -> bool:
    """Whether slots of this type have references to bytes."""
    return kind_of(kind) == opcodes.TEXT


Values = tuple[Lane, pa.Array] | None
"""The slots of a column, and the array that holds the bytes of texts; None if a value does not fit into a slot."""


def values(array: pa.Array, field: pa.Field) -> Values:
    """The slots of a column."""
    return converter(field)(array)


def converter(field: pa.Field) -> Callable[[pa.Array], Values]:
    """The function that returns the slots of columns of a type: for many columns, to look at the type only once."""
    kind = field.type
    if columns.bits(field) is None:
        if kind in OFFSETS:
            return partial(_flat_text_values, OFFSETS[kind])
        return _text_values if kind_of(kind) == opcodes.TEXT else _wide_values
    if columns.is_signed(kind) and not types.is_decimal(kind):
        return partial(_integer_values, dtype_of(kind))
    return partial(_bit_values, field)


def _integer_values(dtype: Any, array: pa.Array) -> Values:
    start, buffer = array.offset, array.buffers()[1]
    slots = np.frombuffer(buffer, dtype)[start : start + len(array)] if len(array) else NO_VALUES
    return _without_nulls(slots, array), array


def _bit_values(field: pa.Field, array: pa.Array) -> Values:
    return _without_nulls(columns.register_values(array, field), array), array


OFFSETS = {pa.string(): np.int32, pa.large_string(): np.int64, pa.binary(): np.int32, pa.large_binary(): np.int64}
"""The types of the offsets of texts whose bytes are as in canonical columns."""


def _flat_text_values(dtype: Any, array: pa.Array) -> Values:
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return np.zeros(len(array), np.int64), array
    bounds = np.frombuffer(offsets, dtype)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    slots = _references(data.address, bounds, array)
    return None if slots is None else (slots, array)


def _text_values(array: pa.Array) -> Values:
    stored = canonical(array)
    slots = _texts(stored)
    return None if slots is None else (slots, stored)


def _wide_values(array: pa.Array) -> Values:
    stored = canonical(array)
    slots = _wide(stored)
    return None if slots is None else (slots, stored)


def _without_nulls(slots: Lane, array: pa.Array) -> Lane:
    return slots * columns.valid_flags(array) if array.null_count else slots


def _texts(stored: pa.Array) -> Lane | None:
    """References to the texts of a canonical column."""
    offsets, data = string_buffers(stored)
    return _references(address_of(data), offsets, stored) if len(stored) else NO_VALUES


def _references(address: int, bounds: Lane, array: pa.Array) -> Lane | None:
    """References to texts between bounds, which are offsets from an address; None if one of them is too long."""
    lengths = bounds[1:] - bounds[:-1]
    if lengths.max() > MOST_BYTES:
        return None
    return _without_nulls((bounds[:-1] + address) | lengths << layout.ADDRESS_BITS, array)


def _wide(stored: pa.Array) -> Lane | None:
    low, high = (_without_nulls(word, stored) for word in decimal_words(stored))
    return low if np.array_equal(high, low >> 63) else None


def nulls(array: pa.Array) -> Lane:
    """1 for each null, 0 for each value."""
    return (1 - columns.valid_flags(array)).astype(np.int64)


def restorer(field: pa.Field) -> Callable[[Lane, Lane | None], pa.Array]:
    """The function that returns the column, as its field declares it, of slots of values and slots of nulls."""
    if field.type == pa.int64():
        return integer_array
    return partial(_restored, field)


def integer_array(slots: Lane, is_null: Lane | None = None) -> pa.Array:
    """The column of 64-bit integers of some slots, which it keeps."""
    valid = None if is_null is None else pack_validity(is_null == 0)
    return pa.Array.from_buffers(INTEGER, len(slots), [valid, pa.py_buffer(slots)])


def _restored(field: pa.Field, slots: Lane, is_null: Lane | None) -> pa.Array:
    return declared(to_canonical(slots, is_null, field), field)


def to_canonical(slots: Lane, is_null: Lane | None, field: pa.Field) -> pa.Array:
    """Return the canonical column of some slots."""
    kind, valid = kind_of(field.type), None if is_null is None else is_null == 0
    if kind == opcodes.TEXT:
        return _to_texts(slots, valid, pa.large_string() if columns.is_string(field.type) else pa.large_binary())
    if kind == opcodes.WIDE:
        return from_decimal_words(field.type, slots, slots >> 63, valid)
    if kind == opcodes.FLOAT:
        return from_numpy(field.type, _to_floats(slots, field.type), valid)
    return from_numpy(_stored_type(field.type), slots, valid)


def _stored_type(kind: pa.DataType) -> pa.DataType:
    if types.is_boolean(kind):
        return pa.uint8()
    return pa.int64() if columns.is_short_decimal(kind) else kind


def _to_texts(slots: Lane, valid: Array | None, kind: pa.DataType) -> pa.Array:
    lengths = slots >> layout.ADDRESS_BITS & MOST_BYTES
    offsets, data = np.zeros(len(slots) + 1, np.int64), np.empty(int(lengths.sum()), np.uint8)
    gather_texts(slots, offsets, data)
    buffers = [pack_validity(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(slots), buffers)


def _to_floats(slots: Lane, kind: pa.DataType) -> Array:
    """The floats of ordered bits."""
    width = kind.bit_width
    unsigned, sign = slots.view(np.uint64), np.uint64(1 << (width - 1))
    raw = np.where(unsigned & sign, unsigned ^ sign, ~unsigned)
    return raw.astype(f"uint{width}").view(f"float{width}")


def address_of(array: Array) -> int:
    """The address of an array's first cell."""
    cells = array if array.flags.c_contiguous else array[(slice(1),) * array.ndim]
    return int(pa.py_buffer(cells).address)  # a fourth of the time that NumPy takes to tell
