"""Lanes: the integer columns of the index, and the ways to hold them small.

A lane in which every row has the same entry is *constant*: one cell seen through stride 0. It costs eight bytes
however many rows it stands for, reads like any other array, and may be written to as long as what is written is that
entry, or if nobody reads what is written: a lane that a kernel fills and the caller has no use for may be constant.
After compaction the time of a batch is usually constant, and so is a diff of 1.

Only this module knows how constant lanes are made and how lanes are trimmed.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Lane: TypeAlias = NDArray[np.int64]
Index: TypeAlias = NDArray[np.int32]
Flags: TypeAlias = NDArray[np.uint8]
Array: TypeAlias = NDArray[Any]


def constant(value: int, rows: int, dtype: Any = np.int64) -> Any:
    """A lane of `rows` equal entries, held once.

    >>> constant(7, 3).tolist(), held_bytes(constant(7, 1_000_000))
    ([7, 7, 7], 8)
    """
    return np.ndarray((rows,), dtype, np.full(1, value, dtype), strides=(0,))


def constant_diffs(values: Lane, rows: int) -> Lane:
    """Diff lanes (one for each of `values`) whose rows are all equal."""
    cells = np.array(values, np.int64)
    return np.ndarray((len(cells), rows), np.int64, cells, strides=(cells.itemsize, 0))


def is_constant(lane: Array) -> bool:
    """Whether the lane is held as one cell for all its rows."""
    return lane.strides[-1] == 0


def held_bytes(*lanes: Array) -> int:
    """The bytes that the lanes keep in memory: a constant lane counts its cells once."""
    return sum(lane.nbytes // max(1, lane.shape[-1]) if is_constant(lane) else lane.nbytes for lane in lanes)


def room(rows: int, dtype: Any = np.int64) -> Any:
    """An uninitialised lane. Pages that are never written cost nothing but address space."""
    return np.empty(rows, dtype)


def room_for_diffs(lanes: int, rows: int) -> Lane:
    """Uninitialised diff lanes; one diff lane is the usual case, and is contiguous."""
    return np.empty((lanes, rows), np.int64)


def trimmed(lane: Array, rows: int) -> Any:
    """The first rows of a lane that owns its memory, giving the rest back."""
    if is_constant(lane) or rows == lane.shape[-1]:
        return lane[..., :rows]
    if lane.size == lane.shape[-1]:
        lane.resize((*lane.shape[:-1], rows), refcheck=False)
        return lane
    return np.ascontiguousarray(lane[..., :rows])


def gathered(lane: Array, rows: Array) -> Any:
    """The named rows of a lane, in memory of their own; a constant lane stays constant."""
    if not is_constant(lane):
        return lane.take(rows, axis=-1)
    cells = np.ascontiguousarray(lane[..., :1])
    return np.ndarray((*lane.shape[:-1], len(rows)), lane.dtype, cells.copy(), strides=(*cells.strides[:-1], 0))


def spelled_out(lane: Array) -> Any:
    """The lane in memory of its own, with a cell for each row, also where it is constant."""
    return np.ascontiguousarray(lane) if is_constant(lane) else lane
