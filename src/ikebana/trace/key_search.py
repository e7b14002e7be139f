"""Searches in the key lane of a batch, faster the more often the batch is searched.

A batch never changes, so what helps to search its keys is computed once, as soon as it pays:

- a *sample*, every `SAMPLED`-th key, for searches in large batches: it is so small that it stays in the cache;
- a *filter* (`ikebana.kernels.filters`), if most of the keys that were sought are not in the batch. A change is sought
  in all batches of a trace, and most of its keys are in few of them.

Invariant: the result is the same as without sample and filter, except where the empty range of an absent key is.

Cost: the filter takes a byte for each row of the batch, and is filled when an eighth as many keys as the batch has
rows were sought: so it costs about as much as the searches up to then.
"""

from __future__ import annotations

import numpy as np

from ikebana.encoding.lanes import Array, Lane, held_bytes, is_constant
from ikebana.kernels import fill_filter, seek_filtered, seek_ranges, seek_sampled
from ikebana.kernels.layout import FILTERED, SAMPLED

SAMPLED_FROM = 1 << 21
"""Batches with fewer rows are sought without a sample of their keys: most of them stay in the cache anyway."""

_FEW_PROBES = 4096
"""A sample is taken if there is at least one probe for this many rows: for fewer probes, it would cost too much."""

FILTERED_FROM = 1 << 10
"""Batches with fewer rows are sought without a filter, and so are fewer keys."""

_ROWS_PER_PROBE = 8
"""A filter is filled when one key was sought for this many rows."""

_PROBES_PER_KEY = 4
"""A filter is used if at most one in this number of keys sought is in the batch."""


class KeySearch:
    """The sample and the filter of one batch, and how many keys were sought and found in it."""

    __slots__ = ("_filter", "_found", "_sample", "_sought")

    def __init__(self) -> None:
        self._sample: Lane | None = None
        self._filter: Array | None = None
        self._sought = self._found = 0

    @property
    def nbytes(self) -> int:
        """The number of bytes that sample and filter take."""
        return sum(held_bytes(lane) for lane in (self._sample, self._filter) if lane is not None)

    def ranges(self, lane: Lane, keys: Lane) -> tuple[Lane, Lane]:
        """Return where the rows of each key start and end in the lane of the batch; `keys` is ascending."""
        if len(lane) < FILTERED_FROM or len(keys) < FILTERED_FROM or is_constant(lane):
            return self._unfiltered(lane, keys)
        if self._filter is None and self._is_filter_worth_it(len(lane)):
            self._filter = np.zeros(-(-len(lane) // FILTERED), np.uint64)
            fill_filter(lane, self._filter)
        if self._filter is None or self._found * _PROBES_PER_KEY > self._sought:
            starts, ends = self._unfiltered(lane, keys)
        else:
            starts, ends = seek_filtered(lane, self._filter, keys)
        self._sought += len(keys)
        self._found += int(np.count_nonzero(ends - starts))
        return starts, ends

    def _is_filter_worth_it(self, rows: int) -> bool:
        """Whether enough keys were sought, and most of them were not found."""
        return self._sought * _ROWS_PER_PROBE >= rows and self._found * _PROBES_PER_KEY <= self._sought

    def _unfiltered(self, lane: Lane, keys: Lane) -> tuple[Lane, Lane]:
        rows = len(lane)
        is_worth_it = SAMPLED < rows // max(1, len(keys)) < _FEW_PROBES
        if not is_worth_it or rows < SAMPLED_FROM or is_constant(lane):
            return seek_ranges(lane, keys)
        if self._sample is None:
            self._sample = lane[::SAMPLED].copy()
        return seek_sampled(lane, self._sample, keys)
