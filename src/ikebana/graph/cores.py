"""k-cores and core numbers. Edges are undirected; duplicates and edges from a node to itself are ignored.

The k-core is the largest set of nodes in which each node has at least k neighbours. The core number of a node is the
greatest k for which it is in the k-core.

A k-core is a loop that only removes nodes: round r keeps those that have enough neighbours among the nodes of round
r - 1. Core numbers are a loop too: a node starts with its degree, and its next number is the greatest h for which at
least h of its neighbours have a number of at least h. These numbers only decrease, and end at the core numbers (Lü et
al., The H-index of a network node and its relation to degree and coreness, 2016).

Cost: see each program.

Not guaranteed: a small number of rounds. Nodes of a long chain are removed one per round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.engine.collection import Collection
from ikebana.graph.plans import (
    AtLeast,
    Variables,
    at_least,
    check_nodes,
    fixpoint,
    neighbours,
    node_type,
    pairs,
    with_integer,
)
from ikebana.operators.changes import Fields
from ikebana.operators.reducers import Groups, ReducedRows, Reducer


def k_core(edges: Collection, k: int) -> Collection:
    """The nodes of the k-core: the largest set in which each node has at least `k` neighbours.

    A node gets one offer from each neighbour that is still in the set; nodes with fewer than `k` offers are removed.

    Cost: a change costs the degrees of its two nodes, and the edges of every node that it adds to the core or removes.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> view = engine.install("core", k_core(edges, 2))
    >>> edges.insert({"src": [1, 2, 3, 3], "dst": [2, 3, 1, 4]})
    >>> _ = engine.advance()
    >>> sorted(view.read()["node"].to_pylist())
    [1, 2, 3]
    """
    at_least(1, k, "k")
    adjacent = neighbours(edges)

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        staying = offered.threshold(AtLeast(k)).arrange("node")
        return {"offered": pairs(staying, adjacent.enter(offered), {}, {"node": "dst"})}, staying.rows()

    return fixpoint({"offered": adjacent.rows().select(node="dst")}, body)


def core_number(edges: Collection, nodes: Collection | None = None) -> Collection:
    """For each node, the greatest k for which it is in the k-core, as `core`; 0 for nodes without neighbours.

    `nodes`: nodes that may have no edges. Ends of edges from a node to itself are nodes too.

    Cost: a change costs, in each round, the edges of the nodes whose number changes in that round.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> view = engine.install("cores", core_number(edges))
    >>> edges.insert({"src": [1, 2, 3, 3], "dst": [2, 3, 1, 4]})
    >>> _ = engine.advance()
    >>> view.to_arrow().sort_by("node")["core"].to_pylist()
    [2, 2, 2, 1]
    """
    kind, adjacent = node_type(edges), neighbours(edges)

    def body(variables: Variables) -> tuple[Variables, Collection]:
        cores = variables["cores"]
        offered = pairs(cores.arrange("node"), adjacent.enter(cores), {"core": "core"}, {"node": "dst"})
        lowered = offered.select("node", "core").reduce_by("node", HIndex())
        return {"cores": lowered}, lowered

    cores = fixpoint({"cores": adjacent.rows().select(node="src").count("node", "core")}, body)
    everything = edges.select(node="src").concat(edges.select(node="dst"))
    if nodes is not None:
        everything = everything.concat(check_nodes(nodes, kind, "the nodes"))
    return with_integer(everything, "core", 0).concat(cores).max("node")


@dataclass(frozen=True)
class HIndex(Reducer):
    """The greatest h for which at least h values of a group, of a column `core`, are at least h; as `core`."""

    label = "h index"

    def fields(self, schema: Schema) -> Fields:
        return (pa.field("core", pa.int64(), nullable=False),)

    def apply(self, groups: Groups) -> ReducedRows:
        values, counts = groups.values.columns()["core"].to_numpy(), groups.sums[0]
        order = np.lexsort((-values, groups.group))  # within a group, the greatest first
        group, values, counts = groups.group[order], values[order], counts[order]
        through = np.cumsum(counts)
        starts = np.flatnonzero(np.append(True, group[1:] != group[:-1])) if len(group) else group
        sizes = np.diff(np.append(starts, len(group)))
        above = through - np.repeat((through - counts)[starts], sizes)
        cores = np.maximum.reduceat(np.minimum(values, above), starts) if len(starts) else values
        present = np.flatnonzero(cores > 0)
        rows = order[starts[present]]
        return ReducedRows(rows, [pa.array(cores[present])], np.ones(len(rows), np.int64))
