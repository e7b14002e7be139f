"""Expressions made here rather than by Catalyst: the few that lowering needs, by the builders that Catalyst's have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ikebana.sql.expressions.base import BUILDERS, Config, Expression, Literal
from ikebana.sql.tree import Tree

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


def only_if(condition: Expression, value: Expression) -> Expression:
    """The value where a condition is true, null elsewhere."""
    return _made("If", condition, value, Literal(value.type, True, None))
