"""Write the plans that Spark makes of the statements and of TPC-H, and its own answers.

`python -m tests.sql.record_plans` starts Spark, and takes a minute or two. Spark answers over `tests.sql.rows`, and
over no rows at all. What has no answer that is the same each time is not answered: what refers to the present, or
cannot be maintained anyway.

What is no part of a plan, and different each time, is taken out: the numbers of expressions count from zero, and have
nothing to tell Java's processes apart.
"""

from __future__ import annotations

import gzip
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from ikebana.spark import spark_session
from ikebana.spark.answers import QUICK, SparkAnswers
from ikebana.spark.planning import Planner
from ikebana.spark.types import fields_of, spark_schema
from ikebana.sql.planned import Planned
from ikebana_bench.tpch.answers import expected
from ikebana_bench.tpch.schemas import QUERIES, SCHEMAS, query
from tests.sql import tpch
from tests.sql.rows import FIELDS, Rows, arrow, rows
from tests.sql.statements import (
    FUNCTIONS,
    KEYS,
    PLANS,
    PREPARED,
    STATEMENTS,
    TABLES,
    VALUES,
    dumps,
    edited,
    is_answered,
    write_answers,
)

EXPRESSION_ID = re.compile(r'("product-class":"[\w.]*\.ExprId","id":)(\d+),"jvmId":"[^"]*"')
_LOOP = re.compile(r'(\.UnionLoop(?:Ref)?","num-children":\d,"(?:id|loopId)":)(\d+)')


def main() -> None:
    spark = spark_session.start(0, name="plans", config={"spark.log.level": "OFF", "spark.sql.session.timeZone": "UTC"})
    try:
        record(spark)
        record_tpch(spark)
        write_answers({"rows": answered(spark, rows()), "nothing": answered(spark, {name: [] for name in TABLES})})
    finally:
        spark.stop()


def record(spark: SparkSession) -> None:
    """Write all plans anew."""
    planner = planner_of(spark)
    PLANS.mkdir(exist_ok=True)
    for old in PLANS.glob("*.json.gz"):
        old.unlink()
    for name, text in STATEMENTS.items():
        write(name, planner.plan(text))
    for name, (text, parameters) in PREPARED.items():
        write(name, planner.prepare(text, parameters))


def record_tpch(spark: SparkSession) -> None:
    """Write the plans of the queries of TPC-H anew, and Spark's answers after changes."""
    planner = Planner(spark)
    for name, schema in SCHEMAS.items():
        planner.add_table(name, schema)
    (PLANS / "tpch").mkdir(exist_ok=True)
    for number in QUERIES:
        write(f"tpch/q{number}", planner.plan(query(number)))
    with tempfile.TemporaryDirectory() as folder:
        batch = SparkAnswers(spark)
        stream, _ = tpch.changes(tpch.sample(Path(folder)))
        batch.write(Path(folder) / "changed", stream.snapshot)
        tpch.write_answers({number: expected(batch, number) for number in QUERIES})


def answered(spark: SparkSession, rows: Rows) -> dict[str, list[pa.Table]]:
    """What Spark answers over some rows, in a session of its own."""
    session = spark.newSession()
    for setting, value in QUICK.items():
        session.conf.set(setting, value)
    for name, (function, kind) in FUNCTIONS.items():
        session.udf.register(name, function, kind)
    for name, data in rows.items():
        assert fields_of(TABLES[name], KEYS.get(name, ())) == FIELDS[name], name
        session.createDataFrame(arrow(name, data), spark_schema(FIELDS[name])).createOrReplaceTempView(name)
    texts = {name: [text] for name, text in STATEMENTS.items() if is_answered(name)}
    for name, (text, parameters) in PREPARED.items():
        texts[name] = [bound(text, parameters, values) for values in VALUES[name]]
    return {name: [session.sql(text).toArrow() for text in queries] for name, queries in texts.items()}


def bound(text: str, parameters: Mapping[str, str], values: Mapping[str, Any]) -> str:
    """A text with values in place of parameters, of the types that these have."""
    return re.sub(r":(\w+)", lambda match: f"CAST('{values[match[1]]}' AS {parameters[match[1]]})", text)


def planner_of(spark: SparkSession) -> Planner:
    """A planner that knows the tables and functions of the statements."""
    for name, (function, kind) in FUNCTIONS.items():
        spark.udf.register(name, function, kind)
    planner = Planner(spark)
    for name, columns in TABLES.items():
        planner.add_table(name, fields_of(columns, KEYS.get(name, ())))
    return planner


def write(name: str, planned: Planned) -> None:
    data = gzip.compress(dumps(renumbered(planned)), mtime=0)
    (PLANS / f"{name}.json.gz").write_bytes(data)


def renumbered(planned: Planned) -> Planned:
    """The same plan, its expressions numbered from zero."""
    numbers, loops = Numbers(), Numbers()
    plan = edited(planned, lambda text: _LOOP.sub(loops, EXPRESSION_ID.sub(numbers, text)))
    functions: dict[int, Any] = {numbers.given[str(key)]: code for key, code in planned.functions.items()}
    return replace(plan, functions=functions)


class Numbers:
    """Gives what it meets numbers from zero."""

    def __init__(self) -> None:
        self.given: dict[str, int] = {}

    def __call__(self, match: re.Match[str]) -> str:
        return f"{match[1]}{self.given.setdefault(match[2], len(self.given))}"


if __name__ == "__main__":
    main()
