"""Schemas as users of Spark have them, and as tables have them: Arrow fields.

A schema may be given as a Spark `StructType` or DDL text, an Arrow schema, a mapping of names to Arrow types, or
anything that has a schema (a DataFrame, an Arrow table). What may be null follows from it; key columns never are.
Types that Spark does not have, such as unsigned integers, are refused here, and not when somebody reads the table.

Timestamps with a time zone are points in time, whichever zone a session shows them in: tables keep them in UTC.
Spark's CHAR and VARCHAR are strings, whose lengths nobody checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import CharType, StringType, StructField, StructType, VarcharType

from ikebana.errors import SchemaError
from ikebana.operators.changes import Fields
from ikebana.spark.errors import spark_error_summary


def fields_of(schema: Any, key: Sequence[str] = (), *, case_sensitive: bool = False) -> Fields:
    """The Arrow fields of a schema, however it is given; those of the key are never null.

    Names that differ in case alone are refused, unless they are `case_sensitive`.

    >>> from pyspark.sql.types import LongType, StringType
    >>> fields_of(StructType().add("id", LongType()).add("name", StringType()), key=["id"])
    (pyarrow.Field<id: int64 not null>, pyarrow.Field<name: string>)
    """
    fields = [_field(each) for each in _arrow_schema(schema)]
    names = [field.name for field in fields]
    _check_names(names, case_sensitive)
    for name in key:
        if name not in names:
            raise SchemaError(f"there is no key column {name!r}", detail=f"the columns are {', '.join(names)}")
    return tuple(field.with_nullable(field.nullable and field.name not in key) for field in fields)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark means by its own."""
    fields = [_without_length(field) for field in schema]
    try:
        return to_arrow_schema(StructType(fields), timezone="UTC")
    except PySparkException as error:
        raise SchemaError(
            f"the schema {schema.simpleString()} has a type of no use", detail=spark_error_summary(error)
        ) from error


def spark_schema(fields: Iterable[pa.Field], metadata: Mapping[str, Any] | None = None) -> StructType:
    """The Spark schema of some Arrow fields, each with the same metadata."""
    found = [_spark_field(field) for field in fields]
    return StructType([StructField(each.name, each.dataType, each.nullable, dict(metadata or {})) for each in found])


def _spark_field(field: pa.Field) -> StructField:
    try:
        return from_arrow_schema(pa.schema([field]), prefer_timestamp_ntz=True)[0]
    except PySparkException as error:
        raise SchemaError(
            f"column {field.name!r} is of type {field.type}, which Spark does not have",
            hint="declare it with a type that Spark has, for unsigned integers a wider signed one",
        ) from error


def _without_length(field: StructField) -> StructField:
    """A field whose type, if it is of text with a length, is plain text: Arrow knows no other."""
    if not isinstance(field.dataType, CharType | VarcharType):
        return field
    return StructField(field.name, StringType(), field.nullable)


def _check_names(names: Sequence[str], case_sensitive: bool) -> None:
    """Raise if Spark could not tell the columns apart; it does not look at case unless it is told to."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name if case_sensitive else name.lower())
        if other is not None:
            raise SchemaError(
                f"two columns are called {name!r}"
                if other == name
                else f"columns {other!r} and {name!r} are too alike",
                detail="" if other == name else "Spark does not tell names apart by case alone",
                hint="give every column a name of its own, or set spark.sql.caseSensitive to true",
            )
        seen[name if case_sensitive else name.lower()] = name


def _arrow_schema(schema: Any) -> pa.Schema:
    if isinstance(schema, str):
        schema = _of_ddl(schema)
    if isinstance(schema, DataFrame):
        schema = schema.schema
    if isinstance(schema, StructType):
        return arrow_schema(schema)
    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, Mapping):
        return pa.schema([pa.field(name, kind) for name, kind in schema.items()])
    if isinstance(getattr(schema, "schema", None), pa.Schema):
        return schema.schema
    raise SchemaError(
        f"cannot make a table's columns of a {type(schema).__name__}",
        hint="give a Spark StructType or DDL text, an Arrow schema, a DataFrame, or a mapping of names to Arrow types",
    )


def _of_ddl(text: str) -> StructType:
    try:
        found = StructType.fromDDL(text)
    except PySparkException as error:
        raise SchemaError(
            f"cannot read the schema {text!r}",
            detail=spark_error_summary(error),
            hint="write it as in 'id BIGINT, name STRING'",
        ) from error
    if not isinstance(found, StructType):  # the name of a type alone
        raise SchemaError(f"the schema {text!r} names no columns", hint="write it as in 'id BIGINT, name STRING'")
    return found


def _field(field: pa.Field) -> pa.Field:
    """A field as tables have it, without what does not matter."""
    kind = field.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        kind = pa.timestamp(kind.unit, "UTC")
    return pa.field(field.name, kind, nullable=field.nullable)
