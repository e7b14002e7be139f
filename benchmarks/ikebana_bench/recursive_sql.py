"""Transitive closure and same generation as recursive SQL, in DuckDB and in Spark SQL.

Both start with the edges in memory (in Spark: cached), and only count the pairs. Neither keeps anything up to date.

DuckDB's recursion is over sets (UNION) and runs here with one thread. Spark's recursion has only UNION ALL: it computes
every derivation of a pair rather than every pair, and does not end on cycles. It is therefore measured on trees, where
each pair has one derivation. Neither package is needed by the benchmarks that compare with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ikebana_bench.measure import Stopwatch

Edges = NDArray[np.int32]

_QUERIES = {
    "tc": "WITH RECURSIVE tc(x, y) AS (SELECT x, y FROM arc {union}"
    " SELECT tc.x, arc.y FROM tc JOIN arc ON tc.y = arc.x) SELECT count(*) FROM tc",
    "sg": "WITH RECURSIVE sg(x, y) AS (SELECT a.y, b.y FROM arc a JOIN arc b ON a.x = b.x WHERE a.y <> b.y {union}"
    " SELECT a.y, b.y FROM arc a JOIN sg ON a.x = sg.x JOIN arc b ON sg.y = b.x) SELECT count(*) FROM sg",
}


class Peer(Protocol):
    """A system that evaluates recursive SQL."""

    name: str

    def can_evaluate(self, graph: str) -> bool:
        """Whether the recursion ends on a graph, and computes each pair once."""
        ...

    def evaluate(self, relation: str, edges: Edges) -> tuple[float, int]:
        """The seconds that a relation takes, and the number of its pairs."""
        ...


class DuckDB:
    """DuckDB with one thread."""

    name = "duckdb"

    def can_evaluate(self, graph: str) -> bool:
        return True

    def evaluate(self, relation: str, edges: Edges) -> tuple[float, int]:
        duckdb: Any = import_module("duckdb")
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.register("given", _table(edges))
            connection.execute("CREATE TABLE arc AS SELECT * FROM given")
            query = _QUERIES[relation].format(union="UNION")
            watch = Stopwatch()
            rows = connection.execute(query).fetchall()
            return watch.seconds, int(rows[0][0])


class SparkSQL:
    """Spark SQL on a SparkSession."""

    name = "spark"

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def can_evaluate(self, graph: str) -> bool:
        return graph.startswith("tree")

    def evaluate(self, relation: str, edges: Edges) -> tuple[float, int]:
        arc = self._spark.createDataFrame(_table(edges)).cache()
        arc.count()
        arc.createOrReplaceTempView("arc")
        query = _QUERIES[relation].format(union="UNION ALL")
        try:
            watch = Stopwatch()
            rows = self._spark.sql(query).collect()
            return watch.seconds, int(rows[0][0])
        finally:
            self._spark.catalog.dropTempView("arc")
            arc.unpersist()


def _table(edges: Edges) -> pa.Table:
    return pa.table({"x": edges[:, 0], "y": edges[:, 1]})


_UNLIMITED = {"spark.sql.cteRecursionRowLimit": -1, "spark.sql.cteRecursionLevelLimit": -1}


@contextmanager
def recursive_peers(*, spark: bool) -> Iterator[list[Peer]]:
    """The peers that are installed; with `spark`, Spark SQL with one core is among them until the end of the block."""
    peers: list[Peer] = [DuckDB()] if find_spec("duckdb") is not None else []
    if not spark:
        yield peers
        return
    from ikebana_bench.tpch.serving import spark_session

    with spark_session(1, config=_UNLIMITED) as session:
        yield [*peers, SparkSQL(session)]
