"""A reader of JSON texts that finds values without interpreting more than is needed, as Spark's parser does.

Strings may have single quotes. NaN and the infinities are numbers. What follows the first value of a text is ignored.
"""

from __future__ import annotations

import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import pyarrow as pa

from ikebana.expressions.core.printing import of_float

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|NaN|[-+]?(?:Infinity|INF)")
_SINGLE_QUOTED = re.compile(r"'((?:[^'\\\x00-\x1f]|\\.)*)'")
_FRACTION = re.compile(r"-?\d+[.eE]")
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


class MalformedText(Exception):
    """The text is not JSON."""


class JsonText:
    """A JSON text; positions are those of its characters."""

    def __init__(self, text: str) -> None:
        self.text = text

    def skip_space(self, position: int) -> int:
        """The position of the next character that is not white space."""
        match = _SPACE.match(self.text, position)
        assert match is not None
        return match.end()

    def peek(self, position: int) -> str:
        """The character at a position; empty at the end."""
        return self.text[position : position + 1]

    def string(self, position: int) -> tuple[str, int]:
        """The string at a position, and the position after it."""
        if self.peek(position) == '"':
            try:
                return scanstring(self.text, position + 1, True)
            except ValueError:
                raise MalformedText from None
        match = _SINGLE_QUOTED.match(self.text, position)
        if match is None:
            raise MalformedText
        inner = re.sub(r'\\.|"', lambda found: {"\\'": "'", '"': '\\"'}.get(found[0], found[0]), match[1])
        return scanstring(f'"{inner}"', 1, True)[0], match.end()

    def number(self, position: int) -> tuple[str, int]:
        """The number at a position as it is written, and the position after it."""
        match = _NUMBER.match(self.text, position)
        if match is None or self.text[match.end() : match.end() + 1].isalnum():
            raise MalformedText
        return match[0], match.end()

    def skip(self, position: int) -> int:
        """The position after the value at a position."""
        match self.peek(position):
            case "{":
                return self._skip_items(position, "}")
            case "[":
                return self._skip_items(position, "]")
            case '"' | "'":
                return self.string(position)[1]
            case _:
                return self.word(position) or self.number(position)[1]

    def word(self, position: int) -> int:
        """The position after true, false or null at a position; 0 if there is none of them."""
        word = next((word for word in ("true", "false", "null") if self.text.startswith(word, position)), "")
        return position + len(word) if word else 0

    def _skip_items(self, position: int, end: str) -> int:
        for at in self.entries(position) if end == "}" else self.elements(position):
            position = at[1] if isinstance(at, tuple) else at
        return self.end_of_items

    end_of_items = 0
    """The position after the object or array whose items were last iterated over."""

    def entries(self, position: int) -> Any:
        """The names of an object's fields, and the positions of their values."""
        position = self.skip_space(position + 1)
        if self.peek(position) == "}":
            self.end_of_items = position + 1
            return
        while True:
            name, position = self.string(position)
            position = self.skip_space(position)
            if self.peek(position) != ":":
                raise MalformedText
            position = self.skip_space(position + 1)
            yield name, position
            position, is_last = self._next(self.skip(position), "}")
            if is_last:
                self.end_of_items = position
                return

    def elements(self, position: int) -> Any:
        """The positions of an array's elements."""
        position = self.skip_space(position + 1)
        if self.peek(position) == "]":
            self.end_of_items = position + 1
            return
        while True:
            yield position
            position, is_last = self._next(self.skip(position), "]")
            if is_last:
                self.end_of_items = position
                return

    def _next(self, position: int, end: str) -> tuple[int, bool]:
        position = self.skip_space(position)
        match self.peek(position):
            case ",":
                return self.skip_space(position + 1), False
            case character if character == end:
                return position + 1, True
        raise MalformedText


def compact(source: JsonText, position: int) -> str:
    """A value without white space, and with numbers as Java writes them."""
    match source.peek(position):
        case "{":
            entries = [f"{quoted(name)}:{compact(source, at)}" for name, at in source.entries(position)]
            return f"{{{','.join(entries)}}}"
        case "[":
            return f"[{','.join(compact(source, at) for at in source.elements(position))}]"
        case '"' | "'":
            return quoted(source.string(position)[0])
        case _:
            written = source.text[position : source.skip(position)]
            return of_float(pa.array([float(written)]))[0].as_py() if _FRACTION.match(written) else written


def array_length(text: str) -> int | None:
    """The number of elements of an array; None if the text is none."""
    return None if (items := _items(text, "[")) is None else len(items)


def object_keys(text: str) -> list[str] | None:
    """The names of the fields of an object; None if the text is none."""
    return None if (items := _items(text, "{")) is None else [name for name, _ in items]


def _items(text: str, begin: str) -> list[Any] | None:
    source = JsonText(text)
    position = source.skip_space(0)
    if source.peek(position) != begin:
        return None
    try:
        return list(source.elements(position) if begin == "[" else source.entries(position))
    except MalformedText:
        return None


def quoted(text: str) -> str:
    """A string as JSON.

    >>> print(quoted('tab\\t"é"'))
    "tab\\t\\"é\\""
    """
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or f"\\u{ord(character):04X}"
