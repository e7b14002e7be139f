"""Workers on Spark, as the engine sees them.

    with Engine(cluster=SparkWorkers(workers=2)) as engine: ...          # starts a local SparkSession
    with Engine(cluster=SparkWorkers(spark, workers=2)) as engine: ...   # uses yours

The guarantees of `ikebana.cluster.driver` hold. Any number of clusters can share a user's SparkSession with each other
and with other jobs, as long as there are task slots; the SparkSession keeps running when they are closed. A
SparkSession that was started here is stopped with the cluster.

Sockets. In local modes all sockets listen on loopback. On a cluster the driver is reached at `spark.driver.host` and
listens on `spark.driver.bindAddress`, and each worker listens on the address of its executor; `host`, `bind`,
`workers_host`, `workers_bind` and `ports` override this. All connections are authenticated and encrypted
(docs/SECURITY.md).

Settings. When the workers have started, warnings are logged if Spark has not accounted for their memory, if keys travel
unencrypted, or if workers are not spread over hosts (`ikebana.spark.settings_check`).

Interrupts. Ctrl-C does not affect running workers (`ikebana.spark.interrupting`). While workers are starting it ends
them, and stops Spark if it was started for them, as soon as Spark has started.

Cost, on two busy cores: a SparkSession takes 12 s to start, workers 2 s (5 s the first time), closing 0.1 s. A request
to all workers and back takes 0.27 ms with one worker and 0.47 ms with two; a killed worker is an error in the driver
after 0.3 s. An empty worker uses 200 MB and its supervisor 55 MB, most of which is Python itself.
Not guaranteed: that the Java process of a SparkSession which was started here ends before this process does; PySpark
keeps it. Nor anything with `spark.python.worker.killOnIdleTimeout`: Spark considers the workers' tasks idle.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from ikebana.cluster import Cluster
from ikebana.cluster.driver import Driver
from ikebana.cluster.interrupts import defer_interrupts
from ikebana.cluster.network import resolve
from ikebana.errors import IkebanaError
from ikebana.spark import first_query, spark_session
from ikebana.spark.arguments import checked_choice, checked_count
from ikebana.spark.barrier_job import BarrierJob, occupied_slots, slots_lock
from ikebana.spark.settings_check import encryption_warning, memory_warning, placement_warning
from ikebana.spark.task_python import use_this_python
from ikebana.trace.spine import EFFORT

_LOOPBACK = "127.0.0.1"

_log = logging.getLogger(__name__)


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
        bind: str | None = None,
        workers_bind: str = "",
        ports: str | None = None,
        start_timeout: float = 120.0,
        name: str = "ikebana workers",
        memory: int | None = None,
        view_memory: int | None = None,
        spill: str | None = None,
        spill_bytes: int | None = None,
        config: Mapping[str, Any] | None = None,
        ui: bool = False,
    ) -> None:
        """Start the workers, and return when all of them are connected.

        spark: the SparkSession that hosts the workers. By default the active one; if there is none, a local one is
            started, and stopped with the workers.
        workers: the number of workers. By default one for each processor, as far as Spark has free task slots.
        effort: how eagerly arrangements are merged: "eager", "default" or "lazy".
        host, workers_host: the addresses or names at which the driver and the workers are reached.
        bind, workers_bind: the addresses on which they listen, if these are others.
        ports: the range of ports on which they listen, such as "7000-7020". By default any port.
        start_timeout: how many seconds executors and workers may take to start.
        name: the description of the job that Spark shows.
        memory: how many bytes each worker may use. By default 80% of its machine's memory, shared equally among the
            workers there (`ikebana.runtime.memory_budget`).
        view_memory: how many bytes each view may use on a worker. By default half of `memory`.
        spill: a directory on a local disk of the workers' machines, in which large batches of tables and views live,
            so that these can be larger than memory (`ikebana.encoding.spill_files`). By default all are in memory.
        spill_bytes: how many bytes a batch must have to live there. By default 64 MiB.
        config, ui: settings for a SparkSession that is started here, and whether it has its web interface.
        """
        checked_count("workers", workers)
        checked_count("memory", memory)
        checked_count("view_memory", view_memory)
        checked_count("spill_bytes", spill_bytes)
        checked_choice("effort", effort, tuple(EFFORT))
        self._options: dict[str, Any] = {
            "effort": effort,
            "host": host,
            "workers_host": workers_host,
            "bind": bind,
            "workers_bind": workers_bind,
            "ports": ports,
            "start_timeout": start_timeout,
            "name": name,
            "memory": memory,
            "view_memory": view_memory,
            "spill": spill,
            "spill_bytes": spill_bytes,
        }
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
        self._stop_spark = weakref.finalize(self, self.spark.stop) if given is None else None
        job: BarrierJob | None = None
        try:
            context = spark_session.context_of(self.spark)
            addresses = _addresses(context)
            if context.master.startswith("local") or addresses.driver.startswith("127."):
                use_this_python(context)
            _stop_progress_bar(context)
            is_new = self.owns_spark and context.master.startswith("local[")
            query = first_query.begin(self.spark) if is_new else None
            with slots_lock:
                occupied = occupied_slots.get(context, 0)
                free = spark_session.slots(self.spark) - occupied - 1
                size = workers or max(1, min(spark_session.cores(), free))
                spark_session.check_slots(self.spark, size, occupied, start_timeout)
                job = BarrierJob(context, size, name)
            super().__init__(
                job,
                size,
                effort=effort,
                host=host or addresses.driver,
                workers_host=addresses.workers if workers_host is None else workers_host,
                bind=(addresses.bind if host is None else "") if bind is None else bind,
                workers_bind=workers_bind,
                ports=ports,
                start_timeout=start_timeout,
                memory=memory,
                view_memory=view_memory,
                spill=spill,
                spill_bytes=spill_bytes,
            )
            if query is not None:
                query.join()
        except BaseException:
            with defer_interrupts():
                if job is not None:
                    job.close()
                if self._stop_spark is not None:
                    self._stop_spark()
            raise
        self._warn(context, host or addresses.driver, memory)

    def start_again(self) -> SparkWorkers:
        """Submit the job again, on the same SparkSession, with as many workers."""
        return SparkWorkers(self.spark, self.size, **self._options)

    def hand_over(self, successor: Cluster) -> None:
        """Let the SparkSession be stopped with other workers, if it was to be stopped with these."""
        if self._stop_spark is not None and isinstance(successor, SparkWorkers):
            self._stop_spark.detach()
            successor.owns_spark, successor._stop_spark = True, weakref.finalize(successor, self.spark.stop)

    def close(self) -> None:
        """End the workers, and then the SparkSession, if it was started for them."""
        super().close()
        if self._stop_spark is not None:
            self._stop_spark()

    def _warn(self, context: Any, driver: str, memory: int | None) -> None:
        """Log what the user should know about settings and placement."""
        try:
            for warning in _warnings(context, self.hosts, driver, memory):
                _log.warning("%s", warning)
        except Exception:  # another version of Spark: nothing can be said
            _log.debug("the settings of Spark could not be checked", exc_info=True)


def _warnings(context: Any, hosts: Sequence[str], driver: str, memory: int | None) -> Iterator[str]:
    """What the user should know about settings and placement on a cluster."""
    if context.master.startswith("local"):
        return
    settings, driver = dict(context.getConf().getAll()), resolve(driver)
    warnings = (
        memory_warning(context.master, settings, len(hosts), memory),
        encryption_warning(settings, driver, [resolve(host) for host in hosts]),
        placement_warning(hosts, _executor_hosts(context)),
    )
    yield from filter(None, warnings)


def _executor_hosts(context: Any) -> int:
    """The number of hosts that have executors."""
    own = context._jvm.org.apache.spark.SparkEnv.get().blockManager().blockManagerId()
    executors = [(info.host(), info.port()) for info in context._jsc.sc().statusTracker().getExecutorInfos()]
    return len({host for host, port in executors if (host, port) != (own.host(), own.port())})


class _Addresses(NamedTuple):
    """Where the driver is reached, where it listens if that is elsewhere, and where workers are reached.

    For workers this is empty if it is the address of their executor.
    """

    driver: str
    bind: str
    workers: str


def _addresses(context: Any) -> _Addresses:
    """The addresses according to Spark's settings."""
    if context.master.startswith("local"):
        return _Addresses(_LOOPBACK, "", _LOOPBACK)
    name = context.getConf().get("spark.driver.host")
    bind = context.getConf().get("spark.driver.bindAddress", name)
    try:
        resolve(name)
    except IkebanaError as error:
        raise IkebanaError(
            f"the driver's host name {name!r} cannot be resolved",
            detail=error.detail,
            hint="set spark.driver.host to an address at which executors can reach the driver",
        ) from error
    return _Addresses(name, "" if bind == name else bind, "")


def _stop_progress_bar(context: Any) -> None:
    """Stop Spark's progress bar on the terminal, if it has one: it would show the workers' stage forever."""
    bar = context._jsc.sc().progressBar()
    if bar.isDefined():
        bar.get().stop()
