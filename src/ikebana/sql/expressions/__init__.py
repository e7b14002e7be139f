"""Expressions of SQL, in Spark's semantics, over whole columns: see `ikebana.sql.expressions.base`."""

from ikebana.sql.expressions import (  # noqa: F401, each registers what it knows
    arithmetic,
    casts,
    codes,
    comparison,
    conditional,
    dates,
    formats,
    hashes,
    intervals,
    lambdas,
    literals,
    maths,
    nested,
    printf,
    refusals,
    regexes,
    rounding,
    strings,
    times,
)
from ikebana.sql.expressions.base import Call, Column, Config, Expression, Literal, Rows, translate
from ikebana.sql.expressions.udfs import PythonFunction

__all__ = ["Call", "Column", "Config", "Expression", "Literal", "PythonFunction", "Rows", "translate"]
