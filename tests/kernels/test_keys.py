"""The kernels that seek and match keys, and expand ranges, compute what their twins do."""

from __future__ import annotations

from itertools import accumulate, cycle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from ikebana.kernels.layout import SAMPLED
from ikebana.kernels.match import GROUP
from tests.kernels import naive
from tests.kernels.arrays import JUNK, LAYOUTS, LIMITS, NUMBERS, lane, sorted_lanes
from tests.kernels.test_times import tuples


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


@given(sorted_lanes(), sorted_lanes() | st.lists(NUMBERS).map(sorted), LAYOUTS)
def test_twin_seek_sampled(keys, probes, layout):
    starts, ends = kernels.seek_sampled(layout(lane(keys)), lane(keys)[::SAMPLED].copy(), layout(lane(probes)))
    assert (starts.tolist(), ends.tolist()) == naive.seek_sampled(keys, probes)


@given(st.integers(0, 2**32), st.integers(1, 20_000), st.integers(1, 10**6), st.integers(0, 40))
def test_few_probes_are_found_with_a_sample(seed, rows, keys, probes):
    random = np.random.default_rng(seed)
    lane, wanted = np.sort(random.integers(0, keys, rows)), np.sort(random.integers(-1, keys + 1, probes))
    starts, ends = kernels.seek_sampled(lane, lane[::SAMPLED].copy(), wanted)
    assert np.array_equal(starts, np.searchsorted(lane, wanted, side="left"))
    assert np.array_equal(ends, np.searchsorted(lane, wanted, side="right"))


@given(sorted_lanes(), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9), LAYOUTS)
def test_twin_fill_filter(keys, words, layout):
    filled = np.array(words, np.uint64)
    kernels.fill_filter(layout(lane(keys)), filled)
    assert filled.tolist() == naive.fill_filter(keys, words)


@given(sorted_lanes(), sorted_lanes() | st.lists(NUMBERS).map(sorted), st.integers(1, 70), LAYOUTS)
def test_twin_seek_filtered(keys, probes, words, layout):
    filled = np.zeros(words, np.uint64)
    kernels.fill_filter(lane(keys), filled)
    starts, ends = kernels.seek_filtered(layout(lane(keys)), layout(filled), layout(lane(probes)))
    assert (starts.tolist(), ends.tolist()) == naive.seek_filtered(keys, probes)


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
