"""Canonical columns: Arrow arrays in which equal values are equal bytes, with few physical layouts.

Payloads store canonical columns. A flat column becomes a column of fixed width, of large strings or of large binaries;
decimals of up to 18 digits become 64-bit integers, half their size. A nested column (lists, structs and maps, to any
depth) becomes a column of large binaries: each value is serialized to bytes from which it can be read again, so that
code that compares, hashes, sorts or copies payloads handles no nested columns. The bytes of two values of a type are
equal exactly when the values are.

Floats are canonical at any depth: -0.0 is 0.0, and all NaNs are the same NaN. The entries of a map are ordered by
their keys, so that maps are equal if they have the same entries, in any order.

The serialization of nested values. A type has a *width* if all its values take the same number of bytes: numbers,
dates, times, booleans, and structs of such types only.

| value | bytes |
|---|---|
| with a width | little-endian; of a struct, for each field a validity byte and the value, zeros if it is null |
| string, binary | its bytes |
| list | the number of elements, 8 bytes; their cells |
| struct | fields that have a width, as above; the cells of the others |
| map | the list of its entries, structs of key and value |

The cells of elements with a width: a validity byte for each, then all values. The cells of others: 8 bytes for each,
the offset of its end from the first cell; then for each nothing if it is null, otherwise a 1 and its bytes.

Cost: a pass over flat columns, none if they are canonical already. Nested columns: a copy of the bytes for each level,
in the loops of Arrow and NumPy; maps are sorted. Not guaranteed: that the bytes of nested values are in the order of
the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import pack_validity
from ikebana.encoding.columns import (
    canonical_floats,
    integers_to_short_decimals,
    is_binary,
    is_list,
    is_nested,
    is_short_decimal,
    is_string,
    short_decimals_to_integers,
    valid_flags,
)
from ikebana.encoding.lanes import Array, Flags, Lane
from ikebana.kernels import gather_strings

_SMALL, _LARGE = pa.string(), pa.large_string()
_MOST_OFFSET = np.iinfo(np.int32).max
_INTEGER_BYTES = 8
"""Bytes of a count, or of the offset of an end."""
_NO_LANE, _NO_BYTES = np.zeros(1, np.int64), np.zeros(0, np.uint8)


def canonical(array: pa.Array) -> pa.Array:
    """Return the column with equal values as equal bytes: of fixed width, large strings or large binaries."""
    if is_nested(array.type):
        return _serialize(array)
    return short_decimals_to_integers(array) if is_short_decimal(array.type) else _flat(array)


def _flat(array: pa.Array) -> pa.Array:
    """Like `canonical`, for a column that is not nested; decimals are unchanged."""
    kind = array.type
    if types.is_floating(kind):
        return canonical_floats(array)
    if types.is_boolean(kind):
        return array.cast(pa.uint8())
    if is_string(kind):
        return _with_offsets(array, _LARGE) if kind == _SMALL else array.cast(_LARGE)
    if is_binary(kind):
        return array.cast(pa.large_binary())
    return array


def declared(array: pa.Array, field: pa.Field) -> pa.Array:
    """Convert a canonical column to the type that its field declares."""
    if is_nested(field.type):
        offsets, data = string_buffers(array)
        return _read(_Values(data, offsets[:-1], offsets[1:], valid_flags(array)), field.type)
    if is_short_decimal(field.type):
        return integers_to_short_decimals(array, field.type)
    if array.type == field.type:
        return array
    return _with_offsets(array, _SMALL) if array.type == _LARGE and field.type == _SMALL else array.cast(field.type)


def _with_offsets(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return strings with offsets of the other width. Arrow's cast takes 40 us, even for a single row."""
    if array.null_count:
        return array.cast(kind)
    _, offsets, data = array.buffers()
    given, wanted = (np.int32, np.int64) if kind == _LARGE else (np.int64, np.int32)
    bounds: Any = _NO_LANE if offsets is None or not offsets.size else np.frombuffer(offsets, given)
    bounds = bounds[array.offset : array.offset + len(array) + 1]
    if bounds[-1] > _MOST_OFFSET and kind == _SMALL:
        return array.cast(kind)  # copies the bytes, or raises
    return pa.Array.from_buffers(kind, len(array), [None, pa.py_buffer(bounds.astype(wanted)), data])


def string_buffers(array: pa.Array) -> tuple[Lane, Array]:
    """Return the offsets of the rows of large strings or binaries, and the bytes they point into."""
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int64) if offsets is not None and offsets.size else _NO_LANE
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else _NO_BYTES
    return starts[array.offset : array.offset + len(array) + 1], text


def fixed_bytes(array: pa.Array) -> Array:
    """Return the bytes of the rows of a column of fixed width."""
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return data[array.offset * width : (array.offset + len(array)) * width]


# Types.


def _width(kind: pa.DataType) -> int | None:
    """Return the number of bytes that every value of a type takes; None if it varies."""
    if types.is_struct(kind):
        widths = [_width(field.type) for field in _fields(kind)]
        return None if None in widths else sum(1 + (width or 0) for width in widths)
    if types.is_null(kind):
        return 0
    if types.is_boolean(kind):
        return 1
    return None if is_nested(kind) or is_string(kind) or is_binary(kind) else int(kind.bit_width) // 8


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(at) for at in range(kind.num_fields)]


# Serialization.


def _serialize(array: pa.Array) -> pa.Array:
    """Return the bytes of each value, null where it is null."""
    if _width(array.type) is not None:
        return _only_valid(_binaries(_blocks(array)), array)
    if types.is_struct(array.type):
        return _serialize_struct(array)
    if is_list(array.type):
        return _serialize_list(array)
    return canonical(array).cast(pa.large_binary())


def _blocks(array: pa.Array) -> Array:
    """Return the bytes of values that have a width, a row for each; zeros where they are null."""
    rows, valid = len(array), valid_flags(array)
    if types.is_struct(array.type):
        parts = [block for at in range(array.type.num_fields) for block in _flagged(array.field(at))]
        out = np.concatenate(parts, axis=1) if parts else np.zeros((rows, 0), np.uint8)
    elif types.is_null(array.type):
        out = np.zeros((rows, 0), np.uint8)
    else:
        flat = _flat(array)
        out = fixed_bytes(flat).reshape(rows, flat.type.bit_width // 8)
    return out if valid.all() else np.where(valid[:, None], out, 0).astype(np.uint8, copy=False)


def _flagged(array: pa.Array) -> tuple[Array, Array]:
    """Return the validity of each value, and its bytes."""
    return valid_flags(array)[:, None], _blocks(array)


def _binaries(blocks: Array) -> pa.Array:
    """Convert blocks of equal size to large binaries."""
    rows, width = blocks.shape
    return _pieces(np.arange(rows + 1) * width, blocks)


def _pieces(offsets: Lane, data: Array) -> pa.Array:
    """Return large binaries: bytes, cut at offsets."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _only_valid(values: pa.Array, array: pa.Array) -> pa.Array:
    """Return `values`, null where `array` is null."""
    return values if not array.null_count else pc.if_else(array.is_valid(), values, pa.scalar(None, values.type))


def _binary(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.large_binary())


def _joined(array: pa.Array, parts: Sequence[pa.Array]) -> pa.Array:
    """Concatenate binaries row by row; null where `array` is null."""
    return pc.binary_join_element_wise(_only_valid(parts[0], array), *parts[1:], _binary(b""))


def _cells(array: pa.Array) -> pa.Array:
    """Return nothing for a null, otherwise a 1 and the bytes of the value."""
    nothing = _binary(b"")
    return pc.fill_null(pc.binary_join_element_wise(_binary(b"\1"), _serialize(array), nothing), nothing)


def _serialize_struct(array: pa.Array) -> pa.Array:
    children = [array.field(at) for at in range(array.type.num_fields)]
    fixed = [block for child in children if _width(child.type) is not None for block in _flagged(child)]
    cells = [_cells(child) for child in children if _width(child.type) is None]
    ends = np.cumsum([pc.binary_length(column).to_numpy() for column in cells], axis=0).astype(np.int64).T
    blocks = [*fixed, np.ascontiguousarray(ends).view(np.uint8).reshape(len(array), _INTEGER_BYTES * len(cells))]
    return _joined(array, [_binaries(np.concatenate(blocks, axis=1)), *cells])


def _serialize_list(array: pa.Array) -> pa.Array:
    offsets, elements = _elements(array)
    counts = _binaries(np.diff(offsets).view(np.uint8).reshape(len(array), _INTEGER_BYTES))
    if _width(elements.type) is not None:
        flags, blocks = _flagged(elements)
        return _joined(array, [counts, _pieces(offsets, flags), _pieces(offsets * blocks.shape[1], blocks)])
    cell_offsets, data = string_buffers(_cells(elements))
    cuts = cell_offsets[offsets]
    ends = cell_offsets[1:] - np.repeat(cuts[:-1], np.diff(offsets))
    return _joined(array, [counts, _pieces(offsets * _INTEGER_BYTES, ends), _pieces(cuts, data)])


def _elements(array: pa.Array) -> tuple[Lane, pa.Array]:
    """Return offsets of the elements of each list, from 0, and all elements; those of a map are its sorted entries."""
    if types.is_fixed_size_list(array.type):
        size = array.type.list_size
        return np.arange(len(array) + 1) * size, array.values.slice(array.offset * size, len(array) * size)
    wide = types.is_large_list(array.type)
    stored = np.frombuffer(array.buffers()[1] or b"", np.int64 if wide else np.int32)
    offsets = stored[array.offset : array.offset + len(array) + 1].astype(np.int64)
    if not len(offsets):
        offsets = _NO_LANE
    first, last = int(offsets[0]), int(offsets[-1])
    if not types.is_map(array.type):
        return offsets - first, array.values.slice(first, last - first)
    keys, items = (column.slice(first, last - first) for column in (array.keys, array.items))
    order = pa.array(_order_in_maps(offsets - first, keys))
    entries = pa.StructArray.from_arrays(
        [keys.take(order), items.take(order)], fields=_fields(array.type.field(0).type)
    )
    return offsets - first, entries


def _order_in_maps(offsets: Lane, keys: pa.Array) -> Lane:
    """Return the order of entries by map, and within a map by key."""
    if len(keys) == 0 or np.diff(offsets).max() <= 1:
        return np.arange(len(keys))
    of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    table = pa.table({"of": of, "key": canonical(keys)})
    order: Lane = pc.sort_indices(table, [("of", "ascending"), ("key", "ascending")]).to_numpy()
    return order


# Deserialization.


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """The positions of the bytes of some values; null values have none."""

    data: Array
    starts: Lane
    ends: Lane
    valid: Flags

    def __len__(self) -> int:
        return len(self.starts)

    def bytes(self, start: Any, size: Any) -> tuple[Lane, Array]:
        """Return `size` bytes of each value from `start` on, concatenated, preceded by their offsets."""
        sizes = np.where(self.valid, size, 0)
        bounds = np.stack([self.starts + start, self.starts + start + sizes], axis=1)
        offsets, out = np.zeros(len(self) + 1, np.int64), np.empty(int(sizes.sum()), np.uint8)
        rows = np.arange(0, 2 * len(self), 2)
        gather_strings(bounds.reshape(-1), self.data, _NO_LANE, _NO_BYTES, 2 * len(self), rows, offsets, out, 0)
        return offsets, out

    def blocks(self, start: int, width: int) -> Array:
        """Return `width` bytes of each value, a row for each; zeros for null."""
        if self.valid.all():
            return self.bytes(start, width)[1].reshape(len(self), width)
        out, rows = np.zeros((len(self), width), np.uint8), np.flatnonzero(self.valid)
        out[rows] = self.bytes(start, width)[1].reshape(len(rows), width)
        return out

    def integers(self, start: int) -> Lane:
        """Return the 64-bit integer at a position in each value; 0 for null."""
        return self.blocks(start, _INTEGER_BYTES).view(np.int64).reshape(len(self))


def _read(values: _Values, kind: pa.DataType) -> pa.Array:
    """Return the column of these values."""
    width = _width(kind)
    if width is not None:
        return _of_blocks(values.blocks(0, width), values.valid, kind)
    if types.is_struct(kind):
        return _read_struct(values, kind)
    if is_list(kind):
        return _read_list(values, kind)
    offsets, data = values.bytes(0, values.ends - values.starts)
    long = pa.large_string() if is_string(kind) else pa.large_binary()
    buffers = [pack_validity(values.valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(long, len(values), buffers).cast(kind)


def _of_blocks(blocks: Array, valid: Flags, kind: pa.DataType) -> pa.Array:
    """Return the column of a type that has a width, from the bytes of its values."""
    rows, bitmap = len(blocks), pack_validity(valid)
    if types.is_null(kind):
        return pa.nulls(rows)
    if types.is_struct(kind):
        children, at = [], 0
        for field in _fields(kind):
            width = _width(field.type) or 0
            children.append(_of_blocks(blocks[:, at + 1 : at + 1 + width], blocks[:, at], field.type))
            at += 1 + width
        return pa.Array.from_buffers(kind, rows, [bitmap], children=children)
    stored = pa.uint8() if types.is_boolean(kind) else kind
    array = pa.Array.from_buffers(stored, rows, [bitmap, pa.py_buffer(np.ascontiguousarray(blocks))])
    return array if stored is kind else array.cast(kind)


def _read_struct(values: _Values, kind: pa.DataType) -> pa.Array:
    widths = [_width(field.type) for field in _fields(kind)]
    fixed = sum(1 + width for width in widths if width is not None)
    base = values.starts + fixed + _INTEGER_BYTES * widths.count(None)
    children, at, ends, start = [], 0, fixed, base
    for field, width in zip(_fields(kind), widths, strict=True):
        if width is not None:
            blocks = values.blocks(at, 1 + width)
            children.append(_of_blocks(blocks[:, 1:], blocks[:, 0], field.type))
            at += 1 + width
        else:
            end = base + values.integers(ends)
            children.append(_read_cells(values, start, np.where(values.valid, end, start), field.type))
            ends, start = ends + _INTEGER_BYTES, end
    return pa.Array.from_buffers(kind, len(values), [pack_validity(values.valid)], children=children)


def _read_cells(values: _Values, starts: Lane, ends: Lane, kind: pa.DataType) -> pa.Array:
    valid = (ends > starts).astype(np.uint8)
    return _read(_Values(values.data, starts + valid, ends, valid), kind)


def _read_list(values: _Values, kind: pa.DataType) -> pa.Array:
    counts = values.integers(0)
    offsets = np.append(0, np.cumsum(counts))
    element = kind.field(0).type
    width = _width(element)
    if width is not None:
        flags = values.bytes(_INTEGER_BYTES, counts)[1]
        blocks = values.bytes(_INTEGER_BYTES + counts, counts * width)[1].reshape(len(flags), width)
        elements = _of_blocks(blocks, flags, element)
    else:
        ends = values.bytes(_INTEGER_BYTES, counts * _INTEGER_BYTES)[1].view(np.int64)
        base = np.repeat(values.starts + _INTEGER_BYTES + counts * _INTEGER_BYTES, counts)
        starts = np.append(0, ends[:-1])[: len(ends)]
        starts[offsets[:-1][counts > 0]] = 0
        elements = _read_cells(values, base + starts, base + ends, element)
    if types.is_fixed_size_list(kind):
        return _fixed_size(kind, values, offsets, elements)
    stored = pa.array(offsets).cast(pa.int64() if types.is_large_list(kind) else pa.int32())
    return pa.Array.from_buffers(
        kind, len(values), [pack_validity(values.valid), stored.buffers()[1]], children=[elements]
    )


def _fixed_size(kind: pa.DataType, values: _Values, offsets: Lane, elements: pa.Array) -> pa.Array:
    """Return a column of lists of a fixed size, which have elements even where they are null."""
    size = kind.list_size
    rows = np.where(values.valid, offsets[:-1], -1)[:, None] + np.arange(size)
    taken = elements.take(pa.array(rows.reshape(-1), mask=np.repeat(values.valid == 0, size)))
    return pa.Array.from_buffers(kind, len(values), [pack_validity(values.valid)], children=[taken])
