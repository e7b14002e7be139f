"""Tables and views of a session under their names in Spark: `spark.sql("SELECT * FROM late")`, `spark.table("late")`.

Each is a temporary view of the SparkSession over the data source (`ikebana.spark.source`), so a query reads the rows
directly from the workers, at one epoch. A name that Spark knows already, as a temporary view or a table of the user's,
is left to the user: it would be surprising if `spark.table("orders")` meant something else after
`session.create_table("orders", ...)`. `Session.sql` finds the session's own tables and views in any case.

Cost: a dozen calls of Java for each table and view, some tens of milliseconds, more than it takes to create a view
whose query has been planned before. `connect(temp_views=False)` saves them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ikebana.errors import SqlError
from ikebana.spark.errors import spark_error_summary
from ikebana.spark.naming import quote
from ikebana.spark.planning.catalyst import Catalyst
from ikebana.sql.planned import IDENTITY

log = logging.getLogger("ikebana")


class TemporaryViews:
    """The temporary views of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._identities: dict[str, str] = {}  # of the tables and views that were added, by name
        self._lock = threading.Lock()

    def add(self, name: str, identity: str, frame: DataFrame) -> None:
        """Make a table or view visible, unless Spark knows its name already."""
        try:
            with self._lock:
                if not self._spark.catalog.tableExists(quote(name)):
                    frame.createOrReplaceTempView(quote(name))
                    self._identities[name] = identity
        except PySparkException as error:  # a catalogue that cannot be reached
            log.warning("spark.sql does not see %r under its name: %s", name, spark_error_summary(error))

    def has(self, name: str) -> bool:
        """Whether Spark means this session's table or view by its name; the user may have given it to another one."""
        identity = self._identities.get(name)
        if identity is None:
            return False
        try:
            fields = self._spark.table(quote(name)).schema
        except PySparkException:  # the user has dropped the temporary view
            return False
        return any(field.metadata.get(IDENTITY) == identity for field in fields)

    def remove(self, name: str) -> None:
        """Remove the temporary view of a table or view that was dropped."""
        with self._lock:
            if self.has(name):
                self._spark.catalog.dropTempView(name)
            self._identities.pop(name, None)

    def clear(self) -> None:
        """Remove all temporary views."""
        for name in list(self._identities):
            self.remove(name)


def query_frame(spark: SparkSession, text: str, own: Mapping[str, DataFrame]) -> DataFrame:
    """A query as a DataFrame. The names in `own` mean the DataFrames that are given for them, others what Spark knows.

    Names are resolved in a clone of the SparkSession, to which the temporary views for them are added.
    """
    try:
        if not own:
            return spark.sql(text)
        catalyst, user = Catalyst(spark), spark._jsparkSession
        clone = user.cloneSession()
        for name, frame in own.items():
            analyzed = frame._jdf.queryExecution().analyzed()
            catalyst.dataset(clone, analyzed).createOrReplaceTempView(quote(name))
        resolved = clone.sql(text).queryExecution().analyzed()
        return DataFrame(catalyst.dataset(user, resolved), spark)
    except PySparkException as error:
        raise SqlError("Spark does not understand the query", detail=spark_error_summary(error)) from error
