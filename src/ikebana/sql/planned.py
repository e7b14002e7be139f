"""A query as Spark has planned it: everything that lowering needs, without Spark.

The plan is the parsed JSON of an optimised logical plan (`ikebana.expressions.core.tree` makes trees of it), with
additions. The `metadata` of a leaf's output attributes says what the leaf reads, which Spark's JSON does not:

    {"ikebana.table": "orders"}     a table or view; every session has two more, `CLOCK` and `PARAMETERS`
    {..., "ikebana.identity": "7c"} of a DataFrame: which of the tables that have had this name
    {"ikebana.constant": 2}         rows that are part of the query: `constants[2]`

A leaf has a table or a constant, or is an `OneRowRelation` or a reference of a recursive query to itself.

Other nodes that differ from Spark's JSON:

- `Generate` has in `unrequiredChildIndex` the positions of the columns of its child that it drops.
- A CASE that contains other CASEs is a call of `case`, and so are those: its children are those of `CaseWhen`. Other
  expressions whose JSON would lack something are calls too: see `ikebana.spark.planning.rewriting`. A call is an
  `UnresolvedFunction`.
- `UnionLoop` has in `maxDepth` and `maxRows` the most rounds and rows that it may have; -1 is no limit. `isSet` is true
  if it was written with UNION, which Spark does not have.
- Literals of type timestamp are in UTC and end with a Z, whatever the session's time zone is.

The clock has one row with one column, `NOW`: what `now()` reads. The table of parameters has a row for each set of
parameter values, with a column for each parameter. Plans read both in scalar subqueries, each of which selects one
column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:  # Spark's processes that plan reads need the names below, and no expressions
    from ikebana.expressions import Config

TABLE = "ikebana.table"
IDENTITY = "ikebana.identity"
CONSTANT = "ikebana.constant"

SESSION_WINDOW = "spark.sessionWindow"
"""The metadata of a column in GROUP BY whose intervals are to be merged into sessions."""

CLOCK = "ikebana.clock"
"""The table that contains the current time."""

NOW = "now"
"""The one column of the clock, a timestamp."""

PARAMETERS = "ikebana.parameters"
"""The table of a prepared statement's parameters."""


@dataclass(frozen=True)
class PythonCode:
    """A user's Python function, pickled; `eval_type` is Spark's, and says whether it takes rows or columns."""

    name: str
    function: bytes
    eval_type: int
    type: pa.DataType
    """The type of its result."""


@dataclass(frozen=True, eq=False)
class Planned:
    """A query, planned. Compared by identity, so that it can be a key of caches."""

    nodes: Sequence[Mapping[str, Any]]
    """The optimised logical plan, as parsed from JSON: nodes in pre-order. Never modified."""
    config: Config
    """The settings of the user's session."""
    columns: tuple[pa.Field, ...]
    """Names, types and nullability of the result's columns, as the query declares them."""
    constants: tuple[pa.Table, ...] = ()
    """Rows that are part of the query, in the order in which leaves with constants occur in `nodes`."""
    functions: Mapping[int, PythonCode] = field(default_factory=dict)
    """Python functions by the `resultId` of the plan's `PythonUDF` expressions."""
    computed: tuple[str, ...] = ()
    """Of a DataFrame: the columns of leaves whose rows were given or computed before it was planned."""
    is_constant: bool = False
    """Whether a DataFrame reads no table at all."""
