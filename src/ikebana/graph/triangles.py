"""Triangles: their number at each node, clustering coefficients, and k-trusses.

Edges are undirected; duplicates and edges from a node to itself are ignored.

Each edge is directed from its lesser to its greater end, once, so that a triangle a < b < c has the edges (a, b), (a,
c), (b, c). `triangles` is a delta join that is worst-case optimal: for a change of one of the three edges, the third
node must be in two lists of neighbours; it is proposed by the shorter list, and looked up in the other. Listing all
triangles of m edges thus takes time in proportion to m ** 1.5 at most, also on graphs with nodes of very high degree.
No intermediate result is stored.

Cost: see each program. The indexes are three of the directed edges (by either end, and by both) and two of their
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.columns import fields_of
from ikebana.expressions import Column
from ikebana.expressions.core.builders import greatest, least, less, negation
from ikebana.graph.plans import (
    AtLeast,
    Variables,
    Vectorised,
    at_least,
    column,
    fixpoint,
    integer,
    neighbours,
    nodes_of,
    pairs,
    without_loops,
)
from ikebana.operators.expression_steps import Computed, RowCondition
from ikebana.operators.linear import ColumnLanes, Columns
from ikebana.operators.reducers import DISTINCT, LinearAggregate, Sums

_EDGE = ("src", "dst")


def directed(edges: Collection) -> Arrangement:
    """Each edge once, from its lesser to its greater end, indexed by the lesser one; no edge from a node to itself."""
    proper = without_loops(edges)
    ends = column(proper, "src"), column(proper, "dst")
    return proper.step(Computed((("src", least(*ends)), ("dst", greatest(*ends))))).arrange("src").reduce(DISTINCT)


def triangles(edges: Collection) -> Collection:
    """All triangles, each once, with the nodes `a` < `b` < `c`.

    Cost: for a changed edge, the length of the shorter of the two lists of neighbours to be intersected.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
    >>> view = engine.install("triangles", triangles(edges))
    >>> edges.insert({"src": [1, 3, 2, 3, 4], "dst": [2, 1, 3, 4, 2]})
    >>> _ = engine.advance()
    >>> sorted(tuple(row.values()) for row in view.to_arrow().to_pylist())
    [(1, 2, 3), (2, 3, 4)]
    """
    greater = directed(edges)
    rows = greater.rows()
    lesser, both = rows.arrange("dst"), rows.arrange(*_EDGE)
    onward = _Lists(greater, rows.select(src="src").count("src"), both, "dst")
    backward = _Lists(lesser, rows.select(dst="dst").count("dst"), both, "src")
    later = rows._later()
    paths = [
        _third(rows.select(a="src", b="dst"), "c", _In(onward, "a", "bc"), _In(onward, "b", "ac")),
        _third(
            later.select(a="src", c="dst"), "b", _In(onward, "a", "bc", True), _In(backward, "c", "ab", False, True)
        ),
        _third(
            later.select(b="src", c="dst"),
            "a",
            _In(backward, "b", "ac", True, True),
            _In(backward, "c", "ab", True, True),
        ),
    ]
    return paths[0].with_paths(*paths[1:])


@dataclass(frozen=True)
class _Lists:
    """Lists of neighbours: the index, the length of each list, the index of single edges, and the listed column."""

    index: Arrangement
    lengths: Collection
    edges: Arrangement
    listed: str


@dataclass(frozen=True)
class _In:
    """A list in which the third node of a triangle is: the list of the node `of`.

    `other` is the edge that remains to be looked up if this list proposes the third node. `strict` and `other_strict`
    say whether changes of the list, and of that edge, count only if they came before: each set of simultaneous changes
    must be counted by one of the three paths only.
    """

    lists: _Lists
    of: str
    other: str
    strict: bool = False
    other_strict: bool = False


def _third(edges: Collection, third: str, one: _In, two: _In) -> Collection:
    """The triangles of some edges: the third node is in two lists, of which the shorter one proposes it."""
    measured = edges
    for at, side in enumerate((one, two)):
        (key,) = (name for name in side.lists.lengths.columns if name != "count")
        lengths = side.lists.lengths.arrange(key).select(**{f"length {at}": "count"})
        measured = measured.half_join(lengths, on=[side.of], strict=side.strict)
    first, second = (Column(pa.int64(), False, f"length {at}") for at in (0, 1))
    longer = less(second, first)
    proposed = [
        _proposed(measured.step(RowCondition(condition)), edges.columns, third, side)
        for condition, side in ((negation(longer), one), (longer, two))
    ]
    return proposed[0].concat(proposed[1])


def _proposed(edges: Collection, names: list[str], third: str, side: _In) -> Collection:
    """The triangles of edges whose third node is proposed by one list, and looked up in the other."""
    listed = side.lists.index.select(**{third: side.lists.listed})
    extended = edges.select(*names).half_join(listed, on=[side.of], strict=side.strict)
    validated = extended.half_join(side.lists.edges, on=list(side.other), strict=side.other_strict)
    return validated.select("a", "b", "c")


def triangle_count(edges: Collection, nodes: Collection | None = None) -> Collection:
    """For each node, the number of `triangles` that it is in. `nodes`: nodes that may have no edges.

    Cost: like `triangles`, plus three additions for each triangle that comes or goes.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
    >>> view = engine.install("triangles", triangle_count(edges))
    >>> edges.insert({"src": [1, 3, 2, 3, 4], "dst": [2, 1, 3, 4, 4]})
    >>> _ = engine.advance()
    >>> view.to_arrow().sort_by("node")["triangles"].to_pylist()
    [1, 1, 1, 0]
    """
    return _counted(edges, nodes).select("node", "triangles")


def clustering(edges: Collection, nodes: Collection | None = None) -> Collection:
    """For each node, its local `clustering` coefficient: the fraction of pairs of its neighbours that are connected.

    It is 0 for nodes with less than two neighbours. `nodes`: nodes that may have no edges.

    Cost: like `triangle_count`, plus constant time for each neighbour that comes or goes.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
    >>> view = engine.install("clustering", clustering(edges))
    >>> edges.insert({"src": [1, 3, 2, 3], "dst": [2, 1, 3, 4]})
    >>> _ = engine.advance()
    >>> [round(value, 3) for value in view.to_arrow().sort_by("node")["clustering"].to_pylist()]
    [1.0, 1.0, 0.333, 0.0]
    """
    counted = _counted(edges, nodes)
    fields = (counted.node.columns[0], pa.field("clustering", pa.float64(), nullable=False))
    return counted.step(Vectorised(fields, _coefficients))


def _coefficients(columns: Columns) -> dict[str, Any]:
    found, degree = columns["triangles"].to_numpy(), columns["neighbours"].to_numpy()
    return {"node": columns["node"], "clustering": 2 * found / np.maximum(degree * (degree - 1), 1)}


def _counted(edges: Collection, nodes: Collection | None) -> Collection:
    """For each node, the numbers of its `triangles` and `neighbours`."""
    corners = triangles(edges)
    parts = [_one(corners.select(node=corner), 1, 0) for corner in corners.columns]
    parts.append(_one(neighbours(edges).rows().select(node="src"), 0, 1))
    parts.append(_one(nodes_of(edges, nodes), 0, 0))
    counts = ("triangles", "neighbours")
    lanes = parts[0].concat(*parts[1:]).explode(("node",), ColumnLanes(counts))
    return lanes.reduce_by("node", LinearAggregate(fields_of(dict.fromkeys(counts, pa.int64())), Sums((1, 2))))


def _one(rows: Collection, found: int, adjacent: int) -> Collection:
    node = column(rows, "node")
    return rows.step(Computed((("node", node), ("triangles", integer(found)), ("neighbours", integer(adjacent)))))


# Trusses.


def k_truss(edges: Collection, k: int) -> Collection:
    """The edges of the k-truss, each once, with `src` < `dst`.

    The k-truss is the largest set of edges in which each edge is in at least `k` - 2 triangles of edges of the set.

    The loop collects the edges that are not in the truss, and the triangles that are not, because one of their edges is
    not: an edge loses these, and is not in the truss if too few are left.

    Cost: like `triangles`, which are indexed by each of their three edges; then, for a change, the triangles of every
    edge that it adds to the truss or removes.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
    >>> view = engine.install("truss", k_truss(edges, 3))
    >>> edges.insert({"src": [1, 3, 2, 3], "dst": [2, 1, 3, 4]})
    >>> _ = engine.advance()
    >>> sorted(tuple(row.values()) for row in view.to_arrow().to_pylist())
    [(1, 2), (1, 3), (2, 3)]
    """
    at_least(2, k, "k")
    all_edges = directed(edges).rows()
    if k == 2:
        return all_edges
    whole = triangles(edges)
    indexes = [whole.arrange(*ends) for ends in ("ab", "ac", "bc")]
    supported = _edges_of(whole)
    corners = {name: name for name in "abc"}

    def body(variables: Variables) -> tuple[Variables, Collection]:
        removed = variables["removed"]
        gone = removed.arrange(*_EDGE)
        hit = [pairs(gone, index.enter(removed), {}, corners) for index in indexes]
        broken = hit[0].concat(*hit[1:]).distinct()
        left = supported.enter(removed).concat(_edges_of(broken).negate())
        staying = left.threshold(AtLeast(k - 2))
        return {"removed": all_edges.enter(removed).concat(staying.negate())}, staying

    return fixpoint({"removed": all_edges.concat(all_edges.negate())}, body)


def _edges_of(corners: Collection) -> Collection:
    """The three edges of each triangle."""
    sides = [corners.select(src=lesser, dst=greater) for lesser, greater in ("ab", "ac", "bc")]
    return sides[0].concat(*sides[1:])
