"""Payload: the columns of hashed sides, stored beside the lanes, row by row.

A payload is a tuple of canonical Arrow arrays, one for each column, all as long as the batch. It is read
when rows are emitted, when equal lanes must be verified, and when a merge copies it.

`PayloadMerge` writes the payload of a merge's output into buffers in Arrow's layout that are allocated once, in the
space of the output (`ikebana.encoding.spaces`), a bounded number of rows in each call; pages not yet written cost no
memory.

Cost: in proportion to the given rows; `PayloadMerge.finish` also packs a validity bit for each row of a nullable
column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import pack_bits, take_rows
from ikebana.encoding.canonical import fixed_bytes, string_buffers
from ikebana.encoding.columns import valid_flags
from ikebana.encoding.lanes import Array, Lane
from ikebana.encoding.spaces import Space
from ikebana.kernels import (
    gather_bits,
    gather_fixed,
    gather_halves,
    gather_strings,
    gather_words,
    hash_bytes,
    hash_integers,
    same_fixed,
    same_strings,
)

Payload: TypeAlias = tuple[pa.Array, ...]


def take(payload: Payload, rows: Lane) -> Payload:
    """Return the rows at the given positions, in that order; the positions are not checked."""
    if not payload:
        return ()
    positions = pa.array(rows)
    return tuple([take_rows(array, positions) for array in payload])


def concat(payloads: Sequence[Payload]) -> Payload:
    """Concatenate payloads with the same columns."""
    return tuple(pa.concat_arrays(arrays) for arrays in zip(*payloads, strict=True))


def nbytes(payload: Payload) -> int:
    """Return the number of bytes that the payload takes in memory."""
    return sum(array.nbytes for array in payload)


def same_rows(a: Payload, a_rows: Lane, b: Payload, b_rows: Lane) -> Any:
    """For pairs of rows of two payloads, at the given positions: whether they are equal in every column.

    Null equals null. Floats are compared by their bits, as they are canonical.
    """
    same = np.ones(len(a_rows), np.uint8)
    for one, other in zip(a, b, strict=True):
        is_text = _is_variable_width(one.type)
        one_cells, other_cells = ((string_buffers if is_text else _fixed_cells)(array) for array in (one, other))
        sources = *one_cells, *_bitmap(one), *other_cells, *_bitmap(other)
        if is_text:
            same_strings(*sources, a_rows, b_rows, same)
        else:
            same_fixed(*sources, one.type.bit_width // 8, a_rows, b_rows, same)
    return same.view(bool)


def cells(payload: Payload) -> list[tuple[bytes, ...]]:
    """Return the rows as byte strings, which are equal exactly if the data is; a null is an empty string.

    (Python values would not do: the range of Python's dates and times is smaller than Arrow's.)
    """
    return list(zip(*map(_cells, payload), strict=True))


def _cells(array: pa.Array) -> list[bytes]:
    if _is_variable_width(array.type):
        values = array.cast(pa.large_binary()).to_pylist()
    else:
        width = array.type.bit_width // 8
        values = [row.tobytes() for row in fixed_bytes(array).reshape(len(array), width)]
    return [b"\1" + value if valid else b"" for value, valid in zip(values, valid_flags(array), strict=True)]


def hashes(payload: Payload) -> Lane:
    """Return a 64-bit hash of each row."""
    out = np.zeros(len(payload[0]), np.int64)
    for array in payload if len(out) else ():
        valid = valid_flags(array)
        if _is_variable_width(array.type):
            offsets, data = string_buffers(array)
            hash_bytes(offsets, data, valid, out)
        else:
            for word in _words(array):
                hash_integers(word, valid, out)
    return out


def _is_variable_width(kind: pa.DataType) -> bool:
    return bool(types.is_large_string(kind) or types.is_large_binary(kind))


def _bitmap(array: pa.Array) -> tuple[Array, int]:
    """Return the validity bitmap of an array (empty if it has no nulls) and the bit at which it starts."""
    bitmap = array.buffers()[0] if array.null_count else None
    return (np.zeros(0, np.uint8) if bitmap is None else np.frombuffer(bitmap, np.uint8)), array.offset


def _fixed_cells(array: pa.Array) -> tuple[Array]:
    """Where `same_fixed` reads the rows of a column of fixed width."""
    return (fixed_bytes(array),)


def _words(array: pa.Array) -> list[Lane]:
    """Convert a fixed-width array to one or more int64 columns."""
    width = array.type.bit_width // 8
    rows = fixed_bytes(array)
    if width < 8:
        return [rows.view(f"int{8 * width}").astype(np.int64)]
    words = rows.view(np.int64).reshape(len(array), width // 8)
    return [words[:, column] for column in range(words.shape[1])]


class PayloadMerge:
    """The payload of the merge of two batches, copied row by row."""

    def __init__(self, a: Payload, b: Payload, space: Space) -> None:
        self._columns = [_ColumnMerge(left, right, space) for left, right in zip(a, b, strict=True)]
        self._rows = 0

    def append(self, rows: Lane) -> None:
        """Copy the rows at the given positions; those of the second batch come after those of the first."""
        for column in self._columns:
            column.append(rows, self._rows)
        self._rows += len(rows)

    def append_range(self, side: int, start: int, end: int) -> None:
        """Copy consecutive rows of the first batch (side 0), or of the second (side 1)."""
        for column in self._columns:
            column.append_range(side, start, end, self._rows)
        self._rows += end - start

    def finish(self) -> Payload:
        """Return the copied rows."""
        return tuple(column.finish(self._rows) for column in self._columns)


_CELLS: dict[int, tuple[np.dtype[Any], Any]] = {
    64: (np.dtype(np.int64), gather_words),
    32: (np.dtype(np.int32), gather_halves),
    8: (np.dtype(np.uint8), gather_fixed),
}
"""The cells in which rows of fixed width are copied, by their number of bits, the widest first."""


class _ColumnMerge:
    def __init__(self, a: pa.Array, b: pa.Array, space: Space) -> None:
        self._space, self._a_rows, total = space, len(a), len(a) + len(b)
        self._type = a.type
        self._is_variable_width = _is_variable_width(a.type)
        self._sources: list[Array] = []
        if self._is_variable_width:
            self._sources = [*string_buffers(a), *string_buffers(b)]
            self._offsets = space.empty(total + 1)
            self._offsets[0] = 0
            used = [int(starts[-1] - starts[0]) if len(starts) else 0 for starts in self._sources[::2]]
            self._data = space.empty(sum(used), np.uint8)
        else:
            unit, self._gather = next(cells for bits, cells in _CELLS.items() if a.type.bit_width % bits == 0)
            self._sources = [fixed_bytes(a).view(unit), fixed_bytes(b).view(unit)]
            self._width = a.type.bit_width // 8 // unit.itemsize
            self._data = space.empty(total * self._width, unit)
        self._bitmaps = (*_bitmap(a), *_bitmap(b))
        self._valid = space.empty(total, np.uint8) if a.null_count or b.null_count else None

    def append(self, rows: Lane, at: int) -> None:
        if self._is_variable_width:
            gather_strings(*self._sources, self._a_rows, rows, self._offsets, self._data, at)
        else:
            self._gather(*self._sources, self._a_rows, self._width, rows, self._data, at)
        if self._valid is not None:
            gather_bits(*self._bitmaps, self._a_rows, rows, self._valid, at)

    def append_range(self, side: int, start: int, end: int, at: int) -> None:
        if self._is_variable_width:
            offsets, data = self._sources[2 * side : 2 * side + 2]
            first, last, copied = int(offsets[start]), int(offsets[end]), int(self._offsets[at])
            self._data[copied : copied + last - first] = data[first:last]
            np.add(offsets[start + 1 : end + 1], copied - first, out=self._offsets[at + 1 : at + 1 + end - start])
        else:
            width = self._width
            self._data[at * width : (at + end - start) * width] = self._sources[side][start * width : end * width]
        if self._valid is not None:
            gather_bits(*self._bitmaps, self._a_rows, np.arange(start, end) + side * self._a_rows, self._valid, at)

    def finish(self, rows: int) -> pa.Array:
        bitmap = None
        if self._valid is not None:
            bitmap = pack_bits(self._valid[:rows])
            self._space.free(self._valid)
        if self._is_variable_width:
            offsets = self._space.trimmed(self._offsets, rows + 1)
            buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(self._space.trimmed(self._data, int(offsets[rows])))]
        else:
            buffers = [bitmap, pa.py_buffer(self._space.trimmed(self._data, rows * self._width))]
        return pa.Array.from_buffers(self._type, rows, buffers)
