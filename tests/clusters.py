"""What tests of clusters have in common: a program to compare answers of, functions that block, interrupts, and whether
processes have ended."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from ikebana.cluster import Cluster
from ikebana.cluster.launch import WORKER_MODULE
from ikebana.engine import Engine, View
from ikebana.engine.collection import Collection

SOON = 60.0
"""Seconds after which a test gives up waiting for what should happen at once: even a busy machine needs fewer."""

EDGES = {"src": pa.int64(), "dst": pa.int64()}


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def reach(edges: Collection, roots: Collection) -> Collection:
    def grow(nodes: Collection) -> Collection:
        steps = nodes.select(src="node").join(edges.arrange("src").enter(nodes).rows(), "src")
        return steps.select(node="dst").concat(roots.enter(nodes)).distinct()

    return roots.iterate(grow)


def program(
    cluster: Cluster, name: str = "", epochs: int = 6, steps: Callable[[Collection], Collection] = lambda edges: edges
) -> list[Any]:
    """A join with a count on top, and reachability, over edges that come and go; everything that was read."""
    chance = random.Random(5)
    engine = Engine(cluster=cluster)
    edges, names = (
        engine.input(f"{name} edges", EDGES),
        engine.input(f"{name} names", {"src": pa.int64(), "name": pa.string()}),
    )
    roots = engine.input(f"{name} roots", {"node": pa.int64()})
    views = [
        engine.install(f"{name} fans", edges.join(names, "src").count("name")),
        engine.install(f"{name} reach", reach(steps(edges), roots)),
    ]
    roots.insert({"node": [0]})
    names.insert({"src": list(range(40)), "name": [f"of {node % 7}" for node in range(40)]})
    seen, present = [], list[tuple[int, int]]()
    for epoch in range(epochs):
        gone = [present.pop(chance.randrange(len(present))) for _ in range(len(present) // 4)]
        come = [(chance.randrange(40), chance.randrange(40)) for _ in range(30)]
        present += come
        edges.insert({"src": [src for src, _ in come], "dst": [dst for _, dst in come]})
        edges.remove({"src": [src for src, _ in gone], "dst": [dst for _, dst in gone]})
        engine.advance()
        if epoch == epochs - 2:
            engine.run()
        seen += [rows(view.read()) for view in views]
    for view in views:
        view.drop()
    return seen


def endless(cluster: Cluster) -> View:
    """A view that never completes: its function does not return."""
    engine = Engine(cluster=cluster)
    edges = engine.input("edges", EDGES)
    view = engine.install("endless", edges.filter(lambda columns: time.sleep(1000)))
    edges.insert({"src": np.arange(10), "dst": np.arange(10)})
    engine.advance()
    return view


class Brake:
    """A function of workers and tasks that reports when it runs, and returns when it is released."""

    def __init__(self, path: Path) -> None:
        self._works, self._free = path.with_suffix(".works"), path.with_suffix(".free")

    def __call__(self, columns: dict[str, pa.Array]) -> Any:
        column = next(iter(columns.values()))
        if len(column):
            self._stop()
        return column.is_valid()

    def batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self._stop()
            yield batch

    def _stop(self) -> None:
        self._works.touch()
        while not self._free.exists():
            time.sleep(0.01)

    def works(self) -> bool:
        return self._works.exists()

    def release(self) -> None:
        self._free.touch()


def interrupt() -> None:
    """What Ctrl-C does, and a notebook's stop button."""
    os.kill(os.getpid(), signal.SIGINT)


def interrupted(
    wait: Callable[[], object],
    when: Callable[[], object],
    expected: type[BaseException] = KeyboardInterrupt,
    seconds: float = SOON,
) -> None:
    """Interrupt a call that waits as soon as a condition holds, but not before the call has begun."""
    has_begun = threading.Event()

    def watch() -> None:
        has_begun.wait()
        assert within(seconds, lambda: bool(when()))
        interrupt()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        has_begun.set()
        wait()
    except expected:
        thread.join()
    else:
        raise AssertionError("it was not interrupted")


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def workers_below() -> list[int]:
    """The worker processes that this process has started, directly or not, and that still run."""
    return [process.pid for process in psutil.Process().children(recursive=True) if _is_worker(process)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and WORKER_MODULE in (process.name(), *process.cmdline())
    except psutil.NoSuchProcess:  # it has ended since it was listed
        return False


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def all_end(pids: list[int], seconds: float = SOON) -> bool:
    return within(seconds, lambda: not any(map(is_running, pids)))
