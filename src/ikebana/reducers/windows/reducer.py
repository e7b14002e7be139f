"""Window functions as a reduction: of each partition every row, with a column more for each function.

Rows that the sort keys leave tied are in the order of their other columns, so that the result is a function of the
rows alone. A row that counts twice is two rows, which may have different places.

Cost: a change costs its partition, twice (what it was, what it is), in a few passes over arrays for each function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ikebana.encoding import Schema
from ikebana.operators.changes import Fields
from ikebana.operators.reducers import Groups, ReducedRows, Reducer
from ikebana.reducers.sort_keys import SortKey
from ikebana.reducers.windows.functions import WindowCall
from ikebana.reducers.windows.partitions import Window


@dataclass(frozen=True)
class WindowLogic(Reducer):
    """Functions over the rows of each group, which is a partition, in one order."""

    order: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]

    def fields(self, schema: Schema) -> Fields:
        known = {field.name: field for field in (*schema.key.fields, *schema.val.fields)}
        return (*schema.val.fields, *(call.field(known) for call in self.calls))

    def apply(self, groups: Groups) -> ReducedRows:
        there = np.flatnonzero(groups.sums[0] > 0)
        values = groups.values.take(there)
        window = Window(values.columns(), groups.group[there], groups.sums[0][there], self.order)
        own = [window.columns[field.name] for field in values.schema.val.fields]
        made = [call.evaluate(window) for call in self.calls]
        return ReducedRows(there[window.rows], [*own, *made], np.ones(len(window), np.int64))
