"""Run the topics on Spark, and write what they did: `python -m tests.sql.record_topics`.

It starts Spark, and takes a few minutes.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ikebana.spark import Session, connect, spark_session
from ikebana.spark.naming import mentioned
from ikebana.spark.types import fields_of
from ikebana.sql.planned import Planned
from tests.sql.logic_tables import Tables
from tests.sql.record_plans import renumbered
from tests.sql.recorded_topics import TOPICS, Change, RecordedTopic, TopicQuery, TopicTable, write
from tests.sql.topics_on_spark import Topic


class _RecordingTables(Tables):
    """Tables that remember their changes."""

    changes: list[Change]

    def _apply(self, name: str, gone: pa.Table | None, new: pa.Table | None) -> None:
        self.changes.append(Change(name, gone, new))
        super()._apply(name, gone, new)

    def recorded(self, name: str) -> TopicTable:
        key = tuple(self._keys[name])
        return TopicTable(name, tuple(fields_of(self._schemas[name], key)), key, self.rows(name))


class _RecordingTopic(Topic):
    """A topic that remembers what it does."""

    tables_class = _RecordingTables
    tables: _RecordingTables

    def recorded(self) -> RecordedTopic:
        try:
            self.tables.changes = []
            self.execute(self.setup)
            tables = [self.tables.recorded(name) for name in self.tables]
            plans = [self._planned(query.text) for query in self.queries]
            self.tables.changes = []
            self.execute(self.changes)
            answers = [self.tables.answer(query.text) for query in self.queries]
        finally:
            self.clear()
        queries = [
            TopicQuery(query.line, query.text, plan, answer)
            for query, plan, answer in zip(self.queries, plans, answers, strict=True)
        ]
        return RecordedTopic(tables, queries, self.tables.changes)

    def _planned(self, text: str) -> Planned:
        relations = self.session._relations.sources
        names = mentioned(text, relations)
        return renumbered(self.session._queries._planner_of(relations, names).plan(text, names))


def record(session: Session, path: Path) -> None:
    """Record one topic."""
    write(path.stem, _RecordingTopic(session, path).recorded())


def main() -> None:
    spark = spark_session.start(2, name="topics", config={"spark.log.level": "OFF"})
    try:
        with connect(spark, workers=2, temp_views=False) as session:
            for path in TOPICS:
                record(session, path)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
