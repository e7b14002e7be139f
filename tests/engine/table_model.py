"""A model of tables on dicts and counters, and random transactions for it and for an engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ikebana.engine import Engine, Table, Transaction
from ikebana.errors import ChangeError

NUMBERS = {"k": pa.int64(), "v": pa.int64()}
TEXTS = [pa.field("v", pa.string(), nullable=True), pa.field("k", pa.string()), pa.field("n", pa.int8(), nullable=True)]
ROW = tuple[Any, ...]


@dataclass
class Model:
    """A table as a user thinks of it: rows by key, or rows with multiplicities."""

    name: str
    fields: list[pa.Field]
    key: list[str]
    rows: Counter[ROW] = field(default_factory=Counter)

    def key_of(self, row: ROW) -> ROW:
        return tuple(cell for column, cell in zip(self.fields, row, strict=True) if column.name in self.key)

    def change(self, row: ROW, op: str) -> bool:
        """Change a row; return whether that is allowed."""
        if not self.key:
            self.rows[row] += 1 if op == "insert" else -1
            return True
        (old,) = [other for other in self.rows if self.key_of(other) == self.key_of(row)] or [None]
        if (op == "insert" and old is not None) or (op == "delete" and old is None):
            return False
        if old is not None:
            del self.rows[old]
        if op != "delete":
            self.rows[row] = 1
        return True

    def settle(self) -> bool:
        """End a transaction; return whether it is allowed."""
        self.rows = Counter({row: count for row, count in self.rows.items() if count})
        return all(count > 0 for count in self.rows.values())

    def copy(self) -> Model:
        return Model(self.name, self.fields, self.key, Counter(self.rows))


def models() -> list[Model]:
    numbers = [pa.field(name, kind, nullable=False) for name, kind in NUMBERS.items()]
    return [
        Model("numbers", numbers, ["k"]),
        Model("texts", TEXTS, ["k"]),
        Model("pairs", [pa.field("v", pa.int64()), *numbers[:1], pa.field("w", pa.int64())], ["w", "k"]),
        Model("bag", numbers, []),
        Model("words", TEXTS, []),
    ]


CELLS: dict[str, list[Any]] = {"int64": [0, 1, 2, -7], "int8": [None, 0, -1], "string": ["", "a", "b", "née"]}


def rows_of(model: Model) -> SearchStrategy[ROW]:
    """Rows from a small domain, so that equal keys and rows are frequent."""
    cells = []
    for column in model.fields:
        values = CELLS[str(column.type)]
        may_be_null = column.nullable and column.name not in model.key
        cells.append(st.sampled_from([None, *values] if may_be_null and None not in values else values))
    return st.tuples(*cells)


@dataclass(frozen=True)
class Feed:
    """Rows for a table, each with an op; the number of parts in which they are sent, and failures on the way."""

    table: int
    rows: list[tuple[ROW, str]]
    parts: int
    failures: list[int]  # for each part, the number of attempts that failed before one succeeded
    repeats: int  # the number of times that each attempt is sent again


@st.composite
def feeds(draw: Any, tables: list[Model]) -> Feed:
    at = draw(st.integers(0, len(tables) - 1))
    model = tables[at]
    ops = ["insert", "upsert", "update", "delete"] if model.key else ["insert", "delete"]
    op = st.sampled_from(ops) if draw(st.booleans()) else st.just(draw(st.sampled_from(ops)))
    rows = draw(st.lists(st.tuples(rows_of(model), op), max_size=6))
    parts = draw(st.integers(1, 3))
    return Feed(at, rows, parts, draw(st.lists(st.integers(0, 2), min_size=3, max_size=3)), draw(st.integers(0, 1)))


def transactions(tables: list[Model]) -> SearchStrategy[list[Feed]]:
    return st.lists(feeds(tables), max_size=3)


def columns_of(fields: list[pa.Field], rows: list[ROW]) -> dict[str, pa.Array]:
    return {column.name: pa.array([row[at] for row in rows], column.type) for at, column in enumerate(fields)}


def create(engine: Engine, model: Model) -> Table:
    return engine.table(model.name, model.fields, key=model.key or None)


def expected(tables: list[Model], transaction: list[Feed]) -> list[Model] | None:
    """The tables after a transaction, None if it is not allowed."""
    after = [table.copy() for table in tables]
    for feed in transaction:
        if not all([after[feed.table].change(row, op) for row, op in feed.rows]):
            return None
    return after if all([table.settle() for table in after]) else None


def apply(transaction: Transaction, table: Table, model: Model, feed: Feed) -> None:
    """Give a feed to a transaction."""
    ops = [op for _, op in feed.rows]
    data = columns_of(model.fields, [row for row, _ in feed.rows])
    if len(set(ops)) == 1 and ops[0] != "update":
        getattr(transaction, ops[0])(table, data)
    else:
        transaction.change(table, data, ops)


def allowed(function: Any) -> bool:
    try:
        function()
    except ChangeError:
        return False
    return True
