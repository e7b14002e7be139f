"""A progress bar for a Spark job: how many of its tasks are done.

Shown on a terminal only, and only for jobs that take a moment. The job runs in the calling thread, under a job group
of its own; a daemon thread looks at it a few times a second. A job that may take only so long runs in another thread,
under a tag by which it is cancelled.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.sql import SparkSession

Result = TypeVar("Result")

_PATIENCE = 0.7
"""Jobs that are done before so many seconds show no bar."""

_LOOK = 0.2
_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


def with_progress(spark: SparkSession, what: str, job: Callable[[], Result], shown: bool | None = None) -> Result:
    """Run a job, with a bar if it takes long; `shown` says so whatever the terminal is."""
    if not (sys.stderr.isatty() if shown is None else shown):
        return job()
    context: Any = spark.sparkContext
    group, done = f"ikebana {uuid.uuid4()}", threading.Event()
    before = {key: context.getLocalProperty(key) for key in _PROPERTIES}
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

    if done.wait(_PATIENCE):
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"))
    console = Console(stderr=True, force_terminal=shown)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        while not done.wait(_LOOK):
            total, completed = _tasks(tracker, group)
            bar.update(task, total=total or None, completed=completed)


def _tasks(tracker: Any, group: str) -> tuple[int, int]:
    """How many tasks the jobs of a group have, and how many of them are done."""
    jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numTasks for stage in known), sum(stage.numCompletedTasks for stage in known)
