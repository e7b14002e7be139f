"""Any aggregate over the frames of a window: each distinct frame is a group, whose rows are gathered.

Cost: the sum of the sizes of all distinct frames. There is one for each partition if a frame is the whole partition,
but one for each row (or set of peers) of a running window, which then takes time in proportion to the square of its
partition. Counts, sums, means, extremes and first values are computed faster (`ikebana.reducers.windows.functions`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import from_numpy
from ikebana.encoding.lanes import Array, Lane
from ikebana.reducers.gathering import ColumnCall, GatherCall, GroupedRows, Known
from ikebana.reducers.sort_keys import SortKey
from ikebana.reducers.sums.aggregates import Aggregate
from ikebana.reducers.sums.floats import BINS
from ikebana.reducers.sums.parts import PartSums, binned, exact_sums, wholes
from ikebana.reducers.windows.functions import WindowCall
from ikebana.reducers.windows.partitions import RUNNING, Frame, Window


@dataclass(frozen=True)
class Gathered(WindowCall):
    """An aggregate of the rows of the frame, which it is given in the order of the window."""

    call: GatherCall
    frame: Frame = RUNNING

    def field(self, known: Known) -> pa.Field:
        return self.call.field(known).with_name(self.name)

    def evaluate(self, window: Window) -> pa.Array:
        lower, upper = window.frame(self.frame)
        frames, frame_of = np.unique(np.stack([lower, upper]), axis=1, return_inverse=True)
        sizes = frames[1] - frames[0]
        group = np.repeat(np.arange(len(sizes)), sizes)
        positions = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes - frames[0], sizes)
        taken = pa.array(positions)
        columns = {name: window.columns[name].take(taken) for name in self.call.columns}
        rows = GroupedRows(columns, group, np.ones(len(group), np.int64), len(sizes))
        return self.call.evaluate(rows).take(pa.array(frame_of.reshape(-1)))


@dataclass(frozen=True)
class SumsCall(GatherCall):
    """An aggregate that is computed from sums."""

    aggregate: Aggregate

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.aggregate.parts for name in part.columns))

    def field(self, known: Known) -> pa.Field:
        return pa.field(self.name, self.aggregate.type, nullable=True)

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        parts = self.aggregate.parts
        ends = np.searchsorted(rows.group, np.arange(rows.groups + 1))

        def added(lanes: list[Lane]) -> Lane:
            return _sums_between(np.stack([lane * rows.counts for lane in lanes]), ends)

        lanes = {part: added(part.split(rows.columns)) for part in wholes(parts)}
        group, slots, sums = self._bins(rows)
        exact = exact_sums(binned(parts), group, slots, sums, rows.groups)
        return self.aggregate.finish(PartSums(np.diff(ends), lanes, exact))

    def _bins(self, rows: GroupedRows) -> tuple[Lane, Lane, Lane]:
        """The group and the slot of each bin, and the sums of its lanes."""
        parts = binned(self.aggregate.parts)
        width = max((part.width for part in parts), default=0)
        keys, lanes = [np.empty(0, np.int64)], [np.empty((width, 0), np.int64)]
        for place, part in enumerate(parts):
            index, bins, numbers = part.split(rows.columns)
            padding = np.zeros((width - part.width, len(index)), np.int64)
            keys.append((rows.group[index] * len(parts) + place) * BINS + bins)
            lanes.append(np.concatenate([np.stack(numbers) * rows.counts[index], padding]))
        key, values = np.concatenate(keys), np.concatenate(lanes, axis=1)
        order = np.argsort(key, kind="stable")
        distinct, starts = np.unique(key[order], return_index=True)
        group, slots = np.divmod(distinct, max(len(parts), 1) * BINS)
        return group, slots, _sums_between(values[:, order], np.append(starts, len(key)))


def _sums_between(lanes: Array, ends: Lane) -> Array:
    """The sums of lanes between positions, modulo 2**64."""
    running = np.zeros((len(lanes), lanes.shape[1] + 1), np.int64)
    np.cumsum(lanes, axis=1, out=running[:, 1:])
    return running[:, ends[1:]] - running[:, ends[:-1]]


@dataclass(frozen=True)
class CountDistinct(ColumnCall):
    """The number of distinct values that are not null."""

    def field(self, known: Known) -> pa.Field:
        return pa.field(self.name, pa.int64(), nullable=False)

    def evaluate(self, rows: GroupedRows) -> pa.Array:
        in_order = rows.sort(SortKey(self.column))
        return from_numpy(pa.int64(), np.bincount(in_order.group[in_order.firsts], minlength=rows.groups))
