"""Topics as they ran on Spark once, for tests without Java: tables, plans of queries, changes, and Spark's answers.

Each script in `topics/` has a file in `topics/recorded/`, which `python -m tests.sql.record_topics` writes.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ikebana.engine import Engine
from ikebana.sql import SourceTable
from ikebana.sql.planned import Planned
from tests.sql.statements import dumps, fields_from_text, fields_to_text, loads, table_from_text, table_to_text

TOPICS = sorted((Path(__file__).parent / "topics").glob("*.sql"))
RECORDED = Path(__file__).parent / "topics" / "recorded"


@dataclass(frozen=True)
class TopicTable:
    """A table, and its rows when the queries are asked."""

    name: str
    fields: tuple[pa.Field, ...]
    key: tuple[str, ...]
    rows: pa.Table


@dataclass(frozen=True)
class Change:
    """A transaction on one table: rows that are deleted, then rows that are added."""

    table: str
    deleted: pa.Table | None
    added: pa.Table | None


@dataclass(frozen=True)
class TopicQuery:
    """A query, its plan, and Spark's answer after all changes."""

    line: int
    text: str
    plan: Planned
    answer: pa.Table


@dataclass(frozen=True)
class RecordedTopic:
    """What a script has done."""

    tables: list[TopicTable]
    queries: list[TopicQuery]
    changes: list[Change]


def write(name: str, topic: RecordedTopic) -> None:
    """Write the recording of a topic."""
    document = {
        "tables": [
            [table.name, fields_to_text(table.fields), table.key, table_to_text(table.rows)] for table in topic.tables
        ],
        "queries": [
            [query.line, query.text, dumps(query.plan).decode(), table_to_text(query.answer)] for query in topic.queries
        ],
        "changes": [[change.table, _to_text(change.deleted), _to_text(change.added)] for change in topic.changes],
    }
    RECORDED.mkdir(exist_ok=True)
    data = json.dumps(document, separators=(",", ":")).encode()
    (RECORDED / f"{name}.json.gz").write_bytes(gzip.compress(data, mtime=0))


def read(name: str) -> RecordedTopic:
    """The recording of a topic."""
    document: dict[str, Any] = json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    return RecordedTopic(
        [
            TopicTable(name, fields_from_text(fields), tuple(key), table_from_text(rows))
            for name, fields, key, rows in document["tables"]
        ],
        [
            TopicQuery(line, text, loads(plan.encode()), table_from_text(answer))
            for line, text, plan, answer in document["queries"]
        ],
        [Change(table, _from_text(deleted), _from_text(added)) for table, deleted, added in document["changes"]],
    )


def _to_text(table: pa.Table | None) -> str:
    return table_to_text(table) if table is not None else ""


def _from_text(text: str) -> pa.Table | None:
    return table_from_text(text) if text else None


def create(engine: Engine, table: TopicTable) -> SourceTable:
    """Create a table with its rows."""
    created = engine.table(table.name, list(table.fields), table.key or None)
    _add(engine, table.name, table.rows)
    return SourceTable(table.name, created, table.key, False)


def apply(engine: Engine, change: Change) -> None:
    """Carry out a change, as one transaction."""
    table = engine.tables[change.table]
    with engine.transaction():
        if change.deleted is not None and change.deleted.num_rows:
            table.delete(change.deleted.select(table.key) if table.key else change.deleted)
        if change.added is not None:
            _add(engine, change.table, change.added)


def _add(engine: Engine, name: str, rows: pa.Table) -> None:
    table = engine.tables[name]
    if rows.num_rows:
        (table.upsert if table.key else table.insert)(rows)
