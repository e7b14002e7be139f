"""The engine as a library: tables, inputs, epochs and views, on workers of this process or of others.

    engine = Engine(workers=2)
    edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    degrees = engine.install("degrees", edges.count("src"))
    edges.insert({"src": [1, 1, 2], "dst": [2, 3, 3]})
    engine.advance()                    # closes the epoch
    degrees.read()                      # an Arrow table

The rows of an input or a table are kept in an arrangement, so that a query sees all of them, whenever it is installed;
rows of a stream are not kept. Arrangements that several queries can use are maintained by dataflows of their own, as
long as at least one query uses them. With `share=False` every query builds its own arrangements.

An input accepts all changes, at the open epoch, which `advance` closes. Tables are for users: their changes are checked
and applied in transactions, each of which closes the epoch (`ikebana.engine.tables`).

An interrupt (Ctrl-C) ends the call that waits and leaves the engine as it was before the call: a view or table under
construction is dropped, a transaction is aborted. Workers of this process are an exception: they work in the calling
thread, where an interrupt may hit them in the middle of their work. The engine cannot be used afterwards.

The parts: `catalog` (which arrangements exist), `maintenance` (dataflows for them), `sharing` (what a new query
shares), `sources` (what queries may read), `coordinator` (epochs, and everything that is sent to workers).

Any number of threads can use an engine. Not guaranteed: that a thread closes the epoch of its own changes to inputs; a
transaction of any thread closes the epoch for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

import pyarrow as pa

from ikebana.cluster import Cluster
from ikebana.cluster.inprocess import InProcess
from ikebana.cluster.interrupts import complete_or_undo, defer_interrupts
from ikebana.engine.catalog import User
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.columns import Types, fields_of
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.extension import for_workers
from ikebana.engine.healing import RESTARTS, Healing
from ikebana.engine.inputs import Input
from ikebana.engine.inspection import EMPTY, explain_plan, indexes, known_key, names_by_dataflow, sizes_by_dataflow
from ikebana.engine.maintenance import Maintenance, Need
from ikebana.engine.named_subscriptions import NamedSubscriptions
from ikebana.engine.sharing import imported_arrangements, result_node
from ikebana.engine.sources import Sources
from ikebana.engine.stored_history import StoredHistory
from ikebana.engine.subscription_positions import SubscriptionStatus
from ikebana.engine.table_lifecycle import TableLifecycle
from ikebana.engine.table_storage import Recovered, TableStorage
from ikebana.engine.tables import Table, Transaction, table_fields
from ikebana.engine.views import View
from ikebana.errors import DataflowError
from ikebana.plan import ir
from ikebana.plan.estimates import Columns, Known
from ikebana.plan.sharing import make_private, readers_of, walk
from ikebana.runtime.messages import (
    Advance,
    ArrangementStatus,
    CountKeys,
    CreateInput,
    Install,
    Status,
    WaitAll,
)


class Engine:
    """Tables, inputs and views, maintained by a cluster of workers."""

    def __init__(
        self,
        workers: int = 1,
        *,
        seed: int = 0,
        effort: str = "default",
        share: bool = True,
        cluster: Cluster | None = None,
        timeout: float | None = None,
        memory: int | None = None,
        view_memory: int | None = None,
        spill: str | None = None,
        spill_bytes: int | None = None,
        storage: str | None = None,
        restarts: int = RESTARTS,
        restores_history: bool = False,
    ) -> None:
        """Start an engine, by default with workers of this process.

        `workers`: the number of workers.
        `seed`: seeds the order in which workers of this process take turns; results never depend on it.
        `effort`: how eagerly traces are merged.
        `share`: whether queries share arrangements.
        `cluster`: workers that were started elsewhere; they have their own `workers`, `seed`, `effort`, memory, spill.
        `timeout`: the default limit, in seconds, of all calls that wait for workers; None for no limit.
        `memory`: the bytes that this process may use, by default 80% of the machine's memory.
        `view_memory`: the bytes that each view may use, by default half of `memory`
        (`ikebana.runtime.memory_budget`).
        `spill`: a directory in which large batches of tables and views live, so that these can be larger than memory;
        by default all are in memory. `spill_bytes`: how many bytes a batch must have to live there, by default 64 MiB
        (`ikebana.encoding.spill_files`).
        `storage`: a directory, or the URI of one, in which tables are stored, and from which they come back
        (`ikebana.engine.table_storage`). Views have to be installed again.
        `restarts`: how many times within a minute workers that have died are replaced, if there is a storage directory,
        before the engine gives up (`ikebana.engine.healing`); 0 for never.
        `restores_history`: whether the history of views and tables is going to be restored
        (`ikebana.engine.stored_history`); `end_recovery` must be called then.
        """
        started = cluster or InProcess(
            workers,
            seed=seed,
            effort=effort,
            memory=memory,
            view_memory=view_memory,
            spill=spill,
            spill_bytes=spill_bytes,
        )
        self.coordinator, self._share = Coordinator(started, timeout), share
        self._maintenance, self._sources = Maintenance(self.coordinator), Sources()
        self.catalog = self._maintenance.catalog
        self.tables: dict[str, Table] = {}
        self._table_lifecycle = TableLifecycle(self.coordinator, self._maintenance, self._sources, self.tables)
        self.views: dict[str, View] = {}
        self._replacements: list[View] = []  # views whose names other views have: those that will replace them, or did
        self.recovered: Recovered | None = None
        """What was last found in the storage directory: at the start, or for new workers. None without a directory."""
        self.healing: Healing | None = None
        """Replaces workers that have died, if there is a storage directory."""
        self.history: StoredHistory | None = None
        """The views and tables whose history is stored, if there is a storage directory."""
        self.on_replaced: list[Callable[[Recovered], None]] = []
        """Called with what was found when workers were replaced, under the coordinator's lock."""
        if storage is not None:
            self._open_storage(storage, restarts, restores_history)

    @property
    def storage(self) -> TableStorage | None:
        """The storage directory, if there is one."""
        return self._table_lifecycle.storage

    @property
    def cluster(self) -> Cluster:
        """The workers."""
        return self.coordinator.cluster

    def _open_storage(self, place: str, restarts: int, restores_history: bool) -> None:
        """Open the storage directory, and create the tables that it has, with their rows."""
        try:
            storage = self._table_lifecycle.storage = TableStorage(place, self.coordinator)
            self.history = StoredHistory(self.coordinator, storage, is_restored=restores_history)
            self.coordinator.advance(storage.store.recovery.epoch + 1)
            subscriptions = NamedSubscriptions(self.coordinator, storage, self.tables, self.history)
            self.coordinator.named_subscriptions = subscriptions
            for stored in storage.tables():
                self._table_lifecycle.restore(stored)
            self.recovered = storage.restore([table.spec for table in self.tables.values()])
            if restarts:
                self.healing = Healing(self.coordinator, self.catalog, storage, self._on_replaced, restarts)
        except BaseException:
            with defer_interrupts():
                self.close()
            raise

    def end_recovery(self) -> None:
        """Say that the history of all views and tables that could be restored is: what nothing holds is given up."""
        if self.history is not None and self.coordinator.named_subscriptions is not None:
            self.history.end()
            self.coordinator.named_subscriptions.end_history()

    def _on_replaced(self, recovered: Recovered) -> None:
        self.recovered = recovered
        for listener in self.on_replaced:
            listener(recovered)

    @property
    def epoch(self) -> int:
        """The open epoch: all epochs before it are closed."""
        return self.coordinator.epoch

    # Inputs and tables.

    def input(self, name: str, columns: Types, key: str | Sequence[str] = ()) -> Input:
        """Create an input: a collection that a program changes directly, without checks or transactions.

        `columns` maps names to Arrow types, or is a list of Arrow fields. The rows are arranged by the columns `key`,
        by default by all columns.
        """
        fields = fields_of(columns)
        source = self._sources.new(name, fields)
        primary = source.arrange(*((key,) if isinstance(key, str) else key)).node
        schema = ir.schema_of(primary)  # raises if there can be no such arrangement
        with self.coordinator.lock, defer_interrupts():
            self.catalog.claim_name(name)
            dataflow = self.catalog.new_dataflow_name(f"input {name}")
            self.coordinator.command(CreateInput(name, fields, dataflow))
            self.coordinator.command(Advance(self.epoch), hold=True)
            self.coordinator.command(Install(dataflow, primary), hold=True)
            self.catalog.add(dataflow, primary)
            self.catalog.use(dataflow, User("input", name))
            self._sources.add(name, source.node)
        return Input(self.coordinator, name, source.node, schema)

    def table(
        self,
        name: str,
        columns: Types,
        key: str | Sequence[str] | None = None,
        kind: str = "table",
        *,
        durable: bool = True,
        internal: bool = False,
    ) -> Table:
        """Create a table, whose changes are checked and applied in transactions.

        `columns` maps names to Arrow types, or is a list of Arrow fields. A table with a `key` has at most one row for
        each key; key columns are never null, even if they are declared nullable. A table without a key is a bag, with
        any number of copies of a row. With `kind="stream"` rows are not kept: queries see those that arrive after they
        were installed. If the engine has a storage directory, the table is stored there, unless it is not `durable`;
        `internal` is stored with it: that it is not a user's table, but part of something else.
        """
        key = (key,) if isinstance(key, str) else tuple(key or ())
        fields = table_fields(name, columns, key, kind)
        return self._table_lifecycle.create(name, fields, key, kind, durable=durable, internal=internal)

    def add_column(self, name: str, field: pa.Field, default: Any = None, *, timeout: float | None = None) -> Table:
        """Add a column to a table that stores rows, which all get the value `default`; return the table.

        The change is one epoch of its own, and nothing else is committed meanwhile. The table is a new `Table`, which
        refuses what was staged for the old one. Views that read the table do not have the column; they go on, and get
        all later changes. For them, the table keeps its rows without the column as well, as long as one of them exists.
        """
        return self._table_lifecycle.add_column(name, field, default, timeout)

    def drop_table(self, name: str) -> None:
        """Drop a table, its rows and its arrangements. Raises if a view uses the table."""
        with self.coordinator.lock, defer_interrupts():
            if name not in self.tables:
                tables = ", ".join(map(repr, self.tables)) or "none"
                raise DataflowError(f"there is no table {name!r}", detail=f"tables are: {tables}")
            views = [*self.views.values(), *self._replacements]
            users = list(dict.fromkeys(view.name for view in views if readers_of(view.plan, {name})))
            if users:
                raise DataflowError(
                    f"cannot drop table {name!r}",
                    detail=f"it is used by {', '.join(map(repr, users))}",
                    hint="drop these views first",
                )
            self._table_lifecycle.drop(name)

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Begin a transaction: changes of any number of tables, applied together at one epoch, or not at all.

        Use it as `with engine.transaction(): ...`. Changes of tables inside the block belong to the transaction; at the
        end of the block they are checked and applied, which may take `timeout` seconds.
        """
        return Transaction(self.coordinator, timeout)

    # Views.

    def install(
        self,
        name: str,
        collection: Collection | Arrangement,
        *,
        share: bool | None = None,
        memory: int | None = None,
        beside: View | None = None,
        retain: str | timedelta | None = None,
        retain_bytes: int | None = None,
    ) -> View:
        """Install a standing query, whose result is kept up to date from now on.

        `share=False` lets the query build all its arrangements itself, to see what sharing saves. `memory` limits the
        bytes that the query may use on each worker, instead of the engine's `view_memory`; a query that needs more
        fails, without affecting others. `beside` is a view that has the name, and keeps it until `replace`. `retain`
        and `retain_bytes` say for how long its history is kept (`View.retain`).
        """
        node = for_workers(self._sources.renewed(collection.node), self.cluster.size)
        if node.scope:
            raise DataflowError(
                f"cannot install {name!r}",
                detail="it is a collection inside a loop",
                hint="install the collection that iterate() returns",
            )
        plan = result_node(node)
        ir.schema_of(plan)  # raises if there can be no such arrangement
        with self.coordinator.lock:
            self._sources.check(plan, f"cannot install {name!r}")
            view = complete_or_undo(lambda: self._install(name, plan, share, memory, beside), View.drop)
            try:
                view.retain(retain, retain_bytes)
            except BaseException:
                view.drop()
                raise
            if self.coordinator.named_subscriptions is not None and beside is None:
                self.coordinator.named_subscriptions.attach(view)
            return view

    def _install(self, name: str, plan: ir.Node, share: bool | None, memory: int | None, beside: View | None) -> View:
        if beside is None:
            self.catalog.claim_name(name)
        if share is False or not self._share:
            plan = make_private(plan, name)
        owner = f"{name} {self.coordinator.new_number()}" if plan.reads_stream and not plan.owner else ""
        imported = imported_arrangements(plan, self.catalog, share=self._share)
        needs = [Need(node, node.digest, User("view", name)) for node in imported]
        needs.append(Need(plan, name, User("view", name, is_owner=True), owner))
        try:
            uses = self._maintenance.use_all(needs, memory)
        except BaseException:
            if beside is None:
                self.catalog.free_name(name)
            raise
        dataflow, maintenance = uses[-1].dataflow, self._maintenance
        plan = self.catalog.arrangement(dataflow)
        view = View(self.coordinator, name, plan, dataflow, uses, self._retire, maintenance=maintenance)
        if beside is None:
            self.views[name] = view
        else:
            self._replacements.append(view)
        return view

    def replace(self, old: View, new: View) -> None:
        """Give the name of a view to another one, which was installed `beside` it. The old one can still be read."""
        with self.coordinator.lock, defer_interrupts():
            self._replacements.remove(new)
            self._replacements.append(old)
            self.views[new.name] = new
            if self.coordinator.named_subscriptions is not None:
                self.coordinator.named_subscriptions.end_all_of(old, "the view was replaced by another query")

    @property
    def subscriptions(self) -> list[SubscriptionStatus]:
        """The state of all named subscriptions (`View.changes`), which only an engine with a storage directory has."""
        named = self.coordinator.named_subscriptions
        return [] if named is None else named.statuses()

    def drop_subscription(self, name: str) -> None:
        """Drop a named subscription, and what waits for it."""
        if self.coordinator.named_subscriptions is None:
            raise DataflowError(f"there is no subscription {name!r}", detail="there is no storage directory")
        self.coordinator.named_subscriptions.drop(name)

    def _retire(self, view: View) -> None:
        if view in self._replacements:
            self._replacements.remove(view)
        else:
            self.catalog.free_name(view.name)
            self.views.pop(view.name, None)
        self._maintenance.release_all(view.uses)
        self._table_lifecycle.release_former_rows()

    # Epochs and work.

    def advance(self, epoch: int | None = None) -> int:
        """Close the open epoch, or with `epoch` all epochs before that one; return the epoch that is now open."""
        return self.coordinator.advance(epoch)

    def run(self, *, timeout: float | None = None) -> None:
        """Let the workers work until nothing is left to do, for at most `timeout` seconds."""
        self.coordinator.run(self.coordinator.deadline(timeout, "working until nothing is left to do"))

    def wait(self, epoch: int | None = None, *, timeout: float | None = None) -> None:
        """Wait until the results of all views are complete at an epoch, by default the last closed one.

        This takes a single request, unlike waiting for each view in turn.
        """
        deadline = self.coordinator.deadline(timeout, f"waiting for epoch {epoch or self.epoch - 1} of all views")
        with deadline.holding(self.coordinator.lock):
            epoch = self.epoch - 1 if epoch is None else epoch
            views = list(self.views.values())
            for view in views:
                view.demand(epoch)
        if views:
            self.coordinator.ask(WaitAll(tuple({view.dataflow for view in views}), epoch + 1), deadline=deadline)

    def close(self) -> None:
        """Stop the workers, and end all subscriptions."""
        if self.healing is not None:
            self.healing.close()
        for view in list(self.views.values()):
            view.end_changes()
        storage, self._table_lifecycle.storage = self.storage, None
        if storage is not None:
            storage.stop()
        self.cluster.close()
        self.coordinator.retentions.close()
        if storage is not None:
            storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Inspection.

    def status(self, *, timeout: float | None = None) -> list[ArrangementStatus]:
        """Return the size of every arrangement on each worker, and the tables and views that it belongs to."""
        deadline = self.coordinator.deadline(timeout, "asking for the arrangements")
        answers = self.coordinator.ask(Status(), deadline=deadline)
        with self.coordinator.lock:
            names = names_by_dataflow(self.catalog)
            keys = {dataflow: known_key(self.catalog, dataflow) for dataflow in names}
        return [
            replace(status, names=names.get(status.dataflow, ()), key=keys.get(status.dataflow, status.key))
            for answer in answers
            for status in answer
        ]

    def explain(self, collection: Collection | Arrangement, *, timeout: float | None = None) -> str:
        """Return the plan of a query as a tree, with the arrangements that it would reuse or build.

        An arrangement is *reused from* the table, input or view that maintains it, *shared with* views that use it, or
        *built here*. The tree shows the bytes of existing arrangements, and estimates for new ones
        (`ikebana.plan.estimates`).
        """
        sizes = sizes_by_dataflow(self.status(timeout=timeout))
        with self.coordinator.lock:
            self._sources.check(collection.node, "cannot explain the query")
            rows = {name: sizes.get(table.spec.dataflow, EMPTY).rows for name, table in self.tables.items()}
            read = {node.name for node in walk(collection.node) if isinstance(node, ir.Source)}
            indexed = indexes(self.catalog, read)
        known = Known(rows, self._count_groups(indexed, timeout))
        with self.coordinator.lock:
            plan = for_workers(collection.node, self.cluster.size)
            return explain_plan(plan, self.catalog, sizes, known, share=self._share)

    def _count_groups(self, indexed: Mapping[Columns, str], timeout: float | None) -> dict[Columns, int]:
        """How many different values indexed columns have, without indexes that are not built yet, or no longer."""
        groups = {}
        for columns, dataflow in indexed.items():
            with suppress(DataflowError):  # it has been retired meanwhile
                groups[columns] = self.count_keys(dataflow, timeout=timeout)
        return {columns: count for columns, count in groups.items() if count}

    def count_keys(self, dataflow: str, *, timeout: float | None = None) -> int:
        """Return how many keys the arrangement of a dataflow has; those of deleted rows count until compaction."""
        deadline = self.coordinator.deadline(timeout, "counting the keys of an index")
        return sum(self.coordinator.ask(CountKeys(dataflow), deadline=deadline))


def result_arrangement(collection: Collection) -> Arrangement:
    """The arrangement in which the result of a query is kept."""
    return Arrangement(result_node(collection.node))
