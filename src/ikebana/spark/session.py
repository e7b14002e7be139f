"""Sessions: tables and views on workers that Spark hosts.

    session = ik.connect(spark)                              # workers start as Spark tasks
    orders = session.create_table("orders", schema, key="id")
    orders.load(df)                                          # a Spark job; no rows pass through the driver
    orders.follow(stream_df)                                 # each micro-batch is an epoch
    late = session.view("late", orders.filter(...).count("region"))
    late.show()                                              # the rows of the view now
    late.to_df()                                             # a Spark DataFrame of them
    session.sql("SELECT * FROM late WHERE count > 5")        # Spark's answer to another query, over the same rows
    for epoch, changes in late.changes(): ...

A session owns its workers, and with them all tables and views. `close`, leaving the `with` block and the end of the
program end the Spark job that hosts the workers; nothing is left running. A SparkSession that was passed in keeps
running. Several sessions can share one SparkSession.

An interrupt (Ctrl-C, a notebook's stop button) ends the current call and undoes what it has started: the Spark job and
the transaction of a load, a view that was being created. Tables, views and the SparkSession are not affected.

Threads. A session may be used from several threads. Transactions are applied one after the other; readers wait neither
for each other nor for writers.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from ikebana.cluster.client_keys import IssuedKeys
from ikebana.cluster.interrupts import defer_interrupts
from ikebana.datalog import parse_source
from ikebana.engine.engine import Engine, result_arrangement
from ikebana.engine.healing import RESTARTS
from ikebana.engine.prepared import KEEP
from ikebana.engine.results import At
from ikebana.engine.subscription_readers import NamedStream
from ikebana.engine.table_storage import Recovered
from ikebana.engine.tables import Transaction
from ikebana.engine.views import View as EngineView
from ikebana.errors import DataflowError, DroppedError
from ikebana.operators.row_errors import raise_errors
from ikebana.runtime.messages import ReadErrors
from ikebana.spark import reporting
from ikebana.spark.advising import Advice, advise
from ikebana.spark.arguments import (
    checked_at,
    checked_count,
    checked_epoch,
    checked_key,
    checked_name,
    checked_timeout,
)
from ikebana.spark.command_runner import run_command
from ikebana.spark.commands import parse
from ikebana.spark.datalog import SessionProgram, SessionPrograms
from ikebana.spark.executions import Executions
from ikebana.spark.expiring import Expiries, checked_expiry
from ikebana.spark.following import FollowedStream
from ikebana.spark.frames import Frames
from ikebana.spark.graph import SessionGraph
from ikebana.spark.info import ArrangementInfo, HoldInfo, SessionStatus, SubscriptionInfo, TableInfo, ViewInfo
from ikebana.spark.listing import Listing
from ikebana.spark.memory_use import MemoryInfo
from ikebana.spark.metrics import Metric, MetricsServer, session_metrics
from ikebana.spark.monitoring import Monitor
from ikebana.spark.naming import is_case_sensitive
from ikebana.spark.planning import Parameters
from ikebana.spark.prepared_statements import PreparedStatements
from ikebana.spark.querying import Queries, Query, Relation
from ikebana.spark.recovering import healed, recover
from ikebana.spark.relations import Relations
from ikebana.spark.snapshot_server import SnapshotServer
from ikebana.spark.snapshots import Readable
from ikebana.spark.spark_session import is_running
from ikebana.spark.stored_queries import RecoveredSession, StoredQueries
from ikebana.spark.table import Table
from ikebana.spark.table_lifecycle import TableLifecycle
from ikebana.spark.types import fields_of, spark_schema
from ikebana.spark.verifying import definition_of
from ikebana.spark.view import View
from ikebana.spark.view_lifecycle import ViewLifecycle, ViewQuery
from ikebana.spark.workers import SparkWorkers
from ikebana.sql.statements import Statement

_sessions: list[weakref.ref[Session]] = []
"""The open sessions of this process, oldest first."""


class Session:
    """Tables and views on workers that Spark hosts. `ikebana.connect` creates one."""

    def __init__(
        self,
        cluster: SparkWorkers,
        *,
        share: bool = True,
        timeout: float | None = None,
        temp_views: bool = True,
        storage: str | None = None,
        restarts: int = RESTARTS,
    ) -> None:
        self.engine = Engine(
            cluster=cluster, share=share, timeout=timeout, storage=storage, restarts=restarts, restores_history=True
        )
        """The engine of this session, for what does not need Spark: epochs, inputs and plans."""
        self._relations = Relations(cluster.spark)
        self._snapshots = SnapshotServer(
            self.engine.coordinator,
            lambda: self.client_keys,
            self._readable,
            self.table,
            Executions(cluster.spark),
            self._follow_by_stream,
        )
        self._address = self._snapshots.address
        self._frames = Frames(cluster.spark, self._address, self._relations, temp_views=temp_views)
        self._queries = Queries(cluster.spark, self.engine, self._address.session, self._relations)
        self._expiries = Expiries()
        self._monitor = Monitor(self.engine, self._relations)
        self._stored = None if self.engine.storage is None else StoredQueries(self.engine.storage, self._queries.clock)
        self._table_lifecycle = TableLifecycle(self, self._relations, self._frames, self._expiries, self._stored)
        self._view_lifecycle = ViewLifecycle(
            self, self._relations, self._frames, self._snapshots, self._monitor, self._stored
        )
        self._statements = PreparedStatements(self.engine, self._relations, self._queries, self._stored)
        self._programs = SessionPrograms(self, self._relations, self._stored)
        self._streams: list[FollowedStream] = []
        self._metrics_servers: list[MetricsServer] = []
        self._closed = False
        if not self.engine.epoch:
            self.engine.advance()  # so that there is always a closed epoch, which can be read
        self._frames.become_default()
        self.recovered: RecoveredSession | None = None
        """What was last found in the storage directory: at the start, or for new workers. None without a directory."""
        if self._stored is not None:
            self.recovered = recover(self, self._stored)
        if self.engine.healing is not None:
            self.engine.on_replaced.append(self._on_replaced)
            self.engine.healing.on_healed.append(self._on_healed)
        _sessions.append(weakref.ref(self))

    @property
    def _cluster(self) -> SparkWorkers:
        """The workers."""
        assert isinstance(self.engine.cluster, SparkWorkers)
        return self.engine.cluster

    def _on_replaced(self, recovered: Recovered) -> None:
        """Note that the workers were replaced by others, under the lock of the engine."""
        self._snapshots.renew_key()
        self.recovered = healed(self, recovered)

    def _on_healed(self) -> None:
        """Let Spark read from new workers under the names of tables and views."""
        with self._relations.lock:
            streams = {name for name, table in self._relations.tables.items() if table.kind == "stream"}
            names = [*self._relations.tables, *self._relations.views]
            self._frames.show_again([name for name in names if name not in streams])

    @property
    def spark(self) -> SparkSession:
        """The SparkSession that hosts the workers."""
        return self._cluster.spark

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self._cluster.size

    @property
    def epoch(self) -> int:
        """The current epoch, which is open; all earlier epochs are closed and can be read."""
        return self.engine.epoch

    @property
    def client_keys(self) -> IssuedKeys:
        """Issues keys to the jobs that load rows."""
        return self._cluster.keys

    # Tables.

    def create_table(
        self,
        name: str,
        schema: Any,
        key: str | Sequence[str] | None = None,
        *,
        stream: bool = False,
        expire_after: str | timedelta | None = None,
        on: str | None = None,
        retain: str | timedelta | None = None,
        retain_bytes: int | None = None,
    ) -> Table:
        """Create a table.

        schema: a Spark or Arrow schema, DDL such as "id BIGINT, name STRING", or a DataFrame that has the schema.
        key: the primary key: the table has at most one row for each key. Without a key, rows may be duplicates.
        stream: do not store the rows; a view sees the rows that arrive after the view was created.
        expire_after, on: delete a row this long after the time in its column `on`, such as "7 days" or a `timedelta`.
            Rows are deleted once a second (`ikebana.spark.expiring`).
        retain, retain_bytes: for how long, and up to how many bytes, the table keeps its history; see `Table.retain`.
        """
        self._check()
        checked_name(name, "table")
        keys = checked_key(key)
        fields = fields_of(schema, keys, case_sensitive=is_case_sensitive(self.spark))
        spark_schema(fields)  # raises if Spark does not have one of the types
        after = checked_expiry(expire_after, on, fields, is_stream=stream)
        table = self._table_lifecycle.create(name, fields, keys, "stream" if stream else "table")
        try:
            if retain is not None:
                table.retain(retain, retain_bytes)
            if after is not None and on is not None:
                self._table_lifecycle.expire(table, after, on)
        except BaseException:
            table.drop()
            raise
        return table

    def _retain(self, name: str, rows: EngineView, after: str | timedelta | None, limit: int | None) -> None:
        """Keep the history of a table or view for a time, and store that it is to be kept."""
        rows.retain(after, checked_count("limit", limit))
        if self.engine.history is not None:
            self.engine.history.save(name, rows.retention)

    def table(self, name: str) -> Table:
        """The table of this name."""
        self._check()
        return self._relations.table(name)

    def has(self, name: str) -> bool:
        """Whether there is a table or view of this name."""
        self._check()
        return self._relations.has(name)

    def drop_table(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a table and its rows, and stop the streams that it follows.

        cascade: drop the views that read the table as well. Otherwise the call fails if there are any.
        if_exists: do nothing if there is no such table.
        """
        if if_exists and not self.has(name):
            return
        self._check()
        self._table_lifecycle.drop(name, cascade=cascade)

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Change several tables in one epoch: `with session.transaction(): ...`.

        All changes that this thread makes in the block are applied together at its end. None is applied if the block
        raises, if a table refuses its changes, or if applying them takes longer than `timeout` seconds.
        """
        self._check()
        return self.engine.transaction(timeout=timeout)

    # Views.

    def view(
        self,
        name: str,
        query: Query | None = None,
        *,
        columns: Sequence[str] | None = None,
        replace: bool = False,
        share: bool | None = None,
        memory: int | None = None,
        retain: str | timedelta | None = None,
        retain_bytes: int | None = None,
    ) -> View:
        """Create a view: a query whose result is kept up to date as tables change. Without a query, return the view.

        query: SQL, a DataFrame over tables and views of this session, or a collection (`table.filter(...)`).
        columns: the names of the columns, by default those of the query. If the query has several columns of one name,
            the second is called `name_2`, and so on.
        replace: if there is a view of this name, give it this query. The new result is computed beside the old one,
            which readers see until the new one is complete. Subscriptions to the old result end. Views that read this
            view keep its old query.
        share: whether to share arrangements with other views. False lets it build its own, to measure what sharing
            saves. By default as the session was connected.
        memory: how many bytes the view may use on each worker. If it needs more it fails, and other views go on. By
            default the session's `view_memory`.
        retain, retain_bytes: for how long, such as "1 hour", and up to how many bytes, the view keeps its history; see
            `View.retain`.
        """
        self._check()
        if query is None:
            return self._relations.view(name)
        checked_name(name, "view")
        lowered = self._queries.lower(query, f"view {name!r}")
        definition = definition_of(query, self._relations)
        if columns is not None:
            lowered, definition = lowered.renamed(columns), definition and definition.renamed(columns)
        shown = ViewQuery(lowered, definition, share, memory)
        if replace and self.has(name):
            view = self._relations.view(name)
            self._view_lifecycle.replace(view, shown)
            view.retain(retain, retain_bytes)
            return view
        view = self._view_lifecycle.create(name, shown)
        try:
            if retain is not None:
                view.retain(retain, retain_bytes)
        except BaseException:
            view.drop()
            raise
        return view

    def prepare(
        self, sql: str, parameters: Parameters | None = None, *, name: str = "", keep: int = KEEP, **types: str
    ) -> Statement:
        """Prepare a query with parameters: `session.prepare("... WHERE customer = :customer", customer="BIGINT")`.

        `read` of the statement returns the answer for values of the parameters. `open` returns a result for them that
        is kept up to date. All open results share one dataflow, so each further one costs milliseconds.

        sql: the query, with `:name` for each parameter.
        parameters, types: the type of each parameter, by name: SQL types such as "BIGINT", or Arrow types. For a
            parameter that may be null, pass `pa.field(name, type, nullable=True)` in `parameters`.
        name: a name for the statement in errors and listings, and for `statement`. A statement with a name comes back
            from storage.
        keep: for how many sets of values, the most recently read ones, `read` keeps the answer up to date, so that
            reading it again is a look-up.
        """
        self._check()
        return self._statements.prepare(sql, {**(parameters or {}), **types}, name, keep)

    def statement(self, name: str) -> Statement:
        """The prepared statement of this name, such as one that has come back from storage."""
        self._check()
        return self._statements.find(name, self.spark)

    def datalog(
        self,
        program: str | Path,
        *,
        relations: Mapping[str, Relation] | None = None,
        prefix: str = "",
        defines: Mapping[str, str] | None = None,
        include: Sequence[str | Path] = (),
    ) -> SessionProgram:
        """Load a Datalog program in Soufflé's syntax. Its outputs become views, which are kept up to date.

        A relation without rules and facts is the table or view of its name, if there is one; the facts of other
        relations are inserted into the program that this method returns.

        program: the path of a program (a `Path`, or a string that ends in `.dl`), or its text.
        relations: tables or views, or their names, for relations that have other names.
        prefix: what the names of the program's views begin with, before the name of the relation.
        defines: macros. include: folders in which included files are searched.
        """
        self._check()
        tree = parse_source(program, defines=defines, include=include)
        return self._programs.create(tree, relations or {}, prefix)

    def program(self, view: str) -> SessionProgram:
        """The Datalog program that a view belongs to, such as one that has come back from storage."""
        self._check()
        return self._programs.find(view)

    def graph(
        self,
        vertices: Relation | None,
        edges: Relation,
        *,
        src: str = "src",
        dst: str = "dst",
        id: str = "id",
        prefix: str = "",
    ) -> SessionGraph:
        """A graph, whose methods (`pagerank`, `connected_components`, ...) create views that are kept up to date.

        vertices, edges: tables or views, their names, or DataFrames over them. Without vertices (None), the nodes are
            the ends of edges. Other columns than those of ids are properties.
        src, dst, id: the columns of ids, all of one type, of edges and vertices.
        prefix: what the names of the graph's views begin with, before the name of the method.
        """
        self._check()
        return SessionGraph(self, vertices, edges, {"src": src, "dst": dst, "id": id}, prefix)

    def drop_view(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a view, and release the arrangements that only it used.

        if_exists: do nothing if there is no such view.
        """
        if if_exists and not self.has(name):
            return
        self._check()
        self._relations.view(name).drop()

    def explain(self, query: Query, *, timeout: float | None = None) -> str:
        """The plan of a query as a tree, with the arrangements that it would reuse, share or build, and their sizes."""
        self._check()
        return self.engine.explain(result_arrangement(self._queries.lower(query, "a plan").rows), timeout=timeout)

    # Listings.

    def tables(self) -> Listing[TableInfo]:
        """All tables."""
        self._check()
        return reporting.table_infos(self._relations)

    def views(self, *, timeout: float | None = None) -> Listing[ViewInfo]:
        """All views by name: their state and the reason for it, their size, and how far they are behind."""
        self._check()
        return reporting.view_infos(self.engine, self._relations, self._monitor, timeout)

    def memory(self, *, timeout: float | None = None) -> Listing[MemoryInfo]:
        """The memory of each table and view, the largest first: its own, what it shares and what a drop would free."""
        self._check()
        return reporting.memory_listing(self.engine, timeout)

    def holds(self) -> Listing[HoldInfo]:
        """Who keeps old epochs of tables and views readable, the oldest first.

        The history since then cannot be compacted: it takes memory, and slows down changes.
        """
        self._check()
        return reporting.hold_infos(self.engine, self._relations, self._snapshots.held())

    def advise(self, *, timeout: float | None = None) -> Listing[Advice]:
        """What takes memory or time and need not: indexes nobody uses, missing keys, queries that could share more."""
        self._check()
        return advise(self.engine, timeout)

    def metrics(self) -> Listing[Metric]:
        """Figures on workers, tables, views, holds and streams, with the names that Prometheus gets."""
        self._check()
        return session_metrics(self)

    def serve_metrics(self, port: int = 9464, host: str = "127.0.0.1") -> MetricsServer:
        """Serve `metrics()` over HTTP to Prometheus, until `close()` of the result, or of the session.

        The package prometheus_client must be installed: `pip install 'ikebana[metrics]'`.

        port: 0 for any that is free; the result says which.
        host: the address to listen on. By default only programs on this machine can connect. There is no
            authentication: who can connect sees the names of tables and views.
        """
        self._check()
        server = MetricsServer(self.metrics, host, port)
        self._metrics_servers.append(server)
        return server

    def arrangements(self, *, timeout: float | None = None) -> Listing[ArrangementInfo]:
        """All arrangements on each worker: their sizes, and how many readers share them."""
        self._check()
        return reporting.arrangement_infos(self.engine, timeout)

    def status(self, *, timeout: float | None = None) -> SessionStatus:
        """The number of workers, tables, views and arrangements, and the memory they use."""
        self._check()
        return reporting.session_status(self.engine, self._relations, timeout)

    # Reading.

    def read(self, name: str, at: int | None = None, *, timeout: float | None = None) -> DataFrame:
        """A table or view as a Spark DataFrame; see `View.to_df`."""
        at, timeout = checked_epoch(at), checked_timeout(timeout)
        coordinator, dataflow = self.engine.coordinator, self._readable(name).dataflow
        deadline = coordinator.deadline(timeout, f"checking whether {name!r} can be read")
        raise_errors(name, coordinator.ask(ReadErrors(dataflow), deadline=deadline))  # raises too if the view failed
        return self._frames.frame(name, at, timeout)

    def _frame_at(self, name: str, rows: EngineView, at: At, timeout: float | None) -> DataFrame:
        """A table or view as a Spark DataFrame, at an epoch or time if one is given; raises if that is not kept."""
        at = checked_at(at)
        if at is None:
            return self.read(name, timeout=timeout)
        epoch = rows.epoch_of(at)
        if epoch < self.epoch:
            rows.check_kept(epoch)
        return self.read(name, epoch, timeout=timeout)

    def sql(self, text: str) -> DataFrame:
        """Answer a query over tables and views of this session, or run another SQL statement.

        A query (SELECT, WITH, VALUES) is computed by Spark over the rows that the workers have when the DataFrame is
        first used. Ask again for the rows of a later epoch; `view` keeps a result up to date. Names mean the tables and
        views of this session, and otherwise what they mean in Spark. The other statements are:

            CREATE [OR REPLACE] MATERIALIZED VIEW [IF NOT EXISTS] name AS query
            CREATE TABLE [IF NOT EXISTS] name (column type [NOT NULL], ..., PRIMARY KEY (column, ...))
            INSERT INTO name [(column, ...)] VALUES ... | query
            DELETE FROM name [WHERE condition]
            DROP [MATERIALIZED] VIEW [IF EXISTS] name
            DROP TABLE [IF EXISTS] name [CASCADE]
            SHOW TABLES | VIEWS
            EXPLAIN query

        INSERT and DELETE are transactions, or part of the transaction of this thread. DELETE determines the rows first
        and then deletes them; if one of them no longer exists by then it raises a `ChangeError` and deletes nothing.

        Returns the rows of the answer; for statements without an answer, a DataFrame without rows.
        """
        self._check()
        return run_command(self, parse(text))

    @property
    def format(self) -> str:
        """The name of this session's data source: `spark.read.format(session.format).load("late orders")`.

        The format "ikebana" reads from the session that was connected last.
        """
        self._check()
        return self._frames.format

    def _readable(self, name: str) -> Readable:
        """The table or view of a name, for readers of the data source."""
        self._check()
        return self._relations.readable(name)

    # Subscriptions.

    def subscriptions(self) -> Listing[SubscriptionInfo]:
        """The named subscriptions, of `changes(name=...)` and of streams: their positions, and what waits for them."""
        self._check()
        return reporting.subscription_infos(self.engine)

    def drop_subscription(self, name: str) -> None:
        """Drop a named subscription, and what waits for it. Who reads it gets nothing any more."""
        self._check()
        self.engine.drop_subscription(name)

    def _follow_by_stream(self, name: str, subscription: str) -> NamedStream:
        """Continue or create the subscription of a stream that reads a table or view."""
        named = self.engine.coordinator.named_subscriptions
        if named is None:
            raise DataflowError(
                f"the stream cannot have subscription {subscription!r}",
                detail="a subscription that has a name is stored, and the session has no storage directory",
                hint="connect with storage=..., or leave out the option `subscription`",
            )
        return named.open_stream(self._relations.rows(name), subscription)

    # Closing.

    def close(self) -> None:
        """End all streams, views, tables and workers. Closing twice does nothing."""
        with self._relations.lock:
            if self._closed:
                return
            self._closed = True
        try:
            for stream in self._streams:
                stream.end()
            for server in self._metrics_servers:
                server.close()
        finally:
            with defer_interrupts():
                self._hand_over_format()
                if not self._cluster.owns_spark and is_running(self.spark):
                    self._frames.hide_all()
                self._queries.close()
                self._expiries.stop()
                self.engine.close()
                self._snapshots.close()
                self._monitor.close()
                self._expiries.close()

    def _end_with_session(self, stream: FollowedStream) -> None:
        """End this stream when the session is closed."""
        with self._relations.lock:
            self._streams.append(stream)

    def _hand_over_format(self) -> None:
        """Let the format "ikebana" read from the latest other session on this SparkSession, if there is one."""
        sessions = [session for reference in _sessions if (session := reference()) is not None and not session._closed]
        _sessions[:] = map(weakref.ref, sessions)
        others = [session for session in sessions if session.spark is self.spark]
        if others and is_running(self.spark):
            others[-1]._frames.become_default()

    def _check(self) -> None:
        """Raise if the session was closed, or its SparkSession was stopped."""
        if self._closed:
            raise DroppedError("the session was closed", hint="connect again")
        if self.spark.sparkContext._jsc is None:
            raise DroppedError(
                "the SparkSession of this session was stopped",
                detail="its workers have ended, and with them all tables and views",
                hint="connect again",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._closed:
            return "<ikebana session: closed>"
        counts = f"{len(self._relations.tables)} tables, {len(self._relations.views)} views"
        return f"<ikebana session: {self.workers} workers, epoch {self.epoch}, {counts}>"

    def _repr_html_(self) -> str:
        title = f"<p>{repr(self).strip('<>')}</p>"
        return title if self._closed else title + self.tables()._repr_html_() + self.views()._repr_html_()
