"""Estimates of the size of arrangements that do not exist yet, for `explain`.

Only the number of rows of each source is known. The estimate assumes that a filter keeps all rows, that a join has as
many rows as its larger side (as joins by key do), a reduction as many as its input, and a loop as many as its initial
collection. So an estimate may be too low or too high; for linear steps without a filter it is close.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyarrow import types

from ikebana.encoding import Schema
from ikebana.plan import ir

_LANE_BYTES = 8
_VARIABLE_BYTES = 24
"""Average bytes of a string, a list or a struct."""


def estimated_bytes(node: ir.Node, rows: Mapping[str, int]) -> int:
    """The bytes of an arrangement, given the number of rows of each source."""
    return estimated_rows(node, rows) * _row_bytes(ir.schema_of(node))


def estimated_rows(node: ir.Node, rows: Mapping[str, int]) -> int:
    """The approximate number of rows of a node, given the number of rows of each source."""
    known: dict[str, int] = {}

    def count(current: ir.Node) -> int:
        if current.digest not in known:
            known[current.digest] = 0  # a variable of a loop is met again inside the loop's body
            known[current.digest] = estimate(current)
        return known[current.digest]

    def estimate(current: ir.Node) -> int:
        match current:
            case ir.Source():
                return rows.get(current.name, 0)
            case ir.Constant():
                return current.rows
            case ir.Union():
                return sum(count(source) for source in current.sources)
            case _:
                return max((count(source) for source in current.inputs), default=0)

    return count(node)


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
