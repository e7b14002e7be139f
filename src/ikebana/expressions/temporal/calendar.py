"""The proleptic Gregorian calendar: days since 1970-01-01 as years, months and days, and back.

All functions work on NumPy arrays of 64-bit integers or on single integers. Weeks are those of ISO 8601: they begin on
Monday, and belong to the year that their Thursday is in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ikebana.expressions.temporal.zones import DAY, SECOND

MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTH_NAMES = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def months(days: Any) -> Any:
    """The months of days, counted from January 1970."""
    return np.asarray(days, np.int64).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def month_start(months: Any) -> Any:
    """The first days of months that are counted from January 1970."""
    return np.asarray(months, np.int64).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def year(days: Any) -> Any:
    """The years of days."""
    return months(days) // 12 + 1970


def month(days: Any) -> Any:
    """The months of days, from 1 to 12."""
    return months(days) % 12 + 1


def day(days: Any) -> Any:
    """The days of the month, from 1."""
    return days - month_start(months(days)) + 1


def day_of_year(days: Any) -> Any:
    """The days of the year, from 1."""
    return days - month_start(months(days) // 12 * 12) + 1


def weekday(days: Any) -> Any:
    """The days of the week, from 0 for Monday."""
    return (days + 3) % 7


def thursday(days: Any) -> Any:
    """The Thursdays of the weeks of days."""
    return days - weekday(days) + 3


def month_length(months: Any) -> Any:
    """The number of days of months that are counted from January 1970."""
    return month_start(months + 1) - month_start(months)


def plus_months(days: Any, count: Any) -> Any:
    """The same day of the month `count` months later, or the last day of that month if it is shorter."""
    target = months(days) + count
    return month_start(target) + np.minimum(day(days), month_length(target)) - 1


def date(year: Any, month: Any, day: Any) -> tuple[Any, Any]:
    """Days by year, month and day of the month, and which of these dates exist."""
    first = (year - 1970) * 12 + np.clip(month, 1, 12) - 1
    exists = (month >= 1) & (month <= 12) & (day >= 1) & (day <= month_length(first))
    return month_start(first) + day - 1, exists


def split_days(micros: Any) -> tuple[Any, Any]:
    """Microseconds as days, and microseconds of the day."""
    return np.divmod(micros, DAY)


def truncated_quotient(value: Any, by: int) -> Any:
    """The quotient rounded towards zero, as Java's integer division."""
    return np.sign(value) * (np.abs(value) // by)
