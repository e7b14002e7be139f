"""Views of random queries over random tables under random changes always equal Spark's answers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ikebana.spark import Session, connect
from ikebana.spark.answers import SparkAnswers
from tests.profiles import PROFILE
from tests.sql.random_queries import Grammar
from tests.sql.random_sql import Outcome, check, wrong
from tests.sql.random_tables import Column, Table, change, tables

SEEDS = {"quick": 4, "thorough": 400, "soak": 100_000}[PROFILE]
QUERIES = 25
ROUNDS = 2
REFUSED = 0.03
"""The share of queries that may be refused."""


_COLUMNS = [Column("k", "int", False), Column("v", "int", True), Column("n", "bigint", False)]
FOUND_OVER = (
    Table("t", _COLUMNS, True, [(1, 2, 5), (2, None, 6), (3, 2, 7)]),
    Table("u", _COLUMNS, False, [(1, 2, 5), (2, None, 6), (2, None, 6), (4, 4, 1)]),
    Table("e", _COLUMNS, False),
    Table("w", [Column("k", "int", False), Column("d", "int", False)], True, [(0, -2), (7, -2), (11, 2)]),
)
FOUND = (
    "select v from t intersect select 2 as c from u",
    "select 1.5 as c from t except select v / 2 from u",
    "select t.k, u.v from t left join u on t.k = u.k and 'b' like ''",
    "select k from t where not exists (select 1 from (select max(v) as m from u) q where startswith('ab', 'a'))",
    "select 1 as c from (select avg(v) as a, count(n) as b from t) q where 0 < (select min(k) from u)",
    "select max(k), sum(n) from e",
    "select sum(v), avg(n), max(n) from e",
    "select 5 as c from (select min(v) as m, min(k) filter (where v < n) as f from t) q",
    "select k from t where 4L <> (select count(*) from (select min(v) as a, sum(k) as b from u) q)",
    "with x as (select k, d from w order by d desc, k limit 2) select a.* from x a join x b on a.k = b.k",
    "select k, max_by(v, n) filter (where v is null) as a, max_by(v, k) filter (where v > 1) as b from u group by k",
    "select t.k, q.* from t, lateral (select u.n from u where u.v = t.v order by u.n desc limit 1) q",
)
"""Queries that were wrong once."""


def test_everything_follows_from_the_seed() -> None:
    def made(seed: int) -> tuple[object, ...]:
        r = random.Random(seed)
        found = tables(r)
        return tuple(map(str, found)), [Grammar(r, found).query() for _ in range(5)], [change(r, t) for t in found]

    assert made(3) == made(3) != made(4)


def test_changes_keep_keys_unique() -> None:
    r = random.Random(0)
    for _ in range(50):
        for table in tables(r):
            for _ in range(3):
                table.apply(change(r, table))
                assert table.arrow().num_rows == len(table.rows)
                if table.keyed:
                    assert len({row[0] for row in table.rows}) == len(table.rows)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[Session]:
    with connect(spark, workers=2) as session:
        yield session


@pytest.mark.spark
class TestOnSpark:
    def test_regression_queries_that_were_found(self, session: Session) -> None:
        batch = SparkAnswers(session.spark)
        found = {text: problem for text in FOUND if (problem := wrong(session, batch, FOUND_OVER, text))}
        assert not found, "\n".join(f"{text}\n{problem}" for text, problem in found.items())

    def test_oracle_random_queries(self, session: Session) -> None:
        batch, outcome = SparkAnswers(session.spark), Outcome()
        for seed in range(SEEDS):
            check(session, batch, seed, QUERIES, ROUNDS, outcome)
        print(outcome)
        assert not outcome.failures, "\n".join(sorted(outcome.failures, key=len)[:10])
        assert outcome.refused.total() <= REFUSED * outcome.queries, outcome.refused
        assert outcome.failed_in_spark.total() <= 0.01 * outcome.compared, outcome.failed_in_spark
        assert outcome.compared >= SEEDS * QUERIES * (ROUNDS + 0.5)
        assert outcome.rows > outcome.compared
