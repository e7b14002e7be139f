"""A progress bar for a Spark job: how many of its tasks have completed.

It is shown on a terminal only, and only for jobs that take a moment. The job runs in the calling thread, in its own job
group; a daemon thread polls the status of the group.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.sql import SparkSession

Result = TypeVar("Result")

_DELAY_SECONDS = 0.7
"""A job that completes within this time shows no bar."""

_POLL_SECONDS = 0.2
_JOB_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


def with_progress(spark: SparkSession, what: str, job: Callable[[], Result], shown: bool | None = None) -> Result:
    """Run a job, with a bar if it takes long. `shown` overrides whether there is a terminal."""
    if not (sys.stderr.isatty() if shown is None else shown):
        return job()
    context: Any = spark.sparkContext
    group, done = f"ikebana {uuid.uuid4()}", threading.Event()
    before = {key: context.getLocalProperty(key) for key in _JOB_GROUP_PROPERTIES}
    context.setJobGroup(group, what)
    watcher = threading.Thread(target=_watch, args=(context.statusTracker(), group, what, done, shown), daemon=True)
    watcher.start()
    try:
        return job()
    finally:
        done.set()
        watcher.join()
        for key, value in before.items():
            context.setLocalProperty(key, value)


def _watch(tracker: Any, group: str, what: str, done: threading.Event, shown: bool | None) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if done.wait(_DELAY_SECONDS):
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"))
    console = Console(stderr=True, force_terminal=shown)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        while not done.wait(_POLL_SECONDS):
            total, completed = _tasks(tracker, group)
            bar.update(task, total=total or None, completed=completed)


def _tasks(tracker: Any, group: str) -> tuple[int, int]:
    """The number of tasks of a job group, and how many of them have completed."""
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numTasks for stage in known), sum(stage.numCompletedTasks for stage in known)
