"""Replay: the history of an arrangement as changes, without the rows that cancel in it.

A reader that is attached to an arrangement gets its batches as they are. An update in one of them may cancel an update
in another, and functions of users must not see rows that do not exist. Updates cancel only if they have the same key.
So only the rows of keys that have a retraction are copied, and added up. All others are passed on as runs of rows,
without a copy: a history need not fit into memory (`ikebana.encoding.spill_files`).

Cost: a pass over the diffs. Rows between two rows of such keys are copied as well if there are fewer than `RUN_ROWS`,
because every run costs some tens of microseconds where it is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ikebana.encoding.lanes import Lane, are_positive
from ikebana.kernels import seek_ranges
from ikebana.operators.changes import Changes
from ikebana.trace import Updates
from ikebana.trace.batch import rows_of

RUN_ROWS = 1 << 10
"""The rows of the shortest run that is passed on without a copy."""


def replayed(history: Sequence[Updates]) -> list[Changes]:
    """The changes of a history, given in parts each of which is in order of key."""
    keys = _retracted_keys(history)
    if not len(keys):
        return [Changes.of_updates(part) for part in history]
    runs: list[Updates] = []
    touched: list[Updates] = []
    for part in history:
        starts, ends = _runs_without(part.key, keys)
        runs += [part.slice(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        touched.append(part.take(rows_of(np.append(0, ends), np.append(starts, len(part)))))
    remaining = Changes.concat([Changes.of_updates(part) for part in touched]).consolidated()
    return [*(Changes.of_updates(run) for run in runs), remaining]


def _retracted_keys(history: Sequence[Updates]) -> Lane:
    """The key lanes of all updates with a negative diff, ascending, each once."""
    lanes = [part.key[(part.diffs < 0).any(axis=0)] for part in history if not are_positive(part.diffs)]
    return np.unique(np.concatenate(lanes)) if lanes else np.empty(0, np.int64)


def _runs_without(lane: Lane, keys: Lane) -> tuple[Lane, Lane]:
    """Where the runs of at least `RUN_ROWS` rows start and end in which none of the keys occurs."""
    starts, ends = seek_ranges(lane, keys)
    is_here = starts < ends
    starts, ends = np.append(0, ends[is_here]), np.append(starts[is_here], len(lane))
    is_long = ends - starts >= RUN_ROWS
    return starts[is_long], ends[is_long]
