"""The benchmarks of graphs at a small size: what they verify and what they report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from ikebana.cli import main
from ikebana_bench import graph_arrays, graph_batch, graph_interactive, graph_peers, postgres
from ikebana_bench.graph_interactive import CLASSES, SIZES, Oracle, RandomGraph
from ikebana_bench.graphs import Graph
from ikebana_bench.rmat import rmat


def report(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    path = tmp_path / "report.json"
    assert main(["bench", *arguments, "--json", str(path)]) == 0
    return json.loads(path.read_text())["results"]


def test_oracle_of_interactive_queries() -> None:
    """Breadth-first search agrees with networkx, after edges were replaced."""
    graph = RandomGraph(30, 60, 1)
    graph.replace(20)
    network, oracle = nx.MultiDiGraph(zip(graph.src.tolist(), graph.dst.tolist(), strict=True)), Oracle(graph)
    network.add_nodes_from(range(30))
    lengths = dict(nx.all_pairs_shortest_path_length(network, cutoff=4))
    for node in range(30):
        assert oracle.answer("look_up", [node]) == {network.out_degree(node)} - {0}
        assert oracle.answer("one_hop", [node]) == set(network.successors(node))
        for other in range(30):
            expected = {lengths[node][other]} if other in lengths[node] else set()
            assert oracle.answer("paths", [node, other]) == expected


SMALL = (
    "--nodes=300",
    "--edges=900",
    "--seconds=0.01",
    "--open-seconds=0.2",
    "--load-seconds=0.1",
    "--sample=5",
    "--rate=500",
    "--fraction=0.5",
)


def test_interactive_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_interactive, "SIZES", (1, 10))
    figure = tmp_path / "figure.png"
    results = report(tmp_path, "graph-interactive", *SMALL, "--most-load=500", "--no-peers", f"--figure={figure}")
    assert figure.exists()
    for name in CLASSES:
        assert {f"{name}_10_ms", f"{name}_10_rows_ms", f"{name}_1_cpu_ms", f"{name}_read_p50_ms"} <= results.keys()
        assert {f"shared_{name}_p95_ms", f"unshared_{name}_latency_ms"} <= results.keys()
    assert {"all_p95_unshared_over_shared_ratio", "shared_load_p99_ms", "unshared_memory_bytes"} <= results.keys()


class Reversed(graph_peers.GraphPeer):
    """A peer that follows edges backwards."""

    name = "reversed"

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def answer(self, query: str, arguments: Any) -> graph_peers.Rows:
        rows = enumerate(zip(*(nodes.tolist() for nodes in arguments), strict=True), 1)
        return [(number, value) for number, values in rows for value in self._oracle.answer(query, values)]


def test_wrong_answers_of_peers_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def start(src: Any, dst: Any) -> Iterator[Reversed]:
        graph = RandomGraph(300, 1, 0)
        graph.src, graph.dst = dst, src
        yield Reversed(Oracle(graph))

    monkeypatch.setattr(graph_interactive, "SIZES", (1, 10))
    monkeypatch.setattr(graph_peers, "available", lambda: {"reversed": start})
    assert main(["bench", "graph-interactive", *SMALL, "--most-load=0", "--no-unshared"]) != 0


@pytest.mark.skipif(not graph_peers.available(), reason="there is no PostgreSQL and no DuckDB")
def test_oracle_peers() -> None:
    graph = RandomGraph(200, 800, 3)
    oracle = Oracle(graph)
    for start in graph_peers.available().values():
        with start(graph.src, graph.dst) as peer:
            for name in CLASSES:
                arguments = graph.arguments(name, 40)
                answers: dict[int, set[int]] = {}
                for number, value in peer.answer(name, list(arguments.values())):
                    answers.setdefault(number, set()).add(value)
                given = zip(*(nodes.tolist() for nodes in arguments.values()), strict=True)
                for number, values in enumerate(given, 1):
                    assert answers.get(number, set()) == oracle.answer(name, values), (name, values)


@pytest.mark.skipif(postgres.server_folder() is None, reason="there is no PostgreSQL")
def test_errors_of_postgres() -> None:
    with postgres.server() as (connection, _):
        assert connection.execute("SELECT 1, NULL") == [("1", None)]
        with pytest.raises(postgres.PostgresError, match="syntax error"):
            connection.execute("SELEC 1")


def test_sizes_are_those_of_the_anchors() -> None:
    assert all(len(times) == len(SIZES) for times in graph_interactive.RUST_MS.values())
    assert np.all(np.diff([graph_interactive.RUST_MS[name] for name in CLASSES], axis=1) > 0)


# graph-batch.


def test_iterative_queries(tmp_path: Path) -> None:
    arguments = ("--nodes=100", "--edges=300", "--scale=6", "--edge-factor=3", "--processes=1", "--no-arrays")
    results = report(tmp_path, "graph-batch", *arguments)
    for program in graph_batch.PROGRAMS:
        assert {f"random_1_{program}_s", f"rmat_1_{program}_cpu_s"} <= results.keys()


@pytest.mark.parametrize("graph", [Graph.random(50, 60, 1), Graph(1 << 6, *rmat(6, 2, 1))], ids=["random", "rmat"])
def test_oracle_programs_for_one_thread(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs over arrays and hash maps agree with NumPy; they are not compiled here."""
    for name, function in vars(graph_arrays).items():
        if hasattr(function, "py_func"):
            monkeypatch.setattr(graph_arrays, name, function.py_func)
    expected = graph_batch._expected(graph)
    for run in (graph_batch._by_arrays, graph_batch._by_maps):
        timer, answers = run(graph)
        assert timer.seconds.keys() == set(graph_batch.PROGRAMS)
        assert {name: values.tolist() for name, values in answers.items()} == {
            name: values.tolist() for name, values in expected.items()
        }
