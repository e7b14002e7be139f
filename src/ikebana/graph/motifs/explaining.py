"""`explain`: how a motif is computed, in words.

Cost: none; nothing is installed.
"""

from __future__ import annotations

from ikebana.engine.collection import Arrangement, Collection
from ikebana.graph.motifs.finding import relations_of
from ikebana.graph.motifs.pattern import parse
from ikebana.graph.motifs.planner import Check, Combine, Extend, LookUp, Path, Step, Use, is_cyclic, paths
from ikebana.graph.motifs.relations import Graph, Relation
from ikebana.plan.sharing import is_shareable

_CYCLIC = (
    "strategy: worst-case optimal extension, because the edges form a cycle: the relation that offers the fewest\n"
    "  vertices proposes, the others validate"
)
_ACYCLIC = "strategy: delta join, because the edges form no cycle: each vertex is looked up from one that is known"
_SINGLE = "strategy: none, a single relation is read"


def explain(pattern: str, vertices: Collection | None, edges: Collection) -> str:
    """How a motif is computed: the strategy and the reason for it, the order of extensions, and the indexes.

    There is a line for the changes of each relation of the motif: the vertices that they bind, and how further vertices
    follow. Indexes that any other query of the graph reads too are marked as shared.

    >>> import pyarrow as pa
    >>> from ikebana.engine import Engine
    >>> edges = Engine().input("edges", {"src": pa.int64(), "dst": pa.int64()})
    >>> print(explain("(a)-[]->(b); (b)-[]->(c); (c)-[]->(a)", None, edges))
    motif: (a)-[]->(b); (b)-[]->(c); (c)-[]->(a)
    """
    motif, graph = parse(pattern), Graph(vertices, edges)
    relations = relations_of(motif, graph)
    strategy = _SINGLE if len(relations) == 1 else _CYCLIC if is_cyclic(relations) else _ACYCLIC
    lines = [f"motif: {' '.join(pattern.split())}", strategy, "order:"]
    lines += [f"  {_describe_path(path)}" for path in paths(relations)]
    indexes = {line: None for path in paths(relations) for step in path.steps for line in _indexes(step)}
    lines += ["indexes:", *(f"  {line}" for line in indexes)] if indexes else []
    return "\n".join(lines)


def _describe_path(path: Path) -> str:
    what = "rows and changes of" if path.is_first else "changes of"
    known = ", ".join(filter(_is_named, path.start.vertices))
    start = f"{what} {path.start.label}" + (f" bind {known}" if known else "")
    return "; ".join([start, *map(_describe_step, path.steps)])


def _is_named(vertex: str) -> bool:
    return not vertex.startswith("(")


def _describe_step(step: Step) -> str:
    match step:
        case Check():
            return f"check {_label(step.use)}"
        case LookUp():
            unknown = [name for name in step.use.relation.vertices if name not in step.known]
            return f"look up {' '.join(_vertex(name) for name in unknown)} in {_label(step.use)}"
        case Extend():
            return f"extend by {_vertex(step.vertex)} with {' and '.join(map(_label, step.uses))}"
        case Combine():
            return f"combine with all of {_label(step.use)}"


def _vertex(name: str) -> str:
    return name if _is_named(name) else "a vertex"


def _label(use: Use) -> str:
    return f"{use.relation.label}{' as it was before' if use.strict else ''}"


def _indexes(step: Step) -> list[str]:
    """The indexes that a step reads."""
    if isinstance(step, Extend):
        described = []
        for use in step.uses:
            known = step.known(use)
            described.append(_describe_index(use.relation, use.relation.pair_index(known), (known,)))
            if use.relation.properties:
                described.append(_index_of(use.relation, use.relation.vertices))
        return described
    if isinstance(step, LookUp):
        return [_index_of(step.use.relation, step.known)]
    return [_index_of(step.use.relation, step.use.relation.vertices if isinstance(step, Check) else ())]


def _index_of(relation: Relation, known: tuple[str, ...]) -> str:
    return _describe_index(relation, relation.rows.arrange_by(relation.key(known)), known)


def _describe_index(relation: Relation, index: Arrangement, known: tuple[str, ...]) -> str:
    columns = ", ".join(relation.key(known)) or "nothing"
    what = relation.label if relation.is_derived else "vertices" if "id" in relation.columns.values() else "edges"
    return f"{what} by {columns}: {'shared' if is_shareable(index.node) else 'kept for this motif'}"
