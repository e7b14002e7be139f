"""Time zones: conversion between instants and clock times, for whole columns, in microseconds.

Names and rules of zones are Java's. A clock time in a gap (clocks are set forward) is moved later by the length of the
gap; of a clock time in an overlap (clocks are set back), the earlier instant is taken.

Not guaranteed: correct results where a zone changes its offset twice within two days.
"""

from __future__ import annotations

import re
from calendar import isleap
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.errors import SqlError

Micros = npt.NDArray[np.int64]

SECOND = 1_000_000
DAY = 86_400 * SECOND

_SHORT_IDS = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00",
    "MST": "-07:00",
    "HST": "-10:00",
}
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::(\d\d)(?::(\d\d))?|(\d\d)(\d\d)?)?")


def to_clock(micros: Micros, zone: str) -> Micros:
    """The clock times in a zone at instants."""
    region = resolve_zone(zone)
    if isinstance(region, int):
        return micros + region * SECOND if region else micros
    equivalent = _with_known_rules(micros)
    clock = _as_integers(pc.local_timestamp(pa.array(equivalent).view(pa.timestamp("us", region))))
    return clock if equivalent is micros else clock - equivalent + micros


def to_instant(clock: Micros, zone: str) -> Micros:
    """The instants of clock times in a zone."""
    region = resolve_zone(zone)
    if isinstance(region, int):
        return clock - region * SECOND if region else clock
    before, after = (clock + shift - to_clock(clock + shift, zone) for shift in (-DAY, DAY))
    early, late = clock + before, clock + after
    is_early = (to_clock(early, zone) == clock) | (to_clock(late, zone) != clock)
    return np.where(is_early, early, late)


_LAST_YEAR = 2037
"""The last year whose offset changes Arrow knows; later years follow the same rules."""


def _with_known_rules(micros: Micros) -> Micros:
    """The same instants in years up to `_LAST_YEAR` that begin on the same day of the week and are equally long."""
    if not len(micros) or micros.max() < (_LAST_YEAR - 1969) * 365 * DAY:
        return micros
    years = micros.astype("datetime64[us]").astype("datetime64[Y]")
    equivalent = _EQUIVALENT_YEARS[(years.astype(np.int64) + 1970) % 400]
    late = years.astype(np.int64) + 1970 > _LAST_YEAR
    shift = equivalent.astype("datetime64[us]").astype(np.int64) - years.astype("datetime64[us]").astype(np.int64)
    return np.where(late, micros + shift, micros)


def _equivalent_years() -> Any:
    """For each year of the calendar's cycle of 400 years, one of the 28 years up to `_LAST_YEAR` with the same days."""

    def shape(year: int) -> tuple[int, bool]:
        return int(np.datetime64(f"{year}-01-01", "D").astype(np.int64)) % 7, isleap(year)

    by_shape = {shape(year): year for year in range(_LAST_YEAR - 27, _LAST_YEAR + 1)}
    return np.array([by_shape[shape(2000 + number)] for number in range(400)]) - 1970


_EQUIVALENT_YEARS = _equivalent_years().astype("datetime64[Y]")


@lru_cache(maxsize=4096)
def resolve_zone(zone: str) -> str | int:
    """The zone of a name: its offset in seconds ahead of UTC if that is fixed, else the name of its region."""
    text = re.sub(r"^([+-])(\d):", r"\g<1>0\2:", zone)
    text = re.sub(r"^([+-]\d\d):(\d)$", r"\1:0\2", text)
    text = _SHORT_IDS.get(text, text)
    if text in ("Z", "UTC", "GMT", "UT"):
        return 0
    offset = _offset(re.sub(r"^(UTC|GMT|UT)(?=[+-])", "", text))
    if offset is not None:
        return offset
    if _is_region(text):
        return text
    raise SqlError(
        f"unknown time zone {zone!r}", hint='use a region such as "Europe/Paris" or an offset such as "+02:00"'
    )


def _is_region(text: str) -> bool:
    if re.fullmatch("[A-Za-z][A-Za-z0-9~/._+-]+", text) is None:
        return False
    try:
        pc.local_timestamp(pa.array([0], pa.timestamp("us", text)))
        return True
    except pa.ArrowException:
        return False


def _offset(text: str) -> int | None:
    """The seconds of an offset such as +02:00, None if the string is not an offset of at most 18 hours."""
    match = _OFFSET.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = (int(digits or 0) for digits in (match[2], match[3] or match[5], match[4] or match[6]))
    total = 3600 * hours + 60 * minutes + seconds
    if total > 18 * 3600 or max(minutes, seconds) > 59:
        return None
    return -total if match[1] == "-" else total


def _as_integers(array: pa.Array) -> Any:
    return array.view(pa.int64()).to_numpy(zero_copy_only=True)
