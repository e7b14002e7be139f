"""Spark's answers to the 22 queries of TPC-H, and the comparison of our answers with them."""

from __future__ import annotations

import pyarrow as pa

from ikebana.spark.answers import SparkAnswers, Top, difference
from ikebana_bench.tpch.schemas import query


def expected(spark: SparkAnswers, number: int) -> pa.Table:
    """Return Spark's answer to a query without its LIMIT."""
    top = Top.of(query(number))
    return spark.answer(top.unlimited if top else query(number))


def wrong(number: int, actual: pa.Table, unlimited: pa.Table) -> str:
    """Return how our answer to a query differs from `unlimited`, Spark's answer without the LIMIT; empty if correct."""
    top = Top.of(query(number))
    return top.difference(actual, unlimited) if top else difference(actual, unlimited)
