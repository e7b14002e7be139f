"""Plans that follow a fixed number of edges from the nodes of bindings, by joins with shared indexes.

Rows are bindings of a prepared query and the nodes that they have reached, in the columns `BINDING` and `node`. Each
hop is one join, so there is no loop. The multiplicity of a row is the number of paths that lead to the node.

Cost: a hop takes time in proportion to the edges of the nodes that were reached before it. Not guaranteed:
multiplicities of 2**63 and more, which overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from ikebana.engine.collection import Arrangement, Collection
from ikebana.expressions import Column, Literal
from ikebana.expressions.core.builders import is_not_null
from ikebana.graph.plans import pairs
from ikebana.operators.expression_steps import Computed, RowCondition
from ikebana.operators.row_errors import BINDING
from ikebana.plan import ir

DISTANCE = pa.int32()
"""The type of distances."""

Index = Callable[[], Arrangement]
"""A function that returns an index of the edges for one join."""


def column_of(collection: Collection, name: str) -> Column:
    """A column of a collection, as an expression."""
    field = next(field for field in collection.node.columns if field.name == name)
    return Column(field.type, field.nullable, name)


def value_fields(arrangement: Arrangement) -> Sequence[pa.Field]:
    """The value columns of an arrangement."""
    return ir.schema_of(arrangement.node).val.fields


def _declared(collection: Collection, nullable: bool) -> Collection:
    """The collection with its column `node` declared nullable or not."""
    return collection.declare(
        [field.with_nullable(nullable) if field.name == "node" else field for field in collection.node.columns]
    )


def joined_with(reached: Collection, index: Arrangement, values: Mapping[str, str]) -> Collection:
    """The bindings of nodes, with value columns (`new: old`) of the rows that an index has for the node."""
    (key,) = ir.schema_of(index.node).key.fields
    return pairs(_declared(reached, key.nullable).arrange("node"), index, {BINDING: BINDING}, values)


def next_hop(reached: Collection, edges: Arrangement, to: str) -> Collection:
    """The nodes one hop further, as often as paths lead there."""
    onward = joined_with(reached, edges, {"node": to})
    node = column_of(onward, "node")
    return _declared(onward.step(RowCondition(is_not_null(node))), nullable=False) if node.nullable else onward


def within_hops(start: Collection, edges: Index, to: str, hops: int) -> Collection:
    """The nodes within a number of hops, with all their distances up to that number, as often as paths lead there.

    From the third hop on, nodes are extended once for all paths of a length: the number of paths might overflow.
    """
    levels = [start]
    for hop in range(1, hops + 1):
        last = levels[-1] if hop <= 2 else levels[-1].distinct("node")
        levels.append(next_hop(last, edges(), to))
    with_distances = [
        level.step(
            Computed(
                (
                    (BINDING, column_of(level, BINDING)),
                    ("node", column_of(level, "node")),
                    ("distance", Literal(DISTANCE, False, distance)),
                )
            )
        )
        for distance, level in enumerate(levels)
    ]
    return with_distances[0].concat(*with_distances[1:])
