"""The bridge between Arrow arrays and NumPy arrays: values, validity, and the words of decimals.

Every function reads and writes Arrow's buffers directly. NumPy arrays of values are views of the Arrow array's memory
and must not be written to; only booleans are unpacked. Values at null positions are arbitrary and must not influence
any result.

The validity of rows is a Boolean array that is true where a row is not null, or None where no row is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.lanes import Array, Lane

Mask: TypeAlias = npt.NDArray[np.bool_]

_INTEGER, _INT64 = pa.int64(), np.dtype(np.int64)
_UNCHECKED = pc.TakeOptions(boundscheck=False)


def have_bytes(arrays: Sequence[pa.Array], least: int) -> bool:
    """Whether arrays have at least so many bytes. What they are slices of is looked at first, which is quicker."""
    return (
        sum([array.get_total_buffer_size() for array in arrays]) >= least
        and sum([array.nbytes for array in arrays]) >= least
    )


def dtype_of(kind: pa.DataType) -> Any:
    """The NumPy type of the values of a fixed-width Arrow type; dates and times are integers."""
    if kind == _INTEGER:
        return _INT64
    return np.dtype(f"int{kind.bit_width}") if types.is_temporal(kind) else np.dtype(kind.to_pandas_dtype())


def to_numpy(array: pa.Array) -> Array:
    """The values of a fixed-width array, other than decimals (see `decimal_words`)."""
    if types.is_boolean(array.type):
        return unpack_bits(array)
    data: Array = np.frombuffer(array.buffers()[1] or b"", dtype_of(array.type))
    return data[array.offset : array.offset + len(array)]


def from_numpy(kind: pa.DataType, data: Array, valid: Mask | None = None) -> pa.Array:
    """An array of a fixed-width type, other than a decimal, with these values; null where `valid` is false."""
    if valid is None and kind == _INTEGER and data.dtype == np.int64:  # nearly always
        return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(np.ascontiguousarray(data))])
    if types.is_boolean(kind):
        packed = pack_bits(data.astype(bool, copy=False))
    else:
        packed = pa.py_buffer(np.ascontiguousarray(data, dtype_of(kind)))
    return pa.Array.from_buffers(kind, len(data), [pack_validity(valid), packed])


def take_rows(array: pa.Array, positions: pa.Array) -> pa.Array:
    """The values at positions that are known to be valid: Arrow's check of them takes a third of the time."""
    return pc.call_function("take", [array, positions], _UNCHECKED)


def decimal_words(array: pa.Array) -> tuple[Lane, Lane]:
    """The low and the high 64 bits of the unscaled values of a decimal128 array."""
    words: Lane = np.frombuffer(array.buffers()[1] or b"", np.int64)
    words = words[2 * array.offset : 2 * (array.offset + len(array))]
    return words[::2], words[1::2]


def from_decimal_words(kind: pa.DataType, low: Lane, high: Lane, valid: Mask | None = None) -> pa.Array:
    """A decimal128 array from the low and high 64 bits of its unscaled values; null where `valid` is false."""
    words = np.empty((len(low), 2), np.int64)
    words[:, 0], words[:, 1] = low, high
    return pa.Array.from_buffers(kind, len(low), [pack_validity(valid), pa.py_buffer(words)])


def unpack_bits(array: pa.Array) -> Mask:
    """The bits of a Boolean array; arbitrary where it is null."""
    buffer, start = array.buffers()[1], array.offset // 8
    if buffer is None:
        return np.zeros(len(array), bool)
    bytes_ = np.frombuffer(buffer, np.uint8)[start : (array.offset + len(array) + 7) // 8]
    skipped = array.offset - 8 * start
    return np.unpackbits(bytes_, bitorder="little")[skipped : skipped + len(array)].view(bool)


def pack_bits(flags: Array) -> pa.Buffer:
    """An Arrow bitmap of flags, which are Booleans or integers."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def validity(*arrays: pa.Array) -> Mask | None:
    """Where none of the arrays is null; None if no array has nulls."""
    result: Mask | None = None
    for array in arrays:
        if array.null_count:
            result = and_validity(result, unpack_bits(array.is_valid()))
    return result


def and_validity(left: Mask | None, right: Mask | None) -> Mask | None:
    """Where both validities hold."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def pack_validity(valid: Array | None) -> pa.Buffer | None:
    """The validity bitmap of an Arrow array; None, which means all valid, where it can be."""
    return None if valid is None or valid.all() else pack_bits(valid)


def is_instant(kind: pa.DataType) -> bool:
    """Timestamps with a time zone: points in time."""
    return bool(types.is_timestamp(kind) and kind.tz is not None)


def is_local_timestamp(kind: pa.DataType) -> bool:
    """Timestamps without a time zone: the reading of a local clock."""
    return bool(types.is_timestamp(kind) and kind.tz is None)
