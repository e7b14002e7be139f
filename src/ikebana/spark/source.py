"""The Spark data source "ikebana": tables and views of a session as DataFrames and streams, and tables as sinks.

    spark.read.format("ikebana").load("late orders")              # the rows at the last closed epoch
    spark.read.format("ikebana").option("epoch", 12).load(...)    # at an epoch that is held
    spark.readStream.format("ikebana").option("changes", True).load("late orders")   # with columns `epoch` and `diff`
    ... .option("subscription", "billing")                        # and continues from its checkpoint in later sessions

    df.write.format("ikebana").mode("append").save("orders")      # inserts rows into a table, as one transaction
    stream_df.writeStream.format("ikebana").option("op", "upsert").start("orders")    # each micro-batch is one

Every action on a DataFrame reads the last closed epoch anew, as it would from a file or a database, and sees one epoch
of everything that it reads. For several actions on the same rows, hold an epoch and read at that one.
`ikebana.spark.readers` reads the rows, and `ikebana.spark.snapshot_server` decides at which epoch;
`ikebana.spark.writers` writes rows.

Planning. The columns of a DataFrame that reads the last closed epoch have metadata: the session (`SESSION`), the name
of the table or view (`TABLE`), and which one of that name (`IDENTITY`). A view over the DataFrame recognises the table
by this. A DataFrame of a table that was dropped is refused, even if another table has its name now.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ikebana.encoding.schema import multiplicity_name
from ikebana.engine.columns import unused_name
from ikebana.errors import SchemaError
from ikebana.spark.readers import BatchReader, StreamReader
from ikebana.spark.snapshots import Readable, SessionAddress, SnapshotRequest, WriteRequest
from ikebana.spark.types import arrow_schema, spark_schema
from ikebana.spark.writers import TableWriter, stream_writer
from ikebana.sql.planned import IDENTITY, TABLE

FORMAT = "ikebana"

SESSION = "ikebana.session"
"""The key in a column's metadata of the session that has the table or view."""


def register(spark: SparkSession, address: SessionAddress, name: str = FORMAT) -> None:
    """Register a session's tables and views with Spark, as a data source of this name."""
    spark.dataSource.register(_source(name, address))


def change_schema(readable: Readable) -> StructType:
    """The schema of a stream of changes: the columns of the table or view, then `epoch` and `diff`.

    If the table or view has columns of these names, they are called `epoch_` and `diff_`.
    """
    columns = [field.name for field in readable.fields]
    added = [unused_name("epoch", columns), multiplicity_name(columns)]
    return spark_schema((*readable.fields, *(pa.field(name, pa.int64(), nullable=False) for name in added)))


def frame_schema(readable: Readable, session: str, epoch: int | None) -> StructType:
    """The schema of a DataFrame that reads a table or view, with metadata unless it reads at a given epoch."""
    if epoch is not None:
        return spark_schema(readable.fields)
    return spark_schema(readable.fields, {TABLE: readable.name, IDENTITY: readable.identity, SESSION: session})


def _source(format_name: str, address: SessionAddress) -> type[DataSource]:
    """The data source of one session. Spark pickles the class by value, including the address."""

    class IkebanaDataSource(DataSource):
        """Tables and views of an Ikebana session."""

        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> StructType:
            readable = address.ask(SnapshotRequest("describe", self._name())).readable
            assert readable is not None
            if self._wants_changes():
                return change_schema(readable)
            return frame_schema(readable, address.session, self._epoch())

        def reader(self, schema: StructType) -> DataSourceReader:
            if self._wants_changes():
                raise SchemaError(
                    "the option `changes` is for streams", hint="use spark.readStream, or leave out `changes`"
                )
            identity = next((field.metadata.get(IDENTITY) for field in schema), None)
            request = SnapshotRequest("check", self._name(), self._epoch(), identity=identity)
            return BatchReader(address, request, self._timeout(), arrow_schema(schema))

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            subscription = str(self.options.get("subscription", ""))
            return StreamReader(address, self._name(), self._wants_changes(), arrow_schema(schema), subscription)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return TableWriter(address, self._write(), schema, overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            return stream_writer(address, self._write(), schema, overwrite)

        def _write(self) -> WriteRequest:
            op = self.options.get("op", "insert")
            resume = str(self.options.get("resume", "false")).lower() == "true"
            return WriteRequest("describe", self._name(), op=op, resume=resume)

        def _name(self) -> str:
            name = self.options.get("name") or self.options.get("path")
            if not name:
                raise SchemaError("no table or view given", hint=f'use .format("{format_name}").load("its name")')
            return str(name)

        def _epoch(self) -> int | None:
            epoch = self.options.get("epoch")
            if epoch is not None and not epoch.lstrip("-").isdecimal():
                raise SchemaError(f"the option `epoch` is {epoch!r}", hint="give the number of a closed epoch")
            return None if epoch is None else int(epoch)

        def _timeout(self) -> float | None:
            timeout = self.options.get("timeout")
            try:
                return None if timeout is None else float(timeout)
            except ValueError:
                raise SchemaError(f"the option `timeout` is {timeout!r}", hint="give a number of seconds") from None

        def _wants_changes(self) -> bool:
            return str(self.options.get("changes", "false")).lower() == "true"

    return IkebanaDataSource
