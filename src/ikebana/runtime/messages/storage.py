"""Messages of durable tables: workers log a transaction before it is committed, and write batches to files.

A worker answers only after the files that the answer is about have been synced, so that the driver can rely on what it
has been told after any process dies. The cost of a message is that of its sync.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ikebana.runtime.messages.tables import Verdict


@dataclass(frozen=True, slots=True)
class OpenStorage:
    """Open this worker's shard of a storage directory. Answered (None) when it is open."""

    place: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Load the rows that the storage directory has for some tables, which are empty. Answer with `Restored`.

    Rows get into the tables before the current epoch. Changes in the log after that epoch keep their epochs; after
    `KeepHistory`, so do changes after that of the command. `added` has, by table, a row with the values of columns that
    were added to it: rows that were stored before lack them.
    """

    tables: tuple[str, ...]
    added: Mapping[str, Any] = field(default_factory=dict)  # record batches


@dataclass(frozen=True, slots=True)
class Restored:
    """What a worker has loaded: how many rows from batches and from the log, and how many seconds each took.

    `since` says from which epoch on the history of each table is exact, as far as it was stored.
    """

    batch_rows: int
    batch_seconds: float
    log_rows: int
    log_seconds: float
    since: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class KeepHistory:
    """Let all dataflows keep their results readable from an epoch on, until further notice: None for no longer.

    Dataflows that are installed meanwhile start at that epoch, if what they import was stored or installed after this
    command. So their results have a history, although they are computed later.
    """

    epoch: int | None


@dataclass(frozen=True, slots=True)
class ToPrepare:
    """A transaction that is to be checked, and logged if it can be committed.

    `transaction` and `parts` are those of `Check`. `number` identifies this attempt in the log, for ever. The changes
    are to be committed at `epoch`. `workers` are all workers that have to log the transaction. `note` (values of JSON)
    is logged with it.
    """

    transaction: int
    parts: tuple[tuple[str, tuple[tuple[Any, int], ...]], ...]
    number: int
    epoch: int
    workers: tuple[int, ...]
    note: Any = None


@dataclass(frozen=True, slots=True)
class Prepare:
    """Check transactions, log those without problems, and answer with `PrepareVerdicts` when the log is on disk.

    Each transaction is checked against what is committed; one that has keys in common with an earlier one of the same
    request `conflicts`.
    """

    transactions: tuple[ToPrepare, ...]


@dataclass(frozen=True, slots=True)
class PrepareVerdicts:
    """A worker's verdicts on the transactions of a `Prepare`, and the bytes in its log since the last snapshot.

    The verdict is None for a transaction with which the worker has nothing to do.
    """

    verdicts: tuple[Verdict | None, ...]
    log_bytes: int


@dataclass(frozen=True, slots=True)
class BeginSnapshot:
    """Keep the rows of durable tables at an epoch, and begin to write them to files when the epoch is complete."""

    epoch: int


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """Answer at once whether the snapshot of an epoch is complete; raises if it could not be written."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TrimStorage:
    """Delete the records of epochs up to `covered` from the log, and files that nothing mentions, in the background.

    Answer at once whether that is done; raises if it could not be done.
    """

    covered: int
