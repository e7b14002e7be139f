"""Ids of nodes as numbers, for programs that run on integers.

Loops over integers run as compiled programs; over strings they do not, and take many times as long
(docs/decisions/2026-11-16-graph-ids.md). So ids that do not fit into a lane (strings, binary values, long decimals,
structs) are replaced by numbers, and results are translated back.

The number of an id is a hash of 63 bits. Workers thus agree on numbers without talking to each other, and an id has the
same number in all programs, which share the indexes of numbered edges. An index by number has the id of each node. If
two ids have the same number, which for a million nodes happens once in twenty million graphs, results have an error
instead of rows: they are never wrong.

Numbers are not in the order of ids. `Numbering` is only for programs that do not depend on an order, or whose results
are put in order afterwards.

Cost: a hash for each edge that comes or goes, a look-up for each id in a changed row of a result, and the index of ids.
"""

from __future__ import annotations

from ikebana.encoding import Schema
from ikebana.engine.collection import Collection
from ikebana.expressions import Expression
from ikebana.expressions.core.builders import less, positive_hash
from ikebana.graph.plans import column, integer, pairs, refusing
from ikebana.operators.expression_steps import Computed


def need_numbers(nodes: Collection) -> bool:
    """Whether the ids of nodes, in a column `node`, do not fit into a lane."""
    return not Schema((), tuple(nodes.node.columns)).val.exact


class Numbering:
    """The numbers of the ids of a graph's nodes."""

    def __init__(self, nodes: Collection) -> None:
        """`nodes` has all ids of a graph, in a column `node`."""
        numbered = nodes.step(Computed((("number", _number(nodes, "node")), ("node", column(nodes, "node")))))
        self._ids = numbered.distinct("number").arrange("number")

    def numbers(self, rows: Collection, *names: str) -> Collection:
        """The rows with numbers instead of ids in some columns."""
        named = tuple((name, _number(rows, name) if name in names else column(rows, name)) for name in rows.columns)
        return rows.step(Computed(named))

    def ids(self, rows: Collection, *names: str) -> Collection:
        """The rows with ids instead of numbers in some columns."""
        for name in names:
            others = {other: other for other in rows.columns if other != name}
            rows = pairs(rows.arrange(name), self._ids, others, {name: "node"}).select(*rows.columns)
        counted = self._ids.rows().select("number").count("number", "count")
        what, hint = "two ids of nodes have the same hash", "rename one of them, or number the nodes yourself"
        return refusing(rows, counted, less(integer(1), column(counted, "count")), what, hint)


def _number(rows: Collection, name: str) -> Expression:
    return positive_hash(column(rows, name))
