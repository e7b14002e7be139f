"""Expressions in programs: columns, constants, comparisons, arithmetic, logic, CASE, COALESCE and IN over integers.

`lowered` writes an expression as instructions, if all its parts have one: columns of signed integers, dates, timestamps
and booleans, and comparisons of decimals of the same type with up to 18 digits. Floats are only passed on.

A program evaluates all parts of an expression for all rows, also those that AND, OR and CASE would not evaluate. If one
of them overflows, the program does not succeed, and the rows are evaluated as usual: the overflow raises or, without
ANSI mode, wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding import columns
from ikebana.expressions import Expression
from ikebana.expressions.core import base
from ikebana.kernels import opcodes
from ikebana.operators.program import Column, ProgramBuilder, Rows

MOST_CONSTANTS = 32
"""IN with more constants than this is not written as comparisons."""


_ZERO = Column(0, 0)


def lowered(program: ProgramBuilder, rows: Rows, expression: Expression) -> Column | None:
    """The slots of an expression's value; None if the expression cannot be written as instructions."""
    return _Lowering(program, rows).lower(expression)


def bit_length(program: ProgramBuilder, rows: Rows, column: str, factor: int) -> Column:
    """The number of bits of the integers in a column (0 if negative), multiplied by a factor."""
    lowering = _Lowering(program, rows)
    bits = lowering.emit(opcodes.BIT_LENGTH, rows.columns[column])
    constant = lowering.emit(opcodes.CONSTANT, least=factor)
    return lowering.emit(opcodes.MULTIPLY, bits, constant, greatest=1 << 62)


class _Lowering:
    """Writes expressions over the columns of a register."""

    def __init__(self, program: ProgramBuilder, rows: Rows) -> None:
        self._program, self._rows = program, rows

    def lower(self, expression: Expression) -> Column | None:
        if isinstance(expression, base.Column):
            return self._rows.columns[expression.name]
        if isinstance(expression, base.Literal):
            return self._literal(expression)
        if not isinstance(expression, base.Call) or expression.function not in _CALLS:
            return None
        if not all(_is_known(argument.type) for argument in (expression, *expression.arguments)):
            return None
        arguments = [self.lower(argument) for argument in expression.arguments]
        present = [argument for argument in arguments if argument is not None]
        if len(present) < len(arguments):
            return None
        return _CALLS[expression.function](self, expression, present)

    def _literal(self, literal: base.Literal) -> Column | None:
        if not _is_known(literal.type):
            return None
        if literal.value is None:
            return Column(0, self.emit(opcodes.CONSTANT, least=1).value)
        array = pa.array([literal.value], literal.type)
        value = int(columns.register_values(array, pa.field("", literal.type))[0])
        return self.emit(opcodes.CONSTANT, least=value)

    def emit(
        self, opcode: int, *operands: Column, least: int = 0, greatest: int = 0, nullable: bool | None = None
    ) -> Column:
        """Add an instruction for up to two columns; the result may be null if one of them may be, or as given."""
        a, b = (*operands, _ZERO, _ZERO)[:2]
        nullable = bool(a.null or b.null) if nullable is None else nullable
        result = Column(self._program.slot(), self._program.slot() if nullable else 0)
        slots = result.value, result.null, a.value, a.null, b.value, b.null
        self._program.emit(opcode, self._rows.count, *slots, least, greatest)
        return result

    def choose(self, condition: Column, value: Column, otherwise: Column) -> Column:
        """One value where a condition is true and not null, the other elsewhere."""
        nullable = bool(value.null or otherwise.null)
        flag, null = condition.value, condition.null
        return self.emit(opcodes.CHOOSE, value, otherwise, least=flag, greatest=null, nullable=nullable)


def _is_known(kind: pa.DataType) -> bool:
    return types.is_boolean(kind) or (columns.is_signed(kind) and columns.bits(pa.field("", kind)) is not None)


Lower = Callable[[_Lowering, base.Call, Sequence[Column]], Column | None]


def _comparison(opcode: int, *, swapped: bool = False) -> Lower:
    def lower(to: _Lowering, call: base.Call, arguments: Sequence[Column]) -> Column | None:
        left, right = reversed(arguments) if swapped else arguments
        if len({argument.type for argument in call.arguments}) > 1:
            return None
        return to.emit(opcode, left, right)

    return lower


def _arithmetic(opcode: int) -> Lower:
    def lower(to: _Lowering, call: base.Call, arguments: Sequence[Column]) -> Column | None:
        if not types.is_signed_integer(call.type):
            return None
        limits = np.iinfo(call.type.to_pandas_dtype())
        return to.emit(opcode, *arguments, least=int(limits.min), greatest=int(limits.max))

    return lower


def _logic(opcode: int) -> Lower:
    def lower(to: _Lowering, call: base.Call, arguments: Sequence[Column]) -> Column | None:
        return to.emit(opcode, *arguments)

    return lower


def _is_null(to: _Lowering, call: base.Call, arguments: Sequence[Column]) -> Column | None:
    return to.emit(opcodes.IS_NULL, arguments[0], nullable=False)


def _is_not_null(to: _Lowering, call: base.Call, arguments: Sequence[Column]) -> Column | None:
    return to.emit(opcodes.NOT, to.emit(opcodes.IS_NULL, arguments[0], nullable=False))


def _extreme(opcode: int) -> Lower:
    def lower(to: _Lowering, call: base.Call, arguments: Sequence[Column]) -> Column | None:
        if any(argument.null for argument in arguments):
            return None  # nulls are skipped
        best = arguments[0]
        for argument in arguments[1:]:
            best = to.emit(opcode, best, argument)
        return best

    return lower


def _case(to: _Lowering, call: base.Call, arguments: Sequence[Column]) -> Column | None:
    """Conditions and values in turn, then the value of ELSE."""
    *branches, result = arguments
    for at in range(len(branches) - 2, -1, -2):
        result = to.choose(branches[at], branches[at + 1], result)
    return result


def _coalesce(to: _Lowering, call: base.Call, arguments: Sequence[Column]) -> Column | None:
    result = arguments[-1]
    for argument in reversed(arguments[:-1]):
        is_null = to.emit(opcodes.IS_NULL, argument, nullable=False)
        result = to.choose(is_null, result, argument)
    return result


def _in(to: _Lowering, call: base.Call, arguments: Sequence[Column]) -> Column | None:
    value, *constants = arguments
    if len(constants) > MOST_CONSTANTS or len({argument.type for argument in call.arguments}) > 1:
        return None
    result = to.emit(opcodes.EQUAL, value, constants[0])
    for constant in constants[1:]:
        result = to.emit(opcodes.OR, result, to.emit(opcodes.EQUAL, value, constant))
    return result


def _cast(to: _Lowering, call: base.Call, arguments: Sequence[Column]) -> Column | None:
    """Integers that become wider stay as they are."""
    source, target = call.arguments[0].type, call.type
    is_wider = types.is_signed_integer(source) and types.is_signed_integer(target)
    return arguments[0] if is_wider and source.bit_width <= target.bit_width else None


_CALLS: dict[str, Lower] = {
    "equal": _comparison(opcodes.EQUAL),
    "less": _comparison(opcodes.LESS),
    "less_equal": _comparison(opcodes.LESS_EQUAL),
    "greater": _comparison(opcodes.LESS, swapped=True),
    "greater_equal": _comparison(opcodes.LESS_EQUAL, swapped=True),
    "add": _arithmetic(opcodes.ADD),
    "subtract": _arithmetic(opcodes.SUBTRACT),
    "multiply": _arithmetic(opcodes.MULTIPLY),
    "and": _logic(opcodes.AND),
    "or": _logic(opcodes.OR),
    "not": _logic(opcodes.NOT),
    "is null": _is_null,
    "is not null": _is_not_null,
    "least": _extreme(opcodes.LEAST),
    "greatest": _extreme(opcodes.GREATEST_OF),
    "case": _case,
    "coalesce": _coalesce,
    "in": _in,
    "cast": _cast,
}
"""How calls of each function are written; other functions cannot be."""
