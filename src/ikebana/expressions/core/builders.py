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


def _build(kind: str, *inputs: Expression) -> Expression:
    return BUILDERS[kind](Tree(kind, {}, ()), inputs, _CONFIG)


def equal(left: Expression, right: Expression) -> Expression:
    """Whether two values of one type are equal; null where one is null."""
    return _build("EqualTo", left, right)


def is_not_null(value: Expression) -> Expression:
    """Whether a value is there."""
    return _build("IsNotNull", value)


def is_null(value: Expression) -> Expression:
    """Whether a value is missing."""
    return _build("IsNull", value)


def conjunction(conditions: Sequence[Expression]) -> Expression:
    """All of some conditions, the first evaluated first."""
    return reduce(lambda one, two: _build("And", one, two), conditions)


def conjuncts(condition: Expression) -> list[Expression]:
    """The conditions that must all be true for one to be, the first evaluated first."""
    if isinstance(condition, Call) and condition.function == "and":
        return [each for part in condition.arguments for each in conjuncts(part)]
    return [condition]


def disjunction(conditions: Sequence[Expression]) -> Expression:
    """Any of some conditions."""
    return reduce(lambda one, two: _build("Or", one, two), conditions)


def only_if(condition: Expression, value: Expression) -> Expression:
    """The value where a condition is true, null elsewhere."""
    return _build("If", condition, value, Literal(value.type, True, None))


def is_true(condition: Expression) -> Expression:
    """Whether a condition is true: false where it is null."""
    return _build("Coalesce", condition, Literal(pa.bool_(), False, False)) if condition.nullable else condition


def later(time: Expression, by: int, months: bool, config: Config) -> Expression:
    """A date or timestamp some months, or else some microseconds (for dates whole days), later."""
    if types.is_date(time.type):
        kind, amount = ("DateAddYMInterval", by) if months else ("DateAdd", by // DAY)
        return BUILDERS[kind](Tree(kind, {}, ()), (time, Literal(pa.int32(), False, amount)), config)
    kind = "TimestampAddYMInterval" if months else "TimestampAddInterval"
    interval = Literal(pa.int32() if months else pa.duration("us"), False, by)
    return BUILDERS[kind](Tree(kind, {}, ()), (time, interval), config)


def coalesce_default(value: Expression) -> Expression:
    """`coalesce(value, default)` with a fixed default of the type; together with `is_null` it is a null-safe key."""
    return _build("Coalesce", value, Literal(value.type, False, _default(value.type)))


def has_default(kind: pa.DataType) -> bool:
    """Whether a type has a default for `coalesce_default`. Floats have none: equal floats may differ in their bits."""
    return _default(kind) is not None


def _default(kind: pa.DataType) -> Any:
    if types.is_boolean(kind):
        return False
    if types.is_integer(kind):
        return 0
    if types.is_decimal(kind):
        return Decimal(0)
    if types.is_string(kind):
        return ""
    return pa.scalar(0, kind).as_py() if types.is_date(kind) or types.is_timestamp(kind) else None
