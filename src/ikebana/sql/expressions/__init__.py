"""Expressions of SQL, in Spark's semantics, over whole columns: see `ikebana.sql.expressions.base`."""

from ikebana.sql.expressions import (  # noqa: F401, each registers what it knows
    arithmetic,
    casts,
    comparison,
    conditional,
    literals,
)
from ikebana.sql.expressions.base import Call, Column, Config, Expression, Literal, Rows, translate

__all__ = ["Call", "Column", "Config", "Expression", "Literal", "Rows", "translate"]
