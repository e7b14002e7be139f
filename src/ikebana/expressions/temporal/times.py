"""Functions of timestamps, with a zone (instants) and without one (what a clock shows), and of intervals.

Fields, days and months are those of clocks in the session's time zone; durations are added to instants. A clock that
shows the same time twice keeps the offset that it had before something was added.
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
from ikebana.expressions.core.scalars import (
    Arguments,
    Value,
    constant,
    each_distinct,
    maps,
    numbers,
    refuse_where,
    rows_of,
    wide,
)
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.numbers.decimals import made_decimal
from ikebana.expressions.temporal import calendar
from ikebana.expressions.temporal.calendar import HOUR, MINUTE, quotient, split
from ikebana.expressions.temporal.dates import DATE_LEVELS, by_level, first_day
from ikebana.expressions.temporal.zones import DAY, SECOND, to_clock, to_instant

_INT, _LONG, _BYTE = pa.int32(), pa.int64(), pa.int8()
_SECONDS = pa.decimal128(8, 6)
INSTANT, CLOCK, SPAN = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.duration("us")
_LIMIT = 2**63


def zone_of(tree: Tree, config: Config) -> tuple[Any, ...]:
    """The time zone that an expression has, else that of the session."""
    return (tree.fields.get("timeZoneId") or config.time_zone,)


def clock(call: Call, time: Value) -> Any:
    """What the clock shows: microseconds, for timestamps with and without a zone."""
    micros = np.atleast_1d(wide(time))
    return to_clock(micros, call.options[0]) if time.type.tz else micros


def _first_type(arguments: Arguments) -> pa.DataType:
    return arguments[0].type


def _checked(call: Call, exact: Any, *given: Value) -> Any:
    """Sums that were made as floats too, to see whether they fit."""
    refuse_where(np.abs(exact) >= _LIMIT, call, "the result is out of range", *given)


# Fields.


def _field(kind: str, compute: Callable[[Any], Any]) -> None:
    @maps(kind, gives=_INT, options=zone_of)
    def _(call: Call, time: pa.Array) -> pa.Array:
        return from_numpy(_INT, compute(split(clock(call, time))[1]))


_field("Hour", lambda micros: micros // HOUR)
_field("Minute", lambda micros: micros // MINUTE % 60)
_field("Second", lambda micros: micros // SECOND % 60)


@maps("SecondWithFraction", gives=_SECONDS, options=zone_of)
def _seconds(call: Call, time: pa.Array) -> pa.Array:
    return made_decimal(_SECONDS, clock(call, time) % MINUTE, None)


def _unix(kind: str, unit: int) -> None:
    @maps(kind, gives=_LONG)
    def _(call: Call, time: pa.Array) -> pa.Array:
        return from_numpy(_LONG, wide(time) // unit)


_unix("UnixSeconds", SECOND)
_unix("UnixMillis", 1000)
_unix("UnixMicros", 1)


@maps("MillisToTimestamp", gives=INSTANT, raises=True)
def _from_millis(call: Call, count: pa.Array) -> pa.Array:
    return _from_units(call, count, 1000)


@maps("MicrosToTimestamp", gives=INSTANT)
def _from_micros(call: Call, count: pa.Array) -> pa.Array:
    return from_numpy(INSTANT, wide(count))


def _from_units(call: Call, count: pa.Array, unit: int) -> pa.Array:
    whole = wide(count)
    refuse_where(abs(whole.astype(float)) > _LIMIT / unit, call, "the timestamp is out of range", count)
    return from_numpy(INSTANT, whole * unit)


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
        micros = numbers(count).astype(float) * SECOND
        return from_numpy(INSTANT, _saturated(micros), np.isfinite(micros))
    return each_distinct(_exact_micros, INSTANT, count)


def _saturated(value: Any) -> Any:
    """Floats as whole numbers of 64 bits, the nearest one for those that are out of range."""
    inside = np.where(np.isfinite(value) & (np.abs(value) < _LIMIT), value, 0).astype(np.int64)
    limits = np.iinfo(np.int64)
    return np.where(value >= _LIMIT, limits.max, np.where(value < -_LIMIT, limits.min, inside))


def _exact_micros(seconds: Decimal) -> int:
    micros = seconds * SECOND
    if micros != int(micros) or abs(micros) >= _LIMIT:
        raise EvaluationError(f"{seconds} seconds are no timestamp", detail="it is not a number of microseconds")
    return int(micros)


@builds("PreciseTimestampConversion")
def _reinterpreted(tree: Tree, children: Arguments, config: Config) -> Expression:
    (child,) = children
    kind = _LONG if tree.fields["toType"] == "long" else CLOCK if "ntz" in str(tree.fields["toType"]) else INSTANT
    return Call(kind, child.nullable, "UnixMicros" if kind == _LONG else "MicrosToTimestamp", children)


# Truncating.

_UNITS = {"day": DAY, "hour": HOUR, "minute": MINUTE, "second": SECOND, "millisecond": 1000, "microsecond": 1}


@maps("TruncTimestamp", gives=lambda arguments: arguments[1].type, nullable=True, options=zone_of)
def _truncate(call: Call, name: Value, time: Value) -> pa.Array:
    micros, shown = np.atleast_1d(wide(time)), clock(call, time)

    def truncated(level: str) -> Any:
        if level in DATE_LEVELS:
            return to_instant(first_day(split(shown)[0], level) * DAY, call.options[0])
        if _UNITS[level] <= SECOND:
            return micros - micros % _UNITS[level]
        return _resolved(call, shown - shown % _UNITS[level], shown - micros)

    result, there = by_level((*DATE_LEVELS, *_UNITS), name, truncated)
    result = np.broadcast_to(result, rows_of(name, time))
    return from_numpy(call.type, result, np.broadcast_to(there, result.shape))


def _resolved(call: Call, shown: Any, offset: Any) -> Any:
    """When clocks show something: with an offset, if they then have it."""
    kept = shown - offset
    zone = call.options[0]
    return np.where(to_clock(kept, zone) == shown, kept, to_instant(shown, zone))


# Adding.


def _plus(call: Call, time: Value, days: Any, months: Any, micros: Any) -> Any:
    """A timestamp some months and days later on the clock, and then some microseconds."""
    start = np.atleast_1d(wide(time))
    shown = clock(call, time)
    date, rest = split(shown)
    later = calendar.plus_months(date, months) if months is not None else date
    moved = (later + days) * DAY + rest
    moved, shown, start = np.broadcast_arrays(moved, shown, start)
    if time.type.tz:
        moved = np.where(moved == shown, start, _resolved(call, moved, shown - start))
    return moved + micros


def _add_span(call: Call, time: Value, span: Any, *given: Value) -> pa.Array:
    days = quotient(span, DAY)
    _checked(call, wide(time).astype(float) + np.asarray(span, float), time, *given)
    return from_numpy(call.type, _plus(call, time, days, None, span - days * DAY))


def _add_months(call: Call, time: Value, months: Any, *given: Value) -> pa.Array:
    _checked(call, wide(time).astype(float) + np.asarray(months, float) * 31.0 * DAY, time, *given)
    return from_numpy(call.type, _plus(call, time, 0, months, 0))


def _check_interval(arguments: Arguments) -> None:
    if not types.is_duration(arguments[1].type):
        raise SqlError(
            "an interval of both months and days cannot be added in a maintained view",
            hint="add an interval of months, and another of days",
        )


@maps("TimestampAddInterval", gives=_first_type, options=zone_of, raises=True, check=_check_interval)
def _add_interval(call: Call, time: Value, span: Value) -> pa.Array:
    return _add_span(call, time, wide(span), span)


@maps("TimestampAddYMInterval", gives=_first_type, options=zone_of, raises=True)
def _add_ym_interval(call: Call, time: Value, months: Value) -> pa.Array:
    return _add_months(call, time, wide(months), months)


_SPANS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": SECOND,
    "MINUTE": MINUTE,
    "HOUR": HOUR,
    "DAY": DAY,
    "DAYOFYEAR": DAY,
    "WEEK": 7 * DAY,
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _unit(tree: Tree, config: Config) -> tuple[Any, ...]:
    return (*zone_of(tree, config), str(tree.fields["unit"]).upper())


@maps("TimestampAdd", gives=lambda arguments: arguments[1].type, options=_unit, raises=True)
def _timestamp_add(call: Call, count: Value, time: Value) -> pa.Array:
    unit, many = call.options[1], wide(count)
    if unit in _MONTHS:
        refuse_where(np.abs(many.astype(float)) * _MONTHS[unit] > 2**31 - 1, call, "too many months", count, time)
        return _add_months(call, time, many * _MONTHS[unit], count)
    _checked(call, many.astype(float) * _SPANS[unit], count, time)
    if _SPANS[unit] >= DAY:
        return _add_span(call, time, many * _SPANS[unit], count)
    _checked(call, wide(time).astype(float) + many.astype(float) * _SPANS[unit], count, time)
    return from_numpy(call.type, wide(time) + many * _SPANS[unit])


# Differences.


@maps("SubtractTimestamps", gives=SPAN, options=zone_of)
def _subtract(call: Call, end: Value, start: Value) -> pa.Array:
    return from_numpy(SPAN, clock(call, end) - clock(call, start))


@maps("TimestampDiff", gives=_LONG, options=_unit)
def _timestamp_diff(call: Call, start: Value, end: Value) -> pa.Array:
    unit, first, last = call.options[1], clock(call, start), clock(call, end)
    if unit in _SPANS:
        return from_numpy(_LONG, quotient(last - first, _SPANS[unit]))
    return from_numpy(_LONG, quotient(_months_between(first, last), _MONTHS[unit]))


def _months_between(first: Any, last: Any) -> Any:
    """Whole months from one time to another, towards zero."""
    (days, rest), (later, more) = split(first), split(last)
    later = later - ((later > days) & (more < rest)) + ((later < days) & (more > rest))
    packed = [32 * calendar.months(each) + calendar.day(each) for each in (days, later)]
    return quotient(packed[1] - packed[0], 32)


@maps("MonthsBetween", gives=pa.float64(), options=zone_of)
def _months(call: Call, one: Value, other: Value, rounded: Value) -> pa.Array:
    zone = call.options[0]
    first, second = clock(call, one), clock(call, other)
    days, others = split(first)[0], split(second)[0]
    months = (calendar.months(days) - calendar.months(others)).astype(float)
    same = calendar.day(days) == calendar.day(others)
    both_last = (calendar.day(days + 1) == 1) & (calendar.day(others + 1) == 1)
    seconds = (calendar.day(days) - calendar.day(others)) * 86400
    seconds = seconds + quotient(wide(one) - to_instant(days * DAY, zone), SECOND)
    seconds = seconds - quotient(wide(other) - to_instant(others * DAY, zone), SECOND)
    parts = months + seconds / (31 * 86400.0)
    result = np.where(numbers(rounded), np.floor(parts * 1e8 + 0.5) / 1e8, parts)
    return from_numpy(pa.float64(), np.where(same | both_last, months, result))


# Zones.


def moved(time: Value, zone: Value, move: Callable[[Any, str], Any]) -> Any:
    """What is computed for each row with the zone that it names."""
    micros = np.atleast_1d(wide(time))
    name = constant(zone)
    if name is not None:
        return move(micros, _known(name))
    micros, result = np.broadcast_to(micros, len(zone)), np.zeros(len(zone), np.int64)
    for each in zone.unique().to_pylist():
        if each is not None:
            here = np.asarray(pc.fill_null(pc.equal(zone, each), False))
            result[here] = move(micros[here], _known(each))
    return result


def _known(name: str) -> str:
    try:
        to_clock(np.zeros(0, np.int64), name)
    except SqlError as error:
        raise EvaluationError(error.what, hint=error.hint) from None
    return name


@maps("FromUTCTimestamp", gives=_first_type, raises=True)
def _from_utc(call: Call, time: Value, zone: Value) -> pa.Array:
    return from_numpy(call.type, moved(time, zone, to_clock))


@maps("ToUTCTimestamp", gives=_first_type, raises=True)
def _to_utc(call: Call, time: Value, zone: Value) -> pa.Array:
    return from_numpy(call.type, moved(time, zone, to_instant))


@maps("ConvertTimezone", gives=CLOCK, raises=True)
def _convert(call: Call, source: Value, target: Value, time: Value) -> pa.Array:
    instants = from_numpy(CLOCK, np.broadcast_to(moved(time, source, to_instant), rows_of(source, target, time)))
    return from_numpy(CLOCK, moved(instants, target, to_clock))
