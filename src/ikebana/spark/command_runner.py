"""Runs the SQL statements of a session (`ikebana.spark.commands`) with the methods that the session has for them.

INSERT and DELETE compute their rows as DataFrames and load them, so no rows pass through the driver. What is inserted
is converted to the types of the table's columns as Spark's INSERT does it: numbers to other numbers, if ANSI mode can
check that they fit, and anything to strings. Other conversions have to be written as a CAST.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    DataType,
    NullType,
    NumericType,
    StringType,
    StructField,
    StructType,
)

from ikebana.errors import SchemaError
from ikebana.spark import commands
from ikebana.spark.commands import Command
from ikebana.spark.info import TableInfo, ViewInfo
from ikebana.spark.naming import quote

if TYPE_CHECKING:
    from ikebana.spark.session import Session
    from ikebana.spark.table import Table

_ANSI = "spark.sql.ansi.enabled"


def run_command(session: Session, command: Command) -> DataFrame:
    """Run a statement; returns its answer, or a DataFrame without rows and columns."""
    match command:
        case commands.Query(text):
            return session._frames.answer(text)
        case commands.Explain(query):
            lines = [(line,) for line in session.explain(query).splitlines()]
            return _frame(session, lines, _text_columns("plan"))
        case commands.Show("tables"):
            return _frame(session, map(_table_row, session.tables()), _text_columns("name", "kind", lists=_TABLE_LISTS))
        case commands.Show():
            return _frame(
                session, map(_view_row, session.views()), _text_columns("name", "state", "reason", lists=("columns",))
            )
        case commands.CreateView(name, query, replace, if_not_exists):
            if not (if_not_exists and session.has(name)):
                session.view(name, query, replace=replace)
        case commands.CreateTable(name, columns, key, if_not_exists):
            if not (if_not_exists and session.has(name)):
                session.create_table(name, columns, key)
        case commands.Insert(name, columns, query):
            _insert(session.table(name), columns, session._frames.answer(query))
        case commands.Delete(name, condition):
            _delete(session, session.table(name), condition)
        case commands.Drop("table", name, if_exists, cascade):
            session.drop_table(name, if_exists=if_exists, cascade=cascade)
        case commands.Drop(_, name, if_exists):
            session.drop_view(name, if_exists=if_exists)
    return _frame(session, [], StructType())


# Changes.


def _insert(table: Table, columns: Sequence[str], rows: DataFrame) -> None:
    """Insert the rows of a query, whose columns are in the order of `columns`, or else of the table's."""
    unknown = [name for name in columns if name not in table.columns]
    if unknown:
        raise SchemaError(
            f"there is no column {unknown[0]!r} in table {table.name!r}",
            detail=f"the columns are {', '.join(table.columns)}",
        )
    names = list(columns) or table.columns
    if len(rows.columns) != len(names) or len(set(names)) < len(names):
        raise SchemaError(
            f"the rows do not fit table {table.name!r}",
            detail=f"they have {len(rows.columns)} columns, for {', '.join(names)}",
            hint="give a value for each column, or list the columns after the name of the table",
        )
    given = dict(zip(names, rows.schema, strict=True))
    numbered = rows.toDF(*(f"c{at}" for at in range(len(names))))
    is_ansi = str(rows.sparkSession.conf.get(_ANSI)).lower() == "true"
    positions = {name: f"c{at}" for at, name in enumerate(names)}
    converted = [
        _converted(F.col(positions[field.name]), given[field.name].dataType, field.dataType, is_ansi).alias(field.name)
        if field.name in given
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in table.schema
    ]
    table.load(numbered.select(*converted))


def _converted(column: Column, given: DataType, wanted: DataType, is_ansi: bool) -> Column:
    """A column with the type of the table's, where Spark's INSERT converts it; else as it is."""
    are_numbers = isinstance(given, NumericType) and isinstance(wanted, NumericType)
    to_text = isinstance(given, AtomicType) and isinstance(wanted, StringType)
    if isinstance(given, NullType) or to_text or (are_numbers and is_ansi):
        return column.cast(wanted)
    return column


def _delete(session: Session, table: Table, condition: str) -> None:
    table._check_readable()
    rows = session._frames.answer(commands.select_rows(table.name, condition))
    table.load(rows.select(*map(quote, table.key)) if table.key else rows, "delete")


# Answers.

_TABLE_LISTS = ("key", "columns")


def _table_row(info: TableInfo) -> tuple[Any, ...]:
    return info.name, info.kind, list(info.key), list(info.columns)


def _view_row(info: ViewInfo) -> tuple[Any, ...]:
    return info.name, info.state, info.reason, list(info.columns)


def _text_columns(*names: str, lists: Sequence[str] = ()) -> StructType:
    """Columns of strings, and then of lists of strings."""
    fields = [StructField(name, StringType(), nullable=False) for name in names]
    return StructType([*fields, *(StructField(name, ArrayType(StringType()), nullable=False) for name in lists)])


def _frame(session: Session, rows: Iterable[tuple[Any, ...]], schema: StructType) -> DataFrame:
    return session.spark.createDataFrame(list(rows), schema)
