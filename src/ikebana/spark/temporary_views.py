"""Tables and views of a session under their names in Spark: `spark.sql("SELECT * FROM late")`, `spark.table("late")`.

Each is a temporary view of the SparkSession over the data source (`ikebana.spark.source`), so a query reads the rows
directly from the workers, at one epoch. A name that Spark knows already, as a temporary view or a table of the user's,
is left to the user: it would be surprising if `spark.table("orders")` meant something else after
`session.create_table("orders", ...)`. `Session.sql` finds the session's own tables and views in any case.

The first one is created as a user would do it, from a DataFrame. That takes some tens of milliseconds: Spark looks the
data source up, analyses a plan, and runs a command. The further ones are put into Spark's catalogue directly, as copies
of the first with another name, schema and relation (`_Template`).

Cost: about twenty calls of Java for each table and view, 5 ms. `connect(temp_views=False)` saves them.
Not guaranteed: the direct way, where Spark's inner classes are others than expected; then each is created like the
first one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ikebana.spark.errors import query_error, spark_error_summary
from ikebana.spark.naming import quote
from ikebana.spark.planning.catalyst import Catalyst, quietly

log = logging.getLogger("ikebana")

_SPARK_CATALOG = "spark_catalog"


class TemporaryViews:
    """The temporary views of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._lock = spark, threading.Lock()
        self._names: set[str] = set()  # of the tables and views that were added
        self._catalyst = Catalyst(spark)
        self._classes = _Classes(self._catalyst)
        self._state = spark._jsparkSession.sessionState()
        self._catalog = self._state.catalog()
        self._own = self._catalyst.jvm.java.util.IdentityHashMap()  # the entries of Spark's catalogue that were added
        self._template: _Template | None = None
        self._is_direct = True  # until Spark's classes turn out to be others

    def add(self, name: str, format: str, schema: StructType, frame: Callable[[], DataFrame]) -> None:
        """Make a table or view visible, unless Spark knows its name already.

        It has a schema, and is read from a data source with the option `name`, or as `frame()`.
        """
        try:
            with self._lock, self._catalyst.active(self._spark._jsparkSession):
                if not self._exists(name):
                    self._put(name, format, schema, frame)
                    self._own.put(self._catalog.getRawTempView(name).get(), True)
                    self._names.add(name)
        except PySparkException as error:  # a catalogue that cannot be reached
            log.warning("spark.sql does not see %r under its name: %s", name, spark_error_summary(error))

    def _exists(self, name: str) -> bool:
        if self._catalog.getRawTempView(name).isDefined():
            return True
        if self._state.catalogManager().currentCatalog().name() == _SPARK_CATALOG:
            return bool(self._catalog.tableExists(self._classes.identifier(name)))
        return self._spark.catalog.tableExists(quote(name))

    def _put(self, name: str, format: str, schema: StructType, frame: Callable[[], DataFrame]) -> None:
        if self._template is not None and self._is_direct:
            try:
                self._catalog.createTempView(name, self._template.entry(name, format, schema), True)
                return
            except (Py4JError, TypeError, AttributeError) as error:  # another version of Spark
                self._is_direct = False
                log.debug("temporary views are created from DataFrames: %s", error)
        frame().createOrReplaceTempView(quote(name))
        if self._is_direct:
            self._template = _Template(self._spark, self._classes, self._catalog.getRawTempView(name).get())

    def has(self, name: str) -> bool:
        """Whether Spark means this session's table or view by its name; the user may have given it to another one."""
        if name not in self._names:
            return False
        with self._catalyst.active(self._spark._jsparkSession):
            entry = self._catalog.getRawTempView(name)
            return bool(entry.isDefined() and self._own.containsKey(entry.get()))

    def remove(self, name: str) -> None:
        """Remove the temporary view of a table or view that was dropped."""
        with self._lock:
            if self.has(name):
                self._own.remove(self._catalog.getRawTempView(name).get())
                self._spark.catalog.dropTempView(name)
            self._names.discard(name)

    def clear(self) -> None:
        """Remove all temporary views."""
        for name in list(self._names):
            self.remove(name)


class _Classes:
    """The Java classes that an entry of Spark's catalogue consists of. To look one up takes a call for each package."""

    def __init__(self, catalyst: Catalyst) -> None:
        jvm, sql = catalyst.jvm, catalyst.jvm.org.apache.spark.sql
        self.some, self.none = jvm.scala.Some, catalyst.object("scala.None")
        self.java_map, self.options = jvm.java.util.HashMap, sql.util.CaseInsensitiveStringMap
        self.identifier, self.entry = sql.catalyst.TableIdentifier, sql.catalyst.catalog.TemporaryViewRelation
        self.source = sql.execution.datasources.v2.python.PythonDataSourceV2
        self.relation = catalyst.object("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
        self.no_transforms = catalyst.gateway.new_array(sql.connector.expressions.Transform, 0)


class _Template:
    """An entry of Spark's catalogue for a temporary view, of which others are copies."""

    def __init__(self, spark: SparkSession, classes: _Classes, entry: Any) -> None:
        self._session, self._classes, self._metadata = spark._jsparkSession, classes, entry.tableMeta()
        copies = [method for method in self._metadata.getClass().getMethods() if method.getName() == "copy"]
        values = range(1, copies[0].getParameterCount() + 1)
        self._values = [getattr(self._metadata, f"copy$default${at}")() for at in values]

    def entry(self, name: str, format: str, schema: StructType) -> Any:
        """An entry of another name, whose rows are read from a data source with the option `name`."""
        classes, columns = self._classes, self._session.parseDataType(schema.json())
        _, kind, storage, _, *others = self._values
        metadata = self._metadata.copy(classes.identifier(name), kind, storage, columns, *others)
        return classes.entry(metadata, classes.some(self._relation(name, format, columns)))

    def _relation(self, name: str, format: str, columns: Any) -> Any:
        """What a DataFrame that reads a table or view has as its plan."""
        classes, source = self._classes, self._classes.source()
        source.setShortName(format)
        options = classes.java_map()
        options.put("name", name)
        table = source.getTable(columns, classes.no_transforms, options)
        given = (table, classes.none, classes.none, classes.options(options))
        try:
            return classes.relation.create(*given, classes.none)
        except Py4JError:  # before Spark 4.1
            return classes.relation.create(*given)


def query_frame(spark: SparkSession, text: str, own: Mapping[str, DataFrame]) -> DataFrame:
    """A query as a DataFrame. The names in `own` mean the DataFrames that are given for them, others what Spark knows.

    Names are resolved in a clone of the SparkSession, to which the temporary views for them are added.
    """
    try:
        with quietly():
            return _resolved(spark, text, own)
    except PySparkException as error:
        raise query_error(error) from error


def _resolved(spark: SparkSession, text: str, own: Mapping[str, DataFrame]) -> DataFrame:
    if not own:
        return spark.sql(text)
    catalyst, user = Catalyst(spark), spark._jsparkSession
    clone = user.cloneSession()
    for name, frame in own.items():
        analyzed = frame._jdf.queryExecution().analyzed()
        catalyst.dataset(clone, analyzed).createOrReplaceTempView(quote(name))
    resolved = clone.sql(text).queryExecution().analyzed()
    return DataFrame(catalyst.dataset(user, resolved), spark)
