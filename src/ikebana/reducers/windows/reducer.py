"""Window functions as a reducer: every row of each partition, with one more column for each function.

Rows with equal sort keys are ordered by their other columns, so that the result is a function of the rows alone. A row
of multiplicity two is two rows, which may have different places.

Cost: a change reads its partition twice, before and after the change, in a few passes over arrays for each function.
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
class WindowReducer(Reducer):
    """Window functions over the rows of each partition (the group), in one order."""

    label = "window functions"
    is_called = True

    order: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]

    def fields(self, schema: Schema) -> Fields:
        known = {field.name: field for field in (*schema.key.fields, *schema.val.fields)}
        return (*schema.val.fields, *(call.field(known) for call in self.calls))

    def apply(self, groups: Groups) -> ReducedRows:
        present = np.flatnonzero(groups.sums[0] > 0)
        rows = groups.values.take(present)
        window = Window(rows.columns(), groups.group[present], groups.sums[0][present], self.order)
        values = [window.columns[field.name] for field in rows.schema.val.fields]
        results = [call.evaluate(window) for call in self.calls]
        return ReducedRows(present[window.rows], [*values, *results], np.ones(len(window), np.int64))
