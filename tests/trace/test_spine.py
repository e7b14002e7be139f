"""What a spine guarantees: few batches, bounded work for each insertion, constant memory for constant content.

Work is counted in rows moved, never in seconds.
"""

from __future__ import annotations

import tracemalloc
from itertools import chain, cycle
from math import log2

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.operators import Arrange
from ikebana.time import Antichain
from ikebana.trace import EFFORT, Batcher, Handle, Trace, Updates
from ikebana.trace import spine as spines
from ikebana.trace.spine import HEAD, RECENT, level_of, most_work
from tests.trace.strategies import examples
from tests.trace.trace_run import head, idle, merge_all, rest

KEYS = Schema({"k": pa.int64()})


class Watched:
    """A spine that is told how many rows to insert, with its guarantees checked at each insertion."""

    def __init__(self, effort: str, cancel: bool) -> None:
        lower = Antichain.of((0,))
        self.trace = Trace(KEYS, lower, effort=effort)
        self.handle, self.batcher = Handle(self.trace, lower), Batcher(KEYS, lower, "watched")
        self.effort, self.cancel = effort, cancel
        self.counts = np.zeros(1 << 18, np.int64)  # what there should be, by key
        self.epoch = self.inserted = self.following = 0

    def insert(self, rows: int) -> int:
        """Insert new keys, or every other time the last ones again to cancel them; return how many rows were moved."""
        undo = self.cancel and self.epoch % 2
        first = max(0, self.following - rows) if undo else self.following
        self.following = max(self.following, first + rows)
        keys, diff = np.arange(first, first + rows), -1 if undo else 1
        self.counts[keys] += diff
        self.batcher.append(Updates.of(KEYS, {"k": keys}, (self.epoch,), diff))
        batch = self.batcher.seal(Antichain.of((self.epoch + 1,)))
        if self.cancel:
            self.handle.advance((self.epoch,))
        self.epoch += 1

        before, levels = self.trace.spine.rows_moved, self.trace.spine.levels
        self.trace.insert(batch)
        self.inserted += rows
        bound = most_work(rows, self.effort, max(levels, self.trace.spine.levels))
        moved = self.trace.spine.rows_moved - before
        assert moved <= bound
        self.check()
        return moved

    def idle(self, rows: int) -> None:
        """Use idle time."""
        idle(self.trace, rows)
        self.check()

    def check(self) -> None:
        """There are few batches, and every merge has little to do for each row that fits below its level."""
        spine, below = self.trace.spine, 0
        assert len(spine.batches()) <= RECENT - 1 + 2 + 2 * log2(self.inserted)
        for number, level in enumerate(spine._levels):
            assert len(level.batches) <= 2
            if level.merge is not None:
                assert 3 * level.merge.remaining <= 14 * ((spines.HEAD << number) - below)
            below += len(level)

    def settle(self) -> None:
        """In the end nothing is lost, and idle time is used only while there is something to do."""
        rest(self.trace)
        self.check()
        assert all(level.merge is None and len(level.batches) <= 1 for level in self.trace.spine._levels)
        merge_all(self.trace)
        assert len(self.trace.spine.batches()) <= 1
        table = self.handle.read((self.epoch - 1,)).sort_by("k")
        assert np.array_equal(table["k"], np.flatnonzero(self.counts))
        assert np.array_equal(table["diff"], self.counts[self.counts != 0])
        left = len(self.trace.spine)  # it shrinks, too
        assert self.trace.spine.levels == 1 + level_of(left) if left else self.trace.spine.levels <= 1


def patterns(rows: int) -> dict[str, list[int]]:
    """Sizes of insertions that are hard for a spine whose level 0 has `rows` rows."""
    up = [rows << level for level in range(7)]
    saw = [(rows << level % 6) + 1 for level in range(40)]
    return {
        "ones": [1] * 150,
        "full": [rows] * 100,
        "one too many": [rows + 1] * 100,
        "ascending": [1 << level for level in range(14)],
        "descending": [1 << level for level in reversed(range(14))],
        "down and up": [*reversed(up), *up],
        "sawtooth": saw,
        "triangle": [rows << min(n % 12, 11 - n % 12) for n in range(50)],
        "huge after many small": [*[1] * 65, rows * 64, *[rows] * 40, rows * 100, 1],
        "large among small": [*[rows] * 63, rows * 8, *[rows] * 31, rows * 16 + 1, *[1] * 20],
        "random": np.random.default_rng(0).integers(1, 20 * rows, 60).tolist(),
    }


@pytest.mark.parametrize("cancel", [False, True], ids=["growing", "cancelling"])
@pytest.mark.parametrize("effort", EFFORT)
@pytest.mark.parametrize("rows", [1, 4, 256])
def test_oracle_work_and_batches_are_bounded(rows: int, effort: str, cancel: bool) -> None:
    with head(rows):
        for sizes in patterns(rows).values():
            spine = Watched(effort, cancel)
            for size in sizes:
                spine.insert(size)
            spine.settle()


@examples(1)
@given(
    st.sampled_from([1, 4]), st.sampled_from(list(EFFORT)), st.booleans(),
    st.lists(st.lists(st.integers(1, 9) | st.integers(1, 300), min_size=1, max_size=4), min_size=1, max_size=8),
    st.integers(1, 4), st.lists(st.integers(0, 5) | st.integers(0, 300), min_size=1, max_size=6),
)  # fmt: skip
def test_oracle_work_and_batches_are_bounded_whatever_the_sizes(
    rows: int, effort: str, cancel: bool, parts: list[list[int]], repeats: int, idle_rows: list[int]
) -> None:
    with head(rows):
        spine, moments = Watched(effort, cancel), cycle(idle_rows)
        for size in chain.from_iterable(part * repeats for part in parts):
            spine.insert(size)
            spine.idle(next(moments))
        spine.settle()


def test_oracle_work_is_amortised() -> None:
    """Each row moves about once for each level that it rises, as in a merge sort."""
    with head(4):
        spine = Watched("default", cancel=False)
        for _ in range(1000):
            spine.insert(4)
        assert spine.trace.spine.rows_moved <= spine.inserted * spine.trace.spine.levels


@pytest.mark.parametrize("effort", ["default", "lazy"])
def test_oracle_equal_insertions_take_about_equally_long(effort: str) -> None:
    """However large the trace is, and though the largest merge moves half of it."""
    with head(4):
        spine = Watched(effort, cancel=False)
        spine.insert(20_000)
        moved = sorted([spine.insert(40) for _ in range(1000)][50:])
        assert moved[-10] <= 3 * moved[len(moved) // 2]
        assert moved[-1] <= 4 * moved[len(moved) // 2]


def test_levels() -> None:
    with head(4):
        assert [level_of(rows) for rows in (1, 4, 5, 8, 9, 16, 17)] == [0, 0, 1, 1, 2, 2, 3]
    with head(1):
        assert [level_of(rows) for rows in (1, 2, 3, 4, 5)] == [0, 1, 2, 2, 3]


# Memory.
LIVE = 1000
EDGE, NAMED = Schema({"k": pa.int64()}, {"v": pa.int64()}), Schema({"k": pa.string()}, {"v": pa.int64()})


class Replacing:
    """A thousand keys with a value each; every step replaces some of the values."""

    def __init__(self, schema: Schema, effort: str) -> None:
        self.arrange = Arrange(schema, effort=effort)
        self.handle = self.arrange.handle()
        numbers = np.arange(LIVE)
        names = np.array([f"key {n}" for n in numbers], object)
        self.keys = numbers if schema is EDGE else names
        self.random, self.vals, self.epoch = np.random.default_rng(0), np.zeros(LIVE, np.int64), 0
        self.arrange.update({"k": self.keys, "v": self.vals}, (0,))
        self.arrange.advance((1,))
        self.needed = self.handle.nbytes  # by the live content alone

    def replace(self, count: int) -> int:
        """Replace `count` values, by twice as many updates, and return the bytes held."""
        self.epoch += 1
        chosen = self.random.choice(LIVE, count, replace=False)
        old, new = self.vals[chosen], self.vals[chosen] + 1
        keys = self.keys[chosen]
        self.arrange.update(
            {"k": np.concatenate([keys, keys]), "v": np.concatenate([old, new])},
            (self.epoch,),
            np.repeat([-1, 1], count),
        )
        self.vals[chosen] = new
        self.arrange.advance((self.epoch + 1,))
        return self.handle.nbytes


@pytest.mark.parametrize("effort", EFFORT)
def test_oracle_memory_stays_constant(effort: str) -> None:
    """Over a million updates that replace values (and fewer in other efforts)."""
    content = Replacing(EDGE, effort)
    for _ in range(2000 if effort == "default" else 400):
        assert content.replace(250) <= 4 * content.needed
        content.handle.advance((content.epoch,))
    with pytest.raises(AssertionError):  # without advancing it does not
        for _ in range(100):
            assert content.replace(250) <= 4 * content.needed


@pytest.mark.parametrize("count", [1, 10, 999])
def test_oracle_memory_stays_constant_whatever_the_steps(count: int) -> None:
    """In the order of the content and a step, or of level 0 where steps are smaller."""
    content = Replacing(EDGE, "default")
    step = max(2 * count, HEAD) * 28  # key, value, time and diff
    for _ in range(min(2000, 100_000 // count)):
        assert content.replace(count) <= 3 * (content.needed + step)
        content.handle.advance((content.epoch,))


def test_oracle_memory_stays_constant_for_payloads() -> None:
    content = Replacing(NAMED, "default")
    for _ in range(200):
        assert content.replace(250) <= 4 * content.needed
        content.handle.advance((content.epoch,))


def test_oracle_memory_really_stays_constant() -> None:
    """As the allocator sees it: also the output of merges, buffers and everything else."""
    content = Replacing(EDGE, "lazy")
    tracemalloc.start()
    try:
        for _ in range(200):
            content.replace(250)
            content.handle.advance((content.epoch,))
            assert tracemalloc.get_traced_memory()[0] <= 12 * content.needed
    finally:
        tracemalloc.stop()


def test_oracle_memory_comes_back_when_the_slowest_reader_advances() -> None:
    """Merges that start after that compact the history away."""
    content = Replacing(EDGE, "default")
    slow = content.handle.clone()
    for _ in range(100):
        content.replace(250)
        content.handle.advance((content.epoch,))
    assert slow.nbytes > 20 * content.needed
    slow.advance((content.epoch,))
    merge_all(slow)
    assert slow.nbytes <= content.needed + 1000
    assert len(slow.batches()) == 1


# Idle time.


def test_oracle_memory_comes_back_in_idle_time_though_nothing_changes() -> None:
    content = Replacing(EDGE, "default")
    slow = content.handle.clone()
    for _ in range(100):
        content.replace(250)
        content.handle.advance((content.epoch,))
    rest(content.handle)
    assert slow.nbytes > 20 * content.needed
    slow.drop()
    rest(content.handle, rows=1000)
    assert content.handle.nbytes <= 4 * content.needed
    table = content.handle.read((content.epoch,)).sort_by("k")
    assert np.array_equal(table["v"], content.vals)


def test_oracle_idle_time_is_used_once_for_the_same_content() -> None:
    """Neither the passing of time nor a few changes make a large batch worth rewriting."""
    content = Replacing(EDGE, "default")
    for _ in range(40):
        content.replace(10)
        content.handle.advance((content.epoch,))
        rest(content.handle)
    before = content.handle.rows_moved
    for epoch in range(content.epoch, content.epoch + 20):
        content.arrange.advance((epoch + 1,))
        content.handle.advance((epoch,))
        rest(content.handle)
    assert content.handle.rows_moved - before <= 4 * LIVE


def test_oracle_idle_time_finishes_merges_and_no_more_if_a_trace_only_grows() -> None:
    with head(4):
        spine = Watched("default", cancel=False)
        for _ in range(300):
            spine.insert(5)
            rest(spine.trace)
        assert spine.trace.spine.rows_moved <= spine.inserted * spine.trace.spine.levels


def test_oracle_a_batch_is_compacted_only_if_many_rows_can_be_added_to_others() -> None:
    """Of a batch at two times, few rows are at the second one, or many."""
    for late, is_worth_it in ((100, False), (1000, True)):
        arrange = Arrange(KEYS)
        handle = arrange.handle()
        keys = np.arange(5000)
        arrange.update({"k": keys}, np.where(keys % (5000 // late) == 0, 1, 0).reshape(-1, 1))
        arrange.advance((2,))
        handle.advance((1,))
        rest(handle)
        assert len(handle.batches()[0].times) == (1 if is_worth_it else 2)


def test_oracle_compaction_gives_way_to_a_merge_of_the_same_batch() -> None:
    with head(4):
        arrange = Arrange(KEYS)
        handle = arrange.handle()
        arrange.update({"k": np.arange(40)}, (np.arange(40) % 2).reshape(-1, 1))
        arrange.advance((2,))
        handle.advance((1,))
        idle(handle, 10)  # begins to compact the batch
        arrange.update({"k": np.arange(40)}, (2,), -1)
        arrange.advance((3,))
        handle.advance((2,))
        rest(handle)
        assert handle.read((2,)).num_rows == len(handle.updates()) == 0
