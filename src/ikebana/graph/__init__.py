"""Graph programs: functions from collections to collections, kept up to date as edges are added and removed.

`Graph` has them as methods, for vertices and edges with any columns and ids of any type; start there. Programs as
functions are for plans: edges are a collection with columns `src` and `dst` of the same type, not nullable, and further
columns are ignored. Nodes that are arguments are a collection with a column `node` of that type. Results have a column
`node`. Programs run on ids of any type, but loops are compiled for ids of up to 64 bits only (`ikebana.graph.ids`).

    from ikebana import graph

    edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()}, key="src")
    view = engine.install("components", graph.connected_components(edges))

| program | result | each round of its loop |
|---|---|---|
| `degrees` | node, out_degree, in_degree, degree | no loop |
| `reach` | node | arrange, distinct, join |
| `shortest_paths` | node, distance | arrange, min, join |
| `landmark_distances` | node, landmark, distance | arrange, min, arrange, join |
| `bfs` | target, source, distance, path | arrange, min, join; then, to follow paths, arrange, join |
| `connected_components` | node, component | arrange, min, two joins |
| `strongly_connected_components` | node, component | two such loops, inside a loop |
| `label_propagation` | node, label | arrange, two joins, arrange, most frequent |
| `transitive_closure` | src, dst | arrange, join, arrange, distinct |
| `same_generation` | node, peer | arrange, join, arrange, join, arrange, distinct |
| `pagerank` | node, rank | no loop: the whole graph is one group of a reduction |
| `pagerank_units` | node, rank | arrange, reduce, join |
| `k_core` | node | arrange, threshold, join |
| `core_number` | node, core | arrange, join, arrange, h-index |
| `triangles`, `triangle_count`, `clustering` | a, b, c; node, and a number | no loop: a delta join |
| `k_truss` | src, dst | arrange, three joins, distinct, threshold |
| `common_neighbors`, `jaccard` | src, dst, and node or numbers | no loop: joins |

`read_edges` reads edge lists from files.

Programs that follow edges read the arrangements of the edges by `src` and by `dst` from outside their loops. Any number
of programs and other queries share these two arrangements. Programs that ignore direction or duplicates have an
arrangement of the distinct edges instead, which they share too.

Cost. A change takes time in proportion to the rows that it changes in each round of the loop, plus some overhead for
each round with changes. Programs that keep pairs of nodes (`transitive_closure`, `same_generation`,
`landmark_distances`, `bfs`, `strongly_connected_components`) are faster on columns of at most 32 bits, since a pair
then fits into one lane.

Not guaranteed: anything about edges or nodes of negative multiplicity.
"""

from ikebana.graph.closure import same_generation, transitive_closure
from ikebana.graph.communities import label_propagation
from ikebana.graph.components import connected_components, strongly_connected_components
from ikebana.graph.cores import core_number, k_core
from ikebana.graph.degrees import degrees
from ikebana.graph.files import read_edges
from ikebana.graph.graph import Graph
from ikebana.graph.paths import bfs, landmark_distances, reach, shortest_paths
from ikebana.graph.rank import pagerank, pagerank_units
from ikebana.graph.similarity import common_neighbors, jaccard
from ikebana.graph.triangles import clustering, k_truss, triangle_count, triangles

__all__ = [
    "Graph",
    "bfs",
    "clustering",
    "common_neighbors",
    "connected_components",
    "core_number",
    "degrees",
    "jaccard",
    "k_core",
    "k_truss",
    "label_propagation",
    "landmark_distances",
    "pagerank",
    "pagerank_units",
    "reach",
    "read_edges",
    "same_generation",
    "shortest_paths",
    "strongly_connected_components",
    "transitive_closure",
    "triangle_count",
    "triangles",
]
