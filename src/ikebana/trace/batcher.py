"""The batcher: buffers updates, and seals those whose time has passed into a batch.

Invariants: every buffered update is at a time beyond the lower frontier. Sealing at `upper` takes exactly
the updates that are not beyond `upper`; they become a batch [lower, upper), and `upper` becomes the new lower
frontier.

Cost: appending is free; sealing sorts the updates that it takes. When the buffer has doubled since it was last
consolidated it is consolidated again, so an epoch in which updates cancel needs at most twice the memory of the updates
that remain. `seal_in_steps` sorts `RUN` rows at a time and merges the runs, so that the worker can do other work in
between: that takes up to twice as long in total.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import cached_property

from ikebana.encoding.schema import Schema
from ikebana.encoding.spill_files import SpillFiles
from ikebana.errors import TimeError
from ikebana.time import Antichain
from ikebana.trace import time_tables
from ikebana.trace.batch import StoredBatch
from ikebana.trace.description import Description
from ikebana.trace.merge import Merge, spilled
from ikebana.trace.updates import Sorted, Updates, check_times, consolidate, consolidate_all

CONSOLIDATE_FROM = 1 << 20
"""Buffers of fewer rows are not consolidated before they are sealed."""

RUN = 1 << 22
"""The number of rows that `seal_in_steps` sorts in a step: some tenths of a second."""


class Batcher:
    """Updates of one schema, waiting for their times to pass."""

    def __init__(self, schema: Schema, lower: Antichain, name: str, spill: SpillFiles | None = None) -> None:
        """`spill` is where large batches are; without it, they are in memory."""
        self.schema, self.lower, self.name, self._spill = schema, lower, name, spill
        self._dimensions = lower.dimensions or 1
        self._parts: list[Updates] = []
        self._rows = 0
        self._consolidate_at = CONSOLIDATE_FROM

    @cached_property
    def _nothing(self) -> Sorted:
        """No updates, in order. Most batchers of a new dataflow have not sealed anything when it answers."""
        return consolidate(Updates.empty(self.schema, self._dimensions))

    def __len__(self) -> int:
        """The number of buffered updates."""
        return self._rows

    def append(self, updates: Updates) -> None:
        """Buffer updates; their times must be beyond the lower frontier."""
        if not len(updates):
            return
        check_times(updates, self._dimensions, self.name)
        late = time_tables.beyond(updates.times, self.lower) == 0
        if late.any() and late[updates.tix].any():  # the table may have times of no row
            time = tuple(updates.times[updates.tix[late[updates.tix].argmax()]].tolist())
            raise TimeError(
                f"cannot add an update at {time} to {self.name!r}",
                detail=f"its frontier is {self.lower}, and {time} is not beyond it"
                if self.lower
                else "it is closed: its frontier is empty",
                hint="give updates at times beyond the frontier" if self.lower else "open a new input",
            )
        if self._rows > self._consolidate_at:
            self._set_buffer([consolidate_all(self._parts).updates])
            self._consolidate_at = max(CONSOLIDATE_FROM, 2 * self._rows)
        self._parts.append(updates)
        self._rows += len(updates)

    def seal(self, upper: Antichain) -> StoredBatch:
        """Return the batch of the updates at times in [lower, upper); the lower frontier becomes `upper`."""
        due, description = self._take_due(upper)
        if not due:
            return StoredBatch.of(self._nothing, description)
        return spilled(StoredBatch.of(consolidate_all(due), description), self._spill)

    def seal_in_steps(self, upper: Antichain) -> Generator[None, None, StoredBatch]:
        """Like `seal`, with a pause after about every `RUN` rows."""
        due, description = self._take_due(upper)
        if not due:
            return StoredBatch.of(self._nothing, description)
        runs: list[StoredBatch] = []
        for run in _runs(due):
            if runs:
                yield
            runs.append(spilled(StoredBatch.of(consolidate_all(run), description), self._spill))
        del due
        while len(runs) > 1:
            merged: list[StoredBatch] = []
            for at in range(0, len(runs) - 1, 2):
                merged.append((yield from self._merged(runs[at], runs[at + 1])))
                runs[at] = runs[at + 1] = merged[-1]  # frees the merged runs
            runs = merged + runs[2 * len(merged) :]
        return runs[0].described(description)

    def _merged(self, one: StoredBatch, other: StoredBatch) -> Generator[None, None, StoredBatch]:
        merge = Merge(one, other, self._spill).begin(one.description.since)
        while merge.remaining:
            merge.work(RUN)
            yield
        return merge.finish()

    def _take_due(self, upper: Antichain) -> tuple[list[Updates], Description]:
        """Take the updates at times in [lower, upper); the lower frontier becomes `upper`."""
        if not self.lower.precedes(upper):
            raise TimeError(
                f"cannot move the frontier of {self.name!r} to {upper}",
                detail=f"it is already {self.lower}, and frontiers only advance",
                hint="give a frontier whose elements are all beyond the current one",
            )
        description = Description(self.lower, upper, Antichain.minimum(self._dimensions))  # no time is advanced
        self.lower = upper
        due, remaining = list[Updates](), list[Updates]()
        for part in self._parts:
            later = time_tables.beyond(part.times, upper)
            if later.any():
                remaining.append(part.at_times(later))
                part = part.at_times(1 - later)
            due.append(part.pruned())
        self._set_buffer(remaining)
        return [part for part in due if len(part)], description

    def _set_buffer(self, parts: list[Updates]) -> None:
        self._parts = [part for part in parts if len(part)]
        self._rows = sum(map(len, self._parts))


def _runs(parts: list[Updates]) -> Iterator[list[Updates]]:
    """The parts in runs of at most `RUN` rows."""
    run, rows = list[Updates](), 0
    for whole in parts:
        for start in range(0, len(whole), RUN):
            part = whole.slice(start, min(start + RUN, len(whole)))
            if run and rows + len(part) > RUN:
                yield run
                run, rows = [], 0
            run.append(part)
            rows += len(part)
    yield run
