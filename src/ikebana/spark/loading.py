"""Loading: from Spark's partitions straight to the workers that own the rows. Nothing passes through the driver.

A job with one task for each partition of a DataFrame. A task splits its rows by owner and stages them there, as a
guest (`ikebana.dataflow.transport.guest`). What it returns to the driver is only what it has staged: a task that Spark
runs twice, or that fails halfway, leaves staged rows that are in no such report, and so never count.

Rows are not shuffled by Spark first: splitting a batch by owner costs less than Spark's shuffle would, and workers sort
what they get anyhow. (The design had it the other way round; see docs/decisions.)

Cost: Spark hands rows to Python in Arrow batches of some thousand rows; they are staged `CHUNK` rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from ikebana.dataflow.messages import TableSpec
from ikebana.dataflow.staging import stages
from ikebana.dataflow.transport.guest import Guest, Invitation
from ikebana.errors import IkebanaError, SchemaError
from ikebana.spark.types import fields_of

CHUNK = 1 << 18
"""Rows that are staged at a time."""

OP = "ikebana op"
"""The column that has what is to be done with a row, where that is not the same for all."""

Parts = tuple[tuple[Any, int], ...]
"""What was staged: parts and the attempt at each that counts, in the order of partitions."""

_REPORT = "partition INT, attempt BIGINT, chunks INT, rows BIGINT, failure STRING"


@dataclass(frozen=True)
class Sender:
    """What each task does: stage the rows of its partition."""

    invitation: Invitation
    table: TableSpec
    transaction: int
    op: str | None  # for all rows; else a column says

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.taskAttemptId()
        chunks = rows = 0
        failure: str | None = None
        try:
            with Guest(self.invitation) as guest:
                for chunk in _chunks(batches):
                    self._stage(guest, chunk, (partition, chunks), attempt)
                    chunks, rows = chunks + 1, rows + len(chunk)
        except SchemaError as error:  # trying again would not help; Spark need not know
            failure = str(error)
        report = {"partition": [partition], "attempt": [attempt], "chunks": [chunks], "rows": [rows]}
        yield pa.RecordBatch.from_pydict({**report, "failure": [failure]}, _REPORT_SCHEMA)

    def _stage(self, guest: Guest, chunk: pa.Table, part: tuple[int, int], attempt: int) -> None:
        op: Any = self.op or chunk[OP]
        data = chunk if self.op else chunk.drop_columns([OP])
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


_REPORT_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("attempt", pa.int64()),
        ("chunks", pa.int32()),
        ("rows", pa.int64()),
        ("failure", pa.string()),
    ]
)


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches, some of them as one table."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        if rows >= CHUNK:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)


def stage_frame(df: DataFrame, sender: Sender, run: Callable[[Callable[[], Any]], Any]) -> tuple[Parts, int]:
    """Run the job that stages a DataFrame's rows; `run` runs it. Returns what was staged, and how many rows."""
    reports = run(lambda: df.mapInArrow(sender, _REPORT).collect())
    failed = [report.failure for report in reports if report.failure]
    if failed:
        what, *rest = failed[0].split("\n")
        lines = {line.strip().partition(": ")[0]: line.strip().partition(": ")[2] for line in rest}
        raise SchemaError(what, detail=lines.get("detail", ""), hint=lines.get("hint", ""))
    ordered = sorted(reports, key=lambda report: report.partition)
    parts = tuple(((r.partition, chunk), r.attempt) for r in ordered for chunk in range(r.chunks))
    return parts, sum(report.rows for report in ordered)


def check_columns(df: DataFrame, table: TableSpec, op: str | None) -> DataFrame:
    """A DataFrame with the columns that a table takes; raises if any is missing, unknown or of another type."""
    given = {field.name: field for field in fields_of(df.schema) if field.name != OP}
    fields = table.key if op == "delete" and table.kind == "keyed" else table.fields
    known = {field.name: field for field in table.fields}
    missing, extra = [f.name for f in fields if f.name not in given], [name for name in given if name not in known]
    if missing or extra:
        told = (("missing", missing), ("unknown", extra))
        raise SchemaError(
            f"the DataFrame does not have the columns of table {table.name!r}",
            detail="; ".join(f"{what}: {', '.join(map(repr, names))}" for what, names in told if names),
            hint=f"select exactly the columns {', '.join(repr(f.name) for f in fields)}",
        )
    for field in fields:
        _check_type(given[field.name], field, table.name)
    return df.select(*(_quoted(f.name) for f in fields), *([_quoted(OP)] if op is None else []))


def _check_type(given: pa.Field, wanted: pa.Field, table: str) -> None:
    """Raise unless a column is of the table's type, or of one that widens to it without loss."""
    from ikebana.trace.columns import matched

    try:
        matched({wanted.name: pa.array([], given.type)}, [wanted])
    except IkebanaError as error:
        raise SchemaError(
            f"column {wanted.name!r} of the DataFrame does not fit table {table!r}",
            detail=f"it is of type {given.type}, the table has {wanted.type}",
            hint=error.hint,
        ) from None


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
