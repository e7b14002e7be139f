"""Files in the format of sqllogictest: what is in them, and how they are run against a session and Spark.

A file is a list of records with an empty line between them: statements, queries with the rows expected, and conditions
(`skipif`, `onlyif`) on the record that follows. Lines that begin with # are comments. `halt` ends a file; `mode skip`
leaves out what follows until `mode unskip`. Of each query's header only the sort mode matters here.

CREATE TABLE makes a bag of rows in both; INSERT, DELETE, UPDATE and DROP TABLE change both; what cannot be read as such
is left out and counted. A query becomes a view, which must equal Spark's answer. Views stay, so that later statements
change what they show, until the tables are dropped or the file ends.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from ikebana.bench.tpch.answers import Batch, difference
from ikebana.errors import IkebanaError, SqlError
from ikebana.spark import Session, View

ENGINE = "spark"
"""Whom `skipif` and `onlyif` mean here."""

TYPES = {"integer": "int", "int4": "int", "int8": "bigint", "float8": "double", "varchar": "string", "text": "string"}
TYPES |= {"bool": "boolean", "real": "float", "double precision": "double", "character varying": "string"}


@dataclass(frozen=True)
class Record:
    """A statement (`expected` is None) or a query, from a line of a file."""

    line: int
    text: str
    expected: tuple[str, ...] | None = None
    sort: str = "nosort"
    fails: bool = False


def records(text: str) -> Iterator[Record]:
    """What a file has to be run, in order."""
    skipping = False
    for line, block in _blocks(text):
        while block and (condition := re.fullmatch(r"(skipif|onlyif)\s+(\w+).*", block[0])):
            if (condition[1] == "skipif") == (condition[2] == ENGINE):
                block = []
            block, line = block[1:], line + 1
        if not block:
            continue
        words = block[0].split()
        match words[0]:
            case "halt":
                return
            case "mode":
                skipping = words[1] == "skip"
            case "statement" if not skipping:
                body = _until_rule(block[1:])[0]
                yield Record(line, _statement(body), fails=words[1] == "error")
            case "query" if not skipping:
                body, rows = _until_rule(block[1:])
                sort = next((word for word in words[1:] if word in ("nosort", "rowsort", "valuesort")), "nosort")
                yield Record(line, _statement(body), tuple(rows), sort)


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Lines between empty ones, without comments, and the number of the first."""
    block: list[str] = []
    first = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("#"):
            continue
        if line.strip():
            first = first if block else number
            block.append(line)
        elif block:
            yield first, block
            block = []


def _until_rule(lines: list[str]) -> tuple[list[str], list[str]]:
    """What is above and below a line of dashes."""
    at = lines.index("----") if "----" in lines else len(lines)
    return lines[:at], lines[at + 1 :]


def _statement(lines: list[str]) -> str:
    return "\n".join(lines).strip().rstrip(";").strip()


@dataclass
class Outcome:
    """What came of some files."""

    compared: int = 0
    refused_by_spark: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


class Run:
    """One file, in a session of ours and in Spark."""

    def __init__(self, session: Session, batch: Batch, outcome: Outcome) -> None:
        self._session, self._batch, self._outcome = session, batch, outcome
        self._schemas: dict[str, StructType] = {}
        self._views: dict[str, tuple[str, View]] = {}
        self._made = 0

    def file(self, path: Path) -> None:
        """Run a file, and leave nothing behind."""
        try:
            for record in records(path.read_text()):
                if record.expected is None and not record.fails:
                    self._execute(record.text)
                elif record.expected is not None:
                    self._query(f"{path.name}:{record.line}", record.text)
        finally:
            for name in list(self._schemas):
                self._drop(name)

    # Statements.

    def _execute(self, text: str) -> None:
        kind = " ".join(text.lower().split()[:2])
        try:
            if made := re.fullmatch(r"create table (\w+)\s*\((.*)\)", text, re.IGNORECASE | re.DOTALL):
                self._create(made[1].lower(), made[2])
            elif found := re.fullmatch(r"insert into (\w+)\s*(\([\w\s,]+\))?\s*(.*)", text, re.IGNORECASE | re.DOTALL):
                self._insert(found[1].lower(), found[2], found[3])
            elif found := re.fullmatch(r"delete from (\w+)(?:\s+where\s+(.*))?", text, re.IGNORECASE | re.DOTALL):
                self._delete(found[1].lower(), found[2] or "true")
            elif found := re.fullmatch(
                r"update (\w+)\s+set\s+(.*?)(?:\s+where\s+(.*))?", text, re.IGNORECASE | re.DOTALL
            ):
                self._update(found[1].lower(), found[2], found[3] or "true")
            elif found := re.fullmatch(r"drop table (\w+)", text, re.IGNORECASE):
                self._drop(found[1].lower())
            else:
                self._outcome.left_out[kind] += 1
                return
        except (KeyError, PySparkException, ValueError):
            self._outcome.left_out[kind] += 1
            return
        self._compare_all(text)

    def _create(self, name: str, columns: str) -> None:
        ddl = columns.lower()
        for theirs, ours in TYPES.items():
            ddl = re.sub(rf"\b{theirs}\b(\(\d+\))?", ours, ddl)
        schema = StructType.fromDDL(ddl)
        self._session.create_table(name, schema)
        self._schemas[name] = schema
        self._show(name)

    def _insert(self, name: str, columns: str | None, source: str) -> None:
        schema = self._schemas[name]
        given = [each.strip().lower() for each in columns.strip("()").split(",")] if columns else schema.names
        casts = [
            f"cast({f'c{given.index(each.name)}' if each.name in given else 'null'} as {each.dataType.simpleString()})"
            for each in schema
        ]
        shown = ", ".join(f"{cast} as {each.name}" for cast, each in zip(casts, schema, strict=True))
        names = ", ".join(f"c{at}" for at in range(len(given)))
        self._session.table(name).insert(self._batch.answer(f"select {shown} from ({source}) as s({names})"))
        self._show(name)

    def _delete(self, name: str, where: str) -> None:
        gone = self._batch.answer(f"select * from {name} where {where}")
        self._change(name, gone, gone.slice(0, 0))

    def _update(self, name: str, assignments: str, where: str) -> None:
        schema = self._schemas[name]
        parts = (each.split("=", 1) for each in re.split(r",(?![^()]*\))", assignments))
        new = {column.strip().lower(): value for column, value in parts}
        shown = ", ".join(
            f"cast({new.get(each.name, each.name)} as {each.dataType.simpleString()}) as {each.name}" for each in schema
        )
        before = self._batch.answer(f"select * from {name} where {where}")
        self._change(name, before, self._batch.answer(f"select {shown} from {name} where {where}"))

    def _change(self, name: str, gone: pa.Table, new: pa.Table) -> None:
        table = self._session.table(name)
        with self._session.transaction():
            if gone.num_rows:
                table.delete(gone)
            if new.num_rows:
                table.insert(new)
        self._show(name)

    def _drop(self, name: str) -> None:
        for text, (view, _) in list(self._views.items()):
            if re.search(rf"\b{name}\b", text, re.IGNORECASE):
                self._session.drop_view(view)
                del self._views[text]
        del self._schemas[name]
        self._session.drop_table(name)
        self._batch.drop(name)

    def _show(self, name: str) -> None:
        self._batch.show(name, self._session.table(name).to_arrow(), self._schemas[name])

    # Queries.

    def _query(self, place: str, text: str) -> None:
        if text in self._views or not any(re.search(rf"\b{name}\b", text, re.IGNORECASE) for name in self._schemas):
            return
        try:
            self._batch.answer(text)
        except PySparkException as error:
            self._outcome.refused_by_spark[str(error).splitlines()[0].split("]")[0][:60]] += 1
            return
        self._made += 1
        name = f"logic{self._made}"
        try:
            view = self._session.view(name, text)
        except SqlError as error:
            self._outcome.refused[error.what] += 1
            return
        self._views[text] = name, view
        self._compare(place, text, view)

    def _compare_all(self, statement: str) -> None:
        for text, (_, view) in self._views.items():
            self._compare(f"after {statement}", text, view)

    def _compare(self, place: str, text: str, view: View) -> None:
        try:
            wanted = self._batch.answer(text)
        except PySparkException:
            return  # it has no answer any more
        try:
            problem = difference(view.to_arrow(), wanted)
        except IkebanaError as error:
            problem = f"{type(error).__name__}: {error}"
        self._outcome.compared += 1
        if problem:
            self._outcome.failures.append(f"{place}\n{text}\n{problem}")
