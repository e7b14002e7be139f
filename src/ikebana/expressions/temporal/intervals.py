"""Timestamps and intervals made of numbers, and the numbers that intervals are made of.

Intervals of days are durations in microseconds; intervals of months are whole numbers of months.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import from_numpy
from ikebana.expressions.core.base import Call, Config, Expression, builds, function, is_nullable
from ikebana.expressions.core.scalars import Arguments, Value, maps, refuse_where, rows_of, valid, wide
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import arrow_type
from ikebana.expressions.numbers.decimals import made_decimal, unscaled
from ikebana.expressions.temporal import calendar
from ikebana.expressions.temporal.calendar import HOUR, MINUTE, quotient
from ikebana.expressions.temporal.times import CLOCK, SPAN, moved, zone_of
from ikebana.expressions.temporal.zones import DAY, SECOND, to_instant

_INT, _BYTE, _SECONDS = pa.int32(), pa.int8(), pa.decimal128(8, 6)
_INT_LIMIT, _LONG_LIMIT = 2**31, 2.0**63


def _micros(seconds: Value) -> Any:
    """Seconds with six decimal places as microseconds."""
    return unscaled(seconds) if isinstance(seconds, pa.Array) else np.int64(int(seconds.as_py() * SECOND))


@builds("MakeTimestamp")
def _build(tree: Tree, children: Arguments, config: Config) -> Expression:
    fails = bool(tree.fields["failOnError"])
    kind = arrow_type(tree.fields["dataType"])
    nullable = is_nullable(children) if fails else True
    return Call(kind, nullable, "MakeTimestamp", children, (*zone_of(tree, config), fails))


@function("MakeTimestamp", raises=lambda call: bool(call.options[1]) or len(call.arguments) == 7)
def _make_timestamp(call: Call, *given: pa.Array) -> pa.Array:
    year, month, day, hour, minute = (wide(each) for each in given[:5])
    micros = _micros(given[5])
    full = micros == MINUTE  # the sixtieth second is the next minute's first
    days, there = calendar.date(year, month, day)
    there = (
        there & (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60) & (micros >= 0) & ((micros < MINUTE) | full)
    )
    if call.options[1]:
        refuse_where(~there, call, "there is no such time", *given)
    days, micros = np.where(there, days, 0), np.where(there, micros, 0)
    shown = days * DAY + np.where(there, hour * HOUR + minute * MINUTE, 0) + micros
    concerned = valid(*given)
    there = there if concerned is None else there & concerned
    if len(given) == 7:
        return from_numpy(call.type, moved(from_numpy(CLOCK, shown), given[6], to_instant), there)
    return from_numpy(call.type, shown if call.type == CLOCK else to_instant(shown, call.options[0]), there)


@maps("MakeDTInterval", gives=SPAN, raises=True)
def _make_span(call: Call, days: Value, hours: Value, minutes: Value, seconds: Value) -> pa.Array:
    parts = [(wide(days), DAY), (wide(hours), HOUR), (wide(minutes), MINUTE), (_micros(seconds), 1)]
    roughly: Any = sum(np.asarray(count, float) * unit for count, unit in parts)
    refuse_where(np.abs(roughly) >= _LONG_LIMIT, call, "the interval is too long", days, hours, minutes, seconds)
    result: Any = sum(count * unit for count, unit in parts)
    return from_numpy(SPAN, np.broadcast_to(result, rows_of(days, hours, minutes, seconds)))


@maps("MakeYMInterval", gives=_INT, raises=True)
def _make_months(call: Call, years: Value, months: Value) -> pa.Array:
    total = wide(years) * 12 + wide(months)
    refuse_where((total < -_INT_LIMIT) | (total >= _INT_LIMIT), call, "the interval is too long", years, months)
    return from_numpy(_INT, total)


# Fields.


def _field(kind: str, gives: pa.DataType, compute: Callable[[Any], Any]) -> None:
    @maps(kind, gives=gives)
    def _(call: Call, interval: pa.Array) -> pa.Array:
        return from_numpy(gives, compute(wide(interval)))


def _rest(value: Any, by: int) -> Any:
    """What remains of a division, with the dividend's sign."""
    return value - quotient(value, by) * by


_field("ExtractANSIIntervalYears", _INT, lambda months: quotient(months, 12))
_field("ExtractANSIIntervalMonths", _BYTE, lambda months: _rest(months, 12))
_field("ExtractANSIIntervalDays", _INT, lambda micros: quotient(micros, DAY))
_field("ExtractANSIIntervalHours", _BYTE, lambda micros: quotient(_rest(micros, DAY), HOUR))
_field("ExtractANSIIntervalMinutes", _BYTE, lambda micros: quotient(_rest(micros, HOUR), MINUTE))


@maps("ExtractANSIIntervalSeconds", gives=_SECONDS)
def _seconds(call: Call, interval: pa.Array) -> pa.Array:
    return made_decimal(_SECONDS, _rest(wide(interval), MINUTE), None)
