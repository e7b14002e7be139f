"""Looking at tables and views with the names that PySpark has, and in SQL: the answers are Spark's."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from ikebana.errors import ChangeError, DataflowError, EvaluationError, SchemaError, SqlError
from ikebana.spark import Session, Table
from tests.clusters import SOON, within

pytestmark = pytest.mark.spark

TYPES = "id BIGINT, at TIMESTAMP, ntz TIMESTAMP_NTZ, day DATE, d DOUBLE, s STRUCT<a: INT, b: STRING>, m DECIMAL(10, 2)"
VALUES = """SELECT id, TIMESTAMP '2024-03-31 02:30:00' + make_dt_interval(id) AS at,
    TIMESTAMP_NTZ '2024-01-01 10:00:00' AS ntz,
    DATE '2024-01-01' AS day, id / 3 AS d, named_struct('a', CAST(id AS INT), 'b', repeat('x', CAST(id AS INT))) AS s,
    CAST(id AS DECIMAL(10, 2)) AS m FROM range(30)"""


def printed(*calls: Any) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for call in calls:
            call()
    return out.getvalue()


def sorted_rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=repr)


@pytest.fixture
def orders(session: Session) -> Iterator[Table]:
    session.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, region STRING, total BIGINT NOT NULL)")
    session.sql(
        "INSERT INTO orders SELECT id, element_at(array('n', 'e', 's'), CAST(id % 3 + 1 AS INT)), id FROM range(30)"
    )
    yield session.table("orders")


def test_rows_are_those_of_spark(session: Session, spark: SparkSession, zone: str) -> None:
    """In a time zone that is not UTC, with a struct and a decimal."""
    table = session.create_table("typed", TYPES)
    table.load(spark.sql(VALUES))
    assert table.dtypes == table.to_df().dtypes == spark.sql(VALUES).dtypes
    view = session.view("ordered", "SELECT * FROM typed ORDER BY id DESC")
    expected = spark.sql(VALUES).orderBy("id", ascending=False)
    assert view.collect() == expected.collect()
    assert view.take(3) == view.head(3) == expected.take(3) and view.first() == view.head() == expected.first()
    assert view.count() == table.count() == 30 and not view.isEmpty()
    assert view.toPandas().equals(expected.toPandas()) and view.toArrow() == view.to_arrow()
    for given in ({}, {"n": 30, "truncate": False}, {"n": 1, "vertical": True}):
        assert printed(lambda: view.show(**given)) == printed(lambda: expected.show(**given))  # noqa: B023
    assert printed(view.printSchema) == printed(view.to_df().printSchema)
    assert "of which 20 are shown" in view._repr_html_() and "30 rows" in table._repr_html_()
    none = session.view("none", "SELECT * FROM typed WHERE id < 0")
    assert none.isEmpty() and none.first() is None and none.collect() == none.take(5) == [] and none.count() == 0
    assert printed(none.show) == printed(expected.limit(0).show)
    with pytest.raises(SchemaError, match="not a number of rows"):
        view.take(-1)


def test_duplicates_and_errors_are_shown(session: Session) -> None:
    bag = session.create_table("bag", "a BIGINT")
    bag.insert([(1,), (1,), (1,), (0,)])
    assert bag.count() == 4 and len(bag.take(2)) == 2 and sorted(row.a for row in bag.collect()) == [0, 1, 1, 1]
    view = session.view("inverse", "SELECT 6 div a AS x FROM bag")
    assert "by zero" in view._repr_html_().lower()
    with pytest.raises(EvaluationError):
        view.count()
    unsigned = session.view("unsigned", bag.map({"x": pa.uint64()}, lambda c: {"x": pc.cast(c["a"], pa.uint64())}))
    assert unsigned.to_arrow().num_rows == 4  # Spark has no such type, and does not see this view
    stream = session.create_table("stream", "a BIGINT", stream=True)
    assert "not stored" in stream._repr_html_()


def test_regression_an_error_of_a_query_is_not_printed_as_well(session: Session) -> None:
    """PySpark logs the errors of queries, with Java's stack trace, on standard error."""
    logger, printed = PySparkLogger.getLogger("SQLQueryContextLogger"), io.StringIO()
    handler = logging.StreamHandler(printed)
    logger.addHandler(handler)
    try:
        with pytest.raises(SqlError, match="TABLE_OR_VIEW_NOT_FOUND"):
            session.sql("SELECT * FROM nowhere")
    finally:
        logger.removeHandler(handler)
    assert not printed.getvalue()


def test_names_in_spark(session: Session, spark: SparkSession, orders: Table) -> None:
    session.view("by region", orders.sum("region", "total"))
    assert spark.table("orders").count() == 30
    query = (
        "SELECT o.region, count(*) AS n, max(`sum`) AS s FROM orders o JOIN `by region` USING (region) GROUP BY region"
    )
    assert sorted_rows(spark.sql(query)) == sorted_rows(session.sql(query))
    assert len(spark.sql(query).collect()) == 3
    copy = session.view("copy", spark.table("orders").where("total > 10"))  # maintained, like any other DataFrame
    orders.insert((100, "n", 100))
    assert copy.count() == 20
    session.drop_view("by region")
    assert not spark.catalog.tableExists("`by region`") and spark.catalog.tableExists("orders")
    session.drop_table("orders", cascade=True)
    assert not spark.catalog.tableExists("orders") and not spark.catalog.tableExists("copy")


def test_names_of_the_user_stay_the_users(session: Session, spark: SparkSession) -> None:
    spark.range(3).createOrReplaceTempView("mine")
    try:
        table = session.create_table("mine", spark.table("mine"))
        table.load(spark.table("mine").where("id > 0"))
        assert spark.table("mine").count() == 3 and session.sql("SELECT * FROM mine").count() == 2
        assert session.sql("SELECT count(*) AS n FROM mine").first() == (2,)
        table.drop()
        assert spark.table("mine").count() == session.sql("SELECT * FROM mine").count() == 3
        session.create_table("yours", "id BIGINT")
        spark.range(5).createOrReplaceTempView("yours")
        session.drop_table("yours")
        assert spark.table("yours").count() == 5
    finally:
        spark.catalog.dropTempView("mine")
        spark.catalog.dropTempView("yours")


def test_statements(session: Session, spark: SparkSession, orders: Table) -> None:
    assert orders.key == ["id"] and not orders.schema["total"].nullable
    session.sql("CREATE MATERIALIZED VIEW sums AS SELECT region, sum(total) AS total FROM orders GROUP BY region")
    session.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS SUMS AS SELECT 1")
    session.sql("INSERT INTO orders (total, id) VALUES (1000, 1000), (CAST(5 AS TINYINT), 1001)")
    session.sql("DELETE FROM orders WHERE id < 30 AND region <> 'n'")
    assert session.sql("SELECT * FROM sums ORDER BY region").collect() == [(None, 1005), ("n", 135)]
    assert [row.asDict() for row in session.sql("SHOW TABLES").collect()] == [
        {"name": "orders", "kind": "keyed", "key": ["id"], "columns": ["id", "region", "total"]}
    ]
    assert session.sql("SHOW VIEWS").select("name", "state").collect() == [("sums", "live")]
    plan = session.sql("EXPLAIN SELECT region FROM orders").collect()
    assert "\n".join(row.plan for row in plan) == session.explain("SELECT region FROM orders")
    assert session.sql("DROP VIEW IF EXISTS absent").columns == []
    with pytest.raises(DataflowError, match="used by 'sums'"):
        session.sql("DROP TABLE orders")
    session.sql("DROP TABLE orders CASCADE")
    assert not session.tables() and not session.views()


def test_statements_that_fail_change_nothing(session: Session, orders: Table) -> None:
    for text, kind, message in [
        ("INSERT INTO orders VALUES (1, 'a', 1)", ChangeError, "exists already"),
        ("INSERT INTO orders VALUES (1)", SchemaError, "1 columns, for id, region, total"),
        ("INSERT INTO orders (id, amount) VALUES (1, 2)", SchemaError, "no column 'amount'"),
        ("INSERT INTO orders VALUES ('1', 'a', 1)", SchemaError, "'id'"),
        ("INSERT INTO orders (id, region) VALUES (100, 'a')", Exception, "total"),
        ("INSERT INTO orders VALUES (100, 'a', 1e30)", DataflowError, "could not be computed"),
        ("DELETE FROM orders WHERE amount = 1", SqlError, "amount"),
        ("SELECT * FROM absent", SqlError, "absent"),
        ("INSERT INTO absent VALUES (1)", DataflowError, "no table 'absent'"),
        ("CREATE TABLE orders (a INT)", DataflowError, "taken"),
        ("DROP TABLE absent", DataflowError, "no table 'absent'"),
    ]:
        with pytest.raises(kind, match=message):
            session.sql(text)
    assert orders.count() == 30 and [table.name for table in session.tables()] == ["orders"]


def test_several_statements_in_a_transaction(session: Session, orders: Table) -> None:
    epoch = session.epoch
    with session.transaction():
        session.sql("DELETE FROM orders WHERE id = 1")
        session.sql("INSERT INTO orders VALUES (1, 'n', 7)")
    assert session.epoch == epoch + 1 and session.sql("SELECT total FROM orders WHERE id = 1").first() == (7,)


def test_memory_and_holds(session: Session, spark: SparkSession, orders: Table) -> None:
    one = session.view("one", "SELECT region, sum(total) AS total FROM orders GROUP BY region")
    two = session.view("two", "SELECT region, count(*) AS n FROM orders GROUP BY region")
    one.wait()
    two.wait()
    memory = {info.name: info for info in session.memory()}
    assert set(memory) == {"orders", "one", "two"} and all(info.own > 0 for info in memory.values())
    assert memory["one"].kind == "view" and memory["orders"].kind == "table" and memory["two"].shared_with
    assert "freed by drop" in repr(session.memory()) and "<table>" in session.memory()._repr_html_()
    assert within(SOON, lambda: session.holds() == [])
    with one.hold() as held, orders.hold():
        orders.insert((1000, "n", 1))
        rows = spark.table("two").rdd.toLocalIterator()
        next(rows)
        held_by = [(info.name, info.epochs_back, info.held_by) for info in session.holds()]
        assert held_by[:2] == [("one", 1, "hold()"), ("orders", 1, "hold()")] and held.epoch == session.holds()[0].epoch
        assert ("two", 0, "an RDD or iterator") in held_by
    assert not [info for info in session.holds() if info.held_by == "hold()"]
