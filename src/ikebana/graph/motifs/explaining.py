"""`explain`: how a motif is computed, in words.

It describes a single worker. With several workers, or ids that are not fixed-width, an extension also reads the number
of edges of each vertex and an index by both ends (`ikebana.engine.extension_lookups`); `Engine.explain` shows these.

Cost: none; nothing is installed.
"""

from __future__ import annotations

from ikebana.engine.collection import Arrangement, Collection
from ikebana.graph.motifs.finding import relations_of
from ikebana.graph.motifs.pattern import parse
from ikebana.graph.motifs.planner import (
    CheckStep,
    Combine,
    DeltaPath,
    ExtendStep,
    LookUpStep,
    RelationUse,
    Step,
    is_cyclic,
    paths,
)
from ikebana.graph.motifs.relations import MotifGraph, MotifRelation
from ikebana.plan.sharing import is_shareable

_SINGLE = "the rows of a single relation"
_CYCLIC = "worst-case optimal extension, because the edges form a cycle"
_ACYCLIC = "delta join, because the edges form no cycle"


def explain(vertices: Collection | None, edges: Collection, pattern: str) -> str:
    """How a motif is computed: the strategy and the reason for it, the order of extensions, and the indexes.

    There is a line for the changes of each relation of the motif: the vertices that they bind, and how further vertices
    follow. An index is shared if all queries that need it read the same one, or kept for the motif.

    >>> import pyarrow as pa
    >>> from ikebana.engine import Engine
    >>> edges = Engine().input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> print(explain(None, edges, "(a)-[]->(b); (b)-[]->(c); !(a)-[]->(c)"))
    (a)-[]->(b); (b)-[]->(c); !(a)-[]->(c)
    strategy: worst-case optimal extension, because the edges form a cycle
    order:
      all of (a)-[]->(b): a, b; look up c in (b)-[]->(c); check !(a)-[]->(c)
      changes of (b)-[]->(c): b, c; look up a in (a)-[]->(b) before; check !(a)-[]->(c)
      changes of !(a)-[]->(c): a, c; extend by b, the fewest of (a)-[]->(b) before and (b)-[]->(c) before
    indexes:
      edges by src: shared
      edges by dst: shared
      !(a)-[]->(c) by src, dst: kept for this motif
    """
    motif, graph = parse(pattern), MotifGraph(vertices, edges)
    relations = relations_of(motif, graph)
    strategy = _SINGLE if len(relations) == 1 else _CYCLIC if is_cyclic(relations) else _ACYCLIC
    lines = [" ".join(pattern.split()), f"strategy: {strategy}", "order:"]
    lines += [f"  {_describe_path(path)}" for path in paths(relations)]
    indexes = dict.fromkeys(line for path in paths(relations) for step in path.steps for line in _indexes(step))
    return "\n".join(
        [*lines, *(["indexes:"] if indexes else []), *(f"  {line}" for line in sorted(indexes, key=_rank))]
    )


def _rank(line: str) -> tuple[bool, bool]:
    return not line.endswith("shared"), line.startswith("vertices")


def _describe_path(path: DeltaPath) -> str:
    start = f"{'all' if path.is_first else 'changes'} of {path.start.label}"
    known = ", ".join(name for name in path.start.vertices if _is_named(name))
    return "; ".join([f"{start}: {known}" if known else start, *map(_describe_step, path.steps)])


def _describe_step(step: Step) -> str:
    match step:
        case CheckStep():
            return f"check {_label(step.use)}"
        case LookUpStep():
            unknown = [name for name in step.use.relation.vertices if name not in step.known]
            return f"look up {', '.join(map(_vertex, unknown))} in {_label(step.use)}"
        case ExtendStep():
            return f"extend by {_vertex(step.vertex)}, the fewest of {' and '.join(map(_label, step.uses))}"
        case Combine():
            return f"combine with all of {_label(step.use)}"


def _is_named(vertex: str) -> bool:
    return not vertex.startswith("(")


def _vertex(name: str) -> str:
    return name if _is_named(name) else "a vertex"


def _label(use: RelationUse) -> str:
    return f"{use.relation.label}{' before' if use.strict else ''}"


def _indexes(step: Step) -> list[str]:
    """The indexes that a step reads, in words."""
    if isinstance(step, LookUpStep):
        return [_index_of(step.use.relation, step.known)]
    if not isinstance(step, ExtendStep):
        return [_index_of(step.use.relation, step.use.relation.vertices if isinstance(step, CheckStep) else ())]
    lines = []
    for use in step.uses:
        relation, known = use.relation, step.known(use)
        lines.append(_line(relation.source, relation.key((known,)), relation.pair_index(known)))
        if relation.properties:
            lines.append(_index_of(relation, relation.vertices))
    return lines


def _index_of(relation: MotifRelation, known: tuple[str, ...]) -> str:
    key = relation.key(known)
    source = f"{relation.source} with properties" if relation.properties else relation.source
    return _line(source, key, relation.rows.arrange_by(key))


def _line(source: str, key: tuple[str, ...], index: Arrangement) -> str:
    return (
        f"{source} by {', '.join(key) or 'nothing'}: {'shared' if is_shareable(index.node) else 'kept for this motif'}"
    )
