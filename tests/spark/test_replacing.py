"""Replacing, dropping and verifying views: readers see the old result or the new one, and Spark agrees with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ikebana.errors import DataflowError, IkebanaError, SqlError
from ikebana.spark import Session, Table
from tests.clusters import SOON, within
from tests.spark.test_views import meanwhile

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(session: Session) -> Iterator[Table]:
    table = session.create_table("orders", "id BIGINT, region STRING, total BIGINT", key="id")
    table.insert([(id, "nes"[id % 3], id) for id in range(30)])
    yield table


def test_a_replaced_view_has_no_gap(session: Session, spark: SparkSession, orders: Table) -> None:
    """Readers in this process, Spark jobs and a DataFrame that existed before all see one of the two results."""
    view = session.view("shown", "SELECT region, sum(total) AS x FROM orders GROUP BY region")
    reader = session.view("reader", "SELECT max(x) AS x FROM shown")
    frame, results = view.to_df(), {(30, 435), (3, 435)}  # the number of rows and their sum
    arrangements = len(session.arrangements())

    def read(step: int) -> None:
        rows = view.to_arrow() if step % 10 else frame.toArrow()
        time.sleep(0.02)
        assert (rows.num_rows, pc.sum(rows["x"]).as_py()) in results

    with meanwhile(read):
        for step in range(4):
            query = "SELECT region, {} AS x FROM orders".format("total" if step % 2 else "sum(total)")
            same = session.view("shown", query + (" GROUP BY region" if step % 2 == 0 else ""), replace=True)
            assert same is view and session.sql("SELECT * FROM shown").count() == (30 if step % 2 else 3)
    assert reader.collect() == [(155,)]  # keeps the query that it was created with
    assert spark.table("shown").count() == frame.count() == 30
    reader.drop()
    assert within(SOON, lambda: len(session.arrangements()) <= arrangements)


def test_replaced_by_other_columns(session: Session, spark: SparkSession, orders: Table) -> None:
    view = session.view("shown", "SELECT id FROM orders ORDER BY id")
    before, changes = view.to_df(), view.changes(timeout=5)
    session.sql("CREATE OR REPLACE MATERIALIZED VIEW shown AS SELECT region, count(*) AS n FROM orders GROUP BY region")
    assert view.columns == ["region", "n"] and spark.table("shown").columns == ["region", "n"]
    assert sorted(view.collect()) == [("e", 10), ("n", 10), ("s", 10)]
    with pytest.raises(Exception, match="was dropped"):
        before.collect()
    assert len(list(changes)) <= 1  # the subscription to the old result has ended
    session.sql("CREATE OR REPLACE MATERIALIZED VIEW shown AS SELECT n FROM shown")  # reads the result that it replaces
    orders.insert((30, "n", 30))
    assert sorted(row.n for row in view.collect()) == [10, 10, 11]


def test_a_failed_replacement_changes_nothing(session: Session, orders: Table) -> None:
    view = session.view("shown", "SELECT id FROM orders")
    for query in ("SELECT id FROM absent", "SELECT id,"):
        with pytest.raises(SqlError):
            session.view("shown", query, replace=True)
    with pytest.raises(DataflowError, match="no view 'orders'"):
        session.view("orders", "SELECT 1 AS one FROM orders", replace=True)
    with pytest.raises(IkebanaError, match="memory"):
        query = "SELECT a.id * b.id AS x FROM orders a JOIN orders b USING (region)"
        session.view("shown", query, replace=True, memory=1)
    assert view.count() == 30 and [info.name for info in session.views()] == ["shown"]
    session.view("new", "SELECT id FROM shown", replace=True)
    orders.delete([{"id": 1}])
    assert session.sql("SELECT count(*) FROM new").first() == (29,)


def test_dropping(session: Session, orders: Table) -> None:
    session.view("one", "SELECT region, total FROM orders")
    session.view("two", "SELECT region, count(*) AS n FROM one GROUP BY region")
    other = session.create_table("other", "id BIGINT")
    session.view("three", other.count("id"))
    session.drop_table("absent", if_exists=True)
    session.drop_view("absent", if_exists=True)
    for call in (lambda: session.drop_table("absent"), lambda: session.drop_view("absent", if_exists=False)):
        with pytest.raises(DataflowError, match="'absent'"):
            call()
    with pytest.raises(DataflowError, match="used by 'one', 'two'"):
        session.drop_table("orders")
    session.drop_table("orders", cascade=True, if_exists=True)
    assert [view.name for view in session.views()] == ["three"]


def test_oracle_views_agree_with_spark(session: Session, spark: SparkSession, orders: Table) -> None:
    names = session.create_table("names", "region STRING, name STRING, weight DOUBLE")
    names.insert([("n", "north", 0.1), ("e", "east", 0.2)])
    session.view("sums", "SELECT region, sum(total) AS total FROM orders GROUP BY region")
    views = [
        session.view("named", "SELECT name, total * weight AS x FROM sums JOIN names USING (region)"),
        session.view("first", "SELECT id, region FROM orders ORDER BY region DESC LIMIT 3"),
        session.view("framed", spark.table("orders").groupBy("region").agg(F.max("id").alias("id"))),
    ]
    stop = threading.Event()

    def change(step: int) -> None:
        orders.upsert((step % 40, "nesw"[step % 4], step))
        stop.wait(0.02)

    with meanwhile(change):
        for view in views:
            result = view.verify()
            assert result, result
            assert "the same as Spark's answer" in repr(result)
    session.view("sums", "SELECT region, 0L AS total FROM orders", replace=True)
    assert views[0].verify()  # by the queries that views had when it was created


def test_regression_a_view_of_a_dataframe_is_verified_anew_each_time(
    session: Session, spark: SparkSession, orders: Table
) -> None:
    """Spark keeps the shuffles of a DataFrame, and would compare the rows of the first call."""
    sums = orders.to_df().groupBy("region").agg(F.sum("total").alias("total"))
    views = [session.view("sums", sums), session.view("renamed", sums, columns=["r", "t"])]
    views.append(session.view("sorted", orders.to_df().orderBy("total").select("id", "total")))
    for total in (100, 200):
        assert [view.verify().difference for view in views] == [""] * len(views)
        orders.upsert((0, "n", total))
    assert [view.verify().difference for view in views] == [""] * len(views)


@pytest.mark.parametrize(
    ("columns", "order"),
    [("id, region", "region DESC NULLS LAST"), ("id, region", "2, 1"), ("id, region", "ID"), ("region", "total, id")],
)
def test_regression_the_first_rows_in_any_order_are_verified(
    session: Session, orders: Table, columns: str, order: str
) -> None:
    """Sort columns with a place for nulls, as numbers, in another case or not selected raised a KeyError."""
    orders.upsert([(3, None, 3), (4, "w", 4)])
    view = session.view("first", f"SELECT {columns} FROM orders ORDER BY {order} LIMIT 3")
    assert view.verify().difference == ""


def test_regression_a_dataframe_of_a_sorted_view_reads_anew_for_each_action(session: Session, orders: Table) -> None:
    frame = session.view("largest", "SELECT id, total FROM orders ORDER BY total DESC").to_df()
    assert [row.id for row in frame.take(2)] == [29, 28] and [row.id for row in frame.collect()] == [*range(29, -1, -1)]
    orders.upsert((7, "n", 100))
    assert [row.id for row in frame.limit(2).collect()] == [7, 29] and frame.collect()[0].id == 7
    two = session.view("two", frame.limit(2))
    orders.upsert((8, "n", 200))
    assert [row.id for row in two.collect()] == [8, 7] and two.verify()


def test_verify_shows_the_difference(session: Session, orders: Table) -> None:
    view = session.view("right", "SELECT id, total FROM orders WHERE id < 3")
    other = session.view("wrong", "SELECT id, total + id div 2 AS total FROM orders WHERE id < 3")
    other._definition = view._definition
    result = other.verify()
    assert not result and "unexpected rows:\n(2, 3)\nmissing rows:\n(2, 2)" in repr(result)


def test_what_cannot_be_verified(session: Session, orders: Table) -> None:
    stream = session.create_table("stream", "id BIGINT", stream=True)
    for view, why in [
        (session.view("collection", orders.count("region")), "defined by a collection"),
        (session.view("timed", "SELECT id FROM orders WHERE now() > TIMESTAMP '2020-01-01'"), "current time"),
        (session.view("streamed", "SELECT id FROM stream"), "reads a stream"),
    ]:
        with pytest.raises(DataflowError, match=why):
            view.verify()
    stream.insert(pa.table({"id": [1]}))
