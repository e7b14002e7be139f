"""Degrees, and k-cores.

Degrees are linear aggregates: counts that are kept in diffs. A k-core is a loop that only removes nodes: round r keeps
those that have enough neighbours among the nodes of round r - 1.

Cost: see each program.

Not guaranteed: a small number of rounds for a k-core. Nodes of a long chain are removed one per round.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.engine.collection import Arrangement, Collection
from ikebana.graph.plans import Variables, fixpoint, node_type, pairs
from ikebana.operators import reducers


def degrees(edges: Collection) -> Collection:
    """For each node that has an edge, the number of its `outgoing` and `incoming` edges, duplicates included.

    The counts are kept in diffs: a change takes constant time, whatever the degree.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> view = engine.install("degrees", degrees(edges))
    >>> edges.insert({"src": [1, 1, 2], "dst": [2, 3, 3]})
    >>> _ = engine.advance()
    >>> view.read().sort_by("node").select(["node", "outgoing", "incoming"]).to_pylist()[0]
    {'node': 1, 'outgoing': 2, 'incoming': 0}
    """
    fields = {"node": node_type(edges), "out": pa.int8()}

    def ends(name: str, out: int) -> Collection:
        return edges.map(fields, lambda columns: {"node": columns[name], "out": _constant_array(columns[name], out)})

    return (
        ends("src", 1)
        .concat(ends("dst", 0))
        .aggregate(
            "node",
            {"outgoing": pa.int64(), "incoming": pa.int64()},
            lambda columns: [1, columns["out"].to_numpy()],
            lambda sums: [sums[1], sums[0] - sums[1]],
        )
    )


def k_core(edges: Collection, k: int) -> Collection:
    """The nodes of the k-core: the largest set in which each node has at least `k` neighbours, edges undirected.

    Edges may be given in one direction or both, and more than once; edges from a node to itself are ignored.
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
    neighbours = _neighbours(edges)

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        staying = offered.threshold(lambda counts: counts >= k).arrange("node")
        return {"offered": pairs(staying, neighbours.enter(offered), {}, {"node": "dst"})}, staying.rows()

    return fixpoint({"offered": neighbours.rows().select(node="dst")}, body)


def _neighbours(edges: Collection) -> Arrangement:
    """Each edge in both directions, once, indexed by `src`, without edges from a node to itself."""
    node_type(edges)
    forward, backward = edges.select("src", "dst"), edges.select(src="dst", dst="src")
    proper = forward.concat(backward).filter(lambda columns: pc.not_equal(columns["src"], columns["dst"]))
    return proper.arrange("src").reduce(reducers.DISTINCT)


def _constant_array(column: Any, value: int) -> Any:
    return np.full(len(column), value, np.int8)
