"""Staging: validate rows that change a table, and split them by the worker that owns them.

This is the sender's side of a transaction: the driver does it with a user's rows, and so can a client, such as a task
that loads data:

    for worker, stage in stages(table, data, "insert", transaction=7, part=3, attempt=0, workers=client.size):
        client.send(worker, stage)

Checked here: that the columns have the names and types of the table's columns, that columns declared not null have no
nulls, and that the ops are valid for this kind of table. Whether a key exists is known only to the worker that owns
it, which checks that before the transaction is committed (`ikebana.runtime.transactions`).

To delete rows from a keyed table, only their keys are needed: other columns may be missing, or null.

Cost: no copy with one worker, or if all rows have the same owner; otherwise a pass over the keys and a copy of the
columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding.columns import match_columns
from ikebana.encoding.lanes import Array, Lane
from ikebana.errors import SchemaError
from ikebana.kernels import shard_rows
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.partition import split_rows
from ikebana.runtime.memory_budget import array_bytes
from ikebana.runtime.messages import Stage, TableSpec

INSERT, UPSERT, DELETE = range(3)
OPS = {"insert": INSERT, "update": UPSERT, "upsert": UPSERT, "delete": DELETE}
"""What can be done with a row. An update is an upsert: it does not check whether the key exists."""

_ALLOWED = {"keyed": (INSERT, UPSERT, DELETE), "bag": (INSERT, DELETE), "stream": (INSERT,)}
_WHY_NOT_ALLOWED = {
    "bag": "the table has no key by which a row could be updated",
    "stream": "it is a stream: its rows are not stored, so rows can only be inserted",
}


@dataclass(frozen=True, slots=True, eq=False)
class StagedRows:
    """Validated rows: columns in the order of the table's schema, and one op for all rows or one for each.

    If all rows of a keyed table are deletes, there are only the key columns.
    """

    columns: tuple[pa.Array, ...]
    ops: Any

    def __len__(self) -> int:
        return len(self.columns[0])

    def take(self, rows: Array) -> StagedRows:
        """The rows at some positions, in the given order."""
        positions = pa.array(rows)
        ops = self.ops if isinstance(self.ops, int) else self.ops[rows]
        return StagedRows(tuple(column.take(positions) for column in self.columns), ops)

    def slice(self, start: int, count: int) -> StagedRows:
        """`count` rows, beginning with row `start`."""
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
    stream_worker: int = 0,
) -> Iterator[tuple[int, Stage]]:
    """The messages that stage rows, each with the worker to send it to. `op` is one of `OPS`, or one for each row.

    Rows of a stream have no owner: worker `stream_worker` gets them, or every worker a part if there are many.
    """
    for worker, rows in split_by_owner(table, validated(table, data, op), workers, stream_worker).items():
        yield worker, Stage(transaction, table.name, part, attempt, rows.columns, rows.ops)


def in_pieces(stage: Stage) -> Iterator[Stage]:
    """The rows of a message as messages of about `PIECE_BYTES` at most, in order; they need parts of their own.

    Few rows stay together, however many bytes they have.
    """
    rows = len(stage.columns[0]) if stage.columns else 0
    pieces = 1 if rows < DIVIDED_ROWS else min(-(-array_bytes(stage.columns) // PIECE_BYTES), rows)
    if pieces <= 1:
        yield stage
        return
    staged = StagedRows(stage.columns, stage.ops)
    for start, end in pairwise([rows * piece // pieces for piece in range(pieces + 1)]):
        piece = staged.slice(start, end - start)
        yield replace(stage, columns=piece.columns, ops=piece.ops)


DIVIDED_ROWS = 4096
"""Changes of fewer rows are not divided: to look at their size would take a tenth of the time of a small change."""

PIECE_BYTES = 8 << 20
"""Messages of this size fit into memory that is shared with several workers; what does not is sent through sockets."""


# Owners.


def owners(schema: Schema, columns: Sequence[pa.Array], workers: int, rows: int | None = None) -> Lane:
    """The worker that owns each row, by its key columns, which come first in `columns`.

    `rows` is the number of rows, if there may be no columns.
    """
    keys = columns[: len(schema.key.fields)]
    lane, _ = schema.key.encode(keys, len(columns[0]) if rows is None else rows)
    return shard_rows(lane, workers)


def changes_by_owner(schema: Schema, changes: Changes, workers: int) -> Iterator[tuple[int, Changes]]:
    """The changes of the rows that each worker owns, by the key of a schema; workers without any are left out."""
    if workers == 1:
        yield 0, changes
        return
    named = changes.named
    owned_by = owners(schema, [named[field.name] for field in schema.key.fields], workers, len(changes))
    for worker, part in enumerate(split_rows(changes, owned_by, workers)):
        if part is not None:
            yield worker, part


def split_by_owner(table: TableSpec, rows: StagedRows, workers: int, stream_worker: int = 0) -> dict[int, StagedRows]:
    """The rows by the worker that owns them, in order; workers without rows are left out.

    The rows of a stream have no owner, and are distributed by `_spread`.
    """
    if not len(rows):
        return {}
    if workers == 1 or table.schema is None:
        return _spread(rows, workers, stream_worker % workers)
    parts = split_rows(rows, owners(table.schema, rows.columns, workers), workers)
    return {worker: part for worker, part in enumerate(parts) if part is not None}


def _spread(rows: StagedRows, workers: int, stream_worker: int) -> dict[int, StagedRows]:
    """Distribute rows without an owner: all to `stream_worker`, or a part to every worker if there are many."""
    if workers == 1 or len(rows) < SPREAD_ROWS:
        return {stream_worker: rows}
    bounds = [len(rows) * worker // workers for worker in range(workers + 1)]
    return {worker: rows.slice(start, end - start) for worker, (start, end) in enumerate(pairwise(bounds))}


SPREAD_ROWS = 10_000
"""From this number on, rows of a stream are divided among all workers."""


# Validation.


def check_stage(table: TableSpec, stage: Stage, worker: int, workers: int) -> None:
    """Raise unless rows that a client has staged on a worker are as `stages` creates them for this worker."""
    columns, ops = stage.columns, stage.ops
    codes = [ops] if isinstance(ops, int) else np.unique(ops).tolist()
    rows = len(columns[0]) if columns else 0
    if not set(codes) <= set(_ALLOWED[table.kind]) or (not isinstance(ops, int) and len(ops) != rows):
        raise _unfit(table, "their ops are not valid")
    fields = _staged_fields(table, ops)
    if [field.type for field in fields] != [column.type for column in columns]:
        raise _unfit(table, "their columns are not those of the table")
    for field, column in zip(fields, columns, strict=True):
        if column.null_count and not field.nullable:
            _check_nulls(field, column, ops, is_key=field in table.key)
    if table.schema is not None and workers > 1 and (owners(table.schema, columns, workers) != worker).any():
        raise _unfit(table, f"some of them do not belong to worker {worker}")


def _unfit(table: TableSpec, reason: str) -> SchemaError:
    return SchemaError(
        f"rows for table {table.name!r} were refused",
        detail=reason,
        hint="all processes must run the same version of ikebana",
    )


def _staged_fields(table: TableSpec, ops: Any) -> Fields:
    """The fields of staged columns, in order: only the key if all rows are deleted by key."""
    if table.schema is None:
        return table.fields
    if table.kind == "keyed" and isinstance(ops, int) and ops == DELETE:
        return table.key
    return (*table.schema.key.fields, *table.schema.val.fields)


def validated(table: TableSpec, data: Any, op: Any) -> StagedRows:
    """Validate rows; raises a `SchemaError` that names the table and the column."""
    ops, count = _ops(table, op)
    try:
        columns = _columns(table, data, ops)
        if count is not None and count != len(columns[0]):
            raise SchemaError(
                f"there are {len(columns[0])} rows, but {count} ops", hint="give one op for all rows, or one for each"
            )
    except SchemaError as error:
        raise SchemaError(
            f"cannot change table {table.name!r}: {error.what}", detail=error.detail, hint=error.hint
        ) from None
    return StagedRows(columns, ops)


def _ops(table: TableSpec, op: Any) -> tuple[Any, int | None]:
    """The code of the op or an array of codes, and the number of ops, which is None for a single op.

    Raises if this kind of table does not support an op.
    """
    if isinstance(op, str):
        names, codes = None, {op: _code(table, op)}
    else:
        names = op.to_pylist() if isinstance(op, pa.Array | pa.ChunkedArray) else list(op)
        codes = {name: _code(table, name) for name in dict.fromkeys(names)}
    for code in codes.values():
        if code not in _ALLOWED[table.kind]:
            raise SchemaError(
                f"cannot {_name(code)} rows of table {table.name!r}",
                detail=_WHY_NOT_ALLOWED[table.kind],
                hint=f"supported operations: {', '.join(map(_name, _ALLOWED[table.kind]))}",
            )
    count = None if names is None else len(names)
    if len(codes) <= 1:
        return next(iter(codes.values()), INSERT), count
    assert names is not None
    return np.fromiter((codes[name] for name in names), np.int8, len(names)), count


def _code(table: TableSpec, op: Any) -> int:
    if op not in OPS:
        raise SchemaError(
            f"cannot change table {table.name!r}: there is no op {op!r}", hint=f"use one of {', '.join(OPS)}"
        )
    return OPS[op]


def _name(code: int) -> str:
    return ("insert", "upsert", "delete")[code]


def _columns(table: TableSpec, data: Any, ops: Any) -> tuple[pa.Array, ...]:
    """The columns in the order of the schema, or only the key columns if all rows are deletes."""
    fields = _staged_fields(table, ops)
    if table.schema is None:
        return tuple(match_columns(data, fields))
    if fields == table.key:
        data = _without(data, table.schema.val.fields)
    columns = tuple(match_columns(data, _relaxed(table, fields, ops)))
    if not isinstance(ops, int) and len(ops) != len(columns[0]):
        return columns  # `validated` raises
    for field, column in zip(fields, columns, strict=True):
        if column.null_count and not field.nullable:
            _check_nulls(field, column, ops, is_key=field in table.key)
    return columns


def _without(data: Any, fields: Fields) -> Any:
    """The data without the columns of some fields."""
    names = {field.name for field in fields}
    if isinstance(data, Mapping):
        return {name: column for name, column in data.items() if name not in names}
    if isinstance(data, pa.Table | pa.RecordBatch):
        return data.select([name for name in data.schema.names if name not in names])
    return data


def _relaxed(table: TableSpec, fields: Fields, ops: Any) -> Fields:
    """The fields, made nullable where `_check_nulls` decides row by row: keys, and columns of deleted rows."""
    if table.kind != "keyed":
        return fields
    mixed = not isinstance(ops, int) and (ops == DELETE).any()
    return tuple(field.with_nullable(field.nullable or mixed or field in table.key) for field in fields)


def _check_nulls(field: pa.Field, column: pa.Array, ops: Any, *, is_key: bool) -> None:
    """Raise if a row has a null in a column that must not be null. For a deleted row, only the key matters."""
    bad = column.is_null().to_numpy(zero_copy_only=False)
    bad = bad if is_key else bad & (ops != DELETE)
    if not bad.any():
        return
    rows, first = int(bad.sum()), int(bad.argmax())
    declare = "" if is_key else ", or declare the column with pyarrow.field(..., nullable=True)"
    raise SchemaError(
        f"{'key ' if is_key else ''}column {field.name!r} has a null in {rows} row{'s' if rows > 1 else ''}",
        detail=f"the first is row {first}; "
        + ("a key cannot be null" if is_key else f"the column is {field.type} not null"),
        hint=f"filter these rows out{declare}",
    )
