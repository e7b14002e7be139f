"""Kernels: the compiled loops that determine performance, from flat integer arrays to arrays.

A *lane* is an int64 array with an entry for each row. A *constant lane* is a single cell with stride 0.
Times are positions (`tix`, int32) in a table of distinct times. Diffs are a two-dimensional array, one row
for each diff lane. Kernels are independent of schemas, frontiers, batches and Arrow. This is the only package that
imports Numba.

Loading. The first call of a kernel loads it with the others of its module: it imports Numba, and compiles the kernels
or reads them from the cache on disk (see `compile`). For all modules together that takes a second or two, which
processes that only plan queries or load rows do not need. `load` does it ahead of time, and workers do so when they
start. A driver calls `ensure_compiled` before it starts workers, which would otherwise all compile at the same time.
The command `ikebana warm` calls `load` when an image is built, so that nothing is compiled later.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ikebana.kernels.cache import delete_unused, is_complete, mark_complete

MODULES = {
    "accumulate": ("accumulate_rows", "add_by_group", "sum_ranges"),
    "consolidate": ("add_up_packed", "consolidate_rows", "measure_rows", "pack_rows", "unpack_rows"),
    "equality": ("same_fixed", "same_strings"),
    "exchanges": ("receive_rows", "send_rows"),
    "extend": ("extend_rows",),
    "filters": ("fill_filter", "seek_filtered"),
    "gather": ("gather_bits", "gather_fixed", "gather_halves", "gather_strings", "gather_words"),
    "groups": ("add_groups", "copy_groups"),
    "hashing": ("hash_bytes", "hash_integers", "shard_rows"),
    "match": ("expand_pairs", "expand_ranges", "match_keys"),
    "merge": ("merge_rows", "merge_timed", "merge_untimed", "merge_untimed_sums"),
    "partition": ("partition_halves", "partition_order", "partition_words"),
    "program": ("run_program",),
    "search": ("search_parts",),
    "seek": ("narrow_ranges", "seek_ranges", "seek_sampled"),
    "sort": ("order_packed", "pack_leading", "radix_sorted", "sort_leading", "sort_order", "sort_words"),
    "texts": ("gather_texts",),
    "times": ("advance_times", "rank_times", "times_beyond", "times_visible", "union_times"),
}
"""The kernels, and functions around them, of each module."""

_MODULE_OF = {name: module for module, names in MODULES.items() for name in names}


def load() -> int:
    """Compile all kernels, or load them from the cache, unless that was done before; return how many were compiled."""
    for name in MODULES:
        import_module(f"ikebana.kernels.{name}")
    compiler = import_module("ikebana.kernels.compile")
    compiled: int = compiler.compile_declared()
    if compiler.is_compiled():
        mark_complete()
    if compiled:
        delete_unused()
    return compiled


def ensure_compiled() -> None:
    """Compile all kernels if the cache does not have them yet."""
    if not is_complete():
        load()


class _Kernel:
    """A kernel that is loaded when it is first called."""

    __slots__ = ("_function", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._function: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._function is None:
            module = import_module(f"ikebana.kernels.{_MODULE_OF[self._name]}")
            import_module("ikebana.kernels.compile").compile_declared()
            self._function = getattr(module, self._name)
            assert self._function is not None
        return self._function(*arguments)


accumulate_rows: Any = _Kernel("accumulate_rows")
add_by_group: Any = _Kernel("add_by_group")
add_groups: Any = _Kernel("add_groups")
add_up_packed: Any = _Kernel("add_up_packed")
advance_times: Any = _Kernel("advance_times")
consolidate_rows: Any = _Kernel("consolidate_rows")
copy_groups: Any = _Kernel("copy_groups")
expand_pairs: Any = _Kernel("expand_pairs")
expand_ranges: Any = _Kernel("expand_ranges")
extend_rows: Any = _Kernel("extend_rows")
fill_filter: Any = _Kernel("fill_filter")
gather_bits: Any = _Kernel("gather_bits")
gather_fixed: Any = _Kernel("gather_fixed")
gather_halves: Any = _Kernel("gather_halves")
gather_strings: Any = _Kernel("gather_strings")
gather_texts: Any = _Kernel("gather_texts")
gather_words: Any = _Kernel("gather_words")
hash_bytes: Any = _Kernel("hash_bytes")
hash_integers: Any = _Kernel("hash_integers")
match_keys: Any = _Kernel("match_keys")
measure_rows: Any = _Kernel("measure_rows")
merge_rows: Any = _Kernel("merge_rows")
merge_timed: Any = _Kernel("merge_timed")
merge_untimed: Any = _Kernel("merge_untimed")
merge_untimed_sums: Any = _Kernel("merge_untimed_sums")
narrow_ranges: Any = _Kernel("narrow_ranges")
order_packed: Any = _Kernel("order_packed")
pack_leading: Any = _Kernel("pack_leading")
pack_rows: Any = _Kernel("pack_rows")
partition_halves: Any = _Kernel("partition_halves")
partition_order: Any = _Kernel("partition_order")
partition_words: Any = _Kernel("partition_words")
radix_sorted: Any = _Kernel("radix_sorted")
rank_times: Any = _Kernel("rank_times")
receive_rows: Any = _Kernel("receive_rows")
run_program: Any = _Kernel("run_program")
search_parts: Any = _Kernel("search_parts")
same_fixed: Any = _Kernel("same_fixed")
same_strings: Any = _Kernel("same_strings")
seek_filtered: Any = _Kernel("seek_filtered")
seek_ranges: Any = _Kernel("seek_ranges")
seek_sampled: Any = _Kernel("seek_sampled")
send_rows: Any = _Kernel("send_rows")
shard_rows: Any = _Kernel("shard_rows")
sort_leading: Any = _Kernel("sort_leading")
sort_order: Any = _Kernel("sort_order")
sort_words: Any = _Kernel("sort_words")
sum_ranges: Any = _Kernel("sum_ranges")
times_beyond: Any = _Kernel("times_beyond")
times_visible: Any = _Kernel("times_visible")
union_times: Any = _Kernel("union_times")
unpack_rows: Any = _Kernel("unpack_rows")
