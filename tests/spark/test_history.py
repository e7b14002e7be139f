"""The past of views and tables in a session; subscriptions and streams of changes that continue in the next session."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import ikebana as ik
from ikebana.errors import DataflowError, SchemaError, TimeError
from ikebana.spark import Session
from ikebana.storage.inspection import describe
from tests.clusters import SOON

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("alone")]

ROW = "id BIGINT, v BIGINT"
SUMS = "SELECT v, count(*) AS n FROM t GROUP BY v"


@pytest.fixture(autouse=True)
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IKEBANA_SECRET_FILE", str(tmp_path / "secret"))


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*table.to_pydict().values(), strict=True))


def test_the_past_of_views_and_tables(session: Session) -> None:
    table = session.create_table("t", ROW, key="id", retain="1 day")
    table.insert([(1, 5)])
    view = session.view("sums", SUMS + " ORDER BY v DESC", retain=timedelta(hours=1), retain_bytes=10_000_000)
    first, then = session.epoch - 1, datetime.now()
    last = table.insert([(2, 5), (3, 6)])
    assert view.to_arrow(at=first).to_pylist() == [{"v": 5, "n": 1}] == view.to_pandas(at=then).to_dict("records")
    assert view.collect(at=then) == [(5, 1)] and view.collect() == [(6, 1), (5, 2)]
    assert view.to_df(at=then).collect() == [(5, 1)] == view.to_df(at=first).collect()
    assert table.to_df(at=then).collect() == [(1, 5)] and table.to_arrow(at=first).num_rows == 1
    assert view.lookup(v=5, n=1, at=then).num_rows == 1 and view.lookup(v=5, n=1).num_rows == 0
    with pytest.raises(TimeError, match="the index by these columns only keeps"):
        view.lookup(v=5, at=then)
    assert [epoch for epoch, _ in view.changes(since=then, timeout=SOON / 60)] == [last]
    held = {(info.name, info.held_by): info for info in session.holds()}
    assert held["sums", "retain 1:00:00 or 10 MB"].epoch == first and held["t", "retain 1 day, 0:00:00"].bytes > 0
    with pytest.raises(TimeError, match="are kept, which is the history since"):
        view.to_df(at=0)
    with pytest.raises(TimeError, match="cannot read view 'sums' at 2020"):
        view.to_df(at=datetime(2020, 1, 1))
    with pytest.raises(SchemaError, match="is not an epoch"):
        view.to_arrow(at="yesterday")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="retain='x' is not a time"):
        session.view("other", SUMS, retain="x")
    assert not session.has("other")
    session.view("sums", SUMS, replace=True)
    with pytest.raises(TimeError, match="use hold"):
        view.to_df(at=first)
    with pytest.raises(DataflowError, match="there is no storage directory"):
        view.changes(name="billing")


class Changes:
    """What a stream of the changes of a view has delivered: (epoch, diff, row), sorted in each micro-batch."""

    def __init__(self, spark: SparkSession, name: str, checkpoint: Path) -> None:
        self._spark, self._name, self._checkpoint = spark, name, str(checkpoint)
        self.seen: list[tuple[int, int, Any]] = []
        self.fails = False

    def run(self) -> StreamingQuery:
        """Process what there is, and go on."""
        reader = self._spark.readStream.format("ikebana").option("changes", True).option("subscription", "stream")
        writer = reader.load(self._name).writeStream.foreachBatch(self._take)
        query = writer.option("checkpointLocation", self._checkpoint).start()
        query.processAllAvailable()
        return query

    def _take(self, frame: DataFrame, number: int) -> None:
        batch = [(row.epoch, row.diff, (row.v, row.n)) for row in frame.collect()]
        if self.fails:
            raise ZeroDivisionError
        self.seen += sorted(batch)


def test_subscriptions_and_streams_continue_in_the_next_session(spark: SparkSession, tmp_path: Path) -> None:
    place, changes = str(tmp_path / "store"), Changes(spark, "sums", tmp_path / "checkpoint")
    with ik.connect(spark, workers=2, storage=place) as session:
        table = session.create_table("t", ROW, key="id")
        view = session.view("sums", SUMS, retain="1 hour")
        start = table.insert([(1, 5)])
        assert start is not None
        expected = [(start, 1, (5, 1))]
        billing = view.changes("now", name="billing")
        query = changes.run()
        first = table.insert([(2, 5)])
        query.processAllAvailable()
        expected += [(first, -1, (5, 1)), (first, 1, (5, 2))]
        assert changes.seen == expected
        query.stop()
        changes.fails = True
        second = table.insert([(3, 6)])
        with pytest.raises(Exception, match="ZeroDivisionError"):
            changes.run()  # the micro-batch is planned, and not committed
        epoch, _ = next(billing)
        billing.ack()
        assert epoch == first
        (info,) = [info for info in session.subscriptions() if info.name == "billing"]
        assert (info.view, info.state, info.epoch, info.reason) == ("sums", "read", first, "")
    listed = {stored.name: stored for stored in describe(place).subscriptions}
    assert listed["billing"].epoch == first and listed["stream"].view == "sums"
    with ik.connect(spark, workers=1, storage=place) as session:
        view, table = session.view("sums"), session.table("t")
        assert view._inner.retention is not None and not session.recovered.failed  # type: ignore[union-attr]
        assert rows(view.to_arrow(at=start)) == [(5, 1)] and rows(view.to_arrow(at=first)) == [(5, 2)]
        third = table.delete([(1,)])
        assert [epoch for epoch, _ in view.changes(since=start, timeout=SOON / 60)] == [first, second, third]
        changes.fails = False
        query = changes.run()
        expected += [(second, 1, (6, 1)), (third, -1, (5, 2)), (third, 1, (5, 1))]
        assert changes.seen == expected
        billing = view.changes(name="billing", timeout=SOON / 60)
        assert [(epoch, rows(table)) for epoch, table in billing] == [
            (second, [(6, 1, 1)]),
            (third, [(5, 1, 1), (5, 2, -1)]),
        ]
        with pytest.raises(DataflowError, match="is being read"):
            view.changes(name="stream")
        query.stop()
        session.drop_subscription("stream")
        assert [(info.name, info.state) for info in session.subscriptions()] == [("billing", "read")]
        session.drop_view("sums")
        assert not session.subscriptions()
