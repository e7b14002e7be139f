"""`datalog` and `datalog-interactive`: recursive Datalog programs (§6.3.1, appendix D).

- `datalog` computes transitive closure and same generation bottom-up, to completion.
- `datalog-interactive` asks `tc(x, ?)`, `tc(?, x)` and `sg(x, ?)` for random arguments, one at a time.

Measured by `datalog` is the time from installing a relation over facts that are loaded and indexed by all columns until
the relation is complete; by `datalog-interactive`, the time from opening an answer until it is complete
(`..._open_...`), until its rows are in hand as an Arrow table (`..._rows_...`), and until it is closed again and its
rows are removed (`..._close_...`). Beside them: full evaluation of the relation, where it fits into memory.

Graphs. Trees have 2 or 3 children for each node, grids have edges to the right and down, random graphs have no loops.
`tree-11` has 72,819 edges on 12 levels, about as many as the paper's, whose nodes have 2 to 6 children. The closure of
grid-150 has 132 million pairs, and same generation on tree-11 has 2.7 billion: `datalog` leaves them out, unless
`--large` asks for the former.

A single worker runs in this process; several workers run in separate processes. `cpu_s` are the processor seconds of
this process in the measured time, which with one worker are all: on a busy machine, compare these.

`rust_anchor_ratio` is our speed over the speed of differential dataflow in Rust with one worker on the same graphs,
measured on a different machine of the same size (`ikebana_bench.arrange` describes how reliable it is). `duckdb_s` and
`spark_s` are the times of recursive SQL in the same run (`ikebana_bench.recursive_sql`).

Every time of `datalog` is the least of several runs, each on an engine of its own, after a first run (`..._first_s`)
that is not counted: the first run in a process loads compiled kernels. Peers are measured in the same way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikebana.cluster.processes import Processes
from ikebana.datalog import Program
from ikebana.datalog.topdown import Answer, Query
from ikebana.engine import Engine
from ikebana_bench.graphs import closed, same_generation
from ikebana_bench.measure import Stopwatch, Timer, numpy_sort_floor, percentiles, resident_bytes
from ikebana_bench.progress import Progress
from ikebana_bench.recursive_sql import Peer, recursive_peers
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

Edges = NDArray[np.int32]

RULES = """
    .decl arc(x: number, y: number)
    .decl tc(x: number, y: number)
    .decl sg(x: number, y: number)
    tc(x, y) :- arc(x, y).
    tc(x, z) :- tc(x, y), arc(y, z).
    sg(x, y) :- arc(p, x), arc(p, y), x != y.
    sg(x, y) :- arc(a, x), sg(a, b), arc(b, y).
    .output arc
"""
"""Only `arc` is an output, so that other relations are computed when they are asked for."""

# Measurements of the Rust reference with one worker on the same graphs.
RUST_S = {
    "tc_tree-11": 0.44,
    "tc_grid-50": 1.33,
    "tc_gnp-1k": 2.5,
    "sg_tree-8": 1.05,
    "sg_grid-50": 0.21,
    "sg_grid-150": 7.0,
    "sg_gnp-1k": 8.1,
}
RUST_OPEN_MS = {"tc_bf": 0.22, "tc_fb": 0.64, "sg_bf": 190.0}


# Graphs.


def tree(levels: int, seed: int) -> Edges:
    """A tree in which every node above the last level has 2 or 3 children; nodes are numbered level by level."""
    numbers = random.Random(seed)
    edges: list[tuple[int, int]] = []
    level = range(1)
    for _ in range(levels):
        first = level.stop
        for node in level:
            children = numbers.randint(2, 3)
            start = len(edges) + 1
            edges += [(node, child) for child in range(start, start + children)]
        level = range(first, len(edges) + 1)
    return np.array(edges, np.int32)


def grid(side: int) -> Edges:
    """A grid of `side + 1` nodes in each direction, with edges to the right and down."""
    at = np.arange((side + 1) ** 2, dtype=np.int32).reshape(side + 1, side + 1)
    right = np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], axis=1)
    down = np.stack([at[:-1].ravel(), at[1:].ravel()], axis=1)
    return np.concatenate([right, down])


def random_graph(nodes: int, edges: int, seed: int) -> Edges:
    """A number of different edges between different nodes."""
    generator = np.random.default_rng(seed)
    drawn = np.empty((0, 2), np.int64)
    while len(drawn) < edges:
        more = generator.integers(0, nodes, (edges - len(drawn) + 100, 2))
        drawn = np.concatenate([drawn, more])
        drawn = np.unique(drawn[drawn[:, 0] != drawn[:, 1]], axis=0)
    chosen = np.sort(generator.permutation(len(drawn))[:edges])
    return drawn[chosen].astype(np.int32)


GRAPHS: Mapping[str, Callable[[], Edges]] = {
    "tree-11": lambda: tree(12, 2),
    "tree-8": lambda: tree(8, 3),
    "grid-50": lambda: grid(50),
    "grid-150": lambda: grid(150),
    "gnp-1k": lambda: random_graph(1_000, 10_000, 7),
}
CASES = (
    ("tc", "tree-11"),
    ("tc", "grid-50"),
    ("tc", "gnp-1k"),
    ("sg", "tree-8"),
    ("sg", "grid-50"),
    ("sg", "grid-150"),
    ("sg", "gnp-1k"),
)
LARGE_CASES = (("tc", "grid-150"),)


def depths(edges: Edges) -> NDArray[np.int64]:
    """The level of each node of a tree whose nodes are numbered level by level, or of a grid."""
    depth = np.zeros(int(edges.max()) + 1, np.int64)
    for parent, child in edges.tolist():
        depth[child] = depth[parent] + 1
    return depth


def pairs(relation: str, name: str, edges: Edges) -> int:
    """The number of pairs in a relation, computed independently."""
    kind, _, size = name.partition("-")
    if kind == "gnp":
        return closed(edges) if relation == "tc" else same_generation(edges)
    if kind == "grid":
        side = int(size) + 1
        if relation == "tc":
            return (side * (side + 1) // 2) ** 2 - side**2
        diagonals = np.bincount(np.add.outer(np.arange(side), np.arange(side)).ravel())
        return int((diagonals**2).sum()) - (2 * side - 1)  # nodes at the two edges are not their own peers
    depth = depths(edges)
    if relation == "tc":
        return int(depth.sum())
    levels = np.bincount(depth)
    return int((levels * (levels - 1)).sum())


@contextmanager
def engine_of(workers: int) -> Iterator[Engine]:
    """An engine with one worker in this process, or with several workers in separate processes."""
    with Engine(cluster=Processes(workers) if workers > 1 else None) as engine:
        yield engine


def loaded(engine: Engine, edges: Edges) -> Program:
    """A program with the edges as facts."""
    program = Program(engine, RULES)
    program.insert("arc", {"x": edges[:, 0], "y": edges[:, 1]})
    engine.wait()
    return program


def evaluate(program: Program, relation: str) -> None:
    """Compute a relation."""
    program.relation(relation).view.wait(program.engine.epoch - 1)


# Bottom up.


@dataclass(frozen=True)
class DatalogParameters(Parameters):
    workers: int = parameter(1, "workers: one in this process, or several processes", minimum=1)
    only: str = parameter("all", "the graph to measure", choices=("all", *GRAPHS))
    large: bool = parameter(False, "also the closure of grid-150, which needs several GiB")
    runs: int = parameter(3, "measured runs of each case, of which the fastest counts", minimum=1)
    peers: bool = parameter(True, "also run recursive SQL in DuckDB, if it is installed")
    spark: bool = parameter(False, "also run recursive SQL in Spark, on trees")


class Datalog(Scenario[DatalogParameters]):
    """Compute transitive closure and same generation bottom-up, from Datalog text."""

    name = "datalog"
    claim = "Recursive rules are evaluated to completion in seconds, and their results stay up to date afterwards."
    paper = "§6.3.1, appendix D"
    parameters = DatalogParameters

    def run(self, parameters: DatalogParameters, progress: Progress) -> Results:
        cases = [*CASES, *(LARGE_CASES if parameters.large else ())]
        chosen = [case for case in cases if parameters.only in ("all", case[1])]
        results: dict[str, Any] = {}
        with recursive_peers(spark=parameters.spark) as peers:
            if not parameters.peers:
                peers = [peer for peer in peers if peer.name != "duckdb"]
            for relation, name in progress.track("evaluating", chosen):
                edges, case = GRAPHS[name](), f"{relation}_{name}"
                expected = pairs(relation, name, edges)
                results |= self._evaluations(parameters, relation, edges, case, expected)
                for peer in peers:
                    if peer.can_evaluate(name):
                        results[f"{case}_{peer.name}_s"] = self._peer(parameters, peer, relation, edges, expected)
        floor = numpy_sort_floor(1_000_000) * 1e3
        return {**results, "sort_1m_floor_ms": floor, "resident_bytes": resident_bytes()}

    def _evaluations(
        self, parameters: DatalogParameters, relation: str, edges: Edges, case: str, expected: int
    ) -> dict[str, float]:
        """The times of one case: the first, which is not counted, and the least of the others."""
        timer = Timer()
        runs = [f"run {number}" for number in range(parameters.runs + 1)]
        for run in runs:
            with engine_of(parameters.workers) as engine:
                program = loaded(engine, edges)
                with timer(run):
                    evaluate(program, relation)
                count = program.relation(relation).view.to_arrow().num_rows
            self.verify(count == expected, f"{case} has {expected} pairs", detail=str(count))
        fastest = min(runs[1:], key=timer.seconds.__getitem__)
        seconds = timer.seconds[fastest]
        results = {f"{case}_first_s": timer.seconds[runs[0]], f"{case}_s": seconds}
        results |= {f"{case}_cpu_s": timer.cpu_seconds(fastest), f"{case}_pairs": expected}
        return results | ({f"{case}_rust_anchor_ratio": RUST_S[case] / seconds} if case in RUST_S else {})

    def _peer(self, parameters: DatalogParameters, peer: Peer, relation: str, edges: Edges, expected: int) -> float:
        """The least time of a peer, after a run that is not counted."""
        times = []
        for _ in range(parameters.runs + 1):
            seconds, count = peer.evaluate(relation, edges)
            self.verify(count == expected, f"{peer.name} has {expected} pairs of {relation}", detail=str(count))
            times.append(seconds)
        return min(times[1:])


# Top down.


@dataclass(frozen=True)
class InteractiveParameters(Parameters):
    workers: int = parameter(1, "workers: one in this process, or several processes", minimum=1)
    graph: str = parameter("tree-11", "the graph", choices=("tree-11", "tree-8", "grid-50", "grid-150"))
    arguments: int = parameter(100, "random arguments of each question", minimum=1)
    seed: int = parameter(0, "seed of the arguments", minimum=0)
    full: bool = parameter(True, "also evaluate relations of up to 50 million pairs in full")


class DatalogInteractive(Scenario[InteractiveParameters]):
    """Ask questions with one bound argument, for random arguments, one after the other."""

    name = "datalog-interactive"
    claim = "A question with a bound argument takes less than a hundredth of the time of full evaluation."
    paper = "§6.3.1, appendix D (top-down)"
    parameters = InteractiveParameters

    def run(self, parameters: InteractiveParameters, progress: Progress) -> Results:
        self._p, self._edges = parameters, GRAPHS[parameters.graph]()
        self._depth = depths(self._edges)
        nodes = np.random.default_rng(parameters.seed).integers(0, len(self._depth), parameters.arguments)
        full = self._full() if parameters.full else {}
        results: dict[str, Any] = {f"{relation}_full_s": seconds for relation, seconds in full.items()}
        with engine_of(parameters.workers) as engine:
            watch = Stopwatch()
            program = loaded(engine, self._edges)
            results["load_s"] = watch.seconds
            for text, name in (("tc(x, ?)", "tc_bf"), ("tc(?, x)", "tc_fb"), ("sg(x, ?)", "sg_bf")):
                results |= self._ask(program, text, name, nodes, full.get(name[:2]), progress)
            results["resident_bytes"] = resident_bytes()
        return {**results, "sort_1m_floor_ms": numpy_sort_floor(1_000_000) * 1e3}

    def _full(self) -> dict[str, float]:
        """The seconds of full evaluation, for each relation that is small enough."""
        seconds = {}
        for relation in ("tc", "sg"):
            if pairs(relation, self._p.graph, self._edges) <= 50_000_000:
                with engine_of(self._p.workers) as engine:
                    program = loaded(engine, self._edges)
                    watch = Stopwatch()
                    evaluate(program, relation)
                    seconds[relation] = watch.seconds
        return seconds

    def _ask(
        self, program: Program, text: str, name: str, nodes: NDArray[Any], full: float | None, progress: Progress
    ) -> dict[str, float]:
        opened, read, closed_, cpu = list[float](), list[float](), list[float](), list[float]()
        with program.query(text) as query:
            assert isinstance(query, Query)
            self.verify(query.rewriting.is_magic, f"{text} is rewritten")
            for warm in nodes[:3].tolist():
                query.open(x=warm).close()
            for node in progress.track(f"asking {text}", nodes.tolist()):
                watch, started = Stopwatch(), process_time()
                answer = query.open(x=node)
                query.wait()
                opened.append(watch.seconds * 1e3)
                cpu.append((process_time() - started) * 1e3)
                rows = answer.to_arrow()
                read.append(watch.seconds * 1e3)
                free = rows.column(1 if name.endswith("bf") else 0).to_numpy()
                expected = self._expected(name, node)
                self.verify(np.array_equal(np.sort(free), expected), f"{text} is right for x = {node}")
                closed_.append(_closing_milliseconds(query, answer))
        results = percentiles(f"{name}_open", "ms", opened) | percentiles(f"{name}_rows", "ms", read)
        results |= percentiles(f"{name}_close", "ms", closed_)
        results[f"{name}_open_cpu_p50_ms"] = float(np.median(cpu))
        if self._p.graph == "tree-11":
            results[f"{name}_rust_anchor_ratio"] = RUST_OPEN_MS[name] / float(np.median(opened))
        if full is not None:
            results[f"{name}_over_full_ratio"] = full * 1e3 / float(np.median(opened))
        return results

    def _expected(self, name: str, node: int) -> NDArray[Any]:
        """The answer of a question, computed from the edges."""
        if name == "sg_bf":
            peers = np.flatnonzero(self._depth == self._depth[node])
            return peers if self._is_own_peer(node) else peers[peers != node]
        one, other = self._edges.T if name == "tc_bf" else self._edges[:, ::-1].T
        reached, level = np.zeros(len(self._depth), bool), np.zeros(len(self._depth), bool)
        level[node] = True
        while level.any():
            following = np.zeros_like(level)
            following[other[level[one]]] = True
            level = following & ~reached
            reached |= following
        return np.flatnonzero(reached)

    def _is_own_peer(self, node: int) -> bool:
        """Whether two paths of the same length lead to a node: in a grid, unless it is at the top or on the left."""
        return int((self._edges[:, 1] == node).sum()) > 1


def _closing_milliseconds(query: Query, answer: Answer) -> float:
    watch = Stopwatch()
    answer.close()
    query.wait()
    return watch.seconds * 1e3
