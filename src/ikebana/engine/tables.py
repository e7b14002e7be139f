"""Tables and transactions: changes that are checked before they are applied.

    orders = engine.table("orders", {"id": pa.int64(), "total": pa.int64()}, key="id")
    orders.insert({"id": [1, 2], "total": [10, 20]})        # a transaction of its own: one epoch
    with engine.transaction():                              # several changes, several tables, one epoch
        orders.upsert({"id": [2], "total": [25]})
        lines.delete({"id": [7]})

There are three kinds of tables. A *keyed* table has at most one row for each key, and is arranged by its key. A *bag*
has rows with multiplicities, and is arranged by all columns. The rows of a *stream* are not kept: a query sees those
that arrive after it was installed.

The rows of a transaction are sent to the workers that own them, checked there against the table, and applied on all
workers at one epoch. If a worker finds a problem, or an error leaves the `with` block, nothing is applied. A
transaction that is garbage-collected before it has ended is aborted some time later.

Inside a `with` block the methods of tables belong to the transaction of that thread (`enlisted`). Staged rows are not
visible to any reader before the transaction is committed, not even to the thread itself.

Other processes can also stage rows, directly with the workers that own them (`ikebana.runtime.staging.stages`). The
transaction must then take over (`_adopt`) the attempts that succeeded.

The workers' side: `ikebana.runtime.staging` splits rows by owner, `ikebana.runtime.transactions` checks them.

Cost: see `ikebana.engine.coordinator` and `ikebana.runtime.net_changes`. Not guaranteed: the use of one transaction by
several threads at once. Different threads may use different transactions at any time.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ikebana.cluster.interrupts import defer_interrupts
from ikebana.engine.catalog import Use, User
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.columns import Types, fields_of
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.deadline import Deadline
from ikebana.engine.durable_commits import Candidate, DurableCommits
from ikebana.engine.lookups import given_keys
from ikebana.engine.maintenance import Maintenance, Need
from ikebana.engine.result_tables import plain_rows
from ikebana.engine.results import At, LookupIndex, Result
from ikebana.engine.thread_transactions import current_transaction, enter_transaction, leave_transaction
from ikebana.errors import DataflowError, DroppedError, SchemaError, WaitTimeoutError, WorkerLostError
from ikebana.operators.changes import Changes, Fields
from ikebana.plan import ir
from ikebana.runtime.messages import Push, TableSpec
from ikebana.runtime.staging import changes_by_owner, in_pieces, stages


class Transaction:
    """Changes of tables that are applied together, at one epoch, or not at all. See `Engine.transaction`."""

    def __init__(self, coordinator: Coordinator, timeout: float | None = None) -> None:
        """Begin a transaction. `timeout` limits the seconds that applying it may take."""
        self._coordinator, self._timeout = coordinator, timeout
        self.epoch: int | None = None
        """The epoch at which the transaction was applied; None before."""
        self._tables: dict[str, Table] = {}
        self._parts: dict[str, list[tuple[Any, int]]] = {}
        self._workers: set[int] | None = set()  # the workers that may have rows of it; None if any may
        self._part_numbers = itertools.count()
        self._ended = False
        self.note: Any = None
        """Values of JSON that are stored with the changes, if the tables are durable."""
        if coordinator.healing is not None and coordinator.healing.is_replacing:
            with coordinator.deadline(timeout, "beginning a transaction").holding(coordinator.lock):
                pass  # the new workers are there
        with defer_interrupts():
            self.number = coordinator.begin()
            """Identifies the transaction in messages to workers."""
            self.cluster = coordinator.cluster
            """The workers that have its rows."""
            self._abandon = weakref.finalize(self, coordinator.abandon, self.number)
            self._abandon.atexit = False

    def insert(self, table: Table, data: Any) -> None:
        """Add rows to a table; see `Table.insert`."""
        self.change(table, data, "insert")

    def upsert(self, table: Table, data: Any) -> None:
        """Add rows to a keyed table, replacing rows with the same keys; see `Table.upsert`."""
        self.change(table, data, "upsert")

    def delete(self, table: Table, data: Any) -> None:
        """Remove rows from a table; see `Table.delete`."""
        self.change(table, data, "delete")

    def change(self, table: Table, data: Any, ops: Any) -> None:
        """Stage rows with an operation: "insert", "upsert" (or "update") or "delete".

        `ops` is one operation for all rows, or a sequence with one for each row; rows take effect in order.
        """
        parts = self._parts_of(table)
        first = len(parts)
        size = self._coordinator.cluster.size
        staged = stages(
            table.spec,
            defensive_copy(data),
            ops,
            transaction=self.number,
            part=None,
            workers=size,
            stream_worker=self.number % size,  # spreads the rows of streams, which have no owner, over the workers
        )
        for worker, stage in staged:
            for number, piece in enumerate(in_pieces(stage), first):
                if number == len(parts):
                    parts.append((("driver", next(self._part_numbers)), 0))
                with self._explained():
                    self._coordinator.send(replace(piece, part=parts[number][0]), worker, self.cluster)
            if self._workers is not None:
                self._workers.add(worker)

    def _adopt(self, table: Table, parts: Iterable[tuple[Any, int]]) -> None:
        """Make rows that other processes have staged part of this transaction.

        `parts` are pairs of part and attempt, in the order in which their rows take effect.
        """
        self._parts_of(table).extend(parts)
        self._workers = None

    def _parts_of(self, table: Table) -> list[tuple[Any, int]]:
        """The parts of a table that belong to the transaction, to be appended to."""
        self._check_open()
        table.check_not_dropped()
        self._tables[table.name] = table
        return self._parts.setdefault(table.name, [])

    def commit(self, *, timeout: float | None = None) -> int:
        """Apply all changes and close the epoch; return that epoch.

        Raises, and applies nothing, if a table rejects a change, or if the workers have not checked the transaction
        within `timeout` seconds.
        """
        self._check_open()
        tables = ", ".join(map(repr, self._parts)) or "nothing"
        seconds = self._timeout if timeout is None else timeout
        deadline = self._coordinator.deadline(seconds, f"a change of {tables}, of which nothing was applied,")
        try:
            with self._explained():
                if self._coordinator.durable_commits is not None and self._is_durable:
                    return self._committed_durably(self._coordinator.durable_commits, deadline)
                with deadline.holding(self._coordinator.lock):
                    epoch = self._committed(deadline)
                if self.note is not None and self._coordinator.store_note is not None:
                    self._coordinator.store_note(self.note)
                return epoch
        except WaitTimeoutError:
            if not self._ended:  # the lock was not available in time, and aborting would wait for it too
                self._end()
                self._coordinator.abandon(self.number)
            raise

    @property
    def _is_durable(self) -> bool:
        """Whether something of it has to be stored."""
        return self._workers != set() and any(table.spec.stored_as for table in self._tables.values())

    def _committed(self, deadline: Deadline) -> int:
        """Apply all changes; the lock is held."""
        workers = None if self._workers is None else sorted(self._workers)
        try:
            self._check()
            self.epoch = self._coordinator.commit(self.number, self._all_parts(), workers, deadline)
        except BaseException:
            self.abort()
            raise
        self._end()
        return self.epoch

    def _committed_durably(self, commits: DurableCommits, deadline: Deadline) -> int:
        """Store and apply all changes."""
        workers = range(self._coordinator.cluster.size) if self._workers is None else sorted(self._workers)
        candidate = Candidate(self.number, self._all_parts(), tuple(workers), self.note, self._check, deadline)
        try:
            self.epoch = commits.commit(candidate)
        except WaitTimeoutError:
            raise
        except BaseException:
            self.abort()
            raise
        self._end()
        return self.epoch

    def _all_parts(self) -> tuple[tuple[str, tuple[tuple[Any, int], ...]], ...]:
        return tuple((name, tuple(parts)) for name, parts in self._parts.items())

    def _check(self) -> None:
        """Raise if it cannot be committed any more: a table was dropped, or the workers that have the rows are gone."""
        for table in self._tables.values():
            table.check_not_dropped()
            if not table.spec.stored_as:
                self._coordinator.definitions.unstored.add(table.name)
        if self._coordinator.cluster is not self.cluster:
            raise WorkerLostError("a worker has died", detail="the workers that had the rows were replaced since")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """A block in which the death of a worker is an error that says what that means for the transaction."""
        try:
            yield
        except WorkerLostError as error:
            if self._coordinator.healing is None:
                raise
            raise WorkerLostError(
                "nothing of the transaction was applied",
                detail=f"{error.what}: {error.detail}" if error.detail else error.what,
                hint="try again: the workers are being replaced",
            ) from error

    def abort(self) -> None:
        """Discard all changes. Does nothing if the transaction has ended."""
        with defer_interrupts():
            if not self._ended:
                self._end()
                self._coordinator.abort(self.number)

    def _end(self) -> None:
        self._ended = True
        self._abandon.detach()

    def __enter__(self) -> Self:
        self._check_open()
        if current_transaction(self._coordinator) is not None:
            raise DataflowError(
                "a transaction is already open in this thread",
                hint="end its `with` block first, or call the methods of the transaction itself",
            )
        enter_transaction(self._coordinator, self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        leave_transaction(self._coordinator)
        if kind is not None:
            self.abort()
        elif not self._ended:
            self.commit()

    def _check_open(self) -> None:
        if self._ended:
            raise DroppedError("the transaction has ended", hint="begin another transaction")


# The transaction of a thread.


@contextmanager
def enlisted(coordinator: Coordinator, timeout: float | None = None) -> Iterator[Transaction]:
    """A block whose changes belong to the thread's transaction, or else to one that is committed when the block ends.

    `timeout` limits the seconds of that commit. If the block raises, its own transaction is aborted; the thread's
    transaction is left open.
    """
    outer = current_transaction(coordinator)
    if outer is not None:
        yield outer
        return
    own = Transaction(coordinator, timeout)
    try:
        yield own
        own.commit()
    except BaseException:
        own.abort()
        raise


def defensive_copy(data: Any) -> Any:
    """The data, with its NumPy arrays copied, so that the caller may change them before they are encoded."""
    if not isinstance(data, Mapping):
        return data
    return {name: column.copy() if isinstance(column, np.ndarray) else column for name, column in data.items()}


# Tables.


class Table(Collection):
    """A collection of rows whose changes are checked and applied in transactions. See `Engine.table`."""

    def __init__(
        self,
        coordinator: Coordinator,
        node: ir.Node,
        spec: TableSpec,
        maintenance: Maintenance,
        primary: Use | None,
    ) -> None:
        """`primary` is the use of the arrangement that holds the rows; None for a stream."""
        super().__init__(node)
        assert isinstance(node, ir.Source)
        self.name, self.spec, self.kind, self.identity = spec.name, spec, spec.kind, node.identity
        self.key = [field.name for field in spec.key]
        self.dropped = False
        self._coordinator, self._maintenance, self._primary = coordinator, maintenance, primary
        self.former_rows: list[tuple[ir.Source, Use]] = []
        """The table before columns were added, and the arrangement that holds these rows: the oldest first."""
        self._indexes: dict[tuple[str, ...], Use] = {}  # the arrangements kept in addition, by key columns
        self._readers: dict[tuple[str, ...], Result] = {}  # for look-ups, by columns

    def insert(self, data: Any, *, timeout: float | None = None) -> int | None:
        """Add rows. In a keyed table, the keys must not exist yet.

        `data` is a mapping of column names to values, an Arrow table or a record batch. Returns the epoch at which the
        rows were added, or None inside a transaction. `timeout` limits the seconds that this may take.
        """
        return self.change(data, "insert", timeout=timeout)

    def upsert(self, data: Any, *, timeout: float | None = None) -> int | None:
        """Add rows to a keyed table, replacing rows with the same keys. Parameters and result are as for `insert`."""
        return self.change(data, "upsert", timeout=timeout)

    def delete(self, data: Any, *, timeout: float | None = None) -> int | None:
        """Remove rows, which must exist.

        From a keyed table: the rows with the given keys; other columns are ignored and may be missing. From a bag: one
        copy of each given row. Parameters and result are as for `insert`.
        """
        return self.change(data, "delete", timeout=timeout)

    def change(self, data: Any, ops: Any, *, timeout: float | None = None) -> int | None:
        """Apply the rows of a change feed, in order: of several rows with the same key the last one wins.

        `ops` is "insert", "upsert" (or "update") or "delete" for all rows, or a sequence with one of these for each
        row. Returns the epoch at which the changes were applied. Inside a transaction the rows are only staged: the
        result is None, and `timeout` is ignored in favour of the transaction's own.
        """
        deadline = self._coordinator.deadline(timeout, f"a change of {self.name!r}")
        while True:
            try:
                with enlisted(self._coordinator, timeout) as transaction:
                    transaction.change(self, data, ops)
                return transaction.epoch
            except WorkerLostError:  # nothing was applied
                if current_transaction(self._coordinator) is not None:
                    raise
                if not deadline.run(partial(self._coordinator.has_replaced, transaction.cluster)):
                    raise
                timeout = deadline.seconds_or_none()

    def apply(self, data: Any, diffs: Any, deadline: Deadline) -> int:
        """Change the multiplicities of rows in an epoch of its own, without a check; return the epoch.

        For a table that only one caller changes, who knows all its rows, such as the parameters of a prepared
        statement: the changes must leave at most one row for each key. Rows of a stream may be removed again, too.
        `data` is as for `insert`, and `diffs` is one integer for all rows, or one for each. Cost: commands to the
        workers, for which nobody waits. The deadline is for the coordinator's lock.
        """
        self.check_not_dropped()
        if self.spec.stored_as:
            raise DataflowError(
                f"cannot apply changes to table {self.name!r} without a check",
                detail="it is stored, and such changes are not",
                hint="create it with durable=False, or change it in transactions",
            )
        with deadline.holding(self._coordinator.lock), defer_interrupts():
            epoch = self._coordinator.epoch
            changes = Changes.of(self.node.columns, data, (epoch,), diffs)
            definitions, healing = self._coordinator.definitions, self._coordinator.healing
            pushes = [(worker, Push(self.name, part)) for worker, part in self._by_owner(changes)]
            definitions.last_changes[self.name] = epoch
            for worker, push in pushes if healing is not None else ():
                definitions.note_change(push, worker)
            for worker, push in pushes:
                self._coordinator.command(push, worker)
            self._coordinator.advance()
            return epoch

    def _by_owner(self, changes: Changes) -> Iterator[tuple[int, Changes]]:
        """The changes of each worker's rows; those of a stream, which have no owner, all for one worker."""
        if self.spec.schema is None:
            yield self._coordinator.next_worker(), changes
            return
        yield from changes_by_owner(self.spec.schema, changes, self._coordinator.cluster.size)

    def arrange(self, *key: str, by: str | Sequence[str] | None = None) -> Arrangement:
        """Return the table arranged by key columns, by default by all columns.

        An arrangement exists as long as a query uses it, and all queries share it. With `by`, in place of `key`, the
        table itself keeps the arrangement from now on, before the first query and after the last, until
        `drop_arrangement`.
        """
        if by is None:
            return super().arrange(*key)
        self.check_not_dropped()
        if self.kind == "stream":
            raise DataflowError(
                f"cannot keep an arrangement of {self.name!r}",
                detail="it is a stream, whose rows are not kept",
                hint="install a query: it arranges the rows of the stream that it sees",
            )
        by = (by,) if isinstance(by, str) else tuple(by)
        arrangement = super().arrange(*by)
        ir.schema_of(arrangement.node)  # raises if there can be no such arrangement
        with self._coordinator.lock:
            if by not in self._indexes:
                name = f"table {self.name} by {', '.join(by)}"
                self._indexes[by] = self._maintenance.use(Need(arrangement.node, name, User("table", self.name)))
        return arrangement

    def drop_arrangement(self, by: str | Sequence[str]) -> None:
        """Stop keeping an arrangement that was created with `arrange(by=...)`. Queries that use it are not affected."""
        key = (by,) if isinstance(by, str) else tuple(by)
        with self._coordinator.lock:
            if key not in self._indexes:
                existing = "; ".join(", ".join(columns) for columns in self._indexes) or "none"
                raise DataflowError(
                    f"table {self.name!r} keeps no further arrangement by {', '.join(key)}",
                    detail=f"further arrangements are by: {existing}",
                )
            self._readers.pop(key, None)
            self._maintenance.release(self._indexes.pop(key))

    def unused_indexes(self) -> dict[tuple[str, ...], str]:
        """Return the arrangements that `arrange(by=...)` keeps and nobody uses: their dataflows, by key columns."""
        catalog = self._maintenance.catalog
        with self._coordinator.lock:
            kept = [(by, use) for by, use in self._indexes.items() if by not in self._readers]
            return {by: use.dataflow for by, use in kept if catalog.users_of(use.dataflow) == [use.user]}

    def lookup(self, keys: Any = None, /, *, at: At = None, timeout: float | None = None, **columns: Any) -> pa.Table:
        """Return the rows that have given values in some columns, from the workers that own them: see `View.lookup`.

        If the columns are not those of the key, the first call keeps an arrangement by them, as `arrange(by=...)` does.
        """
        self.check_not_dropped()
        if self.kind == "stream":
            raise DataflowError(
                f"cannot look up rows of table {self.name!r}",
                detail="it is a stream, whose rows are not kept",
                hint="install a query over it, and look up the rows of its view",
            )
        given = given_keys(f"table {self.name!r}", self.columns, keys, columns)
        by = tuple(given)
        reader = self._readers.get(by) or self._new_reader(by)
        return plain_rows(reader.find(given, at, timeout=timeout), self.name).select(self.columns)

    def _new_reader(self, by: tuple[str, ...]) -> Result:
        """The table's arrangement by some columns: the primary one, or else one that is kept from now on."""
        assert self.spec.schema is not None and self._primary is not None
        primary_key = [field.name for field in self.spec.schema.key.fields]
        with self._coordinator.lock:
            if set(by) == set(primary_key):
                node, dataflow = super().arrange(*primary_key).node, self._primary.dataflow
                reader = Result(self._coordinator, self.name, node, dataflow, "table")
            else:
                node, dataflow = self.arrange(by=by).node, self._indexes[by].dataflow
                reader = LookupIndex(self._coordinator, self.name, node, dataflow, "table")
            self._readers[by] = reader
            return reader

    def replace(self, old: Table) -> None:
        """Take the place of a table that lacks a column: keep its indexes, and its rows for those who read them."""
        kept = list(old._indexes)
        for key in kept:
            old.drop_arrangement(key)
        for key in kept:
            self.arrange(by=key)
        assert isinstance(old.node, ir.Source) and old._primary is not None
        self.former_rows = [*old.former_rows, (old.node, old._primary)]
        old.dropped, old._primary, old.former_rows = True, None, []

    def mark_dropped(self) -> None:
        """Release all arrangements and refuse further changes: the part of `Engine.drop_table` that is the table's."""
        with self._coordinator.lock:
            for key in list(self._indexes):
                self.drop_arrangement(key)
            self.dropped = True
            if self._primary is not None:
                self._maintenance.release_all([*(use for _, use in self.former_rows), self._primary])

    def check_not_dropped(self) -> None:
        """Raise if the table was dropped."""
        if self.dropped:
            raise DroppedError(f"table {self.name!r} was dropped", hint="create it again")


def table_fields(name: str, columns: Types, key: Sequence[str], kind: str) -> Fields:
    """The checked columns of a new table, those of the key not nullable."""
    fields = fields_of(columns)
    names = [field.name for field in fields]
    if kind not in ("table", "stream"):
        raise SchemaError(f"cannot create {name!r} with kind {kind!r}", hint='`kind` is "table" or "stream"')
    if not fields:
        raise SchemaError(f"table {name!r} has no columns", hint="give at least one column")
    unknown = [column for column in key if column not in names]
    if unknown:
        raise SchemaError(
            f"table {name!r} has no column {unknown[0]!r} to be its key",
            detail=f"the columns are {', '.join(names)}",
        )
    if key and kind == "stream":
        raise SchemaError(f"stream {name!r} cannot have a key", detail="the rows of a stream are not kept")
    return tuple(field.with_nullable(False) if field.name in key else field for field in fields)
