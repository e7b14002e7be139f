"""The kernels that hash and shard compute what their twins do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from tests.kernels import naive
from tests.kernels.arrays import FLAGS, GREATEST, LAYOUTS, LEAST, NUMBERS, STRINGS, bytes_of, flags, lane, offsets_of


@given(st.lists(st.tuples(NUMBERS, FLAGS, NUMBERS)), LAYOUTS)
def test_twin_hash_integers(rows, layout):
    values, valid, hashes = ([row[field] for row in rows] for field in range(3))
    out = lane(hashes)
    kernels.hash_integers(layout(lane(values)), layout(flags(valid)), out)
    assert out.tolist() == naive.hash_integers(values, valid, hashes)


@given(st.lists(st.tuples(STRINGS, FLAGS, NUMBERS)), STRINGS, LAYOUTS)
def test_twin_hash_bytes(rows, skipped, layout):
    strings, valid, hashes = ([row[field] for row in rows] for field in range(3))
    out, offsets = lane(hashes), offsets_of(strings, first=len(skipped))  # a slice of a larger column
    kernels.hash_bytes(layout(offsets), bytes_of([skipped, *strings]), layout(flags(valid)), out)
    assert out.tolist() == naive.hash_bytes(strings, valid, hashes)


@given(st.lists(NUMBERS), st.integers(1, 5) | st.integers(1, GREATEST), LAYOUTS)
def test_twin_shard_rows(keys, shards, layout):
    assert kernels.shard_rows(layout(lane(keys)), shards).tolist() == naive.shard_rows(keys, shards)


@given(st.lists(NUMBERS, unique=True), NUMBERS)
def test_integers_that_differ_in_one_column_never_collide(values, running):
    hashes = np.full(len(values), running)
    kernels.hash_integers(lane(values), np.ones(len(values), np.uint8), hashes)
    assert len(set(hashes.tolist())) == len(values)


def test_no_common_value_collides_with_null() -> None:
    values = [0, *range(-1000, 1001), LEAST, GREATEST]
    hashes, valid = np.zeros(len(values), np.int64), np.ones(len(values), np.uint8)
    valid[0] = 0
    kernels.hash_integers(lane(values), valid, hashes)
    null, *others = hashes.tolist()
    assert null not in others

    strings = [b"", b"", b"\0", b"\0" * 8, b"\xff" * 8]
    hashes, valid = np.zeros(len(strings), np.int64), flags([0, 1, 1, 1, 1])
    kernels.hash_bytes(offsets_of(strings), bytes_of(strings), valid, hashes)
    assert len(set(hashes.tolist())) == len(strings)
