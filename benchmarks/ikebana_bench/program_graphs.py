"""Graphs of programs for `program-analysis`: synthetic ones, of C source, and answers to compare with.

The synthetic graphs have fixed seeds. *Dataflow* graphs are chains of statements with branches and a few back edges, a
chain for each procedure, and calls between procedures; three nulls start in each procedure. *Points-to* graphs are
assignments and dereferences within groups of variables, and a few assignments between groups.

The answers are computed here without Ikebana: by searching from every null, and by semi-naive evaluation with NumPy
over sorted pairs of numbers. They check results, and are not measured.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pairs = NDArray[np.int32]
Packed = NDArray[np.int64]

CHAIN = 400
"""Statements of a procedure."""

GROUP = 60
"""Variables of a function."""


@dataclass(frozen=True)
class Size:
    """How many procedures a dataflow graph has, and how many variables a points-to graph."""

    procedures: int
    variables: int


SIZES = {
    "small": Size(2, 1_800),  # 900 and 2,400 edges: to try it out
    "anchor": Size(2_000, 480_000),  # 0.90M and 0.65M edges: what the reference was measured with
    "httpd": Size(22_200, 1_120_000),  # 10M and 1.5M edges, about those of httpd in the paper
    "psql": Size(77_200, 3_700_000),  # 35M and 5M edges, about those of PostgreSQL
}


def dataflow_graph(procedures: int, seed: int = 11) -> tuple[Pairs, Pairs]:
    """Return assignments and nulls."""
    random, size = np.random.default_rng(seed), CHAIN
    edges: list[NDArray[np.int64]] = []
    nulls: list[NDArray[np.int64]] = []
    chain = np.arange(size - 1)
    for procedure in range(procedures):
        first = procedure * size
        edges.append(np.column_stack([chain, chain + 1]) + first)
        start = random.integers(0, size - 2, size // 10)
        forward = np.minimum(size - 1, start + random.integers(2, 12, size // 10))
        edges.append(np.column_stack([start, forward]) + first)
        end = random.integers(5, size, size // 50)
        back = np.maximum(0, end - random.integers(1, 5, size // 50))
        edges.append(np.column_stack([end, back]) + first)
        if procedure % 4:
            edges.append(np.array([[first - size + int(random.integers(0, size)), first]]))
        targets = first + random.integers(0, size, 3)
        nulls.append(np.column_stack([np.full(3, procedures * size + procedure), targets]))
    return _distinct(np.vstack(edges)), _distinct(np.vstack(nulls))


def points_to_graph(variables: int, seed: int = 12) -> tuple[Pairs, Pairs]:
    """Return assignments and dereferences."""
    random, groups = np.random.default_rng(seed), variables // GROUP
    count = int(variables * 1.1)
    group, source = random.integers(0, groups, count) * GROUP, random.integers(0, GROUP, count)
    target = np.maximum(0, source - 1 - random.geometric(0.15, count))
    assign = np.column_stack([group + source, group + target])
    count = int(variables * 0.35)
    group, source = random.integers(0, groups, count) * GROUP, random.integers(0, GROUP, count)
    cell = random.integers(0, GROUP // 3, count)
    dereference = np.column_stack([group + source, variables + group + cell])
    count = int(variables * 0.002)
    across = np.column_stack([random.integers(0, variables, count), random.integers(0, variables, count)])
    return _distinct(np.vstack([assign, across])), _distinct(dereference)


def _distinct(edges: NDArray[np.int64]) -> Pairs:
    return unpack(np.unique(pack(edges[edges[:, 0] != edges[:, 1]])))


def pack(pairs: NDArray[np.integer]) -> Packed:
    """Pairs as single numbers, ordered like the pairs."""
    wide = pairs.astype(np.int64)
    return wide[:, 0] << 32 | wide[:, 1]


def unpack(packed: Packed) -> Pairs:
    return np.stack([packed >> 32, packed & 0xFFFFFFFF], axis=1).astype(np.int32)


# Answers.


def reached(assign: Pairs, null: Pairs) -> Packed:
    """All pairs of a null and a node that it reaches, by searching from every null."""
    following: dict[int, list[int]] = {}
    for source, target in assign.tolist():
        following.setdefault(source, []).append(target)
    starts: dict[int, list[int]] = {}
    for source, target in null.tolist():
        starts.setdefault(source, []).append(target)
    parts = []
    for source, targets in starts.items():
        seen, waiting = set(targets), deque(targets)
        while waiting:
            for target in following.get(waiting.popleft(), ()):
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        nodes = np.fromiter(seen, np.int64, len(seen))
        parts.append(np.int64(source) << 32 | nodes)
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def aliases(assign: Pairs, dereference: Pairs) -> tuple[Packed, Packed]:
    """The value flow and the memory aliases of a points-to graph, by semi-naive evaluation."""
    a, none = np.unique(pack(assign)), np.empty(0, np.int64)
    step, cells, alias, half = a, np.unique(pack(dereference)), none, none  # half: from a cell through an alias
    new_step, new_cells, new_alias = step, cells, none
    while len(new_step) or len(new_cells) or len(new_alias):
        derived = _new(cells, _compose(new_step, cells), _compose(step, new_cells))
        new_half = _new(half, _compose(_swapped(new_cells), alias), _compose(_swapped(cells), new_alias))
        half = _merged(half, new_half)
        direct = (_compose(_swapped(new_cells), cells), _compose(_swapped(cells), new_cells))
        new_alias = _new(alias, *direct, _compose(new_half, cells), _compose(half, new_cells))
        alias = _merged(alias, new_alias)
        new_step = _new(step, _compose(a, new_alias))
        step = _merged(step, new_step)
        cells, new_cells = _merged(cells, derived), derived
    nodes = np.unique(np.concatenate([assign.ravel(), dereference.ravel()]).astype(np.int64))
    flow = new_flow = nodes << 32 | nodes
    while len(new_flow):
        new_flow = _new(flow, _compose(step, new_flow))
        flow = _merged(flow, new_flow)
    return flow, alias


def lacking(assign: Pairs, dereference: Pairs, flow: Packed, alias: Packed) -> int:
    """How many facts the rules of points-to derive, in one step, that a value flow and memory aliases lack."""
    a, d = np.unique(pack(assign)), np.unique(pack(dereference))
    nodes = np.unique(np.concatenate([assign.ravel(), dereference.ravel()]).astype(np.int64))
    step = np.unique(np.concatenate([a, _compose(a, alias)]))
    cells = _compose(flow, d)
    back = _swapped(cells)
    missing_flow = _new(flow, nodes << 32 | nodes, _compose(step, flow))
    missing_alias = _new(alias, _compose(back, cells), _compose(_compose(back, alias), cells))
    return len(missing_flow) + len(missing_alias)


def _swapped(pairs: Packed) -> Packed:
    return np.sort((pairs & 0xFFFFFFFF) << 32 | pairs >> 32)


def _compose(left: Packed, right: Packed) -> Packed:
    """The distinct pairs (x, z) with (x, y) in `left` and (y, z) in `right`, which is sorted."""
    firsts = right >> 32
    middle = left & 0xFFFFFFFF
    start, end = np.searchsorted(firsts, middle), np.searchsorted(firsts, middle, side="right")
    counts = end - start
    offsets = np.repeat(start - np.append(0, np.cumsum(counts)[:-1]), counts) + np.arange(counts.sum())
    return np.unique(np.repeat(left >> 32, counts) << 32 | right[offsets] & 0xFFFFFFFF)


def _new(known: Packed, *candidates: Packed) -> Packed:
    found = np.unique(np.concatenate(candidates))
    return found[~_contained(found, known)]


def _contained(values: Packed, known: Packed) -> NDArray[np.bool_]:
    if not len(known):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return known[at] == values


def _merged(known: Packed, new: Packed) -> Packed:
    return np.union1d(known, new) if len(new) else known
