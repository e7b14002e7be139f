"""Sessions come back from a storage directory: tables, views and the positions of streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import ikebana as ik
from ikebana.errors import StorageInUseError
from ikebana.spark import Session
from tests.clusters import SOON, within
from tests.spark.conftest import Feed
from tests.spark.test_tables import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("alone")]

ROW = "id BIGINT, v STRING"
REACH = """
    .decl link(x: number, y: number)
    link(7, 8).
    .decl reach(x: number, y: number)
    .output reach
    reach(x, y) :- link(x, y).
    reach(x, z) :- reach(x, y), link(y, z).
"""


@pytest.fixture(autouse=True)
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IKEBANA_SECRET_FILE", str(tmp_path / "secret"))


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.thorough)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a session stores."""
    return str(tmp_path / "store") if request.param == "disk" else request.getfixturevalue("s3").new_uri()


@contextmanager
def connected(spark: SparkSession, place: str, spill: Path) -> Iterator[Session]:
    """A session whose batches are all in spill files."""
    spill.mkdir(exist_ok=True)
    with ik.connect(spark, workers=1, storage=place, spill=str(spill), spill_bytes=1) as session:
        yield session


def test_tables_views_and_streams_come_back(
    spark: SparkSession, tmp_path: Path, feed: Callable[..., Feed], place: str
) -> None:
    checkpoint, source, spill = str(tmp_path / "checkpoint"), feed(ROW), tmp_path / "spill"
    with connected(spark, place, spill) as session:
        assert session.recovered is not None and session.recovered.epoch == -1
        table, bag = session.create_table("t", ROW, key="id"), session.create_table("b", ROW)
        table.load(spark.range(100).select("id", F.concat(F.lit("v"), F.col("id") % 3).alias("v")))
        session.view("counts", "SELECT v, count(*) AS n FROM t GROUP BY v ORDER BY v DESC")
        session.view("large", table.to_df().where("id > 50").select("id"))
        session.view("shouted", bag.to_df().select(F.udf(lambda v: v + "!")("v").alias("v")))
        session.view("of a view", "SELECT sum(n) AS n FROM counts")
        session.view("counts", "SELECT v, count(*) AS n FROM t WHERE id < 50 GROUP BY v ORDER BY v DESC", replace=True)
        session.view("recent", "SELECT count(*) AS n FROM t WHERE now() > TIMESTAMP '2020-01-01'")
        session.view("dropped", table.count("v")).drop()
        forgetful = session.create_table("forgetful", "id BIGINT, at TIMESTAMP", expire_after="1 hour", on="at")
        forgetful.insert([(1, datetime(2099, 1, 1, tzinfo=UTC))])
        session.prepare("SELECT id FROM t WHERE v = :v AND id < 9", name="by v", v="STRING")
        program = session.datalog(REACH, prefix="p ")
        program.insert("link", [(1, 2), (2, 3)])
        program.remove("link", [(7, 8)])
        session.datalog(".decl gone(x: number) gone(1).").close()
        source.write({"id": 1, "v": "a"}, {"id": 2, "v": "b"})
        source.write()
        bag.follow(source.stream, checkpoint=checkpoint).wait()
        with pytest.raises(StorageInUseError):
            ik.connect(spark, workers=1, storage=place)
        epoch, before = session.epoch, answers(session)
        assert spilled(session) >= {"t", "counts", "large", "of a view"}
    source.write({"id": 3, "v": "c"})
    with connected(spark, place, spill) as session:
        found = session.recovered
        assert session.statement("by v").read(v="v1")["id"].to_pylist() == [1, 4, 7]
        session.program("p reach").insert("link", [(3, 4)])
        assert len(rows_of(session.view("p reach"))) == 6 and found is not None and found.programs == 1
        session.program("p reach").remove("link", [(3, 4)])
        assert found is not None and not found.failed and set(found.views) == set(before) and found.epoch <= epoch
        assert answers(session) == before
        assert spilled(session) >= {"t", "counts", "large", "of a view"}
        assert session.view("counts").to_arrow()["v"].to_pylist() == [
            "v2",
            "v1",
            "v0",
        ]  # in the order of its query
        following = session.table("b").follow(source.stream, checkpoint=checkpoint)
        following.wait()
        assert following.batches == 1 and rows_of(session.table("b")) == [(1, "a"), (2, "b"), (3, "c")]
        forgetful = session.table("forgetful")
        forgetful.insert([(2, datetime(2020, 1, 1, tzinfo=UTC))])
        assert within(SOON, lambda: forgetful.count() == 1), "rows still expire"
        session.table("t").delete([(0,)])
        assert answers(session)["of a view"] == [(99,)]
        assert session.view("counts").verify()
        session.drop_view("of a view")
        session.drop_table("b", cascade=True)
        assert session._stored is not None
        assert list(session._stored.views()) == ["counts", "large", "recent"]


def spilled(session: Session) -> set[str]:
    """The tables and views of which all rows, or some, are in spill files."""
    return {info.name for info in session.memory() if info.mapped}


def answers(session: Session) -> dict[str, list[tuple[Any, ...]]]:
    return {name: rows_of(view) for name, view in session._relations.views.items()}
