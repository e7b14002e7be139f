"""Locks on a file of a local disk, which the system releases when a process ends, however it ends.

Byte 0 of the file is locked by the driver, exclusively, and byte 1 by every worker, shared. Whoever can lock byte 1
exclusively knows that no worker is left.

These are POSIX locks: a child process does not inherit them, so the lock of a driver ends with the driver even if
processes that it has forked live on. Two openings of one file by the same process do not conflict, and closing one of
them releases the locks of both; so a process opens each file once and counts its users here.

Not guaranteed: exclusion between machines, if the disk is shared by a filesystem without locks.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from dataclasses import dataclass, field

_DRIVER_BYTE, _WORKER_BYTE = 0, 1
_POLL_SECONDS = 0.05
_FLOCK = struct.Struct("hhqqi0q")
"""The structure of a lock on Linux: type, whence, start, length, process."""


@dataclass(slots=True)
class _OpenFile:
    descriptor: int
    process: int
    users: int = 0
    has_driver: bool = False
    workers: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


_open_files: dict[str, _OpenFile] = {}
_open_files_lock = threading.Lock()


class LockFile:
    """The lock file of a storage directory."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        with _open_files_lock:
            file = _open_files.get(self._path)
            if file is None or file.process != os.getpid():
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                file = _open_files[self._path] = _OpenFile(descriptor, os.getpid())
            file.users += 1
            self._file = file
        self._is_driver = self._is_worker = self._is_closed = False

    def lock_driver(self) -> bool:
        """Lock the file as the driver; return false if another session, in this process or not, has locked it."""
        file = self._file
        with file.lock:
            if file.has_driver or not _lock(file.descriptor, fcntl.LOCK_EX, _DRIVER_BYTE):
                return False
            file.has_driver = self._is_driver = True
            return True

    def lock_worker(self) -> bool:
        """Lock the file as a worker; return false if someone waits for workers to end."""
        file = self._file
        with file.lock:
            if not file.workers and not _lock(file.descriptor, fcntl.LOCK_SH, _WORKER_BYTE):
                return False
            file.workers += 1
            self._is_worker = True
            return True

    def wait_for_workers(self, seconds: float) -> bool:
        """Return whether all workers of other processes have ended, at the latest after some seconds."""
        file, deadline = self._file, time.monotonic() + seconds
        while True:
            with file.lock:
                if _lock(file.descriptor, fcntl.LOCK_EX, _WORKER_BYTE):
                    how = fcntl.LOCK_SH if file.workers else fcntl.LOCK_UN
                    _lock(file.descriptor, how, _WORKER_BYTE)
                    return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)

    def driver(self) -> int | None:
        """The process that has locked the file as the driver; None if there is none."""
        return os.getpid() if self._file.has_driver else _holder(self._file.descriptor, _DRIVER_BYTE)

    def worker(self) -> int | None:
        """Another process that has locked the file as a worker; None if there is none."""
        return _holder(self._file.descriptor, _WORKER_BYTE)

    def close(self) -> None:
        """Release the locks that were taken through this object."""
        if self._is_closed:
            return
        self._is_closed = True
        file = self._file
        with _open_files_lock, file.lock:
            if self._is_driver:
                file.has_driver = False
                _lock(file.descriptor, fcntl.LOCK_UN, _DRIVER_BYTE)
            if self._is_worker:
                file.workers -= 1
                if not file.workers:
                    _lock(file.descriptor, fcntl.LOCK_UN, _WORKER_BYTE)
            file.users -= 1
            if not file.users and file.process == os.getpid():
                del _open_files[self._path]
                os.close(file.descriptor)


def _holder(descriptor: int, byte: int) -> int | None:
    """Another process that has a lock on a byte; None if there is none."""
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted))
    return None if kind == fcntl.F_UNLCK else process


def _lock(descriptor: int, how: int, byte: int) -> bool:
    try:
        fcntl.lockf(descriptor, how if how == fcntl.LOCK_UN else how | fcntl.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):
        return False
    return True
