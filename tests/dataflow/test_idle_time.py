"""In idle time, workers merge and compact, free the memory that a slow reader has held, and come to rest."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ikebana.cluster.inprocess import InProcess
from ikebana.engine import Engine, Table, View
from ikebana.runtime.messages import Status
from ikebana.runtime.worker import Worker

LIVE = 2000
PATIENCE = 1000
"""More pieces of idle time than any of these workers needs."""


def replaced(engine: Engine) -> tuple[Table, View]:
    """A table of which every row has been replaced many times, and a view of it."""
    table = engine.table("t", {"k": pa.int64(), "v": pa.int64()}, key="k")
    view = engine.install("by value", table.arrange("v"))
    replace(table, 0)
    return table, view


def replace(table: Table, round_: int) -> None:
    table.upsert({"k": np.arange(LIVE), "v": np.arange(LIVE) + round_})


def stored(engine: Engine) -> int:
    """The updates in all arrangements, on all workers."""
    return sum(status.rows for shard in engine.cluster.ask(Status()) for status in shard)


def workers_of(engine: Engine) -> list[Worker]:
    assert isinstance(engine.cluster, InProcess)
    return engine.cluster.workers


def pieces(worker: Worker) -> int:
    """How many pieces of idle time a worker uses before it comes to rest."""
    for count in range(PATIENCE):
        if not worker.merge_some():
            return count
    raise AssertionError("the worker does not come to rest")


@pytest.mark.parametrize("workers", [1, 3])
def test_oracle_memory_comes_back_when_a_slow_reader_leaves_though_nothing_changes(workers: int) -> None:
    with Engine(workers=workers) as engine:
        table, view = replaced(engine)
        with view.hold():
            for round_ in range(1, 20):
                replace(table, round_)
                view.read()
            for worker in workers_of(engine):
                pieces(worker)
            assert stored(engine) > 20 * LIVE
        before = view.read().sort_by("k")
        for worker in workers_of(engine):
            assert pieces(worker) > 0
        assert stored(engine) <= 8 * LIVE  # the two arrangements have at least a row for each key
        assert view.read().sort_by("k").equals(before)


def test_oracle_a_worker_at_rest_does_nothing_until_something_changes() -> None:
    with Engine() as engine:
        table, view = replaced(engine)
        for round_ in range(1, 8):
            replace(table, round_)
            view.read()
        (worker,) = workers_of(engine)
        pieces(worker)
        view.read()
        assert pieces(worker) == 0
        for _ in range(5):  # epochs pass
            engine.advance()
            view.read()
            assert pieces(worker) <= len(worker.flows)  # each is looked at, and has no work


def test_oracle_run_merges_for_a_moment_and_reading_does_not() -> None:
    with Engine() as engine:
        table, view = replaced(engine)
        with view.hold():
            for round_ in range(1, 20):
                replace(table, round_)
                view.read()
        before = stored(engine)
        view.read()
        assert stored(engine) == before
        for _ in range(PATIENCE):
            engine.run()
        assert stored(engine) <= 8 * LIVE


@pytest.mark.parametrize("workers", [1, 3])
def test_oracle_deleted_rows_are_freed_in_idle_time(workers: int) -> None:
    with Engine(workers=workers) as engine:
        table = engine.table("t", {"k": pa.int64(), "v": pa.string()}, key="k")
        rows, kept, step = 20 * LIVE, 3 * LIVE, LIVE // 2
        for start in range(0, rows, step):
            table.insert({"k": np.arange(start, start + step), "v": ["text"] * step})
        for start in range(kept, rows, step):
            table.delete({"k": np.arange(start, start + step)})
        engine.run()
        for worker in workers_of(engine):
            pieces(worker)
        assert stored(engine) <= 2 * kept  # the rows that the last transaction has deleted may still be there
        view = engine.install("rows", table)
        assert sorted(view.read()["k"].to_pylist()) == list(range(kept))
