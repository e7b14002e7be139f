"""DuckDB as a peer that answers every query from scratch after each batch.

The clock counts only answering; making the rows visible to DuckDB is not measured, since it reads them in place. DuckDB
is an optional package, in the extra `peers`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pyarrow as pa

from ikebana.errors import IkebanaError
from ikebana_bench.measure import Stopwatch
from ikebana_bench.tpch.peers import Peer, Rows, has_as_many_rows
from ikebana_bench.tpch.schemas import query


class Duck:
    """An in-memory DuckDB database with a number of threads; a context manager."""

    def __init__(self, threads: int) -> None:
        try:
            duckdb: Any = importlib.import_module("duckdb")
        except ImportError:
            raise IkebanaError("DuckDB is not installed", hint="install it with `pip install duckdb`") from None
        self._connection = duckdb.connect(config={"threads": threads})

    def show(self, name: str, rows: pa.Table) -> None:
        """Define a table as these rows, without copying them."""
        self._connection.register(name, rows)

    def read(self, name: str, folder: Path) -> None:
        """Define a table as the Parquet files of a folder."""
        self._connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM read_parquet('{folder}/*')")

    def answer(self, text: str) -> pa.Table:
        """Return DuckDB's answer to a query."""
        return self._connection.sql(text).to_arrow_table()

    def __enter__(self) -> Duck:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()


class DuckDB(Peer):
    """Answers from scratch after every batch, over all rows so far; only the number of rows is checked."""

    name, title = "duckdb", "DuckDB"

    def feed(self, number: int, rows: Rows, batch: int) -> tuple[float, pa.Table]:
        spent = 0.0
        with Duck(self.workers) as duck:
            for end in range(batch, max(table.num_rows for table in rows.values()) + batch, batch):
                for name, table in rows.items():
                    duck.show(name, table.slice(0, end))
                watch = Stopwatch()
                answer = duck.answer(query(number))
                spent += watch.seconds
        return spent, answer

    def wrong(self, number: int, actual: pa.Table, expected: pa.Table) -> str:
        return "" if has_as_many_rows(number, actual, expected) else f"unexpected number of rows: {actual.num_rows}"
