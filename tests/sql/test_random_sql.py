"""Views of random queries over random tables under random changes always equal Spark's answers."""

from __future__ import annotations

import random

import pytest

from ikebana.spark import Session
from ikebana.spark.answers import SparkAnswers
from tests.profiles import PROFILE
from tests.sql.random_queries import Grammar
from tests.sql.random_sql import Outcome, check
from tests.sql.random_tables import change, tables

SEEDS = {"quick": 1, "thorough": 400, "soak": 100_000}[PROFILE]
QUERIES = 12 if PROFILE == "quick" else 25
ROUNDS = 2
REFUSED = 0.03
"""The share of queries that may be refused."""


def test_everything_follows_from_the_seed() -> None:
    def case(seed: int) -> tuple[object, ...]:
        r = random.Random(seed)
        start = tables(r)
        return tuple(map(str, start)), [Grammar(r, start).query() for _ in range(5)], [change(r, t) for t in start]

    assert case(3) == case(3) != case(4)


def test_changes_keep_keys_unique() -> None:
    r = random.Random(0)
    for _ in range(50):
        for table in tables(r):
            for _ in range(3):
                table.apply(change(r, table))
                assert table.arrow().num_rows == len(table.rows)
                if table.keyed:
                    assert len({row[0] for row in table.rows}) == len(table.rows)


@pytest.mark.spark
class TestOnSpark:
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
