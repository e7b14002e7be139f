"""Searches in the keys of a batch have the same result, however often the batch was searched before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.kernels import seek_ranges
from ikebana.trace import key_search
from ikebana.trace.key_search import KeySearch


@given(st.integers(0, 2**32), st.lists(st.sampled_from(["present", "absent", "any"]), min_size=1, max_size=5))
def test_invariance_repeated_searches(seed: int, kinds: list[str]) -> None:
    random = np.random.default_rng(seed)
    lane = np.sort(random.integers(0, 3_000, random.integers(1, 2_000)) * 2)
    probes = {
        "present": random.choice(lane, 200),
        "absent": random.integers(0, 3_000, 300) * 2 + 1,
        "any": random.integers(-5, 6_005, 400),
    }
    search = KeySearch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_search, "FILTERED_FROM", 100)
        patch.setattr(key_search, "SAMPLED_FROM", 500)
        patch.setattr(key_search, "SAMPLED", 64)
        for kind in kinds:
            keys = np.sort(probes[kind])
            starts, ends = search.ranges(lane, keys)
            expected_starts, expected_ends = seek_ranges(lane, keys)
            assert np.array_equal(ends - starts, expected_ends - expected_starts)
            present = ends > starts
            assert np.array_equal(starts[present], expected_starts[present])


def test_a_filter_is_kept_for_batches_that_lack_most_keys() -> None:
    lane, absent = np.arange(0, 20_000, 2), np.arange(1, 20_001, 2)
    missed, hit = KeySearch(), KeySearch()
    for _ in range(2):
        missed.ranges(lane, absent)
        hit.ranges(lane, lane)
    assert missed.nbytes == len(lane) and hit.nbytes == 0
