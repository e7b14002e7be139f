"""Takeovers where there are no locks: a session that stood still goes on after another has taken its directory over.

What the old session writes then is not read, and what it deletes is not needed, however late that happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.fs
import pytest

from ikebana.errors import FencedError, StorageError
from ikebana.storage import ArrowDirectory, Directory, LocalDirectory, Shard, Store, lease, open_directory
from ikebana.storage.faults import FaultPoint, installed
from tests.storage.harness import Harness, Row, recovered_rows
from tests.storage.memory_disk import MemoryDisk
from tests.storage.short_leases import short_leases

FOREVER = 1e9


@pytest.fixture(params=["disk", "s3"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Directory]:
    """A directory without locks, whose sessions do not notice that time passes."""
    monkeypatch.setattr(lease, "_FENCE_SECONDS", FOREVER)
    monkeypatch.setattr(lease, "_SAFE_SHARE", FOREVER)
    with short_leases():
        if request.param == "s3":
            yield open_directory(request.getfixturevalue("s3").new_uri())
        else:
            yield ArrowDirectory(pyarrow.fs.LocalFileSystem(), str(tmp_path))


def stored(directory: Directory) -> Harness:
    """A session with something to delete everywhere: in both shards, the driver's log, and an earlier incarnation."""
    system = Harness(lambda: directory)
    system.open(2)
    system.transact(Counter({(0, "a"): 1, (1, "b"): 1}))
    snapshot(system)
    system.reopen(2)
    system.put("view", {"sql": "SELECT 1"})
    snapshot(system)
    system.transact(Counter({(2, "c"): 1, (3, "d"): 1}))
    system.transact(Counter())
    return system


def snapshot(system: Harness) -> None:
    """Publish manifests. The first ones of an incarnation adopt batch files; later ones have new files of all rows."""
    for shard in range(system.shards):
        system.snapshot(shard)


DELETIONS: dict[str, Callable[[Harness], object]] = {
    "batch files and manifests": lambda system: system.collect(0),
    "the log of a worker": lambda system: system.workers[0].trim(system.store.covered_epoch()),
    "the log of the driver": lambda system: system.store.log.trim(system.store.covered_epoch()),
    "earlier incarnations": lambda system: system.collect_old(),
    "the old journal": lambda system: system.compact(),
}


class Successor:
    """A session that takes a directory over: it claims, and decides what it starts from; its workers read later."""

    def __init__(self, system: Harness, directory: Directory) -> None:
        heartbeat = system.store._lease._heartbeat
        assert heartbeat is not None
        heartbeat.stop()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lease, "LEASE_SECONDS", 0.1)
            self.store = Store.open(directory, shards=2)
        self._directory = directory

    def check(self, rows: Counter[Row]) -> None:
        """Everything that was acknowledged before is there."""
        recovered = Counter[Row]()
        for index in range(2):
            with Shard.open(self._directory, self.store.incarnation, index) as shard:
                recovered.update(recovered_rows(shard.recovery, index))
        assert recovered == rows
        assert self.store.catalog.entries("thing") == {"view": {"sql": "SELECT 1"}}
        self.store.close()


@pytest.mark.parametrize("what", DELETIONS)
def test_regression_a_session_that_was_taken_over_deletes_nothing(elsewhere: Directory, what: str) -> None:
    """It had looked for claims a moment before, published its manifests, and deleted what the other had read."""
    system = stored(elsewhere)
    successor = Successor(system, elsewhere)
    snapshot(system)
    files = {*elsewhere.files("incarnations")}
    with pytest.raises(FencedError, match="was taken over"):
        DELETIONS[what](system)
    assert files <= {*elsewhere.files("incarnations")}
    successor.check(system.model.rows)


@pytest.mark.parametrize("what", DELETIONS)
def test_regression_what_is_deleted_late_is_not_needed(elsewhere: Directory, what: str) -> None:
    """A session that stood still between its last look and its deletion removed segments that the other had noted."""
    system = stored(elsewhere)
    snapshot(system)
    successors: list[Successor] = []

    def stand_still(point: FaultPoint, path: str) -> None:
        if point is FaultPoint.DELETE and not successors and system.store.incarnation == 2:
            with installed(lambda point, path: None):
                successors.append(Successor(system, elsewhere))

    with installed(stand_still):
        DELETIONS[what](system)
    assert len(successors) == 1
    successors[0].check(system.model.rows)


def test_regression_a_file_of_a_log_that_failed_is_not_deleted(
    elsewhere: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store had it, but the answer was lost; the other session had read it before it was deleted."""
    system = stored(elsewhere)
    successors: list[Successor] = []
    put = ArrowDirectory._put

    def put_without_answer(self: ArrowDirectory, path: str, chunks: Any) -> None:
        put(self, path, chunks)
        if "000002/shard-0000/log" in path:
            successors.append(Successor(system, elsewhere))
            raise OSError("no answer")

    monkeypatch.setattr(ArrowDirectory, "_put", put_without_answer)
    expected = system.model.rows + Counter({(4, "e"): 1})
    with pytest.raises(StorageError, match="no answer"):
        system.transact(Counter({(4, "e"): 1}))
    successors[0].check(expected)


def test_segments_that_are_covered_are_no_part_of_a_base() -> None:
    """With rows that are written early, too: a segment of such rows is needed as long as a transaction refers to it."""
    disk = MemoryDisk()
    system = Harness(lambda: LocalDirectory("/data", disk))
    system.open(1)
    system.transact(Counter({(0, "a"): 1}))
    system.stage(Counter({(1, "b"): 1}))
    system.snapshot(0)
    system.commit_staged()
    assert system.store.restart(1)._base.sources[0].logs[0]
    system._start(1)
    system.snapshot(0)
    source = system.store.restart(1)._base.sources[0]
    assert source.logs == {-1: [], 0: []}
