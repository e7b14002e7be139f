"""Timestamps formatted and parsed by a datetime pattern: date_format, from_unixtime, to_timestamp, unix_timestamp.

Patterns are those of Spark 3 and later (Java's DateTimeFormatter). A pattern must be a literal. Supported symbols: G
(era), y u (year), M L (month), d (day of month), F (its place in a week of the month), D (day of year), E (day of
week), Q q (quarter), H h k K (hour), m (minute), s (second), S (fraction), a (AM or PM), X x Z O (offset), VV (time
zone), text in quotes, and optional sections ([]). G, F, D, E, Q, q, O and VV can be formatted but not parsed. Patterns
with z, the name of a time zone, are refused when the query is created, and so are those that Spark refuses.

Parsing is strict: the whole string must match. A two-digit year is in the 2000s. Fields that the pattern lacks are
those of 1970-01-01 00:00:00.

Cost: each part of the pattern is formatted or parsed for the whole column at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import from_numpy
from ikebana.errors import SqlError
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, Literal, builds, function
from ikebana.expressions.core.buffers import operands
from ikebana.expressions.core.failing import fails_on_error
from ikebana.expressions.core.scalars import (
    Arguments,
    Value,
    maps,
    null_where_invalid,
    nullable_unless_ansi,
    raise_where,
    to_int64,
    validity_of,
)
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import arrow_type
from ikebana.expressions.temporal import calendar
from ikebana.expressions.temporal.calendar import HOUR, MINUTE, split_days, truncated_quotient
from ikebana.expressions.temporal.dates import codes_of_strings
from ikebana.expressions.temporal.times import INSTANT, zone_and_failing, zone_of
from ikebana.expressions.temporal.zones import DAY, SECOND, to_clock, to_instant

_STRING, _LONG = pa.string(), pa.int64()
_BRACKETS = ("[", "]")
_YEAR_OF_ERA = "year of era"


@dataclass(frozen=True)
class _Part:
    """A pattern symbol and its number of repetitions, a bracket, or literal text (then the symbol is empty)."""

    symbol: str
    width: int
    text: str = ""


@lru_cache(maxsize=256)
def _parse_pattern(pattern: str) -> tuple[_Part, ...]:
    return tuple(_parts(pattern))


def _parts(pattern: str) -> Iterator[_Part]:
    for match in re.finditer(r"([a-zA-Z])\1*|'((?:[^']|'')*)'|(.)", pattern, re.DOTALL):
        if match[1]:
            yield _Part(match[1], len(match[0]))
        elif match[3]:
            if match[3] in "#{}'":
                raise _unsupported(pattern, match[3])
            yield _Part(match[3], 0) if match[3] in _BRACKETS else _Part("", 0, match[3])
        else:
            yield _Part("", 0, match[2].replace("''", "'") or "'")


def _unsupported(pattern: str, part: str) -> SqlError:
    return SqlError(
        f"the datetime pattern {pattern!r} is not supported in a maintained view",
        detail=f"{part!r} is not supported",
        hint="use years (yyyy), months (MM), days (dd), hours (HH), minutes (mm), seconds (ss) and fractions (SSS)",
    )


def _literal_pattern(arguments: Arguments) -> str | None:
    pattern = arguments[1]
    if not isinstance(pattern, Literal):
        raise SqlError(
            "a datetime pattern that is not constant is not supported in a maintained view",
            detail=f"the pattern is {pattern}",
            hint="write the pattern as a literal; use CASE to choose between several",
        )
    return pattern.value


# Formatting.


def _check_formatting(arguments: Arguments) -> None:
    pattern = _literal_pattern(arguments)
    for part in _formatted_parts(pattern or ""):
        if part.symbol and (part.symbol, part.width) not in _FORMATTERS:
            raise _unsupported(pattern or "", part.symbol * part.width)


def _formatted_parts(pattern: str) -> list[_Part]:
    """The parts that are written: optional sections always are. With an era, `y` is the year of the era."""
    parts = [part for part in _parse_pattern(pattern) if part.symbol not in _BRACKETS]
    if not any(part.symbol == "G" for part in parts):
        return parts
    return [replace(part, symbol=_YEAR_OF_ERA) if part.symbol == "y" else part for part in parts]


def _zero_padded(value: Any, width: int) -> pa.Array:
    """Non-negative integers as strings of at least `width` digits."""
    digits = pa.array(np.asarray(value, np.int64)).cast(_STRING)
    return digits if width < 2 else pc.utf8_lpad(digits, width, "0")


@dataclass(frozen=True, eq=False)
class _ClockTime:
    """Clock times as days and microseconds of the day, their offsets in seconds ahead of UTC, and their time zone."""

    days: Any
    micros: Any
    offset: Any
    zone: str


_Formatter = Callable[[_ClockTime], pa.Array]


def _year(width: int, year: Callable[[_ClockTime], Any] = lambda time: calendar.year(time.days)) -> _Formatter:
    def format_year(time: _ClockTime) -> pa.Array:
        years = year(time)
        signs = np.where(years < 0, "-", np.where((years >= 10**width) & (width >= 4), "+", ""))
        return pc.binary_join_element_wise(pa.array(signs.tolist(), _STRING), _zero_padded(np.abs(years), width), "")

    return format_year


def _number(compute: Callable[[_ClockTime], Any], width: int) -> _Formatter:
    return lambda time: _zero_padded(compute(time), width)


def _name(compute: Callable[[_ClockTime], Any], names: list[str]) -> _Formatter:
    choices = pa.array(names)
    return lambda time: choices.take(pa.array(np.asarray(compute(time), np.int64)))


def _fraction(width: int) -> _Formatter:
    return lambda time: pc.utf8_slice_codeunits(_zero_padded(time.micros % SECOND * 1000, 9), 0, width)


def _offset(separator: str, zulu: str, minutes: bool = True) -> _Formatter:
    """Offsets such as +02:00. `zulu`, if not empty, is offset 0. Without `minutes`, minutes of 0 are omitted."""

    def format_offset(seconds: int) -> str:
        size = abs(seconds)
        minute = f"{separator}{size // 60 % 60:02}" if minutes or size // 60 % 60 else ""
        return zulu if zulu and not seconds else f"{'-' if seconds < 0 else '+'}{size // 3600:02}{minute}"

    def format_offsets(time: _ClockTime) -> pa.Array:
        distinct, index = np.unique(time.offset, return_inverse=True)
        return pa.array([format_offset(seconds) for seconds in distinct.tolist()], _STRING).take(pa.array(index))

    return format_offsets


def _offset_from_greenwich(is_long: bool) -> _Formatter:
    """Offsets such as GMT+2, or GMT+02:00."""

    def format_offset(seconds: int) -> str:
        if not seconds:
            return "GMT"
        (hours, minutes), rest = divmod(abs(seconds) // 60, 60), abs(seconds) % 60
        parts = [f"{hours:02}" if is_long else f"{hours}"]
        if is_long or minutes or rest:
            parts.append(f"{minutes:02}")
        return f"GMT{'-' if seconds < 0 else '+'}{':'.join([*parts, *([f'{rest:02}'] if rest else [])])}"

    def format_offsets(time: _ClockTime) -> pa.Array:
        distinct, index = np.unique(time.offset, return_inverse=True)
        return pa.array([format_offset(seconds) for seconds in distinct.tolist()], _STRING).take(pa.array(index))

    return format_offsets


def _era(time: _ClockTime) -> Any:
    return calendar.year(time.days) > 0


def _year_of_era(time: _ClockTime) -> Any:
    years = calendar.year(time.days)
    return np.where(years > 0, years, 1 - years)


def _month(time: _ClockTime) -> Any:
    return calendar.month(time.days)


def _quarter(time: _ClockTime) -> Any:
    return (_month(time) - 1) // 3 + 1


def _hour(time: _ClockTime) -> Any:
    return time.micros // HOUR


def _formatters() -> dict[tuple[str, int], _Formatter]:
    """The formatter of each supported symbol and width."""
    formatters: dict[tuple[str, int], _Formatter] = {}
    numbers: dict[str, Callable[[_ClockTime], Any]] = {
        "d": lambda time: calendar.day(time.days),
        "M": _month,
        "L": _month,
        "Q": _quarter,
        "q": _quarter,
        "H": _hour,
        "h": lambda time: (_hour(time) + 11) % 12 + 1,
        "k": lambda time: (_hour(time) + 23) % 24 + 1,
        "K": lambda time: _hour(time) % 12,
        "m": lambda time: time.micros // MINUTE % 60,
        "s": lambda time: time.micros // SECOND % 60,
    }
    for symbol, compute in numbers.items():
        formatters[symbol, 1], formatters[symbol, 2] = _number(compute, 1), _number(compute, 2)
    for width in (1, 2, 3):
        formatters["D", width] = _number(lambda time: calendar.day_of_year(time.days), width)
        formatters["E", width] = _name(lambda time: calendar.weekday(time.days), [n[:3] for n in calendar.DAY_NAMES])
    formatters["E", 4] = _name(lambda time: calendar.weekday(time.days), list(calendar.DAY_NAMES))
    for symbol in "ML":
        formatters[symbol, 3] = _name(lambda time: _month(time) - 1, [name[:3] for name in calendar.MONTH_NAMES])
        formatters[symbol, 4] = _name(lambda time: _month(time) - 1, list(calendar.MONTH_NAMES))
    for symbol in "Qq":
        formatters[symbol, 3] = _name(lambda time: _quarter(time) - 1, ["Q1", "Q2", "Q3", "Q4"])
        ordinals = ["1st quarter", "2nd quarter", "3rd quarter", "4th quarter"]
        formatters[symbol, 4] = _name(lambda time: _quarter(time) - 1, ordinals)
    for symbol in "yu":
        formatters[symbol, 2] = _number(lambda time: np.abs(calendar.year(time.days)) % 100, 2)
        for width in (1, 3, 4, 5, 6):
            formatters[symbol, width] = _year(width)
    for width in range(1, 10):
        formatters["S", width] = _fraction(width)
    formatters["a", 1] = _name(lambda time: _hour(time) // 12, ["AM", "PM"])
    for symbol, zulu in (("X", "Z"), ("x", "")):
        formatters[symbol, 1] = _offset("", zulu, minutes=False)
        formatters[symbol, 2], formatters[symbol, 3] = _offset("", zulu), _offset(":", zulu)
    for width in (1, 2, 3):
        formatters["Z", width] = _offset("", "")
        formatters["G", width] = _name(_era, ["BC", "AD"])
    formatters["G", 4] = _name(_era, ["Before Christ", "Anno Domini"])
    formatters[_YEAR_OF_ERA, 2] = _number(lambda time: _year_of_era(time) % 100, 2)
    for width in (1, 3, 4):
        formatters[_YEAR_OF_ERA, width] = _year(width, _year_of_era)
    formatters["F", 1] = _number(lambda time: (calendar.day(time.days) - 1) % 7 + 1, 1)
    formatters["O", 1] = _offset_from_greenwich(is_long=False)
    formatters["O", 4] = formatters["Z", 4] = _offset_from_greenwich(is_long=True)
    formatters["V", 2] = lambda time: pa.repeat(pa.scalar(time.zone), len(time.days))
    return formatters


_FORMATTERS = _formatters()


def _formatted(micros: Any, zone: str, pattern: str) -> pa.Array:
    """Instants as strings."""
    clock = to_clock(micros, zone)
    time = _ClockTime(*split_days(clock), (clock - micros) // SECOND, zone)
    columns = [
        _FORMATTERS[part.symbol, part.width](time) if part.symbol else part.text for part in _formatted_parts(pattern)
    ]
    if all(isinstance(column, str) for column in columns):
        return pa.repeat(pa.scalar("".join(columns)), len(micros))
    return pc.binary_join_element_wise(*columns, "")


@maps("DateFormatClass", gives=_STRING, options=zone_of, check=_check_formatting)
def _date_format(call: Call, time: pa.Array, pattern: Value) -> pa.Array:
    return _formatted(to_int64(time), call.options[0], pattern.as_py())


@maps("FromUnixTime", gives=_STRING, nullable=True, options=zone_of, check=_check_formatting)
def _from_unixtime(call: Call, seconds: pa.Array, pattern: Value) -> pa.Array:
    with np.errstate(over="ignore"):
        return _formatted(to_int64(seconds) * SECOND, call.options[0], pattern.as_py())


# Parsing.

_REGEXES = {
    **{("M", 1): r"(?P<M>\d+)", ("M", 2): r"(?P<M>\d\d)", ("L", 1): r"(?P<M>\d+)", ("L", 2): r"(?P<M>\d\d)"},
    **{("y", 2): r"(?P<r>\d\d)", ("u", 2): r"(?P<r>\d\d)"},
    **{(symbol, 1): rf"(?P<{symbol}>\d+)" for symbol in "dHhkKms"},
    **{(symbol, 2): rf"(?P<{symbol}>\d\d)" for symbol in "dHhkKms"},
    **{(symbol, 1): r"(?P<y>-?\d+)" for symbol in "yu"},
    **{(symbol, 4): r"(?P<y>\d{4}|\+\d{5,6}|-\d{4,6})" for symbol in "yu"},
    **{("S", width): rf"(?P<S>\d{{1,{width}}})" for width in range(1, 10)},
    ("a", 1): "(?P<a>[aApP][mM])",
    **{(symbol, width): r"(?P<o>Z|z|[+-]\d\d:?\d\d)" for symbol in "X" for width in (1, 2, 3)},
    **{(symbol, width): r"(?P<o>[+-]\d\d:?\d\d)" for symbol in "xZ" for width in (1, 2, 3)},
}
"""The regular expression of each symbol and width. A group is named by its symbol, or r for a year of two digits, N for
the name of a month and o for an offset."""


def _regex(part: _Part) -> str | None:
    """The regular expression of a symbol; None if it cannot be parsed."""
    if part.symbol in ("M", "L") and part.width in (3, 4):
        names = [name if part.width == 4 else name[:3] for name in calendar.MONTH_NAMES]
        return f"(?P<N>(?i:{'|'.join(names)}))"
    return _REGEXES.get((part.symbol, part.width))


@lru_cache(maxsize=256)
def _pattern_regex(pattern: str) -> str:
    """A regular expression with one group for each field of a pattern."""
    regexes, groups = [], set()
    for part in _parse_pattern(pattern):
        if part.symbol in _BRACKETS:
            regexes.append("(?:" if part.symbol == "[" else ")?")
            continue
        regex = _regex(part) if part.symbol else f"(?i:{re.escape(part.text)})"
        group = regex[4] if part.symbol and regex else None
        if regex is None or group in groups:
            raise _unsupported(pattern, part.symbol * part.width)
        groups.add(group) if group else None
        regexes.append(regex)
    return rf"\A{''.join(regexes)}\z"


def _check_parsing(arguments: Arguments) -> None:
    pattern = _literal_pattern(arguments)
    if pattern is not None and arguments[0].type == _STRING:
        _pattern_regex(pattern)


def _parsed(text: pa.Array, pattern: str, zone: str | None) -> tuple[Any, Any]:
    """Instants, or clock times if there is no zone, and which strings could be parsed."""
    groups = pc.extract_regex(text, _pattern_regex(pattern)) if len(text) else pa.array([], pa.struct([]))
    matched = np.asarray(pc.is_valid(groups)) if len(text) else np.zeros(0, bool)
    fields = {field.name: _present(pc.struct_field(groups, field.name)) for field in groups.type}

    def number(name: str, default: int) -> Any:
        if name not in fields:
            return np.full(len(text), default)
        digits = pc.utf8_slice_codeunits(pc.utf8_ltrim(fields[name], characters="+"), 0, 9)
        return np.asarray(pc.fill_null(digits.cast(pa.int64()), default))

    year = number("r", 0) + 2000 if "r" in fields else number("y", 1970)
    month = _month_numbers(fields["N"]) if "N" in fields else number("M", 1)
    days, is_valid = calendar.date(year, month, number("d", 1))
    hour, is_hour = _hours(number, fields)
    minute, second = number("m", 0), number("s", 0)
    is_valid &= matched & is_hour & (minute < 60) & (second < 60)
    clock = days * DAY + hour * HOUR + minute * MINUTE + second * SECOND + _fractions(fields, len(text))
    clock = np.where(is_valid, clock, 0)
    if zone is None:
        return clock, is_valid
    instants = to_instant(clock, zone)
    if "o" in fields:
        has_offset = np.asarray(fields["o"].is_valid())
        ahead = codes_of_strings(fields["o"].fill_null("Z"), _offset_micros)
        instants = np.where(has_offset, clock - ahead, instants)
    return instants, is_valid


def _present(texts: pa.Array) -> pa.Array:
    """The texts of a group, null for optional sections that are absent."""
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, _STRING), texts)


def _hours(number: Callable[[str, int], Any], fields: dict[str, pa.Array]) -> tuple[Any, Any]:
    """The hour of the day by the symbol H, k, h or K of the pattern, and where it is in the range of the symbol."""
    for symbol, first, last in (("H", 0, 23), ("k", 1, 24), ("h", 1, 12), ("K", 0, 11)):
        if symbol in fields:
            hour = number(symbol, first)
            size = 24 if symbol in "Hk" else 12
            afternoon: Any = 0
            if "a" in fields and size == 12:
                afternoon = np.asarray(pc.fill_null(pc.starts_with(fields["a"], "p", ignore_case=True), False)) * 12
            return hour % size + afternoon, (hour >= first) & (hour <= last)
    return number("H", 0), True


_MONTH_ABBREVIATIONS = [name[:3].lower() for name in calendar.MONTH_NAMES]


def _month_numbers(names: pa.Array) -> Any:
    """The numbers of months by their full or abbreviated names."""
    index = pc.index_in(pc.ascii_lower(pc.utf8_slice_codeunits(names, 0, 3)), pa.array(_MONTH_ABBREVIATIONS))
    return np.asarray(pc.fill_null(index, 0)).astype(np.int64) + 1


def _fractions(fields: dict[str, pa.Array], count: int) -> Any:
    """Fractions of seconds in microseconds; further digits are cut off."""
    if "S" not in fields:
        return np.zeros(count, np.int64)
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(fields["S"], 6, "0"), 0, 6)
    return np.asarray(pc.fill_null(digits.cast(_LONG), 0))


def _offset_micros(offset: str) -> int:
    """Microseconds ahead of UTC of an offset such as Z or +02:00."""
    if offset in "Zz":
        return 0
    size = int(offset[1:3]) * HOUR + int(offset[-2:]) * MINUTE
    return -size if offset[0] == "-" else size


def _parsed_or_raise(call: Call, text: pa.Array, pattern: Value, zone: str | None) -> tuple[Any, Any]:
    micros, is_valid = _parsed(text, pattern.as_py(), zone)
    if fails_on_error(call):
        raise_where(~is_valid, call, f"a string does not match the datetime pattern {pattern.as_py()!r}", text)
    return micros, is_valid


@builds("GetTimestamp")
def _build_get_timestamp(tree: Tree, children: Arguments, config: Config) -> Expression:
    _check_parsing(children)
    kind = arrow_type(tree.fields["dataType"])
    return Call(kind, nullable_unless_ansi(tree, children), "GetTimestamp", children, zone_and_failing(tree, config))


@function("GetTimestamp", lazy=True, raises=fails_on_error)
def _get_timestamp(call: Call, rows: ColumnBatch) -> pa.Array:
    text, pattern = operands(call.arguments, rows)
    if not pattern.is_valid:
        return pa.nulls(rows.count, call.type)
    micros, is_valid = _parsed_or_raise(call, text, pattern, call.options[0] if call.type == INSTANT else None)
    return null_where_invalid(from_numpy(call.type, micros, is_valid), validity_of(text))


@maps(
    "UnixTimestamp",
    "ToUnixTimestamp",
    gives=_LONG,
    nullable=nullable_unless_ansi,
    options=zone_and_failing,
    raises=lambda call: fails_on_error(call) and call.arguments[0].type == _STRING,
    check=_check_parsing,
)
def _unix_timestamp(call: Call, time: pa.Array, pattern: Value) -> pa.Array:
    zone = call.options[0]
    if time.type == _STRING:
        micros, is_valid = _parsed_or_raise(call, time, pattern, zone)
        return from_numpy(_LONG, truncated_quotient(micros, SECOND), is_valid)
    if pa.types.is_date32(time.type):
        return from_numpy(_LONG, truncated_quotient(to_instant(to_int64(time) * DAY, zone), SECOND))
    return from_numpy(_LONG, truncated_quotient(to_int64(time), SECOND))
