"""Kernels: the compiled loops that determine performance, from flat integer arrays to arrays.

A *lane* is an int64 array with an entry for each row. A *constant lane* is a single cell with stride 0.
Times are positions (`tix`, int32) in a table of distinct times. Diffs are a two-dimensional array, one row
for each diff lane. Kernels are independent of schemas, frontiers, batches and Arrow. This is the only package that
imports Numba.

Importing this package compiles the kernels, or loads them from the cache on disk (see `compile`).
"""

from ikebana.kernels.accumulate import accumulate_rows, sum_visible
from ikebana.kernels.compile import KERNELS, compile_all
from ikebana.kernels.consolidate import consolidate_narrow, consolidate_rows
from ikebana.kernels.gather import gather_bits, gather_fixed, gather_strings, gather_words
from ikebana.kernels.hashing import hash_bytes, hash_integers, shard_rows
from ikebana.kernels.match import expand_pairs, expand_ranges, match_keys
from ikebana.kernels.merge import merge_rows, merge_untimed
from ikebana.kernels.program import run_program
from ikebana.kernels.seek import narrow_ranges, seek_ranges
from ikebana.kernels.sort import sort_leading, sort_order
from ikebana.kernels.times import advance_times, rank_times, times_beyond, times_visible, union_times

compile_all()

__all__ = [
    "KERNELS",
    "accumulate_rows",
    "advance_times",
    "consolidate_narrow",
    "consolidate_rows",
    "expand_pairs",
    "expand_ranges",
    "gather_bits",
    "gather_fixed",
    "gather_strings",
    "gather_words",
    "hash_bytes",
    "hash_integers",
    "match_keys",
    "merge_rows",
    "merge_untimed",
    "narrow_ranges",
    "rank_times",
    "run_program",
    "seek_ranges",
    "shard_rows",
    "sort_leading",
    "sort_order",
    "sum_visible",
    "times_beyond",
    "times_visible",
    "union_times",
]
