"""`graph-triangles`: triangles of a skewed graph, from scratch and after each change of an edge.

The graph is an RMAT graph without loops, directions and repetitions; each edge leads from its lesser to its greater
node, so that the motif `(a)-[]->(b); (b)-[]->(c); (a)-[]->(c)` matches each triangle once. Measured is the time until
its count (`count_s`), and then the list of all triangles (`list_s`), is up to date, over indexes that exist. Loading
the edges and indexing them by source and by target takes `index_s`. For each of the two views, edges are then removed
and inserted again, one per epoch.

Beside it, two hand-written programs, compiled by Numba, on one thread: they sort the edges into an adjacency list, and
merge the lists of both ends of each edge. `numba_s` does that for the edges as they are given. `numba_by_degree_s`
first renumbers nodes by degree, which bounds the lists; a changing graph has no such order. Both only count. Ratios are
of processor seconds, ours over theirs.

Not measured: compiling the programs, generating the graph, verification, and a graph that does not fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ikebana.engine import Engine, Input, View
from ikebana.graph import motifs
from ikebana_bench.measure import Stopwatch, Timer, percentiles
from ikebana_bench.progress import Progress
from ikebana_bench.rmat import Nodes, rmat, simple
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

TRIANGLE = "(a)-[]->(b); (b)-[]->(c); (a)-[]->(c)"


@dataclass(frozen=True)
class TriangleParameters(Parameters):
    scale: int = parameter(16, "the graph has 2**scale nodes", minimum=2)
    edge_factor: int = parameter(16, "edges drawn for each node", minimum=1)
    changes: int = parameter(300, "changes of one edge, one per epoch, for each view", minimum=2)
    workers: int = parameter(1, "workers, in this process", minimum=1)
    seed: int = parameter(0, "seed of the graph and of the changes", minimum=0)


class GraphTriangles(Scenario[TriangleParameters]):
    """Count and list triangles from scratch, and keep both up to date while single edges change."""

    name = "graph-triangles"
    claim = "Motifs with cycles are found nearly as fast as by a program of their own, and maintained at once."
    paper = "none: worst-case optimal joins over shared indexes"
    parameters = TriangleParameters

    def run(self, parameters: TriangleParameters, progress: Progress) -> Results:
        src, dst = simple(*rmat(parameters.scale, parameters.edge_factor, parameters.seed))
        timer, nodes = Timer(), 1 << parameters.scale
        expected = _timed(timer, "numba", lambda: _count(src, dst, nodes))
        ranked = _timed(timer, "numba_by_degree", lambda: _count(*_by_degree(src, dst, nodes), nodes))
        self.verify(expected == ranked, "both programs count the same triangles")
        results: dict[str, Any] = {"edges": len(src), "triangles": expected}
        with Engine(parameters.workers) as engine:
            _install_once(engine)
            edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()}, key="src")
            with timer("index"):
                edges.insert({"src": src, "dst": dst})
                engine.advance()
                by_target = engine.install("by target", edges.arrange("dst"))
                by_target.wait(engine.epoch - 1)
            plans = {"count": motifs.count(None, edges, TRIANGLE), "list": motifs.find(None, edges, TRIANGLE)}
            for name, plan in progress.track("finding triangles", plans.items()):
                with timer(name):
                    view = engine.install(name, plan)
                    view.wait(engine.epoch - 1)
                self._check(view, name, expected)
                spent = _change(engine, edges, view, src, dst, parameters, progress)
                results |= percentiles(f"{name}_change", "ms", spent)
                self._check(view, name, expected)
                view.drop()
        results |= {f"{name}_s": seconds for name, seconds in timer.seconds.items()}
        cpu = {name: timer.cpu_seconds(name) for name in timer.seconds}
        results |= {
            "count_numba_ratio": cpu["count"] / cpu["numba"],
            "index_and_count_numba_ratio": (cpu["index"] + cpu["count"]) / cpu["numba"],
            "index_and_count_numba_by_degree_ratio": (cpu["index"] + cpu["count"]) / cpu["numba_by_degree"],
            "cpu_share": timer.cpu_share,
        }
        return results

    def _check(self, view: View, name: str, expected: int) -> None:
        rows = view.read()
        actual = int(rows["count"][0].as_py()) if name == "count" else int(np.sum(rows["diff"].to_numpy()))
        self.verify(actual == expected, f"the {name} of triangles agrees with the program")


def _timed(timer: Timer, name: str, program: Callable[[], int]) -> int:
    """The result of a program, which is run once before it is measured, to compile it."""
    program()
    with timer(name):
        return program()


def _install_once(engine: Engine) -> None:
    """Count and list the triangles of a graph of three edges, so that all kernels are loaded."""
    edges = engine.input("few edges", {"src": pa.int32(), "dst": pa.int32()}, key="src")
    edges.insert({"src": [1, 2, 1], "dst": [2, 3, 3]})
    engine.advance()
    for plan in (motifs.count(None, edges, TRIANGLE), motifs.find(None, edges, TRIANGLE)):
        view = engine.install("few", plan)
        view.wait(engine.epoch - 1)
        view.drop()


def _change(
    engine: Engine,
    edges: Input,
    view: View,
    src: Nodes,
    dst: Nodes,
    parameters: TriangleParameters,
    progress: Progress,
) -> list[float]:
    """Remove a random edge and insert it again, over and over; return the milliseconds until the view is up to date."""
    random, spent = np.random.default_rng(parameters.seed + 1), []
    for number in progress.track("changing edges", range(parameters.changes // 2 * 2)):
        if number % 2 == 0:
            at = int(random.integers(len(src)))
        row = {"src": src[at : at + 1], "dst": dst[at : at + 1]}
        watch = Stopwatch()
        edges.push(row, -1 if number % 2 == 0 else 1)
        engine.advance()
        view.wait(engine.epoch - 1)
        spent.append(watch.seconds * 1e3)
    return spent


# The hand-written programs.


def _count(src: Nodes, dst: Nodes, nodes: int) -> int:
    """Sort the edges into an adjacency list, and count triangles."""
    order = np.argsort(src.astype(np.int64) << 32 | dst)
    sources, targets = src[order], dst[order]
    return int(_COMPILED(np.searchsorted(sources, np.arange(nodes + 1)), sources, targets))


def _by_degree(src: Nodes, dst: Nodes, nodes: int) -> tuple[Nodes, Nodes]:
    """The edges between nodes renumbered by degree, from the lesser to the greater."""
    degrees = np.bincount(src, minlength=nodes) + np.bincount(dst, minlength=nodes)
    rank = np.empty(nodes, np.int32)
    rank[np.argsort(degrees, kind="stable")] = np.arange(nodes, dtype=np.int32)
    return np.minimum(rank[src], rank[dst]), np.maximum(rank[src], rank[dst])


def _count_common(starts: NDArray[np.int64], sources: Nodes, targets: Nodes) -> int:
    """The number of common targets of both ends of all edges."""
    total = 0
    for edge in range(len(sources)):
        a, a_end = starts[sources[edge]], starts[sources[edge] + 1]
        b, b_end = starts[targets[edge]], starts[targets[edge] + 1]
        while a < a_end and b < b_end:
            if targets[a] < targets[b]:
                a += 1
            elif targets[b] < targets[a]:
                b += 1
            else:
                total += 1
                a += 1
                b += 1
    return total


_COMPILED: Any = numba.njit(_count_common)
