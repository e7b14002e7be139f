"""The kernels of times compute what their twins do, and what the functions of `ikebana.time` do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from ikebana.time import Antichain, advance, less_equal
from tests.kernels import naive
from tests.kernels.arrays import LAYOUTS, NUMBERS, lane
from tests.kernels.naive import Time


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
