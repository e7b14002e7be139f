"""Maintaining aggregates that are computed from sums: one row for each group, whatever the size of the group.

`aggregate` chooses between two plans. Without floats, all parts are in the diffs of one arrangement by group, and a
change costs one addition in each lane. Floats need a sum for each of their bins (`ikebana.reducers.sums.floats`): then
there is an arrangement by group and *slot*, where slot 0 has all other parts and each bin has its own slot, and a
second reduction by group reads the few slots of a changed group.

Contract: one row for each group that has rows, with the columns of the group first. Without group columns there is no
row while there are no rows at all; SQL's single row for that case is added by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding.lanes import Lane, constant
from ikebana.engine.collection import Collection
from ikebana.engine.columns import unused_name
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.linear import Columns, Select, Step
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.reducers import Groups, LinearAggregate, ReducedRows, Reducer, Sums, SumsReducer
from ikebana.operators.registers import ColumnSlots, Rows
from ikebana.reducers.ordering import reduced
from ikebana.reducers.sums.aggregates import Aggregate
from ikebana.reducers.sums.floats import BINS
from ikebana.reducers.sums.parts import AnyPart, BinnedPart, PartSums, SumPart, SumSlots, binned, exact_sums, wholes

Calls = tuple[tuple[str, Aggregate], ...]
"""Aggregates with the names of their columns."""


def aggregate(collection: Collection, by: Sequence[str], calls: Calls) -> Collection:
    """One row of aggregates for each group, defined by the columns `by`."""
    key, parts = tuple(by), _parts(calls)
    if not binned(parts):
        return reduced(collection.explode(key, RowLanes(wholes(parts))), key, Aggregation(calls))
    spread = Spread(key, unused_name("slot", key), wholes(parts), binned(parts))
    lanes = tuple(
        pa.field(unused_name(f"lane {lane}", key), pa.int64(), nullable=False) for lane in range(spread.lanes)
    )
    slots = reduced(
        collection.step(spread, spread.lanes),
        (*key, spread.slot),
        LinearAggregate(lanes, Sums(tuple(range(len(lanes))))),
    )
    return reduced(slots, key, SlottedAggregation(calls, spread.slot, tuple(lane.name for lane in lanes)))


def _fields(calls: Calls) -> Fields:
    return tuple(pa.field(name, call.type, call.nullable) for name, call in calls)


def _parts(calls: Calls) -> tuple[AnyPart, ...]:
    return tuple(part for _, call in calls for part in call.parts)


@dataclass(frozen=True)
class RowLanes:
    """For `Explode`: the lanes of a row. The first lane counts the row."""

    parts: tuple[SumPart, ...]

    def __call__(self, columns: Columns) -> list[Lane | int]:
        return [1, *(lane for part in self.parts for lane in part.split(columns))]

    def lower(self, program: ProgramBuilder, rows: Rows) -> list[int] | None:
        parts = [part.lower(program, rows) for part in self.parts]
        return None if None in parts else [slot for slots in parts for slot in slots or ()]


@dataclass(frozen=True)
class Aggregation(SumsReducer):
    """The aggregates of groups whose parts are all in the lanes of `RowLanes`."""

    label = "sums"
    has_one_row = True

    calls: Calls

    def fields(self, schema: Schema) -> Fields:
        return _fields(self.calls)

    def apply(self, groups: Groups) -> ReducedRows:
        return self.of_sums(groups.sums)

    def of_sums(self, sums: Lane) -> ReducedRows:
        rows = np.flatnonzero(sums[0])
        totals = PartSums.of_lanes(wholes(_parts(self.calls)), sums[:, rows], {})
        return ReducedRows(rows, [call.finish(totals) for _, call in self.calls], np.ones(len(rows), np.int64))

    def lower(self, program: ProgramBuilder, count: int, sums: Sequence[int]) -> list[ColumnSlots] | None:
        slots, at = dict[SumPart, Sequence[int]](), 1
        for part in wholes(_parts(self.calls)):
            slots[part] = sums[at : at + part.width]
            at += part.width
        lowered = SumSlots(program, count, sums[0], slots)
        columns = [call.lower(lowered) for _, call in self.calls]
        written = [column for column in columns if column is not None]
        return written if len(written) == len(columns) else self._called(program, count, sums)

    def _called(self, program: ProgramBuilder, count: int, sums: Sequence[int]) -> list[ColumnSlots]:
        """The columns, computed by a call."""
        lanes = tuple(pa.field(f"lane {at}", pa.int64(), nullable=False) for at in range(len(sums)))
        slots = {lane.name: ColumnSlots(slot, 0) for lane, slot in zip(lanes, sums, strict=True)}
        outputs = _fields(self.calls)

        def finished(changes: Changes) -> Changes:
            result = self.of_sums(np.stack([column.to_numpy() for column in changes.columns]))
            return changes.with_columns(outputs, result.columns)

        columns = program.called(Rows(count, lanes, slots, (sums[0],)), outputs, finished).columns
        return [columns[field.name] for field in outputs]


# With floats.


@dataclass(frozen=True)
class Spread(Step):
    """A linear step: the lanes of all parts but floats in slot 0, and those of each float in the slot of its bin."""

    keep: tuple[str, ...]
    slot: str
    wholes: tuple[SumPart, ...]
    binned: tuple[BinnedPart, ...]

    @property
    def lanes(self) -> int:
        """The number of diff lanes."""
        return 1 + max(sum(part.width for part in self.wholes), *(part.width for part in self.binned))

    def lanes_of(self, given: int) -> int:
        return self.lanes

    def fields(self, given: Fields) -> Fields:
        fields = Select(tuple((name, name) for name in self.keep)).fields(given)
        return (*fields, pa.field(self.slot, pa.int32(), nullable=False))

    def origin(self, name: str) -> str | None:
        return name if name in self.keep else None

    def __call__(self, changes: Changes) -> Changes:
        named, count = changes.named, len(changes)
        selected = Select(tuple((name, name) for name in self.keep))(changes)
        main = [lane for part in self.wholes for lane in part.split(named)]
        spread = [self._slotted(selected, constant(0, count), main)]
        for place, part in enumerate(self.binned):
            rows, bins, lanes = part.split(named)
            if len(rows):
                spread.append(self._slotted(selected.take(rows), 1 + place * BINS + bins, lanes))
        return Changes.concat(spread)

    def _slotted(self, rows: Changes, slots: Lane, lanes: Sequence[Lane]) -> Changes:
        column = pa.array(np.asarray(slots, np.int32))
        factors = np.zeros((self.lanes, len(rows)), np.int64)
        factors[0] = 1
        for at, lane in enumerate(lanes, start=1):
            factors[at] = lane
        return rows.with_columns(self.fields(rows.fields), (*rows.columns, column)).scaled(factors)


@dataclass(frozen=True)
class SlottedAggregation(Reducer):
    """The aggregates of groups whose rows are slots with their lanes."""

    label = "sums of floats"
    has_one_row = True
    is_called = True

    calls: Calls
    slot: str
    lanes: tuple[str, ...]

    def fields(self, schema: Schema) -> Fields:
        return _fields(self.calls)

    def apply(self, groups: Groups) -> ReducedRows:
        columns = groups.values.columns()
        slots = columns[self.slot].to_numpy()
        lanes = np.stack([columns[name].to_numpy() for name in self.lanes])
        main = np.flatnonzero(slots == 0)
        parts = _parts(self.calls)
        bins = np.flatnonzero(slots)
        group = np.searchsorted(groups.group[main], groups.group[bins])
        exact = exact_sums(binned(parts), group, slots[bins] - 1, lanes[1:, bins], len(main))
        totals = PartSums.of_lanes(wholes(parts), lanes[:, main], exact)
        return ReducedRows(main, [call.finish(totals) for _, call in self.calls], np.ones(len(main), np.int64))
