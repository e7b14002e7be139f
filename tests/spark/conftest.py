"""One SparkSession for all tests of a pytest process, and one Ikebana session for each file: starting is slow."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ikebana.spark import Session, connect, spark_session

SLOTS = 8
SMALL = {"spark.default.parallelism": 2, "spark.sql.leafNodeDefaultParallelism": 2, "spark.sql.shuffle.partitions": 2}
"""Few tasks for each job."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    config = {"spark.master": f"local[{SLOTS}]", "spark.log.level": "OFF", **SMALL}
    session = spark_session.start(0, name="tests", config=config)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def shared(spark: SparkSession) -> Iterator[Session]:
    with connect(spark, workers=2) as session:
        yield session


@pytest.fixture
def session(shared: Session) -> Iterator[Session]:
    """A session without tables and views, which are dropped after each test."""
    yield shared
    for stream in shared._streams:
        stream.end()
    for view in shared.views():
        shared.drop_view(view.name)
    for table in shared.tables():
        shared.drop_table(table.name)


@pytest.fixture
def zone(spark: SparkSession) -> Iterator[str]:
    """A time zone that is not UTC."""
    key, name = "spark.sql.session.timeZone", "America/New_York"
    before = spark.conf.get(key)
    spark.conf.set(key, name)
    yield name
    spark.conf.set(key, before)


class Feed:
    """A directory of JSON files that a stream reads, one after the other."""

    def __init__(self, spark: SparkSession, path: Path, schema: str) -> None:
        self.path, self._files, self._began = path, 0, int(time.time()) - 1000
        self.stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(path))

    def write(self, *rows: Any) -> None:
        """One more file: one more micro-batch."""
        hidden = self.path / f"_{self._files}"
        hidden.write_text("\n".join(json.dumps(row) for row in rows))
        os.utime(hidden, (self._began + self._files,) * 2)  # Spark reads the files in this order
        hidden.rename(self.path / f"{self._files:04}.json")
        self._files += 1


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Callable[[str], Feed]:
    def make(schema: str, name: str = "feed") -> Feed:
        (tmp_path / name).mkdir()
        return Feed(spark, tmp_path / name, schema)

    return make
