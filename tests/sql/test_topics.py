"""Statements by topic (`tests/sql/topics`), each a view that equals Spark's answer, also after changes.

By default Spark's plans and answers are those that were recorded (`tests.sql.record_topics`), so that neither Spark nor
Java is needed; in the profile `thorough` the topics also run on Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ikebana.engine import Engine
from ikebana.errors import IkebanaError
from ikebana.spark import Session
from ikebana.spark.answers import difference
from ikebana.sql.lowering.query import lower
from tests.sql.psql_scripts import script
from tests.sql.recorded_topics import TOPICS, RecordedTopic, TopicQuery, apply, create, read
from tests.sql.topics_on_spark import Topic, is_statement


def test_all_topics_are_there() -> None:
    assert [path.stem for path in TOPICS] == [
        *("aggregates", "booleans", "case", "char_varchar", "floats", "grouping_sets", "integers", "joins", "limits"),
        *("select", "strings", "subselects", "unions", "windows", "with"),
    ]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("path", TOPICS, ids=lambda path: path.stem)
def test_oracle_every_query_of_a_topic(path: Path, workers: int) -> None:
    topic = read(path.stem)
    expected = [query for query in script(path.read_text()) if not is_statement(query)]
    assert list(map(as_record, topic.queries)) == [(query.line, query.text) for query in expected], (
        "the script has changed: record it again with `python -m tests.sql.record_topics`"
    )
    assert len(expected) >= 15
    problems = [f"line {query.line}: {query.text}\n{problem}" for query, problem in differences(topic, workers)]
    assert not problems, "\n\n".join(problems)


def as_record(query: TopicQuery) -> tuple[int, str]:
    return query.line, query.text


def differences(topic: RecordedTopic, workers: int) -> Iterator[tuple[TopicQuery, str]]:
    """The queries whose answers after all changes are not Spark's, and how they differ."""
    with Engine(workers) as engine:
        tables = {table.name: create(engine, table) for table in topic.tables}
        views = [
            engine.install(f"topic {number}", lower(query.plan, tables).rows)
            for number, query in enumerate(topic.queries)
        ]
        for change in topic.changes:
            apply(engine, change)
        for query, view in zip(topic.queries, views, strict=True):
            try:
                problem = difference(view.to_arrow(), query.answer)
            except IkebanaError as error:
                problem = str(error)
            if problem:
                yield query, problem


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.parametrize("path", TOPICS, ids=lambda path: path.stem)
def test_oracle_every_query_of_a_topic_on_spark(session: Session, path: Path) -> None:
    topic = Topic(session, path)
    topic.run()
    assert not topic.problems, "\n\n".join(topic.problems)
    assert not session.tables() and not session.views()
