"""A first query for a Spark that has just been started, which runs while the workers start.

Spark's first query with Python tasks takes seconds: Java loads and compiles what plans and runs it, and the daemon of
the tasks starts (`ikebana.spark.task_daemon`). Workers take as long to start, and the processor is not busy all that
time. With this query, `connect` takes up to two seconds longer, and the first load or read three seconds less.

It reads nothing and has no effect. If it fails, for whatever reason, so would the user's own query, which reports it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession


def begin(spark: SparkSession) -> threading.Thread:
    """Run the query in a thread of its own."""
    thread = threading.Thread(target=_run, args=(spark,), name="ikebana first query", daemon=True)
    thread.start()
    return thread


def _run(spark: SparkSession) -> None:
    with suppress(Exception):
        spark.range(0, 1, 1, 1).selectExpr("id", "concat('a', id) AS name").mapInArrow(
            _same, "id LONG, name STRING"
        ).collect()


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    return batches
