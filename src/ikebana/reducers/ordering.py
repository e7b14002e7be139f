"""ORDER BY, LIMIT and OFFSET: rows in order, and the first rows of each group, maintained.

An order is a sequence of `SortKey`s. Numbers, dates and booleans are in their own order, NaN after all other floats,
strings and binaries in that of their bytes. What the keys leave undecided is decided by the remaining columns,
ascending, so that any result is a function of the rows and not of how they came. Nested columns (lists, structs, maps)
decide in an order of their bytes, which is good for nothing else: they are no sort keys.

`top_rows` maintains the rows in places `offset` to `offset + limit` of each group. In one of four ways:

- *Packed*, where all columns fit into 64 bits together: they are packed into one column whose order is the one asked
  for, and an index keeps that in order. Of a group only the first rows are read.
- *By where they begin*, if all rows are one group, sorted by a number first: the beginning of the order fits into 64
  bits (`ikebana.reducers.sort_keys`), so its first values are found as above; only the rows that have these compete.
- *In levels*: rows compete in one of many buckets first, and the winners of the buckets with each other.
- *All*: without a limit, a group is read as a whole whenever it changes.

Cost of a change in the first three: milliseconds, also in groups of millions, unless most rows begin alike. Large
limits and offsets cost in proportion, since that many rows have to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding import Schema
from ikebana.encoding.canonical import canonical
from ikebana.encoding.columns import bits, from_ordered_bits, is_nested, ordered_bits, validity
from ikebana.encoding.lanes import Array, Lane
from ikebana.engine.collection import Collection
from ikebana.operators.buckets import Bucket
from ikebana.operators.changes import Fields
from ikebana.operators.linear import Columns
from ikebana.operators.reducers import Groups, ReducedRows, Reducer, TopK, group_extents
from ikebana.reducers.sort_keys import Prefix, SortKey

_LANE = 64
_BUCKETS = 1024


# The order of rows.


def order_of(columns: Mapping[str, pa.Array], keys: Sequence[SortKey], group: Lane | None = None) -> Lane:
    """The positions of rows in order: by group if groups are given, then by the keys, then by the other columns."""
    count = len(next(iter(columns.values()))) if columns else len(group if group is not None else ())
    by = [] if group is None else [group]
    by += [part for key in keys for part in comparable(columns[key.column], key)]
    order = np.lexsort(by[::-1]) if by else np.arange(count)
    named = {key.column for key in keys}
    others = {name: column for name, column in columns.items() if name not in named}
    return _untied(order, ranks_in_order(by, order), others) if others else order


def ranks_in_order(by: Sequence[Array], order: Lane) -> Lane:
    """For rows in an order by some numbers: how many times these have changed before each."""
    changed = np.zeros(len(order), bool)
    for numbers in by:
        changed[1:] |= numbers[order[1:]] != numbers[order[:-1]]
    return np.cumsum(changed)


def _untied(order: Lane, ranks: Lane, columns: Mapping[str, pa.Array]) -> Lane:
    """The same order, with rows of equal rank in the order of some columns."""
    same = np.zeros(len(order) + 1, bool)
    same[1:-1] = ranks[1:] == ranks[:-1]
    tied = np.flatnonzero(same[1:] | same[:-1])
    if not len(tied):
        return order
    rows = pa.array(order[tied])
    by = [part for name, column in columns.items() for part in comparable(column.take(rows), SortKey(name))]
    untied = order.copy()
    untied[tied] = order[tied[np.lexsort([*by[::-1], ranks[tied]])]]
    return untied


def comparable(array: pa.Array, key: SortKey) -> list[Array]:
    """Numbers that compare as the key's values do, the most significant first: whether it is null, and its place."""
    valid = validity(array).astype(bool)
    field = pa.field(key.column, array.type, nullable=False)
    if bits(field) is not None:
        numbers = ordered_bits(array, field)
    else:
        flat = canonical(array) if is_nested(array.type) else array
        numbers = pc.rank(flat, tiebreaker="dense").to_numpy()
    numbers = numbers if key.ascending else ~numbers
    if valid.all():
        return [numbers]
    return [valid if key.nulls_first else ~valid, np.where(valid, numbers, 0)]


def sort_table(table: pa.Table, keys: Sequence[SortKey]) -> pa.Table:
    """The rows of a table in order."""
    if not table.num_columns:
        return table
    columns = {name: column.combine_chunks() for name, column in zip(table.column_names, table.columns, strict=True)}
    return table.take(pa.array(order_of(columns, keys)))


# The first rows of each group.


@dataclass(frozen=True)
class TopRows(Reducer):
    """Of each group the rows in places `offset` to `offset + limit`; one that counts twice takes two places.

    Without a limit, all from `offset` on.
    """

    limit: int | None
    offset: int
    keys: tuple[SortKey, ...]

    def fields(self, schema: Schema) -> Fields:
        return schema.val.fields

    def apply(self, groups: Groups) -> ReducedRows:
        there = np.flatnonzero(groups.sums[0] > 0)
        values, group, counts = groups.values.take(there), groups.group[there], groups.sums[0][there]
        columns = values.columns()
        own = {field.name: columns[field.name] for field in values.schema.val.fields}
        order = order_of(own, [key for key in self.keys if key.column in own], group)
        before = places(group[order], counts[order])
        through = before + counts[order]
        end = through if self.limit is None else np.minimum(through, self.offset + self.limit)
        taken = np.maximum(end - np.maximum(before, self.offset), 0)
        chosen = np.flatnonzero(taken)
        rows = order[chosen]
        return ReducedRows(there[rows], [column.take(pa.array(rows)) for column in own.values()], taken[chosen])


@dataclass(frozen=True)
class Foremost(TopK):
    """The `k` least (or greatest) distinct values of each group, in one row; null where it has fewer.

    For input with one value column. In an index that keeps its order, only the ends of a group are read.
    """

    distinct: bool = True

    def fields(self, schema: Schema) -> Fields:
        (field,) = schema.val.fields
        return tuple(pa.field(f"{field.name} {place}", field.type, place > 0) for place in range(self.k))

    def apply(self, groups: Groups) -> ReducedRows:
        found = super().apply(groups)
        group, (values,) = groups.group[found.rows], found.columns
        starts, sizes = group_extents(group)
        rows = [pa.array(starts + place, mask=sizes <= place) for place in range(self.k)]
        return ReducedRows(found.rows[starts], [values.take(each) for each in rows], np.ones(len(starts), np.int64))


def places(group: Lane, counts: Lane) -> Lane:
    """How much of the same group comes before each row, where groups come one after the other."""
    before = np.cumsum(counts) - counts
    starts, sizes = group_extents(group)
    return before - np.repeat(before[starts], sizes)


def top_rows(
    collection: Collection, by: Sequence[str], limit: int | None, offset: int, keys: Sequence[SortKey]
) -> Collection:
    """Of each group, which the columns `by` make, the rows in places `offset` to `offset + limit`."""
    key, names = tuple(by), collection.columns
    final = TopRows(limit, offset, tuple(each for each in keys if each.column not in key))
    fields = [field for field in collection.node.columns if field.name not in key]
    if limit is None or not fields:
        return reduced(collection, key, final).select(*names)
    packing = Packing.of(fields, final.keys, key)
    if packing.fits and not collection.node.scope:
        found = _top_packed(collection, key, packing, offset + limit)
        return (reduced(found, key, final) if offset else found).select(*names)
    prefix = Prefix.of(packing.name, packing.fields, packing.keys)
    if prefix is not None and not key and not collection.node.scope:
        return reduced(_that_begin_first(collection, prefix, offset + limit), key, final).select(*names)
    found = _top_in_buckets(collection, key, packing, TopRows(offset + limit, 0, final.keys))
    return reduced(found, key, final).select(*names)


def reduced(collection: Collection, key: Sequence[str], logic: Reducer) -> Collection:
    """For each group, which the columns `key` make, what a logic makes of its rows."""
    return collection.arrange_by(key).reduce(logic).rows()


def _that_begin_first(collection: Collection, prefix: Prefix, count: int) -> Collection:
    """The rows that have one of the first so many beginnings."""
    names = collection.columns
    begun = collection.step(prefix)
    first = reduced(begun.select(prefix.name), (), TopK(count, (prefix.name,), greatest=False, distinct=True))
    return first.arrange(prefix.name).join(begun.arrange(prefix.name)).select(*names)


def _top_in_buckets(collection: Collection, key: tuple[str, ...], packing: Packing, first: TopRows) -> Collection:
    """The rows that are among the first in their bucket; fewer buckets where more rows win in each."""
    names, wanted = collection.columns, first.limit or 0
    bucket = unlike("bucket", names)
    count = max(2, _BUCKETS >> max(0, wanted.bit_length() - 1) // 2)
    parted = collection.step(Bucket(bucket, tuple(field.name for field in packing.fields), count))
    return reduced(parted, (*key, bucket), first).select(*names)


def unlike(name: str, taken: Iterable[str]) -> str:
    """A name that is not taken."""
    return name if name not in taken else unlike(f"{name}_", taken)


@dataclass(frozen=True)
class Packing:
    """Columns as one number, in the order of keys: see `top_rows`. The order of fields is that of the keys."""

    name: str
    fields: Fields
    keys: tuple[SortKey, ...]

    @staticmethod
    def of(fields: Sequence[pa.Field], keys: Sequence[SortKey], taken: Iterable[str]) -> Packing:
        """The sort columns first, then the others."""
        known = {field.name: field for field in fields}
        sorted_by = {key.column: key for key in reversed(keys)}  # the first of several counts
        order = dict.fromkeys([*(key.column for key in keys), *known])
        return Packing(
            unlike("place", taken),
            tuple(known[name] for name in order),
            tuple(sorted_by.get(name, SortKey(name)) for name in order),
        )

    @property
    def fits(self) -> bool:
        """Whether all columns fit."""
        widths = [bits(field) for field in self.fields]
        return all(width is not None for width in widths) and sum(width or 0 for width in widths) <= _LANE

    @property
    def field(self) -> pa.Field:
        """The column that they become."""
        return pa.field(self.name, pa.uint64(), nullable=False)

    def pack(self, columns: Columns) -> Array:
        """All columns as one."""
        packed = np.zeros(len(columns[self.fields[0].name]), np.uint64)
        for field, key in zip(self.fields, self.keys, strict=True):
            width = bits(field) or 0
            shifted = packed << np.uint64(width) if width < _LANE else packed
            packed = shifted | self._turned(ordered_bits(columns[field.name], field), field, key)
        return packed

    def unpack(self, packed: Array) -> dict[str, pa.Array]:
        """The columns again."""
        columns = {}
        for field, key in zip(reversed(self.fields), reversed(self.keys), strict=True):
            width = bits(field) or 0
            own = packed & np.uint64((1 << width) - 1)
            columns[field.name] = from_ordered_bits(self._turned(own, field, key), field)
            packed = packed >> np.uint64(width) if width < _LANE else packed
        return columns

    @staticmethod
    def _turned(numbers: Array, field: pa.Field, key: SortKey) -> Array:
        """Ordered bits as the key wants them, and back: the bits of values, and that which says null, inverted."""
        width = bits(field) or 0
        value = (1 << width - field.nullable) - 1
        turned = (0 if key.ascending else value) | (0 if key.nulls_first or not field.nullable else value + 1)
        return numbers ^ np.uint64(turned)


@dataclass(frozen=True)
class _Pack:
    packing: Packing
    keep: tuple[str, ...]

    def __call__(self, columns: Columns) -> Mapping[str, pa.Array]:
        return {**{n: columns[n] for n in self.keep}, self.packing.name: pa.array(self.packing.pack(columns))}


@dataclass(frozen=True)
class _Unpack:
    packing: Packing
    keep: tuple[str, ...]

    def __call__(self, columns: Columns) -> Mapping[str, pa.Array]:
        unpacked = self.packing.unpack(columns[self.packing.name].to_numpy())
        return {**{name: columns[name] for name in self.keep}, **unpacked}


def _top_packed(collection: Collection, key: tuple[str, ...], packing: Packing, count: int) -> Collection:
    """The first rows of each group, by what they are packed into."""
    kept = [field for field in collection.node.columns if field.name in key]
    packed = collection.map([*kept, packing.field], _Pack(packing, key))
    found = reduced(packed, key, TopK(count, (packing.name,), greatest=False))
    return found.map([*kept, *packing.fields], _Unpack(packing, key))
