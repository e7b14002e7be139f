"""Spark's daemon for Python tasks, which imports what tasks need once, before it forks a process for each.

Spark's own daemon imports nothing, so that every process imports pandas and Arrow, and loads kernels if its task loads
rows: more than a second of processor time. `spark.python.daemon.module` names this module instead. For the same reason,
a worker is a fork of its task's process (`tests.forked_workers`). That tasks start interpreters is tested with Spark's
own daemon, by the demo and in some of the scripts of `tests.spark.drivers`.
"""

from __future__ import annotations

import subprocess
from typing import Any

import pandas
import pyarrow.compute
import pyspark.worker
from pyspark.daemon import manager

import ikebana.cluster.worker_process
import ikebana.spark.loading
from ikebana import kernels
from ikebana.cluster.launch import WORKER_MODULE
from tests.forked_workers import fork_worker

__all__ = ["ikebana", "pandas", "pyarrow", "pyspark"]


class ForkingPopen(subprocess.Popen[bytes]):
    """Forks workers, and starts all other programs."""

    def __new__(cls, command: list[str], **options: Any) -> Any:
        if command[1:] == ["-P", "-m", WORKER_MODULE]:
            return fork_worker(options["env"])
        return super().__new__(cls)


if __name__ == "__main__":
    kernels.load()
    subprocess.Popen = ForkingPopen  # type: ignore[misc]
    manager()
