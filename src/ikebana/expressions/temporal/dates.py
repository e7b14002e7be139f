"""Functions of dates.

Dates are days since 1970-01-01; sums that leave their range wrap, as in Spark, except where months are added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import from_numpy
from ikebana.expressions.core.base import Call, Config
from ikebana.expressions.core.scalars import Value, maps, numbers, refuse_where, unless_it_fails, wide
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.temporal import calendar
from ikebana.expressions.temporal.zones import DAY

_INT, _DATE = pa.int32(), pa.date32()
_INT_RANGE = np.iinfo(np.int32)


def fails(tree: Tree, config: Config) -> tuple[Any, ...]:
    """Whether values that make no sense raise, or are null."""
    return (bool(tree.fields["failOnError"]),)


def may_fail(call: Call) -> bool:
    """Whether a call raises for values that make no sense."""
    return bool(call.options[0])


# Fields.


def _field(kind: str, compute: Callable[[Any], Any]) -> None:
    @maps(kind, gives=_INT)
    def _(call: Call, date: pa.Array) -> pa.Array:
        return from_numpy(_INT, compute(wide(date)))


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
    short = pa.array([name[:3] for name in names])

    @maps(kind, gives=pa.string())
    def _(call: Call, date: pa.Array) -> pa.Array:
        return short.take(pa.array(compute(wide(date))))


_named("DayName", calendar.DAY_NAMES, calendar.weekday)
_named("MonthName", calendar.MONTH_NAMES, lambda days: calendar.month(days) - 1)


# Sums and differences.


@maps("DateFromUnixDate", gives=_DATE)
def _from_days(call: Call, days: pa.Array) -> pa.Array:
    return from_numpy(_DATE, numbers(days))


@maps("DateAdd", gives=_DATE)
def _add(call: Call, date: Value, count: Value) -> pa.Array:
    return from_numpy(_DATE, wide(date) + wide(count))


@maps("DateSub", gives=_DATE)
def _sub(call: Call, date: Value, count: Value) -> pa.Array:
    return from_numpy(_DATE, wide(date) - wide(count))


@maps("DateDiff", gives=_INT)
def _diff(call: Call, end: Value, start: Value) -> pa.Array:
    return from_numpy(_INT, wide(end) - wide(start))


@maps("SubtractDates", gives=pa.duration("us"), raises=True)
def _subtract(call: Call, end: Value, start: Value) -> pa.Array:
    days = wide(end) - wide(start)
    refuse_where(abs(days) > np.iinfo(np.int64).max // DAY, call, "the interval is too long", end, start)
    return from_numpy(call.type, days * DAY)


@maps("AddMonths", "DateAddYMInterval", gives=_DATE, raises=True)
def _add_months(call: Call, date: Value, count: Value) -> pa.Array:
    days = calendar.plus_months(wide(date), wide(count))
    refuse_where((days < _INT_RANGE.min) | (days > _INT_RANGE.max), call, "there is no such date", date, count)
    return from_numpy(_DATE, days)


@maps("LastDay", gives=_DATE)
def _last_day(call: Call, date: pa.Array) -> pa.Array:
    return from_numpy(_DATE, calendar.month_start(calendar.months(wide(date)) + 1) - 1)


_WEEKDAYS = {
    name: number
    for number, full in enumerate(calendar.DAY_NAMES)
    for name in (full.upper(), full[:3].upper(), full[:2].upper())
}


@maps("NextDay", gives=_DATE, nullable=True, options=fails, raises=may_fail)
def _next_day(call: Call, date: Value, name: Value) -> pa.Array:
    wanted = _codes(name, lambda text: _WEEKDAYS.get(text.upper(), -1))
    if may_fail(call):
        refuse_where(wanted < 0, call, "there is no such day of the week", date, name)
    days = wide(date)
    result = days + 1 + (wanted - 1 - calendar.weekday(days)) % 7
    return from_numpy(_DATE, result, np.broadcast_to(wanted >= 0, result.shape))


def _codes(text: Value, code: Callable[[str], int]) -> Any:
    """A number for each text; what it is for null is arbitrary."""
    if isinstance(text, pa.Scalar):
        return np.int64(code(text.as_py()))
    encoded = text.dictionary_encode()
    known = np.array([*(code(each) for each in encoded.dictionary.to_pylist()), -1], np.int64)
    return known[np.asarray(encoded.indices.fill_null(len(known) - 1))]


@maps(
    "MakeDate",
    gives=_DATE,
    nullable=unless_it_fails,
    options=fails,
    raises=may_fail,
)
def _make_date(call: Call, year: Value, month: Value, day: Value) -> pa.Array:
    days, there = calendar.date(wide(year), wide(month), wide(day))
    there = there & (days >= _INT_RANGE.min) & (days <= _INT_RANGE.max)
    if may_fail(call):
        refuse_where(~there, call, "there is no such date", year, month, day)
    return from_numpy(_DATE, days, there)


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
"""What fields may be called."""

DATE_LEVELS = ("year", "quarter", "month", "week")


def first_day(days: Any, level: str) -> Any:
    """The first day of the year, quarter, month or week."""
    if level == "week":
        return days - calendar.weekday(days)
    size = {"year": 12, "quarter": 3, "month": 1}[level]
    return calendar.month_start(calendar.months(days) // size * size)


def by_level(levels: tuple[str, ...], name: Value, compute: Callable[[str], Any]) -> tuple[Any, Any]:
    """What is computed for the level that each row names, and where it names one of those that there are."""
    codes = _codes(name, lambda text: levels.index(found) if (found := LEVELS.get(text.upper())) in levels else -1)
    result: Any = np.int64(0)
    for code in np.unique(codes).tolist():
        if code >= 0:
            result = np.where(codes == code, compute(levels[code]), result)
    return result, codes >= 0


@maps("TruncDate", gives=_DATE, nullable=True)
def _trunc(call: Call, date: Value, name: Value) -> pa.Array:
    days = wide(date)
    result, there = by_level(DATE_LEVELS, name, lambda level: first_day(days, level))
    result = np.broadcast_to(result, np.broadcast_shapes(np.shape(days), np.shape(there)))
    return from_numpy(_DATE, result, np.broadcast_to(there, result.shape))
