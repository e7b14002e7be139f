"""`graph-updates` and `closure`: iterative queries (§6.3.1, §6.3.3, appendices C and D).

- `graph-updates` computes reachability, and then replaces one edge, or 1,000 edges, per epoch.
- `closure` computes transitive closure and same generation, on the smaller graphs of the paper's Datalog tables.

Measured is the time until a view is up to date; generating graphs, reading views and verifying them are not measured.
`closure` leaves out the larger graphs of the paper.

`rust_anchor_ratio` is our speed over the speed of differential dataflow in Rust with one worker, measured on a
different machine of the same size (`ikebana_bench.arrange` describes how reliable it is); above 1, we are faster.
`cpu_share` is the fraction of the measured time in which this process was running on a core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ikebana import graph
from ikebana.engine import Engine, Input, View
from ikebana.engine.collection import Collection
from ikebana_bench.measure import Stopwatch, Timer, compiled_shares, percentiles
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

Nodes = NDArray[np.int32]

# Measurements of the Rust reference with one worker and the default parameters.
RUST_SINGLE_MS, RUST_THOUSAND_MS = 0.135, 22.0
RUST_CLOSURE_S = {"tc_tree-11": 0.42, "tc_grid-50": 1.8, "tc_gnp-1k": 2.6, "sg_grid-50": 0.155, "sg_gnp-1k": 6.85}


@dataclass(frozen=True)
class GraphParameters(Parameters):
    nodes: int = parameter(1_000_000, "nodes of the random graph", minimum=2)
    edges: int = parameter(10_000_000, "edges of the random graph", minimum=1)
    workers: int = parameter(1, "workers, in this process", minimum=1)
    seed: int = parameter(0, "seed of the random graph", minimum=0)


@dataclass(frozen=True)
class Graph:
    """A graph, and what iterative queries compute of it."""

    nodes: int
    src: Nodes
    dst: Nodes

    @staticmethod
    def random(nodes: int, edges: int, seed: int) -> Graph:
        """A graph with random edges."""
        random = np.random.default_rng(seed)
        src, dst = (random.integers(0, nodes, edges).astype(np.int32) for _ in range(2))
        return Graph(nodes, src, dst)

    @property
    def root(self) -> int:
        """The first node with an outgoing edge."""
        return int(self.src.min())

    def distances(self) -> NDArray[np.int64]:
        """Return the distance of each node from the root, by breadth-first search; -1 if the node is unreachable."""
        order = np.argsort(self.src, kind="stable")
        dst, starts = self.dst[order], np.searchsorted(self.src[order], np.arange(self.nodes + 1))
        distances = np.full(self.nodes, -1, np.int64)
        level = np.array([self.root])
        distance = 0
        while len(level):
            distances[level] = distance
            distance += 1
            counts = starts[level + 1] - starts[level]
            first = np.repeat(starts[level] - np.append(0, np.cumsum(counts)[:-1]), counts)
            reached = np.unique(dst[first + np.arange(counts.sum())])
            level = reached[distances[reached] < 0]
        return distances

    def components(self) -> NDArray[np.int64]:
        """Return the smallest node of each node's component, by label propagation with pointer jumping."""
        label = np.arange(self.nodes)
        while True:
            before = label.copy()
            np.minimum.at(label, self.src, before[self.dst])
            np.minimum.at(label, self.dst, before[self.src])
            label = label[label]
            if (label == before).all():
                return label


def load(engine: Engine, drawn: Graph) -> tuple[Input, Input]:
    """Edges, indexed by source, and a root."""
    edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()}, key="src")
    roots = engine.input("roots", {"node": pa.int32()})
    edges.insert({"src": drawn.src, "dst": drawn.dst})
    roots.insert({"node": np.array([drawn.root], np.int32)})
    engine.advance()
    engine.run()
    return edges, roots


@dataclass(frozen=True)
class UpdateParameters(GraphParameters):
    changes: int = parameter(300, "changes of one edge, one per epoch", minimum=1)
    thousands: int = parameter(30, "changes of 1,000 edges, one per epoch", minimum=1)


class GraphUpdates(Scenario[UpdateParameters]):
    """Replace random edges after reachability has converged: first one at a time, then 1,000 at a time."""

    name = "graph-updates"
    claim = "The cost of a change to a converged iteration depends on the change, not on the size of the graph."
    paper = "§6.3.3"
    parameters = UpdateParameters

    def run(self, parameters: UpdateParameters, progress: Progress) -> Results:
        drawn = Graph.random(parameters.nodes, parameters.edges, parameters.seed)
        random = np.random.default_rng(parameters.seed + 1)
        with Engine(parameters.workers) as engine:
            edges, roots = load(engine, drawn)
            view = engine.install("reach", graph.reach(edges, roots))
            view.wait(engine.epoch - 1)
            single = self._change(engine, edges, view, drawn, random, 1, parameters.changes, progress)
            shares = compiled_shares(engine, "single_edge_")
            many = self._change(engine, edges, view, drawn, random, 1_000, parameters.thousands, progress)
            reached = np.sort(view.read()["node"].to_numpy())
        expected = np.flatnonzero(drawn.distances() >= 0)
        self.verify(np.array_equal(reached, expected), "reachability after all changes agrees with NumPy")
        return {
            **percentiles("single_edge", "ms", single),
            **percentiles("thousand_edges", "ms", many),
            **shares,
            "single_edge_rust_anchor_ratio": RUST_SINGLE_MS / float(np.median(single)),
            "thousand_edges_rust_anchor_ratio": RUST_THOUSAND_MS / float(np.median(many)),
        }

    def _change(
        self,
        engine: Engine,
        edges: Input,
        view: View,
        drawn: Graph,
        random: np.random.Generator,
        size: int,
        times: int,
        progress: Progress,
    ) -> list[float]:
        """Return the milliseconds of each change, from pushing the edges until the view is up to date."""
        spent = []
        for _ in progress.track(f"changing {size} at a time", range(times)):
            at = random.choice(len(drawn.src), size, replace=False)
            new = [random.integers(0, drawn.nodes, size).astype(np.int32) for _ in range(2)]
            watch = Stopwatch()
            edges.remove({"src": drawn.src[at], "dst": drawn.dst[at]})
            edges.insert({"src": new[0], "dst": new[1]})
            engine.advance()
            view.wait(engine.epoch - 1)
            spent.append(watch.seconds * 1e3)
            drawn.src[at], drawn.dst[at] = new
        return spent


@dataclass(frozen=True)
class ClosureParameters(Parameters):
    workers: int = parameter(1, "workers, in this process", minimum=1)
    only: str = parameter("all", "the graph to measure", choices=("all", "tree-11", "grid-50", "gnp-1k"))


class Closure(Scenario[ClosureParameters]):
    """Compute transitive closure and same generation bottom-up."""

    name = "closure"
    claim = "Recursive queries are faster than in the compiled reference on dense graphs, and slower on deep ones."
    paper = "§6.3.1, appendix D (smaller graphs)"
    parameters = ClosureParameters

    def run(self, parameters: ClosureParameters, progress: Progress) -> Results:
        timer = Timer()
        results: dict[str, Any] = {}
        cases = [(p, g) for p in ("tc", "sg") for g in _GRAPHS if (p, g) != ("sg", "tree-11")]
        chosen = [case for case in cases if parameters.only in ("all", case[1])]
        for program, name in progress.track("closing", chosen):
            rows = _GRAPHS[name]()
            with Engine(parameters.workers) as engine:
                edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()}, key="src")
                edges.insert({"src": rows[:, 0], "dst": rows[:, 1]})
                engine.advance()
                engine.run()
                build: Callable[[Collection], Collection] = _PROGRAMS[program]
                with timer(f"{program}_{name}"):
                    view = engine.install(program, build(edges))
                    view.wait(engine.epoch - 1)
                pairs = view.read()
            expected = closed(rows) if program == "tc" else same_generation(rows)
            self.verify(
                pairs.num_rows == expected, f"{program} on {name} has {expected} pairs", detail=str(pairs.num_rows)
            )
            spent = timer.seconds[f"{program}_{name}"]
            results |= {f"{program}_{name}_s": spent, f"{program}_{name}_pairs": pairs.num_rows}
            results[f"{program}_{name}_rust_anchor_ratio"] = RUST_CLOSURE_S[f"{program}_{name}"] / spent
        return {**results, "cpu_share": timer.cpu_share}


def _tree(height: int = 11) -> Nodes:
    random = np.random.default_rng(11)
    edges, level, count = [], [0], 1
    for _ in range(height):
        following = []
        for node in level:
            for _ in range(random.integers(2, 7) if count < 71_000 else 0):
                edges.append((node, count))
                following.append(count)
                count += 1
        level = following
    return np.array(edges, np.int32)


def _grid(side: int = 50) -> Nodes:
    at = np.arange((side + 1) ** 2, dtype=np.int32).reshape(side + 1, side + 1)
    right = np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], axis=1)
    down = np.stack([at[:-1].ravel(), at[1:].ravel()], axis=1)
    return np.concatenate([right, down])


def _gnp(nodes: int = 1_000, p: float = 0.01) -> Nodes:
    chosen = np.random.default_rng(1).random((nodes, nodes)) < p
    return np.argwhere(chosen).astype(np.int32)


_GRAPHS = {"tree-11": _tree, "grid-50": _grid, "gnp-1k": _gnp}
_PROGRAMS = {"tc": graph.transitive_closure, "sg": graph.same_generation}


def _adjacency(rows: Nodes) -> NDArray[np.float32]:
    size = int(rows.max()) + 1
    matrix = np.zeros((size, size), np.float32)
    matrix[rows[:, 0], rows[:, 1]] = 1
    return matrix


def closed(rows: Nodes) -> int:
    """Return the number of pairs in the transitive closure: by squaring a matrix, or for a tree by adding up depths."""
    if len(rows) == int(rows.max()):
        depth = np.zeros(len(rows) + 1, np.int64)
        for parent, child in rows.tolist():
            depth[child] = depth[parent] + 1
        return int(depth.sum())
    step = _adjacency(rows)
    while True:
        wider = np.minimum(step + step @ step, 1)
        if (wider == step).all():
            return int(step.sum())
        step = wider


def same_generation(rows: Nodes) -> int:
    """Return the number of pairs of the same generation.

    Two children of one node are of the same generation, and so are children of two nodes of the same generation.
    """
    step = _adjacency(rows)
    same = np.minimum(step.T @ step, 1)
    np.fill_diagonal(same, 0)
    while True:
        wider = np.minimum(same + step.T @ same @ step, 1)
        if (wider == same).all():
            return int(same.sum())
        same = wider
