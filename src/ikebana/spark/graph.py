"""Graphs of a session: vertices and edges are tables, views or DataFrames of the session, results are views.

    g = session.graph("people", "follows", src="who", dst="whom", id="name")
    g.pagerank()
    session.view("top", "SELECT node, rank FROM pagerank ORDER BY rank DESC LIMIT 10")

Every method of `ikebana.graph.Graph` is a method here, and returns a view of the session that is kept up to date: a
DataFrame, a feed of changes, and a source of SQL, also for another graph. The view has the name of the method, after
the graph's prefix, unless the call gives it another `name`.

Arguments that are nodes may be lists of ids, or tables, views, their names, or DataFrames, with a column `node`, `id`,
or only one column; the answer then changes with them.

Cost and guarantees are those of the programs in `ikebana.graph`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import DataFrame

from ikebana.engine.collection import Collection
from ikebana.engine.prepared import KEEP
from ikebana.graph import Graph
from ikebana.graph.interactive import Interactive
from ikebana.spark.querying import Relation
from ikebana.spark.table import Table
from ikebana.spark.view import View

if TYPE_CHECKING:
    from ikebana.spark.session import Session

Nodes = Relation | Iterable[Any]
"""Nodes as arguments: a list of ids, or a table or view, its name, or a DataFrame."""


class SessionGraph:
    """A graph on the workers of a session; `Session.graph` creates one."""

    def __init__(
        self, session: Session, vertices: Relation | None, edges: Relation, columns: Mapping[str, str], prefix: str
    ) -> None:
        """`columns` are the names of the columns `src`, `dst` and `id`."""
        self._session, self._prefix = session, prefix
        self._views: list[View] = []
        rows = None if vertices is None else session._queries.rows_of(vertices, "vertices")
        self.inner = Graph(rows, session._queries.rows_of(edges, "edges"), **columns)
        """The graph on the session's engine, whose methods return collections."""

    # Degrees.

    def degrees(self, *, name: str | None = None) -> View:
        """For each node, its `out_degree`, `in_degree` and `degree`."""
        return self._view(name or "degrees", self.inner.degrees())

    def in_degrees(self, *, name: str | None = None) -> View:
        """For each node, the number of edges that lead to it, as `in_degree`."""
        return self._view(name or "in_degrees", self.inner.in_degrees())

    def out_degrees(self, *, name: str | None = None) -> View:
        """For each node, the number of edges that leave it, as `out_degree`."""
        return self._view(name or "out_degrees", self.inner.out_degrees())

    # Paths.

    def reach(self, sources: Nodes, *, name: str | None = None) -> View:
        """The nodes that can be reached from the sources, these included, as `node`."""
        return self._view(name or "reach", self.inner.reach(self._nodes(sources, "sources")))

    def bfs(
        self, sources: Nodes, targets: Nodes, max_path_length: int | None = None, *, name: str | None = None
    ) -> View:
        """For each target that can be reached from a source, a shortest path: target, source, distance, path."""
        ends = self._nodes(sources, "sources"), self._nodes(targets, "targets")
        return self._view(name or "bfs", self.inner.bfs(*ends, max_path_length))

    def shortest_paths(self, landmarks: Nodes, weight: str | None = None, *, name: str | None = None) -> View:
        """For each node and each landmark that it reaches, the distance: node, landmark, distance."""
        distances = self.inner.shortest_paths(self._nodes(landmarks, "landmarks"), weight)
        return self._view(name or "shortest_paths", distances)

    def distances(self, sources: Nodes, weight: str | None = None, *, name: str | None = None) -> View:
        """For each node that can be reached, its distance from the nearest source: node, distance."""
        return self._view(name or "distances", self.inner.distances(self._nodes(sources, "sources"), weight))

    # Components and communities.

    def connected_components(self, *, name: str | None = None) -> View:
        """For each node, the least node of its component, as `component`. Edges are undirected."""
        return self._view(name or "connected_components", self.inner.connected_components())

    def strongly_connected_components(self, *, name: str | None = None) -> View:
        """For each node, the least node that shares a cycle with it, as `component`; else the node itself."""
        return self._view(name or "strongly_connected_components", self.inner.strongly_connected_components())

    def label_propagation(self, max_iterations: int = 5, *, name: str | None = None) -> View:
        """For each node, the `label` of its community."""
        return self._view(name or "label_propagation", self.inner.label_propagation(max_iterations))

    def k_core(self, k: int, *, name: str | None = None) -> View:
        """The nodes of the k-core: the largest set in which each node has at least `k` neighbours."""
        return self._view(name or "k_core", self.inner.k_core(k))

    def core_number(self, *, name: str | None = None) -> View:
        """For each node, the greatest k for which it is in the k-core, as `core`."""
        return self._view(name or "core_number", self.inner.core_number())

    def k_truss(self, k: int, *, name: str | None = None) -> View:
        """The edges of the k-truss, in which each edge is in at least `k` - 2 triangles: `src` < `dst`."""
        return self._view(name or "k_truss", self.inner.k_truss(k))

    # Importance and similarity.

    def pagerank(
        self,
        damping: float = 0.85,
        tolerance: float = 1e-6,
        max_iterations: int = 100,
        personalization: Mapping[Any, float] | Relation | None = None,
        *,
        name: str | None = None,
    ) -> View:
        """For each node, its `rank`; ranks add up to 1.

        `personalization`: weights by node, or a table, view or DataFrame with columns `node` and `weight`.
        """
        weights = personalization
        if weights is not None and not isinstance(weights, Mapping):
            weights = self._session._queries.rows_of(weights, "the personalization")
        return self._view(name or "pagerank", self.inner.pagerank(damping, tolerance, max_iterations, weights))

    def triangle_count(self, *, name: str | None = None) -> View:
        """For each node, the number of `triangles` that it is in. Edges are undirected."""
        return self._view(name or "triangle_count", self.inner.triangle_count())

    def clustering(self, *, name: str | None = None) -> View:
        """For each node, the fraction of pairs of its neighbours that are connected, as `clustering`."""
        return self._view(name or "clustering", self.inner.clustering())

    def common_neighbors(
        self, pairs: Relation | Iterable[tuple[Any, Any]] | None = None, *, name: str | None = None
    ) -> View:
        """The common neighbours of pairs of nodes, a row for each: src, dst, node. By default of all pairs."""
        return self._view(name or "common_neighbors", self.inner.common_neighbors(self._pairs(pairs)))

    def jaccard(self, pairs: Relation | Iterable[tuple[Any, Any]] | None = None, *, name: str | None = None) -> View:
        """The similarity of pairs of nodes: src, dst, common, jaccard. By default of all with a common neighbour."""
        return self._view(name or "jaccard", self.inner.jaccard(self._pairs(pairs)))

    # Motifs and interactive queries.

    def find(self, pattern: str, *, properties: bool = False, paths: bool = False, name: str | None = None) -> View:
        """The matches of a motif, such as `(a)-[e]->(b); (b)-[]->(c); !(a)-[]->(c)`, a row for each.

        Columns are the named vertices and edges. With `properties`, a vertex is a struct of all its columns rather than
        its id; with `paths`, edges of variable length have an array of vertices too.
        """
        return self._view(name or "find", self.inner.find(pattern, properties=properties, paths=paths))

    def count(self, pattern: str, *, by: Sequence[str] = (), name: str | None = None) -> View:
        """The number of matches of a motif, as `count`; with `by`, for each value of some named vertices."""
        return self._view(name or "count", self.inner.count(pattern, by=by))

    def explain(self, pattern: str) -> str:
        """How a motif is computed: the strategy, the order in which vertices are found, and the indexes."""
        return self.inner.explain(pattern)

    def interactive(self, *, keep: int = KEEP) -> Interactive:
        """Look-ups, neighbours, two hops and shortest paths for arguments that come and go.

        `keep` is how many answers of each query stay open after they were read.
        """
        return self.inner.interactive(self._session.engine, keep=keep)

    # Views.

    @property
    def views(self) -> list[View]:
        """The views that methods of this graph have created and that exist."""
        present = {view.name for view in self._session.views()}
        return [view for view in self._views if view.name in present]

    def _view(self, name: str, rows: Collection) -> View:
        view = self._session.view(self._prefix + name, rows)
        self._views.append(view)
        return view

    def _nodes(self, given: Nodes, what: str) -> Collection | Iterable[Any]:
        return self._session._queries.rows_of(given, what) if isinstance(given, _RELATIONS) else given

    def _pairs(self, given: Any) -> Any:
        return None if given is None else self._nodes(given, "pairs")

    def close(self) -> None:
        """Drop the graph's views. Raises if another view reads one of them: drop that view first."""
        while self._views:
            self._views[-1].drop()
            self._views.pop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{str(self.inner).rstrip('>')}, views: {', '.join(view.name for view in self._views) or 'none'}>"


_RELATIONS = (str, Table, View, Collection, DataFrame)
"""Arguments that are not lists of ids."""
