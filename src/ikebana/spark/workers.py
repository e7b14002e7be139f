"""Workers on Spark, as the engine sees them.

    with Engine(cluster=SparkWorkers(workers=2)) as engine: ...          # starts a local SparkSession
    with Engine(cluster=SparkWorkers(spark, workers=2)) as engine: ...   # uses yours

The guarantees of `ikebana.cluster.driver` hold. Any number of clusters can share a user's SparkSession with each other
and with other jobs, as long as there are task slots; the SparkSession keeps running when they are closed. A
SparkSession that was started here is stopped with the cluster.

Sockets. In local modes all sockets listen on loopback. On a cluster the driver listens on `spark.driver.host` and each
worker on the address of its executor; `host` and `workers_host` override this. All connections are authenticated.

Interrupts. Ctrl-C does not affect running workers (`ikebana.spark.interrupting`). While workers are starting it ends
them, and stops Spark if it was started for them, as soon as Spark has started.

Cost, on two busy cores: a SparkSession takes 12 s to start, workers 2 s (5 s the first time), closing 0.1 s. A request
to all workers and back takes 0.27 ms with one worker and 0.47 ms with two; a killed worker is an error in the driver
after 0.3 s. An empty worker uses 200 MB and its supervisor 55 MB, most of which is Python itself.
Not guaranteed: that the Java process of a SparkSession which was started here ends before this process does; PySpark
keeps it. Nor anything with `spark.python.worker.killOnIdleTimeout`: Spark considers the workers' tasks idle.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from ikebana.cluster.driver import Driver
from ikebana.cluster.interrupts import defer_interrupts
from ikebana.errors import IkebanaError
from ikebana.spark import spark_session
from ikebana.spark.arguments import checked_choice, checked_count
from ikebana.spark.barrier_job import BarrierJob, occupied_slots, slots_lock
from ikebana.trace.spine import EFFORT

_LOOPBACK = "127.0.0.1"


class SparkWorkers(Driver):
    """W workers as the tasks of a Spark job."""

    def __init__(
        self,
        spark: SparkSession | None = None,
        workers: int | None = None,
        *,
        effort: str = "default",
        host: str | None = None,
        workers_host: str | None = None,
        start_timeout: float = 120.0,
        name: str = "ikebana workers",
        memory: int | None = None,
        view_memory: int | None = None,
        config: Mapping[str, Any] | None = None,
        ui: bool = False,
    ) -> None:
        """Start the workers, and return when all of them are connected.

        spark: the SparkSession that hosts the workers. By default the active one; if there is none, a local one is
            started, and stopped with the workers.
        workers: the number of workers. By default one for each processor, as far as Spark has free task slots.
        effort: how eagerly arrangements are merged: "eager", "default" or "lazy".
        host, workers_host: the addresses on which the driver and the workers listen.
        start_timeout: how many seconds executors and workers may take to start.
        name: the description of the job that Spark shows.
        memory: how many bytes each worker may use. By default 80% of its machine's memory, shared equally among the
            workers there (`ikebana.runtime.memory_budget`).
        view_memory: how many bytes each view may use on a worker. By default half of `memory`.
        config, ui: settings for a SparkSession that is started here, and whether it has its web interface.
        """
        checked_count("workers", workers)
        checked_count("memory", memory)
        checked_count("view_memory", view_memory)
        checked_choice("effort", effort, tuple(EFFORT))
        given = spark or spark_session.active_session()
        if given is not None and (config or ui):
            raise IkebanaError(
                f"{'config' if config else 'ui'} cannot be applied to a SparkSession that is running",
                hint="give the settings to SparkSession.builder, or stop the SparkSession before connecting",
            )
        self.spark = given or spark_session.start(workers or spark_session.cores(), config=config, ui=ui)
        """The SparkSession that hosts the workers."""
        self.owns_spark = given is None
        """Whether it was started here, and is stopped with the workers."""
        at_end = self.spark.stop if given is None else None
        job: BarrierJob | None = None
        try:
            context = spark_session.context_of(self.spark)
            driver_address, worker_address = _addresses(context)
            _use_this_python(context)
            _stop_progress_bar(context)
            with slots_lock:
                occupied = occupied_slots.get(context, 0)
                free = spark_session.slots(self.spark) - occupied - 1
                size = workers or max(1, min(spark_session.cores(), free))
                spark_session.check_slots(self.spark, size, occupied, start_timeout)
                job = BarrierJob(context, size, name, at_end)
            super().__init__(
                job,
                size,
                effort=effort,
                host=host or driver_address,
                workers_host=worker_address if workers_host is None else workers_host,
                start_timeout=start_timeout,
                memory=memory,
                view_memory=view_memory,
            )
        except BaseException:
            with defer_interrupts():
                if job is not None:
                    job.close()
                elif at_end is not None:
                    at_end()
            raise


def _addresses(context: Any) -> tuple[str, str]:
    """The addresses on which driver and workers listen; for workers empty if it is the address of their executor."""
    if context.master.startswith("local"):
        return _LOOPBACK, _LOOPBACK
    name = context.getConf().get("spark.driver.host")
    try:
        return socket.gethostbyname(name), ""
    except OSError as error:
        raise IkebanaError(
            f"the driver's host name {name!r} cannot be resolved",
            detail=str(error),
            hint="set spark.driver.host to an address at which executors can reach the driver",
        ) from error


def _stop_progress_bar(context: Any) -> None:
    """Stop Spark's progress bar on the terminal, if it has one: it would show the workers' stage for ever."""
    bar = context._jsc.sc().progressBar()
    if bar.isDefined():
        bar.get().stop()


def _use_this_python(context: Any) -> None:
    """Run tasks on this machine with this interpreter, which has ikebana installed, unless the user has set another."""
    is_local = context.master.startswith("local") or _addresses(context)[0].startswith("127.")
    if is_local and not os.environ.get("PYSPARK_PYTHON"):
        context.pythonExec = sys.executable
