"""Reading only the ends of groups: what min, max and top_k need of a huge group.

A batch has the rows of a key in order of value, where the value's lane keeps the order of its columns. So
the least (or greatest) few values of a key are found at the start (or end) of its rows in each batch.
`read_ends` reads a few rows of each key from each batch. What lies below the largest value that a truncated
batch has shown is complete; if that is enough values for every time asked about, the rest of the group need
not be read. If it is not, for example because the least values were removed, more is read of those keys,
four times as much each time.

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
_GROWTH = 4

Enough = Callable[[Lane, Sorted], Array]
"""Given keys and what was read of them: flags the keys of which enough is known."""


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
    """Of each key (distinct, ascending) its least or greatest values, until `enough` of them are known."""
    found: list[Updates] = []
    most = _FIRST_READ * values
    while len(keys):
        known, complete = _read(batches, keys, schema, dimensions, most, greatest, choose)
        if complete.all() and not found:
            return known
        done = complete | enough(keys, known)
        finished = keys[done]
        rows = known.updates
        at = np.minimum(np.searchsorted(finished, rows.key), max(0, len(finished) - 1))
        found.append(rows.where(finished[at] == rows.key) if len(finished) else rows.take(np.empty(0, np.int64)))
        keys = keys[~done]
        most *= _GROWTH
    return sort_updates(Updates.concat(found) if found else Updates.empty(schema, dimensions))


def _read(
    batches: Sequence[Batch],
    keys: Lane,
    schema: Schema,
    dimensions: int,
    most: int,
    greatest: bool,
    choose: Callable[[Lane], Array],
) -> tuple[Sorted, Array]:
    """At most so many rows of each key from each batch, as far as they are complete; and which keys are, altogether."""
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
    whole = complete[np.searchsorted(keys, known.key)] if len(known) else inside
    return sort_updates(known.where(inside | whole)), complete


def _tighten(bound: Lane, cut: Array, keys: Lane, rows: Updates, greatest: bool) -> None:
    """Of keys that a batch was read only in part: values are complete only up to the last that was shown."""
    shown = np.full(len(keys), np.iinfo(np.int64).max if greatest else np.iinfo(np.int64).min)
    at = np.searchsorted(keys, rows.key)
    (np.minimum if greatest else np.maximum).at(shown, at, rows.val)
    tighter = np.maximum(bound, shown) if greatest else np.minimum(bound, shown)
    bound[cut] = tighter[cut]
