"""Reading C source with libclang: one translation unit to `FileFacts`.

The analysis is insensitive to the order of statements and to the context of calls. A node stands for the content of a
variable, a field, a memory cell, or for the value of an expression:

- *Fields are field-based*: a field of a struct is one node, whatever object it belongs to. Structs that are copied
  therefore need no facts.
- *Arrays* are one cell for all elements.
- *Calls* are followed where the called function is named in the call; arguments and results of calls through pointers
  are not.
- *Values that are not pointers* are not followed, so a pointer that passes through an integer is lost.
- The memory functions of the C library that return their first argument are known, and those that allocate.

Invariant: the key of a node depends on the file, the function and the text around the node, never on lines and columns.
The n-th occurrence of a text in a function has the number n in its key.

Missing headers do not stop the extraction: the standard headers that come with compilers are replaced by small ones of
our own (`include`), functions without a declaration are assumed to return what they are used as, and whatever else
does not compile is left out and counted in `FileFacts.errors`. A type without a declaration reads as `int`: variables
of that type are not followed, unless they are declared as pointers to it.

Cost: about 30 microseconds for each node of the syntax tree, in one Python process for each file at a time.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ikebana.analysis.facts import AnalysisError, FileFacts, Place

ALLOCATORS = frozenset(
    (
        *("malloc", "calloc", "realloc", "reallocarray", "aligned_alloc", "memalign", "valloc", "alloca"),
        *("__builtin_alloca", "strdup", "strndup", "fopen", "fdopen", "tmpfile", "opendir"),
    )
)
"""Functions of the C library that return new memory."""

RETURN_FIRST_ARGUMENT = frozenset(
    (
        *("memcpy", "memmove", "memset", "memchr", "strcpy", "strncpy", "strcat", "strncat"),
        *("strchr", "strrchr", "strstr", "realloc", "reallocarray"),
    )
)
"""Functions of the C library whose result points into what their first argument points to."""

_ARGUMENTS = (
    "-x",
    "c",
    "-std=gnu11",
    "-w",
    "-Wno-error=implicit-function-declaration",
    "-Wno-error=int-conversion",
    "-Wno-error=incompatible-pointer-types",
    "-Wno-error=implicit-int",
    "-ferror-limit=0",
    "-DNULL=((void*)0)",
    "-idirafter",
    str(Path(__file__).parent / "include"),
)

_KEEP_GOING = 0x200  # CXTranslationUnit_KeepGoing: a missing header is not the end
_ERROR = 3  # CXDiagnostic_Error; fatal errors are above

# Operators, as numbered by CXUnaryOperatorKind and CXBinaryOperatorKind.
_ADDRESS_OF, _DEREFERENCE = 5, 6
_ARITHMETIC, _ASSIGN, _COMPOUND_ASSIGN, _COMMA = (6, 7), 22, (26, 27), 33
_INCREMENTS = (1, 2, 3, 4)


_MOST_NESTED = 200
"""Expressions that are nested more deeply are left out: the bindings cannot report that a stack has overflowed."""


class _TooDeepError(Exception):
    """An expression is nested too deeply."""


@cache
def clang() -> Any:
    """The module `clang.cindex`, ready for use."""
    try:
        from clang import cindex
    except ModuleNotFoundError:
        raise AnalysisError(
            "cannot read C source: libclang is not installed", hint="run `pip install 'ikebana[analysis]'`"
        ) from None
    library = cindex.conf.lib
    for name in ("clang_getCursorBinaryOperatorKind", "clang_getCursorUnaryOperatorKind"):
        function = getattr(library, name)
        function.argtypes, function.restype = [cindex.Cursor], ctypes.c_int
    library.clang_Cursor_getVarDeclInitializer.argtypes = [cindex.Cursor]
    library.clang_Cursor_getVarDeclInitializer.restype = cindex.Cursor
    library.clang_Cursor_Evaluate.argtypes, library.clang_Cursor_Evaluate.restype = [cindex.Cursor], ctypes.c_void_p
    library.clang_EvalResult_getAsLongLong.argtypes = [ctypes.c_void_p]
    library.clang_EvalResult_getAsLongLong.restype = ctypes.c_longlong
    library.clang_EvalResult_dispose.argtypes = [ctypes.c_void_p]
    return cindex


def extract_file(root: Path, path: Path, arguments: Sequence[str] = (), allocators: Iterable[str] = ()) -> FileFacts:
    """Return the facts of one translation unit.

    `arguments` are further ones for the compiler, such as `-Iinclude`; `allocators` are functions that return new
    memory, beside those of the C library. Functions in headers below `root` belong to the translation unit too; other
    headers only declare.
    """
    cindex = clang()
    index = cindex.Index.create()
    try:
        unit = index.parse(str(path), [*_ARGUMENTS, f"-I{root}", *arguments], options=_KEEP_GOING)
    except cindex.TranslationUnitLoadError:
        raise AnalysisError(
            f"cannot read {path}", detail="libclang cannot open the file", hint="check that it exists and is readable"
        ) from None
    result = FileFacts()
    errors = [d for d in unit.diagnostics if d.severity >= _ERROR]
    if errors:
        at = errors[0].location
        result.errors, result.first_error = len(errors), f"{at.file}:{at.line}: {errors[0].spelling}"
    files = _Files(root)
    result.includes = frozenset(filter(None, (files.name(i.include) for i in unit.get_includes())))
    _Unit(result, files, ALLOCATORS.union(allocators)).read(unit.cursor)
    return result


class _Files:
    """Names of files relative to the root; "" for files that are not below it."""

    def __init__(self, root: Path) -> None:
        self._root, self._names = root.resolve(), dict[str, str]()

    def name(self, file: Any) -> str:
        if file is None:
            return ""
        name = self._names.get(file.name)
        if name is None:
            path = Path(file.name).resolve()
            inside = path.is_relative_to(self._root)
            name = self._names[file.name] = path.relative_to(self._root).as_posix() if inside else ""
        return name


@dataclass(frozen=True, slots=True)
class _Value:
    """The value of an expression: its node and its text. A null constant has no node until it is assigned."""

    key: str | None
    text: str
    cursor: Any

    @property
    def is_null(self) -> bool:
        return self.key is None


class _Unit:
    """Reads a translation unit."""

    def __init__(self, result: FileFacts, files: _Files, allocators: frozenset[str]) -> None:
        self.result, self.files, self.allocators = result, files, allocators
        self._cindex = clang()
        self._kinds = self._cindex.CursorKind
        self._library = self._cindex.conf.lib
        kinds = self._kinds
        self._evaluators: dict[Any, Callable[[Any], _Value | None]] = {
            kinds.DECL_REF_EXPR: self._reference,
            kinds.MEMBER_REF_EXPR: self._member,
            kinds.ARRAY_SUBSCRIPT_EXPR: self._subscript,
            kinds.UNARY_OPERATOR: self._unary,
            kinds.BINARY_OPERATOR: self._binary,
            kinds.COMPOUND_ASSIGNMENT_OPERATOR: self._binary,
            kinds.CONDITIONAL_OPERATOR: self._conditional,
            kinds.CALL_EXPR: self._call,
            kinds.UNEXPOSED_EXPR: self._conversion,
            kinds.PAREN_EXPR: self._conversion,
            kinds.CSTYLE_CAST_EXPR: self._conversion,
            kinds.COMPOUND_LITERAL_EXPR: self._compound_literal,
            kinds.StmtExpr: self._statement_expression,
            kinds.CXX_UNARY_EXPR: lambda cursor: None,  # sizeof, which does not evaluate
        }
        self._start("", "")

    def _start(self, function: str, scope: str) -> None:
        """Enter a function, or the file itself, whose scope prefixes the keys of nodes."""
        self._function, self._scope, self._depth = function, scope, 0
        self._occurrences: Counter[tuple[str, str]] = Counter()
        self._locals: dict[int, str] = {}

    def read(self, root: Any) -> None:
        for cursor in root.get_children():
            file = self.files.name(cursor.location.file)
            if not file:
                continue
            self._start("", file)
            if cursor.kind == self._kinds.FUNCTION_DECL and cursor.is_definition():
                self._define(cursor)
            elif cursor.kind == self._kinds.VAR_DECL:
                self._declare(cursor)

    # Nodes.

    def _fact(self, relation: str, left: str, right: str) -> None:
        self.result.facts[relation].add((left, right))

    def _node(self, kind: str, key: str, name: str, cursor: Any, *, definition: bool = True) -> str:
        at = cursor.location
        file = self.files.name(at.file)
        place = Place(kind, name, self._function, file, at.line, at.column, definition and bool(file))
        key = f"{kind} {key}"
        self.result.put(key, place)
        return key

    def _expression(self, kind: str, text: str, cursor: Any) -> str:
        """The node of this occurrence of an expression in the function."""
        self._occurrences[kind, text] += 1
        return self._node(kind, f"{self._scope}: {text} #{self._occurrences[kind, text]}", text, cursor)

    def _function_scope(self, cursor: Any) -> str:
        """How a function is called in keys: functions that other files can call by their name alone."""
        internal = cursor.linkage == self._cindex.LinkageKind.INTERNAL
        return f"{self.files.name(cursor.location.file)}:{cursor.spelling}" if internal else cursor.spelling

    def _parameter(self, function: Any, scope: str, index: int) -> str:
        parameters = list(function.get_arguments())
        at = parameters[index] if index < len(parameters) else function
        name = (at.spelling if at is not function else "") or f"argument {index + 1} of {function.spelling}"
        return self._node("parameter", f"{scope} {index}", name, at, definition=function.is_definition())

    def _variable(self, cursor: Any) -> str:
        known = self._locals.get(cursor.hash)
        if known is not None:
            return known
        is_local = cursor.semantic_parent.kind != self._kinds.TRANSLATION_UNIT
        linkage = self._cindex.LinkageKind
        if cursor.linkage == linkage.EXTERNAL:
            return self._node("variable", cursor.spelling, cursor.spelling, cursor, definition=cursor.is_definition())
        if is_local:
            key = self._locals[cursor.hash] = self._expression("variable", cursor.spelling, cursor)
            return key
        file = self.files.name(cursor.location.file)
        return self._node("variable", f"{file}:{cursor.spelling}", cursor.spelling, cursor)

    def _flow(self, value: _Value | None, to: str, text: str) -> None:
        """The value becomes the value of the node `to`, which has this text."""
        if value is None:
            return
        if value.key is None:
            self._fact("null", self._expression("null", f"{text} = NULL", value.cursor), to)
        elif value.key != to:
            self._fact("assign", value.key, to)

    def _materialise(self, value: _Value) -> str:
        """The node of a value, also of a null constant that is used without being assigned."""
        if value.key is not None:
            return value.key
        key = self._expression("expression", value.text, value.cursor)
        self._flow(value, key, value.text)
        return key

    def _is_pointer(self, cursor: Any) -> bool:
        return cursor.type.get_canonical().kind in _pointer_kinds()

    # Declarations and statements.

    def _define(self, function: Any) -> None:
        scope = self._function_scope(function)
        self._start(function.spelling, scope)
        for index, parameter in enumerate(function.get_arguments()):
            self._locals[parameter.hash] = self._parameter(function, scope, index)
        self._node("return", scope, function.spelling, function)
        self._node("function", scope, function.spelling, function)
        try:
            for child in function.get_children():
                if child.kind == self._kinds.COMPOUND_STMT:
                    self._statements(child)
        except _TooDeepError:
            self.result.errors += 1
            self.result.first_error = (
                self.result.first_error or f"{function.spelling}: an expression is nested too deeply"
            )

    def _statements(self, start: Any) -> None:
        """Read everything below a cursor, in order; only expressions are read recursively."""
        waiting = [start]
        kinds = self._kinds
        while waiting:
            cursor = waiting.pop()
            if cursor.kind == kinds.VAR_DECL:
                self._declare(cursor)
            elif cursor.kind == kinds.RETURN_STMT:
                for child in cursor.get_children():
                    self._flow(self.evaluate(child), f"return {self._scope}", f"result of {self._function}")
            elif cursor.kind.is_expression():
                self.evaluate(cursor)
            elif cursor.kind.is_statement():
                waiting.extend(reversed(list(cursor.get_children())))

    def _declare(self, variable: Any) -> None:
        key = self._variable(variable)
        initial = self._library.clang_Cursor_getVarDeclInitializer(variable)
        if not initial.kind.is_invalid():
            initial._tu = variable._tu  # what the bindings do for cursors that they return
            self._initialise(initial, variable.type, key, variable.spelling)

    def _initialise(self, initial: Any, type_: Any, to: str, text: str) -> None:
        """Assign an initialiser, which may be a list, to a node of a type."""
        peeled = self._peel(initial)
        if peeled.kind != self._kinds.INIT_LIST_EXPR:
            self._flow(self.evaluate(initial), to, text)
            return
        canonical = type_.get_canonical()
        if canonical.kind == self._cindex.TypeKind.RECORD:
            self._initialise_record(peeled, canonical)
            return
        element = canonical.get_array_element_type() if canonical.kind in _array_kinds() else canonical
        for child in peeled.get_children():
            self._initialise(self._without_designator(child), element, to, text)

    def _initialise_record(self, values: Any, record: Any) -> None:
        fields = list(record.get_fields())
        positions = {field.spelling: position for position, field in enumerate(fields)}
        position = 0
        for child in values.get_children():
            for designator in child.get_children():
                if designator.kind == self._kinds.MEMBER_REF:
                    position = positions.get(designator.spelling, position)
            if position < len(fields):
                field = fields[position]
                self._initialise(self._without_designator(child), field.type, self._field(field), field.spelling)
            position += 1

    def _without_designator(self, cursor: Any) -> Any:
        """The value of `.field = value` or `[index] = value`; other expressions are returned as they are."""
        if cursor.kind != self._kinds.UNEXPOSED_EXPR:
            return cursor
        children = list(cursor.get_children())
        return children[-1] if len(children) > 1 else cursor

    def _peel(self, cursor: Any) -> Any:
        """The expression inside parentheses and conversions."""
        conversions = (self._kinds.UNEXPOSED_EXPR, self._kinds.PAREN_EXPR)
        while cursor.kind in conversions:
            children = [child for child in cursor.get_children() if child.kind.is_expression()]
            if len(children) != 1:
                break
            cursor = children[0]
        return cursor

    # Expressions.

    def evaluate(self, cursor: Any) -> _Value | None:
        """Read an expression and all parts of it; return its value if it may be a pointer."""
        if self._depth >= _MOST_NESTED:
            raise _TooDeepError
        self._depth += 1
        value = self._evaluators.get(cursor.kind, self._parts)(cursor)
        self._depth -= 1
        return value

    def _parts(self, cursor: Any) -> None:
        """Read the parts of an expression whose value is not a pointer."""
        for child in cursor.get_children():
            if child.kind.is_expression():
                self.evaluate(child)
            else:
                self._statements(child)

    def _reference(self, cursor: Any) -> _Value | None:
        target = cursor.referenced
        if target is None:
            return None
        if target.kind == self._kinds.FUNCTION_DECL:
            function = self._function_node(target)
            return self._address(function, target.spelling, cursor, target.spelling)
        if target.kind not in (self._kinds.VAR_DECL, self._kinds.PARM_DECL) or not self._is_pointer(cursor):
            return None
        return self._content(self._variable(target), cursor, target.spelling)

    def _function_node(self, function: Any) -> str:
        definition = function.is_definition()
        return self._node(
            "function", self._function_scope(function), function.spelling, function, definition=definition
        )

    def _content(self, key: str, cursor: Any, text: str) -> _Value:
        """The content of a variable or field; an array stands for the address of its elements."""
        if cursor.type.get_canonical().kind in _array_kinds():
            return self._address(key, text, cursor, text)
        return _Value(key, text, cursor)

    def _address(self, of: str, name: str, cursor: Any, text: str) -> _Value:
        key = self._expression("address", f"&{name}", cursor)
        self._fact("address", key, of)
        return _Value(key, text, cursor)

    def _member(self, cursor: Any) -> _Value | None:
        field = cursor.referenced
        children = [child for child in cursor.get_children() if child.kind.is_expression()]
        text = f"?.{cursor.spelling}"
        if children:
            base = self.evaluate(children[0])
            base_text = base.text if base else self._peel(children[0]).spelling
            arrow = children[0].type.get_canonical().kind == self._cindex.TypeKind.POINTER
            text = f"{base_text}{'->' if arrow else '.'}{cursor.spelling}"
            if arrow and base is not None:
                self._use(base, text, cursor)
        if field is None or not self._is_pointer(cursor):
            return None
        return self._content(self._field(field), cursor, text)

    def _field(self, field: Any) -> str:
        record = field.semantic_parent
        owner = "" if record is None or "(" in record.spelling else record.spelling
        return self._node("field", field.get_usr(), f"{owner}.{field.spelling}" if owner else field.spelling, field)

    def _use(self, pointer: _Value, text: str, cursor: Any) -> None:
        self._fact("use", self._materialise(pointer), self._expression("use", text, cursor))

    def _subscript(self, cursor: Any) -> _Value | None:
        base, index = list(cursor.get_children())
        if base.type.get_canonical().kind not in _pointer_kinds():
            base, index = index, base
        self.evaluate(index)
        array = self._peel(base)
        if array.type.get_canonical().kind in _array_kinds():
            return self._element(array, cursor)
        pointer = self.evaluate(base)
        return self._cell(pointer, f"{pointer.text}[]", cursor) if pointer else None

    def _element(self, array: Any, cursor: Any) -> _Value | None:
        """An element of an array, which is a variable, a field, or an element of an array of arrays."""
        kinds = self._kinds
        if array.kind == kinds.DECL_REF_EXPR and array.referenced is not None:
            key, text = self._variable(array.referenced), array.spelling
        elif array.kind == kinds.MEMBER_REF_EXPR and array.referenced is not None:
            self._member(array)
            key, text = self._field(array.referenced), array.spelling
        elif array.kind == kinds.ARRAY_SUBSCRIPT_EXPR:
            inner = self._subscript(array)
            if inner is None or inner.key is None:
                return None
            key, text = inner.key, inner.text
        else:
            pointer = self.evaluate(array)
            return self._cell(pointer, f"{pointer.text}[]", cursor) if pointer else None
        return _Value(key, f"{text}[]", cursor) if self._is_pointer(cursor) else None

    def _cell(self, pointer: _Value, text: str, cursor: Any) -> _Value | None:
        """The memory that a pointer points to, as a node if there is a pointer in it."""
        if not self._is_pointer(cursor):
            self._use(pointer, text, cursor)
            return None
        cell = self._expression("cell", text, cursor)
        key = self._materialise(pointer)
        self._fact("dereference", key, cell)
        self._fact("use", key, cell)
        return _Value(cell, text, cursor)

    def _unary(self, cursor: Any) -> _Value | None:
        operator = self._library.clang_getCursorUnaryOperatorKind(cursor)
        (operand,) = list(cursor.get_children())[:1] or [None]
        if operand is None:
            return None
        if operator == _ADDRESS_OF:
            return self._address_of(operand, cursor)
        value = self.evaluate(operand)
        if operator == _DEREFERENCE and value is not None:
            if operand.type.get_canonical().get_pointee().kind in _function_kinds():
                return value  # *function is the function
            return self._cell(value, f"*{value.text}", cursor)
        return value if operator in _INCREMENTS else None

    def _address_of(self, operand: Any, cursor: Any) -> _Value | None:
        target = self._peel(operand)
        kinds = self._kinds
        if target.kind == kinds.UNARY_OPERATOR or target.kind == kinds.ARRAY_SUBSCRIPT_EXPR:
            return self._address_in_memory(target, cursor)
        if target.kind == kinds.MEMBER_REF_EXPR and target.referenced is not None:
            self._member(target)
            return self._address(self._field(target.referenced), target.spelling, cursor, f"&{target.spelling}")
        if target.kind == kinds.DECL_REF_EXPR and target.referenced is not None:
            declared = target.referenced
            if declared.kind == kinds.FUNCTION_DECL:
                return self._reference(target)
            return self._address(self._variable(declared), declared.spelling, cursor, f"&{declared.spelling}")
        return self.evaluate(operand)

    def _address_in_memory(self, target: Any, cursor: Any) -> _Value | None:
        """`&*p` and `&p[i]` are `p`; nothing is dereferenced. `&array[i]` is the address of the array."""
        children = list(target.get_children())
        for child in children[1:]:
            self.evaluate(child)
        array = self._peel(children[0])
        is_variable = array.kind == self._kinds.DECL_REF_EXPR and array.type.get_canonical().kind in _array_kinds()
        if is_variable and array.referenced is not None:
            return self._address(self._variable(array.referenced), array.spelling, cursor, f"&{array.spelling}[]")
        return self.evaluate(children[0])

    def _binary(self, cursor: Any) -> _Value | None:
        operator = self._library.clang_getCursorBinaryOperatorKind(cursor)
        children = list(cursor.get_children())
        if len(children) != 2:
            return None
        left, right = self.evaluate(children[0]), self.evaluate(children[1])
        if operator == _ASSIGN:
            if left is not None and left.key is not None and self._is_pointer(children[0]):
                self._flow(right, left.key, left.text)
            return left
        if operator == _COMMA:
            return right
        if operator in _COMPOUND_ASSIGN:
            return left
        if operator in _ARITHMETIC and self._is_pointer(cursor):
            return left if self._is_pointer(children[0]) else right
        return None

    def _conditional(self, cursor: Any) -> _Value | None:
        values = [self.evaluate(child) for child in cursor.get_children()]
        if not self._is_pointer(cursor):
            return None
        text = " : ".join(value.text for value in values[-2:] if value is not None)
        key = self._expression("expression", f"? {text}", cursor)
        for value in values[-2:]:
            self._flow(value, key, f"(? {text})")
        return _Value(key, f"(? {text})", cursor)

    def _conversion(self, cursor: Any) -> _Value | None:
        children = [child for child in cursor.get_children() if child.kind.is_expression()]
        values = [self.evaluate(child) for child in children]
        value = values[-1] if values else None
        if value is None and self._is_pointer(cursor) and children and self._is_zero(children[-1]):
            return _Value(None, "NULL", cursor)
        return value

    def _is_zero(self, cursor: Any) -> bool:
        """Whether an expression is the constant 0, which is a null pointer when it is converted to a pointer."""
        literal = self._peel(cursor)
        if literal.kind not in (self._kinds.INTEGER_LITERAL, self._kinds.GNU_NULL_EXPR):
            return False
        result = self._library.clang_Cursor_Evaluate(literal)
        if not result:
            return False
        try:
            return bool(self._library.clang_EvalResult_getAsLongLong(result) == 0)
        finally:
            self._library.clang_EvalResult_dispose(result)

    def _compound_literal(self, cursor: Any) -> _Value | None:
        key = self._expression("expression", "compound literal", cursor)
        for child in cursor.get_children():
            if child.kind.is_expression():
                self._initialise(child, cursor.type, key, "compound literal")
        return self._content(key, cursor, "compound literal") if self._is_pointer(cursor) else None

    def _statement_expression(self, cursor: Any) -> _Value | None:
        statements = [child for body in cursor.get_children() for child in body.get_children()]
        value = None
        for statement in statements:
            value = None
            if statement.kind.is_expression():
                value = self.evaluate(statement)
            else:
                self._statements(statement)
        return value

    # Calls.

    def _call(self, cursor: Any) -> _Value | None:
        function = cursor.referenced
        arguments = list(cursor.get_arguments())
        if function is None or function.kind != self._kinds.FUNCTION_DECL:
            for child in cursor.get_children():
                if child.kind.is_expression():
                    self.evaluate(child)
            return self._unknown_result(cursor)
        scope, name = self._function_scope(function), function.spelling
        values = [self.evaluate(argument) for argument in arguments]
        call = self._expression("call", f"{name}()", cursor)
        self._fact("call", call, self._function_node(function))
        known = name in self.allocators or name in RETURN_FIRST_ARGUMENT
        if known:
            self._library_call(name, call, values, cursor)
        else:
            self._pass(function, scope, values)
            if self._may_return_pointer(function, cursor):
                result = self._node("return", scope, name, function, definition=function.is_definition())
                self._fact("assign", result, call)
        return _Value(call, f"{name}()", cursor) if known or self._may_return_pointer(function, cursor) else None

    def _pass(self, function: Any, scope: str, values: Sequence[_Value | None]) -> None:
        declared = len(list(function.get_arguments()))
        for index, value in enumerate(values):
            is_variadic = function.type.kind == self._cindex.TypeKind.FUNCTIONPROTO and index >= declared
            if value is not None and not is_variadic:
                self._flow(
                    value, self._parameter(function, scope, index), f"argument {index + 1} of {function.spelling}"
                )

    def _library_call(self, name: str, call: str, values: Sequence[_Value | None], cursor: Any) -> None:
        if name in self.allocators:
            self._fact("alloc", call, self._expression("memory", f"{name}()", cursor))
        if name in RETURN_FIRST_ARGUMENT and values:
            self._flow(values[0], call, f"{name}()")

    def _may_return_pointer(self, function: Any, cursor: Any) -> bool:
        return self._is_pointer(cursor) or function.type.kind == self._cindex.TypeKind.FUNCTIONNOPROTO

    def _unknown_result(self, cursor: Any) -> _Value | None:
        """The result of a call through a pointer: a node of its own that nothing flows to."""
        if not self._is_pointer(cursor):
            return None
        text = f"{cursor.spelling or 'call'}()"
        return _Value(self._expression("call", text, cursor), text, cursor)


@cache
def _array_kinds() -> frozenset[Any]:
    kinds = clang().TypeKind
    return frozenset((kinds.CONSTANTARRAY, kinds.INCOMPLETEARRAY, kinds.VARIABLEARRAY, kinds.DEPENDENTSIZEDARRAY))


@cache
def _function_kinds() -> frozenset[Any]:
    kinds = clang().TypeKind
    return frozenset((kinds.FUNCTIONPROTO, kinds.FUNCTIONNOPROTO))


@cache
def _pointer_kinds() -> frozenset[Any]:
    kinds = clang().TypeKind
    return frozenset((kinds.POINTER, kinds.BLOCKPOINTER, *_array_kinds(), *_function_kinds()))
