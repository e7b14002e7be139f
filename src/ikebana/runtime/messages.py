"""Messages to, from and between workers. They are plain values, so that any transport can carry them.

*Commands* come from the driver; every worker receives them in the same order. *Peer messages* go from one worker to
another: each belongs to a channel of a dataflow and has a number in that channel, and a worker sends every peer exactly
one message for each number.

*Requests* come from the driver or from clients, and are answered. If a worker cannot answer a request yet, it keeps the
request and tries again after it has done some work. To add a request, define its class here, add it to `Request` and
add a case to `Worker.answer`; transports need no change.

*Notifications* go from a worker to the driver without having been requested.
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

PROPOSALS, ROUNDS, PROGRAM_MESSAGES, FIRST_EXCHANGE = range(4)
"""The channels of a dataflow: proposals for the next sweep, agreement on rounds, and then one for each exchange."""


@dataclass(frozen=True, slots=True)
class DataflowMessage:
    """From one worker to another: message `number` of a channel."""

    dataflow: str
    channel: int
    number: int
    sender: int
    body: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """From one worker to another: the dataflow has failed on `sender`, and fails on every worker."""

    dataflow: str
    sender: int
    reason: str


@dataclass(frozen=True, slots=True)
class CreateInput:
    """Create an input, to which changes can be pushed."""

    name: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class CloseInput:
    """Close an input: it will not change any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Push:
    """Add changes to an input, at epochs that are not closed yet; sent to one worker only."""

    input: str
    changes: Changes


@dataclass(frozen=True, slots=True)
class Advance:
    """Close the epochs before `epoch` on all inputs and tables."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Install:
    """Install a dataflow that maintains an arrangement. `memory` limits its size on each worker, in bytes.

    With an `owner`, the dataflow maintains an arrangement of the owner's own (`ikebana.plan.ir.with_owner`): any number
    of dataflows can be instances of one plan.
    """

    dataflow: str
    plan: Node
    memory: int | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """Complete the epochs of a dataflow before `epoch`, even if nothing has changed."""

    dataflow: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Retire:
    """Drop a dataflow."""

    dataflow: str


# Tables. Changes are staged on the workers that own the rows, checked there, and then committed or aborted.


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The definition of a table. `kind` is "keyed", "bag" or "stream"; a stream is not stored, so it has no schema.

    `schema` is the schema of the table's primary arrangement, which `dataflow` maintains. A row belongs to the worker
    that owns its key lane. Columns are sent in the order of the schema.
    """

    name: str
    fields: Fields
    kind: str
    schema: Schema | None = None
    dataflow: str = ""

    @property
    def key(self) -> Fields:
        """The key columns of a keyed table; empty for other tables."""
        return self.schema.key.fields if self.schema is not None and self.kind == "keyed" else ()


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create a table, to which changes can be committed."""

    table: TableSpec


@dataclass(frozen=True, slots=True)
class DropTable:
    """Drop a table that no dataflow reads any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Stage:
    """Add rows to a transaction, on the worker that owns them. They take effect when the transaction is committed.

    Staging the same part and attempt again replaces the earlier rows. `columns` are in the order of the table's schema;
    if all rows are to be deleted, they are only the key columns. `ops` is one op (`ikebana.runtime.staging`) for all
    rows, or an array with one for each.
    """

    transaction: int
    table: str
    part: Any
    attempt: int
    columns: tuple[Any, ...]
    ops: Any


@dataclass(frozen=True, slots=True)
class Commit:
    """Apply the checked changes of a transaction at the current epoch, and close the epochs before `epoch`.

    All transactions before `oldest` have ended.
    """

    transaction: int
    epoch: int
    oldest: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Discard the staged rows of a transaction. All transactions before `oldest` have ended."""

    transaction: int
    oldest: int


@dataclass(frozen=True, slots=True)
class Check:
    """Answer with a `Verdict` on a transaction, as soon as its tables are complete up to the current epoch.

    `parts` lists, for each table, the successful attempts as (part, attempt), in order; other attempts are ignored.
    """

    transaction: int
    parts: tuple[tuple[str, tuple[tuple[Any, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """Rows that a table rejects: why, how many, and examples as strings.

    The reason is "exists" (an inserted key is in the table), "twice" (it was inserted before in the same transaction),
    "missing" (a deleted row does not exist) or "memory" (the rows do not fit: the only example says how much is in
    use).
    """

    table: str
    reason: str
    rows: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A worker's answer to `Check`. The transaction can be committed if no worker reports any problems."""

    problems: tuple[Problem, ...]


# Readers: subscriptions, holds, and requests.


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Send the changes of a dataflow's result at epochs after `at`; with `snapshot`, first send the result at `at`.

    The worker sends `Changed` notifications. `credit` limits how many of them may have rows, and `credit_bytes` the
    size of their rows; then the worker waits for `Resume`. Meanwhile it keeps at most `backlog` rows and
    `backlog_bytes` bytes.

    With `binding`, the subscription is to the rows and errors of one binding of a prepared statement, by which the
    result must be arranged. Such subscriptions form a `group`: the worker sends to one of them only what concerns it,
    and to the group how far that is complete.
    """

    number: int
    dataflow: str
    at: int
    snapshot: bool
    credit: int
    credit_bytes: int
    backlog: int
    backlog_bytes: int
    binding: int | None = None
    group: int = -1


@dataclass(frozen=True, slots=True)
class Resume:
    """Reset the credit of a subscription to these values."""

    number: int
    credit: int
    credit_bytes: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """End a subscription."""

    number: int


@dataclass(frozen=True, slots=True)
class Changed:
    """Notification: all changes of a subscription at epochs before `upper` that were not sent before.

    `epochs` has the epoch of each row, and `changes` is a table with the columns of the result and the diffs; both are
    None if nothing has changed. `errors` has the changes of the errors, by epoch.
    """

    number: int
    upper: int
    epochs: Any
    changes: Any
    errors: tuple[tuple[int, Errors], ...] = ()


@dataclass(frozen=True, slots=True)
class SubscriptionPaused:
    """Notification: a subscription of a group has no credit. What the group is told does not hold for it any more.

    The next `Changed` of the subscription has everything that was not sent.
    """

    number: int


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    """Notification: a subscription has ended, why, and what the user can do about it."""

    number: int
    reason: str
    hint: str = ""


FAILURES = -1
"""The `number` of `DataflowFailed` notifications, which belong to no subscription."""


@dataclass(frozen=True, slots=True)
class DataflowFailed:
    """Notification: a dataflow has failed; errors of single rows are not failures."""

    dataflow: str
    number: int = FAILURES


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep a dataflow's result readable at epochs from `at` on. A second `Hold` with a later `at` advances it."""

    number: int
    dataflow: str
    at: int


@dataclass(frozen=True, slots=True)
class Release:
    """Release a hold."""

    number: int


@dataclass(frozen=True, slots=True)
class AskDriver:
    """Forward a question to the driver, and answer with its answer: clients are connected to workers only.

    `number` is the recipient within the driver; `ticket` is a unique id of the request.
    """

    number: int
    ticket: int
    question: Any


@dataclass(frozen=True, slots=True)
class DriverQuestion:
    """Notification: a client has a question for the driver."""

    number: int
    ticket: int
    question: Any


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """The driver's answer to a question of a client, or the error to raise instead."""

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
    """Answer with this worker's `Shard` of a dataflow's result at a time.

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
class Shard:
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
    batches: int
    readers: int  # handles, including the dataflow's own
    since: int  # the epoch up to which it is compacted
    upper: int  # epochs before it are complete
    programs_run: int  # sweeps that were done by compiled programs
    visits_run: int  # sweeps that were done by visits, without the first
    names: tuple[str, ...] = ()  # of the tables and views stored in it


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
    | DriverAnswer
)
PeerMessage: TypeAlias = DataflowMessage | Failed
Request: TypeAlias = Check | AskDriver | Ping | Wait | WaitAll | Read | Lookup | ReadErrors | ReadChanges | Status
"""What `Worker.answer` understands."""


def unanswerable(request: Request) -> DataflowError:
    """The error for a request that is still unanswered when no worker has anything left to do.

    >>> print(unanswerable(Wait("degrees", 8)))
    dataflow 'degrees' cannot complete epoch 7
      detail: it has not reached that epoch, and there is nothing left to do
      hint: first advance its inputs past that epoch, and demand it
    """
    if isinstance(request, Wait | WaitAll):
        names = [request.dataflow] if isinstance(request, Wait) else request.dataflows
        subject = "dataflow" if len(names) == 1 else "one of the dataflows"
        return DataflowError(
            f"{subject} {', '.join(map(repr, names))} cannot complete epoch {request.epoch - 1}",
            detail="it has not reached that epoch, and there is nothing left to do",
            hint="first advance its inputs past that epoch, and demand it",
        )
    return DataflowError(
        f"{request} cannot be answered", detail="a worker waits for further input, but there is nothing left to do"
    )
