"""Following streams: each micro-batch is applied once, as an epoch; change feeds; a failed stream affects no other."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ikebana.errors import ChangeError, DataflowError, SchemaError
from ikebana.spark import Session
from ikebana.spark.following import _MicroBatchError
from tests.clusters import SOON, within
from tests.spark.conftest import Feed
from tests.spark.test_tables import rows_of

pytestmark = pytest.mark.spark

MakeFeed = Callable[..., Feed]
ROW = "id BIGINT, v STRING"


def row(id: int, v: str | None, **more: Any) -> dict[str, Any]:
    return {"id": id, "v": v, **more}


def test_each_micro_batch_is_an_epoch(session: Session, feed: MakeFeed) -> None:
    table, source = session.create_table("t", ROW, key="id"), feed(ROW)
    counts = session.view("counts", table.count("v"))
    changes, epoch = counts.changes(since="now"), session.epoch
    source.write(row(1, "a"), row(2, "b"))
    source.write(row(3, "a"), row(4, "a"))
    following = table.follow(source.stream, name="into t")
    following.wait()
    assert following.batches == 2 and session.epoch == epoch + 2 and following.query.name == "into t"
    assert [next(changes)[0] for _ in range(2)] == [epoch, epoch + 1]
    table.insert([(5, "c")])
    source.write(row(6, "c"))
    following.wait()
    assert rows_of(counts) == [("a", 3), ("b", 1), ("c", 2)]
    assert "active, 3 micro-batches" in repr(following)
    following.stop()
    source.write(row(7, "c"))
    assert "stopped" in repr(following) and not following.query.isActive
    assert len(rows_of(table)) == 6 and following.failure is None


def test_the_last_row_of_a_key_counts(session: Session, feed: MakeFeed) -> None:
    plain, ordered, own = (session.create_table(name, ROW, key="id") for name in ("plain", "ordered", "by its own"))
    source, times = feed(ROW), feed(f"{ROW}, `at t` INT", "times")
    source.write(*(row(id, f"{at}") for at in range(5) for id in range(3)))
    times.write(*(row(id, f"{at}", **{"at t": at}) for at in (3, 4, 1, 0, 2) for id in range(40)))
    for table, stream, order_by in (
        (plain, source.stream, None),
        (ordered, times.stream, "at t"),
        (own, source.stream.select("id", F.col("v")), "v"),
    ):
        following = table.follow(stream, mode="upsert", order_by=order_by)
        following.wait()
        following.stop()
    assert rows_of(plain) == rows_of(own) == [(id, "4") for id in range(3)]
    assert sorted(rows_of(ordered)) == [(id, "4") for id in range(40)]


ENVELOPE = f"op STRING, before STRUCT<{ROW}>, after STRUCT<{ROW}>, source STRUCT<lsn: BIGINT>, ts_ms BIGINT"


def image(op: str, before: Any, after: Any, lsn: int) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn}, "ts_ms": 7}


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "in payload"])
def test_debezium(session: Session, feed: MakeFeed, wrapped: bool) -> None:
    table = session.create_table("t", ROW, key="id")
    source = feed(f"payload STRUCT<{ENVELOPE}>" if wrapped else ENVELOPE)

    def write(*changes: Any) -> None:
        source.write(*({"payload": change} if wrapped else change for change in changes))

    write(image("r", None, row(1, "a"), 1), image("c", None, row(2, "b"), 2), image("c", None, row(3, "c"), 3))
    write(
        image("c", None, row(4, "last"), 9),  # out of order: `source.lsn` has the right order
        image("u", row(1, "a"), row(1, "A"), 4),
        image("d", {"id": 2, "v": None}, None, 5),  # the key alone, as Postgres has it
        {} if wrapped else image(None, None, None, 6),  # type: ignore[arg-type]
        image("d", row(4, "first"), None, 8),
        image("c", None, row(4, "first"), 7),
    )
    following = table.follow(source.stream, mode="changes", order_by="source.lsn")
    following.wait()
    assert rows_of(table) == [(1, "A"), (3, "c"), (4, "last")]
    write(image("t", None, None, 10))
    with pytest.raises(SchemaError, match="cannot change table 't': there is no op 't'"):
        following.wait()
    assert rows_of(table) == [(1, "A"), (3, "c"), (4, "last")]


def test_rows_with_an_op(session: Session, feed: MakeFeed) -> None:
    table, source = session.create_table("t", ROW, key="id"), feed(f"op STRING, {ROW}")
    source.write(row(1, "a", op="insert"), row(2, "b", op="c"), row(1, "A", op="update"), row(3, "x", op="upsert"))
    source.write(row(2, None, op="delete"), row(3, None, op="d"), row(3, "y", op="insert"))
    table.follow(source.stream, mode="changes").wait()
    assert rows_of(table) == [(1, "A"), (3, "y")]


def test_replays_change_nothing(session: Session, feed: MakeFeed, tmp_path: Path) -> None:
    bag, source = session.create_table("bag", ROW), feed(ROW)
    checkpoint = tmp_path / "checkpoint"
    source.write(row(1, "a"))
    source.write(row(2, "b"))
    first = bag.follow(source.stream, checkpoint=str(checkpoint))
    first.wait()
    epoch = session.epoch
    first._commits(session.spark.createDataFrame([(1, "a")], ROW), 0)
    first._commits(session.spark.createDataFrame([(9, "z")], ROW), 1)
    assert session.epoch == epoch
    first.stop()
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):  # as if Spark had died before it committed
        path.unlink(missing_ok=True)
    source.write(row(3, "c"))
    again = bag.follow(source.stream, checkpoint=str(checkpoint))
    again.wait()
    assert again.batches == 1 and session.epoch == epoch + 1
    assert rows_of(bag) == [(1, "a"), (2, "b"), (3, "c")]
    other = bag.follow(source.stream)  # another stream, which starts at the beginning
    other.wait()
    assert rows_of(bag) == sorted([(1, "a"), (2, "b"), (3, "c")] * 2)


def test_regression_a_checkpoint_of_rows_that_are_elsewhere_is_refused(
    session: Session, spark: SparkSession, feed: MakeFeed, tmp_path: Path
) -> None:
    table, source, checkpoint = session.create_table("t", ROW), feed(ROW), str(tmp_path / "old")
    source.write(row(1, "a"))
    source.write(row(2, "b"))
    first = table.follow(source.stream, checkpoint=checkpoint)
    first.wait()
    first.stop()
    source.write(row(3, "c"))
    table.drop()
    table = session.create_table("t", ROW)  # as in a new session
    with pytest.raises(DataflowError, match="cannot continue from the checkpoint") as refused:
        table.follow(source.stream, checkpoint=checkpoint)
    assert refused.value.detail.startswith("2 micro-batches") and "resume=True" in refused.value.hint
    assert rows_of(table) == []
    resumed = table.follow(source.stream, checkpoint=checkpoint, resume=True)
    resumed.wait()
    assert rows_of(table) == [(3, "c")]
    resumed.stop()
    again = table.follow(source.stream, checkpoint=checkpoint)  # everything since then was applied to this table
    again.stop()
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        with pytest.raises(DataflowError, match="cannot continue"):  # the same location, by the name of the query
            session.create_table("u", ROW).follow(source.stream, name="old")
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


def test_a_stream_that_fails_stops_alone(session: Session, spark: SparkSession, feed: MakeFeed) -> None:
    table, other, fed = session.create_table("t", ROW, key="id"), session.create_table("o", ROW), feed(ROW)
    view, good = session.view("all", table.distinct()), feed(ROW, "good")
    table.insert([(1, "a")])
    fine, following = other.follow(good.stream), table.follow(fed.stream)
    fed.write(row(2, "b"))
    following.wait()
    fed.write(row(3, "c"), row(1, "x"))
    with pytest.raises(ChangeError, match=r"cannot insert into table 't': 1 row(.|\n)*\(id=1\)") as caught:
        following.wait()
    assert following.failure is caught.value and "failed, 1 micro-batches" in repr(following)
    with pytest.raises(ChangeError):
        following.stop()
    raised = F.udf(lambda v: 1 // 0, "string")
    broken = table.follow(feed(ROW, "broken").stream.withColumn("v", raised("v")))
    (Path(fed.path).parent / "broken" / "x.json").write_text('{"id": 7, "v": "x"}')
    with pytest.raises(DataflowError, match=r"rows for table 't' could not be(.|\n)*detail: ZeroDivisionError"):
        broken.wait()
    lost = feed(ROW, "lost")
    gone = table.follow(lost.stream.where("assert_true(id > 100) IS NULL"))
    lost.write(row(9, "x"))
    with pytest.raises(DataflowError, match=r"detail: .*(assert_true|id > 100|USER_RAISED)"):
        gone.wait()
    good.write(row(1, "fine"))
    fine.wait()
    assert rows_of(other) == [(1, "fine")] and rows_of(table) == rows_of(view) == [(1, "a"), (2, "b")]


def test_regression_a_stream_that_is_stopped_within_a_micro_batch_has_not_failed(
    session: Session, spark: SparkSession, feed: MakeFeed, tmp_path: Path
) -> None:
    """Spark could not tell that the stream was stopped: at the text of the Java exception, its stack overflowed."""
    table, source, works = session.create_table("t", ROW), feed(ROW), tmp_path / "works"

    def wait(v: str) -> str:
        works.touch()
        time.sleep(SOON)
        return v

    following = table.follow(source.stream.withColumn("v", F.udf(lambda v: wait(v), "string")("v")))
    source.write(row(1, "a"))
    assert within(SOON, works.exists)
    following.stop()
    assert following.failure is None and "stopped, 0 micro-batches" in repr(following) and rows_of(table) == []
    error = DataflowError("the rows could not be computed")
    with pytest.raises(Py4JJavaError) as caught:
        spark._jvm.java.util.ArrayDeque().pop()  # type: ignore[union-attr]
    error.__cause__ = caught.value
    told = str(_MicroBatchError.of(error))
    assert "\npy4j.protocol.Py4JJavaError: An error" in told and told.endswith(": java.util.NoSuchElementException")


def test_streams_that_are_refused(session: Session, spark: SparkSession, feed: MakeFeed) -> None:
    table, source = session.create_table("t", ROW, key="id"), feed(f"{ROW}, more INT")
    stream, rows = source.stream, source.stream.drop("more")
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (spark.range(1), {}, r"can only follow a streaming DataFrame\n  hint: create it"),
        ([(1, "a")], {}, "can only follow a streaming DataFrame"),
        (stream, {}, r"does not have the columns of table 't'\n  detail: unknown: 'more'"),
        (stream.drop("v", "more"), {}, "missing: 'v'"),
        (rows.withColumn("id", F.col("v")), {}, "column 'id' of the DataFrame does not fit table 't'"),
        (rows, {"mode": "complete"}, "unknown mode 'complete'\n  hint: use one of append, upsert, changes"),
        (rows, {"mode": "changes"}, r"as a change feed\n  detail: there is no column 'op'; the columns are id, v"),
        (rows, {"mode": "upsert", "order_by": "nope"}, r"in the order of 'nope'\n  detail: .*nope"),
    ]
    for given, options, message in cases:
        with pytest.raises(SchemaError, match=message):
            table.follow(given, **options)
    assert not spark.streams.active


def test_streams_end_with_their_table_and_their_session(session: Session, spark: SparkSession, feed: MakeFeed) -> None:
    table, source = session.create_table("t", ROW, key="id"), feed(ROW)
    session.view("uses it", table.count("v"))
    following = table.follow(source.stream)
    with pytest.raises(DataflowError, match="cannot drop table 't'"):
        table.drop()
    assert following.query.isActive
    session.drop_view("uses it")
    table.drop()
    assert not following.query.isActive and not spark.streams.active
