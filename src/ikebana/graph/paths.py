"""Reachability and shortest paths.

Nodes get offers (to be reached, a distance), keep the best offer, and pass it on along their edges in the next round.
The edges are read from their arrangement by `src`, which is shared with other queries.

Cost: see each program. The number of rounds is the greatest number of edges on a best path to any node.

Not guaranteed: termination, if weights are negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.engine.collection import Collection
from ikebana.graph.plans import Variables, fixpoint, node_type, pairs
from ikebana.operators.linear import Columns


def reach(edges: Collection, roots: Collection) -> Collection:
    """The nodes that can be reached from the roots along edges, including the roots.

    Cost: initially the edges of all reached nodes; then, for each change, the edges of the nodes that are reached in
    another round than before.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> roots = engine.input("roots", {"node": pa.int64()})
    >>> view = engine.install("reach", reach(edges, roots))
    >>> edges.insert({"src": [1, 2, 4], "dst": [2, 3, 5]})
    >>> roots.insert({"node": [1]})
    >>> _ = engine.advance()
    >>> sorted(view.read()["node"].to_pylist())
    [1, 2, 3]
    >>> edges.remove({"src": [2], "dst": [3]})
    >>> _ = engine.advance()
    >>> sorted(view.read()["node"].to_pylist())
    [1, 2]
    """
    node_type(edges)
    steps, start = edges.arrange("src"), roots.select("node")

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        reached = offered.distinct().arrange("node")
        onward = pairs(reached, steps.enter(offered), {}, {"node": "dst"})
        return {"offered": onward.concat(start.enter(offered))}, reached.rows()

    return fixpoint({"offered": start}, body)


def shortest_paths(edges: Collection, roots: Collection, weight: str | None = None) -> Collection:
    """For each node that can be reached, its distance from the nearest root.

    `weight` names an integer column with the length of each edge; by default every edge has length 1. Lengths must not
    be negative: on a cycle of negative length the loop would not terminate.

    Cost: like `reach`, for each distance that a node has before it gets the least one. If all lengths are 1, there is
    only one distance.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64(), "miles": pa.int64()})
    >>> roots = engine.input("roots", {"node": pa.int64()})
    >>> hops = engine.install("hops", shortest_paths(edges, roots))
    >>> miles = engine.install("miles", shortest_paths(edges, roots, weight="miles"))
    >>> edges.insert({"src": [1, 2, 1], "dst": [2, 3, 3], "miles": [4, 5, 20]})
    >>> roots.insert({"node": [1]})
    >>> _ = engine.advance()
    >>> hops.read().sort_by("node")["distance"].to_pylist(), miles.read().sort_by("node")["distance"].to_pylist()
    ([0, 1, 1], [0, 4, 9])
    """
    fields = {"node": node_type(edges), "distance": pa.int64()}
    steps = edges.arrange("src")
    start = roots.map(fields, lambda columns: {"node": columns["node"], "distance": _zeros(columns["node"])})
    # The trailing space avoids a clash with columns of users.
    of_edge = {"node": "dst"} if weight is None else {"node": "dst", "length ": weight}

    def along(columns: Columns) -> Mapping[str, Any]:
        length = 1 if weight is None else columns["length "].cast(pa.int64())
        return {"node": columns["node"], "distance": pc.add_checked(columns["distance"], length)}

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        nearest = offered.min("node").arrange("node")
        onward = pairs(nearest, steps.enter(offered), {"distance": "distance"}, of_edge).map(fields, along)
        return {"offered": onward.concat(start.enter(offered))}, nearest.rows()

    return fixpoint({"offered": start}, body)


def _zeros(column: Any) -> Any:
    return np.zeros(len(column), np.int64)
