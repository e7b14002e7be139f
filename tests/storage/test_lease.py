"""Leases: one driver at a time, whatever has happened to the one before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.fs
import pytest

from ikebana.errors import FencedError, StorageInUseError
from ikebana.storage import ArrowDirectory, Directory, LocalDirectory, Store, lease, open_directory
from ikebana.storage.files import write_json
from ikebana.storage.layout import CLAIMS
from ikebana.storage.lease import Claim, Fence, Lease, is_in_use, read_claims
from ikebana.storage.locks import LockFile
from tests.storage.short_leases import short_leases

HOLDER = """
import sys, time
from ikebana.storage.locks import LockFile
from tests.storage.short_leases import short_leases
file = LockFile(sys.argv[1])
assert file.lock_driver() if sys.argv[2] == "driver" else file.lock_worker()
print("locked", flush=True)
time.sleep(60)
"""


def start_holder(path: Path, role: str) -> subprocess.Popen[str]:
    """A process that holds a lock until it is killed."""
    code = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n" + LOCKS_ONLY + HOLDER]
    process = subprocess.Popen([*code, str(path), role], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    return process


# The package without its other modules, which take long to import.
LOCKS_ONLY = """
import types
for name in ("ikebana", "ikebana.storage"):
    package = types.ModuleType(name)
    package.__path__ = [entry + "/" + name.replace(".", "/") for entry in sys.path]
    sys.modules[name] = package
"""


def test_a_second_driver_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path)
    first = Lease(directory, "the shop")
    first.start(0.0)
    assert is_in_use(directory)
    with pytest.raises(StorageInUseError, match=rf"by the shop, process {os.getpid()} of user \w+ on .*, since 20"):
        Lease(directory, "another")
    first.release()
    assert not is_in_use(directory)
    second = Lease(directory, "another")
    assert second.start(0.0) == 2
    with pytest.raises(FencedError):
        first.check()
    second.check()
    second.release()


def test_the_lock_of_another_process_ends_when_it_is_killed(tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path)
    holder = start_holder(tmp_path / "lock", "driver")
    with pytest.raises(StorageInUseError, match="just starting"):
        Lease(directory, "")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    Lease(directory, "").release()


def test_a_driver_waits_for_workers_of_earlier_sessions(tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path)
    holder = start_holder(tmp_path / "lock", "worker")
    first = Lease(directory, "")
    with pytest.raises(StorageInUseError, match=f"workers of an earlier session(.|\\n)*process {holder.pid} has"):
        first.start(0.1)
    holder.send_signal(signal.SIGKILL)
    first.start(5.0)
    first.release()
    holder.wait()


def test_a_fence_notices_a_later_incarnation(tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path)
    driver = Lease(directory, "")
    fence = Fence(directory, driver.start(0.0))
    old = time.time() - 10
    os.utime(tmp_path / CLAIMS, (old, old))
    for _ in range(3):
        fence.check()
    driver.start(0.0)
    with pytest.raises(FencedError, match="incarnation 1, and 2 has started"):
        fence.check()
    driver.release()


def test_locks_of_one_process_are_counted(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    driver, workers = LockFile(path), [LockFile(path), LockFile(path)]
    assert driver.lock_driver() and all(worker.lock_worker() for worker in workers)
    assert not LockFile(path).lock_driver()
    workers[0].close()
    workers[1].close()
    workers[1].close()
    driver.close()
    assert LockFile(path).lock_driver()


@pytest.fixture(params=["disk", "s3"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Directory]:
    """A directory without locks."""
    with short_leases():
        if request.param == "s3":
            yield open_directory(request.getfixturevalue("s3").new_uri())
        else:
            yield ArrowDirectory(pyarrow.fs.LocalFileSystem(), str(tmp_path))


def test_a_heartbeat_refuses_others_until_it_stops(elsewhere: Directory) -> None:
    assert is_in_use(elsewhere) is False
    first = Lease(elsewhere, "the shop")
    assert first.start(0.0) == 1
    first.check()
    assert is_in_use(elsewhere) is None
    with pytest.raises(StorageInUseError, match="by the shop"):
        Lease(elsewhere, "")
    assert first._heartbeat is not None
    first._heartbeat.stop()  # as if its machine had stopped
    second = Lease(elsewhere, "")
    assert second.start(0.0) == 2
    with pytest.raises(FencedError, match="has expired"):
        first.check()
    second.release()
    assert is_in_use(elsewhere) is False
    started = time.monotonic()
    third = Lease(elsewhere, "")  # which does not wait, since the lease was released
    assert time.monotonic() - started < lease.LEASE_SECONDS
    third.release()


def test_of_two_drivers_at_the_same_time_the_first_wins(elsewhere: Directory) -> None:
    first, second = Lease(elsewhere, "a"), Lease(elsewhere, "b")
    assert first.start(0.0) == 1
    with pytest.raises(StorageInUseError, match="by a, "):
        second.start(0.0)
    first.check()
    assert first.start(0.0) == 2
    first.release()


@pytest.mark.parametrize("is_established", [True, False])
def test_of_two_claims_of_one_incarnation_one_wins(elsewhere: Directory, is_established: bool) -> None:
    driver = Lease(elsewhere, "a")
    nonce = "f" * 8 if is_established else "0" * 8
    other = replace(Claim.new(1, "b"), nonce=nonce)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "read_claims", lambda directory: [])  # the other claim is not visible yet
        patch.setattr(driver, "_seen", [])
        patch.setattr(driver, "_settle", lambda claim: None)
        driver.start(0.0)
    assert driver.claim is not None
    write_json(elsewhere, other.path, other.to_json())
    if is_established:
        write_json(elsewhere, other.heartbeat_path, 1)
    with pytest.raises(StorageInUseError, match="by b, "):
        driver._settle(driver.claim)
    assert read_claims(elsewhere) == [other]


def test_regression_of_two_claims_one_wins_even_if_the_first_heartbeat_is_slow(elsewhere: Directory) -> None:
    """A driver that had looked for other claims, but was not yet seen alive, went on beside one that came then."""
    slow, other = Lease(elsewhere, "slow"), replace(Claim.new(1, "quick"), nonce="0" * 8)

    class SlowHeartbeat(lease._Heartbeat):
        def _renew(self) -> None:
            write_json(elsewhere, other.path, other.to_json())
            super()._renew()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "_Heartbeat", SlowHeartbeat)
        with pytest.raises(StorageInUseError, match="by quick, "):
            slow.start(0.0)
    assert read_claims(elsewhere) == [other]


def stopped_for_long(driver: Lease) -> lease._Heartbeat:
    """The heartbeat of a driver whose machine has stopped for longer than others wait."""
    heartbeat = driver._heartbeat
    assert heartbeat is not None
    heartbeat.stop()
    heartbeat._renewed -= 2 * lease.LEASE_SECONDS
    return heartbeat


def slow_and_next(elsewhere: Directory, monkeypatch: pytest.MonkeyPatch) -> tuple[Lease, lease._Heartbeat, Lease]:
    """A driver that was stopped, its heartbeat, and another driver that has waited for as long as a lease lasts."""
    slow = Lease(elsewhere, "slow")
    slow.start(0.0)
    heartbeat = stopped_for_long(slow)
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.1)
    return slow, heartbeat, Lease(elsewhere, "")


def test_a_driver_that_was_slow_goes_on_if_nobody_has_claimed(elsewhere: Directory) -> None:
    driver = Lease(elsewhere, "slow")
    driver.start(0.0)
    heartbeat = stopped_for_long(driver)
    with pytest.raises(FencedError, match="has expired"):
        driver.check()
    heartbeat._renew()
    driver.check()


def test_regression_a_driver_that_was_slow_acknowledges_nothing_after_another_has_claimed(
    elsewhere: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first heartbeat after the other's claim made it believe that the lease was still its own."""
    first, heartbeat, second = slow_and_next(elsewhere, monkeypatch)
    assert second.start(0.0) == 2
    heartbeat._renew()
    with pytest.raises(FencedError, match="has expired"):
        first.check()
    second.release()


def test_regression_a_driver_gives_way_to_one_that_was_only_slow(
    elsewhere: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow one looks for claims after its heartbeat, so whoever claims after that has to look for the heartbeat."""
    first, heartbeat, second = slow_and_next(elsewhere, monkeypatch)
    heartbeat._renew()
    with pytest.raises(StorageInUseError, match="by slow, "):
        second.start(0.0)
    heartbeat._renew()  # the test may have taken long
    first.check()


def suspend(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the machine have been suspended: of its clocks, only the one that counts such times has gone on."""
    clock = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda which: clock(which) + (seconds if which == lease._CLOCK else 0.0))


@pytest.fixture
def taken_over(elsewhere: Directory, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Lease, Fence]]:
    """A driver that believes to have renewed its heartbeat just now, and a worker that believes to have looked for
    claims just now, after another driver has claimed."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1000.0)
    monkeypatch.setattr(lease, "_FENCE_SECONDS", 1000.0)
    first = Lease(elsewhere, "")
    fence = Fence(elsewhere, first.start(0.0))
    fence.check()
    assert first._heartbeat is not None
    first._heartbeat.stop()
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.1)
    second = Lease(elsewhere, "")
    second.start(0.0)
    first.check()
    fence.check()
    yield first, fence
    second.release()


def test_regression_a_machine_that_was_suspended_acknowledges_nothing(
    taken_over: tuple[Lease, Fence], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock that was used stops meanwhile, so the lease seemed to be valid after hours."""
    first, fence = taken_over
    suspend(monkeypatch, 1001.0)
    with pytest.raises(FencedError, match="has expired"):
        first.check()
    with pytest.raises(FencedError, match="was taken over"):
        fence.check()


def test_regression_every_heartbeat_looks_for_later_claims(taken_over: tuple[Lease, Fence]) -> None:
    """Only late ones did. A virtual machine that is paused may have no clock that says so."""
    first, _ = taken_over
    assert first._heartbeat is not None
    first._heartbeat._renew()
    with pytest.raises(FencedError, match="has expired"):
        first.check()


def test_regression_what_is_written_after_a_lease_has_expired_is_not_acknowledged(elsewhere: Directory) -> None:
    """Only transactions of workers were, and changes of the catalogue and aborts were not."""
    with Store(elsewhere, shards=1) as store:
        assert store._lease._heartbeat is not None
        store.catalog.put("thing", "a", 1)
        stopped_for_long(store._lease)
        for change in (lambda: store.catalog.put("thing", "b", 2), lambda: store.abort(1, 5)):
            with pytest.raises(FencedError, match="has expired"):
                change()
