"""The protocol between Spark's processes that read or write tables and views, and the driver of a session.

They ask the driver through a worker: they have credentials for the workers, but no connection to the driver. A request
is a `SnapshotRequest`, which `ikebana.spark.snapshot_server` answers, or a `WriteRequest`, which `ikebana.spark.writes`
answers. Requests and answers are JSON (`ikebana.cluster.plain`): the driver never unpickles what a client sends.

Keys. There are two kinds of processes, with different keys (`ikebana.cluster.client_keys`):

- Processes on the driver's host, in which Spark plans reads and writes, use the key of the session, which may ask any
  of these questions. The key is in a file that only the user can read (`SessionAddress`), and in no pickle.
- Tasks get the key of their job, which the planning process asks the driver for. It can ask for the snapshot of one
  table or view and read that, or begin, commit or abort writing to one table and stage rows for that.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ikebana.cluster.client import Client
from ikebana.cluster.client_keys import ClientCredentials
from ikebana.cluster.client_protocol import ClientQuestion
from ikebana.cluster.plain import decode, encode
from ikebana.encoding import Schema
from ikebana.errors import DataflowError
from ikebana.operators.changes import Fields
from ikebana.runtime.messages import TableSpec

RequestKind = Literal["describe", "check", "snapshot", "begin", "batch", "latest", "commit"]
"""What a reader asks for:

describe  the columns of a table or view: a `Readable`
check     whether it can be read, at an epoch if one is given: the key of a job that may do so
snapshot  where the tasks of a query read it: a `Snapshot`
begin     where a stream starts: a `StreamStart`
batch     the key with which the tasks of a micro-batch read what a stream holds
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
    subscription: str = ""  # of a stream: the name of the subscription that it continues, if it has one


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table or view at an epoch that a hold keeps readable on all workers."""

    dataflow: str
    fields: Fields
    epoch: int
    hold: int


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Where a stream of changes starts.

    The changes after `epoch` are held. A stream can continue after `acknowledged`, or after any later epoch: up to
    `epoch` there are no changes. If it is `new`, the result comes first, as changes of the epoch after `acknowledged`.
    """

    snapshot: Snapshot
    acknowledged: int
    new: bool

    @property
    def initial(self) -> int:
        """The epoch after which a stream without a checkpoint reads."""
        return self.acknowledged if self.new else self.snapshot.epoch


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

    describe: the definition of the table, and the key of a job that may write to it. begin: the transaction of the job.
    commit: to apply the staged `parts`, and abort: to discard the transaction; both answer nothing.
    """

    kind: Literal["describe", "begin", "commit", "abort"]
    table: str
    op: str = "insert"
    resume: bool = False
    job: str = ""  # identifies the writing job
    parts: tuple[tuple[tuple[int, int], int], ...] = ()  # as in `ikebana.spark.loading`
    rows: int = 0
    stream: str = ""  # of a micro-batch: the identity of the stream
    batch: int = -1  # of a micro-batch: its number


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A `TableSpec` in a form that can be encoded: key and value columns instead of a schema."""

    name: str
    fields: Fields
    kind: str
    key: Fields | None
    val: Fields | None
    dataflow: str

    @staticmethod
    def of(table: TableSpec) -> TableDefinition:
        """The definition of a table."""
        schema = table.schema
        key, val = (None, None) if schema is None else (schema.key.fields, schema.val.fields)
        return TableDefinition(table.name, table.fields, table.kind, key, val, table.dataflow)

    @property
    def spec(self) -> TableSpec:
        """The table."""
        schema = None if self.key is None else Schema(self.key, self.val or ())
        return TableSpec(self.name, self.fields, self.kind, schema, self.dataflow)


@dataclass(frozen=True, slots=True)
class DriverRequest:
    """A question to the driver: one of the two."""

    snapshot: SnapshotRequest | None = None
    write: WriteRequest | None = None

    @staticmethod
    def of(request: SnapshotRequest | WriteRequest) -> DriverRequest:
        """The question that a request is."""
        return DriverRequest(write=request) if isinstance(request, WriteRequest) else DriverRequest(request)


@dataclass(frozen=True, slots=True)
class DriverReply:
    """The driver's answer: what the kind of the request asks for, and nothing else."""

    readable: Readable | None = None
    snapshot: Snapshot | None = None
    start: StreamStart | None = None
    number: int = -1  # an epoch, or the number of a transaction
    table: TableDefinition | None = None
    credentials: ClientCredentials | None = None


def ask_driver(client: Client, request: SnapshotRequest | WriteRequest) -> DriverReply:
    """The driver's answer to a request, over a client's connection."""
    return decode(client.ask(0, ClientQuestion(encode(DriverRequest.of(request), DriverRequest))), DriverReply)


@dataclass(frozen=True, slots=True)
class SessionAddress:
    """How Spark's processes on the driver's host reach a session: the path of a file with the session's key.

    This is pickled and travels to executors with the data source; the key does not.
    """

    session: str  # an identifier of the session
    path: str

    def ask(self, request: SnapshotRequest | WriteRequest, timeout: float | None = None) -> DriverReply:
        """The driver's answer, over a new connection."""
        with Client(self._credentials(), timeout=timeout) as client:
            return ask_driver(client, request)

    def _credentials(self) -> ClientCredentials:
        try:
            return decode(Path(self.path).read_bytes(), ClientCredentials)
        except OSError as error:
            raise DataflowError(
                "the session was closed, or cannot be reached from here",
                detail=f"the file with its key cannot be read: {error}",
                hint="use the tables and views of a session while it is open, on the driver's host",
            ) from None


class SessionKeyFile:
    """The file with the key of a session, which only this user can read; it is removed with `close`."""

    def __init__(self, credentials: ClientCredentials, server: int) -> None:
        """`server` is the number of the session's snapshot server."""
        self._owner = os.getpid()
        self._directory = tempfile.mkdtemp(prefix="ikebana-")  # only this user can enter it
        path = os.path.join(self._directory, "session-key")
        self.address = SessionAddress(_identifier(credentials.worker_keys, server), path)
        """How to reach the session with it."""
        self.write(credentials)

    def write(self, credentials: ClientCredentials) -> None:
        """Replace the key in the file."""
        temporary = f"{self.address.path}.new"
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(encode(credentials, ClientCredentials))
        os.replace(temporary, self.address.path)

    def close(self) -> None:
        """Remove the file. Does nothing in a fork of the driver."""
        if os.getpid() == self._owner:
            shutil.rmtree(self._directory, ignore_errors=True)


def _identifier(worker_keys: Sequence[bytes], server: int) -> str:
    return hashlib.sha256(repr((worker_keys, server)).encode()).hexdigest()[:16]
