"""Updates as columns: what flows into traces and out of them.

`Updates` holds any number of updates `(key, val, time, diff)` of one schema, in any order, the same one
possibly several times: a key lane, a value lane, the position of each time in a table, diff lanes, and the
payload of hashed sides. It never changes once made.

`sort_updates` finds the order by key, value and time; `consolidate` also adds up equal updates. Both tell
data apart exactly: where neighbours agree in a hashed lane their payload is compared, and the rows of a key
lane in which that shows a collision get an `ident`, the rank of their data among the data of that lane. Rows
are then in order of (key lane, ident, value lane, time), and equal in data exactly when the first three are
equal. The rank is by a fixed order of the data itself, so that two sorted runs of updates agree on it.

Cost: about 10 ns a row to sort, plus the payload's copy. A collision costs Python time for the rows of its
key lane.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding import payload as payloads
from ikebana.encoding.columns import no_values
from ikebana.encoding.lanes import (
    Array,
    Index,
    Lane,
    constant,
    constant_diffs,
    gathered,
    held_bytes,
    is_constant,
    room,
    room_for_diffs,
    spelled_out,
    trimmed,
)
from ikebana.encoding.payload import Payload
from ikebana.encoding.schema import Schema
from ikebana.errors import SchemaError, TimeError
from ikebana.kernels import consolidate_narrow, consolidate_rows, seek_ranges, sort_order
from ikebana.time import Time
from ikebana.trace import timetable
from ikebana.trace.timed import Timed


@dataclass(frozen=True, slots=True, eq=False)
class Updates(Timed):
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
        """Updates from columns (see `Schema`), with one time for all rows or a time for each, and likewise
        diffs.

        Several diff lanes are given as a mapping from lane name to column (or to one number for all rows).
        """
        key, val, payload = schema.encode(data, None if schema.names else _row_count(times, diffs))
        rows = len(key)
        table, tix = timed(times, rows)
        return Updates(table, tix, diffed(schema.diffs, diffs, rows), schema, key, val, payload)

    @staticmethod
    def empty(schema: Schema, dimensions: int) -> Updates:
        """No updates, with times of so many coordinates."""
        columns = [no_values(field.type) for field in (*schema.key.fields, *schema.val.fields)]
        times, diffs = np.empty((0, dimensions), np.int64), np.empty((len(schema.diffs), 0), np.int64)
        return Updates(times, np.empty(0, np.int32), diffs, schema, *schema.lanes(columns, 0))

    @property
    def nbytes(self) -> int:
        """The bytes that these updates keep in memory."""
        lanes = held_bytes(self.key, self.val, self.tix, self.diffs)
        return lanes + self.times.nbytes + payloads.nbytes(self.payload)

    def _taken(self, rows: Array) -> dict[str, Any]:
        return {
            "key": gathered(self.key, rows),
            "val": gathered(self.val, rows),
            "payload": payloads.take(self.payload, rows),
        }

    @classmethod
    def _joined(cls, parts: Sequence[Updates]) -> dict[str, Any]:
        return {
            "key": np.concatenate([part.key for part in parts]),
            "val": np.concatenate([part.val for part in parts]),
            "payload": payloads.concat([part.payload for part in parts]),
        }

    def columns(self) -> dict[str, pa.Array]:
        """Key and value columns by name."""
        arrays = self.schema.decode(self.key, self.val, self.payload)
        return dict(zip(self.schema.names, arrays, strict=True))

    def to_table(self) -> pa.Table:
        """Key columns, value columns and diff lanes as an Arrow table; times are left out."""
        diffs = dict(zip(self.schema.diffs, map(np.ascontiguousarray, self.diffs), strict=True))
        return pa.table({**self.columns(), **diffs})

    def triples(self) -> list[tuple[tuple[Any, ...], Time, Any]]:
        """Python values, for people and tests: (row, time, diff); a diff of several lanes is a tuple."""
        rows = zip(*(array.to_pylist() for array in self.columns().values()), strict=True)
        data: Iterable[tuple[Any, ...]] = rows if self.schema.names else iter([()] * len(self))
        times = [tuple(row) for row in self.times.tolist()]
        return list(zip(data, (times[t] for t in self.tix), self._python_diffs(), strict=True))

    def _python_diffs(self) -> Iterator[Any]:
        lanes = self.diffs.tolist()
        return iter(lanes[0]) if len(lanes) == 1 else zip(*lanes, strict=True)


def _row_count(times: Any, diffs: Any) -> int:
    """How many rows times or diffs stand for, where they say; needed only when there are no columns."""
    for given in (*(diffs.values() if isinstance(diffs, dict) else [diffs]), times):
        if not isinstance(given, tuple | str) and np.iterable(given):
            return len(np.asarray(given))
    return 1


def timed(times: Any, rows: int) -> tuple[Lane, Index]:
    """Times as users give them, as a table and positions: one time for all rows, or one for each."""
    given = _time_table(times)
    if isinstance(times, tuple):
        return given, constant(0, rows, np.int32)
    if len(given) != rows:
        raise SchemaError(
            f"there are {rows} rows and {len(given)} times",
            hint="give one time as a tuple for all rows, or a time for each row",
        )
    if rows == 0:
        return given, np.empty(0, np.int32)
    if (given == given[0]).all():
        return given[:1].copy(), constant(0, rows, np.int32)
    return timetable.distinct_times(given)


def _time_table(times: Any) -> Lane:
    """A time, or a time for each row (numbers have one coordinate), as a table."""
    given = whole_numbers([times] if isinstance(times, tuple) else times)
    if given is None or given.ndim not in (1, 2) or (given.ndim == 2 and not given.shape[1]):
        raise TimeError(
            f"not a time, nor a time for each row: {reprlib.repr(times)}",
            detail="a time is a tuple of integers of up to 64 bits, such as (5, 0)",
            hint="give one time as a tuple for all rows, or a time for each row",
        )
    return given.reshape(-1, 1) if given.ndim == 1 else given


def whole_numbers(given: Any) -> Lane | None:
    """The numbers as int64, in whatever shape; None if they are anything else, or do not fit."""
    try:
        array = np.asarray(given)
    except ValueError:  # of no common shape
        return None
    if array.size and array.dtype.kind not in "iu":
        return None
    if array.size and array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        return None
    return array.astype(np.int64, copy=False)


def diffed(lane_names: Sequence[str], diffs: Any, rows: int) -> Lane:
    """Diff lanes as users give them: one number for all rows, or one for each; several lanes by name."""
    given = diffs if isinstance(diffs, dict) else {lane_names[0]: diffs}
    if set(given) != set(lane_names):
        raise SchemaError(
            "the diffs do not fit the schema",
            detail=f"given: {', '.join(map(repr, given))}; known: {', '.join(map(repr, lane_names))}",
            hint="give a mapping from every diff lane's name to its column, or to one number for all rows",
        )
    lanes = []
    for name in lane_names:
        lane = whole_numbers(given[name])
        if lane is None or lane.ndim > 1:
            raise SchemaError(
                f"diff lane {name!r} is not a column of whole numbers",
                detail=f"it is {reprlib.repr(given[name])}; diffs are 64-bit integers, so that they cancel exactly",
                hint="give one number for all rows, or one for each; scale decimals to whole numbers first",
            )
        lanes.append(lane)
        if lane.ndim and len(lane) != rows:
            raise SchemaError(
                f"diff lane {name!r} has {len(lane)} entries for {rows} rows",
                hint="give one number for all rows, or an entry for each row",
            )
    if all(lane.ndim == 0 for lane in lanes):
        return constant_diffs(np.array(lanes, np.int64), rows)
    return np.stack([np.broadcast_to(lane, (rows,)) for lane in lanes])


# Order, and telling data apart.


@dataclass(frozen=True, slots=True, eq=False)
class Sorted:
    """Updates in order of (key, ident, value, time); `collided` lists key lanes in which data collides."""

    updates: Updates
    ident: Lane
    collided: Lane


NO_KEYS: Lane = np.empty(0, np.int64)


def sort_updates(updates: Updates) -> Sorted:
    """The same updates, in order; nothing is added up."""
    if len(updates) <= 1:
        return Sorted(updates, constant(0, len(updates)), NO_KEYS)
    order, ident, collided = _order(updates)
    return Sorted(updates.take(order), gathered(ident, order), collided)


def sorted_by_key(updates: Updates) -> Updates:
    """The same updates in order of key lane; of one key in any order."""
    return updates.take(sort_order(updates.key, constant(0, len(updates)), constant(0, len(updates), np.int32)))


def consolidate(updates: Updates) -> Sorted:
    """In order, with equal updates added up and those that cancel left out."""
    if len(updates) <= 1 and updates.diffs.all():
        return Sorted(updates, constant(0, len(updates)), NO_KEYS)
    if len(updates) > _FEW and len(updates.diffs) == 1 and not updates.schema.hashed:
        narrow = _consolidated_narrow(updates)
        if narrow is not None:
            return narrow
    order, ident, collided = _order(updates)
    exact = not updates.schema.hashed
    key, val, tix = (gathered(lane, order) for lane in (updates.key, updates.val, updates.tix))
    ident = gathered(ident, order)
    diffs = spelled_out(gathered(updates.diffs, order))
    src = constant(0, len(order)) if exact else order
    kept = consolidate_rows(key, val, ident, tix, diffs, src)
    rows = Updates(
        updates.times,
        trimmed(tix, kept),
        compressed_diffs(trimmed(diffs, kept)),
        updates.schema,
        trimmed(key, kept),
        trimmed(val, kept),
        () if exact else payloads.take(updates.payload, src[:kept]),
    )
    return Sorted(rows, trimmed(ident, kept), collided)


_FEW = 1024
"""So few rows are not worth looking for a way to sort them faster."""


def _consolidated_narrow(updates: Updates) -> Sorted | None:
    """The same for exact lanes that fit into 64 bits together; None if they do not."""
    rows, given = len(updates), (updates.key, updates.val, updates.tix)
    key, val, tix = (_room_like(lane) for lane in given)
    diffs = room_for_diffs(1, rows)
    kept = consolidate_narrow(*given, updates.diffs[0], key, val, tix, diffs[0])
    if kept < 0:
        return None
    key, val, tix, diffs = (trimmed(lane, kept) for lane in (key, val, tix, diffs))
    made = Updates(updates.times, tix, compressed_diffs(diffs), updates.schema, key, val, ())
    return Sorted(made, constant(0, kept), NO_KEYS)


def _room_like(lane: Array) -> Any:
    """Room for as many rows, of one cell if the lane is constant."""
    return constant(lane[0], len(lane), lane.dtype) if is_constant(lane) else room(len(lane), lane.dtype)


def compressed_diffs(diffs: Lane) -> Lane:
    """The diff lanes, held once for all rows where they are all equal."""
    if diffs.shape[1] and (diffs == diffs[:, :1]).all():
        return constant_diffs(diffs[:, 0].copy(), diffs.shape[1])
    return diffs


def _order(updates: Updates) -> tuple[Lane, Lane, Lane]:
    """The order of the rows, the ident of each (before ordering), and the key lanes with collisions."""
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
    """The key lanes in which neighbouring rows agree in a lane but not in the data behind it."""
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
    """For pairs of rows of equal key lanes: whether keys, and values of equal lanes, really are equal."""
    split = a.schema.key.payload_columns
    left, right = payloads.take(a.payload, a_rows), payloads.take(b.payload, b_rows)
    same_key = payloads.rows_equal(left[:split], right[:split], len(a_rows))
    same_val = payloads.rows_equal(left[split:], right[split:], len(a_rows))
    return same_key & (same_val | (a.val[a_rows] != b.val[b_rows]))


def idents(parts: Sequence[Updates]) -> list[Lane]:
    """The rank of each row's data among the data of all parts, by an order that depends on the data alone.

    That order is by value lane first, as it is in a run of updates that has no collision by itself.
    """
    rows = [list(zip(part.val.tolist(), payloads.cells(part.payload), strict=True)) for part in parts]
    ranks = {data: rank for rank, data in enumerate(sorted({data for part in rows for data in part}))}
    return [np.array([ranks[data] for data in part], np.int64) for part in rows]


def check_times(updates: Updates, dimensions: int, name: str) -> None:
    """Raise unless the updates' times have so many coordinates."""
    if updates.times.shape[1] != dimensions:
        raise TimeError(
            f"cannot take updates into {name!r}",
            detail=f"their times have {updates.times.shape[1]} coordinates, its times have {dimensions}",
            hint="a time has an epoch and one coordinate for each enclosing loop",
        )
