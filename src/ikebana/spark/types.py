"""Schemas as users of Spark have them, and as tables have them: Arrow fields.

A schema may be given as a Spark `StructType` or DDL text, an Arrow schema, a mapping of names to Arrow types, or
anything that has a schema (a DataFrame, an Arrow table). What may be null follows from it; key columns never are.

Timestamps with a time zone are points in time, whichever zone a session shows them in: tables keep them in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ikebana.errors import SchemaError
from ikebana.operators.changes import Fields


def fields_of(schema: Any, key: Sequence[str] = ()) -> Fields:
    """The Arrow fields of a schema, however it is given; those of the key are never null.

    >>> from pyspark.sql.types import LongType, StringType
    >>> fields_of(StructType().add("id", LongType()).add("name", StringType()), key=["id"])
    (pyarrow.Field<id: int64 not null>, pyarrow.Field<name: string>)
    """
    fields = [_field(each) for each in _arrow_schema(schema)]
    names = [field.name for field in fields]
    for name in key:
        if name not in names:
            raise SchemaError(f"there is no key column {name!r}", detail=f"the columns are {', '.join(names)}")
    return tuple(field.with_nullable(field.nullable and field.name not in key) for field in fields)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark means by its own."""
    return to_arrow_schema(schema, timezone="UTC")


def spark_schema(fields: Iterable[pa.Field]) -> StructType:
    """The Spark schema of some Arrow fields."""
    return from_arrow_schema(pa.schema(list(fields)), prefer_timestamp_ntz=True)


def _arrow_schema(schema: Any) -> pa.Schema:
    if isinstance(schema, str):
        schema = StructType.fromDDL(schema)
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


def _field(field: pa.Field) -> pa.Field:
    """A field as tables have it, without what does not matter."""
    kind = field.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        kind = pa.timestamp(kind.unit, "UTC")
    return pa.field(field.name, kind, nullable=field.nullable)
