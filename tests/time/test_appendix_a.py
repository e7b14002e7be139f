"""Appendix A of the paper: `advance` is correct and optimal, for any frontier in one to three dimensions.

Both theorems speak of all times `u` beyond a frontier F, of which there are infinitely many. It is
enough to try those of the grid 0..TOP, where TOP is no less than any coordinate of F and of the times
compared: let u' be u with each coordinate cut down to TOP. Since F, and any time t of the grid, stay
at or below TOP, `f <= u` exactly when `f <= u'`, and `t <= u` exactly when `t <= u'`. So u' is beyond F
too and judges alike. (Below 0 there is nothing beyond F.) `advance` stays within the grid, as it only
takes maxima and minima of coordinates.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from ikebana.time import Antichain, advance, less_equal

TOP = 3


def grid(dimensions):
    return list(product(range(TOP + 1), repeat=dimensions))


def frontiers_in(dimensions):
    return st.lists(st.sampled_from(grid(dimensions)), min_size=1, max_size=6).map(Antichain)


frontiers = st.integers(1, 3).flatmap(frontiers_in)
frontier_pairs = st.integers(1, 3).flatmap(lambda k: st.tuples(frontiers_in(k), frontiers_in(k)))


def judges(frontier):
    """The times of the grid that are beyond the frontier."""
    return [u for u in grid(frontier.dimensions) if frontier.less_equal(u)]


@given(frontiers)
def test_theorem_1_correct(frontier):
    beyond = judges(frontier)
    for t in grid(frontier.dimensions):
        representative = advance(t, frontier)
        for u in beyond:
            assert less_equal(t, u) == less_equal(representative, u)


@given(frontiers)
def test_theorem_2_optimal(frontier):
    beyond = judges(frontier)
    representatives = defaultdict(set)
    for t in grid(frontier.dimensions):
        judgement = tuple(less_equal(t, u) for u in beyond)
        representatives[judgement].add(advance(t, frontier))
    assert all(len(same) == 1 for same in representatives.values())


@given(frontiers)
def test_advance_moves_up_and_is_idempotent(frontier):
    for t in grid(frontier.dimensions):
        representative = advance(t, frontier)
        assert less_equal(t, representative)
        assert advance(representative, frontier) == representative


@given(frontiers)
def test_advance_is_monotone(frontier):
    times = grid(frontier.dimensions)
    advanced = {t: advance(t, frontier) for t in times}
    assert all(less_equal(advanced[s], advanced[t]) for s in times for t in times if less_equal(s, t))


@given(frontiers)
def test_times_beyond_stay_as_they_are(frontier):
    assert all(advance(u, frontier) == u for u in judges(frontier))


@given(frontier_pairs)
def test_compacting_in_steps_is_compacting_at_once(pair):
    first, second = pair[0], pair[0].join(pair[1])
    for t in grid(first.dimensions):
        assert advance(advance(t, first), second) == advance(t, second)


@given(frontiers, st.randoms())
def test_dominated_elements_and_order_do_not_matter(frontier, random):
    times = judges(frontier)
    random.shuffle(times)
    for t in grid(frontier.dimensions)[:: 1 + TOP]:
        assert advance(t, times) == advance(t, frontier)


def test_nobody_reads_beyond_the_empty_frontier():
    assert advance((2, 1), Antichain()) == (2, 1)
