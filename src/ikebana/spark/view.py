"""Views as users of Spark have them: a standing query's answer as a DataFrame, and its changes.

Everything but DataFrames is that of `ikebana.engine.views.View`, which this one hands on to: what is read at an epoch
is exact for that epoch, across tables and views, and changes come each epoch once, in order.

Cost: `to_arrow` and `to_pandas` bring the answer to this process, in milliseconds if it is small. A DataFrame costs a
Spark job, and is read by its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ikebana.engine import views
from ikebana.engine.collection import Collection
from ikebana.engine.subscriptions import BACKLOG, BACKLOG_BYTES, OnError
from ikebana.reducers.ordering import sort_table
from ikebana.reducers.sort_keys import SortKey
from ikebana.spark.naming import quote
from ikebana.spark.types import spark_schema

if TYPE_CHECKING:
    from ikebana.spark.session import Session


class View:
    """A standing query of a session. See `Session.view`."""

    def __init__(self, session: Session, inner: views.View, order: Sequence[SortKey] = ()) -> None:
        self._session, self.inner = session, inner
        self.name, self.order = inner.name, tuple(order)
        """`order` is that of the query's ORDER BY, in which the answer is shown."""

    def _check(self) -> None:
        self._session.check()
        self.inner.check()

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [field.name for field in self.inner.plan.columns]

    @property
    def schema(self) -> StructType:
        """The columns, as Spark has them."""
        return spark_schema(self.inner.plan.columns)

    def to_df(self, at: int | None = None, *, timeout: float | None = None) -> DataFrame:
        """The answer as a Spark DataFrame, whose tasks read it from the workers directly.

        Every action on it reads the answer anew: at the epoch that was closed last when the action started to read,
        the same for everything that it reads; or at an epoch that `hold` keeps. An action waits for workers as long as
        they work, or, with `timeout`, for so many seconds in each of its tasks.
        """
        self._check()
        frame = self._session.read(self.name, at, timeout=timeout)
        return frame.orderBy([_sorted_by(key) for key in self.order]) if self.order else frame

    def to_arrow(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """The answer as an Arrow table, at the last closed epoch or at one that is held."""
        self._check()
        found = self.inner.to_arrow(at, timeout=timeout)
        return sort_table(found, self.order) if self.order else found

    def to_pandas(self, at: int | None = None, *, timeout: float | None = None) -> Any:
        """The answer as a pandas frame."""
        return self.to_arrow(at, timeout=timeout).to_pandas()

    def changes(
        self,
        since: str | None = None,
        *,
        timeout: float | None = None,
        backlog: int = BACKLOG,
        backlog_bytes: int = BACKLOG_BYTES,
    ) -> Any:
        """An iterator of (epoch, Arrow table with a column `diff`): each epoch with changes once, in order.

        First the answer as it is, unless `since="now"`. It waits for the next, with `timeout` no longer than so many
        seconds, and ends then. So many rows and bytes may wait on each worker until they are taken; with more it
        raises. It also raises when the view gets errors; the next item is then what has changed when they are gone.
        """
        self._check()
        return self.inner.changes(since, timeout=timeout, backlog=backlog, backlog_bytes=backlog_bytes)

    def subscribe(
        self,
        callback: Callable[[int, pa.Table], object],
        since: str | None = None,
        *,
        backlog: int = BACKLOG,
        backlog_bytes: int = BACKLOG_BYTES,
        on_error: OnError | None = None,
    ) -> Any:
        """The same for a function, called with epoch and table as changes come; `on_error` when errors do."""
        self._check()
        limits = {"backlog": backlog, "backlog_bytes": backlog_bytes}
        return self.inner.subscribe(callback, since, **limits, on_error=on_error)

    def errors(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """The rows for which the view has no value, and why; while there are any, reading it raises."""
        self._check()
        return self.inner.errors(at, timeout=timeout)

    def hold(self, *, timeout: float | None = None) -> Any:
        """Keep the answer of the present epoch on, and all later ones, readable: `with view.hold() as held: ...`."""
        self._check()
        return self.inner.hold(timeout=timeout)

    def wait(self, epoch: int | None = None, *, timeout: float | None = None) -> None:
        """Return when the answer at an epoch is there, by default that of the last closed one."""
        self._check()
        self.inner.wait(self._session.epoch - 1 if epoch is None else epoch, timeout=timeout)

    def rows(self) -> Collection:
        """The answer as a collection, for further views: they share it."""
        self._check()
        return self.inner.rows()

    def drop(self) -> None:
        """Retire the query, and release what only it used; dropping twice does nothing."""
        self._session.forget_view(self)

    def __repr__(self) -> str:
        return f"<view {self.name}: {', '.join(self.columns)}>"


def _sorted_by(key: SortKey) -> Column:
    """A sort key, as Spark has it."""
    column = F.col(quote(key.column))
    if key.ascending:
        return column.asc_nulls_first() if key.nulls_first else column.asc_nulls_last()
    return column.desc_nulls_first() if key.nulls_first else column.desc_nulls_last()
