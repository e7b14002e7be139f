"""`graph-batch`: iterative queries from scratch (§6.3.3, appendix C).

The edges are indexed by source; reachability and shortest paths are computed from the first node with an outgoing edge;
the edges are indexed by target; and connected components are computed with both indexes. Each time is reported apart:
until the index, or the view, is up to date. Generating graphs, reading views and verifying them are not measured.

Graphs: `random` has edges between random nodes; `rmat` has skewed degrees, like the social networks of the paper
(`ikebana_bench.rmat`). LiveJournal is about `--scale 22 --edge-factor 16`, Orkut about `--scale 22 --edge-factor 28`.

Beside one worker in this process, and several worker processes, there are programs for one thread
(`ikebana_bench.graph_arrays`): `array` uses arrays, `map` hash maps, both without the time to compile them.

`rust_anchor_ratio` is our speed over that of differential dataflow in Rust with as many workers on the default random
graph, measured on a different machine of the same size (`ikebana_bench.arrange` describes how reliable it is).
`..._cpu_s` are the processor seconds of this process: on a busy machine, compare these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ikebana import graph
from ikebana.cluster.processes import Processes
from ikebana.engine import Engine
from ikebana.engine.collection import Arrangement, Collection
from ikebana_bench import graph_arrays
from ikebana_bench.graphs import Graph, load
from ikebana_bench.measure import Timer, numpy_sort_floor
from ikebana_bench.progress import Progress
from ikebana_bench.rmat import rmat
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

PROGRAMS = ("index_forward", "reach", "sssp", "index_reverse", "wcc")
NODES, EDGES = 1_000_000, 10_000_000
RUST_S = {1: (2.8, 3.1, 4.7, 2.75, 9.6), 2: (1.5, 1.9, 2.4, 1.4, 5.45)}
"""Measurements of the Rust reference for each program, by number of workers, on a random graph of this size."""

Answers = dict[str, NDArray[np.int64]]
"""A value for each node, by program; -1 for nodes without one."""


@dataclass(frozen=True)
class BatchParameters(Parameters):
    graph: str = parameter("all", "the graph", choices=("all", "random", "rmat"))
    nodes: int = parameter(NODES, "nodes of the random graph", minimum=2)
    edges: int = parameter(EDGES, "edges of the random graph", minimum=1)
    scale: int = parameter(20, "binary logarithm of the nodes of the RMAT graph", minimum=1)
    edge_factor: int = parameter(10, "edges of the RMAT graph for each node", minimum=1)
    processes: int = parameter(2, "the largest number of worker processes; 1 for one worker in this process", minimum=1)
    arrays: bool = parameter(True, "also run programs for one thread")
    seed: int = parameter(0, "seed of the graphs", minimum=0)


class GraphBatch(Scenario[BatchParameters]):
    """Run index-forward, reachability, shortest paths, index-reverse and connected components in this order."""

    name = "graph-batch"
    claim = "Iterative queries over a shared index run faster from scratch than in the compiled reference."
    paper = "§6.3.3, appendix C"
    parameters = BatchParameters

    def run(self, parameters: BatchParameters, progress: Progress) -> Results:
        results: dict[str, Any] = {}
        for name in ("random", "rmat"):
            if parameters.graph in ("all", name):
                results |= self._on(name, _drawn(name, parameters), parameters, progress)
        return {**results, "sort_1m_floor_ms": numpy_sort_floor(1_000_000) * 1e3}

    def _on(self, name: str, drawn: Graph, p: BatchParameters, progress: Progress) -> dict[str, float]:
        expected = _expected(drawn)
        runs: dict[str, Callable[[], tuple[Timer, Answers]]] = {
            str(workers): partial(_by_dataflows, drawn, workers) for workers in range(1, p.processes + 1)
        }
        if p.arrays:
            _by_arrays(_TINY), _by_maps(_TINY)  # compiles them
            runs |= {"array": partial(_by_arrays, drawn), "map": partial(_by_maps, drawn)}
        results: dict[str, float] = {}
        for run, measure in progress.track(f"running on {name}", runs.items()):
            timer, answers = measure()
            for program, values in answers.items():
                same = np.array_equal(values, expected[program])
                self.verify(same, f"{program} on the graph {name}, run {run}, agrees with NumPy")
            for program, seconds in timer.seconds.items():
                results[f"{name}_{run}_{program}_s"] = seconds
                if run in ("1", "array", "map"):  # other processes are not counted
                    results[f"{name}_{run}_{program}_cpu_s"] = timer.cpu_seconds(program)
        if name == "random" and (p.nodes, p.edges) == (NODES, EDGES):
            results |= dict(_ratios(results))
        return results


def _ratios(results: dict[str, float]) -> Iterator[tuple[str, float]]:
    for workers, anchors in RUST_S.items():
        for program, anchor in zip(PROGRAMS, anchors, strict=True):
            seconds = results.get(f"random_{workers}_{program}_s")
            if seconds is not None:
                yield f"random_{workers}_{program}_rust_anchor_ratio", anchor / seconds


def _drawn(name: str, p: BatchParameters) -> Graph:
    if name == "random":
        return Graph.random(p.nodes, p.edges, p.seed)
    src, dst = rmat(p.scale, p.edge_factor, p.seed)
    return Graph(1 << p.scale, src, dst)


_TINY = Graph(3, np.array([0, 1], np.int32), np.array([1, 0], np.int32))


def _expected(drawn: Graph) -> Answers:
    """The answers, by NumPy."""
    distances = drawn.distances()
    has_edge = np.zeros(drawn.nodes, bool)
    has_edge[drawn.src] = has_edge[drawn.dst] = True
    return {
        "reach": np.where(distances >= 0, 0, -1),
        "sssp": distances,
        "wcc": np.where(has_edge, drawn.components(), -1),
    }


def _scattered(drawn: Graph, nodes: Any, values: Any) -> NDArray[np.int64]:
    """A value for each node of a graph, given those of some nodes."""
    result = np.full(drawn.nodes, -1, np.int64)
    result[nodes] = values
    return result


# Dataflows.


@contextmanager
def _engine(workers: int) -> Iterator[Engine]:
    """An engine with one worker in this process, or with several processes."""
    with Engine(cluster=Processes(workers) if workers > 1 else None) as engine:
        yield engine


def _by_dataflows(drawn: Graph, workers: int) -> tuple[Timer, Answers]:
    timer, answers = Timer(), {}
    with _engine(workers) as engine:
        with timer("index_forward"):
            edges, roots = load(engine, drawn)
        programs: dict[str, Collection | Arrangement] = {
            "reach": graph.reach(edges, roots),
            "sssp": graph.shortest_paths(edges, roots),
            "index_reverse": edges.arrange("dst"),
            "wcc": graph.connected_components(edges),
        }
        for name, program in programs.items():
            with timer(name):
                view = engine.install(name, program)
                view.wait(engine.epoch - 1)
            if name != "index_reverse":
                answers[name] = _values(name, view.read(), drawn)
    return timer, answers


def _values(name: str, answer: pa.Table, drawn: Graph) -> NDArray[np.int64]:
    return _scattered(drawn, answer["node"].to_numpy(), 0 if name == "reach" else answer.column(1).to_numpy())


# Programs for one thread.


def _by_arrays(drawn: Graph) -> tuple[Timer, Answers]:
    timer = Timer()
    with timer("index_forward"):
        forward = graph_arrays.index(drawn.nodes, drawn.src, drawn.dst)
    with timer("reach"):
        reached = graph_arrays.reach(*forward, drawn.root)
    with timer("sssp"):
        distances = graph_arrays.distances(*forward, drawn.root)
    with timer("index_reverse"):
        backward = graph_arrays.index(drawn.nodes, drawn.dst, drawn.src)
    with timer("wcc"):
        component = graph_arrays.components(drawn.nodes, drawn.src, drawn.dst)
    has_edge = (np.diff(forward[0]) > 0) | (np.diff(backward[0]) > 0)
    answers = {
        "reach": np.where(reached, 0, -1),
        "sssp": distances.astype(np.int64),
        "wcc": np.where(has_edge, component, -1),
    }
    return timer, answers


def _by_maps(drawn: Graph) -> tuple[Timer, Answers]:
    timer, root = Timer(), drawn.src.min()
    with timer("index_forward"):
        forward = graph_arrays.map_index(drawn.src, drawn.dst)
    with timer("reach"):
        reached = graph_arrays.map_reach(*forward, root)
    with timer("sssp"):
        distances = graph_arrays.map_distances(*forward, root)
    with timer("index_reverse"):
        graph_arrays.map_index(drawn.dst, drawn.src)
    with timer("wcc"):
        component = graph_arrays.map_components(drawn.src, drawn.dst)
    answers = {
        "reach": _scattered(drawn, graph_arrays.columns(reached)[0], 0),
        "sssp": _scattered(drawn, *graph_arrays.columns(distances)),
        "wcc": _scattered(drawn, *graph_arrays.columns(component)),
    }
    return timer, answers
