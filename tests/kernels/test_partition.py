"""The kernels that partition rows compute what their twins do."""

from __future__ import annotations

from itertools import accumulate, chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from tests.kernels import naive
from tests.kernels.arrays import LAYOUTS, NUMBERS, lane

PARTS = 4


@given(st.lists(st.integers(0, PARTS - 1)), LAYOUTS)
def test_twin_partition_order(numbers, layout):
    order, bounds = kernels.partition_order(layout(lane(numbers)), PARTS)
    assert (order.tolist(), bounds.tolist()) == naive.partition_order(numbers, PARTS)


def check_moved(kernel, twin, kind, rows, layout):
    """A kernel moves the entries of the first rows, and then those of the others, to where its twin has them."""
    entries, numbers = [entry for entry, _ in rows], [number for _, number in rows]
    expected = twin(entries, numbers, PARTS)
    sizes = list(map(len, expected))
    cursors = np.array([end - size for end, size in zip(accumulate(sizes), sizes, strict=True)], np.int64)
    out, split = np.empty(len(entries), kind), len(entries) // 2
    for some in (slice(0, split), slice(split, None)):
        kernel(layout(np.array(entries[some], kind)), layout(lane(numbers[some])), cursors, out)
    assert cursors.tolist() == list(accumulate(sizes))
    assert out.tolist() == list(chain.from_iterable(expected))


@given(st.lists(st.tuples(NUMBERS, st.integers(0, PARTS - 1))), LAYOUTS)
def test_twin_partition_words(rows, layout):
    check_moved(kernels.partition_words, naive.partition_words, np.int64, rows, layout)


@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, PARTS - 1))), LAYOUTS)
def test_twin_partition_halves(rows, layout):
    check_moved(kernels.partition_halves, naive.partition_halves, np.int32, rows, layout)
