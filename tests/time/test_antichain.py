"""Antichains: their invariants, and their meaning as sets of times beyond them.

All coordinates come from 0..TOP, so an antichain is settled by which times of the grid 0..TOP are
beyond it: its elements lie in that grid, and are the minimal ones of those times.
"""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import TimeError
from ikebana.time import Antichain, less_equal

TOP = 3
DIMENSIONS = st.integers(1, 3)


def grid(dimensions):
    return list(product(range(TOP + 1), repeat=dimensions))


def time_lists(dimensions):
    return st.lists(st.sampled_from(grid(dimensions)), max_size=6)


def beyond(antichain, dimensions):
    return {time for time in grid(dimensions) if antichain.less_equal(time)}


# A number of dimensions, then lists of times that have them.
one_list = DIMENSIONS.flatmap(lambda k: st.tuples(st.just(k), time_lists(k)))
two_lists = DIMENSIONS.flatmap(lambda k: st.tuples(st.just(k), time_lists(k), time_lists(k)))
three_lists = DIMENSIONS.flatmap(lambda k: st.tuples(*[time_lists(k)] * 3))


@given(one_list)
def test_elements_are_the_minimal_times_sorted(case):
    _, times = case
    antichain = Antichain(times)
    minimal = {t for t in times if not any(less_equal(other, t) and other != t for other in times)}
    assert list(antichain) == sorted(minimal)
    assert len(antichain) == len(minimal)
    assert all(t in antichain for t in minimal)


@given(one_list, st.randoms())
def test_order_and_repetition_do_not_matter(case, random):
    _, times = case
    shuffled = times * 2
    random.shuffle(shuffled)
    assert Antichain(shuffled) == Antichain(times) == Antichain.of(*times)
    assert hash(Antichain(shuffled)) == hash(Antichain(times))
    assert repr(Antichain(shuffled)) == repr(Antichain(times))


@given(one_list)
def test_less_equal_means_beyond_some_element(case):
    dimensions, times = case
    antichain = Antichain(times)
    for u in grid(dimensions):
        assert antichain.less_equal(u) == any(less_equal(t, u) for t in times)


@given(two_lists)
def test_meet_join_and_precedes_are_union_intersection_and_inclusion(case):
    dimensions, left, right = case
    a, b = Antichain(left), Antichain(right)
    beyond_a, beyond_b = beyond(a, dimensions), beyond(b, dimensions)
    assert beyond(a.meet(b), dimensions) == beyond_a | beyond_b
    assert beyond(a.join(b), dimensions) == beyond_a & beyond_b
    assert a.precedes(b) == (beyond_a >= beyond_b)
    assert (a == b) == (beyond_a == beyond_b)


@given(three_lists)
def test_frontiers_form_a_lattice(lists):
    a, b, c = map(Antichain, lists)
    assert a.meet(a) == a == a.join(a)
    assert a.meet(b) == b.meet(a) and a.join(b) == b.join(a)
    assert a.meet(b.meet(c)) == a.meet(b).meet(c) and a.join(b.join(c)) == a.join(b).join(c)
    assert a.meet(a.join(b)) == a == a.join(a.meet(b))
    assert a.meet(b).precedes(a) and a.precedes(a.join(b))
    assert c.precedes(a.meet(b)) == (c.precedes(a) and c.precedes(b))
    assert a.join(b).precedes(c) == (a.precedes(c) and b.precedes(c))


@given(one_list)
def test_minimum_is_first_and_empty_is_last(case):
    dimensions, times = case
    first, last, antichain = Antichain.minimum(dimensions), Antichain(), Antichain(times)
    assert first.precedes(antichain) and antichain.precedes(last)
    assert first.meet(antichain) == first and first.join(antichain) == antichain
    assert last.meet(antichain) == antichain and last.join(antichain) == last


@given(one_list)
def test_enter_adds_a_round(case):
    dimensions, times = case
    antichain = Antichain(times)
    entered = antichain.enter()
    assert list(entered) == [(*time, 0) for time in antichain]
    for u in grid(dimensions):
        assert entered.less_equal((*u, TOP)) == antichain.less_equal(u)


def test_empty():
    empty = Antichain()
    assert not empty and len(empty) == 0 and empty.dimensions is None
    assert not empty.less_equal((0,)) and not empty.less_equal((7, 7))
    assert not empty.precedes(Antichain.minimum(1)) and empty.precedes(empty)


def test_as_a_value():
    antichain = Antichain.of((5, 0))
    assert antichain and antichain.dimensions == 2
    assert (5, 0) in antichain and (6, 0) not in antichain
    assert antichain != {(5, 0)} and antichain != ((5, 0),)
    assert {antichain: "found"}[Antichain([(5, 0), (5, 1)])] == "found"
    assert pickle.loads(pickle.dumps(antichain)) == antichain


def test_prints_as_a_set():
    assert repr(Antichain.of((1, 0), (0, 1))) == "{(0, 1), (1, 0)}"
    assert repr(Antichain.of((5,))) == "{(5,)}"
    assert repr(Antichain()) == "{}"


def test_takes_any_integers_and_keeps_plain_ones():
    from_array = Antichain(np.array([[5, 0]]))
    assert from_array == Antichain.of((5, 0)) and repr(from_array) == "{(5, 0)}"
    assert Antichain(time for time in [(-1,), (2**63 - 1,)]) == Antichain.of((-1,))


@pytest.mark.parametrize("times", [(5, 0), [(0.5,)], ["ab"], [None]])
def test_what_is_no_time_is_refused(times):
    with pytest.raises(TimeError, match="not a time") as caught:
        Antichain(times)
    assert "Antichain.of" in caught.value.hint


@pytest.mark.parametrize(
    "mix",
    [
        lambda a: Antichain([*a, (1, 1)]),
        lambda a: Antichain([(9, 9), *a]),  # also where one of the two would not be kept
        lambda a: a.less_equal((1, 1)),
        lambda a: a.precedes(a.enter()),
        lambda a: a.meet(a.enter()),
        lambda a: a.join(a.enter()),
    ],
)
def test_times_of_different_length_do_not_mix(mix):
    with pytest.raises(TimeError) as caught:
        mix(Antichain.of((0,)))
    assert "1" in caught.value.detail and "2" in caught.value.detail and caught.value.hint
