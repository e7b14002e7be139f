"""Other systems that are measured with the same batches, for comparison; `Peer` is their common interface.

    duck           DuckDB: answers from scratch after every batch
    pathway        Pathway: incremental, in a separate process
    pathway_child  the program of that process, with the 22 queries as Pathway programs
    structured     Spark Structured Streaming: incremental over one stream

All of them are optional: neither installing nor testing this package requires them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from ikebana.errors import IkebanaError
from ikebana.spark.answers import Top, canonical
from ikebana_bench.tpch.schemas import query

Rows = Mapping[str, pa.Table]
"""The rows of each table that a query reads, in the order in which they are fed."""

CLOSE = 1e-6
"""The tolerance for amounts of peers that compute with floating-point numbers instead of decimals."""


class CannotRun(IkebanaError):
    """A peer cannot run a query; `detail` gives the reason."""


class Peer(ABC):
    """A system with a number of workers; a context manager that starts and stops it."""

    name: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, workers: int) -> None:
        self.workers = workers

    @abstractmethod
    def feed(self, number: int, rows: Rows, batch: int) -> tuple[float, pa.Table]:
        """Feed rows to a query, `batch` rows of each table at a time; return the seconds and the final answer.

        Raises `CannotRun` if the system cannot run the query.
        """

    @abstractmethod
    def wrong(self, number: int, actual: pa.Table, expected: pa.Table) -> str:
        """Return how an answer differs from `expected`, Spark's answer without the LIMIT; empty if it is correct."""

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        return None


def named(text: str, known: tuple[str, ...]) -> list[str]:
    """Return the peers of a command-line option: names separated by commas, or "none".

    >>> named("duckdb, pathway", ("duckdb", "pathway"))
    ['duckdb', 'pathway']
    >>> named("none", ("duckdb",))
    []
    """
    names = [] if text == "none" else [word.strip() for word in text.split(",")]
    if not {*names} <= {*known}:
        hint = f"use names from this list separated by commas, or none: {', '.join(known)}"
        raise IkebanaError(f"there are no peers {text!r} for this benchmark", hint=hint)
    return list(dict.fromkeys(names))


def peer(name: str, workers: int) -> Peer:
    """Return the peer of this name."""
    from ikebana_bench.tpch.peers.duck import DuckDB
    from ikebana_bench.tpch.peers.pathway import Pathway
    from ikebana_bench.tpch.peers.structured import Structured

    kinds: tuple[type[Peer], ...] = (DuckDB, Pathway, Structured)
    return next(kind for kind in kinds if kind.name == name)(workers)


def has_as_many_rows(number: int, actual: pa.Table, unlimited: pa.Table) -> bool:
    """Return whether an answer to a query has the expected number of rows; `unlimited` is the answer without LIMIT."""
    top = Top.of(query(number))
    return bool(actual.num_rows == min(unlimited.num_rows, top.limit if top else unlimited.num_rows))


def plain(table: pa.Table) -> pa.Table:
    """Return the table with decimals as floats, dates as integers such as 19950315, and integers as 64-bit integers."""
    columns = [_plain(column) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_decimal(column.type):
        return column.cast(pa.float64())
    if pa.types.is_date(column.type):
        year, month = pc.multiply(pc.year(column), 10_000), pc.multiply(pc.month(column), 100)
        return pc.add(pc.add(year, month), pc.day(column))
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    return column


def differing(actual: pa.Table, expected: pa.Table) -> str:
    """Return how plain rows differ from the expected ones, in any order and within `CLOSE`; empty if they agree."""
    if actual.schema.types != expected.schema.types:
        return f"columns {actual.schema.types} instead of {expected.schema.types}"
    actual_rows, expected_rows = canonical(actual), canonical(expected)
    if len(actual_rows) != len(expected_rows):
        return f"{len(actual_rows)} rows instead of {len(expected_rows)}"
    pairs = zip(actual_rows, expected_rows, strict=True)
    return next((f"{row} instead of {other}" for row, other in pairs if not all(map(_close, row, other))), "")


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)
    return bool(one == other)
