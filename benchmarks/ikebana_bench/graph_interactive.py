"""`graph-interactive`: queries of a random graph that changes, with arguments that come and go (§6.1.3, figure 5).

Four classes of queries, all prepared (`ikebana.graph.interactive`): look-up, one hop, two hops, and the shortest path
of at most four hops between a pair. Measured are:

closed loop     1, 10, 100 and 1,000 arguments at a time: the mean time from opening their answers until they are
                complete (`..._ms`), until their rows are in hand (`..._rows_ms`), and the processor time of the former
                (`..._cpu_ms`). `..._read_ms` is `read_columns` of arguments that are not open, and
                `..._read_p50_ms` is `read` of a single one.
peers           PostgreSQL and DuckDB answer the same arguments on the same graph, if this machine has them
                (`ikebana_bench.graph_peers`); compare with `..._rows_ms`.
open loop       changes arrive at a fixed rate: edges that are replaced, and arguments, of which the oldest is
                removed for each that is added: latency from the time at which a change is due until all its
                consequences are complete, by class, with shared indexes and without (each join has an index of its
                own); memory over time.
load            the 99th percentile of that latency against the rate, until it exceeds a second.

`rust_anchor_ratio` is our speed over that of differential dataflow in Rust with one worker on a graph of the same size,
measured on a different machine of the same size (`ikebana_bench.arrange` describes how reliable it is). On a busy
machine compare `cpu_ms`. Each phase verifies a sample of its answers by breadth-first search from scratch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ikebana.engine import Engine, Input
from ikebana.graph.graph_queries import AnswerSet, GraphQuery
from ikebana.graph.interactive import Interactive
from ikebana_bench import graph_peers
from ikebana_bench.measure import Series, Stopwatch, ccdf, numpy_sort_floor, resident_bytes
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Figure, Parameters, Results, Scenario, parameter

Nodes = NDArray[np.int32]

CLASSES = ("look_up", "one_hop", "two_hops", "paths")
EDGES = len(CLASSES)
"""The class of a change of an edge."""

SIZES = (1, 10, 100, 1_000)
HOPS = 4
SETTINGS = {"shared": True, "unshared": False}
MOST_AT_ONCE = 4_096
"""The number of changes that the open loop makes at once, at most."""
SATURATED_MS = 1_000.0

RUST_MS = {
    "look_up": (0.12, 0.13, 0.36, 2.1),
    "one_hop": (0.13, 0.56, 3.8, 17.0),
    "two_hops": (0.53, 5.0, 23.0, 178.0),
    "paths": (0.41, 3.6, 36.0, 432.0),
}
"""Measurements of the Rust reference with one worker and the default graph, for each of `SIZES`."""
RUST_NODES, RUST_EDGES = 1_000_000, 6_400_000


@dataclass(frozen=True)
class InteractiveParameters(Parameters):
    nodes: int = parameter(RUST_NODES, "nodes of the random graph", minimum=2)
    edges: int = parameter(RUST_EDGES, "edges of the random graph", minimum=1)
    workers: int = parameter(1, "workers, in this process", minimum=1)
    seed: int = parameter(0, "seed of graph, changes and arguments", minimum=0)
    seconds: float = parameter(1.0, "seconds of the closed loop for each class and size", minimum=0.01)
    rate: int = parameter(20_000, "changes per second in the open loop", minimum=1)
    fraction: float = parameter(0.005, "the fraction of changes of arguments among these", minimum=0.0)
    open_seconds: float = parameter(10.0, "seconds of the open loop", minimum=0.1)
    arguments: int = parameter(100, "arguments of each class that are open in the open loop", minimum=1)
    load_seconds: float = parameter(2.0, "seconds of the open loop for each rate that is tried", minimum=0.1)
    most_load: int = parameter(160_000, "the greatest rate that is tried, in changes per second; 0 for none", minimum=0)
    processor_time: bool = parameter(
        False, "latencies of the open loop are processor time of this process: for a busy machine, and one worker"
    )
    unshared: bool = parameter(True, "also run the open loop without shared indexes")
    peers: bool = parameter(True, "also ask PostgreSQL and DuckDB, where they are installed")
    sample: int = parameter(20, "answers of each class that are verified in each phase", minimum=1)


class RandomGraph:
    """A random graph whose edges are replaced at random, and answers computed from scratch."""

    def __init__(self, nodes: int, edges: int, seed: int) -> None:
        self.nodes, self.random = nodes, np.random.default_rng(seed)
        self.src, self.dst = self.draw(edges), self.draw(edges)

    def draw(self, count: int) -> Nodes:
        """Random nodes."""
        return self.random.integers(0, self.nodes, count).astype(np.int32)

    def arguments(self, name: str, count: int) -> dict[str, Nodes]:
        """Random arguments of a class."""
        names = ("source", "target") if name == "paths" else ("node",)
        return {parameter: self.draw(count) for parameter in names}

    def replace(self, count: int) -> tuple[dict[str, Nodes], Nodes]:
        """Replace random edges by others: the rows that change, and their diffs."""
        at = self.random.choice(len(self.src), min(count, len(self.src)), replace=False)
        old = self.src[at], self.dst[at]
        self.src[at], self.dst[at] = new = self.draw(len(at)), self.draw(len(at))
        rows = {
            name: np.concatenate(ends) for name, ends in zip(("src", "dst"), zip(old, new, strict=True), strict=True)
        }
        return rows, np.repeat(np.array([-1, 1], np.int32), len(at))


class Oracle:
    """Answers by breadth-first search over the present edges."""

    def __init__(self, graph: RandomGraph) -> None:
        order = np.argsort(graph.src, kind="stable")
        self._dst = graph.dst[order]
        self._starts = np.searchsorted(graph.src[order], np.arange(graph.nodes + 1))

    def _next(self, nodes: set[int]) -> set[int]:
        ranges = [self._dst[self._starts[node] : self._starts[node + 1]] for node in nodes]
        return set(np.concatenate(ranges).tolist()) if ranges else set()

    def answer(self, name: str, arguments: Sequence[int]) -> set[int]:
        """The values of an answer."""
        first, *others = arguments
        if name == "look_up":
            return {int(self._starts[first + 1] - self._starts[first])} - {0}
        if name != "paths":
            reached = self._next({first})
            return self._next(reached) if name == "two_hops" else reached
        level = {first}
        for length in range(HOPS + 1):
            if others[0] in level:
                return {length}
            level = self._next(level)
        return set()


@dataclass
class World:
    """An engine with a graph and a query of each class."""

    engine: Engine
    edges: Input
    queries: Mapping[str, GraphQuery[Any]]
    load_s: float

    def wait(self) -> None:
        """Wait until all answers are complete."""
        self.engine.wait()


@contextmanager
def world(graph: RandomGraph, workers: int, share: bool) -> Iterator[World]:
    """A block with an engine that has loaded a graph, and indexed it for all classes of queries."""
    with Engine(workers) as engine:
        watch = Stopwatch()
        edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()}, key="src")
        edges.insert({"src": graph.src, "dst": graph.dst})
        engine.advance()
        interactive = Interactive(engine, edges, share=share)
        queries = (
            interactive.look_up(),
            interactive.neighbours(),
            interactive.two_hops(),
            interactive.shortest_path(HOPS),
        )
        engine.wait()
        yield World(engine, edges, dict(zip(CLASSES, queries, strict=True)), watch.seconds)


def _warm_up(workers: int) -> None:
    """Let this process load all code that it needs, on a small graph."""
    graph = RandomGraph(100, 1_000, 0)
    with world(graph, workers, share=True) as at:
        loop = OpenLoop(at, graph, 200, 0.5)
        loop.run(1_000, 0.5)


@dataclass
class Latencies:
    """What an open loop measures: milliseconds by class, and memory by seconds."""

    by_class: dict[int, list[NDArray[np.float64]]] = field(default_factory=dict)
    memory: list[tuple[float, int]] = field(default_factory=list)

    def add(self, kind: int, milliseconds: NDArray[np.float64]) -> None:
        if len(milliseconds):
            self.by_class.setdefault(kind, []).append(milliseconds)

    def of(self, kind: int) -> NDArray[np.float64]:
        return np.concatenate(self.by_class.get(kind, [np.zeros(0)]))

    @property
    def all(self) -> NDArray[np.float64]:
        return np.concatenate([part for parts in self.by_class.values() for part in parts])


class Clock:
    """Seconds since it was created: of time, or of processor time as if this process had a core of its own."""

    def __init__(self, of_processor: bool) -> None:
        self._now = process_time if of_processor else perf_counter
        self._start, self._of_processor = self._now(), of_processor

    @property
    def seconds(self) -> float:
        return self._now() - self._start

    def sleep(self, seconds: float) -> None:
        """Wait, or pretend to."""
        if self._of_processor:
            self._start -= seconds
        else:
            sleep(seconds)


class OpenLoop:
    """Changes of edges and arguments at a fixed rate, whether or not the engine keeps up with it."""

    def __init__(
        self, at: World, graph: RandomGraph, arguments: int, fraction: float, of_processor: bool = False
    ) -> None:
        """`arguments` of each class are open; `fraction` is that of changes of arguments among all changes.

        `of_processor` says that latencies are processor time.
        """
        self._at, self._graph, self._most, self._fraction = at, graph, arguments, fraction
        self._of_processor = of_processor
        self.open: dict[str, deque[AnswerSet]] = {name: deque() for name in CLASSES}
        for name in CLASSES:
            self._replace(name, arguments)
        at.wait()

    def _replace(self, name: str, count: int) -> None:
        """Open answers, and close those that were opened first."""
        sets = self.open[name]
        sets.append(self._at.queries[name].open_columns(self._graph.arguments(name, count)))
        while sum(map(len, sets)) - len(sets[0]) >= self._most:
            sets.popleft().close()

    def run(self, rate: int, seconds: float) -> Latencies:
        """Make the changes of some seconds."""
        total = max(1, round(rate * seconds))
        kinds = self._graph.random.integers(0, len(CLASSES), total)
        kinds[self._graph.random.random(total) >= self._fraction] = EDGES
        due_at = np.arange(total) / rate
        latencies, done, clock = Latencies(), 0, Clock(self._of_processor)
        while done < total:
            now = clock.seconds
            if due_at[done] > now:
                clock.sleep(due_at[done] - now)
                continue
            end = min(int(np.searchsorted(due_at, now, side="right")), done + MOST_AT_ONCE)
            self._step(kinds[done:end], due_at[done:end], clock, latencies)
            done = end
            latencies.memory.append((clock.seconds, resident_bytes()))
        return latencies

    def _step(self, kinds: NDArray[Any], due_at: NDArray[np.float64], clock: Clock, latencies: Latencies) -> None:
        """Make the changes that are due, and note when their consequences are complete."""
        counts = np.bincount(kinds, minlength=EDGES + 1)
        if counts[EDGES]:
            rows, diffs = self._graph.replace(int(counts[EDGES]))
            self._at.edges.push(rows, diffs)
            self._at.engine.advance()
        changed = [(kind, name) for kind, name in enumerate(CLASSES) if counts[kind]]
        for kind, name in changed:
            self._replace(name, int(counts[kind]))
        for kind, name in changed:
            self._at.queries[name].wait()
            latencies.add(kind, (clock.seconds - due_at[kinds == kind]) * 1e3)
        self._at.wait()
        latencies.add(EDGES, (clock.seconds - due_at[kinds == EDGES]) * 1e3)


class GraphInteractive(Scenario[InteractiveParameters]):
    """Open and close the answers of four classes of queries while the graph changes."""

    name = "graph-interactive"
    claim = "Queries that share two indexes take a quarter of the memory, and answer within milliseconds."
    paper = "§6.1.3, figure 5"
    parameters = InteractiveParameters

    def run(self, parameters: InteractiveParameters, progress: Progress) -> Results:
        self._p = parameters
        self._graph = RandomGraph(parameters.nodes, parameters.edges, parameters.seed)
        results: dict[str, Any] = {}
        _warm_up(parameters.workers)
        for setting, share in SETTINGS.items():
            if not share and not parameters.unshared:
                continue
            before = resident_bytes()
            with world(self._graph, parameters.workers, share) as at:
                results[f"{setting}_load_s"] = at.load_s
                results |= self._open_loop(setting, at, before, progress)
                results |= self._load(setting, at, progress)
                if share:
                    results |= self._closed_loop(at, progress)
        if parameters.peers:
            results |= self._peers(progress)
        return {**results, **self._ratios(results), "sort_1m_floor_ms": numpy_sort_floor(1_000_000) * 1e3}

    # Closed loop.

    def _closed_loop(self, at: World, progress: Progress) -> dict[str, float]:
        results: dict[str, float] = {}
        oracle = Oracle(self._graph)
        for name in progress.track("asking", CLASSES):
            for size in SIZES:
                results |= self._ask(at, oracle, name, size)
            results[f"{name}_read_p50_ms"] = self._read(at, oracle, name)
        return results

    def _ask(self, at: World, oracle: Oracle, name: str, size: int) -> dict[str, float]:
        query = at.queries[name]
        complete, in_hand, cpu, read = list[float](), list[float](), list[float](), list[float]()
        watch = Stopwatch()
        while watch.seconds < self._p.seconds or len(complete) < 4:
            arguments = self._graph.arguments(name, size)
            started, clock = process_time(), Stopwatch()
            answers = query.open_columns(arguments)
            query.wait()
            complete.append(clock.seconds * 1e3)
            cpu.append((process_time() - started) * 1e3)
            rows = answers.to_arrow()
            in_hand.append(clock.seconds * 1e3)
            answers.close()
            query.wait()
            clock = Stopwatch()
            query.read_columns(arguments)
            read.append(clock.seconds * 1e3)
        actual = [tuple(row.values()) for row in rows.to_pylist()]
        self._check_rows(oracle, name, arguments, actual, f"{size} at a time")
        first = len(complete) // 4  # while programs and memory adapt to the size
        measured = {"ms": complete, "rows_ms": in_hand, "cpu_ms": cpu, "read_ms": read}
        results = {f"{name}_{size}_{unit}": float(np.mean(times[first:])) for unit, times in measured.items()}
        if (self._p.nodes, self._p.edges, self._p.workers) == (RUST_NODES, RUST_EDGES, 1):
            rust = RUST_MS[name][SIZES.index(size)]
            results[f"{name}_{size}_rust_anchor_ratio"] = rust / results[f"{name}_{size}_ms"]
            results[f"{name}_{size}_cpu_rust_anchor_ratio"] = rust / results[f"{name}_{size}_cpu_ms"]
        return results

    def _read(self, at: World, oracle: Oracle, name: str) -> float:
        """The median time of `read` for one argument."""
        query, times = at.queries[name], []
        for _ in range(max(self._p.sample, 50)):
            arguments = {key: int(nodes[0]) for key, nodes in self._graph.arguments(name, 1).items()}
            watch = Stopwatch()
            rows = query.read(arguments)
            times.append(watch.seconds * 1e3)
            expected = oracle.answer(name, list(arguments.values()))
            self.verify(set(rows.column(0).to_pylist()) == expected, f"read of {name} is right", detail=str(arguments))
        return float(np.median(times))

    def _check_rows(
        self,
        oracle: Oracle,
        name: str,
        arguments: Mapping[str, Nodes],
        rows: Sequence[tuple[int, ...]],
        what: str,
    ) -> None:
        """Verify some of the answers, given rows of arguments and values."""
        answers: dict[tuple[int, ...], set[int]] = {}
        for row in rows:
            answers.setdefault(tuple(row[:-1]), set()).add(int(row[-1]))
        given = list(zip(*(nodes.tolist() for nodes in arguments.values()), strict=True))
        for values in given[: self._p.sample]:
            expected = oracle.answer(name, values)
            self.verify(answers.get(values, set()) == expected, f"{name}, {what}, is right", detail=str(values))

    # Open loop.

    def _open_loop(self, setting: str, at: World, before: int, progress: Progress) -> dict[str, Any]:
        p = self._p
        loop = OpenLoop(at, self._graph, p.arguments, p.fraction, p.processor_time)
        loop.run(p.rate, min(1.0, p.open_seconds))
        results: dict[str, Any] = {}
        for _ in progress.track(f"open loop, {setting}", range(1)):
            latencies = loop.run(p.rate, p.open_seconds)
        for kind, name in enumerate((*CLASSES, "edges")):
            samples = latencies.of(kind)
            if len(samples):
                quantiles = np.quantile(samples, [0.5, 0.95, 0.99], method="higher").tolist()
                for label, value in zip(("p50", "p95", "p99"), quantiles, strict=True):
                    results[f"{setting}_{name}_{label}_ms"] = value
                results[f"{setting}_{name}_latency_ms"] = ccdf(samples)
        p95, p99 = np.quantile(latencies.all, [0.95, 0.99], method="higher").tolist()
        results |= {f"{setting}_all_p95_ms": p95, f"{setting}_all_p99_ms": p99}
        seconds, resident = zip(*latencies.memory[:: max(1, len(latencies.memory) // 200)], strict=True)
        results[f"{setting}_memory_bytes"] = Series(seconds, tuple(float(value - before) for value in resident))
        results[f"{setting}_resident_bytes"] = float(resident[-1] - before)
        status = at.engine.status()
        results[f"{setting}_arrangements_bytes"] = float(sum(one.bytes + one.inner_bytes for one in status))
        self._check_open(loop, setting)
        return results

    def _check_open(self, loop: OpenLoop, setting: str) -> None:
        oracle = Oracle(self._graph)
        for name in CLASSES:
            answers = loop.open[name][-1]
            rows = [tuple(row.values()) for row in answers.to_arrow().to_pylist()]
            arguments = {key: np.asarray(values) for key, values in answers.bound.items()}
            self._check_rows(oracle, name, arguments, rows, f"after changes, {setting}")

    def _load(self, setting: str, at: World, progress: Progress) -> dict[str, Any]:
        """The 99th percentile of latencies for growing rates."""
        p, rates, quantiles = self._p, list[float](), list[float]()
        rate = max(1, p.rate // 8)
        loop = OpenLoop(at, self._graph, p.arguments, p.fraction, p.processor_time)
        while rate <= p.most_load and (not quantiles or quantiles[-1] < SATURATED_MS):
            for _ in progress.track(f"{rate} changes per second, {setting}", range(1)):
                latencies = loop.run(rate, p.load_seconds)
            rates.append(float(rate))
            quantiles.append(float(np.quantile(latencies.all, 0.99, method="higher")))
            rate *= 2
        if not rates:
            return {}
        self._check_open(loop, f"{setting}, at {rates[-1]:.0f} changes per second")
        in_time = [rate for rate, quantile in zip(rates, quantiles, strict=True) if quantile <= 20]
        results: dict[str, Any] = {f"{setting}_load_p99_ms": Series(tuple(rates), tuple(quantiles))}
        results[f"{setting}_load_within_20ms_per_s"] = max(in_time, default=0.0)
        kept_up = [rate for rate, quantile in zip(rates, quantiles, strict=True) if quantile < SATURATED_MS]
        results[f"{setting}_load_within_1s_per_s"] = max(kept_up, default=0.0)
        return results

    def _ratios(self, results: Mapping[str, Any]) -> dict[str, float]:
        """Without sharing over with sharing."""
        names = ("load_s", "all_p95_ms", "all_p99_ms", "resident_bytes", "arrangements_bytes")
        return {
            f"{name.rpartition('_')[0]}_unshared_over_shared_ratio": results[f"unshared_{name}"]
            / results[f"shared_{name}"]
            for name in names
            if f"unshared_{name}" in results and results[f"shared_{name}"] > 0
        }

    # Peers.

    def _peers(self, progress: Progress) -> dict[str, float]:
        results: dict[str, float] = {}
        oracle = Oracle(self._graph)
        for peer_name, start in graph_peers.available().items():
            watch = Stopwatch()
            with start(self._graph.src, self._graph.dst) as peer:
                results[f"{peer_name}_load_s"] = watch.seconds
                for name in progress.track(f"asking {peer_name}", CLASSES):
                    for size in SIZES:
                        results[f"{name}_{size}_{peer_name}_ms"] = self._ask_peer(oracle, peer, name, size)
        return results

    def _ask_peer(self, oracle: Oracle, peer: graph_peers.GraphPeer, name: str, size: int) -> float:
        """The mean time of a peer's answers."""
        times, watch = list[float](), Stopwatch()
        while watch.seconds < self._p.seconds or len(times) < 3:
            arguments = self._graph.arguments(name, size)
            clock = Stopwatch()
            rows = peer.answer(name, list(arguments.values()))
            times.append(clock.seconds * 1e3)
        given = list(zip(*(nodes.tolist() for nodes in arguments.values()), strict=True))
        with_arguments = [(*given[number - 1], value) for number, value in rows]
        self._check_rows(oracle, name, arguments, with_arguments, f"of {peer.name}")
        return float(np.mean(times[1:]))

    # Figures.

    def figures(self, results: Results) -> Sequence[Figure]:
        def curves(ending: str) -> dict[str, Series]:
            series = {name: value for name, value in results.items() if isinstance(value, Series)}
            return {
                name.removesuffix(ending).replace("_", " "): value
                for name, value in series.items()
                if name.endswith(ending)
            }

        panels = [
            Figure("Latency in the open loop", "milliseconds", curves("_latency_ms")),
            Figure("Load", "changes per second", curves("_load_p99_ms"), "p99, milliseconds", points=False),
            Figure("Memory", "seconds", curves("_memory_bytes"), "bytes", x_scale="linear", y_scale="linear"),
        ]
        return [panel for panel in panels if panel.curves]
