"""Rows in the forms that users have them: Arrow, pandas, polars, dicts, tuples, Spark rows. All become columns by name.

The columns are checked later (`ikebana.encoding.columns.match_columns`), where missing and unknown columns and other
types are refused by name. Spark DataFrames are not accepted here: one may be larger than the memory of this process.

Rows to be deleted by key may have all columns or only those of the key, as dicts or as tuples; only the key is used.
Where one column is asked for, its values may be given as they are: `table.delete([1, 2])`.

A `datetime` without a time zone, for a column of points in time, is local time of this process, as in PySpark. In
pandas missing integers turn the other integers of the column into floats; these are converted back.

Cost: a pass over the data if it is not columnar; none for Arrow and polars.
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
    """The data as an Arrow table or as columns by name. With `key`, only these columns of dicts and tuples are used.

    >>> fields = (pa.field("id", pa.int64()), pa.field("name", pa.string()))
    >>> as_columns([(1, "a"), {"name": "b", "id": 2}], fields)
    {'id': [1, 2], 'name': ['a', 'b']}
    >>> as_columns([(1,), (2, "b"), {"id": 3}, 4], fields, key=fields[:1])
    {'id': [1, 2, 3, 4]}
    """
    if isinstance(data, pa.Table | pa.RecordBatch):
        return data
    if hasattr(data, "sparkSession"):
        raise SchemaError(
            "a Spark DataFrame cannot be used here",
            hint="use load(df) for a batch of any size, or follow(df) for a stream",
        )
    if isinstance(data, Mapping):
        return data if all(map(_is_column, data.values())) else _rows_to_columns([data], fields, key)
    if type(data).__module__.startswith("pandas") and hasattr(data, "columns"):
        return _pandas_to_columns(data, fields)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _to_arrow(data)
    if isinstance(data, tuple) and data and not isinstance(data[0], tuple | list | Mapping):
        return _rows_to_columns([data], fields, key)  # one row, which may be a Spark row
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _rows_to_columns(list(data), fields, key)
    raise SchemaError(
        f"a value of type {type(data).__name__} is not a row",
        hint=f"give rows as dicts, such as {_example(key or fields)}, or tuples, columns by name, or an Arrow, pandas "
        "or polars table",
    )


def with_time_zones(columns: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """Columns by name, in which every `datetime` without a time zone has that of this process, where it matters."""
    known = {field.name: field for field in fields}
    return {
        name: _values(list(values), known[name]) if isinstance(values, list | tuple) else values
        for name, values in columns.items()
    }


def _example(fields: Fields) -> str:
    return "{" + ", ".join(f'"{field.name}": ...' for field in fields) + "}"


def _is_column(value: Any) -> bool:
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
    return is_sequence or isinstance(value, np.ndarray | pa.Array | pa.ChunkedArray) or hasattr(value, "to_numpy")


def _to_arrow(data: Any) -> pa.Table:
    """The table of a library that supports Arrow's C interface. Polars' binary views are converted to binaries."""
    table = pa.table(data)
    for index, field in enumerate(table.schema):
        if types.is_binary_view(field.type):
            table = table.set_column(index, field.name, table[index].cast(pa.large_binary()))
    return table


def _pandas_to_columns(frame: Any, fields: Fields) -> dict[str, Any]:
    known = {field.name: field for field in fields}
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        duplicates = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        raise SchemaError(f"the DataFrame has duplicate columns: {', '.join(map(repr, duplicates))}")
    return {name: _series_to_array(frame.iloc[:, index], name, known.get(name)) for index, name in enumerate(names)}


def _series_to_array(series: Any, name: str, field: pa.Field | None) -> Any:
    if field is not None and has_structs(field.type) and series.dtype == object:
        return [_by_name(value) if valid else None for value, valid in zip(series, series.notna(), strict=True)]
    try:
        column = pa.Array.from_pandas(series)
        if field is not None and types.is_floating(column.type) and types.is_integer(field.type):
            column = pa.Array.from_pandas(series, type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        expected = f"of type {field.type}" if field is not None else "of one type"
        raise SchemaError(f"column {name!r} is not {expected}", detail=str(error)) from error
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _rows_to_columns(rows: Sequence[Any], fields: Fields, key: Fields) -> dict[str, list[Any]]:
    """The columns of rows, each a mapping by name or a sequence in the order of the columns."""
    names, selected = [field.name for field in fields], key or fields
    selected_names = [field.name for field in selected]
    tuples = [_selected_values(row, number, names, selected_names) for number, row in enumerate(rows)]
    return {field.name: _values([row[index] for row in tuples], field) for index, field in enumerate(selected)}


def _selected_values(row: Any, number: int, names: list[str], selected: list[str]) -> Sequence[Any]:
    """The values of a row in the selected columns."""
    row = row.asDict() if _is_spark_row(row) else row
    if isinstance(row, Mapping):
        if not set(selected) <= set(row) <= set(names):
            raise SchemaError(
                f"row {number} does not have the columns of the table",
                detail=f"it has {', '.join(map(repr, row))}; the table has {', '.join(map(repr, names))}",
                hint=f"give a value for {_all_of(selected)}, and for no column that the table does not have",
            )
        return [row[name] for name in selected]
    if isinstance(row, Sequence) and not isinstance(row, str | bytes):
        if len(row) == len(names):
            return [row[names.index(name)] for name in selected]
        if len(row) == len(selected):
            return row
    elif len(selected) == 1:
        return [row]
    raise SchemaError(
        f"row {number} does not fit the {_columns(selected)}",
        detail=f"it is {row!r}",
        hint="give a dict by column name, or a tuple with one value for each column",
    )


def _is_spark_row(value: Any) -> bool:
    return hasattr(value, "asDict") and hasattr(value, "__fields__")


def _by_name(value: Any) -> Any:
    """A value with dicts in place of Spark rows, at any depth, so that fields are matched by name."""
    if _is_spark_row(value):
        value = value.asDict()
    if isinstance(value, Mapping):
        return {name: _by_name(item) for name, item in value.items()}
    return [_by_name(item) for item in value] if isinstance(value, list) else value


def _columns(names: list[str]) -> str:
    return f"column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def _all_of(names: list[str]) -> str:
    return f"each of {', '.join(map(repr, names))}" if len(names) > 1 else repr(names[0])


def _values(values: list[Any], field: pa.Field) -> list[Any]:
    if has_structs(field.type):
        return [_by_name(value) for value in values]
    if not types.is_timestamp(field.type) or field.type.tz is None:
        return values
    return [v.astimezone(UTC) if isinstance(v, datetime) and v.tzinfo is None else v for v in values]
