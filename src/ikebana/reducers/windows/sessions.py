"""Session windows: intervals that overlap or touch are merged, within each partition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import from_numpy
from ikebana.encoding.columns import integers
from ikebana.reducers.gathering import Known
from ikebana.reducers.windows.functions import WindowCall
from ikebana.reducers.windows.partitions import Window


@dataclass(frozen=True)
class SessionWindow(WindowCall):
    """The session of each row: from the first start to the last end of the intervals that it consists of.

    `column` has structs of a start and an end, none of them null, and rows are sorted by it.
    """

    column: str

    def field(self, known: Known) -> pa.Field:
        return known[self.column].with_name(self.name)

    def evaluate(self, window: Window) -> pa.Array:
        intervals = window.columns[self.column]
        fields = list(intervals.type)
        start, end = (integers(part) for part in intervals.flatten())
        is_first = window.positions == window.partitions[0]
        places = np.empty(len(end), np.int64)
        order = np.argsort(end, kind="stable")
        places[order] = np.arange(len(end))
        partition = np.cumsum(is_first) - 1
        latest = end[order[np.maximum.accumulate(partition * len(end) + places) - partition * len(end)]]
        begins = is_first.copy()
        begins[1:] |= start[1:] > latest[:-1]
        session = np.cumsum(begins) - 1
        firsts = np.flatnonzero(begins)
        ends = np.maximum.reduceat(end, firsts) if len(firsts) else end
        merged = [start[firsts][session], ends[session]]
        columns = [from_numpy(field.type, part) for field, part in zip(fields, merged, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=fields)
