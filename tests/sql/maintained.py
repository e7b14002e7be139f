"""Shared by tests of reductions: random changes of small tables, and an engine that maintains a query through them.

A test gives columns with their possible values, a query over a collection, and a plain function of the rows that is its
specification. `check` applies changes (it never retracts a row that is absent), maintains the query, and compares both
after each epoch. `applied` tests a reducer by itself, without an engine.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.engine import Engine
from ikebana.engine.collection import Collection
from ikebana.operators.reducers import Groups, Reducer
from ikebana.trace import Updates
from ikebana.trace.updates import consolidate

Row = tuple[Any, ...]
Rows = Counter[Row]
Domain = tuple[pa.Field, list[Any]]
"""A column, and its possible values."""


def maybe(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=True)


def never(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def plain(value: Any) -> Any:
    """A value that is the same for values the engine considers equal: all NaNs, and both zeros."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value + 0.0)
    return tuple(map(plain, value)) if isinstance(value, list) else value


def plain_rows(rows: Rows) -> Rows:
    counts: Rows = Counter()
    for row, count in rows.items():
        counts[tuple(map(plain, row))] += count
    return counts


def place(value: Any) -> Any:
    """A sort key for values that are not null: NaN is the greatest, strings are compared by their bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def histories(
    domains: Sequence[Domain], epochs: int = 4, most: int = 10
) -> st.SearchStrategy[list[list[tuple[Row, int]]]]:
    """Changes, epoch by epoch."""
    row = st.tuples(*(st.sampled_from(values) for _, values in domains))
    change = st.tuples(row, st.sampled_from([1, 1, 1, 2, 3, -1, -2]))
    return st.lists(st.lists(change, min_size=1, max_size=most), min_size=1, max_size=epochs)


def check(
    domains: Sequence[Domain],
    history: list[list[tuple[Row, int]]],
    query: Callable[[Collection], Collection],
    twin: Callable[[list[Row]], Rows],
    workers: int = 1,
) -> None:
    """Apply the changes, and compare the maintained rows with those of the twin after each epoch."""
    fields = tuple(field for field, _ in domains)
    with Engine(workers=workers) as engine:
        source = engine.input("rows", fields)
        view = engine.install("view", query(source))
        rows: Rows = Counter()
        for changes in history:
            applicable = []
            for row, diff in changes:
                diff = max(diff, -rows[row])
                rows[row] += diff
                applicable.append((row, diff))
            source.push(arrays(fields, [row for row, _ in applicable]), np.array([diff for _, diff in applicable]))
            engine.advance()
            present = [row for row, count in rows.items() for _ in range(count)]
            assert read(view) == plain_rows(+twin(present))


def read(view: Any) -> Rows:
    *columns, diffs = view.read().columns
    count = len(diffs)
    rows = zip(*(column.to_pylist() for column in columns), strict=True) if columns else [()] * count
    counts: Rows = Counter()
    for row, diff in zip(rows, diffs.to_pylist(), strict=True):
        counts[tuple(map(plain, row))] += diff
    return counts


def arrays(fields: Sequence[pa.Field], rows: Sequence[Row]) -> dict[str, pa.Array]:
    return {field.name: pa.array([row[at] for row in rows], field.type) for at, field in enumerate(fields)}


def applied(logic: Reducer, key: Sequence[pa.Field], val: Sequence[pa.Field], rows: Rows) -> Rows:
    """The rows that a reducer computes: key columns and its own, with diffs; values as `plain` returns them."""
    schema = Schema(key, val)
    data = list(rows)
    inputs = Updates.of(schema, arrays((*key, *val), data), (0,), np.array([rows[row] for row in data], np.int64))
    updates = consolidate(inputs).updates
    group = np.cumsum(np.append(False, updates.key[1:] != updates.key[:-1])) if len(updates) else updates.key
    reduced = logic.apply(Groups(group.astype(np.int64), updates, updates.diffs))
    outputs = logic.fields(schema)
    assert [column.type for column in reduced.columns] == [field.type for field in outputs]
    assert not any(
        column.null_count and not field.nullable for column, field in zip(reduced.columns, outputs, strict=True)
    )
    keys = [row[: len(key)] for row, _, _ in updates.take(reduced.rows).triples()]
    columns = [column.to_pylist() for column in reduced.columns]
    counts: Rows = Counter()
    for at, (row, diff) in enumerate(zip(keys, reduced.diffs.tolist(), strict=True)):
        counts[(*row, *(plain(column[at]) for column in columns))] += diff
    return counts
