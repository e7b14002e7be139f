"""What tests of reductions share: random changes of small tables, and an engine that follows them.

A test says which columns there are and which values they have, how a query is made of a collection, and what a plain
function makes of the rows. `check` draws changes (no row is retracted that is not there), maintains the query, and
compares after each epoch. `applied` is for a logic by itself, without an engine.
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
"""A column, and the values it may have."""


def maybe(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=True)


def never(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def plain(value: Any) -> Any:
    """The same for what is equal to the engine: all NaNs, and both zeros."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value + 0.0)
    return tuple(map(plain, value)) if isinstance(value, list) else value


def plain_rows(rows: Rows) -> Rows:
    found: Rows = Counter()
    for row, count in rows.items():
        found[tuple(map(plain, row))] += count
    return found


def place(value: Any) -> Any:
    """Where a value that is not null stands in ascending order: NaN after all else, strings by their bytes."""
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
    """Follow the changes, and compare what is maintained with the twin's rows after each epoch."""
    fields = tuple(field for field, _ in domains)
    with Engine(workers=workers) as engine:
        source = engine.input("rows", fields)
        view = engine.install("view", query(source))
        rows: Rows = Counter()
        for changes in history:
            kept = []
            for row, diff in changes:
                diff = max(diff, -rows[row])
                rows[row] += diff
                kept.append((row, diff))
            source.push(arrays(fields, [row for row, _ in kept]), np.array([diff for _, diff in kept]))
            engine.advance()
            there = [row for row, count in rows.items() for _ in range(count)]
            assert read(view) == plain_rows(+twin(there))


def read(view: Any) -> Rows:
    *columns, diffs = view.read().columns
    count = len(diffs)
    rows = zip(*(column.to_pylist() for column in columns), strict=True) if columns else [()] * count
    found: Rows = Counter()
    for row, diff in zip(rows, diffs.to_pylist(), strict=True):
        found[tuple(map(plain, row))] += diff
    return found


def arrays(fields: Sequence[pa.Field], rows: Sequence[Row]) -> dict[str, pa.Array]:
    return {field.name: pa.array([row[at] for row in rows], field.type) for at, field in enumerate(fields)}


def applied(logic: Reducer, key: Sequence[pa.Field], val: Sequence[pa.Field], rows: Rows) -> Rows:
    """What a logic makes of rows: key columns and its own, with diffs; values as `plain` has them."""
    schema = Schema(key, val)
    data = list(rows)
    given = Updates.of(schema, arrays((*key, *val), data), (0,), np.array([rows[row] for row in data], np.int64))
    updates = consolidate(given).updates
    group = np.cumsum(np.append(False, updates.key[1:] != updates.key[:-1])) if len(updates) else updates.key
    made = logic.apply(Groups(group.astype(np.int64), updates, updates.diffs))
    outputs = logic.fields(schema)
    assert [column.type for column in made.columns] == [field.type for field in outputs]
    assert not any(
        column.null_count and not field.nullable for column, field in zip(made.columns, outputs, strict=True)
    )
    keys = [row[: len(key)] for row, _, _ in updates.take(made.rows).triples()]
    columns = [column.to_pylist() for column in made.columns]
    found: Rows = Counter()
    for at, (row, diff) in enumerate(zip(keys, made.diffs.tolist(), strict=True)):
        found[(*row, *(plain(column[at]) for column in columns))] += diff
    return found
