"""The compilation of kernels: declared signatures, a cache on disk, and a progress message.

A kernel is a plain function over flat arrays, declared with the one signature that it is compiled for:

    @kernel("int64(lane, lane)")
    def common_prefix(a, b): ...

Signatures use the short names of `TYPES`. Arrays that a kernel reads are declared with any
stride and read-only, so that it accepts views of Arrow buffers and *constant lanes* (one cell with stride 0 for all
rows) without a copy and without a second specialisation.

Guarantees. Compilation happens once per machine, CPU and version of the sources of this package: the cache is in the
user's cache directory under a digest of the sources (`ikebana.kernels.cache`). A process that finds the cache
compiles nothing. Other processes report the compilation on standard error before it begins and when it is complete.
Processes that start at the same time may both compile; neither reads an incomplete file. Set `IKEBANA_KERNEL_CACHE`
to store the cache elsewhere, `NUMBA_DISABLE_JIT=1` to run the kernels as plain Python.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeAlias

import numba
from numba.core import types

from ikebana.kernels.cache import KernelLocator, cache_directory, is_cached

_settings: Any = numba.config
_lock = threading.Lock()

Function: TypeAlias = Callable[..., Any]


def _reads(dtype: Any, dimensions: int = 1) -> Any:
    return types.Array(dtype, dimensions, "A", readonly=True)


def _writes(dtype: Any, dimensions: int = 1) -> Any:
    return types.Array(dtype, dimensions, "A")


TYPES: dict[str, Any] = {
    "void": types.void,
    "int": types.int64,
    "lane": _reads(types.int64),  # keys, values, positions
    "index": _reads(types.int32),  # positions in a table of times
    "lanes": _reads(types.int64, 2),  # diffs (lane, row) or times (row, coordinate)
    "words": _reads(types.uint64),  # packed rows
    "flags": _reads(types.uint8),
    "bytes": types.Array(types.uint8, 1, "C", readonly=True),
    "lane_out": _writes(types.int64),
    "index_out": _writes(types.int32),
    "words_out": _writes(types.uint64),
    "lanes_out": _writes(types.int64, 2),
    "flags_out": _writes(types.uint8),
    "bytes_out": types.Array(types.uint8, 1, "C"),
    "slots": types.Array(types.int64, 2, "C"),  # the columns of a program's registers
    "cells": types.Array(types.int64, 1, "C"),
    "run": types.Array(types.int64, 1, "C", readonly=True),  # lanes read at full speed, which constant lanes are not
    "halves": types.Array(types.int32, 1, "C", readonly=True),  # columns of 32 bits
    "halves_out": types.Array(types.int32, 1, "C"),
    "lane_new": types.Array(types.int64, 1, "C"),  # arrays that a kernel allocates and returns
    "index_new": types.Array(types.int32, 1, "C"),
    "words_new": types.Array(types.uint64, 1, "C"),
    "lanes_new": types.Array(types.int64, 2, "C"),
    "flags_new": types.Array(types.uint8, 1, "C"),
    "Tuple": types.Tuple,
}

KERNELS: dict[str, Any] = {}
"""Every declared kernel by name. The tests compare each with a twin in plain Python."""

_signatures: dict[str, str] = {}
"""The signatures of the kernels that are declared and not yet compiled."""


def kernel(signature: str) -> Callable[[Function], Function]:
    """Declare a kernel, which `compile_declared` compiles."""

    def declare(function: Function) -> Function:
        with _own_cache():
            compiled: Any = numba.njit(cache=True, nogil=True)(function)
        KERNELS[function.__name__] = compiled
        _signatures[function.__name__] = signature
        return compiled

    return declare


@contextmanager
def _own_cache() -> Iterator[None]:
    """Set where the kernels declared inside are cached: Numba reads it from global settings.

    Versions of Numba without `CACHE_LOCATOR_CLASSES` use the directory alone, and compile again for each installation.
    """
    ours = {
        "CACHE_DIR": str(cache_directory()),
        "CACHE_LOCATOR_CLASSES": f"{KernelLocator.__module__}.{KernelLocator.__qualname__}",
    }
    before = {name: getattr(_settings, name, "") for name in ours}
    vars(_settings).update(ours)
    try:
        yield
    finally:
        vars(_settings).update(before)


def helper(function: Function) -> Function:
    """Declare a function that kernels call, which is compiled with its callers."""
    compiled: Function = numba.njit(nogil=True)(function)
    return compiled


def is_compiled() -> bool:
    """Whether kernels are compiled, rather than run as plain Python."""
    return not _settings.DISABLE_JIT


def compile_declared() -> int:
    """Compile the declared kernels or load them from the cache; return how many were compiled.

    Compilation is reported on standard error.
    """
    with _lock:
        start, signatures = perf_counter(), dict(_signatures)
        missing = [name for name in signatures if is_compiled() and not is_cached(KERNELS[name])]
        if missing:
            _report(f"ikebana: compiling {len(missing)} kernels, once on this machine")
        compiled = sum(_compile(name, signature) for name, signature in signatures.items())
        for name in signatures:
            del _signatures[name]
    if compiled:
        _report(f"ikebana: compiled {compiled} kernels in {perf_counter() - start:.0f} s")
    return compiled


def _compile(name: str, signature: str) -> bool:
    """Compile a kernel; return whether it was not in the cache."""
    if not is_compiled():
        return False
    function = KERNELS[name]
    function.compile(eval(signature, {}, TYPES))
    function.disable_compile()
    return bool(function.stats.cache_misses)


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
