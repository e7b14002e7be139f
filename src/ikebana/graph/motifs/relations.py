"""The relations that a motif joins: one for each of its terms, over the edges and vertices of a graph.

A relation has a column for each of its one or two vertices, and columns of properties, where the motif names the edge
or the result is to have properties of vertices.

| term | relation |
|---|---|
| `(a)-[]->(b)` | the ends of all edges |
| `(a)-[e]->(b)` | all edges, with their properties |
| `(a)-[]-(b)` | the edges in both directions; a loop once |
| `(a)-[]->(a)` | the edges from a vertex to itself: one column |
| `(a)-[e*1..3]->(b)` | the distinct pairs that a walk connects, for each number of edges |
| `(a)` | the vertices |
| `!(a)-[]->(b)` | the distinct ends of edges, which matches must not have |

Collections are indexed as they are in the graph, under the names of its columns, and renamed in place: all motifs, and
all terms of a motif, share the indexes by source and by target. `pairs` of a relation are its vertices alone, `rows`
has the properties too; without properties they are the same.

Cost: walks keep an index of their pairs for each number of edges; everything else is a view of the graph's indexes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from ikebana.encoding.columns import is_nested
from ikebana.engine.collection import Arrangement, Collection
from ikebana.errors import SchemaError
from ikebana.expressions import Expression
from ikebana.expressions.core.base import Literal
from ikebana.expressions.core.builders import array, concat, equal, is_not_null, not_equal
from ikebana.graph.motifs.pattern import Edge
from ikebana.graph.plans import column, pairs
from ikebana.operators.expression_steps import Computed, RowCondition

REVERSED, HOPS, PATH = "reversed", "hops", "path"
"""Columns of properties: whether an undirected edge is traversed backwards, and what there is to know of a walk."""


@dataclass(frozen=True, eq=False)
class MotifRelation:
    """A term of a motif as a relation.

    `columns` maps the names of its vertices to columns of `pairs` and `rows`, and `properties` the names that columns
    of properties have in a match.
    """

    label: str
    source: str
    """What it is read from, in words."""
    columns: Mapping[str, str]
    pairs: Collection
    rows: Collection
    properties: Mapping[str, str] = field(default_factory=dict)
    is_negated: bool = False

    @property
    def vertices(self) -> tuple[str, ...]:
        return tuple(self.columns)

    @property
    def values(self) -> dict[str, Expression]:
        """The columns that it adds to a match."""
        origins = {**self.columns, **self.properties}
        return {name: column(self.rows, origin, name) for name, origin in origins.items()}

    def changes(self, *, later: bool) -> Collection:
        """All rows with the names that they have in a match; with `later`, those after the motif was installed."""
        rows = self.rows._later() if later else self.rows
        renamed = rows.select(**{**self.columns, **self.properties})
        return renamed.negate() if self.is_negated else renamed

    def index(self, known: Sequence[str]) -> Arrangement:
        """The rows by the vertices that are known, with the names that other columns have in a match."""
        others = {name: origin for name, origin in self.columns.items() if name not in known}
        arranged = self.rows.arrange_by(self.key(known))
        return arranged.select(**others, **self.properties) if len(self.rows.columns) > len(known) else arranged

    def pair_index(self, vertex: str) -> Arrangement:
        """The pairs by one of the two vertices."""
        return self.pairs.arrange(self.columns[vertex])

    def key(self, known: Sequence[str]) -> tuple[str, ...]:
        """The columns of the vertices that are known."""
        return tuple(origin for name, origin in self.columns.items() if name in known)

    def known(self, names: Sequence[str]) -> tuple[str, ...]:
        """The vertices that are among some names, in the order of the columns."""
        return tuple(name for name in self.columns if name in names)


class MotifGraph:
    """The edges and vertices in which motifs are found, checked."""

    def __init__(self, vertices: Collection | None, edges: Collection) -> None:
        self.edges = _checked(edges, ("src", "dst"), "edges")
        self.vertices = None if vertices is None else _checked(vertices, ("id",), "vertices")
        ids = [self.type, *(() if self.vertices is None else (column(self.vertices, "id").type,))]
        if ids[0] != ids[-1]:
            raise SchemaError(
                "edges and vertices have ids of different types",
                detail=f"src and dst are of type {ids[0]}, id is of type {ids[-1]}",
                hint="map one to the type of the other",
            )

    @property
    def type(self) -> pa.DataType:
        """The type of vertices."""
        return column(self.edges, "src").type

    @cached_property
    def properties(self) -> tuple[str, ...]:
        """The columns of edges other than their ends."""
        return tuple(name for name in self.edges.columns if name not in ("src", "dst"))

    @cached_property
    def structure(self) -> Collection:
        """The edges without properties."""
        return self.edges.select("src", "dst") if self.edges.columns != ["src", "dst"] else self.edges

    @cached_property
    def both_ways(self) -> Collection:
        """Each edge without properties in both directions; loops once."""
        proper = self.structure.step(RowCondition(not_equal(*_ends(self.structure))))
        return self.structure.concat(proper.select(src="dst", dst="src"))

    @cached_property
    def edges_both_ways(self) -> Collection:
        """Each edge in both directions, with a flag for those that are reversed; loops once."""
        source, target = _ends(self.edges)
        others = tuple((name, column(self.edges, name)) for name in self.properties)

        def directed(src: Expression, dst: Expression, is_reversed: bool) -> Computed:
            return Computed((("src", src), ("dst", dst), *others, (REVERSED, _literal(pa.bool_(), is_reversed))))

        proper = self.edges.step(RowCondition(not_equal(source, target)))
        return self.edges.step(directed(source, target, False)).concat(proper.step(directed(target, source, True)))

    def walks(self, edge: Edge, *, paths: bool) -> Collection:
        """The pairs that a walk connects, once for each number of edges, or with `paths` for each sequence of vertices.

        Vertices and edges may repeat on a walk.
        """
        assert edge.least is not None and edge.most is not None
        single = self.structure if edge.is_directed else self.both_ways
        steps = single.arrange("src")
        walk = single
        if paths:
            walk = single.step(Computed((*_named(single, "src", "dst"), (PATH, array(*_ends(single))))))
        lengths = []
        for hops in range(1, edge.most + 1):
            known = walk.distinct("dst")
            if hops >= edge.least:
                named = _named(known, *(name for name in ("src", "dst", PATH) if name in known.columns))
                lengths.append(known.step(Computed((*named, (HOPS, _literal(pa.int32(), hops))))))
            if hops < edge.most:
                walk = self._longer(known, steps)
        return lengths[0].concat(*lengths[1:])

    def _longer(self, known: Collection, steps: Arrangement) -> Collection:
        """Walks with one more edge."""
        kept = {name: name for name in known.columns if name != "dst"}
        longer = pairs(known.arrange("dst"), steps, kept, {"dst": "dst"})
        if PATH not in kept:
            return longer
        path = concat(column(longer, PATH), array(column(longer, "dst")))
        return longer.step(Computed((*_named(longer, "src", "dst"), (PATH, path))))

    # Relations.

    def edge(self, edge: Edge, *, paths: bool = False) -> MotifRelation:
        """The relation of an edge of a motif."""
        ends = {edge.src.name: "src", edge.dst.name: "dst"} if len(edge.ends) == 2 else {edge.src.name: "src"}
        if edge.is_negated:
            ends = {name: origin for name, origin in ends.items() if not name.startswith("(")}
        rows, properties = self._rows(edge, paths=paths)
        single = rows.select("src", "dst") if rows.columns != ["src", "dst"] else rows
        if len(edge.ends) == 1:
            rows = rows.step(RowCondition(equal(*_ends(rows))))
            single = rows.select("src")
        if edge.is_negated:
            single = single.select(*ends.values()) if single.columns != [*ends.values()] else single
            rows = single = single.distinct()
        elif edge.is_variable:
            single = single.distinct()
        source = "edges" if edge.is_directed else "edges in both directions"
        if edge.is_negated or edge.is_variable:
            source = str(edge)
        rows = rows if properties else single
        return MotifRelation(str(edge), source, ends, single, rows, properties, edge.is_negated)

    def _rows(self, edge: Edge, *, paths: bool) -> tuple[Collection, dict[str, str]]:
        """The rows of an edge of a motif, with properties if it is named, and the names of these in a match."""
        if edge.is_variable:
            of_walk = [HOPS, *([PATH] if paths else [])]
            return self.walks(edge, paths=paths and bool(edge.name)), _properties(edge.name, of_walk)
        if not edge.name or (edge.is_directed and not self.properties):
            return self.structure if edge.is_directed else self.both_ways, {}
        if edge.is_directed:
            return self.edges, _properties(edge.name, self.properties)
        return self.edges_both_ways, _properties(edge.name, [*self.properties, REVERSED])

    def vertex(self, name: str, *, properties: bool = False) -> MotifRelation:
        """The relation of a vertex of a motif."""
        rows, others = self._vertices()
        source = "vertices" if self.vertices is not None else "ends of edges"
        others = others if properties else ()
        return MotifRelation(f"({name})", source, {name: "id"}, rows, rows, _properties(name, others))

    def _vertices(self) -> tuple[Collection, Sequence[str]]:
        if self.vertices is not None:
            return self.vertices, [name for name in self.vertices.columns if name != "id"]
        ends = self.structure.select(id="src").concat(self.structure.select(id="dst"))
        return ends.distinct(), ()


def _checked(rows: Collection, names: Sequence[str], what: str) -> Collection:
    """The rows whose ids are not null; raises unless there are columns of these names, of one type that can be one."""
    fields = {field.name: field for field in rows.node.columns}
    types = {fields[name].type for name in names if name in fields}
    if len(types) != 1 or not fields.keys() >= set(names) or any(is_nested(kind) for kind in types):
        wanted = " and ".join(map(repr, names))
        raise SchemaError(
            f"{what} must have {'columns' if len(names) > 1 else 'a column'} {wanted}"
            f"{' of the same type' if len(names) > 1 else ''}, not nested",
            detail=f"the columns are {', '.join(f'{name}: {field.type}' for name, field in fields.items())}",
            hint=f"select({', '.join(f'{name}=...' for name in names)}) or map to such columns first",
        )
    if rows.node.scope:
        raise SchemaError(f"motifs cannot be found inside a loop: {what} are", hint="call find() outside of the loop")
    for name in names:
        if fields[name].nullable:
            rows = rows.step(RowCondition(is_not_null(column(rows, name))))
    return rows.declare([field.with_nullable(field.nullable and field.name not in names) for field in fields.values()])


def _ends(rows: Collection) -> tuple[Expression, Expression]:
    return column(rows, "src"), column(rows, "dst")


def _named(rows: Collection, *names: str) -> tuple[tuple[str, Expression], ...]:
    return tuple((name, column(rows, name)) for name in names)


def _literal(kind: pa.DataType, value: object) -> Expression:
    return Literal(kind, False, value)


def _properties(element: str, names: Sequence[str]) -> dict[str, str]:
    """The names of properties in a match, and in a relation."""
    return {property_name(element, name): name for name in names} if element else {}


def property_name(element: str, name: str) -> str:
    """The column of a match for a property of an element; no element has such a name."""
    return f"{element}.{name}"
