"""Aggregates, windows, pivots, sessions and recursion as views over a changing table: each step equals Spark's answer.

Many functions are in one query, since a query of Spark's takes a tenth of a second. Rows are random, with nulls, equal
values and extremes; half of them are deleted and others inserted in each step. Large numbers have one sign, because
whether a sum of Spark's overflows in between depends on the order of rows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from ikebana.engine import Engine
from ikebana.spark.answers import SparkAnswers, difference
from ikebana.spark.planning import Planner
from ikebana.spark.types import spark_schema
from ikebana.sql import SourceTable
from ikebana.sql.lowering.query import lower

pytestmark = pytest.mark.spark

FIELDS = (
    pa.field("k", pa.string()),
    pa.field("i", pa.int32()),
    pa.field("l", pa.int64()),
    pa.field("d", pa.float64()),
    pa.field("s", pa.string()),
    pa.field("bo", pa.bool_()),
    pa.field("dt", pa.date32()),
    pa.field("ts", pa.timestamp("us", "UTC")),
    pa.field("dec", pa.decimal128(10, 2)),
    pa.field("a", pa.list_(pa.field("element", pa.int32()))),
    pa.field("st", pa.struct({"x": pa.int32(), "y": pa.string()})),
)
STEPS = 2
ORDER = "ORDER BY ts, l, i, dec, s, d, bo, dt"
"""An order in which no two rows are equal, unless they differ in nothing that queries read."""

Row = dict[str, Any]


def row(choose: random.Random) -> Row:
    values: Row = {
        "k": choose.choice("ab"),
        "i": choose.randint(-3, 9),
        "l": choose.choice([0, 1, 2, 5, 2**62]),
        "d": choose.choice([0.0, -0.0, 1.5, 2.25, -3.0, 1e10, 7.125]),
        "s": choose.choice(["a", "b", "ab%c", "", "x_y"]),
        "bo": choose.random() < 0.5,
        "dt": date(2020, 1, 31) + timedelta(days=choose.randint(0, 90)),
        "ts": datetime(2020, 1, 31, tzinfo=UTC) + timedelta(minutes=choose.randint(0, 300)),
        "dec": Decimal(choose.randint(-500, 500)) / 100,
        "a": [choose.choice([None, 1, 2, 3]) for _ in range(choose.randint(0, 3))],
        "st": {"x": choose.choice([None, 1, 2]), "y": choose.choice([None, "a", "b"])},
    }
    return {name: None if choose.random() < 0.15 else value for name, value in values.items()}


def arrow(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema(FIELDS))


AGGREGATES = """
    corr(d, i); corr(d, i) FILTER (WHERE bo); covar_pop(d, i); covar_samp(d, i); skewness(i); kurtosis(i); skewness(d);
    regr_slope(d, i); regr_intercept(d, i); regr_r2(d, i); regr_sxx(d, i); regr_syy(d, i); regr_sxy(d, i);
    bit_and(i); bit_or(l); bit_xor(i); bit_or(i) FILTER (WHERE bo); try_sum(l); try_avg(l); try_sum(dec);
    listagg(s, '-') WITHIN GROUP (ORDER BY s); string_agg(s) WITHIN GROUP (ORDER BY s DESC);
    max(st); min(st); max(a); approx_count_distinct(i); percentile_approx(i, 0.5);
    percentile_approx(d, array(0.1, 0.9)); approx_percentile(dec, 0.3, 100)
"""
OVER = """
    stddev(d); var_pop(i); cast(collect_list(i) {over} AS STRING); collect_set(s); max_by(i, struct(l, i));
    percentile(i, 0.5); corr(d, i); bit_or(i); max(st); try_sum(l); kurtosis(d); percentile_approx(i, 0.5);
    stddev(dec) FILTER (WHERE bo); approx_count_distinct(i)
"""


def listed(texts: str) -> list[str]:
    return [" ".join(text.split()) for text in texts.split(";")]


def over(window: str) -> str:
    calls = [text.format(over=window) if "{over}" in text else f"{text} {window}" for text in listed(OVER)]
    return ", ".join(f"{call} AS c{number}" for number, call in enumerate(calls))


CALLS = ", ".join(f"{text} AS c{number}" for number, text in enumerate(listed(AGGREGATES)))

QUERIES = {
    "aggregates": f"SELECT k, {CALLS} FROM t GROUP BY k",
    "aggregates of nothing": f"SELECT {CALLS} FROM t WHERE i > 100",
    "distinct strings": "SELECT k, listagg(DISTINCT s, ',') WITHIN GROUP (ORDER BY s) AS s FROM t GROUP BY k",
    "distinct bits": "SELECT k, bit_xor(DISTINCT i) AS x FROM t GROUP BY k",
    "percentile of distinct values": "SELECT k, percentile(DISTINCT i, 0.5) AS p FROM t GROUP BY k",
    "running": f"SELECT k, i, l, dec, ts, {over(f'OVER (PARTITION BY k {ORDER})')} FROM t",
    "rows": f"SELECT k, i, l, {over(f'OVER ({ORDER} ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)')} FROM t",
    "whole": "SELECT k, i, stddev(dec) OVER (PARTITION BY k) AS a, median(d) OVER (PARTITION BY k) AS m, "
    "mode(bo) OVER (PARTITION BY k, i, l) AS b FROM t",
    "pivot": "SELECT * FROM (SELECT k, s, i FROM t) PIVOT (sum(i) FOR s IN ('a', 'b', NULL))",
    "pivot of several": "SELECT * FROM (SELECT k, l, i FROM t) PIVOT (avg(i) AS x, count(*) AS c, max(i) AS m "
    "FOR l IN (1, 4611686018427387904 AS large))",
    "pivot by two columns": "SELECT * FROM (SELECT k, s, bo, i FROM t) PIVOT (sum(i) FOR (s, bo) IN (('a', true)))",
    "pivot of strings": "SELECT * FROM (SELECT k, dt, s FROM t) PIVOT (max(s) FOR dt IN (date'2020-02-01'))",
    "sessions": "SELECT k, session_window.start AS b, session_window.end AS e, count(*) AS n, max(i) AS m FROM t "
    "GROUP BY k, session_window(ts, '10 minutes')",
    "order of structs": "SELECT st, a, i, l, dec FROM t ORDER BY st DESC, a, i, l, dec LIMIT 5",
    "same names": "SELECT k, i, k, i + 1 AS i FROM t",
    "diff": "SELECT i AS diff, k AS diff_ FROM t",
}


class World:
    """A table that changes, an engine that maintains views of it, and Spark with the same rows."""

    def __init__(self, spark: SparkSession, seed: int) -> None:
        self._choose = random.Random(seed)
        self.rows = [row(self._choose) for _ in range(25)]
        self.engine = Engine(workers=1 + seed % 2)
        self.table = self.engine.table("t", FIELDS)
        self.table.insert(arrow(self.rows))
        self.planner, self.spark = Planner(spark), SparkAnswers(spark)
        self.planner.add_table("t", FIELDS)
        self._show()

    def _show(self) -> None:
        self.spark.show("t", arrow(self.rows), spark_schema(FIELDS))

    def change(self) -> None:
        gone = set(self._choose.sample(range(len(self.rows)), len(self.rows) // 2))
        new = [row(self._choose) for _ in range(8)]
        with self.engine.transaction():
            self.table.delete(arrow([self.rows[at] for at in gone]))
            self.table.insert(arrow(new))
        self.rows = [old for at, old in enumerate(self.rows) if at not in gone] + new
        self._show()

    def install(self, name: str, query: str | DataFrame) -> Any:
        tables = {"t": SourceTable("t", self.table)}
        return self.engine.install(name, lower(self.planner.plan(query), tables).rows)


@pytest.fixture
def world(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(spark, request.param)
    yield world
    world.engine.close()


@pytest.mark.parametrize("world", [1], indirect=True)
def test_oracle_views_over_a_changing_table(world: World) -> None:
    views = {name: world.install(name, query) for name, query in QUERIES.items()}
    wrong = []
    for step in range(STEPS):
        for name, view in views.items():
            actual = view.to_arrow()
            wanted = world.spark.answer(QUERIES[name]).rename_columns(actual.column_names)
            if differing := difference(actual, wanted):
                wrong.append(f"{name}, step {step}: {differing}")
        world.change()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("world", [3], indirect=True)
def test_recursion_with_union_ends_on_cycles(world: World) -> None:
    text = """WITH RECURSIVE r(n) AS (SELECT i FROM t WHERE i IS NOT NULL UNION SELECT pmod(n * 3 + 1, 7) FROM r)
              SELECT n FROM r"""
    view = world.install("r", text)
    for _ in range(4):
        reached = {at["i"] for at in world.rows if at["i"] is not None}
        while (more := reached | {(number * 3 + 1) % 7 for number in reached}) != reached:
            reached = more
        assert sorted(view.to_arrow()["n"].to_pylist()) == sorted(reached)
        world.change()
