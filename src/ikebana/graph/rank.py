"""PageRank: as floats that add up to 1, and in integer units, which keeps changes local.

`pagerank` computes the ranks of networkx, by the same power iteration, again for each epoch in which the graph changes.
Ranks that add up to 1 all change with every edge, and each of them in every round, so following the changes through the
rounds of a loop takes longer than starting again (docs/decisions/2026-11-16-pagerank.md). The whole graph is one
group of a reduction. Its rows are pairs of nodes with three lanes of multiplicities: the edges from the one to the
other; and, for a node paired with itself, whether it is a node of the graph, and its weight in the personalization.

`pagerank_units` is a loop. Units are multiplicities: the row of a node has the number of its units as multiplicity.
Diffs of ordinary rows thus do all the work of joining shares with edges and adding up what a node receives. The units
of a node and the number of its edges are two lanes of one arrangement; a reduction divides the one by the other, and
its result is joined with the edges. Ranks of nodes far from a change stay as they are, and all workers take part.

Cost: see each program.

Not guaranteed: correct units if sums exceed 64 bits, which takes a hundred billion nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from ikebana.encoding import Schema
from ikebana.engine.collection import Collection
from ikebana.engine.columns import described
from ikebana.errors import SchemaError
from ikebana.expressions import Expression
from ikebana.expressions.core.builders import disjunction, is_nan, is_null, less
from ikebana.graph.plans import (
    Variables,
    at_least,
    check_nodes,
    column,
    fixpoint,
    node_type,
    nodes_of,
    pairs,
    refusing,
    zero_of,
)
from ikebana.operators.changes import Fields
from ikebana.operators.linear import Columns
from ikebana.operators.reducers import Groups, ReducedRows, Reducer

UNITS = 1_000_000
"""The units of each node at the start, in `pagerank_units`."""

UNITS_PER_ROUND = 150_000
"""The units that each node receives from outside in each round, in `pagerank_units`."""

PERCENT = 85
"""The percentage of its units that a node passes on, in `pagerank_units`."""

_WEIGHT_ONE = 1 << 32
"""The multiplicity that stands for a weight of 1 in a personalization."""

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


# Ranks that add up to 1.


def pagerank(
    edges: Collection,
    nodes: Collection | None = None,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    max_iterations: int = 100,
    personalization: Collection | None = None,
) -> Collection:
    """For each node, its `rank`, a float; the ranks add up to 1. Duplicate edges count separately.

    `nodes`: nodes that may have no edges.
    `damping`: the probability of following an edge, from 0 to 1. A node without outgoing edges passes its rank on to
    all nodes, or to those of the personalization.
    `tolerance`: the iteration ends when ranks change by less than this, on average.
    `max_iterations`: the iteration ends after so many rounds in any case.
    `personalization`: nodes with a column `weight`, a number: those to which one jumps instead of following an edge, in
    proportion to their weights. By default all nodes alike. Nodes that are not in the graph are ignored, weights are
    rounded to nine digits after the point, and a weight that is negative or null is an error of the result. If no
    weight is positive, all ranks are 0.

    Cost: each epoch in which the graph changes takes time in proportion to edges and iterations, on one worker: some
    nanoseconds for each edge and iteration. See `pagerank_units` for ranks that are maintained by changes.

    >>> import pyarrow as pa
    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> view = engine.install("ranks", pagerank(edges))
    >>> edges.insert({"src": [1, 2, 3], "dst": [2, 1, 1]})
    >>> _ = engine.advance()
    >>> [round(rank, 4) for rank in view.to_arrow().sort_by("node")["rank"].to_pylist()]
    [0.4865, 0.4635, 0.05]
    """
    if not 0 <= damping <= 1:
        raise SchemaError(f"damping is {damping}", hint="damping must be at least 0 and at most 1")
    if not tolerance > 0:
        raise SchemaError(f"tolerance is {tolerance}", hint="tolerance must be greater than 0")
    at_least(1, max_iterations, "max_iterations")
    kind = node_type(edges)
    rows = edges.select("src", "dst").explode(["src", "dst"], ConstantLanes((1, 0, 0)))
    if nodes is not None:
        given = check_nodes(nodes, kind, "the nodes").select(src="node", dst="node")
        rows = rows.concat(given.explode(["src", "dst"], ConstantLanes((0, 1, 0))))
    if personalization is not None:
        _check_personalization(personalization, kind)
        weighted = personalization.select("weight", src="node", dst="node")
        rows = rows.concat(weighted.explode(["src", "dst"], WeightLane()))
    how = PageRank(kind, damping, tolerance, max_iterations, personalization is not None)
    ranked = rows.reduce_by((), how)
    return ranked if personalization is None else _refusing_weights(ranked, personalization)


def _check_personalization(personalization: Collection, kind: pa.DataType) -> None:
    check_nodes(personalization, kind, "the personalization")
    weight = next((field.type for field in personalization.node.columns if field.name == "weight"), pa.null())
    if not (types.is_integer(weight) or types.is_floating(weight) or types.is_decimal(weight)):
        raise SchemaError(
            "the personalization must have a column 'weight' of numbers",
            detail=f"the columns are {described(personalization.node.columns)}",
            hint="select(node=..., weight=...) or map to such a column first",
        )


def _refusing_weights(ranked: Collection, personalization: Collection) -> Collection:
    weight = column(personalization, "weight")
    invalid: list[Expression] = [less(weight, zero_of(weight.type))]
    if weight.nullable:
        invalid.insert(0, is_null(weight))
    if types.is_floating(weight.type):
        invalid.append(is_nan(weight))
    what = "a weight of the personalization is negative, null or not a number"
    return refusing(ranked, personalization, disjunction(invalid), what, "change the weight, or remove the row")


@dataclass(frozen=True)
class WeightLane:
    """A function for `Collection.explode`: weights in the third of three lanes; 0 for invalid weights."""

    def __call__(self, columns: Columns) -> list[Any]:
        weights = pc.fill_null(pc.cast(columns["weight"], pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        return [0, 0, np.where(weights > 0, weights * _WEIGHT_ONE, 0).astype(np.int64)]


@dataclass(frozen=True)
class PageRank(Reducer):
    """The ranks of the nodes of a graph, whose edges, nodes and weights are the values of a group (see the module)."""

    node: pa.DataType
    damping: float
    tolerance: float
    max_iterations: int
    is_personal: bool

    def fields(self, schema: Schema) -> Fields:
        return pa.field("node", self.node, nullable=False), pa.field("rank", pa.float64(), nullable=False)

    def apply(self, groups: Groups) -> ReducedRows:
        columns, starts = groups.values.columns(), groups.starts.tolist()
        rows, nodes, ranks = [np.empty(0, np.int64)], [pa.array([], self.node)], [np.empty(0)]
        for start, end in pairwise([*starts, len(groups.group)]):
            source, target = (columns[name][start:end] for name in ("src", "dst"))
            known, values = self._ranked(source, target, groups.sums[:, start:end])
            rows.append(np.full(len(values), start))
            nodes.append(known)
            ranks.append(values)
        positions = np.concatenate(rows)
        outputs = [pa.concat_arrays(nodes), pa.array(np.concatenate(ranks))]
        return ReducedRows(positions, outputs, np.ones(len(positions), np.int64))

    def _ranked(self, source: pa.Array, target: pa.Array, sums: NDArray[np.int64]) -> tuple[pa.Array, Floats]:
        """The nodes of a graph, and their ranks."""
        edges, present, weights = sums
        encoded = pa.concat_arrays([source, target]).dictionary_encode()
        numbers, count = encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
        of_source, of_target = numbers[: len(source)], numbers[len(source) :]
        is_row = (edges > 0) | (present > 0)
        is_node = np.zeros(count, bool)
        is_node[of_source[is_row]] = is_node[of_target[is_row]] = True
        jumps = np.bincount(of_source, weights, count) * is_node if self.is_personal else is_node.astype(float)
        if not jumps.any():
            ranks = np.zeros(count)
        else:
            is_edge = edges > 0
            network = _Network(of_source[is_edge], of_target[is_edge], edges[is_edge].astype(float), count)
            ranks = self._iterated(network, jumps / jumps.sum(), is_node / is_node.sum())
        kept = np.flatnonzero(is_node)
        return encoded.dictionary.take(pa.array(kept)), ranks[kept]

    def _iterated(self, network: _Network, jumps: Floats, ranks: Floats) -> Floats:
        """The ranks after the last iteration. `jumps` and the first `ranks` add up to 1."""
        limit = self.tolerance * np.count_nonzero(ranks)
        for _ in range(self.max_iterations):
            before = ranks
            lost = before[network.is_sink].sum()
            ranks = self.damping * (network.passed_on(before) + lost * jumps) + (1 - self.damping) * jumps
            if np.abs(ranks - before).sum() < limit:
                break
        return ranks


class _Network:
    """Edges between numbered nodes, with their numbers."""

    def __init__(self, source: Positions, target: Positions, edges: Floats, count: int) -> None:
        self._source, self._target, self._count = source, target, count
        out = np.bincount(source, edges, count)
        self.is_sink = out == 0
        self._share = edges / out[source]

    def passed_on(self, ranks: Floats) -> Floats:
        """What each node receives if all pass their ranks on along their edges."""
        return np.bincount(self._target, ranks[self._source] * self._share, self._count).astype(np.float64)


# Units.


def pagerank_units(edges: Collection, rounds: int) -> Collection:
    """For each node that has an edge, its `rank` after a number of rounds, in units.

        rank(n) = 150,000 + the sum over edges m -> n of (85 * rank(m)) // (100 * edges out of m)

    Every node starts with a million units. Duplicate edges count separately. Nodes of rank 0 have no row. The units of
    a node without outgoing edges are lost, and so are the remainders of rounding.

    Cost: each round processes the edges of the nodes whose rank changes in it. A single edge changes the ranks of all
    nodes within `rounds` steps, up to rounding: in a well-connected graph, most nodes.

    >>> import pyarrow as pa
    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> view = engine.install("ranks", pagerank_units(edges, rounds=10))
    >>> edges.insert({"src": [1, 2, 3], "dst": [2, 1, 1]})
    >>> _ = engine.advance()
    >>> view.read().sort_by("node")["rank"].to_pylist()[2]
    150000
    """
    at_least(1, rounds, "rounds")
    nodes = nodes_of(edges, None).distinct()
    steps = edges.arrange("src")
    start, added = (nodes.explode(["node"], ConstantLanes((units,))) for units in (UNITS, UNITS_PER_ROUND))
    out = edges.select(node="src").explode(["node"], ConstantLanes((0, 1)))

    def body(variables: Variables) -> tuple[Variables, Collection]:
        ranks = variables["ranks"]
        units_and_edges = ranks.explode(["node"], ConstantLanes((1, 0))).concat(out.enter(ranks))
        shares = units_and_edges.arrange("node").reduce(Shares())
        received = pairs(shares, steps.enter(ranks), {}, {"node": "dst"}).concat(added.enter(ranks))
        return {"ranks": received}, received

    return fixpoint({"ranks": start}, body, rounds).count("node", "rank")


@dataclass(frozen=True)
class ConstantLanes:
    """A function for `Collection.explode`: the same integers for each row, one for each lane."""

    values: tuple[int, ...]

    def __call__(self, columns: Columns) -> list[int]:
        return list(self.values)


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
