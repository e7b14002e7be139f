"""Plays a script on a trace and on the model at once, and compares the two after every step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any
from unittest.mock import patch

from ikebana.encoding.spill_files import SpillFiles
from ikebana.operators import Arrange
from ikebana.time import Antichain
from ikebana.trace import Handle, Trace, spine
from ikebana.trace.merge import nothing_after
from tests.trace import compare
from tests.trace.strategies import (
    HASTE,
    Advance,
    Burst,
    Change,
    Clone,
    Close,
    Drop,
    Idle,
    MergeAll,
    Offset,
    Rest,
    Script,
    Step,
    advanced,
    moved,
    readable,
)


@contextmanager
def head(rows: int) -> Iterator[None]:
    """Spines whose level 0 has `rows` rows, so that few rows make many levels."""
    with patch.object(spine, "HEAD", rows):
        yield


@contextmanager
def slow_spines(rows: int) -> Iterator[None]:
    """The same, and efforts so small that merges are rarely complete."""
    with head(rows), patch.dict(spine.EFFORT, HASTE):
        yield


def spine_of(trace: Handle | Trace) -> spine.Spine:
    """The spine of a trace, with `since` as of now."""
    if isinstance(trace, Handle):
        assert trace._trace is not None
        trace = trace._trace
    trace._set_since()
    return trace.spine


def idle(trace: Handle | Trace, rows: int) -> bool:
    """Let a trace use idle time; return whether there was anything to do."""
    return spine_of(trace).merge_some(rows)


def rest(trace: Handle | Trace, rows: int = 1 << 20) -> None:
    """Use idle time until nothing is left to do; fail rather than hang."""
    for _ in range(10_000):
        if not idle(trace, rows):
            return
    raise AssertionError("the trace does not come to rest")


def merge_all(trace: Handle | Trace) -> None:
    """Merge all batches into one, compacted as far as the readers allow."""
    merged = spine_of(trace)
    merged.store_unread()
    merged._outdate_table()
    merged._store_recent()
    merged._roll_up(1 + merged.levels)
    merged._settle()
    for batch in merged.batches():
        merged._replace(batch, merged._merged(batch, nothing_after(batch)))


def play(script: Script, spill: SpillFiles | None = None) -> None:
    """The whole script, then everything merged into one batch."""
    with slow_spines(script.head):
        world = TraceRun(script, spill)
        for step in script.steps:
            world.take(step)
            world.check()
        world.settle()


class TraceRun:
    """A trace with its handles, and all updates it was given, in the model's form."""

    def __init__(self, script: Script, spill: SpillFiles | None = None) -> None:
        self.domain, self.dimensions = script.domain, script.dimensions
        self.arrange = Arrange(script.domain.schema, dimensions=script.dimensions, effort=script.effort, spill=spill)
        self.lower = self.upper = Antichain.minimum(script.dimensions)
        self.handles: list[tuple[Handle, Antichain]] = [(self.arrange.handle(), self.lower)]
        self.updates: list[compare.Update] = []
        self.inserted = 0
        self.probes = cycle(script.probes)

    # Steps.
    def take(self, step: Step) -> None:
        match step:
            case Change(rows, offsets):
                self.change(rows, offsets)
            case Burst(start, count, time, diff, offsets):
                numbers, keys = range(start, start + count), len(self.domain.keys)
                self.change([(n, n // keys, time, diff) for n in numbers], offsets)
            case Close():
                self.seal(Antichain())
            case Clone(number):
                handle, frontier = self.handles[number % len(self.handles)]
                self.handles.append((handle.clone(), frontier))
            case Advance(number, offsets):
                self.advance(number % len(self.handles), offsets)
            case Drop(number) if len(self.handles) > 1:
                self.handles.pop(number % len(self.handles))[0].drop()
            case Idle(rows):
                idle(self.handles[0][0], rows)
            case Rest():
                rest(self.handles[0][0])
            case MergeAll():
                merge_all(self.handles[0][0])

    def change(self, rows: list[tuple[int, int, Offset, Any]], offsets: list[Offset]) -> None:
        keys, vals = self.domain.keys, self.domain.vals
        data = [(keys[k % len(keys)], vals[v % len(vals)]) for k, v, _, _ in rows]
        starts = list(self.upper)
        times = [moved(starts[(k + v) % len(starts)], offset) for k, v, offset, _ in rows]
        diffs = [diff for _, _, _, diff in rows]
        names = self.domain.schema.diffs
        lanes = {name: [diff[i] for diff in diffs] for i, name in enumerate(names)}
        columns = compare.columns_of(self.domain.schema, [(*key, *val) for key, val in data])
        self.arrange.update(columns, times, lanes["diff"] if names == ("diff",) else lanes)
        plain = [tuple(tuple(map(compare.canonical, side)) for side in row) for row in data]
        self.updates += zip(plain, times, diffs, strict=True)
        if offsets:
            self.seal(advanced(self.upper, offsets))

    def seal(self, upper: Antichain) -> None:
        batch = self.arrange.advance(upper)
        assert (batch.description.lower, batch.description.upper) == (self.upper, upper)
        self.upper = upper
        self.inserted += len(batch)

    def advance(self, number: int, offsets: list[Offset]) -> None:
        handle, frontier = self.handles[number]
        frontier = advanced(frontier, offsets)
        handle.advance(frontier)
        self.handles[number] = (handle, frontier)

    # Comparisons.
    def check(self) -> None:
        """Every handle reads what the model says, at some time; what is stored is in good order."""
        probe = next(self.probes)
        for number, (handle, frontier) in enumerate(self.handles):
            assert (handle.frontier, handle.upper) == (frontier, self.upper)
            times = readable(frontier, self.upper, self.dimensions)
            if times:
                at = times[probe % len(times)]
                expected = compare.accumulate(self.updates, at)
                assert compare.collection(handle.read(at), handle.schema) == expected
                if number == probe % len(self.handles):
                    keys = [key for n, key in enumerate(self.domain.keys) if not key or probe >> n & 1]
                    assert compare.looked_up(handle, keys, at) == compare.with_keys(expected, keys)
        assert handle.readers == len(self.handles)
        compare.assert_stored_well(handle.batches(), self.lower, self.inserted)

    def settle(self) -> None:
        """Merged, everything is one batch, as compact as the handles allow."""
        handle, _ = self.handles[0]
        merge_all(handle)
        self.check()
        batches = handle.batches()
        assert len(batches) <= 1
        since = Antichain(time for _, frontier in self.handles for time in frontier)
        complete = [update for update in self.updates if not self.upper.less_equal(update[1])]
        stored = [update for batch in batches for update in compare.batch_triples(batch)]
        expected = compare.compact(complete, since)
        assert compare.compact(stored, since) == expected and len(stored) == len(expected)
        times = readable(handle.frontier, self.upper, self.dimensions)
        for at in times[:: 1 + len(times) // 3]:
            expected = compare.accumulate(self.updates, at)
            assert compare.collection(handle.read(at), handle.schema) == expected
