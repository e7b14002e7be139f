"""The same tables in a session of ours and in Spark, as statements of SQL make and change them.

CREATE TABLE makes a table in both, keyed if it has a primary key; CREATE TABLE or VIEW ... AS makes one of Spark's
answer; INSERT, DELETE, UPDATE and DROP change both. Spark computes which rows. Constraints other than NOT NULL and
primary keys, defaults and everything else that is said of a column are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ikebana.spark import Session
from ikebana.spark.answers import SparkAnswers
from tests.sql.psql_scripts import spark_type

_MADE = r"create\s+(?:or\s+replace\s+)?(?:(?:local|global)\s+)?(?:temp\s+|temporary\s+|unlogged\s+|materialized\s+)?"
_NAMED = r"\s+(?:if\s+(?:not\s+)?exists\s+)?(\w+)"
_CREATE = re.compile(
    rf"{_MADE}table{_NAMED}\s*\((.*?)\)\s*(?:with\s*\(.*\)|partition\s+by.*|on\s+commit.*)?", re.I | re.S
)
_CREATE_AS = re.compile(rf"{_MADE}(?:table|view){_NAMED}\s*(\([\w\s,]+\))?\s*as\s+(.*)", re.I | re.S)
_INSERT = re.compile(r"insert\s+into\s+(\w+)\s*(\([\w\s,]+\))?\s*((?:values|select|with|table|\().*)", re.I | re.S)
_DELETE = re.compile(r"delete\s+from\s+(\w+)(?:\s+where\s+(.*))?", re.I | re.S)
_UPDATE = re.compile(r"update\s+(\w+)\s+set\s+(.*?)(?:\s+where\s+(.*))?", re.I | re.S)
_DROP = re.compile(rf"drop\s+(?:table|view|materialized\s+view){_NAMED}((?:\s*,\s*\w+)*)(?:\s+cascade)?", re.I)
_TRUNCATE = re.compile(r"truncate\s+(?:table\s+)?(\w+)", re.I)
_COLUMN = re.compile(
    r"(\w+)\s+(double\s+precision|character\s+varying|timestamp\s+with(?:out)?\s+time\s+zone|\w+)"
    r"\s*(\([\d\s,]+\))?\s*(\[\])?(.*)",
    re.I | re.S,
)
_AFTERWARDS = re.compile(r"\b(returning|on\s+conflict|default)\b", re.I)


MOST = 200
"""How many rows one statement inserts, at most: of more the first are taken."""


class NotUnderstood(Exception):
    """A statement that these tables do not know."""


class Tables:
    """Tables that are in both; what cannot be done raises, and changes nothing."""

    def __init__(self, session: Session, batch: SparkAnswers) -> None:
        self._session, self._batch = session, batch
        self._schemas: dict[str, StructType] = {}
        self._keys: dict[str, list[str]] = {}
        self._unshown: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemas)

    def named(self, text: str) -> list[str]:
        """The tables that a text may be about."""
        words = set(re.findall(r"\w+", text.lower()))
        return [name for name in self._schemas if name in words]

    def rows(self, name: str) -> pa.Table:
        """What a table has now."""
        return self._session.table(name).to_arrow()

    def answer(self, text: str) -> pa.Table:
        """What Spark answers over the tables."""
        for name in self._unshown.intersection(self.named(text)):
            self.show(name, self.rows(name))
        return self._batch.answer(text)

    def show(self, name: str, rows: pa.Table) -> None:
        """Let Spark answer over these rows of a table, until it changes."""
        self._batch.show(name, rows, self._schemas[name])
        self._unshown.discard(name)

    # Statements.

    def execute(self, text: str) -> None:
        """Do what a statement says."""
        if match := _CREATE_AS.fullmatch(text):
            self._create_as(match[1].lower(), match[2], match[3])
        elif (match := _CREATE.fullmatch(text)) and not re.search(r"\)\s*inherits\b", text, re.I):
            self._create(match[1].lower(), match[2])
        elif (match := _INSERT.fullmatch(text)) and not _AFTERWARDS.search(text):
            self._insert(match[1].lower(), [(match[2], match[3])])
        elif (match := _DELETE.fullmatch(text)) and not _AFTERWARDS.search(text):
            self._delete(match[1].lower(), match[2] or "true")
        elif (match := _UPDATE.fullmatch(text)) and not _AFTERWARDS.search(text):
            self._update(match[1].lower(), match[2], match[3] or "true")
        elif match := _TRUNCATE.fullmatch(text):
            self._delete(match[1].lower(), "true")
        elif match := _DROP.fullmatch(text):
            for name in re.findall(r"\w+", (match[1] + match[2]).lower()):
                self.drop(name)
        else:
            raise NotUnderstood(text)

    def insert_all(self, texts: Sequence[str]) -> None:
        """Do what INSERT statements say, all of one table."""
        matches = [_INSERT.fullmatch(text) for text in texts]
        if any(map(_AFTERWARDS.search, texts)) or not all(matches):
            raise NotUnderstood(texts[0])
        self._insert(matches[0][1].lower(), [(match[2], match[3]) for match in matches])

    def _create(self, name: str, columns: str) -> None:
        ddl, key = _columns(columns)
        self._make(name, StructType.fromDDL(ddl), key)

    def _create_as(self, name: str, columns: str | None, query: str) -> None:
        rows = self.answer(f"select * from ({query}) as s{columns or ''}")
        self._make(name, from_arrow_schema(rows.schema), [])
        self._apply(name, None, rows[:MOST])

    def _make(self, name: str, schema: StructType, key: list[str]) -> None:
        if name in self._schemas:
            self.drop(name)
        self._session.create_table(name, schema, key)
        self._schemas[name], self._keys[name] = schema, key
        self._unshown.add(name)

    def _insert(self, name: str, sources: Sequence[tuple[str | None, str]]) -> None:
        rows = self.answer(" union all ".join(self._inserted(name, *source) for source in sources))
        self._apply(name, None, rows[:MOST])

    def _inserted(self, name: str, columns: str | None, source: str) -> str:
        """The query whose rows are inserted."""
        schema = self._schemas[name]
        given = [column.strip().lower() for column in columns.strip("()").split(",")] if columns else schema.names
        if listed := re.match(r"values\s*(\(.*)", source, re.I | re.S):
            kinds = [schema[column].dataType.simpleString() for column in given]
            rows = [_items(row.strip()[1:-1]) for row in _items(listed[1])]
            given = given[: len(rows[0])]
            casts = [
                ", ".join(f"cast({value} as {kind})" for value, kind in zip(row, kinds, strict=False)) for row in rows
            ]
            source = "values " + ", ".join(f"({row})" for row in casts)
        values = [f"c{given.index(column)}" if column in given else "null" for column in schema.names]
        names = ", ".join(f"c{at}" for at in range(len(given)))
        return f"select {_cast(schema, values)} from ({source}) as s({names})"

    def _delete(self, name: str, where: str) -> None:
        self._apply(name, self.answer(f"select * from {name} where {where}"), None)

    def _update(self, name: str, assignments: str, where: str) -> None:
        schema = self._schemas[name]
        new = {}
        for assignment in _items(assignments):
            column, value = assignment.split("=", 1)
            new[column.strip().lower()] = value
        if not new.keys() <= set(schema.names):
            raise NotUnderstood(assignments)
        shown = _cast(schema, [new.get(column, column) for column in schema.names])
        before = self.answer(f"select * from {name} where {where}")
        self._apply(name, before, self.answer(f"select {shown} from {name} where {where}"))

    def _apply(self, name: str, gone: pa.Table | None, new: pa.Table | None) -> None:
        self._unshown.add(name)
        with self._session.transaction():
            if gone is not None:
                self.take(name, gone)
            if new is not None:
                self.put(name, new)

    def take(self, name: str, rows: pa.Table) -> None:
        """Take rows out of a table of ours; Spark is not told."""
        if rows.num_rows:
            key = self._keys[name]
            self._session.table(name).delete(rows.select(key) if key else rows)

    def put(self, name: str, rows: pa.Table) -> None:
        """Put rows into a table of ours; Spark is not told."""
        if rows.num_rows:
            table = self._session.table(name)
            (table.upsert if self._keys[name] else table.insert)(rows)

    def drop(self, name: str) -> None:
        """Drop a table; nothing may show it any more."""
        del self._schemas[name], self._keys[name]
        self._unshown.discard(name)
        self._session.drop_table(name)
        self._batch.drop(name)


def _cast(schema: StructType, values: Sequence[str]) -> str:
    """Values as columns of a schema."""
    casts = zip(values, schema, strict=True)
    return ", ".join(f"cast({value} as {field.dataType.simpleString()}) as `{field.name}`" for value, field in casts)


def _columns(text: str) -> tuple[str, list[str]]:
    """The columns of a table as Spark's DDL has them, and the primary key."""
    columns, key = [], []
    for item in _items(text):
        if match := re.match(r"\s*(?:constraint\s+\w+\s+)?primary\s+key\s*\((.*?)\)", item, re.I):
            key = [column.strip().lower() for column in match[1].split(",")]
        elif re.match(r"\s*(constraint|unique|check|foreign|exclude)\b", item, re.I):
            continue
        elif match := _COLUMN.fullmatch(item.strip()):
            name, kind = match[1].lower(), spark_type(match[2], match[3])
            if re.search(r"\bgenerated\b", match[5], re.I):
                raise NotUnderstood(item)
            if re.search(r"\bprimary\s+key\b", match[5], re.I):
                key = [name]
            columns.append((name, f"array<{kind}>" if match[4] else kind, "not null" in match[5].lower()))
        else:
            raise NotUnderstood(item)
    ddl = [f"`{name}` {kind}{' not null' if strict or name in key else ''}" for name, kind, strict in columns]
    return ", ".join(ddl), key


def _items(text: str) -> list[str]:
    """What stands between commas that are in no parentheses and no string."""
    items, depth = [""], 0
    for piece in re.findall(r"'[^']*'|.", text, re.S):
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if piece == "," and depth == 0:
            items.append("")
        else:
            items[-1] += piece
    return items
