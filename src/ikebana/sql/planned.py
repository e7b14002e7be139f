"""A query as Spark has planned it: all that lowering needs to know, without Spark.

The plan is the JSON of an optimised logical plan (`ikebana.expressions.core.tree` parses it), to which something was
added. What its leaves stand for, which Spark's JSON does not say, is in the `metadata` of each of their output
attributes:

    {"ikebana.table": "orders"}     a table or view; `CLOCK` and `PARAMETERS` are two that every session has
    {..., "ikebana.identity": "7c"} of a DataFrame: which one of those that have had the name
    {"ikebana.constant": 2}         rows that are part of the query: `constants[2]`

A leaf has one of both, or is an `OneRowRelation` or a reference of a recursive query to itself.

`Generate` has in `unrequiredChildIndex` the positions of those columns of its child that it does not pass on.
A CASE that has others inside is an `UnresolvedFunction`, and they are too: its children are what `CaseWhen` has.
`UnionLoop` has in `maxDepth` and `maxRows` how many rounds and rows it may have; -1 for any number. Literals of type
timestamp are in UTC, and say so with a Z at the end, whichever time zone the session has.

The clock has one row, with one column, `NOW`: what `now()` reads. Parameters have a row for each set of values, with
a column for each parameter. In a plan both occur in scalar subqueries, as the one column that these select.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from ikebana.expressions import Config

TABLE = "ikebana.table"
IDENTITY = "ikebana.identity"
CONSTANT = "ikebana.constant"

CLOCK = "ikebana.clock"
"""The table that knows what time it is."""

NOW = "now"
"""Its one column, a timestamp."""

PARAMETERS = "ikebana.parameters"
"""The table of a prepared statement's parameters."""


@dataclass(frozen=True)
class PythonCode:
    """A user's Python function: pickled, as it is called by rows or, with another `eval_type`, by columns."""

    name: str
    function: bytes
    eval_type: int
    type: pa.DataType
    """Of what it returns."""


@dataclass(frozen=True, eq=False)
class Planned:
    """A query, planned."""

    plan: str
    """The JSON of the optimised logical plan."""
    config: Config
    """What the user's session had set."""
    columns: tuple[pa.Field, ...]
    """Names and types of the answer, and what in it may be null, as the query declares them."""
    constants: tuple[pa.Table, ...] = ()
    """Rows that are part of the query, in the order in which leaves that have them occur in the JSON."""
    functions: Mapping[int, PythonCode] = field(default_factory=dict)
    """Python functions by the number of the `resultId` that the expression `PythonUDF` has in the plan."""
    computed: tuple[str, ...] = ()
    """The columns of rows of a DataFrame that were there, or were computed, before it was planned."""
    is_constant: bool = False
    """Whether a DataFrame reads no table at all."""
