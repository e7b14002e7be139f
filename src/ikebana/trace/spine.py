"""The spine: a trace's batches, merged a little at a time so that there are always few of them.

In the order of time, a spine is a list of batches, old and large ones first. Two neighbours of similar size are
merged, as a merge sort of the whole sequence would do, but each insertion does only a share of the work.

**Levels.** A batch lies at a level; the capacity of level k is C(k) = `HEAD << k` rows. A level holds at most two
batches; older batches lie at higher levels. Two batches at a level are merged. A batch that is too large for its level
moves up as soon as the level above has room; until then it waits, and one newer batch may lie beside it. A merged batch
that fits stays. If it is the topmost batch, it moves down while the levels below are vacant: as updates cancel, the
spine shrinks.

**Fuel.** What an insertion does for a merge at level k is in proportion to the rows inserted: as many rows as the
merge needs to be complete in time, at a steady pace, and at least `effort` rows for each row inserted. The level is
needed when the level below holds a batch that waits and would get a third batch. These three have more than C(k-1) +
2 C(k-2) = C(k) rows. So if the levels below hold r rows, C(k) - r rows can be inserted before the level is needed, and
an insertion of n rows moves a fraction n / (C(k) - r) of the rows that remain. `EFFORT` lists the three efforts of the
paper's figure 6e. With more effort, merges finish sooner after they start: there are fewer batches to read, but
insertions differ more in how long they take.

**Small batches** count as HEAD rows: they are merged at once with the batch at level 0. That moves at most 2
* HEAD rows and is cheaper than keeping track of them. **Tiny batches**, of at most half as many rows, wait until there
are `RECENT` of them, or HEAD rows, and are then joined: a merge costs more than reading a few more batches.

**Large batches** go directly to their level. To make room, a merge at that level is completed, and the batches at the
levels below are merged with the newest batch there, at once: that moves some rows for each row of the new batch.

**Unread batches.** A trace in a loop gets a batch in every round, and many are not read before the loop is done. Such a
spine keeps the batches that nobody has read as they are, up to `MOST_UNREAD` rows, and joins them in one step when the
trace is read or `store_unread` is called: instead of once for each level, rows move once.

**The memtable**, if programs write the trace (`ikebana.trace.memtable`), has the newest rows. They become a batch when
it is full, and before any other batch is inserted.

**Spilled batches.** If the worker has a directory for that, large batches are in mapped files
(`ikebana.encoding.spill_files`): the output of merges from the start, others when they are inserted.

**Empty batches** move the upper frontier and are not stored: the description of the next batch starts where the
last stored one ended.

**Compaction.** A merge advances times to the frontier `since`, as it is when the merge gets its first fuel: with the
next insertion, by when readers have usually passed the times of both batches. The owner of the spine sets `since` to
the meet of all readers' frontiers before each call that may give fuel to a merge.

**Idle time.** `merge_some` does work that no insertion has to wait for: it continues merges in progress; it merges a
batch that has shrunk so much that it fits into the level of its newer neighbour; it merges a batch with its older
neighbour if the batch retracts as many rows as one in `COMPACT_FROM` of the neighbour's; and it rewrites a batch,
compacted, if at least one in `COMPACT_FROM` of its rows is at a time that becomes equal to the time of more rows. (The
last two are decided by a sample.) It ends: merging leaves fewer batches; and rows whose times have become equal do not
count again. In a trace that only grows, it does no more than insertions would do.

Invariants: each level has at most two batches, and at most `RECENT` - 1 tiny batches wait, so that there are at most
2 + 2*log2(updates) + RECENT - 1 batches; descriptions are contiguous; an insertion of n rows moves at most
`most_work(n, effort, levels)` rows: a constant times n (or HEAD, if n is smaller) times the number of levels.

Why the work is bounded. Let r be the rows below level k.

1. While a merge at level k is in progress, r < C(k), since fuel completes the merge before r reaches C(k).
2. When a merge at level k starts, r <= C(k) / 2. Its newer batch has just left level k-1. Either a merge there was
   complete, and r < C(k-1) by (1); or the batch had waited for a merge at level k: then r was less than C(k) by (1),
   and more than C(k-1) of these rows have left; or room was made for a large batch of r <= C(k-1) rows.
3. A batch at level k has at most 4/3 C(k) rows, and a merge at most 7/3 C(k), since it starts only if the older batch
   fits. Of a merge at level k-1, a batch of at most 7/6 C(k) rows moves up. If room is made at level k-1, the rows
   below it, at most 7/6 C(k-1) + 1/2 C(k-1) by (1), are merged with a batch that fits: at most 4/3 C(k) in total.
4. So a merge starts with at most 14/3 rows to move for each row that can be inserted before its level is needed, and a
   steady pace keeps this ratio: fuel is at most 14/3 n, or the effort.

Cost of an insertion: about 15 ns for each row moved, and some tens of microseconds for every merge that gets fuel.

Not guaranteed: that history is compacted soon after `since` advances. A batch is compacted when it is merged next, and
a large batch is merged only when newer batches have grown to its size, unless there is idle time.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ikebana.encoding.lanes import Array
from ikebana.encoding.spill_files import SpillFiles
from ikebana.time import Antichain
from ikebana.trace.batch import StoredBatch
from ikebana.trace.description import Description
from ikebana.trace.memtable import Memtable
from ikebana.trace.merge import MOST_AT_ONCE, Merge, nothing_after, spilled
from ikebana.trace.time_tables import advanced, compacted_times
from ikebana.trace.updates import consolidate_all

HEAD = 256
"""The capacity of level 0, in rows."""

RECENT = 8
"""As soon as this many tiny batches wait, they are joined."""

EFFORT = {"eager": 16, "default": 4, "lazy": 2}
"""The least number of rows of work given to each merge in progress for each row inserted."""

MOST_UNREAD = 1 << 22
"""As soon as unread batches have more rows, they are joined: that takes some tenths of a second."""

COMPACT_FROM = 8
"""In idle time, a batch is compacted if one in this number of its rows may be added to another row."""

SAMPLE = 4096
"""How many rows of a batch are looked at to decide whether to compact it."""


class Level:
    """Up to two batches, the older one first, and their merge if it is in progress."""

    __slots__ = ("batches", "merge")

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.merge: Merge | None = None

    @property
    def has_room(self) -> bool:
        return len(self.batches) < 2

    def __len__(self) -> int:
        """The number of rows."""
        return sum(map(len, self.batches))


class Spine:
    """The batches of one trace."""

    def __init__(self, lower: Antichain, effort: str = "default", spill: SpillFiles | None = None) -> None:
        """`spill` is where large batches are; without it, all batches are in memory."""
        self.upper, self._spill = lower, spill
        self.dimensions = lower.dimensions or 1  # of times
        self._is_in_loop = self.dimensions > 1
        self._stored_upper = lower  # the upper frontier of the last stored batch
        self._effort = EFFORT[effort]
        self.since = lower
        self.rows_moved = 0  # by all merges up to now
        self._levels: list[Level] = []
        self._recent: list[StoredBatch] = []  # tiny batches, newer than all batches at levels
        self._unread: list[StoredBatch] = []  # newer than all others
        self._unread_rows = 0
        self._compaction: Merge | None = None  # of a batch at a level with nothing, in idle time
        self._version = 0  # of the batches without the memtable
        self.memtable: Memtable | None = None

    # Reading.

    def batches(self) -> list[StoredBatch]:
        """Return the batches, oldest first. The inputs of a merge are listed until it is complete."""
        self.store_unread()
        return [*self._settled_batches(), *self._memtable_batches()]

    def _settled_batches(self) -> list[StoredBatch]:
        return [*(batch for level in reversed(self._levels) for batch in level.batches), *self._recent]

    def _memtable_batches(self) -> list[StoredBatch]:
        """Return the rows of the memtable as a batch, if there are any."""
        if self.memtable is None or not len(self.memtable):
            return []
        return [self.memtable.batch(Description(self._stored_upper, self.upper, Antichain.minimum(self.dimensions)))]

    def address(self) -> int:
        """Return the address by which programs read and write the trace, valid until the spine changes."""
        assert self.memtable is not None
        self.store_unread()
        return self.memtable.address(self._settled_batches, self._version)

    @property
    def levels(self) -> int:
        """The number of levels."""
        return len(self._levels)

    @property
    def nbytes(self) -> int:
        """The number of bytes that the batches take, without the unfinished output of merges."""
        held = sum(batch.nbytes for batch in (*self._settled_batches(), *self._unread))
        return held if self.memtable is None else held + self.memtable.nbytes

    @property
    def mapped_bytes(self) -> int:
        """How many of these bytes are in mapped files."""
        return sum(batch.mapped_bytes for batch in (*self._settled_batches(), *self._unread))

    def __len__(self) -> int:
        """The number of stored updates."""
        settled = sum(map(len, (*self._settled_batches(), *self._unread)))
        return settled if self.memtable is None else settled + len(self.memtable)

    # Writing.

    def insert(self, batch: StoredBatch) -> None:
        """Append the next batch; its lower frontier must be the upper frontier of the spine."""
        if not len(batch):
            self.upper = batch.description.upper
            return
        self.flush_memtable()
        if not self._is_in_loop:
            self._insert(batch)
            return
        self._unread.append(batch)
        self._unread_rows += len(batch)
        self.upper = batch.description.upper
        if self._unread_rows > MOST_UNREAD:
            self.store_unread()

    def store_unread(self) -> None:
        """Place the batches that nobody has read, joined."""
        if self._unread:
            unread, self._unread, self._unread_rows = self._unread, [], 0
            upper = self.upper
            self._insert(unread[0] if len(unread) == 1 else self._joined(unread))
            self.upper = upper

    def flush_memtable(self) -> None:
        """Turn the rows of the memtable into a batch."""
        batch = self.take_memtable()
        if batch is not None:
            self._insert(batch)

    def take_memtable(self) -> StoredBatch | None:
        """Remove the rows of the memtable, and return them."""
        for batch in self._memtable_batches():
            assert self.memtable is not None
            self.memtable.clear()
            return batch
        return None

    def _outdate_table(self) -> None:
        """Note that the batches change: programs need another table, and the present one must not hold on to them."""
        self._version += 1
        if self.memtable is not None:
            self.memtable.release()

    def _insert(self, batch: StoredBatch) -> None:
        self._outdate_table()
        self.upper = batch.description.upper
        is_tiny = 2 * len(batch) <= HEAD
        if not is_tiny or sum(map(len, self._recent)) + len(batch) > HEAD:
            self._store_recent()
        d = batch.description
        batch = spilled(batch, self._spill).described(Description(self._stored_upper, d.upper, d.since))
        self._stored_upper = d.upper
        if is_tiny:
            self._recent.append(batch)
            if len(self._recent) == RECENT:
                self._store_recent()
        else:
            self._store(batch)

    def _store_recent(self) -> None:
        """Join the tiny batches into one, and store it."""
        recent, self._recent = self._recent, []
        if not recent:
            return
        batch = recent[0] if len(recent) == 1 else self._joined(recent)
        if len(batch):
            self._store(batch)
        else:
            self._stored_upper = batch.description.lower

    def _joined(self, batches: list[StoredBatch]) -> StoredBatch:
        """Return a few batches as one, compacted."""
        parts = [batch.gather() for batch in batches]
        self.rows_moved += sum(map(len, parts))
        if self.since:
            parts = [part.with_times(advanced(part.times, self.since)) for part in parts]
        description = Description(batches[0].description.lower, batches[-1].description.upper, self.since)
        return StoredBatch.of(consolidate_all(parts), description)

    def _store(self, batch: StoredBatch) -> None:
        """Give fuel to the merges in progress, and place a batch that is newer than all batches at levels."""
        level = level_of(len(batch))
        self._fuel(max(len(batch), HEAD))
        self._roll_up(level)
        if level == 0:
            batch = self._merged_with_newest(0, batch)
        self._put(batch, level)
        self._settle()
        self._give_up_compaction()

    # Levels.

    def _roll_up(self, level: int) -> None:
        """Vacate all levels below `level`: merge their batches with the newest batch at `level`."""
        carried: StoredBatch | None = None
        for below in self._levels[:level]:
            for batch in reversed(self._taken(below)):
                carried = batch if carried is None else self._merged(batch, carried)
        if carried is not None:
            self._put(self._merged_with_newest(level, carried), level)

    def _merged_with_newest(self, level: int, batch: StoredBatch) -> StoredBatch:
        """Merge a batch at once with the newest batch at a level, unless that is too large for the level."""
        if level >= len(self._levels):
            return batch
        self._complete(level)
        batches = self._levels[level].batches
        if batches and len(batches[-1]) <= HEAD << level:
            return self._merged(batches.pop(), batch)
        return batch

    def _put(self, batch: StoredBatch, level: int) -> None:
        """Place a batch newer than all at or above `level`; start a merge if that is possible."""
        while len(self._levels) <= level:
            self._levels.append(Level())
        here = self._levels[level]
        if not here.has_room:
            self._make_room(level)
        here.batches.append(batch)
        oldest = here.batches[0]
        if oldest is not batch and len(oldest) <= HEAD << level:
            here.merge = self._merge(oldest, batch)
        self._move_up(level)

    def _make_room(self, level: int) -> None:
        """Let the older of two batches at a level leave the level, or complete their merge."""
        if self._levels[level].merge is not None:
            self._complete(level)
        else:
            self._make_room(level + 1)  # for which the older batch waits
            self._move_up(level)

    def _move_up(self, level: int) -> None:
        """Move batches that are too large for a level up, as far as there is room; then those that wait below."""
        here = self._levels[level]
        while here.merge is None and here.batches and len(here.batches[0]) > HEAD << level:
            if level + 1 < len(self._levels) and not self._levels[level + 1].has_room:
                return
            self._put(here.batches.pop(0), level + 1)
            if level:
                self._move_up(level - 1)

    def _complete(self, level: int) -> None:
        """Finish the merge at a level, if any."""
        here = self._levels[level]
        if here.merge is not None:
            here.batches = self._taken(here)
            self._move_up(level)
            if level:
                self._move_up(level - 1)

    def _taken(self, level: Level) -> list[StoredBatch]:
        """Remove the batches of a level, merged if they were being merged."""
        batches, merge = level.batches, level.merge
        level.batches, level.merge = [], None
        return batches if merge is None else [self._finished(merge)]

    def _settle(self) -> None:
        """Drop vacant levels at the top, and move the topmost batch down to the lowest vacant level that fits."""
        while self._levels:
            top = self._levels[-1]
            if not top.batches:
                self._levels.pop()
            elif not top.has_room or len(self._levels) == 1:
                return
            elif not self._levels[-2].batches and len(top) <= HEAD << (len(self._levels) - 2):
                self._levels[-2:] = [top]
            else:
                return

    # Merging.

    def _fuel(self, rows: int) -> None:
        """Continue every merge in progress before an insertion, lowest level first; see **Fuel** above."""
        below = 0
        for number, level in enumerate(self._levels):  # completing a merge may add a level
            least = self._effort * rows
            while level.merge is not None:
                remaining, room = level.merge.remaining, (HEAD << number) - below
                in_time = remaining if room <= rows else -(-remaining * rows // room)
                least -= self._work(level.merge, max(least, in_time))
                if level.merge.remaining:
                    break
                self._complete(number)
                below = _rows(self._levels[:number])
            below += len(level)

    def _merge(self, older: StoredBatch, newer: StoredBatch) -> Merge:
        """Begin to merge two batches."""
        return Merge(older, newer, self._spill)

    def _merged(self, older: StoredBatch, newer: StoredBatch) -> StoredBatch:
        """Merge two batches at once."""
        return self._finished(self._merge(older, newer))

    def _finished(self, merge: Merge) -> StoredBatch:
        """Finish a merge at once."""
        while merge.remaining:
            self._work(merge, MOST_AT_ONCE)
        return merge.begin(self.since).finish()

    def _work(self, merge: Merge, fuel: int) -> int:
        moved = merge.begin(self.since).work(fuel)
        self.rows_moved += moved
        return moved

    # Idle time.

    def merge_some(self, rows: int) -> bool:
        """Move up to about `rows` rows in idle time. Return whether there was anything to do."""
        self.store_unread()
        has_work = self._merge_some(rows)
        if has_work:
            self._outdate_table()
        return has_work

    def _merge_some(self, rows: int) -> bool:
        for number, level in enumerate(self._levels):
            if level.merge is not None:
                self._work(level.merge, rows)
                if not level.merge.remaining:
                    self._complete(number)
                    self._settle()
                return True
        return self._join_shrunk() or self._join_retracting() or self._compact(rows)

    def _join_shrunk(self) -> bool:
        """Start to merge a batch with its newer neighbour if it fits into the neighbour's level.

        No merge is in progress, so each level has at most one batch. The merge is placed one level above the neighbour:
        the rows below are at most half of that level's capacity.
        """
        newer = None
        for number, level in enumerate(self._levels):
            if newer is not None and level.batches and len(level) <= HEAD << newer:
                self._put(level.batches.pop(), newer + 1)
                self._put(self._levels[newer].batches.pop(), newer + 1)
                self._settle()
                return True
            newer = number if level.batches else newer
        return False

    def _join_retracting(self) -> bool:
        """Start to merge a batch with its older neighbour if it retracts many rows: they probably cancel.

        No merge is in progress, so each level has at most one batch. The merge is placed at the level of the older
        batch; what remains below is less than the capacity of the level that the newer batch has left.
        """
        newer = None
        for number, level in enumerate(self._levels):
            if not level.batches:
                continue
            if newer is not None and COMPACT_FROM * _retractions(self._levels[newer].batches[0]) >= len(level):
                self._put(self._levels[newer].batches.pop(), number)
                self._settle()
                return True
            newer = number
        return False

    def _compact(self, rows: int) -> bool:
        """Rewrite the oldest batch that is worth it; no merge is in progress. Return whether there is one."""
        self._give_up_compaction()
        if self._compaction is None:
            stored = (batch for level in reversed(self._levels) for batch in level.batches)
            batch = next(filter(self._is_worth_compacting, stored), None)
            if batch is None:
                return False
            self._compaction = self._merge(batch, nothing_after(batch))
        self._work(self._compaction, rows)
        if not self._compaction.remaining:
            self._replace(self._compaction.older, self._compaction.finish())
            self._compaction = None
        return True

    def _give_up_compaction(self) -> None:
        """Give up rewriting a batch that is being merged by now, which compacts it as well."""
        if self._compaction is not None:
            batch = self._compaction.older
            if not any(level.merge is None and batch in level.batches for level in self._levels):
                self._compaction = None

    def _is_worth_compacting(self, batch: StoredBatch) -> bool:
        """Whether enough rows are at times that compaction makes equal to the times of more rows."""
        if len(batch.times) == 1 or batch.description.since == self.since:
            return False
        table, position = compacted_times(batch.times, self.since)
        if len(table) == len(batch.times):
            return False
        sample = _sample(batch.updates.tix)
        most = np.zeros(len(table), np.int64)
        np.maximum.at(most, position, np.bincount(sample, minlength=len(batch.times)))
        return bool(COMPACT_FROM * (len(sample) - most.sum()) >= len(sample))

    def _replace(self, batch: StoredBatch, compacted: StoredBatch) -> None:
        """Replace a batch by the same batch, compacted."""
        for level in self._levels:
            if batch in level.batches:
                level.batches = [compacted]
        self._settle()


def level_of(rows: int) -> int:
    """Return the lowest level with the capacity for a batch of `rows` rows.

    >>> level_of(1), level_of(HEAD), level_of(HEAD + 1), level_of(4 * HEAD)
    (0, 0, 1, 2)
    """
    return max(0, (rows - 1).bit_length() - (HEAD - 1).bit_length())


def most_work(rows: int, effort: str, levels: int) -> int:
    """Return an upper bound of the rows moved by inserting `rows` rows into a spine with `levels` levels.

    At each level at most two merges get fuel: one, and the next one if that is complete. Either gets the rows that its
    pace demands, at most 14/3 for each row inserted, or the rows of the effort, which are counted for both together.
    Making room for a large batch moves at most 20 times the capacity of its level, which is less than twice its rows.
    """
    return (levels * (EFFORT[effort] + 10) + 40) * max(rows, HEAD)


def _sample(lane: Array) -> Array:
    """Return about `SAMPLE` rows of a lane, as runs of neighbours: single rows at equal distances may be all alike."""
    if len(lane) <= SAMPLE:
        return lane
    run = 64
    starts = np.linspace(0, len(lane) - run, SAMPLE // run).astype(np.int64)
    return lane[(starts[:, None] + np.arange(run)).ravel()]


def _retractions(batch: StoredBatch) -> int:
    """Return the number of rows with a negative diff, estimated from a sample."""
    sample = _sample(batch.updates.diffs[0])
    return int((sample < 0).sum()) * len(batch) // max(1, len(sample))


def _rows(levels: Iterable[Level]) -> int:
    """Return the number of rows at some levels."""
    return sum(map(len, levels))
