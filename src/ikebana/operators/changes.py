"""Changes: the updates of a stream, as columns without an index.

Changes flow between operators: typed columns by name, with times and diffs. They are not sorted, and the same update
may occur several times; `consolidated` adds such updates up. `keyed` turns the columns into the lanes of an index,
`of_updates` turns lanes back into columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding.arrow import take_rows
from ikebana.encoding.columns import empty_array, match_columns
from ikebana.encoding.lanes import Array, Lane, constant_diffs, gather_lane
from ikebana.errors import SchemaError
from ikebana.time import Time
from ikebana.trace import Updates
from ikebana.trace.timed_rows import TimedRows
from ikebana.trace.updates import consolidate, encode_diffs, encode_times

Fields = tuple[pa.Field, ...]

_NEARLY_ALL = 0.9
"""From this fraction of the rows on, filtering is faster than taking rows one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class Changes(TimedRows):
    """Updates of a stream.

    >>> fields = (pa.field("x", pa.int64(), nullable=False),)
    >>> Changes.of(fields, {"x": [7, 8]}, times=(0,)).triples()
    [((7,), (0,), 1), ((8,), (0,), 1)]
    """

    fields: Fields
    columns: tuple[pa.Array, ...]

    @staticmethod
    def of(fields: Fields, data: Any, times: Any, diffs: Any = 1) -> Changes:
        """Changes from columns, with the checks of `Updates.of`."""
        columns = match_columns(data, fields)
        rows = len(columns[0])
        return Changes(*encode_times(times, rows), encode_diffs(("diff",), diffs, rows), fields, tuple(columns))

    @staticmethod
    def of_updates(updates: Updates) -> Changes:
        """The columns of indexed updates: key columns, then value columns."""
        schema = updates.schema
        columns = schema.decode(updates.key, updates.val, updates.payload)
        fields = (*schema.key.fields, *schema.val.fields)
        return Changes(updates.times, updates.tix, updates.diffs, fields, tuple(columns))

    @staticmethod
    def empty(fields: Fields, dimensions: int, lanes: int = 1) -> Changes:
        """No changes."""
        columns = tuple(empty_array(field.type) for field in fields)
        times, tix = np.empty((0, dimensions), np.int64), np.empty(0, np.int32)
        return Changes(times, tix, np.empty((lanes, 0), np.int64), fields, columns)

    @property
    def named(self) -> dict[str, pa.Array]:
        """The columns by name."""
        return {field.name: column for field, column in zip(self.fields, self.columns, strict=True)}

    def keyed(self, schema: Schema) -> Updates:
        """The same updates with the lanes of `schema`, which names some or all of the columns."""
        named = self.named
        arrays = [named[field.name] for field in (*schema.key.fields, *schema.val.fields)]
        key, val, payload = schema.lanes(arrays, len(self))
        return Updates(self.times, self.tix, self.diffs, schema, key, val, payload)

    def consolidated(self) -> Changes:
        """The updates with equal ones added up and those that cancel left out, in unspecified order."""
        lanes = [f"diff {lane}" for lane in range(len(self.diffs))]
        schema = Schema(self.fields[:1], self.fields[1:], diffs=lanes)  # two lanes hold more columns exactly than one
        return Changes.of_updates(consolidate(self.keyed(schema)).updates)

    def with_columns(self, fields: Fields, columns: Sequence[pa.Array]) -> Changes:
        """The same times and diffs with other columns."""
        return Changes(self.times, self.tix, self.diffs, fields, tuple(columns))

    def select(self, fields: Fields) -> Changes:
        """The same times and diffs with some of the columns."""
        named = self.named
        return self.with_columns(fields, [named[field.name] for field in fields])

    def scaled(self, factors: Lane) -> Changes:
        """Every diff multiplied by factors, one row of them per new diff lane; these changes have one lane."""
        return replace(self, diffs=self.diffs * factors)

    def where(self, flags: Array) -> Changes:
        """Return the flagged rows. If these are nearly all rows, Arrow copies them in runs."""
        rows = np.flatnonzero(flags)
        if len(rows) == len(self):
            return self
        if len(rows) < _NEARLY_ALL * len(self):
            return self.take(rows)
        mask = pa.array(flags)
        columns = tuple(column.filter(mask) for column in self.columns)
        return self._with(tix=gather_lane(self.tix, rows), diffs=gather_lane(self.diffs, rows), columns=columns)

    def negated(self) -> Changes:
        """Every diff with its sign changed."""
        if self.diffs.strides[-1] == 0:
            return replace(self, diffs=constant_diffs(-self.diffs[:, 0], len(self)) if len(self) else self.diffs)
        return replace(self, diffs=-self.diffs)

    def triples(self) -> list[tuple[tuple[Any, ...], Time, Any]]:
        """The updates as Python values, for people and tests."""
        return self.keyed(Schema((), self.fields)).triples()

    def _taken(self, rows: Array) -> dict[str, Any]:
        positions = pa.array(rows)
        return {"columns": tuple(take_rows(column, positions) for column in self.columns)}

    def _sliced(self, start: int, end: int) -> dict[str, Any]:
        return {"columns": tuple(column.slice(start, end - start) for column in self.columns)}

    @classmethod
    def _joined(cls, parts: Sequence[Changes]) -> dict[str, Any]:
        columns = zip(*(part.columns for part in parts), strict=True)
        return {"columns": tuple(pa.concat_arrays(pieces) for pieces in columns)}


def checked_columns(columns: Mapping[str, Any], fields: Fields, rows: int, where: str) -> list[pa.Array]:
    """The columns that a user's function computed, checked against the declared fields."""
    arrays = match_columns(columns, fields)
    if any(len(array) != rows for array in arrays):
        raise SchemaError(
            f"the function given to {where} changed the number of rows",
            detail=f"it was given {rows} rows and returned {len(arrays[0])}",
            hint="return one value for each row; use filter or flat_map to change the number of rows",
        )
    return arrays
