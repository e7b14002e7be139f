"""DataFrames over the tables and views of a session, and the names under which Spark sees them.

Each DataFrame reads from the data source of the session (`ikebana.spark.source`), which has a name of its own; the
format "ikebana" reads from the session that was connected last. `answer` runs a query of Spark over tables and views.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from contextlib import suppress

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ikebana.errors import SchemaError
from ikebana.spark.relations import Relations, check_current
from ikebana.spark.snapshots import SessionAddress
from ikebana.spark.source import FORMAT, frame_schema, register
from ikebana.spark.temporary_views import TemporaryViews, query_frame
from ikebana.sql import SourceTable


class Frames:
    """The DataFrames of one session."""

    def __init__(self, spark: SparkSession, address: SessionAddress, relations: Relations, *, temp_views: bool) -> None:
        self._spark, self._address, self._relations = spark, address, relations
        self._temporary_views = TemporaryViews(spark) if temp_views else None
        self._format, self._lock = "", threading.Lock()

    @property
    def format(self) -> str:
        """The name of the session's own data source, which is registered when it is used for the first time."""
        with self._lock:
            if not self._format:
                name = f"{FORMAT}_{secrets.token_hex(4)}"
                register(self._spark, self._address, name)
                self._format = name
            return self._format

    def become_default(self) -> None:
        """Let the format "ikebana" read from this session."""
        register(self._spark, self._address, FORMAT)

    # DataFrames.

    def frame(self, name: str, at: int | None = None, timeout: float | None = None) -> DataFrame:
        """A DataFrame that reads a table or view. With its schema Spark need not ask for it, which takes a process."""
        options = {"name": name, "epoch": at, "timeout": timeout}
        given = {option: value for option, value in options.items() if value is not None}
        return self._spark.read.format(self.format).schema(self._schema(name, at)).options(**given).load()

    def _schema(self, name: str, at: int | None = None) -> StructType:
        return frame_schema(self._relations.readable(name), self._address.session, at)

    def of_source(self, source: SourceTable) -> DataFrame:
        """A DataFrame that reads a table or view; raises if it is no longer the one of its name."""
        check_current(self._relations, source)
        return self.frame(source.name)

    def answer(self, text: str) -> DataFrame:
        """A query over tables and views of the session as a DataFrame. Their names mean them, whatever Spark knows."""
        visible = self._temporary_views
        hidden = [name for name in self._relations.mentioned(text) if visible is None or not visible.has(name)]
        return query_frame(self._spark, text, {name: self.frame(name) for name in hidden})

    # Names in Spark.

    def show(self, name: str) -> None:
        """Let Spark see a new table or view under its name."""
        if self._temporary_views is not None:
            with suppress(SchemaError):  # a type that Spark does not have: only Arrow can read this view
                self._temporary_views.add(name, self.format, self._schema(name), lambda: self.frame(name))

    def show_again(self, names: Sequence[str]) -> None:
        """Let Spark plan reads anew: it keeps where rows are read from, which is wrong once workers were replaced."""
        for name in names:
            self.hide(name)
            self.show(name)

    def hide(self, name: str) -> None:
        """Remove the name of a table or view that was dropped from Spark."""
        if self._temporary_views is not None:
            self._temporary_views.remove(name)

    def hide_all(self) -> None:
        """Remove all names from Spark."""
        if self._temporary_views is not None:
            self._temporary_views.clear()
