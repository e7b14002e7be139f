"""RMAT graphs: random graphs with skewed degrees, like those of social networks (Chakrabarti, Zhan, Faloutsos, 2004).

An edge is a cell of the adjacency matrix, of which a quadrant is chosen once for each bit of a node's number, with the
probabilities of the Graph500 benchmark by default. Nodes are renumbered at random, so that a node's number says nothing
about its degree. A graph has loops and repeated edges; `simple` removes them.

The same parameters and seed give the same graph on every machine.

Cost: about 15 ns for each edge and bit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Nodes = NDArray[np.int32]

SKEW = (0.57, 0.19, 0.19)
"""The probabilities of the first three quadrants: both ends in the lower half, only the source, only the target."""

_PIECE = 1 << 20
"""The number of edges that are drawn at once."""


def rmat(scale: int, edge_factor: int, seed: int, skew: tuple[float, float, float] = SKEW) -> tuple[Nodes, Nodes]:
    """Return sources and targets of a graph with `2**scale` nodes and `edge_factor` edges for each node."""
    random = np.random.default_rng(seed)
    edges = edge_factor << scale
    pieces = [_piece(random, scale, min(_PIECE, edges - start), skew) for start in range(0, edges, _PIECE)]
    src, dst = (np.concatenate(ends) for ends in zip(*pieces, strict=True))
    numbers = random.permutation(1 << scale).astype(np.int32)
    return numbers[src], numbers[dst]


def simple(src: Nodes, dst: Nodes) -> tuple[Nodes, Nodes]:
    """Return the edges without loops, directions and repetitions: each once, from the lesser to the greater node."""
    lesser, greater = np.minimum(src, dst).astype(np.int64), np.maximum(src, dst).astype(np.int64)
    pairs = np.unique((lesser << 32 | greater)[lesser != greater])
    return (pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32)


def _piece(
    random: np.random.Generator, scale: int, edges: int, skew: tuple[float, float, float]
) -> tuple[Nodes, Nodes]:
    src, dst = np.zeros(edges, np.int32), np.zeros(edges, np.int32)
    for far_src, far_dst in _bits(random, scale, edges, skew):
        src, dst = src << 1 | far_src, dst << 1 | far_dst
    return src, dst


def _bits(
    random: np.random.Generator, scale: int, edges: int, skew: tuple[float, float, float]
) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """For each bit of the nodes' numbers, whether the source and the target of each edge are in the upper half."""
    both, source, target = skew
    for _ in range(scale):
        drawn = random.random(edges, np.float32)
        far_src = drawn >= both + source
        far_dst = ((drawn >= both) & ~far_src) | (drawn >= both + source + target)
        yield far_src, far_dst
