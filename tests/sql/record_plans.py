"""Write the plans that Spark makes of the statements: `python -m tests.sql.record_plans`, which starts Spark.

What is no part of a plan, and different each time, is taken out: the numbers of expressions count from zero, and have
nothing to tell Java's processes apart.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from ikebana.spark import launch
from ikebana.spark.planning import Planner
from ikebana.spark.types import fields_of
from ikebana.sql.planned import Planned
from tests.sql.statements import FUNCTIONS, KEYS, PLANS, PREPARED, STATEMENTS, TABLES, dumps

_ID = re.compile(r'("product-class":"[\w.]*\.ExprId","id":)(\d+),"jvmId":"[^"]*"')
_LOOP = re.compile(r'(\.UnionLoop(?:Ref)?","num-children":\d,"(?:id|loopId)":)(\d+)')


def main() -> None:
    spark = launch.session(0, name="plans", config={"spark.log.level": "OFF", "spark.sql.session.timeZone": "UTC"})
    try:
        record(spark)
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
    numbers, loops = _Numbers(), _Numbers()
    plan = _LOOP.sub(loops, _ID.sub(numbers, planned.plan))
    functions: dict[int, Any] = {numbers.given[str(key)]: code for key, code in planned.functions.items()}
    return replace(planned, plan=plan, functions=functions)


class _Numbers:
    """Gives what it meets numbers from zero."""

    def __init__(self) -> None:
        self.given: dict[str, int] = {}

    def __call__(self, found: re.Match[str]) -> str:
        return f"{found[1]}{self.given.setdefault(found[2], len(self.given))}"


if __name__ == "__main__":
    main()
