"""Compare all sets of expressions with Spark, and write plans and values: `python -m tests.sql.record_expressions`.

It starts Spark, and takes some minutes. Names of sets may be given as arguments, to record only these.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from ikebana.spark import spark_session
from tests.sql.expression_sets import RUNS, SETS
from tests.sql.oracle import Oracle
from tests.sql.recorded_expressions import Answer, Recording, renumbered, write


def record(spark: SparkSession, name: str, ansi: bool) -> Recording:
    """Spark's plans and values of a set; raises if values here are different."""
    expressions = SETS[name]
    texts = expressions.texts(ansi)
    cases, plan = Oracle(spark, expressions.table, expressions.zone).compared(texts, ansi=ansi)
    differences = [line for case in cases for line in case.differences]
    assert not differences, f"{len(differences)} differences (ansi={ansi})\n" + "\n".join(differences)
    nullable, not_null_plan = list[bool](), ""
    if expressions.are_functions:
        oracle = Oracle(spark, expressions.not_null(), expressions.zone)
        nullable, not_null_plan = oracle.nullability(texts, ansi=ansi)
    return Recording(renumbered(plan), [Answer.of(case) for case in cases], renumbered(not_null_plan), nullable)


def main() -> None:
    spark = spark_session.start(0)
    for name, ansi in RUNS:
        if name in (sys.argv[1:] or SETS):
            write(name, ansi, record(spark, name, ansi))
            print(name, "with ANSI mode" if ansi else "without ANSI mode", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
