"""Oracles for the programs that networkx and GraphFrames users know: from a changing graph to a set of rows.

A graph has edges with multiplicities, nodes of its own, and nodes that are arguments of programs. Most oracles are
networkx; label propagation and the choice among shortest paths are plain Python, from their definitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import pyarrow as pa
import pyarrow.compute as pc
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python  # the one that does not need scipy

from ikebana import graph
from ikebana.engine.collection import Collection
from tests.graph.oracles import Edge, named, weight

Row = tuple[Any, ...]


@dataclass
class State:
    """A graph with duplicate edges and nodes without edges, and arguments."""

    edges: Counter[Edge] = field(default_factory=Counter)
    nodes: set[int] = field(default_factory=set)
    roots: set[int] = field(default_factory=set)
    pairs: set[Edge] = field(default_factory=set)

    @property
    def directed(self) -> nx.MultiDiGraph:
        network = nx.MultiDiGraph()
        network.add_nodes_from(self.nodes)
        network.add_weighted_edges_from((*edge, weight(edge)) for edge in self.edges.elements())
        return network

    @property
    def simple(self) -> nx.Graph:
        """Without directions, duplicates, and edges from a node to itself."""
        network = nx.Graph(self.directed)
        network.remove_edges_from(list(nx.selfloop_edges(network)))
        return network


@dataclass(frozen=True)
class Inputs:
    """The collections of a graph in an engine."""

    edges: Collection
    nodes: Collection
    roots: Collection
    pairs: Collection


def degrees(state: State) -> set[Row]:
    network = state.directed
    return {(node, network.out_degree(node), network.in_degree(node), network.degree(node)) for node in network}


def distances(state: State, weight_of: str | None) -> set[Row]:
    """Distances from each node to each of the roots, by a search in the reversed graph from each root."""
    network = state.directed.reverse()
    network.add_nodes_from(state.roots)
    length: Any = weight_of or (lambda a, b, data: 1)
    found = ((root, nx.single_source_dijkstra_path_length(network, root, weight=length)) for root in state.roots)
    return {(node, root, distance) for root, nodes in found for node, distance in nodes.items()}


def bfs(state: State, limit: int | None) -> set[Row]:
    """From the roots to the nodes, with the least predecessor everywhere."""
    depth, layer, previous = dict.fromkeys(state.roots, 0), set(state.roots), {}
    while layer and (limit is None or depth[min(layer)] < limit):
        found: dict[int, int] = {}
        for source, target in sorted(state.edges, reverse=True):
            if source in layer and target not in depth:
                found[target] = source
        previous |= found
        depth |= dict.fromkeys(found, depth[min(layer)] + 1)
        layer = set(found)
    rows = set()
    for target in state.nodes & depth.keys():
        path = [target]
        while path[0] in previous:
            path.insert(0, previous[path[0]])
        assert len(path) - 1 == depth[target]
        rows.add((target, path[0], depth[target], tuple(path)))
    return rows


def rounded(values: Iterable[tuple[Any, float]]) -> set[Row]:
    return {(node, round(value, 6)) for node, value in values}


def ranks(state: State, **options: Any) -> set[Row]:
    found = _pagerank_python(_counted(state.directed), weight="count", tol=1e-12, max_iter=1000, **options)
    return rounded(found.items())


def _counted(network: nx.MultiDiGraph) -> nx.DiGraph:
    """The number of edges between two nodes as the weight of one."""
    counted = nx.DiGraph()
    counted.add_nodes_from(network)
    for source, target in network.edges():
        before = counted.get_edge_data(source, target, {"count": 0})["count"]
        counted.add_edge(source, target, count=before + 1)
    return counted


def personal_ranks(state: State) -> set[Row]:
    network = state.directed
    weights = {root: 1 + root % 3 for root in state.roots & set(network)}
    if not weights:
        return {(node, 0.0) for node in network}
    return ranks(state, alpha=0.5, personalization=weights)


def communities(state: State, rounds: int) -> set[Row]:
    votes: dict[int, list[int]] = {node: [] for node in state.directed}
    for a, b in state.edges.elements():
        votes[a].append(b)
        votes[b].append(a)
    labels = {node: node for node in votes}
    for _ in range(rounds):
        labels = {node: _most_frequent([labels[other] for other in votes[node]], labels[node]) for node in votes}
    return set(labels.items())


def _most_frequent(labels: list[int], own: int) -> int:
    counts = Counter(labels)
    return min(counts, key=lambda label: (-counts[label], label)) if counts else own


def common(state: State, pairs: Iterable[Edge] | None) -> set[Row]:
    network = state.simple
    return {(a, b, node) for a, b in _pairs(state, pairs) for node in _adjacent(network, a) & _adjacent(network, b)}


def jaccard(state: State, pairs: Iterable[Edge] | None) -> set[Row]:
    network, rows = state.simple, set()
    for a, b in _pairs(state, pairs):
        one, two = _adjacent(network, a), _adjacent(network, b)
        if pairs is not None or one & two:
            rows.add((a, b, len(one & two), round(len(one & two) / max(1, len(one | two)), 6)))
            if a in network and b in network:
                ((_, _, coefficient),) = nx.jaccard_coefficient(network, [(a, b)])
                assert round(coefficient, 6) == round(len(one & two) / max(1, len(one | two)), 6)
    return rows


def _pairs(state: State, pairs: Iterable[Edge] | None) -> Iterable[Edge]:
    return [(a, b) for a in state.simple for b in state.simple if a < b] if pairs is None else pairs


def _adjacent(network: nx.Graph, node: int) -> set[int]:
    return set(network[node]) if node in network else set()


def triangles(state: State) -> set[Row]:
    return {tuple(sorted(clique)) for clique in nx.enumerate_all_cliques(state.simple) if len(clique) == 3}


def truss(state: State, k: int) -> set[Row]:
    return {(min(edge), max(edge)) for edge in nx.k_truss(state.simple, k).edges}


def strongly_connected(state: State) -> set[Row]:
    return named(nx.strongly_connected_components(state.directed))


def with_weights(roots: Collection) -> Collection:
    """The roots with weights, for personalised ranks."""
    kind = roots.node.columns[0].type

    def weights(columns: dict[str, Any]) -> dict[str, Any]:
        nodes = pc.cast(columns["node"], pa.int64())
        return {"node": columns["node"], "weight": 1.0 + nodes.to_numpy() % 3}

    return roots.map({"node": kind, "weight": pa.float64()}, weights)


@dataclass(frozen=True)
class Program:
    """A program, and a function that computes its expected rows."""

    plan: Callable[[Inputs], Collection]
    rows: Callable[[State], set[Row]]


LIBRARY = {
    "degrees": Program(lambda of: graph.degrees(of.edges, of.nodes), degrees),
    "landmarks": Program(lambda of: graph.landmark_distances(of.edges, of.roots), lambda s: distances(s, None)),
    "miles": Program(
        lambda of: graph.landmark_distances(of.edges, of.roots, "weight"), lambda s: distances(s, "weight")
    ),
    "paths": Program(lambda of: graph.bfs(of.edges, of.roots, of.nodes), lambda s: bfs(s, None)),
    "short paths": Program(lambda of: graph.bfs(of.edges, of.roots, of.nodes, 2), lambda s: bfs(s, 2)),
    "connected": Program(
        lambda of: graph.connected_components(of.edges, of.nodes), lambda s: named(nx.connected_components(s.simple))
    ),
    "strongly": Program(lambda of: graph.strongly_connected_components(of.edges, of.nodes), strongly_connected),
    "ranks": Program(lambda of: graph.pagerank(of.edges, of.nodes, tolerance=1e-12, max_iterations=300), ranks),
    "personal ranks": Program(
        lambda of: graph.pagerank(
            of.edges, of.nodes, damping=0.5, tolerance=1e-12, personalization=with_weights(of.roots)
        ),
        personal_ranks,
    ),
    "communities": Program(lambda of: graph.label_propagation(of.edges, of.nodes, 4), lambda s: communities(s, 4)),
    "triangles": Program(lambda of: graph.triangles(of.edges), triangles),
    "triangle count": Program(
        lambda of: graph.triangle_count(of.edges, of.nodes), lambda s: set(nx.triangles(s.simple).items())
    ),
    "clustering": Program(
        lambda of: graph.clustering(of.edges, of.nodes), lambda s: rounded(nx.clustering(s.simple).items())
    ),
    "cores": Program(lambda of: graph.core_number(of.edges, of.nodes), lambda s: set(nx.core_number(s.simple).items())),
    "truss 3": Program(lambda of: graph.k_truss(of.edges, 3), lambda s: truss(s, 3)),
    "truss 4": Program(lambda of: graph.k_truss(of.edges, 4), lambda s: truss(s, 4)),
    "common": Program(lambda of: graph.common_neighbors(of.edges), lambda s: common(s, None)),
    "common of pairs": Program(lambda of: graph.common_neighbors(of.edges, of.pairs), lambda s: common(s, s.pairs)),
    "jaccard": Program(lambda of: graph.jaccard(of.edges), lambda s: jaccard(s, None)),
    "jaccard of pairs": Program(lambda of: graph.jaccard(of.edges, of.pairs), lambda s: jaccard(s, s.pairs)),
}
