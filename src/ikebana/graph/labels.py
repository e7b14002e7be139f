"""The least label that reaches each node: the basis of connected components.

The label of a node is its own number at first. Labels propagate along edges, and every node keeps the least one. If all
labels started in the same round, nearly every node would accept and pass on several labels before the final one.
Therefore labels start in *stages*: a label of b bits starts in round 256 * b. Most nodes then have the least label of
their component before their own label starts, which is discarded at once. Rounds without changes cost nothing.
(Differential Dataflow does the same.)

Cost: each edge is followed about once, and not once for every label that a node has in the course of the loop.

Not guaranteed: the benefit of stages. It decreases with the distance of small numbers from the other nodes, and is
lost beyond a few thousand edges; negative numbers are all in the first stage, and so are nodes
that are not integers. Results do not depend on stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ikebana.engine.collection import Arrangement, Collection
from ikebana.graph.plans import NO_ROW, Variables, column, fixpoint, pairs
from ikebana.operators.expression_program import bit_length
from ikebana.operators.expression_steps import RowCondition
from ikebana.operators.linear import Columns
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.registers import ColumnSlots, Rows

ROUNDS_PER_STAGE = 256
"""The number of rounds between stages."""

Step = tuple[Arrangement, str]
"""Edges to follow: an arrangement by the node at which they start, and the column of the node to which they lead."""


def least_labels(nodes: Collection, steps: Sequence[Step], scope: Collection | None = None) -> Collection:
    """For each node that can be reached from `nodes`, these included, the least of `nodes` that reaches it, as `label`.

    `nodes` has a column `node`; multiplicities do not matter. `steps` are the edges to follow. With `scope`, the loop
    is nested in the loop that `scope` is inside; `steps` must be inside it too.
    """
    outside = nodes if scope is None else nodes.enter(scope)
    staged = pa.types.is_integer(column(nodes, "node").type)
    nothing = outside.step(RowCondition(NO_ROW)).select(label="node", node="node")

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        due = (nodes.enter_at(offered, FirstRound()) if staged else nodes.enter(offered)).select(
            label="node", node="node"
        )
        least = offered.concat(due).min("node").arrange("node")
        onward = [pairs(least, edges.enter(offered), {"label": "label"}, {"node": to}) for edges, to in steps]
        return {"offered": onward[0].concat(*onward[1:])}, least.rows()

    return fixpoint({"offered": nothing}, body)


@dataclass(frozen=True)
class FirstRound:
    """The round in which a label starts, by the number of its bits."""

    def __call__(self, columns: Columns) -> Any:
        return ROUNDS_PER_STAGE * bit_lengths(columns["node"].to_numpy(zero_copy_only=False))

    def lower(self, program: ProgramBuilder, rows: Rows) -> ColumnSlots | None:
        """The same as instructions of a program."""
        return bit_length(program, rows, "node", ROUNDS_PER_STAGE)


EXACT_BITS, EXPONENT_AT, EXPONENT_BIAS = 53, 52, 1022
"""Of a float: the bits of an integer that it represents exactly; where its exponent starts, and what is added to it."""


def bit_lengths(values: NDArray[Any]) -> NDArray[np.int64]:
    """The number of bits of integers; 0 for negative ones. Reads them off as the exponents of floats.

    >>> bit_lengths(np.array([-1, 0, 1, 2, 255, 256, (1 << 62) - 1])).tolist()
    [0, 0, 1, 2, 8, 9, 62]
    """
    if values.size and values.max() >= 1 << EXACT_BITS:
        high, low = values.astype(np.int64) >> 32, values.astype(np.int64) & 0xFFFFFFFF
        return np.where(high > 0, 32 + bit_lengths(high), np.where(high < 0, 0, bit_lengths(low)))
    exponents = values.astype(np.float64).view(np.int64)
    exponents >>= EXPONENT_AT  # of negative numbers, the sign makes it negative
    exponents -= EXPONENT_BIAS
    return np.maximum(exponents, 0, out=exponents)
