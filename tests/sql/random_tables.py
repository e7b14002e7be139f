"""Random tables, rows and changes, for random queries: small domains, so that rows meet, and nulls all over.

Everything follows from a `random.Random`. Values are such that no query of the grammar fails: numbers are small, and
floating-point numbers have few binary digits, so that their sums do not depend on an order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]

TYPES: dict[str, tuple[str, pa.DataType]] = {
    "int": ("INT", pa.int32()),
    "bigint": ("BIGINT", pa.int64()),
    "decimal": ("DECIMAL(8, 2)", pa.decimal128(8, 2)),
    "string": ("STRING", pa.string()),
    "date": ("DATE", pa.date32()),
    "timestamp": ("TIMESTAMP", pa.timestamp("us", "UTC")),
    "boolean": ("BOOLEAN", pa.bool_()),
    "double": ("DOUBLE", pa.float64()),
}
"""Kinds of columns: as Spark and as Arrow have them."""

LIKELY = {"int": 6, "bigint": 3, "decimal": 4, "string": 5, "date": 3, "timestamp": 2, "boolean": 2, "double": 1}

STRINGS = ("a", "b", "ab", "abc", "B", "", "x_y", "a%b", " a ", "ä")
DATES = (date(2019, 12, 31), date(2020, 1, 31), date(2020, 2, 29), date(2020, 3, 1), date(2021, 1, 1))

VALUES: dict[str, Callable[[random.Random], Any]] = {
    "int": lambda r: r.randint(-2, 6),
    "bigint": lambda r: r.choice([-1, 0, 1, 2, 3, 4, 5, 3_000_000_000]),
    "decimal": lambda r: Decimal(r.choice([-150, 0, 1, 25, 100, 125, 200, 300, 99999])).scaleb(-2),
    "string": lambda r: r.choice(STRINGS),
    "date": lambda r: r.choice(DATES),
    "timestamp": lambda r: datetime(2020, 2, 28, 22, tzinfo=UTC) + r.randint(0, 6) * timedelta(minutes=50),
    "boolean": lambda r: r.random() < 0.5,
    "double": lambda r: r.choice([-1.5, 0.0, 0.25, 0.5, 1.0, 2.0, 3.75]),
}


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    kind: str
    nullable: bool


@dataclass
class Table:
    """A table and its rows; with a key, the first column's, or a bag."""

    name: str
    columns: list[Column]
    keyed: bool
    rows: list[Row] = field(default_factory=list)

    @property
    def ddl(self) -> str:
        """The columns, as in CREATE TABLE."""
        parts = [
            f"{column.name} {TYPES[column.kind][0]}{'' if column.nullable else ' NOT NULL'}" for column in self.columns
        ]
        return ", ".join(parts)

    @property
    def key(self) -> str | None:
        """The key column."""
        return self.columns[0].name if self.keyed else None

    def arrow(self, rows: list[Row] | None = None) -> pa.Table:
        """Some rows, or its own, as Arrow has them."""
        schema = pa.schema([pa.field(column.name, TYPES[column.kind][1], column.nullable) for column in self.columns])
        taken = self.rows if rows is None else rows
        return pa.table(
            [
                pa.array(column, arrow_field.type)
                for column, arrow_field in zip(_turned(taken, schema), schema, strict=True)
            ],
            schema,
        )

    def keys(self, rows: list[Row]) -> pa.Table:
        """The keys of some rows."""
        return self.arrow(rows).select([self.columns[0].name])

    def apply(self, change: Change) -> None:
        """Change the rows."""
        for row in change.deleted:
            if self.keyed:
                self.rows = [old for old in self.rows if old[0] != row[0]]
            else:
                self.rows.remove(row)
        if self.keyed:
            new = {row[0] for row in change.upserted}
            self.rows = [old for old in self.rows if old[0] not in new]
        self.rows = [*self.rows, *change.upserted]
        for row in change.hot[-1:]:
            self.rows = [*(old for old in self.rows if old[0] != row[0]), row]

    def __str__(self) -> str:
        kind = f"key {self.key}" if self.keyed else "bag"
        return "\n".join([f"{self.name}({self.ddl}), {kind}:", *(f"  {row}" for row in self.rows)])


@dataclass(frozen=True)
class Change:
    """What happens to a table: rows deleted (of a keyed table, by their keys), then upserted or, of a bag, inserted."""

    deleted: tuple[Row, ...] = ()
    upserted: tuple[Row, ...] = ()
    hot: tuple[Row, ...] = ()
    """Of a keyed table: values that one key has, one after the other, at last."""


def tables(r: random.Random) -> list[Table]:
    """Two to four tables with rows; the first is keyed."""
    result = [_table(r, at) for at in range(r.randint(2, 4))]
    for table in result:
        table.apply(Change(upserted=_fresh(r, table, r.randint(5, 12))))
    return result


def change(r: random.Random, table: Table) -> Change:
    """A random change: once in a while everything goes."""
    if r.random() < 0.03:
        return Change(deleted=tuple(table.rows))
    deleted = tuple(r.sample(table.rows, min(len(table.rows), r.randint(0, 3))))
    upserted = _fresh(r, table, r.randint(0, 4))
    if table.keyed:
        gone = {row[0] for row in deleted}
        upserted = tuple(row for row in upserted if row[0] not in gone)
    hot = tuple(_hot(r, table) for _ in range(r.randint(2, 8))) if table.keyed and r.random() < 0.4 else ()
    return Change(deleted, upserted, hot)


HOT = 3
"""The key that is changed most often."""


def _hot(r: random.Random, table: Table) -> Row:
    return (HOT, *(_value(r, column) for column in table.columns[1:]))


def _table(r: random.Random, at: int) -> Table:
    keyed = at == 0 or r.random() < 0.4
    columns = [Column(f"k{at}" if keyed else f"a{at}", "int", not keyed)]
    kinds = r.choices(list(LIKELY), list(LIKELY.values()), k=r.randint(2, 5))
    columns += [Column(f"{'bcdefg'[n]}{at}", kind, r.random() < 0.7) for n, kind in enumerate(kinds)]
    return Table(f"t{at}", columns, keyed)


def _fresh(r: random.Random, table: Table, count: int) -> tuple[Row, ...]:
    """New rows, of a keyed table with keys of their own."""
    keys = r.sample(range(-2, 14), count)
    rows = [tuple(_value(r, column) for column in table.columns) for _ in range(count)]
    return tuple((key, *row[1:]) for key, row in zip(keys, rows, strict=True)) if table.keyed else tuple(rows)


def _value(r: random.Random, column: Column) -> Any:
    return None if column.nullable and r.random() < 0.2 else VALUES[column.kind](r)


def _turned(rows: list[Row], schema: pa.Schema) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in schema]
