"""Messages to, from and between workers. They are plain values, so that any transport can carry them.

*Commands* come from the driver; every worker receives them in the same order. *Peer messages* go from one worker to
another. Those of a single dataflow belong to one of its channels and have a number in that channel, and a worker sends
every peer exactly one message for each number. Those of a joint sweep are for many dataflows together.

*Requests* come from the driver or from clients, and are answered. If a worker cannot answer a request yet, it keeps the
request and tries again after it has done some work. To add a request, define its class in this folder, add it to
`Request` and add a case to `Worker.answer`; transports need no change.

*Notifications* go from a worker to the driver without having been requested.
"""

from __future__ import annotations

from typing import TypeAlias

from ikebana.errors import DataflowError
from ikebana.runtime.messages.dataflows import (
    FIRST_EXCHANGE,
    PROGRAM_MESSAGES,
    PROPOSALS,
    ROUNDS,
    Advance,
    CloseInput,
    CreateInput,
    DataflowMessage,
    Demand,
    Fail,
    Failed,
    Install,
    JointMessage,
    Push,
    Retire,
)
from ikebana.runtime.messages.readers import (
    EVENTS,
    FAILURES,
    AskDriver,
    Changed,
    DataflowEvent,
    DataflowFailed,
    DriverAnswer,
    DriverQuestion,
    Hold,
    Release,
    Resume,
    Subscribe,
    SubscriptionEnded,
    SubscriptionPaused,
    Unsubscribe,
)
from ikebana.runtime.messages.requests import (
    ArrangementStatus,
    CountKeys,
    HistorySize,
    HistoryStatus,
    Keys,
    Lookup,
    Ping,
    Read,
    ReadChanges,
    ReadErrors,
    ResultShard,
    RowsOfKeys,
    Status,
    Wait,
    WaitAll,
)
from ikebana.runtime.messages.storage import (
    BeginSnapshot,
    KeepHistory,
    OpenStorage,
    Prepare,
    PrepareVerdicts,
    Restore,
    Restored,
    SnapshotStatus,
    ToPrepare,
    TrimStorage,
)
from ikebana.runtime.messages.tables import (
    ACCEPTED,
    Abort,
    Check,
    CheckAndCommit,
    Commit,
    CopyRows,
    CreateTable,
    DropTable,
    Problem,
    ReplaceTable,
    Stage,
    TableSpec,
    Verdict,
)

__all__ = [
    "ACCEPTED",
    "EVENTS",
    "FAILURES",
    "FIRST_EXCHANGE",
    "PROGRAM_MESSAGES",
    "PROPOSALS",
    "ROUNDS",
    "Abort",
    "Advance",
    "ArrangementStatus",
    "AskDriver",
    "BeginSnapshot",
    "Changed",
    "Check",
    "CheckAndCommit",
    "CloseInput",
    "Command",
    "Commit",
    "CopyRows",
    "CountKeys",
    "CreateInput",
    "CreateTable",
    "DataflowEvent",
    "DataflowFailed",
    "DataflowMessage",
    "Demand",
    "DriverAnswer",
    "DriverQuestion",
    "DropTable",
    "Fail",
    "Failed",
    "HistorySize",
    "HistoryStatus",
    "Hold",
    "Install",
    "JointMessage",
    "KeepHistory",
    "Keys",
    "Lookup",
    "OpenStorage",
    "PeerMessage",
    "Ping",
    "Prepare",
    "PrepareVerdicts",
    "Problem",
    "Push",
    "Read",
    "ReadChanges",
    "ReadErrors",
    "Release",
    "ReplaceTable",
    "Request",
    "Restore",
    "Restored",
    "ResultShard",
    "Resume",
    "Retire",
    "RowsOfKeys",
    "SnapshotStatus",
    "Stage",
    "Status",
    "StorageRequest",
    "Subscribe",
    "SubscriptionEnded",
    "SubscriptionPaused",
    "TableSpec",
    "ToPrepare",
    "TrimStorage",
    "Unsubscribe",
    "Verdict",
    "Wait",
    "WaitAll",
    "unanswerable",
]

Command: TypeAlias = (
    CreateInput
    | CloseInput
    | Push
    | Advance
    | Install
    | Demand
    | Fail
    | Retire
    | CreateTable
    | ReplaceTable
    | CopyRows
    | DropTable
    | BeginSnapshot
    | KeepHistory
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
PeerMessage: TypeAlias = DataflowMessage | JointMessage | Failed
StorageRequest: TypeAlias = OpenStorage | Restore | Prepare | SnapshotStatus | TrimStorage
"""Requests of an engine with durable tables."""

Request: TypeAlias = (
    Check
    | CheckAndCommit
    | AskDriver
    | Ping
    | Wait
    | WaitAll
    | Read
    | Lookup
    | ReadErrors
    | ReadChanges
    | HistorySize
    | CountKeys
    | Status
    | StorageRequest
)
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
