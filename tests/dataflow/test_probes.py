"""Probes meet the same rows whether they are sorted or find them by the offsets of their keys."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.operators import probes
from ikebana.operators.join import Pairs
from ikebana.operators.probes import OffsetProbes, SortedProbes, probes_of
from ikebana.trace import Updates

KEYS = st.lists(st.integers(0, 6), max_size=30)
FAR = 2**63 - 8
SCHEMA = Schema(key={"k": pa.int64()}, val={"v": pa.int64()})


def updates_of(keys: list[int], base: int) -> Updates:
    return Updates.of(SCHEMA, {"k": [base + key for key in keys], "v": list(range(len(keys)))}, times=(0,))


def by_offset(updates: Updates) -> OffsetProbes:
    with patch.object(probes, "LEAST_ROWS", 1), patch.object(probes, "_MOST_KEYS", 100):
        found = probes_of(updates)
    assert isinstance(found, OffsetProbes)
    return found


def values(pairs: Iterator[Pairs]) -> list[tuple[int, int]]:
    met = []
    for each in pairs:
        if each.has_each_of_a:
            assert each.a_rows.tolist() == list(range(len(each.a)))
        met += zip(each.a.val[each.a_rows].tolist(), each.b.val[each.b_rows].tolist(), strict=True)
    return sorted(met)


@given(KEYS.filter(bool), KEYS, st.sampled_from([0, -3, -(2**63), FAR]), st.booleans())
def test_invariance_pairs_by_offset_are_those_of_a_sort(given_keys, stored, base, in_order):
    updates = updates_of(given_keys, base)
    stored = [key for key in stored if key in given_keys]
    rows = updates_of(sorted(stored) if in_order else stored, base)
    order = None if in_order else np.argsort(rows.key, kind="stable")
    sought, sorted_probes = by_offset(updates), probes_of(updates)
    assert isinstance(sorted_probes, SortedProbes)
    assert sought.keys.tolist() == sorted({base + key for key in given_keys})
    assert values(sought.join(rows, order)) == values(sorted_probes.join(rows, order))


def test_keys_far_apart_and_keys_that_are_hashes_are_sorted() -> None:
    with patch.object(probes, "LEAST_ROWS", 1):
        assert isinstance(probes_of(updates_of([0, 1000], 0)), SortedProbes)
        texts = Updates.of(Schema(key={"k": pa.string()}), {"k": ["a", "b"]}, times=(0,))
        assert isinstance(probes_of(texts), SortedProbes)
