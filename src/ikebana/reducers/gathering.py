"""Aggregates that need the values of a group: lists, sets, percentiles, the mode, the value at a maximum.

`Gathering` computes any number of them for each group in one reduction. Since it has the group's rows at hand, also
those that are sums (`Summed`) and extremes (`Extreme`): a query that has both kinds needs no other index.

All are functions of the rows: lists and sets are in ascending order, and of several values that are equally frequent,
or stand at the same maximum, one is chosen by its own order. Spark leaves these open.

Cost: a change costs its group, twice (what it was, what it is): a sort for each column. Aggregates that are nothing but
sums are better maintained by `ikebana.reducers.sums`, and extremes by `ikebana.reducers.ordering`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding import Schema
from ikebana.encoding.arrow import from_numpy
from ikebana.encoding.columns import integers, validity
from ikebana.encoding.lanes import Array, Lane
from ikebana.engine.collection import Collection
from ikebana.errors import EvaluationError
from ikebana.expressions.core.buffers import is_true
from ikebana.operators.changes import Fields
from ikebana.operators.reducers import Groups, ReducedRows, Reducer
from ikebana.reducers.ordering import comparable, ranks_in_order, reduced
from ikebana.reducers.sort_keys import SortKey
from ikebana.reducers.sums.aggregates import Aggregate
from ikebana.reducers.sums.floats import BINS, Exact
from ikebana.reducers.sums.parts import Floating, SumPart, Sums

Known = Mapping[str, pa.Field]
"""The columns of a group's rows, by name."""


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """Rows of groups: which group each is of (ascending, counted from 0, none missing) and how often it counts."""

    columns: Mapping[str, pa.Array]
    group: Lane
    counts: Lane
    groups: int

    def only(self, where: str) -> GroupedRows:
        """The same rows, of which only those count in which a column is true."""
        return replace(self, counts=np.where(is_true(self.columns[where]), self.counts, 0))

    def in_order(self, *keys: SortKey, weights: Lane | None = None, with_nulls: bool = False) -> Ordered:
        """The rows that count, by group and keys; without `with_nulls`, those in which the first key is not null."""
        weights = self.counts if weights is None else weights
        counts = weights > 0
        there = np.flatnonzero(counts if with_nulls else (validity(self.columns[keys[0].column]) != 0) & counts)
        taken = pa.array(there)
        by = [part for key in keys for part in comparable(self.columns[key.column].take(taken), key)]
        order = np.lexsort([*by[::-1], self.group[there]])
        ranks = ranks_in_order([self.group[there], *by], order)
        rows = there[order]
        return Ordered(rows, self.group[rows], weights[rows], ranks, self.groups)


@dataclass(frozen=True, eq=False)
class Ordered:
    """Rows by group and value, how much each weighs, and a rank that equal values of a group share."""

    rows: Lane
    group: Lane
    weights: Lane
    ranks: Lane
    groups: int

    @property
    def firsts(self) -> Lane:
        """The positions of the first of equal values."""
        return np.flatnonzero(np.append(True, self.ranks[1:] != self.ranks[:-1])) if len(self.ranks) else self.ranks

    @property
    def totals(self) -> Lane:
        """How much each group weighs."""
        return np.bincount(self.group, self.weights, self.groups).astype(np.int64)

    def at(self, place: Lane) -> Lane:
        """For each group the row in a place (counted from 0), each row taking as many places as it weighs.

        What it says of groups that have no such place means nothing.
        """
        before = np.cumsum(self.totals) - self.totals
        found = np.searchsorted(np.cumsum(self.weights), before + place, side="right")
        return self.rows[np.minimum(found, len(self.rows) - 1)] if len(self.rows) else np.zeros(self.groups, np.int64)

    def last(self) -> tuple[Lane, Array]:
        """For each group its last row, and whether it has any."""
        there = self.totals > 0
        return self.at(np.maximum(self.totals - 1, 0)), there


def _taken(column: pa.Array, rows: Lane, there: Array) -> pa.Array:
    """The values of some rows, null where they are not there."""
    return column.take(pa.array(np.where(there, rows, 0), mask=~there))


# Calls.


@dataclass(frozen=True)
class GatherCall(ABC):
    """A function of a group's rows, and the name of its column."""

    name: str

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at."""

    @abstractmethod
    def field(self, known: Known) -> pa.Field:
        """Its column."""

    @abstractmethod
    def evaluate(self, rows: GroupedRows) -> pa.Array:
        """Its value for each group."""


@dataclass(frozen=True)
class Where(GatherCall):
    """A function of those rows alone in which a column is true."""

    call: GatherCall
    where: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.call.columns, self.where)

    def field(self, known: Known) -> pa.Field:
        return self.call.field(known)

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        return self.call.evaluate(rows.only(self.where))


@dataclass(frozen=True)
class OfColumn(GatherCall):
    """A function of one column's values that are not null; null where there are none, unless it says otherwise."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def field(self, known: Known) -> pa.Field:
        return known[self.column].with_name(self.name).with_nullable(True)


@dataclass(frozen=True)
class Collect(OfColumn):
    """All values as a list, in ascending order, each once if it is `distinct`; an empty list if there are none.

    Nulls are left out unless `with_nulls`; then they come first.
    """

    distinct: bool = False
    with_nulls: bool = False

    def field(self, known: Known) -> pa.Field:
        return pa.field(self.name, _list_of(known[self.column].type, self.with_nulls), nullable=False)

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        found = rows.in_order(SortKey(self.column), with_nulls=self.with_nulls)
        column = rows.columns[self.column]
        if self.distinct:
            chosen, group = found.rows[found.firsts], found.group[found.firsts]
        else:
            chosen, group = np.repeat(found.rows, found.weights), np.repeat(found.group, found.weights)
        sizes = np.bincount(group, minlength=rows.groups)
        return _lists(sizes, column.take(pa.array(chosen)), self.with_nulls)


def _list_of(kind: pa.DataType, nullable: bool = False) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable))


def _lists(sizes: Lane, values: pa.Array, nullable: bool = False) -> pa.Array:
    """Lists of some sizes, of values one after the other, some of which may be null."""
    offsets = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, type=_list_of(values.type, nullable))


@dataclass(frozen=True)
class GatheredExtreme(OfColumn):
    """The greatest or the least value, NaN being above all else."""

    greatest: bool = True

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        found = rows.in_order(SortKey(self.column, ascending=self.greatest))
        return _taken(rows.columns[self.column], *found.last())


@dataclass(frozen=True)
class ExtremeBy(OfColumn):
    """The value of a column (perhaps null) where another is greatest or least; the greatest of several."""

    by: str
    greatest: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.by)

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        found = rows.in_order(SortKey(self.by, ascending=self.greatest), SortKey(self.column))
        return _taken(rows.columns[self.column], *found.last())


@dataclass(frozen=True)
class Mode(OfColumn):
    """The most frequent value; of several the least, or the greatest."""

    greatest: bool = False

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        found = rows.in_order(SortKey(self.column, ascending=not self.greatest))
        firsts = found.firsts
        often = np.add.reduceat(found.weights, firsts) if len(firsts) else firsts
        group = found.group[firsts]
        order = np.lexsort([-often, group])  # stable: of equally frequent ones the first
        best = order[np.flatnonzero(np.append(True, group[1:] != group[:-1]))] if len(group) else order
        chosen, there = np.zeros(rows.groups, np.int64), np.zeros(rows.groups, bool)
        chosen[group[best]], there[group[best]] = found.rows[firsts[best]], True
        return _taken(rows.columns[self.column], chosen, there)


@dataclass(frozen=True)
class Percentile(OfColumn):
    """The values at some fractions of the way from the least to the greatest, or backwards if `descending`.

    Between two values it is interpolated; a `discrete` one is the first value that so large a fraction of all
    does not exceed. The result is a double, of durations a duration; a list if `many`, else of the one fraction.
    `frequency` is a column that says how often each row's value counts.
    """

    fractions: tuple[float, ...]
    many: bool = False
    discrete: bool = False
    descending: bool = False
    frequency: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,) if self.frequency is None else (self.column, self.frequency)

    def field(self, known: Known) -> pa.Field:
        kind = known[self.column].type
        result = kind if types.is_duration(kind) else pa.float64()
        return pa.field(self.name, _list_of(result) if self.many else result, nullable=True)

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        column = rows.columns[self.column]
        found = rows.in_order(SortKey(self.column, ascending=not self.descending), weights=self._weights(rows))
        there = found.totals > 0
        values = [self._value(column, found, fraction) for fraction in self.fractions]
        if not self.many:
            return _result(column.type, values[0], there)
        sizes = np.where(there, len(values), 0)
        flat = np.stack(values, axis=1)[there].ravel() if values else np.empty(0)
        lists = _lists(sizes, _result(column.type, flat, np.ones(len(flat), bool)))
        return _taken(lists, np.arange(len(there)), there)

    def _weights(self, rows: GroupedRows) -> Lane:
        if self.frequency is None:
            return rows.counts
        column = rows.columns[self.frequency]
        weights = np.where(validity(column), integers(column), 0)
        if (weights < 0).any():
            raise EvaluationError(
                f"the frequency {self.frequency!r} of a percentile is negative", hint="filter such rows out"
            )
        return rows.counts * weights

    def _value(self, column: pa.Array, found: Ordered, fraction: float) -> Array:
        """The value at a fraction of each group."""
        totals = np.maximum(found.totals, 1)
        if self.discrete:
            return _floats(column, found.at(np.maximum(np.ceil(fraction * totals) - 1, 0).astype(np.int64)))
        place = (totals - 1) * fraction
        below, above = np.floor(place), np.ceil(place)
        low, high = (_floats(column, found.at(each.astype(np.int64))) for each in (below, above))
        with np.errstate(invalid="ignore"):
            between = low + (place - below) * (high - low)
        return np.where((below == above) | (low == high), low, between)


def _floats(column: pa.Array, rows: Lane) -> Array:
    """The values of some rows as doubles; decimals to the nearest."""
    taken = column.take(pa.array(rows))
    if types.is_decimal(taken.type):
        return np.array([float(value or 0) for value in taken.to_pylist()], np.float64)
    if types.is_floating(taken.type):
        return np.asarray(taken.cast(pa.float64()).fill_null(0.0))
    return integers(taken).astype(np.float64)


def _result(kind: pa.DataType, values: Array, there: Array) -> pa.Array:
    """Doubles as results for a column of a type, null where they are not there."""
    if types.is_duration(kind):
        return from_numpy(kind, np.where(there, values, 0.0).astype(np.int64), there)
    return from_numpy(pa.float64(), values, there)


@dataclass(frozen=True)
class Summed(GatherCall):
    """An aggregate that is a sum at heart, of rows that are at hand anyway."""

    aggregate: Aggregate

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.aggregate.parts for name in part.columns))

    def field(self, known: Known) -> pa.Field:
        return pa.field(self.name, self.aggregate.type, self.aggregate.nullable)

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        starts = np.searchsorted(rows.group, np.arange(rows.groups))
        wholes = [part for part in self.aggregate.parts if isinstance(part, SumPart)]
        lanes = {part: _added_up(part.split(rows.columns), rows.counts, starts) for part in wholes}
        counts = _added_up([np.ones(len(rows.counts), np.int64)], rows.counts, starts)[0]
        exact = {part: _exact(part, rows) for part in self.aggregate.parts if isinstance(part, Floating)}
        return self.aggregate.finish(Sums(counts, lanes, exact))


def _added_up(lanes: Sequence[Lane], counts: Lane, starts: Lane) -> Lane:
    """The sums of groups, which start at some rows."""
    if not len(starts):
        return np.zeros((len(lanes), 0), np.int64)
    return np.add.reduceat(np.stack(lanes) * counts, starts, axis=1)


def _exact(part: Floating, rows: GroupedRows) -> list[Exact]:
    """The exact sums of groups' floats: bin by bin first."""
    at, bins, lanes = part.split(rows.columns)
    counted = np.flatnonzero(rows.counts[at])  # an infinity that does not count must not be there either
    at, bins, lanes = at[counted], bins[counted], [lane[counted] for lane in lanes]
    slots, where = np.unique(rows.group[at] * BINS + bins, return_inverse=True)
    sums = np.zeros((len(lanes), len(slots)), np.int64)
    for lane, total in zip(lanes, sums, strict=True):
        np.add.at(total, where, lane * rows.counts[at])
    found = [Exact() for _ in range(rows.groups)]
    for slot, parts in zip(slots.tolist(), sums.T.tolist(), strict=True):
        found[slot // BINS].add(slot % BINS, parts)
    return found


# The reduction.


@dataclass(frozen=True)
class Gathering(Reducer):
    """For each group one row, of functions of its rows."""

    calls: tuple[GatherCall, ...]

    def fields(self, schema: Schema) -> Fields:
        known = {field.name: field for field in (*schema.key.fields, *schema.val.fields)}
        return tuple(call.field(known) for call in self.calls)

    def apply(self, groups: Groups) -> ReducedRows:
        there = np.flatnonzero(groups.sums[0] > 0)
        values, given = groups.values.take(there), groups.group[there]
        firsts = np.flatnonzero(np.append(True, given[1:] != given[:-1])) if len(given) else given
        group = np.repeat(np.arange(len(firsts)), np.diff(np.append(firsts, len(given))))
        rows = GroupedRows(values.columns(), group, groups.sums[0][there], len(firsts))
        made = [call.evaluate(rows) for call in self.calls]
        return ReducedRows(there[firsts], made, np.ones(len(firsts), np.int64))


def gather(collection: Collection, by: Sequence[str], calls: tuple[GatherCall, ...]) -> Collection:
    """For each group, which the columns `by` make, a row of aggregates; the group's columns first."""
    needed = dict.fromkeys(name for call in calls for name in call.columns if name not in by)
    return reduced(collection.select(*by, *needed), by, Gathering(calls))
