"""Random SQL against Spark: random tables, data with nulls, queries of a grammar and changes, all from one seed.

    python -m tests.sql.random_sql --seed 1 --minutes 10

A case is a set of tables, some queries over them and some rounds of changes. Most views are made before the changes,
some in between, over tables that have been changed already. After every round each view must equal Spark's own answer
over the same rows. A query that is refused with `SqlError` is counted, by what the error names. A difference is
reported with the seed, the tables as they were, the query and the rows that differ, after rows that do not matter were
left out as far as they could be.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from ikebana.errors import EvaluationError, IkebanaError, SqlError
from ikebana.spark import Session, View, connect, spark_session
from ikebana.spark.answers import SparkAnswers, difference
from tests.sql.random_queries import MAY_FAIL, Grammar
from tests.sql.random_tables import Change, Table, change, tables

SHRINKING = 40
"""Trials to make a failure smaller."""


@dataclass
class Outcome:
    """What came of some cases; of each kind of refusal there is an example."""

    compared: int = 0
    queries: int = 0
    rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    failed_in_spark: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.queries} queries, {self.compared} answers compared, {self.rows} rows in them"]
        for what, count in self.refused.most_common():
            lines.append(f"refused {count} times: {what}, as in {self.examples[what]}")
        lines += [f"failed in Spark {count} times: {what}" for what, count in self.failed_in_spark.most_common()]
        return "\n".join([*lines, *self.failures])


class Twins:
    """The same tables in a session of ours and in Spark."""

    def __init__(self, session: Session, batch: SparkAnswers, start: Sequence[Table]) -> None:
        self._session, self._batch = session, batch
        self.tables = [replace(table, rows=list(table.rows)) for table in start]
        for table in self.tables:
            ours = session.create_table(table.name, table.ddl, table.key)
            if table.rows:
                ours.insert(table.arrow())
            self._show(table)

    def apply(self, changes: Sequence[Change]) -> None:
        """A round of changes, as one transaction."""
        with self._session.transaction():
            for table, edit in zip(self.tables, changes, strict=True):
                self._change(table, edit)
        for table, edit in zip(self.tables, changes, strict=True):
            table.apply(edit)
            self._show(table)

    def _change(self, table: Table, edit: Change) -> None:
        ours = self._session.table(table.name)
        if edit.deleted:
            rows = list(edit.deleted)
            ours.delete(table.keys(rows) if table.keyed else table.arrow(rows))
        if edit.upserted:
            rows = list(edit.upserted)
            (ours.upsert if table.keyed else ours.insert)(table.arrow(rows))
        for row in edit.hot:
            ours.upsert(table.arrow([row]))

    def _show(self, table: Table) -> None:
        self._batch.show(table.name, table.arrow(), StructType.fromDDL(table.ddl))

    def copies(self) -> tuple[Table, ...]:
        """The tables as they are now."""
        return tuple(replace(table, rows=list(table.rows)) for table in self.tables)

    def close(self) -> None:
        """Drop the tables, and all views."""
        for view in self._session.views():
            self._session.drop_view(view.name)
        for table in self.tables:
            self._session.drop_table(table.name)
            self._batch.drop(table.name)


@dataclass(frozen=True)
class Failure:
    """A query that went wrong, over the tables as they were then."""

    seed: int
    round: int
    text: str
    problem: str
    tables: tuple[Table, ...]

    def __str__(self) -> str:
        rows = "\n".join(map(str, self.tables))
        return f"seed {self.seed}, round {self.round}\n{rows}\nquery: {self.text}\n{self.problem}\n"


def check(session: Session, batch: SparkAnswers, seed: int, queries: int, rounds: int, outcome: Outcome) -> None:
    """One case: add what comes of it to the outcome."""
    r = random.Random(seed)
    start = tables(r)
    grammar = Grammar(r, start)
    texts = [grammar.query() for _ in range(queries)]
    early = len(texts) * 2 // 3
    views: dict[str, View] = {}
    failures: list[Failure] = []
    twins = Twins(session, batch, start)
    try:
        for number in range(rounds + 1):
            if number:
                twins.apply([change(r, table) for table in twins.tables])
            new = texts[:early] if number == 0 else texts[early:] if number == 1 else []
            problems = _install(session, new, views, outcome)
            for text in list(views):
                if problem := _compare(batch, text, views[text], outcome):
                    views.pop(text).drop()
                    problems[text] = problem
            now = twins.copies()
            failures += [Failure(seed, number, text, problem, now) for text, problem in problems.items()]
    finally:
        twins.close()
    outcome.failures += [str(shrunk(session, batch, failure)) for failure in failures]


def _install(session: Session, texts: Sequence[str], views: dict[str, View], outcome: Outcome) -> dict[str, str]:
    """Make views of queries; what went wrong, by query."""
    problems = {}
    for text in texts:
        outcome.queries += 1
        try:
            views[text] = session.view(f"v{outcome.queries}", text)
        except SqlError as error:
            outcome.refused[error.what] += 1
            outcome.examples.setdefault(error.what, text)
        except Exception as error:
            problems[text] = f"cannot be installed: {type(error).__name__}: {error}"
    return problems


def _compare(batch: SparkAnswers, text: str, view: View, outcome: Outcome) -> str:
    """What is wrong with a view now; nothing if it is right, or if Spark has no answer either."""
    try:
        wanted = batch.answer(text)
    except (PySparkException, Py4JError) as error:
        if text.startswith(MAY_FAIL):
            return _without_answer(view, outcome)
        outcome.failed_in_spark[str(error).splitlines()[0][:80]] += 1
        return ""
    try:
        problem = difference(view.to_arrow(), wanted)
    except IkebanaError as error:
        return f"{type(error).__name__}: {error}"
    outcome.compared += 1
    outcome.rows += wanted.num_rows
    return problem


def _without_answer(view: View, outcome: Outcome) -> str:
    """What is wrong with a view that must fail, as Spark does; nothing if it does."""
    try:
        view.to_arrow()
    except EvaluationError:
        outcome.compared += 1
        return ""
    return "has an answer, and Spark has none"


# Making failures smaller.


def shrunk(session: Session, batch: SparkAnswers, failure: Failure, trials: int = SHRINKING) -> Failure:
    """The same failure over fewer rows, if it is there without any changes; else as it was."""
    problem = wrong(session, batch, failure.tables, failure.text)
    if not problem:
        return replace(failure, problem=f"only after changes: {failure.problem}")
    failure = replace(failure, problem=problem)
    candidates = _smaller(failure.tables)
    for _ in range(trials):
        smaller = next(candidates, None)
        if smaller is None:
            break
        if problem := wrong(session, batch, smaller, failure.text):
            failure = replace(failure, tables=smaller, problem=problem)
            candidates = _smaller(smaller)
    return failure


def wrong(session: Session, batch: SparkAnswers, start: Sequence[Table], text: str) -> str:
    """What is wrong with a new view of a query; nothing if it is right."""
    twins, outcome, views = Twins(session, batch, start), Outcome(), dict[str, View]()
    try:
        problems = _install(session, [text], views, outcome)
        if problems or outcome.refused:
            return "\n".join([*problems.values(), *outcome.refused])
        return _compare(batch, text, views[text], outcome)
    finally:
        twins.close()


def _smaller(start: Sequence[Table]) -> Iterator[tuple[Table, ...]]:
    """The same tables with half of the rows of one, then with one row less."""
    for at, table in enumerate(start):
        half = len(table.rows) // 2
        for rows in (table.rows[:half], table.rows[half:]):
            if len(rows) < len(table.rows):
                yield (*start[:at], replace(table, rows=rows), *start[at + 1 :])
    for at, table in enumerate(start):
        for row in range(len(table.rows)):
            yield (*start[:at], replace(table, rows=table.rows[:row] + table.rows[row + 1 :]), *start[at + 1 :])


# The command.


@contextmanager
def _session(workers: int) -> Iterator[tuple[Session, SparkAnswers]]:
    config = {"spark.master": "local[8]", "spark.log.level": "OFF"}
    spark = spark_session.start(0, name="random SQL", config=config)
    try:
        with connect(spark, workers=workers, temp_views=False) as session:
            yield session, SparkAnswers(spark)
    finally:
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="Random SQL against Spark, for as long as one likes.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--queries", type=int, default=25, help="queries over each set of tables (default: 25)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of changes (default: 2)")
    parser.add_argument("--workers", type=int, default=2, help="workers (default: 2)")
    chosen = parser.parse_args()
    outcome, end = Outcome(), time.monotonic() + 60 * chosen.minutes
    with _session(chosen.workers) as (session, batch):
        seed = chosen.seed
        while time.monotonic() < end:
            before = len(outcome.failures)
            check(session, batch, seed, chosen.queries, chosen.rounds, outcome)
            print(f"seed {seed}: {outcome.queries} queries, {len(outcome.failures)} failures", flush=True)
            print("\n".join(outcome.failures[before:]), end="", flush=True)
            seed += 1
    outcome.failures.clear()
    print(outcome)


if __name__ == "__main__":
    main()
