"""The engine as a library: inputs, epochs, views, on workers of this process.

    engine = Engine(workers=2)
    edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    degrees = engine.install("degrees", edges.count("src"))
    edges.insert({"src": [1, 1, 2], "dst": [2, 3, 3]})
    engine.advance()                    # closes the epoch
    degrees.read()                      # an Arrow table

An input's changes are kept in an arrangement of their own, so that a query installed at any time sees all of them.
Arrangements that several queries can use are maintained by dataflows of their own and live as long as one of them
does. With `share=False` every query builds its own.

Not guaranteed: use from several threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ikebana.collection import Arrangement, Collection, Types, fields_of
from ikebana.dataflow.messages import Advance, CloseInput, CreateInput, Demand, Install, Push, Read, Retire, Wait
from ikebana.dataflow.transport import Cluster
from ikebana.dataflow.transport.inprocess import InProcess
from ikebana.errors import DataflowError, TimeError
from ikebana.operators.changes import Changes
from ikebana.plan import ir
from ikebana.plan.sharing import explain, is_shareable, private, walk
from ikebana.trace import Schema


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
    ) -> None:
        self.cluster: Cluster = cluster or InProcess(workers, seed=seed, effort=effort)
        self.epoch, self._share = 0, share
        self._next_worker = 0
        self._names: set[str] = set()
        self._times: Counter[str] = Counter()  # how often a dataflow was given a name
        self._flows: dict[str, str] = {}  # the dataflow that maintains an arrangement, by digest
        self._uses: Counter[str] = Counter()  # how many views, inputs and other dataflows need it

    def input(self, name: str, columns: Types, key: str | Sequence[str] = ()) -> Input:
        """A new input: a collection that changes by what is inserted into it and removed from it."""
        fields = fields_of(columns)
        source = Collection(ir.make(ir.Source, name=name, fields=fields))
        kept = source.arrange(*((key,) if isinstance(key, str) else key)).node
        ir.schema_of(kept)  # raises if there can be no such arrangement
        self._claim(name)
        self.cluster.command(CreateInput(name, fields))
        self.cluster.command(Advance(self.epoch))
        self._maintain(kept, f"input {name}")
        return Input(self, name, source.node)

    def install(self, name: str, collection: Collection | Arrangement) -> View:
        """A standing query: its result is kept up to date from now on."""
        node = collection.node
        if node.scope:
            raise DataflowError(
                f"cannot install {name!r}", detail="it is inside a loop", hint="use what iterate returns"
            )
        plan = _as_arrangement(node)
        ir.schema_of(plan)  # raises if there can be no such arrangement
        self._claim(name)
        if not self._share:
            plan = private(plan, name)
        used = [node for node in walk(plan) if self._is_shared(node, plan)]
        for shared in used:
            self._maintain(shared, shared.digest)
        self._maintain(plan, name)
        return View(self, name, plan, self._flows[plan.digest], [node.digest for node in (*used, plan)])

    def _is_shared(self, node: ir.Node, plan: ir.Node) -> bool:
        """Whether a plan is to import this arrangement: it is maintained already, or others may want it too."""
        return node is not plan and (node.digest in self._flows or (self._share and is_shareable(node)))

    def _maintain(self, node: ir.Node, name: str) -> None:
        """One more use of an arrangement, maintained by a dataflow of its own."""
        self._uses[node.digest] += 1
        if node.digest not in self._flows:
            self._flows[node.digest] = self._new_name(name)
            self.cluster.command(Install(self._flows[node.digest], node))

    def _new_name(self, name: str) -> str:
        """A name for a dataflow that none ever had: one that was retired may live on for others, or in letters."""
        self._times[name] += 1
        return name if self._times[name] == 1 else self._new_name(f"{name} #{self._times[name]}")

    def _release(self, digest: str) -> None:
        """One use less; the last one retires the dataflow."""
        self._uses[digest] -= 1
        if not self._uses[digest]:
            self.cluster.command(Retire(self._flows.pop(digest)))

    def advance(self, epoch: int | None = None) -> int:
        """Close the present epoch, or all before `epoch`; returns the epoch that is now open."""
        target = self.epoch + 1 if epoch is None else epoch
        if target < self.epoch:
            raise TimeError(f"cannot go back to epoch {target}", detail=f"the present epoch is {self.epoch}")
        self.epoch = target
        self.cluster.command(Advance(target))
        return target

    def run(self) -> None:
        """Work until nothing is left to do."""
        self.cluster.run()

    def close(self) -> None:
        """End the workers."""
        self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def explain(self, collection: Collection | Arrangement) -> str:
        """The plan of a query as a tree, and which arrangements it would reuse or build."""

        def status(node: ir.Node) -> str:
            if not isinstance(node, ir.ByKey | ir.ReduceOf):
                return ""
            return "  <- reused" if self._share and node.digest in self._flows else "  <- built"

        return explain(collection.node, status)

    def _claim(self, name: str) -> None:
        if name in self._names:
            raise DataflowError(f"the name {name!r} is taken", hint="choose another, or drop what has it")
        self._names.add(name)

    def _retire(self, view: View) -> None:
        self._names.discard(view.name)
        for digest in reversed(view.uses):
            self._release(digest)

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
        self._engine.cluster.command(CloseInput(self.name))

    def push(self, data: Any, diffs: Any, epochs: Any = None) -> None:
        """Change rows by diffs, at the present epoch or at others that are still open."""
        if self._closed:
            raise DataflowError(f"input {self.name!r} was closed", hint="make a new input for further changes")
        times = (self._engine.epoch,) if epochs is None else epochs
        changes = Changes.of(self.node.columns, _kept(data), times, np.array(diffs))
        if len(changes) and changes.times[:, 0].min() < self._engine.epoch:
            raise TimeError(
                f"cannot change input {self.name!r} at epoch {changes.times[:, 0].min()}",
                detail=f"epochs before {self._engine.epoch} are closed",
                hint="give changes at the present epoch or later",
            )
        self._engine.cluster.command(Push(self.name, changes), self._engine.worker_for_next_push())


class View:
    """A standing query's result."""

    def __init__(self, engine: Engine, name: str, plan: ir.Node, dataflow: str, uses: list[str]) -> None:
        self.name, self.dataflow, self.uses = name, dataflow, uses
        self._engine, self._plan, self._dropped = engine, plan, False

    def read(self, at: int | None = None) -> pa.Table:
        """The result at an epoch, by default the last that is closed: its columns, and `diff`."""
        epoch = self._engine.epoch - 1 if at is None else at
        self.wait(epoch)
        return pa.concat_tables(self._engine.cluster.ask(Read(self.dataflow, (epoch,))))

    def wait(self, epoch: int) -> None:
        """Work until the result at an epoch is complete."""
        self._check()
        if epoch >= self._engine.epoch:
            raise TimeError(
                f"cannot wait for epoch {epoch} of {self.name!r}",
                detail=f"it is still open: the present epoch is {self._engine.epoch}",
                hint="advance the engine past it first",
            )
        self._engine.cluster.command(Demand(self.dataflow, epoch + 1))
        self._engine.cluster.ask(Wait(self.dataflow, epoch + 1))

    def rows(self) -> Collection:
        """The result as a collection, for further queries: they share it while this view lives."""
        self._check()
        return Arrangement(self._plan).rows()

    def drop(self) -> None:
        """Retire the query, and release what only it used."""
        if not self._dropped:
            self._dropped = True
            self._engine._retire(self)

    def _check(self) -> None:
        if self._dropped:
            raise DataflowError(f"view {self.name!r} was dropped", hint="install it again")


def _kept(data: Any) -> Any:
    """The data, safe from changes that the caller makes to its NumPy arrays before they are taken in."""
    if not isinstance(data, Mapping):
        return data
    return {name: column.copy() if isinstance(column, np.ndarray) else column for name, column in data.items()}


def _as_arrangement(node: ir.Node) -> ir.Node:
    """The arrangement in which a view's result is kept: the one that it is, if it is the rows of one."""
    arrangement = node.source if isinstance(node, ir.Rows) else node
    if ir.is_stored(arrangement):
        return arrangement
    fields = node.columns
    by_first = Schema(fields[:1], fields[1:])
    first_alone = not by_first.hashed and Schema(fields).hashed  # two lanes that are exact, rather than a hash
    key = (fields[0].name,) if first_alone else tuple(field.name for field in fields)
    return ir.make(ir.ByKey, source=node, key=key)
