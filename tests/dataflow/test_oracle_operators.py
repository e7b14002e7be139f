"""Each operator by itself equals the model's at every epoch that is read, whatever is pushed and in whatever types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dataflow.dataflow_run import play, scripts
from tests.dataflow.expressions import OPERATORS, Apply, Program
from tests.dataflow.harness import INTEGERS, NESTED, domains, examples, setups


@st.composite
def _uses(draw: Any, operator: str, domain: Any) -> Any:
    """An operator on as many inputs, or fewer: then some of its inputs are one collection."""
    arity = OPERATORS[operator].arity
    inputs = draw(st.integers(1, arity))
    of = tuple(range(inputs)) + tuple(draw(st.integers(0, inputs - 1)) for _ in range(arity - inputs))
    program = Program(inputs, (Apply(operator, of, draw(st.integers(0, 4))),))
    chosen = draw(domain)
    return chosen, program, draw(scripts(chosen, program))


@pytest.mark.parametrize("operator", OPERATORS)
@examples(0.25, quick=0.2)
@given(setup=setups(), data=st.data())
def test_oracle_operator(operator: str, setup: Any, data: Any) -> None:
    play(setup, *data.draw(_uses(operator, st.just(INTEGERS))))


@pytest.mark.parametrize("operator", [name for name in OPERATORS if name != "triangle"])
@examples(0.25, quick=0.2)
@given(setup=setups(), data=st.data())
def test_oracle_operator_on_typed_columns(operator: str, setup: Any, data: Any) -> None:
    play(setup, *data.draw(_uses(operator, domains())))


ORDERED = ["min", "max", "top_k"]


@pytest.mark.parametrize("operator", [name for name in OPERATORS if name not in ("triangle", *ORDERED)])
@examples(0.1)
@given(setup=setups(), data=st.data())
def test_oracle_operator_on_nested_columns(operator: str, setup: Any, data: Any) -> None:
    play(setup, *data.draw(_uses(operator, st.just(NESTED))))
