"""What the tests of hosted workers compute, and what they look at; also imported by the scripts that they run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute

from ikebana.collection import Collection
from ikebana.dataflow.transport import Cluster
from ikebana.engine import Engine, View

EDGES = {"src": pa.int64(), "dst": pa.int64()}
SOON = 15.0
"""Seconds in which everything that goes wrong has been noticed and cleaned up, on a busy machine too."""


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def reach(edges: Collection, roots: Collection) -> Collection:
    def grow(nodes: Collection) -> Collection:
        steps = nodes.select(src="node").join(edges.arrange("src").enter(nodes).rows(), "src")
        return steps.select(node="dst").concat(roots.enter(nodes)).distinct()

    return roots.iterate(grow)


def leads_on(columns: dict[str, pa.Array]) -> Any:
    """A function that workers must find by its name."""
    return pa.compute.not_equal(columns["src"], columns["dst"])


def program(cluster: Cluster, epochs: int = 4) -> list[Any]:
    """A join with a count on top, and reachability, over edges that come and go; everything that was read."""
    chance = random.Random(5)
    engine = Engine(cluster=cluster)
    edges = engine.input("edges", EDGES)
    names = engine.input("names", {"src": pa.int64(), "name": pa.string()})
    roots = engine.input("roots", {"node": pa.int64()})
    views = [
        engine.install("fans", edges.join(names, "src").count("name")),
        engine.install("reach", reach(edges.filter(leads_on), roots)),
    ]
    roots.insert({"node": [0]})
    names.insert({"src": list(range(40)), "name": [f"of {each % 7}" for each in range(40)]})
    seen, present = [], list[tuple[int, int]]()
    for _ in range(epochs):
        gone = [present.pop(chance.randrange(len(present))) for _ in range(len(present) // 4)]
        come = [(chance.randrange(40), chance.randrange(40)) for _ in range(30)]
        present += come
        edges.insert({"src": [src for src, _ in come], "dst": [dst for _, dst in come]})
        edges.remove({"src": [src for src, _ in gone], "dst": [dst for _, dst in gone]})
        engine.advance()
        seen += [rows(view.read()) for view in views]
    return seen


def endless(cluster: Cluster) -> View:
    """A view that never completes: its function does not return."""
    engine = Engine(cluster=cluster)
    edges = engine.input("edges", EDGES)
    view = engine.install("endless", edges.filter(lambda columns: time.sleep(1000)))
    edges.insert({"src": np.arange(10), "dst": np.arange(10)})
    engine.advance()
    return view


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def all_end(pids: list[int], seconds: float = SOON) -> bool:
    return within(seconds, lambda: not any(map(is_running, pids)))


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
