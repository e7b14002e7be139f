"""Random dataflows equal the model at every epoch that is read: see `tests.dataflow.expressions` for what they are made
of, and `tests.dataflow.world` for what happens to them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.dataflow.expressions import programs
from tests.dataflow.harness import INTEGERS, NULLS, SMALL, STRINGS, Setup, examples, setups
from tests.dataflow.world import play, scripts


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
