"""The fixtures of the tests on Spark, for regressions that need Spark."""

from __future__ import annotations

from tests.spark.sessions import session, shared, spark

__all__ = ["session", "shared", "spark"]
