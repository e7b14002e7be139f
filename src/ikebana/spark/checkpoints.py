"""What a checkpoint of a stream says: which stream it is of, and how many of its micro-batches were taken in.

Structured Streaming goes on after the last micro-batch that its checkpoint has as committed: what came before is not
given again. A table of a new session, or one that was dropped and created again, does not have these rows, so that
following the stream from there would leave them out without a word. `check_resumable` refuses that.

Not guaranteed: anything where the checkpoint cannot be read, or is written to by somebody else at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from ikebana.errors import DataflowError

_LOCATION = "spark.sql.streaming.checkpointLocation"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stream's identity, and the number of its last micro-batch that was committed, -1 if there is none."""

    stream: str
    committed: int


def check_resumable(
    spark: SparkSession, table: str, location: str | None, name: str | None, last: Mapping[str, int]
) -> None:
    """Raise if a checkpoint is of a stream of which the table does not have all that was committed.

    `last` has the last micro-batch of each stream that the table has taken in; `name` is that of the query.
    """
    found = _read(spark, _used(spark, location, name))
    if found is None or found.committed <= last.get(found.stream, -1):
        return
    missing = found.committed - last.get(found.stream, -1)
    raise DataflowError(
        f"table {table!r} cannot go on from the checkpoint of this stream",
        detail=f"{missing} micro-batch{'es' if missing > 1 else ''} that it counts as taken in did not go into this "
        "table of this session, and Spark would not give them again: their rows would be missing",
        hint="follow the stream with a new checkpoint, to take all of it in; or give resume=True, if the table has "
        "these rows from elsewhere or is not to have them",
    )


def _used(spark: SparkSession, location: str | None, name: str | None) -> str | None:
    """Where Spark will look for the checkpoint of a query; None if it will make a new one."""
    if location:
        return location
    base = spark.conf.get(_LOCATION, None)
    return f"{base}/{name}" if base and name else None


def _read(spark: SparkSession, location: str | None) -> Checkpoint | None:
    """What there is at a location; None if nothing is."""
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
        names = [each.getPath().getName() for each in system.listStatus(commits)] if system.exists(commits) else []
    except Py4JJavaError as error:
        raise DataflowError(
            f"cannot read the checkpoint {location!r}", detail=str(error.java_exception), hint="give another one"
        ) from error
    numbers = [int(name) for name in names if name.isdecimal()]
    return Checkpoint(str(json.loads(text)["id"]), max(numbers, default=-1))
