"""What a session tells of itself: its log, the states and rates of its views, metrics, and tables that forget."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from ikebana.errors import EvaluationError, IkebanaError, SchemaError
from ikebana.spark import Session, Table
from ikebana.spark.metrics import NAMES
from tests.clusters import SOON, within
from tests.spark.conftest import Feed

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(session: Session) -> Iterator[Table]:
    table = session.create_table("orders", "id BIGINT, region STRING, total BIGINT", key="id")
    table.insert([(id, "nes"[id % 3], id) for id in range(30)])
    yield table


class Log:
    """The messages that Ikebana has logged, with their levels."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def has(self, level: str, text: str) -> bool:
        return any(level == record.levelname and text in record.getMessage() for record in self._caplog.records)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[Log]:
    with caplog.at_level(logging.INFO, "ikebana"):
        yield Log(caplog)


def test_the_life_of_a_view(session: Session, orders: Table, log: Log) -> None:
    view = session.view("parts", "SELECT id, 100 div total AS part FROM orders WHERE total > 0")
    assert log.has("INFO", "view 'parts' was created")
    (before,) = session.views()
    assert before.state == "live" and before.since == before.created
    orders.upsert((1, "n", 0))  # leaves the view
    session.view("parts", "SELECT id, 100 div total AS part FROM orders", replace=True)
    assert log.has("INFO", "view 'parts' was replaced")
    assert within(SOON, lambda: log.has("WARNING", "view 'parts' has no answer: "))
    with pytest.raises(EvaluationError):
        view.collect()
    (failing,) = session.views()
    assert failing.state == "errors" and "id = " in failing.reason and failing.since >= before.since
    orders.delete([(0,), (1,)])
    assert within(SOON, lambda: log.has("INFO", "view 'parts' has an answer again"))
    assert view.count() == 28
    view.drop()
    assert log.has("INFO", "view 'parts' was dropped")


def test_a_view_that_fails(session: Session, orders: Table, log: Log) -> None:
    query = "SELECT a.id * b.id AS x FROM orders a CROSS JOIN orders b CROSS JOIN orders c"
    session.view("huge", query, memory=1)
    orders.insert([(id, "n", 1) for id in range(100, 200)])
    assert within(SOON, lambda: log.has("ERROR", "view 'huge' has failed: "))
    (info,) = session.views()
    assert info.state == "failed" and "memory" in info.reason


def test_changes_per_second(session: Session, orders: Table) -> None:
    view = session.view("regions", "SELECT region, sum(total) AS total FROM orders GROUP BY region")
    view.wait()
    totals = [metric.value for metric in session.metrics() if metric.name == "ikebana_view_changes_total"]
    assert totals == [0], "the rows from the start are no changes"
    orders.insert([(100, "n", 1)])
    view.wait()
    (info,) = session.views()
    assert info.changes_per_second > 0 and info.epochs_behind == 0
    totals = [metric.value for metric in session.metrics() if metric.name == "ikebana_view_changes_total"]
    assert totals == [2], "a row of the view was replaced"
    assert "changes per second" in repr(session.views())


def test_metrics(session: Session, orders: Table) -> None:
    view = session.view("regions", "SELECT region, count(*) AS n FROM orders GROUP BY region")
    view.wait()
    with view.hold():
        metrics = {(metric.name, *metric.labels.values()): metric.value for metric in session.metrics()}
    assert metrics["ikebana_table_rows", "orders"] == 30 and metrics["ikebana_view_rows", "regions"] == 3
    assert metrics["ikebana_view_up", "regions"] == 1 and metrics["ikebana_workers",] == session.workers
    assert metrics["ikebana_hold_age_epochs", "regions", "hold()"] == 0
    assert metrics["ikebana_table_memory_bytes", "orders"] > 0 and metrics["ikebana_view_lag_epochs", "regions"] == 0


def test_metrics_for_prometheus(session: Session, orders: Table) -> None:
    pytest.importorskip("prometheus_client")
    session.view('a "view"', "SELECT region FROM orders").wait()
    server = session.serve_metrics(port=0)
    with pytest.raises(IkebanaError, match="cannot serve metrics"):
        session.serve_metrics(port=server.port)
    text = urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=SOON).read().decode()
    server.close()
    assert '# TYPE ikebana_view_rows gauge\nikebana_view_rows{view="a \\"view\\""} 3.0' in text
    assert '# TYPE ikebana_table_changes_total counter\nikebana_table_changes_total{table="orders"}' in text
    assert all(
        name in NAMES for line in text.splitlines() if line[0] != "#" for name in [line.split("{")[0].split()[0]]
    )


def test_streams_that_stop(session: Session, feed: Callable[..., Feed], log: Log) -> None:
    table = session.create_table("items", "id BIGINT", key="id")
    good, bad = feed("id BIGINT", "good"), feed("id BIGINT", "bad")
    stopped = table.follow(good.stream)
    assert log.has("INFO", "table 'items' follows a stream")
    good.write({"id": 1})
    stopped.wait()
    stopped.stop()
    assert within(SOON, lambda: log.has("INFO", "the stream into table 'items' was stopped after 1 micro-batch"))
    bad.write({"id": 1})
    failing = table.follow(bad.stream)
    with pytest.raises(IkebanaError, match="exists already"):
        failing.wait()
    assert within(SOON, lambda: log.has("WARNING", "the stream into table 'items' has failed: cannot insert"))


# Tables that forget.


@pytest.mark.parametrize("key", ["id", None])
def test_rows_are_deleted_when_their_time_is_over(session: Session, spark: SparkSession, key: str | None) -> None:
    clicks = session.create_table("clicks", "id BIGINT, page STRING, at TIMESTAMP", key, expire_after="1 hour", on="at")
    pages = session.view("pages", "SELECT page, count(*) AS n FROM clicks GROUP BY page")
    now = datetime.now(UTC)
    old, fresh = now - timedelta(hours=1, minutes=1), now - timedelta(minutes=30)
    clicks.insert([(1, "old", old), (2, "fresh", fresh), (3, "never", None), (4, "soon", now - timedelta(minutes=60))])
    if key:
        clicks.upsert([(1, "renewed", fresh)])
        kept = {"renewed", "fresh", "never"}
    else:
        clicks.insert([(1, "old", old)])  # a second copy
        kept = {"fresh", "never"}
    assert within(SOON, lambda: {row.page for row in pages.collect()} == kept)
    assert {row.page for row in clicks.collect()} == kept == {row.page for row in spark.table("clicks").collect()}
    with pytest.raises(IkebanaError, match="it is used by"):
        session.drop_table("clicks")
    clicks.insert([(9, "late", old)])
    assert within(SOON, lambda: clicks.count() == len(kept)), "rows still expire"
    session.drop_table("clicks", cascade=True)


def test_what_cannot_expire(session: Session) -> None:
    schema = "id BIGINT, at TIMESTAMP"
    for given, message in (
        ({"expire_after": "1 day"}, "belong together"),
        ({"on": "at"}, "belong together"),
        ({"expire_after": "a day", "on": "at"}, "is not a time"),
        ({"expire_after": 5, "on": "at"}, "is not a time"),
        ({"expire_after": "1 day", "on": "id"}, "of type int64"),
        ({"expire_after": "1 day", "on": "absent"}, "there is no column 'absent'"),
        ({"expire_after": "1 day", "on": "at", "stream": True}, "rows of a stream"),
    ):
        with pytest.raises(SchemaError, match=message):
            session.create_table("refused", schema, **given)  # type: ignore[arg-type]
    assert not session.has("refused")
