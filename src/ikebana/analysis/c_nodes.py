"""Nodes of C source: the keys of variables, fields, memory cells and expressions, and the facts between them.

Invariant: the key of a node depends on the file, the function and the text around the node, never on lines and columns.
The n-th occurrence of a text in a function has the number n in its key. So an edit changes only the facts of what was
edited, and facts of different files agree on what they share.

Cost: a few dictionary operations for each node. Not guaranteed: the same keys with another version of libclang, whose
identifiers of fields are part of keys.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ikebana.analysis.facts import FileFacts, SourceLocation
from ikebana.analysis.libclang import clang


class Files:
    """Names of files relative to the root; "" for files that are not below it."""

    def __init__(self, root: Path) -> None:
        self._root, self._names = root.resolve(), dict[str, str]()

    def name(self, file: Any) -> str:
        """The name of a file."""
        if file is None:
            return ""
        name = self._names.get(file.name)
        if name is None:
            path = Path(file.name).resolve()
            inside = path.is_relative_to(self._root)
            name = self._names[file.name] = path.relative_to(self._root).as_posix() if inside else ""
        return name


@dataclass(frozen=True, slots=True)
class Value:
    """The value of an expression: its node and its text. A null constant has no node until it is assigned."""

    key: str | None
    text: str
    cursor: Any

    @property
    def is_null(self) -> bool:
        """Whether it is a null constant."""
        return self.key is None


class Nodes:
    """The nodes and facts of a translation unit."""

    def __init__(self, result: FileFacts, files: Files) -> None:
        self._result, self._files = result, files
        self._kinds, self._linkage = clang().CursorKind, clang().LinkageKind
        self.enter("", "")

    def enter(self, function: str, scope: str) -> None:
        """Enter a function, or the file itself, whose scope prefixes the keys of nodes."""
        self.function, self.scope = function, scope
        self._occurrences: Counter[tuple[str, str]] = Counter()
        self._locals: dict[int, str] = {}

    def fact(self, relation: str, left: str, right: str) -> None:
        """Add a fact."""
        self._result.facts[relation].add((left, right))

    def node(self, kind: str, key: str, name: str, cursor: Any, *, definition: bool = True) -> str:
        """Add a node at the place of a cursor; return its key."""
        at = cursor.location
        file = self._files.name(at.file)
        place = SourceLocation(kind, name, self.function, file, at.line, at.column, definition and bool(file))
        key = f"{kind} {key}"
        self._result.put(key, place)
        return key

    def expression(self, kind: str, text: str, cursor: Any) -> str:
        """The node of this occurrence of an expression in the function."""
        self._occurrences[kind, text] += 1
        return self.node(kind, f"{self.scope}: {text} #{self._occurrences[kind, text]}", text, cursor)

    def function_scope(self, cursor: Any) -> str:
        """How a function is called in keys: functions that other files can call by their name alone."""
        internal = cursor.linkage == self._linkage.INTERNAL
        return f"{self._files.name(cursor.location.file)}:{cursor.spelling}" if internal else cursor.spelling

    def declare_parameter(self, function: Any, scope: str, index: int, cursor: Any) -> None:
        """Let references to a parameter in the body of a function mean its node."""
        self._locals[cursor.hash] = self.parameter(function, scope, index)

    def parameter(self, function: Any, scope: str, index: int) -> str:
        """The node of a parameter of a function."""
        parameters = list(function.get_arguments())
        at = parameters[index] if index < len(parameters) else function
        name = (at.spelling if at is not function else "") or f"argument {index + 1} of {function.spelling}"
        return self.node("parameter", f"{scope} {index}", name, at, definition=function.is_definition())

    def variable(self, cursor: Any) -> str:
        """The node of a variable or parameter."""
        known = self._locals.get(cursor.hash)
        if known is not None:
            return known
        is_local = cursor.semantic_parent.kind != self._kinds.TRANSLATION_UNIT
        if cursor.linkage == self._linkage.EXTERNAL:
            return self.node("variable", cursor.spelling, cursor.spelling, cursor, definition=cursor.is_definition())
        if is_local:
            key = self._locals[cursor.hash] = self.expression("variable", cursor.spelling, cursor)
            return key
        file = self._files.name(cursor.location.file)
        return self.node("variable", f"{file}:{cursor.spelling}", cursor.spelling, cursor)

    def flow(self, value: Value | None, to: str, text: str) -> None:
        """The value becomes the value of the node `to`, which has this text."""
        if value is None:
            return
        if value.key is None:
            self.fact("null", self.expression("null", f"{text} = NULL", value.cursor), to)
        elif value.key != to:
            self.fact("assign", value.key, to)

    def materialise(self, value: Value) -> str:
        """The node of a value, also of a null constant that is used without being assigned."""
        if value.key is not None:
            return value.key
        key = self.expression("expression", value.text, value.cursor)
        self.flow(value, key, value.text)
        return key

    def function_node(self, function: Any) -> str:
        """The node of a function itself."""
        definition = function.is_definition()
        return self.node("function", self.function_scope(function), function.spelling, function, definition=definition)

    def field(self, field: Any) -> str:
        """The node of a field, of all objects that have it."""
        record = field.semantic_parent
        owner = "" if record is None or "(" in record.spelling else record.spelling
        return self.node("field", field.get_usr(), f"{owner}.{field.spelling}" if owner else field.spelling, field)

    def use(self, pointer: Value, text: str, cursor: Any) -> None:
        """A pointer is dereferenced by an expression."""
        self.fact("use", self.materialise(pointer), self.expression("use", text, cursor))
