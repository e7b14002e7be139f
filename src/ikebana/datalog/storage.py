"""Storage: how values of Datalog's types are stored in columns, and symbols as numbers.

`number` and `unsigned` have 32 bits, as in Soufflé's default build, so that a pair of numbers fits into one lane
of an index; a program that reads a table with 64-bit columns stores both in 64 bits. Arithmetic wraps around. `float`
has 64 bits.

Symbols. A program that only passes symbols on and compares them for equality stores each symbol as a 32-bit number (an
*interned* symbol), so that its joins run on integers. The numbers are given out by the driver, in `SymbolTable`, when
facts arrive; results are translated back when they are read. A program that computes with symbols (`cat`, `match`, an
order, ...) or reads tables with strings stores the strings themselves, because workers cannot give out numbers.

Cost: interning costs a hash look-up for each distinct symbol of a batch. The table of symbols only grows: a symbol
whose facts are gone keeps its number.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.datalog import syntax
from ikebana.datalog.check import CheckedProgram, CheckedRule
from ikebana.datalog.types import Primitive, type_of


class SymbolTable:
    """The numbers of symbols: the first symbol is 0, the next new one 1, and so on."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._symbols: list[str] = []
        self._decoded: pa.Array | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._symbols)

    def number(self, symbol: str) -> int:
        """The number of a symbol, a new one if the symbol is new."""
        with self._lock:
            return self._number(symbol)

    def _number(self, symbol: str) -> int:
        number = self._numbers.get(symbol)
        if number is None:
            number = self._numbers[symbol] = len(self._symbols)
            self._symbols.append(symbol)
        return number

    def encode(self, symbols: pa.Array) -> pa.Array:
        """The numbers of a column of symbols."""
        encoded = pc.dictionary_encode(symbols)
        with self._lock:
            numbers = np.array([self._number(symbol) for symbol in encoded.dictionary.to_pylist()], np.int32)
        return pa.array(numbers[encoded.indices.to_numpy(zero_copy_only=False)], pa.int32())

    def decode(self, numbers: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """The symbols of a column of numbers."""
        with self._lock:
            if self._decoded is None or len(self._decoded) < len(self._symbols):
                self._decoded = pa.array(self._symbols, pa.string())
            return self._decoded.take(numbers)


@dataclass(frozen=True)
class Storage:
    """The Arrow types of the columns of a program; `symbols` if symbols are interned."""

    bits: int = 32
    symbols: SymbolTable | None = None

    def type(self, primitive: Primitive) -> pa.DataType:
        """The type of a column."""
        match primitive:
            case "number":
                return pa.int32() if self.bits == 32 else pa.int64()
            case "unsigned":
                return pa.uint32() if self.bits == 32 else pa.uint64()
            case "float":
                return pa.float64()
            case "symbol":
                return pa.string() if self.symbols is None else pa.int32()

    def fits(self, value: int | float | str, primitive: Primitive) -> bool:
        """Whether a constant is in the range of its type."""
        if isinstance(value, int) and primitive in ("number", "unsigned"):
            low, high = (0, 1 << self.bits) if primitive == "unsigned" else (-1 << self.bits - 1, 1 << self.bits - 1)
            return low <= value < high
        return True

    def value(self, value: int | float | str) -> int | float | str:
        """A constant as it is stored."""
        return self.symbols.number(value) if isinstance(value, str) and self.symbols is not None else value

    def encoded(self, column: pa.Array, primitive: Primitive) -> pa.Array:
        """A column of values as it is stored; numbers that do not fit raise `pyarrow.ArrowInvalid`."""
        if primitive == "symbol" and self.symbols is not None:
            return self.symbols.encode(column.cast(pa.string()))
        return column.cast(self.type(primitive))

    def decoded(self, table: pa.Table, types: Iterable[Primitive]) -> pa.Table:
        """A table of stored values, whose first columns have these types, as values."""
        if self.symbols is None:
            return table
        for at, primitive in enumerate(types):
            if primitive == "symbol":
                name = table.schema.names[at]
                table = table.set_column(at, pa.field(name, pa.string()), self.symbols.decode(table.column(at)))
        return table


_OPAQUE = frozenset(["=", "!="])


def symbols_are_opaque(program: CheckedProgram) -> bool:
    """Whether a program does nothing with symbols but pass them on, compare them for equality and take their `ord`."""
    return not any(True for rule in program.rules for _ in symbol_operations(rule))


def symbol_operations(rule: CheckedRule) -> Iterable[syntax.Call | syntax.Comparison | syntax.Aggregate]:
    """The parts of a rule that need symbols as strings."""
    yield from _operations((rule.head, *rule.body), rule)


def _operations(
    parts: Iterable[syntax.Literal | syntax.Expression], rule: CheckedRule
) -> Iterable[syntax.Call | syntax.Comparison | syntax.Aggregate]:
    for part in parts:
        if isinstance(part, syntax.Comparison) and part.operator not in _OPAQUE and _is_symbol(part.left, rule):
            yield part
        for expression in syntax.expressions(part):
            match expression:
                case syntax.Call(functor=functor, arguments=arguments) if functor != "ord":
                    if _is_symbol(expression, rule) or any(_is_symbol(argument, rule) for argument in arguments):
                        yield expression
                case syntax.Aggregate(target=target, body=body):
                    if target is not None and _is_symbol(target, rule):
                        yield expression
                    yield from _operations((*body, *(() if target is None else (target,))), rule)


def _is_symbol(expression: syntax.Expression, rule: CheckedRule) -> bool:
    return not isinstance(expression, syntax.Wildcard) and type_of(expression, rule.types) == "symbol"
