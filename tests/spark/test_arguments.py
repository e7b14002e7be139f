"""Arguments that make no sense: the error is ours, names the argument, and comes before anything is started."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ikebana.errors import IkebanaError, SchemaError
from ikebana.spark import Session, connect
from ikebana.spark.arguments import checked_count, checked_epoch, checked_key, checked_ops, checked_timeout


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (checked_key, (5, [1], ["a", 1], ["a", "a"], 1.5)),
        (checked_epoch, ("x", 1.5, True, [1])),
        (checked_timeout, ("x", -1, float("nan"), True)),
        (checked_ops, (None, 5, b"insert", True)),
        (lambda value: checked_count("workers", value), ("2", 0, -1, 1.5, True)),
    ],
)
def test_wrong_values(check: Any, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(SchemaError):
            check(value)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": "2"}, "workers='2' is not valid"),
        ({"effort": "bogus"}, "effort='bogus' is not valid"),
        ({"memmory": 5}, "no option 'memmory'"),
        ({"memory": "4g"}, "memory='4g'"),
        ({"timeout": "x"}, "timeout='x'"),
        ({"config": {"spark.ui.enabled": "true"}}, "config cannot be applied to a SparkSession that is running"),
        ({"ui": True}, "ui cannot be applied"),
    ],
)
def test_connect(spark: SparkSession, options: dict[str, Any], message: str) -> None:
    with pytest.raises(IkebanaError, match=message):
        connect(spark, **options)


@pytest.mark.spark
def test_tables_and_views(session: Session) -> None:
    with pytest.raises(SchemaError, match="key=5 is not a key"):
        session.create_table("t", "a BIGINT", key=5)  # type: ignore[arg-type]
    table = session.create_table("t", "a BIGINT, s STRING", key="a")
    table.insert([(1, "a"), (2, "b"), (3, None)])
    view = session.view("v", "SELECT a FROM t")
    wrong: Any = "x"
    for call in (
        lambda: table.change([(1, "a")], None),  # type: ignore[arg-type]
        lambda: table.change([(1, "a")], "replace"),
        lambda: table.to_arrow(at=wrong),
        lambda: table.to_df(at=wrong),
        lambda: view.to_arrow(at=wrong),
        lambda: view.to_df(timeout=wrong),
        lambda: view.lookup(a=1, at=wrong),
        lambda: view.wait(wrong),
        lambda: view.hold(timeout=wrong),
        lambda: view.errors(at=wrong),
        lambda: table.filter(None),  # type: ignore[arg-type]
    ):
        with pytest.raises(SchemaError):
            call()
    conditions: list[Any] = ["s = 'a' OR a > 2", (F.col("s") == "a") | (F.col("a") > 2)]
    conditions.append(lambda c: pc.or_kleene(pc.equal(c["s"], "a"), pc.greater(c["a"], 2)))
    for number, condition in enumerate(conditions):
        filtered = session.view(f"filtered {number}", table.filter(condition).count("a"))
        assert sorted(filtered.collect()) == [(1, 1), (3, 1)]
