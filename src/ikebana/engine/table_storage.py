"""Durable tables: the engine's side of a storage directory.

    engine = Engine(storage="/data/shop")       # the tables that the directory has are there
    engine.recovered                            # what was found, and how long each step took

The directory has the definitions of tables, and their rows: batches of a snapshot, and a log of the transactions after
it (`ikebana.storage`). Every transaction is logged before it is committed (`ikebana.engine.durable_commits`). A thread
takes a snapshot when the log of a worker has `SNAPSHOT_BYTES`, and one when the engine is closed; they do not hold up
transactions (`ikebana.runtime.durability`).

Durable are tables with and without a key. A stream has no rows to store, so only its definition is. The contents of
inputs, views and indexes are not stored. Notes of transactions (`Transaction.note`) are: a note {"position": [name,
value]} makes `value` the position of that name, in one atomic step with the changes of the transaction. A name that
begins with the stored name of a table, and a space, is dropped with the table.

A column that is added to a table is an entry of the catalogue, with its value in the rows that the table has by then.
Stored rows are not written again for it: rows without the column get the value when they are loaded.

If storage fails, or another process has taken the directory over, no further transaction is accepted; readers go on.

Not guaranteed: that epochs without changes of durable tables survive. After a restart, epochs continue after the last
one that has such changes.
"""

from __future__ import annotations

import base64
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ikebana.cluster import Cluster
from ikebana.cluster.interrupts import defer_interrupts
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.durable_commits import Candidate, DurableCommits
from ikebana.errors import IkebanaError, StorageError, WorkerLostError
from ikebana.operators.changes import Fields
from ikebana.runtime.messages import (
    BeginSnapshot,
    OpenStorage,
    Restore,
    Restored,
    SnapshotStatus,
    TableSpec,
    TrimStorage,
    WaitAll,
)
from ikebana.storage import DRIVER, DeleteEntry, PutEntry, StorageCatalog, Store, Transaction, open_directory
from ikebana.storage.lease import Lease, is_in_use

log = logging.getLogger("ikebana")

SNAPSHOT_BYTES = 64 << 20
"""A snapshot is taken when the log of a worker has so many bytes since the last one."""

WAIT_SECONDS = 5.0
"""How long to wait for a process that uses the directory, and may be about to end."""

_RETRY_SECONDS = 5.0
"""After a snapshot that could not be written, the time until it is tried again."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2
"""The seconds between questions whether a snapshot is written, or files are deleted."""

_TABLE, _POSITION = "table", "position"
"""The kinds of entries in the catalogue of the directory, by name."""

_DIRECTORY, _IDENTITY, _POSITIONS_EPOCH = "directory", "identity", "positions epoch"
"""Entries of which there is one: a unique text, and the epoch up to which the catalogue has positions."""

EPOCH_TIMES = _DIRECTORY, "epoch times"
"""Another such entry: when epochs were closed whose history is kept (`ikebana.engine.epoch_times`)."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The definition of a table in the directory."""

    name: str
    stored_as: str
    fields: Fields
    key: tuple[str, ...]
    kind: str  # "table" or "stream"
    is_internal: bool = False  # part of something that is stored elsewhere, such as a program
    added: pa.RecordBatch | None = None  # a row: the values of columns that were added, in rows stored before
    arranged_by: tuple[str, ...] = ()  # by which columns a table without a key is arranged, if not by all

    def to_json(self) -> dict[str, Any]:
        """The definition as values of JSON."""
        schema = pa.schema(self.fields)
        entry = {
            "stored_as": self.stored_as,
            "schema": _text(schema.serialize()),
            "key": list(self.key),
            "kind": self.kind,
            "internal": self.is_internal,
        }
        if self.added is not None:
            added = {"schema": _text(self.added.schema.serialize()), "values": _text(self.added.serialize())}
            entry |= {"added": added, "arranged_by": list(self.arranged_by)}
        return entry

    @staticmethod
    def of_json(name: str, value: dict[str, Any]) -> StoredTable:
        """The definition that `to_json` has written."""
        schema, added = pa.ipc.read_schema(_buffer(value["schema"])), None
        if "added" in value:
            added_schema = pa.ipc.read_schema(_buffer(value["added"]["schema"]))
            added = pa.ipc.read_record_batch(_buffer(value["added"]["values"]), added_schema)
        return StoredTable(
            name,
            value["stored_as"],
            tuple(schema),
            tuple(value["key"]),
            value["kind"],
            value.get("internal", False),
            added,
            tuple(value.get("arranged_by", ())),
        )

    def with_column(self, field: pa.Field, value: pa.Array, arranged_by: tuple[str, ...]) -> StoredTable:
        """The definition with a further column, which has a value in all rows that are stored by now."""
        before = () if self.added is None else zip(self.added.schema, self.added.columns, strict=True)
        fields, values = zip(*before, (field, value), strict=True)
        added = pa.RecordBatch.from_arrays(list(values), schema=pa.schema(fields))
        return replace(self, fields=(*self.fields, field), added=added, arranged_by=arranged_by)


def _text(content: pa.Buffer) -> str:
    return base64.b64encode(content).decode()


def _buffer(text: str) -> pa.Buffer:
    return pa.py_buffer(base64.b64decode(text))


@dataclass(frozen=True, slots=True)
class Recovered:
    """What an engine has found in its storage directory, and how long it took to be ready, in seconds.

    `open_seconds` went into the lease, and into deciding which transactions are complete. `batch_seconds` and
    `log_seconds` went into loading rows, on the slowest worker. If workers were replaced, `reason` says why,
    `start_seconds` went into starting new ones, and `install_seconds` into installing views, which are then computed.
    """

    epoch: int  # the last one; -1 if the directory was empty
    tables: int
    batch_rows: int  # loaded from batches of the last snapshot
    log_rows: int  # changes loaded from the log after it
    dropped: int  # transactions in the log that were not complete, or were aborted
    open_seconds: float
    batch_seconds: float
    log_seconds: float
    seconds: float
    reason: str = ""
    start_seconds: float = 0.0
    install_seconds: float = 0.0

    def __str__(self) -> str:
        why = f", because {self.reason}" if self.reason else ""
        rows = f"{self.batch_rows:,} rows from the snapshot, {self.log_rows:,} changes from the log"
        return f"epoch {self.epoch}, tables: {self.tables}, {rows}, in {self.seconds:.1f} s{why}"


def refuse_if_in_use(place: str) -> None:
    """Raise if another process is known to use a directory; sooner than opening it, which needs workers."""
    directory = open_directory(place)
    if is_in_use(directory):
        Lease(directory, "").release()  # raises, and says who it is


class TableStorage:
    """A storage directory, with the tables of one engine."""

    def __init__(self, place: str, coordinator: Coordinator) -> None:
        """Open a directory, or create it. Raises if another process uses it."""
        self._coordinator, started = coordinator, time.perf_counter()
        self.store = Store.open(place, shards=coordinator.cluster.size, wait=WAIT_SECONDS)
        try:
            self._open_shards(coordinator.cluster)
            self.positions: dict[str, Any] = dict(self.store.catalog.entries(_POSITION))
            """The last position of each name."""
            self.stored_since: dict[str, int] = {}
            """By table: from which epoch on the history that was stored is exact."""
            self._apply_notes()
            if self.store.catalog.get(_DIRECTORY, _IDENTITY) is None:
                self.store.catalog.put(_DIRECTORY, _IDENTITY, secrets.token_hex(8))
        except BaseException:
            self.store.close()
            raise
        self._open_seconds = time.perf_counter() - started
        coordinator.durable_commits = self._commits = DurableCommits(coordinator, self.store, self._on_commit)
        coordinator.store_note = self.store_note
        self._has_changes = False  # that the last snapshot does not have
        self._snapshot_lock = threading.Lock()
        self._files_lock = threading.Lock()  # held while files are deleted, or workers replaced
        self._due, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="ikebana snapshots", daemon=True)

    def _apply_notes(self) -> None:
        """Take the positions from the notes of the transactions after those that the catalogue has."""
        for _, note in self.store.recovery.notes(self.store.catalog.get(_DIRECTORY, _POSITIONS_EPOCH, -1)):
            self._note(note)

    def _note(self, note: Any) -> None:
        if note is not None:
            name, value = note["position"]
            self.positions[name] = value

    def store_note(self, note: Any, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Store a note without any changes, unless it is not wanted any more, and return when it is on disk."""
        store = self.store
        with self._coordinator.lock:
            if not is_wanted():
                return
            number, epoch = store.new_transaction(), self._coordinator.epoch
            position = store.log.append(Transaction(number, epoch, (DRIVER,), note=note))
            self._note(note)
        store.log.sync(position)

    @contextmanager
    def catalog(self) -> Iterator[StorageCatalog]:
        """A block with the catalogue, which is not replaced meanwhile."""
        with self._coordinator.lock:
            yield self.store.catalog

    # Tables.

    def tables(self) -> list[StoredTable]:
        """The tables that the directory has, in the order in which they were created."""
        entries = self.store.catalog.entries(_TABLE)
        return [StoredTable.of_json(name, value) for name, value in entries.items()]

    def identity_of(self, stored_as: str) -> str:
        """What distinguishes a stored table from all others, in this directory and elsewhere."""
        return f"{self.store.catalog.get(_DIRECTORY, _IDENTITY)} {stored_as}"

    def create(self, name: str, fields: Fields, key: tuple[str, ...], kind: str, *, internal: bool = False) -> str:
        """Store the definition of a new table; return the name under which its rows are stored."""
        stored_as = f"{name}#{self.store.new_transaction()}"
        table = StoredTable(name, stored_as, fields, key, kind, internal)
        self.store.catalog.put(_TABLE, name, table.to_json())
        return stored_as

    @contextmanager
    def add_column(self, table: TableSpec, field: pa.Field, value: pa.Array) -> Iterator[None]:
        """Store that a table has a further column, for a block that adds it; undone if the block raises.

        `value` is that of all rows which the table has, as an array of one cell.
        """
        before = self.store.catalog.get(_TABLE, table.name)
        assert table.schema is not None
        arranged_by = () if table.key else tuple(column.name for column in table.schema.key.fields)
        after = StoredTable.of_json(table.name, before).with_column(field, value, arranged_by)
        self.store.catalog.put(_TABLE, table.name, after.to_json())
        try:
            yield
        except BaseException:
            self.store.catalog.put(_TABLE, table.name, before)
            raise

    def drop(self, name: str) -> None:
        """Forget a table, its positions, and in the end its rows."""
        entry = self.store.catalog.get(_TABLE, name)
        if entry is None:
            return
        prefix = f"{entry['stored_as']} "
        positions = [position for position in self.positions if position.startswith(prefix)]
        stored = [position for position in positions if self.store.catalog.get(_POSITION, position) is not None]
        self.store.catalog.update(
            [DeleteEntry(_TABLE, name), *(DeleteEntry(_POSITION, position) for position in stored)]
        )
        for position in positions:
            del self.positions[position]

    def restore(self, tables: Sequence[TableSpec]) -> Recovered:
        """Load the rows of the tables, which the workers know by now, and begin to take snapshots."""
        recovered = self.load(self._coordinator.cluster, tables, self._coordinator.epoch)
        self._thread.start()
        return recovered

    def _open_shards(self, cluster: Cluster) -> None:
        cluster.ask(OpenStorage(self.store.place, self.store.incarnation))

    def reopen(self, cluster: Cluster) -> None:
        """Start a new incarnation for new workers; the old ones, if any still lives, cannot write any more."""
        started = time.perf_counter()
        with self._files_lock:
            self.store.restart(cluster.size)
        self._open_shards(cluster)
        self._commits.failure = None  # what was not known is decided now
        self._open_seconds = time.perf_counter() - started

    def load(self, cluster: Cluster, tables: Sequence[TableSpec], epoch: int) -> Recovered:
        """Let workers load the rows of durable tables, whose definitions they know, and who are at an epoch."""
        started, recovery = time.perf_counter(), self.store.recovery
        durable = [table for table in tables if table.stored_as]
        answers: list[Restored] = []
        if durable:
            added = {table.name: table.added for table in self.tables() if table.added is not None}
            answers = cluster.ask(Restore(tuple(table.name for table in durable), added))
            cluster.ask(WaitAll(tuple(table.dataflow for table in durable), epoch))
        self.stored_since = {}
        for answer in answers:
            for name, since in answer.since.items():
                self.stored_since[name] = max(since, self.stored_since.get(name, since))
        if recovery.epoch >= 0:
            self._due.set()  # so that the log of the last incarnation, and its files, can be deleted
        return Recovered(
            epoch=recovery.epoch,
            tables=len(durable),
            batch_rows=sum(answer.batch_rows for answer in answers),
            log_rows=sum(answer.log_rows for answer in answers),
            dropped=recovery.report.aborted + recovery.report.incomplete,
            open_seconds=self._open_seconds,
            batch_seconds=max((answer.batch_seconds for answer in answers), default=0.0),
            log_seconds=max((answer.log_seconds for answer in answers), default=0.0),
            seconds=self._open_seconds + time.perf_counter() - started,
        )

    # Snapshots.

    def _on_commit(self, candidate: Candidate, log_bytes: int) -> None:
        self._note(candidate.note)
        self._has_changes = True
        if log_bytes > SNAPSHOT_BYTES:
            self._due.set()

    def _run(self) -> None:
        """Take snapshots until the engine is closed, or a worker or the storage fails."""
        while not self._closed.is_set():
            self._due.wait()
            if self._closed.is_set():
                return
            try:
                self.snapshot()
            except WorkerLostError:  # another snapshot is due when workers are replaced
                continue
            except StorageError as error:  # a full disk, for instance: all is in the log
                log.warning("a snapshot could not be written, and will be tried again: %s", error)
                self._due.set()
                self._closed.wait(_RETRY_SECONDS)
            except IkebanaError:  # the workers have ended: whoever commits next gets the error
                return

    def snapshot(self) -> None:
        """Write the rows of all durable tables as of the last closed epoch, and delete the log before it."""
        with self._snapshot_lock:
            with self._coordinator.lock, defer_interrupts():
                self._due.clear()
                epoch, positions = self._coordinator.epoch - 1, dict(self.positions)
                if epoch < 0:
                    return
                cluster, incarnation = self._coordinator.cluster, self.store.incarnation
                self._coordinator.send(BeginSnapshot(epoch), None, cluster)
                self._has_changes = False
            with self._files_of(incarnation):
                self._store_positions(positions, epoch)
            self._repeat(SnapshotStatus(epoch), cluster)
            with self._files_of(incarnation):
                covered = self.store.covered_epoch()
                self.store.check_lease()
                self._repeat(TrimStorage(covered), cluster)
                self.store.log.trim(covered)
                self.store.collect()

    def _repeat(self, request: SnapshotStatus | TrimStorage, cluster: Cluster) -> None:
        """Send a request until all workers have answered that they are done."""
        pause = _FIRST_PAUSE
        while not all(self._coordinator.ask_once(request, None, cluster)):
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    @contextmanager
    def _files_of(self, incarnation: int) -> Iterator[None]:
        """A block during which no new incarnation is started; raises if there is one already."""
        with self._files_lock:
            if self.store.incarnation != incarnation:
                raise WorkerLostError("the workers were replaced while a snapshot was written")
            yield

    def _store_positions(self, positions: dict[str, Any], epoch: int) -> None:
        """Store the positions as of an epoch, and the times of epochs, before the log up to it is deleted."""
        catalog = self.store.catalog
        changed = [name for name, value in positions.items() if catalog.get(_POSITION, name) != value]
        entries = [PutEntry(_POSITION, name, positions[name]) for name in changed]
        times = self._coordinator.epoch_times.to_json()
        if times != catalog.get(*EPOCH_TIMES, [[], []]):
            entries.append(PutEntry(*EPOCH_TIMES, times))
        catalog.update([*entries, PutEntry(_DIRECTORY, _POSITIONS_EPOCH, epoch)])

    def stop(self) -> None:
        """Take a last snapshot, if there is anything that the last one does not have."""
        self._closed.set()
        self._due.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._has_changes and self._commits.failure is None:
            with suppress(IkebanaError):  # then all is in the log
                self.snapshot()

    def close(self) -> None:
        """Release the directory; the workers have ended."""
        self.store.close()
