"""Tables as users of Spark have them: rows in whatever form come in, DataFrames and streams too, DataFrames come out.

A `Table` is a collection: `filter`, `join`, `count` and the rest make queries of it. Its changes are checked and
applied in transactions (`ikebana.engine.tables` says how), which this module only feeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ikebana.cluster.interrupts import completed
from ikebana.engine import tables, views
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.deadline import Deadline
from ikebana.engine.tables import Transaction
from ikebana.errors import DataflowError, SchemaError
from ikebana.spark.following import Following, follow
from ikebana.spark.interrupting import run_job
from ikebana.spark.loading import Sender, check_columns, stage_frame
from ikebana.spark.progress import with_progress
from ikebana.spark.rows import as_columns
from ikebana.spark.types import spark_schema

if TYPE_CHECKING:
    from ikebana.spark.session import Session

_LOADS = ("insert", "upsert", "delete")


class Table(Collection):
    """A table of a session. See `Session.create_table`."""

    def __init__(self, session: Session, inner: tables.Table) -> None:
        super().__init__(inner.node)
        self.inner, self._session = inner, session
        self.name, self.key, self.kind = inner.name, inner.key, inner.kind
        self._followings: list[Following] = []
        self._last: dict[str, int] = {}  # the last micro-batch of each stream that it has followed
        coordinator, dataflow = session.engine.coordinator, inner.spec.dataflow
        self._rows = views.View(coordinator, inner.name, inner.node, dataflow, [], lambda view: None, kind="table")

    @property
    def schema(self) -> StructType:
        """The columns, as Spark has them."""
        return spark_schema(self.node.columns)

    # Changes.

    def insert(self, data: Any, *, timeout: float | None = None) -> int | None:
        """Add rows: dicts, tuples, Spark rows, columns by name, or an Arrow, pandas or polars table.

        Their keys must not be there yet. Returns the epoch at which they are there; None inside a transaction.
        """
        return self.change(data, "insert", timeout=timeout)

    def upsert(self, data: Any, *, timeout: float | None = None) -> int | None:
        """Add rows in place of those with the same keys."""
        return self.change(data, "upsert", timeout=timeout)

    def delete(self, data: Any, *, timeout: float | None = None) -> int | None:
        """Take rows away: those with the given keys, or, where there is no key, one copy of each row given."""
        return self.change(data, "delete", timeout=timeout)

    def change(self, data: Any, ops: Any, *, timeout: float | None = None) -> int | None:
        """Rows with an op ("insert", "upsert", "delete") for all, or one for each. The last one for a key wins."""
        self._session.check()
        key = self.inner.spec.key if isinstance(ops, str) and ops == "delete" else ()
        return self.inner.change(as_columns(data, self.node.columns, key), ops, timeout=timeout)

    def load(
        self, df: DataFrame, mode: str = "insert", *, progress: bool | None = None, timeout: float | None = None
    ) -> int | None:
        """All rows of a DataFrame, as one transaction: inserted, or by key upserted or deleted.

        Spark's tasks hand them straight to the workers that own them. A bar shows progress on a terminal. If it all
        takes longer than `timeout` seconds, the job is cancelled and nothing is applied. So it is when the call is
        interrupted (Ctrl-C).
        """
        self._session.check()
        self.inner.check()
        if not isinstance(df, DataFrame):
            raise SchemaError(
                f"cannot load a {type(df).__name__} into table {self.name!r}",
                hint="give a Spark DataFrame; insert() takes rows, and Arrow, pandas and polars tables",
            )
        if df.isStreaming:
            raise SchemaError(f"table {self.name!r} cannot load a stream", hint="use follow(df)")
        if mode not in _LOADS:
            raise SchemaError(f"there is no way {mode!r} to load", hint=f"use one of {', '.join(_LOADS)}")
        rows = check_columns(df, self.inner.spec, mode)
        spark = self._session.spark
        deadline = self._session.engine.coordinator.deadline(timeout, f"loading into {self.name!r}")

        def run(job: Callable[[], Any]) -> Any:
            return run_job(spark, partial(with_progress, spark, f"loading {self.name}", job, progress), deadline)

        return self._apply(rows, mode, run, deadline=deadline)

    def follow(
        self,
        stream: DataFrame,
        mode: str = "append",
        *,
        order_by: str | None = None,
        name: str | None = None,
        checkpoint: str | None = None,
        trigger: dict[str, Any] | None = None,
        resume: bool = False,
        timeout: float | None = None,
    ) -> Following:
        """Take in a stream from now on: each of its micro-batches is a transaction. See `ikebana.spark.following`.

        `mode` is "append", "upsert" or "changes"; `order_by` says which row of a key is the last; `name`, `checkpoint`
        and `trigger` (such as {"processingTime": "1 second"}) are Spark's. A checkpoint of a stream whose rows went
        elsewhere is refused, since these would be missing; with `resume` the table takes what comes after them. A
        micro-batch that takes longer than `timeout` seconds, if that is given, ends the stream.
        """
        self._session.check()
        self.inner.check()

        def apply(df: DataFrame, op: str | None) -> object:
            return self._apply(df, op, self._micro_batch(timeout), Transaction(self._session.engine.coordinator))

        def start() -> Following:
            following = follow(
                stream,
                self.inner.spec,
                apply,
                self._last,
                tasks=self._session.workers,
                mode=mode,
                order_by=order_by,
                name=name,
                checkpoint=checkpoint,
                trigger=trigger,
                resume=resume,
            )
            self._followings.append(following)
            self._session.adopt(following)
            return following

        return completed(start, Following.end)

    def _micro_batch(self, timeout: float | None) -> Callable[[Callable[[], Any]], Any]:
        """How the job of a micro-batch is run: by the stream's own thread, unless that has to look at the time."""
        if timeout is None:
            return lambda job: job()
        what = f"a micro-batch of table {self.name!r}"
        return lambda job: run_job(self._session.spark, job, Deadline(timeout, what))

    def _apply(
        self,
        df: DataFrame,
        op: str | None,
        run: Callable[[Callable[[], Any]], Any],
        own: Transaction | None = None,
        deadline: Deadline | None = None,
    ) -> Any:
        """Stage the rows of a DataFrame, and commit them unless they belong to a transaction of this thread."""
        coordinator = self._session.engine.coordinator
        outer = None if own else tables.current(coordinator)
        transaction = outer or own or Transaction(coordinator)
        try:
            sender = Sender(self._session.invitation, self.inner.spec, transaction.number, op, tuple(df.columns))
            parts, rows = stage_frame(df, sender, run)
            if own and not rows:  # no epoch for nothing: a stream that reads from here would never come to rest
                own.abort()
                return None
            transaction.adopt(self.inner, parts)
            return None if outer else transaction.commit(timeout=None if deadline is None else deadline.left())
        except BaseException:
            if outer is None:
                transaction.abort()
            raise

    # Arrangements.

    def arrange(self, *key: str, by: str | Sequence[str] | None = None) -> Arrangement:
        """Indexed by key columns. With `by` the arrangement is kept from now on, for all queries to share."""
        return self.inner.arrange(*key, by=by)

    def drop_arrangement(self, by: str | Sequence[str]) -> None:
        """Let go of an arrangement; queries that use it keep it as long as they need it."""
        self.inner.drop_arrangement(by)

    # Reading.

    def to_df(self, at: int | None = None, *, timeout: float | None = None) -> DataFrame:
        """The rows as a Spark DataFrame, read by its tasks from the workers directly; see `View.to_df`."""
        self.check_kept()
        return self._session.read(self.name, at, timeout=timeout)

    def to_arrow(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """The rows as an Arrow table, at the last closed epoch or at one that is held."""
        self.check_kept()
        return self._rows.to_arrow(at, timeout=timeout).select(self.columns)

    def to_pandas(self, at: int | None = None, *, timeout: float | None = None) -> Any:
        """The rows as a pandas frame, at the last closed epoch or at one that is held."""
        return self.to_arrow(at, timeout=timeout).to_pandas()

    def hold(self, *, timeout: float | None = None) -> Any:
        """Keep the rows of the present epoch on, and all later ones, readable: `with table.hold() as held: ...`."""
        self.check_kept()
        return self._rows.hold(timeout=timeout)

    def stop_following(self) -> None:
        """End the streams that the table follows."""
        for following in self._followings:
            following.end()
        self._followings = []

    def drop(self) -> None:
        """Drop the table and its rows; refused while a view uses it. Streams that it follows end."""
        self._session.check()
        self.inner.check()
        self._session.drop_table(self.name)

    def check_kept(self) -> None:
        """Raise if there is nothing to read."""
        self._session.check()
        self.inner.check()
        if self.kind == "stream":
            raise DataflowError(
                f"table {self.name!r} cannot be read",
                detail="it is a stream, of which nothing is kept",
                hint="make a view",
            )

    def __repr__(self) -> str:
        key = f", key {', '.join(self.key)}" if self.key else ""
        return f"<table {self.name}: {', '.join(self.columns)}{key}>"
