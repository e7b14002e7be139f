"""Plain scans of Parquet files, which Arrow reads in Spark's tasks.

Most loads read columns of Parquet files and nothing else. Spark would convert its own columns to rows, and the rows to
Arrow's columns, which takes two thirds of the processor time of a load. `parquet_scan` recognises such a DataFrame by
its optimised plan, and divides the row groups of its files among tasks; each task reads them with Arrow.

Only scans whose rows are certain to be those that Spark would read are recognised: files of the local file system, in
Spark's own Parquet format, with the columns of the DataFrame under the same names and of the same types, without
partition columns, without options that change how files are read, and without dates in the calendar of old versions of
Spark. `parquet_scan` returns None for everything else, and Spark reads it as before. That includes remote file systems,
for which Arrow would need credentials of its own, and files that cannot be opened, so that errors are Spark's.

Cost: a footer for each file, read by the driver; planning a DataFrame takes Spark tens of milliseconds.

Not guaranteed: that files are read as they were when the DataFrame was created, if they change; Spark does not either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from ikebana.spark.types import fields_of

_FORMAT = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_HARMLESS_OPTIONS = {"path", "paths", "recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter"}
"""Options that determine which files are read, but not how."""

_SETTINGS = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
}
"""What these settings must be for Arrow to read what Spark reads."""

_LEGACY_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Keys of footers of files with dates in the Julian calendar."""

_PLAIN_TYPES = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
"""Types that Arrow reads, if a file was written with them, where Spark knows one type only."""

TASKS_PER_CORE = 2
"""How many tasks a scan has for each core, if there are enough row groups."""

BATCH_ROWS = 1 << 17
"""How many rows a task reads at a time."""


@dataclass(frozen=True)
class Piece:
    """Some row groups of a file."""

    path: str
    row_groups: tuple[int, ...]


@dataclass(frozen=True)
class ParquetScan:
    """Columns of Parquet files, and the pieces of the files that each task reads."""

    columns: tuple[str, ...]
    """The columns of the files, in the order of the DataFrame's columns."""
    types: tuple[pa.DataType, ...]
    tasks: tuple[tuple[Piece, ...], ...]

    def batches(self, task: int) -> Iterator[pa.RecordBatch]:
        """The rows that a task reads; it must be able to open the files."""
        for piece in self.tasks[task]:
            with pq.ParquetFile(piece.path) as file:
                for batch in file.iter_batches(BATCH_ROWS, piece.row_groups, list(self.columns), use_threads=False):
                    typed = zip(self.columns, self.types, strict=True)
                    arrays = [batch[name].cast(kind) for name, kind in typed]  # free of cost for equal types
                    yield pa.RecordBatch.from_arrays(arrays, self.columns)


def parquet_scan(df: DataFrame) -> ParquetScan | None:
    """The scan that returns the rows of a DataFrame; None if it is not a plain scan of Parquet files."""
    relation = _relation(df)
    if relation is None or not _reads_as_arrow_does(df, relation[1]):
        return None
    columns, source = relation
    paths = [_local_path(url) for url in source.location().inputFiles()]
    if not paths or None in paths:
        return None
    expected = [field.type for field in fields_of(df.schema)]
    try:
        groups = [group for path in paths if path for group in _row_groups(path, columns, expected)]
    except (OSError, pa.ArrowException, _NotAsExpected):
        return None
    cores = df.sparkSession.sparkContext.defaultParallelism
    return ParquetScan(columns, tuple(expected), divided(groups, TASKS_PER_CORE * cores))


def _relation(df: DataFrame) -> tuple[tuple[str, ...], Any] | None:
    """The columns of the files that a DataFrame consists of, and Spark's relation of the files."""
    jdf = getattr(df, "_jdf", None)  # not with Spark Connect
    if jdf is None:
        return None
    plan = jdf.queryExecution().optimizedPlan()
    outputs = plan.output()
    if plan.nodeName() == "Project":
        outputs, plan = plan.projectList(), plan.child()
    if _simple_name(plan) != "LogicalRelation":
        return None
    source = plan.relation()
    if _simple_name(source) != "HadoopFsRelation" or source.fileFormat().getClass().getName() != _FORMAT:
        return None
    by_id = {attribute.exprId().id(): attribute.name() for attribute in _elements(plan.output())}
    ids = [_attribute_id(expression) for expression in _elements(outputs)]
    if any(number not in by_id for number in ids):
        return None
    columns = tuple(by_id[number] for number in ids)
    return (columns, source) if len(set(columns)) == len(columns) else None


def _attribute_id(expression: Any) -> int | None:
    """The identifier of the column that an expression is, renamed or not; None for other expressions."""
    if _simple_name(expression) == "Alias":
        expression = expression.child()
    return expression.exprId().id() if _simple_name(expression) == "AttributeReference" else None


def _reads_as_arrow_does(df: DataFrame, source: Any) -> bool:
    """Whether settings, options and partition columns leave the rows as they are in the files."""
    conf, options = df.sparkSession.conf, source.options().keys().mkString("\n").lower().split("\n")
    return (
        source.partitionSchema().isEmpty()
        and set(filter(None, options)) <= _HARMLESS_OPTIONS
        and all(str(conf.get(name, value)).upper() == value.upper() for name, value in _SETTINGS.items())
    )


def _elements(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(at) for at in range(sequence.size())]


def _simple_name(value: Any) -> str:
    return str(value.getClass().getSimpleName())


def _local_path(url: str) -> str | None:
    """The path of a file of the local file system; None for other URLs.

    >>> _local_path("file:///data/a%20b.parquet"), _local_path("hdfs://host/a.parquet")
    ('/data/a b.parquet', None)
    """
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" and not parts.netloc else None


class _NotAsExpected(Exception):
    """A file does not have the columns that Spark expects."""


RowGroup = tuple[str, int, int]
"""A row group: the path of its file, its number there, and its size in bytes."""


def _row_groups(path: str, columns: Sequence[str], expected: Sequence[pa.DataType]) -> list[RowGroup]:
    """The row groups of a file; raises if Arrow would not read the columns in the expected types."""
    with pq.ParquetFile(path) as file:
        schema, footer = file.schema_arrow, file.metadata
        names = schema.names
        for name, kind in zip(columns, expected, strict=True):
            if names.count(name) != 1 or "." in name or not _is_of_type(schema.field(name).type, kind):
                raise _NotAsExpected
        if _has_legacy_calendar(footer.metadata or {}):
            raise _NotAsExpected
        return [(path, at, footer.row_group(at).total_byte_size) for at in range(footer.num_row_groups)]


def _has_legacy_calendar(footer: Mapping[bytes, bytes]) -> bool:
    """Whether dates of a file are, or may be, in the Julian calendar."""
    version = footer.get(b"org.apache.spark.version", b"")
    return version.startswith(b"2.") or any(key in footer for key in _LEGACY_CALENDAR)


def _is_of_type(kind: pa.DataType, expected: pa.DataType) -> bool:
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return _PLAIN_TYPES.get(values, values) == expected


def divided(groups: Iterable[RowGroup], tasks: int) -> tuple[tuple[Piece, ...], ...]:
    """Row groups divided among at most `tasks` tasks of similar size, in the order of the files.

    >>> divided([("a", 0, 10), ("a", 1, 10), ("b", 0, 20)], 2)
    ((Piece(path='a', row_groups=(0, 1)),), (Piece(path='b', row_groups=(0,)),))
    """
    groups = list(groups)
    total = max(1, sum(size for _, _, size in groups))
    by_task: dict[int, dict[str, list[int]]] = {}
    before = 0
    for path, at, size in groups:
        task = (2 * before + size) * tasks // (2 * total)  # the task of the middle of the row group
        task = min(task, tasks - 1)  # an empty row group at the end has its middle there
        by_task.setdefault(task, {}).setdefault(path, []).append(at)
        before += size
    return tuple(
        tuple(Piece(path, tuple(numbers)) for path, numbers in files.items()) for _, files in sorted(by_task.items())
    )
