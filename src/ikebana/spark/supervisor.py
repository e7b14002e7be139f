"""The Spark task of a worker: it starts the worker's process and ensures that task and worker end together.

The worker is a child of Spark's Python process, in a fresh interpreter. Its memory is therefore returned to the system
when it ends, although Spark keeps its Python processes for other tasks, and its exit code shows how it ended. It cannot
outlive the task: it reads from a pipe that its supervisor holds, as local workers do with the driver, and on Linux the
kernel kills it with its parent.

These functions are sent to executors by value and use only the standard library and pyspark: a supervisor stays small,
and an executor on which ikebana is not installed can report that.

If a worker ends before it was told to stop, its task fails with a `RuntimeError` whose message is an exit report: a
marker and a JSON object with the worker's index and exit code, on one line. Spark passes the message on to the driver
inside the text of the job's error, the only channel from a failed task to the driver that needs no connection of its
own. `format_exit_report` writes the report and `parse_exit_report` finds it in the text. If a worker ended because it
lost its connection to another one, its task waits for a moment, so that Spark learns of the cause first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

_EXIT_MARKER = "ikebana-worker-exit "

_PARENT_CHECK_SECONDS = 0.5
_CAUSE_FIRST_SECONDS = 1.5


class ExitReport(NamedTuple):
    """The index of a worker that has ended, and its exit code: negative if a signal killed it."""

    worker: int
    exit_code: int


def format_exit_report(worker: int, exit_code: int) -> str:
    """The message of a task whose worker has ended.

    >>> format_exit_report(1, -9)
    'ikebana-worker-exit {"worker": 1, "exit_code": -9}'
    """
    return _EXIT_MARKER + json.dumps({"worker": worker, "exit_code": exit_code})


def parse_exit_report(text: str) -> ExitReport | None:
    """The first exit report in the text of a Spark error; None if there is none.

    >>> parse_exit_report(f"Job aborted.\\nRuntimeError: {format_exit_report(1, -9)}\\n  at java.lang.Thread")
    ExitReport(worker=1, exit_code=-9)
    """
    _, marker, rest = text.partition(_EXIT_MARKER)
    if not marker:
        return None
    try:
        report, _ = json.JSONDecoder().raw_decode(rest)
        return ExitReport(int(report["worker"]), int(report["exit_code"]))
    except (ValueError, KeyError, TypeError):
        return None


def task(
    module: str, lost: int, environment: dict[str, str], path: list[str]
) -> Callable[[Iterable[str]], Iterator[Any]]:
    """The function that the tasks run. The only element of a partition is the worker's configuration, as JSON.

    `module` is run as the worker, and `lost` is the exit code of a worker that lost its connection to another one.
    `environment` has variables for workers on executors that do not set them. `path` has the directories from which the
    driver imports modules; those that exist are added.
    """

    def supervise(partition: Iterable[str]) -> Iterator[Any]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        worker = context.partitionId()
        (line,) = partition
        config = json.loads(line)
        if not config["host"]:
            config["host"] = host_of_task(context.getTaskInfos()[worker].address)
        exit_code = _wait(_start(module, config, environment, path))
        if exit_code == lost:
            time.sleep(_CAUSE_FIRST_SECONDS)
        if exit_code:
            raise RuntimeError(format_exit_report(worker, exit_code))
        return iter(())

    return supervise


def host_of_task(address: str) -> str:
    """The host of the executor that runs a task.

    >>> host_of_task("10.0.0.3:41000"), host_of_task("node3"), host_of_task("[fd00::3]:41000")
    ('10.0.0.3', 'node3', 'fd00::3')
    """
    is_bare = ":" not in address or address.endswith("]")
    return (address if is_bare else address.rpartition(":")[0]).strip("[]")


def _start(module: str, config: dict[str, Any], environment: dict[str, str], path: list[str]) -> Any:
    known = [os.getcwd() if directory == "" else directory for directory in sys.path]
    added = [directory for directory in path if directory not in known and os.path.exists(directory)]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        bufsize=0,
        env={**environment, **os.environ, "PYTHONPATH": os.pathsep.join([*added, *known])},
        process_group=0,  # signals to Spark's Python processes do not reach it: it ends with its parent
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended already, and its exit code is reported
        process.stdin.write(json.dumps(config).encode() + b"\n")
    return process


def _wait(process: Any) -> int:
    """The exit code of the worker; if Spark's Python daemon ends, worker and supervisor end too."""
    parent = os.getppid()
    while True:
        try:
            return int(process.wait(_PARENT_CHECK_SECONDS))
        except subprocess.TimeoutExpired:
            if os.getppid() != parent:
                process.kill()
                os._exit(1)
        except BaseException:
            process.kill()
            raise
