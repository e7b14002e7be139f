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

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from ikebana.cluster import Cluster
from ikebana.cluster.inprocess import InProcess
from ikebana.cluster.interrupts import complete_or_undo, defer_interrupts
from ikebana.engine.catalog import User
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.columns import Types, fields_of
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.extension import for_workers
from ikebana.engine.inputs import Input
from ikebana.engine.inspection import EMPTY, explain_plan, names_by_dataflow, sizes_by_dataflow
from ikebana.engine.maintenance import Maintenance, Need
from ikebana.engine.sharing import imported_arrangements, result_node
from ikebana.engine.sources import Sources
from ikebana.engine.tables import Table, Transaction, table_fields
from ikebana.engine.views import View
from ikebana.errors import DataflowError
from ikebana.plan import ir
from ikebana.plan.sharing import make_private, readers_of
from ikebana.runtime.messages import (
    Advance,
    ArrangementStatus,
    CreateInput,
    CreateTable,
    DropTable,
    Install,
    Status,
    TableSpec,
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
    ) -> None:
        """Start an engine, by default with workers of this process.

        `workers`: the number of workers.
        `seed`: seeds the order in which workers of this process take turns; results never depend on it.
        `effort`: how eagerly traces are merged.
        `share`: whether queries share arrangements.
        `cluster`: workers that were started elsewhere; they have their own `workers`, `seed`, `effort` and memory.
        `timeout`: the default limit, in seconds, of all calls that wait for workers; None for no limit.
        `memory`: the bytes that this process may use, by default 80% of the machine's memory.
        `view_memory`: the bytes that each view may use, by default half of `memory`
        (`ikebana.runtime.memory_budget`).
        """
        self.cluster: Cluster = cluster or InProcess(
            workers, seed=seed, effort=effort, memory=memory, view_memory=view_memory
        )
        self.coordinator, self._share = Coordinator(self.cluster, timeout), share
        self._maintenance, self._sources = Maintenance(self.coordinator), Sources()
        self.catalog = self._maintenance.catalog
        self.tables: dict[str, Table] = {}
        self.views: dict[str, View] = {}
        self._replacements: list[View] = []  # views whose names other views have: those that will replace them, or did

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
        ir.schema_of(primary)  # raises if there can be no such arrangement
        with self.coordinator.lock, defer_interrupts():
            self.catalog.claim_name(name)
            self.coordinator.command(CreateInput(name, fields))
            self.coordinator.command(Advance(self.epoch))
            self._maintenance.use(Need(primary, f"input {name}", User("input", name)))
            self._sources.add(name, source.node)
        return Input(self.coordinator, name, source.node)

    def table(self, name: str, columns: Types, key: str | Sequence[str] | None = None, kind: str = "table") -> Table:
        """Create a table, whose changes are checked and applied in transactions.

        `columns` maps names to Arrow types, or is a list of Arrow fields. A table with a `key` has at most one row for
        each key; key columns are never null, even if they are declared nullable. A table without a key is a bag, with
        any number of copies of a row. With `kind="stream"` rows are not kept: queries see those that arrive after they
        were installed.
        """
        key = (key,) if isinstance(key, str) else tuple(key or ())
        fields = table_fields(name, columns, key, kind)
        source = self._sources.new(name, fields, is_stream=kind == "stream")
        if kind == "stream":
            primary, spec = None, TableSpec(name, fields, "stream")
        else:
            primary = source.arrange(*key).node if key else result_node(source.node)
            spec = TableSpec(name, fields, "keyed" if key else "bag", ir.schema_of(primary))
        with self.coordinator.lock:
            return complete_or_undo(
                lambda: self._create(source.node, spec, primary), lambda table: self.drop_table(table.name)
            )

    def _create(self, source: ir.Node, spec: TableSpec, primary: ir.Node | None) -> Table:
        """Create a table and its primary arrangement, if it has one."""
        self.catalog.claim_name(spec.name)
        primary_use = None
        if primary is not None:
            spec = replace(spec, dataflow=self.catalog.new_dataflow_name(f"table {spec.name}"))
            self.catalog.add(spec.dataflow, primary)
            primary_use = self.catalog.use(spec.dataflow, User("table", spec.name, is_owner=True))
        self.coordinator.command(CreateTable(spec))
        if primary is not None:
            self.coordinator.command(Install(spec.dataflow, primary))
        table = Table(self.coordinator, source, spec, self._maintenance, primary_use)
        self.tables[spec.name] = table
        self._sources.add(spec.name, source)
        return table

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
            self.tables.pop(name).mark_dropped()
            self.coordinator.command(DropTable(name))
            self.catalog.free_name(name)
            self._sources.remove(name)

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
    ) -> View:
        """Install a standing query, whose result is kept up to date from now on.

        `share=False` lets the query build all its arrangements itself, to see what sharing saves. `memory` limits the
        bytes that the query may use on each worker, instead of the engine's `view_memory`; a query that needs more
        fails, without affecting others. `beside` is a view that has the name, and keeps it until `replace`.
        """
        node = for_workers(collection.node, self.cluster.size)
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
            return complete_or_undo(lambda: self._install(name, plan, share, memory, beside), View.drop)

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

    def _retire(self, view: View) -> None:
        if view in self._replacements:
            self._replacements.remove(view)
        else:
            self.catalog.free_name(view.name)
            self.views.pop(view.name, None)
        self._maintenance.release_all(view.uses)

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
        with self.coordinator.lock:
            epoch = self.epoch - 1 if epoch is None else epoch
            views = list(self.views.values())
            for view in views:
                view.demand(epoch)
        if views:
            deadline = self.coordinator.deadline(timeout, f"waiting for epoch {epoch} of all views")
            self.coordinator.ask(WaitAll(tuple({view.dataflow for view in views}), epoch + 1), deadline=deadline)

    def close(self) -> None:
        """Stop the workers, and end all subscriptions."""
        for view in list(self.views.values()):
            view.end_changes()
        self.cluster.close()

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
        return [replace(status, names=names.get(status.dataflow, ())) for answer in answers for status in answer]

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
            plan = for_workers(collection.node, self.cluster.size)
            return explain_plan(plan, self.catalog, sizes, rows, share=self._share)


def result_arrangement(collection: Collection) -> Arrangement:
    """The arrangement in which the result of a query is kept."""
    return Arrangement(result_node(collection.node))
