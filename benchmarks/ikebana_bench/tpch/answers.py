"""Spark's own batch answers, and how the rows of a view compare with them.

Rows are compared as bags: a view has no order. Names and types of columns, decimals and everything else must be the
same; floating-point numbers may differ by a billionth, since their sums depend on the order of summation. Elements of
arrays come in any order, as in `collect_set`.

Under a LIMIT rows that tie may or may not be among the first: any choice of them is right. `Top` says what is: as many
rows as there should be, all of them in the answer without the LIMIT, and sorted as far down as the first of that.

Cost: rows become Python values; meant for answers of thousands of rows, not millions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ikebana_bench.tpch.schemas import query

TOLERANCE = 1e-9
"""How much two floating-point numbers may differ, relative to the larger."""

QUICK = {
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings with which Spark answers over few rows soonest: one task for each stage, and no code to compile."""

LARGE = {
    "spark.sql.autoBroadcastJoinThreshold": -1,
    "spark.sql.adaptive.autoBroadcastJoinThreshold": -1,
}
"""Settings with which Spark answers over many rows in little memory: no table is sent whole to every task."""

Row = tuple[Any, ...]


class Batch:
    """Answers of Spark's own over given tables, in a session of its own: nobody else sees its temporary views."""

    def __init__(self, spark: Any, settings: Mapping[str, Any] = QUICK) -> None:
        self._spark = spark.newSession()
        for name, value in settings.items():
            self._spark.conf.set(name, value)

    def write(self, folder: Path, tables: Mapping[str, pa.Table]) -> None:
        """Answer over these tables from now on, written to Parquet files in `folder` before."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            pq.write_table(table, folder / f"{name}.parquet")
            self.read(name, folder / f"{name}.parquet")

    def read(self, name: str, path: Path) -> None:
        """Answer over this table from now on: a Parquet file, or a folder of them."""
        self._spark.read.parquet(str(path)).createOrReplaceTempView(name)

    def show(self, name: str, table: pa.Table, schema: Any) -> None:
        """Answer over this table from now on; it has few rows, and a schema as Spark has it."""
        self._spark.createDataFrame(table, schema=schema).createOrReplaceTempView(name)

    def drop(self, name: str) -> None:
        """Forget a table."""
        self._spark.catalog.dropTempView(name)

    def answer(self, text: str) -> pa.Table:
        """What Spark answers."""
        return self._spark.sql(text).toArrow()

    def columns(self, text: str) -> list[str]:
        """The columns that Spark would answer with; it raises if it does not accept the query."""
        return list(self._spark.sql(text).columns)


@dataclass(frozen=True)
class Top:
    """A query with ORDER BY and LIMIT, taken apart."""

    unlimited: str
    by: tuple[str, ...]
    limit: int

    @staticmethod
    def of(text: str) -> Top | None:
        """The parts of a query that ends in `order by COLUMNS limit NUMBER`; None for another."""
        found = re.fullmatch(r"(.*\border by\s+([\w\s,]+?))\s+limit\s+(\d+)\s*", text, re.DOTALL | re.IGNORECASE)
        if found is None:
            return None
        by = [re.sub(r"\s+(asc|desc)$", "", each.strip(), flags=re.IGNORECASE) for each in found[2].split(",")]
        return Top(found[1], tuple(by), int(found[3]))

    def difference(self, found: pa.Table, unlimited: pa.Table) -> str:
        """What is wrong with rows that should be the first of the sorted answer without the LIMIT."""
        if columns := _columns_difference(found, unlimited):
            return columns
        first = unlimited.slice(0, self.limit)
        if found.num_rows != first.num_rows:
            return f"{found.num_rows} rows in place of {first.num_rows}"
        if sorting := difference(found.select(self.by), first.select(self.by)):
            return f"as sorted by {', '.join(self.by)}: {sorting}"
        return _missing(found, unlimited)


def expected(batch: Batch, number: int) -> pa.Table:
    """Spark's answer to one of the 22, without its LIMIT."""
    top = Top.of(query(number))
    return batch.answer(top.unlimited if top else query(number))


def wrong(number: int, found: pa.Table, wanted: pa.Table) -> str:
    """What is wrong with an answer to one of the 22, given what `expected` gave; nothing if it is right."""
    top = Top.of(query(number))
    return top.difference(found, wanted) if top else difference(found, wanted)


def difference(found: pa.Table, wanted: pa.Table) -> str:
    """How rows differ from those wanted, in any order; nothing if they do not."""
    if columns := _columns_difference(found, wanted):
        return columns
    ours, theirs = canonical(found), canonical(wanted)
    if len(ours) == len(theirs) and all(map(alike, ours, theirs)):
        return ""
    return _listed(*_unmatched(ours, theirs))


def canonical(table: pa.Table) -> list[Row]:
    """The rows in an order of their own: by all that is exact, then by floating-point numbers."""
    columns = [column.to_pylist() for column in table.columns]
    rows = [tuple(map(_settled, row)) for row in zip(*columns, strict=True)] if columns else []
    inexact = [at for at, kind in enumerate(table.schema.types) if pa.types.is_floating(kind)]
    exact = [at for at in range(table.num_columns) if at not in inexact]
    return sorted(rows, key=lambda row: [_rank(row[at]) for at in (*exact, *inexact)])


def alike(found: Any, wanted: Any) -> bool:
    """Whether two values, or rows of values, are the same as far as they can be."""
    if isinstance(found, float) and isinstance(wanted, float):
        if math.isnan(found) or math.isnan(wanted):
            return math.isnan(found) and math.isnan(wanted)
        return math.isclose(found, wanted, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(found, tuple) and isinstance(wanted, tuple):
        return len(found) == len(wanted) and all(map(alike, found, wanted))
    return type(found) is type(wanted) and bool(found == wanted)


def _settled(value: Any) -> Any:
    """A value with one form: arrays sorted, structs and maps as pairs."""
    if isinstance(value, dict):
        return tuple((name, _settled(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(sorted(map(_settled, value), key=_rank))
    return value


def _rank(value: Any) -> Any:
    """Something that sorts values of one type, null first."""
    if isinstance(value, tuple):
        return (1, [_rank(each) for each in value])
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else round(value, 6))
    return (0,) if value is None else (1, value)


def _columns_difference(found: pa.Table, wanted: pa.Table) -> str:
    ours = [(field.name, _plain(field.type)) for field in found.schema]
    theirs = [(field.name, _plain(field.type)) for field in wanted.schema]
    if ours == theirs:
        return ""
    return f"columns {_named(ours)} in place of {_named(theirs)}"


def _plain(kind: pa.DataType) -> str:
    """A type as Spark knows it: how Arrow lays it out does not matter."""
    return re.sub(r"large_|_view| not null|\b(item|element|list): ", "", str(kind)).replace("tz=UTC", "tz=Etc/UTC")


def _named(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _missing(found: pa.Table, among: pa.Table) -> str:
    """Rows that are not among others."""
    ours, _ = _unmatched(canonical(found), canonical(among))
    return _listed(ours, []) if ours else ""


def _unmatched(ours: Sequence[Row], theirs: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """What each of two sorted lists of rows has that the other has not."""
    by_exact: dict[Row, list[Row]] = {}
    for row in theirs:
        by_exact.setdefault(_exact(row), []).append(row)
    extra = []
    for row in ours:
        candidates = by_exact.get(_exact(row), [])
        match = next((at for at, each in enumerate(candidates) if alike(row, each)), None)
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

    parts = [("rows too many:", list(extra)), ("rows missing:", list(missing))]
    return "\n".join(f"{title}\n{some(rows)}" for title, rows in parts if rows)
