"""Kernels: the compiled loops that determine performance, from flat integer arrays to arrays.

A *lane* is an int64 array with an entry for each row. A *constant lane* is a single cell with stride 0.
Times are positions (`tix`, int32) in a table of distinct times. Diffs are a two-dimensional array, one row
for each diff lane. Kernels are independent of schemas, frontiers, batches and Arrow. This is the only package that
imports Numba.

Loading. The first call of a kernel loads all of them: it imports Numba, and compiles the kernels or reads them from the
cache on disk (see `compile`). That takes a second or two, which processes that only plan queries or pass rows on do not
need, such as Spark's when they look up a data source. `load` does it ahead of time; workers call it when they start.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

MODULES = {
    "accumulate": ("accumulate_rows", "sum_visible"),
    "consolidate": ("consolidate_narrow", "consolidate_rows"),
    "gather": ("gather_bits", "gather_fixed", "gather_strings", "gather_words"),
    "hashing": ("hash_bytes", "hash_integers", "shard_rows"),
    "match": ("expand_pairs", "expand_ranges", "match_keys"),
    "merge": ("merge_rows", "merge_untimed"),
    "program": ("run_program",),
    "seek": ("narrow_ranges", "seek_ranges"),
    "sort": ("sort_leading", "sort_order"),
    "times": ("advance_times", "rank_times", "times_beyond", "times_visible", "union_times"),
}
"""The kernels, and functions around them, of each module."""

_loaded: dict[str, Callable[..., Any]] = {}


def load() -> None:
    """Compile all kernels, or load them from the cache, unless that was done before."""
    if _loaded:
        return
    modules = {name: import_module(f"ikebana.kernels.{name}") for name in MODULES}
    import_module("ikebana.kernels.compile").compile_all()
    _loaded.update({name: getattr(modules[module], name) for module, names in MODULES.items() for name in names})


class _Kernel:
    """A kernel that is loaded when it is first called."""

    __slots__ = ("_function", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._function: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._function is None:
            load()
            self._function = _loaded[self._name]
        return self._function(*arguments)


accumulate_rows: Any = _Kernel("accumulate_rows")
advance_times: Any = _Kernel("advance_times")
consolidate_narrow: Any = _Kernel("consolidate_narrow")
consolidate_rows: Any = _Kernel("consolidate_rows")
expand_pairs: Any = _Kernel("expand_pairs")
expand_ranges: Any = _Kernel("expand_ranges")
gather_bits: Any = _Kernel("gather_bits")
gather_fixed: Any = _Kernel("gather_fixed")
gather_strings: Any = _Kernel("gather_strings")
gather_words: Any = _Kernel("gather_words")
hash_bytes: Any = _Kernel("hash_bytes")
hash_integers: Any = _Kernel("hash_integers")
match_keys: Any = _Kernel("match_keys")
merge_rows: Any = _Kernel("merge_rows")
merge_untimed: Any = _Kernel("merge_untimed")
narrow_ranges: Any = _Kernel("narrow_ranges")
rank_times: Any = _Kernel("rank_times")
run_program: Any = _Kernel("run_program")
seek_ranges: Any = _Kernel("seek_ranges")
shard_rows: Any = _Kernel("shard_rows")
sort_leading: Any = _Kernel("sort_leading")
sort_order: Any = _Kernel("sort_order")
sum_visible: Any = _Kernel("sum_visible")
times_beyond: Any = _Kernel("times_beyond")
times_visible: Any = _Kernel("times_visible")
union_times: Any = _Kernel("union_times")
