"""Connected and strongly connected components. A component is named after its least node.

Both propagate the least label along edges (see `ikebana.graph.labels`), which they read from arrangements outside the
loop.

Cost: see each program.

Not guaranteed: a small number of rounds. A label crosses one edge per round, so a chain takes as many rounds as it
has edges.
"""

from __future__ import annotations

from ikebana.engine.collection import Arrangement, Collection
from ikebana.expressions.core.builders import equal, least
from ikebana.graph.labels import Step, least_labels
from ikebana.graph.plans import Variables, check_nodes, column, fixpoint, node_type, nodes_of, pairs
from ikebana.operators.expression_steps import Computed, RowCondition


def connected_components(edges: Collection, nodes: Collection | None = None) -> Collection:
    """For each node, the least node of its component, as `component`. Edges are undirected.

    `nodes`: nodes that may have no edges, and then are components of their own.

    The least label propagates forward through the arrangement by `src` and backward through the one by `dst`.

    Cost: about one pass over the edges in each direction (see `ikebana.graph.labels`), in as many rounds as the longest
    shortest path from a least node has edges. A change costs the edges of the nodes that get their label on another
    path than before.

    >>> import pyarrow as pa
    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> view = engine.install("components", connected_components(edges))
    >>> edges.insert({"src": [2, 3, 7], "dst": [1, 2, 8]})
    >>> _ = engine.advance()
    >>> view.read().sort_by("node")["component"].to_pylist()
    [1, 1, 1, 7, 7]
    """
    kind = node_type(edges)
    lesser_end = least(column(edges, "src"), column(edges, "dst"))
    starts = edges.step(Computed((("node", lesser_end),)))  # the least node of a component is the lesser end of an edge
    if nodes is not None:
        starts = starts.concat(check_nodes(nodes, kind, "the nodes"))
    steps: list[Step] = [(edges.arrange("src"), "dst"), (edges.arrange("dst"), "src")]
    return least_labels(starts, steps).select(node="node", component="label")


def strongly_connected_components(edges: Collection, nodes: Collection | None = None) -> Collection:
    """For each node, the least node that shares a cycle with it, as `component`; else the node itself.

    `nodes`: nodes that may have no edges.

    There are two nested loops. The outer loop keeps the edges that may be on a cycle, initially all. Inside, the least
    label propagates forward along these edges; an edge whose ends get different labels connects two components and is
    removed. Then the same is done backward. When no more edges are removed, the labels name the components.

    Cost: for each round of the outer loop, the differences from the previous round of two labellings and of two joins
    of the edges with their labels. Random graphs take two or three rounds.

    >>> import pyarrow as pa
    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> view = engine.install("components", strongly_connected_components(edges))
    >>> edges.insert({"src": [1, 2, 3, 3], "dst": [2, 3, 2, 4]})
    >>> _ = engine.advance()
    >>> view.read().sort_by("node")["component"].to_pylist()
    [1, 2, 2, 4]
    """
    by_source, everything = edges.arrange("src"), nodes_of(edges, nodes)

    def body(variables: Variables) -> tuple[Variables, Collection]:
        kept = variables["kept"]
        candidates = by_source.enter(kept)
        forward = least_labels(everything, [(kept.arrange("src"), "dst")], kept)
        inside = _within(candidates, forward.arrange("node"))
        backward = least_labels(everything, [(inside.arrange("dst"), "src")], kept)
        return {"kept": _within(candidates, backward.arrange("node"))}, forward

    return fixpoint({"kept": edges.select("src", "dst")}, body).select(node="node", component="label")


def _within(edges: Arrangement, labels: Arrangement) -> Collection:
    """The edges, indexed by `src`, whose two ends have the same label."""
    both = {"src": "src", "dst": "dst"}
    from_source = pairs(edges, labels, both, {"label": "label"}).arrange("dst")
    to_target = pairs(from_source, labels, {**both, "label": "label"}, {"other": "label"})
    agree = equal(column(to_target, "label"), column(to_target, "other"))
    return to_target.step(RowCondition(agree)).select("src", "dst")
