"""Workers as the tasks of one Spark job: a barrier stage with a task for each worker, which stays until told to stop.

The job is submitted by a thread of its own, in a job group of its own, so that it is told apart from the user's; an
interrupt (Ctrl-C) spares it (`ikebana.spark.interrupting`). Spark
starts all tasks at once or none. Each becomes a worker's supervisor (see there); the workers connect to the driver,
which introduces them to each other. Seats, with the keys, travel in the tasks' closure, which goes where Spark's
own data goes.

Ends. Driver and workers watch their connections, so that each notices the end of any other at once. When a worker,
its task or its executor ends, Spark fails the job; the thread that submitted it then knows why, and a lifeline tells
the driver. A job that ends for any reason (the user cancels all jobs, or stops the SparkContext) ends the cluster
likewise. `close` waits for the tasks to end by themselves, and else cancels the job group.

Not guaranteed: recovery. Spark does not start a failed barrier stage of this kind again, and the workers' data is gone.
Nor that Spark knows of the workers' memory: they are not its own Python processes but children of these.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import uuid
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pyspark import cloudpickle

from ikebana.cluster.hosts import WorkerExit, how_ended
from ikebana.cluster.launch import CRASHED, LOST, MODULE, WorkerConfig
from ikebana.kernels.compile import cache_directory
from ikebana.spark import supervisor
from ikebana.spark.errors import BARRIER_TASK, spark_error_summary
from ikebana.spark.interrupting import TAG, guard, unguard

cloudpickle.register_pickle_by_value(supervisor)  # type: ignore[no-untyped-call]

_GRACE = 3.0
"""How long tasks may take to end by themselves (seconds), and then after they were cancelled."""

_REASON = 4.0
"""How long to wait for Spark to say why a worker has ended."""

_REPORT = re.compile(supervisor.REPORT.format(index=r"(\d+)", code=r"(-?\d+)"))

occupied: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""How many slots of each SparkContext workers hold."""

counting = threading.Lock()
"""Held by whoever changes that, or looks and means to."""


class SparkTasks:
    """Hosts workers (`ikebana.cluster.hosts.WorkerHost`) as Spark tasks."""

    watches_connections = True

    def __init__(self, context: Any, workers: int, name: str, at_end: Callable[[], None] | None = None) -> None:
        """Take slots for so many workers; `counting` is held. `at_end` is called when all tasks have ended."""
        self._context, self._workers, self._name, self._at_end = context, workers, name, at_end
        occupied[context] = occupied.get(context, 0) + workers
        guard(context)
        self._group = f"{TAG}{uuid.uuid4().hex[:12]}"
        self._closing = False
        self._thread: threading.Thread | None = None
        self._failure = ""
        self._is_over = threading.Event()
        self._lifeline, self._other_end = socket.socketpair()
        self.lifelines = [self._lifeline.fileno()]

    def start(self, seats: Sequence[WorkerConfig]) -> None:
        """Submit the job."""
        lines = [seat.to_line().decode() for seat in seats]
        task = supervisor.task(lines, MODULE, LOST, {"IKEBANA_KERNEL_CACHE": str(cache_directory().parent)}, _path())
        self._thread = threading.Thread(target=self._run, args=(task,), name="ikebana workers", daemon=True)
        self._thread.start()

    def _run(self, task: Callable[..., Any]) -> None:
        """Submit the job and wait for its end."""
        try:
            self._context.setJobGroup(self._group, self._name, interruptOnCancel=False)
            self._context.addJobTag(self._group)
            workers = range(self._workers)
            job = self._context.parallelize(workers, len(workers)).barrier().mapPartitions(task)
            if not self._closing:
                job.collect()
            self._failure = "Spark has ended its task"
        except Exception as error:
            self._failure = str(error)
        finally:
            self._is_over.set()
            with suppress(OSError):  # closed by now
                self._other_end.send(b"\0")

    def any_ended(self) -> bool:
        """Whether the job has ended."""
        return self._is_over.is_set()

    look = any_ended

    def first_ended(self, lost: Sequence[int]) -> WorkerExit | None:
        """The worker that Spark blames, or the first to which the connection was lost."""
        self._is_over.wait(_REASON)
        report = _REPORT.search(self._failure)
        if report:
            return _reported(int(report[1]), int(report[2]), lost)
        blamed = BARRIER_TASK.search(self._failure)
        first = int(blamed[1]) if blamed else lost[0] if lost else None
        return WorkerExit(
            first, f"Spark says: {spark_error_summary(self._failure)}" if self._failure else "its connection is lost"
        )

    def close(self) -> None:
        """Wait for the tasks to end, and else cancel them."""
        self._closing = True
        if self._thread is not None and not self._is_over.wait(_GRACE):
            with suppress(Exception):  # Spark may have ended
                self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._group)  # it may be about to start
            self._is_over.wait(_GRACE)
        with counting:
            if self._workers:
                unguard(self._context)
            occupied[self._context] -= self._workers
            self._workers = 0
        self.lifelines = []
        self._lifeline.close()
        self._other_end.close()
        at_end, self._at_end = self._at_end, None
        if at_end is not None:
            at_end()


def _reported(worker: int, code: int, lost: Sequence[int]) -> WorkerExit:
    """What the end of a worker with an exit code means."""
    if code != LOST:
        return WorkerExit(worker, _how(code), crashed=code == CRASHED)
    others = [each for each in lost if each != worker]  # it only followed one that does not answer
    return WorkerExit(
        others[0] if others else None, f"worker {worker} has lost its connection to one that does not answer"
    )


def _how(code: int) -> str:
    """A worker's end in words; one that did not get far has only told the executor's log."""
    hint = "; the executor's error log says why, perhaps ikebana is not installed there" if code == 1 else ""
    return how_ended(code) + hint


def _path() -> list[str]:
    """Where this process imports modules from, besides its installation."""
    installed = (sys.prefix, sys.base_prefix)
    path = [os.getcwd() if each == "" else each for each in sys.path]
    return [each for each in path if not each.startswith(installed)]
