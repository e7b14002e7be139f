"""Crashes at every fault point: what was acknowledged is there, what failed is not, and nothing is half there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import partial
from pathlib import Path

import pyarrow.fs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import StorageError
from ikebana.storage import ArrowDirectory, Directory, LocalDirectory, directory, faults, lease, log
from ikebana.storage.faults import FaultPoint
from ikebana.storage.inspection import check
from tests.profiles import PROFILE, examples
from tests.storage.harness import Harness, Model
from tests.storage.memory_disk import Crash, MemoryDisk

KEEP = ("some", "synced", "all")
ARROW_POINTS = {FaultPoint.PUT, FaultPoint.PUT_HALF}


@pytest.fixture(autouse=True, scope="module")
def small_segments() -> Iterator[None]:
    """Logs whose segments end after a few records, and leases that do not wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "SEGMENT_BYTES", 2_000)
        patch.setattr(log, "_TRIMMED_BYTES", 500)
        patch.setattr(directory, "_RESERVED_BYTES", 1_500)
        patch.setattr(lease, "LEASE_SECONDS", 0.0)
        patch.setattr(lease, "_Heartbeat", lambda *_: None)
        yield


def rows(*entries: tuple[int, str, int]) -> Counter[tuple[int, str]]:
    return Counter({(k, v): diff for k, v, diff in entries})


def story(system: Harness) -> None:
    """All operations, in an order in which they depend on each other."""
    system.open(2)
    system.transact(rows((0, "a", 1), (1, "b", 1), (2, "c" * 3000, 1)))
    system.put("view", {"sql": "select 1"})
    system.transact(rows((3, "d", 1)))
    system.snapshot(0)
    system.transact(rows((0, "a", -1), (5, "e", 2)))
    system.snapshot(1)
    system.transact(rows((6, "x", 1), (7, "x", 1)), "time out")
    system.transact(rows((6, "y", 1), (7, "y", 1)), "reject")
    system.collect(0)
    system.trim()
    system.transact(rows((8, "f", 1), (9, "g", 1)))
    system.compact()
    system.transact_together([rows((8, "f", -1)), rows((9, "g", -1), (8, "n", 1)), rows((9, "o", 1))])
    system.restart(2)
    system.transact(rows((10, "h", 1)))
    system.snapshot(0)
    system.transact(rows())
    system.snapshot(1)
    system.collect_old()
    system.stage(rows((18, "p" * 900, 1), (19, "q", 1)))
    system.put("other", [1, 2])
    system.transact(rows((11, "i", 1), (12, "j", 1)))
    system.snapshot(0)
    system.collect(0)
    system.trim()
    system.commit_staged()
    system.stage(rows((20, "r", 1), (21, "s", 1)))
    system.commit_staged("time out")
    system.stage(rows((22, "r", 1), (23, "s" * 1500, 1)))
    system.drop_staged()
    system.reopen(3)
    system.transact(rows((13, "k", 1), (14, "l", 1), (15, "m", 1)))
    system.snapshot(2)
    system.reopen(1)
    system.snapshot(0)
    system.collect_old()
    system.trim()
    system.transact(rows((1, "b", -1)))


def run_story(open_directory: Callable[[], Directory], crash_at: int) -> tuple[Harness, list[FaultPoint]]:
    """Tell the story until a fault point is reached so many times; return the points that were reached."""
    reached: list[FaultPoint] = []

    def fault(point: FaultPoint, path: str) -> None:
        reached.append(point)
        if len(reached) == crash_at:
            raise Crash

    system = Harness(open_directory)
    with faults.installed(fault), suppress(Crash):
        story(system)
    return system, reached


def go_on(system: Harness) -> None:
    """Open after a crash, and use the storage directory again."""
    system.open(2)
    system.transact(rows((100, "z", 1), (101, "z", 1)))
    system.snapshot(0)
    system.snapshot(1)
    system.collect_old()
    system.trim()
    system.reopen(2)


def test_a_crash_at_every_fault_point_loses_nothing() -> None:
    """The story is told once; at every fault point, a copy of the disk crashes and is opened again."""
    disk, reached = MemoryDisk(), list[FaultPoint]()
    system = Harness(lambda: LocalDirectory("/data", disk))

    def fault(point: FaultPoint, path: str) -> None:
        reached.append(point)
        with faults.installed(lambda point, path: None):
            for keep in KEEP if PROFILE != "quick" else [KEEP[len(reached) % len(KEEP)]]:
                crash_copy(disk, system.model, len(reached), keep)

    with faults.installed(fault):
        story(system)
    assert set(reached) == set(FaultPoint) - ARROW_POINTS


OPERATIONS = ("make_directory", "create", "reserve", "write", "sync", "sync_path", "sync_directory", "truncate")
OPERATIONS += ("rename", "delete")


def test_every_change_of_a_disk_is_preceded_by_a_fault_point() -> None:
    """So the crashes of these tests are all that can happen: there is no operation between two of them."""
    disk, points, since = MemoryDisk(), 0, 0

    def watched(name: str) -> Callable[..., object]:
        operation = getattr(disk, name)

        def call(*arguments: object) -> object:
            nonlocal since
            assert points > since, f"{name} comes without a fault point"
            since = points
            return operation(*arguments)

        return call

    def fault(point: FaultPoint, path: str) -> None:
        nonlocal points
        points += 1

    with faults.installed(fault):
        for name in OPERATIONS:
            setattr(disk, name, watched(name))
        story(Harness(lambda: LocalDirectory("/data", disk)))
    assert points > 100


def crash_copy(disk: MemoryDisk, model: Model, seed: int, keep: str) -> None:
    copy = deepcopy(disk)
    copy.crash(random.Random(seed), keep)
    system = Harness(lambda: LocalDirectory("/data", copy))
    system.model = deepcopy(model)
    if PROFILE == "quick" and seed % 5:
        system.open(2)
        return
    if model.epoch >= 0:
        assert check(LocalDirectory("/data", copy)) == []
    go_on(system)


some_rows = st.dictionaries(
    st.tuples(st.integers(0, 9), st.sampled_from("ab")), st.sampled_from([-1, 1, 2]), max_size=4
).map(Counter)
operations = st.one_of(
    st.tuples(st.just("transact"), some_rows, st.sampled_from(["commit", "commit", "commit", "time out", "reject"])),
    st.tuples(st.just("transact_together"), st.lists(some_rows, max_size=3)),
    st.tuples(st.just("stage"), some_rows),
    st.tuples(st.just("commit_staged"), st.sampled_from(["commit", "commit", "time out", "reject"])),
    st.tuples(st.just("snapshot"), st.integers(0, 2)),
    st.tuples(st.just("collect"), st.integers(0, 2)),
    st.tuples(st.sampled_from(["trim", "collect_old", "compact"])),
    st.tuples(st.just("put"), st.sampled_from("ab"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["reopen", "restart"]), st.integers(1, 3)),
)


def execute(system: Harness, name: str, *arguments: object) -> None:
    if name in ("snapshot", "collect"):
        arguments = (arguments[0] % system.shards,)  # type: ignore[operator]
    getattr(system, name)(*arguments)


@examples(2)
@given(
    st.lists(st.tuples(st.lists(operations, max_size=8), st.integers(1, 60), st.sampled_from(KEEP)), max_size=4),
    st.randoms(use_true_random=False),
)
def test_oracle_random_operations_with_crashes(lives: list, choice: random.Random) -> None:
    disk = MemoryDisk()
    system = Harness(lambda: LocalDirectory("/data", disk))
    for steps, crash_at, keep in lives:
        remaining = crash_at

        def fault(point: FaultPoint, path: str) -> None:
            nonlocal remaining
            remaining -= 1
            if remaining == 0:
                raise Crash

        with faults.installed(fault), suppress(Crash):
            system.open(2)
            for step in steps:
                execute(system, *step)
        disk.crash(choice, keep)
    system.open(2)


FILLING = {
    *(FaultPoint.MAKE_DIRECTORY, FaultPoint.CREATE, FaultPoint.RESERVE, FaultPoint.WRITE, FaultPoint.WRITE_HALF),
    *(FaultPoint.APPEND, FaultPoint.APPEND_HALF),
}


def test_a_full_disk_at_every_write_is_an_error_and_loses_nothing() -> None:
    full_at, is_full = 0, True
    while is_full:
        full_at, is_full = full_at + (23 if PROFILE == "quick" else 1), False
        disk, remaining = MemoryDisk(), full_at
        system = Harness(lambda disk=disk: LocalDirectory("/data", disk))  # type: ignore[misc]

        def fault(point: FaultPoint, path: str) -> None:
            nonlocal remaining, is_full
            remaining -= point in FILLING
            if not remaining and point in FILLING:
                is_full = True
                raise OSError(28, "No space left on device")

        with faults.installed(fault):
            try:
                story(system)
            except StorageError as error:
                assert "No space left on device" in str(error)
            else:
                assert not is_full
        disk.crash(random.Random(full_at), "all")
        go_on(system)


def test_what_was_recovered_once_stays() -> None:
    """A killed process leaves records without a sync; once they count, a crash of the machine must not lose them."""
    disk = MemoryDisk()
    system = Harness(lambda: LocalDirectory("/data", disk))
    system.open(2)

    def kill(point: FaultPoint, path: str) -> None:
        if point is FaultPoint.SYNC and len(disk.files()) > 5:
            raise Crash

    system.transact(rows((0, "a", 1), (1, "b", 1)))
    with faults.installed(kill), suppress(Crash):
        system.transact(rows((2, "c", 1), (3, "d", 1)))
    for keep in ("all", "synced"):
        disk.crash(random.Random(1), keep)
        system.open(2)
        assert len(system.model.rows) == 4


@pytest.mark.parametrize("part", range(2))
def test_a_crash_at_every_put_of_an_object_store_loses_nothing(tmp_path: Path, part: int) -> None:
    _, points = run_story(lambda: arrow_directory(tmp_path / "whole"), -1)
    assert {FaultPoint.MAKE_DIRECTORY, FaultPoint.DELETE} | ARROW_POINTS == set(points)
    step = 8 if PROFILE == "quick" else 1
    for crash_at in range(1 + part, len(points) + 1, 2 * step):
        root = tmp_path / str(crash_at)
        system, _ = run_story(partial(arrow_directory, root), crash_at)
        go_on(system)


def arrow_directory(root: Path) -> Directory:
    root.mkdir(exist_ok=True)
    return ArrowDirectory(pyarrow.fs.LocalFileSystem(), str(root))
