"""Sessions heal: a worker or its supervisor is killed, and tables, views, statements and programs go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import ikebana as ik
from ikebana.errors import WorkerLostError
from tests.clusters import SOON, within
from tests.spark.conftest import Feed
from tests.spark.test_storage import REACH, ROW
from tests.spark.test_tables import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("alone")]


@pytest.fixture(autouse=True)
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IKEBANA_SECRET_FILE", str(tmp_path / "secret"))


def test_a_session_goes_on_when_a_worker_or_its_supervisor_dies(
    spark: SparkSession, tmp_path: Path, feed: Callable[..., Feed]
) -> None:
    source = feed(ROW)
    with ik.connect(spark, workers=2, storage=str(tmp_path / "store")) as session:
        table, followed = session.create_table("t", ROW, key="id"), session.create_table("f", ROW)
        table.load(spark.range(100).select("id", F.concat(F.lit("v"), F.col("id") % 3).alias("v")))
        counts = session.view("counts", "SELECT v, count(*) AS n FROM t GROUP BY v")
        recent = session.view("recent", "SELECT count(*) AS n FROM t WHERE now() > TIMESTAMP '2020-01-01'")
        forgetful = session.create_table("forgetful", "id BIGINT, at TIMESTAMP", expire_after="1 hour", on="at")
        statement = session.prepare("SELECT id FROM t WHERE v = :v AND id < :below", v="STRING", below="BIGINT")
        opened = statement.open(v="v1", below=9)
        program = session.datalog(REACH)
        program.insert("link", [(1, 2), (2, 3)])
        stream = followed.follow(source.stream, checkpoint=str(tmp_path / "checkpoint"))
        changes, total = counts.changes(timeout=SOON), dict[str, int]()
        for victim in ("worker", "supervisor"):
            for _, items in [next(changes)]:
                total |= {row["v"]: row["n"] for row in items.to_pylist() if row["diff"] > 0}
            killed = psutil.Process(session._cluster.pids[1])
            transaction = session.transaction()
            transaction.insert(table._inner, {"id": [-1], "v": ["lost"]})
            os.kill((killed if victim == "worker" else killed.parent()).pid, signal.SIGKILL)
            assert within(SOON, lambda pid=killed.pid: session._cluster.pids[1] != pid)
            with pytest.raises(WorkerLostError, match="nothing of the transaction was applied"):
                transaction.commit()
            assert session.recovered is not None and "worker 1" in session.recovered.reason
            assert session.recovered.steps["start workers"] > 0 and len(session.recovered.views) == 3
            assert dict(rows_of(counts)) == total and rows_of(recent) == [(sum(total.values()),)]
            assert opened.to_arrow()["id"].to_pylist() == [1, 4, 7]
            assert statement.read(v="v2", below=9)["id"].to_pylist() == [2, 5, 8]
            assert len(rows_of(session.view("reach"))) == 4
            table.load(spark.createDataFrame([(1000 + len(victim), "v0")], ROW))
            assert within(SOON, lambda: spark.sql("SELECT count(*) FROM t").collect()[0][0] == table.count())
            forgetful.insert([(len(victim), datetime(2000, 1, 1, tzinfo=UTC))])
            assert within(SOON, lambda: forgetful.count() == 0)
            source.write({"id": len(victim), "v": "new"})
            stream.wait()
        assert followed.count() == 2 and dict(rows_of(counts))["v0"] == 36
