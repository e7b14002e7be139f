"""A merge of two neighbouring batches, done a bounded number of rows at a time.

The output has the updates of both batches, with times advanced to the frontier `since`, before which no reader reads;
updates that cancel are removed. `begin` fixes that frontier: readers have usually advanced by the time a merge is given
work, and the fewer times its rows have, the faster they are merged. `work` takes rows from the inputs until its fuel
is spent, and may be called again. The inputs stay readable until the output is complete and replaces them.

Neighbours whose keys do not overlap, as those of rows that arrive in the order of their keys, are copied one after the
other, without comparing rows.

Large outputs are written to spill files (`ikebana.encoding.spill_files`) if the worker has a directory for them;
`spilled` moves a batch there that was not written by a merge.

Cost: starting a merge takes a pass over the inputs' tables of distinct times. If lanes are hashes, each step verifies
the data of rows with equal lanes. A collision that this detects makes the merge start over, with all collisions known;
so that happens at most once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ikebana.encoding.lanes import Lane, constant, is_constant, materialized
from ikebana.encoding.payload import PayloadMerge
from ikebana.encoding.schema import Schema
from ikebana.encoding.spaces import IN_MEMORY
from ikebana.encoding.spill_files import SpillFiles
from ikebana.kernels import merge_rows, merge_timed, merge_untimed, merge_untimed_sums, union_times
from ikebana.kernels.layout import AT_A, AT_B, FINAL, MERGE_CELLS, PAIRS, VARIED, WRITTEN
from ikebana.time import Antichain
from ikebana.trace import time_tables
from ikebana.trace.batch import BatchBuilder, LaneSlice, StoredBatch
from ikebana.trace.description import Description
from ikebana.trace.updates import Updates, consolidate, idents, same_data, sort_updates

MOST_AT_ONCE = 1 << 20
"""A merge that is finished at once takes at most so many rows in a step, which bounds its working memory."""

Progress: TypeAlias = tuple[Lane, int, int, int, int]
"""What a kernel continues from: the state, the rows of both sides, how many it may take, and whether keys are exact."""

_NO_PAIRS = np.empty((2, 0), np.int64)
_NO_ROWS = np.empty(0, np.int64)


class Merge:
    """A merge of two batches, `older` and `newer`, in progress."""

    def __init__(self, older: StoredBatch, newer: StoredBatch, spill: SpillFiles | None = None) -> None:
        """`spill` is where the output is written if it is large; without it, the output is in memory."""
        self.older, self.newer, self._spill = older, newer, spill
        self._description: Description | None = None
        self._state = np.zeros(MERGE_CELLS, np.int64)

    def begin(self, since: Antichain) -> Merge:
        """Fix the frontier to which times are advanced, unless the merge has begun; required before any work."""
        if self._description is None:
            older, newer = self.older, self.newer
            self._description = Description(older.description.lower, newer.description.upper, since)
            union, self._older_rank, self._newer_rank = union_times(older.times, newer.times)
            self._times, self._compacted = time_tables.compacted_times(union, since)
            self._keeps_order = bool((self._compacted[1:] >= self._compacted[:-1]).all())
            has_collided = len(older.collided) or len(newer.collided)
            self._begin(np.union1d(older.collided, newer.collided) if has_collided else older.collided)
        return self

    def _begin(self, collided: Lane) -> None:
        older, newer, schema = self.older, self.newer, self.older.schema
        self._collided = collided
        self._idents = _common_idents(older, newer, collided) if len(collided) else None
        self._state = np.zeros(MERGE_CELLS, np.int64)
        space = IN_MEMORY if self._spill is None else self._spill.space_for(older.nbytes + newer.nbytes)
        self._space, self._builder = space, BatchBuilder(schema, self._times, len(self), collided, space)
        self._payload = PayloadMerge(older.payload, newer.payload, space) if schema.hashed else None
        self._src = space.empty(len(self)) if schema.hashed else constant(0, len(self))
        self._is_concatenation = _follow_each_other(older, newer) and self._idents is None

    def __len__(self) -> int:
        """The number of rows of both inputs: the total work, and an upper bound of the output's rows."""
        return len(self.older) + len(self.newer)

    @property
    def remaining(self) -> int:
        """The number of rows still to be taken."""
        return len(self) - int(self._state[AT_A] + self._state[AT_B])

    def work(self, fuel: int) -> int:
        """Take up to `fuel` rows from the inputs, and return how many were taken."""
        limit = min(fuel, self.remaining)
        if limit <= 0:
            return 0
        if self._is_concatenation:
            taken = self._copy(limit)
            return taken if taken == limit else taken + self._copy(limit - taken)
        pairs = np.empty((2, limit), np.int64) if self._payload else _NO_PAIRS
        final = int(self._state[FINAL])
        taken = self._take(limit, pairs)
        if self._payload:
            if not self._verified(pairs[:, : self._state[PAIRS]]):
                self._begin(_all_collisions(self.older, self.newer))
                return taken + self.work(fuel)
            self._payload.append(self._src[final : self._state[FINAL]])
        return taken

    def _take(self, limit: int, pairs: Lane) -> int:
        """Take up to `limit` rows from the inputs, list the pairs to verify, and return how many were taken."""
        older = self._window(self.older, int(self._state[AT_A]), limit, 0)
        newer = self._window(self.newer, int(self._state[AT_B]), limit, 1)
        progress = self._state, len(self.older), len(self.newer), limit, int(self.older.schema.key.exact)
        if self._idents is None and self.older.schema.names:
            if len(self._times) == 1:
                return self._take_untimed(older, newer, pairs, progress)
            if self._keeps_order and len(self._builder.out.diffs) == 1:
                return self._take_timed(older, newer, pairs, progress)
        ranks = self._older_rank, self._newer_rank, self._compacted
        return int(merge_rows(*older, *newer, *ranks, *self._builder.out, self._src, pairs, *progress))

    def _take_untimed(self, older: LaneSlice, newer: LaneSlice, pairs: Lane, progress: Progress) -> int:
        """Take rows if all times become one."""
        out, schema = self._builder.out, self.older.schema
        merged = (*_columns(out, schema), out.diffs, self._used_src)
        one, other = _columns(older, schema), _columns(newer, schema)
        if len(out.diffs) == 1:
            return int(merge_untimed(*one, older.diffs[0], *other, newer.diffs[0], *merged, pairs, *progress))
        return int(merge_untimed_sums(*one, older.diffs, *other, newer.diffs, *merged, pairs, *progress))

    def _take_timed(self, older: LaneSlice, newer: LaneSlice, pairs: Lane, progress: Progress) -> int:
        """Take rows if compaction keeps the order of times, and there is one diff lane."""
        out, schema = self._builder.out, self.older.schema
        times = self._compacted[self._older_rank][older.tix], self._compacted[self._newer_rank][newer.tix]
        one = (*_columns(older, schema), times[0], older.diffs[0])
        other = (*_columns(newer, schema), times[1], newer.diffs[0])
        merged = (*_columns(out, schema), out.tix, out.diffs, self._used_src)
        return int(merge_timed(*one, *other, *merged, pairs, *progress))

    @property
    def _used_src(self) -> Lane:
        """Where rows come from, if that is needed for payload."""
        return self._src if self.older.schema.hashed else _NO_ROWS

    def _copy(self, limit: int) -> int:
        """Copy up to `limit` rows of one of the inputs, whose keys are all beyond those of the rows copied before."""
        state, out, at = self._state, self._builder.out, int(self._state[FINAL])
        batch, cell, ranks = self.older, AT_A, self._older_rank
        if state[AT_A] == len(self.older):
            batch, cell, ranks = self.newer, AT_B, self._newer_rank
        start = int(state[cell])
        end = min(start + limit, len(batch))
        rows, window = slice(at, at + end - start), batch.window(start, end)
        out.key[rows], out.val[rows], out.diffs[:, rows] = window.key, window.val, window.diffs
        out.tix[rows] = self._compacted[ranks[0]]
        if self._payload:
            self._payload.append_range(int(batch is self.newer), start, end)
        varied = bool(state[VARIED]) or _differ(window.diffs, out.diffs[:, :1])
        state[cell], state[WRITTEN], state[FINAL], state[VARIED] = end, rows.stop, rows.stop, varied
        return end - start

    def finish(self) -> StoredBatch:
        """Return the merged batch; every row must have been taken."""
        assert self._description is not None
        payload = self._payload.finish() if self._payload else ()
        self._space.free(self._src)
        return self._builder.finish(int(self._state[FINAL]), payload, self._description, bool(self._state[VARIED]))

    def _window(self, batch: StoredBatch, start: int, rows: int, side: int) -> LaneSlice:
        window = batch.window(start, min(start + rows, len(batch)))
        if self._idents is None:
            return window
        return window._replace(ident=self._idents[side][start : start + rows])

    def _verified(self, pairs: Lane) -> bool:
        """Whether the rows of each pair, one of either side with equal lanes, have equal keys (and values)."""
        older_rows, newer_rows = pairs.min(axis=0), pairs.max(axis=0) - len(self.older)
        return bool(same_data(self.older.updates, older_rows, self.newer.updates, newer_rows).all())


def finished(merge: Merge) -> StoredBatch:
    """Finish a merge at once, and return the merged batch."""
    while merge.remaining:
        merge.work(MOST_AT_ONCE)
    return merge.finish()


def merged_at_once(batches: Sequence[StoredBatch], since: Antichain) -> StoredBatch:
    """Merge successive batches, at least one, into one with times advanced to `since`."""
    first, *others = batches
    if not others:
        return first.advanced(since) if len(first.times) == 1 else merged_at_once([first, nothing_after(first)], since)
    while len(batches) > 1:
        pairs = itertools.zip_longest(batches[::2], batches[1::2])
        batches = [one if other is None else finished(Merge(one, other).begin(since)) for one, other in pairs]
    return batches[0]


def nothing_after(batch: StoredBatch) -> StoredBatch:
    """Return an empty batch at no times, to merge a batch with."""
    end = Description(batch.description.upper, batch.description.upper, batch.description.since)
    return StoredBatch.of(consolidate(Updates.empty(batch.schema, batch.times.shape[1])), end)


def spilled(batch: StoredBatch, spill: SpillFiles | None) -> StoredBatch:
    """Return a batch that is in spill files if it is large enough for that, and not in mapped files yet."""
    if spill is None or batch.mapped_bytes or not spill.is_large(batch.nbytes):
        return batch
    return finished(Merge(batch, nothing_after(batch), spill).begin(batch.description.since))


def _columns(lanes: LaneSlice, schema: Schema) -> tuple[Lane, Lane]:
    """Return the lanes of key and value, with a cell for each row; a side without columns has the lane of the other."""
    if not schema.val.fields:
        key: Lane = materialized(lanes.key)
        return key, key
    val: Lane = materialized(lanes.val)
    return (materialized(lanes.key) if schema.key.fields else val), val


def _differ(diffs: Lane, expected: Lane) -> bool:
    """Whether the diff of any row is not the expected one."""
    return bool(((diffs[:, :1] if is_constant(diffs) else diffs) != expected).any())


def _follow_each_other(older: StoredBatch, newer: StoredBatch) -> bool:
    """Whether the keys of one batch are all less than those of the other, and none of their rows can be added up."""
    if not len(older) or not len(newer) or len(older.times) > 1 or len(newer.times) > 1:
        return False
    return bool(older.updates.key[-1] < newer.updates.key[0])


def _all_collisions(older: StoredBatch, newer: StoredBatch) -> Lane:
    both = sort_updates(Updates.concat([older.gather(), newer.gather()]))
    return both.collided


def _common_idents(older: StoredBatch, newer: StoredBatch, collided: Lane) -> tuple[Lane, Lane]:
    """Return idents for the rows of both batches: the rank of their data within each key lane with collisions."""
    lanes = np.zeros(len(older), np.int64), np.zeros(len(newer), np.int64)
    older_ranges, newer_ranges = older.seek(collided), newer.seek(collided)
    for a_start, a_end, b_start, b_end in zip(*older_ranges, *newer_ranges, strict=True):
        parts = [older.gather(np.arange(a_start, a_end)), newer.gather(np.arange(b_start, b_end))]
        lanes[0][a_start:a_end], lanes[1][b_start:b_end] = idents(parts)
    return lanes
