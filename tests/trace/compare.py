"""Traces as the model sees them: Python values, dicts of accumulated diffs, lists of updates.

Data is `(key, val)`, each a tuple of plain values: what Python has for the column's type, except that dates
and times are the integers behind them and NaN is the word "nan". A diff is a tuple with a number for each
lane. The model knows one number: `accumulate` and `compact` here apply it lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import log2
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana import model
from ikebana.encoding import Schema
from ikebana.time import Antichain, Time
from ikebana.trace import Batch, Reader, Updates
from ikebana.trace.spine import RECENT

Data = tuple[tuple[Any, ...], tuple[Any, ...]]
Update = tuple[Data, Time, tuple[int, ...]]


# Arrow and plain values.
def array_of(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    """The column of plain values, in the field's type."""
    if types.is_temporal(field.type):
        return pa.array(values, f"int{field.type.bit_width}").view(field.type)
    return pa.array(values, field.type)


def plain(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python sees them, equal ones equal."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if types.is_temporal(array.type):
        return array.view(f"int{array.type.bit_width}").to_pylist()
    values = array.to_pylist()
    return [canonical(value) for value in values] if types.is_floating(array.type) else values


def canonical(value: Any) -> Any:
    """The value that an arrangement makes of it: one zero, one NaN."""
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    return value


def columns_of(schema: Schema, rows: Sequence[tuple[Any, ...]], side: str = "all") -> dict[str, pa.Array]:
    """Arrow columns of rows of plain values: of the keys, of the values, or of keys followed by values."""
    key, val = schema.key.fields, schema.val.fields
    fields = {"key": key, "val": val, "all": (*key, *val)}[side]
    return {f.name: array_of(f, [row[i] for row in rows]) for i, f in enumerate(fields)}


def _data(schema: Schema, columns: Sequence[Any], rows: int) -> list[Data]:
    split = len(schema.key.fields)
    flat = list(zip(*map(plain, columns), strict=True)) if columns else [()] * rows
    return [(row[:split], row[split:]) for row in flat]


def collection(table: pa.Table, schema: Schema) -> dict[Data, tuple[int, ...]]:
    """The collection in a table that `read` or `lookup` gives: each data once, no diff zero."""
    assert table.column_names == [*schema.names, *schema.diffs]
    assert [f.type for f in table.schema][: len(schema.names)] == [
        f.type for f in (*schema.key.fields, *schema.val.fields)
    ]
    data = _data(schema, table.columns[: len(schema.names)], table.num_rows)
    diffs = list(zip(*(column.to_pylist() for column in table.columns[len(schema.names) :]), strict=True))
    assert len(set(data)) == len(data), "duplicate data"
    assert all(any(diff) for diff in diffs), "a diff is zero"
    return dict(zip(data, diffs, strict=True))


def triples(updates: Updates) -> list[Update]:
    """Updates as the model has them."""
    data = _data(updates.schema, list(updates.columns().values()), len(updates))
    table = [tuple(time) for time in updates.times.tolist()]
    times = [table[position] for position in updates.tix.tolist()]
    return list(zip(data, times, zip(*updates.diffs.tolist(), strict=True), strict=True))


def batch_triples(batch: Batch) -> list[Update]:
    return triples(batch.gather(np.arange(len(batch))))


# The model, lane by lane.
def _by_lane(updates: Iterable[Update], f: Callable[[list[Any]], dict[Any, int]]) -> dict[Any, Any]:
    updates = list(updates)
    lanes = len(updates[0][2]) if updates else 1
    results = [f([(data, time, diff[lane]) for data, time, diff in updates]) for lane in range(lanes)]
    distinct = dict.fromkeys(item for result in results for item in result)
    return {item: tuple(result.get(item, 0) for result in results) for item in distinct}


def accumulate(updates: Iterable[Update], at: Time) -> dict[Data, tuple[int, ...]]:
    """The content of a changing collection at a time."""
    return _by_lane(updates, lambda lane: model.accumulate(lane, at))


def compact(updates: Iterable[Update], frontier: Iterable[Time]) -> dict[tuple[Data, Time], tuple[int, ...]]:
    """The compacted updates: the diff of each (data, time)."""
    compacted = lambda lane: {(d, t): diff for d, t, diff in model.compact(lane, frontier)}  # noqa: E731
    return _by_lane(updates, compacted)


# What must always hold.
def looked_up(reader: Reader, keys: list[tuple[Any, ...]], at: Time) -> dict[Data, tuple[int, ...]]:
    """The result of looking up keys."""
    return collection(reader.lookup(columns_of(reader.schema, keys, "key"), at), reader.schema)


def with_keys(of: dict[Data, tuple[int, ...]], keys: list[tuple[Any, ...]]) -> dict[Data, tuple[int, ...]]:
    """The expected result of looking up keys."""
    canonical_keys = {tuple(map(canonical, key)) for key in keys}
    return {data: diff for data, diff in of.items() if data[0] in canonical_keys}


def assert_stored_well(batches: Sequence[Any], lower: Antichain, inserted: int) -> None:
    """The invariants of a trace's batches: few, contiguous, each sorted and consolidated."""
    assert len(batches) <= RECENT - 1 + 2 + 2 * log2(max(1, inserted))
    for batch in batches:
        assert batch.description.lower == lower
        lower = batch.description.upper
        assert_sorted(batch)


def assert_sorted(batch: Any) -> None:
    rows = batch.window(0, len(batch))
    table = [tuple(time) for time in batch.times.tolist()]
    assert all(a < b for a, b in pairwise(table)), "times are not in order, or twice"
    lanes = [lane.tolist() for lane in rows[:4]]
    assert {len(lane) for lane in lanes} == {len(batch)}
    order = list(zip(lanes[0], lanes[2], lanes[1], lanes[3], strict=True))  # key, ident, value, time
    assert all(a < b for a, b in pairwise(order)), "rows are not in order, or twice"
    assert rows.diffs.any(axis=0).all(), "a diff is zero"
    collided = set(batch.collided.tolist())
    assert all(ident == 0 or key in collided for key, ident in zip(lanes[0], lanes[2], strict=True))
