"""PageRank in integer arithmetic, which makes results reproducible.

Every node starts with a million units. In each round it passes 85 percent of its units on along its outgoing edges, in
equal shares rounded down, and receives 150,000 units from outside. The units of a node without outgoing edges are lost,
and so are the remainders of rounding.

Units are multiplicities: the row of a node has the number of its units as multiplicity. Diffs of ordinary rows thus do
all the work of joining shares with edges and adding up what a node receives. The units of a node and the number of its
edges are two lanes of one arrangement; a reduction divides the one by the other, and its result is joined with the
edges.

Cost: see `pagerank`.

Not guaranteed: correct results if sums exceed 64 bits, which takes a hundred billion nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ikebana.encoding import Schema
from ikebana.engine.collection import Collection
from ikebana.errors import SchemaError
from ikebana.graph.plans import Variables, fixpoint, node_type, pairs
from ikebana.operators.changes import Fields
from ikebana.operators.reducers import Groups, ReducedRows, Reducer

UNITS = 1_000_000
"""The units of each node at the start."""

UNITS_PER_ROUND = 150_000
"""The units that each node receives from outside in each round."""

PERCENT = 85
"""The percentage of its units that a node passes on."""


def pagerank(edges: Collection, rounds: int) -> Collection:
    """For each node that has an edge, its `rank` after a number of rounds, in units (see the module).

        rank(n) = 150,000 + the sum over edges m -> n of (85 * rank(m)) // (100 * edges out of m)

    Duplicate edges count separately. Nodes of rank 0 have no row.

    Cost: each round processes the edges of the nodes whose rank changes in it. A single edge changes the ranks of all
    nodes within `rounds` steps, up to rounding: in a well-connected graph, most nodes.

    >>> import pyarrow as pa
    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> view = engine.install("ranks", pagerank(edges, rounds=10))
    >>> edges.insert({"src": [1, 2, 3], "dst": [2, 1, 1]})
    >>> _ = engine.advance()
    >>> view.read().sort_by("node")["rank"].to_pylist()[2]
    150000
    """
    if rounds < 1:
        raise SchemaError(f"cannot compute ranks in {rounds} rounds", hint="`rounds` must be at least 1")
    node_type(edges)
    steps = edges.arrange("src")
    nodes = edges.select(node="src").concat(edges.select(node="dst")).distinct()
    added = nodes.explode(["node"], lambda columns: [UNITS_PER_ROUND])
    out = edges.select(node="src").explode(["node"], lambda columns: [0, 1])

    def body(variables: Variables) -> tuple[Variables, Collection]:
        ranks = variables["ranks"]
        units_and_edges = ranks.explode(["node"], lambda columns: [1, 0]).concat(out.enter(ranks))
        shares = units_and_edges.arrange("node").reduce(Shares())
        received = pairs(shares, steps.enter(ranks), {}, {"node": "dst"}).concat(added.enter(ranks))
        return {"ranks": received}, received

    start = nodes.explode(["node"], lambda columns: [UNITS])
    return fixpoint({"ranks": start}, body, rounds).count("node", "rank")


@dataclass(frozen=True)
class Shares(Reducer):
    """The units that a node passes on along each edge, as a multiplicity, from lanes (units, outgoing edges)."""

    def fields(self, schema: Schema) -> Fields:
        return ()

    def apply(self, groups: Groups) -> ReducedRows:
        units, edges = groups.sums
        shares: Any = PERCENT * units // (100 * np.maximum(edges, 1))
        rows = np.flatnonzero((edges > 0) & (shares > 0))
        return ReducedRows(rows, [], shares[rows])
