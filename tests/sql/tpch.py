"""TPC-H without Java: its tables on an engine, and their changes."""

from __future__ import annotations

from ikebana.bench.tpch.schemas import KEYS, SCHEMAS
from ikebana.bench.tpch.stream import Round
from ikebana.engine import Engine
from ikebana.sql import Table


def tables(engine: Engine) -> dict[str, Table]:
    """The eight tables, empty."""
    return {
        name: Table(name, engine.table(name, list(schema), KEYS[name]), tuple(KEYS[name]))
        for name, schema in SCHEMAS.items()
    }


def apply(engine: Engine, changes: Round) -> None:
    """One round of changes, as one transaction."""
    with engine.transaction():
        for name, each in changes.items():
            table = engine.tables[name]
            if each.deletes.num_rows:
                table.delete(each.deletes)
            if each.upserts.num_rows:
                table.upsert(each.upserts)
