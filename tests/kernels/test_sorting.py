"""The sort is stable, and right on more rows than examples have, whichever way it takes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from ikebana.kernels import sort as sorting
from ikebana.kernels.sort import LONGEST_RUN, leading_order, sort_words
from tests.kernels.arrays import GREATEST, LAYOUTS, LEAST

Sort = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def sorted_in_rounds(sort: Sort, key: np.ndarray, val: np.ndarray, tix: np.ndarray) -> tuple[np.ndarray, int]:
    """The order of the rows, and how many rounds it took."""
    order, long_runs = sort(key, val, tix)
    most = 0
    for start, end in long_runs.reshape(-1, 2):
        rows = order[start:end].copy()
        rest, rounds = sorted_in_rounds(sort, key[rows], val[rows], tix[rows])
        order[start:end], most = rows[rest], max(most, rounds)
    return order, 1 + most


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


@pytest.fixture(params=[0, 64], ids=["by NumPy", "by digits"])
def faster_sort(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows are sorted as on a machine on which this sort is faster."""
    monkeypatch.setattr(sorting, "radix_digits", lambda: request.param)


@pytest.mark.usefixtures("faster_sort")
@pytest.mark.parametrize("width", [1, 7, 40, 64])
def test_words_are_sorted_either_way(width: int) -> None:
    words = np.random.default_rng(7).integers(0, 1 << width, 20_000, np.uint64, endpoint=False)
    assert np.array_equal(sort_words(words.copy(), width), np.sort(words))


def test_the_faster_sort_is_measured_once() -> None:
    assert sorting.radix_digits() > 0 and sorting.radix_digits() == sorting.radix_digits()


@pytest.mark.usefixtures("faster_sort")
@pytest.mark.parametrize("sort", [kernels.sort_leading, leading_order])
@pytest.mark.parametrize("name", SORTS)
def test_sort_goes_every_way(name: str, sort: Sort) -> None:
    rows = 5 * LONGEST_RUN
    rounds, keys, vals = SORTS[name]
    random = np.random.default_rng(7)
    key, val, tix = keys(random, rows), vals(random, rows), few(random, 3, rows).astype(np.int32)
    order, took = sorted_in_rounds(sort, key, val, tix)
    assert took == rounds
    assert np.array_equal(order, np.lexsort((tix, val, key)))
    assert np.array_equal(kernels.sort_order(key, val, tix), order)


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
