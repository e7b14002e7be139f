"""A SparkSession that can host workers: a local one that is started here, or the user's, after a check.

Workers occupy task slots for as long as they live, one each, and other Spark jobs (loading, reading, the user's own)
need at least one more. A session that is started here has slots for both. The slots of a user's session are checked
beforehand, because Spark would let a job without slots wait forever and print nothing.

A session that is started here logs little, listens on loopback only, has no web UI unless requested, and runs its
Python tasks with this interpreter, on a Java runtime that `ikebana.spark.java` finds. It shuffles into as many
partitions as it has slots for tasks; Spark's own default of 200 is for clusters, and takes seconds on one machine. Java
may use an eighth of the machine's memory; with Spark's default of 1 GiB, joins of some million rows fail.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ikebana.cluster.interrupts import defer_interrupts
from ikebana.errors import IkebanaError
from ikebana.spark import class_archive
from ikebana.spark.errors import spark_error_summary
from ikebana.spark.java import find_java, java_home

QUIET = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",  # it would always show a bar for the workers' stage
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

LOGGING = f'-Dlog4j2.configurationFile="{Path(__file__).with_name("log4j2.properties")}"'
"""The option for Java with which Spark logs little."""


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _settings(java: Path, slots: int) -> dict[str, str]:
    """The settings of a session on this machine with so many slots for tasks, all in one Java process."""
    memory = max(_LEAST_JAVA_BYTES, psutil.virtual_memory().total // 8)
    return {
        **QUIET,
        "spark.master": f"local[{slots}]",
        "spark.driver.memory": f"{memory >> 20}m",
        "spark.sql.shuffle.partitions": str(slots),
        "spark.driver.extraJavaOptions": f"{LOGGING} {class_archive.options(java)}",
    }


_LEAST_JAVA_BYTES = 1 << 30


def start(
    workers: int,
    *,
    name: str = "ikebana",
    ui: bool = False,
    config: Mapping[str, Any] | None = None,
) -> SparkSession:
    """Start a local SparkSession with slots for this number of workers and for other jobs.

    `config` has Spark settings; they take precedence over those that are set here.
    """
    java = find_java()
    settings = _settings(java, cores() + workers)
    settings |= {"spark.app.name": name, "spark.ui.enabled": str(ui).lower()}
    settings |= {key: str(value) for key, value in (config or {}).items()}
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with environment(java):
        return _start(builder)


def _start(builder: SparkSession.Builder) -> SparkSession:
    """Start the session. An interrupt is delayed until Spark has started, and then stops Spark again."""
    before = SparkContext._active_spark_context
    try:
        with defer_interrupts():
            return _started(builder)
    except BaseException:
        context = SparkContext._active_spark_context
        if context is not None and context is not before:
            with defer_interrupts():
                context.stop()
        raise


def _started(builder: SparkSession.Builder) -> SparkSession:
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise IkebanaError(
            "Spark could not be started",
            detail=spark_error_summary(error),
            hint="check the settings that were given as config, and the space on the disk of spark.local.dir",
        ) from error


@contextmanager
def environment(java: Path) -> Iterator[None]:
    """Set the environment variables that Spark needs to start on a Java, except those that the user has set."""
    variables = {
        "JAVA_HOME": str(java_home(java)),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1",
    }
    before = {key: os.environ.get(key) for key in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def active_session() -> SparkSession | None:
    """The SparkSession that is active in this thread or this process; None if there is none."""
    spark = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    return spark if spark is not None and is_running(spark) else None


def is_running(spark: SparkSession) -> bool:
    """Whether a SparkSession has not been stopped."""
    context: Any = spark.sparkContext
    return context._jsc is not None and not context._jsc.sc().isStopped()


def context_of(spark: SparkSession) -> Any:
    """The SparkContext of a SparkSession; raises if it cannot host workers."""
    if not isinstance(spark, SparkSession):
        raise IkebanaError(
            f"workers cannot be hosted on {type(spark).__module__}.{type(spark).__name__}",
            detail="workers run as the tasks of a job, which needs a SparkContext; a Spark Connect session has none",
            hint="pass a SparkSession of this process, or none to have one started",
        )
    if not is_running(spark):
        raise IkebanaError("the SparkSession was stopped", hint="pass one that is running, or none to have one started")
    return spark.sparkContext


def slots(spark: SparkSession) -> int:
    """The number of tasks that Spark can run at once, with the executors that it has now."""
    scala = context_of(spark)._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def check_slots(spark: SparkSession, workers: int, occupied: int, timeout: float) -> None:
    """Raise if Spark cannot run this number of workers and another job at once.

    `occupied` is the number of slots that other workers hold. Waits up to `timeout` seconds for executors to start.
    """
    context = context_of(spark)
    is_local = context.master.startswith("local[") or context.master == "local"
    if not is_local and str(context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        raise IkebanaError(
            "workers cannot be hosted with Spark's dynamic allocation",
            detail="all workers must run at once, as a barrier stage, which Spark cannot run with dynamic allocation",
            hint="start the session with spark.dynamicAllocation.enabled=false and the executors that you need",
        )
    needed = occupied + workers + 1
    deadline = time.monotonic() + (0 if is_local else timeout)
    while (available := slots(spark)) < needed:
        if time.monotonic() > deadline:
            held = f", of which {occupied} are held by workers of other sessions" if occupied else ""
            raise IkebanaError(
                f"Spark has too few task slots for {workers} workers",
                detail=f"master {context.master!r} has {available}{held}; {needed} are needed: one for each worker, "
                "and at least one for other jobs",
                hint=_more_slots(context.master, is_local, needed),
            )
        time.sleep(0.1)


def _more_slots(master: str, is_local: bool, needed: int) -> str:
    if is_local:
        return f"start the session with master('local[{needed}]') or more, or ask for fewer workers"
    return (
        f"ask for fewer workers, or give the application more executors or cores (spark.executor.cores, "
        f"spark.cores.max, spark.executor.instances), {needed} slots in all"
    )
