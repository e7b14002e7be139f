"""Look-ups: the rows of a view or table that have given values in some columns, from the workers that own these keys.

    view.lookup(customer=5)                                  # one key
    view.lookup(customer=[5, 6])                             # several keys: columns ...
    view.lookup([{"customer": 5}, {"customer": 6}])          # ... or rows

One request, to one worker if all keys are its own; no epoch, no transaction. The request waits on the worker until the
last epoch that was closed before the call is complete, so a thread finds what it has changed. If later epochs are
complete by then, the answer is that of the last of them; `at` asks for exactly one epoch. All rows of an answer are of
one epoch.

The owner of a key is computed from its lane, by the schema of the arrangement, exactly as rows are distributed when
they are arranged (`ikebana.operators.exchange`).

Errors. A result is exact only if no worker has errors at its epoch (`ikebana.operators.row_errors`). So the first
look-up at an epoch asks all workers, which answer together; once they have, further look-ups at that epoch ask owners
only. Whether an epoch has errors never changes once it is complete.

Cost: encoding the keys, a request and its answer. The first look-up by columns that are not the key of an arrangement
builds one, which is shared like any other and kept until the view or table is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding.columns import match_columns
from ikebana.errors import SchemaError
from ikebana.kernels import shard_rows
from ikebana.runtime.messages import Keys, RowsOfKeys

_WORD = (1 << 64) - 1  # all bits of a lane


def given_keys(what: str, columns: Sequence[str], keys: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a look-up as columns by name, in the order of `columns`; raises if a name is not one of them.

    `keys` and `named` are the positional and the keyword arguments of `lookup`; `what` is the view or table.

    >>> given_keys("view 'totals'", ["customer", "day", "total"], None, {"day": 3, "customer": 5})
    {'customer': [5], 'day': [3]}
    >>> given_keys("view 'totals'", ["customer", "day", "total"], [{"customer": 5}, {"customer": 6}], {})
    {'customer': [5, 6]}
    """
    given = named if keys is None else _as_columns(what, keys)
    if keys is not None and named:
        raise _cannot(what, "keys are given both as an argument and by name", "give all of them in one way")
    unknown = [name for name in given if name not in columns]
    if unknown or not given:
        missing = f"it has no column {unknown[0]!r}; " if unknown else "no column is given; "
        raise _cannot(
            what,
            f"{missing}its columns are {', '.join(map(repr, columns))}",
            f"name the columns of the key, for instance lookup({columns[0]}=...)",
        )
    are_columns = {name: _is_column(value) for name, value in given.items()}
    if len(set(are_columns.values())) > 1:
        lists = ", ".join(repr(name) for name, is_column in are_columns.items() if is_column)
        raise _cannot(
            what,
            f"{lists} has several values, other columns have one",
            "give one value for each column, or a list for each, with a value for each key",
        )
    is_one = not any(are_columns.values())
    return {name: [given[name]] if is_one else given[name] for name in columns if name in given}


def _as_columns(what: str, keys: Any) -> Mapping[str, Any]:
    """Columns by name, of keys given as a mapping, an Arrow table, or a sequence of rows."""
    keys = keys.asDict() if hasattr(keys, "asDict") else keys  # a Spark row
    if isinstance(keys, Mapping):
        return keys
    if isinstance(keys, pa.Table | pa.RecordBatch):
        return dict(zip(keys.schema.names, keys.columns, strict=True))
    if isinstance(keys, Sequence) and not isinstance(keys, str | bytes):
        rows = [row.asDict() if hasattr(row, "asDict") else row for row in keys]
        if all(isinstance(row, Mapping) and row.keys() == rows[0].keys() for row in rows):
            return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    raise _cannot(
        what,
        f"a value of type {type(keys).__name__} is not a key",
        'give a value for each key column, for instance {"customer": 5}, or a list of such mappings with equal names',
    )


def _is_column(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray | pa.Array | pa.ChunkedArray)


def _cannot(what: str, detail: str, hint: str) -> SchemaError:
    return SchemaError(f"cannot look up rows of {what}", detail=detail, hint=hint)


def checked_keys(what: str, schema: Schema, keys: Mapping[str, Any]) -> tuple[Keys, list[pa.Array]]:
    """The columns of some keys as Arrow arrays, by name and in the order of the schema's key."""
    try:
        arrays = match_columns(keys, schema.key.fields)
    except SchemaError as error:
        raise SchemaError(
            f"cannot look up rows of {what}: {error.what}", detail=error.detail, hint=error.hint
        ) from None
    return {field.name: array for field, array in zip(schema.key.fields, arrays, strict=True)}, arrays


def owner(schema: Schema, arrays: Sequence[pa.Array], workers: int) -> int | None:
    """The worker that owns all keys; None if there are several."""
    if workers == 1:
        return 0
    lane, _ = schema.key.encode(arrays, len(arrays[0]) if arrays else 1)
    if len(lane) == 1:
        return _mixed(int(lane[0])) % workers
    owners = shard_rows(lane, workers)
    return int(owners[0]) if len(owners) and (owners == owners[0]).all() else None


def common_epoch(answers: Sequence[RowsOfKeys]) -> int | None:
    """The epoch of all answers; None if they are of different epochs."""
    epochs = {answer.epoch for answer in answers}
    return epochs.pop() if len(epochs) == 1 else None


def _mixed(lane: int) -> int:
    """The bits of a key lane, mixed as by `ikebana.kernels.shard_rows`, which would release the interpreter's lock."""
    x = lane & _WORD
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _WORD
    return x ^ x >> 31
