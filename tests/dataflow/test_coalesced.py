"""Sweeps whose epochs nobody tells apart do them as one: results equal the model, whoever reads meanwhile.

Random dataflows live through several epochs at a time without a reader that holds one. Readers that come in the middle
of such a sweep, and those that hold, follow or import a result, never see a state in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine, View
from ikebana.errors import TimeError
from ikebana.operators.span import Span
from ikebana.plan.scopes import Scope
from ikebana.runtime.dataflow import Dataflow
from ikebana.runtime.messages import Advance, Demand, Hold, Read
from tests.dataflow.dataflow_run import DataflowRun, Sweep, histories
from tests.dataflow.expressions import loops, programs
from tests.dataflow.harness import (
    INTEGERS,
    NULLS,
    Domain,
    Setup,
    cluster_of,
    collected,
    engine_of,
    examples,
    pairs,
    pairs_input,
    read,
    setups,
)
from tests.dataflow.test_programs import cases, fused, lowered_operators
from tests.dataflow.test_tails import cut_at_random


@contextmanager
def counted_sweeps() -> Iterator[Counter[bool]]:
    """Count the sweeps that are visited, by whether they are coalesced."""
    counted: Counter[bool] = Counter()
    visit = Scope.visit_reached

    def count(scope: Scope, span: Span, *skipped: Any, **others: Any) -> Any:
        counted[span.coalesced] += 1
        return visit(scope, span, *skipped, **others)

    with patch.object(Scope, "visit_reached", count):
        yield counted


def live_through(run: DataflowRun, history: list[Sweep]) -> None:
    """Views are read after several epochs at a time; in between, whatever they answer is right."""
    for of in range(run.program.size)[-2:]:
        run.install(of)
    run.engine.advance()
    for sweep in history:
        run.close_epochs(sweep)
        cluster_of(run.engine).run_some(20)
        for view, of in run.views:
            run.peek(view, of)
        for view, of in run.views:
            run.check(view, of)


def test_oracle_random_dataflows() -> None:
    counts: Counter[bool] = Counter()

    @examples(3, quick=1.5)
    @given(setups(3), st.sampled_from([INTEGERS, NULLS]), programs(most=4), st.data())
    def check(setup: Setup, domain: Domain, program: Any, data: Any) -> None:
        history = data.draw(histories(domain, program, most=4))
        with fused("never"), counted_sweeps() as counted, engine_of(setup) as engine:
            live_through(DataflowRun(engine, domain, program), history)
        counts.update(counted)

    check()
    assert counts[True]


@examples(2, quick=1)
@given(setups(2), loops(), st.data())
def test_oracle_random_loops(setup: Setup, program: Any, data: Any) -> None:
    with fused("never"), engine_of(setup) as engine:
        live_through(DataflowRun(engine, INTEGERS, program), data.draw(histories(INTEGERS, program, most=4)))


def test_oracle_random_dataflows_with_tails() -> None:
    """Programs do the ends of sweeps of several epochs."""
    tails: Counter[bool] = Counter()

    @examples(3, quick=1.5)
    @given(setups(3), cases(lambda domain, program: histories(domain, program, 4)), st.integers(0, 9))
    def check(setup: Setup, case: tuple[str, Domain, Any, Any], seed: int) -> None:
        _, domain, program, history = case
        with (
            cut_at_random(seed) as done,
            patch.object(Dataflow, "_run_program", lambda flow, changed: False),
            patch.object(Dataflow, "_small_change", lambda flow, available: None),
            counted_sweeps() as counted,
            fused("always"),
            lowered_operators(),
            engine_of(setup) as engine,
        ):
            live_through(DataflowRun(engine, domain, program), history)
        tails.update(done if counted[True] else {})

    check()
    assert tails[True]


@contextmanager
def sums(workers: int) -> Iterator[tuple[Engine, Any, View]]:
    """An engine with an input of pairs, and a view of the sum of `v` for each `k`, which has begun."""
    with fused("never"), Engine(workers=workers) as engine:
        source = pairs_input(engine)
        view = engine.install("sums", source.sum("k", "v"))
        source.insert(pairs((1, 1), (2, 2)))
        engine.advance()
        read(view)
        yield engine, source, view


def add(engine: Engine, source: Any, numbers: list[int]) -> None:
    """Close an epoch for each number, in which it is added to the sum of 1, and let nothing work meanwhile."""
    for ahead, number in enumerate(numbers):
        source.push(pairs((1, number)), 1, [engine.epoch + ahead])
    engine.cluster.command(Advance(engine.epoch + len(numbers)))
    engine.coordinator.epoch += len(numbers)


def flows_of(view: View) -> list[Dataflow]:
    return [worker.flows[view.dataflow] for worker in cluster_of(view._coordinator).workers]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_several_epochs_change_a_group_once(workers: int) -> None:
    with sums(workers) as (engine, source, view):
        before = sum(flow.changes for flow in flows_of(view))
        add(engine, source, [10, 20, 30])
        assert read(view) == {(1, 61): 1, (2, 2): 1}
        assert sum(flow.changes for flow in flows_of(view)) == before + 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_hold_keeps_epochs_apart(workers: int) -> None:
    with sums(workers) as (engine, source, view), view.hold() as held:
        add(engine, source, [10, 20, 30])
        read(view)
        seen = [collected(held.read(held.epoch + ahead)) for ahead in range(4)]
        assert seen == [{(1, total): 1, (2, 2): 1} for total in (1, 11, 31, 61)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_subscriber_sees_every_epoch(workers: int) -> None:
    with sums(workers) as (engine, source, view):
        changes = view.changes(timeout=1)
        next(changes)
        add(engine, source, [10, 20, 30])
        seen = [collected(next(changes)[1]) for _ in range(3)]
        assert seen == [{(1, old): -1, (1, new): 1} for old, new in ((1, 11), (11, 31), (31, 61))]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_view_that_imports_another_is_right_while_that_is_ahead(workers: int) -> None:
    """The importer's other source may end a sweep between epochs that the first would have done as one."""
    with sums(workers) as (engine, source, _):
        totals = engine.install("totals", source.sum("k", "v").select("sum").count("sum"))
        read(totals)
        with counted_sweeps() as counted:
            add(engine, source, [10, 20, 30])
            assert read(totals) == {(61, 1): 1, (2, 1): 1}
        assert counted[False] and counted[True]


def test_regression_readers_that_come_during_a_sweep_do_not_read_what_it_does_not_tell_apart() -> None:
    """The trace has the last result before the sweep is complete, and seemed to have those of the others."""
    with sums(2) as (engine, source, view):
        first = engine.epoch
        add(engine, source, [10, 20, 30])
        engine.cluster.command(Demand(view.dataflow, engine.epoch))
        while not all(flow.is_sweeping for flow in flows_of(view)):
            assert not cluster_of(engine).run_some(1), "the sweep has not begun"
        engine.cluster.command(Hold(77, view.dataflow, first))
        while any(flow.is_sweeping for flow in flows_of(view)):
            for epoch in (first, first + 1):
                with pytest.raises(TimeError):
                    cluster_of(engine).read(view.dataflow, (epoch,))
            cluster_of(engine).run_some(1)
        read(view)
        with pytest.raises(TimeError):
            engine.coordinator.ask(Read(view.dataflow, (first,), 77, wait=True))
        last = engine.coordinator.ask(Read(view.dataflow, (first + 2,), 77, wait=True))
        assert collected(pa.concat_tables([shard.rows for shard in last])) == {(1, 61): 1, (2, 2): 1}
