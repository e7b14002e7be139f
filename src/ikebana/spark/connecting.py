"""`connect`: start workers on Spark, and open a session on them.

Starting takes some seconds: Spark schedules a barrier job, and a worker process starts in each of its tasks. If a step
fails or is interrupted, the workers that have started are ended, and a SparkSession that was started here is stopped.

Not guaranteed: that Spark has enough free task slots. The option `start_timeout` says how long to wait for them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from ikebana.cluster.interrupts import defer_interrupts
from ikebana.engine.healing import RESTARTS
from ikebana.engine.table_storage import refuse_if_in_use
from ikebana.spark.arguments import check_options, checked_timeout
from ikebana.spark.progress import progress
from ikebana.spark.session import Session
from ikebana.spark.workers import SparkWorkers

_WORKER_OPTIONS = set(inspect.signature(SparkWorkers).parameters) - {"spark", "workers", "effort", "config", "ui"}


def connect(
    spark: SparkSession | None = None,
    workers: int | None = None,
    *,
    share: bool = True,
    effort: str = "default",
    timeout: float | None = None,
    temp_views: bool = True,
    config: Mapping[str, Any] | None = None,
    ui: bool = False,
    storage: str | None = None,
    restarts: int = RESTARTS,
    **options: Any,
) -> Session:
    """Start workers as tasks of a Spark job, and return a session that owns them.

    spark: the SparkSession that hosts the workers. By default the active one; if there is none, a local one is started,
        and stopped when the session is closed.
    workers: the number of workers. By default one for each processor, as far as Spark has free task slots.
    share: whether views share arrangements. False lets every view build its own, to measure what sharing saves.
    effort: how eagerly arrangements are merged: "eager", "default" or "lazy".
    timeout: how many seconds a call may wait for workers before it raises a `WaitTimeoutError`, unless the call has its
        own `timeout`. None for no limit.
    temp_views: whether `spark.sql` and `spark.table` see tables and views under their names. This takes a few
        milliseconds for each of them.
    config: settings for a SparkSession that is started here, such as {"spark.jars.packages": "..."}.
    ui: whether a SparkSession that is started here has its web interface.
    storage: a directory, or its URI, in which tables, views and the positions of streams are stored, and from which
        they come back; `recovered` of the session says what was found. By default nothing is stored.
    restarts: how many times within a minute workers are replaced after one has died, if there is a storage directory,
        before the session gives up; 0 for never.
    options: further options of `SparkWorkers`, such as `memory`, `view_memory` and `spill`.
    """
    checked_timeout(timeout)
    check_options("connect()", options, _WORKER_OPTIONS)
    if storage is not None:
        refuse_if_in_use(storage)
    with progress("starting workers on Spark"):
        cluster = SparkWorkers(spark, workers, effort=effort, config=config, ui=ui, **options)
    try:
        return Session(cluster, share=share, timeout=timeout, temp_views=temp_views, storage=storage, restarts=restarts)
    except BaseException:
        with defer_interrupts():
            cluster.close()
        raise
