"""SQL expressions in Spark's semantics, evaluated over whole Arrow columns. See `ikebana.expressions.core.base`.

Importing this package registers every supported function.
"""

from ikebana.expressions.core import casts, comparison, conditional, literals, unsupported  # noqa: F401
from ikebana.expressions.core.base import Call, Column, ColumnBatch, Config, Expression, Literal, translate
from ikebana.expressions.core.python_functions import PythonFunction
from ikebana.expressions.hashing import functions as hashing_functions  # noqa: F401
from ikebana.expressions.nested import functions as nested_functions  # noqa: F401
from ikebana.expressions.nested import lambdas  # noqa: F401
from ikebana.expressions.numbers import arithmetic, mathematics, rounding  # noqa: F401
from ikebana.expressions.strings import encodings, printf, regexes  # noqa: F401
from ikebana.expressions.strings import functions as string_functions  # noqa: F401
from ikebana.expressions.temporal import dates, formats, intervals, times  # noqa: F401

__all__ = ["Call", "Column", "ColumnBatch", "Config", "Expression", "Literal", "PythonFunction", "translate"]
