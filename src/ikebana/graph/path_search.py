"""The search for one shortest path, in two indexes of the edges as they are at one epoch.

The search is breadth-first, from both ends. The smaller of the two frontiers is extended in each step, by one look-up
for all its nodes. The first nodes that both searches have reached are in the middle of shortest paths, since all nodes
nearer to the ends were reached before.

Cost: a request to the workers for each hop, and a Python object for each edge that it returns. This is for those who
ask for a single path; lengths are maintained by dataflows (`ikebana.graph.interactive`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from ikebana.engine.deadline import Deadline
from ikebana.engine.held_epochs import HeldEpoch

Parents = dict[Any, Any]
"""The nodes that were reached, each with the node before it; None at the start."""


class HeldIndex:
    """An index of the edges at an epoch that is held, from the column `key` to the column `to`."""

    def __init__(self, held: HeldEpoch, epoch: int, key: str, to: str, deadline: Deadline) -> None:
        self._held, self._epoch, self._key, self._to, self._deadline = held, epoch, key, to, deadline

    def edges(self, nodes: Iterable[Any], kind: pa.DataType) -> Iterable[tuple[Any, Any]]:
        """The edges of some nodes, as pairs of a node and a neighbour."""
        keys = {self._key: pa.array(nodes, kind)}
        rows = self._held.read(self._epoch, keys, timeout=self._deadline.seconds_left())
        columns = (rows[name].to_pylist() for name in (self._key, self._to, "diff"))
        return ((node, other) for node, other, diff in zip(*columns, strict=True) if diff > 0 and other is not None)


def shortest_path(
    source: pa.Array, target: pa.Array, hops: int, forward: HeldIndex, backward: HeldIndex
) -> list[Any] | None:
    """The nodes of a shortest path of at most `hops` edges; None if there is none. The ends are arrays of one value."""
    (first,), (last,) = source.to_pylist(), target.to_pylist()
    if first == last:
        return [first]
    ends: tuple[Parents, Parents] = ({first: None}, {last: None})
    frontiers = [[first], [last]]
    for _ in range(hops):
        side = 0 if len(frontiers[0]) <= len(frontiers[1]) else 1
        index = (forward, backward)[side]
        frontiers[side] = _extended(ends[side], index.edges(frontiers[side], source.type))
        meetings = [node for node in frontiers[side] if node in ends[1 - side]]
        if meetings:
            return [*reversed(_steps(ends[0], meetings[0])), *_steps(ends[1], meetings[0])[1:]]
        if not frontiers[side]:
            return None
    return None


def _extended(parents: Parents, edges: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Note the nodes that are reached for the first time, and return them."""
    reached = []
    for node, other in edges:
        if other not in parents:
            parents[other] = node
            reached.append(other)
    return reached


def _steps(parents: Parents, node: Any) -> list[Any]:
    """The nodes from one that was reached back to the start."""
    steps = []
    while node is not None:
        steps.append(node)
        node = parents[node]
    return steps
