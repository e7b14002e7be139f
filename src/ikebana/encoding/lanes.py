"""Lanes: the integer columns of the index, stored compactly.

A lane in which every row has the same entry is *constant*: a single cell with stride 0. It takes eight bytes
for any number of rows and reads like any other array. It may be written to if the values written are equal to the
entry, or are never read: a lane that a kernel fills but the caller does not use may be constant.
After compaction the time of a batch is usually constant, and so is a diff of 1.

Only this module creates constant lanes, trims lanes, and chooses the pages that they are stored in.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Lane: TypeAlias = NDArray[np.int64]
Index: TypeAlias = NDArray[np.int32]
Flags: TypeAlias = NDArray[np.uint8]
Array: TypeAlias = NDArray[Any]


def constant(value: int, rows: int, dtype: Any = np.int64) -> Any:
    """Return a lane of `rows` equal entries, stored once.

    >>> constant(7, 3).tolist(), held_bytes(constant(7, 1_000_000))
    ([7, 7, 7], 8)
    """
    return np.ndarray((rows,), dtype, np.array([value], dtype), strides=(0,))


def constant_diffs(values: Lane, rows: int) -> Lane:
    """Return diff lanes, one for each of `values`, in which all rows are equal."""
    cells = np.array(values, np.int64)
    return np.ndarray((len(cells), rows), np.int64, cells, strides=(cells.itemsize, 0))


def is_constant(lane: Array) -> bool:
    """Whether the lane is stored as one cell for all its rows."""
    return lane.strides[-1] == 0


def held_bytes(*lanes: Array) -> int:
    """Return the number of bytes that the lanes take in memory; constant lanes count once."""
    return sum(lane.nbytes // max(1, lane.shape[-1]) if is_constant(lane) else lane.nbytes for lane in lanes)


def empty_lane(rows: int, dtype: Any = np.int64) -> Any:
    """Return an uninitialised lane. Pages that are never written cost only address space."""
    return np.empty(rows, dtype)


def in_small_pages(lane: Array) -> Any:
    """Return an uninitialised lane that is to be written a little at a time, in small pages.

    NumPy asks for huge pages for large arrays. The first write to a huge page waits until the system has found and
    cleared 2 MiB, which takes up to tens of milliseconds. Call `in_huge_pages` once the lane is written.
    """
    _advise(lane, _NO_HUGE_PAGES)
    return lane


def in_huge_pages(lane: Array) -> Any:
    """Return a lane, which the system may convert to huge pages in the background: these are faster to read."""
    _advise(lane, _HUGE_PAGES)
    return lane


def _advise(lane: Array, advice: int) -> None:
    if lane.nbytes < _HUGE_FROM_BYTES or is_constant(lane) or _madvise is None:
        return
    start = -(-lane.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    _madvise(ctypes.c_void_p(start), ctypes.c_size_t(lane.ctypes.data + lane.nbytes - start), advice)


_HUGE_FROM_BYTES = 4 << 20
"""From this size on, NumPy asks for huge pages."""

_HUGE_PAGES, _NO_HUGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", 0), getattr(mmap, "MADV_NOHUGEPAGE", 0)
_madvise = getattr(ctypes.CDLL(None), "madvise", None) if _HUGE_PAGES else None


def empty_diffs(lanes: int, rows: int) -> Lane:
    """Return uninitialised diff lanes; usually there is one, which is contiguous."""
    return np.empty((lanes, rows), np.int64)


def trimmed(lane: Array, rows: int) -> Any:
    """Return the first rows of a lane that owns its memory, and free the memory of the others."""
    if is_constant(lane) or rows == lane.shape[-1]:
        return lane[..., :rows]
    if lane.size == lane.shape[-1]:
        lane.resize((*lane.shape[:-1], rows), refcheck=False)
        return lane
    return np.ascontiguousarray(lane[..., :rows])


def gather_lane(lane: Array, rows: Array) -> Any:
    """Return a copy of the rows of a lane at the given positions; a constant lane stays constant."""
    if not is_constant(lane):
        return lane.take(rows, axis=-1)
    cells = np.ascontiguousarray(lane[..., :1])
    return np.ndarray((*lane.shape[:-1], len(rows)), lane.dtype, cells.copy(), strides=(*cells.strides[:-1], 0))


def concat_diffs(parts: Sequence[Lane]) -> Lane:
    """Return the diff lanes of all parts, one after the other; they stay constant if all are the same constants."""
    joined = common_diffs(parts)
    return np.concatenate(parts, axis=1) if joined is None else joined


def common_diffs(parts: Sequence[Lane]) -> Lane | None:
    """Return constant diff lanes for the rows of all parts, if all of them have the same constants."""
    first, rows = parts[0], sum(part.shape[1] for part in parts)
    if rows and all(is_constant(part) and part.shape[1] and (part[:, 0] == first[:, 0]).all() for part in parts):
        return constant_diffs(first[:, 0].copy(), rows)
    return None


def are_positive(diffs: Lane) -> bool:
    """Whether all diffs are greater than zero."""
    return bool(((diffs[:, :1] if is_constant(diffs) else diffs) > 0).all())


def multiplied_diffs(a: Lane, b: Lane) -> Lane:
    """Return the products of diff lanes; those of constants are constants."""
    if is_constant(a) and is_constant(b) and a.shape[1]:
        return constant_diffs((a[:, :1] * b[:, :1])[:, 0], a.shape[1])
    return a * b


def copied(lane: Array) -> Any:
    """Return a lane, or diff lanes, in memory of their own; constant lanes stay constant."""
    if not is_constant(lane):
        return lane.copy()
    cells = np.ascontiguousarray(lane[..., :1]).copy()
    return np.ndarray(lane.shape, lane.dtype, cells, strides=(*cells.strides[:-1], 0)) if cells.size else lane.copy()


def materialized(lane: Array) -> Any:
    """Return the lane with a cell for each row: a copy if it is constant."""
    return np.ascontiguousarray(lane) if is_constant(lane) else lane
