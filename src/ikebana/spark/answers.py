"""Spark's own batch answers, and how the rows of a view differ from them. Tests and benchmarks verify views with these.

Rows are compared as bags, because a view has no order. Names and types of columns must be equal, and so must all
values, except that floating-point numbers may differ by a billionth, since their sums depend on the order of summation.
The elements of arrays may be in any order, as in `collect_set`.

Under a LIMIT, any choice among tied rows is correct. `Top.difference` checks that the answer has the right number of
rows, that all of them are in the answer without the LIMIT, and that their sort columns are those of its first rows.

Cost: rows become Python values, so this is for answers of thousands of rows, not millions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TOLERANCE = 1e-9
"""The largest relative difference of two floating-point numbers that are considered equal."""

QUICK = {
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings with which Spark answers fastest over few rows: one task for each stage, no code generation."""

LARGE = {
    "spark.sql.autoBroadcastJoinThreshold": -1,
    "spark.sql.adaptive.autoBroadcastJoinThreshold": -1,
}
"""Settings with which Spark needs little memory over many rows: no broadcast joins."""

_DIRECTION = r"(\s+(asc|desc))?(\s+nulls\s+(first|last))?$"

Row = tuple[Any, ...]


class SparkAnswers:
    """Spark's answers over given tables, in a session with its own temporary views."""

    def __init__(self, spark: Any, settings: Mapping[str, Any] = QUICK) -> None:
        self._spark = spark.newSession()
        for name, value in settings.items():
            self._spark.conf.set(name, value)

    def write(self, folder: Path, tables: Mapping[str, pa.Table]) -> None:
        """Write tables to Parquet files in `folder`, and use them in later answers."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            pq.write_table(table, folder / f"{name}.parquet")
            self.read(name, folder / f"{name}.parquet")

    def read(self, name: str, path: Path) -> None:
        """Use a Parquet file, or a folder of them, as a table in later answers."""
        self._spark.read.parquet(str(path)).createOrReplaceTempView(name)

    def show(self, name: str, table: pa.Table, schema: Any) -> None:
        """Use a small table with a Spark schema in later answers."""
        self._spark.createDataFrame(table, schema=schema).createOrReplaceTempView(name)

    def drop(self, name: str) -> None:
        """Remove a table."""
        self._spark.catalog.dropTempView(name)

    def answer(self, text: str) -> pa.Table:
        """Spark's answer to a query."""
        return self._spark.sql(text).toArrow()

    def columns(self, text: str) -> list[str]:
        """The names of the answer's columns. Raises if Spark does not accept the query."""
        return list(self._spark.sql(text).columns)


@dataclass(frozen=True)
class Top:
    """A query with ORDER BY and LIMIT, split into its parts."""

    unlimited: str
    by: tuple[str, ...]
    limit: int

    @staticmethod
    def of(text: str) -> Top | None:
        """Split a query that ends in `order by COLUMNS limit NUMBER`; None for other queries."""
        match = re.fullmatch(r"(.*\border by\s+([\w\s,]+?))\s+limit\s+(\d+)\s*", text, re.DOTALL | re.IGNORECASE)
        if match is None:
            return None
        by = [re.sub(_DIRECTION, "", key.strip(), flags=re.IGNORECASE) for key in match[2].split(",")]
        return Top(match[1], tuple(by), int(match[3]))

    def within(self, columns: Sequence[str]) -> Top | None:
        """The same query, whose sort columns have their names among the answer's; None if it does not have them all.

        A sort column may be the number of a column, or be written in another case.
        """
        named = {name.lower(): name for name in columns} | {str(at): name for at, name in enumerate(columns, 1)}
        by = [named.get(key.lower()) for key in self.by]
        return replace(self, by=tuple(filter(None, by))) if all(by) else None

    def difference(self, actual: pa.Table, unlimited: pa.Table) -> str:
        """How an answer differs from the first rows of the answer without the LIMIT; empty if it is correct."""
        if columns := _columns_difference(actual, unlimited):
            return columns
        first = unlimited.slice(0, self.limit)
        if actual.num_rows != first.num_rows:
            return f"{actual.num_rows} rows instead of {first.num_rows}"
        if sorting := difference(actual.select(self.by), first.select(self.by)):
            return f"sort columns {', '.join(self.by)}: {sorting}"
        return _missing(actual, unlimited)


def difference(actual: pa.Table, expected: pa.Table) -> str:
    """How two tables differ as bags of rows; empty if they are equal."""
    if columns := _columns_difference(actual, expected):
        return columns
    actual_rows, expected_rows = canonical(actual), canonical(expected)
    if len(actual_rows) == len(expected_rows) and all(map(is_equal, actual_rows, expected_rows)):
        return ""
    return _listed(*_unmatched(actual_rows, expected_rows))


def canonical(table: pa.Table) -> list[Row]:
    """The rows, sorted by their exact columns, then by their floating-point columns."""
    columns = [column.to_pylist() for column in table.columns]
    rows = [tuple(map(_normalized, row)) for row in zip(*columns, strict=True)] if columns else []
    inexact = [at for at, kind in enumerate(table.schema.types) if pa.types.is_floating(kind)]
    exact = [at for at in range(table.num_columns) if at not in inexact]
    return sorted(rows, key=lambda row: [_rank(row[at]) for at in (*exact, *inexact)])


def is_equal(actual: Any, expected: Any) -> bool:
    """Whether two values, or rows of values, are equal up to the tolerance of floating-point numbers."""
    if isinstance(actual, float) and isinstance(expected, float):
        if math.isnan(actual) or math.isnan(expected):
            return math.isnan(actual) and math.isnan(expected)
        return math.isclose(actual, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(actual, tuple) and isinstance(expected, tuple):
        return len(actual) == len(expected) and all(map(is_equal, actual, expected))
    return type(actual) is type(expected) and bool(actual == expected)


def _normalized(value: Any) -> Any:
    """A hashable form of a value: arrays sorted, structs and maps as pairs."""
    if isinstance(value, dict):
        return tuple((name, _normalized(field)) for name, field in value.items())
    if isinstance(value, list):
        return tuple(sorted(map(_normalized, value), key=_rank))
    return value


def _rank(value: Any) -> Any:
    """A sort key for values of one type, null first."""
    if isinstance(value, tuple):
        return (1, [_rank(element) for element in value])
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else round(value, 6))
    return (0,) if value is None else (1, value)


def _columns_difference(actual: pa.Table, expected: pa.Table) -> str:
    actual_columns = [(field.name, _spark_type(field.type)) for field in actual.schema]
    expected_columns = [(field.name, _spark_type(field.type)) for field in expected.schema]
    if actual_columns == expected_columns:
        return ""
    return f"columns {_named(actual_columns)} instead of {_named(expected_columns)}"


def _spark_type(kind: pa.DataType) -> str:
    """The name of a type without the details of Arrow's layout, which Spark does not have."""
    return re.sub(r"large_|_view| not null|\b(item|element|list): ", "", str(kind)).replace("tz=UTC", "tz=Etc/UTC")


def _named(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _missing(actual: pa.Table, unlimited: pa.Table) -> str:
    """The rows of an answer that are not in the answer without the LIMIT."""
    extra, _ = _unmatched(canonical(actual), canonical(unlimited))
    return _listed(extra, []) if extra else ""


def _unmatched(actual: Sequence[Row], expected: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows that only the first of two sorted lists has, and those that only the second has."""
    by_exact: dict[Row, list[Row]] = {}
    for row in expected:
        by_exact.setdefault(_exact(row), []).append(row)
    extra = []
    for row in actual:
        candidates = by_exact.get(_exact(row), [])
        match = next((at for at, candidate in enumerate(candidates) if is_equal(row, candidate)), None)
        if match is None:
            extra.append(row)
        else:
            candidates.pop(match)
    return extra, [row for rows in by_exact.values() for row in rows]


def _exact(row: Row) -> Row:
    return tuple(None if isinstance(value, float) else value for value in row)


def _listed(extra: Iterable[Row], missing: Iterable[Row], most: int = 5) -> str:
    def some(rows: Sequence[Row]) -> str:
        return "\n".join([*map(str, rows[:most]), *([f"and {len(rows) - most} more"] if len(rows) > most else [])])

    parts = [("unexpected rows:", list(extra)), ("missing rows:", list(missing))]
    return "\n".join(f"{title}\n{some(rows)}" for title, rows in parts if rows)
