"""Views and tables as DataFrames, at an epoch or as streams of changes: consistent, and failures stay isolated."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ikebana.errors import DataflowError, DroppedError, EvaluationError, IkebanaError, SqlError, TimeError
from ikebana.spark import Session, Table
from ikebana.spark.snapshot_server import LEASE, STREAM_LEASE
from ikebana.spark.snapshots import SnapshotRequest
from tests.clusters import SOON, within
from tests.spark.test_tables import in_order, rows_of

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(session: Session) -> Table:
    table = session.create_table("orders", "id BIGINT, region STRING, total BIGINT", key="id")
    table.insert([(id, "nes"[id % 3], id) for id in range(30)])
    return table


@contextmanager
def meanwhile(work: Any) -> Iterator[list[BaseException]]:
    """Call a function repeatedly in another thread, with pauses in which readers get the processor."""
    done, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        at = 0
        try:
            while not done.wait(0.01):
                work(at)
                at += 1
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield errors
    finally:
        done.set()
        thread.join()
    assert not errors, errors


def holds(session: Session) -> list[int]:
    """The number of readers of each arrangement on each worker."""
    return [arrangement.readers for arrangement in session.arrangements()]


def let_go(session: Session) -> None:
    """Wait until all reads have ended, and let all leases expire."""
    assert within(SOON, lambda: all(read.execution is None for read in session._snapshots._reads.values()))
    session._snapshots._stream_leases.update(dict.fromkeys(session._snapshots._stream_leases, 0.0))
    for read in list(session._snapshots._reads.values()):
        read.expires = 0.0
    session._snapshots.expire()


def test_a_view_in_every_form(session: Session, spark: SparkSession, orders: Table) -> None:
    view = session.view("by region", orders.sum("region", "total"))
    expected = in_order(orders.to_df().groupBy("region").sum("total").collect())
    assert expected == rows_of(view) == in_order(view.to_df().collect())
    assert expected == in_order(view.to_pandas().itertuples(index=False))
    assert expected == in_order(spark.read.format("ikebana").load("by region").collect())
    assert expected == in_order(spark.read.format(session.format).option("name", "by region").load().collect())
    assert expected == in_order(session.read("by region").collect())
    assert view.columns == view.schema.names == view.to_df().columns == ["region", "sum"]
    assert repr(view) == "<view by region: region, sum>" and "orders" in repr(orders)
    total = session.view("total", view.rows().map({"one": pa.int64(), "sum": pa.int64()}, ones).sum("one", "sum"))
    assert rows_of(total) == [(1, sum(range(30)))]
    df = view.to_df()
    before = df.count()
    orders.insert([(30, "w", 1)])
    assert df.count() == before + 1 == view.to_df().count()  # every action reads the latest rows
    view.wait()
    joined = view.to_df().join(orders.to_df(), "region").groupBy("region").count()
    assert sum(row["count"] for row in joined.collect()) == 31
    view.drop()
    view.drop()
    assert rows_of(total) == [
        (1, sum(range(30)) + 1)
    ]  # the result of the dropped view is still maintained for this one
    for use in (view.to_df, view.to_arrow, view.changes, view.hold, view.rows, view.wait):
        with pytest.raises(DataflowError, match="view 'by region' was dropped"):
            use()
    again = session.view("by region", orders.count("region"))
    view.drop()
    assert rows_of(again) and [entry.name for entry in session.views()] == ["by region", "total"]
    with pytest.raises(DataflowError, match=r"there is no view 'nope'\n  detail: there are 'total', 'by region'"):
        session.drop_view("nope")
    with pytest.raises(DataflowError, match="the name 'total' is taken"):
        session.view("total", orders)
    with pytest.raises(DataflowError, match="there is no table or view 'nope'"):
        session.read("nope")
    for options, message in (({"name": "nope"}, "there is no table or view 'nope'"), ({}, "no table or view given")):
        with pytest.raises(PySparkException, match=message):
            spark.read.format("ikebana").options(**options).load()
    for epoch, message in (("x", "the option `epoch` is 'x'"), (99999, "cannot read 'total' at epoch 99999")):
        with pytest.raises(PySparkException, match=message):
            spark.read.format("ikebana").option("epoch", epoch).load("total").collect()


def ones(columns: Any) -> dict[str, Any]:
    return {"one": pa.array([1] * len(columns["sum"]), pa.int64()), "sum": columns["sum"]}


def test_what_is_seen_is_of_one_epoch(session: Session) -> None:
    left = session.create_table("left", "id BIGINT, n BIGINT", key="id")
    right = session.create_table("right", "id BIGINT, n BIGINT", key="id")
    ids = range(20)
    for table in (left, right):
        table.insert([(id, 0) for id in ids])
    both = session.view("both", left.select("id", a="n").join(right.select("id", b="n"), "id"))

    def change(at: int) -> None:
        with session.transaction():
            left.upsert([(id, at) for id in ids])
            right.upsert([(id, at) for id in ids])

    seen = set()
    with meanwhile(change):
        for _ in range(4):
            rows = [tuple(row) for row in both.to_df().collect()]
            assert len(rows) == len(ids) and len({(a, b) for _, a, b in rows}) == 1 and rows[0][1] == rows[0][2]
            seen.add(rows[0][1])
            assert len({row.n for row in left.to_df().collect()}) == 1
            for _ in range(20):
                table = both.to_arrow()
                assert len(set(table["a"].to_pylist()) | set(table["b"].to_pylist())) == 1 and len(table) == len(ids)
    assert len(seen) > 1


def test_lookups(session: Session, spark: SparkSession, orders: Table) -> None:
    totals = session.view(
        "totals", "SELECT region, sum(total) AS total FROM orders GROUP BY region ORDER BY total DESC"
    )
    assert totals.lookup(region=["n", "e", "s"])["region"].to_pylist() == ["s", "e", "n"]  # in the order of the view
    with session.transaction():
        orders.upsert((3, "n", 1000))
    assert totals.lookup(region="n")["total"].to_pylist() == [sum(range(0, 30, 3)) - 3 + 1000]
    assert orders.lookup(spark.createDataFrame([(7,), (8,)], "id BIGINT").collect())["id"].to_pylist() in (
        [7, 8],
        [8, 7],
    )
    assert orders.lookup(region="n", total=1000)["id"].to_pylist() == [3]
    moments = session.create_table("moments", "id BIGINT, at TIMESTAMP NOT NULL", key="id")
    moment = datetime(2024, 5, 6, 7, 8, 9)  # local time, as in PySpark
    moments.insert((1, moment))
    assert moments.lookup({"at": moment})["id"].to_pylist() == [1]
    totals.drop()
    with pytest.raises(DataflowError, match="'totals' was dropped"):
        totals.lookup(region="n")


def test_epochs_that_are_held(session: Session, spark: SparkSession, orders: Table) -> None:
    view = session.view("counts", orders.count("region"))
    before = rows_of(view)
    with view.hold() as held, orders.hold() as rows:
        epoch = held.epoch
        for id in range(100, 110):
            orders.insert([(id, "n", 1)])
        assert in_order(view.to_df(at=epoch).collect()) == before == in_order(map(tuple, before))
        assert in_order(row.values() for row in view.to_arrow(at=epoch).to_pylist()) == before
        assert len(view.to_pandas(at=epoch + 3)) == 3
        assert orders.to_df(at=rows.epoch).count() == 30 == orders.to_arrow(at=rows.epoch).num_rows
        assert [orders.to_arrow(at=epoch + offset).num_rows for offset in range(11)] == list(range(30, 41))
        in_time = spark.read.format("ikebana").option("epoch", epoch).load("counts")
        assert in_order(in_time.collect()) == before
    let_go(session)
    orders.insert([(200, "n", 1)])
    with pytest.raises(TimeError):
        orders.to_arrow(at=epoch + 2)
    with pytest.raises(TimeError, match=r"cannot wait for epoch \d+ of 'counts'"):
        view.to_arrow(at=session.epoch)
    with pytest.raises(TimeError):
        view.to_arrow(at=0)


def session_key(session: Session) -> bytes:
    """The public key of Spark's processes that plan reads."""
    return session._snapshots.address._credentials().keys.public


def test_leases_end(session: Session, orders: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    server, now = session._snapshots, time.monotonic()
    let_go(session)
    bare = holds(session)
    monkeypatch.setattr(server, "_clock", lambda: now)
    for _ in range(3):
        assert session.read("orders").rdd.count() == 30  # Spark does not tell when this ends
    assert len(server._reads) == 3 and sum(holds(session)) == sum(bare) + 3 * session.workers
    key = session_key(session)
    start = server.answer(SnapshotRequest("begin", "orders"), key).start
    assert start is not None
    snapshot = start.snapshot
    assert holds(session) != bare
    monkeypatch.setattr(server, "_clock", lambda: now + LEASE + 1)
    assert server.expire() == pytest.approx(STREAM_LEASE - LEASE - 1)
    server.answer(SnapshotRequest("latest", "orders", hold=snapshot.hold), key)
    monkeypatch.setattr(server, "_clock", lambda: now + STREAM_LEASE + 1)
    assert server.expire() == pytest.approx(LEASE)  # the stream has asked in the meantime
    monkeypatch.setattr(server, "_clock", lambda: now + 2 * STREAM_LEASE)
    assert server.expire() is None and holds(session) == bare
    for kind in ("latest", "commit"):
        with pytest.raises(DataflowError, match="the changes of 'orders' are no longer kept"):
            server.answer(SnapshotRequest(kind, "orders", 3, snapshot.hold), key)
    assert holds(session) == bare


@pytest.fixture
def adaptive(spark: SparkSession) -> Iterator[None]:
    """Spark's adaptive execution, which is Spark's default but not that of the tests."""
    setting = "spark.sql.adaptive.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "true")
    yield
    spark.conf.set(setting, before)


@pytest.mark.usefixtures("adaptive")
def test_regression_jobs_that_a_query_leaves_behind_are_cancelled(
    session: Session, spark: SparkSession, orders: Table, tmp_path: Path
) -> None:
    """A join with a table without rows ends while tasks read the other side: they failed, and Spark logged it."""
    free, none = tmp_path / "free", session.create_table("none", "id BIGINT")

    def stuck(batches: Iterator[Any]) -> Iterator[Any]:
        while not free.exists():
            time.sleep(0.01)
        yield from batches

    def active() -> int:
        return int(spark.sparkContext._jsc.sc().dagScheduler().activeJobs().size())  # type: ignore[attr-defined]

    let_go(session)
    bare = active()
    slow = orders.to_df().select("id").mapInArrow(stuck, "id LONG")
    assert none.to_df().join(slow.hint("shuffle_merge"), "id").collect() == []
    assert within(SOON, lambda: active() == bare)
    free.touch()
    assert within(SOON, lambda: not session.holds())
    assert orders.to_df().count() == 30


def test_regression_a_read_is_held_until_its_action_has_ended(
    session: Session, spark: SparkSession, orders: Table, tmp_path: Path
) -> None:
    let_go(session)
    bare, free, works = holds(session), tmp_path / "free", tmp_path / "works"

    def stuck(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            works.touch()
            while not free.exists():
                time.sleep(0.01)
            yield batch

    df, rows = orders.to_df(), list[Any]()
    joined = df.select("id").join(orders.to_df().select("id", "total"), "id").mapInArrow(stuck, "id LONG, total LONG")
    thread = threading.Thread(target=lambda: rows.extend(joined.collect()))
    thread.start()
    assert within(SOON, works.exists)
    assert sum(holds(session)) > sum(bare)
    orders.upsert([(id, "n", -1) for id in range(40)])
    free.touch()
    thread.join()
    assert sorted(rows) == [(id, id) for id in range(30)]
    assert within(SOON, lambda: holds(session) == bare)
    assert df.count() == 40 == df.groupBy("total").count().first()["count"]  # the same DataFrame, anew
    assert list(df.limit(1).toLocalIterator()) and df.take(1)
    with pytest.raises(PySparkException):
        df.selectExpr("assert_true(total > 0)").collect()
    free.unlink()
    works.unlink()
    spark.sparkContext.setJobGroup("cancelled", "to be cancelled")
    cancel = threading.Thread(target=lambda: within(SOON, works.exists) and cancel_group(spark, "cancelled"))
    cancel.start()
    with pytest.raises((PySparkException, Py4JError)):
        df.mapInArrow(stuck, df.schema).collect()
    cancel.join()
    free.touch()
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert within(SOON, lambda: len(session._snapshots._reads) == 1)  # the iterator's, about which Spark tells nothing
    let_go(session)
    assert holds(session) == bare


def cancel_group(spark: SparkSession, group: str) -> None:
    spark.sparkContext.cancelJobGroup(group)


def test_all_that_an_action_reads_is_of_one_epoch(session: Session) -> None:
    left = session.create_table("left", "id BIGINT, n BIGINT", key="id")
    right = session.create_table("right", "id BIGINT, n BIGINT", key="id")
    for table in (left, right):
        table.insert([(id, 0) for id in range(20)])

    def change(at: int) -> None:
        with session.transaction():
            left.upsert([(id, at) for id in range(20)])
            right.upsert([(id, at) for id in range(20)])

    with meanwhile(change):
        for _ in range(3):
            joined = left.to_df().join(right.to_df().withColumnRenamed("n", "m"), "id")
            assert len({(row.n, row.m) for row in joined.collect()} | {(row.m, row.n) for row in joined.take(9)}) <= 2
            assert all(row.n == row.m for row in joined.collect())


def test_reads_that_may_not_take_long(session: Session, orders: Table, tmp_path: Path) -> None:
    free, works = tmp_path / "free", tmp_path / "works"
    soon, some_time = orders.to_df(timeout=0.1), orders.to_df()
    session.view("slow", orders.filter(lambda columns: waits_for(free, works, columns["id"])))
    assert within(SOON, works.exists)
    with pytest.raises(PySparkException, match=r"has not answered for 0\.1 s(.|\n)*longer `timeout`"):
        soon.collect()
    free.touch()
    assert some_time.count() == 30
    with pytest.raises(PySparkException, match="the option `timeout` is 'x'"):
        session.spark.read.format(session.format).option("timeout", "x").load("orders").collect()


def waits_for(file: Path, works: Path, column: Any) -> Any:
    while len(column) and not file.exists():
        works.touch()
        time.sleep(0.01)
    return column.is_valid()


def test_changes_epoch_by_epoch(session: Session, orders: Table) -> None:
    view = session.view("counts", orders.count("region"))
    changes, called = view.changes(), list[int]()
    subscription = view.subscribe(lambda epoch, table: called.append(epoch), since="now")
    first, table = next(changes)
    assert first == session.epoch - 1 and len(table) == 3
    with session.transaction() as transaction:
        orders.insert([(50, "n", 1)])
        orders.delete([(0,)])  # of the same region: nothing changes
    orders.insert([(51, "w", 1), (52, "w", 1)])
    epoch, table = next(changes)
    assert epoch == (transaction.epoch or 0) + 1 and table.to_pylist() == [{"region": "w", "count": 2, "diff": 1}]
    assert within(10, lambda: called == [epoch])
    subscription.close()
    view.drop()
    assert list(changes) == []


def test_regression_streams_of_changes_of_columns_called_epoch_and_diff(
    session: Session, spark: SparkSession, orders: Table
) -> None:
    session.view("renamed", "SELECT id AS epoch, total AS diff FROM orders WHERE id = 7")
    changes = spark.readStream.format("ikebana").option("changes", True).load("renamed")
    assert changes.columns == ["epoch", "diff", "epoch_", "diff_"]
    query = changes.writeStream.format("memory").queryName("renamed_changes").start()
    query.processAllAvailable()
    query.stop()
    rows = spark.table("renamed_changes").collect()
    assert [(row.epoch, row["diff"], row.diff_) for row in rows] == [(7, 7, 1)]


def test_streams_of_changes(session: Session, spark: SparkSession, orders: Table, tmp_path: Path) -> None:
    view = session.view("counts", orders.count("region"))
    reader = spark.readStream.format("ikebana").option("changes", True)
    queries = [
        reader.load("counts").writeStream.format("memory").queryName("counted").start(),
        spark.readStream.format("ikebana").load("orders").writeStream.format("memory").queryName("copied").start(),
    ]
    start = session.epoch - 1
    for query in queries:
        query.processAllAvailable()
    orders.insert([(100, "w", 1), (101, "n", 1)])
    orders.insert([(102, "w", 1)])
    for query in queries:
        query.processAllAvailable()
    told = spark.table("counted").collect()
    sums = Counter[Any]()
    for row in told:
        sums[row.region, row["count"]] += row.diff
    assert sorted(key for key, count in sums.items() if count) == rows_of(view) and set(sums.values()) <= {0, 1}
    assert {row.epoch for row in told} == {start, start + 1, start + 2}
    assert in_order(spark.table("copied").collect()) == in_order(orders.to_df().collect())
    orders.delete([(100,)])
    queries[0].processAllAvailable()
    with pytest.raises(PySparkException, match=r"rows of 'orders' were deleted(.|\n)*option\(\"changes\", True\)"):
        queries[1].processAllAvailable()
    for query in queries:
        query.stop()
    with pytest.raises(PySparkException, match="the option `changes` is for streams"):
        spark.read.format("ikebana").option("changes", True).load("counts").collect()


def test_a_view_feeds_a_table(session: Session, spark: SparkSession, orders: Table) -> None:
    session.view("large", orders.filter(is_large))
    copy = session.create_table("copy", orders.schema, key="id")
    following = copy.follow(spark.readStream.format(session.format).load("large"))
    following.wait()
    orders.insert([(1000, "w", 1000)])
    following.wait()
    assert [id for id, *_ in rows_of(copy)] == [1000, *range(20, 30)]
    following.stop()


def is_large(columns: Any) -> Any:
    return pc.greater_equal(columns["total"], 20)


def test_a_function_that_raises_takes_the_answer_of_its_view_alone(session: Session, orders: Table) -> None:
    good = session.view("good", orders.count("region"))
    bad = session.view("bad", orders.map({"x": pa.int64()}, divide))
    onward = session.view("onward", bad.rows().count("x"))
    assert rows_of(onward) == [(100, 30)]
    orders.insert([(500, "zero", 0)])
    assert bad.errors().num_rows == onward.errors().num_rows == 1
    for read in (bad.to_arrow, bad.to_df, bad.to_pandas, onward.to_arrow, onward.to_df):
        said = r"'(bad|onward)' has no answer: .*[Dd]ivi.* by zero\n  detail: in the row id = 500, region = 'zero'"
        with pytest.raises(EvaluationError, match=said) as caught:
            read()
        assert "Traceback" not in str(caught.value)
    with pytest.raises(EvaluationError):
        next(bad.changes())
    states = {view.name: (view.state, view.reason) for view in session.views()}
    assert states["good"] == ("live", "") and states["bad"][0] == states["onward"][0] == "errors"
    assert re.search(r"[Dd]ivi.* by zero in the row id = 500", states["bad"][1])
    assert ("zero", 1) in rows_of(good) and orders.to_df().count() == 31
    orders.delete([(500,)])
    assert rows_of(onward) == [(100, 30)] and onward.to_df().count() == 1
    frame = bad.to_df()
    orders.insert([(500, "zero", 0)])
    with pytest.raises(Exception, match=r"has no answer: .*[Dd]ivi.* by zero"):  # noticed by a Spark task
        frame.collect()
    orders.delete([(500,)])
    assert frame.count() == 30


def divide(columns: Any) -> dict[str, Any]:
    regions = columns["region"].to_pylist()
    return {"x": pa.array([100 // (region != "zero") for region in regions], pa.int64())}


def test_many_threads_at_once(session: Session, spark: SparkSession, orders: Table) -> None:
    counts = session.view("counts", orders.count("region"))

    def insert(at: int) -> None:
        orders.insert([(10_000 + at, "i", at)])

    def load(at: int) -> None:
        start = 1_000_000 + 100 * at
        orders.load(spark.range(start, start + 100, 1, 1).selectExpr("id", "'l' AS region", "id AS total"))

    def views(at: int) -> None:
        with_total = session.view(f"view {at}", orders.sum("region", "total"))
        assert len(with_total.to_arrow()) >= 3
        with_total.drop()

    def read(at: int) -> None:
        row_counts = dict(rows_of(counts))
        assert row_counts.get("l", 0) % 100 == 0 and row_counts["n"] == 10
        repr(session.tables()), repr(session.views()), repr(session.arrangements()), session.status()

    with meanwhile(insert), meanwhile(load), meanwhile(views), meanwhile(read), meanwhile(read):
        for _ in range(3):
            row_counts = {row.region: row["count"] for row in counts.to_df().collect()}
            assert row_counts["n"] == 10 and row_counts.get("l", 0) % 100 == 0
    row_counts = dict(rows_of(counts))
    assert row_counts["i"] > 3 and row_counts["l"] >= 100
    assert Counter(row.region for row in orders.to_df().select("region").collect()) == row_counts
    assert [view.name for view in session.views()] == ["counts"]
    with pytest.raises(IkebanaError, match="already open in this thread"), session.transaction(), session.transaction():
        pass
    with pytest.raises(DroppedError, match="the transaction has ended"), session.transaction() as transaction:
        transaction.abort()
        orders.insert([(1, "x", 1)])


def test_regression_a_dataframe_is_of_the_table_that_it_was_made_of(session: Session) -> None:
    for create, drop in (
        (lambda: session.create_table("t", "id BIGINT"), session.drop_table),
        (lambda: session.view("t", "SELECT 1L AS id"), session.drop_view),
    ):
        create()
        old = session.read("t")
        drop("t")
        create()
        with pytest.raises(SqlError, match="the DataFrame reads 't', which was dropped"):
            session.view("v", old.where("id > 0"))
        with pytest.raises(Exception, match="which was dropped"):
            old.collect()
        assert session.read("t").count() == session.view("v", session.read("t")).to_arrow().num_rows
        session.drop_view("v")
        drop("t")
