"""Loading: from Spark's partitions straight to the workers that own the rows. Nothing passes through the driver.

A job with one task for each partition of a DataFrame. A task splits its rows by owner and stages them there, as a
guest (`ikebana.cluster.client`). What it returns to the driver is only what it has staged: a task that Spark
runs twice, or that fails halfway, leaves staged rows that are in no such report, and so never count.

Rows are not shuffled by Spark first: splitting a batch by owner costs less than Spark's shuffle would, and workers sort
what they get anyhow. (The design had it the other way round; see docs/decisions.)

Faults. What a table or a worker refuses comes back in the report, as the parts of an error: trying again would not
help, and Spark need not know. Anything else (a source that cannot be read, a user's function that raises) fails the
job, after as many attempts as Spark is set to make, and is raised as a `DataflowError` with what Spark says.

Cost: Spark hands rows to Python in Arrow batches of some thousand rows; they are staged `CHUNK` rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ikebana import errors
from ikebana.cluster.client import Client, ClientCredentials
from ikebana.encoding.columns import matched
from ikebana.encoding.structs import has_structs
from ikebana.errors import DataflowError, IkebanaError, SchemaError
from ikebana.runtime.messages import TableSpec
from ikebana.runtime.staging import stages
from ikebana.spark.errors import spark_error_summary
from ikebana.spark.naming import quote
from ikebana.spark.types import fields_of

CHUNK = 1 << 18
"""Rows that are staged at a time."""

OP = "ikebana op"
"""The column that has what is to be done with a row, where that is not the same for all."""

Parts = tuple[tuple[Any, int], ...]
"""What was staged: parts and the attempt at each that counts, in the order of partitions."""

_REPORT = (
    "partition INT, attempt BIGINT, chunks INT, `rows` BIGINT, kind STRING, what STRING, detail STRING, hint STRING"
)
"""What a task returns: what it has staged, or an error in its parts."""


@dataclass(frozen=True)
class Sender:
    """What each task does: stage the rows of its partition."""

    invitation: ClientCredentials
    table: TableSpec
    transaction: int
    op: str | None  # for all rows; else a column says
    columns: tuple[str, ...]  # of the rows, in order
    chunk: int = field(default_factory=lambda: CHUNK)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.taskAttemptId()
        chunks = rows = 0
        failure: IkebanaError | None = None
        try:
            with Client(self.invitation) as guest:
                for chunk in _chunks(batches, self.chunk):
                    self._stage(guest, chunk, (partition, chunks), attempt)
                    chunks, rows = chunks + 1, rows + len(chunk)
        except IkebanaError as error:
            failure = error
        yield _report(partition, attempt, chunks, rows, failure)

    def _stage(self, guest: Client, chunk: pa.Table, part: tuple[int, int], attempt: int) -> None:
        named = chunk.rename_columns(list(self.columns))
        op: Any = self.op or named[OP]
        data = named if self.op else named.drop_columns([OP])
        staged = stages(
            self.table,
            data,
            op,
            transaction=self.transaction,
            part=part,
            attempt=attempt,
            workers=guest.size,
            near=part[0],
        )
        for worker, stage in staged:
            guest.send(worker, stage)


def _report(partition: int, attempt: int, chunks: int, rows: int, failure: IkebanaError | None) -> pa.RecordBatch:
    told = (type(failure).__name__, failure.what, failure.detail, failure.hint) if failure else (None,) * 4
    values = (partition, attempt, chunks, rows, *told)
    kinds = (pa.int32(), pa.int64(), pa.int32(), pa.int64(), *[pa.string()] * 4)
    names = ("partition", "attempt", "chunks", "rows", "kind", "what", "detail", "hint")
    return pa.RecordBatch.from_arrays([pa.array([v], k) for v, k in zip(values, kinds, strict=True)], names=names)


def _chunks(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """The batches, some of them as one table."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        if rows >= size:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)


def stage_frame(df: DataFrame, sender: Sender, run: Callable[[Callable[[], Any]], Any]) -> tuple[Parts, int]:
    """Run the job that stages a DataFrame's rows; `run` runs it. Returns what was staged, and how many rows."""
    try:
        plain = df.toDF(*(f"c{at}" for at in range(len(df.columns))))  # mapInArrow takes names for paths
        reports = run(lambda: plain.mapInArrow(sender, _REPORT).collect())
    except (PySparkException, Py4JError) as error:
        raise DataflowError(
            f"the rows for table {sender.table.name!r} could not be computed",
            detail=spark_error_summary(error),
            hint="nothing of them was applied; mend the DataFrame and try again",
        ) from error
    for report in reports:
        if report.kind:
            raise getattr(errors, report.kind)(report.what, detail=report.detail, hint=report.hint)
    ordered = sorted(reports, key=lambda report: report.partition)
    parts = tuple(((r.partition, chunk), r.attempt) for r in ordered for chunk in range(r.chunks))
    return parts, sum(report.rows for report in ordered)


def check_columns(df: DataFrame, table: TableSpec, op: str | None) -> DataFrame:
    """A DataFrame with the columns that a table takes; raises if any is missing, unknown or of another type.

    Where rows are deleted by key, other columns of the table may be there and do not count.
    """
    names = [name for name in df.columns if name != OP]
    fields = table.key if op == "delete" and table.kind == "keyed" else table.fields
    known = [each.name for each in table.fields]
    problems = {
        "missing": [each.name for each in fields if each.name not in names],
        "unknown": [name for name in names if name not in known],
        "more than once": [name for name in dict.fromkeys(names) if names.count(name) > 1],
    }
    if any(problems.values()):
        raise SchemaError(
            f"the DataFrame does not have the columns of table {table.name!r}",
            detail="; ".join(f"{what}: {', '.join(map(repr, names))}" for what, names in problems.items() if names),
            hint=f"select exactly the columns {', '.join(repr(f.name) for f in fields)}",
        )
    for each in fields:
        _check_type(df, each, table.name)
    return df.select(*(quote(f.name) for f in fields), *([quote(OP)] if op is None else []))


def _check_type(df: DataFrame, wanted: pa.Field, table: str) -> None:
    """Raise unless a column is of the table's type, or of one that widens to it without loss."""
    (given,) = fields_of(StructType([df.schema[wanted.name]]))
    types = f"it is of type {given.type}, the table has {wanted.type}"
    try:
        matched({wanted.name: pa.array([], given.type)}, [wanted])
    except IkebanaError as error:
        raise SchemaError(
            f"column {wanted.name!r} of the DataFrame does not fit table {table!r}",
            detail=error.detail if has_structs(wanted.type) else types,
            hint=error.hint,
        ) from None
