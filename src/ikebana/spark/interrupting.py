"""Interrupts (Ctrl-C, a notebook's stop button) on Spark: they end what the interrupted call has started, nothing else.

PySpark answers an interrupt by cancelling all jobs of its SparkContext: the workers' too, with all tables and views.
While workers live on a SparkContext its handler of interrupts is given another way to cancel (`guard`). That spares the
workers, jobs that another call of ours has started, and streams. Everything else is cancelled as PySpark would: it
cannot be told which thread has started a job. `SparkContext.cancelAllJobs`, called by anybody else, still means all.

It is done there, rather than with a handler of ours, so that it holds for whatever handlers the application has, in
whichever thread a session was made, and has nothing to put back that others may have replaced. Where a handler does not
ask Spark to cancel anything (a notebook's, outside of the cell that has started Spark), jobs of the user's own go on.

Connections. A call to Java that is interrupted leaves a connection which cannot be used again. Py4J then closes not
only that one, but those of all threads, the one included that waits for the workers' job; and repeats what these had
asked, jobs among them. While workers live, only that of the interrupted thread is closed (`_close_alone`).

Jobs of ours, such as loading, run in a thread of their own (`run_job`), under a tag. The caller waits for the thread;
when that is interrupted, or takes too long, the job is cancelled by its tag, and the caller returns when it has ended.
So no interrupt comes in the middle of a conversation with Java, after which PySpark would close the connection.

Cost: a thread for each SparkContext, and one for each job.
Not guaranteed: that tasks of a cancelled job have ended when the caller returns; Spark gives them two seconds.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from py4j.clientserver import ClientServerConnection  # type: ignore[import-untyped]
from pyspark import InheritableThread, SparkContext
from pyspark.sql import SparkSession

from ikebana.cluster.interrupts import deferred
from ikebana.engine.deadline import Deadline
from ikebana.errors import DataflowError

Result = TypeVar("Result")

TAG = "ikebana-"
"""The tags of our jobs start so."""

_TAGS, _STREAM = "spark.job.tags", "sql.streaming.queryId"
_HANDLER = "signal_handler"
_HANDLER_FILE = SparkContext.__init__.__code__.co_filename
"""PySpark's handler of interrupts: a function of this name in this file."""

_GRACE = 10.0
"""How long (seconds) Spark may take to cancel jobs before the interrupt is raised all the same."""

_AGAIN = 0.2
"""A job that is not there yet cannot be cancelled: try again so often (seconds)."""

_LOOK = 1.0
"""See so often (seconds) whether the thread of a job still lives."""

_ATTEMPTS = 3
"""Jobs come and go while they are looked at."""


# Sparing jobs.

_guards: weakref.WeakKeyDictionary[Any, _Guard] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def guard(context: Any) -> None:
    """Spare the jobs that are tagged as ours when PySpark is interrupted, until `unguard` is called as often."""
    with _lock:
        if not _guards:
            ClientServerConnection.shutdown_socket = _close_alone
        if context not in _guards:
            _guards[context] = _Guard(context)
        _guards[context].users += 1


def unguard(context: Any) -> None:
    """One user less."""
    with _lock:
        found = _guards[context]
        found.users -= 1
        if not found.users:
            del _guards[context]
            found.close()
        if not _guards:
            ClientServerConnection.shutdown_socket = _close_all


_close_all = ClientServerConnection.shutdown_socket
"""What Py4J does with every connection when a call is interrupted: it has Java close all that there are."""


def _close_alone(connection: Any, own_port: int, java_port: int) -> None:
    """In its place: close the interrupted connection, which has this port, and give others back."""
    if connection.socket is not None and connection.socket.getsockname()[1] == own_port:
        connection.close()
    else:
        connection.java_client.deque.appendleft(connection)


class _Guard:
    """Stands in for `cancelAllJobs` of a SparkContext where PySpark's handler of interrupts calls it."""

    def __init__(self, context: Any) -> None:
        self.users = 0
        self._context = weakref.ref(context)
        self._wanted: SimpleQueue[SimpleQueue[None] | None] = SimpleQueue()
        context.cancelAllJobs = self.cancel
        self._thread = threading.Thread(target=self._run, name="ikebana interrupts", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Cancel all jobs, or, for the handler of interrupts, those that are not spared.

        The handler may have interrupted this very thread in the middle of a call to Java, so another one does it.
        """
        caller = sys._getframe(1).f_code
        if (caller.co_name, caller.co_filename) != (_HANDLER, _HANDLER_FILE):
            SparkContext.cancelAllJobs(self._context())  # type: ignore[arg-type]
            return
        done: SimpleQueue[None] = SimpleQueue()
        self._wanted.put(done)
        with suppress(Empty):
            done.get(timeout=_GRACE)

    def close(self) -> None:
        """Cancel as PySpark does again."""
        context = self._context()
        if context is not None:
            context.__dict__.pop("cancelAllJobs", None)
        self._wanted.put(None)
        self._thread.join(_GRACE)

    def _run(self) -> None:
        while (done := self._wanted.get()) is not None:
            for _ in range(_ATTEMPTS):
                with suppress(Exception):  # jobs have ended meanwhile, or Spark has
                    _cancel_others(self._context())
                    break
            done.put(None)


def _cancel_others(context: Any) -> None:
    """Cancel all jobs that are neither ours nor a stream's."""
    scala = context._jsc.sc()
    jobs = scala.dagScheduler().activeJobs().toList()
    for at in range(jobs.size()):
        job = jobs.apply(at)
        if not _is_spared(job.properties()):
            scala.cancelJob(job.jobId())


def _is_spared(properties: Any) -> bool:
    if properties is None:
        return False
    tags = properties.getProperty(_TAGS) or ""
    return any(tag.startswith(TAG) for tag in tags.split(",")) or properties.getProperty(_STREAM) is not None


# Jobs of ours.


def run_job(spark: SparkSession, job: Callable[[], Result], deadline: Deadline) -> Result:
    """Run a job, and return its result. It is cancelled if that is interrupted, or not done in time."""
    running = _Job(spark, job)
    try:
        running.start()
        if not running.wait(deadline.left()):
            raise deadline.expired()
    except BaseException:
        with deferred():
            running.cancel()
        raise
    return running.result()


class _Job:
    """A job in a thread of its own, with the properties of the calling thread, and a tag."""

    def __init__(self, spark: SparkSession, job: Callable[[], Any]) -> None:
        self._context: Any = spark.sparkContext
        self._tag, self._job = f"{TAG}{uuid.uuid4()}", job
        self._result: Any = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = InheritableThread(target=self._run, session=spark, name="ikebana job", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self._context.addJobTag(self._tag)
            self._result = self._job()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def cancel(self) -> None:
        """Cancel the job, and wait until it has ended."""
        for _ in range(round(_GRACE / _AGAIN)):
            if self._is_over():
                return
            with suppress(Exception):  # Spark has ended
                self._context.cancelJobsWithTag(self._tag)
            self._ended.wait(_AGAIN)

    def wait(self, seconds: float) -> bool:
        """Wait for the end, or for so many seconds; returns whether it has ended."""
        deadline = time.monotonic() + seconds
        while not self._is_over() and (left := deadline - time.monotonic()) > 0:
            self._ended.wait(min(left, _LOOK))
        return self._is_over()

    def _is_over(self) -> bool:
        return self._ended.is_set() or not self._thread.is_alive()

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        if not self._ended.is_set():
            raise DataflowError("a Spark job could not be started", hint="look whether Spark still runs")
        return self._result
