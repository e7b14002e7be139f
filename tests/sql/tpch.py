"""TPC-H without Java: its tables on an engine, and their changes."""

from __future__ import annotations

from ikebana.engine import Engine
from ikebana.sql import SourceTable
from ikebana_bench.tpch.schemas import KEYS, SCHEMAS
from ikebana_bench.tpch.stream import Round


def tables(engine: Engine, *, stream: bool = False) -> dict[str, SourceTable]:
    """The eight tables, empty; `lineitem` as a stream if so."""
    return {name: _table(engine, name, stream and name == "lineitem") for name in SCHEMAS}


def _table(engine: Engine, name: str, is_stream: bool) -> SourceTable:
    key = () if is_stream else KEYS[name]
    made = engine.table(name, list(SCHEMAS[name]), key or None, "stream" if is_stream else "table")
    return SourceTable(name, made, tuple(key), is_stream)


def apply(engine: Engine, changes: Round) -> None:
    """One round of changes, as one transaction; to a stream rows are only added."""
    with engine.transaction():
        for name, each in changes.items():
            table = engine.tables[name]
            if table.kind == "stream":
                table.insert(each.upserts)
                continue
            if each.deletes.num_rows:
                table.delete(each.deletes)
            if each.upserts.num_rows:
                table.upsert(each.upserts)
