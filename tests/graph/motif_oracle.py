"""Motifs by trying every assignment of vertices and edges: the oracle for `ikebana.graph.motifs`.

It shares the parser with what it tests, and nothing else. Results are counters of rows, as tuples in the order of the
columns.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ikebana.graph.motifs.pattern import Edge, Motif, Vertex, parse

Edges = Counter[tuple[Any, ...]]
"""Edges with their multiplicities: source, target, properties."""


def matches(pattern: str, edges: Edges, vertices: Counter[Any] | None = None, *, paths: bool = False) -> Counter[Any]:
    """The matches of a motif with their multiplicities."""
    motif = parse(pattern)
    ids = sorted({end for src, dst, *_ in edges for end in (src, dst)} | set(vertices or ()))
    found: Counter[Any] = Counter()
    for values in itertools.product(ids, repeat=len(motif.vertices)):
        known = dict(zip(motif.vertices, values, strict=True))
        count = _vertex_count(motif, known, edges, vertices)
        if count and not any(_exists(edge, known, edges, ids) for edge in motif.negated):
            for row, factor in _rows(motif, known, edges, paths=paths):
                found[row] += count * factor
    return found


def _vertex_count(motif: Motif, known: Mapping[str, Any], edges: Edges, vertices: Counter[Any] | None) -> int:
    """How often the named vertices exist together."""
    count = 1
    for element in motif.elements:
        if isinstance(element, Vertex) and vertices is not None:
            count *= vertices[known[element.name]]
    return count


def _exists(edge: Edge, known: Mapping[str, Any], edges: Edges, ids: list[Any]) -> bool:
    """Whether an edge exists between known vertices, or any vertices where it is anonymous."""
    ends = [[known[end.name]] if end.is_named else ids for end in (edge.src, edge.dst)]
    return any(_choices(edge, src, dst, edges, paths=False) for src in ends[0] for dst in ends[1])


def _choices(edge: Edge, src: Any, dst: Any, edges: Edges, *, paths: bool) -> list[tuple[tuple[Any, ...], int]]:
    """The columns that an edge may have between two vertices, with multiplicities."""
    if edge.is_variable:
        return _walks(edge, src, dst, edges, paths=paths)
    choices = [(row, count) for row, count in edges.items() if row[:2] == (src, dst)]
    if not edge.is_directed and src != dst:
        choices += [(row, count) for row, count in edges.items() if row[:2] == (dst, src)]
    return [((row,), count) for row, count in choices]


def _walks(edge: Edge, src: Any, dst: Any, edges: Edges, *, paths: bool) -> list[tuple[tuple[Any, ...], int]]:
    assert edge.least is not None and edge.most is not None
    steps = {(one, other) for one, other, *_ in edges}
    if not edge.is_directed:
        steps |= {(other, one) for one, other in steps}
    walks, found = {(src,)}, set()
    for hops in range(1, edge.most + 1):
        walks = {(*walk, after) for walk in walks for before, after in steps if before == walk[-1]}
        if hops >= edge.least:
            ending = {walk for walk in walks if walk[-1] == dst}
            found |= {(hops, walk) for walk in ending} if paths and edge.name else {(hops,) for _ in ending}
    if not edge.name:
        return [((), 1)] if found else []
    return [(columns, 1) for columns in found]


def _rows(motif: Motif, known: Mapping[str, Any], edges: Edges, *, paths: bool) -> Iterator[tuple[Any, int]]:
    """The rows of an assignment of vertices, one for each choice of edges."""
    choices = [
        _choices(edge, known[edge.src.name], known[edge.dst.name], edges, paths=paths) for edge in motif.positive
    ]
    for chosen in itertools.product(*choices):
        count = 1
        columns: dict[str, tuple[Any, ...]] = {}
        for edge, (values, factor) in zip(motif.positive, chosen, strict=True):
            count *= factor
            columns[edge.name] = values
        row: list[Any] = []
        for element in motif.elements:
            row += [known[element.name]] if isinstance(element, Vertex) else columns[element.name]
        yield tuple(row), count


def rows_of(table: pa.Table) -> Counter[Any]:
    """The rows of a view with their multiplicities: structs and arrays as tuples."""
    found: Counter[Any] = Counter()
    for row in table.to_pylist():
        count = row.pop("diff", 1)
        found[tuple(_plain(value) for value in row.values())] += count
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(value.values())
    return tuple(value) if isinstance(value, list) else value
