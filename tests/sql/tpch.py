"""TPC-H without Java: its tables on an engine, their changes, and the answers that Spark gave after them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa

from ikebana.engine import Engine
from ikebana.sql import SourceTable
from ikebana_bench.tpch import data
from ikebana_bench.tpch.schemas import KEYS, SCHEMAS
from ikebana_bench.tpch.stream import RefreshStream, Round
from tests.sql.statements import PLANS, table_from_text, table_to_text

SCALE = 0.01  # the smallest at which offers have keys
ORDERS = 10  # one in so many is kept
SEED, ROUNDS = 3, 2  # of the changes after which Spark's answers were recorded
ANSWERS = PLANS / "tpch" / "answers.json.gz"


def sample(folder: Path) -> dict[str, pa.Table]:
    """All tables, of orders and line items only some."""
    tables = data.read(data.tables(SCALE, folder))
    for name, column in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
        tables[name] = tables[name].filter(pa.array(tables[name][column].to_numpy() % ORDERS == 1))
    return tables


def changes(tables: dict[str, pa.Table]) -> tuple[RefreshStream, list[Round]]:
    """The rounds of changes, and the stream, whose tables are those after all rounds."""
    stream = RefreshStream(tables, SEED)
    return stream, [stream.next_round() for _ in range(ROUNDS)]


def answers() -> dict[int, pa.Table]:
    """What Spark answered after all rounds, by the number of the query, without its LIMIT."""
    document: dict[str, str] = json.loads(gzip.decompress(ANSWERS.read_bytes()))
    return {int(number): table_from_text(text) for number, text in document.items()}


def write_answers(answers: dict[int, pa.Table]) -> None:
    """Write what Spark answered."""
    texts = {number: table_to_text(table) for number, table in answers.items()}
    ANSWERS.write_bytes(gzip.compress(json.dumps(texts, separators=(",", ":")).encode(), mtime=0))


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
