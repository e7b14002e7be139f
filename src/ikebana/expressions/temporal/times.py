"""Functions of timestamps: fields, conversion from and to numbers, date_trunc, arithmetic, time zones.

TIMESTAMP is an instant, TIMESTAMP_NTZ a clock time; both are microseconds since 1970-01-01 00:00:00. Fields of an
instant are those of the clock time in the session's time zone. Days and months are added to the clock time, hours and
smaller units to the instant: across a change of the offset, a day is not 24 hours. Where a clock time occurs twice, the
result keeps the offset of the timestamp to which something is added.

Unsupported: adding an interval that has both months and days.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import from_numpy
from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions.core.base import Call, Config, Expression, builds, is_nullable
from ikebana.expressions.core.failing import fail_on_error
from ikebana.expressions.core.scalars import (
    Arguments,
    Value,
    literal_value,
    map_distinct,
    maps,
    raise_where,
    row_count,
    to_int64,
    to_numpy_values,
)
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.numbers.decimals import from_unscaled
from ikebana.expressions.temporal import calendar
from ikebana.expressions.temporal.calendar import HOUR, MINUTE, split_days, truncated_quotient
from ikebana.expressions.temporal.dates import DATE_LEVELS, by_level, first_day
from ikebana.expressions.temporal.zones import DAY, SECOND, to_clock, to_instant

_INT, _LONG, _BYTE = pa.int32(), pa.int64(), pa.int8()
INSTANT, CLOCK, DURATION = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.duration("us")
SECONDS_WITH_FRACTION = pa.decimal128(8, 6)
_LONG_LIMIT = 2**63


def zone_of(tree: Tree, config: Config) -> tuple[Any, ...]:
    """The time zone of an expression, by default that of the session."""
    return (tree.fields.get("timeZoneId") or config.time_zone,)


def zone_and_failing(tree: Tree, config: Config) -> tuple[Any, ...]:
    """The time zone of an expression, and whether it raises for invalid values."""
    return (*zone_of(tree, config), *fail_on_error(tree, config))


def _clock(call: Call, time: Value) -> Any:
    """The clock times of timestamps with and without a zone, in microseconds."""
    micros = np.atleast_1d(to_int64(time))
    return to_clock(micros, call.options[0]) if time.type.tz else micros


def _first_type(arguments: Arguments) -> pa.DataType:
    return arguments[0].type


def _check_range(call: Call, approximate: Any, *arguments: Value) -> None:
    """Raise where a result, computed in floating point, does not fit 64 bits."""
    raise_where(np.abs(approximate) >= _LONG_LIMIT, call, "the result is out of range", *arguments)


# Fields.


def _field(kind: str, compute: Callable[[Any], Any]) -> None:
    @maps(kind, gives=_INT, options=zone_of)
    def _(call: Call, time: pa.Array) -> pa.Array:
        return from_numpy(_INT, compute(split_days(_clock(call, time))[1]))


_field("Hour", lambda micros: micros // HOUR)
_field("Minute", lambda micros: micros // MINUTE % 60)
_field("Second", lambda micros: micros // SECOND % 60)


@maps("SecondWithFraction", gives=SECONDS_WITH_FRACTION, options=zone_of)
def _seconds(call: Call, time: pa.Array) -> pa.Array:
    return from_unscaled(SECONDS_WITH_FRACTION, _clock(call, time) % MINUTE, None)


def _unix(kind: str, unit: int) -> None:
    @maps(kind, gives=_LONG)
    def _(call: Call, time: pa.Array) -> pa.Array:
        return from_numpy(_LONG, to_int64(time) // unit)


_unix("UnixSeconds", SECOND)
_unix("UnixMillis", 1000)
_unix("UnixMicros", 1)


@maps("MillisToTimestamp", gives=INSTANT, raises=True)
def _from_millis(call: Call, count: pa.Array) -> pa.Array:
    return _from_units(call, count, 1000)


@maps("MicrosToTimestamp", gives=INSTANT)
def _from_micros(call: Call, count: pa.Array) -> pa.Array:
    return from_numpy(INSTANT, to_int64(count))


def _from_units(call: Call, count: pa.Array, unit: int) -> pa.Array:
    integers = to_int64(count)
    raise_where(abs(integers.astype(float)) > _LONG_LIMIT / unit, call, "the timestamp is out of range", count)
    return from_numpy(INSTANT, integers * unit)


@maps(
    "SecondsToTimestamp",
    gives=INSTANT,
    nullable=lambda tree, arguments: types.is_floating(arguments[0].type) or is_nullable(arguments),
    raises=lambda call: not types.is_floating(call.arguments[0].type),
)
def _from_seconds(call: Call, count: pa.Array) -> pa.Array:
    if types.is_integer(count.type):
        return _from_units(call, count, SECOND)
    if types.is_floating(count.type):
        micros = to_numpy_values(count).astype(float) * SECOND
        return from_numpy(INSTANT, _saturated(micros), np.isfinite(micros))
    return map_distinct(_exact_micros, INSTANT, count)


def _saturated(value: Any) -> Any:
    """Floats as 64-bit integers; values out of range become the smallest or largest integer."""
    in_range = np.where(np.isfinite(value) & (np.abs(value) < _LONG_LIMIT), value, 0).astype(np.int64)
    limits = np.iinfo(np.int64)
    return np.where(value >= _LONG_LIMIT, limits.max, np.where(value < -_LONG_LIMIT, limits.min, in_range))


def _exact_micros(seconds: Decimal) -> int:
    micros = seconds * SECOND
    if micros != int(micros) or abs(micros) >= _LONG_LIMIT:
        raise EvaluationError(
            f"timestamp_seconds cannot convert {seconds}",
            detail="the value is out of range, or has more than 6 decimal places",
            hint="round the seconds to microseconds",
        )
    return int(micros)


@builds("PreciseTimestampConversion")
def _build_conversion(tree: Tree, children: Arguments, config: Config) -> Expression:
    (child,) = children
    kind = _LONG if tree.fields["toType"] == "long" else CLOCK if "ntz" in str(tree.fields["toType"]) else INSTANT
    return Call(kind, child.nullable, "UnixMicros" if kind == _LONG else "MicrosToTimestamp", children)


# Truncating.

_LEVEL_MICROS = {"day": DAY, "hour": HOUR, "minute": MINUTE, "second": SECOND, "millisecond": 1000, "microsecond": 1}


@maps("TruncTimestamp", gives=lambda arguments: arguments[1].type, nullable=True, options=zone_of)
def _truncate(call: Call, name: Value, time: Value) -> pa.Array:
    micros, clock = np.atleast_1d(to_int64(time)), _clock(call, time)

    def truncated(level: str) -> Any:
        if level in DATE_LEVELS:
            return to_instant(first_day(split_days(clock)[0], level) * DAY, call.options[0])
        if _LEVEL_MICROS[level] <= SECOND:
            return micros - micros % _LEVEL_MICROS[level]
        return _instant_with_offset(call, clock - clock % _LEVEL_MICROS[level], clock - micros)

    result, is_level = by_level((*DATE_LEVELS, *_LEVEL_MICROS), name, truncated)
    result = np.broadcast_to(result, row_count(name, time))
    return from_numpy(call.type, result, np.broadcast_to(is_level, result.shape))


def _instant_with_offset(call: Call, clock: Any, offset: Any) -> Any:
    """The instants of clock times: with the given offset, if it is in force then."""
    instant = clock - offset
    zone = call.options[0]
    return np.where(to_clock(instant, zone) == clock, instant, to_instant(clock, zone))


# Adding.


def _plus(call: Call, time: Value, days: Any, months: Any, micros: Any) -> Any:
    """Add months (if not None) and days to the clock times of timestamps, then microseconds to the instants."""
    start = np.atleast_1d(to_int64(time))
    clock = _clock(call, time)
    date, micros_of_day = split_days(clock)
    later = calendar.plus_months(date, months) if months is not None else date
    result = (later + days) * DAY + micros_of_day
    result, clock, start = np.broadcast_arrays(result, clock, start)
    if time.type.tz:
        result = np.where(result == clock, start, _instant_with_offset(call, result, clock - start))
    return result + micros


def _add_duration(call: Call, time: Value, duration: Any, *arguments: Value) -> pa.Array:
    days = truncated_quotient(duration, DAY)
    _check_range(call, to_int64(time).astype(float) + np.asarray(duration, float), time, *arguments)
    return from_numpy(call.type, _plus(call, time, days, None, duration - days * DAY))


def _add_months(call: Call, time: Value, months: Any, *arguments: Value) -> pa.Array:
    _check_range(call, to_int64(time).astype(float) + np.asarray(months, float) * 31.0 * DAY, time, *arguments)
    return from_numpy(call.type, _plus(call, time, 0, months, 0))


def _check_interval(arguments: Arguments) -> None:
    if not types.is_duration(arguments[1].type):
        raise SqlError(
            "adding an interval of both months and days is not supported in a maintained view",
            hint="add a year-month interval and a day-time interval one after the other",
        )


@maps("TimestampAddInterval", "TimeAdd", gives=_first_type, options=zone_of, raises=True, check=_check_interval)
def _add_interval(call: Call, time: Value, duration: Value) -> pa.Array:
    """Spark 4.0 calls it TimeAdd."""
    return _add_duration(call, time, to_int64(duration), duration)


@maps("TimestampAddYMInterval", gives=_first_type, options=zone_of, raises=True)
def _add_ym_interval(call: Call, time: Value, months: Value) -> pa.Array:
    return _add_months(call, time, to_int64(months), months)


# Buckets.


@maps("TimeBucket", gives=lambda arguments: arguments[1].type, options=zone_of)
def _time_bucket(call: Call, size: Value, time: Value, origin: Value) -> pa.Array:
    """The start of the bucket of a time; buckets of days and months are those of the clock in the time zone."""
    width, start = to_int64(size), np.atleast_1d(to_int64(time))
    by_month = types.is_integer(size.type)
    if not by_month and not (width >= DAY).any():
        first = to_int64(origin)
        return from_numpy(call.type, start - (start - first) % width)
    clock, first = _clock(call, time), _clock(call, origin)
    if by_month:
        (days, rest), (first_days, first_rest) = split_days(clock), split_days(first)
        count = (calendar.months(days) - calendar.months(first_days)) // width
        begin = calendar.plus_months(first_days, count * width) * DAY + first_rest
        earlier = calendar.plus_months(first_days, (count - 1) * width) * DAY + first_rest
        begin = np.where(begin > days * DAY + rest, earlier, begin)
    else:
        begin = clock - (clock - first) % width
    return from_numpy(call.type, to_instant(begin, call.options[0]) if time.type.tz else begin)


_UNIT_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": SECOND,
    "MINUTE": MINUTE,
    "HOUR": HOUR,
    "DAY": DAY,
    "DAYOFYEAR": DAY,
    "WEEK": 7 * DAY,
}
_UNIT_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _unit(tree: Tree, config: Config) -> tuple[Any, ...]:
    return (*zone_of(tree, config), str(tree.fields["unit"]).upper())


@maps("TimestampAdd", gives=lambda arguments: arguments[1].type, options=_unit, raises=True)
def _timestamp_add(call: Call, count: Value, time: Value) -> pa.Array:
    unit, units = call.options[1], to_int64(count)
    if unit in _UNIT_MONTHS:
        raise_where(
            np.abs(units.astype(float)) * _UNIT_MONTHS[unit] > 2**31 - 1,
            call,
            "the count in months does not fit 32 bits",
            count,
            time,
        )
        return _add_months(call, time, units * _UNIT_MONTHS[unit], count)
    _check_range(call, units.astype(float) * _UNIT_MICROS[unit], count, time)
    if _UNIT_MICROS[unit] >= DAY:
        return _add_duration(call, time, units * _UNIT_MICROS[unit], count)
    _check_range(call, to_int64(time).astype(float) + units.astype(float) * _UNIT_MICROS[unit], count, time)
    return from_numpy(call.type, to_int64(time) + units * _UNIT_MICROS[unit])


# Differences.


@maps("SubtractTimestamps", gives=DURATION, options=zone_of)
def _subtract(call: Call, end: Value, start: Value) -> pa.Array:
    return from_numpy(DURATION, _clock(call, end) - _clock(call, start))


@maps("TimestampDiff", gives=_LONG, options=_unit)
def _timestamp_diff(call: Call, start: Value, end: Value) -> pa.Array:
    unit, first, last = call.options[1], _clock(call, start), _clock(call, end)
    if unit in _UNIT_MICROS:
        return from_numpy(_LONG, truncated_quotient(last - first, _UNIT_MICROS[unit]))
    return from_numpy(_LONG, truncated_quotient(_months_between(first, last), _UNIT_MONTHS[unit]))


def _months_between(first: Any, last: Any) -> Any:
    """The complete months from one clock time to another, negative if the second is earlier."""
    (start, start_micros), (end, end_micros) = split_days(first), split_days(last)
    end = end - ((end > start) & (end_micros < start_micros)) + ((end < start) & (end_micros > start_micros))
    packed = [32 * calendar.months(days) + calendar.day(days) for days in (start, end)]
    return truncated_quotient(packed[1] - packed[0], 32)


@maps("MonthsBetween", gives=pa.float64(), options=zone_of)
def _months(call: Call, one: Value, other: Value, rounded: Value) -> pa.Array:
    """An integer if the days of the month are equal or both are the last; else with a fraction in 31sts of a month."""
    zone = call.options[0]
    first, second = _clock(call, one), _clock(call, other)
    days, others = split_days(first)[0], split_days(second)[0]
    months = (calendar.months(days) - calendar.months(others)).astype(float)
    same = calendar.day(days) == calendar.day(others)
    both_last = (calendar.day(days + 1) == 1) & (calendar.day(others + 1) == 1)
    seconds = (calendar.day(days) - calendar.day(others)) * 86400
    seconds = seconds + truncated_quotient(to_int64(one) - to_instant(days * DAY, zone), SECOND)
    seconds = seconds - truncated_quotient(to_int64(other) - to_instant(others * DAY, zone), SECOND)
    fractional = months + seconds / (31 * 86400.0)
    result = np.where(to_numpy_values(rounded), np.floor(fractional * 1e8 + 0.5) / 1e8, fractional)
    return from_numpy(pa.float64(), np.where(same | both_last, months, result))


# Zones.


def convert_by_zone(time: Value, zone: Value, convert: Callable[[Any, str], Any]) -> Any:
    """Apply `convert(micros, zone)` to the rows of each zone."""
    micros = np.atleast_1d(to_int64(time))
    name = literal_value(zone)
    if name is not None:
        return convert(micros, _checked_zone(name))
    micros, result = np.broadcast_to(micros, len(zone)), np.zeros(len(zone), np.int64)
    for name in zone.unique().to_pylist():
        if name is not None:
            rows = np.asarray(pc.fill_null(pc.equal(zone, name), False))
            result[rows] = convert(micros[rows], _checked_zone(name))
    return result


def _checked_zone(name: str) -> str:
    """The name of a zone; raises an EvaluationError if the zone does not exist."""
    try:
        to_clock(np.zeros(0, np.int64), name)
    except SqlError as error:
        raise EvaluationError(error.what, hint=error.hint) from None
    return name


@maps("FromUTCTimestamp", gives=_first_type, raises=True)
def _from_utc(call: Call, time: Value, zone: Value) -> pa.Array:
    return from_numpy(call.type, convert_by_zone(time, zone, to_clock))


@maps("ToUTCTimestamp", gives=_first_type, raises=True)
def _to_utc(call: Call, time: Value, zone: Value) -> pa.Array:
    return from_numpy(call.type, convert_by_zone(time, zone, to_instant))


@maps("ConvertTimezone", gives=CLOCK, raises=True)
def _convert(call: Call, source: Value, target: Value, time: Value) -> pa.Array:
    instants = from_numpy(
        CLOCK, np.broadcast_to(convert_by_zone(time, source, to_instant), row_count(source, target, time))
    )
    return from_numpy(CLOCK, convert_by_zone(instants, target, to_clock))
