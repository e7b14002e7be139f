"""Rows as users have them at hand: Arrow, pandas, polars, dicts, tuples, Spark's rows. All become columns by name.

What is given is checked where it is used (`ikebana.encoding.columns.matched`): columns that are missing, unknown or of
another type are refused there, by name. A Spark DataFrame is not taken here: it may be larger than this process.

Rows to be deleted by key may be whole rows or keys alone, as dicts or as tuples: only the key is looked at.

A `datetime` without a time zone, where points in time are wanted, is taken as PySpark takes it and gives it: as local
time of this process. In pandas, missing whole numbers make floats of the others; these become whole again.

Cost: a pass over the data where it is not columnar already; none for Arrow and polars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.structs import has_structs
from ikebana.errors import SchemaError
from ikebana.operators.changes import Fields


def as_columns(data: Any, fields: Fields, key: Fields = ()) -> Any:
    """The data as an Arrow table, or as columns by name. Of rows by name or in order, with `key` only that.

    >>> fields = (pa.field("id", pa.int64()), pa.field("name", pa.string()))
    >>> as_columns([(1, "a"), {"name": "b", "id": 2}], fields)
    {'id': [1, 2], 'name': ['a', 'b']}
    >>> as_columns([(1,), (2, "b"), {"id": 3}], fields, key=fields[:1])
    {'id': [1, 2, 3]}
    """
    if isinstance(data, pa.Table | pa.RecordBatch):
        return data
    if hasattr(data, "sparkSession"):
        raise SchemaError(
            "rows were expected, not a Spark DataFrame",
            hint="use load(df) for a batch of any size, or follow(df) for a stream",
        )
    if isinstance(data, Mapping):
        return data if all(map(_is_column, data.values())) else _of_rows([data], fields, key)
    if type(data).__module__.startswith("pandas") and hasattr(data, "columns"):
        return _of_pandas(data, fields)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _of_arrow(data)
    if isinstance(data, tuple) and data and not isinstance(data[0], tuple | list | Mapping):
        return _of_rows([data], fields, key)  # one row, Spark's included
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _of_rows(list(data), fields, key)
    raise SchemaError(
        f"cannot make rows of a {type(data).__name__}",
        hint="give rows as dicts or tuples, columns by name, or an Arrow, pandas or polars table",
    )


def _is_column(value: Any) -> bool:
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
    return is_sequence or isinstance(value, np.ndarray | pa.Array | pa.ChunkedArray) or hasattr(value, "to_numpy")


def _of_arrow(data: Any) -> pa.Table:
    """A table of a library that speaks Arrow; polars has binaries of a kind that the rest does not know."""
    table = pa.table(data)
    for at, field in enumerate(table.schema):
        if types.is_binary_view(field.type):
            table = table.set_column(at, field.name, table[at].cast(pa.large_binary()))
    return table


def _of_pandas(frame: Any, fields: Fields) -> dict[str, Any]:
    known = {field.name: field for field in fields}
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        raise SchemaError(f"the table names {', '.join(map(repr, twice))} twice")
    return {name: _of_series(frame.iloc[:, at], name, known.get(name)) for at, name in enumerate(names)}


def _of_series(series: Any, name: str, field: pa.Field | None) -> Any:
    if field is not None and has_structs(field.type) and series.dtype == object:
        there = series.notna()
        return [_by_name(value) if is_there else None for value, is_there in zip(series, there, strict=True)]
    try:
        column = pa.Array.from_pandas(series)
        if field is not None and types.is_floating(column.type) and types.is_integer(field.type):
            column = pa.Array.from_pandas(series, type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        wanted = f"of type {field.type}" if field is not None else "of one type"
        raise SchemaError(f"column {name!r} is not {wanted}", detail=str(error)) from error
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _of_rows(rows: Sequence[Any], fields: Fields, key: Fields) -> dict[str, list[Any]]:
    """Rows, each a mapping by name or a sequence in the order of the columns."""
    names, wanted = [field.name for field in fields], [field.name for field in key or fields]
    made = [_cells(row, at, names, wanted) for at, row in enumerate(rows)]
    return {field.name: _values([row[at] for row in made], field) for at, field in enumerate(key or fields)}


def _cells(row: Any, at: int, names: list[str], wanted: list[str]) -> Sequence[Any]:
    """The wanted values of a row."""
    named = row.asDict() if hasattr(row, "asDict") and hasattr(row, "__fields__") else row
    if isinstance(named, Mapping):
        if not set(wanted) <= set(named) <= set(names):
            raise SchemaError(
                f"row {at} does not have the columns of the table",
                detail=f"it has {', '.join(map(repr, named))}; the table has {', '.join(map(repr, names))}",
                hint=f"give a value for {_each(wanted)}, and for no column that the table does not have",
            )
        return [named[name] for name in wanted]
    if isinstance(named, Sequence) and not isinstance(named, str | bytes):
        if len(named) == len(names):
            return [named[names.index(name)] for name in wanted]
        if len(named) == len(wanted):
            return named
    raise SchemaError(
        f"row {at} does not fit the columns {', '.join(map(repr, wanted))}",
        detail=f"it is {named!r}",
        hint="give a dict by column name, or as many values as there are columns",
    )


def _by_name(value: Any) -> Any:
    """A value in which Spark's rows are dicts, at any depth: their fields go by name, in whatever order."""
    if hasattr(value, "asDict") and hasattr(value, "__fields__"):
        value = value.asDict()
    if isinstance(value, Mapping):
        return {name: _by_name(each) for name, each in value.items()}
    return [_by_name(each) for each in value] if isinstance(value, list) else value


def _each(names: list[str]) -> str:
    return f"each of {', '.join(map(repr, names))}" if len(names) > 1 else repr(names[0])


def _values(values: list[Any], field: pa.Field) -> list[Any]:
    if has_structs(field.type):
        return [_by_name(value) for value in values]
    if not types.is_timestamp(field.type) or field.type.tz is None:
        return values
    return [each.astimezone(UTC) if isinstance(each, datetime) and each.tzinfo is None else each for each in values]
