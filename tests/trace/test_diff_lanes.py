"""Diffs of several lanes: linear aggregates that live in the index, maintained by adding numbers."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ikebana import model
from ikebana.encoding import Schema
from ikebana.operators import Arrange
from ikebana.trace import Updates
from tests.trace import compare
from tests.trace.strategies import examples
from tests.trace.trace_run import head, merge_all

TOTALS = Schema({"k": pa.int64()}, diffs=("count", "sum"))

changes = st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3), st.integers(0, 9), st.integers(-2, 2)), max_size=30)


@examples(2)
@given(changes, st.lists(st.integers(1, 9), max_size=4))
def test_oracle_counts_and_sums(rows: list[tuple[int, int, int, int]], seals: list[int]) -> None:
    """Of changes (key, value, epoch, diff): the engine adds lanes, the model reduces the values of each key."""
    updates = [((k, v), (epoch,), n) for k, v, epoch, n in rows]
    with head(2):
        arrange = Arrange(TOTALS)
        handle, sealed = arrange.handle(), 0
        for upper in [*sorted(seals), 10]:
            part = [(k, v, epoch, n) for k, v, epoch, n in rows if sealed <= epoch < upper]
            lanes = {"count": [n for *_, n in part], "sum": [n * v for _, v, _, n in part]}
            arrange.update({"k": [k for k, *_ in part]}, [epoch for *_, epoch, _ in part], lanes)
            arrange.advance((upper,))
            sealed = upper
        for epoch in range(10):
            table = handle.read((epoch,)).to_pydict()
            rows_read = list(zip(table["k"], table["count"], table["sum"], strict=True))
            collection = model.accumulate(updates, (epoch,))
            assert {(k, n): 1 for k, n, _ in rows_read if n} == model.count(collection)
            assert {(k, total): 1 for k, n, total in rows_read if n} == model.sum(collection)
            assert all(n or total for _, n, total in rows_read)


def test_oracle_a_row_vanishes_when_all_lanes_are_zero() -> None:
    arrange = Arrange(TOTALS)
    handle = arrange.handle()
    for epoch, diff in enumerate([(1, 5), (-1, 0), (0, -5), (2, 0)]):
        arrange.update({"k": [1]}, (epoch,), dict(zip(TOTALS.diffs, diff, strict=True)))
        arrange.advance((epoch + 1,))
        if epoch == 1:
            merge_all(handle)
    read = [handle.read((epoch,)).to_pydict() for epoch in range(4)]
    assert read[:2] == [{"k": [1], "count": [1], "sum": [5]}, {"k": [1], "count": [0], "sum": [5]}]
    assert read[2:] == [{"k": [], "count": [], "sum": []}, {"k": [1], "count": [2], "sum": [0]}]
    handle.advance((2,))
    merge_all(handle)
    assert compare.triples(handle.updates()) == [(((1,), ()), (3,), (2, 0))]


def test_invariance_of_how_diffs_are_given() -> None:
    keys, sums = {"k": [1, 2, 3]}, [4, 4, 4]
    for count, total in [(1, 4), ([1, 1, 1], 4), (1, sums), ([1, 1, 1], pa.array(sums))]:
        updates = Updates.of(TOTALS, keys, (0,), {"sum": total, "count": count})
        assert [diff for _, _, diff in updates.triples()] == [(1, 4)] * 3
