"""A graph that changes while queries about it come and go. Takes a few seconds.

Accounts follow each other, some are far more popular than others. Standing queries maintain the components of the
graph, the triangles, and the number of followers of each account. In each epoch some accounts follow others or stop
following them; meanwhile questions come (how does one account reach another, who can be reached from here, whose
neighbours are alike), are answered, stay up to date for some epochs, and go again. All of them read the same indexes of
the edges. At the end one answer is computed from scratch and compared.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ikebana import Engine
from ikebana.engine import View
from ikebana.engine.collection import Collection
from ikebana.graph import Graph

ACCOUNTS, FOLLOWS, CHANGES, EPOCHS = 5_000, 9_000, 40, 6
Rows = np.ndarray
Question = tuple[str, int, int, Callable[[Graph], Collection]]
"""A name, the epochs at which it comes and goes, and the query."""

QUESTIONS: list[Question] = [
    ("path from 38 to 914", 1, 4, lambda g: g.bfs([38], [914])),
    ("reach of 3", 2, 5, lambda g: g.reach([3])),
    ("distances to 4 and 5", 3, 6, lambda g: g.shortest_paths([4, 5])),
    ("likeness of 0 and 1", 4, 6, lambda g: g.jaccard([(0, 1)])),
]


def columns(rows: Rows) -> dict[str, Rows]:
    return {"src": rows[:, 0], "dst": rows[:, 1]}


def milliseconds(since: float) -> str:
    return f"{(time.perf_counter() - since) * 1e3:,.1f} ms"


def summary(view: View) -> str:
    """An answer in a few words."""
    answer = view.to_arrow()
    if "path" in answer.column_names:
        return " -> ".join(map(str, answer["path"][0].as_py())) if answer.num_rows else "no path"
    if "jaccard" in answer.column_names:
        return f"{answer['jaccard'][0].as_py():.3f}"
    return f"{answer.num_rows:,} rows"


def path_length(rows: Rows, start: int, end: int) -> int | None:
    """The length of a shortest path, by a search from scratch."""
    targets: dict[int, list[int]] = {}
    for source, target in rows.tolist():
        targets.setdefault(source, []).append(target)
    distances, waiting = {start: 0}, deque([start])
    while waiting:
        node = waiting.popleft()
        for target in targets.get(node, []):
            if target not in distances:
                distances[target] = distances[node] + 1
                waiting.append(target)
    return distances.get(end)


def main() -> None:
    random = np.random.default_rng(7)
    popular = ACCOUNTS * random.random((2 * FOLLOWS, 2)) ** 2  # accounts with small numbers
    pool = np.unique(popular.astype(np.int32), axis=0)
    random.shuffle(pool)
    with Engine() as engine:
        edges = engine.table("follows", {"src": pa.int32(), "dst": pa.int32()})
        g = Graph(None, edges)
        standing = {
            "components": engine.install("components", g.connected_components()),
            "triangles": engine.install("triangles", g.triangle_count()),
            "followers": engine.install("followers", g.in_degrees()),
        }
        present, rest = pool[:FOLLOWS], pool[FOLLOWS:]
        edges.insert(columns(present))
        open_: dict[str, View] = {}
        for epoch in range(EPOCHS + 1):
            start = time.perf_counter()
            if epoch:
                with engine.transaction():
                    edges.insert(columns(rest[:CHANGES]))
                    edges.delete(columns(present[:CHANGES]))
                present, rest = np.concatenate([present[CHANGES:], rest[:CHANGES]]), rest[CHANGES:]
            answers = {name: view.to_arrow() for name, view in standing.items()}
            took = milliseconds(start)
            components = len(set(answers["components"]["component"].to_pylist()))
            triangles = sum(answers["triangles"]["triangles"].to_pylist()) // 3
            most = max(answers["followers"]["in_degree"].to_pylist())
            print(
                f"epoch {epoch}, after {took}: {components} components, {triangles} triangles, at most {most} followers"
            )
            for note in turn(engine, g, epoch, open_):
                print(f"    {note}")
        path = engine.install("a last question", g.bfs([38], [914])).to_arrow()["distance"].to_pylist()
        expected = path_length(present, 38, 914)
        same = path == ([] if expected is None else [expected])
        print(f"equal to the answer from scratch: {'yes' if same else 'NO'}")


def turn(engine: Engine, g: Graph, epoch: int, open_: dict[str, View]) -> list[str]:
    """Open and close the questions whose time it is; returns what happened, and all answers that are open."""
    notes = []
    for name, comes, goes, query in QUESTIONS:
        if epoch == comes:
            start = time.perf_counter()
            open_[name] = engine.install(name, query(g))
            notes.append(f"{name}: {summary(open_[name])}, new, answered after {milliseconds(start)}")
        elif epoch == goes:
            open_.pop(name).drop()
            notes.append(f"{name}: closed")
        elif name in open_:
            notes.append(f"{name}: {summary(open_[name])}")
    return notes


if __name__ == "__main__":
    main()
