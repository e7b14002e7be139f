"""Spaces: where the arrays of a batch are while a merge writes them, and afterwards.

A space hands out uninitialised arrays, which are then filled a little at a time, and cut to the length that was
needed. `IN_MEMORY` is the usual one; `ikebana.encoding.spill_files` has another one, in files.

Contract: an array is given back to the space that it is from, at most once: to `trimmed`, which returns the array to
use from then on, or to `free`. An array that nothing refers to is freed, too.

Cost: in memory, that of the allocation.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ikebana.encoding.lanes import Array, in_huge_pages, in_small_pages, trimmed

Shape = int | tuple[int, ...]


class Space(Protocol):
    """Where the arrays of a batch are."""

    @property
    def mapped_bytes(self) -> int:
        """The bytes of the trimmed arrays that are in mapped files."""
        ...

    def empty(self, shape: Shape, dtype: Any = np.int64) -> Any:
        """Return an uninitialised array. Its last dimension is the one that may be cut."""
        ...

    def trimmed(self, array: Array, rows: int) -> Any:
        """Return the first rows of an array of this space, or of a constant lane, contiguous; free the others."""
        ...

    def free(self, array: Array) -> None:
        """Free the contents of an array that is not used any more."""
        ...


class Memory:
    """Arrays in memory, as NumPy allocates them."""

    mapped_bytes = 0

    def empty(self, shape: Shape, dtype: Any = np.int64) -> Any:
        return in_small_pages(np.empty(shape, dtype))

    def trimmed(self, array: Array, rows: int) -> Any:
        return in_huge_pages(trimmed(array, rows))

    def free(self, array: Array) -> None:
        """NumPy frees it with its last reference."""


IN_MEMORY = Memory()
"""The space of batches that are not in files."""
