"""Logic: what a reduction computes, over whole columns.

A `Reducer` is given `Groups`: for each group (a key at a time) its values with their accumulated diffs, the
groups one after the other, values in order of their lane. It names output rows: for each the input row that
it belongs to (which says the group and has the key), its value columns, and its diff. A group without values
is not given, and has no output.

A logic is a function: what it computes must depend on nothing else, since it may be asked again what it said before.
Some depend on the sums of diffs alone (`SumsReducer`); where keys have no values they are computed without looking at
rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding import Schema
from ikebana.encoding.canonical import canonical
from ikebana.encoding.columns import bits, ordered_bits, validity
from ikebana.encoding.lanes import Array, Lane
from ikebana.errors import SchemaError
from ikebana.operators.changes import Fields, as_columns
from ikebana.trace import Updates

_COUNT = pa.field("count", pa.int64(), nullable=False)


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Values of some groups: which group each is of (ascending), the value, and its accumulated diffs."""

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
    """Output rows: an input row of the same group, value columns, and diffs."""

    rows: Lane
    columns: Sequence[pa.Array]
    diffs: Lane


class Reducer(ABC):
    """A function of a key's values."""

    @property
    def label(self) -> str:
        """What `explain` calls it."""
        return type(self).__name__.lower()

    @abstractmethod
    def fields(self, schema: Schema) -> Fields:
        """The value columns of the output, for input of a schema."""

    @abstractmethod
    def apply(self, groups: Groups) -> ReducedRows:
        """The output of some groups."""


class SumsReducer(Reducer):
    """A function of accumulated diffs, one output row at most for each group."""

    @abstractmethod
    def of_sums(self, sums: Lane) -> ReducedRows:
        """The output of groups of which only the sums (a lane each) are known; `rows` are positions among them."""


@dataclass(frozen=True)
class Threshold(SumsReducer):
    """Each value with another multiplicity, a function of the one it has; 0 leaves it out."""

    multiplicity: Callable[[Lane], Any]

    def fields(self, schema: Schema) -> Fields:
        return schema.val.fields

    def apply(self, groups: Groups) -> ReducedRows:
        made = self.of_sums(groups.sums)
        return ReducedRows(made.rows, _values(groups.values.take(made.rows)), made.diffs)

    def of_sums(self, sums: Lane) -> ReducedRows:
        diffs = _whole(self.multiplicity(sums[0]), sums.shape[1], "threshold")
        rows = np.flatnonzero(diffs)
        return ReducedRows(rows, [], diffs[rows])


def _is_there(counts: Lane) -> Any:
    return counts > 0


DISTINCT = Threshold(_is_there)
"""Each value of positive count, once."""


@dataclass(frozen=True)
class Count(SumsReducer):
    """The sum of the counts of a key's values; no row where that is zero."""

    name: str = "count"

    def fields(self, schema: Schema) -> Fields:
        return (_COUNT.with_name(self.name),)

    def apply(self, groups: Groups) -> ReducedRows:
        starts = groups.starts
        totals = np.add.reduceat(groups.sums, starts, axis=1) if len(starts) else groups.sums
        made = self.of_sums(totals)
        return ReducedRows(starts[made.rows], made.columns, made.diffs)

    def of_sums(self, sums: Lane) -> ReducedRows:
        rows = np.flatnonzero(sums[0])
        return ReducedRows(rows, [pa.array(sums[0][rows])], np.ones(len(rows), np.int64))


@dataclass(frozen=True)
class LinearAggregate(SumsReducer):
    """Aggregates that live in the diff lanes: the first is the count, which decides whether there is a row.

    `outputs` are the value columns, computed by `finish` from the accumulated lanes.
    """

    outputs: Fields
    finish: Callable[[Lane], Sequence[Any]]

    label = "linear"

    def fields(self, schema: Schema) -> Fields:
        return self.outputs

    def apply(self, groups: Groups) -> ReducedRows:
        return self.of_sums(groups.sums)

    def of_sums(self, sums: Lane) -> ReducedRows:
        rows = np.flatnonzero(sums[0])
        columns = self.finish(sums[:, rows])
        return ReducedRows(rows, _typed(columns, self.outputs, len(rows), "aggregate"), np.ones(len(rows), np.int64))


@dataclass(frozen=True)
class TopK(Reducer):
    """The `k` greatest (or least) values by the columns `by`; a value that counts twice takes two places.

    The order is that of exact lanes: null before all else, NaN after all else.
    """

    k: int
    by: tuple[str, ...]
    greatest: bool = True
    distinct: bool = False  # a value takes one place however often it counts

    def fields(self, schema: Schema) -> Fields:
        return schema.val.fields

    def apply(self, groups: Groups) -> ReducedRows:
        there = np.flatnonzero(groups.sums[0] > 0)
        values, group, counts = groups.values.take(there), groups.group[there], groups.sums[0][there]
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
        return ReducedRows(there[rows], _values(values.take(rows)), taken[chosen])

    def is_ordered(self, schema: Schema) -> bool:
        """Whether the order of value lanes is the order asked for."""
        return schema.val.exact and self.by == tuple(field.name for field in schema.val.fields)[: len(self.by)]

    def _order(self, values: Updates, group: Lane) -> Lane:
        """By group, then by the columns; ties by the rest of the value, so that the choice is determined."""
        if self.is_ordered(values.schema):  # as values are given, or the other way round
            return _reversed_in_groups(group) if self.greatest else np.arange(len(group))
        columns, schema = values.columns(), values.schema
        fields = {field.name: field for field in (*schema.key.fields, *schema.val.fields)}
        names = dict.fromkeys((*self.by, *(field.name for field in schema.val.fields)))
        keys = [key for name in names for key in _sort_keys(columns[name], fields[name])]
        return np.lexsort([*(~key if self.greatest else key for key in reversed(keys)), group])


def group_extents(group: Lane) -> tuple[Lane, Lane]:
    """Where each group starts, and how many rows it has."""
    starts = np.flatnonzero(np.append(True, group[1:] != group[:-1])) if len(group) else group
    return starts, np.diff(np.append(starts, len(group)))


def _reversed_in_groups(group: Lane) -> Lane:
    """The rows of each group, last one first."""
    starts, sizes = group_extents(group)
    return np.repeat(2 * starts + sizes - 1, sizes) - np.arange(len(group))


def _sort_keys(array: pa.Array, field: pa.Field) -> tuple[Array, Array]:
    """Unsigned numbers in the order of a column's values, the same as in exact lanes: null first, NaN last.

    Nested values have an order that tells different ones apart, no more.
    """
    valid, never_null = validity(array), field.with_nullable(False)
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
        rows, made, diffs = [], [], []
        for start, end in pairwise([*groups.starts.tolist(), len(data)]):
            counts = groups.sums[0][start:end].tolist()
            values = sorted(zip((row[split:] for row in data[start:end]), counts, strict=True), key=_nulls_first)
            for value, diff in self.function(data[start][:split], values):
                rows.append(start)
                made.append(value if isinstance(value, tuple) else (value,))
                diffs.append(diff)
        columns = list(zip(*made, strict=True)) or [()] * len(self.outputs)
        typed = _typed(columns, self.outputs, len(rows), "reduce")
        return ReducedRows(np.array(rows, np.int64), typed, _whole(diffs, len(rows), "reduce"))


def _nulls_first(pair: tuple[tuple[Any, ...], int]) -> Any:
    return tuple(_ordered(each) for each in pair[0])


def _ordered(value: Any) -> Any:
    """What has the order of Python values, nulls first; lists and structs are in order of what is in them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        value = [_ordered(each) for each in value]
    return (value is not None, value)


def _typed(columns: Sequence[Any], fields: Fields, rows: int, where: str) -> list[pa.Array]:
    """Columns that a user's function computed, in the types that it declared, and null only where it said so."""
    if len(columns) != len(fields):
        raise SchemaError(
            f"the function given to {where} gave {len(columns)} columns",
            detail=f"declared are {', '.join(field.name for field in fields)}",
        )
    made = {field.name: pa.array(column, field.type) for field, column in zip(fields, columns, strict=True)}
    return as_columns(made, fields, rows, where)


def _whole(counts: Any, rows: int, where: str) -> Lane:
    """Multiplicities that a user's function computed."""
    given = np.asarray(counts)
    if given.shape != (rows,) or (rows and given.dtype.kind not in "iub"):
        raise SchemaError(
            f"the function given to {where} must give a whole number for each multiplicity",
            detail=f"it gave {given.shape} of type {given.dtype} for {rows} rows",
        )
    return given.astype(np.int64)


def _values(updates: Updates) -> list[pa.Array]:
    """The value columns."""
    split = updates.schema.key.payload_columns
    return updates.schema.val.decode(updates.val, updates.payload[split:])
