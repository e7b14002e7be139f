"""What a session reports: its tables, views and arrangements.

`Session.tables`, `views`, `arrangements` and `status` return these dataclasses, in listings that read well in a
terminal and in a notebook (`ikebana.spark.listing`). They are copies: a later change of the session does not change
them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from ikebana.runtime.messages import ArrangementStatus
from ikebana.spark.listing import Bytes, Card


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table. `kind` is "keyed", "bag" or "stream"."""

    name: str
    kind: str
    key: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ViewInfo:
    """A view.

    state: "live"; "errors" while an expression has no value for some row, so that the view cannot be read; or "failed".
    reason: why it is not live.
    rows: the number of changes that its arrangement keeps, which is the number of rows if nothing holds old epochs.
    bytes: the size of its arrangement and of private indexes, on all workers.
    epochs_behind: how many closed epochs are not complete yet. Views that nobody reads may wait with their work.
    seconds_behind: how long ago the first of these epochs was closed.
    created: when it was created or replaced, in local time.
    """

    name: str
    state: str
    reason: str
    rows: int
    bytes: Bytes
    epochs_behind: int
    seconds_behind: float
    created: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HoldInfo:
    """An epoch of a table or view that is kept readable, so that later history cannot be compacted.

    epoch: the first epoch that is kept. epochs_back: how far it is behind the last closed one.
    held_by: "hold()", a Spark query, an RDD or iterator, or a stream of changes.
    """

    name: str
    epoch: int
    epochs_back: int
    held_by: str


@dataclass(frozen=True, slots=True)
class ArrangementInfo:
    """An arrangement on one worker.

    name: the tables and views whose rows it has.
    worker: the worker's number.
    key: the columns that it is indexed by.
    rows, bytes, batches: its size there.
    inner_bytes: the size of private indexes inside the same query (joins, aggregates), which cannot be shared.
    readers: how many queries and readers use it.
    since: the epoch up to which its history was compacted.
    complete_before: the epochs before this one are complete.
    """

    name: tuple[str, ...]
    worker: int
    key: tuple[str, ...]
    rows: int
    bytes: int
    inner_bytes: int
    batches: int
    readers: int
    since: int
    complete_before: int

    @classmethod
    def of(cls, status: ArrangementStatus) -> ArrangementInfo:
        """What a worker reports about an arrangement."""
        same = {field.name: getattr(status, field.name) for field in fields(cls) if hasattr(status, field.name)}
        return cls(name=status.names, complete_before=status.upper, **same)


@dataclass(frozen=True, slots=True, repr=False)
class SessionStatus(Card):
    """The size of a session. `rows` and `bytes` are those of all arrangements on all workers."""

    workers: int
    epoch: int
    tables: int
    views: int
    arrangements: int
    rows: int
    bytes: int
