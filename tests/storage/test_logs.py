"""Logs: group commit, full disks, rotation, the commit rule, and many small transactions."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import CorruptionError, FencedError, StorageError
from ikebana.storage import (
    DRIVER,
    ArrowDirectory,
    Directory,
    LocalDirectory,
    Shard,
    Store,
    TableChanges,
    Transaction,
    TransactionLog,
    faults,
    log,
    shard,
)
from ikebana.storage.directory import FileEntry
from ikebana.storage.disk import Disk
from ikebana.storage.faults import FaultPoint
from ikebana.storage.log import NO_GUARDS, Log, SegmentHold, find_segments, read_log, scan_log
from ikebana.storage.records import SECTOR, Kind, Record, _ZeroSectors
from ikebana.storage.recovery import check_rows
from ikebana.storage.transactions import Written, decide
from tests.storage.memory_disk import MemoryDisk

COLUMNS = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.string())])


def memory_log(disk: MemoryDisk, **options: int) -> tuple[LocalDirectory, Log]:
    directory = LocalDirectory("/data", disk)
    return directory, Log(directory, "log-", 1, 0, **options)


def record(number: int, body: bytes = b"body") -> Record:
    return Record(Kind.TRANSACTION, [body], number, number)


def stored_numbers(directory: Directory, covered: int = -1) -> list[int]:
    pins, records = scan_log(directory, "log-", covered)
    assert [stored.start for stored in read_log(directory, pins)] == [stored.start for stored in records]
    return [stored.record.transaction for stored in records]


def test_concurrent_syncs_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowDisk(MemoryDisk):
        syncs = 0
        first, go_on = threading.Event(), threading.Event()

        def sync(self, file: int) -> None:
            super().sync(file)
            SlowDisk.syncs += 1
            if SlowDisk.syncs == 2:  # the first is that of the new segment
                self.first.set()
                assert self.go_on.wait(10)

    directory, target = memory_log(SlowDisk())
    leader = threading.Thread(target=lambda: target.sync(target.append(record(1))))
    leader.start()
    assert SlowDisk.first.wait(10)
    positions = [target.append(record(number)) for number in range(2, 10)]
    followers = [threading.Thread(target=target.sync, args=[position]) for position in positions]
    done: list[Exception | None] = []
    target.when_synced(positions[-1], done.append)
    for follower in followers:
        follower.start()
    SlowDisk.go_on.set()
    for thread in (leader, *followers):
        thread.join()
    target.close()
    assert done == [None]
    assert SlowDisk.syncs <= 5  # the segment, the leader's, one or two for all others, and that of the end
    assert stored_numbers(directory) == list(range(1, 10))


def test_a_full_disk_refuses_a_record_and_the_log_goes_on() -> None:
    disk = MemoryDisk()
    directory, target = memory_log(disk)
    target.sync(target.append(record(1)))
    disk.capacity = disk.used() + 100_000
    with pytest.raises(StorageError, match="No space left"):
        target.append(record(2, bytes(1_000_000)))
    target.sync(target.append(record(3)))
    assert stored_numbers(directory) == [1, 3]


def test_a_write_that_fails_half_way_is_undone() -> None:
    disk = MemoryDisk()
    directory, target = memory_log(disk)
    target.append(record(1))

    def full(point: FaultPoint, path: str) -> None:
        if point is FaultPoint.APPEND_HALF:
            raise OSError(28, "No space left on device")

    with faults.installed(full), pytest.raises(StorageError, match="cannot append to /data/log-000000"):
        target.append(record(2))
    target.sync(target.append(record(3)))
    assert stored_numbers(directory) == [1, 3]


def test_records_are_appended_together_or_not_at_all() -> None:
    disk = MemoryDisk()
    directory, target = memory_log(disk)
    target.append(record(1))
    disk.capacity = disk.used() + 100_000
    with pytest.raises(StorageError, match="No space left"):
        target.append_all([record(2), record(3, bytes(1_000_000))])
    target.sync(target.append_all([record(4), record(5)]))
    assert stored_numbers(directory) == [1, 4, 5]


def test_a_log_whose_sync_failed_is_not_used_again() -> None:
    _, target = memory_log(MemoryDisk())
    target.append(record(1))

    def broken(point: FaultPoint, path: str) -> None:
        if point is FaultPoint.SYNC:
            raise OSError(5, "Input/output error")

    with faults.installed(broken), pytest.raises(OSError):
        target.sync()
    for call in (target.sync, lambda: target.append(record(2))):
        with pytest.raises(StorageError, match="cannot be written any more"):
            call()


def test_an_interrupt_of_a_sync_or_an_append_is_no_failure() -> None:
    directory, target = memory_log(MemoryDisk())
    target.append(record(1))
    for point, call in ((FaultPoint.SYNC, target.sync), (FaultPoint.APPEND_HALF, lambda: target.append(record(2)))):

        def interrupt(reached: FaultPoint, path: str, point: FaultPoint = point) -> None:
            if reached is point:
                raise KeyboardInterrupt

        with faults.installed(interrupt), pytest.raises(KeyboardInterrupt):
            call()
    target.sync(target.append(record(3)))
    assert stored_numbers(directory) == [1, 3]


def test_an_interrupt_of_a_sync_of_an_object_store_loses_nothing(tmp_path: Path) -> None:
    directory = ArrowDirectory(pyarrow.fs.LocalFileSystem(), str(tmp_path))
    target = Log(directory, "log-", 1, 0)
    target.append(record(1))

    def interrupt(reached: FaultPoint, path: str) -> None:
        if reached is FaultPoint.PUT_HALF:
            raise KeyboardInterrupt

    with faults.installed(interrupt), pytest.raises(KeyboardInterrupt):
        target.sync()
    target.sync(target.append(record(2)))
    assert stored_numbers(directory) == [1, 2]


def test_a_storage_directory_that_is_deleted_while_in_use_is_an_error(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "storage", shards=1)
    shard = Shard.open(store.place, store.incarnation, 0)
    shutil.rmtree(tmp_path / "storage")
    for call in (lambda: shard.log.commit(Transaction(1, 0, (0,))), lambda: shard.publish(0, {})):
        with pytest.raises(StorageError):
            call()


def test_segments_end_and_are_trimmed() -> None:
    disk = MemoryDisk()
    directory, target = memory_log(disk, segment_bytes=1_000)
    for number in range(20):
        target.sync(target.append(record(number, b"x" * 200)))
    assert len(disk.files()) == 5
    assert target.trim(8).files == 2
    assert stored_numbers(directory, 8)[0] == 8
    with pytest.raises(CorruptionError, match=r"log-000001 is damaged(.|\n)*it is missing"):
        stored_numbers(directory, 6)
    disk.delete("/data/log-000003")
    assert stored_numbers(directory, 15) == [16, 17, 18, 19]
    with pytest.raises(CorruptionError, match=r"log-000003 is damaged(.|\n)*it is missing"):
        stored_numbers(directory, 8)


def test_regression_segments_are_trimmed_while_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a worker that has not noticed yet that somebody else has taken over: then the directory did not open."""
    directory, target = memory_log(MemoryDisk(), segment_bytes=1_000)
    for number in range(20):
        target.sync(target.append(record(number, b"x" * 200)))
    trimmed = []

    def listed(directory: Directory, path: str) -> list[FileEntry]:
        entries = find_segments(directory, path)
        trimmed.append(target.trim(8).files)
        return entries

    monkeypatch.setattr(log, "find_segments", listed)
    assert stored_numbers(directory, 8)[0] == 8
    assert trimmed == [2, 0]


def test_segments_that_are_held_are_not_trimmed() -> None:
    disk = MemoryDisk()
    directory, target = memory_log(disk, segment_bytes=1_000)
    rows_log = TransactionLog(target, -1)
    rows = pa.RecordBatch.from_pydict({"k": ["x" * 900]})

    def staged() -> tuple[SegmentHold, TableChanges]:
        hold, change = rows_log.hold(), TableChanges("t", rows)
        return hold, replace(change, records=(rows_log.append_rows(change)[0],))

    dropped, _ = staged()
    rows_log.commit(Transaction(0, 0, (0,)))
    held, change = staged()
    for number in range(1, 5):
        rows_log.commit(Transaction(number, number, (0,), (TableChanges("t", rows),)))
    assert rows_log.trim(4).files == 0
    rows_log.release(dropped)
    assert rows_log.trim(4).files == 1
    rows_log.commit(Transaction(5, 5, (0,), (change,)))
    rows_log.release(held, 5)
    rows_log.commit(Transaction(6, 6, (0,)))
    assert rows_log.trim(4).files == 0
    _, stored = scan_log(directory, "log-", 4)
    found = {item.record.transaction: item for item in stored if item.record.kind is Kind.ROWS}
    transaction = next(item for item in stored if item.record.epoch == 5)
    assert [change.rows for change in Transaction.of(transaction, found).changes] == [rows]
    check_rows(directory, "log-", stored, 4)
    with pytest.raises(CorruptionError, match="rows of transaction 5 at epoch 5"):
        check_rows(directory, "log-", [item for item in stored if item.record.kind is not Kind.ROWS], 4)
    rows_log.trim(5)
    assert "/data/log-000001" not in disk.files()


def test_a_shortened_segment_is_found() -> None:
    disk = MemoryDisk()
    directory, target = memory_log(disk, segment_bytes=1_000)
    for number in range(8):
        target.sync(target.append(record(number, b"x" * 200)))
    disk.truncate_path("/data/log-000000", 400)
    with pytest.raises(CorruptionError, match="shorter than it was"):
        stored_numbers(directory)


def written(number: int, epoch: int, participants: tuple[int, ...], previous: int = 0) -> Written:
    return Written(number, epoch, participants, previous, epoch - 1 if previous else -1)


def test_a_transaction_is_committed_if_all_participants_have_it() -> None:
    logs = [
        (0, [written(1, 0, (0, 1)), written(2, 1, (0, 1)), written(4, 3, (0,))]),
        (1, [written(1, 0, (0, 1)), written(3, 2, (1,))]),
        (DRIVER, [written(5, 4, (DRIVER,))]),
    ]
    decisions = decide(logs, {3}, -1)
    assert decisions.committed == {1, 4, 5}
    assert (decisions.aborted, decisions.incomplete, decisions.epoch) == ({3}, {2}, 4)


def test_a_transaction_that_was_checked_after_a_lost_one_is_lost() -> None:
    logs = [(0, [written(2, 1, (0,), previous=1), written(3, 2, (0,), previous=2)]), (1, [])]
    assert decide(logs, set(), -1).committed == set()
    assert decide(logs, set(), 0).committed == {2, 3}  # epoch 0 is in the snapshots


def test_many_small_transactions_are_decoded_together(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "storage", shards=1)
    shard = Shard.open(store.place, store.incarnation, 0)
    for epoch in range(300):
        rows = pa.RecordBatch.from_arrays([pa.array([epoch]), pa.array([None if epoch % 3 else "x"])], schema=COLUMNS)
        diffs = 1 if epoch % 2 else np.array([-1])
        shard.log.append(Transaction(store.new_transaction(), epoch, (0,), (TableChanges("t", rows, diffs),), epoch))
    shard.close()
    store.close()
    with Store.open(tmp_path / "storage", shards=1) as store:
        block = store.recovery.changes("t")
        assert block is not None
        assert block.rows["k"].to_pylist() == block.epochs.tolist() == list(range(300))
        assert block.rows["v"].null_count == 200
        assert block.diffs.tolist() == [1 if epoch % 2 else -1 for epoch in range(300)]
        assert [committed.note for committed in store.recovery.transactions()] == list(range(300))
        assert list(store.recovery.notes(after=297)) == [(298, 298), (299, 299)]
        assert (store.recovery.tables, store.recovery.epoch) == (("t",), 299)


def test_a_replaced_worker_cannot_write(tmp_path: Path) -> None:
    with Store.open(tmp_path, shards=1) as store:
        shard = Shard.open(store.place, store.incarnation, 0)
        store.restart(1)
        with pytest.raises(FencedError, match="was taken over"):
            shard.log.commit(Transaction(store.new_transaction(), 0, (0,)))
        with pytest.raises(FencedError):
            shard.publish(0, {})
        with pytest.raises(FencedError):
            Shard.open(store.place, store.incarnation - 1, 0)


def test_what_a_replaced_worker_has_written_late_does_not_count(tmp_path: Path) -> None:
    with Store.open(tmp_path, shards=2) as store:
        shards = [Shard.open(store.place, store.incarnation, index) for index in range(2)]
        number = store.new_transaction()
        shards[0].log.commit(Transaction(number, 0, (0, 1)))
        assert not store.restart(2).has(number)
        shards[1].log._log._guards = NO_GUARDS
        shards[1].log.commit(Transaction(number, 0, (0, 1)))
        assert list(store.restart(2).transactions()) == []


def test_chunks_are_written_whatever_the_system_takes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda file, chunks, offset: real(file, [bytes(chunks[0])[:3]], offset))
    disk = Disk()
    file = disk.create(str(tmp_path / "file"))
    assert disk.write(file, [b"abcde", b"", b"fg", b"h" * 10], 0) == 17
    disk.close(file)
    assert (tmp_path / "file").read_bytes() == b"abcdefg" + b"h" * 10


def test_transactions_have_columns_of_dictionaries(tmp_path: Path) -> None:
    column = pa.array(["a", "b", "a"]).dictionary_encode()
    rows = pa.RecordBatch.from_arrays([column], names=["v"])
    with Store.open(tmp_path, shards=1) as store:
        for epoch in range(2):
            transaction = Transaction(store.new_transaction(), epoch, (DRIVER,), (TableChanges("t", rows),))
            store.log.commit(transaction)
        recovery = store.restart(1)
        assert recovery.has(transaction.number) and not recovery.has(transaction.number + 1)
        assert recovery.changes("t").rows["v"].to_pylist() == ["a", "b", "a"] * 2  # type: ignore[union-attr]
        changes = [part.changes[0].rows for committed in recovery.transactions() for part in committed.parts]
        assert changes == [rows, rows]


large_rows = pa.RecordBatch.from_pydict({"k": np.zeros(70_000, np.int64), "v": np.zeros(70_000, np.int64)})
"""More than are copied to encode them; most of their bytes are zero, also where one column ends and the next begins."""


def test_large_transactions_are_written_without_a_copy() -> None:
    rows = pa.RecordBatch.from_pydict({"k": np.arange(200_000), "v": np.arange(200_000)})
    body = Transaction(1, 0, (0,), (TableChanges("t", rows),)).record().body
    addresses = {np.frombuffer(chunk, np.uint8).ctypes.data for chunk in body if memoryview(chunk).nbytes}
    assert {column.buffers()[1].address for column in rows.columns} <= addresses
    disk = MemoryDisk()
    directory, target = memory_log(disk)
    target.append(Transaction(1, 0, (0,), (TableChanges("t", rows),)).record())
    target.close()
    (stored,) = scan_log(directory, "log-", -1)[1]
    (change,) = Transaction.of(stored, {}).changes
    assert change.rows.equals(rows)


def test_a_changed_bit_of_a_large_record_of_zeros_is_damage() -> None:
    """Not a torn record: no more sectors are zero than were written as zeros."""
    disk = MemoryDisk()
    directory, target = memory_log(disk)
    target.append(Transaction(1, 0, (0,), (TableChanges("t", large_rows),)).record())
    target.close()
    assert stored_numbers(directory) == [1]
    disk.flip("/data/log-000000", 600_000, 1)
    with pytest.raises(CorruptionError, match="transaction 1 at epoch 0"):
        stored_numbers(directory)


@given(
    st.integers(0, 2 * SECTOR),
    st.lists(st.tuples(st.integers(0, 3 * SECTOR), st.sampled_from([0, 0, 1])), max_size=6),
)
def test_oracle_zero_sectors_are_counted_across_pieces(offset: int, pieces: list[tuple[int, int]]) -> None:
    counter, content = _ZeroSectors(offset), b""
    for size, last in pieces:
        piece = bytes(size - 1) + bytes([last]) if size else b""
        counter.add(piece)
        content += piece
    starts = range(-offset % SECTOR, len(content) - SECTOR + 1, SECTOR)
    assert counter.count == sum(not any(content[start : start + SECTOR]) for start in starts)


def test_large_files_are_written_in_pieces_that_give_way_to_the_log(tmp_path: Path) -> None:
    """No sync of a log waits for more than a piece; nothing of a large file stays in the system's cache."""
    synced, dropped, pauses = list[int](), list[tuple[int, int]](), list[float]()

    class Watched(Disk):
        def write(self, file: int, chunks: Sequence[bytes], offset: int) -> int:
            synced.append(sum(map(len, chunks)))
            return super().write(file, chunks, offset)

        def drop_cache(self, file: int, start: int, size: int) -> None:
            dropped.append((start, size))
            super().drop_cache(file, start, size)

    content = os.urandom((5 << 20) + 17)
    LocalDirectory(tmp_path, Watched()).write("large", [content[:100], content[100:]], pauses.append)
    assert (tmp_path / "large").read_bytes() == content
    assert synced == [1 << 20] * 5 + [17]
    assert dropped == [(at << 20, 1 << 20) for at in range(5)]
    assert len(pauses) == 5


def test_a_batch_file_waits_only_while_the_log_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("ikebana.storage.shard.time.sleep", waited.append)
    _, target = memory_log(MemoryDisk())
    log = TransactionLog(target, -1)
    pace = shard._PaceOf(log)
    pace(0.02)
    log.append(Transaction(1, 0, (0,)))
    pace(0.03)
    pace(0.04)
    assert waited == [0.03]
