"""Rows that are in the log before their transaction is: they count if it is committed, and are deleted otherwise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from ikebana.engine import Engine
from ikebana.errors import ChangeError
from ikebana.storage import Shard, Store, TransactionLog, directory, early_rows, log
from ikebana.storage.early_rows import EarlyRows
from ikebana.storage.faults import FaultPoint, installed
from ikebana.storage.records import Kind
from tests.durability.test_recovery import NUMBERS, crashed, open_, rows

FIELDS = tuple(pa.schema(NUMBERS))
ROWS = 1000


@pytest.fixture(autouse=True)
def small_records() -> Iterator[None]:
    """Rows are written early if there are a few, and in several records; segments are small."""
    with (
        patch.multiple(early_rows, EARLY_BYTES=1000, _RECORD_BYTES=4000),
        patch.multiple(log, SEGMENT_BYTES=10_000, _TRIMMED_BYTES=1000),
        patch.object(directory, "_RESERVED_BYTES", 8),
    ):
        yield


@contextmanager
def appended(place: Path) -> Iterator[list[Kind]]:
    """The kinds of the records that are appended to logs below a place."""
    kinds: list[Kind] = []
    original = log.Log.append_all

    def append_all(self: log.Log, records: list[log.Record]) -> int:
        kinds.extend(record.kind for record in records)
        return original(self, records)

    with patch.object(log.Log, "append_all", append_all):
        yield kinds


def numbers(first: int, count: int = ROWS) -> dict[str, list[int]]:
    return {"k": list(range(first, first + count)), "v": [0] * count}


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


def log_bytes(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("log-*"))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("key", ["k", ()])
def test_loaded_rows_come_back(place: Path, workers: int, key: str | tuple[()]) -> None:
    with appended(place) as kinds, open_(place, workers) as engine:
        table, other = engine.table("t", NUMBERS, key=key), engine.table("other", {"n": pa.int64()})
        with engine.transaction():
            table.insert(numbers(0))
            other.insert({"n": range(ROWS)})
            table.insert(numbers(ROWS))
            table.insert(numbers(-1, 1))
        assert kinds.count(Kind.ROWS) > 5 and kinds.count(Kind.TRANSACTION) == workers
        with Engine(3, storage=str(crashed(engine, place))) as copy:
            assert rows(copy, "t") == {(k, 0): 1 for k in range(-1, 2 * ROWS)}
            assert rows(copy, "other") == {(n,): 1 for n in range(ROWS)}
            assert copy.recovered is not None and copy.recovered.log_rows == 3 * ROWS + 1
    with open_(place) as engine:
        assert rows(engine, "t") == {(k, 0): 1 for k in range(-1, 2 * ROWS)}


def test_rows_of_transactions_that_are_not_committed_do_not_come_back(place: Path) -> None:
    with appended(place) as kinds, open_(place) as engine:
        table = engine.table("t", NUMBERS, key="k")
        table.insert(numbers(0, 1))
        with pytest.raises(ChangeError):
            table.insert(numbers(0))
        aborted = engine.transaction()
        aborted.insert(table, numbers(ROWS))
        aborted.abort()
        still_open = engine.transaction()
        still_open.insert(table, numbers(2 * ROWS))
        table.insert(numbers(1, 1))
        engine.run()
        wait_until(lambda: Kind.ROWS in kinds)
        with open_(crashed(engine, place)) as copy:
            assert rows(copy, "t") == {(0, 0): 1, (1, 0): 1}
        still_open.abort()


def test_the_space_of_rows_that_are_not_needed_is_reclaimed(place: Path) -> None:
    with appended(place) as kinds, open_(place) as engine:
        table = engine.table("t", NUMBERS, key="k")
        assert engine.storage is not None
        for number in range(5):
            aborted = engine.transaction()
            aborted.insert(table, numbers(number * ROWS))
            engine.run()
            wait_until(lambda number=number: kinds.count(Kind.ROWS) == 4 * number + 4)
            aborted.abort()
        still_open = engine.transaction()
        still_open.insert(table, numbers(0))
        table.insert(numbers(-1, 1))
        wait_until(lambda: kinds.count(Kind.ROWS) == 24)
        before = log_bytes(place)
        assert before > 5 * 16 * ROWS
        engine.storage.snapshot()
        assert 16 * ROWS < log_bytes(place) < before - 4 * 16 * ROWS  # the open transaction still needs its rows
        still_open.commit()
        with open_(crashed(engine, place)) as copy:
            assert rows(copy, "t") == {(k, 0): 1 for k in range(-1, ROWS)}
        table.insert(numbers(-2, 1))
        engine.storage.snapshot()
        assert log_bytes(place) < 16 * ROWS
        with open_(crashed(engine, place)) as copy:
            assert rows(copy, "t") == {(k, 0): 1 for k in range(-2, ROWS)}


def test_rows_that_could_not_be_written_early_are_written_with_their_transaction(place: Path) -> None:
    def full(point: FaultPoint, path: str) -> None:
        if point is FaultPoint.APPEND and threading.current_thread().name == "ikebana early rows":
            raise OSError(28, "No space left on device")

    with open_(place) as engine:
        table = engine.table("t", NUMBERS, key="k")
        with installed(full), appended(place) as kinds:
            table.insert(numbers(0))
        assert Kind.TRANSACTION in kinds
        with open_(crashed(engine, place)) as copy:
            assert rows(copy, "t") == {(k, 0): 1 for k in range(ROWS)}


def early(log: TransactionLog, columns: tuple[pa.Array, ...]) -> EarlyRows:
    rows = EarlyRows(log)
    rows.add(7, "t#1", FIELDS, columns)
    return rows


def test_only_the_same_columns_are_found(place: Path) -> None:
    columns = pa.array(range(ROWS)), pa.array([0] * ROWS)
    with Store.open(place, shards=1) as store, Shard.open(store.place, store.incarnation, 0) as shard:
        rows = early(shard.log, columns)
        assert len(rows.records_of(7, columns, 0)) > 1
        assert rows.records_of(7, columns[::-1], 0) == rows.records_of(7, columns[:1], 0) == ()
        assert rows.records_of(8, columns, 0) == ()
        rows.forget(7)
        assert rows.records_of(7, columns, 0)
        rows.forget(8)
        assert rows.records_of(7, columns, 0) == ()
        assert rows.accepts(columns) and not rows.accepts([column.slice(0, 10) for column in columns])
        rows.close()
