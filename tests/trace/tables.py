"""Updates as small text tables, so that a test's case is seen at a glance.

k  v  time  diff
1  a  0     1
2  b  0,1   -1
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ikebana.operators import Arrange
from tests.trace import compare


def _cell(text: str) -> Any:
    if text == "null":
        return None
    return int(text) if text.lstrip("-").isdigit() else text


def feed(arrange: Arrange, text: str) -> list[compare.Update]:
    """Give the table's updates to an arrangement; returns them as the model has them."""
    header, *lines = [line.split() for line in text.strip().splitlines()]
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    names = [name for name in header if name not in ("time", "diff")]
    columns = {name: [_cell(row[name]) for row in rows] for name in names}
    times = [tuple(map(int, row["time"].split(","))) for row in rows]
    diffs = [int(row["diff"]) for row in rows]
    arrange.update(columns, times, diffs)
    split = len(arrange.schema.key.fields)
    data = [tuple(columns[name][i] for name in names) for i in range(len(rows))]
    return [((d[:split], d[split:]), t, (n,)) for d, t, n in zip(data, times, diffs, strict=True)]


def shown(updates: Iterable[compare.Update]) -> str:
    """Updates as a table again, without its header, in order of time."""
    lines = sorted((time, key + val, diff) for (key, val), time, diff in updates)
    return "\n".join(
        " ".join([*map(str, data), ",".join(map(str, time)), *map(str, diff)]) for time, data, diff in lines
    )
