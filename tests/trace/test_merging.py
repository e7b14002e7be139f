"""Merges of two batches: which times their output has, and that batches whose keys do not overlap are only copied."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.time import Antichain
from ikebana.trace import Batcher, Handle, Trace, Updates
from ikebana.trace.batch import StoredBatch
from ikebana.trace.merge import Merge, finished
from ikebana.trace.spine import HEAD

KEYS = Schema({"k": pa.int64()})
START = Antichain.of((0,))


def test_a_merge_compacts_the_times_that_readers_have_passed_when_it_is_given_fuel() -> None:
    trace = Trace(KEYS, START)
    handle, batcher = Handle(trace, START), Batcher(KEYS, START, "rows")
    for epoch in range(3):
        keys = np.arange(epoch, 6 * HEAD, 3)
        batcher.append(Updates.of(KEYS, {"k": keys}, (epoch,)))
        trace.insert(batcher.seal(Antichain.of((epoch + 1,))))
        handle.advance((epoch + 1,))
    merged = trace.spine.batches()[0]
    assert len(merged) == 4 * HEAD
    assert merged.times.tolist() == [[2]]


ROWS = st.tuples(
    st.none() | st.text(max_size=5), st.none() | st.decimals(-9, 9, places=2), st.integers(-2, 2).filter(bool)
)
SCHEMAS = {
    "payload": Schema(
        {"k": pa.int64()},
        [pa.field("text", pa.string()), pa.field("number", pa.decimal128(20, 2))],
        diffs=["count", "sum"],
    ),
    "exact": Schema({"k": pa.int64()}, {"number": pa.decimal128(9, 2)}),
    "keys": KEYS,
}


def batch_of(schema: Schema, first: int, rows: list[tuple[str | None, Decimal | None, int]], epoch: int) -> StoredBatch:
    """A batch of one epoch, with a key for each row."""
    texts, numbers, diffs = zip(*rows, strict=True)
    numbers = tuple(number if number is not None or "text" in schema.names else Decimal(0) for number in numbers)
    columns = {
        "k": pa.array(range(first, first + len(rows)), pa.int64()),
        "text": pa.array(texts, pa.string()),
        "number": pa.array(numbers, pa.decimal128(20 if "text" in schema.names else 9, 2)),
    }
    given = {name: columns[name] for name in schema.names}
    lanes = dict.fromkeys(schema.diffs, np.array(diffs))
    batcher = Batcher(schema, Antichain.of((epoch,)), "rows")
    batcher.append(Updates.of(schema, given, (epoch,), lanes if len(lanes) > 1 else lanes[schema.diffs[0]]))
    return batcher.seal(Antichain.of((epoch + 1,)))


@pytest.mark.parametrize("name", SCHEMAS)
@given(
    st.lists(ROWS, min_size=1, max_size=9), st.lists(ROWS, min_size=1, max_size=9), st.integers(1, 20), st.booleans()
)
def test_oracle_batches_whose_keys_do_not_overlap_are_copied(name, older, newer, fuel, one_time) -> None:
    schema = SCHEMAS[name]
    a, b = batch_of(schema, 0, older, 0), batch_of(schema, len(older), newer, 1)
    since = Antichain.of((1 if one_time else 0,))
    copied, merged = Merge(a, b).begin(since), Merge(a, b).begin(since)
    assert copied._is_concatenation
    merged._is_concatenation = False
    while copied.remaining:
        expected_rows = min(fuel, copied.remaining)
        assert copied.work(fuel) == expected_rows
    result, expected = copied.finish(), finished(merged)
    assert result.updates.triples() == expected.updates.triples()
    assert result.updates.val.tolist() == expected.updates.val.tolist()
    assert result.updates.diffs.strides[-1] == expected.updates.diffs.strides[-1], "one is stored once, one is not"


def test_batches_whose_keys_overlap_or_that_have_several_times_are_merged() -> None:
    rows = [("a", Decimal(1), 1)] * 3
    a, b = batch_of(KEYS, 0, rows, 0), batch_of(KEYS, 2, rows, 1)
    assert not Merge(a, b).begin(START)._is_concatenation
    both = finished(Merge(a, batch_of(KEYS, 3, rows, 1)).begin(START))
    assert len(both.times) == 2
    assert not Merge(both, batch_of(KEYS, 9, rows, 2)).begin(START)._is_concatenation
