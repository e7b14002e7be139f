"""Changes of few groups, added up without sorting, are those that sorting would give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.operators import grouping
from ikebana.operators.changes import Changes

FIELDS = (pa.field("text", pa.string()), pa.field("number", pa.int32()), pa.field("flag", pa.bool_()))

ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, "", "a", "b"]),
        st.sampled_from([None, 0, 7]),
        st.sampled_from([None, True, False]),
        st.integers(0, 2),  # the epoch
        st.integers(-3, 3),  # the diff
        st.integers(-(2**40), 2**40),  # the factor
    ),
    min_size=1,
    max_size=60,
)


def changes_of(rows: list[Any], columns: int) -> Changes:
    fields = FIELDS[:columns]
    arrays = tuple(pa.array([row[at] for row in rows], field.type) for at, field in enumerate(fields))
    epochs, tix = np.unique([row[3] for row in rows], return_inverse=True)
    diffs = np.array([[row[4] for row in rows]], np.int64)
    return Changes(epochs.reshape(-1, 1).astype(np.int64), tix.astype(np.int32), diffs, fields, arrays)


@given(ROWS, st.integers(0, 3))
def test_oracle_changes_of_few_groups(rows: list[Any], columns: int) -> None:
    changes, factors = changes_of(rows, columns), [np.ones(len(rows), np.int64), np.array([row[5] for row in rows])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "LEAST_ROWS", 1)
        patch.setattr(grouping, "_MOST_SAMPLED", 0)
        groups = grouping.few_groups(changes)
    assert groups is not None
    added = grouping.added_up(changes, groups, factors)
    distinct = {(*row[:columns], row[3]) for row in rows}
    assert len(added) == len(distinct)
    expected: dict[Any, list[int]] = {}
    for row in rows:
        total = expected.setdefault((row[:columns], (row[3],)), [0, 0])
        total[0], total[1] = total[0] + row[4], total[1] + row[4] * row[5]
    assert {(row, time): list(diff) for row, time, diff in added.triples()} == expected


def test_many_groups_are_left_alone() -> None:
    numbers = pa.array(np.arange(2 * grouping.LEAST_ROWS))
    fields = (pa.field("number", pa.int64(), nullable=False),)
    assert grouping.few_groups(Changes.of(fields, {"number": numbers}, times=(0,))) is None
    few = pa.array(np.arange(2 * grouping.LEAST_ROWS) % 5)
    assert grouping.few_groups(Changes.of(fields, {"number": few}, times=(0,))) is not None
    assert grouping.few_groups(Changes.of(fields, {"number": few.slice(0, 10)}, times=(0,))) is None


def test_floats_are_left_alone() -> None:
    fields = (pa.field("number", pa.float64(), nullable=False),)
    zeros = pa.array(np.zeros(2 * grouping.LEAST_ROWS))
    assert grouping.few_groups(Changes.of(fields, {"number": zeros}, times=(0,))) is None


@given(st.lists(st.sampled_from("abé") | st.sampled_from("ab"), min_size=1, max_size=30), st.integers(0, 5))
def test_oracle_strings_of_one_byte_are_numbered_like_others(characters: list[str], start: int) -> None:
    """Also those of a slice; é has two bytes."""
    column = pa.array(characters, pa.string()).slice(start)
    codes, values = grouping._codes(column)
    encoded = column.dictionary_encode()
    assert values == len(encoded.dictionary)
    assert len(set(zip(codes.tolist(), encoded.indices.to_pylist(), strict=True))) == values
    assert set(codes.tolist()) == set(range(values))
