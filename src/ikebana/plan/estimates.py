"""Estimates of the size of arrangements that do not exist yet, for `explain`.

Known are the number of rows of each source, and, for columns by which a source is indexed already, how many different
values they have (`Known`). From these follows how many groups a reduction has; where it does not, a bound follows: no
more groups than rows, and no more rows than before a filter. A bound is shown as "at most".

Other estimates are guesses, shown as "about": that a join has as many rows as its larger side (as joins by key do), and
a loop as many as its initial collection. So they may be too low or too high.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyarrow import types

from ikebana.encoding import Schema
from ikebana.plan import ir

_LANE_BYTES = 8
_VARIABLE_BYTES = 24
"""Average bytes of a string, a list or a struct."""


Columns = tuple[str, frozenset[str]]
"""A source, and some of its columns."""


class Estimate(NamedTuple):
    """A number of rows or bytes; an upper bound if `is_bound`."""

    size: int
    is_bound: bool = False

    @property
    def prefix(self) -> str:
        """What to write before the number."""
        return "at most " if self.is_bound else "about "


class IndexedColumns(NamedTuple):
    """Columns of a source, as they are there; `is_filtered` if some rows of the source may be left out."""

    source: str
    columns: frozenset[str]
    is_filtered: bool


@dataclass(frozen=True)
class Known:
    """What is known about sources: their rows, and the number of different values of some sets of columns."""

    rows: Mapping[str, int]
    groups: Mapping[Columns, int] = field(default_factory=dict)

    def groups_of(self, indexed: IndexedColumns) -> Estimate | None:
        """How many different values columns of a source have; None if nothing is known."""
        exact = self.groups.get((indexed.source, indexed.columns))
        if exact is not None:
            return Estimate(exact, indexed.is_filtered)
        finer = [
            count
            for (source, columns), count in self.groups.items()
            if source == indexed.source and columns >= indexed.columns
        ]
        return Estimate(min(finer), is_bound=True) if finer else None


def estimated_bytes(node: ir.Node, known: Known) -> Estimate:
    """The bytes of an arrangement."""
    rows = estimated_rows(node, known)
    return Estimate(rows.size * _row_bytes(ir.schema_of(node)), rows.is_bound)


def estimated_rows(node: ir.Node, known: Known) -> Estimate:
    """The number of rows of a node."""
    done: dict[str, Estimate] = {}

    def rows(current: ir.Node) -> Estimate:
        if current.digest not in done:
            done[current.digest] = Estimate(0)  # a variable of a loop is met again inside the loop's body
            done[current.digest] = estimate(current)
        return done[current.digest]

    def estimate(current: ir.Node) -> Estimate:
        match current:
            case ir.Source():
                return Estimate(known.rows.get(current.name, 0))
            case ir.Constant():
                return Estimate(current.rows)
            case ir.Union():
                parts = [rows(source) for source in current.sources]
                return Estimate(sum(part.size for part in parts), any(part.is_bound for part in parts))
            case ir.Steps():
                given = rows(current.source)
                return Estimate(given.size, given.is_bound or any(step.is_selective for step in current.steps))
            case ir.Arrange() if not current.schema.val.fields:
                return _groups(current, rows(current.source), known)
            case ir.Reduce():
                groups = _groups(current.source, rows(current.source), known)
                is_grouped = current.reducer.has_one_row or not ir.schema_of(current.source).val.fields
                return groups if is_grouped else Estimate(rows(current.source).size, is_bound=True)
            case ir.Arrange() | ir.ArrangementView() | ir.AsStream() | ir.AfterStart():
                return rows(current.source)
            case _:
                return Estimate(max((rows(source).size for source in current.inputs), default=0))

    return rows(node)


def _groups(arrangement: ir.Node, rows: Estimate, known: Known) -> Estimate:
    """How many keys an arrangement of some rows has."""
    key = [field.name for field in ir.schema_of(arrangement).key.fields]
    if not key:
        return Estimate(1, rows.is_bound)
    indexed = indexed_columns(arrangement, key)
    groups = None if indexed is None else known.groups_of(indexed)
    if groups is None or groups.size > rows.size:
        return Estimate(rows.size, is_bound=True)
    return Estimate(groups.size, groups.is_bound or rows.is_bound)


def indexed_columns(node: ir.Node, columns: Collection[str]) -> IndexedColumns | None:
    """The columns of a source that columns of a node are; None if they are computed, or come from several sources."""
    names, is_filtered = set(columns), False
    while not isinstance(node, ir.Source):
        match node:
            case ir.Steps():
                for step in reversed(node.steps):
                    origins = {step.origin(name) for name in names}
                    if None in origins:
                        return None
                    names = {name for name in origins if name is not None}
                    is_filtered = is_filtered or step.is_selective
            case ir.ArrangementView():
                is_filtered = True
            case ir.Arrange() | ir.AsStream() | ir.AfterStart():
                pass
            case _:
                return None
        node = node.source
    if not names <= {field.name for field in node.fields}:
        return None
    return IndexedColumns(node.name, frozenset(names), is_filtered)


def _row_bytes(schema: Schema) -> int:
    """The bytes of a row: two lanes, the diff lanes if there are several, and the columns that no lane holds."""
    sides = (schema.key, schema.val)
    carried = sum(_width(field.type) for side in sides if not side.exact for field in side.fields)
    diffs = len(schema.diffs) if len(schema.diffs) > 1 else 0
    return _LANE_BYTES * (sum(bool(side.fields) for side in sides) + diffs) + carried


def _width(kind: pa.DataType) -> int:
    if types.is_boolean(kind):
        return 1
    return _VARIABLE_BYTES if types.is_nested(kind) or not types.is_primitive(kind) else int(kind.bit_width) // 8


def format_bytes(size: int) -> str:
    """A number of bytes in a readable unit.

    >>> format_bytes(950), format_bytes(12_300), format_bytes(1_234_567_890)
    ('950 B', '12 kB', '1.2 GB')
    """
    shown = float(size)
    for unit in ("B", "kB", "MB"):
        if shown < 1000:
            return f"{shown:.2g} {unit}" if unit != "B" and shown < 10 else f"{shown:.0f} {unit}"
        shown /= 1000
    return f"{shown:.1f} GB"
