"""Sessions: what a user of Spark works with. Tables, views over them, and what there is of both.

    session = ik.connect(spark)                              # workers start as Spark tasks
    orders = session.create_table("orders", schema, key="id")
    orders.load(df)                                          # a Spark job; nothing passes through the driver
    orders.follow(stream_df)                                 # a micro-batch is an epoch
    late = session.view("late", orders.filter(...).count("region"))
    late.to_df()                                             # a Spark DataFrame: the answer as of now
    for epoch, changes in late.changes(): ...

A session owns its workers, and with them all tables and views. `close`, leaving the `with` block and the end of the
program end the Spark job that hosts them; nothing is left running. A SparkSession that was given stays. Several
sessions can live beside each other on one SparkSession.

An interrupt (Ctrl-C, a notebook's stop button) ends the call that it comes in, and what that has started: a load's
Spark job and its transaction, a view that was being made. Tables, views and the SparkSession stay.

Threads. A session may be used from several threads. Changes are applied one transaction after the other; readers do
not wait for each other, nor for writers.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from ikebana.cluster.interrupts import completed, deferred
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.engine import Engine, result_arrangement
from ikebana.engine.tables import Transaction
from ikebana.errors import DroppedError, SchemaError
from ikebana.operators.row_errors import raise_present
from ikebana.runtime.messages import ReadErrors
from ikebana.spark.executions import Executions
from ikebana.spark.following import Following
from ikebana.spark.listing import Card, Listing
from ikebana.spark.naming import check_free, is_case_sensitive, resolved
from ikebana.spark.planning import Parameters
from ikebana.spark.querying import Queries
from ikebana.spark.snapshot_server import SnapshotServer
from ikebana.spark.snapshots import Readable, SessionAddress
from ikebana.spark.source import FORMAT, register
from ikebana.spark.table import Table
from ikebana.spark.types import fields_of, spark_schema
from ikebana.spark.view import View
from ikebana.spark.workers import SparkWorkers
from ikebana.sql import Lowered
from ikebana.sql import SourceTable as Relation
from ikebana.sql.statements import Statement


def connect(
    spark: SparkSession | None = None,
    workers: int | None = None,
    *,
    share: bool = True,
    effort: str = "default",
    timeout: float | None = None,
    **options: Any,
) -> Session:
    """Start workers on Spark, and a session with them.

    Without `spark` the active SparkSession is taken, or a local one is started, and stopped with the session. `workers`
    is as many as there are processors, or as Spark has slots to spare. `share=False` lets every view build its own
    arrangements, to see what sharing saves; `effort` is how eagerly these are merged: "eager", "default" or "lazy".
    `timeout` is how many seconds calls that wait for workers may take, unless they are told otherwise; None for as many
    as it takes. Further options are those of `SparkWorkers`.
    """
    cluster = SparkWorkers(spark, workers, effort=effort, **options)
    try:
        return Session(cluster, share=share, timeout=timeout)
    except BaseException:
        with deferred():
            cluster.close()
        raise


Query = str | DataFrame | Collection | Arrangement
"""What a view can be made of."""

_sessions: list[weakref.ref[Session]] = []
"""Those of this process, the last one last."""


class Session:
    """Tables and views on workers that Spark hosts."""

    def __init__(self, cluster: SparkWorkers, *, share: bool = True, timeout: float | None = None) -> None:
        self._cluster = cluster
        self.engine = Engine(cluster=cluster, share=share, timeout=timeout)
        """The engine below: epochs, inputs and plans, without Spark."""
        self._snapshots = SnapshotServer(self.engine.coordinator, self._readable, Executions(cluster.spark))
        self._tables: dict[str, Table] = {}
        self._views: dict[str, View] = {}
        self._relations: dict[str, Relation] = {}  # what SQL can read
        self._numbers = itertools.count(1)  # of statements without a name
        self._lock = threading.RLock()
        self._followings: list[Following] = []
        self._closed = False
        self._format = ""
        self._address = SessionAddress(cluster.invitation, self._snapshots.number)
        self._queries = Queries(self.spark, self.engine, self._address.session, lambda: dict(self._relations))
        self.engine.advance()  # there is always an epoch that can be read, at first an empty one
        register(self.spark, self._address, FORMAT)
        _sessions.append(weakref.ref(self))

    @property
    def spark(self) -> SparkSession:
        """The SparkSession that hosts the workers."""
        return self._cluster.spark

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return self._cluster.size

    @property
    def epoch(self) -> int:
        """The present epoch; those before it are closed."""
        return self.engine.epoch

    # Tables.

    def create_table(
        self, name: str, schema: Any, key: str | Sequence[str] | None = None, *, stream: bool = False
    ) -> Table:
        """A new table. `schema`: a Spark or Arrow schema, DDL text, or a DataFrame whose schema is meant.

        With a key it has at most one row for each, else rows are a bag. A `stream` is not kept: a view sees the rows
        that come after it was made.
        """
        self._check()
        _check_name(name, "table")
        keys = (key,) if isinstance(key, str) else tuple(key or ())
        fields = fields_of(schema, keys, case_sensitive=is_case_sensitive(self.spark))
        spark_schema(fields)  # raises if Spark could not read it
        with self._lock:
            check_free(self._relations, name, self.spark)
            return completed(lambda: self._create(name, fields, keys, stream), Table.drop)

    def _create(self, name: str, fields: Any, key: tuple[str, ...], stream: bool) -> Table:
        inner = self.engine.table(name, fields, key or None, "stream" if stream else "table")
        table = self._tables[name] = Table(self, inner)
        self._relations[name] = Relation(name, inner, key, stream, secrets.token_hex(8))
        return table

    def table(self, name: str) -> Table:
        """The table of a name."""
        self._check()
        return resolved(self._tables, name, "table", self.spark)

    def drop_table(self, name: str) -> None:
        """Drop a table and its rows; refused while a view uses it. Streams that it follows end."""
        with self._lock, deferred():
            table = self.table(name)
            self.engine.drop_table(table.name)
            del self._tables[table.name], self._relations[table.name]
        table.stop_following()

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Changes of several tables that become one epoch: `with session.transaction(): ...`.

        If anything in the block raises, or a table refuses its changes, none of them is applied; nor are they if that
        takes longer than `timeout` seconds, at the end of the block.
        """
        self._check()
        return self.engine.transaction(timeout=timeout)

    # Views.

    def view(self, name: str, query: Query, *, share: bool | None = None, memory: int | None = None) -> View:
        """A standing query, kept up to date from now on: SQL, a DataFrame over tables and views, or a collection.

        With `share=False` it builds all its arrangements itself, to see what sharing saves. `memory` is how many bytes
        it may use on each worker, if not as many as other views; with more it fails, alone.
        """
        self._check()
        _check_name(name, "view")
        lowered = self._lowered(query, f"view {name!r}")
        with self._lock:
            check_free(self._relations, name, self.spark)
            return completed(lambda: self._install(name, lowered, share, memory), View.drop)

    def _install(self, name: str, lowered: Lowered, share: bool | None, memory: int | None) -> View:
        inner = self.engine.install(name, lowered.rows, share=share, memory=memory)
        view = self._views[name] = View(self, inner, lowered.order)
        self._relations[name] = Relation(name, inner.rows(), identity=secrets.token_hex(8))
        return view

    def _lowered(self, query: Query, what: str) -> Lowered:
        """A query as a collection, and how its rows are shown."""
        if isinstance(query, Arrangement):
            return Lowered(query.rows())
        if isinstance(query, Collection):
            return Lowered(query)
        if isinstance(query, str | DataFrame):
            return self._queries.lowered(query, what)
        raise SchemaError(
            f"{what} cannot be made of a {type(query).__name__}",
            hint="give SQL, a DataFrame, or a collection: tables have filter, join, count and so on",
        )

    def prepare(self, sql: str, parameters: Parameters | None = None, *, name: str = "", **types: str) -> Statement:
        """A query with parameters (`:customer`), whose types are given by name: `customer="BIGINT"`.

        `open` gives values to them: an answer that is kept up to date. All that are open share one dataflow, so that
        another one costs milliseconds.
        """
        self._check()
        planned, fields, tables = self._queries.prepared(sql, {**(parameters or {}), **types})
        with self._lock:
            name = name or f"statement {next(self._numbers)}"
            return completed(lambda: Statement(self.engine, name, planned, fields, tables), Statement.close)

    def drop_view(self, name: str) -> None:
        """Drop a view, and release what only it used."""
        self._check()
        with self._lock:
            self.forget_view(resolved(self._views, name, "view", self.spark))

    def forget_view(self, view: View) -> None:
        """Drop this view, not another that has its name by now."""
        self._check()
        with self._lock, deferred():
            view.inner.drop()
            if self._views.get(view.name) is view:
                del self._views[view.name], self._relations[view.name]

    def explain(self, query: Query, *, timeout: float | None = None) -> str:
        """The plan of a query as a tree, and which arrangements it would reuse, share or build, with their bytes."""
        self._check()
        return self.engine.explain(result_arrangement(self._lowered(query, "a plan").rows), timeout=timeout)

    # What there is.

    def tables(self) -> Listing[TableInfo]:
        """All tables."""
        self._check()
        with self._lock:
            return Listing(map(TableInfo.of, self._tables.values()), TableInfo)

    def views(self, *, timeout: float | None = None) -> Listing[ViewInfo]:
        """All views, and whether a fault has ended them."""
        self._check()
        with self._lock:
            views = list(self._views.values())
        alive = {each.dataflow for each in self.engine.status(timeout=timeout)}
        return Listing([ViewInfo.of(view, view.inner.dataflow in alive) for view in views], ViewInfo)

    def arrangements(self, *, timeout: float | None = None) -> Listing[ArrangementInfo]:
        """All arrangements, on each worker: what memory is used for, and by how many it is shared."""
        self._check()
        return Listing(map(ArrangementInfo.of, self.engine.status(timeout=timeout)), ArrangementInfo)

    def status(self, *, timeout: float | None = None) -> SessionStatus:
        """The session in a few numbers."""
        found = self.arrangements(timeout=timeout)
        return SessionStatus(
            workers=self.workers,
            epoch=self.epoch,
            tables=len(self._tables),
            views=len(self._views),
            arrangements=sum(each.worker == 0 for each in found),
            rows=sum(each.rows for each in found),
            bytes=sum(each.bytes + each.inner_bytes for each in found),
        )

    def read(self, name: str, at: int | None = None, *, timeout: float | None = None) -> DataFrame:
        """A table or view as a Spark DataFrame; see `View.to_df`."""
        coordinator, dataflow = self.engine.coordinator, self._readable(name).dataflow
        deadline = coordinator.deadline(timeout, f"asking whether {name!r} can be read")
        raise_present(name, coordinator.ask(ReadErrors(dataflow), deadline=deadline))  # or if it has failed
        options = {"name": name, "epoch": at, "timeout": timeout}
        known = {option: value for option, value in options.items() if value is not None}
        return self.spark.read.format(self.format).options(**known).load()

    @property
    def format(self) -> str:
        """The name of this session's data source: `spark.read.format(session.format).load("late orders")`.

        "ikebana" is that of the session that was connected last.
        """
        self._check()
        with self._lock:
            if not self._format:
                self._format = f"{FORMAT}_{secrets.token_hex(4)}"
                register(self.spark, self._address, self._format)
            return self._format

    def _readable(self, name: str) -> Readable:
        """What there is to read of a table or view."""
        self._check()
        with self._lock:
            known: dict[str, View | Table] = {**self._views, **self._tables}
            found = resolved(known, name, "table or view", self.spark)
            identity = self._relations[found.name].identity
            if isinstance(found, View):
                return Readable(found.name, identity, found.inner.dataflow, found.inner.plan.columns)
            found.check_kept()
            return Readable(found.name, identity, found.inner.spec.dataflow, found.inner.spec.fields)

    @property
    def invitation(self) -> Any:
        """What a process needs to know to speak with the workers directly; whoever has it can do what this one can."""
        return self._cluster.invitation

    def adopt(self, following: Following) -> None:
        """Remember a stream, to end it with the session."""
        with self._lock:
            self._followings.append(following)

    # Ends.

    def close(self) -> None:
        """End all streams, the workers and what they hold. Closing twice does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            for following in self._followings:
                following.end()
        finally:
            with deferred():
                self._pass_on_format()
                self._queries.close()
                self.engine.close()
                self._snapshots.close()

    def _pass_on_format(self) -> None:
        """The plain name of the data source is now that of the session before, if there is one."""
        _sessions[:] = [each for each in _sessions if (found := each()) is not None and not found._closed]
        others = [found for each in _sessions if (found := each()) is not None and found.spark is self.spark]
        if others:
            register(self.spark, others[-1]._address, FORMAT)

    def _check(self) -> None:
        if self._closed:
            raise DroppedError("the session was closed", hint="connect again")

    def check(self) -> None:
        """Raise if the session was closed."""
        self._check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._closed:
            return "<ikebana session: closed>"
        counts = f"{len(self._tables)} tables, {len(self._views)} views"
        return f"<ikebana session: {self.workers} workers, epoch {self.epoch}, {counts}>"

    def _repr_html_(self) -> str:
        title = f"<p>{repr(self).strip('<>')}</p>"
        return title if self._closed else title + self.tables()._repr_html_() + self.views()._repr_html_()


def _check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise SchemaError(f"a {what} cannot be called {name!r}", hint="give it a name, as text")


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table, for people."""

    name: str
    kind: str
    key: tuple[str, ...]
    columns: tuple[str, ...]

    @staticmethod
    def of(table: Table) -> TableInfo:
        return TableInfo(table.name, table.kind, tuple(table.key), tuple(table.columns))


@dataclass(frozen=True, slots=True)
class ViewInfo:
    """A view, for people."""

    name: str
    state: str
    columns: tuple[str, ...]

    @staticmethod
    def of(view: View, is_alive: bool) -> ViewInfo:
        return ViewInfo(view.name, "live" if is_alive else "failed", tuple(view.columns))


@dataclass(frozen=True, slots=True)
class ArrangementInfo:
    """An arrangement on one worker: of which tables or views it is, and what it takes.

    `inner_bytes` are those of what is arranged on the way to it, which nobody else can use.
    """

    name: tuple[str, ...]
    worker: int
    key: tuple[str, ...]
    rows: int
    bytes: int
    inner_bytes: int
    batches: int
    readers: int
    since: int
    complete_before: int

    @staticmethod
    def of(status: Any) -> ArrangementInfo:
        return ArrangementInfo(
            tuple(status.names),
            status.worker,
            tuple(status.key),
            status.rows,
            status.bytes,
            status.inner_bytes,
            status.batches,
            status.readers,
            status.since,
            status.upper,
        )


@dataclass(frozen=True, slots=True, repr=False)
class SessionStatus(Card):
    """A session in a few numbers."""

    workers: int
    epoch: int
    tables: int
    views: int
    arrangements: int
    rows: int
    bytes: int
