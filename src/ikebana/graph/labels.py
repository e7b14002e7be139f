"""The least label that reaches each node: what connected components are made of.

Every node starts with its own number as a label, and labels spread along edges; a node keeps the least. If all
labels set out together, nearly every node takes up and passes on several labels before it gets its last. So
they set out in *stages*: a label of b bits in round b. There are at most 2**b labels of b bits or fewer, and in
most graphs a label reaches more nodes than that within b rounds, so that most nodes know the least label of their
component before their own sets out, which then goes nowhere. (Differential Dataflow does this by entering
nodes into the loop at later rounds.)

The stages are driven by a clock: a loop variable of a single chain of rows, one more each round, up to the greatest
stage that any node has. Joined with the nodes by stage it lets those of each stage in when their round has come.

Cost: close to once along each edge, rather than once for each label that a node ever has. The clock costs a few
visits in each of its rounds (at most 64) the first time, and nothing after.

Not guaranteed: that this holds where labels spread slowly. Along a chain of n nodes numbered in order a node takes
up about n labels, one a round, and each costs the history of the node: keep to chains of some hundred nodes.
Negative numbers are all in the first stage. The result does not depend on any of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.collection import Arrangement, Collection
from ikebana.graph.plans import Variables, fixpoint, pairs
from ikebana.operators.linear import Columns

STAGE = pa.int8()
Step = tuple[Arrangement, str]
"""Edges to follow: indexed by the node they start from, and the column of the node they lead to."""


@dataclass(frozen=True)
class Stages:
    """Nodes by the stage in which their labels set out, and the clock's first row: stage 0, and the last stage."""

    nodes: Arrangement
    first: Collection


def staged(nodes: Collection) -> Stages:
    """The stages of nodes (column `node`, any multiplicity)."""
    kind = nodes.node.columns[0].type

    def by_stage(columns: Columns) -> dict[str, Any]:
        return {"stage": _bits(columns["node"]), "node": columns["node"]}

    def last_stage(columns: Columns) -> dict[str, Any]:
        return {"stage": np.zeros(len(columns["node"]), np.int8), "last": _bits(columns["node"])}

    return Stages(
        nodes.map({"stage": STAGE, "node": kind}, by_stage).arrange("stage"),
        nodes.map({"stage": STAGE, "last": STAGE}, last_stage).max("stage"),
    )


def least_labels(stages: Stages, steps: Sequence[Step], scope: Collection | None = None) -> Collection:
    """For each node the least node from which edges lead to it, itself included, as `label`.

    With `scope` the loop is inside that of `scope`, where the steps are.
    """
    kind = stages.nodes.rows().node.columns[1].type
    first = stages.first if scope is None else stages.first.enter(scope)
    nothing = first.filter(_none).map({"label": kind, "node": kind}, _no_labels)

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered, clock = variables["offered"], variables["clock"]
        due = pairs(clock.arrange("stage"), stages.nodes.enter(clock), {}, {"label": "node", "node": "node"})
        least = offered.concat(due).min("node").arrange("node")
        onward = [pairs(least, edges.enter(clock), {"label": "label"}, {"node": to}) for edges, to in steps]
        following = first.enter(clock).concat(clock.filter(_goes_on).map({"stage": STAGE, "last": STAGE}, _tick))
        return {"offered": onward[0].concat(*onward[1:]), "clock": following}, least.rows()

    return fixpoint({"offered": nothing, "clock": first}, body)


def _bits(column: Any) -> Any:
    """How many bits a number has; 0 for negative ones."""
    values = np.maximum(column.to_numpy(zero_copy_only=False), 0)
    return np.frexp(values.astype(np.float64))[1].astype(np.int8)


def _goes_on(columns: Columns) -> Any:
    return pc.less(columns["stage"], columns["last"])


def _tick(columns: Columns) -> dict[str, Any]:
    return {"stage": columns["stage"].to_numpy() + np.int8(1), "last": columns["last"]}


def _none(columns: Columns) -> Any:
    return np.zeros(len(columns["stage"]), bool)


def _no_labels(columns: Columns) -> dict[str, Any]:
    return {"label": [], "node": []}
