"""Sweeps that are visited up to some operator, and done by a program from there on, equal the model.

Random dataflows are cut at random places, the same on all workers, in every second sweep; the other sweeps are done by
programs as a whole, or by visits where these cannot be written. So what visits, tails and whole programs leave behind
is read by the others.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine
from ikebana.runtime import tails
from ikebana.runtime.dataflow import Dataflow
from ikebana.runtime.program import Program
from ikebana.runtime.tails import Tail, Tails
from tests.dataflow.dataflow_run import DataflowRun, histories
from tests.dataflow.harness import Domain, Setup, engine_of, examples, read, setups
from tests.dataflow.test_programs import (
    QUERIES,
    SCENARIOS,
    Scenario,
    busy_scripts,
    cases,
    fused,
    lowered_operators,
    pairs_of,
    push,
)


@contextmanager
def cut_at_random(seed: int) -> Iterator[Counter[bool]]:
    """Every second sweep of a dataflow is cut somewhere; count the tails that were done and those that failed."""
    counted: Counter[bool] = Counter()
    run_program, small_change, observe = Dataflow._run_program, Dataflow._small_change, Tails.observe

    def is_cut(flow: Dataflow) -> bool:
        return flow.lower % 2 == 0

    def cut(self: Tails) -> int:
        return random.Random(f"{seed} {self._skipped}").randrange(len(self._items))

    def count(self: Tails, tail: Tail | None = None, *, is_done: bool = False) -> None:
        observe(self, tail, is_done=is_done)
        if tail is not None:
            counted[is_done] += 1

    with (
        patch.object(tails, "LEAST_OPERATORS", 1),
        patch.object(Tails, "cut", property(cut)),
        patch.object(Tails, "observe", count),
        patch.object(Dataflow, "can_be_joint", lambda flow: False),
        patch.object(Dataflow, "_run_program", lambda flow, changed: not is_cut(flow) and run_program(flow, changed)),
        patch.object(
            Dataflow, "_small_change", lambda flow, upper: None if is_cut(flow) else small_change(flow, upper)
        ),
    ):
        yield counted


def test_oracle_random_dataflows_with_tails() -> None:
    """Changes, installs, drops, inputs that end, in any order, on up to three workers."""
    done = []

    @examples(3, quick=0.7)
    @given(setups(3), cases(busy_scripts), st.integers(0, 9))
    def check(setup: Setup, case: tuple[str, Domain, Any, Any], seed: int) -> None:
        _, domain, program, script = case
        with cut_at_random(seed) as counted, fused("always"), lowered_operators(), engine_of(setup) as engine:
            DataflowRun(engine, domain, program).play(script)
        done.append(counted[True])

    check()
    assert any(done)


@examples(3, quick=0.7)
@given(setups(2), cases(histories), st.integers(0, 9))
def test_oracle_random_dataflows_with_tails_at_every_epoch(
    setup: Setup, case: tuple[str, Domain, Any, Any], seed: int
) -> None:
    """Several changes in an epoch, read at all epochs; where a sweep is of several epochs, it has no tail."""
    _, domain, program, history = case
    with cut_at_random(seed), fused("always"), lowered_operators(), engine_of(setup) as engine:
        DataflowRun(engine, domain, program).live_through(history)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("name", QUERIES)
def test_invariance_tails_and_visits(name: str, scenario: Scenario) -> None:
    with fused("never"), Engine() as engine:
        expected = list(scenario(engine, QUERIES[name], random.Random(7)))
    for workers in (1, 2):
        with cut_at_random(workers) as counted, fused("always"), Engine(workers=workers) as engine:
            assert list(scenario(engine, QUERIES[name], random.Random(7))) == expected
        assert counted[True]


def test_oracle_tails_that_fail() -> None:
    """The operators of a tail that lacks room are visited after all, on all workers, and tails become rare."""
    for workers in (1, 2):
        with cut_at_random(1) as counted, fused("always"), Engine(workers=workers) as engine:
            pairs = pairs_of(engine)
            view = engine.install("view", pairs.count("k").select(k="count", v="k").distinct().count("k"))
            with patch.object(Program, "_are_few", lambda program, given: False):
                for number in range(8):
                    push(pairs, Counter({(number % 3, number): 1, (number % 2, number): 1}))
                    engine.advance()
                    groups = Counter(k for n in range(number + 1) for k in {(n % 3, n): 1, (n % 2, n): 1})
                    counts = Counter(k for k, _ in groups)
                    assert read(view) == {row: 1 for row in Counter(counts.values()).items()}
        assert counted[False] and not counted[True]


@pytest.mark.parametrize("workers", [1, 2])
def test_regression_a_tail_that_reads_a_table_without_changes_failed(workers: int) -> None:
    """The table is imported with its rows. Later sweeps took these for changes, which programs cannot read."""
    after_imports = patch.object(Tails, "cut", 2)
    with cut_at_random(1) as counted, after_imports, fused("always"), Engine(workers=workers) as engine:
        pairs, table = pairs_of(engine), pairs_of(engine, "table")
        push(table, Counter({(number, -number): 1 for number in range(4)}))
        engine.advance()
        view = engine.install("view", pairs.join(table.select(k="k", w="v"), on="k").count("w"))
        assert read(view) == {}
        for number in range(8):
            push(pairs, Counter({(number % 4, number): 1}))
            engine.advance()
            assert read(view) == {(-k, 1 + (number - k) // 4): 1 for k in range(min(number + 1, 4))}
    assert counted[True] and not counted[False]
