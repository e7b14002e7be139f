"""Fault points: the places at which a crash or a full disk is simulated.

Everything that changes a storage directory is done by `ikebana.storage.directory`, one primitive operation at a time.
Before each operation, and in the middle of each write, the directory calls `reach` with the point and the path. A test
installs a function that is called there, and raises, ends the process, or fills the disk. A crash after an operation is
a crash before the next one, so these points are all there are.

The variable IKEBANA_FAULT lets a process end itself without any change to its code: with `append:3` it is killed when
it reaches the point APPEND for the third time, with `rename:2:manifest` when it is about to rename a file whose path
contains "manifest" for the second time.

Cost: a comparison if nothing is installed; writes are then not divided.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TypeAlias

from ikebana.errors import StorageError

VARIABLE = "IKEBANA_FAULT"


class FaultPoint(Enum):
    """A point at which an operation can be prevented."""

    MAKE_DIRECTORY = "make-directory"
    CREATE = "create"
    RESERVE = "reserve"
    WRITE = "write"
    WRITE_HALF = "write-half"
    APPEND = "append"
    APPEND_HALF = "append-half"
    SYNC = "sync"
    TRUNCATE = "truncate"
    RENAME = "rename"
    SYNC_DIRECTORY = "sync-directory"
    DELETE = "delete"
    PUT = "put"
    PUT_HALF = "put-half"


Fault: TypeAlias = Callable[[FaultPoint, str], None]

_installed: Fault | None = None


def reach(point: FaultPoint, path: str) -> None:
    """Call the installed function, if there is one."""
    if _installed is not None:
        _installed(point, path)


def is_installed() -> bool:
    """Whether a function is installed, so that writes are to be divided."""
    return _installed is not None


@contextmanager
def installed(fault: Fault) -> Iterator[None]:
    """Call `fault` at every fault point while the context is open."""
    global _installed
    before, _installed = _installed, fault
    try:
        yield
    finally:
        _installed = before


def kill_at(setting: str) -> Fault:
    """Return a function that kills this process at a point, as written in IKEBANA_FAULT."""
    name, _, rest = setting.partition(":")
    count, _, part = rest.partition(":")
    try:
        point, remaining = FaultPoint(name), int(count or 1)
    except ValueError:
        raise StorageError(
            f"the variable {VARIABLE} has the value {setting!r}, which is not a fault point",
            detail="a value is POINT:COUNT or POINT:COUNT:PATH",
            hint=f"the points are {', '.join(point.value for point in FaultPoint)}",
        ) from None

    def fault(reached: FaultPoint, path: str) -> None:
        nonlocal remaining
        if reached is point and part in path:
            remaining -= 1
            if not remaining:
                os.kill(os.getpid(), signal.SIGKILL)

    return fault


if VARIABLE in os.environ:
    _installed = kill_at(os.environ[VARIABLE])
