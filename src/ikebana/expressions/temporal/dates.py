"""Functions of dates: fields (year, month, ...), date arithmetic, make_date, next_day, trunc.

Dates are days since 1970-01-01 in 32 bits. As in Spark, adding days beyond this range wraps silently, while adding
months raises. The names of days and months are English.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import from_numpy
from ikebana.expressions.core.base import Call
from ikebana.expressions.core.failing import fail_on_error, fails_on_error
from ikebana.expressions.core.scalars import Value, maps, nullable_unless_ansi, raise_where, to_int64, to_numpy_values
from ikebana.expressions.temporal import calendar
from ikebana.expressions.temporal.zones import DAY

_INT, _DATE = pa.int32(), pa.date32()
_INT_RANGE = np.iinfo(np.int32)


# Fields.


def _field(kind: str, compute: Callable[[Any], Any]) -> None:
    @maps(kind, gives=_INT)
    def _(call: Call, date: pa.Array) -> pa.Array:
        return from_numpy(_INT, compute(to_int64(date)))


_field("Year", calendar.year)
_field("Quarter", lambda days: (calendar.month(days) - 1) // 3 + 1)
_field("Month", calendar.month)
_field("DayOfMonth", calendar.day)
_field("DayOfYear", calendar.day_of_year)
_field("DayOfWeek", lambda days: (days + 4) % 7 + 1)
_field("WeekDay", calendar.weekday)
_field("WeekOfYear", lambda days: (calendar.day_of_year(calendar.thursday(days)) - 1) // 7 + 1)
_field("YearOfWeek", lambda days: calendar.year(calendar.thursday(days)))
_field("UnixDate", lambda days: days)


def _named(kind: str, names: tuple[str, ...], compute: Callable[[Any], Any]) -> None:
    abbreviations = pa.array([name[:3] for name in names])

    @maps(kind, gives=pa.string())
    def _(call: Call, date: pa.Array) -> pa.Array:
        return abbreviations.take(pa.array(compute(to_int64(date))))


_named("DayName", calendar.DAY_NAMES, calendar.weekday)
_named("MonthName", calendar.MONTH_NAMES, lambda days: calendar.month(days) - 1)


# Arithmetic.


@maps("DateFromUnixDate", gives=_DATE)
def _from_days(call: Call, days: pa.Array) -> pa.Array:
    return from_numpy(_DATE, to_numpy_values(days))


@maps("DateAdd", gives=_DATE)
def _add(call: Call, date: Value, count: Value) -> pa.Array:
    return from_numpy(_DATE, to_int64(date) + to_int64(count))


@maps("DateSub", gives=_DATE)
def _sub(call: Call, date: Value, count: Value) -> pa.Array:
    return from_numpy(_DATE, to_int64(date) - to_int64(count))


@maps("DateDiff", gives=_INT)
def _diff(call: Call, end: Value, start: Value) -> pa.Array:
    return from_numpy(_INT, to_int64(end) - to_int64(start))


@maps("SubtractDates", gives=pa.duration("us"), raises=True)
def _subtract(call: Call, end: Value, start: Value) -> pa.Array:
    days = to_int64(end) - to_int64(start)
    raise_where(
        abs(days) > np.iinfo(np.int64).max // DAY, call, "the difference is too long for an interval", end, start
    )
    return from_numpy(call.type, days * DAY)


@maps("AddMonths", "DateAddYMInterval", gives=_DATE, raises=True)
def _add_months(call: Call, date: Value, count: Value) -> pa.Array:
    days = calendar.plus_months(to_int64(date), to_int64(count))
    raise_where(
        (days < _INT_RANGE.min) | (days > _INT_RANGE.max), call, "the result is out of the range of dates", date, count
    )
    return from_numpy(_DATE, days)


@maps("LastDay", gives=_DATE)
def _last_day(call: Call, date: pa.Array) -> pa.Array:
    return from_numpy(_DATE, calendar.month_start(calendar.months(to_int64(date)) + 1) - 1)


_WEEKDAYS = {
    name: number
    for number, full in enumerate(calendar.DAY_NAMES)
    for name in (full.upper(), full[:3].upper(), full[:2].upper())
}


@maps("NextDay", gives=_DATE, nullable=True, options=fail_on_error, raises=fails_on_error)
def _next_day(call: Call, date: Value, name: Value) -> pa.Array:
    weekday = codes_of_strings(name, lambda name: _WEEKDAYS.get(name.upper(), -1))
    if fails_on_error(call):
        raise_where(weekday < 0, call, "the day of the week must be a name such as MONDAY, MON or MO", date, name)
    days = to_int64(date)
    result = days + 1 + (weekday - 1 - calendar.weekday(days)) % 7
    return from_numpy(_DATE, result, np.broadcast_to(weekday >= 0, result.shape))


def codes_of_strings(strings: Value, code: Callable[[str], int]) -> Any:
    """The integer that `code` returns for each string, called once per distinct string; arbitrary for null."""
    if isinstance(strings, pa.Scalar):
        return np.int64(code(strings.as_py()))
    encoded = strings.dictionary_encode()
    codes = np.array([*(code(string) for string in encoded.dictionary.to_pylist()), -1], np.int64)
    return codes[np.asarray(encoded.indices.fill_null(len(codes) - 1))]


@maps(
    "MakeDate",
    gives=_DATE,
    nullable=nullable_unless_ansi,
    options=fail_on_error,
    raises=fails_on_error,
)
def _make_date(call: Call, year: Value, month: Value, day: Value) -> pa.Array:
    days, exists = calendar.date(to_int64(year), to_int64(month), to_int64(day))
    exists = exists & (days >= _INT_RANGE.min) & (days <= _INT_RANGE.max)
    if fails_on_error(call):
        raise_where(~exists, call, "the year, month and day are not a valid date", year, month, day)
    return from_numpy(_DATE, days, exists)


# Truncating.

LEVELS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MON", "MM"), "month"),
    "WEEK": "week",
    **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
    "MILLISECOND": "millisecond",
    "MICROSECOND": "microsecond",
}
"""The level of each name that trunc and date_trunc accept, in upper case."""

DATE_LEVELS = ("year", "quarter", "month", "week")


def first_day(days: Any, level: str) -> Any:
    """The first day of the year, quarter, month or week."""
    if level == "week":
        return days - calendar.weekday(days)
    size = {"year": 12, "quarter": 3, "month": 1}[level]
    return calendar.month_start(calendar.months(days) // size * size)


def by_level(levels: tuple[str, ...], name: Value, compute: Callable[[str], Any]) -> tuple[Any, Any]:
    """The result of `compute` for the level that each row names, and where a row names one of `levels`."""
    codes = codes_of_strings(
        name, lambda name: levels.index(level) if (level := LEVELS.get(name.upper())) in levels else -1
    )
    result: Any = np.int64(0)
    for code in np.unique(codes).tolist():
        if code >= 0:
            result = np.where(codes == code, compute(levels[code]), result)
    return result, codes >= 0


@maps("TruncDate", gives=_DATE, nullable=True)
def _trunc(call: Call, date: Value, name: Value) -> pa.Array:
    days = to_int64(date)
    result, is_level = by_level(DATE_LEVELS, name, lambda level: first_day(days, level))
    result = np.broadcast_to(result, np.broadcast_shapes(np.shape(days), np.shape(is_level)))
    return from_numpy(_DATE, result, np.broadcast_to(is_level, result.shape))
