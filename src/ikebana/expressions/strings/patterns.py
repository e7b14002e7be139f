"""Java regular expressions and LIKE patterns, translated to Python and to RE2 (which Arrow's kernels use).

The translations match the same strings as Java without flags: `.` matches everything except five line terminators, `$`
matches at the end and before a final line terminator, and \\w, \\d, \\s, \\b and (?i) consider ASCII only (Java before
19 considers all of Unicode for \\b).

A pattern that cannot be translated is refused (`SqlError`): nested classes and intersections of classes, properties
other than Unicode categories and POSIX names, flags other than i and s or inside the pattern, possessive quantifiers,
\\G, \\R, \\X and similar escapes.

The translation to RE2 is only for strings without line terminators: RE2 has no lookaround, and Java's `.` and `$` need
it otherwise. Patterns with lookaround or back references have no translation to RE2.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from ikebana.errors import SqlError

TERMINATORS = "\n\r\u0085\u2028\u2029"
_PYTHON_DOT = f"[^{TERMINATORS}]"
_PYTHON_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\u0085\u2028\u2029])?\Z)"

_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r"\t-\r ",
}
_COMMON_ESCAPES = set("dDwWsStnrfAbB")
_CONTROLS = {"a": r"\x07", "e": r"\x1b"}
_SPACES = {  # beyond Latin 1 the characters themselves: RE2 does not know the escape u
    "h": r" \t\xa0" + "\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": r"\n\x0b\f\r\x85" + "\u2028\u2029",
}


@dataclass(frozen=True)
class Pattern:
    """A regular expression for Python, and for RE2 (strings without line terminators only) if it has a translation."""

    python: re.Pattern[str]
    re2: str | None
    has_assertions: bool
    """Whether it has assertions (`^`, `$`, `\\b`, lookaround), with which it may match the empty string somewhere."""

    @property
    def can_match_empty(self) -> bool:
        """Whether a match may be empty."""
        return self.has_assertions or self.python.fullmatch("") is not None


@lru_cache(maxsize=512)
def translate_java(pattern: str) -> Pattern:
    """Translate a Java regular expression.

    >>> translate_java("(a|b)+?$").python.search("xab").group(), translate_java(r"\\p{Upper}{2}").re2
    ('ab', '(?-s)[A-Z]{2}')
    """
    return _Translator(pattern).translate()


@lru_cache(maxsize=512)
def translate_like(pattern: str, escape: str = "\\") -> Pattern:
    """Translate a LIKE pattern: `_` matches one character, `%` any number of characters; both can be escaped.

    >>> bool(translate_like("a_%").python.search("abc")), bool(translate_like("a\\\\_").python.search("ab"))
    (True, False)
    """
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if escaped not in ("_", "%", escape):
                raise SqlError(
                    f"the LIKE pattern {pattern!r} is invalid",
                    detail=f"{escape!r} is followed by {escaped!r}" if escaped else f"it ends with {escape!r}",
                    hint=f"{escape!r} can escape only '_', '%' and itself",
                )
            parts.append(re.escape(escaped))
        else:
            parts.append({"_": ".", "%": ".*"}.get(character) or _quoted(character))
    body = "".join(parts)
    return Pattern(re.compile(rf"(?s)\A{body}\Z"), rf"(?s)\A(?:{body})\z", False)


def _quoted(character: str) -> str:
    """A regular expression that matches just this character."""
    return character if character.isalnum() or ord(character) > 127 else re.escape(character)


class _Translator:
    """Translates a Java regular expression to Python and RE2 in one pass."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0
        self._python: list[str] = []
        self._re2: list[str] = []
        self._has_re2, self._has_assertions, self._dot_matches_all = True, False, False

    def translate(self) -> Pattern:
        flags = re.match(r"\(\?([a-zA-Z]+)\)", self._pattern)
        if flags:
            self._at = flags.end()
            if set(flags[1]) - {"i", "s"}:
                raise self._unsupported(f"the flags {flags[0]} are not supported")
            self._dot_matches_all = "s" in flags[1]
        while self._at < len(self._pattern):
            self._translate_next()
        ignore_case = "(?i)" if flags and "i" in flags[1] else ""
        re2 = ignore_case + ("(?s)" if self._dot_matches_all else "(?-s)") + "".join(self._re2)
        try:
            python = re.compile(ignore_case + "".join(self._python), re.ASCII)
        except (re.error, OverflowError) as error:
            raise self._unsupported(str(error)) from None
        return Pattern(python, re2 if self._has_re2 else None, self._has_assertions)

    def _unsupported(self, detail: str) -> SqlError:
        return SqlError(
            f"the regular expression {self._pattern!r} is not supported in a maintained view",
            detail=detail,
            hint="write it with simple classes, groups and quantifiers",
        )

    def _emit(self, python: str, re2: str | None = None) -> None:
        """Append to both translations; the part for RE2 is the same as for Python unless given."""
        self._python.append(python)
        self._re2.append(python if re2 is None else re2)

    def _emit_python_only(self, regex: str) -> None:
        """Append to the translation for Python; there is none for RE2."""
        self._python.append(regex)
        self._has_re2 = False

    def _take(self, regex: str) -> re.Match[str] | None:
        """Consume the text that matches at the current position, if any."""
        match = re.compile(regex).match(self._pattern, self._at)
        if match:
            self._at = match.end()
        return match

    def _translate_next(self) -> None:
        character = self._pattern[self._at]
        self._at += 1
        match character:
            case "\\":
                self._escape(inside=False)
            case "[":
                self._class()
            case "(":
                self._group()
            case ".":
                self._emit("[\\s\\S]" if self._dot_matches_all else _PYTHON_DOT, ".")
            case "^":
                self._has_assertions = True
                self._emit(r"\A")
            case "$":
                self._has_assertions = True
                self._emit(_PYTHON_END, r"\z")
            case "{":
                self._repetition()
            case "+" if (
                self._pattern[self._at - 2 : self._at - 1] in ("*", "+", "?", "}") and self._is_after_quantifier()
            ):
                raise self._unsupported("possessive quantifiers are not supported")
            case "*" | "+" | "?" | "|" | ")":
                self._emit(character)
            case _:
                self._emit(_quoted(character))

    def _is_after_quantifier(self) -> bool:
        """Whether the character before the last one is a quantifier, and not escaped."""
        before = self._pattern[: self._at - 2]
        return (len(before) - len(before.rstrip("\\"))) % 2 == 0

    def _repetition(self) -> None:
        match = self._take(r"(\d+)(,(\d*))?\}")
        if not match:
            raise self._unsupported("a brace is not part of a repetition such as {2} or {1,3}")
        if max(int(match[1]), int(match[3] or "0")) > 1000:
            self._has_re2 = False  # RE2 allows at most 1000 repetitions
        self._emit("{" + match[0])

    def _group(self) -> None:
        if self._take(r"\?:"):
            self._emit("(?:")
        elif match := self._take(r"\?<([a-zA-Z][a-zA-Z0-9]*)>"):
            self._emit(f"(?P<{match[1]}>")
        elif match := self._take(r"\?(=|!|<=|<!|>)"):
            self._has_assertions = True
            self._emit_python_only(f"(?{match[1]}")
        elif self._take(r"\?i:"):
            self._emit("(?i:")
        elif self._pattern.startswith("?", self._at):
            raise self._unsupported(f"the group ({self._pattern[self._at : self._at + 3]} is not supported")
        else:
            self._emit("(")

    def _escape(self, inside: bool) -> None:
        """Translate the escape sequence after a backslash, inside or outside a class."""
        if self._at == len(self._pattern):
            raise self._unsupported("it ends with a backslash")
        character = self._pattern[self._at]
        if match := self._take(r"[pP]\{(\w+)\}|[pP]([A-Z])"):
            self._property(match[0][0] == "P", match[1] or match[2], inside)
        elif match := self._take(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})"):
            self._emit(_code_point(int(match[1] or match[2] or match[3], 16)))
        elif match := self._take(r"0([0-3][0-7]{2}|[0-7]{1,2})"):
            self._emit(_code_point(int(match[1], 8)))
        elif inside:
            self._at += 1
            self._escaped_inside(character)
        elif match := self._take(r"Q(.*?)(\\E|$)"):
            self._emit("".join(map(_quoted, match[1])))
        elif match := self._take(r"k<(\w+)>"):
            self._emit_python_only(f"(?P={match[1]})")
        elif match := self._take(r"[1-9](?!\d)"):
            self._emit_python_only(f"(?:\\{match[0]})")
        else:
            self._at += 1
            self._escaped_outside(character)

    def _escaped_outside(self, character: str) -> None:
        if character in "hHvV":
            self._emit(("[" if character.islower() else "[^") + _SPACES[character.lower()] + "]")
        elif character == "z":
            self._has_assertions = True
            self._emit(r"\Z", r"\z")
        elif character == "Z":
            self._has_assertions = True
            self._emit_python_only(_PYTHON_END)
        elif character in _COMMON_ESCAPES:
            self._has_assertions = self._has_assertions or character in "bBA"
            self._emit_common_escape(character)
        elif character in _CONTROLS:
            self._emit(_CONTROLS[character])
        elif character.isalnum():
            raise self._unsupported(f"\\{character} is not supported")
        else:
            self._emit(_quoted(character))

    def _emit_common_escape(self, character: str) -> None:
        """Emit an escape that all three have; but RE2's \\s lacks the vertical tab."""
        self._emit(f"\\{character}", {"s": r"[\t-\r ]", "S": r"[^\t-\r ]"}.get(character))

    def _escaped_inside(self, character: str) -> None:
        if character in "dDwWtnrf":
            self._emit(f"\\{character}")
        elif character == "s":
            self._emit(r"\t-\r ")
        elif character == "S":
            self._emit_python_only(r"\S")
        elif character in _SPACES:
            self._emit(_SPACES[character])
        elif character in _CONTROLS:
            self._emit(_CONTROLS[character])
        elif character.isalnum():
            raise self._unsupported(f"\\{character} is not supported in a class")
        else:
            self._emit("\\" + character if ord(character) < 128 else character)

    def _property(self, negated: bool, name: str, inside: bool) -> None:
        ranges = _POSIX.get(name) or _category(name.removeprefix("Is"))
        if ranges is None:
            raise self._unsupported(f"the property {name} is not supported")
        if not inside:
            self._emit(("[^" if negated else "[") + ranges + "]")
        elif negated:
            raise self._unsupported(f"\\P{{{name}}} is not supported in a class")
        else:
            self._emit(ranges)

    def _class(self) -> None:
        self._emit("[")
        if self._take(r"\^"):
            self._emit("^")
        if self._take(r"\]"):
            raise self._unsupported("a class begins with ]")
        while True:
            if self._at == len(self._pattern):
                raise self._unsupported("a class is not closed")
            character = self._pattern[self._at]
            if character == "[" or self._pattern.startswith("&&", self._at):
                raise self._unsupported("nested classes and intersections of classes are not supported")
            self._at += 1
            if character == "]":
                self._emit("]")
                return
            if character == "\\":
                self._escape(inside=True)
            else:
                self._emit("\\" + character if character in "&~|^" else character)


def _code_point(code: int) -> str:
    """A regular expression that matches the character with this code point."""
    return f"\\x{code:02x}" if code < 128 else chr(code)


@lru_cache(maxsize=64)
def _category(name: str) -> str | None:
    """The ranges of characters of a Unicode category such as L or Lu, as in a class; None if it does not exist."""
    if not re.fullmatch(r"[CLMNPSZ][a-z]?", name):
        return None
    flags = (unicodedata.category(chr(code)).startswith(name) for code in range(sys.maxunicode + 1))
    ranges = []
    for flag, run in groupby(enumerate(flags), key=lambda entry: entry[1]):
        codes = [code for code, _ in run if not 0xD800 <= code <= 0xDFFF]  # no surrogates
        if flag and codes:
            ranges.append(f"{re.escape(chr(codes[0]))}-{re.escape(chr(codes[-1]))}")
    return "".join(ranges) or None
