"""Arrays for the tests of kernels: integers of all sizes, and the ways in which arrays lie in memory."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

JUNK = 77  # what output arrays hold before a kernel writes to them

LEAST, GREATEST = -(2**63), 2**63 - 1
NUMBERS = (
    st.integers(-2, 2) | st.sampled_from([LEAST, LEAST + 1, GREATEST - 1, GREATEST]) | st.integers(LEAST, GREATEST)
)


def plain(array: np.ndarray) -> np.ndarray:
    return array


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def spread(array: np.ndarray) -> np.ndarray:
    """Every other cell of a larger array."""
    cells = np.full((*array.shape[:-1], 2 * array.shape[-1]), JUNK, array.dtype)
    cells[..., ::2] = array
    return cells[..., ::2]


def backward(array: np.ndarray) -> np.ndarray:
    """Last cell first, with negative strides; columns first, where there are two dimensions."""
    return np.asfortranarray(array[..., ::-1])[..., ::-1]


def constant(array: np.ndarray) -> np.ndarray:
    """A single cell (one for each lane) seen through stride 0, where all rows are equal."""
    if not is_constant(array):
        return array
    cells = array[..., :1].copy()
    return as_strided(cells, array.shape, (*cells.strides[:-1], 0))


def is_constant(array: np.ndarray) -> bool:
    return array.shape[-1] > 0 and bool((array == array[..., :1]).all())


WRITABLE = st.sampled_from([plain, spread, backward, constant])
LAYOUTS = WRITABLE | st.just(read_only)
FLAGS = st.integers(0, 1)


def lane(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def flags(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint8)


def index(values: list[int]) -> np.ndarray:
    return np.array(values, np.int32)


def sorted_lanes() -> st.SearchStrategy[list[int]]:
    """Ascending keys, in runs of a few to many rows."""
    run = st.tuples(NUMBERS | st.integers(0, 30), st.integers(1, 3) | st.integers(1, 40))
    return st.lists(run, max_size=25).map(lambda runs: sorted(key for key, rows in runs for _ in range(rows)))


LIMITS = st.lists(st.integers(1, 3) | st.integers(1, 70), min_size=1, max_size=5)
STRINGS = st.binary(max_size=30)


def offsets_of(strings: list[bytes], first: int = 0) -> np.ndarray:
    return lane([*accumulate(map(len, strings), initial=first)])


def bytes_of(strings: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(strings), np.uint8)  # read-only, as Arrow's buffers are
