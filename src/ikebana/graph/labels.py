"""The least label that reaches each node: what connected components are made of.

Every node starts with its own number as a label, and labels spread along edges; a node keeps the least. If all
labels set out together, nearly every node takes up and passes on several labels before it gets its last. So
they set out in *stages*: a label of b bits in round 256 * b. Most nodes then know the least label of their component
before their own sets out, which goes nowhere. Rounds in which nothing happens cost nothing. (Differential Dataflow
does the same.)

Cost: close to once along each edge, rather than once for each label that a node ever has.

Not guaranteed: stages help less the farther small numbers are from the rest, and not where they are more than some
thousand steps away; negative numbers are all in the first stage. The result does not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ikebana.engine.collection import Arrangement, Collection
from ikebana.graph.plans import Variables, fixpoint, pairs
from ikebana.operators.linear import Columns

ROUNDS = 256
"""Rounds between stages."""

Step = tuple[Arrangement, str]
"""Edges to follow: indexed by the node they start from, and the column of the node they lead to."""


def least_labels(nodes: Collection, steps: Sequence[Step], scope: Collection | None = None) -> Collection:
    """For each of the nodes (column `node`, any multiplicity), and each that edges lead to from them, the least
    from which they do, itself included, as `label`.

    With `scope` the loop is inside that of `scope`, where the steps are.
    """
    outside = nodes if scope is None else nodes.enter(scope)
    nothing = outside.filter(_none).select(label="node", node="node")

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        due = nodes.enter_at(offered, _stage).select(label="node", node="node")
        least = offered.concat(due).min("node").arrange("node")
        onward = [pairs(least, edges.enter(offered), {"label": "label"}, {"node": to}) for edges, to in steps]
        return {"offered": onward[0].concat(*onward[1:])}, least.rows()

    return fixpoint({"offered": nothing}, body)


def _stage(columns: Columns) -> Any:
    """The round in which a label sets out: by the bits of the number."""
    values = np.maximum(columns["node"].to_numpy(zero_copy_only=False), 0)
    return ROUNDS * np.frexp(values.astype(np.float64))[1].astype(np.int64)


def _none(columns: Columns) -> Any:
    return np.zeros(len(columns["node"]), bool)
