"""Workers as the tasks of one Spark job: a barrier stage with a task for each worker, which runs until it is stopped.

The job is submitted by its own thread, in its own job group, which distinguishes it from the user's jobs; an interrupt
(Ctrl-C) does not cancel it (`ikebana.spark.interrupting`). Spark starts all tasks at once or none. Each task becomes
the supervisor of a worker (`ikebana.spark.supervisor`); the workers connect to the driver, which introduces them to
each other. Each task gets the configuration of its worker over the channels that Spark uses for its own data. These may
not be encrypted, so a configuration has no key: workers create their own (`ikebana.cluster.enrolment`).

Ends. Driver and workers watch their connections, so each notices the end of any other at once. When a worker, its task
or its executor ends, Spark fails the job; the thread that submitted the job then knows why, and a lifeline wakes the
driver. A job that ends for any other reason (the user cancels all jobs or stops the SparkContext) ends the cluster too.
`close` waits for the tasks to end by themselves, and cancels the job group if they do not.

Not guaranteed: recovery. Spark does not restart a failed barrier stage of this kind; a session with storage submits
another job (`ikebana.engine.healing`). Nor does Spark know how much memory workers use: they are not its own Python
processes but children of these.
"""

from __future__ import annotations

import os
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
from ikebana.cluster.launch import EXIT_CODE_CRASHED, EXIT_CODE_LOST, WORKER_MODULE, WorkerConfig
from ikebana.kernels.cache import cache_directory
from ikebana.spark import supervisor
from ikebana.spark.errors import BARRIER_TASK, spark_error_summary
from ikebana.spark.interrupting import TAG, guard, unguard

cloudpickle.register_pickle_by_value(supervisor)  # type: ignore[no-untyped-call]

_STOP_SECONDS = 3.0
"""How long tasks may take to end by themselves, and then again after they were cancelled."""

_CAUSE_SECONDS = 4.0
"""How long to wait for Spark to report why a worker has ended."""

occupied_slots: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""How many task slots of each SparkContext are held by workers."""

slots_lock = threading.Lock()
"""Guards `occupied_slots`: held while slots are counted and taken."""


class BarrierJob:
    """Hosts workers as the tasks of a Spark job; implements `ikebana.cluster.hosts.WorkerHost`."""

    watches_connections = True
    keeps_secrets = False

    def __init__(self, context: Any, workers: int, name: str) -> None:
        """Take slots for the workers; the caller holds `slots_lock`."""
        self._context, self._workers, self._name = context, workers, name
        occupied_slots[context] = occupied_slots.get(context, 0) + workers
        guard(context)
        self._group = f"{TAG}{uuid.uuid4().hex[:12]}"
        self._closing = False
        self._thread: threading.Thread | None = None
        self._failure = ""
        self._has_ended = threading.Event()
        self._lifeline, self._other_end = socket.socketpair()
        self.exit_fds = [self._lifeline.fileno()]

    def start(self, configs: Sequence[WorkerConfig]) -> None:
        """Submit the job."""
        lines = [config.to_line().decode() for config in configs]
        environment = {"IKEBANA_KERNEL_CACHE": str(cache_directory().parent)}
        task = supervisor.task(WORKER_MODULE, EXIT_CODE_LOST, environment, _path())
        self._thread = threading.Thread(target=self._run, args=(task, lines), name="ikebana workers", daemon=True)
        self._thread.start()

    def _run(self, task: Callable[..., Any], configs: Sequence[str]) -> None:
        """Submit the job and wait for its end."""
        try:
            self._context.setJobGroup(self._group, self._name, interruptOnCancel=False)
            self._context.addJobTag(self._group)
            job = self._context.parallelize(configs, len(configs)).barrier().mapPartitions(task)
            if not self._closing:
                job.collect()
            self._failure = "Spark has ended its task"
        except Exception as error:
            self._failure = str(error)
        finally:
            self._has_ended.set()
            with suppress(OSError):  # already closed
                self._other_end.send(b"\0")

    def any_ended(self) -> bool:
        """Whether the job has ended."""
        return self._has_ended.is_set()

    check_processes = any_ended

    def first_ended(self, lost: Sequence[int]) -> WorkerExit | None:
        """The worker that Spark blames, or the first one whose connection was lost."""
        self._has_ended.wait(_CAUSE_SECONDS)
        report = supervisor.parse_exit_report(self._failure)
        if report is not None:
            return _reported(report, lost)
        blamed = BARRIER_TASK.search(self._failure)
        worker = int(blamed[1]) if blamed else lost[0] if lost else None
        summary = spark_error_summary(self._failure)
        return WorkerExit(worker, f"Spark says: {summary}" if summary else "its connection is lost")

    def close(self) -> None:
        """Wait for the tasks to end, and cancel them if they do not."""
        self._closing = True
        if self._thread is not None and not self._has_ended.wait(_STOP_SECONDS):
            with suppress(Exception):  # Spark may have ended
                self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._group)  # the job may be about to start
            self._has_ended.wait(_STOP_SECONDS)
        with slots_lock:
            if self._workers:
                unguard(self._context)
            occupied_slots[self._context] -= self._workers
            self._workers = 0
        self.exit_fds = []
        self._lifeline.close()
        self._other_end.close()


def _reported(report: supervisor.ExitReport, lost: Sequence[int]) -> WorkerExit:
    """The cause of a worker's exit: the worker itself, or the one to which it lost its connection."""
    worker, code = report
    if code != EXIT_CODE_LOST:
        return WorkerExit(worker, _how_ended(code), crashed=code == EXIT_CODE_CRASHED)
    others = [other for other in lost if other != worker]
    return WorkerExit(
        others[0] if others else None, f"worker {worker} has lost its connection to one that does not answer"
    )


def _how_ended(code: int) -> str:
    """A worker's end in words. A worker that fails to start writes the reason to the executor's log only."""
    hint = "; the executor's error log says why, perhaps ikebana is not installed there" if code == 1 else ""
    return how_ended(code) + hint


def _path() -> list[str]:
    """The directories from which this process imports modules, except those of the Python installation."""
    installed = (sys.prefix, sys.base_prefix)
    path = [os.getcwd() if directory == "" else directory for directory in sys.path]
    return [directory for directory in path if not directory.startswith(installed)]
