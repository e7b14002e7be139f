"""Lengths of time that users give: a `timedelta`, or text such as "7 days" or "1.5 hours".

Units are seconds, minutes, hours, days and weeks, each of a fixed length; text has one number and one unit. Months and
years are refused, since their lengths differ.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from ikebana.errors import SchemaError

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", re.IGNORECASE)


def duration(given: Any, argument: str) -> timedelta:
    """A time, from a `timedelta` or from a number and a unit; errors name the argument.

    >>> duration("7 days", "retain"), duration("1.5 hours", "retain")
    (datetime.timedelta(days=7), datetime.timedelta(seconds=5400))
    """
    if isinstance(given, timedelta) and given >= timedelta(0):
        return given
    match = _DURATION.fullmatch(given) if isinstance(given, str) else None
    if match is None or match[2].lower() not in _UNITS:
        raise SchemaError(
            f"{argument}={given!r} is not a time",
            hint=f'give a timedelta, or a number of {", ".join(f"{unit}s" for unit in _UNITS)}, such as "7 days"',
        )
    return timedelta(seconds=float(match[1]) * _UNITS[match[2].lower()])
