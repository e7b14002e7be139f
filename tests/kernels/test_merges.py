"""The kernels that merge compute what their twins do, and never change rows that they called final."""

from __future__ import annotations

from itertools import cycle
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from ikebana.kernels.layout import AT_A, AT_B, FINAL, MERGE_CELLS, PAIRS, VARIED, WRITTEN
from tests.kernels import naive
from tests.kernels.arrays import JUNK, LAYOUTS, LIMITS, index, plain
from tests.kernels.naive import Update
from tests.kernels.test_times import tables
from tests.kernels.updates import lanes_of, output_for, update_strategies


class Sides(NamedTuple):
    """Two sorted lists of updates, and what becomes of their times."""

    diff_lanes: int
    a: list[Update]
    b: list[Update]
    a_rank: list[int]
    b_rank: list[int]
    compacted: list[int]

    def moved(self) -> list[Update]:
        """The rows of both sides, a's first, with their new times."""
        return [
            (*data, self.compacted[rank[time]], diffs)
            for rows, rank in ((self.a, self.a_rank), (self.b, self.b_rank))
            for *data, time, diffs in rows
        ]


@st.composite
def merge_sides(draw) -> Sides:
    both = draw(tables(least=1, most=6))
    union, a_rank, b_rank = naive.union_times(sorted(set(both.a)), sorted(set(both.b)))
    compacted = draw(st.lists(st.integers(0, 4), min_size=len(union), max_size=len(union)))
    kind = draw(st.sampled_from(["any map", "any map", "in order", "by a frontier"]))
    if kind == "in order":
        compacted.sort()
    if kind == "by a frontier":
        representatives = naive.advance_times(union, draw(st.lists(st.sampled_from(union), max_size=3)))
        compacted = [sorted(set(representatives)).index(time) for time in representatives]
    diff_lanes = draw(st.integers(1, 3))
    updates = draw(update_strategies(diff_lanes))
    a, b = sorted(draw(updates(len(a_rank)))), sorted(draw(updates(len(b_rank))))
    return Sides(diff_lanes, a, b, a_rank, b_rank, compacted)


class Merge:
    """A merge in progress, the sides given as `layout` has them.

    With `narrow` windows a call sees no more rows of a side than it may take, otherwise all that are left.
    """

    def __init__(self, sides: Sides, layout=plain, narrow=False, verify=True, thrifty=False, exact_keys=False) -> None:
        self.a, self.b = (lanes_of(rows, sides.diff_lanes, layout) for rows in (sides.a, sides.b))
        self.times = [layout(index(positions)) for positions in (sides.a_rank, sides.b_rank, sides.compacted)]
        self.rows = len(sides.a), len(sides.b)
        self.out = output_for(sides.moved(), sides.diff_lanes, thrifty)
        self.src = np.full(sum(self.rows), JUNK)
        self.state = np.zeros(MERGE_CELLS, np.int64)
        self.narrow, self.verify, self.exact_keys = narrow, verify, exact_keys

    def step(self, limit: int) -> tuple[int, list[tuple[int, int]]]:
        """Take up to `limit` rows; how many were taken, and the pairs to verify."""
        pairs = np.full((2, limit if self.verify else 0), JUNK)
        taken = self.take(limit, pairs)
        listed = pairs[:, : self.state[PAIRS]].T
        return taken, [(int(one), int(other)) for one, other in listed]

    def take(self, limit: int, pairs: np.ndarray) -> int:
        at_a, at_b = self.state[AT_A], self.state[AT_B]
        return kernels.merge_rows(
            *self.a.window(at_a, at_a + limit if self.narrow else None),
            *self.b.window(at_b, at_b + limit if self.narrow else None),
            *self.times, *self.out, self.src, pairs, self.state, *self.rows, limit, self.exact_keys,
        )  # fmt: skip

    @property
    def done(self) -> bool:
        return (self.state[AT_A], self.state[AT_B]) == self.rows

    def final(self) -> list[Update]:
        return self.out.updates(self.state[FINAL])


def finish(merge: Merge, limits: list[int]) -> list[tuple[int, int]]:
    """Make a merge's calls, with limits that repeat, and check each; returns all the pairs that it listed."""
    pairs, total, final = [], 0, []
    for limit in cycle(limits):
        taken, more = merge.step(limit)
        pairs += more
        total += taken
        assert taken <= limit
        assert taken > 0 or merge.done, "a call that takes nothing would go on for ever"
        assert total == merge.state[AT_A] + merge.state[AT_B]
        assert merge.final()[: len(final)] == final, "final rows have changed, or are fewer"
        final = merge.final()
        assert bool(merge.state[VARIED]) == (len({diffs for *_, diffs in final}) > 1)
        if merge.done:
            assert merge.state[WRITTEN] == merge.state[FINAL]
            return pairs
    raise AssertionError


@given(merge_sides(), LIMITS, LAYOUTS, st.booleans(), st.booleans(), st.booleans())
def test_twin_merge_rows(sides, limits, layout, narrow, verify, thrifty):
    merge = Merge(sides, layout, narrow, verify, thrifty)
    pairs = finish(merge, limits)
    result = merge.final()
    assert result == naive.merge_rows(*sides[1:]) and len(result) == merge.state[FINAL]

    data = [update[:3] for update in sides.a + sides.b]
    assert [data[row] for row in merge.src[: len(result)]] == [update[:3] for update in result]
    assert verify or not pairs


def check_pairs(pairs: list[tuple[int, int]], sides: Sides, exact_keys: bool) -> None:
    """The pairs to verify are of both sides, and there is one wherever their keys, or else values, meet."""
    data = [update[:3] for update in sides.a + sides.b]
    for one, other in pairs:
        assert (one < len(sides.a)) != (other < len(sides.a)), "both rows are of one side"
        assert data[one][:2] == data[other][:2], "the rows differ in key or ident"
        assert data[one] == data[other] or not exact_keys, "the rows differ in value"
    a, b = ({update[:3] for update in rows} for rows in (sides.a, sides.b))
    assert a & b <= {data[one] for one, other in pairs if data[one] == data[other]}
    if not exact_keys:
        assert {row[:2] for row in a} & {row[:2] for row in b} == {data[one][:2] for one, _ in pairs}


@given(merge_sides(), LIMITS, st.booleans())
def test_merge_lists_a_pair_to_verify_wherever_the_sides_meet(sides, limits, exact_keys):
    check_pairs(finish(Merge(sides, exact_keys=exact_keys), limits), sides, exact_keys)


class UntimedMerge(Merge):
    """The same of rows whose times do not matter any more. If there are no values, keys take their place."""

    def __init__(self, sides: Sides, layout, narrow, verify, keeps_src, exact_keys) -> None:
        super().__init__(sides, layout, narrow, verify, False, exact_keys)
        self.a, self.b = (
            side._replace(key=contiguous(side.key), val=contiguous(side.val)) for side in (self.a, self.b)
        )
        self.out = self.out._replace(diffs=contiguous(self.out.diffs))
        self.has_values = any(update[2] for update in sides.a + sides.b)
        self.keeps_src = keeps_src

    def take(self, limit: int, pairs: np.ndarray) -> int:
        at_a, at_b = self.state[AT_A], self.state[AT_B]
        key, val, _, _, diffs = self.a.window(at_a, at_a + limit if self.narrow else None)
        b_key, b_val, _, _, b_diffs = self.b.window(at_b, at_b + limit if self.narrow else None)
        vals = (val, b_val, self.out.val) if self.has_values else (key, b_key, self.out.key)
        merge = kernels.merge_untimed_sums
        if len(diffs) == 1:
            merge, diffs, b_diffs = kernels.merge_untimed, diffs[0], b_diffs[0]
        return merge(
            key, vals[0], diffs, b_key, vals[1], b_diffs, self.out.key, vals[2], self.out.diffs,
            self.src if self.keeps_src else self.src[:0], pairs, self.state, *self.rows, limit, self.exact_keys,
        )  # fmt: skip

    def final(self) -> list[Update]:
        return [(key, 0, val * self.has_values, 0, diffs) for key, _, val, _, diffs in super().final()]


def contiguous(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array)


@st.composite
def untimed_sides(draw, lanes: st.SearchStrategy[int]) -> Sides:
    """Sides of a merge without idents, whose times all become one."""
    diff_lanes = draw(lanes)
    updates = draw(update_strategies(diff_lanes))
    a, b = (sorted({(key, 0, val, time): (key, 0, val, time, diffs) for key, _, val, time, diffs in rows}.values())
            for rows in (draw(updates(3)), draw(updates(3))))  # fmt: skip
    return Sides(diff_lanes, a, b, [0, 1, 2], [0, 1, 2], [0, 0, 0])


class TimedMerge(UntimedMerge):
    """The same of rows whose times are those of the output."""

    def take(self, limit: int, pairs: np.ndarray) -> int:
        at_a, at_b = self.state[AT_A], self.state[AT_B]
        key, val, _, tix, diffs = self.a.window(at_a, at_a + limit if self.narrow else None)
        b_key, b_val, _, b_tix, b_diffs = self.b.window(at_b, at_b + limit if self.narrow else None)
        vals = (val, b_val, self.out.val) if self.has_values else (key, b_key, self.out.key)
        return kernels.merge_timed(
            key, vals[0], contiguous(tix), diffs[0], b_key, vals[1], contiguous(b_tix), b_diffs[0],
            self.out.key, vals[2], self.out.tix, self.out.diffs, self.src if self.keeps_src else self.src[:0], pairs,
            self.state, *self.rows, limit, self.exact_keys,
        )  # fmt: skip

    def final(self) -> list[Update]:
        return [(key, 0, val * self.has_values, tix, diffs) for key, _, val, tix, diffs in Merge.final(self)]


def check_untimed(sides: Sides, limits: list[int], layout, narrow, verify, keeps_src, exact_keys) -> None:
    merge = UntimedMerge(sides, layout, narrow, verify, keeps_src, exact_keys)
    check_merged(merge, naive.merge_untimed(sides.a, sides.b), limits, sides)


def check_merged(merge: UntimedMerge, expected: list[Update], limits: list[int], sides: Sides) -> None:
    pairs = finish(merge, limits)
    result = merge.final()
    assert result == expected == naive.merge_rows(*sides[1:])
    if merge.keeps_src:
        data = [update[:3] for update in sides.a + sides.b]
        assert [data[row] for row in merge.src[: len(result)]] == [update[:3] for update in result]
    if merge.verify:
        check_pairs(pairs, sides, merge.exact_keys)
    else:
        assert not pairs


UNTIMED = LIMITS, LAYOUTS, st.booleans(), st.booleans(), st.booleans(), st.booleans()


@given(untimed_sides(st.just(1)), *UNTIMED)
def test_twin_merge_untimed(sides, limits, layout, narrow, verify, keeps_src, exact_keys):
    check_untimed(sides, limits, layout, narrow, verify, keeps_src, exact_keys)


@given(untimed_sides(st.just(1)), *UNTIMED)
def test_twin_merge_timed(sides, limits, layout, narrow, verify, keeps_src, exact_keys):
    sides = sides._replace(compacted=[0, 1, 2])
    merge = TimedMerge(sides, layout, narrow, verify, keeps_src, exact_keys)
    check_merged(merge, naive.merge_timed(sides.a, sides.b), limits, sides)


@given(untimed_sides(st.integers(2, 3)), *UNTIMED)
def test_twin_merge_untimed_sums(sides, limits, layout, narrow, verify, keeps_src, exact_keys):
    check_untimed(sides, limits, layout, narrow, verify, keeps_src, exact_keys)


@given(st.permutations(range(60)), st.lists(st.integers(0, 59), min_size=40, max_size=40), LIMITS)
def test_merge_sorts_one_long_group_whose_times_compaction_permutes(permutation, collapsed, limits):
    a = [(1, 0, 1, time, (1,)) for time in range(60)]
    b = [(1, 0, 1, time, (-1,)) for time in range(40)]
    for compacted in (permutation, collapsed + sorted(collapsed[:20])):
        sides = Sides(1, a, b, list(range(60)), list(range(20, 60)), compacted)
        merge = Merge(sides)
        finish(merge, limits)
        assert merge.final() == naive.merge_rows(*sides[1:])
