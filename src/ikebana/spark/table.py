"""Tables for users of Spark: they accept rows in many forms, DataFrames and streams, and can be read as DataFrames.

A `Table` is a collection: `filter`, `join`, `count` and so on define queries over it. Its changes are checked and
applied in transactions by `ikebana.engine.tables`; this module converts the data and runs the Spark jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql.types import DataType, StructType

from ikebana.cluster.interrupts import complete_or_undo
from ikebana.engine import tables, views
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.deadline import Deadline
from ikebana.engine.held_epochs import HeldEpoch
from ikebana.engine.lookups import given_keys
from ikebana.engine.results import At
from ikebana.engine.tables import Transaction
from ikebana.engine.thread_transactions import current_transaction
from ikebana.errors import DataflowError, SchemaError
from ikebana.operators.linear import Columns
from ikebana.spark.arguments import checked_at, checked_ops, checked_timeout
from ikebana.spark.commands import select_rows
from ikebana.spark.following import FollowedStream, FollowMode, Position, follow
from ikebana.spark.interrupting import run_job
from ikebana.spark.loading import JobRunner, RowSender, check_columns, load_key, stage_frame
from ikebana.spark.looking import DataFrameMethods
from ikebana.spark.naming import is_case_sensitive
from ikebana.spark.progress import with_progress
from ikebana.spark.rows import as_columns, with_time_zones
from ikebana.spark.types import new_field, spark_schema

if TYPE_CHECKING:
    import pandas as pd

    from ikebana.spark.session import Session

LoadMode = Literal["insert", "upsert", "delete"]
_LOAD_MODES: tuple[LoadMode, ...] = ("insert", "upsert", "delete")


class Table(Collection, DataFrameMethods):
    """A table of a session; `Session.create_table` creates one. It is also a collection, to define queries with."""

    def __init__(self, session: Session, inner: tables.Table) -> None:
        self._session = session
        self._become(inner)
        self.name, self.key, self.kind = inner.name, inner.key, inner.kind
        self._streams: list[FollowedStream] = []
        self._last_batches: dict[str, int] = {}
        """The last micro-batch of each stream that was applied, by the identity of the stream."""

    def _become(self, inner: tables.Table) -> None:
        """Be the table of the engine from now on."""
        super().__init__(inner.node)
        self._inner = inner
        coordinator, dataflow = self._session.engine.coordinator, inner.spec.dataflow
        former: views.View | None = getattr(self, "_rows", None)
        self._rows = views.View(coordinator, inner.name, inner.node, dataflow, [], lambda view: None, kind="table")
        if former is not None and former.retention is not None:  # of the rows without an added column
            self._rows.retain(former.retention.after, former.retention.limit)
            former.retain(None)

    @property
    def schema(self) -> StructType:
        """The columns, as a Spark schema."""
        return spark_schema(self.node.columns)

    # Queries.

    def filter(self, predicate: str | Column | Callable[[Columns], Any]) -> Collection:
        """A query for the rows that meet a condition.

        predicate: SQL, such as "region = 'n'"; a Spark column; or a function of whole columns, which gets a dict of
            Arrow arrays and returns an array of booleans, such as `lambda c: pc.equal(c["region"], "n")`.
        """
        if isinstance(predicate, str):
            query: str | DataFrame = select_rows(self.name, predicate)
        elif isinstance(predicate, Column):
            query = self.to_df().where(predicate)
        else:
            return super().filter(predicate)
        self._session._check()
        self._inner.check_not_dropped()
        return self._session._queries.lower(query, f"filter of table {self.name!r}").rows

    # Changes.

    def insert(self, data: Any, *, timeout: float | None = None) -> int | None:
        """Insert rows; fails if the table already has a row with the same key.

        data: dicts, tuples, Spark rows, a mapping of columns, or an Arrow, pandas or polars table. `load` takes a
            Spark DataFrame.
        timeout: after how many seconds to give up; then nothing is applied.

        Returns the epoch of the change; None inside a transaction, which is applied at the end of its block.
        """
        return self.change(data, "insert", timeout=timeout)

    def upsert(self, data: Any, *, timeout: float | None = None) -> int | None:
        """Insert rows, replacing rows with the same key. Arguments and result are those of `insert`."""
        return self.change(data, "upsert", timeout=timeout)

    def delete(self, data: Any, *, timeout: float | None = None) -> int | None:
        """Delete the rows with the given keys; in a table without a key, one copy of each given row.

        `data` may have all columns or only those of the key. If that is one column, its values are enough:
        `delete([1, 2])`. Otherwise arguments and result are those of `insert`.
        """
        return self.change(data, "delete", timeout=timeout)

    def change(self, data: Any, ops: str | Sequence[str] | pa.Array, *, timeout: float | None = None) -> int | None:
        """Insert, upsert and delete rows in one transaction. If a key occurs several times, its last row wins.

        ops: "insert", "upsert" or "delete", for all rows, or one of these for each row.

        Otherwise arguments and result are those of `insert`.
        """
        self._session._check()
        ops, timeout = checked_ops(ops), checked_timeout(timeout)
        key = self._inner.spec.key if isinstance(ops, str) and ops == "delete" else ()
        return self._inner.change(as_columns(data, self.node.columns, key), ops, timeout=timeout)

    def load(
        self,
        df: DataFrame,
        mode: LoadMode = "insert",
        *,
        progress: bool | None = None,
        timeout: float | None = None,
    ) -> int | None:
        """Insert, upsert or delete all rows of a Spark DataFrame, in one transaction.

        Spark's tasks send the rows directly to the workers that own them. If the call is interrupted (Ctrl-C) the Spark
        job is cancelled and nothing is applied.

        mode: "insert", "upsert" or "delete", as the methods of these names.
        progress: whether to show a progress bar. By default on a terminal and in a notebook.
        timeout: after how many seconds to cancel the job; then nothing is applied.

        Returns the epoch of the change; None inside a transaction, which is applied at the end of its block.
        """
        self._session._check()
        self._inner.check_not_dropped()
        if not isinstance(df, DataFrame):
            raise SchemaError(
                f"cannot load a value of type {type(df).__name__} into table {self.name!r}",
                hint="give a Spark DataFrame; insert() takes rows, and Arrow, pandas and polars tables",
            )
        if df.isStreaming:
            raise SchemaError(f"cannot load a stream into table {self.name!r}", hint="use follow(df)")
        if mode not in _LOAD_MODES:
            raise SchemaError(f"unknown load mode {mode!r}", hint=f"use one of {', '.join(_LOAD_MODES)}")
        checked_timeout(timeout)
        rows = check_columns(df, self._inner.spec, mode)
        spark = self._session.spark
        deadline = self._session.engine.coordinator.deadline(timeout, f"loading into {self.name!r}")

        def run(job: Callable[[], list[Row]]) -> list[Row]:
            return run_job(spark, partial(with_progress, spark, f"loading {self.name}", job, progress), deadline)

        return self._apply(rows, mode, run, deadline=deadline)

    def follow(
        self,
        stream: DataFrame,
        mode: FollowMode = "append",
        *,
        order_by: str | None = None,
        name: str | None = None,
        checkpoint: str | None = None,
        trigger: dict[str, Any] | None = None,
        resume: bool = False,
        timeout: float | None = None,
    ) -> FollowedStream:
        """Apply a Spark stream to the table from now on; each micro-batch is applied exactly once, as one transaction.

        stream: a streaming DataFrame (`spark.readStream`).
        mode: "append" inserts rows, "upsert" replaces rows by key, "changes" applies a change feed: rows in Debezium's
            envelope, or rows with a column `op`. See `ikebana.spark.following`.
        order_by: a column of the stream; of several rows with the same key in a micro-batch, the one that is greatest
            in this column wins. By default the last one.
        name, checkpoint, trigger: as for a Spark streaming query, for instance {"processingTime": "1 second"}.
        resume: accept a checkpoint although this table lacks rows that were processed before it. Without `resume` such
            a checkpoint is refused.
        timeout: the stream fails if a micro-batch takes longer than this number of seconds.
        """
        self._session._check()
        self._inner.check_not_dropped()

        def apply(df: DataFrame, op: str | None, position: Position) -> object:
            epoch = self._apply(df, op, self._batch_runner(timeout), position)
            if epoch is None:
                self._skip(position)
            return epoch

        def start() -> FollowedStream:
            followed = follow(
                stream,
                self._inner.spec,
                apply,
                self._last_batches,
                tasks=self._session.workers,
                mode=mode,
                order_by=order_by,
                name=name,
                checkpoint=checkpoint,
                trigger=trigger,
                resume=resume,
            )
            self._streams.append(followed)
            self._session._end_with_session(followed)
            return followed

        return complete_or_undo(start, FollowedStream.end)

    # Positions of streams. They are stored with the rows of a table that is stored.

    def _note(self, position: Position) -> dict[str, Any] | None:
        """What is stored with the transaction of a micro-batch."""
        stream, batch = position
        return {"position": [f"{self._inner.spec.stored_as} {stream}", batch]} if self._inner.spec.stored_as else None

    def _skip(self, position: Position) -> None:
        """Store the position after a micro-batch without rows."""
        storage, note = self._session.engine.storage, self._note(position)
        if storage is not None and note is not None:
            storage.store_note(note)

    def _resume(self, positions: Mapping[str, Any]) -> Self:
        """Take the positions of the streams that the table has followed in earlier sessions."""
        prefix = f"{self._inner.spec.stored_as} "
        if self._inner.spec.stored_as:
            mine = {name.removeprefix(prefix): batch for name, batch in positions.items() if name.startswith(prefix)}
            self._last_batches.update(mine)
        return self

    def _batch_runner(self, timeout: float | None) -> JobRunner:
        """Runs the job of a micro-batch: in the stream's thread, or with a timeout in another one."""
        if timeout is None:
            return lambda job: job()
        what = f"a micro-batch of table {self.name!r}"
        return lambda job: run_job(self._session.spark, job, Deadline(timeout, what))

    def _apply(
        self,
        df: DataFrame,
        op: str | None,
        run: JobRunner,
        position: Position | None = None,
        deadline: Deadline | None = None,
    ) -> int | None:
        """Stage the rows of a DataFrame, and commit them unless they belong to a transaction of this thread.

        `position` is that of a micro-batch, which has its own transaction. If the workers that have the rows are
        replaced by others, the rows are staged again.
        """
        coordinator = self._session.engine.coordinator
        outer = None if position else current_transaction(coordinator)
        if outer is not None:
            self._stage(df, op, run, outer)
            return None
        while True:
            transaction = Transaction(coordinator)
            try:
                transaction.note = self._note(position) if position else None
                if not self._stage(df, op, run, transaction) and position:
                    transaction.abort()  # no epoch: a stream that reads the table would never be idle
                    return None
                return transaction.commit(timeout=None if deadline is None else deadline.seconds_left())
            except BaseException as error:
                transaction.abort()
                is_undone = isinstance(error, DataflowError)
                if not is_undone or not coordinator.has_replaced(transaction.cluster):
                    raise

    def _stage(self, df: DataFrame, op: str | None, run: JobRunner, transaction: Transaction) -> int:
        """Make the rows of a DataFrame part of a transaction; return how many there are."""
        with load_key(self._session.client_keys, transaction.number, self._inner.spec.name) as credentials:
            sender = RowSender(credentials, self._inner.spec, transaction.number, op, tuple(df.columns))
            parts, rows = stage_frame(df, sender, run)
        transaction._adopt(self._inner, parts)
        return rows

    def add_column(self, name: str, type: str | DataType, default: Any = None, *, timeout: float | None = None) -> None:
        """Add a column, in an epoch of its own. All rows that the table has get the value `default`.

        Views that read the table keep their columns and go on. For them, the workers keep the rows without the column
        as well; this memory is freed when the last such view is dropped or replaced. DataFrames of the table have to be
        created again, and streams that the table follows have to be stopped before.

        type: a SQL type such as "BIGINT" or "STRING NOT NULL", or a Spark type.
        timeout: after how many seconds to give up; then nothing has changed.
        """
        self._check_readable()
        session = self._session
        field = new_field(name, type, self.columns, case_sensitive=is_case_sensitive(session.spark))
        if any(stream.query.isActive for stream in self._streams):
            raise DataflowError(
                f"cannot add a column to table {self.name!r}",
                detail="it follows a stream, whose rows do not have the column",
                hint="stop the stream first: table.stop_following()",
            )
        with session._relations.lock:
            self._become(session.engine.add_column(self.name, field, default, timeout=checked_timeout(timeout)))
            session._relations.update_table(self)
            session._frames.hide(self.name)
            session._frames.show(self.name)
        session._expiries.renew(self.name)

    # Arrangements.

    def arrange(self, *key: str, by: str | Sequence[str] | None = None) -> Arrangement:
        """The table indexed by key columns, for queries. With `by`, build this index now and keep it for all queries.

        An index that is kept with `by` exists until `drop_arrangement`, whether or not a query uses it.
        """
        return self._inner.arrange(*key, by=by)

    def drop_arrangement(self, by: str | Sequence[str]) -> None:
        """Release an index that `arrange(by=...)` has built; queries that use it keep it while they need it."""
        self._inner.drop_arrangement(by)

    # Reading.

    def to_df(self, at: At = None, *, timeout: float | None = None) -> DataFrame:
        """The rows as a Spark DataFrame, which reads them from the workers; see `View.to_df`."""
        self._check_readable()
        return self._session._frame_at(self.name, self._rows, at, timeout)

    def to_arrow(self, at: At = None, *, timeout: float | None = None) -> pa.Table:
        """The rows as an Arrow table, at the last closed epoch, or at an epoch or time that is held or retained."""
        self._check_readable()
        return self._rows.to_arrow(checked_at(at), timeout=checked_timeout(timeout)).select(self.columns)

    def to_pandas(self, at: At = None, *, timeout: float | None = None) -> pd.DataFrame:
        """The rows as a pandas DataFrame, at the last closed epoch, or at an epoch or time that is held or retained."""
        return self.to_arrow(at, timeout=timeout).to_pandas()

    @overload
    def count(self) -> int: ...

    @overload
    def count(self, by: str | Sequence[str], name: str = "count") -> Collection: ...

    def count(self, by: str | Sequence[str] | None = None, name: str = "count") -> int | Collection:
        """The number of rows now; with `by`, a query that counts the rows of each key (`Collection.count`)."""
        return self._first_rows(0)[1] if by is None else super().count(by, name)

    def _first_rows(self, limit: int) -> tuple[pa.Table, int]:
        self._check_readable()
        rows, total = self._rows.first_rows(limit)
        return rows.select(self.columns), total

    def _spark(self) -> SparkSession:
        return self._session.spark

    def lookup(self, keys: Any = None, /, *, at: At = None, timeout: float | None = None, **columns: Any) -> pa.Table:
        """The rows that have given values in some columns, as an Arrow table: `table.lookup(id=5)`.

        Arguments and result are those of `View.lookup`. By the key this needs no further arrangement; by other columns,
        the first call keeps one, as `arrange(by=...)` does.
        """
        self._check_readable()
        at, timeout = checked_at(at), checked_timeout(timeout)
        given = given_keys(f"table {self.name!r}", self.columns, keys, columns)
        return self._inner.lookup(with_time_zones(given, self.node.columns), at=at, timeout=timeout)

    def hold(self, *, timeout: float | None = None) -> HeldEpoch:
        """Keep the last closed epoch and all later ones readable: `with table.hold() as held: ...`."""
        self._check_readable()
        return self._rows.hold(timeout=timeout)

    def retain(self, after: str | timedelta | None, limit: int | None = None) -> None:
        """Keep the history of the rows from now on, for a time such as "1 hour"; see `View.retain`."""
        self._check_readable()
        self._session._retain(self.name, self._rows, after, limit)

    def stop_following(self) -> None:
        """End all streams that the table follows."""
        for stream in self._streams:
            stream.end()
        self._streams = []

    def drop(self) -> None:
        """Drop the table and its rows, and stop the streams that it follows. Fails if a view reads the table."""
        self._session._check()
        self._inner.check_not_dropped()
        self._session.drop_table(self.name)

    def _check_readable(self) -> None:
        """Raise if the table was dropped, or is a stream, whose rows are not stored."""
        self._session._check()
        self._inner.check_not_dropped()
        if self.kind == "stream":
            raise DataflowError(
                f"table {self.name!r} cannot be read",
                detail="it is a stream, whose rows are not stored",
                hint="create a view over it, and read the view",
            )

    def __repr__(self) -> str:
        key = f", key {', '.join(self.key)}" if self.key else ""
        return f"<table {self.name}: {', '.join(self.columns)}{key}>"
