"""The protocol between the readers of the data source, which run in Spark's processes, and the driver of a session.

A reader asks the driver through a worker (`Inquire`): it has credentials for the workers, but no connection to the
driver. `SessionAddress` sends a `SnapshotRequest`, or a `WriteRequest`;
`ikebana.spark.snapshot_server` answers the one, and `ikebana.spark.writes` the other.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any, Literal

from ikebana.cluster.client import Client, ClientCredentials
from ikebana.operators.changes import Fields
from ikebana.runtime.messages import AskDriver

RequestKind = Literal["describe", "check", "snapshot", "begin", "latest", "commit"]
"""What a reader asks for:

describe  the columns of a table or view: a `Readable`
check     whether it can be read, at an epoch if one is given
snapshot  where the tasks of a query read it: a `Snapshot`
begin     where a stream starts: a `Snapshot`
latest    the last closed epoch, up to which a stream can read
commit    to release what a stream holds of earlier epochs: it has processed all changes up to `epoch`
"""


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A request about the table or view `name`."""

    kind: RequestKind
    name: str
    epoch: int | None = None  # None for the last closed epoch
    hold: int = 0  # of a stream: the hold of its snapshot
    identity: str | None = None  # distinguishes a table or view from earlier and later ones of the same name
    reader: str = ""  # of a snapshot: all tasks with the same reader see one epoch
    execution: int | None = None  # of a snapshot: the Spark execution that reads


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table or view at an epoch that a hold keeps readable on all workers."""

    dataflow: str
    fields: Fields
    epoch: int
    hold: int


@dataclass(frozen=True, slots=True)
class Readable:
    """A table or view: its exact name, its identity, the dataflow that has its rows, and its columns."""

    name: str
    identity: str
    dataflow: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What a writer asks the driver.

    describe: the definition of the table. begin: the transaction of the job. commit: to apply the staged `parts`, and
    abort: to discard the transaction; both answer nothing.
    """

    kind: Literal["describe", "begin", "commit", "abort"]
    table: str
    op: str = "insert"
    resume: bool = False
    job: str = ""  # identifies the writing job
    parts: tuple[tuple[Any, int], ...] = ()  # as in `ikebana.spark.loading`
    rows: int = 0
    stream: str = ""  # of a micro-batch: the identity of the stream
    batch: int = -1  # of a micro-batch: its number


@dataclass(frozen=True, slots=True)
class SessionAddress:
    """How readers reach a session: credentials for its workers, and the number of its snapshot server."""

    credentials: ClientCredentials
    server: int

    @property
    def session(self) -> str:
        """An identifier of the session."""
        return hashlib.sha256(repr((self.credentials.worker_keys, self.server)).encode()).hexdigest()[:16]

    def ask(self, request: Any, timeout: float | None = None) -> Any:
        """The driver's answer, over a new connection."""
        with Client(self.credentials, timeout=timeout) as client:
            return self.ask_over(client, request)

    def ask_over(self, client: Client, request: Any) -> Any:
        """The driver's answer, over a client's connection."""
        return client.ask(0, AskDriver(self.server, secrets.randbits(62), request))
