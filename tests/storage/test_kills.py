"""Processes that are killed (SIGKILL) inside a write, a sync, a rename ...: what they have acknowledged is there."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import pytest

from ikebana.errors import StorageError
from ikebana.storage import LocalDirectory, Store, faults, log
from ikebana.storage.faults import FaultPoint
from ikebana.storage.inspection import check
from tests.storage.harness import Harness, recovered_rows, stored_batch

LOCAL_POINTS = [point for point in FaultPoint if point not in (FaultPoint.PUT, FaultPoint.PUT_HALF)]


COUNTS = {FaultPoint.RESERVE: 8, FaultPoint.TRUNCATE: 8}
"""At which time that a process reaches a point it is killed, if not at the twentieth."""


def run_until_killed(path: Path, setting: str, acknowledged: int) -> NoReturn:
    """Insert row after row, and write a byte for each that is acknowledged; with everything else in between."""
    log.SEGMENT_BYTES, log._TRIMMED_BYTES = 3_000, 1_000
    system = Harness(lambda: LocalDirectory(path))
    faults._installed = faults.kill_at(setting)
    try:
        system.open(2)
        for number in range(200):
            system.transact(Counter({(2 * number, "a"): 1, (2 * number + 1, "b"): 1}))
            os.write(acknowledged, b".")
            if number % 3 == 1:
                system.snapshot(number % 2)
                system.collect(number % 2)
                system.trim()
            if number % 7 == 1:
                system.restart(2)
                system.collect_old()
    finally:
        os._exit(1)


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A directory in memory, where syncs take no time; killing a process does not need a disk."""
    stored_batch(Counter({(1, "a"): 1}), 0)  # loads the kernels, once for all children
    with TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as path:
        yield Path(path)


@pytest.mark.parametrize("point", LOCAL_POINTS, ids=lambda point: point.value)
def test_a_killed_process_loses_nothing_that_it_acknowledged(memory: Path, point: FaultPoint) -> None:
    path, count = memory / point.value, COUNTS.get(point, 20)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        run_until_killed(path, f"{point.value}:{count}", writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        acknowledged = len(pipe.read())
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    with Store.open(path, shards=2) as store:
        rows = recovered_rows(store.recovery)
    assert set(rows.values()) <= {1}
    assert {k for k, _ in rows} == set(range(len(rows)))
    assert len(rows) in (2 * acknowledged, 2 * acknowledged + 2)
    assert check(path) == []


def test_a_fault_point_that_does_not_exist_is_refused() -> None:
    with pytest.raises(StorageError, match="the points are make-directory, create"):
        faults.kill_at("explode:1")
