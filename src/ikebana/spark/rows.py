"""Rows as users have them at hand: Arrow, pandas, polars, dicts, tuples, Spark's rows. All become an Arrow table.

What is given is checked where it is used (`ikebana.trace.columns.matched`): columns that are missing, unknown or of
another type are refused there, by name. A Spark DataFrame is not taken here: it may be larger than this process.

Cost: a pass over the data where it is not columnar already; none for Arrow and polars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.errors import SchemaError
from ikebana.operators.changes import Fields


def as_columns(data: Any, fields: Fields) -> Any:
    """The data as an Arrow table, or as columns by name.

    >>> fields = (pa.field("id", pa.int64()), pa.field("name", pa.string()))
    >>> as_columns([(1, "a"), {"name": "b", "id": 2}], fields).to_pylist()
    [{'id': 1, 'name': 'a'}, {'id': 2, 'name': 'b'}]
    """
    if isinstance(data, pa.Table | pa.RecordBatch):
        return data
    if hasattr(data, "sparkSession"):
        raise SchemaError(
            "rows were expected, not a Spark DataFrame",
            hint="use load(df) for a batch of any size, or follow(df) for a stream",
        )
    if isinstance(data, Mapping):
        return data if all(_is_column(value) for value in data.values()) else _of_rows([data], fields)
    if type(data).__module__.startswith("pandas"):
        return pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    if isinstance(data, tuple) and not (data and isinstance(data[0], tuple | Mapping)):
        return _of_rows([data], fields)  # one row, Spark's included
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _of_rows(list(data), fields)
    raise SchemaError(
        f"cannot make rows of a {type(data).__name__}",
        hint="give rows as dicts or tuples, columns by name, or an Arrow, pandas or polars table",
    )


def _is_column(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray | pa.Array | pa.ChunkedArray) or hasattr(value, "to_numpy")


def _of_rows(rows: Sequence[Any], fields: Fields) -> pa.Table:
    """Rows, each a mapping by name or a sequence in the order of the columns."""
    names = [field.name for field in fields]
    made: list[Sequence[Any]] = []
    for at, row in enumerate(rows):
        named = row.asDict() if hasattr(row, "asDict") else row
        if isinstance(named, Mapping):
            if set(named) != set(names):
                raise SchemaError(
                    f"row {at} does not have the columns of the table",
                    detail=f"it has {', '.join(map(repr, named))}; the table has {', '.join(map(repr, names))}",
                    hint="give a value for every column, and for no other",
                )
            made.append([named[name] for name in names])
        elif isinstance(named, Sequence) and not isinstance(named, str | bytes) and len(named) == len(names):
            made.append(named)
        else:
            raise SchemaError(
                f"row {at} does not fit the columns {', '.join(map(repr, names))}",
                detail=f"it is {named!r}",
                hint="give a dict by column name, or as many values as there are columns",
            )
    return pa.table([_column([row[at] for row in made], field) for at, field in enumerate(fields)], names=names)


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(
            f"column {field.name!r} is not of type {field.type}",
            detail=str(error),
            hint=f"give values of type {field.type}",
        ) from error
