"""Workers on Spark, as the engine sees them.

    with Engine(cluster=SparkWorkers(workers=2)) as engine: ...          # starts a local SparkSession
    with Engine(cluster=SparkWorkers(spark, workers=2)) as engine: ...   # on yours

Everything that `ikebana.cluster.driver` says holds here. On a user's SparkSession any number of clusters
can live beside each other and beside other jobs, as long as there are slots; it goes on when they are closed. One that
was started here is stopped with the cluster.

Sockets. In local modes all listen on loopback. On a cluster the driver listens on `spark.driver.host` and workers on
the addresses of their executors; `host` and `workers_host` say otherwise. All connections are authenticated.

Interrupts. Ctrl-C leaves the workers alone (`ikebana.spark.interrupting`). While they start it ends them again, and
Spark, if it was started for them; but it waits until Spark has started.

Cost, on two busy cores: a SparkSession takes 12 s to start, workers 2 s (5 s the first time), closing 0.1 s. A request
to all workers and back takes 0.27 ms with one worker and 0.47 ms with two; a killed worker is an error in the driver
after 0.3 s. An empty worker has 200 MB, and its supervisor 55 MB, of which Python itself is most.
Not guaranteed: that the Java process of a session which was started here ends before this process does; PySpark keeps
it. Nor anything where `spark.python.worker.killOnIdleTimeout` is set: to Spark, the workers' tasks are idle.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from pyspark.sql import SparkSession

from ikebana.cluster.driver import Driver
from ikebana.cluster.interrupts import deferred
from ikebana.errors import DataflowError, IkebanaError
from ikebana.spark import launch
from ikebana.spark.hosting import SparkTasks, counting, occupied

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
        patience: float = 120.0,
        name: str = "ikebana workers",
        memory: int | None = None,
        view_memory: int | None = None,
    ) -> None:
        """Start the workers, and return when all are there.

        Without `spark` the session that is active is taken, or else one is started. `workers` is as many as there are
        processors, or as the session has slots to spare. `patience` is how many seconds executors and workers may
        take to start; `name` is shown by Spark. `memory` is how many bytes each worker may use, by default its share of
        80% of its machine's, and `view_memory` each view there, by default half of that
        (`ikebana.runtime.memory_budget`).
        """
        if workers is not None and workers < 1:
            raise DataflowError(f"cannot start {workers} workers", hint="give at least one")
        taken = spark or launch.active_session()
        self.spark = taken or launch.session(workers or launch.cores())
        """The SparkSession."""
        at_end = self.spark.stop if taken is None else None
        tasks: SparkTasks | None = None
        try:
            context = launch.context_of(self.spark)
            driver_host, theirs = _addresses(context)
            _use_this_python(context)
            with counting:
                held = occupied.get(context, 0)
                size = workers or max(1, min(launch.cores(), launch.slots(self.spark) - held - 1))
                launch.check(self.spark, size, held, patience)
                tasks = SparkTasks(context, size, name, at_end)
            super().__init__(
                tasks,
                size,
                effort=effort,
                host=host or driver_host,
                workers_host=theirs if workers_host is None else workers_host,
                patience=patience,
                memory=memory,
                view_memory=view_memory,
            )
        except BaseException:
            with deferred():
                if tasks is not None:
                    tasks.close()
                elif at_end is not None:
                    at_end()
            raise


def _addresses(context: Any) -> tuple[str, str]:
    """Where the driver listens, and where workers do; empty for the address of their executor."""
    if context.master.startswith("local"):
        return _LOOPBACK, _LOOPBACK
    name = context.getConf().get("spark.driver.host")
    try:
        return socket.gethostbyname(name), ""
    except OSError as error:
        raise IkebanaError(
            f"the driver's host name {name!r} has no address",
            detail=str(error),
            hint="set spark.driver.host to an address by which executors reach the driver",
        ) from error


def _use_this_python(context: Any) -> None:
    """Let tasks on this machine run with this interpreter, unless the user has said which: others lack our packages."""
    is_here = context.master.startswith("local") or _addresses(context)[0].startswith("127.")
    if is_here and not os.environ.get("PYSPARK_PYTHON"):
        context.pythonExec = sys.executable
