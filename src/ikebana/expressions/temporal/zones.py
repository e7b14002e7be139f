"""Time zones: what a clock shows at an instant, and at which instant it shows it; whole columns, in microseconds.

Rules are Java's. What a clock never shows, because it is set forward, is later by as much; what it shows twice is the
first of the two. Two changes of a zone's clocks within two days of each other are not told apart.
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

_SHORT = {
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
    """What clocks in a zone show at instants."""
    found = known(zone)
    if isinstance(found, int):
        return micros + found * SECOND if found else micros
    known_year = _with_known_rules(micros)
    shown = _viewed(pc.local_timestamp(pa.array(known_year).view(pa.timestamp("us", found))))
    return shown if known_year is micros else shown - known_year + micros


def to_instant(clock: Micros, zone: str) -> Micros:
    """The instants at which clocks in a zone show something."""
    found = known(zone)
    if isinstance(found, int):
        return clock - found * SECOND if found else clock
    before, after = (clock + shift - to_clock(clock + shift, zone) for shift in (-DAY, DAY))
    early, late = clock + before, clock + after
    shows = (to_clock(early, zone) == clock) | (to_clock(late, zone) != clock)
    return np.where(shows, early, late)


_LAST_YEAR = 2037
"""The last year for which Arrow knows when clocks change; later ones have the rules that it has."""


def _with_known_rules(micros: Micros) -> Micros:
    """The same instants in years whose rules are known, which begin on the same day of the week and are as long."""
    if not len(micros) or micros.max() < (_LAST_YEAR - 1969) * 365 * DAY:
        return micros
    years = micros.astype("datetime64[us]").astype("datetime64[Y]")
    alike = _ALIKE[(years.astype(np.int64) + 1970) % 400]
    late = years.astype(np.int64) + 1970 > _LAST_YEAR
    shift = alike.astype("datetime64[us]").astype(np.int64) - years.astype("datetime64[us]").astype(np.int64)
    return np.where(late, micros + shift, micros)


def _alike() -> Any:
    """For each year of the calendar's cycle of 400, one of the last 28 that are known with the same days."""

    def shape(year: int) -> tuple[int, bool]:
        return int(np.datetime64(f"{year}-01-01", "D").astype(np.int64)) % 7, isleap(year)

    known = {shape(year): year for year in range(_LAST_YEAR - 27, _LAST_YEAR + 1)}
    return np.array([known[shape(2000 + each)] for each in range(400)]) - 1970


_ALIKE = _alike().astype("datetime64[Y]")


@lru_cache(maxsize=4096)
def known(zone: str) -> str | int:
    """A zone by its name: seconds east of Greenwich where they are always the same, else the name of a region."""
    text = re.sub(r"^([+-])(\d):", r"\g<1>0\2:", zone)
    text = re.sub(r"^([+-]\d\d):(\d)$", r"\1:0\2", text)
    text = _SHORT.get(text, text)
    if text in ("Z", "UTC", "GMT", "UT"):
        return 0
    offset = _offset(re.sub(r"^(UTC|GMT|UT)(?=[+-])", "", text))
    if offset is not None:
        return offset
    if _is_region(text):
        return text
    raise SqlError(f"there is no time zone {zone!r}", hint='name one as in "Europe/Paris" or "+02:00"')


def _is_region(text: str) -> bool:
    if re.fullmatch("[A-Za-z][A-Za-z0-9~/._+-]+", text) is None:
        return False
    try:
        pc.local_timestamp(pa.array([0], pa.timestamp("us", text)))
        return True
    except pa.ArrowException:
        return False


def _offset(text: str) -> int | None:
    """Seconds of an offset such as +02:00."""
    match = _OFFSET.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = (int(each or 0) for each in (match[2], match[3] or match[5], match[4] or match[6]))
    total = 3600 * hours + 60 * minutes + seconds
    if total > 18 * 3600 or max(minutes, seconds) > 59:
        return None
    return -total if match[1] == "-" else total


def _viewed(array: pa.Array) -> Any:
    return array.view(pa.int64()).to_numpy(zero_copy_only=True)
