"""How large an arrangement will be that does not exist yet: for people, who want to know before they build it.

What is known is how many rows each source has. A filter is taken to leave all rows, a join to have as many as the
larger side (as joins by key do), a reduction as many as its input, a loop as many as its start. So an estimate may be
off in either direction; where there are only linear steps and no filter it is close.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyarrow import types

from ikebana.encoding import Schema
from ikebana.plan import ir

_LANE = 8
_TEXT = 24
"""Bytes of a text, a list or a struct, on average."""


def estimated_bytes(node: ir.Node, rows: Mapping[str, int]) -> int:
    """The bytes of an arrangement, given how many rows each source has."""
    return estimated_rows(node, rows) * _row_bytes(ir.schema_of(node))


def estimated_rows(node: ir.Node, rows: Mapping[str, int]) -> int:
    """About how many rows a node has."""
    known: dict[str, int] = {}

    def count(each: ir.Node) -> int:
        if each.digest not in known:
            known[each.digest] = 0  # a loop's variable is met again inside its own body
            known[each.digest] = found(each)
        return known[each.digest]

    def found(each: ir.Node) -> int:
        match each:
            case ir.Source():
                return rows.get(each.name, 0)
            case ir.Constant():
                return each.rows
            case ir.Union():
                return sum(count(source) for source in each.sources)
            case _:
                return max((count(below) for below in each.inputs), default=0)

    return count(node)


def _row_bytes(schema: Schema) -> int:
    """Two lanes, a diff for each lane of diffs that differs, and the columns that no lane holds."""
    sides = (schema.key, schema.val)
    carried = sum(_width(field.type) for side in sides if not side.exact for field in side.fields)
    diffs = len(schema.diffs) if len(schema.diffs) > 1 else 0
    return _LANE * (sum(bool(side.fields) for side in sides) + diffs) + carried


def _width(kind: pa.DataType) -> int:
    if types.is_boolean(kind):
        return 1
    return _TEXT if types.is_nested(kind) or not types.is_primitive(kind) else int(kind.bit_width) // 8


def shown_bytes(size: int) -> str:
    """A number of bytes for people.

    >>> shown_bytes(950), shown_bytes(12_300), shown_bytes(1_234_567_890)
    ('950 B', '12 kB', '1.2 GB')
    """
    shown = float(size)
    for unit in ("B", "kB", "MB"):
        if shown < 1000:
            return f"{shown:.2g} {unit}" if unit != "B" and shown < 10 else f"{shown:.0f} {unit}"
        shown /= 1000
    return f"{shown:.1f} GB"
