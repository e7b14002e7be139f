"""Interrupts (Ctrl-C, a notebook's stop button) on Spark: they end what the interrupted call has started, nothing else.

PySpark reacts to an interrupt by cancelling all jobs of its SparkContext, including that of the workers, with which all
tables and views would end. While workers run on a SparkContext, PySpark's interrupt handler therefore calls another
function (`guard`). That function spares the workers, jobs that other calls of Ikebana have started, and streams. All
other jobs are cancelled, as by PySpark: it cannot be determined which thread has started a job. Any other call of
`SparkContext.cancelAllJobs` still cancels all jobs.

The SparkContext is changed, rather than the signal handler, so that this works with any handler of the application and
for sessions that were created in any thread, and so that no handler has to be restored that others may have replaced.
Where a handler does not ask Spark to cancel anything (a notebook's, outside of the cell that started Spark), jobs of
the user continue.

Connections. An interrupted call to Java leaves a connection that cannot be used again. Py4J then closes not only that
one but those of all threads, including the one that waits for the workers' job, and repeats what these had asked, jobs
among them. While workers run, only the connection of the interrupted thread is closed (`_close_alone`).

Jobs of Ikebana, such as loading, run in their own thread (`run_job`), under a tag, and the caller waits for the thread.
If the caller is interrupted, or the job takes too long, the job is cancelled by its tag, and the caller returns when
the job has ended. So an interrupt never arrives during a call to Java, after which PySpark would close the connection.

Cost: a thread for each SparkContext, and one for each job.
Not guaranteed: that the tasks of a cancelled job have ended when the caller returns; Spark gives them two seconds.
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

from ikebana.cluster.interrupts import defer_interrupts
from ikebana.engine.deadline import Deadline
from ikebana.errors import DataflowError

Result = TypeVar("Result")

TAG = "ikebana-"
"""The prefix of the tags of Ikebana's jobs."""

_TAGS_PROPERTY, _STREAM_PROPERTY = "spark.job.tags", "sql.streaming.queryId"
_HANDLER = "signal_handler"
_HANDLER_FILE = SparkContext.__init__.__code__.co_filename
"""PySpark's interrupt handler is the function of this name in this file."""

_CANCEL_SECONDS = 10.0
"""How long Spark may take to cancel jobs before the interrupt is raised in any case."""

_RETRY_SECONDS = 0.2
"""How often to try again to cancel a job: one that has not started yet cannot be cancelled."""

_POLL_SECONDS = 1.0
"""How often to check whether the thread of a job is alive."""

_CANCEL_ATTEMPTS = 3
"""How often to try to cancel the active jobs: one of them may end in the meantime, which fails the attempt."""


# Sparing jobs.

_guards: weakref.WeakKeyDictionary[Any, _Guard] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def guard(context: Any) -> None:
    """Spare Ikebana's jobs when PySpark is interrupted, until `unguard` was called once for each call of `guard`."""
    with _lock:
        if not _guards:
            ClientServerConnection.shutdown_socket = _close_alone
        if context not in _guards:
            _guards[context] = _Guard(context)
        _guards[context].users += 1


def unguard(context: Any) -> None:
    """Undo one call of `guard`."""
    with _lock:
        unguarded = _guards[context]
        unguarded.users -= 1
        if not unguarded.users:
            del _guards[context]
            unguarded.close()
        if not _guards:
            ClientServerConnection.shutdown_socket = _close_all


_close_all = ClientServerConnection.shutdown_socket
"""Py4J's own method, which it calls for every connection when a call is interrupted, and which closes all of them."""


def _close_alone(connection: Any, own_port: int, java_port: int) -> None:
    """Close the connection only if it was interrupted, that is, if it has this port; else return it to the pool."""
    if connection.socket is not None and connection.socket.getsockname()[1] == own_port:
        connection.close()
    else:
        connection.java_client.deque.appendleft(connection)


class _Guard:
    """Replaces `cancelAllJobs` of a SparkContext when PySpark's interrupt handler calls it."""

    def __init__(self, context: Any) -> None:
        self.users = 0
        self._context = weakref.ref(context)
        self._requests: SimpleQueue[SimpleQueue[None] | None] = SimpleQueue()
        context.cancelAllJobs = self.cancel
        self._thread = threading.Thread(target=self._run, name="ikebana interrupts", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Cancel all jobs; if the interrupt handler calls it, only those that are not spared.

        The handler may have interrupted this thread during a call to Java, so another thread cancels the jobs.
        """
        caller = sys._getframe(1).f_code
        if (caller.co_name, caller.co_filename) != (_HANDLER, _HANDLER_FILE):
            SparkContext.cancelAllJobs(self._context())  # type: ignore[arg-type]
            return
        done: SimpleQueue[None] = SimpleQueue()
        self._requests.put(done)
        with suppress(Empty):
            done.get(timeout=_CANCEL_SECONDS)

    def close(self) -> None:
        """Restore PySpark's `cancelAllJobs`."""
        context = self._context()
        if context is not None:
            context.__dict__.pop("cancelAllJobs", None)
        self._requests.put(None)
        self._thread.join(_CANCEL_SECONDS)

    def _run(self) -> None:
        while (done := self._requests.get()) is not None:
            for _ in range(_CANCEL_ATTEMPTS):
                with suppress(Exception):  # a job or Spark has ended in the meantime
                    _cancel_others(self._context())
                    break
            done.put(None)


def _cancel_others(context: Any) -> None:
    """Cancel all jobs that are neither Ikebana's nor a stream's."""
    cancel_jobs(context, lambda properties: not _is_spared(properties))


def cancel_jobs(context: Any, selects: Callable[[Any], bool]) -> bool:
    """Cancel the active jobs that a function of their properties selects; returns whether there were any."""
    scala = context._jsc.sc()
    jobs = scala.dagScheduler().activeJobs().toList()
    active = [jobs.apply(index) for index in range(jobs.size())]
    selected = [job.jobId() for job in active if selects(job.properties())]
    for job in selected:
        scala.cancelJob(job)
    return bool(selected)


def _is_spared(properties: Any) -> bool:
    if properties is None:
        return False
    tags = properties.getProperty(_TAGS_PROPERTY) or ""
    return any(tag.startswith(TAG) for tag in tags.split(",")) or properties.getProperty(_STREAM_PROPERTY) is not None


# Jobs of Ikebana.


def run_job(spark: SparkSession, job: Callable[[], Result], deadline: Deadline) -> Result:
    """Run a job and return its result. The job is cancelled if the call is interrupted, or at the deadline."""
    running = _Job(spark, job)
    try:
        running.start()
        if not running.wait(deadline.seconds_left()):
            raise deadline.timeout_error()
    except BaseException:
        with defer_interrupts():
            running.cancel()
        raise
    return running.result()


class _Job:
    """A job in its own thread, with the local properties of the calling thread, and a tag."""

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
        for _ in range(round(_CANCEL_SECONDS / _RETRY_SECONDS)):
            if self._has_ended():
                return
            with suppress(Exception):  # Spark has ended
                self._context.cancelJobsWithTag(self._tag)
            self._ended.wait(_RETRY_SECONDS)

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the job, at most this number of seconds; returns whether it has ended."""
        deadline = time.monotonic() + seconds
        while not self._has_ended() and (left := deadline - time.monotonic()) > 0:
            self._ended.wait(min(left, _POLL_SECONDS))
        return self._has_ended()

    def _has_ended(self) -> bool:
        return self._ended.is_set() or not self._thread.is_alive()

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        if not self._ended.is_set():
            raise DataflowError("a Spark job could not be started", hint="check that Spark is still running")
        return self._result
