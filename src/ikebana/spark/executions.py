"""Spark's running queries, by the number that their tasks know: whether one still runs, and which tables it reads.

Spark gives every action on a DataFrame a number and remembers it until the action has ended, in whichever way. It is
asked for that, rather than told of it: a listener in Python would be called for every event of every job.

Cost: one call to Java, 0.5 ms, to see whether a query runs; some more for what it reads.
Not guaranteed: that every read belongs to a query. RDDs made of DataFrames, and iterators over them, are read when
Spark has forgotten, or never had, a number.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_RELATION = "DataSourceV2Relation"


class Executions:
    """The queries of a SparkContext."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark

    def is_running(self, execution: int) -> bool:
        """Whether a query has not ended."""
        return self._found(execution) is not None

    def tables(self, execution: int) -> set[str]:
        """The names of all that a query reads through a data source, also in subqueries; none if it has ended."""
        query = self._found(execution)
        if query is None:
            return set()
        plan = query.analyzed()
        plans = [plan, *_items(plan.subqueriesAll())]
        leaves = [leaf for each in plans for leaf in _items(each.collectLeaves())]
        relations = [leaf for leaf in leaves if leaf.getClass().getSimpleName() == _RELATION]
        names = [leaf.options().get("name") or leaf.options().get("path") for leaf in relations]
        return {name for name in names if name}

    def _found(self, execution: int) -> Any:
        running = self._spark._jvm.org.apache.spark.sql.execution.SQLExecution
        return running.getQueryExecution(execution)


def _items(sequence: Any) -> list[Any]:
    """The items of one of Scala's sequences."""
    return [sequence.apply(at) for at in range(sequence.size())]
