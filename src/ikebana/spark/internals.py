"""What Ikebana uses of PySpark that is not public, or differs between PySpark 4.0 and 4.3.

Py4J's objects (`_jvm`, `_jdf`, `_jsparkSession`, `_jsc`) are the same in all of these versions and are used where they
are needed; Catalyst is behind `ikebana.spark.planning.catalyst`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark.sql.datasource as datasource
from pyspark.sql import Row
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType, _parse_datatype_string

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:
    StreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)

__all__ = ["StreamArrowWriter", "arrow_schema_of", "parse_type", "rows_of", "spark_field_of"]

_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
"""The argument for timestamps in UTC; before PySpark 4.1 they are so by default."""


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema, with timestamps in UTC."""
    return to_arrow_schema(schema, **_IN_UTC)


def spark_field_of(field: pa.Field) -> StructField:
    """The Spark field of an Arrow field; a timestamp without a time zone is TIMESTAMP_NTZ."""
    return from_arrow_schema(pa.schema([field]), prefer_timestamp_ntz=True)[0]


def parse_type(text: str) -> DataType:
    """The type that a SQL text names."""
    return _parse_datatype_string(text)


def rows_of(table: pa.Table, schema: StructType) -> Iterable[Row]:
    """The rows of an Arrow table, as Spark has them."""
    return ArrowTableToRowsConversion.convert(table, schema)
