"""Schemas: those that users of Spark give, and those that tables have, which are Arrow fields.

A schema may be given as a Spark `StructType` or DDL, an Arrow schema, a mapping of names to Arrow types, or anything
that has a schema (a DataFrame, an Arrow table). It determines which columns are nullable; key columns never are. Types
that Spark does not have, such as unsigned integers, are refused when the table is created rather than when it is read.

Timestamps with a time zone are points in time, in whichever zone a session shows them; tables store them in UTC.
CHAR and VARCHAR are strings, whose lengths are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import CharType, DataType, StringType, StructField, StructType, VarcharType

from ikebana.errors import SchemaError
from ikebana.operators.changes import Fields
from ikebana.spark.errors import spark_error_summary
from ikebana.spark.internals import arrow_schema_of, spark_field_of
from ikebana.spark.naming import CASE, quote


def fields_of(schema: Any, key: Sequence[str] = (), *, case_sensitive: bool = False) -> Fields:
    """The Arrow fields of a schema in any of its forms; key columns are not nullable.

    Unless `case_sensitive`, names that differ only in case are refused.

    >>> from pyspark.sql.types import LongType, StringType
    >>> fields_of(StructType().add("id", LongType()).add("name", StringType()), key=["id"])
    (pyarrow.Field<id: int64 not null>, pyarrow.Field<name: string>)
    """
    fields = [_normalized(field) for field in _arrow_schema(schema)]
    names = [field.name for field in fields]
    _check_names(names, case_sensitive)
    for name in key:
        if name not in names:
            raise SchemaError(
                f"the key column {name!r} is not in the schema", detail=f"the columns are {', '.join(names)}"
            )
    return tuple(field.with_nullable(field.nullable and field.name not in key) for field in fields)


def new_field(name: str, kind: str | DataType, names: Sequence[str], *, case_sensitive: bool = False) -> pa.Field:
    """The Arrow field of one more column beside those of `names`. `kind` is a SQL type, or a Spark type."""
    if not isinstance(kind, str | DataType):
        raise SchemaError(
            f"the type of column {name!r} is {kind!r}", hint='give a SQL type such as "BIGINT", or a Spark type'
        )
    schema = f"{quote(name)} {kind}" if isinstance(kind, str) else StructType([StructField(name, kind)])
    (field,) = fields_of(schema)
    _check_names([*names, field.name], case_sensitive)
    spark_schema([field])  # raises if Spark does not have the type
    return field


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema."""
    fields = [_without_length(field) for field in schema]
    try:
        return arrow_schema_of(StructType(fields))
    except PySparkException as error:
        raise SchemaError(
            f"the schema {schema.simpleString()} contains an unsupported type", detail=spark_error_summary(error)
        ) from error


def spark_schema(fields: Iterable[pa.Field], metadata: Mapping[str, Any] | None = None) -> StructType:
    """The Spark schema of Arrow fields, with the same metadata for each."""
    columns = [_spark_field(field) for field in fields]
    return StructType([StructField(c.name, c.dataType, c.nullable, dict(metadata or {})) for c in columns])


def _spark_field(field: pa.Field) -> StructField:
    try:
        return spark_field_of(field)
    except PySparkException as error:
        raise SchemaError(
            f"column {field.name!r} is of type {field.type}, which Spark does not have",
            hint="use a type that Spark has; for an unsigned integer, a wider signed one",
        ) from error


def _without_length(field: StructField) -> StructField:
    """A field with the type STRING in place of CHAR or VARCHAR, which Arrow does not have."""
    if not isinstance(field.dataType, CharType | VarcharType):
        return field
    return StructField(field.name, StringType(), field.nullable)


def _check_names(names: Sequence[str], case_sensitive: bool) -> None:
    """Raise if Spark could not distinguish the columns."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name if case_sensitive else name.lower())
        if other is not None:
            raise SchemaError(
                f"duplicate column {name!r}"
                if other == name
                else f"columns {other!r} and {name!r} differ only in case",
                detail="" if other == name else "column names are not case-sensitive in this SparkSession",
                hint="rename one of them" + ("" if other == name else f", or set {CASE} to true"),
            )
        seen[name if case_sensitive else name.lower()] = name


def _arrow_schema(schema: Any) -> pa.Schema:
    if isinstance(schema, str):
        schema = _parse_ddl(schema)
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
        f"a value of type {type(schema).__name__} is not a schema",
        hint="give a Spark StructType or DDL, an Arrow schema, a DataFrame, or a mapping of names to Arrow types",
    )


def _parse_ddl(text: str) -> StructType:
    try:
        schema = StructType.fromDDL(text)
    except PySparkException as error:
        raise SchemaError(
            f"cannot parse the schema {text!r}",
            detail=spark_error_summary(error),
            hint="write it like 'id BIGINT, name STRING'",
        ) from error
    if not isinstance(schema, StructType):  # the name of a type alone
        raise SchemaError(f"the schema {text!r} has no column names", hint="write it like 'id BIGINT, name STRING'")
    return schema


def _normalized(field: pa.Field) -> pa.Field:
    """A field as tables have it: without metadata, and timestamps in UTC."""
    kind = field.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        kind = pa.timestamp(kind.unit, "UTC")
    return pa.field(field.name, kind, nullable=field.nullable)
