"""How Spark writes to a table: `df.write.format("ikebana")`, and `writeStream` for streams.

Each task stages the rows of its partition on the workers that own them, as for `Table.load`. A batch, or a micro-batch
of a stream, is one transaction: queries see all of it or nothing (`ikebana.spark.writes`). A writer has the key of its
job, which it gets from the driver when it is created: it can only write to this table.

Columns are checked before the job starts. If a worker refuses rows, the task reports this instead of failing, since a
retry would not help, and the commit raises the error. The option `op` says whether rows are inserted, upserted or
deleted. Writing streams needs Spark 4.1, which passes micro-batches as Arrow batches; `Table.follow` needs only 4.0,
reads change feeds, and can order the rows of a micro-batch.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ikebana.cluster.client import Client
from ikebana.errors import DataflowError, SchemaError
from ikebana.spark.internals import StreamArrowWriter
from ikebana.spark.loading import RowSender, TaskReport, check_schema, staged_parts
from ikebana.spark.snapshots import DriverReply, SessionAddress, WriteRequest, ask_driver

_STREAM_PROPERTY = "sql.streaming.queryId"


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged, for which job, and the identity of the stream if it belongs to one.

    Spark commits a micro-batch with another writer than the one that has staged it, which knows the job from this.
    """

    report: TaskReport
    job: str
    stream: str


class _Writer:
    """Stages rows in tasks, and asks the driver to commit or abort."""

    def __init__(self, address: SessionAddress, request: WriteRequest, schema: StructType, overwrite: bool) -> None:
        """`request` has the kind "describe"."""
        if overwrite:
            raise SchemaError(
                f"table {request.table!r} cannot be overwritten",
                hint='use mode("append"), or outputMode("append") for a stream',
            )
        reply = address.ask(request)
        assert reply.table is not None and reply.credentials is not None
        self._credentials, self._table = reply.credentials, reply.table.spec
        self._names, self._selected = tuple(schema.names), tuple(check_schema(schema, self._table, request.op))
        self._request = replace(request, table=self._table.name, job=secrets.token_hex(8))

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        stream = (context and context.getLocalProperty(_STREAM_PROPERTY)) or ""
        transaction = self._ask(replace(self._request, kind="begin", stream=stream)).number
        request = self._request
        sender = RowSender(self._credentials, self._table, transaction, request.op, self._selected)
        selected = (batch.rename_columns(self._names).select(list(self._selected)) for batch in batches)
        return Staged(sender.send(selected), request.job, stream)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], batch: int = -1) -> None:
        staged = [message for message in messages if isinstance(message, Staged)]
        if not staged:  # no tasks, no rows
            return
        request = replace(self._request, job=staged[0].job, stream=staged[0].stream if batch >= 0 else "", batch=batch)
        try:
            parts, rows = staged_parts(message.report for message in staged)
        except BaseException:
            self._abort(messages)
            raise
        self._ask(replace(request, kind="commit", parts=parts, rows=rows))

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        jobs = {self._request.job, *(message.job for message in messages if isinstance(message, Staged))}
        for job in jobs:
            with suppress(DataflowError):  # it was aborted before, and its key is useless; or the session has ended
                self._ask(replace(self._request, kind="abort", job=job))

    def _ask(self, request: WriteRequest) -> DriverReply:
        with Client(self._credentials) as client:
            return ask_driver(client, request)


class TableWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame to a table."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class StreamWriter(_Writer, StreamArrowWriter):
    """Writes the micro-batches of a stream to a table."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


def stream_writer(
    address: SessionAddress, request: WriteRequest, schema: StructType, overwrite: bool
) -> DataSourceStreamWriter:
    """A writer for micro-batches; raises if this version of Spark cannot pass them as Arrow batches."""
    if StreamArrowWriter is DataSourceStreamWriter:
        raise DataflowError(
            f"this version of Spark cannot write streams to table {request.table!r}", hint="use table.follow(stream)"
        )
    return StreamWriter(address, request, schema, overwrite)
