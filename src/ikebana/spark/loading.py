"""Loading: Spark's tasks send the rows of a DataFrame directly to the workers that own them.

A job with one task for each partition of the DataFrame. A task splits its rows by owner and stages them there, as a
client of the workers (`ikebana.cluster.client`). It returns a report of what it has staged to the driver; no rows pass
through the driver. A task that Spark repeats, or that fails halfway, leaves staged rows that no report mentions, and
which are never applied.

Rows are not shuffled by Spark first: splitting a batch by owner costs less than Spark's shuffle, and workers sort the
rows they receive in any case (see docs/decisions).

Errors. If a table or a worker refuses rows, the report carries the error: a retry would not help, and Spark does not
learn of it. Any other error (a source that cannot be read, a user's function that raises) fails the job, after the
attempts for which Spark is configured, and is raised as a `DataflowError`.

A DataFrame that is nothing but columns of Parquet files is not evaluated by Spark: the tasks read the files with Arrow
(`ikebana.spark.parquet_scans`).

Cost: Spark passes rows to Python in Arrow batches of a few thousand rows, which takes two thirds of a load; Arrow reads
Parquet files in a fifth of that. Rows are staged `CHUNK_ROWS` at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import StructType

from ikebana import errors
from ikebana.cluster.client import Client
from ikebana.cluster.client_keys import ClientCredentials, IssuedKeys
from ikebana.cluster.protocol import Grant
from ikebana.encoding import Schema
from ikebana.encoding.columns import match_columns
from ikebana.encoding.structs import has_structs
from ikebana.errors import DataflowError, IkebanaError, SchemaError
from ikebana.runtime.messages import TableSpec
from ikebana.runtime.staging import owners, stages
from ikebana.spark.errors import spark_error_summary
from ikebana.spark.naming import quote
from ikebana.spark.parquet_scans import ParquetScan, parquet_scan
from ikebana.spark.types import fields_of

CHUNK_ROWS = 1 << 18
"""How many rows are staged at a time."""

LOAD_SECONDS = 24 * 3600.0
"""How long a load may take."""

OP = "ikebana op"
"""The name of the column with the op of each row, if not all rows have the same op."""

Parts = tuple[tuple[Any, int], ...]
"""The staged parts, each with the attempt that counts, in the order of partitions."""

JobRunner = Callable[[Callable[[], list[Row]]], list[Row]]
"""Runs a Spark job and returns its result."""

_REPORT_SCHEMA = (
    "partition INT, attempt BIGINT, chunks INT, `rows` BIGINT, kind STRING, what STRING, detail STRING, hint STRING"
)
_REPORT_COLUMNS = ("partition", "attempt", "chunks", "rows", "kind", "what", "detail", "hint")
"""The columns of a `TaskReport`; the last four are those of the error."""


@dataclasses.dataclass(slots=True)
class TaskReport:
    """What a task has staged: a number of chunks with a number of rows; and the error that it has met, if any."""

    partition: int
    attempt: int
    chunks: int = 0
    rows: int = 0
    failure: IkebanaError | None = None

    def to_batch(self) -> pa.RecordBatch:
        """The report as a row with the columns of `_REPORT_SCHEMA`."""
        failure = self.failure
        error = (type(failure).__name__, failure.what, failure.detail, failure.hint) if failure else (None,) * 4
        values = (self.partition, self.attempt, self.chunks, self.rows, *error)
        kinds = (pa.int32(), pa.int64(), pa.int32(), pa.int64(), *[pa.string()] * 4)
        arrays = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=_REPORT_COLUMNS)

    @classmethod
    def of(cls, row: Row) -> TaskReport:
        """The report in a row."""
        failure = getattr(errors, row.kind)(row.what, detail=row.detail, hint=row.hint) if row.kind else None
        return cls(row.partition, row.attempt, row.chunks, row.rows, failure)


@dataclasses.dataclass(frozen=True)
class RowSender:
    """The function of each task: it stages the rows of its partition."""

    credentials: ClientCredentials
    table: TableSpec
    transaction: int
    op: str | None  # of all rows; None if the column `OP` has it
    columns: tuple[str, ...]  # in the order in which Spark passes them
    chunk: int = dataclasses.field(default_factory=lambda: CHUNK_ROWS)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield self.send(batches).to_batch()

    def send(self, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """Stage the rows; the report has the error if a table or worker refuses them."""
        context = TaskContext.get()
        assert context is not None
        report = TaskReport(context.partitionId(), context.taskAttemptId())
        try:
            with Client(self.credentials) as client:
                for chunk in _chunks(batches, self.chunk):
                    self._stage(client, chunk, (report.partition, report.chunks), report.attempt)
                    report.chunks, report.rows = report.chunks + 1, report.rows + len(chunk)
        except IkebanaError as error:
            report.failure = error
        return report

    def _stage(self, client: Client, chunk: pa.Table, part: tuple[int, int], attempt: int) -> None:
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
            workers=client.size,
            stream_worker=part[0],
        )
        for worker, stage in staged:
            client.send(worker, stage)


@dataclasses.dataclass(frozen=True)
class ScanSender:
    """The function of each task of a scan of Parquet files: it reads its pieces of the files, and stages the rows."""

    scan: ParquetScan
    sender: RowSender

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """`batches` hold the number of the task."""
        tasks = (number for batch in batches for number in batch.column(0).to_pylist())
        return self.sender(batch for task in tasks for batch in self.scan.batches(task))


def _chunks(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Consecutive batches as tables of at least `size` rows, except the last one."""
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        pending.append(batch)
        rows += len(batch)
        if rows >= size:
            yield pa.Table.from_batches(pending)
            pending, rows = [], 0
    if rows:
        yield pa.Table.from_batches(pending)


def load_kernels() -> None:
    """Load the kernels that tasks call to split rows by owner."""
    owners(Schema(key={"key": pa.string()}, val={}), [pa.array([""])], 2)


@contextmanager
def load_key(keys: IssuedKeys, transaction: int, table: str) -> Iterator[ClientCredentials]:
    """A key for the tasks of a job that stages rows for a table; it is useless when the job has ended."""
    credentials = keys.issue(Grant(LOAD_SECONDS, stages=((transaction, table),)))
    try:
        yield credentials
    finally:
        with suppress(IkebanaError):  # the workers have ended
            keys.revoke(credentials.keys.public)


def stage_frame(df: DataFrame, sender: RowSender, run: JobRunner) -> tuple[Parts, int]:
    """Run the job that stages a DataFrame's rows. Returns the staged parts and the number of rows."""
    try:
        reports = run(lambda: _staged(df, sender).collect())
    except (PySparkException, Py4JError) as error:
        raise DataflowError(
            f"the rows for table {sender.table.name!r} could not be computed",
            detail=spark_error_summary(error),
            hint="no rows were applied; fix the DataFrame and try again",
        ) from error
    return staged_parts(map(TaskReport.of, reports))


def staged_parts(reports: Iterable[TaskReport]) -> tuple[Parts, int]:
    """The parts that tasks have staged, in the order of partitions, and their rows; raises if rows were refused."""
    ordered = sorted(reports, key=lambda report: report.partition)
    for report in ordered:
        if report.failure is not None:
            raise report.failure
    parts = tuple(((r.partition, chunk), r.attempt) for r in ordered for chunk in range(r.chunks))
    return parts, sum(report.rows for report in ordered)


def _staged(df: DataFrame, sender: RowSender) -> DataFrame:
    """The reports of the tasks that stage the rows of a DataFrame."""
    scan = parquet_scan(df)
    if scan is not None:
        tasks = df.sparkSession.range(0, len(scan.tasks), 1, max(1, len(scan.tasks)))
        return tasks.mapInArrow(ScanSender(scan, sender), _REPORT_SCHEMA)
    renamed = df.toDF(*(f"c{at}" for at in range(len(df.columns))))  # mapInArrow would parse other names as paths
    return renamed.mapInArrow(sender, _REPORT_SCHEMA)


def check_columns(df: DataFrame, table: TableSpec, op: str | None) -> DataFrame:
    """The columns of a DataFrame that a table needs; raises if one is missing, unknown or of another type.

    To delete rows by key only the key columns are needed; other columns of the table are ignored.
    """
    names = check_schema(df.schema, table, op)
    return df.select(*map(quote, names), *([quote(OP)] if op is None else []))


def check_schema(schema: StructType, table: TableSpec, op: str | None) -> list[str]:
    """The columns of rows with a schema that a table needs; see `check_columns`."""
    names = [name for name in schema.names if name != OP]
    fields = table.key if op == "delete" and table.kind == "keyed" else table.fields
    known = [field.name for field in table.fields]
    problems = {
        "missing": [field.name for field in fields if field.name not in names],
        "unknown": [name for name in names if name not in known],
        "duplicate": [name for name in dict.fromkeys(names) if names.count(name) > 1],
    }
    if any(problems.values()):
        raise SchemaError(
            f"the DataFrame does not have the columns of table {table.name!r}",
            detail="; ".join(f"{what}: {', '.join(map(repr, names))}" for what, names in problems.items() if names),
            hint=f"select exactly the columns {', '.join(repr(field.name) for field in fields)}",
        )
    for field in fields:
        _check_type(schema, field, table.name)
    return [field.name for field in fields]


def _check_type(schema: StructType, field: pa.Field, table: str) -> None:
    """Raise unless a column has the table's type, or a type that can be converted to it without loss."""
    (given,) = fields_of(StructType([schema[field.name]]))
    types = f"it is of type {given.type}, the table has {field.type}"
    try:
        match_columns({field.name: pa.array([], given.type)}, [field])
    except IkebanaError as error:
        raise SchemaError(
            f"column {field.name!r} of the DataFrame does not fit table {table!r}",
            detail=error.detail if has_structs(field.type) else types,
            hint=error.hint,
        ) from None
