"""Following a stream: a Structured Streaming query whose micro-batches become epochs of a table.

Each micro-batch is staged by its tasks (`ikebana.spark.loading`) and committed as one transaction, so queries see all
of it or nothing. A micro-batch is applied exactly once. Micro-batches have numbers, and streams have an identity, which
is part of their checkpoint; the table remembers the last number of each stream, and a table that is stored keeps it in
one atomic record with the rows. If Spark repeats a micro-batch, after a
failure or from a checkpoint, its number shows that it was committed already, and it is skipped. A micro-batch without
rows does not create an epoch.

Modes. `append` inserts the rows. `upsert` replaces rows by key. `changes` applies a change feed: rows in Debezium's
envelope (`op`, `before`, `after`, possibly inside `payload`), or rows with a column `op`. In both, an op is one of
Debezium's codes (c, r, u, d); in rows it may also be "insert", "update", "upsert" or "delete". Rows that Debezium
creates, reads or updates are upserted, because its feeds may repeat rows.

Order. If a micro-batch has several rows with the same key, the last one wins. With `order_by` that is the row which is
greatest in that column. The column need not be one of the table's; in an envelope it is next to `op`, or nested, such
as "source.lsn". Without `order_by`, rows are applied in the order in which Spark has them, by one task.

Errors. A micro-batch that the table refuses stops the stream, and nothing of it is applied: the error is that of the
query, `FollowedStream.failure`, and what `wait` raises. Other tables and views go on. Spark gets a short form of it
(`_MicroBatchError`): to see whether a stream was stopped, it searches the text for an interrupt by a regular expression
that recurs for every character, and Java's stack would overflow at a Java stack trace.

Checkpoints. The checkpoint of a stream whose micro-batches were applied to another table (of a session without storage
that has ended, or one that was dropped) is refused: their rows would be missing (`ikebana.spark.checkpoints`). With
`resume` it is accepted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, NoReturn

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ikebana.engine.deadline import run_within
from ikebana.errors import DataflowError, IkebanaError, SchemaError, WaitTimeoutError
from ikebana.runtime.messages import TableSpec
from ikebana.spark.checkpoints import check_resumable
from ikebana.spark.errors import spark_error_summary
from ikebana.spark.loading import OP, check_columns
from ikebana.spark.naming import quote

log = logging.getLogger("ikebana")

FollowMode = Literal["append", "upsert", "changes"]
_MODES: tuple[FollowMode, ...] = ("append", "upsert", "changes")

ORDER = "ikebana order"
"""The name of the column that orders rows of the same key."""

_DEBEZIUM_OPS = {"c": "upsert", "r": "upsert", "u": "upsert", "d": "delete"}
_ROW_OPS = {"insert": "insert", "update": "upsert", "upsert": "upsert", "delete": "delete", **_DEBEZIUM_OPS}

_PY4J_ERROR = "py4j.protocol.Py4JJavaError"
"""With this name before it, Spark recognises that a Java exception is an interrupt."""

_JAVA_LINES = 2
"""The first line of a `Py4JJavaError` names the method that was called, the second one the exception of Java."""

Position = tuple[str, int]
"""The identity of a stream, and the number of a micro-batch."""

Apply = Callable[[DataFrame, str | None, Position], object]
"""Applies the rows of a micro-batch, with one op for all rows or with those in the column `OP`."""


class FollowedStream:
    """A stream that a table follows; `Table.follow` starts it. `stop` ends it, and committed rows stay in the table."""

    def __init__(self, table: str, query: StreamingQuery, commits: Commits) -> None:
        self.table, self._query, self._commits = table, query, commits
        log.info("table %r follows a stream", table)
        threading.Thread(target=self._log_end, name=f"ikebana stream into {table}", daemon=True).start()

    @property
    def query(self) -> StreamingQuery:
        """The streaming query of Spark, for its status and progress."""
        return self._query

    @property
    def failure(self) -> IkebanaError | None:
        """The error with which the table refused a micro-batch, if it did; the stream has stopped then."""
        return self._commits.failure if self._query.exception() is not None else None

    @property
    def batches(self) -> int:
        """The number of micro-batches that were committed."""
        return self._commits.committed

    def wait(self, *, timeout: float | None = None) -> None:
        """Wait until all data that the source has now is applied; raises if the stream has failed.

        After `timeout` seconds it raises a `WaitTimeoutError`; the stream goes on.
        """
        try:
            run_within(self._query.processAllAvailable, timeout, f"waiting for the stream into {self.table!r}")
        except WaitTimeoutError:
            raise
        except Exception as error:
            self._raise(error)
        self._check()

    def end(self) -> None:
        """End the stream, without raising if it has failed."""
        with suppress(Exception):
            self._query.stop()

    def stop(self) -> None:
        """End the stream; raises if it has failed."""
        self._query.stop()
        self._check()

    def _log_end(self) -> None:
        """Wait for the end of the stream, and log it."""
        try:
            self._query.awaitTermination()
            log.info("the stream into table %r was stopped after %d micro-batches", self.table, self.batches)
        except StreamingQueryException as error:
            reason = self.failure or spark_error_summary(error)
            log.warning("the stream into table %r has failed: %s", self.table, reason)
        except Exception:  # Spark has ended
            log.info("the stream into table %r has ended with Spark", self.table)

    def _check(self) -> None:
        error = self._query.exception()
        if error is not None:
            self._raise(error)

    def _raise(self, error: Exception) -> NoReturn:
        if self.failure is not None:
            raise self.failure from None
        raise DataflowError(
            f"the stream that table {self.table!r} follows has failed",
            detail=spark_error_summary(error),
            hint="fix the source and follow it again: with the same checkpoint the stream continues where it stopped, "
            "for as long as this session lives",
        ) from error

    def __repr__(self) -> str:
        state = "active" if self._query.isActive else "failed" if self._query.exception() is not None else "stopped"
        return f"<stream into {self.table!r}: {state}, {self.batches} micro-batches>"


class Commits:
    """Commits the micro-batches of a stream, each once. `last` has the last micro-batch of each stream of the table."""

    def __init__(self, apply: Callable[[DataFrame, Position], object], last: dict[str, int]) -> None:
        self._apply, self._last = apply, last
        self._stream, self._started = "", threading.Event()
        self.committed = 0
        self.failure: IkebanaError | None = None

    def start(self, stream: str) -> None:
        """Set the identity of the stream, which is known only when it has started, and begin to commit."""
        self._stream = stream
        self._started.set()

    def __call__(self, batch: DataFrame, number: int) -> None:
        self._started.wait()
        if number <= self._last.get(self._stream, -1):
            return
        try:
            self._apply(batch, (self._stream, number))
        except IkebanaError as error:
            self.failure = error
            raise _MicroBatchError.of(error) from None
        self._last[self._stream] = number
        self.committed += 1


class _MicroBatchError(Exception):
    """What Spark is told about a micro-batch that has failed."""

    @staticmethod
    def of(error: IkebanaError) -> _MicroBatchError:
        """The text of an error, with the Java exception that has caused it, if one has, but without stack traces."""
        if not isinstance(error.__cause__, Py4JJavaError):
            return _MicroBatchError(str(error))
        java = "\n".join(str(error.__cause__).splitlines()[:_JAVA_LINES])
        return _MicroBatchError(f"{error}\n{_PY4J_ERROR}: {java}")


def follow(
    df: DataFrame,
    table: TableSpec,
    apply: Apply,
    last: dict[str, int],
    *,
    tasks: int,
    mode: FollowMode,
    order_by: str | None,
    name: str | None,
    checkpoint: str | None,
    trigger: dict[str, Any] | None,
    resume: bool,
) -> FollowedStream:
    """Start the streaming query.

    `last` has the last micro-batch of each stream that the table has followed. `tasks` is the number of tasks among
    which a micro-batch is partitioned if it has to be sorted. The other arguments are those of `Table.follow`.
    """
    if mode not in _MODES:
        raise SchemaError(f"unknown mode {mode!r}", hint=f"use one of {', '.join(_MODES)}")
    if not isinstance(df, DataFrame) or not df.isStreaming:
        raise SchemaError(
            f"table {table.name!r} can only follow a streaming DataFrame",
            hint="create it with spark.readStream, or use load(df) for a batch",
        )
    op = {"append": "insert", "upsert": "upsert", "changes": None}[mode]
    rows = flattened(df, table, order_by) if op is None else _with_order(df, order_by, table)
    check_columns(rows.drop(ORDER), table, op)
    if not resume:
        check_resumable(df.sparkSession, table.name, checkpoint, name, last)
    is_ordered = op != "insert" and table.kind == "keyed"

    def commit(batch: DataFrame, position: Position) -> None:
        ordered = _in_order(batch, table, tasks) if is_ordered else batch
        apply(check_columns(ordered.drop(ORDER), table, op), op, position)

    commits = Commits(commit, last)
    writer = rows.writeStream.foreachBatch(commits.__call__)
    if name:
        writer = writer.queryName(name)
    if checkpoint:
        writer = writer.option("checkpointLocation", checkpoint)
    if trigger:
        writer = writer.trigger(**trigger)
    query = writer.start()
    commits.start(str(query.id))
    return FollowedStream(table.name, query, commits)


# Order.


def _in_order(batch: DataFrame, table: TableSpec, tasks: int) -> DataFrame:
    """A micro-batch in which all rows of a key are in one partition, in order."""
    if ORDER not in batch.columns:
        return batch.coalesce(1)
    return batch.repartition(tasks, *(quote(field.name) for field in table.key)).sortWithinPartitions(quote(ORDER))


def _with_order(df: DataFrame, order_by: str | None, table: TableSpec) -> DataFrame:
    """The rows with a column `ORDER`; without the column `order_by` if the table does not have it."""
    if order_by is None:
        return df
    rows = _select(df, [F.col("*"), _order(df, order_by)], order_by, table)
    return rows if order_by in _names(table) else rows.drop(order_by)


def _order(df: DataFrame, order_by: str) -> Column:
    """The column to order by: `order_by` is its name, or the path of a nested field."""
    return F.col(quote(order_by) if order_by in df.columns else order_by).alias(ORDER)


def _select(df: DataFrame, columns: list[Column], order_by: str | None, table: TableSpec) -> DataFrame:
    try:
        return df.select(*columns)
    except AnalysisException as error:
        raise SchemaError(
            f"table {table.name!r} cannot follow this stream in the order of {order_by!r}",
            detail=spark_error_summary(error),
            hint="give the name of a column of the stream",
        ) from error


# Change feeds.


def flattened(df: DataFrame, table: TableSpec, order_by: str | None = None) -> DataFrame:
    """A change feed as rows of the table, with the op in a column `OP`, and with `ORDER` if there is an `order_by`."""
    kinds = {field.name: field.dataType for field in df.schema}
    if isinstance(kinds.get("payload"), StructType):
        return flattened(df.where(F.col("payload").isNotNull()).select("payload.*"), table, order_by)
    if "op" not in kinds:
        raise SchemaError(
            f"table {table.name!r} cannot follow this stream as a change feed",
            detail=f"there is no column 'op'; the columns are {', '.join(kinds)}",
            hint="give rows in Debezium's envelope (op, before, after), or the table's columns and a column `op`",
        )
    order = [] if order_by is None else [_order(df, order_by)]
    before, after = kinds.get("before"), kinds.get("after")
    if isinstance(before, StructType) and isinstance(after, StructType):
        known = df.where(F.col("op").isNotNull())  # a tombstone has no op
        return _select(known, [_op(_DEBEZIUM_OPS), *_images(before, after), *order], order_by, table)
    others = [name for name in df.columns if name != "op" and (name != order_by or name in _names(table))]
    return _select(df, [_op(_ROW_OPS), *(F.col(quote(name)) for name in others), *order], order_by, table)


def _names(table: TableSpec) -> list[str]:
    return [field.name for field in table.fields]


def _images(before: StructType, after: StructType) -> list[Column]:
    """The columns of rows: from `before` if the row is deleted, else from `after`. Either may lack some columns."""
    is_delete, kinds = F.col("op") == "d", {field.name: field.dataType for field in (*before, *after)}
    columns = []
    for name, kind in kinds.items():
        images = [
            F.col(f"{image}.{quote(name)}") if name in fields.names else F.lit(None).cast(kind)
            for image, fields in (("before", before), ("after", after))
        ]
        columns.append(F.when(is_delete, images[0]).otherwise(images[1]).alias(name))
    return columns


def _op(names: dict[str, str]) -> Column:
    """The column of ops, translated; an unknown op is not changed, and refused by name when it is applied."""
    column = F.col("op")
    translated = F.coalesce(*(F.when(column == known, F.lit(op)) for known, op in names.items()), column)
    return translated.alias(OP)
