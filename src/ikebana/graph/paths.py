"""Reachability, shortest paths, and breadth-first search.

Nodes get offers (to be reached, a distance), keep the best offer, and pass it on along their edges in the next round.
The edges are read from their arrangement by `src` (by `dst`, if the search goes backward), which is shared with other
queries.

Weights. The length of a path is exact if the weights are integers (64 bits) or decimals (37 digits); an overflow is an
error of the result. Floats are added up from the start of the path, as Dijkstra's algorithm does, so a distance does
not depend on the order in which edges arrive. An edge whose weight is null is not followed. Neither is an edge whose
weight is negative or NaN; it is an error of the result as long as it exists, wherever it is in the graph.

Cost: see each program. The number of rounds is the greatest number of edges on a best path to any node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding import Schema
from ikebana.engine.collection import Collection
from ikebana.errors import SchemaError
from ikebana.expressions import Column, Expression, Literal
from ikebana.expressions.core.builders import (
    add,
    cast,
    conjunction,
    disjunction,
    is_nan,
    is_not_null,
    less,
    negation,
)
from ikebana.graph.plans import (
    Variables,
    at_least,
    check_nodes,
    column,
    fixpoint,
    integer,
    node_type,
    pairs,
    refusing,
    zero_of,
)
from ikebana.operators.changes import Fields
from ikebana.operators.expression_steps import Computed, RowCondition
from ikebana.operators.reducers import Groups, ReducedRows, Reducer, group_extents

_HOPS = pa.int32()
"""The type of distances in loops whose weights are all 1: a pair of it and a 32-bit node fits into one lane."""

_LENGTH = "length "
"""The name of the weight of an edge in loops. The trailing space avoids a clash with columns of users."""


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
    start = check_nodes(roots, node_type(edges), "the roots")
    steps = edges.arrange("src")

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        reached = offered.distinct().arrange("node")
        onward = pairs(reached, steps.enter(offered), {}, {"node": "dst"})
        return {"offered": onward.concat(start.enter(offered))}, reached.rows()

    return fixpoint({"offered": start}, body)


def shortest_paths(edges: Collection, roots: Collection, weight: str | None = None) -> Collection:
    """For each node that can be reached, its distance from the nearest root.

    `weight` names a column of numbers with the length of each edge (see the module); by default every edge has length
    1. Distances are 64-bit integers, decimals or floats, like the weights.

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
    start = check_nodes(roots, node_type(edges), "the roots")
    length = _Length.of(edges, weight, pa.int64())
    steps, node = edges.arrange("src"), _node(edges)
    begun = start.step(Computed((("node", node), ("distance", length.zero))))
    along = Computed((("node", node), ("distance", length.added)))

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        nearest = offered.min("node").arrange("node")
        onward = pairs(nearest, steps.enter(offered), {"distance": "distance"}, {"node": "dst", **length.columns})
        return {"offered": length.allowed(onward).step(along).concat(begun.enter(offered))}, nearest.rows()

    return length.checked(fixpoint({"offered": begun}, body), edges)


def landmark_distances(edges: Collection, landmarks: Collection, weight: str | None = None) -> Collection:
    """For each node and each landmark that can be reached from it, the `distance`; columns node, landmark, distance.

    Paths lead from the node to the landmark, along edges. `weight`: see `shortest_paths`.

    Cost: like `shortest_paths`, for each landmark. Rows are indexed twice: by node and landmark, and by node.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
    >>> landmarks = engine.input("landmarks", {"node": pa.int32()})
    >>> view = engine.install("distances", landmark_distances(edges, landmarks))
    >>> edges.insert({"src": [1, 2, 3], "dst": [2, 3, 4]})
    >>> landmarks.insert({"node": [1, 3]})
    >>> _ = engine.advance()
    >>> sorted(tuple(row.values()) for row in view.to_arrow().to_pylist())
    [(1, 1, 0), (1, 3, 2), (2, 3, 1), (3, 3, 0)]
    """
    start = check_nodes(landmarks, node_type(edges), "the landmarks")
    length = _Length.of(edges, weight, _HOPS)
    node, landmark = _node(edges), column(edges, "dst", "landmark")
    steps = edges.arrange("dst")
    begun = start.step(Computed((("node", node), ("landmark", node), ("distance", length.zero))))
    along = Computed((("node", node), ("landmark", landmark), ("distance", length.added)))

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        nearest = offered.min(("node", "landmark"))
        known = {"landmark": "landmark", "distance": "distance"}
        onward = pairs(nearest.arrange("node"), steps.enter(offered), known, {"node": "src", **length.columns})
        return {"offered": length.allowed(onward).step(along).concat(begun.enter(offered))}, nearest

    distances = fixpoint({"offered": begun}, body)
    if weight is None:
        named = (("node", node), ("landmark", landmark))
        distances = distances.step(Computed((*named, ("distance", cast(column(distances, "distance"), pa.int64())))))
    return length.checked(distances, edges)


# Breadth-first search, with paths.


def bfs(edges: Collection, sources: Collection, targets: Collection, max_path_length: int | None = None) -> Collection:
    """For each target that can be reached from a source, one shortest path, along at most `max_path_length` edges.

    The columns are `target`, `source`, the `distance` (number of edges), and the `path`: a list of nodes, from the
    source to the target. The path starts at the nearest source; a target that is a source has a path of one node. Among
    shortest paths, each node on the path is preceded by the least node that can precede it.

    Cost: like `shortest_paths` from all sources (to targets and others), plus the nodes on all paths.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
    >>> sources, targets = (engine.input(name, {"node": pa.int32()}) for name in ("sources", "targets"))
    >>> view = engine.install("paths", bfs(edges, sources, targets, max_path_length=3))
    >>> edges.insert({"src": [1, 1, 2, 3, 4], "dst": [2, 3, 4, 4, 5]})
    >>> sources.insert({"node": [1]})
    >>> targets.insert({"node": [5, 6]})
    >>> _ = engine.advance()
    >>> view.to_arrow().to_pylist()
    [{'target': 5, 'source': 1, 'distance': 3, 'path': [1, 2, 4, 5]}]
    """
    return with_paths(path_nodes(edges, sources, targets, max_path_length))


def path_nodes(
    edges: Collection, sources: Collection, targets: Collection, max_path_length: int | None = None
) -> Collection:
    """The nodes on the paths of `bfs`, a row for each: `target`, `position` (from 0, at the source), `node`."""
    kind = node_type(edges)
    begun, wanted = check_nodes(sources, kind, "the sources"), check_nodes(targets, kind, "the targets")
    if max_path_length is not None:
        at_least(1, max_path_length, "max_path_length")
    tree = _search_tree(edges, begun, max_path_length).arrange("node")
    ends = pairs(wanted.distinct().arrange("node"), tree, {"node": "node", "target": "node"}, {"position": "distance"})
    node, position = _node(edges), Column(_HOPS, False, "position")
    back = Computed((("node", node), ("target", column(edges, "src", "target")), ("position", _plus(position, -1))))

    def body(variables: Variables) -> tuple[Variables, Collection]:
        walked = variables["walked"]
        known, of_tree = {"target": "target"}, {"position": "distance", "node": "previous"}
        before = pairs(walked.arrange("node"), tree.enter(walked), known, of_tree)
        before = before.step(RowCondition(less(integer(0, _HOPS), position))).step(back)
        onward = before.concat(ends.enter(walked))
        return {"walked": onward}, onward

    return fixpoint({"walked": ends}, body).select("target", "position", "node")


def _search_tree(edges: Collection, sources: Collection, limit: int | None) -> Collection:
    """For each node that is reached, its distance and the least node from which it is reached at that distance."""
    steps, node, distance = edges.arrange("src"), _node(edges), Column(_HOPS, False, "distance")
    previous = column(edges, "src", "previous")
    along = Computed((("node", node), ("distance", _plus(distance, 1)), ("previous", previous)))
    begun = sources.step(Computed((("node", node), ("distance", integer(0, _HOPS)), ("previous", node))))

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        nearest = offered.min("node").arrange("node")
        known = {"distance": "distance", "previous": "node"}
        onward = pairs(nearest, steps.enter(offered), known, {"node": "dst"})
        if limit is not None:
            onward = onward.step(RowCondition(less(distance, integer(limit, _HOPS))))
        return {"offered": onward.step(along).concat(begun.enter(offered))}, nearest.rows()

    return fixpoint({"offered": begun}, body)


def with_paths(nodes: Collection) -> Collection:
    """The rows of `path_nodes` as one row for each target: `target`, `source`, `distance`, `path`."""
    return nodes.reduce_by("target", PathReducer(column(nodes, "node").type))


@dataclass(frozen=True)
class PathReducer(Reducer):
    """The nodes of a path, from columns `position` and `node`, as a list; and its first node, and its length."""

    node: pa.DataType

    def fields(self, schema: Schema) -> Fields:
        return (
            pa.field("source", self.node, nullable=False),
            pa.field("distance", pa.int64(), nullable=False),
            pa.field("path", _list_of(self.node), nullable=False),
        )

    def apply(self, groups: Groups) -> ReducedRows:
        columns = groups.values.columns()
        order = np.lexsort((columns["position"].to_numpy(), groups.group))
        starts, sizes = group_extents(groups.group[order])
        nodes = columns["node"].take(pa.array(order))
        offsets = np.append(starts, len(order)).astype(np.int32)
        paths = pa.ListArray.from_arrays(pa.array(offsets), nodes, type=_list_of(self.node))
        outputs = [nodes.take(pa.array(starts)), pa.array(sizes - 1), paths]
        return ReducedRows(order[starts], outputs, np.ones(len(starts), np.int64))


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False))


# Lengths.


def _node(edges: Collection) -> Column:
    """The column `node` of rows in a loop, which has the type of the ends of edges."""
    return column(edges, "src", "node")


def _plus(value: Expression, amount: int) -> Expression:
    return add(value, integer(amount, value.type))


@dataclass(frozen=True)
class _Length:
    """What a step along an edge adds to a distance, which is a column `distance`."""

    zero: Literal
    """The distance of a path without edges."""
    added: Expression
    """The distance after the step."""
    columns: dict[str, str]
    """The column of the weight, under the name that it has in the loop."""
    weight: str | None
    valid: Expression | None
    """Whether an edge may be followed."""

    @staticmethod
    def of(edges: Collection, weight: str | None, hops: pa.DataType) -> _Length:
        """The lengths of edges: the column `weight`, or 1 as an integer of the type `hops`."""
        if weight is None:
            return _Length(integer(0, hops), _plus(Column(hops, False, "distance"), 1), {}, None, None)
        given = column(edges, weight, _LENGTH)
        kind, value = _distance_type(given), Column(given.type, False, _LENGTH)  # nulls are left out before
        total = add(Column(kind, False, "distance"), cast(value, kind))
        valid = negation(_is_invalid(value))
        if given.nullable:
            valid = conjunction([is_not_null(given), valid])
        return _Length(zero_of(kind), cast(total, kind), {_LENGTH: weight}, weight, valid)

    def allowed(self, steps: Collection) -> Collection:
        """The steps along edges of valid lengths."""
        return steps if self.valid is None else steps.step(RowCondition(self.valid))

    def checked(self, distances: Collection, edges: Collection) -> Collection:
        """The distances, with an error for each edge of invalid length."""
        if self.weight is None:
            return distances
        name, given = self.weight, column(edges, self.weight)
        what = f"the weight of an edge, {name!r}, is negative or not a number"
        hint = "shortest paths need weights of at least 0: change or remove the edge"
        return refusing(distances, edges, _is_invalid(given), what, hint)


def _distance_type(weight: Column) -> pa.DataType:
    kind = weight.type
    if types.is_integer(kind):
        return pa.int64()
    if types.is_floating(kind):
        return pa.float64()
    if types.is_decimal(kind) and kind.scale <= 37:
        return pa.decimal128(37, kind.scale)
    raise SchemaError(
        f"a weight must be a number, but its column is of type {kind}",
        hint="name a column of integers, decimals or floats as `weight`",
    )


def _is_invalid(weight: Column) -> Expression:
    negative = less(weight, zero_of(weight.type))
    return disjunction([negative, is_nan(weight)]) if types.is_floating(weight.type) else negative
