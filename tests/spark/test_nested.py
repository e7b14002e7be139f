"""Tables with arrays, structs and maps on Spark: declared, loaded, inserted, read, joined and followed."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from ikebana.spark import Session

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SCHEMA = "id BIGINT, tags ARRAY<STRING>, place STRUCT<x: DOUBLE, at: TIMESTAMP>, names MAP<STRING, ARRAY<INT>>"
ROWS: list[tuple[Any, ...]] = [
    (1, ["a", None], Row(x=1.5, at=None), {"m": [1], "n": None}),
    (2, [], Row(x=None, at=None), {}),
    (3, None, None, None),
]


def in_order(rows: Any) -> list[str]:
    return sorted(map(repr, rows))


def test_tables_with_nested_columns(session: Session, spark: SparkSession) -> None:
    given = spark.createDataFrame(ROWS, SCHEMA)
    table = session.create_table("nested", SCHEMA, key="id")
    table.load(given)
    found = table.to_df()
    assert [each.dataType for each in found.schema] == [each.dataType for each in given.schema]
    assert in_order(found.collect()) == in_order(given.collect())

    tags = session.view("tags", table.select("tags", "names").distinct())
    table.insert([(4, ["a", None], {"x": 2.0, "at": None}, {"n": None, "m": [1]})])
    assert in_order(tags.to_df().collect()) == in_order(given.select("tags", "names").collect())

    table.delete([(1,)])
    table.upsert([(2, ["z"], None, {"k": []})])
    assert in_order(table.to_df().select("id", "tags").collect()) == in_order(
        [Row(id=2, tags=["z"]), Row(id=3, tags=None), Row(id=4, tags=["a", None])]
    )
    assert in_order(row.tags for row in tags.to_df().collect()) == in_order([["a", None], ["z"], None])
    with tags.changes() as told:
        _, changes = next(told)
    assert in_order(changes.column("tags").to_pylist()) == in_order([["a", None], ["z"], None])
