"""Tables and transactions: changes that are checked before they are applied.

    orders = engine.table("orders", {"id": pa.int64(), "total": pa.int64()}, key="id")
    orders.insert({"id": [1, 2], "total": [10, 20]})        # a transaction by itself: an epoch
    with engine.transaction():                              # several changes, several tables, one epoch
        orders.upsert({"id": [2], "total": [25]})
        lines.delete({"id": [7]})

Three kinds. A *keyed* table has at most one row for each key, and is arranged by it. A *bag* has rows with
multiplicities, and is arranged by all columns. A *stream* is not kept: a query sees the rows that come after it was
installed.

A transaction's rows travel to the workers that own them, are checked there against the table, and are applied
everywhere at one epoch, or nowhere: if anything is refused, or an error leaves the `with` block, all of it is dropped.
So it is, some time, when a transaction is lost without having ended.
Inside a block a table's methods belong to the thread's transaction; what they stage is seen by nobody, themselves
included, before the end.

Other processes can stage rows too, straight with their owners (`ikebana.runtime.staging.stages`): the transaction
then has to `adopt` the attempts at parts that succeeded.

Cost: see `ikebana.engine.coordinator` and `ikebana.runtime.transactions`. Not guaranteed: the use of one transaction by
several threads at once; different ones may use different transactions at any time.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from ikebana.cluster.interrupts import deferred
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.deadline import Deadline
from ikebana.errors import DataflowError, DroppedError, WaitTimeoutError
from ikebana.plan import ir
from ikebana.runtime.messages import TableSpec
from ikebana.runtime.staging import stages


class Transaction:
    """Changes that are applied together, at one epoch, or not at all."""

    def __init__(self, coordinator: Coordinator, timeout: float | None = None) -> None:
        """`timeout` is how many seconds applying it may take, at the end of its block."""
        self._coordinator, self._timeout = coordinator, timeout
        self.epoch: int | None = None
        """The epoch at which it was applied."""
        self._tables: dict[str, Table] = {}
        self._parts: dict[str, list[tuple[Any, int]]] = {}
        self._workers: set[int] | None = set()  # those that may have rows of it; None if all may
        self._names = itertools.count()
        self._ended = False
        with deferred():
            self.number = coordinator.begin()
            """What workers know it by."""
            self._lost = weakref.finalize(self, coordinator.abandon, self.number)
            self._lost.atexit = False

    def insert(self, table: Table, data: Any) -> None:
        """Add rows; in a keyed table their keys must not be there yet."""
        self.change(table, data, "insert")

    def upsert(self, table: Table, data: Any) -> None:
        """Add rows to a keyed table, in place of those with the same keys."""
        self.change(table, data, "upsert")

    def delete(self, table: Table, data: Any) -> None:
        """Take rows away: those with the given keys, or in a bag one copy of each row given."""
        self.change(table, data, "delete")

    def change(self, table: Table, data: Any, ops: Any) -> None:
        """Stage rows, with an op ("insert", "upsert" or "update", "delete") for all, or one for each, in order."""
        parts = self._parts_of(table)
        part = "driver", next(self._names)
        size = self._coordinator.cluster.size
        staged = stages(
            table.spec,
            defensive_copy(data),
            ops,
            transaction=self.number,
            part=part,
            workers=size,
            near=self.number % size,
        )
        for worker, stage in staged:
            self._coordinator.command(stage, worker)
            if self._workers is not None:
                self._workers.add(worker)
        parts.append((part, 0))

    def adopt(self, table: Table, parts: Iterable[tuple[Any, int]]) -> None:
        """Count what others have staged in this transaction: pairs of part and attempt, in order."""
        self._parts_of(table).extend(parts)
        self._workers = None

    def _parts_of(self, table: Table) -> list[tuple[Any, int]]:
        """The parts that count for a table, to be added to."""
        self._check_open()
        table.check()
        self._tables[table.name] = table
        return self._parts.setdefault(table.name, [])

    def commit(self, *, timeout: float | None = None) -> int:
        """Apply everything, and close the epoch; returns it. Raises, and applies nothing, if a table refuses.

        So it does when workers have not checked it within `timeout` seconds.
        """
        self._check_open()
        tables = ", ".join(map(repr, self._parts)) or "nothing"
        seconds = self._timeout if timeout is None else timeout
        deadline = self._coordinator.deadline(seconds, f"a change of {tables}, of which nothing was applied,")
        try:
            with deadline.holding(self._coordinator.lock):
                return self._committed(deadline)
        except WaitTimeoutError:
            if not self._ended:  # the lock was not to be had, and aborting would wait for it too
                self._end()
                self._coordinator.abandon(self.number)
            raise

    def _committed(self, deadline: Deadline) -> int:
        """Apply everything; the lock is held."""
        parts = tuple((name, tuple(parts)) for name, parts in self._parts.items())
        workers = None if self._workers is None else sorted(self._workers)
        try:
            for table in self._tables.values():
                table.check()
            self.epoch = self._coordinator.commit(self.number, parts, workers, deadline)
        except BaseException:
            self.abort()
            raise
        self._end()
        return self.epoch

    def abort(self) -> None:
        """Drop everything; does nothing after the end."""
        with deferred():
            if not self._ended:
                self._end()
                self._coordinator.abort(self.number)

    def _end(self) -> None:
        self._ended = True
        self._lost.detach()

    def __enter__(self) -> Self:
        self._check_open()
        if current(self._coordinator) is not None:
            raise DataflowError(
                "a transaction is under way in this thread already",
                hint="end its `with` block first, or use methods of the transaction itself",
            )
        self._coordinator.mine.transaction = self
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._coordinator.mine.transaction = None
        if kind is not None:
            self.abort()
        elif not self._ended:
            self.commit()

    def _check_open(self) -> None:
        if self._ended:
            raise DroppedError("the transaction has ended", hint="begin another")


def current(coordinator: Coordinator) -> Transaction | None:
    """The transaction whose block this thread is in."""
    return getattr(coordinator.mine, "transaction", None)


def defensive_copy(data: Any) -> Any:
    """The data, safe from changes that the caller makes to its NumPy arrays before they are taken in."""
    if not isinstance(data, Mapping):
        return data
    return {name: column.copy() if isinstance(column, np.ndarray) else column for name, column in data.items()}


class Table(Collection):
    """A collection of rows whose changes are checked. See `Engine.table`."""

    def __init__(
        self,
        coordinator: Coordinator,
        node: ir.Node,
        spec: TableSpec,
        maintain: Callable[[ir.Node, str], str],
        release: Callable[[str], None],
    ) -> None:
        super().__init__(node)
        self.name, self.spec, self.kind = spec.name, spec, spec.kind
        self.key = [field.name for field in spec.key]
        self.dropped = False
        self._coordinator, self._maintain, self._release = coordinator, maintain, release
        self._arrangements: dict[tuple[str, ...], str] = {}  # the dataflows that keep them

    def insert(self, data: Any, *, timeout: float | None = None) -> int | None:
        """Add rows: a mapping of columns, an Arrow table or a record batch. Their keys must not be there yet.

        Returns the epoch at which they are there; None inside a transaction, which is not over yet.
        """
        return self.change(data, "insert", timeout=timeout)

    def upsert(self, data: Any, *, timeout: float | None = None) -> int | None:
        """Add rows in place of those with the same keys."""
        return self.change(data, "upsert", timeout=timeout)

    def delete(self, data: Any, *, timeout: float | None = None) -> int | None:
        """Take rows away. Of a keyed table: those with the given keys; other columns are not looked at."""
        return self.change(data, "delete", timeout=timeout)

    def change(self, data: Any, ops: Any, *, timeout: float | None = None) -> int | None:
        """Rows of a change feed, each with an op: "insert", "upsert" or "update", "delete". The last for a key wins.

        Inside a transaction nothing is waited for: its end has a `timeout` of its own.
        """
        transaction = current(self._coordinator)
        if transaction is not None:
            transaction.change(self, data, ops)
            return None
        alone = Transaction(self._coordinator)
        try:
            alone.change(self, data, ops)
            return alone.commit(timeout=timeout)
        except BaseException:
            alone.abort()
            raise

    def arrange(self, *key: str, by: str | Sequence[str] | None = None) -> Arrangement:
        """Indexed by key columns. With `by` the arrangement is kept from now on, until `drop_arrangement`.

        All queries share it either way; kept, it is there before the first of them and after the last.
        """
        if by is None:
            return super().arrange(*key)
        self.check()
        if self.kind == "stream":
            raise DataflowError(
                f"cannot keep an arrangement of {self.name!r}",
                detail="it is a stream, of which nothing is kept",
                hint="queries arrange what they see of it themselves",
            )
        by = (by,) if isinstance(by, str) else tuple(by)
        made = super().arrange(*by)
        ir.schema_of(made.node)  # raises if there can be no such arrangement
        with self._coordinator.lock:
            if by not in self._arrangements:
                self._arrangements[by] = self._maintain(made.node, f"table {self.name} by {', '.join(by)}")
        return made

    def drop_arrangement(self, by: str | Sequence[str]) -> None:
        """Let go of an arrangement; queries that use it keep it as long as they need it."""
        key = (by,) if isinstance(by, str) else tuple(by)
        with self._coordinator.lock:
            if key not in self._arrangements:
                kept = "; ".join(", ".join(each) for each in self._arrangements) or "none"
                raise DataflowError(
                    f"table {self.name!r} keeps no further arrangement by {', '.join(key)}",
                    detail=f"those it keeps: {kept}",
                )
            self._release(self._arrangements.pop(key))

    def drop_arrangements(self) -> None:
        """Let go of all further arrangements."""
        with self._coordinator.lock:
            for key in list(self._arrangements):
                self.drop_arrangement(key)

    def check(self) -> None:
        """Raise if the table was dropped."""
        if self.dropped:
            raise DroppedError(f"table {self.name!r} was dropped", hint="create it again")
