"""Timestamps written with a pattern of Java's, and read with one.

A pattern must be a literal, of letters of these kinds: y u (years), M L (months), d D (days), E (day of the week), Q q
(quarter), H h k K (hours), m, s, S (fractions), a (half of the day), X x Z (offset), of text in quotes, and of signs.
D, E, Q and q are only written. Others are refused when the query is created. Each part is written, or read, for the
whole column at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.arrow import from_numpy
from ikebana.errors import SqlError
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, Literal, builds, function
from ikebana.expressions.core.buffers import operands
from ikebana.expressions.core.scalars import Arguments, Value, maps, masked, refuse_where, unless_it_fails, valid, wide
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import arrow_type
from ikebana.expressions.temporal import calendar
from ikebana.expressions.temporal.calendar import HOUR, MINUTE, quotient, split
from ikebana.expressions.temporal.times import INSTANT, zone_of
from ikebana.expressions.temporal.zones import DAY, SECOND, to_clock, to_instant

_TEXT, _LONG = pa.string(), pa.int64()


@dataclass(frozen=True)
class _Part:
    """Some equal letters, or text that stands for itself (then there is no letter)."""

    letter: str
    count: int
    text: str = ""


@lru_cache(maxsize=256)
def _parts(pattern: str) -> tuple[_Part, ...]:
    """What a pattern consists of."""
    return tuple(_lexed(pattern))


def _lexed(pattern: str) -> Iterator[_Part]:
    for found in re.finditer(r"([a-zA-Z])\1*|'((?:[^']|'')*)'|(.)", pattern, re.DOTALL):
        if found[1]:
            yield _Part(found[1], len(found[0]))
        elif found[3]:
            if found[3] in "[]#{}'":
                raise _refusal(pattern, found[3])
            yield _Part("", 0, found[3])
        else:
            yield _Part("", 0, found[2].replace("''", "'") or "'")


def _refusal(pattern: str, part: str) -> SqlError:
    return SqlError(
        f"the pattern {pattern!r} of dates and times is not supported in a maintained view",
        detail=f"{part!r} is not supported",
        hint="use years (yyyy), months (MM), days (dd), hours (HH), minutes (mm), seconds (ss) and fractions (SSS)",
    )


def _pattern(arguments: Arguments) -> str | None:
    pattern = arguments[1]
    if not isinstance(pattern, Literal):
        raise SqlError(
            "a pattern of dates and times that is not constant is not supported in a maintained view",
            hint="write the pattern as a literal, in CASE if there are several",
        )
    return pattern.value


# Writing.


def _check_writing(arguments: Arguments) -> None:
    pattern = _pattern(arguments)
    for part in _parts(pattern or ""):
        if part.letter and (part.letter, part.count) not in _WRITERS:
            raise _refusal(pattern or "", part.letter * part.count)


def _digits(value: Any, width: int) -> pa.Array:
    """Whole numbers that are not negative, with zeros before them."""
    text = pa.array(np.asarray(value, np.int64)).cast(_TEXT)
    return text if width < 2 else pc.utf8_lpad(text, width, "0")


@dataclass(frozen=True, eq=False)
class _Moment:
    """What clocks show, and how many seconds that is ahead of UTC."""

    days: Any
    micros: Any
    offset: Any


def _year(width: int) -> Callable[[_Moment], pa.Array]:
    def write(moment: _Moment) -> pa.Array:
        years = calendar.year(moment.days)
        signs = np.where(years < 0, "-", np.where((years >= 10**width) & (width >= 4), "+", ""))
        return pc.binary_join_element_wise(pa.array(signs.tolist(), _TEXT), _digits(np.abs(years), width), "")

    return write


def _number(compute: Callable[[_Moment], Any], width: int) -> Callable[[_Moment], pa.Array]:
    return lambda moment: _digits(compute(moment), width)


def _name(compute: Callable[[_Moment], Any], names: list[str]) -> Callable[[_Moment], pa.Array]:
    known = pa.array(names)
    return lambda moment: known.take(pa.array(np.asarray(compute(moment), np.int64)))


def _fraction(width: int) -> Callable[[_Moment], pa.Array]:
    return lambda moment: pc.utf8_slice_codeunits(_digits(moment.micros % SECOND * 1000, 9), 0, width)


def _offset(separator: str, zulu: str, minutes: bool = True) -> Callable[[_Moment], pa.Array]:
    def write(moment: _Moment) -> pa.Array:
        return _offset_text(moment.offset, separator, zulu, minutes)

    return write


def _offset_text(offset: Any, separator: str, zulu: str, minutes: bool) -> pa.Array:
    def text(seconds: int) -> str:
        size = abs(seconds)
        rest = f"{separator}{size // 60 % 60:02}" if minutes or size // 60 % 60 else ""
        return zulu if zulu and not seconds else f"{'-' if seconds < 0 else '+'}{size // 3600:02}{rest}"

    known, index = np.unique(offset, return_inverse=True)
    return pa.array([text(each) for each in known.tolist()], _TEXT).take(pa.array(index))


def _month(moment: _Moment) -> Any:
    return calendar.month(moment.days)


def _quarter(moment: _Moment) -> Any:
    return (_month(moment) - 1) // 3 + 1


def _hour(moment: _Moment) -> Any:
    return moment.micros // HOUR


def _writers() -> dict[tuple[str, int], Callable[[_Moment], pa.Array]]:
    """How parts are written, by letter and count."""
    found: dict[tuple[str, int], Callable[[_Moment], pa.Array]] = {}
    plain: dict[str, Callable[[_Moment], Any]] = {
        "d": lambda moment: calendar.day(moment.days),
        "M": _month,
        "L": _month,
        "Q": _quarter,
        "q": _quarter,
        "H": _hour,
        "h": lambda moment: (_hour(moment) + 11) % 12 + 1,
        "k": lambda moment: (_hour(moment) + 23) % 24 + 1,
        "K": lambda moment: _hour(moment) % 12,
        "m": lambda moment: moment.micros // MINUTE % 60,
        "s": lambda moment: moment.micros // SECOND % 60,
    }
    for letter, compute in plain.items():
        found[letter, 1], found[letter, 2] = _number(compute, 1), _number(compute, 2)
    for width in (1, 2, 3):
        found["D", width] = _number(lambda moment: calendar.day_of_year(moment.days), width)
        found["E", width] = _name(lambda moment: calendar.weekday(moment.days), [n[:3] for n in calendar.DAY_NAMES])
    found["E", 4] = _name(lambda moment: calendar.weekday(moment.days), list(calendar.DAY_NAMES))
    for letter in "ML":
        found[letter, 3] = _name(lambda moment: _month(moment) - 1, [name[:3] for name in calendar.MONTH_NAMES])
        found[letter, 4] = _name(lambda moment: _month(moment) - 1, list(calendar.MONTH_NAMES))
    for letter in "Qq":
        found[letter, 3] = _name(lambda moment: _quarter(moment) - 1, ["Q1", "Q2", "Q3", "Q4"])
        ordinals = ["1st quarter", "2nd quarter", "3rd quarter", "4th quarter"]
        found[letter, 4] = _name(lambda moment: _quarter(moment) - 1, ordinals)
    for letter in "yu":
        found[letter, 2] = _number(lambda moment: np.abs(calendar.year(moment.days)) % 100, 2)
        for width in (1, 3, 4, 5, 6):
            found[letter, width] = _year(width)
    for width in range(1, 10):
        found["S", width] = _fraction(width)
    found["a", 1] = _name(lambda moment: _hour(moment) // 12, ["AM", "PM"])
    for letter, zulu in (("X", "Z"), ("x", "")):
        found[letter, 1] = _offset("", zulu, minutes=False)
        found[letter, 2], found[letter, 3] = _offset("", zulu), _offset(":", zulu)
    for width in (1, 2, 3):
        found["Z", width] = _offset("", "")
    return found


_WRITERS = _writers()


def _written(micros: Any, zone: str, pattern: str) -> pa.Array:
    """Instants as text."""
    shown = to_clock(micros, zone)
    moment = _Moment(*split(shown), (shown - micros) // SECOND)
    texts = [_WRITERS[each.letter, each.count](moment) if each.letter else each.text for each in _parts(pattern)]
    if all(isinstance(each, str) for each in texts):
        return pa.repeat(pa.scalar("".join(texts)), len(micros))
    return pc.binary_join_element_wise(*texts, "")


@maps("DateFormatClass", gives=_TEXT, options=zone_of, check=_check_writing)
def _date_format(call: Call, time: pa.Array, pattern: Value) -> pa.Array:
    return _written(wide(time), call.options[0], pattern.as_py())


@maps("FromUnixTime", gives=_TEXT, nullable=True, options=zone_of, check=_check_writing)
def _from_unixtime(call: Call, seconds: pa.Array, pattern: Value) -> pa.Array:
    with np.errstate(over="ignore"):
        return _written(wide(seconds) * SECOND, call.options[0], pattern.as_py())


# Reading.

_READERS = {
    **{("M", 1): r"(?P<M>\d+)", ("M", 2): r"(?P<M>\d\d)", ("L", 1): r"(?P<M>\d+)", ("L", 2): r"(?P<M>\d\d)"},
    **{("y", 2): r"(?P<r>\d\d)", ("u", 2): r"(?P<r>\d\d)"},
    **{(letter, 1): rf"(?P<{letter}>\d+)" for letter in "dHhkKms"},
    **{(letter, 2): rf"(?P<{letter}>\d\d)" for letter in "dHhkKms"},
    **{(letter, 1): r"(?P<y>-?\d+)" for letter in "yu"},
    **{(letter, 4): r"(?P<y>\d{4}|\+\d{5,6}|-\d{4,6})" for letter in "yu"},
    **{("S", count): rf"(?P<S>\d{{1,{count}}})" for count in range(1, 10)},
    ("a", 1): "(?P<a>[aApP][mM])",
    **{(letter, count): r"(?P<o>Z|z|[+-]\d\d:?\d\d)" for letter in "X" for count in (1, 2, 3)},
    **{(letter, count): r"(?P<o>[+-]\d\d:?\d\d)" for letter in "xZ" for count in (1, 2, 3)},
}
"""What a part may look like: groups are named by what they have; r is a year of two digits, N a month's name."""


def _reader(part: _Part) -> str | None:
    if part.letter in ("M", "L") and part.count in (3, 4):
        names = [name if part.count == 4 else name[:3] for name in calendar.MONTH_NAMES]
        return f"(?P<N>(?i:{'|'.join(names)}))"
    return _READERS.get((part.letter, part.count))


@lru_cache(maxsize=256)
def _reading(pattern: str) -> str:
    """A regular expression that has the parts of a text as groups."""
    found, seen = [], set()
    for part in _parts(pattern):
        reader = _reader(part) if part.letter else f"(?i:{re.escape(part.text)})"
        name = reader[4] if part.letter and reader else None
        if reader is None or name in seen:
            raise _refusal(pattern, part.letter * part.count)
        seen.add(name) if name else None
        found.append(reader)
    return rf"\A{''.join(found)}\z"


def _check_reading(arguments: Arguments) -> None:
    pattern = _pattern(arguments)
    if pattern is not None and arguments[0].type == _TEXT:
        _reading(pattern)


def _parsed(text: pa.Array, pattern: str, zone: str | None) -> tuple[Any, Any]:
    """Instants, or what clocks show if there is no zone, and where a text is one."""
    groups = pc.extract_regex(text, _reading(pattern)) if len(text) else pa.array([], pa.struct([]))
    matched = np.asarray(pc.is_valid(groups)) if len(text) else np.zeros(0, bool)
    fields = {field.name: pc.struct_field(groups, field.name) for field in groups.type}

    def number(name: str, default: int) -> Any:
        if name not in fields:
            return np.full(len(text), default)
        short = pc.utf8_slice_codeunits(pc.utf8_ltrim(fields[name], characters="+"), 0, 9)
        return np.asarray(pc.fill_null(short.cast(pa.int64()), default))

    year = number("r", 0) + 2000 if "r" in fields else number("y", 1970)
    month = _month_numbers(fields["N"]) if "N" in fields else number("M", 1)
    days, there = calendar.date(year, month, number("d", 1))
    hour, fits = _hours(number, fields)
    minute, second = number("m", 0), number("s", 0)
    there &= matched & fits & (minute < 60) & (second < 60)
    shown = days * DAY + hour * HOUR + minute * MINUTE + second * SECOND + _fractions(fields, len(text))
    shown = np.where(there, shown, 0)
    if zone is None:
        return shown, there
    return (shown - _offsets(fields["o"]) if "o" in fields else to_instant(shown, zone)), there


def _hours(number: Callable[[str, int], Any], fields: dict[str, pa.Array]) -> tuple[Any, Any]:
    """The hour of the day by whichever letters there are, and where it is one."""
    for letter, first, last in (("H", 0, 23), ("k", 1, 24), ("h", 1, 12), ("K", 0, 11)):
        if letter in fields:
            hour = number(letter, first)
            size = 24 if letter in "Hk" else 12
            afternoon: Any = 0
            if "a" in fields and size == 12:
                afternoon = np.asarray(pc.fill_null(pc.starts_with(fields["a"], "p", ignore_case=True), False)) * 12
            return hour % size + afternoon, (hour >= first) & (hour <= last)
    return number("H", 0), True


def _month_numbers(names: pa.Array) -> Any:
    """Months by their names."""
    found = pc.index_in(pc.ascii_lower(pc.utf8_slice_codeunits(names, 0, 3)), pa.array(_SHORT_MONTHS))
    return np.asarray(pc.fill_null(found, 0)).astype(np.int64) + 1


_SHORT_MONTHS = [name[:3].lower() for name in calendar.MONTH_NAMES]


def _fractions(fields: dict[str, pa.Array], count: int) -> Any:
    if "S" not in fields:
        return np.zeros(count, np.int64)
    padded = pc.utf8_slice_codeunits(pc.utf8_rpad(fields["S"], 6, "0"), 0, 6)
    return np.asarray(pc.fill_null(padded.cast(_LONG), 0))


def _offsets(texts: pa.Array) -> Any:
    """Microseconds ahead of UTC."""

    def micros(text: str | None) -> int:
        if text is None or text in "Zz":
            return 0
        size = int(text[1:3]) * HOUR + int(text[-2:]) * MINUTE
        return -size if text[0] == "-" else size

    encoded = texts.dictionary_encode()
    known = np.array([*map(micros, encoded.dictionary.to_pylist()), 0], np.int64)
    return known[np.asarray(pc.fill_null(encoded.indices, len(known) - 1))]


def _fails(tree: Tree, config: Config) -> tuple[Any, ...]:
    return (*zone_of(tree, config), bool(tree.fields["failOnError"]))


def _may_fail(call: Call) -> bool:
    return bool(call.options[1])


def _read(call: Call, text: pa.Array, pattern: Value, zone: str | None) -> tuple[Any, Any]:
    micros, there = _parsed(text, pattern.as_py(), zone)
    if _may_fail(call):
        refuse_where(~there, call, f"a text is not as {pattern.as_py()!r} says", text)
    return micros, there


@builds("GetTimestamp")
def _build_reading(tree: Tree, children: Arguments, config: Config) -> Expression:
    _check_reading(children)
    kind = arrow_type(tree.fields["dataType"])
    return Call(kind, unless_it_fails(tree, children), "GetTimestamp", children, _fails(tree, config))


@function("GetTimestamp", lazy=True, raises=_may_fail)
def _get_timestamp(call: Call, rows: ColumnBatch) -> pa.Array:
    text, pattern = operands(call.arguments, rows)
    if not pattern.is_valid:
        return pa.nulls(rows.count, call.type)
    micros, there = _read(call, text, pattern, call.options[0] if call.type == INSTANT else None)
    return masked(from_numpy(call.type, micros, there), valid(text))


@maps(
    "UnixTimestamp",
    "ToUnixTimestamp",
    gives=_LONG,
    nullable=unless_it_fails,
    options=_fails,
    raises=lambda call: _may_fail(call) and call.arguments[0].type == _TEXT,
    check=_check_reading,
)
def _unix_timestamp(call: Call, time: pa.Array, pattern: Value) -> pa.Array:
    zone = call.options[0]
    if time.type == _TEXT:
        micros, there = _read(call, time, pattern, zone)
        return from_numpy(_LONG, quotient(micros, SECOND), there)
    if pa.types.is_date32(time.type):
        return from_numpy(_LONG, quotient(to_instant(wide(time) * DAY, zone), SECOND))
    return from_numpy(_LONG, quotient(wide(time), SECOND))
