"""Recovery: what an incarnation starts from, and how to read it.

The *base* of an incarnation is written once, when it starts, and decides everything about earlier incarnations for
ever: which manifests count, up to where each log is read, and which transactions in the logs are not committed. Nothing
that a process of an earlier incarnation writes later has any effect.

A base has sources, oldest first. The first may have manifests: its tables are the batch files in them, and later
transactions in its logs. The others have logs only, which are read in full; there are several if an incarnation
ended before all its shards had published a manifest.

Every worker reads the base by itself. If it has the same number of shards as a source, the rows of shard k in the
source are those of shard k; otherwise a worker reads all shards, and keeps the rows that belong to it.

Cost: every process reads the logs that it needs once, with checksums, and their bodies stay mapped; rows are decoded
as they are iterated over. For 100,000 transactions of one row that takes 1.6 s of CPU in the driver, and 1.5 s in a
worker. On filesystems that cannot be mapped, the logs since the last snapshot are in memory meanwhile.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ikebana.encoding import HASHING
from ikebana.storage.batch_files import BatchFile, check_hashing, read_batch
from ikebana.storage.directory import Directory
from ikebana.storage.files import TORN, read_json
from ikebana.storage.garbage import no_garbage
from ikebana.storage.layout import base_path, find_incarnations, log_path, shard_path
from ikebana.storage.log import Pins, read_log, scan_log, sync_log
from ikebana.storage.manifests import Manifest, newest_manifest
from ikebana.storage.records import Kind, Stored
from ikebana.storage.transactions import (
    DRIVER,
    RowsRecords,
    TableChanges,
    TableStream,
    Transaction,
    Written,
    decide,
    decode_streams,
    missing_rows,
    note_of,
    table_streams,
    written_in,
)
from ikebana.trace.batch import StoredBatch


@dataclass(frozen=True, slots=True)
class EarlierIncarnation:
    """An earlier incarnation as far as it is needed: its manifests, or None, and its logs."""

    incarnation: int
    shards: int
    manifests: Mapping[int, Manifest] | None
    logs: Mapping[int, Pins]

    @property
    def covered(self) -> int:
        """The epoch up to which all shards have everything in batch files."""
        return min((manifest.epoch for manifest in (self.manifests or {}).values()), default=-1)

    def epoch_of(self, shard: int, table: str) -> int:
        """The epoch up to which the changes of a table are in the batch files of a shard."""
        manifest = (self.manifests or {}).get(shard)
        return -1 if manifest is None else manifest.epoch_of(table)

    def to_json(self) -> dict[str, Any]:
        known = None if self.manifests is None else self.manifests.items()
        manifests = None if known is None else {str(shard): manifest.to_json() for shard, manifest in known}
        logs = {str(shard): pins for shard, pins in self.logs.items()}
        return {"incarnation": self.incarnation, "shards": self.shards, "manifests": manifests, "logs": logs}

    @staticmethod
    def from_json(fields: dict[str, Any]) -> EarlierIncarnation:
        manifests = fields["manifests"]
        return EarlierIncarnation(
            fields["incarnation"],
            fields["shards"],
            manifests and {int(shard): Manifest.from_json(manifest) for shard, manifest in manifests.items()},
            {int(shard): [(path, length) for path, length in pins] for shard, pins in fields["logs"].items()},
        )


@dataclass(frozen=True, slots=True)
class Base:
    """What an incarnation has started from."""

    incarnation: int
    shards: int
    epoch: int
    sources: tuple[EarlierIncarnation, ...] = ()
    uncommitted: frozenset[int] = frozenset()
    started_us: int = 0

    @property
    def paths(self) -> set[str]:
        """The files that the base needs."""
        batches = (file.path for source in self.sources for m in (source.manifests or {}).values() for file in m.files)
        logs = (path for source in self.sources for pins in source.logs.values() for path, _ in pins)
        return {*batches, *logs}

    def to_json(self) -> dict[str, Any]:
        return {
            "incarnation": self.incarnation,
            "shards": self.shards,
            "epoch": self.epoch,
            "sources": [source.to_json() for source in self.sources],
            "uncommitted": sorted(self.uncommitted),
            "started_us": self.started_us,
            "hashing": HASHING,
        }

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Base:
        return Base(
            fields["incarnation"],
            fields["shards"],
            fields["epoch"],
            tuple(map(EarlierIncarnation.from_json, fields["sources"])),
            frozenset(fields["uncommitted"]),
            fields["started_us"],
        )


def read_base(directory: Directory, incarnation: int) -> Base | None:
    """The base of an incarnation; None if it was not written completely."""
    path = base_path(incarnation)
    fields = read_json(directory, path, f"what incarnation {incarnation} consists of")
    if fields is TORN:
        return None
    check_hashing(directory, fields)
    return Base.from_json(fields)


def newest_base(directory: Directory) -> Base | None:
    """The base of the newest incarnation; None if there is none."""
    bases = (read_base(directory, incarnation) for incarnation in reversed(find_incarnations(directory)))
    return next((base for base in bases if base is not None), None)


def read_manifests(directory: Directory, base: Base) -> dict[int, Manifest]:
    """The newest manifests of the shards of an incarnation that have published one."""
    newest = (newest_manifest(directory, shard_path(base.incarnation, shard)) for shard in range(base.shards))
    return {shard: manifest for shard, manifest in enumerate(newest) if manifest is not None}


LogRecords: TypeAlias = Mapping[tuple[int, int], Sequence[Stored]]
"""The records of logs, by incarnation and shard."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Transactions in logs that are not committed."""

    aborted: int = 0
    incomplete: int = 0


def next_base(directory: Directory, incarnation: int, shards: int) -> tuple[Base, Dropped, LogRecords]:
    """Decide what a new incarnation starts from. The records are those of the logs that were read for that."""
    now = time.time_ns() // 1000
    last = newest_base(directory)
    if last is None:
        return Base(incarnation, shards, -1, started_us=now), Dropped(), {}
    manifests = read_manifests(directory, last)
    is_complete = len(manifests) == last.shards
    covered = min(manifest.epoch for manifest in manifests.values()) if is_complete else last.epoch
    logs: dict[int, Pins] = {}
    written: dict[int, list[Written]] = {}
    aborted: set[int] = set()
    records: dict[tuple[int, int], list[Stored]] = {}
    for shard in (DRIVER, *range(last.shards)):
        path = log_path(last.incarnation, shard)
        sync_log(directory, path)
        logs[shard], stored = scan_log(directory, path, covered)
        check_rows(directory, path, stored, covered)
        records[last.incarnation, shard] = stored
        written[shard] = list(written_in(stored))
        aborted |= {item.record.transaction for item in stored if item.record.kind is Kind.ABORT}
    decisions = decide(written.items(), aborted, covered)
    uncommitted = decisions.aborted | decisions.incomplete
    source = EarlierIncarnation(last.incarnation, last.shards, manifests if is_complete else None, logs)
    epochs = (table.epoch for manifest in manifests.values() for table in manifest.tables.values())
    epoch = max(last.epoch, decisions.epoch, covered, *epochs) if is_complete else max(last.epoch, decisions.epoch)
    base = Base(
        incarnation,
        shards,
        epoch,
        (source,) if is_complete else (*last.sources, source),
        frozenset(uncommitted if is_complete else uncommitted | last.uncommitted),
        now,
    )
    return base, Dropped(len(decisions.aborted), len(decisions.incomplete)), records


def check_rows(directory: Directory, path: str, stored: Iterable[Stored], covered: int) -> None:
    """Raise if rows of a transaction after an epoch are missing, which were in the log before its own record."""
    lacking = missing_rows(stored, covered)
    if lacking is not None:
        lost = f"rows of transaction {lacking.transaction} at epoch {lacking.epoch}"
        raise directory.damaged(f"{path}000000", "it, or a later file of the log, is missing", lost)


@dataclass(frozen=True, slots=True)
class BatchSource:
    """A batch file to load."""

    directory: Directory
    table: str
    shard: int
    shards: int
    epoch: int
    file: BatchFile

    def read(self, *, mapped: bool = True, verify: bool = True) -> StoredBatch:
        """The batch."""
        return read_batch(self.directory, self.file, table=self.table, mapped=mapped, verify=verify)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The changes of a transaction in one shard that are not in batch files."""

    shard: int
    shards: int
    changes: tuple[TableChanges, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Committed:
    """A committed transaction."""

    number: int
    epoch: int
    time_us: int
    note: Any
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ChangedRows:
    """The changes of several transactions to a table, in order: rows, and the diff and epoch of each."""

    rows: pa.Table
    diffs: NDArray[np.int64]
    epochs: NDArray[np.int64]

    def between(self, first: int | None, upper: int | None) -> ChangedRows | None:
        """The changes at epochs from `first` up to, but excluding, `upper`; None if there are none."""
        start = 0 if first is None else int(np.searchsorted(self.epochs, first))
        end = len(self.epochs) if upper is None else int(np.searchsorted(self.epochs, upper))
        if end - start == len(self.epochs):
            return self
        rows = self.rows.slice(start, end - start)
        return ChangedRows(rows, self.diffs[start:end], self.epochs[start:end]) if end > start else None


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """How much there is to load."""

    epoch: int
    tables: int
    batch_files: int
    batch_bytes: int
    log_bytes: int
    aborted: int
    incomplete: int


def _diffs(streams: Sequence[TableStream], counts: Sequence[int]) -> NDArray[np.int64]:
    """The diffs of all rows of some streams, of which each has one for all its rows, or one for each row."""
    single = [stream.diffs if isinstance(stream.diffs, int) else 0 for stream in streams]
    diffs = np.repeat(np.array(single, np.int64), counts)
    ends = np.cumsum(counts)
    for at, stream in enumerate(streams):
        if not isinstance(stream.diffs, int):
            diffs[ends[at] - stream.rows : ends[at]] = stream.diffs
    return diffs


class _Entry(NamedTuple):
    """A record of a committed transaction."""

    source: EarlierIncarnation
    shard: int
    stored: Stored
    rows: RowsRecords  # of the same log

    @property
    def order(self) -> tuple[int, int]:
        return self.stored.record.epoch, self.stored.record.transaction


class Recovery:
    """What an incarnation starts from."""

    def __init__(
        self, directory: Directory, base: Base, dropped: Dropped | None = None, records: LogRecords | None = None
    ) -> None:
        """`records` are those of logs that were read already."""
        self._directory, self._base = directory, base
        self._dropped = dropped or Dropped()
        self.release()
        self._records: LogRecords = records or {}

    def release(self) -> None:
        """Forget what was read of the logs, which are mapped until then. It is read again if it is needed again."""
        self._records = {}
        self._entries: dict[int | None, list[_Entry]] = {}
        self._streams: dict[int | None, dict[str, list[tuple[int, TableStream]]]] = {}

    @property
    def epoch(self) -> int:
        """The last epoch with committed changes; -1 if there is none."""
        return self._base.epoch

    @property
    def snapshot_epoch(self) -> int:
        """The first epoch at which the rows of all tables are known: batch files have all changes up to it as one."""
        manifests = [manifest for source in self._base.sources for manifest in (source.manifests or {}).values()]
        tables = (table.epoch for manifest in manifests for table in manifest.tables.values())
        return max([-1, *(manifest.epoch for manifest in manifests), *tables])

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to load."""
        return not self._base.sources

    @property
    def shards(self) -> int:
        """The number of shards of the newest source; 0 if there is none."""
        return self._base.sources[-1].shards if self._base.sources else 0

    @property
    def is_same_sharding(self) -> bool:
        """Whether all sources have as many shards as this incarnation, so that every worker needs its own only."""
        return all(source.shards == self._base.shards for source in self._base.sources)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables with batch files, then those that have only changes in logs."""
        return tuple(dict.fromkeys([*(source.table for source in self._batches()), *self._changed_tables(None)]))

    def batches(self, table: str, shard: int | None = None) -> list[BatchSource]:
        """The batch files of a table, of all shards or of one."""
        batches = (source for source in self._batches() if source.table == table)
        return [source for source in batches if shard is None or source.shard == shard]

    def _batches(self) -> Iterator[BatchSource]:
        for source in self._base.sources:
            for shard, manifest in (source.manifests or {}).items():
                for table, files in manifest.tables.items():
                    for file in files.files:
                        yield BatchSource(self._directory, table, shard, source.shards, files.epoch, file)

    def transactions(self, shard: int | None = None) -> Iterator[Committed]:
        """The committed transactions that are not in batch files entirely, in the order of their epochs.

        With `shard`, only the parts of that shard of the sources, and only the transactions that have one.
        """
        for (epoch, number), entries in groupby(self._committed(shard), key=lambda entry: entry.order):
            parts, note, time_us = [], None, 0
            for entry in entries:
                transaction = Transaction.of(entry.stored, entry.rows)
                note, time_us = transaction.note, transaction.time_us
                changes = tuple(c for c in transaction.changes if epoch > entry.source.epoch_of(entry.shard, c.table))
                parts.append(Part(entry.shard, entry.source.shards, changes))
            yield Committed(number, epoch, time_us, note, tuple(parts))

    def has(self, number: int) -> bool:
        """Whether a transaction is committed whose outcome was unknown when the incarnation before this one ended."""
        return any(entry.stored.record.transaction == number for entry in self._committed(None))

    def notes(self, after: int = -1) -> Iterator[tuple[int, Any]]:
        """The epochs and notes of committed transactions after an epoch that have a note; no rows are read.

        Transactions of epochs that all shards have in batch files are left out.
        """
        for (epoch, _), entries in groupby(self._committed(None), key=lambda entry: entry.order):
            if epoch > after:
                note = note_of(next(entries).stored)
                if note is not None:
                    yield epoch, note

    def times(self) -> Iterator[tuple[int, int]]:
        """The epochs of committed transactions and their times, in microseconds since 1970; no rows are read.

        Transactions of epochs that all shards have in batch files are left out.
        """
        for entry in self._committed(None):
            yield entry.stored.record.epoch, entry.stored.record.time_us

    def changes(self, table: str, shard: int | None = None, added: pa.RecordBatch | None = None) -> ChangedRows | None:
        """All changes of a table that are not in its batch files, in order; None if there are none.

        `added` has, in one row, the values of columns that the table got later: earlier changes lack them.
        This is much quicker than `transactions` if there are many small ones.
        """
        changed = self._changed_tables(shard).get(table)
        if not changed:
            return None
        streams = [stream for _, stream in changed]
        counts = [stream.rows for stream in streams]
        epochs = np.repeat([epoch for epoch, _ in changed], counts)
        return ChangedRows(decode_streams(streams, added), _diffs(streams, counts), epochs)

    def _changed_tables(self, shard: int | None) -> dict[str, list[tuple[int, TableStream]]]:
        """The changes that are not in batch files, by table, with their epochs."""
        if shard not in self._streams:
            with no_garbage():
                self._streams[shard] = self._find_changed_tables(shard)
        return self._streams[shard]

    def _find_changed_tables(self, shard: int | None) -> dict[str, list[tuple[int, TableStream]]]:
        changed: dict[str, list[tuple[int, TableStream]]] = defaultdict(list)
        for entry in self._committed(shard):
            source, epoch = entry.source, entry.stored.record.epoch
            for stream in table_streams(entry.stored, entry.rows):
                is_new = source.manifests is None or epoch > source.epoch_of(entry.shard, stream.table)
                if is_new and stream.rows:
                    changed[stream.table].append((epoch, stream))
        return dict(changed)

    def _committed(self, shard: int | None) -> list[_Entry]:
        """The records of committed transactions of all shards or of one, in the order of their epochs."""
        if shard not in self._entries:
            with no_garbage():
                entries = [entry for source in self._base.sources for entry in self._read(source, shard)]
                self._entries[shard] = sorted(entries, key=lambda entry: entry.order)
        return self._entries[shard]

    def _read(self, source: EarlierIncarnation, shard: int | None) -> Iterator[_Entry]:
        covered, uncommitted = source.covered, self._base.uncommitted
        for number, pins in source.logs.items():
            if shard is None or number == shard:
                rows: dict[int, Stored] = {}
                known = self._records.get((source.incarnation, number))
                for stored in read_log(self._directory, pins) if known is None else known:
                    record = stored.record
                    if record.kind is Kind.ROWS:
                        rows[record.transaction] = stored
                    is_committed = record.kind is Kind.TRANSACTION and record.transaction not in uncommitted
                    if is_committed and record.epoch > covered:
                        yield _Entry(source, number, stored, rows)

    @property
    def report(self) -> RecoveryReport:
        """How much there is to load."""
        batches = list(self._batches())
        log_bytes = sum(length for source in self._base.sources for pins in source.logs.values() for _, length in pins)
        return RecoveryReport(
            self.epoch,
            len({source.table for source in batches}),
            len(batches),
            sum(source.file.bytes for source in batches),
            log_bytes,
            self._dropped.aborted,
            self._dropped.incomplete,
        )
