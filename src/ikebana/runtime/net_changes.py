"""The changes that the staged rows of a transaction make to the rows of a worker, or why they are not valid.

Keyed tables. Rows are applied in order: the parts in the order of the `Check`, and the rows of a part as they were
staged. Before each row, its key is in the state left by the preceding row of that key, or else by the table. An insert
requires that the key is absent, a delete that it is present. The last row of a key decides the result. A row that
is equal to the table's row is no change.

Bags. The changes of a transaction to equal rows are added up. No row may end up with a negative multiplicity.

Streams accept all rows.

Keyed tables and bags require that all rows of a key are on this worker, which staging ensures. Keys are compared
exactly, even if their lanes collide.

Cost: a sort of the key lanes, a seek for each key, and a copy of the existing rows; columns of rows that are only
added are not touched. One new row in a table of a million takes 0.07 ms, a million new rows take 0.05 s, and replacing
a million rows takes 0.3 s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding import payload as payloads
from ikebana.encoding.lanes import Array, Lane, constant, constant_diffs
from ikebana.encoding.payload import Payload
from ikebana.kernels import seek_ranges, sort_order
from ikebana.operators.changes import Changes, Fields
from ikebana.runtime.key_reads import no_updates
from ikebana.runtime.messages import Problem, TableSpec
from ikebana.runtime.staging import DELETE, INSERT, UPSERT, StagedRows
from ikebana.trace import Batch, Updates
from ikebana.trace.batch import rows_of
from ikebana.trace.reading import accumulate
from ikebana.trace.updates import consolidate

_EXAMPLE_ROWS, NO_ROW = 3, -1
_FIRST: Lane = np.zeros(1, np.int64)
Outcome: TypeAlias = tuple[list[Changes], list[Problem]]


class CommittedRows(Protocol):
    """The rows of a table on this worker, with all changes that were committed before."""

    def batches(self) -> list[Batch]:
        """The batches that contain all rows."""
        ...

    def rows_of(self, lanes: Lane, epoch: int) -> Updates | None:
        """The rows of some key lanes (ascending, each once) at an epoch; None if they have to be read from batches."""
        ...


StoredTables: TypeAlias = Callable[[TableSpec], CommittedRows]


def net_changes(table: TableSpec, parts: Sequence[StagedRows], stored: StoredTables, epoch: int) -> Outcome:
    """The net changes that staged parts make to a table at an epoch, or the problems that prevent them."""
    if table.schema is None:
        return [insertions(table, part.columns, epoch) for part in parts], []
    changes_of = _keyed_changes if table.kind == "keyed" else _bag_changes
    return changes_of(table, table.schema, parts, stored(table), epoch)


def is_insert(ops: Any) -> bool:
    """Whether staged rows are all inserted, if they are accepted."""
    return isinstance(ops, int) and ops == INSERT


def inserted_columns(table: TableSpec, columns: Sequence[pa.Array]) -> tuple[pa.Array, ...]:
    """The columns of staged rows, which are in the order of the table's schema, in the order of its source."""
    schema = table.schema
    fields = table.fields if schema is None else (*schema.key.fields, *schema.val.fields)
    named = {field.name: column for field, column in zip(fields, columns, strict=True)}
    return tuple(named[field.name] for field in table.fields)


def insertions(table: TableSpec, columns: Sequence[pa.Array], epoch: int) -> Changes:
    """Changes that add staged rows, with the columns in the order of the table's source."""
    ordered = inserted_columns(table, columns)
    tix, diffs = _once_each(len(ordered[0]))
    return Changes(np.full((1, 1), epoch, np.int64), tix, diffs, table.fields, ordered)


@lru_cache(maxsize=64)
def _once_each(rows: int) -> tuple[Array, Lane]:
    """The positions of the times, and the diffs, of rows that are added once at the same time."""
    return constant(0, rows, np.int32), constant_diffs(np.ones(1, np.int64), rows)


def _as_changes(table: TableSpec, updates: Updates) -> Changes:
    """Updates of the table's trace as changes, with the columns in the order of the table's source."""
    changes = Changes.of_updates(updates)
    return changes.with_columns(table.fields, [changes.named[field.name] for field in table.fields])


# Keyed tables.


def _keyed_changes(
    table: TableSpec, schema: Schema, parts: Sequence[StagedRows], stored: CommittedRows, epoch: int
) -> Outcome:
    """The changes of a keyed table.

    Rows are numbered consecutively: first the existing rows of the staged keys, then the staged rows.
    """
    lane, payload = keys_of(schema, parts)
    lanes = sorted_distinct(lane)
    existing = rows_with_keys(schema, stored, lanes, epoch)
    if len(lane) == 1 and not len(existing) and parts[-1].ops in (INSERT, UPSERT):  # a single new row
        return [insertions(table, parts[-1].columns, epoch)], []
    if len(parts) == len(lane) == len(existing) == 1 and not payload and parts[0].ops in (UPSERT, DELETE):  # an old row
        return _changes_of_row(table, schema, parts[0], existing, epoch), []
    are_new = not len(existing) and len(lanes) == len(lane)
    if are_new and not any(np.any(part.ops == DELETE) for part in parts):  # the common case of a load: only new keys
        return [insertions(table, part.columns, epoch) for part in parts], []
    ops = np.concatenate([np.full(len(existing), UPSERT, np.int8), *(_ops(part) for part in parts)])
    keys = (np.concatenate([existing.key, lane]) if len(existing) else lane, _prepend_keys(existing, payload))
    order, first = _groups(*keys)
    problems = _key_problems(table, order, first, ops[order], len(existing), parts)
    if problems:
        return [], problems
    added, removed = _net(schema, order, first, ops, existing, parts)
    inserted = [_flagged_insertions(table, part, flags, epoch) for part, flags in zip(parts, added, strict=True)]
    changes = [change for change in inserted if change is not None]
    if len(removed):
        changes.append(_as_changes(table, existing.take(removed)).negated())
    return changes, []


def _changes_of_row(table: TableSpec, schema: Schema, part: StagedRows, existing: Updates, epoch: int) -> list[Changes]:
    """The changes by which one staged row replaces the existing row of its key, or deletes it."""
    removal = _as_changes(table, existing).negated()
    if part.ops == DELETE:
        return [removal]
    lane, payload = schema.val.encode(part.columns[len(schema.key.fields) :], 1)
    old_payload = existing.payload[schema.key.payload_columns :]
    if lane[0] == existing.val[0] and (not payload or payloads.same_rows(payload, _FIRST, old_payload, _FIRST)[0]):
        return []
    return [insertions(table, part.columns, epoch), removal]


def keys_of(schema: Schema, parts: Sequence[StagedRows]) -> tuple[Lane, Payload]:
    """The key lane of all parts, and the payload of keys that do not fit into a lane."""
    columns = len(schema.key.fields)
    encoded = [schema.key.encode(part.columns[:columns], len(part)) for part in parts]
    if len(encoded) == 1:
        return encoded[0]
    return np.concatenate([lane for lane, _ in encoded]), payloads.concat([payload for _, payload in encoded])


def _prepend_keys(existing: Updates, payload: Payload) -> Payload:
    """The key payload of the existing rows, followed by `payload`."""
    if not payload or not len(existing):
        return payload
    return payloads.concat([existing.payload[: len(payload)], payload])


def _ops(part: StagedRows) -> Any:
    return np.full(len(part), part.ops, np.int8) if isinstance(part.ops, int) else part.ops


def rows_with_keys(schema: Schema, stored: CommittedRows, lanes: Lane, epoch: int) -> Updates:
    """The rows of a table with some key lanes, which are ascending and distinct; each row once."""
    rows = stored.rows_of(lanes, epoch)
    if rows is not None:
        return rows
    batches = [batch for batch in stored.batches() if len(batch)]
    return _accumulated(schema, [(batch, *batch.seek(lanes)) for batch in batches], epoch)


def sorted_distinct(lane: Lane) -> Lane:
    """The values of a lane, in order, each once."""
    if len(lane) == 1:
        return lane
    ordered = np.sort(lane)
    is_new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered if is_new.all() else ordered[is_new]


def _accumulated(schema: Schema, ranges: list[tuple[Batch, Lane, Lane]], epoch: int) -> Updates:
    """The accumulated rows of some ranges of batches at an epoch."""
    parts = [batch.gather(rows_of(starts, ends)) for batch, starts, ends in ranges if (ends > starts).any()]
    return accumulate(parts, schema, (epoch,)) if parts else no_updates(schema)


def _groups(lane: Lane, payload: Payload) -> tuple[Lane, Any]:
    """The order of the rows by key (stable), and flags for the first row of each key in that order."""
    rows = len(lane)
    first = np.ones(rows, bool)
    if rows == 1:
        return np.zeros(1, np.int64), first
    order = sort_order(lane, constant(0, rows), constant(0, rows, np.int32))
    ordered = lane[order]
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    if payload and not first.all():
        _separate_collisions(ordered, payload, order, first)
    return order, first


def _separate_collisions(ordered: Lane, payload: Payload, order: Lane, first: Any) -> None:
    """Group the rows of different keys whose lanes collide by key. In Python, since collisions are very rare."""
    followers = np.flatnonzero(~first)
    differ = followers[~payloads.same_rows(payload, order[followers - 1], payload, order[followers])]
    for start, end in zip(*seek_ranges(ordered, np.unique(ordered[differ])), strict=True):
        rows = order[start:end]
        cells = payloads.cells(payloads.take(payload, rows))
        numbers = {cell: number for number, cell in enumerate(dict.fromkeys(cells))}
        groups = np.array([numbers[cell] for cell in cells])
        by_group = np.argsort(groups, kind="stable")
        order[start:end] = rows[by_group]
        first[start + 1 : end] = np.diff(groups[by_group]) != 0


def _key_problems(
    table: TableSpec, order: Lane, first: Any, ops: Any, existing: int, parts: Sequence[StagedRows]
) -> list[Problem]:
    """Inserts of keys that are present, and deletes of keys that are absent. `ops` are in order of key.

    `existing` is the number of existing rows.
    """
    is_present = np.zeros(len(order), bool)
    np.logical_and(ops[:-1] != DELETE, ~first[1:], out=is_present[1:])
    bad = ((ops == INSERT) & is_present) | ((ops == DELETE) & ~is_present)
    bad &= order >= existing
    if not bad.any():
        return []
    rows = np.flatnonzero(bad)
    deletes = ops[rows] == DELETE
    in_table = ~deletes & (order[rows - 1] < existing)
    kinds = {"exists": in_table, "twice": ~deletes & ~in_table, "missing": deletes}
    return [
        Problem(table.name, why, int(flags.sum()), _format_keys(table, order[rows[flags]] - existing, parts))
        for why, flags in kinds.items()
        if flags.any()
    ]


def _format_keys(table: TableSpec, rows: Lane, parts: Sequence[StagedRows]) -> tuple[str, ...]:
    """The keys of the first few staged rows, as strings."""
    few = np.sort(rows)[:_EXAMPLE_ROWS]
    return format_rows(table.key, _take_columns(parts, few, range(len(table.key))))


def format_rows(fields: Fields, columns: Sequence[pa.Array]) -> tuple[str, ...]:
    """Rows as strings: name=value, ..."""
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return tuple(", ".join(f"{field.name}={cell!r}" for field, cell in zip(fields, row, strict=True)) for row in rows)


def _take_columns(parts: Sequence[StagedRows], rows: Lane, columns: range) -> list[pa.Array]:
    """Columns of some staged rows, which are numbered consecutively through all parts; `rows` is ascending."""
    pieces, start = [], 0
    for part in parts:
        low, high = np.searchsorted(rows, (start, start + len(part)))
        if high > low or part is parts[0]:
            positions = pa.array(rows[low:high] - start)
            pieces.append([part.columns[at].take(positions) for at in columns if at < len(part.columns)])
        start += len(part)
    pieces = [piece for piece in pieces if len(piece) == len(columns)]
    return [pa.concat_arrays(arrays) for arrays in zip(*pieces, strict=True)]


def _net(
    schema: Schema, order: Lane, first: Any, ops: Any, existing: Updates, parts: Sequence[StagedRows]
) -> tuple[list[Any], Lane]:
    """The staged rows to add, as flags for each part, and the existing rows to remove.

    For each key, the first row in `order` shows the state before the transaction, and the last row decides the state
    after it. Let the table have the rows a=1 (row 0) and b=2 (row 1), and let the transaction stage upsert b=5 (2),
    delete a (3), insert c=7 (4) and upsert b=6 (5):

        key   rows in order   before   after          change
        a     0, 3            0        3, a delete    remove 0
        b     1, 2, 5         1        5              remove 1, add 5; none if their values are equal
        c     4               none     4              add 4

    In `after` and in the flags, staged rows are numbered from 0: `after` is [1, 3, 2], and rows 2 and 3 are flagged. A
    key without a staged row, which appears only if its lane collides with that of a staged key, does not change.
    """
    count = len(existing)
    before, after = order[first], order[np.append(first[1:], True)] - count
    existed, is_staged = before < count, after >= 0
    is_put = is_staged & (ops[after + count] != DELETE)
    added = np.zeros(len(order) - count, bool)
    added[after[is_put]] = True
    removed = before[is_staged & existed & ~is_put]
    is_replaced = is_put & existed
    if is_replaced.any():
        replaced = np.full(len(added), NO_ROW)  # the existing row that each staged row replaces
        replaced[after[is_replaced]] = before[is_replaced]
        rows = np.flatnonzero(replaced != NO_ROW)
        same = _have_equal_values(schema, existing.take(replaced[rows]), parts, rows)
        added[rows[same]] = False
        removed = np.concatenate([removed, replaced[rows[~same]]])
    return np.split(added, np.cumsum([len(part) for part in parts])[:-1]), removed


def _have_equal_values(schema: Schema, old: Updates, parts: Sequence[StagedRows], rows: Lane) -> Any:
    """Whether each of some staged rows (ascending) has the same values as the old row of its key."""
    split = len(schema.key.fields)
    values = _take_columns(parts, rows, range(split + len(schema.val.fields)))[split:]
    lane, payload = schema.val.encode(values, len(rows))
    same = lane == old.val
    if payload:
        positions = np.arange(len(rows))
        same &= payloads.same_rows(payload, positions, old.payload[schema.key.payload_columns :], positions)
    return same


def _flagged_insertions(table: TableSpec, part: StagedRows, flags: Any, epoch: int) -> Changes | None:
    """Changes that add the flagged rows of a part; None if there are none."""
    if not flags.any():
        return None
    rows = part if flags.all() else part.take(np.flatnonzero(flags))
    return insertions(table, rows.columns, epoch)


# Bags.


def _bag_changes(
    table: TableSpec, schema: Schema, parts: Sequence[StagedRows], stored: CommittedRows, epoch: int
) -> Outcome:
    """The changes of a bag."""
    if all(is_insert(part.ops) for part in parts):
        return [insertions(table, part.columns, epoch) for part in parts], []
    net = consolidate(Updates.concat([_signed_updates(schema, part, epoch) for part in parts])).updates
    problems = _missing_copies(table, schema, net.where(net.diffs[0] < 0), stored, epoch)
    return ([], problems) if problems else ([_as_changes(table, net)], [])


def _signed_updates(schema: Schema, part: StagedRows, epoch: int) -> Updates:
    """Staged rows as updates with diffs of 1 or, for deletes, -1."""
    key, val, payload = schema.lanes(part.columns, len(part))
    diffs = np.where(_ops(part) == DELETE, np.int64(-1), np.int64(1))[None]
    times = np.full((1, 1), epoch, np.int64)
    return Updates(times, constant(0, len(part), np.int32), diffs, schema, key, val, payload)


def _missing_copies(
    table: TableSpec, schema: Schema, deletions: Updates, stored: CommittedRows, epoch: int
) -> list[Problem]:
    """A problem for rows that would be left with a negative multiplicity; `deletions` are sorted."""
    if not len(deletions):
        return []
    if schema.hashed:
        existing = rows_with_keys(schema, stored, sorted_distinct(deletions.key), epoch)
    else:
        existing = _accumulated(
            schema, [(batch, *batch.seek_values(deletions.key, deletions.val)) for batch in stored.batches()], epoch
        )
    remaining = consolidate(Updates.concat([existing, deletions])).updates
    bad = remaining.where(remaining.diffs[0] < 0)
    if not len(bad):
        return []
    few = Changes.of_updates(bad.take(np.arange(min(len(bad), _EXAMPLE_ROWS))))
    return [Problem(table.name, "missing", int(-bad.diffs[0].sum()), format_rows(few.fields, few.columns))]
