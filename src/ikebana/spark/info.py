"""What a session reports: its tables, views and arrangements.

`Session.tables`, `views`, `arrangements` and `status` return these dataclasses, in listings that read well in a
terminal and in a notebook (`ikebana.spark.listing`). They are copies: a later change of the session does not change
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from ikebana.runtime.messages import ArrangementStatus
from ikebana.spark.listing import IF_ANY, Bytes, Card


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
    since: since when it is in this state, in local time.
    rows: the number of changes that its arrangement keeps, which is the number of different rows if nothing holds old
        epochs.
    bytes: the size of its arrangement and of private indexes, on all workers.
    changes_per_second: on average since the previous call that is at least a second ago; at first, since the view was
        created. The rows that it had from the start are no changes; a row that changes is two.
    epochs_behind: how many closed epochs are not complete yet. Views that nobody reads may wait with their work.
    seconds_behind: how long ago the first of these epochs was closed.
    created: when it was created or replaced, in local time.
    """

    name: str
    state: str
    reason: str
    since: str
    rows: int
    bytes: Bytes
    changes_per_second: float
    epochs_behind: int
    seconds_behind: float
    created: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HoldInfo:
    """An epoch of a table or view that is kept readable, so that later history cannot be compacted.

    epoch: the first epoch that is kept. epochs_back: how far it is behind the last closed one.
    held_by: "hold()", a retention, a Spark query, an RDD or iterator, or a stream of changes.
    bytes: the size of the changes since that epoch on all workers, with those that could be compacted otherwise.
    """

    name: str
    epoch: int
    epochs_back: int
    held_by: str
    bytes: Bytes


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """A named subscription.

    view: the table or view that it follows.
    state: "read" while there is a consumer, "waiting" otherwise, or "failed". reason: why it has failed.
    epoch: the last one that was acknowledged; None before the first. epochs_back: how far it is behind the last closed
        one.
    bytes: the changes of its view, and of the tables that the view reads, after that epoch, on all workers.
    retain, retain_bytes: for how long, and up to how many bytes, they are kept.
    """

    name: str
    view: str
    state: str
    reason: str
    epoch: int | None
    epochs_back: int | None
    bytes: Bytes
    retain: str
    retain_bytes: Bytes


@dataclass(frozen=True, slots=True)
class ArrangementInfo:
    """An arrangement on one worker.

    name: the tables and views whose rows it has.
    worker: the worker's number.
    key: the columns that it is indexed by.
    rows, bytes, batches: its size there.
    inner_bytes: the size of private indexes inside the same query (joins, aggregates), which cannot be shared.
    mapped_bytes: how much of both sizes is in mapped files, and takes memory only while it is used.
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
    mapped_bytes: int = field(metadata=IF_ANY)
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
