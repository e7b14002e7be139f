"""Batch files: a batch that was written is read as it was, mapped or not, and can be used as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.encoding.lanes import is_constant
from ikebana.storage import LocalDirectory, decode_schema, encode_schema, read_batch, schema_digest
from ikebana.storage.batch_files import write_batch
from ikebana.trace.batch import StoredBatch
from ikebana.trace.description import Description, frontier_of
from ikebana.trace.updates import Updates, consolidate
from tests.storage.memory_disk import MemoryDisk

SCHEMAS = {
    "exact": Schema(key={"a": pa.int64()}, val={"b": pa.int64()}),
    "no values": Schema(key={"a": pa.int32()}),
    "no columns": Schema(key={}),
    "texts": Schema(key={"a": pa.string()}, val=[pa.field("b", pa.string()), pa.field("c", pa.float64())]),
    "collisions": Schema(key={"a": pa.string()}, val={"b": pa.string()}, hash_bits=1),
    "sums": Schema(key={"a": pa.int64()}, diffs=("count", "sum")),
    "nested": Schema(key={"a": pa.int64()}, val=[pa.field("b", pa.list_(pa.string()))]),
}
VALUES = {
    pa.int64(): st.integers(-5, 5),
    pa.int32(): st.integers(-5, 5),
    pa.string(): st.sampled_from(["", "a", "ü", "abc" * 20]),
    pa.float64(): st.sampled_from([0.0, 1.5, float("inf")]),
    pa.list_(pa.string()): st.lists(st.sampled_from(["x", None]), max_size=2),
}


@st.composite
def batches(draw: Any) -> StoredBatch:
    schema = SCHEMAS[draw(st.sampled_from(sorted(SCHEMAS)))]
    rows = draw(st.integers(0, 8))
    columns = {}
    for field in (*schema.key.fields, *schema.val.fields):
        values = st.none() | VALUES[field.type] if field.nullable else VALUES[field.type]
        columns[field.name] = pa.array([draw(values) for _ in range(rows)], field.type)
    times = [(draw(st.integers(0, 2)), draw(st.integers(0, 1))) for _ in range(rows)]
    diffs: Any = [draw(st.integers(-2, 2)) for _ in range(rows)]
    if len(schema.diffs) > 1:
        diffs = {name: diffs for name in schema.diffs}
    updates = Updates.of(schema, columns, times, diffs) if rows else Updates.empty(schema, 2)
    frontiers = map(frontier_of, ((0, 0), [(3, 0), (0, 2)], (1, 0)))
    return StoredBatch.of(consolidate(updates), Description(*frontiers))


@given(batches(), st.booleans())
def test_a_batch_is_read_as_it_was_written(batch: StoredBatch, mapped: bool) -> None:
    directory = LocalDirectory("/data", MemoryDisk())
    file = write_batch(directory, "x.batch", batch)
    assert (file.rows, file.bytes) == (len(batch), directory.size("x.batch"))
    read = read_batch(directory, file, mapped=mapped)
    assert read.updates.triples() == batch.updates.triples()
    assert (read.schema, read.description) == (batch.schema, batch.description)
    for name in ("key", "val", "tix", "diffs", "times"):
        one, other = getattr(read.updates, name), getattr(batch.updates, name)
        assert one.dtype == other.dtype and one.tolist() == other.tolist()
        assert is_constant(one) == (is_constant(other) and other.size > 0)
    assert read.ident.tolist() == batch.ident.tolist() and read.collided.tolist() == batch.collided.tolist()
    keys = np.unique(batch.updates.key)
    assert [lane.tolist() for lane in read.seek(keys)] == [lane.tolist() for lane in batch.seek(keys)]
    assert consolidate(read.gather()).updates.triples() == batch.updates.triples()


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_is_decoded_as_it_was_encoded(schema: Schema) -> None:
    assert decode_schema(encode_schema(schema)) == schema
    assert schema_digest(schema) == schema_digest(decode_schema(encode_schema(schema)))
    assert len({schema_digest(other) for other in SCHEMAS.values()}) == len(SCHEMAS)


def test_payload_is_not_copied(tmp_path: Path) -> None:
    schema = SCHEMAS["texts"]
    columns = {"a": pa.array(map(str, range(1000))), "b": pa.array(["x"] * 1000), "c": pa.array([1.0] * 1000)}
    batch = StoredBatch.of(consolidate(Updates.of(schema, columns, (0,))), Description(*map(frontier_of, [(0,)] * 3)))
    directory = LocalDirectory(tmp_path)
    before = pa.total_allocated_bytes()
    read = read_batch(directory, write_batch(directory, "x.batch", batch))
    assert pa.total_allocated_bytes() - before < 10_000
    assert not read.updates.key.flags.writeable
    assert not read.updates.key.flags.owndata
