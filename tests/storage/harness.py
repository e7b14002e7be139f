"""A driver and workers that use a storage directory, and a model of what must be in it.

The system has one table, with rows (k, v), of which row k belongs to shard `k % shards`, and a catalogue. `Harness`
executes operations and remembers in `Model` what was acknowledged; after a crash, `open` compares what is recovered
with the model: every acknowledged operation is there, and an interrupted one is there entirely or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.storage import (
    DRIVER,
    BatchFile,
    Directory,
    Shard,
    Store,
    TableChanges,
    TableFiles,
    Transaction,
    TransactionLog,
)
from ikebana.storage.log import SegmentHold
from ikebana.storage.recovery import Recovery
from ikebana.trace.batch import StoredBatch
from ikebana.trace.description import Description, frontier_of
from ikebana.trace.updates import Updates, consolidate

TABLE = "rows#1"
SCHEMA = Schema(key={"k": pa.int64()}, val={"v": pa.string()})
COLUMNS = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.string(), False)])

Row = tuple[int, str]


def stored_batch(rows: Counter[Row], epoch: int) -> StoredBatch:
    """Rows with multiplicities as a batch of a trace."""
    data = {"k": [k for k, _ in rows], "v": [v for _, v in rows]}
    columns = {"k": pa.array(data["k"], pa.int64()), "v": pa.array(data["v"], pa.string())}
    updates = Updates.of(SCHEMA, columns, times=(epoch,), diffs=list(rows.values()))
    frontiers = map(frontier_of, ((0,), (epoch + 1,), (epoch,)))
    return StoredBatch.of(consolidate(updates), Description(*frontiers))


def changes(rows: Counter[Row]) -> tuple[TableChanges, ...]:
    """Rows with multiplicities as the changes of a transaction."""
    if not rows:
        return ()
    arrays = [pa.array([k for k, _ in rows], pa.int64()), pa.array([v for _, v in rows], pa.string())]
    batch = pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)
    diffs = set(rows.values())
    if len(diffs) == 1:
        return (TableChanges(TABLE, batch, diffs.pop()),)
    return (TableChanges(TABLE, batch, np.array(list(rows.values()), np.int64)),)


@dataclass
class Model:
    """What was acknowledged, and what the operation that is being executed may change."""

    rows: Counter[Row] = field(default_factory=Counter)
    catalog: dict[str, Any] = field(default_factory=dict)
    epoch: int = -1
    maybe_rows: list[Counter[Row]] = field(default_factory=list)  # what the rows may be instead
    maybe_catalog: dict[str, Any] | None = None


class Harness:
    """The processes of a session, all in one."""

    def __init__(self, open_directory: Callable[[], Directory]) -> None:
        """`open_directory` returns the directory as a new process would open it."""
        self._open_directory, self.model = open_directory, Model()
        self._staged: dict[int, tuple[Counter[Row], SegmentHold, list[TableChanges]]] = {}

    # Opening.

    def open(self, shards: int) -> None:
        """Open the storage directory, with a number of shards, and compare what is recovered with the model."""
        self.store = Store.open(self._open_directory(), shards=shards, wait=5.0)
        self._compare(self.store.recovery)
        self._start(shards)

    def _start(self, shards: int) -> None:
        self.shards, self._staged = shards, {}
        self.epoch = self.store.recovery.epoch
        directory = self._open_directory()
        self.workers = [Shard.open(directory, self.store.incarnation, index) for index in range(shards)]

    def reopen(self, shards: int) -> None:
        """Close everything and open it again."""
        for worker in self.workers:
            worker.close()
        self.store.close()
        self.open(shards)

    def restart(self, shards: int) -> None:
        """Replace the workers."""
        for worker in self.workers:
            worker.close()
        self._compare(self.store.restart(shards))
        self._start(shards)

    def _compare(self, recovery: Recovery) -> None:
        model = self.model
        model.rows, possible = recovered_rows(recovery), [model.rows, *model.maybe_rows]
        assert model.rows in possible
        assert recovery.epoch >= model.epoch
        catalog = self.store.catalog.entries("thing")
        assert catalog in [model.catalog, *([] if model.maybe_catalog is None else [model.maybe_catalog])]
        model.catalog = catalog
        model.maybe_rows, model.maybe_catalog = [], None
        model.epoch = recovery.epoch

    # Operations.

    def transact(self, rows: Counter[Row], outcome: str = "commit") -> None:
        """A transaction; `outcome` is commit, or reject (by the last participant), or time out (before that)."""
        self._transact(rows, {participant: changes(own) for participant, own in self._parts(rows).items()}, outcome)

    def _transact(self, rows: Counter[Row], parts: dict[int, tuple[TableChanges, ...]], outcome: str) -> None:
        """A transaction with the changes of each participant."""
        epoch, number = self.epoch + 1, self.store.new_transaction()
        participants = tuple(sorted(parts))
        writers = participants if outcome == "commit" else participants[:-1]
        if outcome == "commit":
            self.model.maybe_rows = [_sum(self.model.rows, rows)]
        for participant in writers:
            self._log(participant).append(Transaction(number, epoch, participants, parts[participant]))
        for participant in writers:
            self._log(participant).sync()
        if outcome == "time out":
            self.store.abort(number, epoch)
            late = participants[-1]
            self._log(late).commit(Transaction(number, epoch, participants, parts[late]))
        if outcome == "commit":
            self._acknowledge(epoch)

    def stage(self, rows: Counter[Row]) -> None:
        """Write rows before their transaction, in a record for each; rows that were staged before are dropped."""
        self.drop_staged()
        for participant, own in self._parts(rows).items():
            log = self._log(participant)
            self._staged[participant] = (own, log.hold(), written := [])
            if log.can_append_rows:
                for row, diff in own.items():
                    (change,) = changes(Counter({row: diff}))
                    written.append(replace(change, records=(log.append_rows(change)[0],)))
            else:
                written += changes(own)

    def commit_staged(self, outcome: str = "commit") -> None:
        """A transaction with the rows that are staged."""
        rows = Counter({row: diff for own, _, _ in self._staged.values() for row, diff in own.items()})
        if rows:
            written = {participant: tuple(parts) for participant, (_, _, parts) in self._staged.items()}
            try:
                self._transact(rows, written, outcome)
            finally:
                self.drop_staged(self.epoch + 1)

    def drop_staged(self, epoch: int = -1) -> None:
        """Forget staged rows, which a record up to an epoch may refer to."""
        for participant, (_, hold, _) in self._staged.items():
            self._log(participant).release(hold, epoch)
        self._staged = {}

    def transact_together(self, group: Sequence[Counter[Row]]) -> None:
        """Transactions that are checked one after the other, and synced together."""
        states, previous, writers = [self.model.rows], (0, -1), set[int]()
        for at, rows in enumerate(group):
            states.append(_sum(states[-1], rows))
            self.model.maybe_rows = states[1:]
            parts = self._parts(rows)
            epoch, number = self.epoch + 1 + at, self.store.new_transaction()
            for participant, own in parts.items():
                transaction = Transaction(number, epoch, tuple(sorted(parts)), changes(own), None, *previous)
                self._log(participant).append(transaction)
            previous, writers = (number, epoch), writers | parts.keys()
        for writer in sorted(writers, reverse=True):
            self._log(writer).sync()
        if group:
            self._acknowledge(self.epoch + len(group))

    def _parts(self, rows: Counter[Row]) -> dict[int, Counter[Row]]:
        """The rows of each participant; the driver is one if there are no others."""
        parts: dict[int, Counter[Row]] = {}
        for row, diff in rows.items():
            parts.setdefault(row[0] % self.shards, Counter())[row] = diff
        return parts or {DRIVER: Counter()}

    def _log(self, participant: int) -> TransactionLog:
        return self.store.log if participant == DRIVER else self.workers[participant].log

    def _acknowledge(self, epoch: int) -> None:
        self.store.check_lease()
        self.epoch = self.model.epoch = epoch
        self.model.rows, self.model.maybe_rows = self.model.maybe_rows[-1], []

    def snapshot(self, index: int) -> None:
        """Write the rows of a shard as a batch, or adopt those of the incarnation before, and publish."""
        worker = self.workers[index]
        epoch = max(self.epoch, 0)
        owned = Counter({row: n for row, n in self.model.rows.items() if row[0] % self.shards == index})
        recovery = worker.recovery
        adopted = recovery.batches(TABLE, index) if worker.manifest is None and recovery.is_same_sharding else []
        files: tuple[BatchFile, ...]
        if adopted:
            old = Counter[Row]()
            for source in adopted:
                old.update(rows_of(source.read()))
            owned.subtract(old)
            rest = Counter({row: n for row, n in owned.items() if n})
            more = [worker.write_batch(stored_batch(rest, epoch))] if rest else []
            files = (*(source.file for source in adopted), *more)
        else:
            files = (worker.write_batch(stored_batch(owned, epoch)),)
        worker.publish(epoch, {TABLE: TableFiles(epoch, files)})

    def collect(self, index: int) -> None:
        """Delete batch files and manifests that a shard does not need."""
        self.workers[index].collect()

    def trim(self) -> None:
        """Delete the segments that all shards have snapshots of."""
        covered = self.store.covered_epoch()
        for worker in self.workers:
            worker.trim(covered)
        self.store.log.trim(covered)

    def collect_old(self) -> None:
        """Delete what is not needed of earlier incarnations."""
        self.store.collect()

    def put(self, name: str, value: Any) -> None:
        """Change the catalogue."""
        self.model.maybe_catalog = {**self.model.catalog, name: value}
        self.store.catalog.put("thing", name, value)
        self.model.catalog, self.model.maybe_catalog = self.model.maybe_catalog, None

    def compact(self) -> None:
        """Write the catalogue anew."""
        self.store.catalog.compact()


def _plain(rows: Counter[Row]) -> Counter[Row]:
    return Counter({row: n for row, n in rows.items() if n})


def _sum(rows: Counter[Row], more: Counter[Row]) -> Counter[Row]:
    both = rows.copy()
    both.update(more)
    return _plain(both)


def rows_of(batch: StoredBatch) -> Counter[Row]:
    """The rows of a batch with their multiplicities."""
    rows = Counter[Row]()
    for row, _, diff in batch.gather().triples():
        rows[row] += diff
    return rows


def recovered_rows(recovery: Recovery, shard: int | None = None) -> Counter[Row]:
    """The rows that are recovered, read in both ways."""
    batches = Counter[Row]()
    for source in recovery.batches(TABLE, shard):
        batches.update(rows_of(source.read()))
    changed, bulk = batches.copy(), batches.copy()
    last = -1
    for transaction in recovery.transactions(shard):
        assert transaction.epoch > last
        last = transaction.epoch
        for part in transaction.parts:
            for change in part.changes:
                _add(changed, change.rows.to_pylist(), change.diff_lane().tolist())
    block = recovery.changes(TABLE, shard)
    if block is not None:
        assert (block.epochs[1:] >= block.epochs[:-1]).all()
        _add(bulk, block.rows.to_pylist(), block.diffs.tolist())
    assert _plain(changed) == _plain(bulk)
    return _plain(changed)


def _add(rows: Counter[Row], entries: Iterable[dict[str, Any]], diffs: Iterable[int]) -> None:
    for entry, diff in zip(entries, diffs, strict=True):
        rows[entry["k"], entry["v"]] += diff
