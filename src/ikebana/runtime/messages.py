"""What workers are told, and what they tell each other. Plain values: any transport can carry them.

*Commands* come from the driver, to every worker in the same order. *Messages* go between workers: each
belongs to a channel of a dataflow and has a number in it, and a worker sends every peer exactly one message
for each number.

*Requests* come from the driver or from guests, and are answered. A worker that cannot answer yet keeps a request
and tries again when it has worked. A new kind of request is a value here and a case in `Worker.answer`; transports
carry any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ikebana.encoding import Schema
from ikebana.errors import DataflowError, IkebanaError
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.row_errors import Errors
from ikebana.plan.ir import Node
from ikebana.time import Time

PROPOSALS, ROUNDS, FIRST_EXCHANGE = 0, 1, 2
"""Channels of a dataflow: proposals for the next sweep, agreement on rounds, and from there one for each exchange."""


@dataclass(frozen=True, slots=True)
class DataflowMessage:
    """From one worker to another: part `number` of a channel."""

    dataflow: str
    channel: int
    number: int
    sender: int
    body: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """From one worker to another: a dataflow failed here, and fails everywhere."""

    dataflow: str
    sender: int
    reason: str


@dataclass(frozen=True, slots=True)
class CreateInput:
    """A new input, to which changes can be pushed."""

    name: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class CloseInput:
    """An input will not change any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Push:
    """Changes for an input, at epochs not yet closed; to one worker only."""

    input: str
    changes: Changes


@dataclass(frozen=True, slots=True)
class Advance:
    """All inputs close the epochs before this one."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Install:
    """Install a dataflow that maintains an arrangement, in so many bytes on each worker if `memory` says so."""

    dataflow: str
    plan: Node
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """Complete the epochs before this one of a dataflow, also if nothing changes."""

    dataflow: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Retire:
    """Drop a dataflow."""

    dataflow: str


# Tables: their changes are staged with their owners, checked there, and then committed or not.


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What a table is. `kind` is "keyed", "bag" or "stream"; of the latter nothing is kept, so it has no schema.

    `schema` is that of the table's primary arrangement, which `dataflow` maintains: rows belong to the worker that
    owns their key lane, and columns travel in its order.
    """

    name: str
    fields: Fields
    kind: str
    schema: Schema | None = None
    dataflow: str = ""

    @property
    def key(self) -> Fields:
        """The key columns of a keyed table; none of others."""
        return self.schema.key.fields if self.schema is not None and self.kind == "keyed" else ()


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A new table, to which changes can be committed."""

    table: TableSpec


@dataclass(frozen=True, slots=True)
class DropTable:
    """A table is gone; nothing reads it any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Stage:
    """Rows for a table, part of a transaction, to the worker that owns them; nothing happens to them yet.

    The same attempt at a part replaces what it had staged before. `columns` are in the order of the table's schema,
    the keys alone where all rows are to be deleted; `ops` is an op (`ikebana.runtime.staging`), or one for each row.
    """

    transaction: int
    table: str
    part: Any
    attempt: int
    columns: tuple[Any, ...]
    ops: Any


@dataclass(frozen=True, slots=True)
class Commit:
    """Apply the checked changes of a transaction, at the present epoch, and close the epochs before `epoch`.

    Transactions before `oldest` have all ended.
    """

    transaction: int
    epoch: int
    oldest: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Drop what was staged in a transaction. Transactions before `oldest` have all ended."""

    transaction: int
    oldest: int


@dataclass(frozen=True, slots=True)
class Check:
    """Answer with a `Verdict` on a transaction, as soon as its tables are complete up to the present epoch.

    `parts` has, for each table, the attempts at parts that count, in order: others were failures.
    """

    transaction: int
    parts: tuple[tuple[str, tuple[tuple[Any, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """Rows that a table refuses: why, how many, and a few of them in words.

    `why` is "exists", "twice", "missing", or "memory"; for the latter, the words say how much there is.
    """

    table: str
    why: str
    rows: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a worker found in its share of a transaction: problems, or else how many updates it would make."""

    problems: tuple[Problem, ...]
    updates: int


# Readers: what they follow, what they hold, and what they ask.


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Tell the changes of a dataflow's result at epochs after `at`, and first, if `snapshot`, what it was at `at`.

    The worker sends `Changed` as news: so many that have any rows as it has `credit`, and of about so many bytes in all
    as it has `credit_bytes`; then it waits for more. It keeps `backlog` rows and `backlog_bytes` bytes at most.
    """

    number: int
    dataflow: str
    at: int
    snapshot: bool
    credit: int
    credit_bytes: int
    backlog: int
    backlog_bytes: int


@dataclass(frozen=True, slots=True)
class Resume:
    """The credit of a subscription is this much again."""

    number: int
    credit: int
    credit_bytes: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Nobody follows any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Changed:
    """News: all changes of a subscription at epochs before `upper` that were not told yet.

    The epoch of each, and a table of the result's columns and diffs; None if nothing has changed. `errors` has the
    epochs at which errors come and go.
    """

    number: int
    upper: int
    epochs: Any
    changes: Any
    errors: tuple[tuple[int, Errors], ...] = ()


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    """News: a subscription is over, why, and what to do about it."""

    number: int
    reason: str
    hint: str = ""


FAILURES = -1
"""The number of news of dataflows that have failed."""


@dataclass(frozen=True, slots=True)
class DataflowFailed:
    """News: a dataflow has failed, for a reason that is no row's."""

    dataflow: str
    number: int = FAILURES


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep a dataflow's result readable at epochs from `at` on; a later `at` lets go of those before it."""

    number: int
    dataflow: str
    at: int


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of what was held."""

    number: int


@dataclass(frozen=True, slots=True)
class Inquire:
    """Answer with what the driver answers to a question: guests know workers, but not the driver.

    `number` is that of whom the question is for, in the driver; `ticket` is that of the question, and only its own.
    """

    number: int
    ticket: int
    question: Any


@dataclass(frozen=True, slots=True)
class Inquiry:
    """News: somebody has a question."""

    number: int
    ticket: int
    question: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a question, or the error that is raised in its place."""

    ticket: int
    value: Any = None
    error: IkebanaError | None = None


@dataclass(frozen=True, slots=True)
class Ping:
    """Answered at once, after everything that was sent before it; fails if the dataflow has failed.

    The answer (None) shows that the worker has carried out all earlier commands of the same sender: after a `Hold`, for
    example, that other clients can now read at the epoch that is held.
    """

    dataflow: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Answer (None) when a dataflow has completed the epochs before `epoch`; refuse when it has failed."""

    dataflow: str
    epoch: int


@dataclass(frozen=True, slots=True)
class WaitAll:
    """Answer (None) when all of some dataflows have completed the epochs before `epoch`; refuse when one has failed."""

    dataflows: tuple[str, ...]
    epoch: int


Keys: TypeAlias = Mapping[str, Sequence[Any]]
"""Key columns by name."""


@dataclass(frozen=True, slots=True)
class Read:
    """Answer with this worker's `Shard` of a dataflow's result at a time: an Arrow table, and errors.

    With `wait` as soon as it is complete, else only if it is. `hold` names what keeps the time readable, if it is
    not the last. With `keys`, columns by the names of the result's key columns, only what it has for these.
    """

    dataflow: str
    at: Time
    hold: int | None = None
    wait: bool = False
    keys: Keys | None = None


@dataclass(frozen=True, slots=True)
class Shard:
    """What a worker has of a dataflow's result, and its share of the errors; the result is exact if these cancel."""

    rows: Any
    errors: Errors


@dataclass(frozen=True, slots=True)
class ReadErrors:
    """Answer with this worker's share of a dataflow's errors at an epoch; otherwise as `Read`.

    Without an epoch, at the last one that is complete, at once.
    """

    dataflow: str
    at: int | None = None
    hold: int | None = None


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """Answer with this worker's changes at epochs after `after` up to and including `at`, when they are complete.

    The epoch of each, and a table of the result's columns and diffs; None for both if nothing has changed. Epochs from
    `after` on must be held.
    """

    dataflow: str
    after: int
    at: int
    hold: int


@dataclass(frozen=True, slots=True)
class Status:
    """Answer with an `ArrangementStatus` for each dataflow."""


@dataclass(frozen=True, slots=True)
class ArrangementStatus:
    """A dataflow's arrangement on one worker: how large it is, who reads it, and how far it has got."""

    dataflow: str
    worker: int
    key: tuple[str, ...]
    columns: tuple[str, ...]
    rows: int  # updates in its batches
    bytes: int
    inner_bytes: int  # of arrangements on the way to it, which only this dataflow has
    batches: int
    readers: int  # handles, the dataflow's own included
    since: int  # the epoch up to which it was compacted
    upper: int  # epochs before it are complete
    names: tuple[str, ...] = ()  # of the tables and views that are kept there


Command: TypeAlias = (
    CreateInput
    | CloseInput
    | Push
    | Advance
    | Install
    | Demand
    | Retire
    | CreateTable
    | DropTable
    | Stage
    | Commit
    | Abort
    | Subscribe
    | Resume
    | Unsubscribe
    | Hold
    | Release
    | Reply
)
PeerMessage: TypeAlias = DataflowMessage | Failed
Request: TypeAlias = Check | Inquire | Ping | Wait | WaitAll | Read | ReadErrors | ReadChanges | Status
"""What `Worker.answer` understands."""


def unanswerable(request: Request) -> DataflowError:
    """The error for a request to which no answer will come, since nothing is left to do.

    >>> print(unanswerable(Wait("degrees", 8)))
    dataflow 'degrees' cannot complete epoch 7
      detail: it has not got there, and there is nothing left to do
      hint: advance its inputs past that epoch, and demand it, first
    """
    if isinstance(request, Wait | WaitAll):
        names = [request.dataflow] if isinstance(request, Wait) else request.dataflows
        what = "dataflow" if len(names) == 1 else "one of the dataflows"
        return DataflowError(
            f"{what} {', '.join(map(repr, names))} cannot complete epoch {request.epoch - 1}",
            detail="it has not got there, and there is nothing left to do",
            hint="advance its inputs past that epoch, and demand it, first",
        )
    return DataflowError(
        f"there will be no answer to {request}", detail="a worker waits for more, and there is nothing left to do"
    )
