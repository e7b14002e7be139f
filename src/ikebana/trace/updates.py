"""Updates as columns: the input and output of traces.

`Updates` has any number of updates `(key, val, time, diff)` of one schema, in any order, possibly with
duplicates: a key lane, a value lane, the position of each time in a table, diff lanes, and the
payload of hashed sides. It is immutable.

`sort_updates` sorts by key, value and time; `consolidate` also adds up equal updates. Both distinguish data
exactly: where neighbours are equal in a hashed lane their payload is compared, and if that reveals a collision, the
rows of the key lane get an `ident`, the rank of their data among the data of that lane. Rows
are then in order of (key lane, ident, value lane, time), and equal in data exactly when the first three are
equal. The rank is by a fixed order of the data itself, so that two sorted runs of updates agree on it.

Cost: about 10 ns for each row to sort, plus a copy of the payload. The rows of a key lane with a collision are compared
in Python.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding import payload as payloads
from ikebana.encoding.columns import from_integers
from ikebana.encoding.lanes import (
    Array,
    Index,
    Lane,
    constant,
    constant_diffs,
    copied,
    empty_diffs,
    empty_lane,
    gather_lane,
    held_bytes,
    is_constant,
    materialized,
    trimmed,
)
from ikebana.encoding.payload import Payload
from ikebana.encoding.schema import Schema
from ikebana.errors import SchemaError, TimeError
from ikebana.kernels import (
    add_up_packed,
    consolidate_rows,
    measure_rows,
    pack_rows,
    seek_ranges,
    sort_order,
    sort_words,
    unpack_rows,
)
from ikebana.kernels.layout import (
    ASCENDING,
    DIFF_FIELD,
    DIFF_HIGH,
    DIFF_LOW,
    FIELD_CELLS,
    KEY_FIELD,
    KEY_HIGH,
    KEY_LOW,
    MEASURE_CELLS,
    MEASURED,
    TIX_FIELD,
    VAL_FIELD,
    VAL_HIGH,
    VAL_LOW,
)
from ikebana.time import Time
from ikebana.trace import time_tables
from ikebana.trace.timed_rows import TimedRows

_DIFF_TYPE = pa.int64()


@dataclass(frozen=True, slots=True, eq=False)
class Updates(TimedRows):
    """Columnar updates of one schema.

    >>> edges = Schema(key={"src": pa.int64()}, val={"dst": pa.int64()})
    >>> updates = Updates.of(edges, {"src": [1, 1], "dst": [2, 3]}, times=(0,), diffs=[1, -1])
    >>> updates.triples()
    [((1, 2), (0,), 1), ((1, 3), (0,), -1)]
    """

    schema: Schema
    key: Lane
    val: Lane
    payload: Payload

    @staticmethod
    def of(schema: Schema, data: Any, times: Any, diffs: Any = 1) -> Updates:
        """Return updates of columns (see `Schema`), with one time for all rows or a time for each, and likewise
        diffs.

        Several diff lanes are given as a mapping from lane name to column (or to one integer for all rows).
        """
        key, val, payload = schema.encode(data, None if schema.names else _row_count(times, diffs))
        rows = len(key)
        table, tix = encode_times(times, rows)
        return Updates(table, tix, encode_diffs(schema.diffs, diffs, rows), schema, key, val, payload)

    @staticmethod
    def empty(schema: Schema, dimensions: int) -> Updates:
        """Return no updates, with times of `dimensions` coordinates."""
        times, diffs = np.empty((0, dimensions), np.int64), np.empty((len(schema.diffs), 0), np.int64)
        return Updates(times, np.empty(0, np.int32), diffs, schema, *schema.no_rows)

    @property
    def nbytes(self) -> int:
        """The number of bytes that the updates take in memory."""
        lanes = held_bytes(self.key, self.val, self.tix, self.diffs)
        return lanes + self.times.nbytes + payloads.nbytes(self.payload)

    def _taken(self, rows: Array) -> dict[str, Any]:
        return {
            "key": gather_lane(self.key, rows),
            "val": gather_lane(self.val, rows),
            "payload": payloads.take(self.payload, rows),
        }

    def _sliced(self, start: int, end: int) -> dict[str, Any]:
        payload = tuple(column.slice(start, end - start) for column in self.payload)
        return {"key": self.key[start:end], "val": self.val[start:end], "payload": payload}

    @classmethod
    def _joined(cls, parts: Sequence[Updates]) -> dict[str, Any]:
        return {
            "key": np.concatenate([part.key for part in parts]),
            "val": np.concatenate([part.val for part in parts]),
            "payload": payloads.concat([part.payload for part in parts]),
        }

    def columns(self) -> dict[str, pa.Array]:
        """Return the key and value columns by name."""
        arrays = self.schema.decode(self.key, self.val, self.payload)
        return dict(zip(self.schema.names, arrays, strict=True))

    def to_table(self) -> pa.Table:
        """Return key columns, value columns and diff lanes as an Arrow table, without times."""
        arrays = self.schema.decode(self.key, self.val, self.payload)
        diffs = [from_integers(lane, _DIFF_TYPE) for lane in self.diffs]
        return pa.Table.from_arrays([*arrays, *diffs], schema=self.schema.table_schema)

    def triples(self) -> list[tuple[tuple[Any, ...], Time, Any]]:
        """Return the updates as Python values (row, time, diff); a diff of several lanes is a tuple."""
        rows = zip(*(array.to_pylist() for array in self.columns().values()), strict=True)
        data: Iterable[tuple[Any, ...]] = rows if self.schema.names else iter([()] * len(self))
        times = [tuple(row) for row in self.times.tolist()]
        return list(zip(data, (times[t] for t in self.tix), self._python_diffs(), strict=True))

    def _python_diffs(self) -> Iterator[Any]:
        lanes = self.diffs.tolist()
        return iter(lanes[0]) if len(lanes) == 1 else zip(*lanes, strict=True)


def _row_count(times: Any, diffs: Any) -> int:
    """Return the number of rows according to diffs or times; needed only if there are no columns."""
    for entries in (*(diffs.values() if isinstance(diffs, dict) else [diffs]), times):
        if not isinstance(entries, tuple | str) and np.iterable(entries):
            return len(np.asarray(entries))
    return 1


def encode_times(times: Any, rows: int) -> tuple[Lane, Index]:
    """Convert one time for all rows, or a time for each row, to a table and positions."""
    table = _time_table(times)
    if isinstance(times, tuple):
        return table, constant(0, rows, np.int32)
    if len(table) != rows:
        raise SchemaError(
            f"there are {rows} rows and {len(table)} times",
            hint="give one time as a tuple for all rows, or a time for each row",
        )
    if rows == 0:
        return table, np.empty(0, np.int32)
    if (table == table[0]).all():
        return table[:1].copy(), constant(0, rows, np.int32)
    return time_tables.distinct_times(table)


def _time_table(times: Any) -> Lane:
    """Convert a time, or a time for each row (an integer is a time of one coordinate), to a table."""
    table = as_integers([times] if isinstance(times, tuple) else times)
    if table is None or table.ndim not in (1, 2) or (table.ndim == 2 and not table.shape[1]):
        raise TimeError(
            f"not a time, nor a time for each row: {reprlib.repr(times)}",
            detail="a time is a tuple of integers of up to 64 bits, such as (5, 0)",
            hint="give one time as a tuple for all rows, or a time for each row",
        )
    return table.reshape(-1, 1) if table.ndim == 1 else table


def as_integers(values: Any) -> Lane | None:
    """Convert values to an int64 array of any shape; return None if they are not integers or do not fit."""
    try:
        array = np.asarray(values)
    except ValueError:  # the values have no common shape
        return None
    if array.size and array.dtype.kind not in "iu":
        return None
    if array.size and array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        return None
    return array.astype(np.int64, copy=False)


def encode_diffs(lane_names: Sequence[str], diffs: Any, rows: int) -> Lane:
    """Convert diffs to lanes: one integer for all rows, or one for each; several lanes by name."""
    by_name = diffs if isinstance(diffs, dict) else {lane_names[0]: diffs}
    if set(by_name) != set(lane_names):
        raise SchemaError(
            "the diffs do not fit the schema",
            detail=f"given: {', '.join(map(repr, by_name))}; known: {', '.join(map(repr, lane_names))}",
            hint="give a mapping from every diff lane's name to its column, or to one integer for all rows",
        )
    lanes = []
    for name in lane_names:
        lane = as_integers(by_name[name])
        if lane is None or lane.ndim > 1:
            raise SchemaError(
                f"diff lane {name!r} is not a column of integers",
                detail=f"it is {reprlib.repr(by_name[name])}; diffs are 64-bit integers, so that they cancel exactly",
                hint="give one integer for all rows, or one for each; scale decimals to integers first",
            )
        lanes.append(lane)
        if lane.ndim and len(lane) != rows:
            raise SchemaError(
                f"diff lane {name!r} has {len(lane)} entries for {rows} rows",
                hint="give one integer for all rows, or an entry for each row",
            )
    if all(lane.ndim == 0 for lane in lanes):
        return constant_diffs(np.array(lanes, np.int64), rows)
    if len(lanes) == 1:
        return lanes[0].reshape(1, rows).copy()
    return np.stack([np.broadcast_to(lane, (rows,)) for lane in lanes])


# Order, and collisions.


@dataclass(frozen=True, slots=True, eq=False)
class Sorted:
    """Updates in order of (key, ident, value, time); `collided` lists the key lanes with collisions."""

    updates: Updates
    ident: Lane
    collided: Lane


NO_KEYS: Lane = np.empty(0, np.int64)


def sort_updates(updates: Updates) -> Sorted:
    """Return the same updates in order, without adding up equal ones."""
    if len(updates) <= 1:
        return Sorted(updates, constant(0, len(updates)), NO_KEYS)
    order, ident, collided = _order(updates)
    return Sorted(updates.take(order), gather_lane(ident, order), collided)


def sorted_by_key(updates: Updates) -> Updates:
    """Return the same updates in order of key lane; those of one key are in any order."""
    return updates.take(sort_order(updates.key, constant(0, len(updates)), constant(0, len(updates), np.int32)))


def consolidate(updates: Updates) -> Sorted:
    """Return the updates in order, with equal updates added up and those that cancel left out."""
    return consolidate_all([updates])


def consolidate_all(parts: Sequence[Updates]) -> Sorted:
    """Return the updates of all parts, at least one, in order, with equal updates added up and those that cancel left
    out."""
    parts = [part for part in parts if len(part)] or parts[:1]
    first = parts[0]
    if len(parts) == 1 and len(first) <= 1 and first.diffs.all():
        return Sorted(first, constant(0, len(first)), NO_KEYS)
    if len(first.diffs) == 1 and not first.schema.hashed:
        measure = np.zeros(MEASURE_CELLS, np.int64)
        for part in parts:
            measure_rows(part.key, part.val, part.tix, part.diffs[0], measure)
        if measure[ASCENDING] and first.diffs.all():
            return Sorted(_copied(first), constant(0, len(first)), NO_KEYS)
        packed = _consolidate_packed(parts, measure)
        if packed is not None:
            return packed
    return _consolidate_gathered(Updates.concat(parts))


def _copied(updates: Updates) -> Updates:
    """Return updates with exact lanes in memory of their own: the lanes may be a user's, who may change them later."""
    key, val, tix, diffs = (copied(lane) for lane in (updates.key, updates.val, updates.tix, updates.diffs))
    return Updates(updates.times, tix, compressed_diffs(diffs), updates.schema, key, val, ())


def _consolidate_gathered(updates: Updates) -> Sorted:
    """Consolidate updates: sort the positions of the rows, and gather the rows."""
    order, ident, collided = _order(updates)
    exact = not updates.schema.hashed
    key, val, tix = (gather_lane(lane, order) for lane in (updates.key, updates.val, updates.tix))
    ident = gather_lane(ident, order)
    diffs = materialized(gather_lane(updates.diffs, order))
    src = constant(0, len(order)) if exact else order
    remaining = consolidate_rows(key, val, ident, tix, diffs, src)
    rows = Updates(
        updates.times,
        trimmed(tix, remaining),
        compressed_diffs(trimmed(diffs, remaining)),
        updates.schema,
        trimmed(key, remaining),
        trimmed(val, remaining),
        () if exact else payloads.take(updates.payload, src[:remaining]),
    )
    return Sorted(rows, trimmed(ident, remaining), collided)


def _consolidate_packed(parts: Sequence[Updates], measure: Lane) -> Sorted | None:
    """Consolidate updates with exact lanes and one diff lane, whose rows fit into 64 bits; None if they do not."""
    times, ranks = time_tables.union(part.times for part in parts)
    fields = np.zeros(FIELD_CELLS, np.int64)
    fields[[KEY_FIELD, VAL_FIELD, DIFF_FIELD]] = measure[[KEY_LOW, VAL_LOW, DIFF_LOW]]
    for field, high in ((KEY_FIELD, KEY_HIGH), (VAL_FIELD, VAL_HIGH), (DIFF_FIELD, DIFF_HIGH)):
        fields[field + 1] = (int(measure[high]) - int(fields[field])).bit_length()
    fields[TIX_FIELD + 1] = (len(times) - 1).bit_length()
    width = int(fields[1::2].sum())
    if width > 64:
        return None
    packed = np.empty(int(measure[MEASURED]), np.uint64)
    start = 0
    for part, rank in zip(parts, ranks, strict=True):
        end = start + len(part)
        pack_rows(part.key, part.val, part.tix, part.diffs[0], rank, fields, packed[start:end])
        start = end
    packed = sort_words(packed, width)
    diffs = empty_diffs(1, len(packed))
    rows = add_up_packed(packed, fields, diffs[0])
    lanes = [
        empty_lane(rows, dtype) if fields[field + 1] else constant(fields[field], rows, dtype)
        for field, dtype in ((KEY_FIELD, np.int64), (VAL_FIELD, np.int64), (TIX_FIELD, np.int32))
    ]
    unpack_rows(packed[:rows], fields, *(lane[:0] if is_constant(lane) else lane for lane in lanes))
    key, val, tix = lanes
    updates = Updates(times, tix, compressed_diffs(trimmed(diffs, rows)), parts[0].schema, key, val, ())
    return Sorted(updates, constant(0, rows), NO_KEYS)


def compressed_diffs(diffs: Lane) -> Lane:
    """Return the diff lanes, stored once for all rows if they are all equal."""
    if is_constant(diffs):
        return diffs
    if diffs.shape[1] and (diffs == diffs[:, :1]).all():
        return constant_diffs(diffs[:, 0].copy(), diffs.shape[1])
    return diffs


def _order(updates: Updates) -> tuple[Lane, Lane, Lane]:
    """Return the order of the rows, their idents (before ordering), and the key lanes with collisions."""
    order = sort_order(updates.key, updates.val, updates.tix)
    collided = find_collisions(updates, order) if updates.schema.hashed else NO_KEYS
    if not len(collided):
        return order, constant(0, len(updates)), collided
    ident = np.zeros(len(updates), np.int64)
    starts, ends = seek_ranges(updates.key[order], collided)
    for start, end in zip(starts, ends, strict=True):
        rows = order[start:end]
        ident[rows] = idents([updates.take(rows)])[0]
        order[start:end] = rows[np.lexsort((updates.tix[rows], ident[rows]))]
    return order, ident, collided


def find_collisions(updates: Updates, order: Lane) -> Lane:
    """Return the key lanes in which neighbouring rows are equal in a lane but not in the data behind it."""
    a, b = order[:-1], order[1:]
    key, val = updates.key[order], updates.val[order]
    agree = key[:-1] == key[1:]
    if updates.schema.key.exact:
        agree &= val[:-1] == val[1:]
    near = np.flatnonzero(agree)
    if not len(near):
        return NO_KEYS
    different = ~same_data(updates, a[near], updates, b[near])
    return np.unique(updates.key[a[near[different]]])


def same_data(a: Updates, a_rows: Lane, b: Updates, b_rows: Lane) -> Any:
    """For pairs of rows with equal key lanes: whether their keys, and their values if of equal lanes, are equal."""
    split = a.schema.key.payload_columns
    same_key = payloads.same_rows(a.payload[:split], a_rows, b.payload[:split], b_rows)
    same_val = payloads.same_rows(a.payload[split:], a_rows, b.payload[split:], b_rows)
    return same_key & (same_val | (a.val[a_rows] != b.val[b_rows]))


def idents(parts: Sequence[Updates]) -> list[Lane]:
    """Return the rank of each row's data among the data of all parts, by an order that depends on the data alone.

    The order is by value lane first, like that of updates without collisions.
    """
    rows = [list(zip(part.val.tolist(), payloads.cells(part.payload), strict=True)) for part in parts]
    ranks = {data: rank for rank, data in enumerate(sorted({data for part in rows for data in part}))}
    return [np.array([ranks[data] for data in part], np.int64) for part in rows]


def check_times(updates: Updates, dimensions: int, name: str) -> None:
    """Raise unless the times of the updates have `dimensions` coordinates."""
    if updates.times.shape[1] != dimensions:
        raise TimeError(
            f"cannot add updates to {name!r}",
            detail=f"their times have {updates.times.shape[1]} coordinates, its times have {dimensions}",
            hint="a time has an epoch and one coordinate for each enclosing loop",
        )
