"""make_timestamp, make_dt_interval and make_ym_interval, and the fields of intervals (extract).

Day-time intervals are durations in microseconds; year-month intervals are integers, counting months. The fields of a
negative interval are negative or zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import from_numpy
from ikebana.expressions.core.base import Call, Config, Expression, builds, function
from ikebana.expressions.core.failing import fails_on_error
from ikebana.expressions.core.scalars import (
    Arguments,
    Value,
    maps,
    nullable_unless_ansi,
    raise_where,
    row_count,
    to_int64,
    validity_of,
)
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import arrow_type
from ikebana.expressions.numbers.decimals import from_unscaled, to_unscaled
from ikebana.expressions.temporal import calendar
from ikebana.expressions.temporal.calendar import HOUR, MINUTE, truncated_quotient
from ikebana.expressions.temporal.times import (
    CLOCK,
    DURATION,
    SECONDS_WITH_FRACTION,
    convert_by_zone,
    zone_and_failing,
)
from ikebana.expressions.temporal.zones import DAY, SECOND, to_instant

_INT, _BYTE = pa.int32(), pa.int8()
_INT_LIMIT, _LONG_LIMIT = 2**31, 2.0**63


def _micros(seconds: Value) -> Any:
    """Seconds with six decimal places as microseconds."""
    return to_unscaled(seconds) if isinstance(seconds, pa.Array) else np.int64(int(seconds.as_py() * SECOND))


@builds("MakeTimestamp")
def _build(tree: Tree, children: Arguments, config: Config) -> Expression:
    kind = arrow_type(tree.fields["dataType"])
    return Call(kind, nullable_unless_ansi(tree, children), "MakeTimestamp", children, zone_and_failing(tree, config))


@function("MakeTimestamp", raises=lambda call: fails_on_error(call) or len(call.arguments) == 7)
def _make_timestamp(call: Call, *arguments: pa.Array) -> pa.Array:
    """The arguments are year, month, day, hour, minute, second and, optionally, a time zone."""
    year, month, day, hour, minute = (to_int64(argument) for argument in arguments[:5])
    micros = _micros(arguments[5])
    is_sixty = micros == MINUTE  # 60 seconds are allowed, and mean the next minute
    days, is_valid = calendar.date(year, month, day)
    is_valid = is_valid & (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60)
    is_valid = is_valid & (micros >= 0) & ((micros < MINUTE) | is_sixty)
    if fails_on_error(call):
        raise_where(~is_valid, call, "the fields are not a valid timestamp", *arguments)
    days, micros = np.where(is_valid, days, 0), np.where(is_valid, micros, 0)
    clock = days * DAY + np.where(is_valid, hour * HOUR + minute * MINUTE, 0) + micros
    not_null = validity_of(*arguments)
    is_valid = is_valid if not_null is None else is_valid & not_null
    if len(arguments) == 7:
        return from_numpy(call.type, convert_by_zone(from_numpy(CLOCK, clock), arguments[6], to_instant), is_valid)
    return from_numpy(call.type, clock if call.type == CLOCK else to_instant(clock, call.options[0]), is_valid)


@maps("MakeDTInterval", gives=DURATION, raises=True)
def _make_dt_interval(call: Call, days: Value, hours: Value, minutes: Value, seconds: Value) -> pa.Array:
    parts = [(to_int64(days), DAY), (to_int64(hours), HOUR), (to_int64(minutes), MINUTE), (_micros(seconds), 1)]
    approximate: Any = sum(np.asarray(count, float) * unit for count, unit in parts)
    raise_where(np.abs(approximate) >= _LONG_LIMIT, call, "the interval is out of range", days, hours, minutes, seconds)
    result: Any = sum(count * unit for count, unit in parts)
    return from_numpy(DURATION, np.broadcast_to(result, row_count(days, hours, minutes, seconds)))


@maps("MakeYMInterval", gives=_INT, raises=True)
def _make_ym_interval(call: Call, years: Value, months: Value) -> pa.Array:
    total = to_int64(years) * 12 + to_int64(months)
    raise_where((total < -_INT_LIMIT) | (total >= _INT_LIMIT), call, "the interval is out of range", years, months)
    return from_numpy(_INT, total)


# Fields.


def _field(kind: str, gives: pa.DataType, compute: Callable[[Any], Any]) -> None:
    @maps(kind, gives=gives)
    def _(call: Call, interval: pa.Array) -> pa.Array:
        return from_numpy(gives, compute(to_int64(interval)))


def _remainder(value: Any, by: int) -> Any:
    """The remainder of a division, with the sign of the dividend."""
    return value - truncated_quotient(value, by) * by


_field("ExtractANSIIntervalYears", _INT, lambda months: truncated_quotient(months, 12))
_field("ExtractANSIIntervalMonths", _BYTE, lambda months: _remainder(months, 12))
_field("ExtractANSIIntervalDays", _INT, lambda micros: truncated_quotient(micros, DAY))
_field("ExtractANSIIntervalHours", _BYTE, lambda micros: truncated_quotient(_remainder(micros, DAY), HOUR))
_field("ExtractANSIIntervalMinutes", _BYTE, lambda micros: truncated_quotient(_remainder(micros, HOUR), MINUTE))


@maps("ExtractANSIIntervalSeconds", gives=SECONDS_WITH_FRACTION)
def _seconds(call: Call, interval: pa.Array) -> pa.Array:
    return from_unscaled(SECONDS_WITH_FRACTION, _remainder(to_int64(interval), MINUTE), None)
