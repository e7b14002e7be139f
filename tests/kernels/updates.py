"""Updates for the tests of kernels: lists of tuples for the twins, lanes for the kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.kernels.arrays import JUNK, NUMBERS, constant, is_constant, lane, plain
from tests.kernels.naive import Update


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
