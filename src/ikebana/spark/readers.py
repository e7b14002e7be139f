"""How Spark's tasks read a table or view: all of its rows at an epoch, or its changes as a stream.

There is a partition for each worker, and its task reads the rows of that worker directly, with the key of its job,
which comes with the partition: for one DataFrame, or for one micro-batch of a stream. Which epoch is read is
decided when the tasks ask for it, once for each Spark query, by `ikebana.spark.snapshot_server`.

A stream starts with all rows, as changes of the epoch at which it starts. A micro-batch then has the changes of the
epochs that were closed when it was planned; what Spark has committed is released. Without `epoch` and `diff` columns
only insertions can be shown: a deleted row is an error.

Checkpoints. A stream that is restarted from a checkpoint can continue only if no changes in between are lost. With the
option `subscription`, what Spark has not committed is kept by a named subscription, also across sessions that have the
same storage directory (`ikebana.engine.named_subscriptions`).

If workers are replaced by others (`ikebana.engine.healing`), tasks on the driver's host ask for a key for these; on
other hosts they cannot, and the DataFrame has to be created again.

Multiplicities. In a batch a row is repeated according to its multiplicity; a negative multiplicity is an error.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from ikebana.cluster.client import Client
from ikebana.cluster.client_keys import ClientCredentials
from ikebana.engine.result_tables import plain_rows
from ikebana.errors import DataflowError, IkebanaError
from ikebana.operators.row_errors import raise_errors
from ikebana.runtime.messages import Read, ReadChanges, ReadErrors
from ikebana.spark.snapshots import SessionAddress, Snapshot, SnapshotRequest, StreamStart, ask_driver

_ROOT_EXECUTION, _EXECUTION = "spark.sql.execution.root.id", "spark.sql.execution.id"


@dataclass
class _BatchPartition(InputPartition):
    """The rows of one worker, at an epoch that is chosen when they are read."""

    worker: int
    plan: str  # the same for all partitions of one DataFrame
    credentials: ClientCredentials


@dataclass
class _StreamPartition(InputPartition):
    """The changes of one worker at epochs after `after` and up to `until`; at the start of the stream, all rows."""

    worker: int
    start: StreamStart
    after: int
    until: int
    credentials: ClientCredentials


class BatchReader(DataSourceReader):
    """Reads a table or view at an epoch. Spark keeps the partitions for as long as the DataFrame lives."""

    def __init__(
        self, address: SessionAddress, request: SnapshotRequest, timeout: float | None, schema: pa.Schema
    ) -> None:
        """`request` has the kind "check"."""
        self._address, self._request, self._timeout, self._schema = address, request, timeout, schema

    def partitions(self) -> list[InputPartition]:
        credentials = self._credentials()
        plan = secrets.token_hex(8)
        return [_BatchPartition(worker, plan, credentials) for worker in range(credentials.size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _BatchPartition)
        try:
            rows = self._rows(partition, partition.credentials)
        except DataflowError:
            credentials = self._credentials_of_successors(partition.credentials)
            if credentials is None:
                raise
            rows = self._rows(partition, credentials)
        yield from _batches(plain_rows(rows, self._request.name), self._schema)

    def _credentials(self) -> ClientCredentials:
        credentials = self._address.ask(self._request, self._timeout).credentials
        assert credentials is not None
        return credentials

    def _credentials_of_successors(self, old: ClientCredentials) -> ClientCredentials | None:
        """A key for the workers that have replaced others since; None if there are none, or this is another host."""
        try:
            new = self._credentials()
        except IkebanaError:
            return None
        return None if new.worker_keys == old.worker_keys else new

    def _rows(self, partition: _BatchPartition, credentials: ClientCredentials) -> pa.Table:
        execution, name = _execution(), self._request.name
        reader = partition.plan if execution is None else f"execution {execution}"
        with Client(credentials, timeout=self._timeout) as client:
            epoch = self._request.epoch if self._request.epoch is not None else _epoch(self._address.session)
            request = replace(self._request, kind="snapshot", epoch=epoch, reader=reader, execution=execution)
            snapshot = ask_driver(client, request).snapshot
            assert snapshot is not None
            return _rows(client, partition.worker, snapshot, name)


class StreamReader(DataSourceStreamReader):
    """Reads the changes of a table or view. An offset is an epoch: all changes up to it were read."""

    def __init__(
        self, address: SessionAddress, name: str, with_changes: bool, schema: pa.Schema, subscription: str = ""
    ) -> None:
        """`with_changes`: whether the last two columns are the epochs and multiplicities of changes."""
        self._address, self._name, self._with_changes, self._schema = address, name, with_changes, schema
        self._subscription = subscription
        self._started: StreamStart | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"epoch": self._start().initial}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        request = SnapshotRequest("latest", self._name, hold=self._start().snapshot.hold)
        return {"epoch": self._address.ask(request).number}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        begun = self._start()
        if start["epoch"] < begun.acknowledged:
            hint = "start it without its checkpoint"
            if not self._subscription:
                hint += ', and with option("subscription", "a name") so that the next restart can continue'
            raise DataflowError(
                f"the changes of {self._name!r} after epoch {start['epoch']} are no longer kept",
                detail=f"this stream was restarted; the changes after epoch {begun.acknowledged} are kept",
                hint=hint,
            )
        credentials = self._address.ask(SnapshotRequest("batch", self._name, hold=begun.snapshot.hold)).credentials
        assert credentials is not None
        epochs = start["epoch"], end["epoch"]
        return [_StreamPartition(worker, begun, *epochs, credentials) for worker in range(credentials.size)]

    def commit(self, end: dict[str, int]) -> None:
        self._address.ask(SnapshotRequest("commit", self._name, end["epoch"], self._start().snapshot.hold))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _StreamPartition)
        with Client(partition.credentials) as client:
            for epochs, changes in self._changes(client, partition):
                if self._with_changes:
                    rows = changes.append_column(self._schema.names[-2], pa.array(epochs, pa.int64()))
                else:
                    rows = _inserted(changes, self._name)
                yield from _batches(rows, self._schema)

    def _changes(self, client: Client, partition: _StreamPartition) -> Iterator[tuple[Any, pa.Table]]:
        """The epochs of changes, and the changes; first all rows, if the partition is at the start of the stream."""
        start, worker, until = partition.start, partition.worker, partition.until
        snapshot = start.snapshot
        if start.new and partition.after <= start.acknowledged:
            rows = _rows(client, worker, snapshot, self._name)
            yield np.full(len(rows), start.acknowledged + 1), rows
        after = max(partition.after, snapshot.epoch)
        if until > after:
            if client.ask(worker, ReadErrors(snapshot.dataflow, until, snapshot.hold)):
                _check_errors(client, snapshot, until, self._name)
            epochs, changes = client.ask(worker, ReadChanges(snapshot.dataflow, after, until, snapshot.hold))
            if changes is not None:
                yield epochs, changes

    def _start(self) -> StreamStart:
        """Where the stream starts; what it needs is held from the first call on."""
        if self._started is None:
            request = SnapshotRequest("begin", self._name, subscription=self._subscription)
            self._started = self._address.ask(request).start
        assert self._started is not None
        return self._started


def _rows(client: Client, worker: int, snapshot: Snapshot, name: str) -> pa.Table:
    """A worker's rows of a snapshot; raises if the table or view has errors there."""
    shard = client.ask(worker, Read(snapshot.dataflow, (snapshot.epoch,), snapshot.hold, wait=True))
    if shard.errors:
        _check_errors(client, snapshot, snapshot.epoch, name)
    return shard.rows


def _check_errors(client: Client, snapshot: Snapshot, epoch: int, name: str) -> None:
    """Raise if a table or view has errors at an epoch: the errors of one worker may cancel those of others."""
    request = ReadErrors(snapshot.dataflow, epoch, snapshot.hold)
    raise_errors(name, [client.ask(worker, request) for worker in range(client.size)])


def _execution() -> int | None:
    """The outermost Spark execution to which this task belongs, if Spark tells."""
    context = TaskContext.get()
    return None if context is None else execution_of(context.getLocalProperty)


def execution_of(find: Callable[[str], str | None]) -> int | None:
    """The outermost Spark execution to which a job belongs, given the values of the job's properties by their names."""
    execution = find(_ROOT_EXECUTION) or find(_EXECUTION)
    return int(execution) if execution else None


def epoch_property(session: str) -> str:
    """The property of a Spark job that says at which epoch to read tables and views of a session."""
    return f"ikebana.epoch.{session}"


def _epoch(session: str) -> int | None:
    """The epoch at which this task's job has to read, if it says so."""
    context = TaskContext.get()
    epoch = context and context.getLocalProperty(epoch_property(session))
    return int(epoch) if epoch else None


def _inserted(changes: pa.Table, name: str) -> pa.Table:
    """The rows of changes; raises if one of them is a deletion."""
    try:
        return plain_rows(changes, name)
    except DataflowError as error:
        raise DataflowError(
            f"rows of {name!r} were deleted, which a stream without `epoch` and `diff` cannot show",
            detail=error.detail,
            hint='use .option("changes", True), and handle the columns `epoch` and `diff`',
        ) from None


def _batches(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """The rows with the names, order, types and nullability that Spark expects."""
    return table.select(schema.names).cast(schema).to_batches()
