"""Changes of a view by epoch: tables of rows with diffs, split and joined as subscriptions need them.

Workers send rows of several epochs in one table, with the epoch of each row beside it. These functions divide such
tables; whole columns at a time, and without a copy if all rows have one epoch.

Cost: a sort of the epochs of a table, if there are several. The order of rows within an epoch is not defined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.trace import Updates
from ikebana.trace.updates import consolidate

Part: TypeAlias = tuple[Any, pa.Table]
"""Rows, and the epoch of all of them, or an array with the epoch of each."""


def consolidated(tables: Sequence[pa.Table], schema: Schema) -> pa.Table:
    """The changes of several epochs as one table: diffs of equal rows added up, rows with diff zero left out."""
    if not tables:
        return Updates.empty(schema, 1).to_table()
    table = pa.concat_tables(tables)
    diffs = {name: table[name].to_numpy() for name in schema.diffs}
    return consolidate(Updates.of(schema, table.select(schema.names), (0,), diffs)).updates.to_table()


def by_epoch(parts: Sequence[Part]) -> Iterator[tuple[int, pa.Table]]:
    """Pairs (epoch, rows), in order of epochs."""
    if len(parts) == 1 and isinstance(parts[0][0], int):  # the usual case after a small change
        yield parts[0]
        return
    pieces: dict[int, list[pa.Table]] = {}
    for epochs, table in parts:
        for epoch, piece in _split_by_epoch(epochs, table):
            pieces.setdefault(epoch, []).append(piece)
    for epoch in sorted(pieces):
        yield epoch, pa.concat_tables(pieces[epoch])


def split_parts(parts: Sequence[Part], upper: int) -> tuple[list[Part], list[Part]]:
    """The rows at epochs before `upper`, and the others."""
    before, after = list[Part](), list[Part]()
    for epochs, table in parts:
        if isinstance(epochs, int):
            (before if epochs < upper else after).append((epochs, table))
        elif epochs.max() < upper:
            before.append((epochs, table))
        else:
            is_before = epochs < upper
            before.append((epochs[is_before], table.filter(pa.array(is_before))))
            after.append((epochs[~is_before], table.filter(pa.array(~is_before))))
    return before, after


def parts_before(parts: Sequence[Part], upper: int) -> list[Part]:
    """The rows at epochs before `upper`, with the epoch of each row."""
    return [part for part in split_parts(parts, upper)[0] if part[1].num_rows]


def _split_by_epoch(epochs: Any, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of a table, grouped by epoch."""
    if isinstance(epochs, int):
        yield epochs, table
        return
    if not len(epochs):
        return
    if (epochs == epochs[0]).all():
        yield int(epochs[0]), table
        return
    order = np.argsort(epochs, kind="stable")
    ordered, table = epochs[order], table.take(pa.array(order))
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    for start, end in zip(starts, [*starts[1:], len(ordered)], strict=True):
        yield int(ordered[start]), table.slice(start, end - start)
