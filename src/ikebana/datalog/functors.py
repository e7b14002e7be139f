"""Functors: expressions of Datalog as expressions over columns.

Comparisons, `+`, `-`, `*`, `min` and `max` of numbers are the calls that SQL's expressions consist of, so that they
also run inside compiled programs (`ikebana.operators.expression_program`); everything else is a `Functor`, computed
with NumPy and Arrow. Integers wrap around, as in Soufflé. A division by zero, and a string that is no number in
`to_number`, have no value: relations that depend on the row cannot be read until the row is gone.

`strlen` and `substr` count characters, not bytes. `ord` is the number of an interned symbol
(`ikebana.datalog.storage`).

Cost: a pass over the columns for each functor. Functions of strings that Arrow does not have are computed once for each
distinct value of a batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.datalog import syntax
from ikebana.datalog.errors import error_at, not_supported
from ikebana.datalog.storage import Storage
from ikebana.datalog.types import Primitive, type_of
from ikebana.encoding.arrow import from_numpy, to_numpy
from ikebana.errors import BadEntries, EvaluationError
from ikebana.expressions import Call, Column, ColumnBatch, Expression, Literal
from ikebana.expressions.core.base import locate_bad_rows
from ikebana.expressions.core.builders import conjunction

__all__ = ["Functor", "column", "condition", "conjunction", "translated"]


@dataclass(frozen=True)
class Functor(Expression):
    """A functor of Datalog applied to columns; its implementation is in `_FUNCTIONS`."""

    functor: str
    arguments: tuple[Expression, ...]

    @property
    def inputs(self) -> tuple[Expression, ...]:
        return self.arguments

    def with_inputs(self, inputs: tuple[Expression, ...]) -> Expression:
        return replace(self, arguments=inputs)

    @property
    def raises(self) -> bool:
        return self.functor in _RAISING

    def evaluate(self, rows: ColumnBatch) -> pa.Array:
        arguments = [argument.evaluate(rows) for argument in self.arguments]
        try:
            result = _FUNCTIONS[self.functor](self, *arguments)
        except EvaluationError as error:
            locate_bad_rows(error, rows, by_row=True)
            raise
        return result if result.type == self.type else result.cast(self.type)

    def __str__(self) -> str:
        return f"{self.functor}({', '.join(map(str, self.arguments))})"


# Translation.

_COMPARISONS = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal", "=": "equal"}
_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply"}
_EXTREMES = {"min": "least", "max": "greatest"}


def column(name: str, kind: pa.DataType) -> Column:
    """A column, which is never null."""
    return Column(kind, False, name)


def translated(expression: syntax.Expression, types: Mapping[str, Primitive], storage: Storage) -> Expression:
    """An expression of a checked rule over columns named like its variables. Aggregates have become variables."""

    def translate(part: syntax.Expression) -> Expression:
        match part:
            case syntax.Variable(name=name):
                return column(name, storage.type(types[name]))
            case syntax.Constant():
                kind = type_of(part, types)
                if not storage.fits(part.value, kind):
                    raise not_supported(part.position, f"a {kind} of more than {storage.bits} bits is")
                return Literal(storage.type(kind), False, storage.value(part.value))
            case syntax.Call():
                return call(part)
            case syntax.Cast():
                kind = type_of(part, types)
                return Functor(storage.type(kind), False, "as", (translate(part.expression),))
            case _:
                raise AssertionError(f"{part} is not an expression over columns")

    def call(part: syntax.Call) -> Expression:
        kind = storage.type(type_of(part, types))
        arguments = tuple(map(translate, part.arguments))
        is_number = kind in (pa.int32(), pa.int64())
        if part.functor == "ord":
            if storage.symbols is None:
                hint = "remove the functors, comparisons and tables that need symbols as strings"
                raise not_supported(part.position, "ord in a program that computes with symbols is", hint)
            return arguments[0] if arguments[0].type == kind else Functor(kind, False, "as", arguments)
        if is_number and part.functor in _ARITHMETIC:
            return Call(kind, False, _ARITHMETIC[part.functor], arguments, (False,))
        if is_number and part.functor in _EXTREMES and all(argument.type == kind for argument in arguments):
            return Call(kind, False, _EXTREMES[part.functor], arguments)
        return Functor(kind, False, part.functor, arguments)

    return translate(expression)


def condition(comparison: syntax.Comparison, types: Mapping[str, Primitive], storage: Storage) -> Expression:
    """A comparison as a condition on columns."""
    if comparison.operator.endswith("match") and isinstance(comparison.left, syntax.Constant):
        _check_pattern(comparison.left)
    left, right = (translated(side, types, storage) for side in (comparison.left, comparison.right))
    return compared(comparison.operator, left, right)


def _check_pattern(pattern: syntax.Constant) -> None:
    try:
        re.compile(str(pattern.value))
    except re.error as error:
        what = "the pattern is not a regular expression"
        raise error_at(pattern.position, what, detail=str(error), hint="escape special characters by \\\\") from None


def compared(operator: str, left: Expression, right: Expression) -> Expression:
    """A condition on two expressions of one type."""
    if operator == "!=":
        return Call(pa.bool_(), False, "not", (compared("=", left, right),))
    if operator.startswith("!"):
        return Call(pa.bool_(), False, "not", (Functor(pa.bool_(), False, operator[1:], (left, right)),))
    if operator in ("match", "contains"):
        return Functor(pa.bool_(), False, operator, (left, right))
    if pa.types.is_unsigned_integer(left.type):
        return Functor(pa.bool_(), False, operator, (left, right))
    return Call(pa.bool_(), False, _COMPARISONS[operator], (left, right))


# Implementations: functions of the call and its arguments as Arrow arrays.

Implementation = Callable[..., pa.Array]


def _numeric(compute: Callable[..., Any]) -> Implementation:
    """A function of NumPy arrays, whose overflows wrap around."""

    def run(call: Functor, *arguments: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            result = compute(*map(to_numpy, arguments))
        kind = np.dtype(call.type.to_pandas_dtype())
        return from_numpy(call.type, np.asarray(result).astype(kind, copy=False))

    return run


def _error(what: str, hint: str, entries: Any, count: int) -> EvaluationError:
    error = EvaluationError(what, hint=hint)
    error.bad_entries = BadEntries(entries, count, lambda at: EvaluationError(what, hint=hint))
    return error


def _check_divisor(call: Functor, divisors: Any) -> None:
    if pa.types.is_integer(call.type) and not divisors.all():
        hint = "exclude zeros by a condition of the rule"
        raise _error("a division by zero", hint, np.flatnonzero(divisors == 0), len(divisors))


def _quotient(call: Functor, left: pa.Array, right: pa.Array) -> pa.Array:
    _check_divisor(call, to_numpy(right))

    def divide(one: Any, other: Any) -> Any:
        if one.dtype.kind == "f":
            return one / other
        quotients = one // other
        return quotients + ((quotients < 0) & (quotients * other != one))  # towards zero

    return _numeric(divide)(call, left, right)


def _remainder(call: Functor, left: pa.Array, right: pa.Array) -> pa.Array:
    _check_divisor(call, to_numpy(right))
    return _numeric(np.fmod)(call, left, right)


def _power(one: Any, other: Any) -> Any:
    if one.dtype.kind != "i":
        return np.power(one, other)
    positive = np.power(one, np.maximum(other, 0))
    inverse = np.where(one == 1, 1, np.where(one == -1, np.where(other % 2 == 0, 1, -1), 0))
    return np.where(other < 0, inverse, positive)


def _shifted(shift: Callable[[Any, Any], Any], *, logical: bool = False) -> Implementation:
    def compute(one: Any, other: Any) -> Any:
        distance = other & (one.dtype.itemsize * 8 - 1)
        if logical:
            one, distance = one.view(f"u{one.dtype.itemsize}"), distance.view(f"u{one.dtype.itemsize}")
        return shift(one, distance)

    return _numeric(compute)


def _extreme(compute: Callable[[Any, Any], Any], keep_left: Callable[[Any, Any], Any]) -> Implementation:
    def run(call: Functor, *arguments: pa.Array) -> pa.Array:
        if pa.types.is_string(call.type):
            return reduce(lambda one, other: pc.if_else(keep_left(one, other), one, other), arguments)
        return _numeric(lambda *arrays: reduce(compute, arrays))(call, *arguments)

    return run


def _reinterpreted(call: Functor, array: pa.Array) -> pa.Array:
    return _numeric(lambda values: values)(call, array)


def _converted(call: Functor, array: pa.Array) -> pa.Array:
    """`to_number`, `to_unsigned` and `to_float`."""
    if not pa.types.is_string(array.type):
        return _numeric(lambda values: values)(call, array)
    is_float = pa.types.is_floating(call.type)
    return _by_distinct_value(call, lambda text: float(text) if is_float else _parsed(text, call.type), array)


def _parsed(text: str, kind: pa.DataType) -> int:
    number = int(text, 0 if re.match(r"\s*[-+]?0[xb]", text) else 10)
    limits = np.iinfo(kind.to_pandas_dtype())
    if not limits.min <= number <= limits.max:
        raise ValueError("out of range")
    return number


def _by_distinct_value(call: Functor, compute: Callable[[Any], Any], array: pa.Array) -> pa.Array:
    """A Python function of each distinct value; ValueErrors are errors of their rows."""
    encoded = array.dictionary_encode()
    results, bad = [], []
    for at, value in enumerate(encoded.dictionary.to_pylist()):
        try:
            results.append(compute(value))
        except ValueError:
            results.append(None)
            bad.append(at)
    if bad:
        what = f"{call.functor} of {encoded.dictionary[bad[0]].as_py()!r}, which is not a number in range"
        rows = np.flatnonzero(np.isin(to_numpy(encoded.indices), bad))
        raise _error(what, "exclude such strings by a condition of the rule", rows, len(array))
    return pa.array(results, call.type).take(encoded.indices)


def _to_string(call: Functor, array: pa.Array) -> pa.Array:
    if pa.types.is_floating(array.type):
        return _by_distinct_value(call, lambda value: f"{value:f}", array)
    return array.cast(pa.string())


def _cat(call: Functor, *arguments: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*arguments, "")


def _substr(call: Functor, texts: pa.Array, starts: pa.Array, lengths: pa.Array) -> pa.Array:
    values = zip(texts.to_pylist(), starts.to_pylist(), lengths.to_pylist(), strict=True)
    return pa.array(
        [text[at : at + count] if 0 <= at < len(text) and count > 0 else "" for text, at, count in values], pa.string()
    )


def _tested(whole: Callable[[pa.Array, str], pa.Array], single: Callable[[str, str], bool]) -> Implementation:
    """A test of a column of strings with a pattern, by `whole` columns where the pattern is constant."""

    def run(call: Functor, patterns: pa.Array, texts: pa.Array) -> pa.Array:
        pattern = call.arguments[0]
        if isinstance(pattern, Literal):
            return whole(texts, pattern.value)
        pairs = zip(patterns.to_pylist(), texts.to_pylist(), strict=True)
        return pa.array([single(one, text) for one, text in pairs], pa.bool_())

    return run


def _matches(texts: pa.Array, pattern: str) -> pa.Array:
    encoded = texts.dictionary_encode()
    compiled = re.compile(pattern)
    flags = [compiled.fullmatch(text) is not None for text in encoded.dictionary.to_pylist()]
    return pa.array(flags, pa.bool_()).take(encoded.indices)


def _is_match(pattern: str, text: str) -> bool:
    """Whether a pattern of the data matches; as in Soufflé, one that is no regular expression matches nothing."""
    try:
        return re.fullmatch(pattern, text) is not None
    except re.error:
        return False


_FUNCTIONS: dict[str, Implementation] = {
    "+": lambda call, *arguments: (_cat if pa.types.is_string(call.type) else _numeric(np.add))(call, *arguments),
    "-": _numeric(np.subtract),
    "*": _numeric(np.multiply),
    "/": _quotient,
    "%": _remainder,
    "^": _numeric(_power),
    "neg": _numeric(np.negative),
    "band": _numeric(np.bitwise_and),
    "bor": _numeric(np.bitwise_or),
    "bxor": _numeric(np.bitwise_xor),
    "bnot": _numeric(np.invert),
    "bshl": _shifted(np.left_shift),
    "bshr": _shifted(np.right_shift),
    "bshru": _shifted(np.right_shift, logical=True),
    "land": _numeric(np.logical_and),
    "lor": _numeric(np.logical_or),
    "lxor": _numeric(np.logical_xor),
    "lnot": _numeric(np.logical_not),
    "min": _extreme(np.minimum, pc.less_equal),
    "max": _extreme(np.maximum, pc.greater_equal),
    "as": _reinterpreted,
    "to_number": _converted,
    "to_unsigned": _converted,
    "to_float": _converted,
    **{functor: _reinterpreted for functor in ("itof", "itou", "utof", "utoi", "ftoi", "ftou")},
    "to_string": _to_string,
    "cat": _cat,
    "strlen": lambda call, texts: pc.utf8_length(texts),
    "substr": _substr,
    "match": _tested(_matches, _is_match),
    "contains": _tested(pc.match_substring, lambda part, text: part in text),
    "=": lambda call, left, right: pc.equal(left, right),
    "<": lambda call, left, right: pc.less(left, right),
    "<=": lambda call, left, right: pc.less_equal(left, right),
    ">": lambda call, left, right: pc.greater(left, right),
    ">=": lambda call, left, right: pc.greater_equal(left, right),
}

_RAISING = frozenset(["/", "%", "to_number", "to_unsigned", "to_float"])
