"""The Python interpreter of Spark's tasks on this machine: this one, which has ikebana installed.

Spark puts `pyspark.zip` first on the path of every Python process that it starts. Nothing that is imported from a zip
has stored bytecode, so each process compiles PySpark again: a second of processor time, several times before the first
answer. Where PySpark is installed beside this interpreter, a script starts the interpreter without the zips, and it
imports the same version from there. The script also replaces Spark's daemon by one that has imported what tasks need
(`ikebana.spark.task_daemon`).

Users who set PYSPARK_PYTHON get what they have set. On clusters nothing is changed: executors have their own Python.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any

import py4j  # type: ignore[import-untyped]
import pyspark

SCRIPT = Path(__file__).with_name("task_python.sh")


def use_this_python(context: Any) -> None:
    """Run tasks with this interpreter, unless the user has set another. `context` is a SparkContext on this machine."""
    if os.environ.get("PYSPARK_PYTHON"):
        return
    context.pythonExec = sys.executable
    if os.access(SCRIPT, os.X_OK) and all(map(_is_installed, (pyspark, py4j))):
        context.environment["IKEBANA_PYTHON"] = sys.executable
        context.pythonExec = str(SCRIPT)


def _is_installed(package: Any) -> bool:
    """Whether this interpreter finds a package without PYTHONPATH."""
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()]
    return str(Path(package.__file__).parents[1]) in folders
