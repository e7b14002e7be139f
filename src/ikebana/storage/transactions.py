"""Transactions in logs: the net changes of a transaction to the tables of one shard, and which transactions happened.

Every shard that has rows of a transaction, a *participant*, writes one record, which names all participants. A
transaction is *committed* exactly if

- the log of every participant has a valid record of it,
- the driver's log has no record that it was aborted, and
- the transaction that it names as `previous`, if any, is committed: it was checked against the effects of that one.

So the syncs of all participants, which run in parallel, are all that a commit costs. A participant that rejects a
transaction does not write. The driver may be a participant itself (`DRIVER`).

Many rows can be written before it is known whether their transaction is committed, and at which epoch: as *rows
records*, which have numbers of their own. The record of the transaction then has these numbers in place of the rows.
Rows records to which no committed transaction refers do not count.

The body of a record is a JSON object (participants, a note, and for each table its name, its number of rows and the
sizes that follow), then for each table its rows as an Arrow IPC stream, and its diffs as 64-bit integers unless all are
equal. Rows are not copied when they are written, nor when they are read.

Cost: 30 us to write a transaction of one row, without the sync.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ikebana.errors import StorageError
from ikebana.storage.ipc import stream_chunks, without_ends
from ikebana.storage.log import Collected, Log, SegmentHold
from ikebana.storage.records import Kind, Record, Stored

DRIVER = -1
"""The number of the driver among the participants."""

_SMALL_BYTES = 1 << 20
"""Rows of fewer bytes are copied to encode them, and joined to decode them, which is quicker."""

_JOINED_BYTES = 4 << 10
"""Bodies of up to this size are one chunk, of which the checksum is quicker."""

_ENCODER = json.JSONEncoder(separators=(",", ":"))
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def _now() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True, eq=False)
class TableChanges:
    """Rows of a table and their diffs: one for all rows, or one for each.

    `records` are the numbers of the rows records that have these changes, if they are in the log already.
    """

    table: str
    rows: pa.RecordBatch
    diffs: int | NDArray[np.int64] = 1
    records: tuple[int, ...] = ()

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def diff_lane(self) -> NDArray[np.int64]:
        """A diff for each row."""
        return np.full(len(self), self.diffs, np.int64) if isinstance(self.diffs, int) else self.diffs


@dataclass(frozen=True, slots=True, eq=False)
class Transaction:
    """What one participant writes of a transaction."""

    number: int
    epoch: int
    participants: tuple[int, ...]
    changes: tuple[TableChanges, ...] = ()
    note: Any = None  # plain JSON
    previous: int = 0
    previous_epoch: int = -1
    time_us: int = field(default_factory=_now)

    def record(self) -> Record:
        """The record of the transaction."""
        head: dict[str, Any] = {"participants": self.participants}
        if self.note is not None:
            head["note"] = self.note
        fields = (self.number, self.epoch, self.previous, self.previous_epoch, self.time_us)
        return Record(Kind.TRANSACTION, _body(head, self.changes), *fields)

    @staticmethod
    def of(stored: Stored, rows: RowsRecords) -> Transaction:
        """The transaction of a record; `rows` are the rows records of its log."""
        record = stored.record
        head, _ = _head(stored.body)
        return Transaction(
            record.transaction,
            record.epoch,
            tuple(head["participants"]),
            tuple(stream.decode() for stream in table_streams(stored, rows)),
            head.get("note"),
            record.previous,
            record.previous_epoch,
            record.time_us,
        )


RowsRecords: TypeAlias = Mapping[int, Stored]
"""The rows records of a log, by number."""


def _body(head: dict[str, Any], changes: Iterable[TableChanges]) -> list[Any]:
    """The body of a record: a JSON object, to which the tables are added, and changes of tables."""
    entries: list[dict[str, Any]] = []
    chunks: list[Any] = [b""]
    for change in changes:
        entry: dict[str, Any] = {"table": change.table, "rows": len(change)}
        entries.append(entry)
        if change.records:
            entry["records"] = change.records
            continue
        schema = change.rows.schema.serialize().to_pybytes()
        batch = _batch_messages(change.rows, schema)
        entry |= {"schema": len(schema), "batch": _bytes_of(batch)}
        chunks += [schema, *batch, _END_OF_STREAM]
        if isinstance(change.diffs, int):
            entry["diff"] = change.diffs
        elif len(change):
            chunks.append(np.ascontiguousarray(change.diffs, np.int64))
    text = _ENCODER.encode({**head, "tables": entries}).encode()
    text += b" " * (-len(text) % 8)
    chunks[0] = f"{len(text):08d}".encode() + text
    return [b"".join(chunks)] if _bytes_of(chunks) <= _JOINED_BYTES else chunks


def _bytes_of(chunks: Sequence[Any]) -> int:
    return sum([memoryview(chunk).nbytes for chunk in chunks])


class TableStream(NamedTuple):
    """The changes of a table as they are stored: the messages of an IPC stream, and diffs."""

    table: str
    rows: int
    schema: bytes
    batch: pa.Buffer
    diffs: int | NDArray[np.int64]

    @property
    def is_small(self) -> bool:
        """Whether it is quicker to copy the stream and decode it together with others."""
        return int(self.batch.size) < _SMALL_BYTES

    def decode(self) -> TableChanges:
        """The changes."""
        if _has_dictionaries(self.schema):
            stream = b"".join([self.schema, self.batch, _END_OF_STREAM])
            return TableChanges(self.table, pa.ipc.open_stream(stream).read_next_batch(), self.diffs)
        return TableChanges(self.table, pa.ipc.read_record_batch(self.batch, _schema(self.schema)), self.diffs)


def table_streams(stored: Stored, rows: RowsRecords) -> Iterator[TableStream]:
    """The changes of the transaction of a record, not decoded yet; `rows` are the rows records of its log."""
    body = stored.body
    head, start = _head(body)
    content = memoryview(body)
    for entry in head["tables"]:
        if "records" in entry:
            for number in entry["records"]:
                yield from table_streams(rows[number], rows)
            continue
        split = start + entry["schema"]
        end = split + entry["batch"]
        schema, batch = bytes(content[start:split]), body[split:end]
        start = end + len(_END_OF_STREAM)
        diffs: Any = entry.get("diff")
        if diffs is None:
            count = entry["rows"]
            diffs = np.frombuffer(body, np.int64, count, start) if count else np.empty(0, np.int64)
            start += 8 * count
        yield TableStream(entry["table"], entry["rows"], schema, batch, diffs)


def decode_streams(streams: Sequence[TableStream], added: pa.RecordBatch | None = None) -> pa.Table:
    """The rows of several streams of one table, in order. Small ones are decoded together, which is quicker.

    `added` has, in one row, the values of columns that the table got later: earlier streams lack them.
    """
    tables: list[pa.Table] = []
    for (is_small, _), group in groupby(streams, key=lambda stream: (stream.is_small, stream.schema)):
        run = list(group)
        if is_small:
            joined = b"".join([run[0].schema, *(stream.batch for stream in run), _END_OF_STREAM])
            rows = pa.ipc.open_stream(joined).read_all()
        else:
            rows = pa.Table.from_batches([stream.decode().rows for stream in run])
        tables.append(rows if added is None else with_added_columns(rows, added))
    return pa.concat_tables(tables)


def with_added_columns(rows: pa.Table, added: pa.RecordBatch) -> pa.Table:
    """Rows with the columns of `added` that they lack, which have the values of its only row."""
    present = set(rows.schema.names)
    for column, value in zip(added.schema, added.columns, strict=True):
        if column.name not in present:
            rows = rows.append_column(column, value.take(pa.array(np.zeros(len(rows), np.int64))))
    return rows


def participants_of(stored: Stored) -> tuple[int, ...]:
    """The participants of the transaction of a record; its rows are not read."""
    return tuple(_head(stored.body)[0]["participants"])


def missing_rows(stored: Iterable[Stored], covered: int) -> Record | None:
    """The first transaction after an epoch whose rows records are not among the records of its log."""
    known: set[int] = set()
    for item in stored:
        record = item.record
        if record.kind is Kind.ROWS:
            known.add(record.transaction)
        elif record.kind is Kind.TRANSACTION and record.epoch > covered:
            for entry in _head(item.body)[0]["tables"]:
                if "records" in entry and not known.issuperset(entry["records"]):
                    return record
    return None


def note_of(stored: Stored) -> Any:
    """The note of the transaction of a record; its rows are not read."""
    return _head(stored.body)[0].get("note")


def _head(body: pa.Buffer) -> tuple[dict[str, Any], int]:
    """The JSON object at the start of a body, which is not to be changed, and where it ends."""
    content = memoryview(body)
    end = 8 + int(content[:8])
    return _parsed(bytes(content[8:end])), end


@lru_cache(maxsize=1024)
def _parsed(text: bytes) -> dict[str, Any]:
    """The value of a JSON text. Transactions of one kind often have the same."""
    return json.loads(text)


def _batch_messages(rows: pa.RecordBatch, schema: bytes) -> list[Any]:
    """The messages of a record batch in an IPC stream; those of dictionaries come first. Large ones are not copied."""
    is_small = rows.get_total_buffer_size() < _SMALL_BYTES or rows.nbytes < _SMALL_BYTES  # the first is quicker
    if is_small and not _has_dictionaries(schema):
        return [rows.serialize()]
    return without_ends(stream_chunks(rows), len(schema), len(_END_OF_STREAM))


@lru_cache(maxsize=1024)
def _has_dictionaries(schema: bytes) -> bool:
    return "dictionary<" in str(_schema(schema))


@lru_cache(maxsize=1024)
def _schema(message: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(message))


class TransactionLog:
    """The log of one shard, or of the driver."""

    def __init__(self, log: Log, after: int) -> None:
        """`after` is the last epoch of what was recovered: those of new transactions are later."""
        self._log, self._after = log, after
        self._rows_numbers = itertools.count(1)

    def append(self, transaction: Transaction) -> int:
        """Append the record of a transaction; return the position up to which to sync."""
        return self.append_all([transaction])

    def append_all(self, transactions: Sequence[Transaction]) -> int:
        """Append the records of transactions, all or none; return the position up to which to sync."""
        for transaction in transactions:
            if transaction.epoch <= self._after:
                raise StorageError(
                    f"cannot store transaction {transaction.number} at epoch {transaction.epoch}",
                    detail=f"the epochs up to {self._after} are those of earlier incarnations",
                )
        return self._log.append_all([transaction.record() for transaction in transactions])

    @property
    def can_append_rows(self) -> bool:
        """Whether rows can be written before their transaction: not where a sync writes all records that wait."""
        return self._log.can_append

    def append_rows(self, changes: TableChanges) -> tuple[int, int]:
        """Append a rows record. Return its number, and the position up to which to sync.

        The log must be held from before this call until the transaction is ended.
        """
        number = next(self._rows_numbers)
        return number, self._log.append(Record(Kind.ROWS, _body({}, [changes]), number, time_us=_now()))

    def hold(self) -> SegmentHold:
        """Keep all rows records that are appended from now on."""
        return self._log.hold()

    def release(self, hold: SegmentHold, epoch: int = -1) -> None:
        """Keep rows records only as long as transactions of an epoch; without one, they are not needed any more."""
        self._log.release(hold, epoch)

    def append_abort(self, number: int, epoch: int) -> int:
        """Append that a transaction did not happen; only the driver does this."""
        return self._log.append(Record(Kind.ABORT, (), number, epoch, time_us=_now()))

    def sync(self, position: int | None = None) -> None:
        """Return once everything up to a position, or all that was appended, is durable."""
        self._log.sync(position)

    def when_synced(self, position: int, callback: Callable[[Exception | None], None]) -> None:
        """Call a function, from a thread of the log, once everything up to a position is durable or that failed."""
        self._log.when_synced(position, callback)

    def commit(self, transaction: Transaction) -> None:
        """Append the record of a transaction, and return once it is durable."""
        self.sync(self.append(transaction))

    def trim(self, covered: int) -> Collected:
        """Delete the segments whose transactions are all of epochs that the manifests of all shards cover."""
        return self._log.trim(covered)

    @property
    def bytes(self) -> int:
        """The number of bytes that were appended."""
        return self._log.bytes

    @property
    def syncs(self) -> int:
        """The number of syncs."""
        return self._log.syncs

    def close(self) -> None:
        """Sync and close the log."""
        self._log.close()


# The commit rule.


class Written(NamedTuple):
    """That a shard has a record of a transaction."""

    number: int
    epoch: int
    participants: tuple[int, ...]
    previous: int
    previous_epoch: int


@dataclass(slots=True)
class Decisions:
    """Which transactions of an incarnation are committed."""

    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    incomplete: set[int] = field(default_factory=set)  # by the commit rule: without an abort record
    epoch: int = -1  # the last of a committed transaction


def decide(logs: Iterable[tuple[int, Sequence[Written]]], aborted: set[int], covered: int) -> Decisions:
    """Apply the commit rule to what the shards have written.

    `covered` is an epoch of which all transactions up to it are in snapshots, so that their records may be gone.
    """
    shards: dict[int, set[int]] = {}
    written: dict[int, Written] = {}
    for shard, entries in logs:
        for entry in entries:
            shards.setdefault(entry.number, set()).add(shard)
            _check_equal(written.setdefault(entry.number, entry), entry)
    decisions = Decisions()
    for entry in sorted(written.values(), key=lambda entry: (entry.epoch, entry.number)):
        if entry.number in aborted:
            decisions.aborted.add(entry.number)
        elif entry.epoch > covered and not _is_complete(entry, shards[entry.number], decisions, covered):
            decisions.incomplete.add(entry.number)
        else:
            decisions.committed.add(entry.number)
            decisions.epoch = max(decisions.epoch, entry.epoch)
    return decisions


def _is_complete(entry: Written, shards: set[int], decisions: Decisions, covered: int) -> bool:
    follows = not entry.previous or entry.previous in decisions.committed or entry.previous_epoch <= covered
    return follows and shards.issuperset(entry.participants)


def _check_equal(first: Written, second: Written) -> None:
    if first != second:
        raise StorageError(
            f"the shards disagree about transaction {first.number}",
            detail=f"one has written {first}, another {second}",
            hint="this is a defect of ikebana: please report it, with the storage directory",
        )


def written_in(stored: Iterable[Stored]) -> Iterator[Written]:
    """The transactions of some records, without their rows."""
    for item in stored:
        record = item.record
        if record.kind is Kind.TRANSACTION:
            links = (record.previous, record.previous_epoch)
            yield Written(record.transaction, record.epoch, participants_of(item), *links)
