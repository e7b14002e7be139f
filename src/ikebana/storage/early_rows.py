"""Early rows: many rows are written to a log while the rest of their transaction arrives, and while it is checked.

A transaction that loads rows would otherwise write all of them when it commits, and its caller would wait for the disk.
A thread appends the rows as rows records (`ikebana.storage.transactions`) and syncs them, so that little is left to
write when the transaction commits: its own record, which has the numbers of the rows records.

Contract: early rows count only if a committed transaction refers to them. What belongs to a transaction that is ended
otherwise, or to a part of it that is not used, is deleted with its segments of the log. Rows that could not be written
early, on a full disk for instance, are written with their transaction, which then raises what is wrong.

Cost: a message to the thread. The log is locked for a few megabytes at a time, so other transactions do not wait for
more than that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue

import pyarrow as pa

from ikebana.encoding.arrow import have_bytes
from ikebana.errors import IkebanaError
from ikebana.storage.log import SegmentHold
from ikebana.storage.transactions import TableChanges, TransactionLog

EARLY_BYTES = 1 << 20
"""From this size on, rows are written early."""

_RECORD_BYTES = 4 << 20
"""The size of rows records, if there are more rows."""


@dataclass(slots=True, eq=False)
class _Part:
    """Rows that are to be written, as columns, and the numbers of their records once they are written."""

    table: str
    columns: tuple[pa.Array, ...]
    rows: pa.RecordBatch
    records: tuple[int, ...] = ()
    is_dropped: bool = False
    is_awaited: bool = False  # then its transaction is about to sync the log
    is_done: threading.Event = field(default_factory=threading.Event)

    def slices(self) -> Iterator[pa.RecordBatch]:
        """The rows in pieces, one for each record."""
        count = max(1, self.rows.num_rows * _RECORD_BYTES // max(1, self.rows.nbytes))
        for start in range(0, self.rows.num_rows, count):
            yield self.rows.slice(start, count)


@dataclass(slots=True, eq=False)
class _Transaction:
    hold: SegmentHold
    parts: list[_Part] = field(default_factory=list)
    epoch: int = -1  # the last one of a record that refers to some of its rows


class EarlyRows:
    """The early rows of the open transactions of one log. One thread at a time calls the methods."""

    def __init__(self, log: TransactionLog) -> None:
        self._log = log
        self._open: dict[int, _Transaction] = {}
        self._queue: SimpleQueue[_Part | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def accepts(self, columns: Sequence[pa.Array]) -> bool:
        """Whether rows are worth writing early, and can be."""
        return have_bytes(columns, EARLY_BYTES) and self._log.can_append_rows

    def add(self, transaction: int, table: str, fields: Sequence[pa.Field], columns: tuple[pa.Array, ...]) -> None:
        """Begin to write rows that a transaction inserts into a table."""
        if transaction not in self._open:
            self._open[transaction] = _Transaction(self._log.hold())
        rows = pa.RecordBatch.from_arrays(list(columns), schema=pa.schema(fields))
        part = _Part(table, columns, rows)
        self._open[transaction].parts.append(part)
        self._queue.put(part)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ikebana early rows", daemon=True)
            self._thread.start()

    def records_of(self, transaction: int, columns: Sequence[pa.Array], epoch: int) -> tuple[int, ...]:
        """The numbers of the records that have rows, given as the very same columns; none if they are not written.

        Waits for rows that are being written. A record of the epoch is about to refer to them.
        """
        if transaction not in self._open:
            return ()
        opened = self._open[transaction]
        wanted = list(map(id, columns))
        for part in opened.parts:
            if list(map(id, part.columns)) == wanted:
                part.is_awaited = True
                part.is_done.wait()
                opened.epoch = max(opened.epoch, epoch)
                return part.records
        return ()

    def end(self, transaction: int) -> None:
        """Forget a transaction."""
        ended = self._open.pop(transaction, None)
        if ended is not None:
            for part in ended.parts:
                part.is_dropped = True
            self._log.release(ended.hold, ended.epoch)

    def forget(self, oldest: int) -> None:
        """Forget all transactions before `oldest`."""
        for number in [number for number in self._open if number < oldest]:
            self.end(number)

    def close(self) -> None:
        """Stop writing."""
        self.forget(max(self._open, default=-1) + 1)
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (part := self._queue.get()) is not None:
            try:
                self._write(part)
            except Exception:  # its transaction writes the rows, and finds what is wrong
                part.records = ()
            finally:
                part.is_done.set()
            if self._queue.empty() and not part.is_awaited:
                with suppress(IkebanaError):  # whoever writes next finds it too
                    self._log.sync()

    def _write(self, part: _Part) -> None:
        records: list[int] = []
        for rows in part.slices():
            if part.is_dropped:
                return
            records.append(self._log.append_rows(TableChanges(part.table, rows))[0])
        part.records = tuple(records)
