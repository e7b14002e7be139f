"""How functions of single values are registered, and computed over columns.

Most functions are null where an argument is null, and have a type that their arguments' types decide. `maps` registers
such a function together with its builder. Its body is given arrays, and Arrow scalars for literal arguments: most
kernels of Arrow's want their pattern or position as one value, and nothing is repeated for each row.

    @maps("Upper", gives=pa.string())
    def _upper(call: Call, text: Value) -> pa.Array: ...

What Arrow and NumPy cannot compute is computed by Python, once for each distinct combination of arguments
(`each_distinct`): its cost is hashing the columns plus a call for each combination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import Flags, to_numpy, validity
from ikebana.errors import EvaluationError
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, builds, function, is_nullable
from ikebana.expressions.core.buffers import fail_where, null_where, operands
from ikebana.expressions.core.tree import Tree

Value: TypeAlias = pa.Array | pa.Scalar
"""An argument: a column, or a literal."""

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
    """Register a function of the same name as the first of Catalyst's classes that it stands for, and its builder.

    `check` raises for arguments that are refused. A function that is not `strict` may have a value where an argument
    is null; one that is, is not called with null literals, and what it has where an argument is null does not matter.
    """
    name = kinds[0]

    def register(body: Body) -> Body:
        def run(call: Call, rows: ColumnBatch) -> pa.Array:
            return _run(body, call, rows, strict)

        def build(tree: Tree, children: Arguments, config: Config) -> Expression:
            check(children)
            kind = gives if isinstance(gives, pa.DataType) else gives(children)
            may = nullable if isinstance(nullable, bool) else nullable(tree, children)
            return Call(kind, may, name, children, options(tree, config))

        function(name, lazy=True, raises=raises)(run)
        builds(*kinds)(build)
        return body

    return register


def unless_it_fails(tree: Tree, arguments: Arguments) -> bool:
    """Whether a function may be null that raises for values that make no sense, or is null for them."""
    return is_nullable(arguments) if tree.fields["failOnError"] else True


def _run(body: Body, call: Call, rows: ColumnBatch, strict: bool) -> pa.Array:
    given = operands(call.arguments, rows)
    if not strict:
        return shaped(body(call, *given), call.type)
    if any(isinstance(each, pa.Scalar) and not each.is_valid for each in given):
        return pa.nulls(rows.count, call.type)
    return masked(shaped(body(call, *given), call.type), valid(*given))


def masked(array: pa.Array, there: Flags | None) -> pa.Array:
    """An array, null also where flags are not set."""
    if there is None or there.all():
        return array
    if pa.types.is_nested(array.type):
        return array.take(pa.array(np.arange(len(array)), mask=~there))
    return null_where(array, ~there)


def shaped(result: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array of exactly a type that differs from what it has at most in names or in width."""
    if result.type == kind:
        return result
    if not pa.types.is_list(kind):
        return result.cast(kind)
    return as_lists(result.offsets, shaped(result.values, kind.value_type), kind, valid(result))


def as_lists(offsets: pa.Array, items: pa.Array, kind: pa.DataType, there: Flags | None = None) -> pa.Array:
    """Lists of a type from where they begin and end, null where flags are not set."""
    offsets = pa.array(np.asarray(offsets, np.int32))  # not a slice: a mask wants them to begin their buffer
    return pa.ListArray.from_arrays(offsets, items, type=kind, mask=None if there is None else pa.array(~there))


def valid(*given: Value) -> Flags | None:
    """Where no argument is null; None: everywhere."""
    return validity(*(each for each in given if isinstance(each, pa.Array)))


def rows_of(*given: Value) -> int:
    """How many rows there are."""
    return next(len(each) for each in given if isinstance(each, pa.Array))


def numbers(value: Value) -> Any:
    """Values of fixed width as NumPy has them, days and microseconds as whole numbers; of a literal just one.

    What stands where an array is null is arbitrary.
    """
    return to_numpy(value) if isinstance(value, pa.Array) else to_numpy(pa.repeat(value, 1))[0]


def wide(value: Value) -> Any:
    """Whole numbers, days or microseconds, with room for arithmetic."""
    return numbers(value).astype(np.int64)


def constant(value: Value) -> Any:
    """The literal's value, or None for a column."""
    return value.as_py() if isinstance(value, pa.Scalar) else None


def refuse_where(bad: Any, call: Call, detail: str, *given: Value) -> None:
    """Raise if any row without nulls is marked."""
    error = EvaluationError(f"cannot evaluate {call}", detail=detail, hint="use the try_ form of the function, or CASE")
    fail_where(np.broadcast_to(bad, rows_of(*given)), valid(*given), lambda row: error)


def each_distinct(compute: Callable[..., Any], kind: pa.DataType, *given: Value) -> pa.Array:
    """What a function of Python values gives for each row; null where an argument is, or where it returns None.

    It is called once for each distinct combination of arguments.
    """
    codes = _combinations([each for each in given if isinstance(each, pa.Array)])
    concerned = valid(*given)
    if concerned is not None:
        codes[~concerned] = -1
    return _by_code(compute, kind, codes, given)


def each_distinct_with_nulls(compute: Callable[..., Any], kind: pa.DataType, *columns: pa.Array) -> pa.Array:
    """The same for a function that has a value for nulls too, which it is given as None."""
    return _by_code(compute, kind, _combinations(columns), columns)


def _by_code(compute: Callable[..., Any], kind: pa.DataType, codes: Any, given: Sequence[Value]) -> pa.Array:
    """What a function gives for one row of each code; null for code -1."""
    distinct, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    chosen = pa.array(first)
    lists = [
        each.take(chosen).to_pylist() if isinstance(each, pa.Array) else [each.as_py()] * len(first) for each in given
    ]
    results = [
        None if code == -1 else compute(*arguments) for code, *arguments in zip(distinct.tolist(), *lists, strict=True)
    ]
    return pa.array(results, kind).take(pa.array(inverse))


def _combinations(columns: Sequence[pa.Array]) -> Any:
    """A number for each row, the same for rows with the same values."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        if codes.any():
            codes = np.unique(codes, return_inverse=True)[1]  # as small as can be: products must fit
        count = len(encoded.dictionary)
        codes = codes * (count + 1) + pc.fill_null(encoded.indices, count).to_numpy(zero_copy_only=False)
    return codes
