"""What a Spark task does for a worker: it starts the worker's process, and sees to it that both end together.

The worker is a child of Spark's Python process, a fresh interpreter. So its memory is given back when it ends, while
Spark keeps its Python processes for other tasks; its exit code tells how it ended; and what happens to the task
happens to it: it holds a pipe from its supervisor, as local workers do from the driver, and on Linux the kernel kills
it with its parent.

These functions travel to executors by value, and use nothing but the standard library and pyspark: the supervisor
itself stays small, and an executor without ikebana can say so.

A task that ends because its worker did raises an error of one line that the driver understands (`REPORT`). One whose
worker only followed another waits a moment, so that Spark hears of the cause first.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

REPORT = "ikebana worker {index} ended with code {code}"
"""What a task says whose worker has ended before it was told to."""

_LOOK = 0.5
_CAUSES_FIRST = 1.5


def task(
    lines: list[str], module: str, lost: int, environment: dict[str, str], path: list[str]
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function of the tasks. `lines` are the seats, `lost` the exit code of a worker that followed another.

    `environment` are variables for workers where the executor has none of that name, and `path` are directories of
    the driver from which modules are imported, if they are there.
    """

    def supervise(_: Iterable[Any]) -> Iterator[Any]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        index = context.partitionId()
        seat = json.loads(lines[index])
        if not seat["host"]:
            seat["host"] = _address(context.getTaskInfos()[index].address)
        process = _start(module, seat, environment, path)
        code = _wait(process)
        if code == lost:
            time.sleep(_CAUSES_FIRST)
        if code:
            raise RuntimeError(REPORT.format(index=index, code=code))
        return iter(())

    return supervise


def _address(task_address: str) -> str:
    """The numeric address of the executor that runs a task; ZeroMQ listens on no names."""
    host = task_address.rpartition(":")[0] if ":" in task_address else task_address
    return socket.gethostbyname(host.strip("[]"))


def _start(module: str, seat: dict[str, Any], environment: dict[str, str], path: list[str]) -> Any:
    known = [os.getcwd() if each == "" else each for each in sys.path]
    added = [each for each in path if each not in known and os.path.exists(each)]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        bufsize=0,
        env={**environment, **os.environ, "PYTHONPATH": os.pathsep.join([*added, *known])},
        process_group=0,  # signals to Spark's Python processes are not for it: it ends with its parent
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended already; its exit code tells
        process.stdin.write(json.dumps(seat).encode() + b"\n")
    return process


def _wait(process: Any) -> int:
    """The exit code of the worker; if Spark's Python daemon ends, both end."""
    parent = os.getppid()
    while True:
        try:
            return int(process.wait(_LOOK))
        except subprocess.TimeoutExpired:
            if os.getppid() != parent:
                process.kill()
                os._exit(1)
        except BaseException:
            process.kill()
            raise
