"""Sessions: start and end, several sessions, listings, and the engine's cases on hosted workers."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ikebana.engine import Engine
from ikebana.errors import DataflowError, DroppedError, IkebanaError, SqlError
from ikebana.spark import Session, SparkWorkers, connect
from tests.clusters import all_end
from tests.dataflow.dataflow_run import DataflowRun, Hold, Release, Work, scripts
from tests.dataflow.expressions import programs
from tests.dataflow.harness import INTEGERS, STRINGS
from tests.engine.table_model import Model, allowed, apply, create, expected, models, transactions
from tests.spark.test_tables import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("alone")]

DIGEST = re.compile(r"[0-9a-f]{12,}")


def threads() -> set[threading.Thread]:
    names = ("ikebana", "changes of")
    return {thread for thread in threading.enumerate() if any(name in thread.name for name in names)}


def test_sessions_side_by_side(spark: SparkSession) -> None:
    before = threads()
    work_with_two(spark)
    gc.collect()
    assert threads() <= before, "threads of earlier sessions may end meanwhile, but there are no new ones"
    assert spark.range(10).count() == 10


def work_with_two(spark: SparkSession) -> None:
    with connect(spark, workers=1) as one, connect(workers=1) as other:
        assert one.spark is other.spark is spark and one.workers == 1 and one.format != other.format
        for session, rows in ((one, 3), (other, 5)):
            table = session.create_table("t", "id BIGINT", key="id")
            table.load(spark.range(rows))
            session.view("v", table.distinct())
        assert [session.read("v").count() for session in (one, other)] == [3, 5]
        assert spark.read.format("ikebana").load("t").count() == 5
        df, view = other.table("t").to_df(), other.view("v")
        changes = view.changes(since="now")
        pids = other._cluster.pids
        other.close()
        other.close()
        assert all_end(pids) and list(changes) == []
        assert spark.read.format("ikebana").load("t").count() == 3 == one.table("t").to_df().count()
        uses: list[Any] = [
            lambda: other.create_table("x", "id INT"),
            lambda: other.table("t"),
            lambda: table.insert([(9,)]),
            lambda: table.load(spark.range(1)),
            lambda: table.follow(spark.readStream.format("rate").load()),
            lambda: table.drop(),
            lambda: other.view("w", table),
            lambda: other.explain(table),
            other.transaction,
            other.tables,
            other.views,
            other.arrangements,
            other.status,
            table.to_df,
            table.to_arrow,
            view.to_df,
            view.to_arrow,
            view.changes,
            view.hold,
            view.drop,
        ]
        for use in uses:
            with pytest.raises(DroppedError, match=r"the session was closed\n  hint: connect again"):
                use()
        with pytest.raises(Exception, match=r"the session was closed"):
            df.count()
        assert repr(other) == "<ikebana session: closed>" and "closed" in other._repr_html_()
        assert rows_of(one.table("t")) == [(0,), (1,), (2,)]


def test_a_session_that_nobody_holds_ends(spark: SparkSession) -> None:
    session = connect(spark, workers=1)
    pids = session._cluster.pids
    session.create_table("t", "id INT").insert([(1,)])
    del session
    gc.collect()
    assert all_end(pids)


def test_regression_a_session_that_is_closed_reports_no_error_of_rows_that_expire(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A deletion failed because the workers had ended, before the thread that deletes knew of it."""
    monkeypatch.setattr("ikebana.spark.expiring._PERIOD_SECONDS", 0.0)
    with connect(spark, workers=1) as session:
        session.create_table("t", "at TIMESTAMP", expire_after="1 hour", on="at")
    assert "no longer deleted" not in caplog.text


def test_sessions_that_cannot_begin(spark: SparkSession) -> None:
    with pytest.raises(IkebanaError, match="too few task slots"):
        connect(spark, workers=100)
    with pytest.raises(IkebanaError, match="workers=0 is not valid"):
        connect(spark, workers=0)
    with pytest.raises(ZeroDivisionError), connect(spark, workers=1) as session:
        pids = session._cluster.pids
        raise ZeroDivisionError
    assert all_end(pids) and repr(session) == "<ikebana session: closed>"


def test_listings(session: Session) -> None:
    orders = session.create_table("orders <b>", "id BIGINT, region STRING, total BIGINT", key="id")
    session.create_table("events", "at TIMESTAMP", stream=True)
    session.create_table("a bag", "x INT, y INT")
    orders.insert([(id, "ns"[id % 2], id) for id in range(1500)])
    orders.arrange(by="region")
    session.view("sums", orders.sum("region", "total"))
    session.view("counts", orders.count("region")).to_arrow()
    assert repr(session.tables()).splitlines() == [
        "name         kind     key   columns",
        "orders <b>   keyed    id    id, region, total",
        "events       stream         at",
        "a bag        bag            x, y",
    ]
    listed_views = [re.sub(r" {3,}", "|", line) for line in repr(session.views()).splitlines()]
    assert listed_views[0].startswith("name|state|reason|since|rows|bytes|changes per second|epochs behind|")
    moment = r"[-0-9]+ [0-9:]+"
    pattern = rf"counts\|live\|{moment}\|2\|[\d.]+ k?B\|[\d.]+\|[01]\|[\d.]+\|{moment}\|region, count"
    assert re.fullmatch(pattern, listed_views[1])
    assert listed_views[2].startswith("sums|live|")
    status = session.status()
    assert (status.tables, status.views, status.workers, status.epoch) == (3, 2, 2, session.epoch)
    assert re.search(r"^workers +2\nepoch +2\n", repr(status)) and "<th>tables</th><td>3</td>" in status._repr_html_()
    listed = session.arrangements()
    assert {index.name for index in listed} >= {("orders <b>",), ("sums",), ("counts",), ("a bag",)}
    assert sum(index.rows for index in listed if index.name == ("orders <b>",) and index.key == ("id",)) == 1500
    by_region = [index for index in listed if index.name == ("orders <b>",) and index.key == ("region",)]
    assert {index.worker for index in by_region} == {0, 1} and sum(index.rows for index in by_region) >= 1500
    assert all(index.bytes > 0 for index in listed if index.rows) and all(index.readers >= 1 for index in listed)
    shown = [session, session.tables(), session.views(), listed, status]
    for item in (*shown, *session._relations.tables.values(), *session._relations.views.values(), *listed):
        assert not DIGEST.search(repr(item)), repr(item)
    for item in shown:
        html = item._repr_html_()  # type: ignore[attr-defined]
        assert not DIGEST.search(html) and "<b>" not in html
    assert not DIGEST.search(session.explain(orders.count("region"))) and "reused" in session.explain(
        orders.arrange("id")
    )
    assert repr(session) == f"<ikebana session: 2 workers, epoch {session.epoch}, 3 tables, 2 views>"


# The engine's cases, on workers that Spark hosts.


class Hosted(DataflowRun):
    """A world on workers that run by themselves, in which names are used once."""

    def __init__(self, engine: Engine, prefix: str, *rest: Any) -> None:
        self.prefix = prefix
        super().__init__(Prefixed(engine, prefix), *rest)  # type: ignore[arg-type]

    def install(self, of: int) -> None:
        self.names += 1
        self.views.append((self.engine.install(f"view {self.names}", self.collections[of]), of))

    def complete(self, view: Any) -> None:
        view.wait(self.engine.epoch - 1)

    def leave(self) -> None:
        for at, source in enumerate(self.inputs):
            if at not in self.ended:
                source.close()
        for view, _ in self.views:
            view.drop()


class Prefixed:
    """An engine whose names have a prefix."""

    def __init__(self, engine: Engine, prefix: str) -> None:
        self._engine, self._prefix = engine, prefix

    def input(self, name: str, *rest: Any) -> Any:
        return self._engine.input(self._prefix + name, *rest)

    def install(self, name: str, collection: Any) -> Any:
        return self._engine.install(self._prefix + name, collection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


QUICK = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


THOROUGH = pytest.mark.thorough
"""`tests.spark.test_local` has one program on each number of workers."""


@pytest.mark.parametrize("workers", [pytest.param(1, marks=THOROUGH), pytest.param(2, marks=THOROUGH), 3])
def test_oracle_on_hosted_workers(spark: SparkSession, workers: int) -> None:
    with Engine(cluster=SparkWorkers(spark, workers)) as engine:
        numbers = iter(range(1000))

        @QUICK
        @given(st.sampled_from([INTEGERS, STRINGS]), programs(depth=1, most=5), st.data())
        def dataflows(domain: Any, program: Any, data: Any) -> None:
            script = data.draw(scripts(domain, program))
            world = Hosted(engine, f"{next(numbers)}: ", domain, program)
            try:
                for of in script.first:
                    world.install(of)
                for step in script.steps:
                    if not isinstance(step, Work | Hold | Release):
                        world.take(step)
                engine.advance()
                for view, of in world.views:
                    world.check(view, of)
            finally:
                world.leave()

        @QUICK
        @given(st.lists(transactions(models()), max_size=4))
        def tables(given: Any) -> None:
            models_now: list[Model] = models()
            engine.advance()
            real = [create(engine, model) for model in models_now]
            for transaction in given:
                after, new = expected(models_now, transaction), engine.transaction()
                for feed in transaction:
                    apply(new, real[feed.table], models_now[feed.table], feed)
                assert allowed(new.commit) == (after is not None)
                models_now = after or models_now
            views = [engine.install(f"all {table.name}", table) for table in real]
            for view, model in zip(views, models_now, strict=True):
                names = [field.name for field in model.fields]
                assert sorted(map(repr, model.rows.elements())) == sorted(
                    repr(tuple(row.values())) for row in view.to_arrow().select(names).to_pylist()
                )
                view.drop()
            for table in real:
                engine.drop_table(table.name)

        dataflows()
        tables()
        assert not engine.tables and not engine.views


# Names and case.


@pytest.fixture
def case_sensitive(session: Session) -> Iterator[Session]:
    session.spark.conf.set("spark.sql.caseSensitive", "true")
    yield session
    session.spark.conf.unset("spark.sql.caseSensitive")


class TestNames:
    def test_regression_names_that_differ_in_case_alone_are_one(self, session: Session) -> None:
        orders = session.create_table("Orders", "id BIGINT")
        orders.insert([(1,)])
        for claim in (
            lambda: session.create_table("orders", "id BIGINT"),
            lambda: session.view("ORDERS", orders.count("id")),
        ):
            with pytest.raises(DataflowError, match="is taken") as refused:
                claim()
            assert refused.value.detail == "'Orders' exists, and names are not case-sensitive"
        assert session.table("ORDERS") is orders
        view = session.view("Ids", "SELECT id FROM oRDERS")
        assert session.read("orders").collect() == view.to_df().collect() == session.read("IDS").collect()
        assert session.view("copy", session.read("orders")).to_arrow() == view.to_arrow()  # by its own name
        session.drop_view("copy")
        session.drop_view("ids")
        session.drop_table("orders")
        assert session.tables() == session.views() == []

    def test_regression_each_is_itself_where_case_counts(self, case_sensitive: Session) -> None:
        session = case_sensitive
        for number, name in enumerate(("orders", "Orders")):
            session.create_table(name, "id BIGINT").insert([(number,)])
        both = session.view("both", "SELECT a.id AS a, b.id AS b FROM orders a CROSS JOIN Orders b")
        assert both.to_arrow().to_pylist() == [{"a": 0, "b": 1}]
        assert session.read("Orders").first()["id"] == 1
        with pytest.raises(DataflowError, match="no table 'ORDERS'"):
            session.table("ORDERS")
        session.spark.conf.set("spark.sql.caseSensitive", "false")
        assert session.view("one", "SELECT id FROM Orders").to_arrow()["id"].to_pylist() == [1]
        with pytest.raises(SqlError, match="may mean 'orders' or 'Orders'"):
            session.view("two", "SELECT a.id AS a, b.id AS b FROM orders a CROSS JOIN Orders b")
        with pytest.raises(DataflowError, match="the name 'ORDERS' is ambiguous"):
            session.table("ORDERS")

    def test_columns_that_differ_in_case_alone(self, case_sensitive: Session) -> None:
        table = case_sensitive.create_table("t", "a INT, A STRING")
        table.load(case_sensitive.spark.sql("SELECT 1 AS a, 'one' AS A"))
        view = case_sensitive.view("v", "SELECT A, a + 1 AS b FROM t")
        assert view.to_arrow().to_pylist() == [{"A": "one", "b": 2}]
        assert [tuple(row) for row in table.to_df().collect()] == [(1, "one")]
