"""The kernels that sort, consolidate and accumulate updates compute what their twins do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from tests.kernels import naive
from tests.kernels.arrays import FLAGS, JUNK, LAYOUTS, NUMBERS, WRITABLE, constant, flags, index, lane
from tests.kernels.test_times import tuples
from tests.kernels.updates import adds_up, lanes_of, some_updates


@given(some_updates(), LAYOUTS)
def test_twin_sort_leading(case, layout):
    diff_lanes, _, updates = case
    key, val, _, tix, _ = lanes_of(updates, diff_lanes, layout)
    order = kernels.sort_order(key, val, tix)
    assert order.tolist() == naive.sort_leading(key.tolist(), val.tolist(), tix.tolist())


@given(some_updates(), LAYOUTS)
def test_twin_pack_leading(case, layout):
    diff_lanes, _, updates = case
    key, val, _, tix, _ = lanes_of(updates, diff_lanes, layout)
    packed, row_bits, dropped = kernels.pack_leading(key, val, tix)
    assert (packed.tolist(), row_bits, dropped) == naive.pack_leading(key.tolist(), val.tolist(), tix.tolist())


@given(st.integers(0, 64), st.data())
def test_twin_radix_sorted(width, data):
    words = data.draw(st.lists(st.integers(0, 2**width - 1), max_size=40))
    given = np.array(words, np.uint64)
    assert kernels.radix_sorted(given, width).tolist() == naive.radix_sorted(words)
    assert given.tolist() == words


@given(some_updates(), LAYOUTS)
def test_twin_order_packed(case, layout):
    diff_lanes, _, updates = case
    key, val, _, tix, _ = lanes_of(updates, diff_lanes, layout)
    packed, row_bits, dropped = kernels.pack_leading(key, val, tix)
    packed.sort()
    order, long_runs = kernels.order_packed(packed, row_bits, dropped, key, val, tix)
    assert not len(long_runs)
    assert order.tolist() == naive.order_packed(packed.tolist(), row_bits, key.tolist(), val.tolist(), tix.tolist())


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


@given(some_updates(), st.integers(1, 3), LAYOUTS, st.data())
def test_twin_sum_ranges(case, dimensions, layout, data):
    diff_lanes, count, rows = case
    times, place = st.tuples(*[st.integers(0, 3)] * dimensions), st.integers(0, len(rows))
    table, at = (data.draw(st.lists(times, min_size=size, max_size=size)) for size in (count, 4))
    ranges = data.draw(st.lists(st.tuples(place, place).map(sorted).map(tuple), min_size=1, max_size=5))
    moments = data.draw(st.lists(st.tuples(st.integers(0, len(ranges) - 1), st.integers(0, 3))))
    _, _, _, tix, diffs = lanes_of(rows, diff_lanes, layout)
    sums = np.full((diff_lanes, len(moments)), JUNK)
    kernels.sum_ranges(
        layout(lane([group for group, _ in moments])),
        layout(index([position for _, position in moments])),
        layout(lane(at)),
        layout(lane([start for start, _ in ranges])),
        layout(lane([end for _, end in ranges])),
        tix,
        diffs,
        layout(lane(table).reshape(-1, dimensions)),
        sums,
    )
    expected = naive.sum_ranges(
        [(group, at[position]) for group, position in moments],
        ranges,
        [(table[time], diffs) for *_, time, diffs in rows],
    )
    result = (sums - JUNK).T.tolist()
    assert [row if any(row) else [] for row in result] == [row if any(row) else [] for row in expected]


@given(st.lists(st.tuples(st.integers(0, 4), NUMBERS, NUMBERS)), LAYOUTS)
def test_twin_add_by_group(rows, layout):
    groups, diffs, factors = (layout(kind([row[at] for row in rows])) for at, kind in enumerate((index, lane, lane)))
    sums = np.zeros(5, np.int64)
    kernels.add_by_group(groups, diffs, factors, sums)
    given_rows = list(zip(groups.tolist(), diffs.tolist(), factors.tolist(), strict=True))
    assert sums.tolist() == naive.add_by_group(given_rows, 5)
