"""Durable tables on a worker: its log, the files of its batches, and the rows that it finds when it starts.

A worker has a shard of the storage directory (`ikebana.storage`). Before it accepts a transaction, it appends the net
changes of its own rows to its log, and syncs the log. Now and then the batches of the tables' primary arrangements are
written to files. Batches are immutable, so a thread of its own writes them while the worker goes on; batches that were
written before are only mentioned again. Then the log before that snapshot is not needed any more.

When an engine starts, each worker loads its rows: from the batches of the last snapshot, as they are, and from the log
after it, as one more batch. If the number of workers has changed, a worker reads all shards, and keeps the rows that it
owns. Rows that were stored before a column was added to their table get its value then.

The worker is a state machine without I/O (`ikebana.runtime.worker`): what is here is what its process provides.

Invariants: a snapshot has all committed changes at epochs up to its own, and no others. A handle on each table keeps
its later changes apart while the snapshot is taken. The `since` of a stored batch is an epoch from which on its table
is exact: not before that of the batches from which the table was loaded, nor before a column was added, when its rows
were copied.

Cost: logging a transaction takes one write, and one sync for all transactions of a request; many rows that are
inserted are written while the rest of the transaction arrives (`ikebana.storage.early_rows`). A snapshot writes the
batches that merges have produced since the last one. Loading reads all files once; it sorts only what is in the log.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana import storage
from ikebana.encoding import Schema
from ikebana.encoding.lanes import Lane, constant, gather_lane, is_constant
from ikebana.encoding.spill_files import SpillFiles
from ikebana.errors import StorageError
from ikebana.kernels import shard_rows
from ikebana.operators.changes import Changes
from ikebana.runtime.background import BackgroundWork
from ikebana.runtime.messages import Restored, TableSpec, ToPrepare
from ikebana.runtime.net_changes import inserted_columns
from ikebana.storage.early_rows import EarlyRows
from ikebana.time import Antichain
from ikebana.trace import Handle, Updates
from ikebana.trace.batch import StoredBatch
from ikebana.trace.description import Description
from ikebana.trace.merge import spilled
from ikebana.trace.updates import consolidate, encode_times


class Durability:
    """A worker's shard of a storage directory."""

    def __init__(self, shard: storage.Shard, index: int, workers: int) -> None:
        self._shard, self._index, self._workers = shard, index, workers
        self._early_rows = EarlyRows(shard.log)
        self._written = WrittenBatches()
        self._snapshot: TableSnapshot | None = None
        self._trimming: tuple[int, BackgroundWork] | None = None  # up to which epoch
        self._trimmed: int | None = None  # up to which epoch that is done, since the last snapshot was begun
        self._exact_since: dict[str, int] = {}  # by the names under which tables are stored
        self._written_epoch = -1  # of the last snapshot that is complete
        self._covered_bytes = 0  # of the log before the last snapshot

    @staticmethod
    def open(place: str, incarnation: int, index: int, workers: int) -> Durability:
        """Open the shard of a worker."""
        return Durability(storage.Shard.open(place, incarnation, index), index, workers)

    def close(self) -> None:
        """Release the files, once no snapshot is being written, and no file deleted any more."""
        if self._snapshot is not None:
            self._snapshot.wait()
        self._end_trimming()
        self._early_rows.close()
        self._shard.close()

    # The log.

    @property
    def log_bytes(self) -> int:
        """The bytes that were written to the log since the last snapshot was begun."""
        return self._shard.log.bytes - self._covered_bytes

    def write_early(self, transaction: int, table: TableSpec, columns: tuple[pa.Array, ...]) -> None:
        """Begin to write rows that a transaction is about to insert, if they are many. It need not be committed."""
        if self._early_rows.accepts(columns):
            self._early_rows.add(transaction, table.stored_as, table.fields, inserted_columns(table, columns))

    def end(self, transaction: int) -> None:
        """Forget the early rows of a transaction."""
        self._early_rows.end(transaction)

    def forget(self, oldest: int) -> None:
        """Forget the early rows of all transactions before `oldest`."""
        self._early_rows.forget(oldest)

    def log(self, transactions: Iterable[tuple[ToPrepare, Sequence[tuple[TableSpec, Changes]]]]) -> None:
        """Write transactions with the changes of this worker's rows, and return when they are on disk."""
        written = [
            storage.Transaction(
                number=prepared.number,
                epoch=prepared.epoch,
                participants=prepared.workers,
                changes=tuple(self._logged(prepared, table, change) for table, change in changes if table.stored_as),
                note=prepared.note,
            )
            for prepared, changes in transactions
        ]
        if written:
            self._shard.log.sync(self._shard.log.append_all(written))

    def _logged(self, prepared: ToPrepare, table: TableSpec, changes: Changes) -> storage.TableChanges:
        """The changes of a table as the log has them."""
        rows = pa.RecordBatch.from_arrays(list(changes.columns), schema=pa.schema(changes.fields))
        diffs = changes.diffs[0]
        is_same = is_constant(diffs) or len(diffs) == 1
        early = self._early_rows.records_of(prepared.transaction, changes.columns, prepared.epoch)
        return storage.TableChanges(table.stored_as, rows, int(diffs[0]) if is_same else diffs, early)

    # Snapshots.

    def begin_snapshot(self, epoch: int, tables: dict[str, Handle], dataflows: Collection[str]) -> None:
        """Keep the rows of tables, which some dataflows maintain; the handles are dropped when they are written."""
        self.end_snapshot()
        self._end_trimming()
        self._trimmed = None
        for handle in tables.values():
            if handle.frontier.precedes(Antichain.of((epoch,))):
                handle.advance((epoch,))
        self._snapshot, self._covered_bytes = TableSnapshot(epoch, tables, dataflows), self._shard.log.bytes

    @property
    def snapshot_dataflows(self) -> Collection[str]:
        """The dataflows of which the snapshot that was begun has the rows. Some may have been dropped since."""
        return () if self._snapshot is None else self._snapshot.dataflows

    def end_snapshot(self) -> None:
        """Wait for the files of a snapshot, and forget it."""
        if self._snapshot is not None:
            self._snapshot.wait()
            self._snapshot.release()
            self._snapshot = None

    def write_snapshot(self, epoch: int) -> bool:
        """Write a snapshot, whose epoch is complete, in the background. Return whether it is written."""
        snapshot = self._snapshot
        if snapshot is None and self._written_epoch == epoch:
            return True
        if snapshot is None or snapshot.epoch != epoch:
            raise StorageError(f"no snapshot of epoch {epoch} was begun", hint="begin it first")
        if not snapshot.is_started:
            snapshot.start(self._shard, self._written, self._exact_since)
        if not snapshot.is_done:
            return False
        try:
            snapshot.check()
        finally:
            self.end_snapshot()
        self._written_epoch = epoch
        return True

    def begin_history(self, stored_as: str, epoch: int) -> None:
        """Note that the rows of a table were copied at an epoch: of its history before, nothing is known."""
        self._exact_since[stored_as] = epoch

    def trim(self, covered: int) -> bool:
        """Delete the log up to an epoch, which the snapshots of all workers have, and files that nothing mentions.

        That is done in the background, once for each snapshot. Return whether it is done.
        """
        if self._trimmed == covered:
            return True
        if self._trimming is None or self._trimming[0] != covered:
            self._end_trimming()
            self._trimming = covered, BackgroundWork("ikebana trim", lambda: self._delete_up_to(covered))
        work = self._trimming[1]
        if not work.is_done:
            return False
        try:
            work.check()
        finally:
            self._end_trimming()
        self._trimmed = covered
        return True

    def _delete_up_to(self, covered: int) -> None:
        self._shard.trim(covered)
        self._shard.collect()

    def _end_trimming(self) -> None:
        """Wait until no files are being deleted."""
        if self._trimming is not None:
            self._trimming[1].wait()
            self._trimming = None

    # Loading.

    def restore(
        self,
        tables: Sequence[TableSpec],
        epoch: int,
        added: Mapping[str, pa.RecordBatch],
        kept: int | None = None,
        spill: SpillFiles | None = None,
    ) -> tuple[dict[str, list[StoredBatch]], Restored]:
        """The rows of this worker, by table, as batches before `epoch`, the larger ones first.

        They include changes at `epoch` itself. Later ones in the log keep their epochs: `later_changes`. If history is
        `kept` from an epoch on, all changes since then keep their epochs, as far as these were stored. `added` has, by
        table, a row with the values of columns that rows stored earlier lack. Large batches that cannot be used as they
        are stored are written to `spill`.
        """
        start = time.perf_counter()
        since = epoch - 1 if kept is None else min(kept, epoch - 1)
        stored_since: dict[str, int] = {}
        batches = {
            table.name: [
                spilled(batch, spill)
                for batch in self._stored_batches(table, epoch, since, added.get(table.name), stored_since)
            ]
            for table in tables
        }
        self._exact_since = {table.stored_as: stored_since.get(table.name, 0) for table in tables}
        batch_rows, middle = sum(map(len, _flat(batches))), time.perf_counter()
        log_rows = 0
        for table, updates in self._logged_updates(tables, epoch, since, added, _first_later(epoch, kept)):
            log_rows += len(updates)
            sorted_updates = consolidate(updates)
            if len(sorted_updates.updates):
                batches[table.name].append(StoredBatch.of(sorted_updates, _before(epoch, since)))
        for found in batches.values():
            found.sort(key=len, reverse=True)
        return batches, Restored(batch_rows, middle - start, log_rows, time.perf_counter() - middle, stored_since)

    def later_changes(
        self, table: TableSpec, epoch: int, added: pa.RecordBatch | None, kept: int | None
    ) -> Changes | None:
        """The changes of this worker's rows that `restore` has left out, with their epochs; None if there are none."""
        recovery = self._shard.recovery
        is_same = recovery.is_same_sharding
        if recovery.epoch < epoch or table.schema is None:
            return None
        changed = recovery.changes(table.stored_as, self._index if is_same else None, added)
        if changed is None or (changed := changed.between(_first_later(epoch, kept), None)) is None:
            return None
        columns = _columns(table, changed.rows)
        times, tix = encode_times(changed.epochs, len(changed.epochs))
        changes = Changes(times, tix, changed.diffs[None], table.fields, columns)
        if not is_same:
            changes = changes.where(shard_rows(changes.keyed(table.schema).key, self._workers) == self._index)
        return changes if len(changes) else None

    def _stored_batches(
        self, table: TableSpec, epoch: int, since: int, added: pa.RecordBatch | None, stored_since: dict[str, int]
    ) -> Iterator[StoredBatch]:
        """The batches of a table; `stored_since` gets the epoch from which on they are exact."""
        for source in self._shard.recovery.batches(table.stored_as):
            is_same = source.shards == self._workers
            if is_same and source.shard != self._index:
                continue
            batch = source.read()
            is_complete = batch.schema == table.schema
            if is_same and is_complete:
                self._written.add(batch, source.file)
            if not is_same:
                batch = _owned(batch, self._index, self._workers)
            compacted = max((time[0] for time in batch.description.since), default=0)
            stored_since[table.name] = max(compacted, stored_since.get(table.name, 0))
            if len(batch):
                batch = batch if is_complete else _completed(batch, table, added)
                yield batch.described(_before(epoch, since))

    def _logged_updates(
        self, tables: Sequence[TableSpec], epoch: int, since: int, added: Mapping[str, pa.RecordBatch], end: int
    ) -> Iterator[tuple[TableSpec, Updates]]:
        """The changes in the log after the last snapshot and before `end`, of this worker's rows.

        Those before `since` are as of `since`, and all of them are before `epoch`.
        """
        recovery = self._shard.recovery
        is_same = recovery.is_same_sharding
        for table in tables:
            changed = recovery.changes(table.stored_as, self._index if is_same else None, added.get(table.name))
            if changed is not None and (changed := changed.between(None, end)) is not None:
                updates = _updates(table, changed, since, epoch - 1)
                yield (
                    table,
                    updates if is_same else updates.where(shard_rows(updates.key, self._workers) == self._index),
                )


class WrittenBatches:
    """The files of batches that were written, or read from files, for as long as the batches are in memory."""

    def __init__(self) -> None:
        self._files: dict[
            int, tuple[weakref.ref[Any], Any]
        ] = {}  # by the identity of a lane, which no two batches share

    def add(self, batch: StoredBatch, file: storage.BatchFile) -> None:
        """Remember the file of a batch."""
        lane = _identity(batch)
        key = id(lane)
        self._files[key] = (weakref.ref(lane, lambda _: self._files.pop(key, None)), file)

    def file_of(self, batch: StoredBatch) -> storage.BatchFile | None:
        """The file of a batch, if it has one."""
        lane = _identity(batch)
        reference, file = self._files.get(id(lane), (None, None))
        return file if reference is not None and reference() is lane else None


def _identity(batch: StoredBatch) -> Any:
    return batch.updates.key if not is_constant(batch.updates.key) else batch.updates.val


class TableSnapshot:
    """The rows of all durable tables of a worker at an epoch, and the thread that writes them."""

    def __init__(self, epoch: int, handles: dict[str, Handle], dataflows: Collection[str]) -> None:
        """`handles` are by the names under which the tables are stored; `dataflows` maintain the tables."""
        self.epoch, self._handles, self.dataflows = epoch, handles, dataflows
        self._writing: BackgroundWork | None = None

    @property
    def is_started(self) -> bool:
        """Whether the batches are being written."""
        return self._writing is not None

    @property
    def is_done(self) -> bool:
        """Whether all is written, or could not be."""
        return self._writing is not None and self._writing.is_done

    def check(self) -> None:
        """Raise if the batches could not be written."""
        if self._writing is not None:
            self._writing.check()

    def start(self, shard: storage.Shard, written: WrittenBatches, exact_since: Mapping[str, int]) -> None:
        """Begin to write the batches, which have all changes up to the epoch by now."""
        batches = {}
        for table, handle in self._handles.items():
            parts = (_up_to(batch, self.epoch) for batch in handle.batches())
            batches[table] = [_exact_from(part, exact_since.get(table, 0)) for part in parts if len(part)]
        self._writing = BackgroundWork("ikebana snapshot", lambda: self._write(shard, written, batches))

    def _write(self, shard: storage.Shard, written: WrittenBatches, batches: dict[str, list[StoredBatch]]) -> None:
        tables = {
            table: storage.TableFiles(self.epoch, tuple(_file(shard, written, batch) for batch in stored))
            for table, stored in batches.items()
        }
        shard.publish(self.epoch, tables)

    def wait(self) -> None:
        """Wait until nothing is being written."""
        if self._writing is not None:
            self._writing.wait()

    def release(self) -> None:
        """Let go of the rows."""
        for handle in self._handles.values():
            handle.drop()


def _file(shard: storage.Shard, written: WrittenBatches, batch: StoredBatch) -> storage.BatchFile:
    """The file of a batch, which is written if there is none yet."""
    file = written.file_of(batch)
    if file is None:
        file = shard.write_batch(batch)
        written.add(batch, file)
    return file


def _up_to(batch: Any, epoch: int) -> StoredBatch:
    """The rows of a batch at epochs up to a given one: usually all."""
    assert isinstance(batch, StoredBatch)
    included = batch.times[:, 0] <= epoch
    if included.all():
        return batch
    return _rows_of(batch, np.flatnonzero(included[batch.updates.tix]))


def _exact_from(batch: StoredBatch, epoch: int) -> StoredBatch:
    """A batch whose history before an epoch does not count."""
    description = batch.description
    if all(time[0] >= epoch for time in description.since):
        return batch
    return batch.described(Description(description.lower, description.upper, Antichain.of((epoch,))))


def _owned(batch: StoredBatch, index: int, workers: int) -> StoredBatch:
    """The rows of a batch that a worker owns."""
    mine = shard_rows(batch.updates.key, workers) == index
    return batch if mine.all() else _rows_of(batch, np.flatnonzero(mine))


def _completed(batch: StoredBatch, table: TableSpec, added: pa.RecordBatch | None) -> StoredBatch:
    """A batch that was stored before its table got further columns, with these columns."""
    changes = Changes.of_updates(batch.updates)
    rows = pa.Table.from_arrays(list(changes.columns), schema=pa.schema(changes.fields))
    if added is not None:
        rows = storage.with_added_columns(rows, added)
    if {field.name: field.type for field in rows.schema} != {field.name: field.type for field in table.fields}:
        raise StorageError(
            f"the rows of table {table.name!r} do not have the table's columns",
            detail=f"the stored rows have {batch.schema}, the table has {table.schema}",
            hint="open the storage directory with the version of ikebana that has written it",
        )
    assert table.schema is not None
    completed = Changes(changes.times, changes.tix, changes.diffs, table.fields, _columns(table, rows))
    return StoredBatch.of(consolidate(completed.keyed(table.schema)), batch.description)


def without_columns(batches: Iterable[StoredBatch], schema: Schema) -> list[StoredBatch]:
    """The batches of a table as they were before columns were added to it."""
    changes = [(Changes.of_updates(batch.updates).keyed(schema), batch.description) for batch in batches]
    return [StoredBatch.of(consolidate(updates), description) for updates, description in changes]


def _rows_of(batch: StoredBatch, rows: Lane) -> StoredBatch:
    """Some rows of a batch, in order."""
    return StoredBatch(
        batch.updates.take(rows).pruned(), gather_lane(batch.ident, rows), batch.collided, batch.description
    )


def _before(epoch: int, since: int) -> Description:
    """The description of rows that were there before an epoch, with their history since another one."""
    return Description(Antichain.of((0,)), Antichain.of((epoch,)), Antichain.of((since,)))


def _first_later(epoch: int, kept: int | None) -> int:
    """The first epoch whose changes are not among the rows before `epoch`; see `restore`.

    Before the very first epoch, there can be no rows.
    """
    return epoch + 1 if epoch > 0 and kept is None else epoch


def _flat(batches: dict[str, list[StoredBatch]]) -> Iterator[StoredBatch]:
    for found in batches.values():
        yield from found


# The log.


def _updates(table: TableSpec, changed: storage.ChangedRows, since: int, last: int) -> Updates:
    """Changes of a table from the log; those before `since` as of `since`, and those after `last` as of `last`."""
    assert table.schema is not None
    if min(changed.epochs.max(initial=0), last) <= since:
        times, tix = np.full((1, 1), since, np.int64), constant(0, len(changed.diffs), np.int32)
    else:
        epochs, positions = np.unique(np.clip(changed.epochs, since, last), return_inverse=True)
        times, tix = epochs.astype(np.int64)[:, None], positions.astype(np.int32)
    return Changes(times, tix, changed.diffs[None], table.fields, _columns(table, changed.rows)).keyed(table.schema)


def _columns(table: TableSpec, rows: pa.Table) -> tuple[pa.Array, ...]:
    """The columns of stored rows, in the order of the table."""
    return tuple(pa.concat_arrays(rows[field.name].chunks) for field in table.fields)
