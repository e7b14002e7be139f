"""Formats: what earlier versions have written is opened, and what later ones write is refused."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from ikebana.encoding import HASHING
from ikebana.errors import StorageError
from ikebana.storage import LocalDirectory, Secret, Shard, Store, batch_files, recovery
from ikebana.storage.files import read_json, write_json
from ikebana.storage.inspection import check, describe
from ikebana.storage.layout import FORMAT
from tests.storage.harness import Harness, recovered_rows
from tests.storage.write_format import DATA, KEY, ROWS


@pytest.mark.parametrize("format", range(1, FORMAT + 1))
def test_a_directory_of_an_earlier_version_is_opened(tmp_path: Path, format: int) -> None:
    path = tmp_path / "storage"
    shutil.copytree(DATA / f"format-{format}", path)
    assert check(path) == []
    assert describe(path).format == format
    with Store.open(path, shards=3) as store:
        assert recovered_rows(store.recovery) == ROWS
        assert store.catalog.get("thing", "view") == {"sql": "SELECT 1", "settings": {"ansi": True}}
        assert Secret(KEY).verify(store.catalog.get("thing", "function")) == b"pickled"
        assert (store.recovery.epoch, store.recovery.shards, store.incarnation) == (2, 2, 3)
        with Shard.open(path, store.incarnation, 0) as shard:
            assert recovered_rows(shard.recovery) == ROWS
    assert describe(path).format == FORMAT


@pytest.mark.parametrize("what", ["batches", "the logs of shards"])
def test_rows_that_are_hashed_in_another_way_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """They would not be found by their keys."""
    system = Harness(lambda: LocalDirectory(tmp_path))
    if what == "batches":
        system.open(1)
        system.transact(Counter(ROWS))
        with monkeypatch.context() as later:
            later.setattr(batch_files, "HASHING", HASHING + 1)
            system.snapshot(0)
        system.workers[0].close()
        system.store.close()
    else:
        with monkeypatch.context() as later:
            later.setattr(recovery, "HASHING", HASHING + 1)
            Store.open(tmp_path, shards=1).close()
    for open_it in (lambda: recovered_rows(Store.open(tmp_path, shards=1).recovery), lambda: check(tmp_path)):
        with pytest.raises(StorageError, match=rf"hashed in an unknown way\n.*they have version {HASHING + 1}"):
            open_it()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    Store.open(tmp_path, shards=1).close()
    directory = LocalDirectory(tmp_path)
    content = read_json(directory, "format.json", "")
    write_json(directory, "format.json", {**content, "format": FORMAT + 1})
    for open_it in (lambda: Store.open(tmp_path, shards=1), lambda: check(tmp_path), lambda: describe(tmp_path)):
        with pytest.raises(StorageError, match=f"has format {FORMAT + 1}"):
            open_it()
