"""Statements by topic (`tests/sql/topics`), each a view that equals Spark's answer before and after changes.

A script makes tables, asks queries, and then changes the tables. All queries of a script are views at once: they are
compared when they are made, and again after all changes. None may be refused, nor have several right answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ikebana.errors import IkebanaError
from ikebana.spark import Session, View, connect
from ikebana.spark.answers import SparkAnswers, difference
from tests.profiles import PROFILE
from tests.sql.logic_files import Record
from tests.sql.logic_tables import Tables
from tests.sql.psql_scripts import script

TOPICS = sorted((Path(__file__).parent / "topics").glob("*.sql"))


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[Session]:
    with connect(spark, workers=2) as session:
        yield session


class Topic:
    """A script, run in a session of ours and in Spark."""

    def __init__(self, session: Session, path: Path) -> None:
        self._session, self._tables = session, Tables(session, SparkAnswers(session.spark))
        self._views: dict[Record, View] = {}
        self.problems: list[str] = []
        records = list(script(path.read_text()))
        self._setup = list(takewhile(_is_statement, records))
        self.queries = [record for record in records if not _is_statement(record)]
        rest = list(dropwhile(_is_statement, records))
        self._changes = list(dropwhile(lambda record: not _is_statement(record), rest))
        assert all(map(_is_statement, self._changes)), "statements that change tables come after all queries"

    def run(self) -> None:
        """Create the views, change the tables, and compare; in profiles other than `quick` also before the changes."""
        try:
            self._execute(self._setup)
            for number, query in enumerate(self.queries):
                self._install(f"topic {number}", query)
            if PROFILE != "quick":
                self._compare("before changes")
            self._execute(self._changes)
            self._compare("after changes")
        finally:
            for view in self._views.values():
                self._session.forget_view(view)
            for name in list(self._tables):
                self._tables.drop(name)

    def _execute(self, statements: list[Record]) -> None:
        for statement in statements:
            self._tables.execute(statement.text)

    def _install(self, name: str, query: Record) -> None:
        try:
            self._views[query] = self._session.view(name, query.text)
        except IkebanaError as error:
            self._fail(query, f"cannot be made: {error}")

    def _compare(self, when: str) -> None:
        for query, view in self._views.items():
            wanted = self._tables.answer(query.text)
            try:
                problem = difference(view.to_arrow(), wanted)
            except IkebanaError as error:
                problem = str(error)
            if problem:
                self._fail(query, f"{when}: {problem}")

    def _fail(self, query: Record, problem: str) -> None:
        self.problems.append(f"line {query.line}: {query.text}\n{problem}")


def _is_statement(record: Record) -> bool:
    return record.expected is None


def test_all_topics_are_there() -> None:
    assert [path.stem for path in TOPICS] == [
        *("aggregates", "booleans", "case", "char_varchar", "floats", "grouping_sets", "integers", "joins", "limits"),
        *("select", "strings", "subselects", "unions", "windows", "with"),
    ]


@pytest.mark.spark
@pytest.mark.parametrize("path", TOPICS, ids=lambda path: path.stem)
def test_oracle_every_query_of_a_topic(session: Session, path: Path) -> None:
    topic = Topic(session, path)
    topic.run()
    assert not topic.problems, "\n\n".join(topic.problems)
    assert len(topic.queries) >= 15
    assert not session.tables() and not session.views()
