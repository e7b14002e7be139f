"""SQL expressions with Spark's semantics, evaluated over whole Arrow columns. See `ikebana.expressions.core.base`."""

from ikebana.expressions.core import (
    casts,
    comparison,
    conditional,
    literals,
    number_casts,
    string_casts,
    time_casts,
    trying,
    unsupported,
)
from ikebana.expressions.core.base import Call, Column, ColumnBatch, Config, Expression, Literal, translate
from ikebana.expressions.core.python_functions import PythonFunction
from ikebana.expressions.hashing import functions as hashing_functions
from ikebana.expressions.json import generating, parsing
from ikebana.expressions.nested import functions as nested_functions
from ikebana.expressions.nested import lambdas, map_lambdas, maps, sequences, sets
from ikebana.expressions.numbers import arithmetic, magnitudes, mathematics, rounding
from ikebana.expressions.strings import encodings, formatting, regexes
from ikebana.expressions.strings import functions as string_functions
from ikebana.expressions.temporal import dates, formats, intervals, times

__all__ = ["Call", "Column", "ColumnBatch", "Config", "Expression", "Literal", "PythonFunction", "translate"]

FUNCTION_MODULES = (
    *(casts, number_casts, string_casts, time_casts),
    *(comparison, conditional, literals, trying, unsupported),
    *(arithmetic, magnitudes, mathematics, rounding),
    *(string_functions, encodings, formatting, regexes),
    *(dates, formats, intervals, times),
    *(nested_functions, lambdas, map_lambdas, maps, sequences, sets),
    *(generating, parsing),
    hashing_functions,
)
"""The modules that register functions, builders and conversions, which they do when this package is imported."""
