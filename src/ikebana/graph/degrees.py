"""Degrees: linear aggregates, counts that are kept in diffs.

Cost: constant for each change of an edge, whatever the degrees of its nodes.
"""

from __future__ import annotations

import pyarrow as pa

from ikebana.engine.collection import Collection
from ikebana.engine.columns import fields_of
from ikebana.graph.plans import check_nodes, column, integer, node_type
from ikebana.operators.expression_steps import Computed
from ikebana.operators.linear import ColumnLanes
from ikebana.operators.reducers import LinearAggregate, Sums

_COUNTS = ("out_degree", "in_degree", "degree")


def degrees(edges: Collection, nodes: Collection | None = None) -> Collection:
    """For each node, its `out_degree`, its `in_degree`, and their sum, its `degree`. Duplicate edges count separately.

    An edge from a node to itself counts once in each direction. `nodes`: nodes that may have no edges.

    Cost: constant for each change, whatever the degree.

    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> view = engine.install("degrees", degrees(edges))
    >>> edges.insert({"src": [1, 1, 2], "dst": [2, 3, 3]})
    >>> _ = engine.advance()
    >>> view.to_arrow().sort_by("node").to_pylist()[0]
    {'node': 1, 'out_degree': 2, 'in_degree': 0, 'degree': 2}
    """
    kind = node_type(edges)
    counted = _counted(edges, "src", (1, 0, 1)).concat(_counted(edges, "dst", (0, 1, 1)))
    if nodes is not None:
        counted = counted.concat(_counted(check_nodes(nodes, kind, "the nodes"), "node", (0, 0, 0)))
    outputs = fields_of(dict.fromkeys(_COUNTS, pa.int64()))
    lanes = counted.explode(("node",), ColumnLanes(_COUNTS))
    return lanes.reduce_by("node", LinearAggregate(outputs, Sums((1, 2, 3))))


def _counted(rows: Collection, name: str, counts: tuple[int, int, int]) -> Collection:
    """A column as `node`, and what each row adds to the counts of that node."""
    added = tuple((count, integer(value)) for count, value in zip(_COUNTS, counts, strict=True))
    return rows.step(Computed((("node", column(rows, name)), *added)))
