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

`ikebana.analysis.c_nodes` says what identifies a node.

Missing headers do not stop the extraction: the standard headers that come with compilers are replaced by small ones of
our own (`include`), functions without a declaration are assumed to return what they are used as, and whatever else
does not compile is left out and counted in `FileFacts.errors`. A type without a declaration reads as `int`: variables
of that type are not followed, unless they are declared as pointers to it.

Cost: about 30 microseconds for each node of the syntax tree, in one Python process for each file at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ikebana.analysis.c_nodes import Files, Nodes, Value
from ikebana.analysis.facts import AnalysisError, FileFacts
from ikebana.analysis.libclang import (
    ADDRESS_OF,
    ARGUMENTS,
    ARITHMETIC,
    ASSIGN,
    COMMA,
    COMPOUND_ASSIGN,
    DEREFERENCE,
    ERROR,
    INCREMENTS,
    KEEP_GOING,
    array_kinds,
    clang,
    function_kinds,
    is_pointer,
    pointer_kinds,
)

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

_MOST_NESTED = 200
"""Expressions that are nested more deeply are left out: the bindings cannot report that a stack has overflowed."""


class _TooDeepError(Exception):
    """An expression is nested too deeply."""


def extract_file(root: Path, path: Path, arguments: Sequence[str] = (), allocators: Iterable[str] = ()) -> FileFacts:
    """Return the facts of one translation unit.

    `arguments` are further ones for the compiler, such as `-Iinclude`; `allocators` are functions that return new
    memory, beside those of the C library. Functions in headers below `root` belong to the translation unit too; other
    headers only declare.
    """
    cindex = clang()
    index = cindex.Index.create()
    try:
        unit = index.parse(str(path), [*ARGUMENTS, f"-I{root}", *arguments], options=KEEP_GOING)
    except cindex.TranslationUnitLoadError:
        raise AnalysisError(
            f"cannot read {path}", detail="libclang cannot open the file", hint="check that it exists and is readable"
        ) from None
    result = FileFacts()
    errors = [d for d in unit.diagnostics if d.severity >= ERROR]
    if errors:
        at = errors[0].location
        result.errors, result.first_error = len(errors), f"{at.file}:{at.line}: {errors[0].spelling}"
    files = Files(root)
    result.includes = frozenset(filter(None, (files.name(i.include) for i in unit.get_includes())))
    _Unit(result, files, ALLOCATORS.union(allocators)).read(unit.cursor)
    return result


class _Unit:
    """Reads a translation unit."""

    def __init__(self, result: FileFacts, files: Files, allocators: frozenset[str]) -> None:
        self.result, self.files, self.allocators = result, files, allocators
        self._nodes = Nodes(result, files)
        self._cindex = clang()
        self._kinds = self._cindex.CursorKind
        self._library = self._cindex.conf.lib
        kinds = self._kinds
        self._evaluators: dict[Any, Callable[[Any], Value | None]] = {
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
        self._depth = 0

    def _enter(self, function: str, scope: str) -> None:
        self._nodes.enter(function, scope)
        self._depth = 0

    def read(self, root: Any) -> None:
        for cursor in root.get_children():
            file = self.files.name(cursor.location.file)
            if not file:
                continue
            self._enter("", file)
            if cursor.kind == self._kinds.FUNCTION_DECL and cursor.is_definition():
                self._define(cursor)
            elif cursor.kind == self._kinds.VAR_DECL:
                self._declare(cursor)

    # Declarations and statements.

    def _define(self, function: Any) -> None:
        scope = self._nodes.function_scope(function)
        self._enter(function.spelling, scope)
        for index, parameter in enumerate(function.get_arguments()):
            self._nodes.declare_parameter(function, scope, index, parameter)
        self._nodes.node("return", scope, function.spelling, function)
        self._nodes.node("function", scope, function.spelling, function)
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
        kinds, nodes = self._kinds, self._nodes
        while waiting:
            cursor = waiting.pop()
            if cursor.kind == kinds.VAR_DECL:
                self._declare(cursor)
            elif cursor.kind == kinds.RETURN_STMT:
                for child in cursor.get_children():
                    nodes.flow(self.evaluate(child), f"return {nodes.scope}", f"result of {nodes.function}")
            elif cursor.kind.is_expression():
                self.evaluate(cursor)
            elif cursor.kind.is_statement():
                waiting.extend(reversed(list(cursor.get_children())))

    def _declare(self, variable: Any) -> None:
        key = self._nodes.variable(variable)
        initial = self._library.clang_Cursor_getVarDeclInitializer(variable)
        if not initial.kind.is_invalid():
            initial._tu = variable._tu  # what the bindings do for cursors that they return
            self._initialise(initial, variable.type, key, variable.spelling)

    def _initialise(self, initial: Any, type_: Any, to: str, text: str) -> None:
        """Assign an initialiser, which may be a list, to a node of a type."""
        peeled = self._peel(initial)
        if peeled.kind != self._kinds.INIT_LIST_EXPR:
            self._nodes.flow(self.evaluate(initial), to, text)
            return
        canonical = type_.get_canonical()
        if canonical.kind == self._cindex.TypeKind.RECORD:
            self._initialise_record(peeled, canonical)
            return
        element = canonical.get_array_element_type() if canonical.kind in array_kinds() else canonical
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
                self._initialise(self._without_designator(child), field.type, self._nodes.field(field), field.spelling)
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

    def evaluate(self, cursor: Any) -> Value | None:
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

    def _reference(self, cursor: Any) -> Value | None:
        target = cursor.referenced
        if target is None:
            return None
        if target.kind == self._kinds.FUNCTION_DECL:
            function = self._nodes.function_node(target)
            return self._address(function, target.spelling, cursor, target.spelling)
        if target.kind not in (self._kinds.VAR_DECL, self._kinds.PARM_DECL) or not is_pointer(cursor):
            return None
        return self._content(self._nodes.variable(target), cursor, target.spelling)

    def _content(self, key: str, cursor: Any, text: str) -> Value:
        """The content of a variable or field; an array stands for the address of its elements."""
        if cursor.type.get_canonical().kind in array_kinds():
            return self._address(key, text, cursor, text)
        return Value(key, text, cursor)

    def _address(self, of: str, name: str, cursor: Any, text: str) -> Value:
        key = self._nodes.expression("address", f"&{name}", cursor)
        self._nodes.fact("address", key, of)
        return Value(key, text, cursor)

    def _member(self, cursor: Any) -> Value | None:
        field = cursor.referenced
        children = [child for child in cursor.get_children() if child.kind.is_expression()]
        text = f"?.{cursor.spelling}"
        if children:
            base = self.evaluate(children[0])
            base_text = base.text if base else self._peel(children[0]).spelling
            arrow = children[0].type.get_canonical().kind == self._cindex.TypeKind.POINTER
            text = f"{base_text}{'->' if arrow else '.'}{cursor.spelling}"
            if arrow and base is not None:
                self._nodes.use(base, text, cursor)
        if field is None or not is_pointer(cursor):
            return None
        return self._content(self._nodes.field(field), cursor, text)

    def _subscript(self, cursor: Any) -> Value | None:
        base, index = list(cursor.get_children())
        if base.type.get_canonical().kind not in pointer_kinds():
            base, index = index, base
        self.evaluate(index)
        array = self._peel(base)
        if array.type.get_canonical().kind in array_kinds():
            return self._element(array, cursor)
        pointer = self.evaluate(base)
        return self._cell(pointer, f"{pointer.text}[]", cursor) if pointer else None

    def _element(self, array: Any, cursor: Any) -> Value | None:
        """An element of an array, which is a variable, a field, or an element of an array of arrays."""
        kinds = self._kinds
        if array.kind == kinds.DECL_REF_EXPR and array.referenced is not None:
            key, text = self._nodes.variable(array.referenced), array.spelling
        elif array.kind == kinds.MEMBER_REF_EXPR and array.referenced is not None:
            self._member(array)
            key, text = self._nodes.field(array.referenced), array.spelling
        elif array.kind == kinds.ARRAY_SUBSCRIPT_EXPR:
            inner = self._subscript(array)
            if inner is None or inner.key is None:
                return None
            key, text = inner.key, inner.text
        else:
            pointer = self.evaluate(array)
            return self._cell(pointer, f"{pointer.text}[]", cursor) if pointer else None
        return Value(key, f"{text}[]", cursor) if is_pointer(cursor) else None

    def _cell(self, pointer: Value, text: str, cursor: Any) -> Value | None:
        """The memory that a pointer points to, as a node if there is a pointer in it."""
        if not is_pointer(cursor):
            self._nodes.use(pointer, text, cursor)
            return None
        cell = self._nodes.expression("cell", text, cursor)
        key = self._nodes.materialise(pointer)
        self._nodes.fact("dereference", key, cell)
        self._nodes.fact("use", key, cell)
        return Value(cell, text, cursor)

    def _unary(self, cursor: Any) -> Value | None:
        operator = self._library.clang_getCursorUnaryOperatorKind(cursor)
        (operand,) = list(cursor.get_children())[:1] or [None]
        if operand is None:
            return None
        if operator == ADDRESS_OF:
            return self._address_of(operand, cursor)
        value = self.evaluate(operand)
        if operator == DEREFERENCE and value is not None:
            if operand.type.get_canonical().get_pointee().kind in function_kinds():
                return value  # *function is the function
            return self._cell(value, f"*{value.text}", cursor)
        return value if operator in INCREMENTS else None

    def _address_of(self, operand: Any, cursor: Any) -> Value | None:
        target = self._peel(operand)
        kinds = self._kinds
        if target.kind == kinds.UNARY_OPERATOR or target.kind == kinds.ARRAY_SUBSCRIPT_EXPR:
            return self._address_in_memory(target, cursor)
        if target.kind == kinds.MEMBER_REF_EXPR and target.referenced is not None:
            self._member(target)
            return self._address(self._nodes.field(target.referenced), target.spelling, cursor, f"&{target.spelling}")
        if target.kind == kinds.DECL_REF_EXPR and target.referenced is not None:
            declared = target.referenced
            if declared.kind == kinds.FUNCTION_DECL:
                return self._reference(target)
            return self._address(self._nodes.variable(declared), declared.spelling, cursor, f"&{declared.spelling}")
        return self.evaluate(operand)

    def _address_in_memory(self, target: Any, cursor: Any) -> Value | None:
        """`&*p` and `&p[i]` are `p`; nothing is dereferenced. `&array[i]` is the address of the array."""
        children = list(target.get_children())
        for child in children[1:]:
            self.evaluate(child)
        array = self._peel(children[0])
        is_variable = array.kind == self._kinds.DECL_REF_EXPR and array.type.get_canonical().kind in array_kinds()
        if is_variable and array.referenced is not None:
            return self._address(self._nodes.variable(array.referenced), array.spelling, cursor, f"&{array.spelling}[]")
        return self.evaluate(children[0])

    def _binary(self, cursor: Any) -> Value | None:
        operator = self._library.clang_getCursorBinaryOperatorKind(cursor)
        children = list(cursor.get_children())
        if len(children) != 2:
            return None
        left, right = self.evaluate(children[0]), self.evaluate(children[1])
        if operator == ASSIGN:
            if left is not None and left.key is not None and is_pointer(children[0]):
                self._nodes.flow(right, left.key, left.text)
            return left
        if operator == COMMA:
            return right
        if operator in COMPOUND_ASSIGN:
            return left
        if operator in ARITHMETIC and is_pointer(cursor):
            return left if is_pointer(children[0]) else right
        return None

    def _conditional(self, cursor: Any) -> Value | None:
        values = [self.evaluate(child) for child in cursor.get_children()]
        if not is_pointer(cursor):
            return None
        text = " : ".join(value.text for value in values[-2:] if value is not None)
        key = self._nodes.expression("expression", f"? {text}", cursor)
        for value in values[-2:]:
            self._nodes.flow(value, key, f"(? {text})")
        return Value(key, f"(? {text})", cursor)

    def _conversion(self, cursor: Any) -> Value | None:
        children = [child for child in cursor.get_children() if child.kind.is_expression()]
        values = [self.evaluate(child) for child in children]
        value = values[-1] if values else None
        if value is None and is_pointer(cursor) and children and self._is_zero(children[-1]):
            return Value(None, "NULL", cursor)
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

    def _compound_literal(self, cursor: Any) -> Value | None:
        key = self._nodes.expression("expression", "compound literal", cursor)
        for child in cursor.get_children():
            if child.kind.is_expression():
                self._initialise(child, cursor.type, key, "compound literal")
        return self._content(key, cursor, "compound literal") if is_pointer(cursor) else None

    def _statement_expression(self, cursor: Any) -> Value | None:
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

    def _call(self, cursor: Any) -> Value | None:
        function = cursor.referenced
        arguments = list(cursor.get_arguments())
        if function is None or function.kind != self._kinds.FUNCTION_DECL:
            for child in cursor.get_children():
                if child.kind.is_expression():
                    self.evaluate(child)
            return self._unknown_result(cursor)
        scope, name = self._nodes.function_scope(function), function.spelling
        values = [self.evaluate(argument) for argument in arguments]
        call = self._nodes.expression("call", f"{name}()", cursor)
        self._nodes.fact("call", call, self._nodes.function_node(function))
        known = name in self.allocators or name in RETURN_FIRST_ARGUMENT
        if known:
            self._library_call(name, call, values, cursor)
        else:
            self._pass(function, scope, values)
            if self._may_return_pointer(function, cursor):
                result = self._nodes.node("return", scope, name, function, definition=function.is_definition())
                self._nodes.fact("assign", result, call)
        return Value(call, f"{name}()", cursor) if known or self._may_return_pointer(function, cursor) else None

    def _pass(self, function: Any, scope: str, values: Sequence[Value | None]) -> None:
        declared = len(list(function.get_arguments()))
        for index, value in enumerate(values):
            is_variadic = function.type.kind == self._cindex.TypeKind.FUNCTIONPROTO and index >= declared
            if value is not None and not is_variadic:
                self._nodes.flow(
                    value, self._nodes.parameter(function, scope, index), f"argument {index + 1} of {function.spelling}"
                )

    def _library_call(self, name: str, call: str, values: Sequence[Value | None], cursor: Any) -> None:
        if name in self.allocators:
            self._nodes.fact("alloc", call, self._nodes.expression("memory", f"{name}()", cursor))
        if name in RETURN_FIRST_ARGUMENT and values:
            self._nodes.flow(values[0], call, f"{name}()")

    def _may_return_pointer(self, function: Any, cursor: Any) -> bool:
        return is_pointer(cursor) or function.type.kind == self._cindex.TypeKind.FUNCTIONNOPROTO

    def _unknown_result(self, cursor: Any) -> Value | None:
        """The result of a call through a pointer: a node of its own that nothing flows to."""
        if not is_pointer(cursor):
            return None
        text = f"{cursor.spelling or 'call'}()"
        return Value(self._nodes.expression("call", text, cursor), text, cursor)
