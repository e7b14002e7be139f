"""What one dataflow does to others: nothing. Neither when it fails, nor when it is slow, nor when it goes."""

from __future__ import annotations

import gc
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.cluster.inprocess import Faults, InProcess
from ikebana.engine import Engine
from ikebana.errors import DataflowError, SchemaError, TimeError
from ikebana.operators import join
from ikebana.runtime import lowered as lowered_dataflows
from ikebana.runtime.lowered import LoweredDataflow
from ikebana.runtime.worker import Worker
from ikebana.trace.spine import Spine
from tests.dataflow.harness import cluster_of, collected, examples, faults, pairs, pairs_input, read, settle

MANY_FAULTS = Faults(delay=0.3, reorder=1, pause=0.3)
NUMBERS = {"k": pa.int64(), "v": pa.int64()}


def test_a_plan_that_cannot_be_rendered_fails_alone() -> None:
    engine, elsewhere = Engine(2), Engine()
    numbers, strange = pairs_input(engine), pairs_input(elsewhere, "strange")
    counts = engine.install("counts", numbers.count("k"))
    with patch.object(engine._sources, "check"):  # which would refuse it before workers see it
        bad = engine.install("bad", numbers.concat(strange))
    numbers.insert(pairs((1, 1)))
    engine.advance()
    settle(engine)
    with pytest.raises(DataflowError, match="'bad' has failed"):
        bad.read()
    assert read(counts) == {(1, 1): 1}
    bad.drop()
    assert read(engine.install("bad", numbers)) == {(1, 1): 1}


@pytest.mark.usefixtures("small_sweeps_are_programs")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_dataflow_whose_program_cannot_be_written_is_visited(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    """Whether a dataflow takes part in joint sweeps is found out by writing its program."""
    engine = Engine(workers)
    numbers = pairs_input(engine)
    counts, sums = engine.install("counts", numbers.count("k")), engine.install("sums", numbers.sum("k", "v"))
    numbers.insert(pairs((1, 1)))
    engine.advance()
    assert (read(counts), read(sums)) == ({(1, 1): 1}, {(1, 1): 1})
    written = LoweredDataflow._written
    flows = [worker.flows[sums.dataflow]._lowered for worker in cluster_of(engine).workers]

    def fail(lowered: LoweredDataflow, **options: Any) -> Any:
        if lowered in flows:
            raise KeyError("no such column")
        return written(lowered, **options)

    with patch.object(LoweredDataflow, "_written", fail), patch.object(lowered_dataflows, "RAISES", False):
        for number, total in ((2, 3), (3, 6)):
            numbers.insert(pairs((1, number)))
            engine.advance()
            assert (read(counts), read(sums)) == ({(1, number): 1}, {(1, total): 1})
    assert "its program cannot be written" in caplog.text


def test_what_cannot_be_is_refused_before_anything_changes() -> None:
    engine = Engine()
    numbers = pairs_input(engine)
    with pytest.raises(DataflowError, match="the name 'pairs' is taken"):
        engine.input("pairs", NUMBERS)
    with pytest.raises(DataflowError, match="the name 'pairs' is taken"):
        engine.install("pairs", numbers)
    with pytest.raises(SchemaError, match="list<item: halffloat>"):
        engine.install("lists", numbers.map({"x": pa.list_(pa.float16())}, lambda columns: columns))
    with pytest.raises(SchemaError, match="list<item: halffloat>"):
        engine.input("numbers", {"x": pa.list_(pa.float16())})
    for name in ("lists", "numbers"):
        view = engine.install(name, numbers)
        with pytest.raises(DataflowError, match=f"the name '{name}' is taken"):
            engine.install(name, numbers)
        view.drop()
        view.drop()
        with pytest.raises(DataflowError, match=f"view '{name}' was dropped"):
            view.read()
        with pytest.raises(DataflowError, match=f"view '{name}' was dropped"):
            view.rows()
        engine.install(name, numbers.count("k"))
    engine.advance()
    with pytest.raises(TimeError, match="still open"):
        engine.install("late", numbers).read(at=1)
    with pytest.raises(TimeError, match="epoch 0"):
        numbers.push(pairs((1, 1)), 1, [0])


# Slow ones.
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("share", [True, False])
def test_a_slow_dataflow_does_not_hold_up_another(workers: int, share: bool) -> None:
    """A join that explodes, in quanta of a few rows; the others' epochs complete while it is in its first sweep."""
    with patch.object(join, "QUANTUM", 16):
        engine = Engine(workers, share=share)
        numbers, cluster = pairs_input(engine), cluster_of(engine)
        first = [(1, n) for n in range(60)]
        numbers.insert(pairs(*first))
        fast = engine.install("fast", numbers.count("k"))
        engine.advance()
        settle(engine)
        slow = engine.install("slow", numbers.join(numbers.select("k", w="v"), on="k"))
        cluster.run_some(40 * workers)
        assert any(worker.flows["slow"]._sweep is not None for worker in cluster.workers)
        for epoch in range(1, 6):
            numbers.insert(pairs((1, 100 + epoch)))
            engine.advance()
            for _ in range(100):
                cluster.run_some(5)
                if cluster.complete(fast.dataflow) == epoch + 1:
                    break
            assert collected(cluster.read("fast", (epoch,))) == {(1, 60 + epoch): 1}
            assert cluster.complete(slow.dataflow) <= 1, "it is still in its first sweep"
        while cluster.complete(slow.dataflow) < 1:
            cluster.run_some(1)
        rows = collected(cluster.read("slow", (0,)))
        assert rows == {(1, a, b): 1 for _, a in first for _, b in first}
        later = [*first, *((1, 100 + epoch) for epoch in range(1, 6))]
        assert read(slow) == {(1, a, b): 1 for _, a in later for _, b in later}


# Workers that die.
@examples(0.5)
@given(st.integers(1, 3), st.integers(0, 3), faults(), st.integers(0, 400), st.integers(0, 2), st.integers(1, 60))
def test_a_worker_that_dies_yields_errors_only(
    workers: int, seed: int, wrong: Faults, steps: int, victim: int, slice_: int
) -> None:
    engine = Engine(cluster=InProcess(workers, seed=seed, faults=wrong))
    numbers, cluster = pairs_input(engine), cluster_of(engine)
    views = [engine.install("counts", numbers.count("k"))]
    edges = numbers.select("v", "k").iterate(lambda x: x.concat(x.select(v="k", k="v")).distinct())
    views.append(engine.install("both ways", edges))
    rows: list[tuple[int, int]] = []
    for epoch in range(5):
        new = [(epoch % 3, epoch), (epoch, 1)]
        numbers.insert(pairs(*new))
        rows += new
        engine.advance()
        quiet = cluster.run_some(min(steps, slice_))
        steps -= slice_
        if steps <= 0:
            break
        if quiet:
            keys = [k for k, _ in rows]
            assert read(views[0]) == {(k, keys.count(k)): 1 for k in keys}
            assert read(views[1]) == {row: 1 for a, b in rows for row in ((a, b), (b, a))}
    cluster.kill(victim % workers)
    for attempt in (
        views[0].read,
        views[1].read,
        engine.advance,
        engine.run,
        lambda: numbers.insert(pairs((1, 1))),
        lambda: engine.install("another", numbers),
        lambda: cluster.read(views[0].dataflow, (engine.epoch - 1,)),
    ):
        with pytest.raises(DataflowError, match=f"worker {victim % workers} has died"):
            attempt()


# Dataflows that go.
def _held(worker: Worker) -> dict[str, tuple[int, int]]:
    """For every dataflow: the readers and the bytes of what it maintains."""
    handles = {name: flow.reader._handle for name, flow in worker.flows.items()}
    return {name: (handle.readers, handle.nbytes) for name, handle in handles.items()}


def _spines() -> int:
    return sum(isinstance(item, Spine) for item in gc.get_objects())


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("finished", [True, False])
def test_retiring_a_dataflow_releases_exactly_what_only_it_held(workers: int, finished: bool) -> None:
    engine = Engine(workers)
    numbers, cluster = pairs_input(engine), cluster_of(engine)
    engine.install("kept", numbers.join(numbers.select("k", w="v"), on="k"))
    numbers.insert(pairs(*((n % 7, n) for n in range(50))))
    engine.advance()
    settle(engine)
    gc.collect()
    gc.disable()  # what is released is freed at once, not when the collector comes
    try:
        before, spines = [_held(worker) for worker in cluster.workers], _spines()
        both = numbers.join(numbers.select("k", w="v"), on="k")  # by the arrangements that `kept` has
        other = numbers.select(k="v", v="k").arrange("k")  # by one of its own
        loop = both.select("k", "v").iterate(lambda x: x.concat(other.rows().enter(x)).distinct())
        views = [engine.install("counted", both.count("k")), engine.install("looped", loop)]
        views.append(engine.install("onward", views[0].rows().max("count")))
        if finished:
            settle(engine)
            during = [_held(worker) for worker in cluster.workers]
            for was, now in zip(before, during, strict=True):
                assert len(now) == len(was) + 4  # three views, and one arrangement
                assert all(now[name][0] >= was[name][0] for name in was)
                assert any(now[name][0] > was[name][0] for name in was)
        else:
            cluster.run_some(30)
        for view in views:
            view.drop()
        settle(engine)
        assert [_held(worker) for worker in cluster.workers] == before
        assert _spines() == spines
    finally:
        gc.enable()


def test_a_shared_arrangement_lives_as_long_as_one_view_needs_it() -> None:
    engine = Engine(2)
    numbers, cluster = pairs_input(engine), cluster_of(engine)
    by_v = numbers.arrange("v")
    views = [engine.install(f"top {k}", by_v.rows().top_k("v", k)) for k in (1, 2, 3)]
    numbers.insert(pairs((1, 5), (2, 5), (3, 5)))
    engine.advance()
    settle(engine)
    readers = cluster.workers[0].flows[by_v.node.digest].reader._handle.readers
    for k, view in enumerate(views, 1):
        assert read(view) == {(5, n): 1 for n in (3, 2, 1)[:k]}
        left = cluster.workers[0].flows[by_v.node.digest].reader._handle.readers
        assert left == readers - 2 * (k - 1), "an import and a reduction have a handle each"
        view.drop()
        settle(engine)
    assert list(cluster.workers[0].flows) == ["input pairs"]


def test_a_view_of_a_view_outlives_it() -> None:
    engine = Engine(2)
    numbers = pairs_input(engine)
    counts = engine.install("counts", numbers.count("k"))
    most = engine.install("most", counts.rows().select("count").distinct())
    counts.drop()
    other = engine.install("counts", numbers.max("k"))
    numbers.insert(pairs((1, 5), (2, 5), (2, 6)))
    engine.advance()
    assert read(most) == {(1,): 1, (2,): 1}
    assert read(other) == {(1, 5): 1, (2, 6): 1}
    most.drop()
    settle(engine)
    assert {"counts", "most"}.isdisjoint(cluster_of(engine).workers[1].flows)
