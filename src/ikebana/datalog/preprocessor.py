"""The preprocessor: comments, `#include`, `#define`, `#undef` and `#ifdef`, before a program is parsed.

The result is a list of lines, each with the file and line that it comes from, so that errors name the place that the
user wrote. Comments become spaces, so columns stay the same; a line in which a macro is expanded has the columns of
its expansion, and errors show the expansion.

Macros are as in C, object-like or function-like, also with `##`. A call of a function-like macro may extend over
several lines. Not supported, and refused: `#if` with an expression, `#x`, and other directives of C.

Cost: linear in the text and its expansions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ikebana.datalog.errors import error_at
from ikebana.datalog.syntax import Position

_STRING = r'"(?:\\.|[^"\\\n])*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/|/\*", re.DOTALL)
_WORD = re.compile(rf"{_STRING}|[A-Za-z_?][A-Za-z_0-9?]*|[0-9][A-Za-z_0-9]*")
_DIRECTIVE = re.compile(r"\s*#\s*([a-z]*)\s*(.*?)\s*$", re.DOTALL)
_DEFINE = re.compile(r"([A-Za-z_]\w*)(?:\(([^)]*)\))?\s*(.*)$", re.DOTALL)
_DOT_INCLUDE = re.compile(r'\s*\.include\s+("[^"]*")\s*$')


@dataclass(frozen=True, slots=True)
class Line:
    """A line after preprocessing, and where it comes from."""

    text: str
    source: str
    number: int

    def position(self, column: int = 1, width: int = 1) -> Position:
        return Position(self.source, self.number, column, self.text, width)


@dataclass(frozen=True, slots=True)
class _Macro:
    parameters: tuple[str, ...] | None
    text: str


@dataclass
class Preprocessor:
    """Reads sources into `lines`; `directories` are searched for included files after that of the including file."""

    directories: Sequence[Path] = ()
    macros: dict[str, _Macro] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    _open_files: list[Path] = field(default_factory=list)

    def define(self, macros: Mapping[str, str]) -> None:
        self.macros.update({name: _Macro(None, text) for name, text in macros.items()})

    def read_file(self, path: Path, included_at: Line | None = None) -> None:
        """Read a file of UTF-8 text."""
        try:
            text = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            at = included_at or Line("", str(path), 0)
            detail = str(error) if isinstance(error, UnicodeDecodeError) else str(error.strerror)
            raise error_at(at.position(), f'cannot read "{path}"', detail=detail) from None
        self._open_files.append(path.resolve())
        self.read(text, str(path), path.parent)
        self._open_files.pop()

    def read(self, text: str, source: str, directory: Path | None = None) -> None:
        """Read a text; files that it includes are relative to `directory`."""
        original = text.splitlines() or [""]
        lines = [Line(line, source, number) for number, line in enumerate(_blank_comments(text, source, original), 1)]
        active = [True]  # for each open #ifdef: whether its lines are read
        at = 0
        while at < len(lines):
            line, at = lines[at], at + 1
            if not line.text.lstrip().startswith("#"):
                if not all(active):
                    continue
                included = _DOT_INCLUDE.match(line.text)
                if included:
                    self._include(included.group(1), line, directory)
                else:
                    at = self._add(line, lines, at)
                continue
            joined = line.text
            while joined.endswith("\\") and at < len(lines):
                joined, at = joined[:-1] + "\n" + lines[at].text, at + 1
            self._directive(joined, line, active, directory)
        if len(active) > 1:
            raise error_at(lines[-1].position(), "#ifdef without #endif", hint="add #endif")

    def _directive(self, text: str, line: Line, active: list[bool], directory: Path | None) -> None:
        word, rest = _DIRECTIVE.match(text).groups()  # type: ignore[union-attr]
        column = line.text.index("#") + 1
        position = line.position(column, len(line.text.rstrip()) - column + 1)
        if word in ("ifdef", "ifndef"):
            active.append((rest in self.macros) == (word == "ifdef"))
        elif word == "if" and rest in ("0", "1"):
            active.append(rest == "1")
        elif word in ("else", "endif"):
            if len(active) == 1:
                raise error_at(position, f"#{word} without #ifdef", hint=f"remove the #{word}")
            last = active.pop()
            if word == "else":
                active.append(not last)
        elif not all(active):
            if word == "if":
                active.append(False)
        elif word == "define":
            self._define(rest, position)
        elif word == "undef":
            self.macros.pop(rest, None)
        elif word == "include":
            self._include(rest, line, directory)
        elif word:
            supported = "#define, #undef, #include, #ifdef, #ifndef, #else, #endif"
            raise error_at(position, f"#{word} is not supported", hint=f"supported are {supported}")

    def _define(self, text: str, position: Position) -> None:
        matched = _DEFINE.match(text)
        if not matched:
            raise error_at(position, "#define without a name", hint="write #define NAME text")
        name, parameters, body = matched.groups()
        names = None if parameters is None else tuple(part.strip() for part in parameters.split(",") if part.strip())
        self.macros[name] = _Macro(names, body.replace("\n", " "))

    def _include(self, text: str, line: Line, directory: Path | None) -> None:
        name = text.strip('"<>')
        folders = [folder for folder in (directory or Path(), *self.directories)]
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            searched = ", ".join(str(folder) for folder in folders)
            raise error_at(line.position(), f'cannot find the included file "{name}"', hint=f"searched in: {searched}")
        if path.resolve() in self._open_files:
            raise error_at(line.position(), f'"{name}" includes itself', hint="guard it by #ifndef and #define")
        self.read_file(path, line)

    # Macros.

    def _add(self, line: Line, lines: Sequence[Line], at: int) -> int:
        """Append a line, expanded; return the position after the last line that a macro's arguments extend to."""
        text = line.text
        if not self.macros or not any(word in self.macros for word in _WORD.findall(text)):
            self.lines.append(line)
            return at
        while self._has_open_call(text) and at < len(lines):
            text, at = f"{text} {lines[at].text}", at + 1
        self.lines.append(Line(self._expanded(text, frozenset(), line), line.source, line.number))
        return at

    def _has_open_call(self, text: str) -> bool:
        """Whether a call of a function-like macro is not closed in this text."""
        for matched in _WORD.finditer(text):
            macro = self.macros.get(matched.group())
            if macro and macro.parameters is not None:
                opened = re.match(r"\s*\(", text[matched.end() :])
                if opened and _arguments(text, matched.end() + opened.end()) is None:
                    return True
        return False

    def _expanded(self, text: str, hidden: frozenset[str], line: Line) -> str:
        """The text with macros expanded, except hidden ones, which are being expanded already."""
        parts, at = [], 0
        while matched := _WORD.search(text, at):
            parts.append(text[at : matched.start()])
            at, name = matched.end(), matched.group()
            macro = None if name in hidden else self.macros.get(name)
            replacement = name
            if macro and macro.parameters is None:
                replacement = self._expanded(macro.text, hidden | {name}, line)
            elif macro:
                opened = re.match(r"\s*\(", text[at:])
                call = _arguments(text, at + opened.end()) if opened else None
                if call:
                    arguments, at = call
                    replacement = self._called(name, macro, arguments, hidden, line)
            parts.append(replacement)
        return "".join(parts) + text[at:]

    def _called(self, name: str, macro: _Macro, arguments: list[str], hidden: frozenset[str], line: Line) -> str:
        parameters = macro.parameters or ()
        arguments = [] if arguments == [""] and not parameters else arguments
        if len(arguments) != len(parameters):
            what = f"macro {name} takes {len(parameters)} arguments, not {len(arguments)}"
            raise error_at(line.position(line.text.index(name) + 1, len(name)), what)
        values = dict(zip(parameters, (self._expanded(text, hidden, line) for text in arguments), strict=True))
        text = _WORD.sub(lambda word: values.get(word.group(), word.group()), macro.text)
        return self._expanded(re.sub(r"\s*##\s*", "", text), hidden | {name}, line)


def _arguments(text: str, start: int) -> tuple[list[str], int] | None:
    """The arguments of a macro's call after its parenthesis, and where the call ends; None if it is not closed."""
    depth, arguments, begin = 0, [], start
    for matched in re.finditer(rf"{_STRING}|[(),]", text[start:]):
        at, symbol = start + matched.start(), matched.group()
        if symbol == "(":
            depth += 1
        elif symbol == ")" and depth:
            depth -= 1
        elif symbol in ")," and not depth:
            arguments.append(text[begin:at].strip())
            begin = at + 1
            if symbol == ")":
                return arguments, begin
    return None


def _blank_comments(text: str, source: str, original: Sequence[str]) -> list[str]:
    """The lines of a text with spaces in place of comments."""

    def blank(matched: re.Match[str]) -> str:
        comment = matched.group()
        if comment.startswith('"'):
            return comment
        if comment == "/*":
            number = text.count("\n", 0, matched.start()) + 1
            column = matched.start() - (text.rfind("\n", 0, matched.start()) + 1) + 1
            line = original[number - 1]
            raise error_at(Position(source, number, column, line, 2), "a comment is not closed", hint="add */")
        return re.sub(r"[^\n]", " ", comment)

    return _COMMENT.sub(blank, text).splitlines() or [""]
