"""Expressions, as Spark itself evaluates them now: the recordings that other tests use are what Spark answers.

In the quick profile only some of them: Spark compiles code for every expression, which takes minutes.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.sql.expression_sets import RUN_IDS, RUNS
from tests.sql.record_expressions import record
from tests.sql.recorded_expressions import read

pytestmark = pytest.mark.spark

QUICK = [("literals", True), ("conditions", False), ("codes", True)]


@pytest.mark.parametrize(
    ("name", "ansi"),
    [pytest.param(*run, marks=[] if run in QUICK else [pytest.mark.thorough]) for run in RUNS],
    ids=RUN_IDS,
)
def test_oracle_expressions(spark: SparkSession, name: str, ansi: bool) -> None:
    assert record(spark, name, ansi) == read(name, ansi)
