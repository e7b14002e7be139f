"""Motifs: patterns of edges, found in a graph and kept up to date as its edges and vertices change.

`find` takes a pattern in the notation of GraphFrames (`ikebana.graph.motifs.pattern`) and returns a collection with a
row for each match, `explain` says how it is computed. A motif joins relations (`ikebana.graph.motifs.relations`), one
for each of its terms; matches are found vertex by vertex (`ikebana.graph.motifs.planner`).

Meaning. A match is an assignment of vertices and edges of the graph to those of the motif, such that all terms hold.
Different names may denote the same vertex; a name that is used again denotes the same one. A match that differs only in
anonymous elements is another row that is equal: multiplicities are those of a join, and edges that exist several times
count several times. A variable-length edge stands for the distinct pairs of vertices that a walk connects.

Cost: see `ikebana.graph.motifs.planner`. No intermediate result is stored, but for the pairs that walks connect, and
the distinct ends of edges where a term is negated.

Not guaranteed: anything about edges or vertices of negative multiplicity.
"""

from ikebana.graph.motifs.explaining import explain
from ikebana.graph.motifs.finding import count, find

__all__ = ["count", "explain", "find"]
