"""Functions of strings and binary values: case, substrings, trimming, padding, searching, replacing, codes.

Characters are Unicode code points; positions count from 1. Only the space is trimmed by default, not other white space.

Cost: Arrow's kernels are used where they agree with Spark, which is mostly for a column with literal patterns and
positions. Otherwise Python computes the function once for each distinct combination of arguments.

Unsupported: collations other than UTF8_BINARY, and strings that are not valid UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.expressions.core.base import Call, is_nullable
from ikebana.expressions.core.buffers import is_true, scatter
from ikebana.expressions.core.failing import fail_on_error, fails_on_error
from ikebana.expressions.core.scalars import (
    Arguments,
    Value,
    literal_value,
    map_distinct,
    maps,
    raise_where,
    row_count,
    to_int64,
    validity_of,
)
from ikebana.expressions.nested.lists import Lists
from ikebana.expressions.strings.searching import LEAST_ROWS, TextSearch

_STRING, _INT = pa.string(), pa.int32()
_MAX_INT = 2**31 - 1


def _first_type(arguments: Arguments) -> pa.DataType:
    return arguments[0].type


def _is_ascii(text: Value) -> bool:
    return bool(pc.all(pc.string_is_ascii(text)).as_py() in (True, None))


# Case.


def _cased(text: pa.Array, kernel: Callable[[pa.Array], pa.Array], convert: Callable[[str], str]) -> pa.Array:
    """Convert ASCII strings with Arrow, others with Python, which may convert one character to several."""
    if _is_ascii(text):
        return kernel(text)
    ascii_rows = is_true(pc.string_is_ascii(text))
    others = map_distinct(convert, _STRING, text.filter(pa.array(~ascii_rows)))
    return scatter(_STRING, len(text), [(ascii_rows, kernel(text.filter(pa.array(ascii_rows)))), (~ascii_rows, others)])


@maps("Upper", gives=_STRING)
def _upper(call: Call, text: pa.Array) -> pa.Array:
    return _cased(text, pc.ascii_upper, str.upper)


@maps("Lower", gives=_STRING)
def _lower(call: Call, text: pa.Array) -> pa.Array:
    return _cased(text, pc.ascii_lower, str.lower)


@maps("InitCap", gives=_STRING)
def _initcap(call: Call, text: pa.Array) -> pa.Array:
    return map_distinct(_capitalised, _STRING, text)


def _capitalised(text: str) -> str:
    """Words, separated by spaces only, with the first character in title case and the others in lower case."""
    return " ".join(word[:1].title() + word[1:] for word in text.lower().split(" "))


# Substrings.


@maps("Substring", gives=_first_type)
def _substring(call: Call, text: Value, position: Value, length: Value) -> pa.Array:
    first, count = literal_value(position), literal_value(length)
    if first is None or count is None or not isinstance(text, pa.Array):
        return map_distinct(_slice, call.type, text, position, length)
    if count <= 0:
        return pc.binary_repeat(text, 0)
    start = first - 1 if first > 0 else first
    stop: int | None = start + count
    if (start < 0 and start + count >= 0) or (stop is not None and stop > _MAX_INT):
        stop = None
    return (pc.binary_slice if pa.types.is_binary(text.type) else pc.utf8_slice_codeunits)(text, start, stop)


def _slice(text: Any, position: int, length: int) -> Any:
    """The result of substring: positions count from 1, or from the end if negative; 0 means 1."""
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + length, 0)]


@maps("SubstringIndex", gives=_STRING)
def _substring_index(call: Call, text: Value, delimiter: Value, count: Value) -> pa.Array:
    return map_distinct(_before_delimiter, _STRING, text, delimiter, count)


def _before_delimiter(text: str, delimiter: str, count: int) -> str:
    """The text before the `count`-th delimiter, or after the `-count`-th from the end; delimiters may overlap."""
    if not delimiter or not count:
        return ""
    at = -1 if count > 0 else len(text) - len(delimiter) + 1
    for _ in range(abs(count)):
        at = text.find(delimiter, at + 1) if count > 0 else _last_start(text, delimiter, at - 1)
        if at < 0:
            return text
    return text[:at] if count > 0 else text[at + len(delimiter) :]


def _last_start(text: str, delimiter: str, at: int) -> int:
    """The last position, not after `at`, at which the delimiter begins; -1 if there is none."""
    return text.rfind(delimiter, 0, at + len(delimiter)) if at >= 0 else -1


@maps("StringSplitSQL", gives=pa.list_(pa.field("element", _STRING, False)))
def _split_sql(call: Call, text: Value, delimiter: Value) -> pa.Array:
    separator = literal_value(delimiter)
    if separator and isinstance(text, pa.Array):
        return pc.split_pattern(text, separator)
    return map_distinct(lambda text, by: text.split(by) if by else [text], call.type, text, delimiter)


# Trimming and padding.


def _trims(kind: str, kernel: Callable[..., pa.Array], strip: Callable[[str, str], str]) -> None:
    @maps(kind, gives=_STRING)
    def _(call: Call, text: Value, characters: Value | None = None) -> pa.Array:
        if isinstance(characters, pa.Array) or not isinstance(text, pa.Array):
            return map_distinct(strip, _STRING, text, pa.scalar(" ") if characters is None else characters)
        trimmed = " " if characters is None else characters.as_py()
        return kernel(text, characters=trimmed) if trimmed else text


_trims("StringTrim", pc.utf8_trim, str.strip)
_trims("StringTrimLeft", pc.utf8_ltrim, str.lstrip)
_trims("StringTrimRight", pc.utf8_rtrim, str.rstrip)


def _pads(kind: str, kernel: Callable[..., pa.Array], join: Callable[[str, str], str]) -> None:
    def padded(text: str, width: int, padding: str) -> str:
        missing = width - len(text)
        if missing <= 0 or not padding:
            return text[: max(width, 0)]
        return join(text, (padding * (missing // len(padding) + 1))[:missing])

    @maps(kind, gives=_STRING)
    def _(call: Call, text: Value, width: Value, padding: Value) -> pa.Array:
        length, character = literal_value(width), literal_value(padding)
        is_literal = length is not None and character is not None
        if isinstance(text, pa.Array) and is_literal and len(character) == 1 and length > 0:
            return kernel(pc.utf8_slice_codeunits(text, 0, length), width=length, padding=character)
        return map_distinct(padded, _STRING, text, width, padding)


_pads("StringLPad", pc.utf8_lpad, lambda text, padding: padding + text)
_pads("StringRPad", pc.utf8_rpad, lambda text, padding: text + padding)


# Lengths.


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
    def _(call: Call, text: Value, search: Value) -> pa.Array:
        if isinstance(text, pa.Array) and isinstance(search, pa.Scalar):
            return kernel(text, pattern=search.as_py())
        return map_distinct(test, pa.bool_(), text, search)


def _contains(text: pa.Array, pattern: str | bytes) -> pa.Array:
    if len(text) < LEAST_ROWS or isinstance(pattern, bytes):
        return pc.match_substring(text, pattern=pattern)
    return TextSearch((pattern.encode(),)).flags(text)


_searches("StartsWith", pc.starts_with, lambda text, search: text.startswith(search))
_searches("EndsWith", pc.ends_with, lambda text, search: text.endswith(search))
_searches("Contains", _contains, lambda text, search: search in text)


@maps("StringInstr", gives=_INT)
def _instr(call: Call, text: Value, search: Value) -> pa.Array:
    if isinstance(text, pa.Array) and isinstance(search, pa.Scalar) and _is_ascii(text):
        return pc.add(pc.find_substring(text, pattern=search.as_py()), pa.scalar(1, _INT))
    return map_distinct(lambda text, search: text.find(search) + 1, _INT, text, search)


@maps("StringLocate", gives=_INT, nullable=lambda tree, arguments: is_nullable(arguments[:2]), strict=False)
def _locate(call: Call, search: Value, text: Value, start: Value) -> pa.Array:
    """0 if the start is null, even if other arguments are null."""
    rows = row_count(search, text, start)
    if isinstance(start, pa.Scalar) and not start.is_valid:
        return pa.repeat(pa.scalar(0, _INT), rows)
    if any(isinstance(value, pa.Scalar) and not value.is_valid for value in (search, text)):
        position = pa.nulls(rows, _INT)
    else:
        position = map_distinct(_located, _INT, search, text, start)
    has_start = validity_of(start)
    return position if has_start is None else pc.if_else(pa.array(has_start), position, pa.scalar(0, _INT))


def _located(search: str, text: str, start: int) -> int:
    if start < 1:
        return 0
    return text.find(search, start - 1) + 1 if search else 1


@maps("FindInSet", gives=_INT)
def _find_in_set(call: Call, word: Value, words: Value) -> pa.Array:
    return map_distinct(_in_set, _INT, word, words)


def _in_set(word: str, words: str) -> int:
    items = words.split(",")
    return items.index(word) + 1 if word in items else 0


# Building.


@maps("StringReplace", gives=_STRING)
def _replace(call: Call, text: Value, search: Value, by: Value) -> pa.Array:
    if isinstance(text, pa.Array) and isinstance(search, pa.Scalar) and isinstance(by, pa.Scalar):
        return pc.replace_substring(text, search.as_py(), by.as_py()) if search.as_py() else text
    return map_distinct(
        lambda text, search, by: text.replace(search, by) if search else text, _STRING, text, search, by
    )


@maps("StringTranslate", gives=_STRING)
def _translate(call: Call, text: Value, matching: Value, by: Value) -> pa.Array:
    return map_distinct(_translated, _STRING, text, matching, by)


def _translated(text: str, matching: str, by: str) -> str:
    """Replace characters of `matching` by those of `by` at the same position; delete those without one, or with \\0."""
    table: dict[int, str | None] = {}
    for at, character in enumerate(matching):
        table.setdefault(ord(character), by[at] if at < len(by) and by[at] != "\0" else None)
    return text.translate(table)


@maps("StringRepeat", gives=_STRING)
def _repeat(call: Call, text: Value, times: Value) -> pa.Array:
    return pc.binary_repeat(text, pc.max_element_wise(times, pa.scalar(0, times.type)))


@maps("StringSpace", gives=_STRING)
def _space(call: Call, length: pa.Array) -> pa.Array:
    return pc.binary_repeat(pa.scalar(" "), pc.max_element_wise(length, pa.scalar(0, length.type)))


@maps("Overlay", gives=_first_type)
def _overlay(call: Call, text: Value, by: Value, position: Value, length: Value) -> pa.Array:
    return map_distinct(_overlaid, call.type, text, by, position, length)


def _overlaid(text: Any, by: Any, position: int, length: int) -> Any:
    count = length if length >= 0 else len(by)
    return _slice(text, 1, position - 1) + by + _slice(text, position + count, _MAX_INT)


@maps(
    "Elt",
    gives=lambda arguments: arguments[1].type,
    nullable=True,
    strict=False,
    raises=fails_on_error,
    options=fail_on_error,
)
def _elt(call: Call, index: Value, *texts: Value) -> pa.Array:
    rows = row_count(index, *texts)
    number = np.broadcast_to(to_int64(index), rows)
    exists = (number >= 1) & (number <= len(texts))
    if fails_on_error(call) and isinstance(index, pa.Array):
        raise_where(~exists, call, f"the index must be between 1 and {len(texts)}", index)
    has_index = validity_of(index)
    exists = exists if has_index is None else exists & has_index
    return pc.choose(pa.array(number - 1, mask=~exists), *texts)


@maps("ConcatWs", gives=_STRING, nullable=lambda tree, arguments: arguments[0].nullable, strict=False)
def _concat_ws(call: Call, separator: Value, *parts: Value) -> pa.Array:
    """Null arguments and null elements of arrays are skipped; the result is null only if the separator is null."""
    if not parts:
        return pc.binary_repeat(separator, 0)
    texts = [_joined(part, separator) if pa.types.is_list(part.type) else part.cast(_STRING) for part in parts]
    texts[0] = pc.if_else(pc.is_null(pc.coalesce(*texts)), "", texts[0])  # Arrow loses rows whose parts are all null
    return pc.binary_join_element_wise(*texts, separator, null_handling="skip")


def _joined(array: Value, separator: Value) -> Value:
    """The strings of each array joined, null for arrays without strings; a constant for a constant array."""
    if isinstance(array, pa.Scalar):
        return _joined(pa.array([array.as_py()], array.type), separator)[0]
    lists = Lists.from_array(array).drop_nulls()
    joined = pc.binary_join(lists.to_array(pa.list_(_STRING)), separator)
    return pc.if_else(pa.array(lists.counts > 0), joined, pa.scalar(None, _STRING))


# Codes.


@maps("Ascii", gives=_INT)
def _ascii(call: Call, text: pa.Array) -> pa.Array:
    return map_distinct(lambda text: ord(text[0]) if text else 0, _INT, pc.utf8_slice_codeunits(text, 0, 1))


_CHARACTERS = [*map(chr, range(256)), ""]


@maps("Chr", gives=_STRING)
def _chr(call: Call, code: pa.Array) -> pa.Array:
    value = to_int64(code)
    return pa.array(_CHARACTERS).take(pa.array(np.where(value < 0, 256, value & 0xFF)))


@maps("Levenshtein", gives=_INT)
def _levenshtein(call: Call, left: Value, right: Value, limit: Value | None = None) -> pa.Array:
    if limit is None:
        return map_distinct(_distance, _INT, left, right)
    return map_distinct(_distance_within, _INT, left, right, limit)


def _distance(left: str, right: str) -> int:
    """The Levenshtein distance, in len(left) * len(right) steps."""
    row = list(range(len(right) + 1))
    for i, one in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


def _distance_within(left: str, right: str, limit: int) -> int:
    distance = _distance(left, right)
    return distance if distance <= limit else -1


_SOUNDEX_CODES = "01230127022455012623017202"
"""By letter of the alphabet; 0 separates equal codes, 7 (H and W) does not."""


@maps("SoundEx", gives=_STRING)
def _soundex(call: Call, text: pa.Array) -> pa.Array:
    return map_distinct(_soundex_code, _STRING, text)


def _soundex_code(text: str) -> str:
    """The Soundex code; text that does not begin with an ASCII letter is returned as it is."""
    codes = [_SOUNDEX_CODES[ord(char) - 65] if "A" <= char <= "Z" else "" for char in _ascii_upper(text)]
    if not codes or not codes[0]:
        return text
    result, last = text[0].upper(), codes[0]
    for code in codes[1:]:
        if code != "7":
            result += code if code not in ("", "0", last) else ""
            last = code or "0"
    return result[:4].ljust(4, "0")


def _ascii_upper(text: str) -> str:
    return "".join(chr(ord(char) - 32) if "a" <= char <= "z" else char for char in text)
