"""Reachability and shortest paths.

Both offer something to nodes (to be reached, a distance), keep the best offer of each node, and offer along its
edges in the next round. The edges are read through their index by `src`, shared with the world outside.

Cost: see each program; as many rounds as the way with the most edges that is best for some node.

Not guaranteed: an end, where lengths are negative.
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
    """The nodes that can be reached from the roots along edges, the roots included.

    Cost: at first the edges of all nodes reached; after that the edges of nodes that are reached in another round
    than before.

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

    Every edge is of length 1, or as long as its whole-number column `weight` says. Lengths must not be negative: a
    cycle of negative length would have no end.

    Cost: as `reach`, for each distance that a node has on the way to its least. With lengths of 1 there is only one.

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
    # With a space, no name of a user's column is like it.
    theirs = {"node": "dst"} if weight is None else {"node": "dst", "length ": weight}

    def along(columns: Columns) -> Mapping[str, Any]:
        length = 1 if weight is None else columns["length "].cast(pa.int64())
        return {"node": columns["node"], "distance": pc.add_checked(columns["distance"], length)}

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        nearest = offered.min("node").arrange("node")
        onward = pairs(nearest, steps.enter(offered), {"distance": "distance"}, theirs).map(fields, along)
        return {"offered": onward.concat(start.enter(offered))}, nearest.rows()

    return fixpoint({"offered": start}, body)


def _zeros(column: Any) -> Any:
    return np.zeros(len(column), np.int64)
