"""Expressions in programs: columns, constants, comparisons, arithmetic, logic, CASE, COALESCE, IN, parts of texts.

`lowered` writes an expression as instructions. There are some for signed integers, dates, timestamps, booleans,
decimals and texts. A part that has none is a call: the program stops there, and it is evaluated as in a visit. Only
expressions with users' functions cannot be written.

A program evaluates all parts of an expression for all rows, also those that AND, OR and CASE would not evaluate. If one
of them raises or overflows, the program does not succeed, and the rows are evaluated as usual: an overflow raises or,
without ANSI mode, wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding import slots
from ikebana.expressions import ColumnBatch, Expression, PythonFunction
from ikebana.expressions.core import base
from ikebana.expressions.numbers.magnitudes import MANTISSA_BITS
from ikebana.kernels import opcodes
from ikebana.operators.changes import Changes
from ikebana.operators.program import GREATEST, ProgramBuilder
from ikebana.operators.registers import ColumnSlots, Rows

MOST_CONSTANTS = 32
"""IN with more constants than this is not written as comparisons."""


def lowered(program: ProgramBuilder, rows: Rows, expression: Expression) -> ColumnSlots | None:
    """The slots of an expression's value; None if the expression cannot be written as instructions."""
    return _Lowering(program, rows).lower(expression)


def bit_length(program: ProgramBuilder, rows: Rows, column: str, factor: int) -> ColumnSlots:
    """The number of bits of the integers in a column (0 if negative), multiplied by a factor."""
    lowering = _Lowering(program, rows)
    bits = lowering.emit(opcodes.BIT_LENGTH, rows.columns[column])
    constant = lowering.emit(opcodes.CONSTANT, least=factor)
    return lowering.emit(opcodes.MULTIPLY, bits, constant, greatest=1 << 62)


class _Lowering:
    """Writes expressions over the columns of a register."""

    def __init__(self, program: ProgramBuilder, rows: Rows) -> None:
        self._program, self._rows = program, rows

    def lower(self, expression: Expression) -> ColumnSlots | None:
        if isinstance(expression, base.Column):
            return self._rows.columns[expression.name]
        if isinstance(expression, base.Literal):
            return self._literal(expression)
        if isinstance(expression, base.Call) and expression.function in _CALLS:
            mark = self._program.mark()
            arguments = [self.lower(argument) for argument in expression.arguments]
            present = [argument for argument in arguments if argument is not None]
            if len(present) == len(arguments):
                result = _CALLS[expression.function](self, expression, present)
                if result is not None:
                    return result
            self._program.rewind(mark)
        return self._called(expression)

    def _called(self, expression: Expression) -> ColumnSlots | None:
        """The slots of an expression that is evaluated where the program stops."""
        if any(isinstance(node, PythonFunction) for node in expression.walk()):
            return None
        field = pa.field("value", expression.type, nullable=True)

        def evaluate(changes: Changes) -> Changes:
            return changes.with_columns(
                (field,), [expression.evaluate(ColumnBatch.from_input(changes.named, len(changes)))]
            )

        return self._program.called(self._rows.select(expression.columns), (field,), evaluate).columns["value"]

    def _literal(self, literal: base.Literal) -> ColumnSlots | None:
        if literal.value is None:
            return ColumnSlots(0, self.emit(opcodes.CONSTANT, least=1).value)
        value = self._program.constant(pa.array([literal.value], literal.type))
        return None if value is None else self.emit(opcodes.CONSTANT, least=value)

    def emit(
        self, opcode: int, *operands: ColumnSlots, least: int = 0, greatest: int = 0, nullable: bool | None = None
    ) -> ColumnSlots:
        """Add an instruction for up to two columns; the result may be null if one of them may be, or as given."""
        return self._program.evaluated(
            opcode, self._rows.count, *operands, least=least, greatest=greatest, nullable=nullable
        )

    def choose(self, condition: ColumnSlots, value: ColumnSlots, otherwise: ColumnSlots) -> ColumnSlots:
        """One value where a condition is true and not null, the other elsewhere."""
        nullable = bool(value.null or otherwise.null)
        flag, null = condition.value, condition.null
        return self.emit(opcodes.CHOOSE, value, otherwise, least=flag, greatest=null, nullable=nullable)


def _is_number(kind: pa.DataType) -> bool:
    """Whether slots of a type compare like its values."""
    return types.is_boolean(kind) or slots.kind_of(kind) in (opcodes.SIGNED, opcodes.WIDE)


def _limits(kind: pa.DataType) -> tuple[int, int]:
    """The least and the greatest value that a slot may have."""
    if types.is_decimal(kind):
        bound = min(10**kind.precision - 1, GREATEST)
        return -bound, bound
    limits = np.iinfo(kind.to_pandas_dtype())
    return int(limits.min), int(limits.max)


Lower = Callable[[_Lowering, base.Call, Sequence[ColumnSlots]], ColumnSlots | None]


def _comparison(opcode: int, *, swapped: bool = False) -> Lower:
    def lower(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
        left, right = reversed(arguments) if swapped else arguments
        kinds = {argument.type for argument in call.arguments}
        if len(kinds) > 1:
            return None
        if opcode == opcodes.EQUAL and all(types.is_string(kind) for kind in kinds):
            return to.emit(opcodes.TEXT_EQUAL, left, right)
        return to.emit(opcode, left, right) if all(map(_is_number, kinds)) else None

    return lower


def _arithmetic(opcode: int) -> Lower:
    def lower(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
        if not types.is_signed_integer(call.type):
            return None
        least, greatest = _limits(call.type)
        return to.emit(opcode, *arguments, least=least, greatest=greatest)

    return lower


def _rescaled(to: _Lowering, column: ColumnSlots, digits: int, kind: pa.DataType) -> ColumnSlots:
    """A decimal, or an integer, with so many more digits after the point, or fewer if negative."""
    least, greatest = _limits(kind)
    factor = to.emit(opcodes.CONSTANT, least=10 ** abs(digits))
    return to.emit(opcodes.DIVIDE if digits < 0 else opcodes.MULTIPLY, column, factor, least=least, greatest=greatest)


def _decimal_sum(opcode: int) -> Lower:
    def lower(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
        digits = [call.type.scale - argument.type.scale for argument in call.arguments]
        if not all(0 <= more < _MOST_DIGITS for more in digits):
            return None
        wide = pa.decimal128(38, call.type.scale)
        left, right = (
            _rescaled(to, column, more, wide) if more else column
            for column, more in zip(arguments, digits, strict=True)
        )
        least, greatest = _limits(call.type)
        return to.emit(opcode, left, right, least=least, greatest=greatest)

    return lower


def _decimal_product(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
    if call.type.scale != sum(argument.type.scale for argument in call.arguments):
        return None  # the result is rounded
    least, greatest = _limits(call.type)
    return to.emit(opcodes.MULTIPLY, *arguments, least=least, greatest=greatest)


def _search(opcode: int) -> Lower:
    def lower(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
        if not all(types.is_string(argument.type) for argument in call.arguments):
            return None
        return to.emit(opcode, *arguments)

    return lower


def _like(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
    """LIKE with a constant pattern in which only `%` has a meaning."""
    pattern = call.arguments[1]
    if not isinstance(pattern, base.Literal) or not types.is_string(call.arguments[0].type):
        return None
    if pattern.value is not None and set(pattern.value) & {"_", "\\"}:
        return None
    return to.emit(opcodes.LIKE, *arguments)


def _substring(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
    """Characters at constant places, counted from the start."""
    text, *places = call.arguments
    constants = [place.value for place in places if isinstance(place, base.Literal) and place.value is not None]
    if not types.is_string(text.type) or len(constants) < len(places) or constants[0] < 0:
        return None
    first, length = constants
    return to.emit(opcodes.SUBSTRING, arguments[0], least=max(first - 1, 0), greatest=max(length, 0))


def _magnitude(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
    kind, (bits,) = call.arguments[0].type, call.options
    if types.is_boolean(kind) or not _is_number(kind):
        return None  # floats
    return to.emit(opcodes.MAGNITUDE, *arguments, least=MANTISSA_BITS - bits)


def _year(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
    return to.emit(opcodes.YEAR, *arguments) if types.is_date32(call.arguments[0].type) else None


def _logic(opcode: int) -> Lower:
    def lower(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
        return to.emit(opcode, *arguments)

    return lower


def _is_null(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
    return to.emit(opcodes.IS_NULL, arguments[0], nullable=False)


def _is_not_null(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
    return to.emit(opcodes.NOT, to.emit(opcodes.IS_NULL, arguments[0], nullable=False))


def _extreme(opcode: int) -> Lower:
    def lower(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
        if any(argument.null for argument in arguments) or not _is_number(call.type):
            return None  # nulls are skipped
        best = arguments[0]
        for argument in arguments[1:]:
            best = to.emit(opcode, best, argument)
        return best

    return lower


def _case(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
    """Conditions and values in turn, then the value of ELSE."""
    *branches, result = arguments
    for at in range(len(branches) - 2, -1, -2):
        result = to.choose(branches[at], branches[at + 1], result)
    return result


def _coalesce(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
    result = arguments[-1]
    for argument in reversed(arguments[:-1]):
        is_null = to.emit(opcodes.IS_NULL, argument, nullable=False)
        result = to.choose(is_null, result, argument)
    return result


def _in(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
    value, *constants = arguments
    kind = call.arguments[0].type
    if len(constants) > MOST_CONSTANTS or {argument.type for argument in call.arguments} != {kind}:
        return None
    if not (types.is_string(kind) or _is_number(kind)):
        return None
    equal = opcodes.TEXT_EQUAL if types.is_string(kind) else opcodes.EQUAL
    result = to.emit(equal, value, constants[0])
    for constant in constants[1:]:
        result = to.emit(opcodes.OR, result, to.emit(equal, value, constant))
    return result


def _cast(to: _Lowering, call: base.Call, arguments: Sequence[ColumnSlots]) -> ColumnSlots | None:
    """Integers that become wider stay as they are; digits after the point are added, or rounded away."""
    source, target = call.arguments[0].type, call.type
    if types.is_decimal(target) and (types.is_decimal(source) or types.is_signed_integer(source)):
        digits = target.scale - (source.scale if types.is_decimal(source) else 0)
        return _rescaled(to, arguments[0], digits, target) if abs(digits) < _MOST_DIGITS else None
    is_wider = types.is_signed_integer(source) and types.is_signed_integer(target)
    return arguments[0] if is_wider and source.bit_width <= target.bit_width else None


_MOST_DIGITS = 18
"""Powers of ten below this one fit into a slot."""


_CALLS: dict[str, Lower] = {
    "equal": _comparison(opcodes.EQUAL),
    "less": _comparison(opcodes.LESS),
    "less_equal": _comparison(opcodes.LESS_EQUAL),
    "greater": _comparison(opcodes.LESS, swapped=True),
    "greater_equal": _comparison(opcodes.LESS_EQUAL, swapped=True),
    "add": _arithmetic(opcodes.ADD),
    "subtract": _arithmetic(opcodes.SUBTRACT),
    "multiply": _arithmetic(opcodes.MULTIPLY),
    "decimal add": _decimal_sum(opcodes.ADD),
    "decimal subtract": _decimal_sum(opcodes.SUBTRACT),
    "decimal multiply": _decimal_product,
    "StartsWith": _search(opcodes.STARTS_WITH),
    "EndsWith": _search(opcodes.ENDS_WITH),
    "Contains": _search(opcodes.CONTAINS),
    "Like": _like,
    "Substring": _substring,
    "magnitude": _magnitude,
    "Year": _year,
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
"""How calls of each function are written; others are evaluated where the program stops."""
