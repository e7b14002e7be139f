"""Communities by label propagation.

Every node starts with its own id as label. In each round, all nodes at once take the label that most of their
neighbours have; if several labels are equally frequent, the least of them. Edges are undirected: an edge is a vote of
each end for its label at the other end, and duplicate edges are votes of their own. An edge from a node to itself is
two votes of that node for the label that it has. A node without edges keeps its label.

Labels may alternate forever, for instance between the two sides of a bipartite graph, so the number of rounds is
given.

Cost: see `label_propagation`.

Not guaranteed: that labels have converged after the given rounds, or that communities are good ones. The rule for equal
votes is deterministic, and favours lesser ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.engine.collection import Collection
from ikebana.graph.plans import Variables, at_least, check_nodes, ends_of, fixpoint, node_type, pairs
from ikebana.operators.changes import Fields
from ikebana.operators.reducers import Groups, ReducedRows, Reducer, TopK


def label_propagation(edges: Collection, nodes: Collection | None = None, max_iterations: int = 5) -> Collection:
    """For each node, the `label` of its community after `max_iterations` rounds (see the module).

    `nodes`: nodes that may have no edges.

    Cost: each round processes the edges of the nodes whose label changes in it; for a change of the graph, of the nodes
    whose label in that round is another one than before.

    >>> import pyarrow as pa
    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> view = engine.install("communities", label_propagation(edges))
    >>> edges.insert({"src": [1, 2, 3, 3, 4, 5, 6], "dst": [2, 3, 1, 4, 5, 6, 4]})
    >>> _ = engine.advance()
    >>> view.to_arrow().sort_by("node")["label"].to_pylist()
    [1, 1, 1, 3, 3, 3]
    """
    at_least(1, max_iterations, "max_iterations")
    kind = node_type(edges)
    forward, backward = edges.arrange("src"), edges.arrange("dst")
    ends = ends_of(edges).distinct()
    initial = ends.select(node="node", label="node")

    def body(variables: Variables) -> tuple[Variables, Collection]:
        labels = variables["labels"]
        present = labels.arrange("node")
        votes = pairs(present, forward.enter(labels), {"label": "label"}, {"node": "dst"})
        votes = votes.concat(pairs(present, backward.enter(labels), {"label": "label"}, {"node": "src"}))
        chosen = votes.select("node", "label").reduce_by("node", MostFrequent())
        return {"labels": chosen}, chosen

    labels = fixpoint({"labels": initial}, body, max_iterations)
    if nodes is None:
        return labels
    isolated = check_nodes(nodes, kind, "the nodes").distinct().antijoin(ends)
    return labels.concat(isolated.select(node="node", label="node"))


@dataclass(frozen=True)
class MostFrequent(Reducer):
    """The value of the greatest multiplicity, once; among several such values, the least."""

    label = "most frequent"

    def fields(self, schema: Schema) -> Fields:
        return schema.val.fields

    def apply(self, groups: Groups) -> ReducedRows:
        starts = groups.starts
        if not len(starts):
            return ReducedRows(starts, [pa.array([], field.type) for field in groups.values.schema.val.fields], starts)
        counts, group = groups.sums[0], np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(groups.group))))
        frequent = np.flatnonzero(counts == np.maximum.reduceat(counts, starts)[group])
        # among them, the first by value
        names = tuple(field.name for field in groups.values.schema.val.fields)
        once = Groups(groups.group[frequent], groups.values.take(frequent), np.ones((1, len(frequent)), np.int64))
        least = TopK(1, names, greatest=False).apply(once)
        return ReducedRows(frequent[least.rows], least.columns, least.diffs)
