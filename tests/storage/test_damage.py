"""Damage: a flipped bit anywhere is found, named, and never returned."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from ikebana.cli import main
from ikebana.errors import CorruptionError, StorageError
from ikebana.storage import LocalDirectory, Store, directory, log
from ikebana.storage.directory import FileEntry
from ikebana.storage.inspection import _check_file, _mentioned, check, describe
from ikebana.storage.layout import FORMAT
from tests.profiles import PROFILE
from tests.storage.harness import Harness, recovered_rows
from tests.storage.memory_disk import MemoryDisk


@pytest.fixture(autouse=True, scope="module")
def little_reserved() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory, "_RESERVED_BYTES", 8)
        yield


def small_storage(open_directory: object) -> Harness:
    """Two shards, of which both have batches and transactions after them."""
    system = Harness(open_directory)  # type: ignore[arg-type]
    system.open(2)
    system.put("table", {"columns": ["k", "v"]})
    system.transact(Counter({(0, "a"): 1, (1, "b"): 1}))
    system.snapshot(0)
    system.snapshot(1)
    system.transact(Counter({(2, "c"): 1, (3, "d"): 1}))
    system.transact(Counter({(2, "c"): -1}), "time out")
    system.stage(Counter({(4, "e"): 1, (5, "f"): 1}))
    system.commit_staged()
    system.transact(Counter())
    return system


def test_a_flipped_bit_anywhere_is_found() -> None:
    disk = MemoryDisk()
    small_storage(lambda: LocalDirectory("/data", disk))
    storage = LocalDirectory("/data", disk)
    assert check(storage) == []
    choice = random.Random(1)
    mentioned = _mentioned(storage)
    for path in disk.files():
        entry = FileEntry(path.removeprefix("/data/"), disk.size(path) or 0)
        for byte in range(entry.size):
            bit = choice.randrange(8)
            disk.flip(path, byte, bit)
            with pytest.raises(CorruptionError) as caught:
                _check_file(storage, entry, mentioned)
            assert caught.value.path == entry.path
            if choice.randrange(200) == 0:
                damages = check(storage)
                assert damages[0].path == entry.path and damages[0].problem and damages[0].lost
            disk.flip(path, byte, bit)
    assert check(storage) == []


def test_damaged_files_are_not_opened() -> None:
    disk = MemoryDisk()
    small_storage(lambda: LocalDirectory("/data", disk))
    choice = random.Random(2)
    for path in disk.files():
        byte, bit = choice.randrange(disk.size(path) or 0), choice.randrange(8)
        damaged = deepcopy(disk)
        damaged.flip(path, byte, bit)
        with pytest.raises(CorruptionError) as caught:
            recovered_rows(Store.open(LocalDirectory("/data", damaged), shards=2).recovery)
        assert path in caught.value.what


def test_missing_files_are_found() -> None:
    disk = MemoryDisk()
    system = small_storage(lambda: LocalDirectory("/data", disk))
    batch = next(system.workers[0].manifest.files).path  # type: ignore[union-attr]
    disk.delete(f"/data/{batch}")
    assert [(damage.path, damage.problem) for damage in check(LocalDirectory("/data", disk))] == [
        (batch, "it is missing")
    ]
    store = Store.open(LocalDirectory("/data", disk), shards=2)
    with pytest.raises(CorruptionError, match=r"lost: 1 rows of table 'rows#1'"):
        recovered_rows(store.recovery)


class _BusyDirectory(LocalDirectory):
    """A directory that is being used: something happens before one of the operations of whoever reads it."""

    def __init__(self, disk: MemoryDisk, at: int, happen: Callable[[], None]) -> None:
        super().__init__("/data", disk)
        self.left, self._happen = at, happen

    def _pass(self) -> None:
        self.left -= 1
        if self.left == 0:
            self._happen()

    def read(self, path: str, *, mapped: bool = True) -> Any:
        self._pass()
        return super().read(path, mapped=mapped)

    def files(self, path: str = "") -> list[FileEntry]:
        self._pass()
        return super().files(path)

    def size(self, path: str) -> int | None:
        self._pass()
        return super().size(path)


def busy_directory(at: int, begins_again: bool) -> _BusyDirectory:
    """A directory whose session commits, takes a snapshot and deletes what is not needed any more, meanwhile."""
    disk = MemoryDisk()
    system = small_storage(lambda: LocalDirectory("/data", disk))

    def use() -> None:
        if begins_again:
            system.reopen(2)
        system.transact(Counter({(6, "g"): 1, (7, "h"): 1}))
        for shard in range(2):
            system.snapshot(shard)
            system.collect(shard)
        system.trim()
        system.compact()
        system.collect_old()

    return _BusyDirectory(disk, at, use)


@pytest.mark.parametrize("begins_again", [False, True])
def test_regression_nothing_is_damaged_that_a_session_deletes_meanwhile(
    begins_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was deleted after a list of files, or a manifest that mentions it, had been read seemed to be missing."""
    monkeypatch.setattr(log, "SEGMENT_BYTES", 1)  # each record has a file of its own
    for inspect in (lambda directory: check(directory) == [], describe):
        at, is_over = 1, False
        while not is_over:
            directory = busy_directory(at, begins_again)
            assert inspect(directory), at
            at, is_over = at + (2 if PROFILE == "quick" else 1), directory.left > 0
        assert at > 30


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "storage"
    system = small_storage(lambda: LocalDirectory(path))
    for worker in system.workers:
        worker.close()
    system.store.close()
    return path


def test_files_can_be_read_by_their_owner_only(stored: Path) -> None:
    for path in (stored, *stored.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_the_command_finds_damage(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "check", str(stored)]) == 0
    assert "no damage" in capsys.readouterr().out
    batch = next(stored.rglob("*.batch"))
    content = bytearray(batch.read_bytes())
    content[-1] ^= 4
    batch.write_bytes(content)
    assert main(["storage", "check", str(stored)]) == 1
    shown = capsys.readouterr()
    assert "1 file is damaged" in shown.err
    assert "rows#1" in shown.out


def test_the_command_lists_what_is_stored(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "list", str(stored)]) == 0
    shown = capsys.readouterr().out
    assert "rows#1" in shown and "thing" in shown
    description = describe(stored)
    assert (description.format, description.is_in_use, description.catalog) == (FORMAT, False, {"thing": ["table"]})
    assert [(table.table, table.rows) for table in description.tables] == [("rows#1", 2)]


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(StorageError, match="is not a storage directory"):
        Store.open(tmp_path, shards=1)
    with pytest.raises(StorageError, match="there is no storage directory"):
        describe(tmp_path)
