"""Running Spark queries, by the execution number that their tasks know: whether a query is running, and what it reads.

Spark gives every action on a DataFrame a number and forgets it when the action has ended in any way. Spark is polled
for this: a listener in Python would be called for every event of every job.

A query may leave jobs behind. Adaptive execution knows the answer of a join as soon as one side has no rows, and ends
the query while tasks still read the other side. Nobody needs what these tasks read, and what they read is not held any
more: their jobs are cancelled (`cancel_jobs`), or else they would fail, and Spark would log the failure.

Cost: one call to Java, 0.5 ms, to see whether a query is running; a few more for the tables that it reads.
Not guaranteed: that every read belongs to a query. RDDs of DataFrames, and iterators over them, are read when Spark has
forgotten the number, or without one.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from ikebana.spark.interrupting import cancel_jobs
from ikebana.spark.planning.catalyst import scala_items
from ikebana.spark.readers import execution_of

_RELATION_CLASS = "DataSourceV2Relation"


class Executions:
    """The running queries of a SparkContext."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark

    def is_running(self, execution: int) -> bool:
        """Whether a query is still running."""
        return self._query(execution) is not None

    def tables(self, execution: int) -> set[str]:
        """The names of all tables that a query reads through data sources, also in subqueries; none if it has ended."""
        query = self._query(execution)
        if query is None:
            return set()
        analyzed = query.analyzed()
        plans = [analyzed, *scala_items(analyzed.subqueriesAll())]
        leaves = [leaf for plan in plans for leaf in scala_items(plan.collectLeaves())]
        relations = [leaf for leaf in leaves if leaf.getClass().getSimpleName() == _RELATION_CLASS]
        names = [leaf.options().get("name") or leaf.options().get("path") for leaf in relations]
        return {name for name in names if name}

    def cancel_jobs(self, execution: int) -> bool:
        """Cancel the jobs that a query which has ended has left behind; returns whether there were any."""

        def belongs(properties: Any) -> bool:
            return properties is not None and execution_of(properties.getProperty) == execution

        return cancel_jobs(self._spark.sparkContext, belongs)

    def _query(self, execution: int) -> Any:
        return self._spark._jvm.org.apache.spark.sql.execution.SQLExecution.getQueryExecution(execution)
