"""The query that Spark runs while workers start."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from ikebana.spark import first_query


@pytest.mark.spark
def test_a_first_query_runs_python_tasks(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    first_query.begin(spark).join()
    assert len(set(tracker.getJobIdsForGroup()) - before) == 1


def test_a_first_query_that_fails_is_no_error(recwarn: pytest.WarningsRecorder) -> None:
    broken: Any = object()
    first_query.begin(broken).join()
    assert not recwarn.list
