"""Random dataflows equal the model at every epoch that is read: see `tests.dataflow.expressions` for what they are made
of, and `tests.dataflow.dataflow_run` for what happens to them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.dataflow.dataflow_run import DataflowRun, histories, play, scripts
from tests.dataflow.expressions import loops, programs, searches
from tests.dataflow.harness import INTEGERS, NULLS, SMALL, STRINGS, Setup, engine_of, examples, setups


@examples(1.5)
@given(setups(), programs(depth=0), st.data())
def test_oracle_dataflow(setup: Setup, program: Any, data: Any) -> None:
    play(setup, INTEGERS, program, data.draw(scripts(INTEGERS, program)))


@examples(1.5)
@given(setups(3), programs(), st.data())
def test_oracle_dataflow_with_loops(setup: Setup, program: Any, data: Any) -> None:
    play(setup, INTEGERS, program, data.draw(scripts(INTEGERS, program, most=8)))


@examples(1)
@given(setups(), st.sampled_from([STRINGS, NULLS, SMALL]), programs(depth=1, most=5), st.data())
def test_oracle_dataflow_on_typed_columns(setup: Setup, domain: Any, program: Any, data: Any) -> None:
    play(setup, domain, program, data.draw(scripts(domain, program)))


@examples(2, quick=1.2)
@given(setups(2), programs(most=3), st.data())
def test_oracle_dataflow_at_every_epoch(setup: Setup, program: Any, data: Any) -> None:
    with engine_of(setup) as engine:
        DataflowRun(engine, INTEGERS, program).live_through(data.draw(histories(INTEGERS, program)))


@examples(3, quick=1.5)
@given(setups(2), loops(), st.data())
def test_oracle_loop_at_every_epoch(setup: Setup, program: Any, data: Any) -> None:
    with engine_of(setup) as engine:
        DataflowRun(engine, INTEGERS, program).live_through(data.draw(histories(INTEGERS, program)))


@examples(1.5)
@given(setups(2), searches(), st.data())
def test_oracle_search_at_every_epoch(setup: Setup, program: Any, data: Any) -> None:
    with engine_of(setup) as engine:
        DataflowRun(engine, INTEGERS, program).live_through(data.draw(histories(INTEGERS, program, most=5)))
