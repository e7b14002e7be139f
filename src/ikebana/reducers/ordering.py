"""ORDER BY, LIMIT and OFFSET: sorting rows, and maintaining the first rows of each group.

An order is a sequence of `SortKey`s. Numbers, dates and booleans have their natural order, NaN after all other floats;
strings and binaries are ordered by their bytes. Ties are broken by the remaining columns, ascending, so that every
result is a function of the rows and not of their arrival. Structs are ordered by their fields and lists by their
elements, nulls first. Maps break ties by their bytes; they cannot be sort keys.

`top_rows` maintains the rows at places `offset` to `offset + limit` of each group, in one of four ways:

- *Packed*, if all columns fit into 64 bits together: they are packed into one column that has the requested order, and
  an index keeps this column sorted. Only the first rows of a group are read.
- *By prefix*, if all rows are one group and the first sort column is numeric: the beginning of the order fits into 64
  bits (`ikebana.reducers.sort_keys`), so its first values are found as above, and only rows that have one of them are
  compared.
- *In buckets*: rows are compared within one of many buckets first, then the first rows of all buckets with each other.
- *All*: without a limit, a group is read entirely whenever it changes.

Cost of a change in the first three: milliseconds, also in groups of millions, unless most rows have the same prefix.
Large limits and offsets cost in proportion, since that many rows have to be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding import Schema
from ikebana.encoding.canonical import canonical
from ikebana.encoding.columns import bits, from_ordered_bits, is_nested, ordered_bits, valid_flags
from ikebana.encoding.lanes import Array, Lane
from ikebana.engine.collection import Collection
from ikebana.engine.columns import unused_name
from ikebana.expressions.nested.lists import has_map, ranks
from ikebana.operators.buckets import Bucket, bucket_count
from ikebana.operators.changes import Fields
from ikebana.operators.linear import Columns
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.reducers import Groups, ReducedRows, Reducer, TopK, group_extents
from ikebana.operators.registers import ColumnSlots, Rows
from ikebana.reducers.sort_keys import Prefix, SortKey

_LANE_BITS = 64


# The order of rows.


def order_of(columns: Mapping[str, pa.Array], keys: Sequence[SortKey], group: Lane | None = None) -> Lane:
    """The positions of the rows, sorted by group (if given), then by the keys, then by the other columns."""
    count = len(next(iter(columns.values()))) if columns else len(group if group is not None else ())
    by = [] if group is None else [group]
    by += [lane for key in keys for lane in comparable(columns[key.column], key)]
    order = np.lexsort(by[::-1]) if by else np.arange(count)
    named = {key.column for key in keys}
    others = {name: column for name, column in columns.items() if name not in named}
    return _break_ties(order, ranks_in_order(by, order), others) if others else order


def ranks_in_order(by: Sequence[Array], order: Lane) -> Lane:
    """For rows sorted by some lanes: the rank of each row, where rows with equal lanes have equal ranks."""
    changed = np.zeros(len(order), bool)
    for lane in by:
        changed[1:] |= lane[order[1:]] != lane[order[:-1]]
    return np.cumsum(changed)


def _break_ties(order: Lane, ranks: Lane, columns: Mapping[str, pa.Array]) -> Lane:
    """The same order, with rows of equal rank sorted by some columns."""
    is_tied = np.zeros(len(order) + 1, bool)
    is_tied[1:-1] = ranks[1:] == ranks[:-1]
    tied = np.flatnonzero(is_tied[1:] | is_tied[:-1])
    if not len(tied):
        return order
    rows = pa.array(order[tied])
    by = [lane for name, column in columns.items() for lane in comparable(column.take(rows), SortKey(name))]
    result = order.copy()
    result[tied] = order[tied[np.lexsort([*by[::-1], ranks[tied]])]]
    return result


def comparable(array: pa.Array, key: SortKey) -> list[Array]:
    """Integer lanes that compare like the values of a sort key, most significant first: null or not, then the value."""
    valid = valid_flags(array).astype(bool)
    field = pa.field(key.column, array.type, nullable=False)
    numbers = ordered_bits(array, field) if bits(field) is not None else _ranks(array)
    numbers = numbers if key.ascending else ~numbers
    if valid.all():
        return [numbers]
    return [valid if key.nulls_first else ~valid, np.where(valid, numbers, 0)]


def _ranks(array: pa.Array) -> Array:
    """Numbers in the order of the values; types that contain maps are ordered by their bytes."""
    if not is_nested(array.type):
        return pc.rank(array, tiebreaker="dense").to_numpy()
    if has_map(array.type):
        return pc.rank(canonical(array), tiebreaker="dense").to_numpy()
    return ranks(array)


def sort_table(table: pa.Table, keys: Sequence[SortKey]) -> pa.Table:
    """The rows of a table, sorted."""
    if not table.num_columns:
        return table
    columns = {name: column.combine_chunks() for name, column in zip(table.column_names, table.columns, strict=True)}
    return table.take(pa.array(order_of(columns, keys)))


# The first rows of each group.


@dataclass(frozen=True)
class TopRows(Reducer):
    """The rows at places `offset` to `offset + limit` of each group; a row of multiplicity two takes two places.

    Without a limit, all rows from `offset` on.
    """

    label = "first rows"
    is_called = True

    limit: int | None
    offset: int
    keys: tuple[SortKey, ...]

    def fields(self, schema: Schema) -> Fields:
        return schema.val.fields

    def apply(self, groups: Groups) -> ReducedRows:
        present = np.flatnonzero(groups.sums[0] > 0)
        rows, group, counts = groups.values.take(present), groups.group[present], groups.sums[0][present]
        columns = rows.columns()
        values = {field.name: columns[field.name] for field in rows.schema.val.fields}
        order = order_of(values, [key for key in self.keys if key.column in values], group)
        before = places(group[order], counts[order])
        through = before + counts[order]
        end = through if self.limit is None else np.minimum(through, self.offset + self.limit)
        taken = np.maximum(end - np.maximum(before, self.offset), 0)
        chosen = np.flatnonzero(taken)
        first = order[chosen]
        return ReducedRows(present[first], [column.take(pa.array(first)) for column in values.values()], taken[chosen])


@dataclass(frozen=True)
class Foremost(TopK):
    """The `k` least (or greatest) distinct values of each group, in one row; null if the group has fewer.

    The input must have one value column. If the index is ordered by it, only the ends of a group are read.
    """

    label = "first values"
    has_one_row = True

    distinct: bool = True

    def fields(self, schema: Schema) -> Fields:
        (field,) = schema.val.fields
        return tuple(pa.field(f"{field.name} {place}", field.type, place > 0) for place in range(self.k))

    def apply(self, groups: Groups) -> ReducedRows:
        top = super().apply(groups)
        (values,) = top.columns
        starts, sizes = group_extents(groups.group[top.rows])
        columns = [values.take(pa.array(starts + place, mask=sizes <= place)) for place in range(self.k)]
        return ReducedRows(top.rows[starts], columns, np.ones(len(starts), np.int64))


def places(group: Lane, counts: Lane) -> Lane:
    """The sum of the counts of earlier rows of the same group, for rows sorted by group."""
    before = np.cumsum(counts) - counts
    starts, sizes = group_extents(group)
    return before - np.repeat(before[starts], sizes)


def top_rows(
    collection: Collection, by: Sequence[str], limit: int | None, offset: int, keys: Sequence[SortKey]
) -> Collection:
    """The rows at places `offset` to `offset + limit` of each group, defined by the columns `by`."""
    key, names = tuple(by), collection.columns
    final = TopRows(limit, offset, tuple(sort_key for sort_key in keys if sort_key.column not in key))
    fields = [field for field in collection.node.columns if field.name not in key]
    if limit is None or not fields:
        return reduced(collection, key, final).select(*names)
    packing = Packing.of(fields, final.keys, key)
    if packing.fits and not collection.node.scope:
        first = _top_packed(collection, key, packing, offset + limit)
        return (reduced(first, key, final) if offset else first).select(*names)
    prefix = Prefix.of(packing.name, packing.fields, packing.keys)
    if prefix is not None and not key and not collection.node.scope:
        return reduced(_with_first_prefixes(collection, prefix, offset + limit), key, final).select(*names)
    first = _top_in_buckets(collection, key, packing, TopRows(offset + limit, 0, final.keys))
    return reduced(first, key, final).select(*names)


def reduced(collection: Collection, key: Sequence[str], reducer: Reducer) -> Collection:
    """The output of a reducer for each group, defined by the columns `key`."""
    return collection.arrange_by(key).reduce(reducer).rows()


def _with_first_prefixes(collection: Collection, prefix: Prefix, count: int) -> Collection:
    """The rows that have one of the first `count` distinct prefixes."""
    names = collection.columns
    prefixed = collection.step(prefix)
    first = reduced(prefixed.select(prefix.name), (), TopK(count, (prefix.name,), greatest=False, distinct=True))
    return first.arrange(prefix.name).join(prefixed.arrange(prefix.name)).select(*names)


def _top_in_buckets(collection: Collection, key: tuple[str, ...], packing: Packing, first: TopRows) -> Collection:
    """The first rows of each bucket. The larger the limit, the fewer buckets there are."""
    names, limit = collection.columns, first.limit or 0
    bucket = unused_name("bucket", names)
    hashed = tuple(field.name for field in packing.fields)
    bucketed = collection.step(Bucket(bucket, hashed, bucket_count(limit)))
    return reduced(bucketed, (*key, bucket), first).select(*names)


@dataclass(frozen=True)
class Packing:
    """Columns packed into one 64-bit number whose order is that of the sort keys; `fields` and `keys` correspond."""

    name: str
    fields: Fields
    keys: tuple[SortKey, ...]

    @staticmethod
    def of(fields: Sequence[pa.Field], keys: Sequence[SortKey], used_names: Iterable[str]) -> Packing:
        """Pack the sort columns first, then the others."""
        known = {field.name: field for field in fields}
        sorted_by = {key.column: key for key in reversed(keys)}  # the first of several keys of a column counts
        order = dict.fromkeys([*(key.column for key in keys), *known])
        return Packing(
            unused_name("place", used_names),
            tuple(known[name] for name in order),
            tuple(sorted_by.get(name, SortKey(name)) for name in order),
        )

    @property
    def fits(self) -> bool:
        """Whether all columns fit into 64 bits."""
        widths = [bits(field) for field in self.fields]
        return all(width is not None for width in widths) and sum(width or 0 for width in widths) <= _LANE_BITS

    @property
    def is_ascending(self) -> bool:
        """Whether the packed number consists of the ordered bits of the columns, none of them inverted."""
        return not any(
            self._inverted(np.zeros(1, np.uint64), field, key)[0]
            for field, key in zip(self.fields, self.keys, strict=True)
        )

    @property
    def field(self) -> pa.Field:
        """The packed column."""
        return pa.field(self.name, pa.uint64(), nullable=False)

    def pack(self, columns: Columns) -> Array:
        """Pack the columns."""
        packed = np.zeros(len(columns[self.fields[0].name]), np.uint64)
        for field, key in zip(self.fields, self.keys, strict=True):
            width = bits(field) or 0
            shifted = packed << np.uint64(width) if width < _LANE_BITS else packed
            packed = shifted | self._inverted(ordered_bits(columns[field.name], field), field, key)
        return packed

    def unpack(self, packed: Array) -> dict[str, pa.Array]:
        """The columns of packed numbers."""
        columns = {}
        for field, key in zip(reversed(self.fields), reversed(self.keys), strict=True):
            width = bits(field) or 0
            lowest = packed & np.uint64((1 << width) - 1)
            columns[field.name] = from_ordered_bits(self._inverted(lowest, field, key), field)
            packed = packed >> np.uint64(width) if width < _LANE_BITS else packed
        return columns

    @staticmethod
    def _inverted(numbers: Array, field: pa.Field, key: SortKey) -> Array:
        """Ordered bits in the direction of the key, or back: the bits of the value and the null bit are inverted."""
        width = bits(field) or 0
        value = (1 << width - field.nullable) - 1
        inverted = (0 if key.ascending else value) | (0 if key.nulls_first or not field.nullable else value + 1)
        return numbers ^ np.uint64(inverted)


@dataclass(frozen=True)
class _Pack:
    packing: Packing
    keep: tuple[str, ...]

    def __call__(self, columns: Columns) -> Mapping[str, pa.Array]:
        return {**{name: columns[name] for name in self.keep}, self.packing.name: pa.array(self.packing.pack(columns))}

    def lower(self, program: ProgramBuilder, rows: Rows) -> dict[str, ColumnSlots] | None:
        packing = self.packing
        if not packing.is_ascending:
            return None
        place = ColumnSlots(program.packed_bits(rows, packing.fields), 0)
        return {**{name: rows.columns[name] for name in self.keep}, packing.name: place}


@dataclass(frozen=True)
class _Unpack:
    packing: Packing
    keep: tuple[str, ...]

    def __call__(self, columns: Columns) -> Mapping[str, pa.Array]:
        unpacked = self.packing.unpack(columns[self.packing.name].to_numpy())
        return {**{name: columns[name] for name in self.keep}, **unpacked}

    def lower(self, program: ProgramBuilder, rows: Rows) -> dict[str, ColumnSlots] | None:
        packing = self.packing
        if not packing.is_ascending:
            return None
        place = rows.columns[packing.name].value
        unpacked = {
            field.name: program.unpacked_bits(rows.count, place, packing.fields, at)
            for at, field in enumerate(packing.fields)
        }
        return {**{name: rows.columns[name] for name in self.keep}, **unpacked}


def _top_packed(collection: Collection, key: tuple[str, ...], packing: Packing, count: int) -> Collection:
    """The first rows of each group, in the order of their packed columns."""
    key_fields = [field for field in collection.node.columns if field.name in key]
    packed = collection.map([*key_fields, packing.field], _Pack(packing, key))
    first = reduced(packed, key, TopK(count, (packing.name,), greatest=False))
    return first.map([*key_fields, *packing.fields], _Unpack(packing, key))
