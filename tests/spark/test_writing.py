"""Writing to tables through the data source: batches and streams, each as one transaction, exactly once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ikebana.spark import Session
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark


def test_a_dataframe_is_one_transaction(session: Session, spark: SparkSession) -> None:
    table = session.create_table("written", "id BIGINT, name STRING", key="id")
    epoch = session.epoch
    rows = spark.range(100).selectExpr(
        "concat('n', id) AS name", "CAST(id AS INT) AS id"
    )  # another order, a narrower type
    rows.write.format("ikebana").mode("append").save("written")
    assert session.epoch == epoch + 1 and table.count() == 100
    upserted = spark.range(50, 150).selectExpr("id", "'new' AS name")
    upserted.write.format(session.format).mode("append").option("op", "upsert").save("written")
    deleted = spark.range(10).selectExpr("id", "'ignored' AS name")
    deleted.write.format("ikebana").mode("append").option("op", "delete").save("WRITTEN")
    assert table.count() == 140 and session.sql("SELECT count(*) FROM written WHERE name = 'new'").first() == (100,)
    epoch = session.epoch
    for frame, options, message in [
        (upserted, {}, "exists already"),
        (upserted.selectExpr("'x' AS id", "name"), {}, "does not fit table"),
        (upserted.selectExpr("NULLIF(id, 60) AS id", "name"), {"op": "upsert"}, "null"),
    ]:
        with pytest.raises(PySparkException, match=message):
            frame.write.format("ikebana").mode("append").options(**options).save("written")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        upserted.write.format("ikebana").mode("overwrite").save("written")
    assert session.epoch == epoch and not session._snapshots._writes._transactions


def test_micro_batches_are_applied_once(
    session: Session, spark: SparkSession, feed: Callable[[str], Feed], tmp_path: Path
) -> None:
    table = session.create_table("fed", "id BIGINT, n BIGINT", key="id")
    source = feed("id BIGINT, n BIGINT")
    writer = source.stream.writeStream.format("ikebana").option("checkpointLocation", str(tmp_path / "checkpoint"))
    source.write({"id": 1, "n": 1}, {"id": 2, "n": 1})
    source.write({"id": 1, "n": 2})
    epoch = session.epoch
    for wanted in ({(1, 2), (2, 1)}, {(1, 2), (2, 1), (3, 1)}):
        query = writer.option("op", "upsert").start("fed")
        query.processAllAvailable()
        query.stop()
        assert {tuple(row) for row in table.collect()} == wanted
        source.write({"id": 3, "n": 1})
    assert session.epoch == epoch + 3
    table.drop()
    session.create_table("fed", "id BIGINT, n BIGINT", key="id")
    query = writer.start("fed")  # the rows of earlier micro-batches would be missing
    with pytest.raises(PySparkException, match="cannot continue from the checkpoint"):
        query.processAllAvailable()
    query = writer.option("resume", True).start("fed")
    query.processAllAvailable()
    query.stop()
    assert session.table("fed").count() == 1
