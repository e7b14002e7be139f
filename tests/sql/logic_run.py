"""Scripts of SQL that were written for other systems, run against a session of ours and Spark.

Statements make and change tables (`Tables`); those not understood are left out and counted. Queries over tables that
Spark answers become views. Queries up to the next change of a table that they name are a stretch: half of the rows of
their tables are withheld, the views are made, the rest of the rows comes, and each view must equal Spark's answer.

Some queries have several right answers: which rows a LIMIT takes among those that tie, how a window numbers them, in
which order floating-point numbers are summed. When a view differs, Spark is asked again over the same rows in other
orders: if it then answers differently too, the query is counted apart, and only the number of rows is compared, unless
that differs too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ikebana.errors import IkebanaError, SqlError
from ikebana.spark import Session, View
from ikebana.spark.answers import SparkAnswers, difference
from tests.sql.logic_files import Record, records
from tests.sql.logic_tables import NotUnderstood, Tables
from tests.sql.psql_scripts import script

STRETCH = 40
"""How many views there are at once, at most."""

LARGE = 5000
"""Answers with more rows are left out."""

ORDERS = 4
"""In how many orders of rows Spark is asked whether there are several answers."""

REFUSED = (PySparkException, Py4JError)
"""What Spark raises for a query, and while it answers."""

CANNOT = (NotUnderstood, KeyError, ValueError, IkebanaError, *REFUSED)
"""What it means that a statement cannot be done."""


@dataclass
class Outcome:
    """What came of some files; of each kind of refusal there are examples."""

    compared: int = 0
    rows: int = 0
    undetermined: list[str] = field(default_factory=list)
    refused: dict[str, list[str]] = field(default_factory=dict)
    refused_by_spark: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = [("refused by Spark", self.refused_by_spark), ("statements left out", self.left_out)]
        lines = [f"{self.compared} queries compared, {self.rows} rows; {len(self.undetermined)} with several answers"]
        lines += [f"{kind}: {counts.total()}: {dict(counts.most_common(12))}" for kind, counts in kinds]
        lines += [f"refused {len(texts)} times: {what}, as in {texts[0]}" for what, texts in self.refused.items()]
        return "\n".join([*lines, *self.failures])


@dataclass
class Query:
    """A query of a stretch."""

    place: str
    text: str
    wanted: pa.Table | None = None
    view: View | None = None


class Run:
    """Files, one after the other, in a session of ours and in Spark."""

    def __init__(self, session: Session, batch: SparkAnswers, outcome: Outcome) -> None:
        self._session, self._outcome = session, outcome
        self._tables = Tables(session, batch)
        self._stretch: dict[str, Query] = {}
        self._inserts: list[str] = []
        self._made = 0

    def file(self, path: Path, *, keep: bool = False) -> None:
        """Run a file; leave no table behind that was not there before, unless they are to be kept."""
        before = set(self._tables)
        try:
            for record in _read(path):
                if record.expected is not None:
                    self._insert()
                    self._query(f"{path.name}:{record.line}", record.text)
                elif not record.fails:
                    self._statement(record.text)
            self._insert()
            self._settle()
        finally:
            for name in set(self._tables) - before if not keep else ():
                self._tables.drop(name)

    def close(self) -> None:
        """Drop what was kept."""
        for name in list(self._tables):
            self._tables.drop(name)

    # Statements.

    def _statement(self, text: str) -> None:
        """INSERTs into one table wait for each other: Spark is asked once for all of them."""
        inserting = re.match(r"insert\s+into\s+\w+", text, re.I)
        if self._inserts and not (inserting and self._inserts[0].lower().startswith(inserting[0].lower() + " ")):
            self._insert()
        if inserting:
            self._inserts.append(text)
        else:
            self._execute(text)

    def _insert(self) -> None:
        texts, self._inserts = self._inserts, []
        if not texts:
            return
        self._before(texts[0])
        try:
            self._tables.insert_all(texts)
        except CANNOT:
            for text in texts:
                self._execute(text)

    def _execute(self, text: str) -> None:
        self._before(text)
        try:
            self._tables.execute(text)
        except CANNOT:
            self._outcome.left_out[" ".join(text.lower().split()[:2])] += 1

    def _before(self, statement: str) -> None:
        """Be done with queries over what a statement may change."""
        changing = self._tables.named(statement)
        if any(name in changing for query in self._stretch for name in self._tables.named(query)):
            self._settle()

    # Queries.

    def _query(self, place: str, text: str) -> None:
        if self._tables.named(text):
            self._stretch.setdefault(text, Query(place, text))
        if len(self._stretch) >= STRETCH:
            self._settle()

    def _settle(self) -> None:
        """Compare the queries of a stretch, and forget them."""
        queries, self._stretch = list(self._stretch.values()), {}
        answered = [query for query in queries if self._ask(query)]
        names = {name for query in answered for name in self._tables.named(query.text)}
        withheld = {name: self._tables.rows(name)[1::2] for name in names}
        try:
            with self._session.transaction():
                for name, rows in withheld.items():
                    self._tables.take(name, rows)
            for query in answered:
                self._install(query)
        finally:
            with self._session.transaction():
                for name, rows in withheld.items():
                    self._tables.put(name, rows)
        for query in answered:
            if query.view is not None:
                self._compare(query, query.view)
                query.view.drop()

    def _ask(self, query: Query) -> bool:
        """Whether Spark has an answer."""
        try:
            query.wanted = self._tables.answer(query.text)
        except REFUSED as error:
            self._outcome.refused_by_spark[_condition(error)] += 1
            return False
        names = query.wanted.column_names
        if len(set(map(str.lower, names))) < len(names):  # a view needs a name for each column
            names = [f"c{at}" for at in range(len(names))]
            query.text = f"select * from (\n{query.text}\n) as named({', '.join(names)})"
            query.wanted = query.wanted.rename_columns(names)
        if query.wanted.num_rows > LARGE:
            self._outcome.left_out["large answer"] += 1
        return query.wanted.num_rows <= LARGE

    def _install(self, query: Query) -> None:
        self._made += 1
        try:
            query.view = self._session.view(f"logic{self._made}", query.text)
        except SqlError as error:
            self._outcome.refused.setdefault(error.what, []).append(f"{query.place} {query.text}")
        except Exception as error:
            self._fail(query, f"cannot be installed: {type(error).__name__}: {error}")

    def _compare(self, query: Query, view: View) -> None:
        try:
            answer = view.to_arrow()
        except IkebanaError as error:
            self._fail(query, f"{type(error).__name__}: {error}")
            return
        self._outcome.compared += 1
        self._outcome.rows += answer.num_rows
        problem = difference(answer, query.wanted)
        if problem and answer.num_rows in self._possible(query):
            self._outcome.undetermined.append(f"{query.place} {query.text}")
        elif problem:
            self._fail(query, problem)

    def _possible(self, query: Query) -> Container[int]:
        """The numbers of rows that an answer may have if Spark's own depends on the order of rows; none if not."""
        rows = {name: self._tables.rows(name) for name in self._tables.named(query.text)}
        others = []
        for seed in range(ORDERS):
            for name, table in rows.items():
                self._tables.show(name, table.take(np.random.default_rng(seed).permutation(table.num_rows)))
            others.append(self._tables.answer(query.text))
        for name, table in rows.items():
            self._tables.show(name, table)
        if not any(difference(other, query.wanted) for other in others):
            return ()
        counts = {query.wanted.num_rows, *(other.num_rows for other in others)}
        return counts if len(counts) == 1 else range(max(counts) + 1)

    def _fail(self, query: Query, problem: str) -> None:
        self._outcome.failures.append(f"{query.place}\n{query.text}\n{problem}")


def _condition(error: Exception) -> str:
    """What Spark calls an error."""
    match = re.search(r"\[([A-Z_.]+)\]", str(error))
    return match[1].split(".")[0] if match else str(error)[:60]


def _read(path: Path) -> Iterator[Record]:
    """What a file has, by its format."""
    return (script if path.suffix == ".sql" else records)(path.read_text())


def run_folder(session: Session, folder: Path) -> Outcome:
    """Run the files of a folder; `test_setup.sql` comes first, and its tables stay for the others."""
    outcome = Outcome()
    runner = Run(session, SparkAnswers(session.spark), outcome)
    setup = folder / "test_setup.sql"
    try:
        if setup.exists():
            runner.file(setup, keep=True)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path != setup and path.name not in ("LICENSE", "README.md"):
                runner.file(path)
    finally:
        runner.close()
    return outcome
