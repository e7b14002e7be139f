"""Aggregates that need all values of a group: lists, sets, percentiles, the mode, products, the value at a maximum.

`Gathering` computes any number of them for each group in one reduction.

All results are functions of the rows: lists and sets are in ascending order, and among values that are equally
frequent, or have the same maximum, the choice depends on the values alone. Spark leaves these open.

Cost: a change sorts its group twice, before and after the change, once for each column. Sums are maintained by
`ikebana.reducers.sums` and extremes by `ikebana.reducers.ordering`, which read less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding import Schema
from ikebana.encoding.arrow import from_numpy
from ikebana.encoding.columns import integers, valid_flags
from ikebana.encoding.lanes import Array, Lane
from ikebana.engine.collection import Collection
from ikebana.errors import EvaluationError
from ikebana.expressions.core.buffers import is_true
from ikebana.operators.changes import Fields
from ikebana.operators.reducers import Groups, ReducedRows, Reducer, group_extents
from ikebana.reducers.ordering import comparable, ranks_in_order, reduced
from ikebana.reducers.sort_keys import SortKey

Known = Mapping[str, pa.Field]
"""The columns of the rows, by name."""


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """Rows with the number of their group (ascending from 0, without gaps) and their multiplicity."""

    columns: Mapping[str, pa.Array]
    group: Lane
    counts: Lane
    groups: int

    def where(self, condition: str) -> GroupedRows:
        """The same rows, with multiplicity 0 unless a column is true."""
        return replace(self, counts=np.where(is_true(self.columns[condition]), self.counts, 0))

    def sort(self, *keys: SortKey, weights: Lane | None = None, with_nulls: bool = False) -> SortedRows:
        """The rows of positive weight by group and keys; without `with_nulls`, those whose first key is not null."""
        weights = self.counts if weights is None else weights
        is_present = weights > 0
        if not with_nulls:
            is_present &= valid_flags(self.columns[keys[0].column]) != 0
        present = np.flatnonzero(is_present)
        positions = pa.array(present)
        by = [lane for key in keys for lane in comparable(self.columns[key.column].take(positions), key)]
        order = np.lexsort([*by[::-1], self.group[present]])
        ranks = ranks_in_order([self.group[present], *by], order)
        rows = present[order]
        return SortedRows(rows, self.group[rows], weights[rows], ranks, self.groups)


@dataclass(frozen=True, eq=False)
class SortedRows:
    """Rows sorted by group and value, with their weights, and ranks that are equal for equal values of a group."""

    rows: Lane
    group: Lane
    weights: Lane
    ranks: Lane
    groups: int

    @property
    def firsts(self) -> Lane:
        """The positions at which a new value begins."""
        return group_extents(self.ranks)[0]

    @property
    def totals(self) -> Lane:
        """The total weight of each group."""
        return np.bincount(self.group, self.weights, self.groups).astype(np.int64)

    def at(self, place: Lane) -> Lane:
        """For each group the row at a place (from 0), where a row takes as many places as its weight.

        The result is meaningless for groups that do not have so many places.
        """
        if not len(self.rows):
            return np.zeros(self.groups, np.int64)
        before = np.cumsum(self.totals) - self.totals
        position = np.searchsorted(np.cumsum(self.weights), before + place, side="right")
        return self.rows[np.minimum(position, len(self.rows) - 1)]

    def last(self) -> tuple[Lane, Array]:
        """The last row of each group, and whether the group has any rows."""
        return self.at(np.maximum(self.totals - 1, 0)), self.totals > 0


def _take(column: pa.Array, rows: Lane, valid: Array) -> pa.Array:
    """The values of some rows, null where `valid` is false."""
    return column.take(pa.array(np.where(valid, rows, 0), mask=~valid))


# Aggregate functions.


@dataclass(frozen=True)
class GatherCall(ABC):
    """An aggregate function of a group's rows, and the name of its column."""

    name: str

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that the function reads."""

    @abstractmethod
    def field(self, known: Known) -> pa.Field:
        """The column of the result."""

    @property
    def empty(self) -> Any:
        """The result for a group without rows, if the result is not nullable."""
        return ()

    @abstractmethod
    def evaluate(self, rows: GroupedRows) -> pa.Array:
        """The result for each group."""


@dataclass(frozen=True)
class FilteredCall(GatherCall):
    """An aggregate function of only those rows for which a column is true."""

    call: GatherCall
    condition: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.call.columns, self.condition)

    def field(self, known: Known) -> pa.Field:
        return self.call.field(known)

    @property
    def empty(self) -> Any:
        return self.call.empty

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        return self.call.evaluate(rows.where(self.condition))


@dataclass(frozen=True)
class ColumnCall(GatherCall):
    """An aggregate function of the non-null values of one column; null if there are none, unless stated otherwise."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def field(self, known: Known) -> pa.Field:
        return known[self.column].with_name(self.name).with_nullable(True)


@dataclass(frozen=True)
class Collect(ColumnCall):
    """All values as a list in ascending order, without duplicates if `distinct`; an empty list if there are none.

    With `with_nulls` the list starts with the nulls; otherwise nulls are left out. Without `ascending` the values are
    in the order of the rows.
    """

    distinct: bool = False
    with_nulls: bool = False
    ascending: bool = True

    def field(self, known: Known) -> pa.Field:
        return pa.field(self.name, _list_of(known[self.column].type, self.with_nulls), nullable=False)

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        column = rows.columns[self.column]
        if not self.ascending:
            is_used = rows.counts > 0 if self.with_nulls else (rows.counts > 0) & (valid_flags(column) != 0)
            used = np.flatnonzero(is_used)
            sizes = np.bincount(rows.group[used], minlength=rows.groups)
            return _lists(sizes, column.take(pa.array(used)), self.with_nulls)
        in_order = rows.sort(SortKey(self.column), with_nulls=self.with_nulls)
        if self.distinct:
            chosen, group = in_order.rows[in_order.firsts], in_order.group[in_order.firsts]
        else:
            chosen, group = np.repeat(in_order.rows, in_order.weights), np.repeat(in_order.group, in_order.weights)
        sizes = np.bincount(group, minlength=rows.groups)
        return _lists(sizes, column.take(pa.array(chosen)), self.with_nulls)


def _list_of(kind: pa.DataType, nullable: bool = False) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable))


def _lists(sizes: Lane, values: pa.Array, nullable: bool = False) -> pa.Array:
    """Lists of the given sizes, made of consecutive values."""
    offsets = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, type=_list_of(values.type, nullable))


@dataclass(frozen=True)
class ExtremeBy(ColumnCall):
    """The value (possibly null) of the row with the greatest or least `by`; with ties, the greatest value."""

    by: str
    greatest: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.by)

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        in_order = rows.sort(SortKey(self.by, ascending=self.greatest), SortKey(self.column))
        return _take(rows.columns[self.column], *in_order.last())


@dataclass(frozen=True)
class Mode(ColumnCall):
    """The most frequent value; with ties the least, or the greatest."""

    greatest: bool = False

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        in_order = rows.sort(SortKey(self.column, ascending=not self.greatest))
        firsts = in_order.firsts
        frequencies = np.add.reduceat(in_order.weights, firsts) if len(firsts) else firsts
        group = in_order.group[firsts]
        order = np.lexsort([-frequencies, group])  # stable: the first of equally frequent values
        best = order[group_extents(group)[0]]
        chosen, valid = np.zeros(rows.groups, np.int64), np.zeros(rows.groups, bool)
        chosen[group[best]], valid[group[best]] = in_order.rows[firsts[best]], True
        return _take(rows.columns[self.column], chosen, valid)


@dataclass(frozen=True)
class Percentile(ColumnCall):
    """Percentiles: the values at some fractions of the sorted values, which are sorted downwards if `descending`.

    The result is interpolated between two values; a `discrete` percentile is the first value whose cumulative fraction
    reaches the given one. The result is a double (for durations a duration), and a list if `many`. With `own_type`,
    which is for discrete percentiles, it has the type of the column. `frequency` is a column with the number of times
    that each value counts.
    """

    fractions: tuple[float, ...]
    many: bool = False
    discrete: bool = False
    descending: bool = False
    frequency: str | None = None
    own_type: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,) if self.frequency is None else (self.column, self.frequency)

    def field(self, known: Known) -> pa.Field:
        kind = known[self.column].type
        result = kind if types.is_duration(kind) or self.own_type else pa.float64()
        return pa.field(self.name, _list_of(result) if self.many else result, nullable=True)

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        column = rows.columns[self.column]
        in_order = rows.sort(SortKey(self.column, ascending=not self.descending), weights=self._weights(rows))
        valid = in_order.totals > 0
        if self.own_type:
            return self._own_values(column, in_order, valid)
        values = [self._value(column, in_order, fraction) for fraction in self.fractions]
        if not self.many:
            return _result(column.type, values[0], valid)
        sizes = np.where(valid, len(values), 0)
        flat = np.stack(values, axis=1)[valid].ravel() if values else np.empty(0)
        lists = _lists(sizes, _result(column.type, flat, np.ones(len(flat), bool)))
        return _take(lists, np.arange(len(valid)), valid)

    def _own_values(self, column: pa.Array, in_order: SortedRows, valid: Array) -> pa.Array:
        """Values of the column itself."""
        rows = [in_order.at(self._place(in_order, fraction)) for fraction in self.fractions]
        if not self.many:
            return _take(column, rows[0], valid)
        flat = np.stack(rows, axis=1)[valid].ravel() if rows else np.empty(0, np.int64)
        lists = _lists(np.where(valid, len(rows), 0), column.take(pa.array(flat)))
        return _take(lists, np.arange(len(valid)), valid)

    def _place(self, in_order: SortedRows, fraction: float) -> Lane:
        """The place of a discrete percentile in each group."""
        totals = np.maximum(in_order.totals, 1)
        return np.maximum(np.ceil(fraction * totals) - 1, 0).astype(np.int64)

    def _weights(self, rows: GroupedRows) -> Lane:
        if self.frequency is None:
            return rows.counts
        column = rows.columns[self.frequency]
        weights = np.where(valid_flags(column), integers(column), 0)
        if (weights < 0).any():
            raise EvaluationError(
                f"the frequency {self.frequency!r} of a percentile is negative", hint="exclude such rows with a filter"
            )
        return rows.counts * weights

    def _value(self, column: pa.Array, in_order: SortedRows, fraction: float) -> Array:
        """The percentile of each group."""
        totals = np.maximum(in_order.totals, 1)
        if self.discrete:
            return _floats(column, in_order.at(self._place(in_order, fraction)))
        place = (totals - 1) * fraction
        below, above = np.floor(place), np.ceil(place)
        low = _floats(column, in_order.at(below.astype(np.int64)))
        high = _floats(column, in_order.at(above.astype(np.int64)))
        with np.errstate(invalid="ignore"):
            between = low + (place - below) * (high - low)
        return np.where((below == above) | (low == high), low, between)


def _floats(column: pa.Array, rows: Lane) -> Array:
    """The values of some rows as doubles; decimals are rounded to the nearest double."""
    values = column.take(pa.array(rows))
    if types.is_decimal(values.type):
        return np.array([float(value or 0) for value in values.to_pylist()], np.float64)
    if types.is_floating(values.type):
        return np.asarray(values.cast(pa.float64()).fill_null(0.0))
    return integers(values).astype(np.float64)


def _result(kind: pa.DataType, values: Array, valid: Array) -> pa.Array:
    """Doubles as percentiles of a column of a type, null where `valid` is false."""
    if types.is_duration(kind):
        return from_numpy(kind, np.where(valid, values, 0.0).astype(np.int64), valid)
    return from_numpy(pa.float64(), values, valid)


@dataclass(frozen=True)
class Joined(ColumnCall):
    """The strings (or binaries) of a column, joined by a delimiter; sorted by `order`, else by themselves.

    With `distinct`, only the first of equal values is used.
    """

    delimiter: str | bytes
    order: tuple[SortKey, ...] = ()
    distinct: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, *(key.column for key in self.order))

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        column = rows.columns[self.column]
        rows = replace(rows, counts=np.where(valid_flags(column), rows.counts, 0))
        in_order = rows.sort(*(self.order or (SortKey(self.column),)), SortKey(self.column), with_nulls=True)
        chosen, group = in_order.rows, in_order.group
        if self.distinct:
            codes = column.take(pa.array(chosen)).dictionary_encode().indices.to_numpy()
            first = np.sort(np.unique(group * (len(codes) + 1) + codes, return_index=True)[1])
            chosen, group = chosen[first], group[first]
        else:
            chosen, group = np.repeat(chosen, in_order.weights), np.repeat(group, in_order.weights)
        sizes = np.bincount(group, minlength=rows.groups)
        offsets = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))
        lists = pa.ListArray.from_arrays(offsets, column.take(pa.array(chosen)))
        joined = pc.binary_join(lists, pa.scalar(self.delimiter, column.type))
        return _take(joined, np.arange(rows.groups), sizes > 0)


@dataclass(frozen=True)
class Bits(ColumnCall):
    """The bitwise `and`, `or` or `xor` of a column of integers."""

    operation: Literal["and", "or", "xor"]

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        column = rows.columns[self.column]
        is_present = (rows.counts > 0) & (valid_flags(column) != 0)
        present = np.flatnonzero(is_present)
        numbers = integers(column)[present]
        if self.operation == "xor":
            numbers = np.where(rows.counts[present] % 2, numbers, 0)
        return _reduced(
            getattr(np, f"bitwise_{self.operation}"), numbers, rows.group[present], rows.groups, column.type
        )


@dataclass(frozen=True)
class Product(ColumnCall):
    """The product of a column of doubles, multiplied in ascending order."""

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        in_order = rows.sort(SortKey(self.column))
        chosen, group = np.repeat(in_order.rows, in_order.weights), np.repeat(in_order.group, in_order.weights)
        column = rows.columns[self.column]
        with np.errstate(all="ignore"):
            return _reduced(np.multiply, _floats(column, chosen), group, rows.groups, column.type)


def _reduced(function: np.ufunc, values: Array, group: Lane, groups: int, kind: pa.DataType) -> pa.Array:
    """A function of all values of each group, for values sorted by group; null for groups without values."""
    starts, _ = group_extents(group)
    result, valid = np.zeros(groups, values.dtype), np.zeros(groups, bool)
    if len(starts):
        result[group[starts]], valid[group[starts]] = function.reduceat(values, starts), True
    return from_numpy(kind, result, valid)


@dataclass(frozen=True)
class Pivoted(ColumnCall):
    """A list of `length` values: at each place a value of the row whose column `place` has this number, or null."""

    place: str
    length: int

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.place)

    def field(self, known: Known) -> pa.Field:
        return pa.field(self.name, _list_of(known[self.column].type, True), nullable=False)

    @property
    def empty(self) -> Any:
        return (None,) * self.length

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        values, places = rows.columns[self.column], rows.columns[self.place]
        is_used = (rows.counts > 0) & (valid_flags(values) != 0) & (valid_flags(places) != 0)
        used = np.flatnonzero(is_used)
        chosen = np.full(rows.groups * self.length, -1)
        chosen[rows.group[used] * self.length + integers(places)[used]] = used
        flat = _take(values, chosen, chosen >= 0)
        return _lists(np.full(rows.groups, self.length), flat, nullable=True)


# The reducer.


@dataclass(frozen=True)
class Gathering(Reducer):
    """One row for each group: aggregate functions of the group's rows."""

    label = "gathered values"
    is_called = True
    has_one_row = True

    calls: tuple[GatherCall, ...]

    def fields(self, schema: Schema) -> Fields:
        known = {field.name: field for field in (*schema.key.fields, *schema.val.fields)}
        return tuple(call.field(known) for call in self.calls)

    def apply(self, groups: Groups) -> ReducedRows:
        present = np.flatnonzero(groups.sums[0] > 0)
        values = groups.values.take(present)
        starts, sizes = group_extents(groups.group[present])
        group = np.repeat(np.arange(len(starts)), sizes)
        rows = GroupedRows(values.columns(), group, groups.sums[0][present], len(starts))
        columns = [call.evaluate(rows) for call in self.calls]
        return ReducedRows(present[starts], columns, np.ones(len(starts), np.int64))


def gather(collection: Collection, by: Sequence[str], calls: tuple[GatherCall, ...]) -> Collection:
    """One row for each group, defined by the columns `by`: the columns of the group, then the aggregates."""
    needed = dict.fromkeys(name for call in calls for name in call.columns if name not in by)
    return reduced(collection.select(*by, *needed), by, Gathering(calls))
