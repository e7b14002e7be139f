"""libclang, as the extraction of facts uses it: loading it, arguments for the compiler, numbers of operators, types.

The Python bindings lack some functions of the library; `clang` declares them when the bindings are first loaded. The
package is optional: without it, `clang` raises an `AnalysisError` that says what to install.

Not guaranteed: other versions of libclang than the one that the extra `analysis` installs; the numbers are theirs.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from ikebana.analysis.facts import AnalysisError

ARGUMENTS = (
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
"""Arguments for the compiler: C of any age, and everything that is missing is not the end."""

KEEP_GOING = 0x200  # CXTranslationUnit_KeepGoing: a missing header is not the end
ERROR = 3  # CXDiagnostic_Error; fatal errors are above

# Operators, as numbered by CXUnaryOperatorKind and CXBinaryOperatorKind.
ADDRESS_OF, DEREFERENCE = 5, 6
ARITHMETIC, ASSIGN, COMPOUND_ASSIGN, COMMA = (6, 7), 22, (26, 27), 33
INCREMENTS = (1, 2, 3, 4)


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


@cache
def array_kinds() -> frozenset[Any]:
    """The kinds of array types."""
    kinds = clang().TypeKind
    return frozenset((kinds.CONSTANTARRAY, kinds.INCOMPLETEARRAY, kinds.VARIABLEARRAY, kinds.DEPENDENTSIZEDARRAY))


@cache
def function_kinds() -> frozenset[Any]:
    """The kinds of function types."""
    kinds = clang().TypeKind
    return frozenset((kinds.FUNCTIONPROTO, kinds.FUNCTIONNOPROTO))


@cache
def pointer_kinds() -> frozenset[Any]:
    """The kinds of types whose values are pointers, or become pointers when they are used."""
    kinds = clang().TypeKind
    return frozenset((kinds.POINTER, kinds.BLOCKPOINTER, *array_kinds(), *function_kinds()))


def is_pointer(cursor: Any) -> bool:
    """Whether the value of an expression is a pointer."""
    return cursor.type.get_canonical().kind in pointer_kinds()
