"""Tables with arrays, structs and maps on Spark: declared, loaded, inserted, read, joined and followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import Row, SparkSession

from ikebana.errors import SchemaError
from ikebana.spark import Session

pytestmark = pytest.mark.spark

LONG = "id BIGINT, address STRUCT<street: STRING, zip: BIGINT, door: INT>"
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
    frame = table.to_df()
    assert [field.dataType for field in frame.schema] == [field.dataType for field in given.schema]
    assert in_order(frame.collect()) == in_order(given.collect())

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


def test_regression_fields_of_structs_are_those_of_the_table(
    session: Session, spark: SparkSession, tmp_path: Path
) -> None:
    table = session.create_table("houses", "id BIGINT, address STRUCT<street: STRING, zip: BIGINT>", key="id")
    short, long = {"street": "s"}, {"street": "s", "zip": 1, "door": 2}
    stream = spark.readStream.schema("id BIGINT, address STRUCT<street: STRING>").json(str(tmp_path))
    for change, detail in (
        (lambda: table.insert({"id": 1, "address": short}), "missing: 'address.zip'"),
        (lambda: table.upsert([(1, Row(**long))]), "unknown: 'address.door'"),
        (lambda: table.insert(pd.DataFrame({"id": [1, 2], "address": [short, long]})), "missing: 'address.zip'; unkn"),
        (lambda: table.load(spark.createDataFrame([(1, ("s", 1, 2))], LONG)), "unknown: 'address.door'"),
        (lambda: table.follow(stream), "missing: 'address.zip'"),
    ):
        with pytest.raises(SchemaError, match="houses") as refused:
            change()
        assert refused.value.detail.startswith(detail)
    table.insert([(1, Row(zip=7, street="s"))])
    table.insert(pd.DataFrame({"id": [2, 3], "address": [{"zip": 8, "street": "t"}, None]}))
    assert in_order(row.address for row in table.to_df().collect()) == in_order(
        [Row(street="s", zip=7), Row(street="t", zip=8), None]
    )
    table.delete([(1,), (2,), (3,)])
