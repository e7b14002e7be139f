"""Spark's answers to the 22 queries of TPC-H, and what is wrong with ours."""

from __future__ import annotations

import pyarrow as pa

from ikebana.spark.answers import SparkAnswers, Top, difference
from ikebana_bench.tpch.schemas import query


def expected(spark: SparkAnswers, number: int) -> pa.Table:
    """Spark's answer to one of the queries, without its LIMIT."""
    top = Top.of(query(number))
    return spark.answer(top.unlimited if top else query(number))


def wrong(number: int, actual: pa.Table, unlimited: pa.Table) -> str:
    """How our answer to one of the queries differs from Spark's answer without its LIMIT; empty if it is correct."""
    top = Top.of(query(number))
    return top.difference(actual, unlimited) if top else difference(actual, unlimited)
