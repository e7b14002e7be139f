"""`find`: the matches of a motif as a collection.

The terms of a motif become relations, the planner's paths the matches, and the columns of a match those of the result.

Cost: building a plan is independent of the data.
"""

from __future__ import annotations

from collections.abc import Sequence

from ikebana.engine.collection import Collection
from ikebana.errors import MotifError
from ikebana.expressions import Expression
from ikebana.expressions.core.builders import choose, struct
from ikebana.graph.motifs import planner
from ikebana.graph.motifs.pattern import Edge, Motif, Vertex, error_at, parse
from ikebana.graph.motifs.relations import HOPS, PATH, REVERSED, MotifGraph, MotifRelation, property_name
from ikebana.operators.expression_steps import Computed, Named


def find(
    vertices: Collection | None,
    edges: Collection,
    pattern: str,
    *,
    properties: bool = False,
    paths: bool = False,
) -> Collection:
    """The matches of a motif in a graph.

    `vertices`: a collection with a column `id`; further columns are properties. Every named vertex of a match is one
    of these. Without it, vertices are the ends of edges.
    `edges`: a collection with columns `src` and `dst`, of the same type as `id`; further columns are properties. Rows
    in which one of these is null are ignored.
    `pattern`: the motif.
    `properties`: whether columns of vertices are structs of all columns of `vertices`, as in GraphFrames, rather than
    ids.
    `paths`: whether there is an array of the vertices along each variable-length edge.

    The result has these columns, in the order of the pattern:

    | element | column |
    |---|---|
    | `(a)` | `a`: the id of the vertex, or a struct |
    | `-[e]->` | `e`: a struct of all columns of the edge |
    | `-[e*1..3]->` | `e`: the number of edges; with `paths`, also `e_path`: the ids of the vertices from end to end |

    >>> import pyarrow as pa
    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> view = engine.install("open", find(None, edges, "(a)-[]->(b); (b)-[]->(c); !(a)-[]->(c)"))
    >>> edges.insert({"src": [1, 2, 1, 3], "dst": [2, 3, 3, 4]})
    >>> _ = engine.advance()
    >>> sorted(zip(*view.read().select(["a", "b", "c"]).to_pydict().values()))
    [(1, 3, 4), (2, 3, 4)]
    """
    motif, graph = parse(pattern), MotifGraph(vertices, edges)
    relations = relations_of(motif, graph, properties=properties, paths=paths)
    named = _Result(motif, graph, relations).columns(properties=properties, paths=paths)
    return _matches(relations, [name for _, value in named for name in value.columns]).step(Computed(named))


def count(vertices: Collection | None, edges: Collection, pattern: str, *, by: Sequence[str] = ()) -> Collection:
    """The number of matches of a motif, as the column `count`; with `by`, for each value of some named vertices.

    No matches, no row. This is the same as counting the rows of `find`, and faster: matches are counted without
    being stored.

    >>> import pyarrow as pa
    >>> from ikebana.engine import Engine
    >>> engine = Engine()
    >>> edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> view = engine.install("paths", count(None, edges, "(a)-[]->(b); (b)-[]->(c)", by=["b"]))
    >>> edges.insert({"src": [1, 2, 2], "dst": [2, 3, 4]})
    >>> _ = engine.advance()
    >>> view.read().select(["b", "count"]).to_pylist()
    [{'b': 2, 'count': 2}]
    """
    motif, graph = parse(pattern), MotifGraph(vertices, edges)
    named = [element.name for element in motif.elements if isinstance(element, Vertex)]
    unknown = [name for name in by if name not in named]
    if unknown:
        raise MotifError(
            f"there is no vertex {unknown[0]!r}",
            detail=f"the named vertices of {pattern} are {', '.join(named) or 'none'}",
            hint="count by named vertices",
        )
    return _matches(relations_of(motif, graph), list(by)).count(tuple(by))


def _matches(relations: Sequence[MotifRelation], columns: Sequence[str]) -> Collection:
    """All matches, with these columns."""
    columns = list(dict.fromkeys(columns))
    matches = [path.matches(columns) for path in planner.paths(relations)]
    return matches[0].with_paths(*matches[1:])


def relations_of(
    motif: Motif, graph: MotifGraph, *, properties: bool = False, paths: bool = False
) -> list[MotifRelation]:
    """The relations that are joined: edges, vertices, and edges that must not exist.

    Walks come after edges: a match of the first relation is extended when the motif is installed.
    """
    edges = sorted(motif.positive, key=lambda edge: edge.is_variable)
    relations = [graph.edge(edge, paths=paths) for edge in edges]
    connected = {name for edge in edges for name in edge.ends}
    named = [element.name for element in motif.elements if isinstance(element, Vertex)]
    if graph.vertices is None:
        named, properties = [name for name in named if name not in connected], False
    relations += [graph.vertex(name, properties=properties) for name in named]
    return relations + [graph.edge(edge) for edge in motif.negated]


class _Result:
    """The columns of the result, computed from those of matches."""

    def __init__(self, motif: Motif, graph: MotifGraph, relations: Sequence[MotifRelation]) -> None:
        self._motif, self._graph = motif, graph
        self._known = {name: value for relation in relations for name, value in relation.values.items()}

    def columns(self, *, properties: bool, paths: bool) -> Named:
        """The columns, in the order of the pattern; raises if two would have the same name."""
        named: dict[str, Expression] = {}
        for element in self._motif.elements:
            columns = self._element(element, properties=properties, paths=paths)
            clash = columns.keys() & {other.name for other in self._motif.elements if other is not element}
            if clash:
                what = f"{min(clash)!r} is the column for the path of {element.name!r}"
                raise error_at(self._motif.text, element.at, what, hint="rename one of the two")
            named |= columns
        return tuple(named.items())

    def _element(self, element: Vertex | Edge, *, properties: bool, paths: bool) -> dict[str, Expression]:
        name = element.name
        if isinstance(element, Vertex):
            return {name: self._vertex(name) if properties else self._column(name)}
        if element.is_variable:
            path = {f"{name}_path": self._property(name, PATH)} if paths else {}
            return {name: self._property(name, HOPS), **path}
        return {name: self._edge(element)}

    def _column(self, name: str) -> Expression:
        return self._known[name]

    def _property(self, element: str, name: str) -> Expression:
        return self._column(property_name(element, name))

    def _vertex(self, name: str) -> Expression:
        vertices = self._graph.vertices
        others = [] if vertices is None else [other for other in vertices.columns if other != "id"]
        return struct([("id", self._column(name)), *((other, self._property(name, other)) for other in others)])

    def _edge(self, edge: Edge) -> Expression:
        source, target = self._column(edge.src.name), self._column(edge.dst.name)
        if not edge.is_directed:
            is_reversed = self._property(edge.name, REVERSED)
            source, target = choose(is_reversed, target, source), choose(is_reversed, source, target)
        ends = {"src": source, "dst": target}
        columns = self._graph.edges.columns
        return struct([(name, ends[name] if name in ends else self._property(edge.name, name)) for name in columns])
