"""A SparkSession that can host workers: started here, or taken from the user and looked at.

Workers occupy task slots for as long as they live, W of them, and other Spark jobs (loading, reading, whatever the user
runs) need at least one more. A session that is started here has slots for both. On a user's session it is checked
beforehand, because Spark itself would let a job that finds no slots wait without a word.

The session that is started here is quiet, listens on loopback only, has no web page unless asked for one, and runs
its Python tasks with this interpreter, on a Java that `java` finds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from ikebana.cluster.interrupts import deferred
from ikebana.errors import IkebanaError
from ikebana.spark.java import java_home

QUIET = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",  # else there is always a bar for the workers' stage
    "spark.driver.extraJavaOptions": f'-Dlog4j2.configurationFile="{Path(__file__).with_name("log4j2.properties")}"',
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def session(
    workers: int,
    *,
    name: str = "ikebana",
    ui: bool = False,
    config: Mapping[str, Any] | None = None,
) -> SparkSession:
    """A new local SparkSession, with slots for so many workers and for other jobs beside them.

    `config` is Spark's, and comes before what is set here.
    """
    settings = {
        "spark.master": f"local[{cores() + workers}]",
        "spark.app.name": name,
        **QUIET,
        "spark.ui.enabled": str(ui).lower(),
        **{key: str(value) for key, value in (config or {}).items()},
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with environment():
        return _started(builder)


def _started(builder: SparkSession.Builder) -> SparkSession:
    """The session, or nothing: an interrupt waits until Spark has started, and then it is stopped."""
    before = SparkContext._active_spark_context
    try:
        with deferred():
            return builder.getOrCreate()
    except BaseException:
        context = SparkContext._active_spark_context
        if context is not None and context is not before:
            with deferred():
                context.stop()
        raise


@contextmanager
def environment() -> Iterator[None]:
    """What must be in the environment when Spark is started; what the user has set stays."""
    home = java_home()
    wanted = {
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1",
    }
    if home is not None:
        wanted["JAVA_HOME"] = str(home)
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def active_session() -> SparkSession | None:
    """The SparkSession that this thread, or this process, uses already."""
    found = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    return found if found is not None and is_running(found) else None


def is_running(spark: SparkSession) -> bool:
    """Whether a session has not been stopped."""
    context: Any = spark.sparkContext
    return context._jsc is not None and not context._jsc.sc().isStopped()


def context_of(spark: SparkSession) -> Any:
    """The SparkContext of a session on which workers can be hosted; raises if there is none."""
    if not isinstance(spark, SparkSession):
        raise IkebanaError(
            f"workers cannot be hosted on {type(spark).__module__}.{type(spark).__name__}",
            detail="they are the tasks of a job, which needs a SparkContext; a Spark Connect session has none",
            hint="give a SparkSession of this process, or none to have one started",
        )
    if not is_running(spark):
        raise IkebanaError("the SparkSession was stopped", hint="give one that runs, or none to have one started")
    return spark.sparkContext


def slots(spark: SparkSession) -> int:
    """How many tasks Spark can run at once now."""
    scala = context_of(spark)._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def check(spark: SparkSession, workers: int, occupied: int, patience: float) -> None:
    """Raise if Spark cannot run so many workers and another job beside them; waits for executors that are coming.

    `occupied` is how many slots other workers hold.
    """
    context = context_of(spark)
    is_local = context.master.startswith("local[") or context.master == "local"
    if not is_local and str(context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        raise IkebanaError(
            "workers cannot be hosted with Spark's dynamic allocation",
            detail="all of them must run at once, as a barrier stage, and Spark refuses these with dynamic allocation",
            hint="start the session with spark.dynamicAllocation.enabled=false and the executors that you need",
        )
    needed = occupied + workers + 1
    deadline = time.monotonic() + (0 if is_local else patience)
    while (found := slots(spark)) < needed:
        if time.monotonic() > deadline:
            raise IkebanaError(
                f"Spark has too few task slots for {workers} workers",
                detail=f"master {context.master!r} has {found}{_beside(occupied)}; {needed} are needed: one for each "
                "worker, and at least one for other jobs",
                hint=_more_slots(context.master, is_local, needed),
            )
        time.sleep(0.1)


def _beside(occupied: int) -> str:
    return f", of which {occupied} are held by workers of other sessions" if occupied else ""


def _more_slots(master: str, is_local: bool, needed: int) -> str:
    if is_local:
        return f"start the session with master('local[{needed}]') or more, or ask for fewer workers"
    return (
        f"ask for fewer workers, or give the application more executors or cores (spark.executor.cores, "
        f"spark.cores.max, spark.executor.instances), {needed} slots in all"
    )
