"""Other systems, to measure beside ours on the same stream: each keeps a query of TPC-H up to date, or answers anew.

    duck           DuckDB: answers from scratch after every batch
    pathway        Pathway: incremental, in a process of its own
    pathway_child  what runs in that process: the 22 in Pathway's terms
    structured     Spark Structured Streaming: incremental over one stream

None is needed to install or to test this package. `Peer` is what they have in common.
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
"""How much an amount may differ, relative to the larger, where a peer has floating-point numbers for decimals."""


class CannotRun(IkebanaError):
    """A peer cannot run a query; the detail is why."""


class Peer(ABC):
    """A system with so many workers; a context manager that starts it and ends it."""

    name: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, workers: int) -> None:
        self.workers = workers

    @abstractmethod
    def feed(self, number: int, rows: Rows, batch: int) -> tuple[float, pa.Table]:
        """Seconds to feed rows to one of the 22, so many of each table at a time, and the answer after the last.

        Raises `CannotRun` if the system cannot.
        """

    @abstractmethod
    def wrong(self, number: int, actual: pa.Table, expected: pa.Table) -> str:
        """What is wrong with an answer, given that of Spark without the LIMIT; nothing if it is right."""

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        return None


def named(text: str, known: tuple[str, ...]) -> list[str]:
    """The peers that an option names, with commas between, or none.

    >>> named("duckdb, pathway", ("duckdb", "pathway"))
    ['duckdb', 'pathway']
    >>> named("none", ("duckdb",))
    []
    """
    names = [] if text == "none" else [word.strip() for word in text.split(",")]
    if not {*names} <= {*known}:
        hint = f"give some of these with commas between, or none: {', '.join(known)}"
        raise IkebanaError(f"there are no peers {text!r} for this benchmark", hint=hint)
    return list(dict.fromkeys(names))


def peer(name: str, workers: int) -> Peer:
    """A peer by its name."""
    from ikebana_bench.tpch.peers.duck import DuckDB
    from ikebana_bench.tpch.peers.pathway import Pathway
    from ikebana_bench.tpch.peers.structured import Structured

    kinds: tuple[type[Peer], ...] = (DuckDB, Pathway, Structured)
    return next(kind for kind in kinds if kind.name == name)(workers)


def has_as_many_rows(number: int, actual: pa.Table, unlimited: pa.Table) -> bool:
    """Whether an answer to one of the 22 has as many rows as it should, given the one without its LIMIT."""
    top = Top.of(query(number))
    return bool(actual.num_rows == min(unlimited.num_rows, top.limit if top else unlimited.num_rows))


def plain(table: pa.Table) -> pa.Table:
    """The same without decimals, dates, and short numbers: amounts are floating-point, dates are like 19950315."""
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
    """How plain rows differ from those expected, in any order and by more than `CLOSE`; nothing if they do not."""
    if actual.schema.types != expected.schema.types:
        return f"columns {actual.schema.types} in place of {expected.schema.types}"
    ours, theirs = canonical(actual), canonical(expected)
    if len(ours) != len(theirs):
        return f"{len(ours)} rows in place of {len(theirs)}"
    pairs = zip(ours, theirs, strict=True)
    return next((f"{one} in place of {other}" for one, other in pairs if not all(map(_close, one, other))), "")


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)
    return bool(one == other)
