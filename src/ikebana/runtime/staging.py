"""Staging: rows that change a table, checked as far as they can be by themselves, and split by owner.

This is what the driver does with a user's rows, and what a guest (a task that loads) can do in its place:

    for worker, stage in stages(table, data, "insert", transaction=7, part=3, attempt=0, workers=guest.size):
        guest.send(worker, stage)

Checked here: that the columns are those of the table and of their types, that nothing is null that may not be, that
the ops are known, and fit the kind of table. Whether a key exists is known only by its owner, who checks that before
anything is committed (`ikebana.runtime.transactions`).

Of a row that is deleted from a keyed table only the key counts: other columns may be left out, or null.

Cost: no copy with one worker, or when all rows have one owner; else a pass over the key and a copy of the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding.columns import matched
from ikebana.encoding.lanes import Array, Lane
from ikebana.errors import SchemaError
from ikebana.kernels import shard_rows
from ikebana.operators.changes import Fields
from ikebana.runtime.messages import Stage, TableSpec

INSERT, UPSERT, DELETE = range(3)
OPS = {"insert": INSERT, "update": UPSERT, "upsert": UPSERT, "delete": DELETE}
"""What can be done with a row; an update is an upsert: it does not ask whether the key exists."""

_ALLOWED = {"keyed": (INSERT, UPSERT, DELETE), "bag": (INSERT, DELETE), "stream": (INSERT,)}
_WHY_NOT = {
    "bag": "it has no key, so there is nothing to update a row by",
    "stream": "it is a stream: its rows are not kept, they can only be added",
}


@dataclass(frozen=True, slots=True, eq=False)
class StagedRows:
    """Checked rows: columns in the order of the table's schema, and an op for all of them or one for each.

    The columns are those of the key alone where all rows of a keyed table are deletes.
    """

    columns: tuple[pa.Array, ...]
    ops: Any

    def __len__(self) -> int:
        return len(self.columns[0])

    def take(self, rows: Array) -> StagedRows:
        """The named rows, in the given order."""
        positions = pa.array(rows)
        ops = self.ops if isinstance(self.ops, int) else self.ops[rows]
        return StagedRows(tuple(column.take(positions) for column in self.columns), ops)

    def slice(self, start: int, count: int) -> StagedRows:
        """So many rows from one on."""
        ops = self.ops if isinstance(self.ops, int) else self.ops[start : start + count]
        return StagedRows(tuple(column.slice(start, count) for column in self.columns), ops)


def stages(
    table: TableSpec,
    data: Any,
    op: Any,
    *,
    transaction: int,
    part: Any,
    attempt: int = 0,
    workers: int,
    near: int = 0,
) -> Iterator[tuple[int, Stage]]:
    """What is to be sent to which worker, to stage rows. `op` is one of `OPS`, or one for each row.

    Rows of a stream have no owner: worker `near` takes them, or every worker a part if they are many.
    """
    for worker, rows in split_by_owner(table, checked(table, data, op), workers, near).items():
        yield worker, Stage(transaction, table.name, part, attempt, rows.columns, rows.ops)


# Owners.


def owners(schema: Schema, columns: Sequence[pa.Array], workers: int) -> Lane:
    """The worker that owns each row, by its key columns, which come first in `columns`."""
    keys = columns[: len(schema.key.fields)]
    lane, _ = schema.key.encode(keys, len(columns[0]))
    return shard_rows(lane, workers)


def split_by_owner(table: TableSpec, rows: StagedRows, workers: int, near: int = 0) -> dict[int, StagedRows]:
    """The rows of each worker that owns some, in order. Those of a stream may be anywhere: see `_spread`."""
    if not len(rows):
        return {}
    if workers == 1 or table.schema is None:
        return _spread(rows, workers, near % workers)
    owner = owners(table.schema, rows.columns, workers)
    if (owner == owner[0]).all():
        return {int(owner[0]): rows}
    there = np.flatnonzero(np.bincount(owner, minlength=workers))
    return {int(worker): rows.take(np.flatnonzero(owner == worker)) for worker in there}


def _spread(rows: StagedRows, workers: int, near: int) -> dict[int, StagedRows]:
    """Rows that nobody owns: few of them go to worker `near`, and of many each worker gets a part."""
    if workers == 1 or len(rows) < _MANY:
        return {near: rows}
    bounds = [len(rows) * worker // workers for worker in range(workers + 1)]
    return {worker: rows.slice(start, end - start) for worker, (start, end) in enumerate(pairwise(bounds))}


_MANY = 10_000
"""So many rows are worth the trouble of every worker."""


# Checks.


def checked(table: TableSpec, data: Any, op: Any) -> StagedRows:
    """The rows, or an error that names the table and the column."""
    ops, count = _ops(table, op)
    try:
        columns = _columns(table, data, ops)
        if count is not None and count != len(columns[0]):
            raise SchemaError(f"there are {len(columns[0])} rows and {count} ops", hint="give one op, or one for each")
    except SchemaError as error:
        what = f"cannot change table {table.name!r}: {error.what}"
        raise SchemaError(what, detail=error.detail, hint=error.hint) from None
    return StagedRows(columns, ops)


def _ops(table: TableSpec, op: Any) -> tuple[Any, int | None]:
    """The op, or ops, as numbers that this kind of table understands; and how many were given, if one for each row."""
    if isinstance(op, str):
        given, known = None, {op: _code(table, op)}
    else:
        given = op.to_pylist() if isinstance(op, pa.Array | pa.ChunkedArray) else list(op)
        known = {each: _code(table, each) for each in dict.fromkeys(given)}
    for code in known.values():
        if code not in _ALLOWED[table.kind]:
            raise SchemaError(
                f"cannot {_name(code)} rows of table {table.name!r}",
                detail=_WHY_NOT[table.kind],
                hint=f"what it understands: {', '.join(map(_name, _ALLOWED[table.kind]))}",
            )
    count = None if given is None else len(given)
    if len(known) <= 1:
        return next(iter(known.values()), INSERT), count
    assert given is not None
    return np.fromiter((known[each] for each in given), np.int8, len(given)), count


def _code(table: TableSpec, op: Any) -> int:
    if op not in OPS:
        raise SchemaError(
            f"cannot change table {table.name!r}: there is no op {op!r}", hint=f"use one of {', '.join(OPS)}"
        )
    return OPS[op]


def _name(code: int) -> str:
    return ("insert", "upsert", "delete")[code]


def _columns(table: TableSpec, data: Any, ops: Any) -> tuple[pa.Array, ...]:
    """The columns in the order of the schema, or those of the key if no others count."""
    if table.schema is None:
        return tuple(matched(data, table.fields))
    fields = (*table.schema.key.fields, *table.schema.val.fields)
    if table.kind == "keyed" and isinstance(ops, int) and ops == DELETE:
        fields, data = table.key, _without(data, table.schema.val.fields)
    columns = tuple(matched(data, _relaxed(table, fields, ops)))
    if not isinstance(ops, int) and len(ops) != len(columns[0]):
        return columns  # refused for that
    for field, column in zip(fields, columns, strict=True):
        if column.null_count and not field.nullable:
            _check_nulls(field, column, ops, is_key=field in table.key)
    return columns


def _without(data: Any, fields: Fields) -> Any:
    """The data without columns that do not count."""
    names = {field.name for field in fields}
    if isinstance(data, Mapping):
        return {name: column for name, column in data.items() if name not in names}
    if isinstance(data, pa.Table | pa.RecordBatch):
        return data.select([name for name in data.schema.names if name not in names])
    return data


def _relaxed(table: TableSpec, fields: Fields, ops: Any) -> Fields:
    """The fields, any of which may be null where it is not a matter of the column alone: keys, and deletes."""
    if table.kind != "keyed":
        return fields
    mixed = not isinstance(ops, int) and (ops == DELETE).any()
    return tuple(field.with_nullable(field.nullable or mixed or field in table.key) for field in fields)


def _check_nulls(field: pa.Field, column: pa.Array, ops: Any, *, is_key: bool) -> None:
    """Raise if a row has a null where there may be none; of a deleted row only the key counts."""
    bad = column.is_null().to_numpy(zero_copy_only=False)
    bad = bad if is_key else bad & (ops != DELETE)
    if not bad.any():
        return
    rows, first = int(bad.sum()), int(bad.argmax())
    declare = "" if is_key else ", or declare the column with pyarrow.field(..., nullable=True)"
    raise SchemaError(
        f"{'key ' if is_key else ''}column {field.name!r} has a null in {rows} row{'s' if rows > 1 else ''}",
        detail=f"the first is row {first}; " + ("a key is never null" if is_key else f"it is {field.type}, never null"),
        hint=f"filter such rows out{declare}",
    )
