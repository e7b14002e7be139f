"""The calendar: days since 1970-01-01 as years, months and days, and back; microseconds as times of the day.

All of it is arithmetic on NumPy arrays of 64-bit numbers, in the proleptic Gregorian calendar, as Spark has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ikebana.expressions.temporal.zones import DAY, SECOND

Whole = npt.NDArray[np.int64]

MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTH_NAMES = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def months(days: Any) -> Any:
    """Months since January 1970, of which days are a part."""
    return np.asarray(days, np.int64).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def month_start(months: Any) -> Any:
    """The first day of months."""
    return np.asarray(months, np.int64).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def year(days: Any) -> Any:
    """The years of days."""
    return months(days) // 12 + 1970


def month(days: Any) -> Any:
    """The months of days, from 1 to 12."""
    return months(days) % 12 + 1


def day(days: Any) -> Any:
    """The days in their months, from 1."""
    return days - month_start(months(days)) + 1


def day_of_year(days: Any) -> Any:
    """The days in their years, from 1."""
    return days - month_start(months(days) // 12 * 12) + 1


def weekday(days: Any) -> Any:
    """The days in their weeks: Monday is 0."""
    return (days + 3) % 7


def thursday(days: Any) -> Any:
    """The Thursdays of the weeks: their years are those that the weeks belong to."""
    return days - weekday(days) + 3


def month_length(months: Any) -> Any:
    """How many days months have."""
    return month_start(months + 1) - month_start(months)


def plus_months(days: Any, count: Any) -> Any:
    """Days some months later; the last of the month where it has no such day."""
    target = months(days) + count
    return month_start(target) + np.minimum(day(days), month_length(target)) - 1


def date(year: Any, month: Any, day: Any) -> tuple[Any, Any]:
    """Days by year, month and day, and which of them there are."""
    first = (year - 1970) * 12 + np.clip(month, 1, 12) - 1
    there = (month >= 1) & (month <= 12) & (day >= 1) & (day <= month_length(first))
    return month_start(first) + day - 1, there


def split(micros: Any) -> tuple[Any, Any]:
    """Microseconds as days, and microseconds of the day."""
    return np.divmod(micros, DAY)


def quotient(value: Any, by: int) -> Any:
    """Division that leaves out the fraction, as Java's: towards zero."""
    return np.sign(value) * (np.abs(value) // by)
