"""Which nodes can be reached? Kept up to date while edges come and go. Takes a few seconds.

A random graph, one root, and the standing queries "which nodes can be reached" and "in how many steps". Each epoch
changes some edges; the table shows the new results and how long it took to update them. At the end the result is
computed from scratch, in plain Python, and compared.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from ikebana import graph
from ikebana.engine import Engine, Input

NODES, EDGES = 20_000, 60_000
Rows = np.ndarray

console = Console()


def columns(rows: Rows) -> dict[str, Rows]:
    return {"src": rows[:, 0], "dst": rows[:, 1]}


def from_scratch(rows: Rows, root: int) -> set[int]:
    """The nodes that a breadth-first search reaches."""
    targets: dict[int, list[int]] = {}
    for source, target in rows.tolist():
        targets.setdefault(source, []).append(target)
    reached, frontier = {root}, {root}
    while frontier:
        frontier = {target for node in frontier for target in targets.get(node, [])} - reached
        reached |= frontier
    return reached


def change(edges: Input, present: Rows, added: Rows, removed: int) -> Rows:
    """Add some edges and remove the oldest ones; returns the remaining edges."""
    edges.insert(columns(added))
    edges.remove(columns(present[:removed]))
    return np.concatenate([present[removed:], added])


def main() -> None:
    engine = Engine()
    edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()}, key="src")
    roots = engine.input("roots", {"node": pa.int32()})
    reached = engine.install("reached", graph.reach(edges, roots))
    steps = engine.install("steps", graph.shortest_paths(edges, roots))

    random = np.random.default_rng(2020)
    pool = np.unique(random.integers(0, NODES, (2 * EDGES, 2), np.int32), axis=0)
    random.shuffle(pool)
    present, rest = pool[:0], pool
    roots.insert({"node": [0]})

    table = Table(title="Reachable from node 0", title_justify="left")
    for name in ("epoch", "edges added", "removed", "nodes reached", "farthest", "milliseconds"):
        table.add_column(name, justify="right")
    for epoch, (added, removed) in enumerate([(EDGES, 0), (1, 0), (0, 1), (1, 1), (10, 10), (100, 100), (0, 1_000)]):
        present, rest = change(edges, present, rest[:added], removed), rest[added:]
        start = time.perf_counter()
        engine.advance()
        count, farthest = reached.read().num_rows, pc.max(steps.read()["distance"]).as_py()
        took = f"{(time.perf_counter() - start) * 1e3:,.1f}"
        table.add_row(str(epoch), f"{added:,}", f"{removed:,}", f"{count:,}", str(farthest), took)
    console.print(table)

    same = set(reached.read()["node"].to_pylist()) == from_scratch(present, 0)
    console.print(f"equal to the answer from scratch: {'yes' if same else 'NO'}")


if __name__ == "__main__":
    main()
