"""The checkpoint of a stream: which stream it belongs to, and which micro-batches were committed.

Structured Streaming continues after the last micro-batch that is committed in the checkpoint, and does not deliver
earlier ones again. A table of a new session, or one that was dropped and created again, lacks their rows; following the
stream from there would silently leave them out. `check_resumable` refuses that.

Not guaranteed: anything if the checkpoint cannot be read, or if another process writes to it at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from ikebana.errors import DataflowError

_LOCATION_SETTING = "spark.sql.streaming.checkpointLocation"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The identity of a stream, and the number of its last committed micro-batch, -1 if there is none."""

    stream: str
    committed: int


def check_resumable(
    spark: SparkSession, table: str, location: str | None, name: str | None, last: Mapping[str, int]
) -> None:
    """Raise if a checkpoint has committed micro-batches that were not applied to the table.

    `last` has the last micro-batch of each stream that was applied to the table; `name` is the name of the query.
    """
    checkpoint = _read(spark, _location(spark, location, name))
    if checkpoint is None or checkpoint.committed <= last.get(checkpoint.stream, -1):
        return
    missing = checkpoint.committed - last.get(checkpoint.stream, -1)
    raise DataflowError(
        f"table {table!r} cannot continue from the checkpoint of this stream",
        detail=f"{missing} micro-batch{'es' if missing > 1 else ''} that the checkpoint records as processed "
        f"{'were' if missing > 1 else 'was'} not applied to this table of this session; Spark would not deliver "
        f"{'them' if missing > 1 else 'it'} again, and rows would be missing",
        hint="follow the stream with a new checkpoint, to apply all of it; or give resume=True, if the table has these "
        "rows from another source or does not need them",
    )


def _location(spark: SparkSession, location: str | None, name: str | None) -> str | None:
    """Where Spark will look for the checkpoint of a query; None if it will create a new one."""
    if location:
        return location
    base = spark.conf.get(_LOCATION_SETTING, None)
    return f"{base}/{name}" if base and name else None


def _read(spark: SparkSession, location: str | None) -> Checkpoint | None:
    """The checkpoint at a location; None if there is none."""
    if location is None:
        return None
    jvm: Any = spark.sparkContext._jvm
    try:
        root = jvm.org.apache.hadoop.fs.Path(location)
        system = root.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        metadata, commits = (jvm.org.apache.hadoop.fs.Path(root, name) for name in ("metadata", "commits"))
        if not system.exists(metadata):
            return None
        stream = system.open(metadata)
        try:
            text = str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
        names = [file.getPath().getName() for file in system.listStatus(commits)] if system.exists(commits) else []
    except Py4JJavaError as error:
        raise DataflowError(
            f"cannot read the checkpoint {location!r}", detail=str(error.java_exception), hint="give another location"
        ) from error
    numbers = [int(name) for name in names if name.isdecimal()]
    return Checkpoint(str(json.loads(text)["id"]), max(numbers, default=-1))
