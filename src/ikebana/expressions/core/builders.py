"""Expressions that lowering creates itself, through the builders of the corresponding Catalyst classes."""

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

_HASH_SEED = 42
"""The seed of `xxhash64` in Spark."""


def _build(kind: str, *inputs: Expression) -> Expression:
    return BUILDERS[kind](Tree(kind, {}, ()), inputs, _CONFIG)


def equal(left: Expression, right: Expression) -> Expression:
    """`left = right`, for two values of the same type."""
    return _build("EqualTo", left, right)


def null_safe_equal(left: Expression, right: Expression) -> Expression:
    """`left <=> right`, for two values of the same type."""
    return _build("EqualNullSafe", left, right)


def not_equal(left: Expression, right: Expression) -> Expression:
    """`left <> right`, for two values of the same type."""
    return _build("Not", equal(left, right))


def less(left: Expression, right: Expression) -> Expression:
    """`left < right`, for two values of the same type."""
    return _build("LessThan", left, right)


def is_nan(value: Expression) -> Expression:
    """`isnan(value)`, for a float."""
    return _build("IsNaN", value)


def negation(condition: Expression) -> Expression:
    """`NOT condition`."""
    return _build("Not", condition)


def add(left: Expression, right: Expression) -> Expression:
    """`left + right`, for two numbers of the same type; an overflow raises an error."""
    return _build("Add", left, right)


def least(left: Expression, right: Expression) -> Expression:
    """`least(left, right)`, for two values of the same type."""
    return _build("Least", left, right)


def greatest(left: Expression, right: Expression) -> Expression:
    """`greatest(left, right)`, for two values of the same type."""
    return _build("Greatest", left, right)


def positive_hash(value: Expression) -> Expression:
    """The last 63 bits of `xxhash64(value)`, as an integer that is not negative."""
    hashed = BUILDERS["XxHash64"](Tree("XxHash64", {"seed": _HASH_SEED}, ()), (value,), _CONFIG)
    return _build("BitwiseAnd", hashed, Literal(pa.int64(), False, (1 << 63) - 1))


def cast(value: Expression, kind: pa.DataType) -> Expression:
    """`CAST(value AS kind)`."""
    if value.type == kind:
        return value
    return Call(kind, value.nullable, "cast", (value,), (_CONFIG.ansi, _CONFIG.time_zone))


def is_not_null(value: Expression) -> Expression:
    """`value IS NOT NULL`."""
    return _build("IsNotNull", value)


def is_null(value: Expression) -> Expression:
    """`value IS NULL`."""
    return _build("IsNull", value)


def conjunction(conditions: Sequence[Expression]) -> Expression:
    """The AND of the conditions, evaluated from left to right."""
    return reduce(lambda left, right: _build("And", left, right), conditions)


def conjuncts(condition: Expression) -> list[Expression]:
    """The operands of a nested AND, from left to right."""
    if isinstance(condition, Call) and condition.function == "and":
        return [conjunct for argument in condition.arguments for conjunct in conjuncts(argument)]
    return [condition]


def disjunction(conditions: Sequence[Expression]) -> Expression:
    """The OR of the conditions."""
    return reduce(lambda left, right: _build("Or", left, right), conditions)


def choose(condition: Expression, then: Expression, otherwise: Expression) -> Expression:
    """`CASE WHEN condition THEN then ELSE otherwise END`, for two values of the same type."""
    return _build("If", condition, then, otherwise)


def null_unless(condition: Expression, value: Expression) -> Expression:
    """`CASE WHEN condition THEN value END`."""
    return _build("If", condition, value, Literal(value.type, True, None))


def is_true(condition: Expression) -> Expression:
    """`condition IS TRUE`: false where the condition is null."""
    return _build("Coalesce", condition, Literal(pa.bool_(), False, False)) if condition.nullable else condition


def add_interval(time: Expression, by: int, months: bool, config: Config) -> Expression:
    """A date or timestamp plus `by` months or microseconds; a date is moved by full days."""
    if types.is_date(time.type):
        kind, amount = ("DateAddYMInterval", by) if months else ("DateAdd", by // DAY)
        return BUILDERS[kind](Tree(kind, {}, ()), (time, Literal(pa.int32(), False, amount)), config)
    kind = "TimestampAddYMInterval" if months else "TimestampAddInterval"
    interval = Literal(pa.int32() if months else pa.duration("us"), False, by)
    return BUILDERS[kind](Tree(kind, {}, ()), (time, interval), config)


def struct(named: Sequence[tuple[str, Expression]]) -> Expression:
    """`named_struct(name, value, ...)`."""
    arguments = [part for name, value in named for part in (Literal(pa.string(), False, name), value)]
    return _build("CreateNamedStruct", *arguments)


def array(*values: Expression) -> Expression:
    """`array(value, ...)`, for values of the same type."""
    return _build("CreateArray", *values)


def concat(*values: Expression) -> Expression:
    """`concat(value, ...)`, for strings, or arrays of the same type."""
    return _build("Concat", *values)


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
