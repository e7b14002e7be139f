"""Every kernel computes what its twin in `naive` does, for any input and however its arrays lie in memory.

Beside that, what a kernel promises on top of its result: a merge never changes rows that it called final, a
sort is stable, the columns of times agree with the functions of `ikebana.time`.
"""

from __future__ import annotations

from itertools import accumulate, cycle
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from ikebana import kernels
from ikebana.kernels.compile import KERNELS
from ikebana.kernels.layout import ADDRESS_BITS, AT_A, AT_B, FINAL, MERGE_CELLS, PAIRS, VARIED, WRITTEN
from ikebana.kernels.match import GROUP
from ikebana.kernels.sort import LONGEST_RUN
from ikebana.time import Antichain, advance, less_equal
from tests.kernels import naive, test_twins_of_sets_and_packing
from tests.kernels.naive import Time, Update
from tests.kernels.programs import Program, TraceTable, address_of, compare, programs, traces
from tests.profiles import examples

kernels.load()

JUNK = 77  # what output arrays hold before a kernel writes to them

LEAST, GREATEST = -(2**63), 2**63 - 1
NUMBERS = (
    st.integers(-2, 2) | st.sampled_from([LEAST, LEAST + 1, GREATEST - 1, GREATEST]) | st.integers(LEAST, GREATEST)
)


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_a_twin(name: str) -> None:
    assert getattr(naive, name, None), f"tests/kernels/naive.py has no twin of {name}"
    assert getattr(naive, name).__doc__, f"the twin of {name} does not say what it computes"
    tests = {*globals(), *vars(test_twins_of_sets_and_packing)}
    assert f"test_twin_{name}" in tests, f"no test holds {name} against its twin"


# How arrays may lie in memory.
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


# Times.
class Tables(NamedTuple):
    """Two lists of times of one length, as tuples; `table` makes an array of either."""

    coordinates: int
    a: list[Time]
    b: list[Time]

    def table(self, times: list[Time]) -> np.ndarray:
        return np.array(times, np.int64).reshape(-1, self.coordinates)


def tables(least: int = 0, most: int = 8) -> st.SearchStrategy[Tables]:
    def of(coordinates: int) -> st.SearchStrategy[Tables]:
        time = st.tuples(*[st.integers(0, 3) | NUMBERS] * coordinates)
        some = st.lists(time, min_size=least, max_size=most)
        return st.builds(Tables, st.just(coordinates), some, some)

    return st.integers(1, 3).flatmap(of)


def tuples(table: np.ndarray) -> list[Time]:
    return [tuple(time) for time in table.tolist()]


@given(tables(), LAYOUTS)
def test_twin_advance_times(tables, layout):
    _, times, frontier = tables
    result = tuples(kernels.advance_times(layout(tables.table(times)), layout(tables.table(frontier))))
    assert result == naive.advance_times(times, frontier)
    assert result == [advance(time, frontier) for time in times]
    assert result == [advance(time, Antichain(frontier)) for time in times]


@given(tables(), LAYOUTS)
def test_twin_times_beyond(tables, layout):
    _, times, frontier = tables
    result = kernels.times_beyond(layout(tables.table(times)), layout(tables.table(frontier))).tolist()
    assert result == naive.times_beyond(times, frontier)
    assert result == [Antichain(frontier).less_equal(time) for time in times]


@given(tables(least=1), LAYOUTS)
def test_twin_times_visible(tables, layout):
    _, times, (at, *_) = tables
    result = kernels.times_visible(layout(tables.table(times)), layout(lane(at))).tolist()
    assert result == naive.times_visible(times, at)
    assert result == [less_equal(time, at) for time in times]


@given(tables(), LAYOUTS)
def test_twin_rank_times(tables, layout):
    times = [*tables.a, *tables.b, *tables.a]
    table, positions = kernels.rank_times(layout(tables.table(times)))
    assert table.shape[1] == tables.coordinates
    assert (tuples(table), positions.tolist()) == naive.rank_times(times)


@given(tables(), LAYOUTS)
def test_twin_union_times(tables, layout):
    a, b = sorted(set(tables.a)), sorted(set(tables.b))
    union, a_rank, b_rank = kernels.union_times(layout(tables.table(a)), layout(tables.table(b)))
    assert union.shape[1] == tables.coordinates
    assert (tuples(union), a_rank.tolist(), b_rank.tolist()) == naive.union_times(a, b)


# Updates: lists of tuples for the twins, lanes for the kernels.
class Lanes(NamedTuple):
    """Updates in lanes, in the order in which the kernels take them."""

    key: np.ndarray
    val: np.ndarray
    ident: np.ndarray
    tix: np.ndarray
    diffs: np.ndarray

    def window(self, start: int, end: int | None = None) -> Lanes:
        return Lanes(*(array[..., start:end] for array in self))

    def updates(self, rows: int) -> list[Update]:
        key, val, ident, tix, diffs = (array[..., :rows].T.tolist() for array in self)
        return list(zip(key, ident, val, tix, map(tuple, diffs), strict=True))


def lanes_of(updates: list[Update], diff_lanes: int, layout=plain) -> Lanes:
    key, ident, val, tix = (lane([update[field] for update in updates]) for field in range(4))
    diffs = lane([update[4] for update in updates]).reshape(-1, diff_lanes).T
    return Lanes(*map(layout, (key, val, ident, tix.astype(np.int32), diffs)))


def adds_up(updates: list[Update]) -> bool:
    """Whether some updates have equal data and time. Then a constant lane cannot hold their diffs."""
    return len({update[:4] for update in updates}) < len(updates)


def output_for(updates: list[Update], diff_lanes: int, thrifty: bool) -> Lanes:
    """Lanes to write the updates to, full of junk; if `thrifty`, constant lanes wherever possible."""
    filled = lanes_of(updates, diff_lanes)

    def output(array: np.ndarray) -> np.ndarray:
        single = thrifty and is_constant(array) and not (array is filled.diffs and adds_up(updates))
        return constant(array) if single else np.full_like(array, JUNK)

    return Lanes(*map(output, filled))


FIELDS = st.sampled_from([st.just(0), st.integers(0, 1), st.integers(0, 1), st.integers(-3, 3), NUMBERS])
DIFFS = st.sampled_from([st.just(1), st.integers(0, 1), st.sampled_from([-1, 1]), st.integers(-1, 1), NUMBERS])


@st.composite
def update_strategies(draw, diff_lanes: int):
    """A strategy for updates at a number of times, with constant, few or many distinct entries in each lane."""
    key, ident, val, diff = draw(FIELDS), draw(FIELDS), draw(FIELDS), draw(DIFFS)

    def updates(times: int) -> st.SearchStrategy[list[Update]]:
        update = st.tuples(key, ident, val, st.integers(0, times - 1), st.tuples(*[diff] * diff_lanes))
        return st.integers(0, 30).flatmap(lambda rows: st.lists(update, min_size=rows, max_size=rows))

    return updates


@st.composite
def some_updates(draw) -> tuple[int, int, list[Update]]:
    """How many diff lanes and times there are, and updates in any order."""
    diff_lanes, times = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    return diff_lanes, times, draw(draw(update_strategies(diff_lanes))(times))


@given(some_updates(), LAYOUTS)
def test_twin_sort_leading(case, layout):
    diff_lanes, _, updates = case
    key, val, _, tix, _ = lanes_of(updates, diff_lanes, layout)
    order = kernels.sort_order(key, val, tix)
    assert order.tolist() == naive.sort_leading(key.tolist(), val.tolist(), tix.tolist())


@given(some_updates(), WRITABLE)
def test_twin_consolidate_rows(case, layout):
    diff_lanes, _, updates = case
    rows = sorted(updates, key=lambda update: update[:4])
    lanes, src = lanes_of(rows, diff_lanes, layout), np.arange(len(rows))
    if layout is constant and adds_up(rows):
        lanes = lanes._replace(diffs=lanes.diffs.copy())
    kept = kernels.consolidate_rows(*lanes, src)
    result = lanes.updates(kept)
    assert result == naive.consolidate_rows(rows) and len(result) == kept
    assert [rows[row][:3] for row in src[:kept]] == [update[:3] for update in result]


@given(some_updates(), LAYOUTS, st.lists(FLAGS, min_size=5, max_size=5))
def test_twin_accumulate_rows(case, layout, visible):
    diff_lanes, times, updates = case
    grouped = sorted(updates, key=lambda update: update[:3])
    rows, sums = kernels.accumulate_rows(*lanes_of(grouped, diff_lanes, layout), flags(visible[:times]))
    assert sums.shape == (diff_lanes, len(rows))
    assert list(zip(rows.tolist(), tuples(sums.T), strict=True)) == naive.accumulate_rows(grouped, visible)


@given(some_updates(), st.integers(1, 3), st.lists(st.tuples(NUMBERS, st.integers(0, 3))), LAYOUTS, st.data())
def test_twin_sum_visible(case, dimensions, probes, layout, data):
    diff_lanes, count, updates = case
    times = st.tuples(*[st.integers(0, 3)] * dimensions)
    table, at = (data.draw(st.lists(times, min_size=size, max_size=size)) for size in (count, 4))
    rows, probes = sorted(updates), sorted(probes + [(key, 1) for key, *_ in updates[::2]])
    key, _, _, tix, diffs = lanes_of(rows, diff_lanes, layout)
    sums = np.full((diff_lanes, len(probes)), JUNK)
    kernels.sum_visible(
        layout(lane([key for key, _ in probes])),
        layout(index([position for _, position in probes])),
        layout(lane(at)),
        key,
        tix,
        diffs,
        layout(lane(table).reshape(-1, dimensions)),
        sums,
    )
    expected = naive.sum_visible(
        [(key, at[position]) for key, position in probes], [(key, table[time], diffs) for key, *_, time, diffs in rows]
    )
    result = (sums - JUNK).T.tolist()
    assert [row if any(row) else [] for row in result] == [row if any(row) else [] for row in expected]


# Merges.
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


LIMITS = st.lists(st.integers(1, 3) | st.integers(1, 70), min_size=1, max_size=5)


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
    """The same of rows whose times do not matter any more."""

    def take(self, limit: int, pairs: np.ndarray) -> int:
        at_a, at_b = self.state[AT_A], self.state[AT_B]
        a = self.a.window(at_a, at_a + limit if self.narrow else None)
        b = self.b.window(at_b, at_b + limit if self.narrow else None)
        return kernels.merge_untimed(
            a[0], a[1], a[4][0], b[0], b[1], b[4][0], self.out.key, self.out.val, self.out.diffs[0],
            self.src, pairs, self.state, *self.rows, limit, self.exact_keys,
        )  # fmt: skip

    def final(self) -> list[Update]:
        return [(key, 0, val, 0, diffs) for key, _, val, _, diffs in super().final()]


@st.composite
def untimed_sides(draw) -> Sides:
    """Sides of a merge with one diff lane and no idents, whose times all become one."""
    updates = draw(update_strategies(1))
    a, b = (sorted({(key, 0, val, time): (key, 0, val, time, diffs) for key, _, val, time, diffs in rows}.values())
            for rows in (draw(updates(3)), draw(updates(3))))  # fmt: skip
    return Sides(1, a, b, [0, 1, 2], [0, 1, 2], [0, 0, 0])


@given(untimed_sides(), LIMITS, LAYOUTS, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_twin_merge_untimed(sides, limits, layout, narrow, verify, thrifty, exact_keys):
    merge = UntimedMerge(sides, layout, narrow, verify, thrifty, exact_keys)
    pairs = finish(merge, limits)
    result = merge.final()
    assert result == naive.merge_untimed(sides.a, sides.b) == naive.merge_rows(*sides[1:])
    data = [update[:3] for update in sides.a + sides.b]
    assert [data[row] for row in merge.src[: len(result)]] == [update[:3] for update in result]
    if verify:
        check_pairs(pairs, sides, exact_keys)
    else:
        assert not pairs


@given(st.permutations(range(60)), st.lists(st.integers(0, 59), min_size=40, max_size=40), LIMITS)
def test_merge_sorts_one_long_group_whose_times_compaction_permutes(permutation, collapsed, limits):
    a = [(1, 0, 1, time, (1,)) for time in range(60)]
    b = [(1, 0, 1, time, (-1,)) for time in range(40)]
    for compacted in (permutation, collapsed + sorted(collapsed[:20])):
        sides = Sides(1, a, b, list(range(60)), list(range(20, 60)), compacted)
        merge = Merge(sides)
        finish(merge, limits)
        assert merge.final() == naive.merge_rows(*sides[1:])


# Sorting, on more rows than examples have: every way through the sort.
def rounds_of_sorting(key: np.ndarray, val: np.ndarray, tix: np.ndarray) -> int:
    order, long_runs = kernels.sort_leading(key, val, tix)
    rest = [order[start:end] for start, end in long_runs.reshape(-1, 2)]
    return 1 + max((rounds_of_sorting(key[rows], val[rows], tix[rows]) for rows in rest), default=0)


def wide(random: np.random.Generator, distinct: int, rows: int) -> np.ndarray:
    """Rows with up to `distinct` integers from the whole range, in random order."""
    return random.choice(random.integers(LEAST, GREATEST, distinct, endpoint=True), rows)


def few(random: np.random.Generator, distinct: int, rows: int) -> np.ndarray:
    return random.integers(0, distinct, rows)


SORTS = {
    # name: (rounds that it takes, keys, values)
    "all rows equal": (1, lambda r, n: few(r, 1, n), lambda r, n: few(r, 1, n)),
    "all fields fit": (1, lambda r, n: few(r, 1000, n), lambda r, n: few(r, 8, n)),
    "rows in order": (1, lambda r, n: np.arange(n), lambda r, n: np.arange(n)),
    "only the last row out of order": (1, lambda r, n: np.append(np.arange(n - 1), 5), lambda r, n: few(r, 1, n)),
    "rows in reverse": (1, lambda r, n: np.arange(n)[::-1], lambda r, n: np.arange(n)[::-1]),
    "keys hardly ever equal": (1, lambda r, n: wide(r, n, n), lambda r, n: wide(r, n, n)),
    "keys in short runs": (1, lambda r, n: wide(r, n // 4, n), lambda r, n: wide(r, n, n)),
    "keys in runs of hundreds": (1, lambda r, n: wide(r, 50, n), lambda r, n: wide(r, n, n)),
    "runs of equal rows": (1, lambda r, n: wide(r, 50, n), lambda r, n: wide(r, 2, n)),
    "one key in long runs": (2, lambda r, n: wide(r, 3, n), lambda r, n: wide(r, n, n)),
    "one key only": (1, lambda r, n: few(r, 1, n), lambda r, n: wide(r, n, n)),
    "keys and values in long runs": (3, lambda r, n: wide(r, 2, n), lambda r, n: wide(r, 2, n)),
    "close keys, one far away": (
        2,
        lambda r, n: np.append(few(r, 2, n - 1), GREATEST),
        lambda r, n: np.append(few(r, 2**20, n - 1), LEAST),
    ),
}


@pytest.mark.parametrize("name", SORTS)
def test_sort_goes_every_way(name: str) -> None:
    rows = 5 * LONGEST_RUN
    rounds, keys, vals = SORTS[name]
    random = np.random.default_rng(7)
    key, val, tix = keys(random, rows), vals(random, rows), few(random, 3, rows).astype(np.int32)
    assert rounds_of_sorting(key, val, tix) == rounds
    assert np.array_equal(kernels.sort_order(key, val, tix), np.lexsort((tix, val, key)))


@given(
    st.integers(0, 2**32),
    st.integers(2, 3 * LONGEST_RUN),
    *[st.tuples(st.sampled_from([1, 2, 3, 20, 300, 5000]), st.integers(1, 63))] * 2,
    st.integers(1, 1000),
    LAYOUTS,
)
def test_sort_is_a_stable_sort(seed, rows, keys, vals, times, layout):
    random = np.random.default_rng(seed)
    key, val = (wide(random, distinct, rows) >> shift for distinct, shift in (keys, vals))
    key, val, tix = map(layout, (key, val, few(random, times, rows).astype(np.int32)))
    assert np.array_equal(kernels.sort_order(key, val, tix), np.lexsort((tix, val, key)))


# Keys.
@given(sorted_lanes(), sorted_lanes() | st.lists(NUMBERS).map(sorted), LAYOUTS)
def test_twin_seek_ranges(keys, probes, layout):
    starts, ends = kernels.seek_ranges(layout(lane(keys)), layout(lane(probes)))
    assert (starts.tolist(), ends.tolist()) == naive.seek_ranges(keys, probes)


@given(st.integers(0, 2**32), st.integers(1, 20_000), st.integers(1, 10**6), st.integers(0, 40), LAYOUTS)
def test_few_probes_are_found_in_a_long_lane(seed, rows, keys, probes, layout):
    random = np.random.default_rng(seed)
    lane, wanted = np.sort(random.integers(0, keys, rows)), np.sort(random.integers(-1, keys + 1, probes))
    starts, ends = kernels.seek_ranges(layout(lane), layout(wanted))
    assert np.array_equal(starts, np.searchsorted(lane, wanted, side="left"))
    assert np.array_equal(ends, np.searchsorted(lane, wanted, side="right"))


@given(st.lists(st.tuples(sorted_lanes(), sorted_lanes().map(lambda probes: probes[::7]))), LAYOUTS)
def test_twin_narrow_ranges(groups, layout):
    values, bounds = [value for rows, _ in groups for value in rows], [*accumulate(len(rows) for rows, _ in groups)]
    by_group = list(zip([0, *bounds], bounds, (probes for _, probes in groups), strict=False))
    ranges = [(start, end, probe) for start, end, probes in by_group for probe in probes]
    starts, ends, probes = ([entry[at] for entry in ranges] for at in range(3))
    result = kernels.narrow_ranges(*(layout(lane(entries)) for entries in (values, starts, ends, probes)))
    assert tuple(array.tolist() for array in result) == naive.narrow_ranges(values, starts, ends, probes)


@given(sorted_lanes(), sorted_lanes(), LAYOUTS)
def test_twin_match_keys(a, b, layout):
    assert tuples(kernels.match_keys(layout(lane(a)), layout(lane(b)))) == naive.match_keys(a, b)


RANGES = st.tuples(st.integers(0, 20), st.integers(0, 5)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(st.builds(lambda a, b: (*a, *b), RANGES, RANGES)), LIMITS, LAYOUTS)
def test_twin_expand_pairs(ranges, capacities, layout):
    expected, table = naive.expand_pairs(ranges), layout(lane(ranges).reshape(-1, 4))
    result, state = [], np.zeros(2, np.int64)
    for capacity in cycle(capacities):
        a_rows, b_rows = np.full(capacity + 1, JUNK), np.full(capacity + 1, JUNK)
        written = kernels.expand_pairs(table, a_rows[:capacity], b_rows[:capacity], state)
        assert written == min(capacity, len(expected) - len(result)), "it stopped before the output was full"
        assert a_rows[capacity] == b_rows[capacity] == JUNK, "it wrote beyond the output's end"
        result += zip(a_rows[:written].tolist(), b_rows[:written].tolist(), strict=True)
        if state[GROUP] == len(ranges):
            break
    assert result == expected


@given(st.lists(RANGES), LAYOUTS)
def test_twin_expand_ranges(ranges, layout):
    starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
    expected = naive.expand_ranges(starts, ends)
    rows = np.full(len(expected) + 1, JUNK)
    assert kernels.expand_ranges(layout(lane(starts)), layout(lane(ends)), rows) == len(expected)
    assert rows.tolist() == [*expected, JUNK]


# Hashes.
STRINGS = st.binary(max_size=30)


def offsets_of(strings: list[bytes], first: int = 0) -> np.ndarray:
    return lane([*accumulate(map(len, strings), initial=first)])


def bytes_of(strings: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(strings), np.uint8)  # read-only, as Arrow's buffers are


@given(st.lists(st.tuples(NUMBERS, FLAGS, NUMBERS)), LAYOUTS)
def test_twin_hash_integers(rows, layout):
    values, valid, hashes = ([row[field] for row in rows] for field in range(3))
    out = lane(hashes)
    kernels.hash_integers(layout(lane(values)), layout(flags(valid)), out)
    assert out.tolist() == naive.hash_integers(values, valid, hashes)


@given(st.lists(st.tuples(STRINGS, FLAGS, NUMBERS)), STRINGS, LAYOUTS)
def test_twin_hash_bytes(rows, skipped, layout):
    strings, valid, hashes = ([row[field] for row in rows] for field in range(3))
    out, offsets = lane(hashes), offsets_of(strings, first=len(skipped))  # a slice of a larger column
    kernels.hash_bytes(layout(offsets), bytes_of([skipped, *strings]), layout(flags(valid)), out)
    assert out.tolist() == naive.hash_bytes(strings, valid, hashes)


@given(st.lists(NUMBERS), st.integers(1, 5) | st.integers(1, GREATEST), LAYOUTS)
def test_twin_shard_rows(keys, shards, layout):
    assert kernels.shard_rows(layout(lane(keys)), shards).tolist() == naive.shard_rows(keys, shards)


@given(st.lists(NUMBERS, unique=True), NUMBERS)
def test_integers_that_differ_in_one_column_never_collide(values, running):
    hashes = np.full(len(values), running)
    kernels.hash_integers(lane(values), np.ones(len(values), np.uint8), hashes)
    assert len(set(hashes.tolist())) == len(values)


def test_no_common_value_collides_with_null() -> None:
    values = [0, *range(-1000, 1001), LEAST, GREATEST]
    hashes, valid = np.zeros(len(values), np.int64), np.ones(len(values), np.uint8)
    valid[0] = 0
    kernels.hash_integers(lane(values), valid, hashes)
    null, *others = hashes.tolist()
    assert null not in others

    strings = [b"", b"", b"\0", b"\0" * 8, b"\xff" * 8]
    hashes, valid = np.zeros(len(strings), np.int64), flags([0, 1, 1, 1, 1])
    kernels.hash_bytes(offsets_of(strings), bytes_of(strings), valid, hashes)
    assert len(set(hashes.tolist())) == len(strings)


# Payload.
@st.composite
def payloads(draw, cell: st.SearchStrategy) -> tuple[list, list, list[int]]:
    """Rows of two sources, and which of them to gather, counted through both."""
    a, b = draw(st.lists(cell, max_size=12)), draw(st.lists(cell, max_size=12))
    rows = st.lists(st.integers(0, len(a) + len(b) - 1)) if a or b else st.just([])
    return a, b, draw(rows)


@given(
    st.integers(1, 17).flatmap(
        lambda width: st.tuples(st.just(width), payloads(st.binary(min_size=width, max_size=width)))
    ),
    st.integers(0, 3),
    LAYOUTS,
)
def test_twin_gather_fixed(case, at, layout):
    width, (a, b, rows) = case
    before, after = at * width, (at + len(rows)) * width
    out = np.full(after + width, JUNK, np.uint8)
    kernels.gather_fixed(bytes_of(a), bytes_of(b), len(a), width, layout(lane(rows)), out, at)
    assert out[before:after].tobytes() == b"".join(naive.gather_fixed(a, b, rows))
    assert (out[:before] == JUNK).all() and (out[after:] == JUNK).all()


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.tuples(st.just(width), payloads(st.lists(NUMBERS, min_size=width, max_size=width)))
    ),
    st.integers(0, 3),
    LAYOUTS,
)
def test_twin_gather_words(case, at, layout):
    width, (a, b, rows) = case
    out = np.full((at + len(rows) + 1) * width, JUNK, np.int64)
    a_lane, b_lane = (layout(lane([word for row in side for word in row])) for side in (a, b))
    kernels.gather_words(a_lane, b_lane, len(a), width, layout(lane(rows)), out, at)
    expected = [word for row in naive.gather_words(a, b, rows) for word in row]
    assert out.tolist() == [JUNK] * at * width + expected + [JUNK] * width


def bitmap(bits: list[int], offset: int) -> np.ndarray:
    """Arrow's bitmap of the bits, after `offset` others; no bytes if all are 1."""
    return np.packbits([0] * offset + bits, bitorder="little") if 0 in bits else flags([])


@given(payloads(FLAGS), *[st.integers(0, 20)] * 2, st.integers(0, 3), LAYOUTS)
def test_twin_gather_bits(case, a_offset, b_offset, at, layout):
    a, b, rows = case
    out = np.full(at + len(rows) + 1, JUNK, np.uint8)
    kernels.gather_bits(
        *(bitmap(a, a_offset), a_offset, bitmap(b, b_offset), b_offset),
        *(len(a), layout(lane(rows)), out, at),
    )
    assert out.tolist() == [JUNK] * at + naive.gather_bits(a, b, rows) + [JUNK]


@given(payloads(STRINGS), st.lists(STRINGS, max_size=3), STRINGS, LAYOUTS)
def test_twin_gather_strings(case, before, skipped, layout):
    a, b, rows = case
    expected = before + naive.gather_strings(a, b, rows)  # appended
    bounds, content = offsets_of(expected), b"".join(expected)
    offsets_out, out = np.full(len(bounds) + 1, JUNK), np.full(len(content) + 1, JUNK, np.uint8)
    offsets_out[: len(before) + 1] = offsets_of(before)
    out[: len(b"".join(before))] = bytes_of(before)
    kernels.gather_strings(
        *(layout(offsets_of(a, first=len(skipped))), bytes_of([skipped, *a])),
        *(layout(offsets_of(b)), bytes_of(b)),
        *(len(a), layout(lane(rows)), offsets_out, out, len(before)),
    )
    assert offsets_out.tolist() == [*bounds.tolist(), JUNK]
    assert out.tobytes() == content + bytes([JUNK])


@given(st.lists(STRINGS, max_size=6), LAYOUTS)
def test_twin_gather_texts(texts, layout):
    data = bytes_of(texts)
    starts = address_of(data) + offsets_of(texts)[:-1]
    references = starts | lane([len(text) << ADDRESS_BITS for text in texts])
    expected, content = naive.gather_texts(texts)
    offsets, out = np.zeros(len(texts) + 1, np.int64), np.full(len(content) + 1, JUNK, np.uint8)
    kernels.gather_texts(layout(references), offsets, out)
    assert offsets.tolist() == expected
    assert out.tobytes() == content + bytes([JUNK])


# Extensions.
@examples(2, quick=1)
@given(st.data(), st.integers(1, 3))
def test_twin_extend_rows(data: st.DataObject, number: int) -> None:
    cases = data.draw(traces(number))
    stored = sorted({update[0] for case in cases for update in case.plain.updates}) or [0]
    size = data.draw(st.integers(0, 5))
    lane = st.lists(st.sampled_from([*stored, GREATEST, 0]), min_size=size, max_size=size)
    keys = [data.draw(lane) for _ in cases]
    epochs = data.draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))
    modes = [(data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))) for _ in cases]
    room, tables = data.draw(st.integers(0, 8)), [TraceTable(case) for case in cases]
    described = np.array([(table.address, *mode) for table, mode in zip(tables, modes, strict=True)], np.int64)
    state, start = np.zeros(2, np.int64), 0
    while start < size:
        out = np.full((3, room), JUNK, np.int64)
        lanes = np.array(keys, np.int64).reshape(number, size)
        written = kernels.extend_rows(described, lanes, np.array(epochs, np.int64), out, 1 << 40, state)
        plain = [(case.plain, *mode) for case, mode in zip(cases, modes, strict=True)]
        expected, start = naive.extend_rows(plain, keys, epochs, room, start)
        assert [tuple(row) for row in out[:, :written].T.tolist()] == expected
        assert state[0] == start
        assert (state[1] > room - written) == (start < size)
        room = max(room, int(state[1]))
    for table in tables:
        table.check()


# Programs: `test_program.py` tries each instruction by itself.
@examples(4, quick=1)
@given(programs(), st.booleans())
def test_twin_run_program(program: Program, commits: bool) -> None:
    compare(program, commits=commits)
