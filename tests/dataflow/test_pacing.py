"""Large visits are done in pieces, between which other dataflows run; pieces change no result."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from ikebana.encoding import Schema
from ikebana.engine import Engine
from ikebana.engine.collection import Collection
from ikebana.operators import join, pacing
from ikebana.operators.pacing import Pace
from ikebana.time import Antichain
from ikebana.trace import Batcher, Updates, batcher
from tests.dataflow.harness import cluster_of, collected, pairs, pairs_input, read, settle

NUMBERS = {"k": pa.int64(), "v": pa.int64()}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of few rows, each followed by a pause."""
    monkeypatch.setattr(pacing, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(pacing, "FIRST_PIECE_ROWS", 2)
    monkeypatch.setattr(pacing, "MAX_PIECE_ROWS", 4)
    monkeypatch.setattr(batcher, "RUN", 8)
    monkeypatch.setattr(join, "QUANTUM", 16)


QUERIES: dict[str, Callable[[Collection], Collection]] = {
    "a function": lambda c: c.map(NUMBERS, lambda columns: columns),
    "a function of each row": lambda c: c.flat_map(NUMBERS, lambda row: [(row["k"], row["v"])]),
    "a function of each group": lambda c: c.reduce(["k", "v"], {}, lambda key, values: values),
    "sorting": lambda c: c.select(v="v", k="k").arrange("v").rows().select("k", "v"),
    "a function in a loop": lambda c: c.iterate(lambda x: x.map(NUMBERS, lambda columns: columns).distinct()),
}


@pytest.mark.parametrize("query", QUERIES)
def test_others_go_on_while_one_is_in_a_large_visit(query: str, small_pieces: None) -> None:
    engine = Engine()
    numbers, cluster = pairs_input(engine), cluster_of(engine)
    fast = engine.install("fast", numbers.count("k"))
    rows = [(n % 7, n) for n in range(200)]
    numbers.insert(pairs(*rows))
    engine.advance()
    settle(engine)
    slow = engine.install("slow", QUERIES[query](numbers))
    completed = 0
    for _ in range(20_000):
        cluster.run_some(1)
        flow = cluster.workers[0].flows.get(slow.dataflow)
        if flow is not None and flow.lower:
            break
        is_up_to_date = cluster.complete(fast.dataflow) == engine.epoch
        if flow is not None and flow._sweep is not None and is_up_to_date and completed < 3:
            completed += 1
            numbers.insert(pairs((0, 1000 + completed)))
            engine.advance()
    assert completed == 3, "epochs of the fast view were completed while the slow one was in its first sweep"
    everything = [*rows, *((0, 1000 + n) for n in range(1, 4))]
    assert read(slow) == {row: 1 for row in everything}
    assert collected(fast.read()) == {(k, n): 1 for k, n in Counter(k for k, _ in everything).items()}


@pytest.mark.parametrize("query", QUERIES)
def test_invariance_of_answers_under_pieces(query: str, small_pieces: None) -> None:
    choose = random.Random(query)
    engine = Engine(2, seed=1)
    numbers = pairs_input(engine)
    view = engine.install("view", QUERIES[query](numbers))
    rows: set[tuple[int, int]] = set()
    for _ in range(6):
        new = {(choose.randrange(5), choose.randrange(40)) for _ in range(30)}
        gone = set(choose.sample(sorted(rows), len(rows) // 2))
        numbers.insert(pairs(*(new - rows)))
        numbers.remove(pairs(*gone))
        rows = (rows | new) - (gone - new) if not new & gone else (rows - gone) | (new - rows)
        engine.advance()
        assert read(view) == {row: 1 for row in rows}


def test_a_pace_is_learned_and_small_work_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    for name in ("perf_counter", "thread_time"):
        monkeypatch.setattr(pacing, name, lambda: clock[0])

    def run(pace: Pace, count: int, seconds_of_a_row: float) -> tuple[list[int], int]:
        sizes, pauses = [], 0
        for start, end in pace.pieces(count):
            sizes.append(end - start)
            clock[0] += (end - start) * seconds_of_a_row
            pauses += pace.is_due(end - start)
        assert sum(sizes) == count
        return sizes, pauses

    quick, slow = Pace(calls_users=True), Pace(calls_users=True)
    assert run(quick, 100, 1e-6)[1] == 0
    assert run(quick, 64, 1e-6) == ([64], 0)
    sizes, pauses = run(slow, 10, 1.0)
    assert sizes == [1] * 10 and pauses == 10
    assert max(run(Pace(calls_users=False), 1 << 21, 1e-6)[0]) * 1e-6 <= 4 * pacing.PIECE_SECONDS


@pytest.mark.parametrize("value", [pa.int64(), pa.string()])
def test_invariance_of_batches_sealed_in_steps(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema({"k": pa.int64()}, {"v": value})
    for seed in range(6):
        choose = random.Random(seed)
        count = choose.choice([0, 1, 7, 8, 9, 40, 100])
        monkeypatch.setattr(batcher, "RUN", choose.choice([1, 3, 8]))
        data = {
            "k": [choose.randrange(6) for _ in range(count)],
            "v": pa.array([choose.randrange(5) for _ in range(count)], pa.int64()).cast(value),
        }
        times = [[choose.randrange(4), choose.randrange(3)] for _ in range(count)]
        diffs = [choose.choice([1, -1, 2]) for _ in range(count)]
        batchers = [Batcher(schema, Antichain.minimum(2), "test") for _ in range(2)]
        for target in batchers:
            if count:
                target.append(Updates.of(schema, data, times, diffs))
        for upper in ((2, 0), (9, 0)):
            steps = batchers[1].seal_in_steps(Antichain.of(upper))
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    stepped = end.value
                    break
            whole = batchers[0].seal(Antichain.of(upper))
            assert stepped.gather().triples() == whole.gather().triples()
            assert stepped.description == whole.description
