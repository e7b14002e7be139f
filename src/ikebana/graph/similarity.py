"""Similar nodes: common neighbours, and Jaccard coefficients.

Edges are undirected; duplicates and edges from a node to itself are ignored. Both programs are for pairs of nodes that
are given, or for all pairs that have a neighbour in common, each once, with `src` < `dst`.

Cost: see each program.

Not guaranteed: that the results for all pairs fit into memory. A node of degree d is a common neighbour of d * (d - 1)
/ 2 pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.engine.collection import Collection
from ikebana.engine.columns import described
from ikebana.errors import SchemaError
from ikebana.expressions.core.builders import less
from ikebana.graph.plans import Vectorised, column, neighbours, node_type, pairs, with_integer
from ikebana.operators.expression_steps import RowCondition
from ikebana.operators.linear import Columns

_PAIR = ("src", "dst")


def common_neighbors(edges: Collection, pairs_of_nodes: Collection | None = None) -> Collection:
    """The nodes that are neighbours of both nodes of a pair: a row `src`, `dst`, `node` for each.

    `pairs_of_nodes`: the pairs, in columns `src` and `dst`; duplicates do not matter. By default all pairs.

    Cost: for all pairs, a changed edge costs the degrees of its two nodes. For given pairs, a new pair costs the degree
    of its node `src`, and a changed edge costs the pairs that one of its nodes is in.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
    >>> view = engine.install("common", common_neighbors(edges))
    >>> edges.insert({"src": [1, 2, 2], "dst": [2, 3, 4]})
    >>> _ = engine.advance()
    >>> sorted(tuple(row.values()) for row in view.to_arrow().to_pylist())
    [(1, 3, 2), (1, 4, 2), (3, 4, 2)]
    """
    adjacent = neighbours(edges)
    if pairs_of_nodes is None:
        wedges = pairs(adjacent, adjacent, {"src": "dst"}, {"dst": "dst", "node": "src"})
        return wedges.step(RowCondition(less(column(wedges, "src"), column(wedges, "dst"))))
    wanted = _checked_pairs(edges, pairs_of_nodes).arrange("src")
    of_first = pairs(wanted, adjacent, {"src": "src", "dst": "dst"}, {"node": "dst"})
    is_adjacent = adjacent.rows().select(dst="src", node="dst").arrange("dst", "node")
    return of_first.arrange("dst", "node").join(is_adjacent).select("src", "dst", "node")


def jaccard(edges: Collection, pairs_of_nodes: Collection | None = None) -> Collection:
    """For each pair, in `src` and `dst`, the number of `common` neighbours and the `jaccard` coefficient.

    The coefficient is the number of common neighbours divided by the number of nodes that are neighbours of either; 0
    if there are none. `pairs_of_nodes`: as for `common_neighbors`; given pairs always have a row.

    Cost: like `common_neighbors`, plus the pairs of each node whose number of neighbours changes.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
    >>> view = engine.install("jaccard", jaccard(edges))
    >>> edges.insert({"src": [1, 2, 2, 4], "dst": [2, 3, 4, 5]})
    >>> _ = engine.advance()
    >>> sorted(tuple(row.values()) for row in view.to_arrow().to_pylist())
    [(1, 3, 1, 1.0), (1, 4, 1, 0.5), (2, 5, 1, 0.3333333333333333), (3, 4, 1, 0.5)]
    """
    node_type(edges)
    shared = with_integer(common_neighbors(edges, pairs_of_nodes).select(*_PAIR), "common", 1)
    if pairs_of_nodes is not None:
        shared = shared.concat(with_integer(_checked_pairs(edges, pairs_of_nodes), "common", 0))
    counted = shared.sum(_PAIR, "common", "common")
    sizes = with_integer(neighbours(edges).rows().select(node="src"), "size", 1)
    if pairs_of_nodes is not None:  # nodes of given pairs may have no neighbours
        given = _checked_pairs(edges, pairs_of_nodes)
        sizes = sizes.concat(*(with_integer(given.select(node=end), "size", 0) for end in _PAIR))
    size = sizes.sum("node", "size", "size").arrange("node")
    known = {"src": "src", "dst": "dst", "common": "common"}
    first = pairs(counted.arrange("src"), size, known, {"first": "size"})
    both = pairs(first.arrange("dst"), size, {**known, "first": "first"}, {"second": "size"})
    fields = (*counted.node.columns, pa.field("jaccard", pa.float64(), nullable=False))
    return both.step(Vectorised(fields, _coefficients))


def _coefficients(columns: Columns) -> dict[str, Any]:
    common, first, second = (columns[name].to_numpy() for name in ("common", "first", "second"))
    either = np.maximum(first + second - common, 1)
    return {**{name: columns[name] for name in (*_PAIR, "common")}, "jaccard": common / either}


def _checked_pairs(edges: Collection, given: Collection) -> Collection:
    """The distinct pairs of nodes that a user has given."""
    kind, fields = node_type(edges), {field.name: field for field in given.node.columns}
    if any(name not in fields or fields[name].type != kind or fields[name].nullable for name in _PAIR):
        raise SchemaError(
            f"pairs must have columns 'src' and 'dst' of the type of the edges' ends, {kind}, not nullable",
            detail=f"the columns are {described(given.node.columns)}",
            hint="select(src=..., dst=...) or map to such columns first",
        )
    return given.select(*_PAIR).distinct("src")
