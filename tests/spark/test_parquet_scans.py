"""Parquet files that are read by Arrow have the rows that Spark reads; everything else is left to Spark."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession

from ikebana.errors import ChangeError, DataflowError
from ikebana.spark import Session
from ikebana.spark.parquet_scans import RowGroup, divided, parquet_scan

ROWS = 1000
MOMENT = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, dt.UTC)


def table(rows: int = ROWS) -> pa.Table:
    """A column of each type, with nulls."""
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "small": pa.array([at % 100 for at in range(rows)], pa.int8()),
            "ratio": pa.array([None if at % 5 == 0 else at / 7 for at in range(rows)], pa.float64()),
            "text": pa.array([None if at % 7 == 0 else f"text {at}" for at in range(rows)]),
            "wide text": pa.array([str(at % 3) for at in range(rows)], pa.large_string()),
            "short text": pa.array([str(at % 3) for at in range(rows)], pa.string_view()),
            "kind": pa.array(["a" if at % 3 else None for at in range(rows)]).dictionary_encode(),
            "bytes": pa.array([bytes([at % 256]) for at in range(rows)]),
            "price": pa.array([decimal.Decimal(at) / 100 for at in range(rows)], pa.decimal128(12, 2)),
            "day": pa.array([dt.date(2000, 1, 1) + dt.timedelta(at) for at in range(rows)]),
            "moment": pa.array([MOMENT + dt.timedelta(seconds=at) for at in range(rows)], pa.timestamp("us", "UTC")),
            "local": pa.array([dt.datetime(1999, 1, 1)] * rows, pa.timestamp("us")),
            "flag": pa.array([at % 2 == 0 for at in range(rows)]),
            "many": pa.array([[at, None] for at in range(rows)], pa.list_(pa.int64())),
            "record": pa.array([{"x": at} for at in range(rows)], pa.struct({"x": pa.int32()})),
        }
    )


def by_column(df: DataFrame, name: str) -> list[Row]:
    """All rows, in the order of a column."""
    return df.orderBy(name).collect()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of several row groups, in a folder whose name has to be quoted in URLs."""
    path = tmp_path / "a b%20ü"
    path.mkdir()
    pq.write_table(table().slice(0, 600), path / "1.parquet", row_group_size=250)
    pq.write_table(table().slice(600), path / "2.parquet")
    return path


def test_files_are_read_by_arrow(session: Session, spark: SparkSession, folder: Path, zone: str) -> None:
    df = spark.read.parquet(str(folder))
    scan = parquet_scan(df)
    assert scan is not None and scan.columns == tuple(df.columns)
    assert sum(len(piece.row_groups) for task in scan.tasks for piece in task) == 4
    loaded = session.create_table("loaded", df, key="id")
    loaded.load(df)
    assert by_column(loaded.to_df(), "id") == by_column(df, "id")
    with pytest.raises(ChangeError, match="1000 rows with a key that exists already"):
        loaded.load(df)
    loaded.load(df.select("id"), "delete")
    assert loaded.to_df().count() == 0


def test_columns_in_another_order_and_under_other_names(session: Session, spark: SparkSession, folder: Path) -> None:
    df = spark.read.parquet(str(folder)).selectExpr("text AS name", "id AS number")
    scan = parquet_scan(df)
    assert scan is not None and scan.columns == ("text", "id")
    people = session.create_table("people", "number BIGINT, name STRING", key="number")
    people.load(df)
    assert by_column(people.to_df().select("name", "number"), "number") == by_column(df, "number")


def test_files_without_rows(session: Session, spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(table().slice(0, 0), tmp_path / "empty.parquet")
    df = spark.read.parquet(str(tmp_path))
    nothing = session.create_table("nothing", df)
    assert parquet_scan(df) is not None
    nothing.load(df)
    assert nothing.to_df().count() == 0


Frame = Callable[[SparkSession, Path], DataFrame]

LEFT_TO_SPARK: dict[str, Frame] = {
    "a condition": lambda spark, path: spark.read.parquet(str(path)).where("id > 5"),
    "an expression": lambda spark, path: spark.read.parquet(str(path)).selectExpr("id + 1 AS id"),
    "a column twice": lambda spark, path: spark.read.parquet(str(path)).selectExpr("id", "id AS again"),
    "a limit": lambda spark, path: spark.read.parquet(str(path)).limit(3),
    "a union": lambda spark, path: spark.read.parquet(str(path)).union(spark.read.parquet(str(path))),
    "a column of Spark": lambda spark, path: spark.read.parquet(str(path)).select("_metadata.file_name"),
    "rows in memory": lambda spark, path: spark.read.parquet(str(path)).select("id").cache(),
    "another type": lambda spark, path: spark.read.schema("id DECIMAL(20, 0)").parquet(str(path)),
    "a missing column": lambda spark, path: spark.read.schema("id BIGINT, other INT").parquet(str(path)),
    "a name in another case": lambda spark, path: spark.read.schema("ID BIGINT").parquet(str(path)),
    "an option": lambda spark, path: spark.read.option("mergeSchema", True).parquet(str(path)),
    "no file": lambda spark, path: spark.range(5).toDF("id"),
    "another format": lambda spark, path: spark.read.format("binaryFile").load(str(path)).select("path"),
}


@pytest.mark.parametrize("reason", LEFT_TO_SPARK)
def test_left_to_spark(spark: SparkSession, folder: Path, reason: str) -> None:
    assert parquet_scan(LEFT_TO_SPARK[reason](spark, folder)) is None


def test_partitioned_folders_are_left_to_spark(session: Session, spark: SparkSession, tmp_path: Path) -> None:
    pq.write_to_dataset(table().select(["id", "flag"]), tmp_path / "parts", partition_cols=["flag"])
    df = spark.read.parquet(str(tmp_path / "parts"))
    assert parquet_scan(df) is None
    parts = session.create_table("parts", df, key="id")
    parts.load(df)
    assert by_column(parts.to_df(), "id") == by_column(df, "id")


@pytest.mark.parametrize("footer", [{"org.apache.spark.legacyDateTime": ""}, {"org.apache.spark.version": "2.4.8"}])
def test_dates_in_the_old_calendar_are_left_to_spark(spark: SparkSession, tmp_path: Path, footer: Any) -> None:
    pq.write_table(table(3).replace_schema_metadata(footer), tmp_path / "old.parquet")
    assert parquet_scan(spark.read.parquet(str(tmp_path))) is None


def test_settings_that_change_what_is_read(spark: SparkSession, folder: Path) -> None:
    setting = "spark.sql.files.ignoreCorruptFiles"
    spark.conf.set(setting, True)
    try:
        assert parquet_scan(spark.read.parquet(str(folder))) is None
    finally:
        spark.conf.unset(setting)


def test_a_file_that_disappears(session: Session, spark: SparkSession, folder: Path) -> None:
    df = spark.read.parquet(str(folder)).select("id")
    gone = session.create_table("gone", df, key="id")
    (folder / "2.parquet").unlink()
    with pytest.raises(DataflowError, match="could not be computed"):
        gone.load(df)
    assert gone.to_df().count() == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99)), max_size=20), st.integers(1, 9))
@example([("a", 1), ("a", 0)], 1)  # an empty row group at the end got a task of its own, one too many
def test_row_groups_are_divided_once_each(given_groups: list[tuple[str, int]], tasks: int) -> None:
    groups: list[RowGroup] = [(path, at, size) for at, (path, size) in enumerate(given_groups)]
    pieces = divided(groups, tasks)
    assert len(pieces) <= max(1, tasks) and all(pieces)
    read = [(piece.path, at) for task in pieces for piece in task for at in piece.row_groups]
    assert sorted(read) == sorted((path, at) for path, at, _ in groups)
