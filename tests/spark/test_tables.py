"""Tables on Spark: data and schemas in every form, loading, transactions, and everything that is refused."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import psutil
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from ikebana.errors import ChangeError, DataflowError, IkebanaError, SchemaError, WaitTimeoutError
from ikebana.spark import Session, Table, loading
from ikebana.spark.progress import with_progress

pytestmark = pytest.mark.spark

PEOPLE = "name STRING, id BIGINT, n INT"
ROWS = [("ann", 1, 10), (None, 2, None), ("née", 3, -5)]
NAMES = ["name", "id", "n"]
NEW_YORK = "America/New_York"
POINT = dt.datetime(2024, 7, 1, 12, 30, 15, 123456, tzinfo=dt.UTC)


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=repr)


def in_order(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows), key=repr)


@pytest.fixture
def people(session: Session) -> Table:
    return session.create_table("people", PEOPLE, key="id")


# Data in every form.

AS_COLUMNS = {name: list(column) for name, column in zip(NAMES, zip(*ROWS, strict=True), strict=True)}
AS_ARROW = pa.table(AS_COLUMNS)
FORMS: dict[str, Any] = {
    "tuples": ROWS,
    "a tuple of tuples": tuple(ROWS),
    "lists": [list(row) for row in ROWS],
    "dicts": [dict(zip(NAMES, row, strict=True)) for row in ROWS],
    "dicts in another order": [dict(reversed(list(zip(NAMES, row, strict=True)))) for row in ROWS],
    "Spark rows": [Row(**dict(zip(NAMES, row, strict=True))) for row in ROWS],
    "a mixture": [ROWS[0], dict(zip(NAMES, ROWS[1], strict=True)), Row(id=3, n=-5, name="née")],
    "a generator": lambda: (row for row in ROWS),
    "columns": AS_COLUMNS,
    "columns of many kinds": {
        "name": pd.Series(["ann", None, "née"]),
        "id": range(1, 4),
        "n": pa.array([10, None, -5]),
    },
    "Arrow": AS_ARROW,
    "an Arrow batch": AS_ARROW.to_batches()[0],
    "Arrow of other widths": AS_ARROW.cast(
        pa.schema([("name", pa.large_string()), ("id", pa.int32()), ("n", pa.int64())])
    ),
    "pandas": AS_ARROW.to_pandas(),
    "pandas, columns in another order": AS_ARROW.to_pandas()[["n", "name", "id"]],
    "polars": pl.DataFrame(AS_COLUMNS),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_any_form(people: Table, form: str) -> None:
    data = FORMS[form]
    people.insert(data() if callable(data) else data)
    assert rows_of(people) == in_order(ROWS)
    people.upsert([("bob", 1, 0)])
    people.upsert(data() if callable(data) else data)
    assert rows_of(people) == in_order(ROWS)
    people.delete(data() if callable(data) else data)
    assert rows_of(people) == []


@pytest.mark.parametrize("row", [ROWS[0], dict(zip(NAMES, ROWS[0], strict=True)), Row(name="ann", id=1, n=10)])
def test_one_row(people: Table, row: Any) -> None:
    assert people.insert(row) == people._session.epoch - 1
    assert rows_of(people) == [ROWS[0]]
    people.delete(row)
    assert rows_of(people) == []


@pytest.mark.parametrize(
    "keys",
    [
        [(1,), (3,)],
        [1, 3],
        range(1, 4, 2),
        [{"id": 1}, {"id": 3}],
        [(1,), ("née", 3, -5)],
        [{"id": 1, "name": "whatever"}, {"id": 3}],
        {"id": [1, 3]},
        pa.table({"id": [1, 3]}),
        pd.DataFrame({"id": [1, 3]}),
        pl.DataFrame({"id": [1, 3]}),
    ],
    ids=lambda keys: f"{type(keys).__module__} {type(keys).__name__}",
)
def test_keys_to_delete_in_any_form(people: Table, keys: Any) -> None:
    people.insert(ROWS)
    people.delete(keys)
    assert rows_of(people) == [ROWS[1]]


def test_no_rows_at_all(session: Session, spark: SparkSession, people: Table) -> None:
    assert people.to_df().collect() == [] and rows_of(people) == []
    view = session.view("counted", people.count("name"))
    assert view.to_arrow().num_rows == 0 == view.to_df().count()
    none_of_polars = pl.DataFrame(schema={"name": pl.String, "id": pl.Int64, "n": pl.Int32})
    none_of_arrow = AS_ARROW.slice(0, 0)
    nothing = ([], (), {name: [] for name in NAMES}, none_of_arrow, none_of_arrow.to_pandas(), none_of_polars)
    for none in nothing:
        people.insert(none)
    people.load(spark.createDataFrame([], PEOPLE))
    people.load(spark.createDataFrame(ROWS, PEOPLE).where("id > 5"), "upsert")
    assert rows_of(people) == [] and people.to_df().schema.names == NAMES
    assert people.to_pandas().columns.tolist() == NAMES


def test_a_bag_has_rows_as_often_as_they_came(session: Session, spark: SparkSession) -> None:
    bag = session.create_table("bag", "w STRING, n INT")
    bag.insert([("a", 1), ("a", 1), ("b", None)])
    bag.load(spark.createDataFrame([("a", 1), ("b", None)], "w STRING, n INT"))
    assert rows_of(bag) == in_order([("a", 1)] * 3 + [("b", None)] * 2)
    bag.delete([("a", 1), ("b", None)])
    bag.load(spark.createDataFrame([("a", 1)], "w STRING, n INT"), "delete")
    assert in_order(bag.to_df().collect()) == rows_of(bag) == in_order([("a", 1), ("b", None)])


# Types and schemas.

EVERYTHING = (
    "id BIGINT, b TINYINT, s SMALLINT, i INT, f FLOAT, d DOUBLE, n DECIMAL(12,3), big DECIMAL(38,10), t STRING, "
    "x BINARY, o BOOLEAN, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, short VARCHAR(10)"
)
NUMBERS = [
    (1, 127, -32768, 2**31 - 1, 0.5, 1e300, Decimal("-123456789.125"), Decimal("1234567890123456789012345678.5")),
    (2, -128, 32767, -(2**31), -1.5, float("inf"), Decimal("0.001"), Decimal("-0.0000000001")),
]
OTHERS = [
    ("née \U0001f33f", b"\x00\xff", True, dt.date(1969, 12, 31), POINT, dt.datetime(1900, 1, 1, 1, 1, 1, 7), "x"),
    ("", b"", False, dt.date(9999, 12, 31), POINT.replace(year=1950), dt.datetime(2262, 5, 1), ""),
]
VALUES: list[tuple[Any, ...]] = [
    *((*numbers, *others) for numbers, others in zip(NUMBERS, OTHERS, strict=True)),
    (-(2**63), *[None] * 14),
]


def everything(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(VALUES, EVERYTHING.replace("VARCHAR(10)", "STRING"))


@pytest.mark.parametrize("key", ["id", None])
def test_all_types_come_back_as_they_went(session: Session, spark: SparkSession, zone: str, key: str | None) -> None:
    df = everything(spark)
    loaded = session.create_table("loaded", EVERYTHING, key=key)
    loaded.load(df)
    given = session.create_table("given", df, key=key)
    for part in (df.where("id = 1").collect(), df.where("id = 2").toArrow(), [VALUES[2]]):
        given.insert(part)
    expected = in_order(df.collect())
    for table in (loaded, given):
        assert in_order(table.to_df().collect()) == expected
        assert {f.name: f.dataType for f in table.to_df().schema} == {f.name: f.dataType for f in df.schema}
        assert rows_of(table) == in_order([*VALUES[:2], VALUES[2]])
        assert table.to_arrow().schema.field("at").type == pa.timestamp("us", "UTC")
        pandas = table.to_pandas().sort_values("id", ignore_index=True)
        assert pandas["at"][1].tz_convert(zone) == df.where("id = 1").toPandas()["at"][0].tz_localize(zone)
        assert pandas["n"].tolist() == [None, VALUES[0][6], VALUES[1][6]]
    again = session.create_table("again", df, key="day" if key is None else ["at", "t", "x"])
    again.load(df.where("id > 0"))
    assert in_order(again.to_df().collect()) == in_order(df.where("id > 0").collect())
    view = session.view("later", loaded.select("at", "wall", "n", "big"))
    assert in_order(view.to_df().collect()) == in_order(df.select("at", "wall", "n", "big").collect())


def test_timestamps_from_anywhere_are_points_in_time(session: Session, spark: SparkSession, zone: str) -> None:
    table = session.create_table("points", "id INT, at TIMESTAMP, wall TIMESTAMP_NTZ", key="id")
    wall = POINT.replace(tzinfo=None)
    moment = POINT.astimezone(dt.timezone(dt.timedelta(hours=-4)))
    table.insert([(1, moment, wall), (2, POINT.astimezone().replace(tzinfo=None), wall)])  # as PySpark: local time
    shown = pa.array([POINT], pa.timestamp("us", zone))
    table.insert(pa.table({"id": [3], "at": shown, "wall": pa.array([wall], pa.timestamp("us"))}))
    table.insert(pd.DataFrame({"id": [4], "at": [pd.Timestamp(POINT).tz_convert(zone)], "wall": [pd.Timestamp(wall)]}))
    table.insert(pl.DataFrame({"id": [5], "at": [moment], "wall": [wall]}))
    table.insert(spark.createDataFrame([(6, POINT, wall)], table.schema).collect())
    table.load(spark.createDataFrame([(7, POINT, wall)], table.schema))
    assert rows_of(table) == [(number, POINT, wall) for number in range(1, 8)]
    assert {(row.at.timestamp(), row.wall) for row in table.to_df().collect()} == {(POINT.timestamp(), wall)}
    finer = pa.table({"id": [8], "at": pa.array([1], pa.timestamp("ns", "UTC")), "wall": pa.array([wall])})
    with pytest.raises(SchemaError, match=r"column 'at' is not of type timestamp\[us, tz=UTC\](.|\n)*lose data"):
        table.insert(finer)
    with pytest.raises(SchemaError, match=r"column 'at' is not of type"):
        table.insert(pd.DataFrame({"id": [9], "at": [pd.Timestamp(wall)], "wall": [pd.Timestamp(wall)]}))


def test_pandas_with_missing_numbers(people: Table) -> None:
    frame = pd.DataFrame({"name": ["a", None], "id": [1, 2], "n": [7, None]})
    assert str(frame["n"].dtype) == "float64"
    people.insert(frame)
    assert rows_of(people) == in_order([("a", 1, 7), (None, 2, None)])
    with pytest.raises(SchemaError, match="column 'n' is not of type int32"):
        people.insert(pd.DataFrame({"name": ["a"], "id": [3], "n": [7.5]}))
    with pytest.raises(SchemaError, match="column 'id' is not of type int64"):
        people.insert(pd.DataFrame({"name": ["a", "b"], "id": [3, "x"], "n": [7, 8]}))


SCHEMAS: dict[str, Callable[[SparkSession], Any]] = {
    "a StructType": lambda _: StructType().add("k", LongType(), nullable=False).add("v", StringType()),
    "DDL": lambda _: "k BIGINT NOT NULL, v STRING",
    "an Arrow schema": lambda _: pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())]),
    "a mapping": lambda _: {"k": pa.int64(), "v": pa.string()},
    "a DataFrame": lambda spark: spark.range(1).selectExpr("id AS k", "nullif(string(id), '7') AS v"),
    "an Arrow table": lambda _: pa.table({"k": [1], "v": ["a"]}),
    "a table of ours": lambda _: "later",
}


def test_schemas_in_any_form(session: Session, spark: SparkSession) -> None:
    for form, schema_of in SCHEMAS.items():
        schema = session.table("DDL").schema if form == "a table of ours" else schema_of(spark)
        table = session.create_table(form, schema, key="k")
        table.insert([(1, "x"), (2, None)])
        assert table.to_df().dtypes == [("k", "bigint"), ("v", "string")]
        assert not table.schema["k"].nullable and rows_of(table) == in_order([(1, "x"), (2, None)])


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("a NOPE", r"cannot parse the schema 'a NOPE'\n  detail: .*NOPE"),
        ("INT", "cannot parse the schema 'INT'|the schema 'INT' has no column names|has no columns|'value'"),
        ("a INT, a STRING", "duplicate column 'a'"),
        ("a INT, A STRING", "columns 'a' and 'A' differ only in case"),
        ({"a": pa.uint32()}, r"column 'a' is of type uint32, which Spark does not have"),
        ("a VOID", "column 'a' has type null"),
        (42, "a value of type int is not a schema"),
        ({}, "table 'bad' has no columns"),
        (StructType(), "table 'bad' has no columns"),
    ],
    ids=str,
)
def test_schemas_that_are_refused(session: Session, schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        session.create_table("bad", schema)
    assert [table.name for table in session.tables()] == []


def test_names_of_all_kinds(session: Session, spark: SparkSession) -> None:
    column, other = "a `b` \"c\" 'd'.e", "größe, ✿"
    for name in ("late orders", "it's `so`.x", "../größe ✿ #2"):
        table = session.create_table(name, pa.schema([(column, pa.int64()), (other, pa.string())]), key=column)
        table.load(spark.range(3).toDF(column).withColumn(other, F.lit("x")))
        table.insert({column: 3, other: "y"})
        view = session.view(f"view of {name}", table.count(other))
        assert view.to_df().count() == 2 and table.to_df().count() == 4
        assert spark.read.format("ikebana").load(name).count() == 4
        table.load(spark.range(2).toDF(column), "delete")
        assert table.to_arrow().num_rows == 2
    for name in ("", " ", None, 3):
        with pytest.raises(SchemaError, match="is not a valid name for a"):
            session.create_table(name, "a INT")  # type: ignore[arg-type]
        with pytest.raises(SchemaError, match="is not a valid name for a"):
            session.view(name, table)  # type: ignore[arg-type]


# Loading.


def test_load_in_many_parts(session: Session, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "CHUNK_ROWS", 700)
    batch = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(batch)
    spark.conf.set(batch, 300)
    table = session.create_table("many", "id BIGINT, v BIGINT", key="id")
    sums = session.view("sums", table.sum("v", "id"))
    df = spark.range(0, 10_000, 1, 5).selectExpr("id", "id % 3 AS v")
    epoch = session.epoch
    assert table.load(df) == epoch == session.epoch - 1
    assert in_order(sums.to_df().collect()) == in_order(df.groupBy("v").sum("id").collect())
    assert table.load(df.selectExpr("id", "v + 1 AS v").where("id % 2 = 0"), "upsert") == epoch + 1
    table.load(df.where("id >= 1000").select("id"), "delete")
    expected = [(number, number % 3 + (number % 2 == 0)) for number in range(1000)]
    assert rows_of(table) == in_order(expected)
    with pytest.raises(ChangeError, match=r"1000 rows with a key that exists already") as caught:
        table.load(df.where("id < 2000"))
    assert "for instance (id=" in caught.value.detail and "upsert" in caught.value.hint
    with pytest.raises(ChangeError, match=r"5 rows with a key that was inserted before in the same transaction"):
        table.load(df.where("id >= 5000 AND id < 5005").union(df.where("id >= 5000 AND id < 5005")))
    assert rows_of(table) == in_order(expected) and session.epoch == epoch + 3
    spark.conf.set(batch, before)


def test_load_takes_no_memory_of_the_driver(session: Session, spark: SparkSession) -> None:
    table = session.create_table("large", "id BIGINT, a BIGINT, b DOUBLE, t STRING", key="id")
    rows = 20_000
    df = spark.range(0, rows, 1, 4).selectExpr("id", "id % 7 AS a", "id / 3 AS b", "lpad(string(id), 2500, '0') AS t")
    table.load(df.limit(10), "upsert")
    process = psutil.Process()
    before = peak = process.memory_info().rss
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    table.load(df, "upsert")
    done.set()
    watcher.join()
    assert peak - before < 20 << 20  # of more than 50 MB
    totals = table.to_df().selectExpr("count(*)", "sum(id)", "max(t)").collect()
    assert [tuple(row) for row in totals] == [(rows, rows * (rows - 1) // 2, f"{rows - 1:02500}")]


def test_load_in_a_transaction_with_others(session: Session, spark: SparkSession, people: Table) -> None:
    bag = session.create_table("bag", "id BIGINT")
    both = session.view("both", people.join(bag, "id"))
    changes = both.changes(since="now")
    epoch = session.epoch
    with session.transaction() as transaction:
        assert people.insert(ROWS[:1]) is None
        assert people.load(spark.createDataFrame(ROWS[1:], PEOPLE)) is None
        assert bag.load(spark.range(1, 4)) is None
        people.delete([(2,)])
        assert rows_of(people) == []
    assert transaction.epoch == epoch == session.epoch - 1
    change_epoch, table = next(changes)
    assert change_epoch == epoch and sorted(table["id"].to_pylist()) == [1, 3]
    with pytest.raises(ChangeError), session.transaction():
        bag.load(spark.range(10))
        people.load(spark.createDataFrame(ROWS, PEOPLE))
    with pytest.raises(ZeroDivisionError), session.transaction():
        bag.load(spark.range(10))
        raise ZeroDivisionError
    assert session.epoch == epoch + 1 and rows_of(bag) == [(1,), (2,), (3,)]
    with session.transaction():
        with pytest.raises(SchemaError):
            bag.load(spark.range(10).withColumn("x", F.lit(1)))
        bag.insert([(7,)])
    assert rows_of(bag) == [(1,), (2,), (3,), (7,)]


def test_a_bar_is_shown_for_jobs_that_take_a_while(
    session: Session, spark: SparkSession, people: Table, capfd: pytest.CaptureFixture[str]
) -> None:
    spark.sparkContext.setJobGroup("mine", "my jobs")
    people.load(spark.createDataFrame(ROWS, PEOPLE), progress=True)

    def slowly() -> int:
        return spark.sparkContext.parallelize(range(4), 4).map(lambda _: __import__("time").sleep(1.2)).count()

    assert with_progress(spark, "loading slowly", slowly, shown=True) == 4
    assert "loading slowly" in capfd.readouterr().err
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


# Further columns.


def test_a_column_is_added(session: Session, spark: SparkSession) -> None:
    table = session.create_table("parts", "id BIGINT, name STRING", key="id")
    table.insert([(1, "bolt"), (2, "nut")])
    names = session.view("names", "SELECT name FROM parts")
    before = table.to_df()
    table.add_column("weight", "DECIMAL(5, 1) NOT NULL", default=Decimal("0.5"))
    assert table.columns == ["id", "name", "weight"] == spark.table("parts").columns
    table.upsert([(2, "nut", Decimal(3)), (3, "washer", Decimal(1))])
    table.load(spark.sql("SELECT 4L AS id, 'pin' AS name, CAST(9 AS DECIMAL(5, 1)) AS weight"))
    assert rows_of(table) == [(1, "bolt", Decimal("0.5")), (2, "nut", Decimal(3)), (3, "washer", 1), (4, "pin", 9)]
    assert sorted(row.name for row in names.collect()) == ["bolt", "nut", "pin", "washer"]
    heavy = session.view("heavy", "SELECT name FROM parts WHERE weight > 2")
    assert sorted(row.name for row in heavy.collect()) == ["nut", "pin"] and heavy.verify()
    with pytest.raises(DataflowError, match=r"'parts' as it no longer is(.|\n)*a column was added"):
        names.verify()
    with pytest.raises(Exception, match="was dropped"):
        before.collect()
    for name, kind, default, message in (
        ("Name", "INT", None, "differ only in case"),
        ("x", "INT NOT NULL", None, "has no value in the rows"),
        ("x", "INT", "one", "cannot be the value"),
        ("x", 5, None, "the type of column 'x'"),
        ("x", "NOTHING", None, "cannot parse"),
    ):
        with pytest.raises(SchemaError, match=message):
            table.add_column(name, kind, default)  # type: ignore[arg-type]
    assert table.columns == ["id", "name", "weight"]


# What is refused.


def boom(value: int) -> int:
    raise ValueError(f"no {value}!")


def several(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields some rows, and then fails."""
    yield from batches
    raise ValueError("too late")


def frame(spark: SparkSession, *columns: str) -> DataFrame:
    return spark.range(5, 8).selectExpr("'x' AS name", *columns)


BAD: dict[str, tuple[Callable[[Table, SparkSession], Any], type[IkebanaError], str]] = {
    "a missing column": (
        lambda t, s: t.load(frame(s, "id")),
        SchemaError,
        r"the DataFrame does not have the columns of table 'people'\n  detail: missing: 'n'\n  hint: select exa",
    ),
    "an extra column": (
        lambda t, s: t.load(frame(s, "id", "1 AS n", "2 AS `m o`")),
        SchemaError,
        "the DataFrame does not have the columns of table 'people'\n  detail: unknown: 'm o'",
    ),
    "a column twice": (
        lambda t, s: t.load(frame(s, "id", "1 AS n", "2 AS n")),
        SchemaError,
        "columns of table 'people'\n  detail: duplicate: 'n'",
    ),
    "a column of a strange type, unknown": (
        lambda t, s: t.load(frame(s, "id", "1 AS n", "parse_json('1') AS v")),
        SchemaError,
        "unknown: 'v'",
    ),
    "a wrong type": (
        lambda t, s: t.load(frame(s, "string(id) AS id", "1 AS n")),
        SchemaError,
        "column 'id' of the DataFrame does not fit table 'people'\n  detail: it is of type string, the table has int64",
    ),
    "a number that is too large": (
        lambda t, s: t.load(frame(s, "id", "10000000000 * id AS n")),
        SchemaError,
        r"cannot change table 'people': column 'n' is not of type int32\n  detail: (.|\n)*  hint: ",
    ),
    "a null in a key": (
        lambda t, s: t.load(frame(s, "nullif(id, 6) AS id", "1 AS n")),
        SchemaError,
        r"cannot change table 'people': key column 'id' has a null in 1 row\n  detail: .*a key cannot be null\n  hint",
    ),
    "a null in a key to delete": (
        lambda t, s: t.load(frame(s, "nullif(id, 6) AS id"), "delete"),
        SchemaError,
        "key column 'id' has a null",
    ),
    "duplicate keys": (
        lambda t, s: t.load(frame(s, "id div 6 + 100 AS id", "1 AS n")),
        ChangeError,
        r"cannot insert into table 'people': 1 row with a key that was inserted before in the same .*\n.*\(id=101\)",
    ),
    "keys that exist": (
        lambda t, s: t.load(frame(s, "id - 4 AS id", "1 AS n")),
        ChangeError,
        r"3 rows with a key that exists already\n  detail: \(id=\d\); \(id=\d\); \(id=\d\)\n  hint: use upsert",
    ),
    "deleting what is not there": (
        lambda t, s: t.load(s.range(3, 5), "delete"),
        ChangeError,
        r"cannot delete from table 'people': 1 row that does not exist\n  detail: \(id=4\)",
    ),
    "a function that raises": (
        lambda t, s: t.load(
            s.range(3).select(F.lit("x").alias("name"), F.udf(boom, "long")("id").alias("id"), F.lit(1).alias("n"))
        ),
        DataflowError,
        r"the rows for table 'people' could not be computed\n  detail: ValueError: no \d!\n  hint: no rows were",
    ),
    "a task that fails when all but its end is staged": (
        lambda t, s: t.load(frame(s, "id", "1 AS n").mapInArrow(several, PEOPLE)),
        DataflowError,
        "ValueError: too late",
    ),
    "a division by zero": (
        lambda t, s: t.load(frame(s, "id", "int(1 / (id - 6)) AS n")),
        DataflowError,
        r"could not be computed\n  detail: .*DIVIDE_BY_ZERO",
    ),
    "no DataFrame": (lambda t, s: t.load(ROWS), SchemaError, "cannot load a value of type list into table 'people'"),
    "a DataFrame as rows": (
        lambda t, s: t.insert(s.range(1)),
        SchemaError,
        r"a Spark DataFrame cannot be used here\n  hint: use load",
    ),
    "a stream": (lambda t, s: t.load(s.readStream.format("rate").load()), SchemaError, r"cannot load a(.|\n)*follow"),
    "another way": (lambda t, s: t.load(s.range(1), "merge"), SchemaError, "unknown load mode 'merge'"),
    "a row with too few values": (lambda t, s: t.insert([("x", 9)]), SchemaError, r"row 0 does not fit the columns"),
    "a row with another column": (
        lambda t, s: t.insert([ROWS[0], {"id": 9, "name": "x", "m": 1}]),
        SchemaError,
        r"row 1 does not have the columns of the table\n  detail: it has 'id', 'name', 'm'; the table has 'name', '",
    ),
    "a value of another type": (
        lambda t, s: t.insert([("x", "9", 1)]),
        SchemaError,
        "cannot change table 'people': column 'id' is not of type int64",
    ),
    "a fraction": (lambda t, s: t.insert([("x", Decimal("9.5"), 1)]), SchemaError, "column 'id' is not of type int64"),
    "a key that is null": (lambda t, s: t.insert([("x", None, 1)]), SchemaError, "key column 'id' has a null in 1 row"),
    "a key twice": (lambda t, s: t.insert([("x", 9, 1), ("y", 9, 1)]), ChangeError, r"inserted before.*\n.*\(id=9\)"),
    "a key that exists": (lambda t, s: t.insert(ROWS[:1]), ChangeError, r"exists already\n  detail: \(id=1\)"),
    "a key that does not": (lambda t, s: t.delete({"id": 9}), ChangeError, r"1 row that does not exist\n.*\(id=9\)"),
    "text": (lambda t, s: t.insert("ann"), SchemaError, "a value of type str is not a row"),
    "nothing": (lambda t, s: t.insert(None), SchemaError, "a value of type NoneType is not a row"),
    "a name that is taken": (
        lambda t, s: t._session.create_table("people", PEOPLE),
        DataflowError,
        "the name 'people' is taken\n  hint: choose another",
    ),
    "a name that a view has": (
        lambda t, s: t._session.create_table("others", PEOPLE),
        DataflowError,
        "the name 'others' is taken",
    ),
    "a key column that is not there": (
        lambda t, s: t._session.create_table("t", PEOPLE, key="nr"),
        SchemaError,
        "the key column 'nr' is not in the schema\n  detail: the columns are name, id, n",
    ),
    "a table in use": (lambda t, s: t.drop(), DataflowError, r"cannot drop table 'people'\n  detail: .*used by 'all'"),
    "a view of a number": (
        lambda t, s: t._session.view("v", 1),
        SchemaError,
        "view 'v' cannot be created from a value of type int",
    ),
}


def test_bad_input_changes_nothing(session: Session, spark: SparkSession, people: Table) -> None:
    people.insert(ROWS)
    other = session.create_table("other", "x INT")
    views = [session.view("all", people.select("id", "n")), session.view("others", other.distinct())]
    other.insert([(1,)])
    before, epoch = [rows_of(source) for source in (people, *views)], session.epoch
    names = [table.name for table in session.tables()]
    for case, (function, kind, message) in BAD.items():
        with pytest.raises(kind, match=message) as caught, session.transaction():
            other.insert([(2,)])
            function(people, spark)
        assert type(caught.value) is kind and "Traceback" not in str(caught.value), case
        assert [rows_of(source) for source in (people, *views)] == before and session.epoch == epoch, case
    assert [table.name for table in session.tables()] == names and len(session.views()) == 2
    with session.transaction():
        other.insert([(3,)])
        people.insert([("new", 4, 4)])
    assert rows_of(views[1]) == [(1,), (3,)] and (4, 4) in rows_of(views[0])


def test_tables_that_are_dropped(session: Session, spark: SparkSession, people: Table) -> None:
    people.insert(ROWS)
    df = people.to_df()
    assert df.count() == 3
    people.drop()
    for use in (
        lambda: people.insert(ROWS),
        lambda: people.load(spark.createDataFrame(ROWS, PEOPLE)),
        people.to_df,
        people.to_arrow,
        people.hold,
        people.drop,
    ):
        with pytest.raises(IkebanaError, match="table 'people' was dropped"):
            use()
    with pytest.raises(DataflowError, match="there is no table 'people'\n  detail: there are none"):
        session.table("people")
    again = session.create_table("people", "x INT")
    again.insert([(1,)])
    with pytest.raises(IkebanaError, match="table 'people' was dropped"):
        people.drop()
    assert rows_of(session.table("people")) == [(1,)]


def test_streams_are_not_kept(session: Session, spark: SparkSession) -> None:
    events = session.create_table("events", "id BIGINT, v BIGINT", stream=True)
    events.insert([(1, 1)])
    sums = session.view("sums", events.sum("v", "id"))
    events.load(spark.range(10).selectExpr("id", "id % 2 AS v"))
    assert rows_of(sums) == [(0, 20), (1, 25)] == in_order(sums.to_df().collect())
    for read in (events.to_df, events.to_arrow, lambda: session.read("events"), events.hold):
        with pytest.raises(DataflowError, match=r"table 'events' cannot be read\n.*a stream(.|\n)*create a view"):
            read()
    with pytest.raises(SchemaError, match="cannot delete rows of table 'events'"):
        events.delete([(1, 1)])
    with pytest.raises(SchemaError, match="stream 'keyed' cannot have a key"):
        session.create_table("keyed", "id INT", key="id", stream=True)


def test_loading_ends_when_its_time_is_over(session: Session, spark: SparkSession, tmp_path: Path) -> None:
    table, gate = session.create_table("t", "id BIGINT", key="id"), str(tmp_path / "gate")

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while not Path(gate).exists():
            threading.Event().wait(0.01)
        yield from batches

    with pytest.raises(WaitTimeoutError, match="loading into 't' took longer than"):
        table.load(spark.range(3).mapInArrow(wait, "id BIGINT"), timeout=0.5)
    Path(gate).touch()
    assert rows_of(table) == [] and table.load(spark.range(2), timeout=600) == session.epoch - 1
    assert table.to_arrow(timeout=600).num_rows == table.to_df(timeout=600).count() == 2
    assert session.status(timeout=600).tables == 1
    with session.prepare("SELECT id FROM t WHERE id = :timeout", timeout="BIGINT") as statement:
        opened = statement.open({"timeout": 1}, timeout=600)
        assert statement.open(timeout=1).to_arrow(timeout=600) == opened.to_arrow()
        opened.close(timeout=600)
