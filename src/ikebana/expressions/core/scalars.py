"""Registration and evaluation of scalar functions.

Most functions are null where an argument is null, and their result type depends only on the argument types. `maps`
registers such a function together with its builder. The body of the function receives arrays, and Arrow scalars for
literal arguments: most Arrow kernels expect a pattern or position as a single value.

    @maps("Upper", gives=pa.string())
    def _upper(call: Call, text: Value) -> pa.Array: ...

Functions that neither Arrow nor NumPy provides are computed in Python, once per distinct combination of arguments
(`map_distinct`). The cost is hashing the columns plus one call per combination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import Mask, to_numpy, validity
from ikebana.errors import EvaluationError
from ikebana.expressions.core.base import (
    CASE_HINT,
    Call,
    ColumnBatch,
    Config,
    Expression,
    builds,
    function,
    is_nullable,
    repeated,
)
from ikebana.expressions.core.buffers import fail_where, null_where, operands
from ikebana.expressions.core.tree import Tree

Value: TypeAlias = pa.Array | pa.Scalar
"""The value of an argument: an array, or a scalar for a literal."""

Arguments = tuple[Expression, ...]
Typed: TypeAlias = pa.DataType | Callable[[Arguments], pa.DataType]
Body = Callable[..., pa.Array]


def maps(
    *kinds: str,
    gives: Typed,
    nullable: bool | Callable[[Tree, Arguments], bool] = lambda tree, arguments: is_nullable(arguments),
    raises: bool | Callable[[Call], bool] = False,
    options: Callable[[Tree, Config], tuple[Any, ...]] = lambda tree, config: (),
    check: Callable[[Arguments], None] = lambda arguments: None,
    strict: bool = True,
) -> Callable[[Body], Body]:
    """Register a function, under the name of the first of the Catalyst classes `kinds`, and the builder of all of them.

    `gives` is the result type and `check` raises an error for unsupported arguments. A `strict` function is null where
    an argument is null: its body is not called with null literals, and its results at null positions are ignored.
    """
    name = kinds[0]

    def register(body: Body) -> Body:
        def run(call: Call, rows: ColumnBatch) -> pa.Array:
            return _run(body, call, rows, strict)

        def build(tree: Tree, children: Arguments, config: Config) -> Expression:
            check(children)
            kind = gives if isinstance(gives, pa.DataType) else gives(children)
            may_be_null = nullable if isinstance(nullable, bool) else nullable(tree, children)
            return Call(kind, may_be_null, name, children, options(tree, config))

        function(name, lazy=True, raises=raises)(run)
        builds(*kinds)(build)
        return body

    return register


def nullable_unless_ansi(tree: Tree, arguments: Arguments) -> bool:
    """The nullability of a function that, depending on the mode, raises an error or is null for invalid values."""
    return is_nullable(arguments) if tree.fields["failOnError"] else True


def _run(body: Body, call: Call, rows: ColumnBatch, strict: bool) -> pa.Array:
    values = operands(call.arguments, rows)
    if not strict:
        return conform(body(call, *values), call.type)
    if any(isinstance(value, pa.Scalar) and not value.is_valid for value in values):
        return pa.nulls(rows.count, call.type)
    return null_where_invalid(conform(body(call, *values), call.type), validity_of(*values))


def null_where_invalid(array: pa.Array, is_valid: Mask | None) -> pa.Array:
    """The array with nulls added where `is_valid` is false."""
    if is_valid is None or is_valid.all():
        return array
    if pa.types.is_nested(array.type):
        return array.take(pa.array(np.arange(len(array)), mask=~is_valid))
    return null_where(array, ~is_valid)


def conform(result: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array converted to a type that differs from its own at most in the names of fields or in width."""
    if result.type == kind:
        return result
    if pa.types.is_struct(kind):
        columns = [conform(column, field.type) for column, field in zip(result.flatten(), kind, strict=True)]
        mask = result.is_null() if result.null_count else None
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
    if not pa.types.is_list(kind):
        return result.cast(kind)
    return list_array(result.offsets, conform(result.values, kind.value_type), kind, validity_of(result))


def list_array(offsets: pa.Array, items: pa.Array, kind: pa.DataType, is_valid: Mask | None = None) -> pa.Array:
    """A list array of a type from offsets and elements; null where `is_valid` is false."""
    offsets = pa.array(np.asarray(offsets, np.int32))  # a copy: Arrow rejects a mask with sliced offsets
    return pa.ListArray.from_arrays(offsets, items, type=kind, mask=None if is_valid is None else pa.array(~is_valid))


def validity_of(*values: Value) -> Mask | None:
    """Where no argument is null; None if no argument has nulls. Literals must not be null."""
    return validity(*(value for value in values if isinstance(value, pa.Array)))


def as_array(value: Value, rows: int) -> pa.Array:
    """An argument as a column."""
    return value if isinstance(value, pa.Array) else repeated(value, rows)


def row_count(*values: Value) -> int:
    """The number of rows, for arguments of which at least one is an array."""
    return next(len(value) for value in values if isinstance(value, pa.Array))


def to_numpy_values(value: Value) -> Any:
    """Values of a fixed-width type as a NumPy array, or a NumPy scalar for a literal; dates and times are integers.

    Values at null positions are arbitrary.
    """
    return to_numpy(value) if isinstance(value, pa.Array) else to_numpy(pa.repeat(value, 1))[0]


def to_int64(value: Value) -> Any:
    """Integers, days or microseconds as int64."""
    return to_numpy_values(value).astype(np.int64)


def literal_value(value: Value) -> Any:
    """The Python value of a literal, or None for a column."""
    return value.as_py() if isinstance(value, pa.Scalar) else None


def raise_where(bad: Any, call: Call, detail: str, *values: Value) -> None:
    """Raise an error if a row is bad and none of its arguments is null."""
    error = EvaluationError(f"cannot evaluate {call}", detail=detail, hint=CASE_HINT)
    fail_where(np.broadcast_to(bad, row_count(*values)), validity_of(*values), lambda row: error)


def map_distinct(compute: Callable[..., Any], kind: pa.DataType, *values: Value) -> pa.Array:
    """The results of a function of Python values; null where an argument is null or the function returns None.

    The function is called once per distinct combination of arguments.
    """
    codes = _combinations([value for value in values if isinstance(value, pa.Array)])
    not_null = validity_of(*values)
    if not_null is not None:
        codes[~not_null] = -1
    return _by_code(compute, kind, codes, values)


def map_distinct_with_nulls(compute: Callable[..., Any], kind: pa.DataType, *columns: pa.Array) -> pa.Array:
    """Like `map_distinct`, but the function is also called for nulls, which it receives as None."""
    return _by_code(compute, kind, _combinations(columns), columns)


def _by_code(compute: Callable[..., Any], kind: pa.DataType, codes: Any, values: Sequence[Value]) -> pa.Array:
    """Call the function once per code, with the arguments of one of its rows; null for code -1."""
    distinct, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    first_rows = pa.array(first)
    lists = [
        value.take(first_rows).to_pylist() if isinstance(value, pa.Array) else [value.as_py()] * len(first)
        for value in values
    ]
    results = [
        None if code == -1 else compute(*arguments) for code, *arguments in zip(distinct.tolist(), *lists, strict=True)
    ]
    return pa.array(results, kind).take(pa.array(inverse))


def _combinations(columns: Sequence[pa.Array]) -> Any:
    """A code for each row; rows have the same code if and only if they have the same values."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        if codes.any():
            codes = np.unique(codes, return_inverse=True)[1]  # keep codes small: their product must fit into 64 bits
        count = len(encoded.dictionary)
        codes = codes * (count + 1) + pc.fill_null(encoded.indices, count).to_numpy(zero_copy_only=False)
    return codes
