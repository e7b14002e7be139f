"""`distinct` in a sweep that starts with nothing, which is answered from the set of groups that have appeared.

Loops in which rows enter, or leave again, at later rounds; several epochs in one sweep; changes after the first sweep.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine
from ikebana.operators.known_groups import KnownGroups
from tests.profiles import examples

NODES = 5
ROUNDS = 6

PAIR = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1))
LATE = st.tuples(st.integers(0, NODES - 1), st.integers(0, ROUNDS - 1))
CHANGES = st.lists(
    st.tuples(st.sampled_from(["edges", "added", "removed"]), st.booleans(), PAIR, LATE), min_size=1, max_size=6
)


def reached(edges: set[tuple[int, int]], added: set[tuple[int, int]], removed: set[tuple[int, int]]) -> set[int]:
    """The nodes after some rounds, in plain Python.

    In each round: the nodes added by then, and the targets of edges from nodes of the round before; less a copy of each
    node removed by then.
    """
    nodes: set[int] = {node for node, delay in added if delay == 0}
    for round_ in range(ROUNDS):
        copies = [node for node, delay in added if delay <= round_] + [to for at, to in edges if at in nodes]
        taken = [node for node, delay in removed if delay <= round_]
        nodes = {node for node in range(NODES) if copies.count(node) > taken.count(node)}
    return nodes


@given(st.lists(st.tuples(CHANGES, st.booleans()), min_size=1, max_size=4), st.integers(1, 2))
@examples(1, quick=0.6)
def test_oracle_distinct_in_a_loop(epochs, workers):
    with Engine(workers) as engine:
        kinds = {"edges": ("src", "dst"), "added": ("n", "delay"), "removed": ("n", "delay")}
        inputs = {name: engine.input(name, dict.fromkeys(kinds[name], pa.int64())) for name in kinds}
        edges, added, removed = (inputs[name] for name in kinds)
        start = added.filter(lambda c: np.asarray(c["delay"]) == 0).select("n")

        def body(nodes):
            late = added.enter_at(nodes, lambda c: c["delay"]).select("n")
            gone = removed.enter_at(nodes, lambda c: c["delay"]).select("n").negate()
            steps = nodes.join(edges.select("dst", n="src").enter(nodes), on="n").select(n="dst")
            return late.concat(steps, gone).distinct()

        view = engine.install("view", start.distinct().iterate(body, rounds=ROUNDS))
        present: dict[str, set[tuple[int, int]]] = {name: set() for name in kinds}
        for changes, is_read in epochs:
            for name, is_insertion, edge, late in changes:
                row = edge if name == "edges" else late
                if is_insertion != (row in present[name]):
                    columns = dict(zip(kinds[name], ([entry] for entry in row), strict=True))
                    (inputs[name].insert if is_insertion else inputs[name].remove)(columns)
                    (present[name].add if is_insertion else present[name].remove)(row)
            engine.advance()
            if is_read:
                assert set(view.read()["n"].to_pylist()) == reached(**present)
        assert set(view.read()["n"].to_pylist()) == reached(**present)


GROUPS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-(10**5), 10**5)), max_size=50, unique=True)


@given(st.lists(GROUPS, max_size=40))
@examples(1)
def test_oracle_known_groups(parts):
    known, expected = KnownGroups(), set()
    for groups in parts:
        key, val = np.array(groups, np.int64).reshape(-1, 2).T
        assert known.add(key, val).tolist() == [at for at, group in enumerate(groups) if group not in expected]
        expected.update(groups)


def test_known_groups_grow():
    known, key = KnownGroups(), np.repeat(np.arange(300), 100)
    val = np.tile(np.arange(100) * 1000, 300)
    assert known.add(key, val).tolist() == list(range(30_000))
    assert not len(known.add(key[::-1], val[::-1]))
