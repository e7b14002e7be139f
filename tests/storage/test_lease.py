"""Leases: one driver at a time, whatever has happened to the one before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.fs
import pytest

from ikebana.errors import FencedError, StorageInUseError
from ikebana.storage import ArrowDirectory, LocalDirectory, lease
from ikebana.storage.files import write_json
from ikebana.storage.layout import CLAIMS
from ikebana.storage.lease import Claim, Fence, Lease, is_in_use, read_claims
from ikebana.storage.locks import LockFile

HOLDER = """
import sys, time
from ikebana.storage.locks import LockFile
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


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that last for a short time, but longer than a busy machine keeps a thread waiting."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1.5)
    monkeypatch.setattr(lease, "SETTLING_SECONDS", 0.01)


def test_a_heartbeat_refuses_others_until_it_stops(tmp_path: Path, short_leases: None) -> None:
    directory = ArrowDirectory(pyarrow.fs.LocalFileSystem(), str(tmp_path))
    first = Lease(directory, "the shop")
    assert first.start(0.0) == 1
    first.check()
    with pytest.raises(StorageInUseError, match="by the shop"):
        Lease(directory, "")
    assert first._heartbeat is not None
    first._heartbeat.stop()  # as if its machine had stopped
    second = Lease(directory, "")
    assert second.start(0.0) == 2
    with pytest.raises(FencedError, match="has expired"):
        first.check()
    second.release()
    started = time.monotonic()
    third = Lease(directory, "")  # which does not wait, since the lease was released
    assert time.monotonic() - started < lease.LEASE_SECONDS
    third.release()


def test_of_two_drivers_at_the_same_time_the_first_wins(tmp_path: Path, short_leases: None) -> None:
    directory = ArrowDirectory(pyarrow.fs.LocalFileSystem(), str(tmp_path))
    first, second = Lease(directory, "a"), Lease(directory, "b")
    assert first.start(0.0) == 1
    with pytest.raises(StorageInUseError, match="by a, "):
        second.start(0.0)
    first.check()
    assert first.start(0.0) == 2
    first.release()


@pytest.mark.parametrize("is_established", [True, False])
def test_of_two_claims_of_one_incarnation_one_wins(tmp_path: Path, short_leases: None, is_established: bool) -> None:
    directory = ArrowDirectory(pyarrow.fs.LocalFileSystem(), str(tmp_path))
    driver = Lease(directory, "a")
    nonce = "f" * 8 if is_established else "0" * 8
    other = replace(Claim.new(1, "b"), nonce=nonce)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "read_claims", lambda directory: [])  # the other claim is not visible yet
        patch.setattr(driver, "_seen", [])
        patch.setattr(driver, "_settle", lambda claim: None)
        driver.start(0.0)
    assert driver.claim is not None
    write_json(directory, other.path, other.to_json())
    if is_established:
        write_json(directory, other.heartbeat_path, 1)
    with pytest.raises(StorageInUseError, match="by b, "):
        driver._settle(driver.claim)
    assert read_claims(directory) == [other]
