"""Following a stream: a Structured Streaming query whose micro-batches become epochs of a table.

Each micro-batch is staged by its tasks (`ikebana.spark.loading`) and committed as one transaction, so that queries see
all of it or nothing. Micro-batches have numbers. When Spark runs one again, after a failure or from a checkpoint, its
number shows that it was committed already, and it changes nothing: for each stream, which has an identity of its own in
its checkpoint, the table remembers the last number. One without rows is no epoch.

Modes. `append` inserts the rows. `upsert` replaces rows by key. `changes` takes a change feed: rows in Debezium's
envelope (`op`, `before`, `after`, possibly inside `payload`), or rows with a column `op` beside their own. In both an
op is one of Debezium's letters (c, r, u, d); in rows also "insert", "update", "upsert" or "delete". What is created,
read or updated according to Debezium is upserted, since its feeds may repeat themselves.

Order. Where a micro-batch has a key several times, the last row counts. With `order_by` that is the one that is
greatest in that column, which may be one that the table does not have (of an envelope: one beside `op`, or inside, such
as "source.lsn"); without it rows are taken in the order in which Spark has them, by one task.

A micro-batch that a table refuses stops the stream, and nothing of it is applied: the error is that of the query,
`Following.failure` and what `wait` raises. Other tables and views go on.

A checkpoint of a stream whose micro-batches went elsewhere (into a table of another session, or one that was dropped)
is refused: the table would have only what comes later (`ikebana.spark.checkpoints`). With `resume` it is accepted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ikebana.engine.deadline import within
from ikebana.errors import DataflowError, IkebanaError, SchemaError, WaitTimeoutError
from ikebana.runtime.messages import TableSpec
from ikebana.spark.checkpoints import check_resumable
from ikebana.spark.errors import spark_error_summary
from ikebana.spark.loading import OP, check_columns
from ikebana.spark.naming import quote

MODES = ("append", "upsert", "changes")
ORDER = "ikebana order"
"""The column by which rows of a key are ordered."""

_DEBEZIUM = {"c": "upsert", "r": "upsert", "u": "upsert", "d": "delete"}
_PLAIN = {"insert": "insert", "update": "upsert", "upsert": "upsert", "delete": "delete", **_DEBEZIUM}

Apply = Callable[[DataFrame, str | None], object]
"""Commits a DataFrame's rows with an op, or by a column `OP`."""


class Following:
    """A stream that a table follows. `stop` ends it; what was committed stays."""

    def __init__(self, table: str, query: Any, commits: Commits) -> None:
        self.table, self._query, self._commits = table, query, commits

    @property
    def query(self) -> Any:
        """Spark's StreamingQuery."""
        return self._query

    @property
    def failure(self) -> IkebanaError | None:
        """Why the stream was stopped, if the table refused a micro-batch."""
        return self._commits.failure

    @property
    def batches(self) -> int:
        """How many micro-batches were committed."""
        return self._commits.committed

    def wait(self, *, timeout: float | None = None) -> None:
        """Return when everything that the source has by now was taken in; raises if the stream has failed.

        After `timeout` seconds it raises too, and the stream goes on.
        """
        try:
            within(self._query.processAllAvailable, timeout, f"waiting for the stream into {self.table!r}")
        except WaitTimeoutError:
            raise
        except Exception as error:
            self._raise(error)
        self._check()

    def end(self) -> None:
        """End the stream, whatever state it is in."""
        with suppress(Exception):
            self._query.stop()

    def stop(self) -> None:
        """End the stream; raises if it had failed."""
        self._query.stop()
        self._check()

    def _check(self) -> None:
        error = self._query.exception()
        if error is not None:
            self._raise(error)

    def _raise(self, error: Exception) -> None:
        if self.failure is not None:
            raise self.failure from None
        raise DataflowError(
            f"the stream that table {self.table!r} follows has failed",
            detail=spark_error_summary(error),
            hint="mend the source and let the table follow it again: with the same checkpoint it goes on where it "
            "stopped, as long as this session lives",
        ) from error

    def __repr__(self) -> str:
        state = "active" if self._query.isActive else "failed" if self._query.exception() is not None else "stopped"
        return f"<stream into {self.table!r}: {state}, {self.batches} micro-batches>"


class Commits:
    """Commits the micro-batches of one stream, each once. `last` has the last one by stream, for all of a table."""

    def __init__(self, apply: Callable[[DataFrame], object], last: dict[str, int]) -> None:
        self._apply, self._last = apply, last
        self._stream, self._started = "", threading.Event()
        self.committed = 0
        self.failure: IkebanaError | None = None

    def start(self, stream: str) -> None:
        """The stream has started, and this is its identity."""
        self._stream = stream
        self._started.set()

    def __call__(self, batch: DataFrame, number: int) -> None:
        self._started.wait()
        if number <= self._last.get(self._stream, -1):
            return
        try:
            self._apply(batch)
        except IkebanaError as error:
            self.failure = error
            raise
        self._last[self._stream] = number
        self.committed += 1


def follow(
    df: DataFrame,
    table: TableSpec,
    apply: Apply,
    last: dict[str, int],
    *,
    tasks: int,
    mode: str,
    order_by: str | None,
    name: str | None,
    checkpoint: str | None,
    trigger: dict[str, Any] | None,
    resume: bool,
) -> Following:
    """Start the query; `last` has the last micro-batch of each stream that the table has followed.

    `tasks` is how many tasks share a micro-batch that has to be put in order.
    """
    if mode not in MODES:
        raise SchemaError(f"there is no mode {mode!r}", hint=f"use one of {', '.join(MODES)}")
    if not isinstance(df, DataFrame) or not df.isStreaming:
        raise SchemaError(
            f"table {table.name!r} cannot follow what is not a stream",
            hint="use load(df) for a batch, or make it with spark.readStream",
        )
    op = {"append": "insert", "upsert": "upsert", "changes": None}[mode]
    rows = flattened(df, table, order_by) if op is None else _with_order(df, order_by, table)
    check_columns(rows.drop(ORDER), table, op)
    if not resume:
        check_resumable(df.sparkSession, table.name, checkpoint, name, last)
    is_ordered = op != "insert" and table.kind == "keyed"

    def commit(batch: DataFrame) -> None:
        ordered = _in_order(batch, table, tasks) if is_ordered else batch
        apply(check_columns(ordered.drop(ORDER), table, op), op)

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
    return Following(table.name, query, commits)


# Order.


def _in_order(batch: DataFrame, table: TableSpec, tasks: int) -> DataFrame:
    """A micro-batch whose rows of one key are in one partition, in order."""
    if ORDER not in batch.columns:
        return batch.coalesce(1)
    return batch.repartition(tasks, *(quote(field.name) for field in table.key)).sortWithinPartitions(quote(ORDER))


def _with_order(df: DataFrame, order_by: str | None, table: TableSpec) -> DataFrame:
    """The rows with a column `ORDER`; one that is only there for that is left out."""
    if order_by is None:
        return df
    found = _selected(df, [F.col("*"), _order(df, order_by)], order_by, table)
    return found if order_by in [field.name for field in table.fields] else found.drop(order_by)


def _order(df: DataFrame, order_by: str) -> Column:
    """The column to order by: one of that name, or else of that path."""
    return F.col(quote(order_by) if order_by in df.columns else order_by).alias(ORDER)


def _selected(df: DataFrame, columns: list[Column], order_by: str | None, table: TableSpec) -> DataFrame:
    try:
        return df.select(*columns)
    except AnalysisException as error:
        raise SchemaError(
            f"table {table.name!r} cannot follow this stream in the order of {order_by!r}",
            detail=spark_error_summary(error),
            hint="name a column of the stream",
        ) from error


# Change feeds.


def flattened(df: DataFrame, table: TableSpec, order_by: str | None = None) -> DataFrame:
    """A change feed as rows with an op each, in a column `OP`, and their order, if there is one, in `ORDER`."""
    kinds = {field.name: field.dataType for field in df.schema}
    if isinstance(kinds.get("payload"), StructType):
        return flattened(df.where(F.col("payload").isNotNull()).select("payload.*"), table, order_by)
    if "op" not in kinds:
        raise SchemaError(
            f"table {table.name!r} cannot follow this stream as a change feed",
            detail=f"there is no column 'op'; the columns are {', '.join(kinds)}",
            hint="give rows in Debezium's envelope (op, before, after), or a column `op` beside the table's",
        )
    order = [] if order_by is None else [_order(df, order_by)]
    before, after = kinds.get("before"), kinds.get("after")
    if isinstance(before, StructType) and isinstance(after, StructType):
        known = df.where(F.col("op").isNotNull())  # a tombstone has none
        return _selected(known, [_op(_DEBEZIUM), *_images(before, after), *order], order_by, table)
    others = [name for name in df.columns if name != "op" and (name != order_by or name in _names(table))]
    return _selected(df, [_op(_PLAIN), *(F.col(quote(name)) for name in others), *order], order_by, table)


def _names(table: TableSpec) -> list[str]:
    return [field.name for field in table.fields]


def _images(before: StructType, after: StructType) -> list[Column]:
    """The columns of rows: as they were, if they are deleted, else as they are. Either may lack some."""
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
    """The column of ops, translated; one that is not known stays, and is refused by name."""
    column = F.col("op")
    translated = F.coalesce(*(F.when(column == known, F.lit(op)) for known, op in names.items()), column)
    return translated.alias(OP)
