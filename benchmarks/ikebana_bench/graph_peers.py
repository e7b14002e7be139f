"""Databases that answer the queries of `graph-interactive` on the same graph: PostgreSQL and DuckDB.

Both have the edges as one table with indexes by (source, target) and (target, source), and answer any number of
arguments with one statement. Nothing is maintained: an answer is computed when it is asked for, and its rows are
fetched. Paths are searched from both ends and by increasing length; the search of a pair ends with the first length.

Both are optional; `available` says which of them this machine has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from ikebana_bench import postgres

Nodes = NDArray[np.int32]
Rows = list[tuple[int, ...]]

QUERIES = {
    "look_up": "SELECT a.i, count(*) FROM {arguments} JOIN edges e ON e.src = a.s GROUP BY a.i",
    "one_hop": "SELECT DISTINCT a.i, e.dst FROM {arguments} JOIN edges e ON e.src = a.s",
    "two_hops": "SELECT DISTINCT a.i, f.dst FROM {arguments} JOIN edges e ON e.src = a.s JOIN edges f ON f.src = e.dst",
}
"""Queries of nodes `s` with numbers `i`."""

POSTGRES_PATHS = """
    SELECT a.i, p.length FROM {arguments} CROSS JOIN LATERAL (
        (SELECT 0 AS length WHERE a.s = a.t)
        UNION ALL (SELECT 1 FROM edges e WHERE e.src = a.s AND e.dst = a.t LIMIT 1)
        UNION ALL (SELECT 2 FROM edges e JOIN edges f ON f.src = e.dst WHERE e.src = a.s AND f.dst = a.t LIMIT 1)
        UNION ALL (SELECT 3 FROM edges e JOIN edges f ON f.src = e.dst JOIN edges g ON g.src = f.dst AND g.dst = a.t
                   WHERE e.src = a.s LIMIT 1)
        UNION ALL (SELECT 4 FROM (SELECT f.dst AS node FROM edges e JOIN edges f ON f.src = e.dst WHERE e.src = a.s) x
                   JOIN (SELECT g.src AS node FROM edges h JOIN edges g ON g.dst = h.src WHERE h.dst = a.t) y
                   ON x.node = y.node LIMIT 1)
        LIMIT 1) p"""

DUCKDB_PATHS = """
    WITH a AS MATERIALIZED (SELECT * FROM {arguments}),
         f1 AS MATERIALIZED (SELECT DISTINCT a.i, e.dst AS node FROM a JOIN edges e ON e.src = a.s),
         f2 AS MATERIALIZED (SELECT DISTINCT f1.i, e.dst AS node FROM f1 JOIN edges e ON e.src = f1.node),
         b1 AS MATERIALIZED (SELECT DISTINCT a.i, e.src AS node FROM a JOIN edges e ON e.dst = a.t),
         b2 AS MATERIALIZED (SELECT DISTINCT b1.i, e.src AS node FROM b1 JOIN edges e ON e.dst = b1.node)
    SELECT i, min(length) FROM (
        SELECT i, 0 AS length FROM a WHERE s = t
        UNION ALL SELECT f1.i, 1 FROM f1 JOIN a ON f1.i = a.i AND f1.node = a.t
        UNION ALL SELECT f1.i, 2 FROM f1 JOIN b1 ON f1.i = b1.i AND f1.node = b1.node
        UNION ALL SELECT f2.i, 3 FROM f2 JOIN b1 ON f2.i = b1.i AND f2.node = b1.node
        UNION ALL SELECT f2.i, 4 FROM f2 JOIN b2 ON f2.i = b2.i AND f2.node = b2.node) GROUP BY i"""


class GraphPeer(ABC):
    """A database with a graph."""

    name: str

    @abstractmethod
    def answer(self, query: str, arguments: Sequence[Nodes]) -> Rows:
        """The rows of the answers, each with the number of its arguments, from 1 on."""


class PostgreSQL(GraphPeer):
    """PostgreSQL, with prepared statements; `connection` has the table of edges."""

    name = "postgresql"

    def __init__(self, connection: postgres.Connection) -> None:
        self._connection = connection
        for name, text in QUERIES.items():
            self._prepare(name, text.format(arguments="unnest($1::int[]) WITH ORDINALITY a(s, i)"))
        arguments = "unnest($1::int[], $2::int[]) WITH ORDINALITY a(s, t, i)"
        self._prepare("paths", POSTGRES_PATHS.format(arguments=arguments))

    def _prepare(self, name: str, text: str) -> None:
        """Prepare a statement that returns its two columns as arrays, so that this client takes no time for rows."""
        self._connection.prepare(name, f"SELECT array_agg(i), array_agg(value) FROM ({text}) AS rows(i, value)")

    def answer(self, query: str, arguments: Sequence[Nodes]) -> Rows:
        values = ["{" + ",".join(map(str, nodes.tolist())) + "}" for nodes in arguments]
        (arrays,) = self._connection.execute_prepared(query, values)
        columns = [list(map(int, (array or "{}")[1:-1].split(","))) if array else [] for array in arrays]
        return list(zip(*columns, strict=True))


@contextmanager
def postgresql(src: Nodes, dst: Nodes) -> Iterator[PostgreSQL]:
    """A block with a server that has a graph."""
    with postgres.server() as (connection, folder):
        file = Path(folder) / "edges.csv"
        csv.write_csv(pa.table({"src": src, "dst": dst}), file, csv.WriteOptions(include_header=False))
        file.chmod(0o644)
        connection.execute("CREATE UNLOGGED TABLE edges (src int NOT NULL, dst int NOT NULL)")
        connection.execute(f"COPY edges FROM '{file}' (FORMAT csv)")
        connection.execute("CREATE INDEX by_source ON edges (src, dst)")
        connection.execute("CREATE INDEX by_target ON edges (dst, src)")
        connection.execute("VACUUM ANALYZE edges")
        connection.execute("SET plan_cache_mode = force_generic_plan")  # estimates do not depend on the arguments
        yield PostgreSQL(connection)


class DuckDB(GraphPeer):
    """DuckDB in this process, with one thread."""

    name = "duckdb"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def answer(self, query: str, arguments: Sequence[Nodes]) -> Rows:
        numbers = np.arange(1, len(arguments[0]) + 1)
        columns = dict(zip(("s", "t"), arguments, strict=False))
        self._connection.register("given", pa.table({"i": numbers, **columns}))
        text = (
            DUCKDB_PATHS.format(arguments="given") if query == "paths" else QUERIES[query].format(arguments="given a")
        )
        return list(self._connection.execute(text).fetchall())


@contextmanager
def duckdb(src: Nodes, dst: Nodes) -> Iterator[DuckDB]:
    """A block with a database that has a graph."""
    module: Any = import_module("duckdb")
    with module.connect(config={"threads": 1}) as connection:
        connection.register("loaded", pa.table({"src": src, "dst": dst}))
        connection.execute("CREATE TABLE edges AS SELECT * FROM loaded")
        connection.execute("CREATE INDEX by_source ON edges (src)")
        connection.execute("CREATE INDEX by_target ON edges (dst)")
        yield DuckDB(connection)


def available() -> dict[str, Any]:
    """The functions that start the databases of this machine, by name."""
    found: dict[str, Any] = {}
    if postgres.server_folder() is not None:
        found["postgresql"] = postgresql
    if find_spec("duckdb") is not None:
        found["duckdb"] = duckdb
    return found
