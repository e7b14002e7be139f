"""The spine: a trace's batches, merged a little at a time so that there are always few of them.

In the order of time, a spine is a list of batches, old and large ones first. Two neighbours of similar size are
merged, as a merge sort of the whole sequence would do, but each insertion does only a share of the work.

**Levels.** A batch lies at a level: the batches at level k have at most `HEAD << k` rows. A level holds
nothing, one batch, or two batches that are being merged; older batches lie at higher levels. A merged batch that is
too large for its level moves up to the next level, where it starts a merge with the batch that is already there. A
merged batch that fits stays, and moves down while the levels below are vacant: as updates cancel, the spine shrinks.

**Fuel.** Inserting n rows, counted as the capacity of their level, gives `effort` times as many rows of work
to every merge in progress. A merge at level k moves at most 2 * (HEAD << k) rows, and the next batch arrives
at level k after about HEAD << k rows were inserted: with an effort of 4 or more, merges are complete before
their level is needed again, except for a small remainder that is then finished at once. `EFFORT` lists the
three efforts of the paper's figure 6e. With more effort, merges finish sooner after they start: there are fewer
batches to read, but insertions take longer.

**Small batches** count as HEAD rows: they are merged at once with the batch at level 0. That moves at most 2
* HEAD rows and is cheaper than keeping track of them. **Tiny batches**, of at most half as many rows, wait until there
are `RECENT` of them, or HEAD rows, and are then joined: a merge costs more than reading a few more batches.

**Large batches** go directly to their level. The batches below are merged into one first, which is at most about
twice as large as the new batch.

**The memtable**, if programs write the trace (`ikebana.trace.memtable`), has the newest rows. They become a batch when
it is full, and before any other batch is inserted.

**Empty batches** move the upper frontier and are not stored: the description of the next batch starts where the
last stored one ended.

**Compaction.** A merge advances times to the frontier `since`, as it is when the merge starts. The owner of the spine
sets `since` to the meet of all readers' frontiers before each call that may start a merge.

Invariants: each level has at most two batches, and at most `RECENT` - 1 tiny batches wait, so that there are at most
2 + 2*log2(updates) + RECENT - 1 batches; descriptions are contiguous; an insertion of n rows moves at most
`most_work(n, effort, levels)` rows: a constant times n (or HEAD, if n is smaller) times the number of levels.

Cost of an insertion: about 15 ns for each row moved, and some tens of microseconds for every merge that gets fuel.

Not guaranteed: that history is compacted soon after `since` advances. A batch is compacted when it is merged next, and
a large batch is merged only when newer batches have grown to its size.
"""

from __future__ import annotations

from collections.abc import Iterator

from ikebana.time import Antichain
from ikebana.trace.batch import StoredBatch
from ikebana.trace.description import Description
from ikebana.trace.memtable import Memtable
from ikebana.trace.merge import Merge
from ikebana.trace.time_tables import advanced
from ikebana.trace.updates import Updates, consolidate

HEAD = 256
"""The capacity of level 0, in rows."""

RECENT = 8
"""As soon as this many tiny batches wait, they are joined."""

EFFORT = {"eager": 32, "default": 8, "lazy": 4}
"""Rows of work given to each merge in progress for each row inserted."""

Slot = StoredBatch | Merge | None


class Spine:
    """The batches of one trace."""

    def __init__(self, lower: Antichain, effort: str = "default") -> None:
        self.upper = lower
        self._stored_upper = self.lower = lower  # the upper frontier of the last stored batch
        self._effort = EFFORT[effort]
        self.since = lower
        self.rows_moved = 0  # by all merges up to now
        self._levels: list[Slot] = []
        self._recent: list[StoredBatch] = []  # tiny batches, newer than all batches at levels
        self._version = 0  # of the batches without the memtable
        self.memtable: Memtable | None = None

    # Reading.

    def batches(self) -> list[StoredBatch]:
        """Return the batches, oldest first. The inputs of a merge are listed until it is complete."""
        return [*self._settled_batches(), *self._memtable_batches()]

    def _settled_batches(self) -> list[StoredBatch]:
        return [*(batch for slot in reversed(self._levels) for batch in _batches(slot)), *self._recent]

    def _memtable_batches(self) -> list[StoredBatch]:
        """Return the rows of the memtable as a batch, if there are any."""
        if self.memtable is None or not len(self.memtable):
            return []
        return [self.memtable.batch(Description(self._stored_upper, self.upper, self.lower))]

    def address(self) -> int:
        """Return the address by which programs read and write the trace, valid until the spine changes."""
        assert self.memtable is not None
        return self.memtable.address(self._settled_batches, self._version)

    @property
    def levels(self) -> int:
        """The number of levels."""
        return len(self._levels)

    @property
    def nbytes(self) -> int:
        """The number of bytes that the batches take, without the unfinished output of merges."""
        held = sum(batch.nbytes for batch in self._settled_batches())
        return held if self.memtable is None else held + self.memtable.nbytes

    def __len__(self) -> int:
        """The number of stored updates."""
        return sum(map(len, self.batches()))

    # Writing.

    def insert(self, batch: StoredBatch) -> None:
        """Append the next batch; its lower frontier must be the upper frontier of the spine."""
        if not len(batch):
            self.upper = batch.description.upper
            return
        self.spill()
        self._insert(batch)

    def spill(self) -> None:
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

    def _insert(self, batch: StoredBatch) -> None:
        self._version += 1
        self.upper = batch.description.upper
        is_tiny = 2 * len(batch) <= HEAD
        if not is_tiny or sum(map(len, self._recent)) + len(batch) > HEAD:
            self._store_recent()
        d = batch.description
        batch = batch.described(Description(self._stored_upper, d.upper, d.since))
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
        """Return a few small batches as one, compacted."""
        updates = Updates.concat([batch.gather() for batch in batches])
        self.rows_moved += len(updates)
        if self.since:
            updates = updates.with_times(advanced(updates.times, self.since))
        description = Description(batches[0].description.lower, batches[-1].description.upper, self.since)
        return StoredBatch.of(consolidate(updates), description)

    def _store(self, batch: StoredBatch) -> None:
        """Place a batch that is newer than all batches at levels, and give fuel to the merges in progress."""
        level = level_of(len(batch))
        self._fuel(self._effort * (HEAD << level))
        self._roll_up(level)
        self._put(batch, level)
        if level == 0:
            self._complete(0)
        self._settle()

    def _fuel(self, fuel: int) -> None:
        """Give fuel to every merge in progress, lowest level first, and complete the merges that are done."""
        for level in range(len(self._levels)):
            slot = self._levels[level]
            if isinstance(slot, Merge):
                self._work(slot, fuel)
                if not slot.remaining:
                    self._complete(level)

    def _roll_up(self, level: int) -> None:
        """Vacate all levels below `level`, and make room at `level` for a batch newer than all stored ones."""
        carried: StoredBatch | None = None
        below = 0
        while below < min(level, len(self._levels)):  # completing a merge may add a level
            if carried is not None:
                self._put(carried, below)
            carried = self._take(below)
            below += 1
        if carried is None:
            return
        vacant = level >= len(self._levels) or self._levels[level] is None
        if vacant and len(carried) > HEAD << level:
            self._put(carried, level + 1)
        else:
            self._put(carried, level)
            self._complete(level)

    def _put(self, batch: StoredBatch, level: int) -> None:
        """Place a batch newer than all at or above `level`; start a merge if there is a batch at `level`."""
        while len(self._levels) <= level:
            self._levels.append(None)
        self._complete(level)
        slot = self._levels[level]
        self._levels[level] = batch if slot is None else self._merge(slot, batch)

    def _complete(self, level: int) -> None:
        """Finish the merge at a level, if any; the result stays if it fits, or moves up."""
        if isinstance(self._levels[level], Merge):
            batch = self._take(level)
            if batch is not None and len(batch) > HEAD << level:
                self._put(batch, level + 1)
            else:
                self._levels[level] = batch

    def _take(self, level: int) -> StoredBatch | None:
        """Remove the content of a level, and return it as one batch."""
        slot, self._levels[level] = self._levels[level], None
        if not isinstance(slot, Merge):
            return slot
        while slot.remaining:  # once, unless the merge detects a collision and starts over
            self._work(slot, slot.remaining)
        return slot.finish()

    def _settle(self) -> None:
        """Drop vacant levels at the top, and move the topmost batch down to the lowest vacant level that fits."""
        while self._levels:
            top = self._levels[-1]
            if top is None:
                self._levels.pop()
            elif isinstance(top, Merge) or len(self._levels) == 1:
                return
            elif self._levels[-2] is None and len(top) <= HEAD << (len(self._levels) - 2):
                self._levels[-2:] = [top]
            else:
                return

    def _merge(self, older: Slot, newer: StoredBatch) -> Merge:
        assert older is not None and not isinstance(older, Merge)
        return Merge(older, newer, self.since)

    def _work(self, merge: Merge, fuel: int) -> None:
        self.rows_moved += merge.work(fuel)


def level_of(rows: int) -> int:
    """Return the lowest level with the capacity for a batch of `rows` rows.

    >>> level_of(1), level_of(HEAD), level_of(HEAD + 1), level_of(4 * HEAD)
    (0, 0, 1, 2)
    """
    return max(0, (rows - 1).bit_length() - (HEAD - 1).bit_length())


def most_work(rows: int, effort: str, levels: int) -> int:
    """Return an upper bound of the rows moved by inserting `rows` rows into a spine with `levels` levels.

    Fuel is given for the capacity of the batch's level, which is less than twice its rows. Vacating the
    levels below and finishing the merge at its own level moves at most twelve times that capacity.
    """
    return (EFFORT[effort] * max(1, levels) + 12) * 2 * max(rows, HEAD)


def _batches(slot: Slot) -> Iterator[StoredBatch]:
    if isinstance(slot, Merge):
        yield slot.older
        yield slot.newer
    elif slot is not None:
        yield slot
