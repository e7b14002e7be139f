"""Arrow arrays as NumPy arrays and back, for functions that Arrow does not have.

Values are read where they lie; what stands where an array is null is arbitrary, and must not decide anything. Flags of
which rows are there are None where all are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.errors import BadEntries, EvaluationError
from ikebana.expressions.core.base import ColumnBatch, Expression, Literal

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]


def dtype_of(kind: pa.DataType) -> Any:
    """What values of a type of fixed width are in NumPy: dates and times are whole numbers."""
    return np.dtype(f"int{kind.bit_width}") if types.is_temporal(kind) else np.dtype(kind.to_pandas_dtype())


def to_numpy(array: pa.Array) -> Array:
    """The values of an array of fixed width (booleans: as flags); not decimals."""
    if types.is_boolean(array.type):
        return flags_of(array)
    buffer = array.buffers()[1]
    found: Array = np.frombuffer(buffer if buffer is not None else b"", dtype_of(array.type))
    return found[array.offset : array.offset + len(array)]


def flags_of(array: pa.Array) -> Flags:
    """The bits of an array of booleans, whatever stands where it is null."""
    buffer, start = array.buffers()[1], array.offset // 8
    if buffer is None:
        return np.zeros(len(array), bool)
    bytes_ = np.frombuffer(buffer, np.uint8)[start : (array.offset + len(array) + 7) // 8]
    skipped = array.offset - 8 * start
    return np.unpackbits(bytes_, bitorder="little")[skipped : skipped + len(array)].view(bool)


def is_true(array: pa.Array) -> Flags:
    """Where booleans are true: neither false nor null."""
    return flags_of(array) if not array.null_count else flags_of(array) & flags_of(array.is_valid())


def validity(*arrays: pa.Array) -> Flags | None:
    """Where no array is null; None: everywhere."""
    found: Flags | None = None
    for array in arrays:
        if array.null_count:
            valid = flags_of(array.is_valid())
            found = valid if found is None else found & valid
    return found


def and_validity(one: Flags | None, other: Flags | None) -> Flags | None:
    """Where both are; None is everywhere."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def from_numpy(kind: pa.DataType, data: Array, valid: Flags | None = None) -> pa.Array:
    """An array of a type of fixed width from NumPy's values; null where it is not valid."""
    bitmap = None
    if valid is not None and not valid.all():
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if types.is_boolean(kind):
        packed = np.packbits(data.astype(bool, copy=False), bitorder="little")
    else:
        packed = np.ascontiguousarray(data, dtype_of(kind))
    return pa.Array.from_buffers(kind, len(data), [bitmap, pa.py_buffer(packed)])


def reinterpret(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same bits as another type of the same width."""
    return array if array.type == kind else array.view(kind)


def null_where(array: pa.Array, gone: Flags | None) -> pa.Array:
    """An array, null also where rows are marked."""
    if gone is None or not gone.any():
        return array
    return pc.if_else(pa.array(gone), pa.scalar(None, array.type), array)


def scatter(kind: pa.DataType, count: int, parts: Sequence[tuple[Flags, pa.Array]]) -> pa.Array:
    """An array made of others, each of which has the values of the rows that flags mark; null where none does."""
    index, length = np.zeros(count, np.int64), 1
    for flags, part in parts:
        index[flags] = np.arange(length, length + len(part))
        length += len(part)
    return pa.concat_arrays([pa.nulls(1, kind), *(part for _, part in parts)]).take(pa.array(index))


def operand(expression: Expression, rows: ColumnBatch) -> pa.Array | pa.Scalar:
    """The values of an expression; of a literal only its value: Arrow's functions take it for all rows."""
    return expression.scalar if isinstance(expression, Literal) else expression.evaluate(rows)


def operands(expressions: Sequence[Expression], rows: ColumnBatch) -> list[pa.Array | pa.Scalar]:
    """The values of expressions, of which at least one is an array."""
    found = [operand(each, rows) for each in expressions]
    if any(isinstance(each, pa.Array) for each in found):
        return found
    return [expressions[0].evaluate(rows), *found[1:]]


def fail_where(bad: Flags, valid: Flags | None, error: Callable[[int], EvaluationError]) -> None:
    """Raise the error of the first bad entry that is not null, if there is one; it says which are bad."""
    if not bad.any():
        return
    concerned = bad if valid is None else bad & valid
    if concerned.any():
        entries = np.flatnonzero(concerned)
        raised = error(int(entries[0]))
        raised.bad_entries = BadEntries(entries, len(concerned), error)
        raise raised
