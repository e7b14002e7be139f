"""TPC-H without Java: its tables on an engine, and their changes."""

from __future__ import annotations

from ikebana.engine import Engine
from ikebana.sql import SourceTable
from ikebana_bench.tpch.schemas import KEYS, SCHEMAS
from ikebana_bench.tpch.stream import Round


def tables(engine: Engine, *, stream: bool = False) -> dict[str, SourceTable]:
    """The eight tables, empty; `lineitem` as a stream if `stream`."""
    return {name: _table(engine, name, stream and name == "lineitem") for name in SCHEMAS}


def _table(engine: Engine, name: str, is_stream: bool) -> SourceTable:
    key = () if is_stream else KEYS[name]
    table = engine.table(name, list(SCHEMAS[name]), key or None, "stream" if is_stream else "table")
    return SourceTable(name, table, tuple(key), is_stream)


def apply(engine: Engine, changes: Round) -> None:
    """Apply a round of changes as one transaction; rows are only added to a stream."""
    with engine.transaction():
        for name, change in changes.items():
            table = engine.tables[name]
            if table.kind == "stream":
                table.insert(change.upserts)
                continue
            if change.deletes.num_rows:
                table.delete(change.deletes)
            if change.upserts.num_rows:
                table.upsert(change.upserts)
