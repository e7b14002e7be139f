"""Reachability and shortest paths.

Nodes get offers (to be reached, a distance), keep the best offer, and pass it on along their edges in the next round.
The edges are read from their arrangement by `src`, which is shared with other queries.

Cost: see each program. The number of rounds is the greatest number of edges on a best path to any node.

Not guaranteed: termination, if weights are negative.
"""

from __future__ import annotations

import pyarrow as pa

from ikebana.engine.collection import Collection
from ikebana.expressions import Column, Literal
from ikebana.expressions.core.builders import add, cast
from ikebana.graph.plans import Variables, column, fixpoint, node_type, pairs
from ikebana.operators.expression_steps import Computed


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
    steps = edges.arrange("src")
    kind = node_type(edges)
    root = cast(column(roots, "node"), kind)
    start = roots.step(Computed((("node", root), ("distance", Literal(pa.int64(), False, 0)))))
    # The trailing space avoids a clash with columns of users.
    of_edge = {"node": "dst"} if weight is None else {"node": "dst", "length ": weight}

    length = Literal(pa.int64(), False, 1) if weight is None else cast(column(edges, weight, "length "), pa.int64())
    distance = add(Column(pa.int64(), False, "distance"), length)
    along = Computed((("node", column(edges, "dst", "node")), ("distance", distance)))

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        nearest = offered.min("node").arrange("node")
        onward = pairs(nearest, steps.enter(offered), {"distance": "distance"}, of_edge).step(along)
        return {"offered": onward.concat(start.enter(offered))}, nearest.rows()

    return fixpoint({"offered": start}, body)
