"""Java's regular expressions and LIKE's patterns, as those of Python and of RE2, which Arrow's kernels use.

A pattern is translated where the two say the same thing, and refused otherwise (`SqlError`): classes within classes
and intersections of them, properties other than Unicode's categories and POSIX names, flags other than i and s, flags
that change within a pattern, possessive quantifiers, \\G, \\R, \\X and the like. What Java means without flags is kept:
a dot is no line terminator of five kinds, `$` also stands before the last one, \\w, \\d, \\s and \\b know ASCII only
(as they do since Java 19 for \\b), and so does ignoring case.

RE2 has no lookaround: it is used for texts without line terminators, where `.` and `$` need none.
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
_SAME = set("dDwWsStnrfA") | set("bB")
_CONTROLS = {"a": r"\x07", "e": r"\x1b"}
_SPACES = {"h": r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000", "v": r"\n\x0b\f\r\x85\u2028\u2029"}


@dataclass(frozen=True)
class Pattern:
    """A regular expression as Python has it, and as RE2 has it for texts without line terminators, if it can."""

    python: re.Pattern[str]
    re2: str | None
    asserts: bool
    """Whether it can match nothing at all because of where it stands."""

    @property
    def matches_nothing(self) -> bool:
        """Whether a match may be empty."""
        return self.asserts or self.python.fullmatch("") is not None


@lru_cache(maxsize=512)
def java(pattern: str) -> Pattern:
    """A regular expression of Java's.

    >>> java("(a|b)+?$").python.search("xab").group(), java(r"\\p{Upper}{2}").re2
    ('ab', '(?-s)[A-Z]{2}')
    """
    return _Translator(pattern).translated()


@lru_cache(maxsize=512)
def like(pattern: str, escape: str = "\\") -> Pattern:
    """A pattern of LIKE: `_` is one character, `%` any number of them, both may be escaped.

    >>> bool(like("a_%").python.search("abc")), bool(like("a\\\\_").python.search("ab"))
    (True, False)
    """
    parts, characters = [], iter(pattern)
    for each in characters:
        if each == escape:
            following = next(characters, "")
            if following not in ("_", "%", escape):
                raise SqlError(
                    f"the pattern {pattern!r} of LIKE is not valid",
                    detail=f"{escape!r} is before {following!r}" if following else f"it ends with {escape!r}",
                    hint=f"{escape!r} may be before '_', '%' and itself",
                )
            parts.append(re.escape(following))
        else:
            parts.append({"_": ".", "%": ".*"}.get(each) or _quoted(each))
    middle = "".join(parts)
    return Pattern(re.compile(rf"(?s)\A{middle}\Z"), rf"(?s)\A(?:{middle})\z", False)


def _quoted(character: str) -> str:
    """A character that stands for itself."""
    return character if character.isalnum() or ord(character) > 127 else re.escape(character)


class _Translator:
    """One pass over a pattern, writing two others."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0
        self._python: list[str] = []
        self._re2: list[str] = []
        self._has_re2, self._asserts, self._all = True, False, False

    def translated(self) -> Pattern:
        flags = re.match(r"\(\?([a-zA-Z]+)\)", self._pattern)
        if flags:
            self._at = flags.end()
            if set(flags[1]) - {"i", "s"}:
                raise self._refusal(f"the flags {flags[0]}")
            self._all = "s" in flags[1]
        while self._at < len(self._pattern):
            self._step()
        ignore = "(?i)" if flags and "i" in flags[1] else ""
        re2 = ignore + ("(?s)" if self._all else "(?-s)") + "".join(self._re2)
        try:
            python = re.compile(ignore + "".join(self._python), re.ASCII)
        except (re.error, OverflowError) as error:
            raise self._refusal(str(error)) from None
        return Pattern(python, re2 if self._has_re2 else None, self._asserts)

    def _refusal(self, what: str) -> SqlError:
        return SqlError(
            f"the regular expression {self._pattern!r} is not supported in a maintained view",
            detail=what,
            hint="write it with plain classes, groups and quantifiers",
        )

    def _put(self, both: str) -> None:
        self._python.append(both)
        self._re2.append(both)

    def _only_python(self, text: str) -> None:
        self._python.append(text)
        self._has_re2 = False

    def _take(self, pattern: str) -> re.Match[str] | None:
        found = re.compile(pattern).match(self._pattern, self._at)
        if found:
            self._at = found.end()
        return found

    def _step(self) -> None:
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
                self._python.append("[\\s\\S]" if self._all else _PYTHON_DOT)
                self._re2.append(".")
            case "^":
                self._asserts = True
                self._python.append(r"\A")
                self._re2.append(r"\A")
            case "$":
                self._asserts = True
                self._python.append(_PYTHON_END)
                self._re2.append(r"\z")
            case "{":
                self._repetition()
            case "+" if self._pattern[self._at - 2 : self._at - 1] in ("*", "+", "?", "}") and self._quantified():
                raise self._refusal("a possessive quantifier")
            case "*" | "+" | "?" | "|" | ")":
                self._put(character)
            case _:
                self._put(_quoted(character))

    def _quantified(self) -> bool:
        """Whether what is before the last character is a quantifier, and no escaped character."""
        before = self._pattern[: self._at - 2]
        return (len(before) - len(before.rstrip("\\"))) % 2 == 0

    def _repetition(self) -> None:
        found = self._take(r"(\d+)(,(\d*))?\}")
        if not found:
            raise self._refusal("a brace that is no repetition")
        if max(int(each) for each in (found[1], found[3] or "0")) > 1000:
            self._has_re2 = False
        self._put("{" + found[0])

    def _group(self) -> None:
        if self._take(r"\?:"):
            self._put("(?:")
        elif found := self._take(r"\?<([a-zA-Z][a-zA-Z0-9]*)>"):
            self._put(f"(?P<{found[1]}>")
        elif found := self._take(r"\?(=|!|<=|<!|>)"):
            self._asserts = True
            self._only_python(f"(?{found[1]}")
        elif self._take(r"\?i:"):
            self._put("(?i:")
        elif self._pattern.startswith("?", self._at):
            raise self._refusal(f"({self._pattern[self._at : self._at + 3]}")
        else:
            self._put("(")

    def _escape(self, inside: bool) -> None:
        """What follows a backslash."""
        if self._at == len(self._pattern):
            raise self._refusal("a backslash at its end")
        character = self._pattern[self._at]
        if found := self._take(r"[pP]\{(\w+)\}|[pP]([A-Z])"):
            self._property(found[0][0] == "P", found[1] or found[2], inside)
        elif found := self._take(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})"):
            self._put(_point(int(found[1] or found[2] or found[3], 16)))
        elif found := self._take(r"0([0-3][0-7]{2}|[0-7]{1,2})"):
            self._put(_point(int(found[1], 8)))
        elif inside:
            self._at += 1
            self._escaped_inside(character)
        elif found := self._take(r"Q(.*?)(\\E|$)"):
            self._put("".join(map(_quoted, found[1])))
        elif found := self._take(r"k<(\w+)>"):
            self._only_python(f"(?P={found[1]})")
        elif found := self._take(r"[1-9](?!\d)"):
            self._only_python(f"(?:\\{found[0]})")
        else:
            self._at += 1
            self._escaped_outside(character)

    def _escaped_outside(self, character: str) -> None:
        if character in "hHvV":
            self._put(("[" if character.islower() else "[^") + _SPACES[character.lower()] + "]")
        elif character == "z":
            self._asserts = True
            self._python.append(r"\Z")
            self._re2.append(r"\z")
        elif character == "Z":
            self._asserts = True
            self._only_python(_PYTHON_END)
        elif character in _SAME:
            self._asserts = self._asserts or character in "bBA"
            self._class_escape(character)
        elif character in _CONTROLS:
            self._put(_CONTROLS[character])
        elif character.isalnum():
            raise self._refusal(f"\\{character}")
        else:
            self._put(_quoted(character))

    def _class_escape(self, character: str) -> None:
        """RE2's \\s does not have the vertical tab."""
        self._python.append(f"\\{character}")
        self._re2.append({"s": r"[\t-\r ]", "S": r"[^\t-\r ]"}.get(character, f"\\{character}"))

    def _escaped_inside(self, character: str) -> None:
        if character in "dDwWtnrf":
            self._put(f"\\{character}")
        elif character == "s":
            self._put(r"\t-\r ")
        elif character == "S":
            self._only_python(r"\S")
        elif character in _SPACES:
            self._put(_SPACES[character])
        elif character in _CONTROLS:
            self._put(_CONTROLS[character])
        elif character.isalnum():
            raise self._refusal(f"\\{character} in a class")
        else:
            self._put("\\" + character if ord(character) < 128 else character)

    def _property(self, negated: bool, name: str, inside: bool) -> None:
        ranges = _POSIX.get(name) or _category(name.removeprefix("Is"))
        if ranges is None:
            raise self._refusal(f"the property {name}")
        if not inside:
            self._put(("[^" if negated else "[") + ranges + "]")
        elif negated:
            raise self._refusal(f"\\P{{{name}}} in a class")
        else:
            self._put(ranges)

    def _class(self) -> None:
        self._put("[")
        if self._take(r"\^"):
            self._put("^")
        if self._take(r"\]"):
            raise self._refusal("a bracket at a class's beginning")
        while True:
            if self._at == len(self._pattern):
                raise self._refusal("a class without an end")
            character = self._pattern[self._at]
            if character == "[" or self._pattern.startswith("&&", self._at):
                raise self._refusal("classes within classes")
            self._at += 1
            if character == "]":
                self._put("]")
                return
            if character == "\\":
                self._escape(inside=True)
            else:
                self._put("\\" + character if character in "&~|^" else character)


def _point(code: int) -> str:
    """A character by its number."""
    return f"\\x{code:02x}" if code < 128 else chr(code)


@lru_cache(maxsize=64)
def _category(name: str) -> str | None:
    """The ranges of the characters of a category of Unicode's, such as L or Lu."""
    if not re.fullmatch(r"[CLMNPSZ][a-z]?", name):
        return None
    marked = (unicodedata.category(chr(code)).startswith(name) for code in range(sys.maxunicode + 1))
    runs = []
    for flag, run in groupby(enumerate(marked), key=lambda each: each[1]):
        codes = [code for code, _ in run if not 0xD800 <= code <= 0xDFFF]
        if flag and codes:
            runs.append(f"{re.escape(chr(codes[0]))}-{re.escape(chr(codes[-1]))}")
    return "".join(runs) or None
