"""DuckDB, as a peer that answers from scratch: an optional package, asked for by `--duckdb`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pyarrow as pa

from ikebana.bench.tpch.answers import Top
from ikebana.bench.tpch.schemas import query
from ikebana.errors import IkebanaError


class Duck:
    """A DuckDB in memory, with so many threads; a context manager."""

    def __init__(self, threads: int) -> None:
        try:
            duckdb: Any = importlib.import_module("duckdb")
        except ImportError:
            raise IkebanaError("DuckDB is not installed", hint="install it with: pip install duckdb") from None
        self._connection = duckdb.connect(config={"threads": threads})

    def show(self, name: str, rows: pa.Table) -> None:
        """Answer over these rows from now on, where they are."""
        self._connection.register(name, rows)

    def read(self, name: str, folder: Path) -> None:
        """Answer over the Parquet files of a folder from now on."""
        self._connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM read_parquet('{folder}/*')")

    def answer(self, number: int) -> pa.Table:
        """The answer to one of the 22."""
        return self._connection.sql(query(number)).to_arrow_table()

    def __enter__(self) -> Duck:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()


def has_as_many_rows(number: int, found: pa.Table, unlimited: pa.Table) -> bool:
    """Whether an answer to one of the 22 has as many rows as it should, given the one without its LIMIT."""
    top = Top.of(query(number))
    return bool(found.num_rows == min(unlimited.num_rows, top.limit if top else unlimited.num_rows))
