"""SQL and DataFrames as views: through Spark's planner, on workers that Spark hosts."""

from __future__ import annotations

import time
import warnings
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from ikebana.errors import ConstantRowsWarning, DroppedError, EvaluationError, IkebanaError, SqlError
from ikebana.spark import Session
from tests.clusters import within

pytestmark = pytest.mark.spark

TOTALS = "SELECT region, count(*) AS n, sum(total) AS total FROM orders GROUP BY region ORDER BY total DESC"


@pytest.fixture
def shop(session: Session) -> Session:
    """Orders and customers."""
    orders = session.create_table(
        "orders", "id BIGINT, customer BIGINT NOT NULL, region STRING, total DECIMAL(10,2)", key="id"
    )
    orders.insert([(id, id % 4, "nes"[id % 3], Decimal(id)) for id in range(30)])
    customers = session.create_table("customers", "id BIGINT, name STRING NOT NULL", key="id")
    customers.insert([(id, f"c{id}") for id in range(4)])
    return session


BAD_FOR_100 = {
    "projection": "SELECT id, 1 / (id - 100) AS r FROM orders",
    "filter": "SELECT id FROM orders WHERE 1 / (id - 100) < 5",
    "cast": "SELECT id, CAST(CASE WHEN id = 100 THEN 'x' ELSE '1' END AS INT) AS i FROM orders",
    "group": "SELECT 10 DIV (id - 100) AS g, count(*) AS n FROM orders GROUP BY 1",
    "join, found by key": "SELECT a.id, 1 / (b.id - 100) AS r FROM orders a JOIN orders b ON a.id = b.id",
    "join, by another column": """SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id
        WHERE 1 / (o.id - 100) < 5""",
    "outer join": """SELECT o.id, c.name FROM orders o
        LEFT JOIN customers c ON o.customer = c.id AND 1 / (o.id - 100) < 5""",
    "scalar subquery": "SELECT id FROM customers WHERE id < (SELECT count(*) FROM orders WHERE id / (id - 100) < 2)",
    "overflow of a sum": "SELECT sum(CASE WHEN id = 100 THEN 9223372036854775807 ELSE id END) AS s FROM orders",
    "window": """SELECT id, sum(CASE WHEN id = 100 THEN 9223372036854775807 ELSE id END) OVER (ORDER BY id) AS s
        FROM orders""",
    "two rows in a scalar subquery": "SELECT id, (SELECT id FROM orders WHERE id = 29 OR id = 100) AS o FROM customers",
}


def rows(answer: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in answer.to_pylist()]


class TestViews:
    def test_of_text(self, shop: Session) -> None:
        view = shop.view("totals", TOTALS)
        assert rows(view.to_arrow()) == [
            ("s", 10, Decimal(155)),
            ("e", 10, Decimal(145)),
            ("n", 10, Decimal(135)),
        ]
        shop.table("orders").delete([(29,), (28,)])
        shop.table("orders").upsert([(0, 0, "w", Decimal(1000))])
        assert rows(view.to_arrow()) == [
            ("w", 1, Decimal(1000)),
            ("n", 9, Decimal(135)),
            ("s", 9, Decimal(126)),
            ("e", 9, Decimal(117)),
        ]
        assert [tuple(row) for row in view.to_df().collect()] == rows(view.to_arrow())

    def test_of_a_dataframe(self, shop: Session) -> None:
        orders, customers = shop.table("orders").to_df(), shop.read("customers")
        joined = orders.join(customers.withColumnRenamed("id", "customer"), "customer")
        view = shop.view("by name", joined.groupBy("name").agg(F.sum("total").alias("total")))
        before = dict(rows(view.to_arrow()))
        shop.table("customers").upsert([(1, "one")])
        after = dict(rows(view.to_arrow()))
        assert before.pop("c1") == after.pop("one") and before == after

    def test_of_another_view(self, shop: Session) -> None:
        shop.view("totals", TOTALS)
        most = shop.view("most", "SELECT max(total) AS most FROM totals")
        shop.table("orders").insert([(99, 0, "s", Decimal(1))])
        assert rows(most.to_arrow()) == [(Decimal(156),)]
        shop.drop_view("most")

    def test_with_a_function_of_the_users(self, shop: Session) -> None:
        shop.spark.udf.register("shout", lambda text: text.upper() + "!", "string")
        view = shop.view("shouted", "SELECT shout(name) AS loud FROM customers WHERE id < 2")
        assert sorted(rows(view.to_arrow())) == [("C0!",), ("C1!",)]

    def test_a_temporary_view_of_the_users_is_seen_anew_each_time(self, shop: Session) -> None:
        for name in ("c1", "c2"):
            shop.read("customers").where(F.col("name") == name).createOrReplaceTempView("chosen")
            view = shop.view(f"only {name}", "SELECT name FROM chosen")
            assert rows(view.to_arrow()) == [(name,)]
        shop.spark.catalog.dropTempView("chosen")

    def test_two_share_what_they_have_in_common(self, shop: Session) -> None:
        text = "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id"
        shop.view("one", text)
        before = len(shop.arrangements())
        shown = shop.explain(text)
        assert "reused from view one" in shown and "built here" not in shown
        shop.view("two", text)
        assert len(shop.arrangements()) == before


class TestFaults:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("SELECT nothing FROM orders", "nothing"),
            ("SELECT * FROM nowhere", "nowhere"),
            ("SELEC * FROM orders", "SELEC"),
            ("SELECT rand() AS r FROM orders", "rand"),
            ("SELECT last(id) AS n FROM orders", "last"),
            ("SELECT now() AS now FROM orders", "current time"),
        ],
    )
    def test_what_is_refused_is_named_and_leaves_nothing(self, shop: Session, text: str, said: str) -> None:
        before = len(shop.arrangements())
        with pytest.raises(SqlError) as refused:
            shop.view("refused", text)
        assert said.lower() in str(refused.value).lower() and "\tat " not in str(refused.value)
        assert len(shop.arrangements()) == before
        shop.view("refused", "SELECT id FROM orders").drop()

    @pytest.mark.parametrize("text", BAD_FOR_100.values(), ids=BAD_FOR_100)
    def test_a_bad_row_takes_the_answer_of_its_view_while_it_is_there(self, shop: Session, text: str) -> None:
        view = shop.view("bad", text)
        onward = shop.view("onward", "SELECT count(*) AS n FROM bad")
        count = shop.view("count", "SELECT count(*) AS n FROM orders")
        before = sorted(rows(view.to_arrow()))
        shop.table("orders").insert([(100, 1, "n", Decimal(1))])
        for _ in range(2):
            assert rows(count.to_arrow()) == [(31,)]
            for bad_view in (view, onward):
                with pytest.raises(EvaluationError, match=f"view '{bad_view.name}' has no answer"):
                    bad_view.to_arrow()
            shop.table("orders").upsert([(1, 1, "e", Decimal(1))])
        assert view.errors().num_rows
        shop.table("orders").delete([(100,)])
        assert sorted(rows(view.to_arrow())) == before
        assert rows(onward.to_arrow()) == [(len(before),)]

    def test_an_error_names_the_key_of_the_row_and_the_expression(self, shop: Session) -> None:
        view = shop.view("ratio", "SELECT region, 1 / (id - 100) AS r FROM orders WHERE total > 0")
        shop.table("orders").insert([(100, 1, "n", Decimal(1))])
        with pytest.raises(EvaluationError, match=r"division by zero(.|\n)*in the row id = 100"):
            view.to_arrow()

    def test_a_view_of_a_file_is_refused(self, shop: Session, tmp_path: Any) -> None:
        shop.spark.range(10).write.parquet(str(tmp_path / "file"))
        with pytest.raises(SqlError, match="table"):
            shop.view("file", shop.spark.read.parquet(str(tmp_path / "file")))


class TestStatements:
    def test_a_bad_parameter_is_an_error_of_its_opening_alone(self, shop: Session) -> None:
        text = "SELECT id, id / :by AS part FROM orders WHERE customer = :who"
        with shop.prepare(text, who="BIGINT", by="INT") as statement:
            good, bad = statement.open(who=1, by=2), statement.open(who=1, by=0)
            assert len(good.to_arrow()) == 8
            with pytest.raises(EvaluationError, match="division by zero"):
                bad.to_arrow()
            changes = bad.changes()
            with pytest.raises(EvaluationError, match="division by zero"):
                next(changes)
            other = statement.open(who=2, by=1)
            assert len(other.to_arrow()) == 7
            bad.close()
            shop.table("orders").insert([(101, 1, "n", Decimal(1))])
            assert len(good.to_arrow()) == 9

    def test_an_error_of_a_row_that_no_parameter_decides_is_that_of_all_openings(self, shop: Session) -> None:
        with shop.prepare("SELECT id FROM orders WHERE 1 / (id - 100) < :most", most="DOUBLE") as statement:
            opening = statement.open(most=5.0)
            before = len(opening.to_arrow())
            shop.table("orders").insert([(100, 1, "n", Decimal(1))])
            with pytest.raises(EvaluationError, match="division by zero"):
                opening.to_arrow()
            shop.table("orders").delete([(100,)])
            assert len(opening.to_arrow()) == before

    def test_open_and_close(self, shop: Session) -> None:
        text = "SELECT id, total * :rate AS price FROM orders WHERE customer = :customer ORDER BY id"
        with shop.prepare(text, customer="BIGINT", rate="DECIMAL(3,1)") as statement:
            one = statement.open(customer=1, rate=Decimal("1.0"))
            two = statement.open(customer=1, rate=Decimal("2.0"))
            assert [2 * price for _, price in rows(one.to_arrow())] == [price for _, price in rows(two.to_arrow())]
            arrangements = len(shop.arrangements())
            many = [statement.open(customer=at % 4, rate=Decimal(at)) for at in range(50)]
            assert len(shop.arrangements()) == arrangements
            shop.table("orders").insert([(77, 3, "n", Decimal(10))])
            assert rows(many[3].to_arrow())[-1] == (77, Decimal(30))
            many[3].close()
            with pytest.raises(DroppedError):
                many[3].to_arrow()
            with pytest.raises(SqlError, match="parameters are customer, rate"):
                statement.open(customer=1)
        with pytest.raises(IkebanaError):
            one.to_arrow()
        shop.drop_table("orders")

    def test_read(self, shop: Session) -> None:
        """Reading is opening, whether the statement is looked up or not."""
        texts = {
            "SELECT * FROM orders WHERE id = :a": True,
            "SELECT id, upper(region) AS r, :b AS b FROM orders WHERE customer = :a AND region = :b ORDER BY id": True,
            "SELECT id FROM orders WHERE :a = customer AND (region < :b OR total > 5) AND total IS NOT NULL": True,
            "SELECT id FROM (SELECT id, customer AS c FROM orders WHERE region <> 'e') WHERE c = :a AND c < 3": True,
            "SELECT id FROM orders WHERE region = :b AND id = :a AND customer = :a": True,
            "SELECT name FROM customers WHERE name = :b": True,
            "SELECT id FROM orders WHERE customer <= :a": False,
            "SELECT id FROM orders WHERE customer = :a ORDER BY id LIMIT 2": False,
            "SELECT count(*) AS n FROM orders WHERE customer = :a": False,
            "SELECT id, 10 / :a AS r FROM orders WHERE customer = :a": False,
            "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id WHERE c.id = :a": False,
        }
        kinds = {"a": pa.field("a", pa.int64(), nullable=True), "b": pa.field("b", pa.string(), nullable=True)}
        statements = {}
        for text in texts:
            used = {name: kind for name, kind in kinds.items() if f":{name}" in text}
            statements[text] = shop.prepare(text, used), list(used)
        assert {text: statement.is_lookup for text, (statement, _) in statements.items()} == texts
        for change in ([], [(1, 1, "s", Decimal(99)), (2, 3, None, None), (31, 1, "e", Decimal(1))]):
            if change:
                shop.table("orders").upsert(change)
            for text, (statement, used) in statements.items():
                for values in ({"a": 1, "b": "s"}, {"a": 2, "b": "c2"}, {"a": None, "b": None}, {"a": 77, "b": ""}):
                    given = {name: values[name] for name in used}
                    with statement.open(given) as opened:
                        expected = opened.to_arrow()
                    actual = statement.read(given)
                    assert (actual.schema.names, actual.schema.types) == (expected.schema.names, expected.schema.types)
                    assert sorted(map(repr, rows(actual))) == sorted(map(repr, rows(expected))), (text, given)
        for statement, _ in statements.values():
            statement.close()


class TestTime:
    def test_rows_expire_by_themselves(self, shop: Session) -> None:
        events = shop.create_table("events", "id BIGINT, at TIMESTAMP NOT NULL", key="id")
        recent = shop.view("recent", "SELECT id FROM events WHERE at >= now() - INTERVAL 2 SECONDS")
        now = datetime.now(UTC)
        events.insert([(1, now - timedelta(hours=1)), (2, now + timedelta(hours=1)), (3, datetime.now(UTC))])
        assert sorted(rows(recent.to_arrow())) == [(2,), (3,)]
        assert within(20, lambda: rows(recent.to_arrow()) == [(2,)])
        assert time.time() - now.timestamp() >= 2


class TestConstantRows:
    """DataFrames that Spark computes when they are created are constants, which a warning says."""

    def test_regression_of_a_frame_that_spark_has_computed(self, shop: Session) -> None:
        few = shop.read("customers").where("id < 2").orderBy("id")
        with pytest.warns(ConstantRowsWarning, match="view 'across' never changes: .* key, 0, 1, which .*transpose"):
            shop.view("across", few.transpose("id"))
        with pytest.warns(ConstantRowsWarning, match="a part of view 'mixed' never changes: .* columns id, name, as"):
            shop.view("mixed", shop.read("orders").join(few.localCheckpoint(), "id"))
        with pytest.warns(ConstantRowsWarning, match="view 'numbers' never changes: .* reads no table") as told:
            shop.view("numbers", shop.spark.range(3))
        assert told[0].filename == __file__

    def test_not_of_rows_that_are_part_of_the_query(self, shop: Session) -> None:
        lookup = shop.spark.createDataFrame([("n", "north")], "region STRING, long STRING")
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConstantRowsWarning)
            shop.view("named", shop.read("orders").join(lookup, "region"))
            shop.view("values", "SELECT * FROM orders JOIN VALUES ('n', 'north') AS t(region, long) USING (region)")
            shop.view("constant", "SELECT 1 AS one")
