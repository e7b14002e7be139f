"""Views for users of Spark: the result of a standing query as a DataFrame, and its changes.

Everything except DataFrames and ORDER BY is passed on to `ikebana.engine.views.View`: a read at an epoch is exact for
that epoch, across tables and views, and the changes of each epoch are delivered once, in order.

`show`, `collect` and others of PySpark's names are in `ikebana.spark.looking`.

Cost: `to_arrow` and `to_pandas` bring the rows to this process, in milliseconds if they are few; `lookup` brings those
of a key, with one request to the worker that owns it. An action on a DataFrame costs a Spark job, whose tasks read the
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ikebana.engine import views
from ikebana.engine.collection import Collection
from ikebana.engine.held_epochs import HeldEpoch
from ikebana.engine.lookups import given_keys
from ikebana.engine.results import At
from ikebana.engine.subscriptions import BACKLOG, BACKLOG_BYTES, OnChange, OnError, Subscription
from ikebana.engine.views import Since
from ikebana.errors import IkebanaError
from ikebana.reducers.ordering import sort_table
from ikebana.reducers.sort_keys import SortKey
from ikebana.spark.arguments import checked_at, checked_epoch, checked_timeout
from ikebana.spark.looking import DataFrameMethods
from ikebana.spark.naming import quote
from ikebana.spark.progress import progress
from ikebana.spark.rows import with_time_zones
from ikebana.spark.types import spark_schema
from ikebana.spark.verifying import Definition, Verification, verify

if TYPE_CHECKING:
    import pandas as pd

    from ikebana.spark.session import Session


Result = TypeVar("Result")


class View(DataFrameMethods):
    """A query whose result is kept up to date; `Session.view` creates one."""

    def __init__(
        self,
        session: Session,
        inner: views.View,
        order: Sequence[SortKey] = (),
        definition: Definition | None = None,
    ) -> None:
        """`order` is the ORDER BY of the query; DataFrames, Arrow tables and pandas DataFrames are sorted by it.

        `definition` is the query, if it is one that Spark can answer.
        """
        self._session, self._inner = session, inner
        self.name, self._order, self._definition = inner.name, tuple(order), definition
        self.created = datetime.now()
        """When the view was created, or got its present query."""
        self._was_read = False  # then the result was complete: to read it again should not take long

    def _check(self) -> None:
        self._session._check()
        self._inner.check_not_dropped()

    def _become(self, inner: views.View, order: Sequence[SortKey], definition: Definition | None) -> None:
        """Show the result of another query from now on."""
        self._inner, self._order, self._definition = inner, tuple(order), definition
        self.created = datetime.now()

    def _read(self, read: Callable[[views.View, Sequence[SortKey]], Result]) -> Result:
        """What is read from the result; if the view is replaced meanwhile, from the new result."""
        while True:
            self._check()
            inner, order = self._inner, self._order
            try:
                with self._computing():
                    return read(inner, order)
            except IkebanaError:
                if inner is self._inner:
                    raise

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """A block that waits for the result; it shows its progress until the result was complete for the first time."""
        with nullcontext() if self._was_read else progress(f"computing view {self.name}"):
            yield
        self._was_read = True

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [field.name for field in self._inner.plan.columns]

    @property
    def schema(self) -> StructType:
        """The columns, as a Spark schema."""
        return spark_schema(self._inner.plan.columns)

    # Reading.

    def to_df(self, at: At = None, *, timeout: float | None = None) -> DataFrame:
        """The rows as a Spark DataFrame, whose tasks read them directly from the workers.

        Every action on the DataFrame reads the last closed epoch anew, and sees one epoch of all tables and views that
        it reads. If you group, join or sort it, Spark keeps what it has shuffled for the first action on that result:
        create the result again to see later changes.

        at: an epoch to read, or a time, which means the last epoch that was closed then. `hold` or `retain` must keep
            it, for as long as the DataFrame is used.
        timeout: how many seconds each task may wait for the workers. None for no limit.
        """
        self._check()
        frame = self._session._frame_at(self.name, self._inner, at, timeout)
        if not self._order:
            return frame
        # Unlike orderBy, this does not shuffle: Spark would keep the shuffled rows, and not read them anew.
        return frame.coalesce(1).sortWithinPartitions([_sorted_by(key) for key in self._order])

    def to_arrow(self, at: At = None, *, timeout: float | None = None) -> pa.Table:
        """The rows as an Arrow table, at the last closed epoch, or at an epoch or time that is held or retained."""
        at, timeout = checked_at(at), checked_timeout(timeout)
        return self._read(lambda inner, order: _sorted(inner.to_arrow(at, timeout=timeout), order))

    def to_pandas(self, at: At = None, *, timeout: float | None = None) -> pd.DataFrame:
        """The rows as a pandas DataFrame, at the last closed epoch, or at an epoch or time that is held or retained."""
        return self.to_arrow(at, timeout=timeout).to_pandas()

    def count(self) -> int:
        """The number of rows, which the workers count."""
        return self._first_rows(0)[1]

    def _first_rows(self, limit: int) -> tuple[pa.Table, int]:
        def read(inner: views.View, order: Sequence[SortKey]) -> tuple[pa.Table, int]:
            if not order or not limit:
                return inner.first_rows(limit)
            rows = _sorted(inner.to_arrow(), order)
            return rows.slice(0, limit), rows.num_rows

        return self._read(read)

    def _spark(self) -> SparkSession:
        return self._session.spark

    def lookup(self, keys: Any = None, /, *, at: At = None, timeout: float | None = None, **columns: Any) -> pa.Table:
        """The rows that have given values in some columns, as an Arrow table: `view.lookup(customer=5)`.

        Only the workers that own the keys are asked, without a Spark job. The rows are those at the last closed epoch
        when the call began, or at a later one.

        keys: instead of keyword arguments, a dict, a list of dicts or Spark rows, or an Arrow table.
        at: an epoch or time that is held or retained.
        timeout: how many seconds the call may take.
        columns: a value for each column, or a list of values for each to look up several keys.

        The first call for columns by which the view is not arranged yet arranges it by them, which takes time and
        memory in proportion to the view. The arrangement is kept, and shared with other queries, until the view is
        dropped.
        """
        self._check()
        at, timeout = checked_at(at), checked_timeout(timeout)
        given = given_keys(f"view {self.name!r}", self.columns, keys, columns)

        def read(inner: views.View, order: Sequence[SortKey]) -> pa.Table:
            return _sorted(inner.lookup(with_time_zones(given, inner.plan.columns), at=at, timeout=timeout), order)

        return self._read(read)

    def errors(self, at: At = None, *, timeout: float | None = None) -> pa.Table:
        """The rows for which an expression of the view has no value, and why (columns `error`, `row`, `diff`).

        While there are such rows, reading the view raises an `EvaluationError`.
        """
        self._check()
        return self._inner.errors(checked_at(at), timeout=checked_timeout(timeout))

    def hold(self, *, timeout: float | None = None) -> HeldEpoch:
        """Keep the last closed epoch and all later ones readable: `with view.hold() as held: ...`."""
        self._check()
        return self._inner.hold(timeout=checked_timeout(timeout))

    def retain(self, after: str | timedelta | None, limit: int | None = None) -> None:
        """Keep the history of the view from now on, for a time such as "1 hour" or a `timedelta`; None to keep none.

        `to_df`, `to_arrow`, `collect` and others can then read `at` every epoch of that time, and at every moment of
        it; `changes(since=...)` begins after one of them. The changes of that time stay in memory.

        limit: how many bytes of changes are kept, on all workers together; the oldest of more are given up sooner.
        """
        self._check()
        self._session._retain(self.name, self._inner, after, limit)

    def wait(self, epoch: int | None = None, *, timeout: float | None = None) -> None:
        """Wait until the result at an epoch is complete, by default at the last closed one."""
        self._check()
        epoch = checked_epoch(epoch)
        with self._computing():
            self._inner.wait(self._session.epoch - 1 if epoch is None else epoch, timeout=checked_timeout(timeout))

    def verify(self) -> Verification:
        """Compare the rows with Spark's own answer to the query, over the same tables at the same epoch.

        The result is true if they are equal; otherwise it shows rows that only one of them has. Spark computes the
        query anew, and both answers are brought to this process: this is for views of thousands of rows.
        """
        self._check()
        return verify(self._session, self, self._definition)

    # Changes.

    def changes(
        self,
        since: Since = None,
        *,
        timeout: float | None = None,
        backlog: int = BACKLOG,
        backlog_bytes: int = BACKLOG_BYTES,
        name: str | None = None,
        retain: str | timedelta | None = None,
        retain_bytes: int | None = None,
    ) -> Subscription:
        """Iterate over the changes: `for epoch, table in view.changes(): ...`.

        Each item is an epoch and an Arrow table of the rows that changed, with a column `diff`: how many copies of the
        row were added, or removed if it is negative. Every epoch with changes comes once, in order. The iterator raises
        an `EvaluationError` when the view gets errors; the next item then has the changes since the last one, and comes
        when the errors are gone.

        since: by default the first item has all rows of the view. "now" leaves it out. With an epoch or a time that is
            held or retained, the changes after it come first.
        timeout: how many seconds to wait for the next item before the iterator ends. None for no limit.
        backlog, backlog_bytes: how many rows and bytes may wait on each worker to be consumed; if there are more, the
            iterator raises.
        name: the name of a subscription that is stored in the session's storage directory, and is created if there is
            none. `ack(epoch)` of the iterator acknowledges an epoch, and all before it. Whoever opens the
            subscription next, after any crash, gets the changes after the last acknowledged epoch. `since` is only for
            a new subscription.
        retain, retain_bytes: for how long, and up to how many bytes, changes wait to be acknowledged, by default "7
            days" and 1 GB. Then the subscription fails.
        """
        self._check()
        options: dict[str, Any] = {"timeout": timeout, "backlog": backlog, "backlog_bytes": backlog_bytes}
        return self._inner.changes(since, name=name, retain=retain, retain_bytes=retain_bytes, **options)

    def subscribe(
        self,
        callback: OnChange,
        since: Since = None,
        *,
        backlog: int = BACKLOG,
        backlog_bytes: int = BACKLOG_BYTES,
        on_error: OnError | None = None,
        name: str | None = None,
    ) -> Subscription:
        """Call `callback(epoch, table)` in a background thread for every epoch with changes, until `close()`.

        The arguments are those of `changes`. `on_error` is called with an `EvaluationError` when the view gets errors;
        without it the error is logged. If `callback` raises, the subscription is closed, and the exception is logged
        and kept as `error` of the subscription, which this method returns.

        With `name`, the subscription is stored, and an epoch is acknowledged when `callback` has returned.
        """
        self._check()
        options: dict[str, Any] = {"backlog": backlog, "backlog_bytes": backlog_bytes, "name": name}
        return self._inner.subscribe(callback, since, on_error=on_error, **options)

    # Using and dropping it.

    def rows(self) -> Collection:
        """The result as a collection, to define further views with, which share it."""
        self._check()
        return self._inner.rows()

    def drop(self) -> None:
        """Drop the view, and release the arrangements that only it used. Dropping twice does nothing."""
        self._session._check()
        self._session._view_lifecycle.drop(self)

    def __repr__(self) -> str:
        return f"<view {self.name}: {', '.join(self.columns)}>"


def _sorted(rows: pa.Table, order: Sequence[SortKey]) -> pa.Table:
    return sort_table(rows, order) if order else rows


def _sorted_by(key: SortKey) -> Column:
    """A sort key, as a Spark column."""
    column = F.col(quote(key.column))
    if key.ascending:
        return column.asc_nulls_first() if key.nulls_first else column.asc_nulls_last()
    return column.desc_nulls_first() if key.nulls_first else column.desc_nulls_last()
