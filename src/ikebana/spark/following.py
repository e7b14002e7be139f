"""Following a stream: a Structured Streaming query whose micro-batches become epochs of a table.

Each micro-batch is staged by its tasks (`ikebana.spark.loading`) and committed as one transaction, so that queries see
all of it or nothing. Micro-batches have numbers. When Spark runs one again, after a failure, its number shows that it
was committed already, and it changes nothing.

Modes. `append` inserts the rows. `upsert` replaces rows by key. `changes` takes a change feed: rows in Debezium's
envelope (`op`, `before`, `after`, possibly inside `payload`), or rows with a column `op` beside their own.

Order. Where a micro-batch has a key several times, the last row counts. With `order_by` that is the one that is
greatest in that column; without it rows are taken in the order in which Spark has them, by one task.

A micro-batch that a table refuses stops the stream, and nothing of it is applied: the error is that of the query,
`Following.failure` and what `wait` raises. Other tables and views go on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ikebana.dataflow.messages import TableSpec
from ikebana.errors import DataflowError, IkebanaError, SchemaError
from ikebana.spark.loading import OP, check_columns

MODES = ("append", "upsert", "changes")
_DEBEZIUM = {"c": "upsert", "r": "upsert", "u": "upsert", "d": "delete"}
_PLAIN = {"insert": "insert", "update": "upsert", "upsert": "upsert", "delete": "delete", **_DEBEZIUM}

Apply = Callable[[DataFrame, str | None], int]
"""Commits a DataFrame's rows with an op, or by a column `OP`; returns the epoch."""


class Following:
    """A stream that a table follows. `stop` ends it; what was committed stays."""

    def __init__(self, table: str, query: Any, state: _State) -> None:
        self.table, self._query, self._state = table, query, state

    @property
    def query(self) -> Any:
        """Spark's StreamingQuery."""
        return self._query

    @property
    def failure(self) -> IkebanaError | None:
        """Why the stream was stopped, if it was refused."""
        return self._state.failure

    @property
    def batches(self) -> int:
        """How many micro-batches were committed."""
        return self._state.committed

    def wait(self) -> None:
        """Return when everything that the source has by now was taken in; raises if the stream has failed."""
        try:
            self._query.processAllAvailable()
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

    def _raise(self, error: Any) -> None:
        if self._state.failure is not None:
            raise self._state.failure from None
        raise DataflowError(
            f"the stream that table {self.table!r} follows has failed",
            detail=str(error).split("\n", 1)[0],
            hint="mend the source and follow it again; with the same checkpoint it goes on where it stopped",
        ) from error

    def __repr__(self) -> str:
        state = "active" if self._query.isActive else "stopped"
        return f"<stream into {self.table!r}: {state}, {self.batches} micro-batches>"


class _State:
    """What is known of a stream's micro-batches."""

    def __init__(self) -> None:
        self.last = -1  # the number of the last micro-batch that was committed
        self.committed = 0
        self.failure: IkebanaError | None = None


def follow(
    df: DataFrame,
    table: TableSpec,
    apply: Apply,
    *,
    mode: str,
    order_by: str | None,
    name: str | None,
    checkpoint: str | None,
    trigger: dict[str, Any] | None,
) -> Following:
    """Start the query."""
    if mode not in MODES:
        raise SchemaError(f"there is no mode {mode!r}", hint=f"use one of {', '.join(MODES)}")
    if not df.isStreaming:
        raise SchemaError(
            f"table {table.name!r} cannot follow a DataFrame that is not a stream",
            hint="use load(df) for a batch, or make it with spark.readStream",
        )
    op = {"append": "insert", "upsert": "upsert", "changes": None}[mode]
    rows = flattened(df, table) if op is None else df
    extra = [order_by] if order_by and order_by not in [field.name for field in table.fields] else []
    check_columns(rows.drop(*extra), table, op)
    state = _State()

    def commit(batch: DataFrame, number: int) -> None:
        if number <= state.last:
            return
        try:
            apply(check_columns(_in_order(batch, table, mode, order_by).drop(*extra), table, op), op)
        except IkebanaError as error:
            state.failure = error
            raise
        state.last, state.committed = number, state.committed + 1

    writer = rows.writeStream.foreachBatch(commit)
    if name:
        writer = writer.queryName(name)
    if checkpoint:
        writer = writer.option("checkpointLocation", checkpoint)
    if trigger:
        writer = writer.trigger(**trigger)
    return Following(table.name, writer.start(), state)


def _in_order(batch: DataFrame, table: TableSpec, mode: str, order_by: str | None) -> DataFrame:
    """A micro-batch whose rows of one key are in one partition, in order."""
    if mode == "append" or table.kind != "keyed":
        return batch
    if order_by is None:
        return batch.coalesce(1)
    return batch.repartition(*(field.name for field in table.key)).sortWithinPartitions(order_by)


def flattened(df: DataFrame, table: TableSpec) -> DataFrame:
    """A change feed as rows with an op each, in a column `OP`."""
    fields = {field.name: field.dataType for field in df.schema}
    if isinstance(fields.get("payload"), StructType):
        return flattened(df.select("payload.*"), table)
    if "op" not in fields:
        raise SchemaError(
            f"table {table.name!r} cannot follow this stream as a change feed",
            detail=f"there is no column 'op'; the columns are {', '.join(fields)}",
            hint="give rows in Debezium's envelope (op, before, after), or a column `op` beside the table's",
        )
    if isinstance(fields.get("after"), StructType) and isinstance(fields.get("before"), StructType):
        row = F.when(F.col("op") == "d", F.col("before")).otherwise(F.col("after"))
        known = df.where(F.col("op").isNotNull())  # a tombstone has none
        return known.select(_op(_DEBEZIUM), row.alias("row")).select(F.col(f"`{OP}`"), "row.*")
    return df.select(_op(_PLAIN), *(name for name in df.columns if name != "op"))


def _op(names: dict[str, str]) -> Any:
    """The column of ops, translated; one that is not known stays, and is refused by name."""
    column = F.col("op")
    translated = F.coalesce(*(F.when(column == known, F.lit(op)) for known, op in names.items()), column)
    return translated.alias(OP)
