"""Spark's daemon for Python tasks on this machine: it imports what tasks need, before it forks processes for them.

Spark's own daemon imports PySpark alone, so that every process of a task imports pandas, Arrow and ikebana again: more
than a second of processor time each, in as many processes at once as Spark has slots. This module is run in place of
`pyspark.daemon` by `task_python.sh`, and then runs `pyspark.daemon` itself.

Spark starts a daemon for each kind of Python process. Only the one for the tasks of queries imports anything: not the
one for the tasks of RDDs, in which workers start and for which `connect` waits, nor those that plan how a data source
is read, each of which forks one process at most.

Guaranteed: tasks find the modules that they would find with Spark's own daemon, in the same order. A package that
cannot be imported here is left to the task that needs it, which reports the error.

Cost: 1.3 s of processor time, once for each SparkSession, instead of once for each process.

It is run as a file, with `-P`, because the directory of this file must not be on the path.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from contextlib import suppress

MODULES = ("pandas", "pyarrow.compute", "ikebana.spark.readers", "ikebana.spark.writers")
"""What the tasks import that read and write rows, and those that evaluate functions over Arrow columns."""

FOR_QUERIES = "SPARK_SIMPLIFIED_TRACEBACK"
"""A variable that Spark sets for the tasks of queries."""


def preload() -> None:
    """Import the modules that tasks need, and load the kernels by which loading tasks split rows."""
    for module in MODULES:
        with suppress(Exception):
            importlib.import_module(module)
    with suppress(Exception):
        importlib.import_module("ikebana.spark.loading").load_kernels()


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())  # as `python -m pyspark.daemon` does
    if sys.argv[1:] == ["pyspark.worker"] and FOR_QUERIES in os.environ:
        preload()
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
