"""Memory: a view that would use too much fails alone, rows that would are refused, and both say how much it was."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ikebana.cluster.processes import Processes
from ikebana.engine import Engine
from ikebana.errors import ChangeError, DataflowError, MemoryBudgetError
from ikebana.runtime import memory_budget
from ikebana.runtime.memory_budget import Budget, default_limit, resident_bytes
from tests.dataflow.harness import cluster_of, pairs, pairs_input, read, settle

pytestmark = pytest.mark.usefixtures("forked_workers")

GB = 10**9
MB = 10**6
NUMBERS = {"k": pa.int64(), "v": pa.int64()}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the process seems to use, which every look at it takes for work that is worth one."""
    used = [GB]
    monkeypatch.setattr(memory_budget, "MEASURE_EVERY_SECONDS", -1.0)
    return used


def limited(engine: Engine, memory: list[int], limit: int | None, view_limit: int | None = None) -> None:
    for worker in cluster_of(engine).workers:
        worker.scheduler.budget = Budget(limit, view_limit, measure=lambda: memory[0])


def growing(memory: list[int], by: int) -> Any:
    """A function that seems to take memory when it gets rows."""

    def function(columns: Any) -> Any:
        memory[0] += by if len(columns["k"]) else 0
        return columns

    return function


def test_a_view_that_outgrows_its_budget_fails_alone_and_says_how_much(memory: list[int]) -> None:
    engine = Engine()
    limited(engine, memory, 10 * GB, 2 * GB)
    numbers = pairs_input(engine)
    counts = engine.install("counts", numbers.count("k"))
    large = engine.install("large", numbers.map(NUMBERS, growing(memory, 3 * GB)).distinct())
    numbers.insert(pairs((1, 1)))
    engine.advance()
    settle(engine)
    with pytest.raises(DataflowError, match=r"'large' has failed(.|\n)*more than its 2.0 GB(.|\n)*3.0 GB"):
        large.read()
    assert read(counts) == {(1, 1): 1}
    memory[0] = GB
    again = engine.install("again", numbers.map(NUMBERS, growing(memory, 1)).distinct())
    assert read(again) == {(1, 1): 1}


def test_a_budget_of_its_own(memory: list[int]) -> None:
    engine = Engine()
    limited(engine, memory, 10 * GB, MB)
    numbers = pairs_input(engine)
    query = numbers.map(NUMBERS, growing(memory, 64 * MB)).distinct()
    view = engine.install("roomy", query, memory=GB)
    numbers.insert(pairs((1, 1)))
    engine.advance()
    assert read(view) == {(1, 1): 1}


def test_a_budget_of_its_own_is_checked_after_short_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "MEASURE_EVERY_SECONDS", 1e9)  # no sweep seems long
    engine = Engine()
    numbers = pairs_input(engine)
    counts = engine.install("counts", numbers.count("k"))
    small = engine.install("small", numbers.distinct(), memory=1)
    numbers.insert(pairs((1, 1)))
    engine.advance()
    settle(engine)
    with pytest.raises(DataflowError, match=r"'small' has failed(.|\n)*more than its 1 B"):
        small.read()
    assert read(counts) == {(1, 1): 1}


def test_a_worker_at_its_limit_fails_the_dataflow_that_grows_and_no_table(memory: list[int]) -> None:
    engine = Engine()
    limited(engine, memory, 4 * GB, 100 * GB)
    table = engine.table("t", {"k": pa.int64()}, key="k")
    view = engine.install("view", table.map({"k": pa.int64()}, growing(memory, 5 * GB)))
    table.insert({"k": [1]})
    with pytest.raises(DataflowError, match=r"'view' has failed(.|\n)*reached its 4.0 GB"):
        view.read()
    memory[0] = GB
    assert engine.install("all", table).to_arrow().num_rows == 1


def test_rows_that_would_not_fit_are_refused_whole(memory: list[int]) -> None:
    engine = Engine(2)
    limited(engine, memory, 2 * GB)
    table = engine.table("t", {"k": pa.int64()}, key="k")
    view = engine.install("all", table)
    table.insert({"k": [1]})
    memory[0] = 2 * GB - 100
    with pytest.raises(
        ChangeError, match=r"not enough memory for \d+ rows or more(.|\n)*of its 2.0 GB in use, .* asked for"
    ):
        table.insert({"k": np.arange(10, 1000)})
    memory[0] = GB
    assert view.to_arrow()["k"].to_pylist() == [1]
    table.insert({"k": np.arange(10, 1000)})
    assert view.to_arrow().num_rows == 991


def test_limits_are_shares_of_the_machine() -> None:
    assert 0 < resident_bytes() < default_limit(1)
    assert default_limit(4) == pytest.approx(default_limit(1) / 4, abs=4)
    plain = Budget(None)
    assert plain.rejection(1 << 60) is None
    plain.check(1 << 60, None)
    with pytest.raises(MemoryBudgetError):
        plain.check(2, 1)


def test_an_allocation_that_is_too_large_fails_its_view_alone() -> None:
    """In a process of its own: one step that asks for far more than the worker may use."""
    with Processes(1, memory=2 * GB) as cluster:
        engine = Engine(cluster=cluster)
        numbers = engine.input("numbers", {"k": pa.int64(), "v": pa.int64()})
        counts = engine.install("counts", numbers.count("k"))
        huge = engine.install("huge", numbers.map({"k": pa.int64()}, lambda c: {"k": np.zeros(8 * GB, np.int8)}))
        numbers.insert(pairs((1, 1)))
        engine.advance()
        with pytest.raises(DataflowError, match=r"'huge' has failed(.|\n)*(allocate|MemoryError)"):
            huge.read()
        assert counts.read().to_pylist() == [{"k": 1, "count": 1, "diff": 1}]


def test_regression_an_equal_query_can_be_installed_after_one_has_failed(memory: list[int]) -> None:
    engine = Engine(2)
    numbers = pairs_input(engine)
    first = engine.install("first", numbers.count("k"))
    numbers.insert(pairs((1, 1)))
    engine.advance()
    for worker in cluster_of(engine).workers:
        worker.scheduler.budget = Budget(None, GB, measure=(GB * n for n in range(0, 10_000, 2)).__next__)
    with pytest.raises(DataflowError, match="'first' has failed"):
        first.read()
    limited(engine, memory, None)
    second = engine.install("second", numbers.count("k"))
    third = engine.install("third", numbers.count("k"))
    assert read(second) == read(third) == {(1, 1): 1}
    assert second.dataflow == third.dataflow != first.dataflow
    first.drop()
    second.drop()
    numbers.insert(pairs((1, 2)))
    engine.advance()
    assert read(third) == {(1, 2): 1}


FREED = """
import json
import numpy as np
from ikebana.runtime import memory_budget as memory

MB = 1 << 20
memory.keep_freed_memory(8 << 30)


def resident_after_freeing(arrays, then):
    before = memory.resident_bytes()
    kept = [np.ones(32 * MB, np.uint8) for _ in range(arrays)]
    del kept
    then()
    return (memory.resident_bytes() - before) // MB


few = resident_after_freeing(1, memory.release_if_mostly_unused)
many = resident_after_freeing(25, lambda: None)
memory.release_if_mostly_unused()
print(json.dumps([few, many, memory.resident_bytes() // MB]))
"""
"""A process of its own, since the settings of the C library are those of a process."""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not say what it keeps")
def test_freed_memory_is_kept_until_most_memory_is_unused() -> None:
    run = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    few, many, resident = json.loads(run.stdout)
    assert few >= 30, "little unused memory is kept"
    assert many >= 700, "freed memory is kept as long as nobody checks"
    assert resident < 600, "800 MB that are not used are returned"
