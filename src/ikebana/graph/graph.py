"""Graphs: vertices and edges with properties, and all graph programs as methods.

    g = Graph(people, follows, src="who", dst="whom", id="name")
    ranks = engine.install("ranks", g.pagerank())

Methods return collections, that is plans, which `Engine.install` runs. They have the names that users of networkx and
GraphFrames expect, and results have a column `node` with the user's ids.

Ids may be of any type, the same in `src`, `dst` and `id`. Integers of up to 32 bits are fastest. Ids that do not fit
into 64 bits are numbered inside (`ikebana.graph.ids`), which changes one thing: where a program prefers the lesser one
of two nodes (`bfs` among paths of equal length, `label_propagation` among labels of equal frequency), the order is that
of hashes, not of ids. A row whose id is null, or whose `src` or `dst` is null, is left out.

The nodes of a graph are its vertices and the ends of its edges, so an edge may lead to a node that has no row in
`vertices`. Duplicate edges are edges of their own where a program counts edges (`degrees`, `pagerank`,
`label_propagation`), and make no difference elsewhere. Arguments that are nodes may be lists of ids, or collections,
which may change; ids that are not nodes of the graph are ignored.

All programs read the same two indexes of the edges, by `src` and by `dst`, without the properties of the edges. So do
motifs (`find`) and interactive queries, which use ids of any type as they are.

Cost: building a plan is independent of the data. For the costs of results, see the programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ikebana.engine import Engine
from ikebana.engine.collection import Arrangement, Collection, constant
from ikebana.engine.columns import described
from ikebana.engine.prepared import KEEP
from ikebana.engine.views import View
from ikebana.errors import SchemaError
from ikebana.expressions.core.builders import conjunction, greatest, is_not_null, least
from ikebana.graph import motifs
from ikebana.graph.communities import label_propagation
from ikebana.graph.components import connected_components, strongly_connected_components
from ikebana.graph.cores import core_number, k_core
from ikebana.graph.degrees import degrees
from ikebana.graph.ids import Numbering, need_numbers
from ikebana.graph.interactive import Interactive
from ikebana.graph.paths import landmark_distances, path_nodes, reach, shortest_paths, with_paths
from ikebana.graph.plans import column, ends_of
from ikebana.graph.rank import pagerank
from ikebana.graph.similarity import common_neighbors, jaccard
from ikebana.graph.triangles import clustering, k_truss, triangle_count
from ikebana.operators.expression_steps import Computed, RowCondition

Source = Collection | Arrangement | View
"""What vertices and edges may be."""

Nodes = Iterable[Any] | Collection
"""Nodes as arguments: ids, or a collection whose column `node`, `id`, or only column has them."""

Pairs = Iterable[tuple[Any, Any]] | Collection
"""Pairs of nodes as arguments: pairs of ids, or a collection with columns `src` and `dst`."""


class Graph:
    """A graph: `vertices` with a column `id`, `edges` with columns `src` and `dst`, and any other columns."""

    def __init__(
        self, vertices: Source | None, edges: Source, src: str = "src", dst: str = "dst", id: str = "id"
    ) -> None:
        """`src`, `dst` and `id` are the names of the columns of ids. Without `vertices`, all nodes have edges.

        >>> from ikebana.engine import Engine
        >>> engine = Engine()
        >>> follows = engine.table("follows", {"who": pa.string(), "whom": pa.string()})
        >>> g = Graph(None, follows, src="who", dst="whom")
        >>> view = engine.install("components", g.connected_components())
        >>> _ = follows.insert({"who": ["bob", "dan"], "whom": ["ann", "eve"]})
        >>> view.to_arrow().sort_by("node").to_pylist()[1]
        {'node': 'bob', 'component': 'ann'}
        """
        self.edges = _with_ids(edges, {"src": src, "dst": dst}, "edges")
        """The edges: columns `src` and `dst`, then the others."""
        given = None if vertices is None else _with_ids(vertices, {"id": id}, "vertices")
        self.type = _type_of_ids(self.edges, given)
        """The type of ids."""
        self._given_vertices = given
        structure = self.edges if self.edges.columns == ["src", "dst"] else self.edges.select("src", "dst")
        self._edges_alone = structure  # without properties, with the user's ids
        isolated = None if given is None else given.select(node="id")
        ends = ends_of(structure)
        self.nodes = (ends if isolated is None else ends.concat(isolated)).distinct()
        """The vertices and the ends of the edges, each once, as `node`."""
        self.vertices = self.nodes.select(id="node") if given is None else given
        """The vertices: a column `id`, then the others."""
        self._numbering = Numbering(self.nodes) if need_numbers(self.nodes) else None
        self._structure = self._numbers(structure, "src", "dst")
        self._isolated = None if isolated is None else self._numbers(isolated, "node")

    # Degrees.

    def degrees(self) -> Collection:
        """For each node, its `out_degree`, `in_degree` and `degree` (`ikebana.graph.degrees`)."""
        return self._ids(degrees(self._structure, self._isolated), "node")

    def in_degrees(self) -> Collection:
        """For each node, the number of edges that lead to it, as `in_degree`."""
        return self.degrees().select("node", "in_degree")

    def out_degrees(self) -> Collection:
        """For each node, the number of edges that leave it, as `out_degree`."""
        return self.degrees().select("node", "out_degree")

    # Paths.

    def reach(self, sources: Nodes) -> Collection:
        """The nodes that can be reached from the sources, these included, as `node` (`ikebana.graph.reach`)."""
        return self._ids(reach(self._structure, self._given(sources, "sources")), "node")

    def bfs(self, sources: Nodes, targets: Nodes, max_path_length: int | None = None) -> Collection:
        """For each target that can be reached from a source, a shortest path: target, source, distance, path.

        The path is a list of nodes. See `ikebana.graph.bfs`.
        """
        begun, wanted = self._given(sources, "sources"), self._given(targets, "targets")
        nodes = path_nodes(self._structure, begun, wanted, max_path_length)
        return with_paths(self._ids(nodes, "target", "node"))

    def shortest_paths(self, landmarks: Nodes, weight: str | None = None) -> Collection:
        """For each node and each landmark that it reaches, the distance: node, landmark, distance.

        `weight` names a column of the edges; by default every edge has length 1. See
        `ikebana.graph.landmark_distances`.
        """
        given = self._given(landmarks, "landmarks")
        distances = landmark_distances(self._weighted(weight), given, weight)
        return self._ids(distances, "node", "landmark")

    def distances(self, sources: Nodes, weight: str | None = None) -> Collection:
        """For each node that can be reached, its distance from the nearest source: node, distance.

        `weight` names a column of the edges; by default every edge has length 1. See `ikebana.graph.shortest_paths`.
        """
        given = self._given(sources, "sources")
        return self._ids(shortest_paths(self._weighted(weight), given, weight), "node")

    # Components and communities.

    def connected_components(self) -> Collection:
        """For each node, the least node of its component, as `component`. Edges are undirected."""
        return self._named_components(connected_components(self._structure, self._isolated))

    def strongly_connected_components(self) -> Collection:
        """For each node, the least node that shares a cycle with it, as `component`; else the node itself."""
        return self._named_components(strongly_connected_components(self._structure, self._isolated))

    def label_propagation(self, max_iterations: int = 5) -> Collection:
        """For each node, the `label` of its community (`ikebana.graph.label_propagation`)."""
        labels = label_propagation(self._structure, self._isolated, max_iterations)
        return self._ids(labels, "node", "label")

    def k_core(self, k: int) -> Collection:
        """The nodes of the k-core: the largest set in which each node has at least `k` neighbours."""
        return self._ids(k_core(self._structure, k), "node")

    def core_number(self) -> Collection:
        """For each node, the greatest k for which it is in the k-core, as `core`."""
        return self._ids(core_number(self._structure, self._isolated), "node")

    def k_truss(self, k: int) -> Collection:
        """The edges of the k-truss, in which each edge is in at least `k` - 2 triangles: `src` < `dst`."""
        return self._in_order(self._ids(k_truss(self._structure, k), "src", "dst"))

    # Importance and similarity.

    def pagerank(
        self,
        damping: float = 0.85,
        tolerance: float = 1e-6,
        max_iterations: int = 100,
        personalization: Mapping[Any, float] | Collection | None = None,
    ) -> Collection:
        """For each node, its `rank`; ranks add up to 1 (`ikebana.graph.pagerank`).

        `personalization`: weights by node, or a collection with columns `node` and `weight`.
        """
        ranked = pagerank(
            self._structure,
            self._isolated,
            damping=damping,
            tolerance=tolerance,
            max_iterations=max_iterations,
            personalization=None if personalization is None else self._personalization(personalization),
        )
        return self._ids(ranked, "node")

    def triangle_count(self) -> Collection:
        """For each node, the number of `triangles` that it is in. Edges are undirected."""
        return self._ids(triangle_count(self._structure, self._isolated), "node")

    def clustering(self) -> Collection:
        """For each node, the fraction of pairs of its neighbours that are connected, as `clustering`."""
        return self._ids(clustering(self._structure, self._isolated), "node")

    def common_neighbors(self, pairs: Pairs | None = None) -> Collection:
        """The common neighbours of pairs of nodes, a row for each: src, dst, node. By default of all pairs."""
        neighbors = common_neighbors(self._structure, self._given_pairs(pairs))
        named = self._ids(neighbors, "src", "dst", "node")
        return self._in_order(named) if pairs is None else named

    def jaccard(self, pairs: Pairs | None = None) -> Collection:
        """The similarity of pairs of nodes: src, dst, common, jaccard. By default of all pairs with a common neighbour.

        See `ikebana.graph.jaccard`.
        """
        similarities = jaccard(self._structure, self._given_pairs(pairs))
        named = self._ids(similarities, "src", "dst")
        return self._in_order(named) if pairs is None else named

    # Motifs and interactive queries.

    def find(self, pattern: str, *, properties: bool = False, paths: bool = False) -> Collection:
        """The matches of a motif, such as `(a)-[e]->(b); (b)-[]->(c); !(a)-[]->(c)`, a row for each.

        Columns are the named vertices and edges. With `properties`, a vertex is a struct of all its columns rather than
        its id; with `paths`, edges of variable length have an array of vertices too. See `ikebana.graph.motifs.find`.
        """
        return motifs.find(self._given_vertices, self.edges, pattern, properties=properties, paths=paths)

    def count(self, pattern: str, *, by: Sequence[str] = ()) -> Collection:
        """The number of matches of a motif, as `count`; with `by`, for each value of some named vertices."""
        return motifs.count(self._given_vertices, self.edges, pattern, by=by)

    def explain(self, pattern: str) -> str:
        """How a motif is computed: the strategy, the order in which vertices are found, and the indexes."""
        return motifs.explain(self._given_vertices, self.edges, pattern)

    def interactive(self, engine: Engine, *, keep: int = KEEP) -> Interactive:
        """Look-ups, neighbours, two hops and shortest paths for arguments that come and go.

        `engine` runs them; `keep` is how many answers of each query stay open after they were read.
        """
        return Interactive(engine, self._edges_alone, vertices=self._given_vertices, keep=keep)

    # Numbers inside, ids outside.

    def _numbers(self, rows: Collection, *names: str) -> Collection:
        return rows if self._numbering is None else self._numbering.numbers(rows, *names)

    def _ids(self, rows: Collection, *names: str) -> Collection:
        return rows if self._numbering is None else self._numbering.ids(rows, *names)

    def _weighted(self, weight: str | None) -> Collection:
        if weight is None:
            return self._structure
        _check_columns(self.edges, [weight], "edges")
        return self._numbers(self.edges.select("src", "dst", **{weight: weight}), "src", "dst")

    def _named_components(self, components: Collection) -> Collection:
        """Components that are named after their least node, in the order of ids."""
        if self._numbering is None:
            return components
        of_nodes = self._numbering.ids(components, "node")
        names = of_nodes.select("component", least="node").min("component")
        return of_nodes.join(names, on="component").select(node="node", component="least")

    def _in_order(self, rows: Collection) -> Collection:
        """The rows with `src` < `dst` in the order of ids."""
        if self._numbering is None:
            return rows
        source, target = column(rows, "src"), column(rows, "dst")
        swapped = {"src": least(source, target), "dst": greatest(source, target)}
        return rows.step(Computed(tuple((name, swapped.get(name) or column(rows, name)) for name in rows.columns)))

    # Arguments.

    def _given(self, nodes: Nodes, what: str) -> Collection:
        """Nodes of the graph that a user has given, as numbers."""
        if isinstance(nodes, Collection):
            rows = self._checked(nodes, {"node": _node_column(nodes, what)}, what).select("node")
        else:
            rows = constant(_table({"node": self._array(nodes, what)}))
        return self._numbers(rows.semijoin(self.nodes), "node")

    def _given_pairs(self, pairs: Pairs | None) -> Collection | None:
        """Pairs of nodes that a user has given, as numbers."""
        if pairs is None:
            return None
        if isinstance(pairs, Collection):
            rows = self._checked(pairs, {"src": "src", "dst": "dst"}, "pairs").select("src", "dst")
        else:
            ends = [_ends(pair) for pair in pairs]
            sources, targets = ([pair[at] for pair in ends] for at in (0, 1))
            rows = constant(_table({"src": self._array(sources, "pairs"), "dst": self._array(targets, "pairs")}))
        return self._numbers(rows, "src", "dst")

    def _personalization(self, given: Mapping[Any, float] | Collection) -> Collection:
        """Nodes with weights that a user has given, as numbers."""
        if isinstance(given, Collection):
            rows = self._checked(given, {"node": _node_column(given, "the personalization")}, "the personalization")
        else:
            nodes = self._array(given, "the nodes of the personalization")
            weights = _array(list(given.values()), pa.float64(), "the weights of the personalization must be numbers")
            rows = constant(_table({"node": nodes, "weight": weights}))
        return self._numbers(rows, "node")

    def _checked(self, given: Collection, names: Mapping[str, str], what: str) -> Collection:
        """The rows of a collection, with columns of ids (`new: present name`), without nulls."""
        rows = _with_ids(given, names, what)
        _check_type(rows, list(names), self.type, what)
        return rows

    def _array(self, ids: Iterable[Any], what: str) -> pa.Array:
        if isinstance(ids, str | bytes):
            raise SchemaError(f"{what} must be a list of ids, not the single value {ids!r}", hint=f"write [{ids!r}]")
        return _array(list(ids), self.type, f"{what} must be ids of nodes, which are of type {self.type}")

    def __repr__(self) -> str:
        return f"<graph: vertices ({', '.join(self.vertices.columns)}), edges ({', '.join(self.edges.columns)})>"


# Columns.


def _with_ids(source: Source, names: Mapping[str, str], what: str) -> Collection:
    """The rows with columns of ids (`new: present name`) that are not null, first, and all other columns."""
    rows = _rows(source, what)
    _check_columns(rows, names.values(), what)
    others = [name for name in rows.columns if name not in names.values()]
    clash = [name for name in others if name in names]
    if clash:
        raise SchemaError(
            f"{what} have a column {clash[0]!r}, but their column {names[clash[0]]!r} is to be used under this name",
            hint="rename one of them first: select(..., new=old)",
        )
    if [*names.values(), *others] != rows.columns or any(new != old for new, old in names.items()):
        rows = rows.select(**{**names, **{name: name for name in others}})
    nullable = [field.name for field in rows.node.columns if field.nullable and field.name in names]
    if nullable:
        present = conjunction([is_not_null(column(rows, name)) for name in nullable])
        fields = [field.with_nullable(field.nullable and field.name not in names) for field in rows.node.columns]
        rows = rows.step(RowCondition(present)).declare(fields)
    return rows


def _rows(source: Source, what: str) -> Collection:
    if isinstance(source, Collection):
        return source
    if isinstance(source, Arrangement | View):
        return source.rows()
    raise SchemaError(
        f"{what} cannot be a value of type {type(source).__name__}",
        hint="give a collection: an input, a table, a view, or a query over them",
    )


def _check_columns(rows: Collection, names: Iterable[str], what: str) -> None:
    unknown = [name for name in names if name not in rows.columns]
    if unknown:
        raise SchemaError(
            f"{what} have no column {unknown[0]!r}", detail=f"the columns are {described(rows.node.columns)}"
        )


def _check_type(rows: Collection, names: Sequence[str], kind: pa.DataType, what: str) -> None:
    for name in names:
        if column(rows, name).type != kind:
            raise SchemaError(
                f"column {name!r} of {what} is of type {column(rows, name).type}, but ids are of type {kind}",
                hint="map it to the type of the ids first",
            )


def _type_of_ids(edges: Collection, vertices: Collection | None) -> pa.DataType:
    """The type of ids; raises if the columns have different types."""
    columns = {"src": column(edges, "src").type, "dst": column(edges, "dst").type}
    if vertices is not None:
        columns["id"] = column(vertices, "id").type
    if len(set(columns.values())) > 1:
        raise SchemaError(
            "the ids of a graph must all have the same type",
            detail=", ".join(f"{name}: {kind}" for name, kind in columns.items()),
            hint="map the columns of ids to one type first",
        )
    return columns["src"]


def _node_column(given: Collection, what: str) -> str:
    """The column of a collection that has the ids of nodes."""
    names = [name for name in ("node", "id") if name in given.columns] or given.columns
    if len(names) > 1 and names[0] not in ("node", "id"):
        raise SchemaError(f"{what} have no column 'node'", detail=f"the columns are {described(given.node.columns)}")
    return names[0]


def _ends(pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise SchemaError(f"{pair!r} is not a pair of nodes", hint="give a list of pairs: [(a, b), (c, d)]")
    return pair[0], pair[1]


def _array(values: list[Any], kind: pa.DataType, what: str) -> pa.Array:
    """Values as an array of a type, without nulls; `what` says what they must be."""
    try:
        array = pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise SchemaError(what, detail=str(error)) from None
    if array.null_count:
        raise SchemaError(what, detail="one of them is null", hint="leave it out")
    return array


def _table(columns: Mapping[str, pa.Array]) -> pa.Table:
    """A table of columns that are not null."""
    fields = [pa.field(name, array.type, nullable=False) for name, array in columns.items()]
    return pa.table(list(columns.values()), pa.schema(fields))
