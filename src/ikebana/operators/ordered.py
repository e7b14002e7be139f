"""Reading only the ends of groups, which is all that min, max and top_k need of a large group.

A batch has the rows of a key in order of value, where the value's lane keeps the order of its columns. So the least (or
greatest) few values of a key are at the start (or end) of its rows in each batch. `read_ends` reads a few rows of each
key from each batch. Values below the largest value read from every truncated batch are complete; if these are enough
values at every time in question, the remaining rows of the group need not be read. Otherwise, for example because the
least values were deleted, more rows of these keys are read, four times as many each time.

Cost: a few rows of each key and batch, however large the group; a group whose ends cancel is read further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ikebana.encoding import Schema
from ikebana.encoding.lanes import Array, Lane
from ikebana.trace import Batch, Updates
from ikebana.trace.batch import rows_of
from ikebana.trace.updates import Sorted, sort_updates

_FIRST_READ = 16
"""Rows of each key and batch that are read first, for each value that is asked for."""

_GROWTH = 4

Enough = Callable[[Lane, Sorted], Array]
"""Given keys and the rows read of them, flags for the keys of which enough is known."""


def read_ends(
    batches: Sequence[Batch],
    keys: Lane,
    schema: Schema,
    dimensions: int,
    *,
    values: int,
    greatest: bool,
    choose: Callable[[Lane], Array],
    enough: Enough,
) -> Sorted:
    """The least or greatest values of each key (distinct, ascending), until `enough` values are known."""
    parts: list[Updates] = []
    most = _FIRST_READ * values
    while len(keys):
        known, complete = _read(batches, keys, schema, dimensions, most, greatest, choose)
        if complete.all() and not parts:
            return known
        done = complete | enough(keys, known)
        finished = keys[done]
        rows = known.updates
        at = np.minimum(np.searchsorted(finished, rows.key), max(0, len(finished) - 1))
        parts.append(rows.where(finished[at] == rows.key) if len(finished) else rows.take(np.empty(0, np.int64)))
        keys = keys[~done]
        most *= _GROWTH
    return sort_updates(Updates.concat(parts) if parts else Updates.empty(schema, dimensions))


def _read(
    batches: Sequence[Batch],
    keys: Lane,
    schema: Schema,
    dimensions: int,
    most: int,
    greatest: bool,
    choose: Callable[[Lane], Array],
) -> tuple[Sorted, Array]:
    """At most `most` rows of each key from each batch, as far as they are complete, and flags for the keys that are
    complete altogether."""
    parts = [Updates.empty(schema, dimensions)]
    complete = np.ones(len(keys), bool)
    bound = np.full(len(keys), np.iinfo(np.int64).min if greatest else np.iinfo(np.int64).max)
    for batch in batches:
        starts, ends = batch.seek(keys)
        cut = ends - starts > most
        starts, ends = (
            np.where(cut & greatest, ends - most, starts),
            np.where(cut & (not greatest), starts + most, ends),
        )
        rows = batch.gather(rows_of(starts, ends))
        rows = rows.at_times(choose(rows.times))
        if cut.any():
            _tighten(bound, cut, keys, rows, greatest)
            complete &= ~cut
        parts.append(rows)
    known = Updates.concat(parts)
    if complete.all():
        return sort_updates(known), complete
    limit = bound[np.searchsorted(keys, known.key)] if len(known) else known.val
    inside = known.val > limit if greatest else known.val < limit
    is_complete = complete[np.searchsorted(keys, known.key)] if len(known) else inside
    return sort_updates(known.where(inside | is_complete)), complete


def _tighten(bound: Lane, cut: Array, keys: Lane, rows: Updates, greatest: bool) -> None:
    """Lower the bound of keys that were read only in part: values are complete only up to the last one read."""
    shown = np.full(len(keys), np.iinfo(np.int64).max if greatest else np.iinfo(np.int64).min)
    at = np.searchsorted(keys, rows.key)
    (np.minimum if greatest else np.maximum).at(shown, at, rows.val)
    tighter = np.maximum(bound, shown) if greatest else np.minimum(bound, shown)
    bound[cut] = tighter[cut]
