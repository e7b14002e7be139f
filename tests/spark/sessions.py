"""The fixtures of all tests on Spark: one SparkSession and one Ikebana session for each pytest process.

Both take seconds to start, and the first tasks, queries and streams of each take seconds more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ikebana.errors import IkebanaError
from ikebana.spark import Session, connect, spark_session

ROOT = Path(__file__).parents[2]
SLOTS = 8
SMALL = {"spark.default.parallelism": 2, "spark.sql.leafNodeDefaultParallelism": 2, "spark.sql.shuffle.partitions": 2}
"""Few tasks for each job."""

_open: list[Session] = []
"""The Ikebana session that files share, if it was needed."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A SparkSession whose relative paths are in a temporary folder."""
    config = {
        "spark.master": f"local[{SLOTS}]",
        "spark.log.level": "OFF",
        "spark.python.daemon.module": "tests.spark.python_daemon",
        **SMALL,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)  # for the daemon
        patch.chdir(tmp_path_factory.mktemp("spark"))
        spark = spark_session.start(0, name="tests", config=config)
    yield spark
    close_shared()
    spark.stop()


@pytest.fixture(scope="module")
def shared(spark: SparkSession) -> Iterator[Session]:
    """The session that files share; a file leaves it without tables and views.

    Once a query has read the time, a session has a new epoch every second; the next file gets another one.
    """
    if not _open or _has_clock(_open[0]) or not _is_alive(_open[0]):
        close_shared()
        _open.append(connect(spark, workers=2))
    yield _open[0]
    clear(_open[0])


@pytest.fixture
def session(shared: Session) -> Iterator[Session]:
    """The session that files share, without tables and views."""
    yield shared
    clear(shared)


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """For a file that counts sessions, workers or free slots: it does not share its session with other files."""
    close_shared()
    yield
    close_shared()


def clear(session: Session) -> None:
    """End all streams, and drop all views and tables."""
    for stream in session._streams:
        stream.end()
    for view in session.views():
        session.drop_view(view.name)
    for table in session.tables():
        session.drop_table(table.name)


def close_shared() -> None:
    while _open:
        _open.pop().close()


def _has_clock(session: Session) -> bool:
    return session._queries._clock is not None


def _is_alive(session: Session) -> bool:
    try:
        session.status()
    except IkebanaError:
        return False
    return True
