"""The laws of the lattice of times, as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import TimeError
from ikebana.time import advance, join, less_equal, meet, minimum


def times(dimensions):
    # Mostly small coordinates, so that ties and comparable pairs are common; now and then a huge one.
    return st.tuples(*[st.integers(0, 3) | st.integers(0, 2**63 - 1)] * dimensions)


def tuples_of_times(count):
    return st.integers(1, 3).flatmap(lambda dimensions: st.tuples(*[times(dimensions)] * count))


@given(tuples_of_times(3))
def test_order_is_partial_order(abc):
    a, b, c = abc
    assert less_equal(a, a)
    assert not (less_equal(a, b) and less_equal(b, a)) or a == b
    assert not (less_equal(a, b) and less_equal(b, c)) or less_equal(a, c)


@given(tuples_of_times(3))
def test_join_is_least_upper_bound(abc):
    a, b, c = abc
    assert less_equal(a, join(a, b)) and less_equal(b, join(a, b))
    assert less_equal(join(a, b), c) == (less_equal(a, c) and less_equal(b, c))


@given(tuples_of_times(3))
def test_meet_is_greatest_lower_bound(abc):
    a, b, c = abc
    assert less_equal(meet(a, b), a) and less_equal(meet(a, b), b)
    assert less_equal(c, meet(a, b)) == (less_equal(c, a) and less_equal(c, b))


@given(tuples_of_times(3), st.sampled_from([(join, meet), (meet, join)]))
def test_lattice_laws(abc, operations):
    (a, b, c), (f, g) = abc, operations
    assert f(a, a) == a
    assert f(a, b) == f(b, a)
    assert f(a, f(b, c)) == f(f(a, b), c)
    assert f(a, g(a, b)) == a
    assert f(a, g(b, c)) == g(f(a, b), f(a, c))


@given(tuples_of_times(2))
def test_lexicographic_order_extends_the_order_of_times(ab):
    a, b = ab
    assert not less_equal(a, b) or a <= b


@given(st.integers(1, 3).flatmap(times))
def test_minimum_is_before_everything(time):
    assert less_equal(minimum(len(time)), time)


@pytest.mark.parametrize("function", [less_equal, join, meet, lambda a, b: advance(a, [b])])
@pytest.mark.parametrize("pair", [((0,), (1, 2)), ((5, 0), (1,)), ((), (1,))])
def test_times_of_different_length_are_refused(function, pair):
    with pytest.raises(TimeError) as caught:
        function(*pair)
    assert str(pair[0]) in caught.value.what and str(pair[1]) in caught.value.what
    assert f"{len(pair[0])} coordinates" in caught.value.detail
    assert "loop" in caught.value.hint


@pytest.mark.parametrize("dimensions", [0, -1])
def test_minimum_needs_a_coordinate(dimensions):
    with pytest.raises(TimeError, match="coordinates"):
        minimum(dimensions)
