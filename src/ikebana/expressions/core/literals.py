"""Literals, and Catalyst expressions that are equal to their child: aliases and assertions about nulls.

A literal in a plan is a string with a type. Planning replaces those of binaries, structs, maps, and arrays of other
types than numbers, whose string form is ambiguous: they are rejected here. A timestamp is written as local time in the
session's time zone; an ambiguous local time means the earlier instant. An interval of days and smaller units is a
duration, even if its type has months as well.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import is_local_timestamp
from ikebana.errors import SqlError
from ikebana.expressions.core.base import Config, Expression, Literal, builds
from ikebana.expressions.core.parsing import to_date, to_timestamp
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import arrow_type
from ikebana.expressions.temporal.zones import DAY, SECOND


class Real(float):
    """A float that is equal to floats with the same bits: NaN equals NaN, and 0.0 differs from -0.0."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and struct.pack("<d", self) == struct.pack("<d", other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(struct.pack("<d", self))


@builds("Literal")
def _literal(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    kind, text = arrow_type(tree.fields["dataType"]), tree.fields["value"]
    if types.is_interval(kind) and text is not None:
        return _calendar_interval(str(text))
    return Literal(kind, text is None, None if text is None else _value(str(text), kind, config))


def _value(text: str, kind: pa.DataType, config: Config) -> Any:
    """The value of a literal, from its string form."""
    if types.is_boolean(kind):
        return text == "true"
    if types.is_integer(kind):
        return int(text)
    if types.is_floating(kind):
        return Real(text)
    if types.is_decimal(kind):
        return Decimal(text)
    if types.is_string(kind):
        return text
    if types.is_duration(kind):
        return timedelta(microseconds=int(text))
    if is_local_timestamp(kind):
        return _python(pa.scalar(int(text), kind))
    if types.is_timestamp(kind):
        return _python(to_timestamp(pa.array([text]), config.time_zone)[0])
    if types.is_date(kind):
        return _python(to_date(pa.array([text]))[0])
    if types.is_list(kind) and text == "[]":
        return ()
    is_of_numbers = types.is_list(kind) and (types.is_integer(kind.value_type) or types.is_floating(kind.value_type))
    if is_of_numbers and text.startswith("["):
        elements = text.strip("[]").split(",")
        return tuple(None if element == "null" else _value(element, kind.value_type, config) for element in elements)
    raise SqlError(
        f"a literal of type {kind} is not supported in a maintained view",
        detail=f"Spark's plan contains it only as the string {text}",
        hint="store the value in a table and join it",
    )


_UNITS = {"days": DAY, "hours": 3600 * SECOND, "minutes": 60 * SECOND, "seconds": SECOND}
_AMOUNT = re.compile(r"(-?\d+(?:\.\d+)?) (\w+)")


def _calendar_interval(text: str) -> Literal:
    """An interval such as `1 days 30 minutes`, as a duration."""
    amounts = {unit: Decimal(amount) for amount, unit in _AMOUNT.findall(text)}
    micros = sum(int(amount * _UNITS[unit]) for unit, amount in amounts.items() if unit in _UNITS)
    days = int(amounts.get("days", 0)) * DAY
    if set(amounts) - set(_UNITS) or abs(micros - days) >= DAY:
        raise SqlError(
            f"the interval {text!r} is not supported in a maintained view",
            hint="use an interval of days, hours, minutes and seconds",
        )
    return Literal(pa.duration("us"), False, timedelta(microseconds=micros))


@builds("binary")
def _binary(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    """Planning writes a constant of bytes as its hexadecimal digits."""
    (digits,) = children
    assert isinstance(digits, Literal)
    return Literal(pa.binary(), False, bytes.fromhex(digits.value))


def _python(scalar: pa.Scalar) -> Any:
    """A Python date or datetime, or an integer if the year is out of Python's range."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value


@builds(
    "Alias",
    "AssertNotNull",
    "KnownFloatingPointNormalized",
    "KnownNotNull",
    "PromotePrecision",
)
def _same_as_child(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    return children[0]


@builds("KnownNullable")
def _known_nullable(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    return replace(children[0], nullable=True)
