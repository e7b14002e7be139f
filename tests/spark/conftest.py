"""The fixtures of the tests on Spark (`tests.spark.sessions`), time zones and streams of files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.sessions import alone, session, shared, spark

__all__ = ["alone", "session", "shared", "spark"]


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
