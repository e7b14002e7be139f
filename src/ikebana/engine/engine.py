"""The engine as a library: tables, inputs, epochs, views, on workers of this process or of others.

    engine = Engine(workers=2)
    edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    degrees = engine.install("degrees", edges.count("src"))
    edges.insert({"src": [1, 1, 2], "dst": [2, 3, 3]})
    engine.advance()                    # closes the epoch
    degrees.read()                      # an Arrow table

An input's or a table's changes are kept in an arrangement of their own, so that a query installed at any time sees all
of them; those of a stream are not. Arrangements that several queries can use are maintained by dataflows of their own
and live as long as one of them does. With `share=False` every query builds its own.

Inputs take whatever they are given, at the present epoch, which `advance` closes. Tables are for users: their changes
are checked and come in transactions, each of which closes the epoch by itself (`ikebana.engine.tables`).

An interrupt (Ctrl-C) ends the call that waits, and leaves the engine as it was before that call: a view or table that
was being made is dropped, a transaction aborted. Workers of this process work in the caller's own thread: there it may
come in the middle of their work, and the engine is then of no further use.

Any number of threads can use an engine. Not guaranteed: that inputs' changes of one thread are closed by itself; any
transaction closes the epoch for all.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from ikebana.cluster import Cluster
from ikebana.cluster.inprocess import InProcess
from ikebana.cluster.interrupts import completed, deferred
from ikebana.encoding import Schema
from ikebana.engine.collection import Arrangement, Collection, Types, fields_of
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.tables import Table, Transaction, defensive_copy
from ikebana.engine.views import View
from ikebana.errors import DataflowError, SchemaError, TimeError
from ikebana.operators.changes import Changes, Fields
from ikebana.plan import ir
from ikebana.plan.estimates import estimated_bytes, shown_bytes
from ikebana.plan.sharing import explain, is_shareable, private, readers_of, walk
from ikebana.runtime.messages import (
    FAILURES,
    Advance,
    ArrangementStatus,
    CloseInput,
    CreateInput,
    CreateTable,
    DataflowFailed,
    DropTable,
    Install,
    Push,
    Retire,
    Status,
    TableSpec,
    WaitAll,
)

__all__ = ["Engine", "Input", "Table", "Transaction", "View"]


class Engine:
    """Inputs and views over W workers."""

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
        """`timeout` is how many seconds calls that wait for workers may take, unless they are told otherwise.

        `memory` is how many bytes this process may use, by default 80% of the machine's, and `view_memory` each view,
        by default half of that (`ikebana.runtime.memory_budget`); a `cluster` has its own.
        """
        self.cluster: Cluster = cluster or InProcess(
            workers, seed=seed, effort=effort, memory=memory, view_memory=view_memory
        )
        self.coordinator, self._share = Coordinator(self.cluster, timeout), share
        self._next_worker = 0
        self._names: set[str] = set()
        self._times: Counter[str] = Counter()  # how often a dataflow was given a name
        self._flows: dict[str, str] = {}  # the dataflow that maintains an arrangement, by digest
        self._nodes: dict[str, ir.Node] = {}  # the arrangement, by digest
        self._uses: Counter[str] = Counter()  # how many views, tables, inputs and other dataflows need a dataflow
        self._failed: set[str] = set()  # dataflows that have failed: others are made in their place
        self.coordinator.follow(FAILURES, self._note_failure)
        self._identity, self._created = secrets.token_hex(8), itertools.count()
        self._sources: dict[str, ir.Node] = {}  # inputs and tables, by name
        self.tables: dict[str, Table] = {}
        self.views: dict[str, View] = {}

    @property
    def epoch(self) -> int:
        """The present epoch: those before it are closed."""
        return self.coordinator.epoch

    # What there is.

    def input(self, name: str, columns: Types, key: str | Sequence[str] = ()) -> Input:
        """A new input: a collection that changes by what is inserted into it and removed from it."""
        fields = fields_of(columns)
        source = self._new_source(name, fields)
        primary = source.arrange(*((key,) if isinstance(key, str) else key)).node
        ir.schema_of(primary)  # raises if there can be no such arrangement
        with self.coordinator.lock, deferred():
            self._claim(name)
            self.coordinator.command(CreateInput(name, fields))
            self.coordinator.command(Advance(self.epoch))
            self._maintain(primary, f"input {name}")
            self._sources[name] = source.node
        return Input(self, name, source.node)

    def table(self, name: str, columns: Types, key: str | Sequence[str] | None = None, kind: str = "table") -> Table:
        """A new table: keyed if it has a key, else a bag; with `kind="stream"` nothing is kept of it.

        Key columns are never null, however they are declared.
        """
        key = (key,) if isinstance(key, str) else tuple(key or ())
        fields = _table_fields(name, columns, key, kind)
        source = self._new_source(name, fields, is_stream=kind == "stream")
        if kind == "stream":
            primary, spec = None, TableSpec(name, fields, "stream")
        else:
            primary = source.arrange(*key).node if key else _as_arrangement(source.node)
            spec = TableSpec(name, fields, "keyed" if key else "bag", ir.schema_of(primary))
        with self.coordinator.lock:
            return completed(
                lambda: self._create(source.node, spec, primary), lambda table: self.drop_table(table.name)
            )

    def _create(self, source: ir.Node, spec: TableSpec, primary: ir.Node | None) -> Table:
        """Create a table with its primary arrangement, if it has one."""
        self._claim(spec.name)
        if primary is not None:
            spec = replace(spec, dataflow=self._new_name(f"table {spec.name}"))
            self._flows[primary.digest], self._nodes[primary.digest] = spec.dataflow, primary
            self._uses[spec.dataflow] += 1
        self.coordinator.command(CreateTable(spec))
        if primary is not None:
            self.coordinator.command(Install(spec.dataflow, primary))
        table = Table(self.coordinator, source, spec, self._maintain, self._release)
        self.tables[spec.name], self._sources[spec.name] = table, source
        return table

    def drop_table(self, name: str) -> None:
        """Drop a table, its rows and its arrangements; refused while a view needs it."""
        with self.coordinator.lock, deferred():
            table = self._table(name)
            users = [view.name for view in self.views.values() if readers_of(view.plan, {name})]
            if users:
                raise DataflowError(
                    f"cannot drop table {name!r}",
                    detail=f"it is used by {', '.join(repr(user) for user in users)}",
                    hint="drop these views first",
                )
            table.drop_arrangements()
            table.dropped = True
            if table.spec.schema is not None:
                self._release(table.spec.dataflow)
            self.coordinator.command(DropTable(name))
            self._names.discard(name)
            del self.tables[name], self._sources[name]

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Changes of any number of tables, to be applied together at one epoch: `with engine.transaction(): ...`.

        At the end of the block they are checked and applied; `timeout` is how many seconds that may take.
        """
        return Transaction(self.coordinator, timeout)

    def install(
        self,
        name: str,
        collection: Collection | Arrangement,
        *,
        share: bool | None = None,
        memory: int | None = None,
    ) -> View:
        """A standing query: its result is kept up to date from now on.

        With `share=False` it builds all its arrangements itself, to see what sharing saves. `memory` is how many bytes
        it may use on each worker, if not as many as other views; with more it fails, alone.
        """
        node = collection.node
        if node.scope:
            raise DataflowError(
                f"cannot install {name!r}", detail="it is inside a loop", hint="use what iterate returns"
            )
        plan = _as_arrangement(node)
        ir.schema_of(plan)  # raises if there can be no such arrangement
        with self.coordinator.lock:
            self._check_sources(plan, f"cannot install {name!r}")
            return completed(lambda: self._install(name, plan, share, memory), View.drop)

    def _install(self, name: str, plan: ir.Node, share: bool | None, memory: int | None) -> View:
        self._claim(name)
        plan = private(plan, name) if share is False else self._owned(plan, name)
        used = [node for node in walk(plan) if self._is_shared(node, plan)]
        uses = self._maintain_all({**{node: node.digest for node in used}, plan: name}, name, memory)
        view = self.views[name] = View(self.coordinator, name, plan, self._flows[plan.digest], uses, self._retire)
        return view

    def _owned(self, plan: ir.Node, name: str) -> ir.Node:
        """The plan, with arrangements of its own of what it may not share: streams are seen from now on only."""
        if not self._share:
            return private(plan, name)
        streams = {table.name for table in self.tables.values() if table.kind == "stream"}
        windowed = readers_of(plan, streams) if streams else set()
        if plan.digest not in windowed:
            return plan
        owner = f"{name} {self.coordinator.new_number()}"
        return private(plan, owner, lambda node: node.digest in windowed and not getattr(node, "owner", ""))

    def _new_source(self, name: str, fields: Fields, is_stream: bool = False) -> Collection:
        """An input or table that is told from all others, in whichever engine, that have or had its name."""
        identity = f"{self._identity} {next(self._created)}"
        return Collection(ir.make(ir.Source, name=name, fields=fields, is_stream=is_stream, identity=identity))

    def _check_sources(self, plan: ir.Node, what: str) -> None:
        """Raise if a plan reads anything but inputs and tables of this engine, as they are now."""
        for node in walk(plan):
            if isinstance(node, ir.Source) and self._sources.get(node.name) is not node:
                is_mine = node.identity.startswith(f"{self._identity} ")
                why = "was dropped" if is_mine else "belongs to another engine or session"
                raise DataflowError(
                    f"{what}: it reads {node.name!r}, which {why}",
                    detail="a table is not the one that has its name elsewhere, or had it before",
                    hint="make the query from the tables and inputs that this engine has now",
                )

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            known = ", ".join(map(repr, self.tables)) or "none"
            raise DataflowError(f"there is no table {name!r}", detail=f"those there are: {known}")
        return self.tables[name]

    def _primary(self, table: Table) -> ir.Node:
        """The primary arrangement of a table."""
        source = Collection(table.node)
        return source.arrange(*table.key).node if table.key else _as_arrangement(table.node)

    # Arrangements and the dataflows that maintain them.

    def _is_shared(self, node: ir.Node, plan: ir.Node) -> bool:
        """Whether a plan is to import this arrangement: it is maintained already, or others may want it too."""
        may_be_wanted = self._share and is_shareable(node) and not getattr(node, "owner", "")
        return node is not plan and (self._flow_of(node) is not None or may_be_wanted)

    def _flow_of(self, node: ir.Node) -> str | None:
        """The dataflow that maintains an arrangement, if one does and has not failed."""
        flow = self._flows.get(node.digest)
        return None if flow in self._failed else flow

    def _note_failure(self, worker: int, item: DataflowFailed) -> None:
        self._failed.add(item.dataflow)

    def _maintain_all(self, nodes: Mapping[ir.Node, str], view: str, memory: int | None) -> list[str]:
        """One more use of each arrangement; none, and the view's name is free again, if one cannot be installed."""
        done: list[str] = []
        try:
            for node, name in nodes.items():
                done.append(self._maintain(node, name, memory))
        except BaseException:
            self._names.discard(view)
            for flow in reversed(done):
                self._release(flow)
            raise
        return done

    def _maintain(self, node: ir.Node, name: str, memory: int | None = None) -> str:
        """One more use of an arrangement, maintained by a dataflow of its own, in so many bytes on each worker.

        Returns the dataflow.
        """
        flow = self._flow_of(node)
        if flow is None:
            flow = self._new_name(name)
            self.coordinator.command(Install(flow, node, memory))
            self._flows[node.digest], self._nodes[node.digest] = flow, node
        self._uses[flow] += 1
        return flow

    def _new_name(self, name: str) -> str:
        """A name for a dataflow that none ever had: one that was retired may live on for others, or in letters."""
        self._times[name] += 1
        return name if self._times[name] == 1 else self._new_name(f"{name} #{self._times[name]}")

    def _release(self, flow: str) -> None:
        """One use less of a dataflow; the last one retires it."""
        self._uses[flow] -= 1
        if not self._uses[flow]:
            del self._uses[flow]
            self._failed.discard(flow)
            for digest in [digest for digest, each in self._flows.items() if each == flow]:
                del self._flows[digest], self._nodes[digest]
            self.coordinator.command(Retire(flow))

    # Time and work.

    def advance(self, epoch: int | None = None) -> int:
        """Close the present epoch, or all before `epoch`; returns the epoch that is now open."""
        return self.coordinator.advance(epoch)

    def run(self, *, timeout: float | None = None) -> None:
        """Work until nothing is left to do."""
        self.coordinator.run(self.coordinator.deadline(timeout, "working until nothing is left to do"))

    def wait(self, epoch: int | None = None, *, timeout: float | None = None) -> None:
        """Work until all views have their results at an epoch, by default the last that is closed.

        One request, where waiting for each view takes one for each.
        """
        with self.coordinator.lock:
            epoch = self.epoch - 1 if epoch is None else epoch
            views = list(self.views.values())
            for view in views:
                view.demand(epoch)
        if views:
            deadline = self.coordinator.deadline(timeout, f"waiting for epoch {epoch} of all views")
            self.coordinator.ask(WaitAll(tuple({view.dataflow for view in views}), epoch + 1), deadline=deadline)

    def status(self, *, timeout: float | None = None) -> list[ArrangementStatus]:
        """Every arrangement that a dataflow maintains, on each worker: how large it is, and who needs it."""
        deadline = self.coordinator.deadline(timeout, "asking for the arrangements")
        found = [each for answer in self.coordinator.ask(Status(), deadline=deadline) for each in answer]
        with self.coordinator.lock:
            names = self._names_by_dataflow()
        return [replace(each, names=tuple(names.get(each.dataflow, ()))) for each in found]

    def _names_by_dataflow(self) -> dict[str, list[str]]:
        """The tables and views that dataflows keep; for what only queries share, the sources that it is made from."""
        names: dict[str, list[str]] = {}
        for table in self.tables.values():
            names.setdefault(table.spec.dataflow, []).append(table.name)
        for view in self.views.values():
            names.setdefault(view.dataflow, []).append(view.name)
        for node in self._nodes.values():
            sources = sorted({each.name for each in walk(node) if isinstance(each, ir.Source)})
            names.setdefault(self._flows[node.digest], sources)
        return names

    def close(self) -> None:
        """End the workers, and all that follows views."""
        for view in list(self.views.values()):
            view.end_changes()
        self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def explain(self, collection: Collection | Arrangement, *, timeout: float | None = None) -> str:
        """The plan of a query as a tree, and which arrangements it would reuse or build.

        An arrangement is *reused from* the table, input or view that keeps it, *shared with* the views that brought it
        about, or *built here*; with the bytes that it has, or would have by `ikebana.plan.estimates`.
        """
        flows = self._bytes_by_dataflow(timeout)
        with self.coordinator.lock:
            self._check_sources(collection.node, "cannot explain the query")
            rows = {name: flows.get(table.spec.dataflow, (0, 0))[0] for name, table in self.tables.items()}

            def status(node: ir.Node) -> str:
                if not ir.is_stored(node):
                    return ""
                flow = self._flow_of(node) if self._share else None
                size = estimated_bytes(node, rows) if flow is None else flows.get(flow, (0, 0))[1]
                how = "built here" if flow is None else self._kept_by(flow)
                return f"  <- {how}, {'about ' * (flow is None)}{shown_bytes(size)}" if size else f"  <- {how}"

            return explain(collection.node, status)

    def _bytes_by_dataflow(self, timeout: float | None) -> dict[str, tuple[int, int]]:
        """How many rows and bytes each dataflow's arrangement has, on all workers."""
        found: dict[str, tuple[int, int]] = {}
        for each in self.status(timeout=timeout):
            rows, size = found.get(each.dataflow, (0, 0))
            found[each.dataflow] = rows + each.rows, size + each.bytes
        return found

    def _kept_by(self, flow: str) -> str:
        """Who keeps an arrangement that exists."""
        owners = [f"table {each.name}" for each in self.tables.values() if each.spec.dataflow == flow]
        owners += [f"view {each.name}" for each in self.views.values() if each.dataflow == flow]
        users = [each.name for each in self.views.values() if flow in each.uses]
        if owners or not users:
            return f"reused from {owners[0] if owners else flow}"
        return f"shared with {', '.join(users)}"

    def _claim(self, name: str) -> None:
        if name in self._names:
            raise DataflowError(f"the name {name!r} is taken", hint="choose another, or drop what has it")
        self._names.add(name)

    def _retire(self, view: View) -> None:
        self._names.discard(view.name)
        self.views.pop(view.name, None)
        for flow in reversed(view.uses):
            self._release(flow)

    def worker_for_next_push(self) -> int:
        """Pushes go round the workers; arranging sends every row where it belongs."""
        self._next_worker = (self._next_worker + 1) % self.cluster.size
        return self._next_worker


class Input(Collection):
    """A collection that is changed from outside."""

    def __init__(self, engine: Engine, name: str, node: ir.Node) -> None:
        super().__init__(node)
        self.name, self._engine, self._closed = name, engine, False

    def insert(self, data: Any) -> None:
        """Add rows, at the present epoch: a mapping of columns, or an Arrow table."""
        self.push(data, 1)

    def remove(self, data: Any) -> None:
        """Take rows away, at the present epoch."""
        self.push(data, -1)

    def close(self) -> None:
        """It will not change any more: what was only kept for changes to come is released."""
        self._closed = True
        self._engine.coordinator.command(CloseInput(self.name))

    def push(self, data: Any, diffs: Any, epochs: Any = None) -> None:
        """Change rows by diffs, at the present epoch or at others that are still open."""
        if self._closed:
            raise DataflowError(f"input {self.name!r} was closed", hint="make a new input for further changes")
        engine = self._engine
        with engine.coordinator.lock:
            times = (engine.epoch,) if epochs is None else epochs
            changes = Changes.of(self.node.columns, defensive_copy(data), times, np.array(diffs))
            if len(changes) and changes.times[:, 0].min() < engine.epoch:
                raise TimeError(
                    f"cannot change input {self.name!r} at epoch {changes.times[:, 0].min()}",
                    detail=f"epochs before {engine.epoch} are closed",
                    hint="give changes at the present epoch or later",
                )
            engine.coordinator.command(Push(self.name, changes), engine.worker_for_next_push())


def result_arrangement(collection: Collection) -> Arrangement:
    """The arrangement in which the result of a query is kept."""
    return Arrangement(_as_arrangement(collection.node))


def _as_arrangement(node: ir.Node) -> ir.Node:
    """The arrangement in which a view's result is kept: the one that it is, if it is the rows of one."""
    arrangement = node.source if isinstance(node, ir.AsStream) else node
    if ir.is_stored(arrangement):
        return arrangement
    fields = node.columns
    by_first = Schema(fields[:1], fields[1:])
    first_alone = not by_first.hashed and Schema(fields).hashed  # two lanes that are exact, rather than a hash
    key = (fields[0].name,) if first_alone else tuple(field.name for field in fields)
    return ir.make(ir.Arrange, source=node, key=key)


def _table_fields(name: str, columns: Types, key: Sequence[str], kind: str) -> tuple[Any, ...]:
    """The columns of a table, checked; those of the key never null."""
    fields = fields_of(columns)
    known = [field.name for field in fields]
    if kind not in ("table", "stream"):
        raise SchemaError(f"cannot make {name!r}, a {kind!r}", hint='`kind` is "table" or "stream"')
    unknown = [each for each in key if each not in known]
    if unknown or not fields:
        raise SchemaError(
            f"table {name!r} has no column {unknown[0]!r} to be its key"
            if unknown
            else f"table {name!r} has no columns",
            detail=f"the columns are {', '.join(known) or 'none'}",
        )
    if key and kind == "stream":
        raise SchemaError(f"stream {name!r} cannot have a key", detail="nothing is kept of it that could have one")
    return tuple(field.with_nullable(False) if field.name in key else field for field in fields)
