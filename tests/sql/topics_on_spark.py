"""Topics (`tests/sql/topics`) on Spark: a script, run in a session of ours and in Spark.

A script makes tables, asks queries, and then changes the tables. All queries of a script are views at once: they are
compared when they are made, and again after all changes. None may be refused, nor have several right answers.
"""

from __future__ import annotations

from itertools import dropwhile, takewhile
from pathlib import Path

from ikebana.errors import IkebanaError
from ikebana.spark import Session, View
from ikebana.spark.answers import SparkAnswers, difference
from tests.sql.logic_files import Record
from tests.sql.logic_tables import Tables
from tests.sql.psql_scripts import script


class Topic:
    """A script: its statements that make tables, its queries, and its statements that change tables."""

    tables_class = Tables

    def __init__(self, session: Session, path: Path) -> None:
        self.session, self.tables = session, self.tables_class(session, SparkAnswers(session.spark))
        self.problems: list[str] = []
        self._views: dict[Record, View] = {}
        records = list(script(path.read_text()))
        self.setup = list(takewhile(is_statement, records))
        self.queries = [record for record in records if not is_statement(record)]
        rest = list(dropwhile(is_statement, records))
        self.changes = list(dropwhile(lambda record: not is_statement(record), rest))
        assert all(map(is_statement, self.changes)), "statements that change tables come after all queries"

    def run(self) -> None:
        """Create the views, change the tables, and compare before and after the changes."""
        try:
            self.execute(self.setup)
            for number, query in enumerate(self.queries):
                self._install(f"topic {number}", query)
            self._compare("before changes")
            self.execute(self.changes)
            self._compare("after changes")
        finally:
            self.clear()

    def execute(self, statements: list[Record]) -> None:
        """Execute statements, in both."""
        for statement in statements:
            self.tables.execute(statement.text)

    def clear(self) -> None:
        """Drop views and tables."""
        for view in self._views.values():
            view.drop()
        for name in list(self.tables):
            self.tables.drop(name)

    def _install(self, name: str, query: Record) -> None:
        try:
            self._views[query] = self.session.view(name, query.text)
        except IkebanaError as error:
            self._fail(query, f"cannot be made: {error}")

    def _compare(self, when: str) -> None:
        for query, view in self._views.items():
            wanted = self.tables.answer(query.text)
            try:
                problem = difference(view.to_arrow(), wanted)
            except IkebanaError as error:
                problem = str(error)
            if problem:
                self._fail(query, f"{when}: {problem}")

    def _fail(self, query: Record, problem: str) -> None:
        self.problems.append(f"line {query.line}: {query.text}\n{problem}")


def is_statement(record: Record) -> bool:
    """Whether a record is a statement, not a query."""
    return record.expected is None
