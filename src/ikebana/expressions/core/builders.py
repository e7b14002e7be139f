"""Expressions made here rather than by Catalyst: the few that lowering needs, by the builders that Catalyst's have."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
from pyarrow import types

from ikebana.expressions.core.base import BUILDERS, Call, Config, Expression, Literal
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.temporal.zones import DAY

_CONFIG = Config()


def _made(kind: str, *inputs: Expression) -> Expression:
    return BUILDERS[kind](Tree(kind, {}, ()), inputs, _CONFIG)


def equal(left: Expression, right: Expression) -> Expression:
    """Whether two values of one type are equal; null where one is null."""
    return _made("EqualTo", left, right)


def is_not_null(value: Expression) -> Expression:
    """Whether a value is there."""
    return _made("IsNotNull", value)


def is_null(value: Expression) -> Expression:
    """Whether a value is missing."""
    return _made("IsNull", value)


def conjunction(conditions: Sequence[Expression]) -> Expression:
    """All of some conditions, the first evaluated first."""
    return reduce(lambda one, two: _made("And", one, two), conditions)


def conjuncts(condition: Expression) -> list[Expression]:
    """The conditions that must all be true for one to be, the first evaluated first."""
    if isinstance(condition, Call) and condition.function == "and":
        return [each for part in condition.arguments for each in conjuncts(part)]
    return [condition]


def disjunction(conditions: Sequence[Expression]) -> Expression:
    """Any of some conditions."""
    return reduce(lambda one, two: _made("Or", one, two), conditions)


def only_if(condition: Expression, value: Expression) -> Expression:
    """The value where a condition is true, null elsewhere."""
    return _made("If", condition, value, Literal(value.type, True, None))


def is_true(condition: Expression) -> Expression:
    """Whether a condition is true: false where it is null."""
    return _made("Coalesce", condition, Literal(pa.bool_(), False, False)) if condition.nullable else condition


def later(time: Expression, by: int, months: bool, config: Config) -> Expression:
    """A date or timestamp some months, or else some microseconds (for dates whole days), later."""
    if types.is_date(time.type):
        kind, amount = ("DateAddYMInterval", by) if months else ("DateAdd", by // DAY)
        return BUILDERS[kind](Tree(kind, {}, ()), (time, Literal(pa.int32(), False, amount)), config)
    kind = "TimestampAddYMInterval" if months else "TimestampAddInterval"
    interval = Literal(pa.int32() if months else pa.duration("us"), False, by)
    return BUILDERS[kind](Tree(kind, {}, ()), (time, interval), config)


def or_some(value: Expression) -> Expression:
    """The value, and where it is missing always the same other one: with `is_null` it says what the value is."""
    return _made("Coalesce", value, Literal(value.type, False, _some(value.type)))


def has_some(kind: pa.DataType) -> bool:
    """Whether a type has a value for `or_some`. Floats have none: those that are equal need not be the same."""
    return _some(kind) is not None


def _some(kind: pa.DataType) -> Any:
    if types.is_boolean(kind):
        return False
    if types.is_integer(kind):
        return 0
    if types.is_decimal(kind):
        return Decimal(0)
    if types.is_string(kind):
        return ""
    return pa.scalar(0, kind).as_py() if types.is_date(kind) or types.is_timestamp(kind) else None
