"""Building blocks of graph programs: the columns of edges and nodes, joins that return only some columns, and loops.

A join followed by `select` is two operators; `pairs` selects the columns in the join itself.

`fixpoint` is a loop whose variable is not its result. In most programs the variable holds the *offers* that nodes get
from their neighbours (to be reached, a distance, a label). The body reduces the offers, and joins the arrangement that
the reduction returns with the edges; these are the next offers. A round is thus one arrangement, one reduction and one
join, and nothing is indexed twice. The result of the reduction leaves the loop.

`Vectorised` and `Refuse` are linear steps that run inside compiled programs, by a call.

Cost: none; the functions build plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa

from ikebana.engine.collection import Arrangement, Collection, iterate
from ikebana.engine.columns import described
from ikebana.errors import EvaluationError, SchemaError
from ikebana.expressions import Column, ColumnBatch, Expression, Literal
from ikebana.expressions.core.builders import not_equal
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.expression_steps import Computed, RowCondition
from ikebana.operators.join import JoinColumns
from ikebana.operators.linear import Map, Step
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.reducers import DISTINCT
from ikebana.operators.registers import Rows
from ikebana.plan import ir
from ikebana.trace.views import row_flags

Variables = dict[str, Collection]

NO_ROW = Literal(pa.bool_(), False, False)
"""A condition that no row meets."""


# Edges and nodes.


def node_type(edges: Collection) -> pa.DataType:
    """The type of nodes; raises unless `src` and `dst` exist, have the same type, and cannot be null."""
    fields = {field.name: field for field in edges.node.columns}
    source, target = fields.get("src"), fields.get("dst")
    if source is None or target is None or source.type != target.type:
        raise SchemaError(
            "edges must have columns 'src' and 'dst' of the same type",
            detail=f"the columns are {described(edges.node.columns)}",
            hint="select(src=..., dst=...) or map to such columns first",
        )
    _check_not_null(source, "edges")
    _check_not_null(target, "edges")
    return source.type


def check_nodes(nodes: Collection, kind: pa.DataType, what: str) -> Collection:
    """The column `node` of a collection; raises unless it exists, has the type `kind`, and cannot be null."""
    field = next((field for field in nodes.node.columns if field.name == "node"), None)
    if field is None or field.type != kind:
        raise SchemaError(
            f"{what} must have a column 'node' of the type of the edges' ends, {kind}",
            detail=f"the columns are {described(nodes.node.columns)}",
            hint="select(node=...) or map to such a column first",
        )
    _check_not_null(field, what)
    return nodes if nodes.columns == ["node"] else nodes.select("node")


def _check_not_null(field: pa.Field, what: str) -> None:
    if field.nullable:
        raise SchemaError(
            f"column {field.name!r} of {what} may be null, but ids of nodes must not be",
            hint="use ikebana.graph.Graph, which leaves such rows out, or declare the column as not nullable",
        )


def ends_of(edges: Collection) -> Collection:
    """The two ends of each edge, as `node`."""
    return edges.select(node="src").concat(edges.select(node="dst"))


def nodes_of(edges: Collection, nodes: Collection | None) -> Collection:
    """The ends of edges, and further nodes, as `node`; a node may occur several times."""
    kind, ends = node_type(edges), ends_of(edges)
    return ends if nodes is None else ends.concat(check_nodes(nodes, kind, "the nodes"))


def without_loops(edges: Collection) -> Collection:
    """The edges that connect two different nodes, with the columns `src` and `dst` only."""
    node_type(edges)
    return edges.step(RowCondition(not_equal(column(edges, "src"), column(edges, "dst")))).select("src", "dst")


def neighbours(edges: Collection) -> Arrangement:
    """Each edge in both directions, once, indexed by `src`, without edges from a node to itself."""
    proper = without_loops(edges)
    return proper.concat(proper.select(src="dst", dst="src")).arrange("src").reduce(DISTINCT)


def at_least(least: int, given: float, name: str) -> None:
    """Raise unless an argument is large enough."""
    if given < least:
        raise SchemaError(f"{name} is {given}", hint=f"{name} must be at least {least}")


# Columns and joins.


def column(collection: Collection, name: str, renamed: str | None = None) -> Column:
    """A column of a collection as an expression, under another name if it is renamed in between."""
    field = next((field for field in collection.node.columns if field.name == name), None)
    if field is None:
        raise SchemaError(
            f"there is no column {name!r}", detail=f"the columns are {described(collection.node.columns)}"
        )
    return Column(field.type, field.nullable, renamed or name)


def integer(value: int, kind: pa.DataType | None = None) -> Literal:
    """An integer as an expression, by default of 64 bits."""
    return Literal(kind or pa.int64(), False, value)


def zero_of(kind: pa.DataType) -> Literal:
    """Zero, as a number of a type."""
    if pa.types.is_decimal(kind):
        return Literal(kind, False, Decimal(0))
    return Literal(kind, False, 0.0 if pa.types.is_floating(kind) else 0)


def with_integer(collection: Collection, name: str, value: int) -> Collection:
    """The collection with one more column, which has the same value in every row."""
    named = tuple((known, column(collection, known)) for known in collection.columns)
    return collection.step(Computed((*named, (name, integer(value)))))


def pairs(left: Arrangement, right: Arrangement, of_left: Mapping[str, str], of_right: Mapping[str, str]) -> Collection:
    """Join two arrangements on their keys; return only the columns `of_left` and `of_right` (`new: old`)."""
    result = JoinColumns((*of_left, *of_right), tuple(of_left.items()), tuple(of_right.items()))
    return Collection(ir.make(ir.Join, left=left.node, right=right.node, result=result))


# Loops.


def fixpoint(
    initial: Variables,
    body: Callable[[Variables], tuple[Variables, Collection]],
    rounds: int | None = None,
) -> Collection:
    """A loop whose body returns the variables of the next round, and a collection: the result after the last round."""
    inner: list[Collection] = []

    def step(variables: Variables) -> Variables:
        next_round, result = body(variables)
        inner.append(result)
        return next_round

    after = iterate(step, initial, rounds)
    loop = next(iter(after.values())).node.loop  # type: ignore[attr-defined]
    return Collection(ir.make(ir.Leave, source=inner[0].node, loop=loop))


# Steps.


@dataclass(frozen=True)
class AtLeast:
    """A function for `Collection.threshold`: once, if the multiplicity is large enough."""

    least: int

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        return counts >= self.least


@dataclass(frozen=True)
class Vectorised(Map):
    """Columns computed by a function of ours, which programs call."""

    calls_users = False

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows | None:
        return self.called(program, rows)


@dataclass(frozen=True)
class Refuse(Step):
    """No rows at all, but an error of the dataflow for each row for which a condition is true.

    The columns of the result are `outputs`, so that it can be added to the result of a program.
    """

    condition: Expression
    what: str
    hint: str
    outputs: Fields

    def fields(self, given: Fields) -> Fields:
        return self.outputs

    def __call__(self, changes: Changes) -> Changes:
        rows = ColumnBatch.from_input(changes.named, len(changes))
        if row_flags(self.condition.evaluate(rows), rows.count).any():
            raise EvaluationError(self.what, hint=self.hint)
        empty = [pa.array([], field.type) for field in self.outputs]
        return changes.take(np.empty(0, np.int64)).with_columns(self.outputs, empty)


def refusing(result: Collection, rows: Collection, condition: Expression, what: str, hint: str) -> Collection:
    """The result, and an error for each of `rows` for which a condition is true."""
    return result.concat(rows.step(Refuse(condition, what, hint, tuple(result.node.columns))))
