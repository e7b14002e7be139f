"""Functions of strings, and of binary values as strings of bytes.

A string's characters are its code points. Where Arrow's kernels agree with Spark they are used: for columns against
literal patterns and positions. All else is computed by Python once for each distinct combination of arguments.
Collations other than UTF8_BINARY, and binary values that are not UTF-8 in a column of strings, are not supported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.expressions.core.base import Call, is_nullable
from ikebana.expressions.core.buffers import is_true, scatter
from ikebana.expressions.core.scalars import (
    Arguments,
    Value,
    constant,
    each_distinct,
    maps,
    refuse_where,
    rows_of,
    valid,
    wide,
)
from ikebana.expressions.nested.lists import Lists

_TEXT, _INT = pa.string(), pa.int32()
_LAST = 2**31 - 1


def _first_type(arguments: Arguments) -> pa.DataType:
    return arguments[0].type


def _is_ascii(text: Value) -> bool:
    return bool(pc.all(pc.string_is_ascii(text)).as_py() in (True, None))


# Case.


def _cased(text: pa.Array, kernel: Callable[[pa.Array], pa.Array], convert: Callable[[str], str]) -> pa.Array:
    """ASCII by Arrow; all else by Python, since a character's other case may be several."""
    if _is_ascii(text):
        return kernel(text)
    plain = is_true(pc.string_is_ascii(text))
    slow = each_distinct(convert, _TEXT, text.filter(pa.array(~plain)))
    return scatter(_TEXT, len(text), [(plain, kernel(text.filter(pa.array(plain)))), (~plain, slow)])


@maps("Upper", gives=_TEXT)
def _upper(call: Call, text: pa.Array) -> pa.Array:
    return _cased(text, pc.ascii_upper, str.upper)


@maps("Lower", gives=_TEXT)
def _lower(call: Call, text: pa.Array) -> pa.Array:
    return _cased(text, pc.ascii_lower, str.lower)


@maps("InitCap", gives=_TEXT)
def _initcap(call: Call, text: pa.Array) -> pa.Array:
    return each_distinct(_capitalised, _TEXT, text)


def _capitalised(text: str) -> str:
    """Each word, which only spaces part, with its first letter in title case and the others in lower case."""
    return " ".join(word[:1].title() + word[1:] for word in text.lower().split(" "))


# Parts.


@maps("Substring", gives=_first_type)
def _substring(call: Call, text: Value, position: Value, length: Value) -> pa.Array:
    at, count = constant(position), constant(length)
    if at is None or count is None or not isinstance(text, pa.Array):
        return each_distinct(part, call.type, text, position, length)
    if count <= 0:
        return pc.binary_repeat(text, 0)
    start = at - 1 if at > 0 else at
    stop: int | None = start + count
    if (start < 0 and start + count >= 0) or (stop is not None and stop > _LAST):
        stop = None
    return (pc.binary_slice if pa.types.is_binary(text.type) else pc.utf8_slice_codeunits)(text, start, stop)


def part(text: Any, position: int, length: int) -> Any:
    """What SQL's substring gives: positions count from 1, or from the end if negative; 0 is as good as 1."""
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + length, 0)]


@maps("SubstringIndex", gives=_TEXT)
def _substring_index(call: Call, text: Value, delimiter: Value, count: Value) -> pa.Array:
    return each_distinct(_up_to, _TEXT, text, delimiter, count)


def _up_to(text: str, delimiter: str, count: int) -> str:
    """What is before the delimiter's count-th occurrence, or after it from the end; occurrences may overlap."""
    if not delimiter or not count:
        return ""
    at = -1 if count > 0 else len(text) - len(delimiter) + 1
    for _ in range(abs(count)):
        at = text.find(delimiter, at + 1) if count > 0 else _last(text, delimiter, at - 1)
        if at < 0:
            return text
    return text[:at] if count > 0 else text[at + len(delimiter) :]


def _last(text: str, delimiter: str, at: int) -> int:
    """Where the delimiter begins for the last time, at a position or before it."""
    return text.rfind(delimiter, 0, at + len(delimiter)) if at >= 0 else -1


@maps("StringSplitSQL", gives=pa.list_(pa.field("element", _TEXT, False)))
def _split_sql(call: Call, text: Value, delimiter: Value) -> pa.Array:
    by = constant(delimiter)
    if by and isinstance(text, pa.Array):
        return pc.split_pattern(text, by)
    return each_distinct(lambda whole, by: whole.split(by) if by else [whole], call.type, text, delimiter)


# Trimming and padding.


def _trims(kind: str, kernel: Callable[..., pa.Array], strip: Callable[[str, str], str]) -> None:
    @maps(kind, gives=_TEXT)
    def _(call: Call, text: Value, characters: Value | None = None) -> pa.Array:
        if isinstance(characters, pa.Array) or not isinstance(text, pa.Array):
            return each_distinct(strip, _TEXT, text, pa.scalar(" ") if characters is None else characters)
        chosen = " " if characters is None else characters.as_py()
        return kernel(text, characters=chosen) if chosen else text


_trims("StringTrim", pc.utf8_trim, str.strip)
_trims("StringTrimLeft", pc.utf8_ltrim, str.lstrip)
_trims("StringTrimRight", pc.utf8_rtrim, str.rstrip)


def _pads(kind: str, kernel: Callable[..., pa.Array], join: Callable[[str, str], str]) -> None:
    def padded(text: str, width: int, filling: str) -> str:
        lacks = width - len(text)
        if lacks <= 0 or not filling:
            return text[: max(width, 0)]
        return join(text, (filling * (lacks // len(filling) + 1))[:lacks])

    @maps(kind, gives=_TEXT)
    def _(call: Call, text: Value, width: Value, filling: Value) -> pa.Array:
        wide, by = constant(width), constant(filling)
        if isinstance(text, pa.Array) and wide is not None and by is not None and len(by) == 1 and wide > 0:
            return kernel(pc.utf8_slice_codeunits(text, 0, wide), width=wide, padding=by)
        return each_distinct(padded, _TEXT, text, width, filling)


_pads("StringLPad", pc.utf8_lpad, lambda text, filling: filling + text)
_pads("StringRPad", pc.utf8_rpad, lambda text, filling: text + filling)


# Sizes.


@maps("Length", gives=_INT)
def _length(call: Call, text: pa.Array) -> pa.Array:
    return (pc.binary_length if pa.types.is_binary(text.type) else pc.utf8_length)(text)


@maps("OctetLength", gives=_INT)
def _octets(call: Call, text: pa.Array) -> pa.Array:
    return pc.binary_length(text)


@maps("BitLength", gives=_INT)
def _bits(call: Call, text: pa.Array) -> pa.Array:
    return pc.multiply(pc.binary_length(text), pa.scalar(8, _INT))


# Searching.


def _searches(kind: str, kernel: Callable[..., pa.Array], test: Callable[[Any, Any], bool]) -> None:
    @maps(kind, gives=pa.bool_())
    def _(call: Call, text: Value, wanted: Value) -> pa.Array:
        if isinstance(text, pa.Array) and isinstance(wanted, pa.Scalar):
            return kernel(text, pattern=wanted.as_py())
        return each_distinct(test, pa.bool_(), text, wanted)


_searches("StartsWith", pc.starts_with, lambda text, wanted: text.startswith(wanted))
_searches("EndsWith", pc.ends_with, lambda text, wanted: text.endswith(wanted))
_searches("Contains", pc.match_substring, lambda text, wanted: wanted in text)


@maps("StringInstr", gives=_INT)
def _instr(call: Call, text: Value, wanted: Value) -> pa.Array:
    if isinstance(text, pa.Array) and isinstance(wanted, pa.Scalar) and _is_ascii(text):
        return pc.add(pc.find_substring(text, pattern=wanted.as_py()), pa.scalar(1, _INT))
    return each_distinct(lambda text, wanted: text.find(wanted) + 1, _INT, text, wanted)


@maps("StringLocate", gives=_INT, nullable=lambda tree, arguments: is_nullable(arguments[:2]), strict=False)
def _locate(call: Call, wanted: Value, text: Value, start: Value) -> pa.Array:
    """0 where the start is null, whatever the others are."""
    rows = rows_of(wanted, text, start)
    if isinstance(start, pa.Scalar) and not start.is_valid:
        return pa.repeat(pa.scalar(0, _INT), rows)
    if any(isinstance(each, pa.Scalar) and not each.is_valid for each in (wanted, text)):
        found = pa.nulls(rows, _INT)
    else:
        found = each_distinct(_located, _INT, wanted, text, start)
    started = valid(start)
    return found if started is None else pc.if_else(pa.array(started), found, pa.scalar(0, _INT))


def _located(wanted: str, text: str, start: int) -> int:
    if start < 1:
        return 0
    return text.find(wanted, start - 1) + 1 if wanted else 1


@maps("FindInSet", gives=_INT)
def _find_in_set(call: Call, word: Value, words: Value) -> pa.Array:
    return each_distinct(_in_set, _INT, word, words)


def _in_set(word: str, words: str) -> int:
    every = words.split(",")
    return every.index(word) + 1 if word in every else 0


# Building.


@maps("StringReplace", gives=_TEXT)
def _replace(call: Call, text: Value, wanted: Value, by: Value) -> pa.Array:
    if isinstance(text, pa.Array) and isinstance(wanted, pa.Scalar) and isinstance(by, pa.Scalar):
        return pc.replace_substring(text, wanted.as_py(), by.as_py()) if wanted.as_py() else text
    return each_distinct(lambda text, wanted, by: text.replace(wanted, by) if wanted else text, _TEXT, text, wanted, by)


@maps("StringTranslate", gives=_TEXT)
def _translate(call: Call, text: Value, matching: Value, by: Value) -> pa.Array:
    return each_distinct(_translated, _TEXT, text, matching, by)


def _translated(text: str, matching: str, by: str) -> str:
    """Characters replaced by those at the same position; by none where there is none, or a zero character."""
    table: dict[int, str | None] = {}
    for at, character in enumerate(matching):
        table.setdefault(ord(character), by[at] if at < len(by) and by[at] != "\0" else None)
    return text.translate(table)


@maps("StringRepeat", gives=_TEXT)
def _repeat(call: Call, text: Value, times: Value) -> pa.Array:
    return pc.binary_repeat(text, pc.max_element_wise(times, pa.scalar(0, times.type)))


@maps("StringSpace", gives=_TEXT)
def _space(call: Call, length: pa.Array) -> pa.Array:
    return pc.binary_repeat(pa.scalar(" "), pc.max_element_wise(length, pa.scalar(0, length.type)))


@maps("Overlay", gives=_first_type)
def _overlay(call: Call, text: Value, by: Value, position: Value, length: Value) -> pa.Array:
    return each_distinct(_overlaid, call.type, text, by, position, length)


def _overlaid(text: Any, by: Any, position: int, length: int) -> Any:
    count = length if length >= 0 else len(by)
    return part(text, 1, position - 1) + by + part(text, position + count, _LAST)


@maps(
    "Elt",
    gives=lambda arguments: arguments[1].type,
    nullable=True,
    strict=False,
    raises=lambda call: bool(call.options[0]),
    options=lambda tree, config: (tree.fields["failOnError"],),
)
def _elt(call: Call, index: Value, *texts: Value) -> pa.Array:
    rows = rows_of(index, *texts)
    chosen = np.broadcast_to(wide(index), rows)
    inside = (chosen >= 1) & (chosen <= len(texts))
    if call.options[0] and isinstance(index, pa.Array):
        refuse_where(~inside, call, f"an index is not between 1 and {len(texts)}", index)
    there = valid(index)
    usable = inside if there is None else inside & there
    return pc.choose(pa.array(chosen - 1, mask=~usable), *texts)


@maps("ConcatWs", gives=_TEXT, nullable=lambda tree, arguments: arguments[0].nullable, strict=False)
def _concat_ws(call: Call, separator: Value, *parts: Value) -> pa.Array:
    """Nulls are left out, among arguments and in arrays; only a null separator makes it null."""
    if not parts:
        return pc.binary_repeat(separator, 0)
    texts = [_joined(each, separator) if pa.types.is_list(each.type) else each.cast(_TEXT) for each in parts]
    texts[0] = pc.if_else(pc.is_null(pc.coalesce(*texts)), "", texts[0])  # Arrow loses rows that have nulls only
    return pc.binary_join_element_wise(*texts, separator, null_handling="skip")


def _joined(lists: Value, separator: Value) -> pa.Array:
    """The strings of each list as one, null for those that have none."""
    if isinstance(lists, pa.Scalar):
        lists = pa.array([lists.as_py()], lists.type)
    opened = Lists.from_array(lists).drop_nulls()
    whole = opened.to_array(pa.list_(_TEXT))
    return pc.if_else(pa.array(opened.counts > 0), pc.binary_join(whole, separator), pa.scalar(None, _TEXT))


# Codes.


@maps("Ascii", gives=_INT)
def _ascii(call: Call, text: pa.Array) -> pa.Array:
    return each_distinct(lambda text: ord(text[0]) if text else 0, _INT, pc.utf8_slice_codeunits(text, 0, 1))


_CHARACTERS = pa.array([chr(code) for code in range(256)] + [""])


@maps("Chr", gives=_TEXT)
def _chr(call: Call, code: pa.Array) -> pa.Array:
    value = wide(code)
    return _CHARACTERS.take(pa.array(np.where(value < 0, 256, value & 0xFF)))


@maps("Levenshtein", gives=_INT)
def _levenshtein(call: Call, left: Value, right: Value, limit: Value | None = None) -> pa.Array:
    if limit is None:
        return each_distinct(_distance, _INT, left, right)
    return each_distinct(_distance_within, _INT, left, right, limit)


def _distance(left: str, right: str) -> int:
    row = list(range(len(right) + 1))
    for i, one in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


def _distance_within(left: str, right: str, limit: int) -> int:
    distance = _distance(left, right)
    return distance if distance <= limit else -1


_SOUNDS = "01230127022455012623017202"


@maps("SoundEx", gives=_TEXT)
def _soundex(call: Call, text: pa.Array) -> pa.Array:
    return each_distinct(_sound, _TEXT, text)


def _sound(text: str) -> str:
    codes = [_SOUNDS[ord(each) - 65] if "A" <= each <= "Z" else "" for each in _ascii_upper(text)]
    if not codes or not codes[0]:
        return text
    found, last = text[0].upper(), codes[0]
    for code in codes[1:]:
        if code != "7":
            found += code if code not in ("", "0", last) else ""
            last = code or "0"
    return found[:4].ljust(4, "0")


def _ascii_upper(text: str) -> str:
    return "".join(chr(ord(each) - 32) if "a" <= each <= "z" else each for each in text)
