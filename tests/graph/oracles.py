"""Oracles for graph programs, with networkx or in plain Python: from sets of edges and roots to a set of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import networkx as nx
import pyarrow as pa

from ikebana import graph
from ikebana.engine.collection import Collection

Edge = tuple[int, int]
Rows = set[tuple[int, ...]]


def weight(edge: Edge) -> int:
    """The length of an edge: any fixed function will do, zero included."""
    return (3 * edge[0] + 5 * edge[1]) % 7


def digraph(edges: Iterable[Edge]) -> nx.DiGraph:
    network = nx.DiGraph()
    network.add_weighted_edges_from((*edge, weight(edge)) for edge in edges)
    return network


def degrees(edges: set[Edge], roots: set[int]) -> Rows:
    network = digraph(edges)
    return {(node, network.out_degree(node), network.in_degree(node), network.degree(node)) for node in network}


def reach(edges: set[Edge], roots: set[int]) -> Rows:
    network = digraph(edges)
    network.add_nodes_from(roots)
    return {(node,) for root in roots for node in ({root} | nx.descendants(network, root))}


def paths(edges: set[Edge], roots: set[int], column: str | None) -> Rows:
    network = digraph(edges)
    network.add_nodes_from(roots)
    if not roots:
        return set()
    length = column or (lambda a, b, data: 1)
    return set(nx.multi_source_dijkstra_path_length(network, roots, weight=length).items())


def named(components: Iterable[set[int]]) -> Rows:
    return {(node, min(component)) for component in components for node in component}


def connected(edges: set[Edge], roots: set[int]) -> Rows:
    return named(nx.connected_components(digraph(edges).to_undirected()))


def strongly_connected(edges: set[Edge], roots: set[int]) -> Rows:
    return named(nx.strongly_connected_components(digraph(edges)))


def closure(edges: set[Edge], roots: set[int]) -> Rows:
    return set(nx.transitive_closure(digraph(edges), reflexive=False).edges)


def same_generation(edges: set[Edge], roots: set[int]) -> Rows:
    peers = {(x, y) for a, x in edges for b, y in edges if a == b and x != y}
    while True:
        below = {(x, y) for a, x in edges for b, y in edges if (a, b) in peers}
        if below <= peers:
            return peers
        peers |= below


def pagerank(edges: set[Edge], roots: set[int], rounds: int) -> Rows:
    out = Counter(source for source, _ in edges)
    ranks = {node: 1_000_000 for edge in edges for node in edge}
    for _ in range(rounds):
        shares = {node: 85 * ranks[node] // (100 * out[node]) for node in out}
        ranks = dict.fromkeys(ranks, 150_000)
        for source, target in edges:
            ranks[target] += shares[source]
    return set(ranks.items())


def k_core(edges: set[Edge], roots: set[int], k: int) -> Rows:
    network = nx.Graph(edge for edge in edges if edge[0] != edge[1])
    return {(node,) for node in nx.k_core(network, k)}


@dataclass(frozen=True)
class Program:
    """A program, and a function that computes its expected rows."""

    plan: Callable[[Collection, Collection], Collection]
    rows: Callable[[set[Edge], set[int]], Rows]


PROGRAMS = {
    "degrees": Program(lambda edges, roots: graph.degrees(edges), degrees),
    "reach": Program(graph.reach, reach),
    "hops": Program(graph.shortest_paths, lambda edges, roots: paths(edges, roots, None)),
    "miles": Program(
        lambda edges, roots: graph.shortest_paths(edges, roots, "weight"),
        lambda edges, roots: paths(edges, roots, "weight"),
    ),
    "connected": Program(lambda edges, roots: graph.connected_components(edges), connected),
    "strongly": Program(lambda edges, roots: graph.strongly_connected_components(edges), strongly_connected),
    "closure": Program(lambda edges, roots: graph.transitive_closure(edges), closure),
    "generation": Program(lambda edges, roots: graph.same_generation(edges), same_generation),
    "ranks": Program(
        lambda edges, roots: graph.pagerank_units(edges, 4), lambda edges, roots: pagerank(edges, roots, 4)
    ),
    "core 2": Program(lambda edges, roots: graph.k_core(edges, 2), lambda edges, roots: k_core(edges, roots, 2)),
    "core 3": Program(lambda edges, roots: graph.k_core(edges, 3), lambda edges, roots: k_core(edges, roots, 3)),
}


def rows_of(table: pa.Table) -> Rows:
    """The rows of a result, each of which must have multiplicity 1."""
    assert set(table["diff"].to_pylist()) <= {1}
    return set(zip(*table.drop_columns("diff").to_pydict().values(), strict=True))
