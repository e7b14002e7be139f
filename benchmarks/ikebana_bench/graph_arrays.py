"""Graph programs that someone would write by hand for one thread: compiled loops over arrays, or over a hash map.

They are what a dataflow of any number of workers has to beat to be worth its cores (the paper's appendix C has both).
Arrays need nodes that are small integers; a hash map takes any nodes, as dataflows do. None of them can be updated.

Each kind has five programs: index the edges by source, or by target (the same function); nodes that can be reached from
a root; their distances, by breadth-first search; components, by union-find, each named by its least node.

Numba compiles each function on its first call, and keeps the compiled code on disk.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Nodes = NDArray[np.int32]
Positions = NDArray[np.int64]
Index = tuple[Positions, Nodes]
"""The edges ordered by one end: where those of each node start, and their other ends."""

MapIndex = tuple[Any, Nodes]
"""The same with a dictionary from nodes to pairs of positions, the first and the one after the last."""


@numba.njit(cache=True)
def index(nodes: int, keys: Nodes, values: Nodes) -> Index:
    starts = np.zeros(nodes + 1, np.int64)
    for key in keys:
        starts[key + 1] += 1
    for node in range(nodes):
        starts[node + 1] += starts[node]
    ends, ordered = starts[:-1].copy(), np.empty_like(values)
    for at in range(len(keys)):
        key = keys[at]
        ordered[ends[key]] = values[at]
        ends[key] += 1
    return starts, ordered


@numba.njit(cache=True)
def distances(starts: Positions, targets: Nodes, root: int) -> Nodes:
    """The distance of each node from the root; -1 for nodes that cannot be reached."""
    nodes = len(starts) - 1
    distance, queue = np.full(nodes, -1, np.int32), np.empty(nodes, np.int32)
    distance[root], queue[0] = 0, root
    first, last = 0, 1
    while first < last:
        node = queue[first]
        first += 1
        for at in range(starts[node], starts[node + 1]):
            other = targets[at]
            if distance[other] < 0:
                distance[other] = distance[node] + 1
                queue[last] = other
                last += 1
    return distance


@numba.njit(cache=True)
def reach(starts: Positions, targets: Nodes, root: int) -> NDArray[np.bool_]:
    nodes = len(starts) - 1
    reached, stack = np.zeros(nodes, np.bool_), np.empty(nodes, np.int32)
    reached[root], stack[0] = True, root
    size = 1
    while size:
        size -= 1
        node = stack[size]
        for at in range(starts[node], starts[node + 1]):
            other = targets[at]
            if not reached[other]:
                reached[other] = True
                stack[size] = other
                size += 1
    return reached


@numba.njit(cache=True)
def _root(parent: Any, node: int) -> int:
    """The root of a node's tree, in an array or a hash map of parents; the path to it gets half as long."""
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@numba.njit(cache=True)
def components(nodes: int, src: Nodes, dst: Nodes) -> Nodes:
    """The least node of each node's component."""
    parent = np.arange(nodes).astype(np.int32)
    for at in range(len(src)):
        one, other = _root(parent, src[at]), _root(parent, dst[at])
        if one < other:
            parent[other] = one
        else:
            parent[one] = other
    for node in range(nodes):
        parent[node] = parent[parent[node]]  # the parent is smaller, and has its final one already
    return parent


@numba.njit(cache=True)
def map_index(keys: Nodes, values: Nodes) -> MapIndex:
    ranges = {keys[0]: (0, 0)}
    for key in keys:
        first, count = ranges.get(key, (0, 0))
        ranges[key] = (first, count + 1)
    total = 0
    for key in ranges:
        count = ranges[key][1]
        ranges[key] = (total, total)
        total += count
    ordered = np.empty_like(values)
    for at in range(len(keys)):
        first, end = ranges[keys[at]]
        ordered[end] = values[at]
        ranges[keys[at]] = (first, end + 1)
    return ranges, ordered


@numba.njit(cache=True)
def map_distances(ranges: Any, targets: Nodes, root: Any) -> Any:
    """A dictionary from the nodes that can be reached to their distances."""
    distance, level, length = {root: 0}, [root], 0
    while len(level):
        length += 1
        following = [root for _ in range(0)]
        for node in level:
            first, end = ranges.get(node, (0, 0))
            for other in targets[first:end]:
                if other not in distance:
                    distance[other] = length
                    following.append(other)
        level = following
    return distance


@numba.njit(cache=True)
def map_reach(ranges: Any, targets: Nodes, root: Any) -> Any:
    """A dictionary whose keys are the nodes that can be reached."""
    reached, stack = {root: True}, [root]
    while len(stack):
        first, end = ranges.get(stack.pop(), (0, 0))
        for other in targets[first:end]:
            if other not in reached:
                reached[other] = True
                stack.append(other)
    return reached


@numba.njit(cache=True)
def map_components(src: Nodes, dst: Nodes) -> Any:
    """A dictionary from each node that has an edge to the least node of its component."""
    parent = {src[0]: src[0]}
    for at in range(len(src)):
        one, other = src[at], dst[at]
        if one not in parent:
            parent[one] = one
        if other not in parent:
            parent[other] = other
        one, other = _root(parent, one), _root(parent, other)
        if one < other:
            parent[other] = one
        else:
            parent[one] = other
    for node in parent:
        least = node
        while parent[least] != least:
            least = parent[least]
        parent[node] = least
    return parent


@numba.njit(cache=True)
def columns(mapping: Any) -> tuple[Positions, Positions]:
    """The keys and values of a dictionary."""
    keys, values = np.empty(len(mapping), np.int64), np.empty(len(mapping), np.int64)
    for at, key in enumerate(mapping):
        keys[at], values[at] = key, mapping[key]
    return keys, values
