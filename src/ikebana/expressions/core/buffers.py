"""Operations on Arrow arrays that functions share: operands, masks, and errors of single rows.

See `ikebana.encoding.arrow` for the conversion to NumPy arrays, and for how validity is represented.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import Flags, flags_of
from ikebana.errors import BadEntries, EvaluationError
from ikebana.expressions.core.base import ColumnBatch, Expression, Literal


def is_true(array: pa.Array) -> Flags:
    """Where booleans are true: neither false nor null."""
    return flags_of(array) if not array.null_count else flags_of(array) & flags_of(array.is_valid())


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
