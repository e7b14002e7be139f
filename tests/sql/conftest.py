"""One SparkSession for all tests of a pytest process: the same that the tests of `tests/spark` have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ikebana.spark import spark_session
from tests.spark.conftest import SLOTS, SMALL


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    config = {"spark.master": f"local[{SLOTS}]", "spark.log.level": "OFF", **SMALL}
    session = spark_session.start(0, name="tests", config=config)
    yield session
    session.stop()
