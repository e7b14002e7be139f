"""Reducers: what a reduction computes, over whole columns.

A `Reducer` takes `Groups`: for each group (a key at a time) its values with their accumulated diffs, one group after
the other, values in order of their lane. It returns `ReducedRows`: for each output row the position of an input row of
the same group, which has the key, then its value columns, and its diff. A group without values has no output, and is
not passed to the reducer.

Contract: a reducer is a pure function. Its result must depend on nothing but the groups, because a reduction may
compute an earlier output again. Some reducers depend on the sums of diffs alone (`SumsReducer`); where keys have no
values, they are computed without looking at rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding import Schema
from ikebana.encoding.canonical import canonical
from ikebana.encoding.columns import bits, ordered_bits, valid_flags
from ikebana.encoding.lanes import Array, Lane
from ikebana.errors import SchemaError
from ikebana.operators.changes import Fields, checked_columns
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.registers import ColumnSlots
from ikebana.trace import Updates

_COUNT = pa.field("count", pa.int64(), nullable=False)


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The values of some groups: the group of each value (ascending), the value, and its accumulated diffs."""

    group: Lane
    values: Updates
    sums: Lane

    @property
    def starts(self) -> Lane:
        """The first row of each group."""
        changes = np.ones(len(self.group), bool)
        np.not_equal(self.group[1:], self.group[:-1], out=changes[1:])
        return np.flatnonzero(changes)


@dataclass(frozen=True, slots=True, eq=False)
class ReducedRows:
    """Output rows: the position of an input row of the same group, value columns, and diffs."""

    rows: Lane
    columns: Sequence[pa.Array]
    diffs: Lane


class Reducer(ABC):
    """A function of a key's values."""

    @property
    def label(self) -> str:
        """What `explain` calls it."""
        return type(self).__name__.lower()

    is_called: ClassVar[bool] = False
    """Whether programs call `apply` with the groups that change, if there are no instructions for the reducer."""

    has_one_row: ClassVar[bool] = False
    """Whether a group has at most one output row, however many values it has."""

    @abstractmethod
    def fields(self, schema: Schema) -> Fields:
        """The value columns of the output, for input of a schema."""

    @abstractmethod
    def apply(self, groups: Groups) -> ReducedRows:
        """The output of some groups."""


class SumsReducer(Reducer):
    """A function of accumulated diffs, with at most one output row for each group."""

    @abstractmethod
    def of_sums(self, sums: Lane) -> ReducedRows:
        """The output of groups, given only their sums (one column of `sums` for each group)."""

    def lower(self, program: ProgramBuilder, count: int, sums: Sequence[int]) -> list[ColumnSlots] | None:
        """Write the output of groups as instructions of a program, given the slots of their sums, of which the first is
        not zero: return the slots of the value columns, or None if it cannot be written."""
        return None


@dataclass(frozen=True)
class Threshold(SumsReducer):
    """Each value with another multiplicity, a function of its present one; 0 leaves the value out."""

    multiplicity: Callable[[Lane], Any]

    def fields(self, schema: Schema) -> Fields:
        return schema.val.fields

    def apply(self, groups: Groups) -> ReducedRows:
        result = self.of_sums(groups.sums)
        return ReducedRows(result.rows, _values(groups.values.take(result.rows)), result.diffs)

    def of_sums(self, sums: Lane) -> ReducedRows:
        diffs = _multiplicities(self.multiplicity(sums[0]), sums.shape[1], "threshold")
        rows = np.flatnonzero(diffs)
        return ReducedRows(rows, [], diffs[rows])


def _is_positive(counts: Lane) -> Any:
    return counts > 0


DISTINCT = Threshold(_is_positive)
"""Each value with a positive count, once."""


@dataclass(frozen=True)
class Count(SumsReducer):
    """The sum of the counts of a key's values; no row if the sum is zero."""

    has_one_row = True
    name: str = "count"

    def fields(self, schema: Schema) -> Fields:
        return (_COUNT.with_name(self.name),)

    def apply(self, groups: Groups) -> ReducedRows:
        starts = groups.starts
        totals = np.add.reduceat(groups.sums, starts, axis=1) if len(starts) else groups.sums
        result = self.of_sums(totals)
        return ReducedRows(starts[result.rows], result.columns, result.diffs)

    def of_sums(self, sums: Lane) -> ReducedRows:
        rows = np.flatnonzero(sums[0])
        return ReducedRows(rows, [pa.array(sums[0][rows])], np.ones(len(rows), np.int64))

    def lower(self, program: ProgramBuilder, count: int, sums: Sequence[int]) -> list[ColumnSlots] | None:
        return [ColumnSlots(sums[0], 0)]


@dataclass(frozen=True)
class Sums:
    """A function for `LinearAggregate`: some of the sums, as they are."""

    lanes: tuple[int, ...]

    def __call__(self, sums: Lane) -> list[Lane]:
        return [sums[lane] for lane in self.lanes]


@dataclass(frozen=True)
class LinearAggregate(SumsReducer):
    """Aggregates that are accumulated in the diff lanes: the first is the count, which decides whether there is a row.

    `finish` computes the value columns `outputs` from the accumulated lanes.
    """

    outputs: Fields
    finish: Callable[[Lane], Sequence[Any]]

    label = "linear"
    has_one_row = True

    def fields(self, schema: Schema) -> Fields:
        return self.outputs

    def apply(self, groups: Groups) -> ReducedRows:
        return self.of_sums(groups.sums)

    def of_sums(self, sums: Lane) -> ReducedRows:
        rows = np.flatnonzero(sums[0])
        columns = self.finish(sums[:, rows])
        return ReducedRows(rows, _typed(columns, self.outputs, len(rows), "aggregate"), np.ones(len(rows), np.int64))

    def lower(self, program: ProgramBuilder, count: int, sums: Sequence[int]) -> list[ColumnSlots] | None:
        if not isinstance(self.finish, Sums) or any(field.type != pa.int64() for field in self.outputs):
            return None
        return [ColumnSlots(sums[lane], 0) for lane in self.finish.lanes]


@dataclass(frozen=True)
class TopK(Reducer):
    """The `k` greatest (or least) values by the columns `by`; a value with multiplicity 2 takes two places.

    The order is that of exact lanes: null first, NaN last.
    """

    label = "top k"
    is_called = True

    k: int
    by: tuple[str, ...]
    greatest: bool = True
    distinct: bool = False  # a value takes one place whatever its multiplicity

    def fields(self, schema: Schema) -> Fields:
        return schema.val.fields

    def apply(self, groups: Groups) -> ReducedRows:
        present = np.flatnonzero(groups.sums[0] > 0)
        values, group, counts = groups.values.take(present), groups.group[present], groups.sums[0][present]
        if self.distinct:
            counts = np.minimum(counts, 1)
        order = self._order(values, group)
        group, counts = group[order], counts[order]
        through = np.cumsum(counts)
        starts, sizes = group_extents(group)
        before = through - counts - np.repeat((through - counts)[starts], sizes)
        taken = np.clip(self.k - before, 0, counts)
        chosen = np.flatnonzero(taken)
        rows = order[chosen]
        return ReducedRows(present[rows], _values(values.take(rows)), taken[chosen])

    def is_ordered(self, schema: Schema) -> bool:
        """Whether the order of value lanes is the order by `by`."""
        return schema.val.exact and self.by == tuple(field.name for field in schema.val.fields)[: len(self.by)]

    def _order(self, values: Updates, group: Lane) -> Lane:
        """The rows by group, then by `by`; ties are broken by the other columns, so the choice is deterministic."""
        if self.is_ordered(values.schema):  # as they are, or reversed
            return _reversed_in_groups(group) if self.greatest else np.arange(len(group))
        columns, schema = values.columns(), values.schema
        fields = {field.name: field for field in (*schema.key.fields, *schema.val.fields)}
        names = dict.fromkeys((*self.by, *(field.name for field in schema.val.fields)))
        keys = [key for name in names for key in _sort_keys(columns[name], fields[name])]
        return np.lexsort([*(~key if self.greatest else key for key in reversed(keys)), group])


def group_extents(group: Lane) -> tuple[Lane, Lane]:
    """The first row of each group, and its number of rows."""
    starts = np.flatnonzero(np.append(True, group[1:] != group[:-1])) if len(group) else group
    return starts, np.diff(np.append(starts, len(group)))


def _reversed_in_groups(group: Lane) -> Lane:
    """The rows of each group in reverse order."""
    starts, sizes = group_extents(group)
    return np.repeat(2 * starts + sizes - 1, sizes) - np.arange(len(group))


def _sort_keys(array: pa.Array, field: pa.Field) -> tuple[Array, Array]:
    """Flags and unsigned integers in the order of a column's values, as in exact lanes: null first, NaN last.

    The order of nested values is arbitrary, but distinguishes different values.
    """
    valid, never_null = valid_flags(array), field.with_nullable(False)
    if bits(never_null) is None:
        numbers = pc.rank(canonical(array), tiebreaker="dense").to_numpy()
    else:
        numbers = ordered_bits(array, never_null)
    return valid, np.where(valid, numbers, np.uint64(0))


@dataclass(frozen=True)
class PythonReducer(Reducer):
    """Any Python function: (key, [(value, count), ...] in ascending order) -> (value, count) pairs.

    Keys and values are tuples, one entry for each column.
    """

    outputs: Fields
    function: Callable[[tuple[Any, ...], list[tuple[tuple[Any, ...], int]]], Iterable[tuple[Any, int]]]

    label = "python"

    def fields(self, schema: Schema) -> Fields:
        return self.outputs

    def apply(self, groups: Groups) -> ReducedRows:
        data = [row for row, _, _ in groups.values.triples()]
        split = len(groups.values.schema.key.fields)
        rows, results, diffs = [], [], []
        for start, end in pairwise([*groups.starts.tolist(), len(data)]):
            counts = groups.sums[0][start:end].tolist()
            values = sorted(zip((row[split:] for row in data[start:end]), counts, strict=True), key=_nulls_first)
            for value, diff in self.function(data[start][:split], values):
                rows.append(start)
                results.append(value if isinstance(value, tuple) else (value,))
                diffs.append(diff)
        columns = list(zip(*results, strict=True)) or [()] * len(self.outputs)
        typed = _typed(columns, self.outputs, len(rows), "reduce")
        return ReducedRows(np.array(rows, np.int64), typed, _multiplicities(diffs, len(rows), "reduce"))


def _nulls_first(pair: tuple[tuple[Any, ...], int]) -> Any:
    return tuple(map(_sort_key, pair[0]))


def _sort_key(value: Any) -> Any:
    """A sort key for Python values: nulls first, lists and structs by their elements."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        value = [_sort_key(element) for element in value]
    return (value is not None, value)


def _typed(columns: Sequence[Any], fields: Fields, rows: int, where: str) -> list[pa.Array]:
    """The columns that a user's function computed, converted to the declared types and checked for nulls."""
    if len(columns) != len(fields):
        raise SchemaError(
            f"the function given to {where} returned {len(columns)} columns",
            detail=f"the declared columns are {', '.join(field.name for field in fields)}",
        )
    arrays = {field.name: pa.array(column, field.type) for field, column in zip(fields, columns, strict=True)}
    return checked_columns(arrays, fields, rows, where)


def _multiplicities(counts: Any, rows: int, where: str) -> Lane:
    """The multiplicities that a user's function computed, checked."""
    array = np.asarray(counts)
    if array.shape != (rows,) or (rows and array.dtype.kind not in "iub"):
        raise SchemaError(
            f"the function given to {where} must return integers as multiplicities",
            detail=f"it returned an array of shape {array.shape} and type {array.dtype} for {rows} rows",
        )
    return array.astype(np.int64)


def _values(updates: Updates) -> list[pa.Array]:
    """The value columns."""
    split = updates.schema.key.payload_columns
    return updates.schema.val.decode(updates.val, updates.payload[split:])
