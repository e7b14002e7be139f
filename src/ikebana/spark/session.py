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

import inspect
import itertools
import secrets
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from ikebana.cluster.client import ClientCredentials
from ikebana.cluster.interrupts import complete_or_undo, defer_interrupts
from ikebana.datalog import parse_source
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.engine import Engine, result_arrangement
from ikebana.engine.prepared import KEEP
from ikebana.engine.tables import Transaction
from ikebana.errors import (
    DataflowError,
    DroppedError,
    EvaluationError,
    IkebanaError,
    SchemaError,
    WaitTimeoutError,
)
from ikebana.operators.changes import Fields
from ikebana.operators.row_errors import raise_errors
from ikebana.plan.sharing import readers_of
from ikebana.runtime.messages import ArrangementStatus, ReadErrors
from ikebana.spark.arguments import check_options, checked_epoch, checked_key, checked_timeout
from ikebana.spark.command_runner import run_command
from ikebana.spark.commands import parse
from ikebana.spark.datalog import Relation, SessionProgram
from ikebana.spark.executions import Executions
from ikebana.spark.following import FollowedStream
from ikebana.spark.graph import SessionGraph
from ikebana.spark.info import ArrangementInfo, HoldInfo, SessionStatus, TableInfo, ViewInfo
from ikebana.spark.listing import Bytes, Listing
from ikebana.spark.memory_use import MemoryInfo, memory_infos
from ikebana.spark.naming import alike, check_free, is_case_sensitive, mentioned, resolve
from ikebana.spark.planning import Parameters
from ikebana.spark.querying import Queries
from ikebana.spark.snapshot_server import SnapshotServer
from ikebana.spark.snapshots import Readable, SessionAddress
from ikebana.spark.source import FORMAT, frame_schema, register
from ikebana.spark.spark_session import is_running
from ikebana.spark.table import Table
from ikebana.spark.temporary_views import TemporaryViews, query_frame
from ikebana.spark.types import fields_of, spark_schema
from ikebana.spark.verifying import Definition
from ikebana.spark.view import View
from ikebana.spark.workers import SparkWorkers
from ikebana.spark.writes import Writes
from ikebana.sql import Lowered, SourceTable
from ikebana.sql.statements import Statement


def connect(
    spark: SparkSession | None = None,
    workers: int | None = None,
    *,
    share: bool = True,
    effort: str = "default",
    timeout: float | None = None,
    temp_views: bool = True,
    config: Mapping[str, Any] | None = None,
    ui: bool = False,
    **options: Any,
) -> Session:
    """Start workers as tasks of a Spark job, and return a session that owns them.

    spark: the SparkSession that hosts the workers. By default the active one; if there is none, a local one is started,
        and stopped when the session is closed.
    workers: the number of workers. By default one for each processor, as far as Spark has free task slots.
    share: whether views share arrangements. False lets every view build its own, to measure what sharing saves.
    effort: how eagerly arrangements are merged: "eager", "default" or "lazy".
    timeout: how many seconds a call may wait for workers before it raises a `WaitTimeoutError`, unless the call has its
        own `timeout`. None for no limit.
    temp_views: whether `spark.sql` and `spark.table` see tables and views under their names. This takes some tens of
        milliseconds for each of them.
    config: settings for a SparkSession that is started here, such as {"spark.jars.packages": "..."}.
    ui: whether a SparkSession that is started here has its web interface.
    options: further options of `SparkWorkers`, such as `memory` and `view_memory`.
    """
    checked_timeout(timeout)
    check_options("connect()", options, _WORKER_OPTIONS)
    cluster = SparkWorkers(spark, workers, effort=effort, config=config, ui=ui, **options)
    try:
        return Session(cluster, share=share, timeout=timeout, temp_views=temp_views)
    except BaseException:
        with defer_interrupts():
            cluster.close()
        raise


_WORKER_OPTIONS = set(inspect.signature(SparkWorkers).parameters) - {"spark", "workers", "effort", "config", "ui"}

Query = str | DataFrame | Collection | Arrangement
"""The definition of a view: SQL text, a DataFrame, or a collection."""

_sessions: list[weakref.ref[Session]] = []
"""The open sessions of this process, oldest first."""


class Session:
    """Tables and views on workers that Spark hosts. `ikebana.connect` creates one."""

    def __init__(
        self, cluster: SparkWorkers, *, share: bool = True, timeout: float | None = None, temp_views: bool = True
    ) -> None:
        self._cluster = cluster
        self.engine = Engine(cluster=cluster, share=share, timeout=timeout)
        """The engine of this session, for what does not need Spark: epochs, inputs and plans."""
        self._snapshots = SnapshotServer(
            self.engine.coordinator,
            self._readable,
            Executions(cluster.spark),
            Writes(self.engine.coordinator, self.table),
        )
        self._tables: dict[str, Table] = {}
        self._views: dict[str, View] = {}
        self._relations: dict[str, SourceTable] = {}  # tables and views, as SQL reads them
        self._statement_numbers = itertools.count(1)  # for statements without a name
        self._lock = threading.RLock()
        self._streams: list[FollowedStream] = []
        self._closed = False
        self._format = ""
        self._temporary_views = TemporaryViews(cluster.spark) if temp_views else None
        self._address = SessionAddress(cluster.credentials, self._snapshots.number)
        self._queries = Queries(self.spark, self.engine, self._address.session, lambda: dict(self._relations))
        self.engine.advance()  # so that there is always a closed epoch, which can be read
        register(self.spark, self._address, FORMAT)
        _sessions.append(weakref.ref(self))

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
    def credentials(self) -> ClientCredentials:
        """What another process needs to connect to the workers. It grants full access to them: keep it secret."""
        return self._cluster.credentials

    # Tables.

    def create_table(
        self, name: str, schema: Any, key: str | Sequence[str] | None = None, *, stream: bool = False
    ) -> Table:
        """Create a table.

        schema: a Spark or Arrow schema, DDL such as "id BIGINT, name STRING", or a DataFrame that has the schema.
        key: the primary key: the table has at most one row for each key. Without a key, rows may be duplicates.
        stream: do not store the rows; a view sees the rows that arrive after the view was created.
        """
        self.check()
        _check_name(name, "table")
        keys = checked_key(key)
        fields = fields_of(schema, keys, case_sensitive=is_case_sensitive(self.spark))
        spark_schema(fields)  # raises if Spark does not have one of the types
        with self._lock:
            check_free(self._relations, name, self.spark)
            return complete_or_undo(lambda: self._create(name, fields, keys, stream), Table.drop)

    def _create(self, name: str, fields: Fields, key: tuple[str, ...], stream: bool) -> Table:
        inner = self.engine.table(name, fields, key or None, "stream" if stream else "table")
        table = self._tables[name] = Table(self, inner)
        self._relations[name] = SourceTable(name, inner, key, stream, secrets.token_hex(8))
        if not stream:
            self._make_visible(name)
        return table

    def table(self, name: str) -> Table:
        """The table of this name."""
        self.check()
        return resolve(self._tables, name, "table", self.spark)

    def has(self, name: str) -> bool:
        """Whether there is a table or view of this name."""
        self.check()
        return name in self._relations or (not is_case_sensitive(self.spark) and bool(alike(self._relations, name)))

    def drop_table(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a table and its rows, and stop the streams that it follows.

        cascade: drop the views that read the table as well. Otherwise the call fails if there are any.
        if_exists: do nothing if there is no such table.
        """
        self.check()
        if if_exists and not self.has(name):
            return
        with self._lock, defer_interrupts():
            table = self.table(name)
            if cascade:
                self._drop_readers(table)
            self.engine.drop_table(table.name)
            del self._tables[table.name], self._relations[table.name]
        self._make_invisible(table.name)
        table.stop_following()

    def _drop_readers(self, table: Table) -> None:
        """Drop all views that read a table, the latest first."""
        for view in reversed(list(self._views.values())):
            if readers_of(view.inner.plan, {table.name}):
                self._forget_view(view)

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Change several tables in one epoch: `with session.transaction(): ...`.

        All changes that this thread makes in the block are applied together at its end. None is applied if the block
        raises, if a table refuses its changes, or if applying them takes longer than `timeout` seconds.
        """
        self.check()
        return self.engine.transaction(timeout=timeout)

    # Views.

    def view(
        self,
        name: str,
        query: Query,
        *,
        replace: bool = False,
        share: bool | None = None,
        memory: int | None = None,
    ) -> View:
        """Create a view: a query whose result is kept up to date as tables change.

        query: SQL, a DataFrame over tables and views of this session, or a collection (`table.filter(...)`).
        replace: if there is a view of this name, give it this query. The new result is computed beside the old one,
            which readers see until the new one is complete. Subscriptions to the old result end. Views that read this
            view keep its old query.
        share: whether to share arrangements with other views. False lets it build its own, to measure what sharing
            saves. By default as the session was connected.
        memory: how many bytes the view may use on each worker. If it needs more it fails, and other views go on. By
            default the session's `view_memory`.
        """
        self.check()
        _check_name(name, "view")
        lowered, definition = self._lower(query, f"view {name!r}"), self._definition(query)
        if replace and self.has(name):
            view = resolve(self._views, name, "view", self.spark)
            return self._replace(view, lowered, definition, share, memory)
        with self._lock:
            check_free(self._relations, name, self.spark)
            return complete_or_undo(lambda: self._install(name, lowered, definition, share, memory), View.drop)

    def _install(
        self,
        name: str,
        lowered: Lowered,
        definition: Definition | None,
        share: bool | None,
        memory: int | None,
    ) -> View:
        inner = self.engine.install(name, lowered.rows, share=share, memory=memory)
        view = self._views[name] = View(self, inner, lowered.order, definition)
        self._relations[name] = SourceTable(name, inner.rows(), identity=secrets.token_hex(8))
        self._make_visible(name)
        return view

    def _definition(self, query: Query) -> Definition | None:
        """A query that Spark can answer, and what the names in it mean now; None for collections."""
        if not isinstance(query, str | DataFrame):
            return None
        sources: dict[str, Definition | SourceTable] = {}
        with self._lock:
            for name in self._mentioned(query) if isinstance(query, str) else ():
                view = self._views.get(name)
                sources[name] = (view and view.definition) or self._relations[name]
        return Definition(query, sources)

    def _replace(
        self,
        view: View,
        lowered: Lowered,
        definition: Definition | None,
        share: bool | None,
        memory: int | None,
    ) -> View:
        """Give a view another query, when the result of that is complete."""
        old, name = view.inner, view.name
        new = self.engine.install(name, lowered.rows, share=share, memory=memory, beside=old)
        try:
            new.wait(self.engine.epoch - 1)
            with self._lock, defer_interrupts():
                if view.inner is not old or self._views.get(name) is not view:
                    raise DataflowError(
                        f"cannot replace view {name!r}", detail="it was dropped or replaced meanwhile", hint="try again"
                    )
                self.engine.replace(old, new)
                view._become(new, lowered.order, definition)
                has_same_columns = old.plan.columns == new.plan.columns
                identity = self._relations[name].identity if has_same_columns else secrets.token_hex(8)
                self._relations[name] = SourceTable(name, new.rows(), identity=identity)
                if not has_same_columns:
                    self._make_invisible(name)
                    self._make_visible(name)
        except BaseException:
            if view.inner is not new:
                new.drop()
            raise
        self._snapshots.drop_when_unread(old.dataflow, old.drop)
        return view

    def _lower(self, query: Query, what: str) -> Lowered:
        """A query as a collection, and the order in which its rows are shown."""
        if isinstance(query, Arrangement):
            return Lowered(query.rows())
        if isinstance(query, Collection):
            return Lowered(query)
        if isinstance(query, str | DataFrame):
            return self._queries.lower(query, what)
        raise SchemaError(
            f"{what} cannot be created from a value of type {type(query).__name__}",
            hint="give SQL, a DataFrame, or a collection such as table.filter(...) or table.count(...)",
        )

    def prepare(
        self, sql: str, parameters: Parameters | None = None, *, name: str = "", keep: int = KEEP, **types: str
    ) -> Statement:
        """Prepare a query with parameters: `session.prepare("... WHERE customer = :customer", customer="BIGINT")`.

        `read` of the statement returns the answer for values of the parameters. `open` returns a result for them that
        is kept up to date. All open results share one dataflow, so each further one costs milliseconds.

        sql: the query, with `:name` for each parameter.
        parameters, types: the type of each parameter, by name: SQL types such as "BIGINT", or Arrow types. For a
            parameter that may be null, pass `pa.field(name, type, nullable=True)` in `parameters`.
        name: a name for the statement in errors and listings.
        keep: for how many sets of values, the most recently read ones, `read` keeps the answer up to date, so that
            reading it again is a look-up.
        """
        self.check()
        planned, fields, tables = self._queries.prepare(sql, {**(parameters or {}), **types})
        with self._lock:
            name = name or f"statement {next(self._statement_numbers)}"
            return complete_or_undo(
                lambda: Statement(self.engine, name, planned, fields, tables, keep), Statement.close
            )

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
        self.check()
        tree = parse_source(program, defines=defines, include=include)
        with self._lock:
            known = dict(self._relations)
            return complete_or_undo(
                lambda: SessionProgram(self, tree, known, relations or {}, prefix), SessionProgram.close
            )

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
        self.check()
        return SessionGraph(self, vertices, edges, {"src": src, "dst": dst, "id": id}, prefix)

    def rows_of(self, source: Relation, what: str) -> Collection:
        """A table or view, its name, or a DataFrame over tables and views, as a collection.

        what: what it is to be, in errors.
        """
        self.check()
        if isinstance(source, str):
            with self._lock:
                return resolve(self._relations, source, "table or view", self.spark).rows
        if isinstance(source, Table):
            return source.inner
        if isinstance(source, View):
            return source.rows()
        if isinstance(source, DataFrame):
            return self._queries.lower(source, what).rows
        if isinstance(source, Collection):
            return source
        raise SchemaError(
            f"{what} cannot be a value of type {type(source).__name__}",
            hint="give a table or view of the session, its name, or a DataFrame",
        )

    def drop_view(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a view, and release the arrangements that only it used.

        if_exists: do nothing if there is no such view.
        """
        self.check()
        if if_exists and not self.has(name):
            return
        with self._lock:
            self._forget_view(resolve(self._views, name, "view", self.spark))

    def _forget_view(self, view: View) -> None:
        """Drop this view, but no other view that has its name now."""
        self.check()
        with self._lock, defer_interrupts():
            view.inner.drop()
            if self._views.get(view.name) is not view:
                return
            del self._views[view.name], self._relations[view.name]
        self._make_invisible(view.name)

    def explain(self, query: Query, *, timeout: float | None = None) -> str:
        """The plan of a query as a tree, with the arrangements that it would reuse, share or build, and their sizes."""
        self.check()
        return self.engine.explain(result_arrangement(self._lower(query, "a plan").rows), timeout=timeout)

    # Listings.

    def tables(self) -> Listing[TableInfo]:
        """All tables."""
        self.check()
        with self._lock:
            infos = [TableInfo(t.name, t.kind, tuple(t.key), tuple(t.columns)) for t in self._tables.values()]
        return Listing(infos, TableInfo)

    def views(self, *, timeout: float | None = None) -> Listing[ViewInfo]:
        """All views by name: their state and the reason for it, their size, and how far they are behind."""
        self.check()
        with self._lock:
            views = sorted(self._views.items())
        statuses: dict[str, list[ArrangementStatus]] = {}
        for status in self.engine.status(timeout=timeout):
            statuses.setdefault(status.dataflow, []).append(status)
        infos = [self._view_info(view, statuses.get(view.inner.dataflow, []), timeout) for _, view in views]
        return Listing(infos, ViewInfo)

    def _view_info(self, view: View, shards: list[ArrangementStatus], timeout: float | None) -> ViewInfo:
        state, reason = self._state(view, timeout)
        complete = min((shard.upper for shard in shards), default=self.epoch)
        return ViewInfo(
            view.name,
            state,
            reason,
            rows=sum(shard.rows for shard in shards),
            bytes=Bytes(sum(shard.bytes + shard.inner_bytes for shard in shards)),
            epochs_behind=max(0, self.epoch - complete),
            seconds_behind=round(self.engine.coordinator.seconds_since(complete), 1),
            created=view.created.strftime("%Y-%m-%d %H:%M:%S"),
            columns=tuple(view.columns),
        )

    def _state(self, view: View, timeout: float | None) -> tuple[str, str]:
        """Whether a view can be read, and why not."""
        coordinator, dataflow = self.engine.coordinator, view.inner.dataflow
        deadline = coordinator.deadline(timeout, f"asking for the state of {view.name!r}")
        try:
            raise_errors(view.name, coordinator.ask(ReadErrors(dataflow), deadline=deadline))
        except EvaluationError as error:
            return "errors", " ".join(filter(None, (error.what.partition(": ")[2] or error.what, error.detail)))
        except WaitTimeoutError:
            raise
        except IkebanaError as error:
            return "failed", error.detail or error.what
        return "live", ""

    def memory(self, *, timeout: float | None = None) -> Listing[MemoryInfo]:
        """The memory of each table and view, the largest first: its own, what it shares and what a drop would free."""
        self.check()
        statuses = self.engine.status(timeout=timeout)
        with self.engine.coordinator.lock:
            return Listing(memory_infos(self.engine.catalog, statuses), MemoryInfo)

    def holds(self) -> Listing[HoldInfo]:
        """Who keeps old epochs of tables and views readable, the oldest first.

        The history since then cannot be compacted: it takes memory, and slows down changes.
        """
        self.check()
        last = self.epoch - 1
        with self._lock:
            views = [(view.name, view.inner) for view in self._views.values()]
            views += [(table.name, table._rows) for table in self._tables.values()]
        held = [(name, epoch, "hold()") for name, view in views for epoch in view.held_epochs()]
        infos = [HoldInfo(name, epoch, last - epoch, by) for name, epoch, by in (*held, *self._snapshots.held())]
        return Listing(sorted(infos, key=lambda info: (info.epoch, info.name, info.held_by)), HoldInfo)

    def arrangements(self, *, timeout: float | None = None) -> Listing[ArrangementInfo]:
        """All arrangements on each worker: their sizes, and how many readers share them."""
        self.check()
        return Listing(map(ArrangementInfo.of, self.engine.status(timeout=timeout)), ArrangementInfo)

    def status(self, *, timeout: float | None = None) -> SessionStatus:
        """The number of workers, tables, views and arrangements, and the memory they use."""
        arrangements = self.arrangements(timeout=timeout)
        return SessionStatus(
            workers=self.workers,
            epoch=self.epoch,
            tables=len(self._tables),
            views=len(self._views),
            arrangements=sum(arrangement.worker == 0 for arrangement in arrangements),
            rows=sum(arrangement.rows for arrangement in arrangements),
            bytes=sum(arrangement.bytes + arrangement.inner_bytes for arrangement in arrangements),
        )

    # Reading.

    def read(self, name: str, at: int | None = None, *, timeout: float | None = None) -> DataFrame:
        """A table or view as a Spark DataFrame; see `View.to_df`."""
        at, timeout = checked_epoch(at), checked_timeout(timeout)
        coordinator, dataflow = self.engine.coordinator, self._readable(name).dataflow
        deadline = coordinator.deadline(timeout, f"checking whether {name!r} can be read")
        raise_errors(name, coordinator.ask(ReadErrors(dataflow), deadline=deadline))  # raises too if the view failed
        return self._frame(name, at, timeout)

    def _frame(self, name: str, at: int | None = None, timeout: float | None = None) -> DataFrame:
        """A DataFrame that reads a table or view. With its schema Spark need not ask for it, which takes a process."""
        options = {"name": name, "epoch": at, "timeout": timeout}
        given = {option: value for option, value in options.items() if value is not None}
        schema = frame_schema(self._readable(name), self._address.session, at)
        return self.spark.read.format(self.format).schema(schema).options(**given).load()

    def sql(self, text: str) -> DataFrame:
        """Answer a query over tables and views of this session, or run another SQL statement.

        A query (SELECT, WITH, VALUES) is computed by Spark over the rows that the workers have, once, when the
        DataFrame is used; `view` keeps a result up to date. Names mean the tables and views of this session, and
        otherwise what they mean in Spark. The other statements are:

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
        self.check()
        return run_command(self, parse(text))

    def _answer(self, text: str) -> DataFrame:
        """A query over tables and views of this session as a DataFrame; `sql` runs other statements too."""
        visible = self._temporary_views
        hidden = [name for name in self._mentioned(text) if visible is None or not visible.has(name)]
        return query_frame(self.spark, text, {name: self._frame(name) for name in hidden})

    def _mentioned(self, text: str) -> list[str]:
        """The tables and views that a SQL text may read, except streams."""
        with self._lock:
            return mentioned(text, [name for name, table in self._relations.items() if not table.is_stream])

    def _source_frame(self, source: SourceTable) -> DataFrame:
        """A DataFrame that reads a table or view; raises if it is no longer the one of its name."""
        if self._relations.get(source.name) is not source:
            raise DataflowError(
                f"the view reads {source.name!r}, which was dropped or replaced", hint="create the view again"
            )
        return self._frame(source.name)

    def _hold_all(self, stack: ExitStack) -> None:
        """Keep the last closed epoch of all tables and views readable."""
        for table in list(self._tables.values()):
            if table.kind != "stream":
                stack.enter_context(table.hold())
        for view in list(self._views.values()):
            with suppress(IkebanaError):  # it has failed, and nobody can read it
                stack.enter_context(view.inner.hold())

    def _make_visible(self, name: str) -> None:
        """Let Spark see a new table or view under its name."""
        if self._temporary_views is not None:
            with suppress(SchemaError):  # a type that Spark does not have: only Arrow can read this view
                self._temporary_views.add(name, self._relations[name].identity, self._frame(name))

    def _make_invisible(self, name: str) -> None:
        if self._temporary_views is not None:
            self._temporary_views.remove(name)

    @property
    def format(self) -> str:
        """The name of this session's data source: `spark.read.format(session.format).load("late orders")`.

        The format "ikebana" reads from the session that was connected last.
        """
        self.check()
        with self._lock:
            if not self._format:
                self._format = f"{FORMAT}_{secrets.token_hex(4)}"
                register(self.spark, self._address, self._format)
            return self._format

    def _readable(self, name: str) -> Readable:
        """The table or view of a name, for readers of the data source."""
        self.check()
        with self._lock:
            known: dict[str, View | Table] = {**self._views, **self._tables}
            relation = resolve(known, name, "table or view", self.spark)
            identity = self._relations[relation.name].identity
            if isinstance(relation, View):
                return Readable(relation.name, identity, relation.inner.dataflow, relation.inner.plan.columns)
            relation.check_readable()
            return Readable(relation.name, identity, relation.inner.spec.dataflow, relation.inner.spec.fields)

    # Closing.

    def close(self) -> None:
        """End all streams, views, tables and workers. Closing twice does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            for stream in self._streams:
                stream.end()
        finally:
            with defer_interrupts():
                self._hand_over_format()
                if self._temporary_views is not None and not self._cluster.owns_spark and is_running(self.spark):
                    self._temporary_views.clear()
                self._queries.close()
                self.engine.close()
                self._snapshots.close()

    def _end_with_session(self, stream: FollowedStream) -> None:
        """End this stream when the session is closed."""
        with self._lock:
            self._streams.append(stream)

    def _hand_over_format(self) -> None:
        """Let the format "ikebana" read from the latest other session on this SparkSession, if there is one."""
        sessions = [session for reference in _sessions if (session := reference()) is not None and not session._closed]
        _sessions[:] = map(weakref.ref, sessions)
        others = [session for session in sessions if session.spark is self.spark]
        if others and is_running(self.spark):
            register(self.spark, others[-1]._address, FORMAT)

    def check(self) -> None:
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
        counts = f"{len(self._tables)} tables, {len(self._views)} views"
        return f"<ikebana session: {self.workers} workers, epoch {self.epoch}, {counts}>"

    def _repr_html_(self) -> str:
        title = f"<p>{repr(self).strip('<>')}</p>"
        return title if self._closed else title + self.tables()._repr_html_() + self.views()._repr_html_()


def _check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise SchemaError(f"{name!r} is not a valid name for a {what}", hint="give a string that is not empty")
