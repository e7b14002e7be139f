"""Helpers for functions over Arrow arrays: operands, masks, and errors of individual rows.

Values and validity are converted to NumPy arrays by `ikebana.encoding.arrow`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import Mask, unpack_bits
from ikebana.errors import BadEntries, EvaluationError
from ikebana.expressions.core.base import ColumnBatch, Expression, Literal


def is_true(array: pa.Array) -> Mask:
    """Where a Boolean array is true, that is, neither false nor null."""
    return unpack_bits(array) if not array.null_count else unpack_bits(array) & unpack_bits(array.is_valid())


def reinterpret(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same bits as a type of the same width."""
    return array if array.type == kind else array.view(kind)


def null_where(array: pa.Array, mask: Mask | None) -> pa.Array:
    """The array with nulls added where `mask` is true."""
    if mask is None or not mask.any():
        return array
    return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)


def scatter(kind: pa.DataType, count: int, parts: Sequence[tuple[Mask, pa.Array]]) -> pa.Array:
    """An array of `count` rows with the values of each part at the rows that its flags mark, in order; else null."""
    index, length = np.zeros(count, np.int64), 1
    for flags, part in parts:
        index[flags] = np.arange(length, length + len(part))
        length += len(part)
    return pa.concat_arrays([pa.nulls(1, kind), *(part for _, part in parts)]).take(pa.array(index))


def operand(expression: Expression, rows: ColumnBatch) -> pa.Array | pa.Scalar:
    """The values of an expression: a scalar for a literal, which Arrow's functions broadcast, else an array."""
    return expression.scalar if isinstance(expression, Literal) else expression.evaluate(rows)


def operands(expressions: Sequence[Expression], rows: ColumnBatch) -> list[pa.Array | pa.Scalar]:
    """The values of several expressions, at least one of them as an array."""
    results = [operand(expression, rows) for expression in expressions]
    if any(isinstance(result, pa.Array) for result in results):
        return results
    return [expressions[0].evaluate(rows), *results[1:]]


def fail_where(bad: Mask, valid: Mask | None, error: Callable[[int], EvaluationError]) -> None:
    """Raise the error of the first bad entry that is not null, if any, with all bad entries attached."""
    if not bad.any():
        return
    failing = bad if valid is None else bad & valid
    if failing.any():
        entries = np.flatnonzero(failing)
        first_error = error(int(entries[0]))
        first_error.bad_entries = BadEntries(entries, len(failing), error)
        raise first_error
