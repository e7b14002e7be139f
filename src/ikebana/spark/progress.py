"""Progress of calls that take long: a line on the terminal, or below the cell of a notebook, until the call returns.

`connect`, `load` and the first reading of a view show what they are doing and for how long; `load` also shows how many
of its tasks have completed. A call that returns within `_DELAY_SECONDS` shows nothing. Nothing is shown where nobody
looks: if standard error is not a terminal, and the program is not a notebook.

The call itself runs in the calling thread; a daemon thread draws the line. The line is removed when the call returns.
"""

from __future__ import annotations

import html
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pyspark.sql import SparkSession

Result = TypeVar("Result")

Count = Callable[[], tuple[int, int]]
"""Returns the number of tasks that are known, and how many of them have completed."""

_DELAY_SECONDS = 0.7
"""A call that returns within this time shows nothing."""

_POLL_SECONDS = 0.2
_JOB_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@contextmanager
def progress(what: str, count: Count | None = None, shown: bool | None = None) -> Iterator[None]:
    """A block that shows what it does if it takes long, by default on a terminal and in a notebook only."""
    if not _is_shown(shown):
        yield
        return
    draw, done = _draw_in_notebook if _is_notebook() else _draw_on_terminal, threading.Event()

    def watch() -> None:
        if not done.wait(_DELAY_SECONDS):
            draw(what, count, done, shown)

    watcher = threading.Thread(target=watch, name=f"ikebana progress: {what}", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def with_progress(spark: SparkSession, what: str, job: Callable[[], Result], shown: bool | None = None) -> Result:
    """Run a Spark job, and show how many of its tasks have completed; for this, it gets a job group of its own."""
    if not _is_shown(shown):
        return job()
    context: Any = spark.sparkContext
    group = f"ikebana {uuid.uuid4()}"
    before = {key: context.getLocalProperty(key) for key in _JOB_GROUP_PROPERTIES}
    context.setJobGroup(group, what)
    tracker = context.statusTracker()
    try:
        with progress(what, lambda: _tasks(tracker, group), shown):
            return job()
    finally:
        for key, value in before.items():
            context.setLocalProperty(key, value)


def _tasks(tracker: Any, group: str) -> tuple[int, int]:
    """The number of tasks of a job group, and how many of them have completed."""
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numTasks for stage in known), sum(stage.numCompletedTasks for stage in known)


# Drawing.


def _is_shown(shown: bool | None) -> bool:
    """Whether there is a terminal or notebook, unless the caller decides."""
    return sys.stderr.isatty() or _is_notebook() if shown is None else shown


def _is_notebook() -> bool:
    """Whether this is the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return type(get_ipython()).__name__ == "ZMQInteractiveShell"


def _draw_on_terminal(what: str, count: Count | None, done: threading.Event, shown: bool | None) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

    tasks: tuple[ProgressColumn, ...] = (MofNCompleteColumn(), TextColumn("tasks")) if count else ()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *tasks, TimeElapsedColumn())
    console = Console(stderr=True, force_terminal=shown)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        while not done.wait(_POLL_SECONDS):
            total, completed = count() if count else (0, 0)
            bar.update(task, total=total or None, completed=completed)


def _draw_in_notebook(what: str, count: Count | None, done: threading.Event, shown: bool | None) -> None:
    from IPython.display import HTML, display

    start = time.monotonic() - _DELAY_SECONDS
    line = display(HTML(notebook_line(what, 0.0, (0, 0))), display_id=True)
    while not done.wait(_POLL_SECONDS):
        line.update(HTML(notebook_line(what, time.monotonic() - start, count() if count else (0, 0))))
    line.update(HTML(""))


def notebook_line(what: str, seconds: float, tasks: tuple[int, int]) -> str:
    """The line in HTML.

    >>> notebook_line("loading a<b", 3.2, (8, 2))
    'loading a&lt;b <progress value="2" max="8"></progress> 2/8 tasks, 3 s'
    >>> notebook_line("starting Spark", 12.0, (0, 0))
    'starting Spark <progress></progress> 12 s'
    """
    total, completed = tasks
    bar = f' value="{completed}" max="{total}"' if total else ""
    counted = f"{completed}/{total} tasks, " if total else ""
    return f"{html.escape(what)} <progress{bar}></progress> {counted}{seconds:.0f} s"
