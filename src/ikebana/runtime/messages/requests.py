"""Requests of readers, and the answers: progress, rows, keys, errors, changes and sizes.

No request changes a dataflow, so any of them can be sent again after a lost connection. Answers about rows are those of
a single worker: the reader adds the parts up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ikebana.operators.row_errors import Errors
from ikebana.time import Time


@dataclass(frozen=True, slots=True)
class Ping:
    """Answered at once, after everything that was sent before it; fails if the dataflow has failed.

    The answer (None) shows that the worker has carried out all earlier commands of the same sender: after a `Hold`, for
    example, that other clients can now read at the epoch that is held.
    """

    dataflow: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Answer (None) when the dataflow has completed the epochs before `epoch`; fails if it has failed."""

    dataflow: str
    epoch: int


@dataclass(frozen=True, slots=True)
class WaitAll:
    """Answer (None) when all dataflows have completed the epochs before `epoch`; fails if one of them has failed."""

    dataflows: tuple[str, ...]
    epoch: int


Keys: TypeAlias = Mapping[str, Sequence[Any]]
"""Key columns by name."""


@dataclass(frozen=True, slots=True)
class Read:
    """Answer with this worker's `ResultShard` of a dataflow's result at a time.

    With `wait`, answer when the result is complete at that time; otherwise fail if it is not. `hold` is the number of
    the hold that keeps the time readable, if it is not the last one. `keys` restricts the result to these keys, and
    `limit` the answer to this number of rows, any of them.
    """

    dataflow: str
    at: Time
    hold: int | None = None
    wait: bool = False
    keys: Keys | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ResultShard:
    """One worker's part of a dataflow's result: an Arrow table, and its part of the errors.

    The result is exact if the errors of all workers cancel out. If the request has a limit, `total` is the sum of the
    multiplicities of all rows, of which the table has the first ones.
    """

    rows: Any
    errors: Errors
    total: int = 0


@dataclass(frozen=True, slots=True)
class Lookup:
    """Answer with this worker's rows of some keys (`RowsOfKeys`), as soon as the result is complete at an epoch.

    The request demands that epoch. If later epochs are complete as well, the answer is the result at the last of them,
    unless `exact`.
    """

    dataflow: str
    epoch: int
    keys: Keys
    exact: bool = False


@dataclass(frozen=True, slots=True)
class RowsOfKeys:
    """One worker's rows of some keys at an epoch, as an Arrow table, and its part of all errors of the result."""

    epoch: int
    rows: Any
    errors: Errors


@dataclass(frozen=True, slots=True)
class ReadErrors:
    """Answer with this worker's part of a dataflow's errors at an epoch, as `Read` does.

    Without an epoch, answer at once, for the last complete epoch.
    """

    dataflow: str
    at: int | None = None
    hold: int | None = None


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """Answer with this worker's changes at epochs after `after` up to and including `at`, when they are complete.

    The answer is the epoch of each row, and a table with the columns of the result and the diffs; both are None if
    nothing has changed. `hold` must hold the epochs from `after` on.
    """

    dataflow: str
    after: int
    at: int
    hold: int


@dataclass(frozen=True, slots=True)
class HistorySize:
    """Answer with a `HistoryStatus`: how many changes of a dataflow's result at epochs after `after` this worker keeps.

    Changes that would cancel, if nothing held earlier epochs, count. Cost: a nanosecond for each row of the batches
    that have both earlier and later changes.
    """

    dataflow: str
    after: int


@dataclass(frozen=True, slots=True)
class HistoryStatus:
    """Changes of a dataflow's result after an epoch: their number and bytes, and the first epoch that has any."""

    rows: int
    bytes: int
    first: int | None
    upper: int  # the epochs before it are complete


@dataclass(frozen=True, slots=True)
class CountKeys:
    """Answer with the number of keys that a dataflow's arrangement has on this worker.

    Keys that were deleted count until their history is compacted. Cost: a few nanoseconds for each row.
    """

    dataflow: str


@dataclass(frozen=True, slots=True)
class Status:
    """Answer with an `ArrangementStatus` for each dataflow."""


@dataclass(frozen=True, slots=True)
class ArrangementStatus:
    """A dataflow's arrangement on one worker: its size, its readers and its progress."""

    dataflow: str
    worker: int
    key: tuple[str, ...]
    columns: tuple[str, ...]
    rows: int  # updates in its batches
    bytes: int
    inner_bytes: int  # of private arrangements inside the dataflow, which cannot be shared
    mapped_bytes: int  # how many of both are in mapped files, and not necessarily in memory
    batches: int
    readers: int  # handles, including the dataflow's own
    since: int  # the epoch up to which it is compacted
    upper: int  # epochs before it are complete
    changes: int  # updates since the dataflow was started, without those of its first sweep
    programs_run: int  # sweeps that were done by compiled programs
    visits_run: int  # sweeps that were done by visits, without the first
    names: tuple[str, ...] = ()  # of the tables and views stored in it
