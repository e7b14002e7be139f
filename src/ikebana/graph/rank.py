"""PageRank in whole numbers: as reproducible as a sum.

Every node starts with a million units. In each round it gives 85 percent of what it has to the nodes its edges
lead to, in equal shares rounded down, and is given 150,000 units from outside. What a node without edges out has is
lost, and so are the remainders of rounding.

Units are multiplicities: a node's row is there as often as it has units. So joining shares with edges and adding
up what arrives is all done by the diffs of ordinary rows. What a node has and the number of its edges are two
lanes of one arrangement; the reduction that divides the one by the other gives an arrangement to join the edges with.

Cost: see `pagerank`.

Not guaranteed: sums beyond 64 bits, which takes a hundred billion nodes.
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
"""What each node has to begin with."""

GIVEN = 150_000
"""What each node is given in each round."""

PERCENT = 85
"""Of a hundred units, those that a node passes on."""


def pagerank(edges: Collection, rounds: int) -> Collection:
    """For each node of an edge its `rank` after a number of rounds, in units (see the module).

        rank(n) = 150,000 + the sum over edges m -> n of (85 * rank(m)) // (100 * edges out of m)

    An edge counts as often as it is there. Nodes of rank 0 have no row.

    Cost: each round passes over the edges of nodes whose rank changes in it. A single edge changes the ranks of all
    nodes within `rounds` steps of it, up to rounding: in a well connected graph, of most.

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
        raise SchemaError(f"cannot compute ranks in {rounds} rounds", hint="ask for one round or more")
    node_type(edges)
    steps = edges.arrange("src")
    nodes = edges.select(node="src").concat(edges.select(node="dst")).distinct()
    given = nodes.explode(["node"], lambda columns: [GIVEN])
    out = edges.select(node="src").explode(["node"], lambda columns: [0, 1])

    def body(variables: Variables) -> tuple[Variables, Collection]:
        ranks = variables["ranks"]
        divided = ranks.explode(["node"], lambda columns: [1, 0]).concat(out.enter(ranks))
        shares = divided.arrange("node").reduce(Shares())
        received = pairs(shares, steps.enter(ranks), {}, {"node": "dst"}).concat(given.enter(ranks))
        return {"ranks": received}, received

    start = nodes.explode(["node"], lambda columns: [UNITS])
    return fixpoint({"ranks": start}, body, rounds).count("node", "rank")


@dataclass(frozen=True)
class Shares(Reducer):
    """For a key with lanes (units, edges out), the units that go along each edge, as the multiplicity of the key."""

    def fields(self, schema: Schema) -> Fields:
        return ()

    def apply(self, groups: Groups) -> ReducedRows:
        units, edges = groups.sums
        shares: Any = PERCENT * units // (100 * np.maximum(edges, 1))
        rows = np.flatnonzero((edges > 0) & (shares > 0))
        return ReducedRows(rows, [], shares[rows])
