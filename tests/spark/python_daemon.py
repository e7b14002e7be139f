"""Spark's daemon for Python tasks, which imports what tasks need once, before it forks a process for each.

Spark's own daemon imports nothing, so that every process imports pandas and Arrow, and loads kernels if its task loads
rows: more than a second of processor time. `spark.python.daemon.module` names this module instead.
"""

from __future__ import annotations

import pandas
import pyarrow.compute
import pyspark.worker
from pyspark.daemon import manager

import ikebana.spark.loading
from ikebana import kernels

__all__ = ["ikebana", "pandas", "pyarrow", "pyspark"]

if __name__ == "__main__":
    kernels.load()
    manager()
