"""All pairs: transitive closure and same generation, the classics of Datalog.

The variable of each loop is the pairs offered for the next round. A reduction keeps the distinct pairs, indexed by the
one column on which the next join needs them.

Cost: see each program. A pair of columns of up to 32 bits fits into one lane; wider pairs are hashed.

Not guaranteed: that results fit into memory. They may grow with the square of the number of nodes.
"""

from __future__ import annotations

from ikebana.engine.collection import Collection
from ikebana.expressions.core.builders import not_equal
from ikebana.graph.plans import Variables, column, fixpoint, node_type, pairs
from ikebana.operators.expression_steps import RowCondition


def transitive_closure(edges: Collection) -> Collection:
    """All pairs of nodes with a path of one or more edges from `src` to `dst`.

        closure(x, y) :- edge(x, y).
        closure(x, z) :- closure(x, y), edge(y, z).

    Cost: for each pair, the outgoing edges of its second node; as many rounds as the longest of all shortest paths has
    edges. The result may have as many rows as there are pairs of nodes.

    >>> import pyarrow as pa
    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
    >>> view = engine.install("closure", transitive_closure(edges))
    >>> edges.insert({"src": [1, 2], "dst": [2, 3]})
    >>> _ = engine.advance()
    >>> sorted(zip(*view.read().select(["src", "dst"]).to_pydict().values()))
    [(1, 2), (1, 3), (2, 3)]
    """
    node_type(edges)
    steps, start = edges.arrange("src"), edges.select("src", "dst")

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        known = offered.distinct("dst").arrange("dst")
        longer = pairs(known, steps.enter(offered), {"src": "src"}, {"dst": "dst"})
        return {"offered": longer.concat(start.enter(offered))}, known.rows()

    return fixpoint({"offered": start}, body).select("src", "dst")


def same_generation(edges: Collection) -> Collection:
    """Pairs of nodes that are equally far below a common ancestor; edges lead from parent to child.

        same(x, y) :- edge(p, x), edge(p, y), x != y.
        same(x, y) :- edge(a, x), same(a, b), edge(b, y).

    A node is its own peer if two paths of the same length lead to it from an ancestor.

    Cost: for each pair of peers, the pairs of their children; as many rounds as there are generations.

    >>> import pyarrow as pa
    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
    >>> view = engine.install("peers", same_generation(edges))
    >>> edges.insert({"src": [1, 1, 2, 3], "dst": [2, 3, 4, 5]})
    >>> _ = engine.advance()
    >>> sorted(zip(*view.read().select(["node", "peer"]).to_pydict().values()))
    [(2, 3), (3, 2), (4, 5), (5, 4)]
    """
    node_type(edges)
    children = edges.arrange("src")
    peers = pairs(children, children, {"node": "dst"}, {"peer": "dst"})
    siblings = peers.step(RowCondition(not_equal(column(peers, "node"), column(peers, "peer"))))

    def body(variables: Variables) -> tuple[Variables, Collection]:
        offered = variables["offered"]
        inner, known = children.enter(offered), offered.distinct("node").arrange("node")
        half = pairs(known, inner, {"peer": "peer"}, {"node": "dst"})
        below = pairs(half.arrange("peer"), inner, {"node": "node"}, {"peer": "dst"})
        return {"offered": below.concat(siblings.enter(offered))}, known.rows()

    return fixpoint({"offered": siblings}, body)
