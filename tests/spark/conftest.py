"""One SparkSession for all tests of a pytest process: starting one takes up to 20 s."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ikebana.spark import launch

SLOTS = 8


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = launch.session(0, name="tests", config={"spark.master": f"local[{SLOTS}]", "spark.log.level": "OFF"})
    yield session
    session.stop()
