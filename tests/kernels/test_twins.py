"""Every kernel has a twin in `naive`, and a test that both compute the same: for any input, in any layout of memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from ikebana.kernels.compile import KERNELS
from tests.kernels import naive
from tests.kernels.program_runs import Program, compare
from tests.kernels.programs import programs
from tests.profiles import examples

kernels.load()

TESTS = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_a_twin(name: str) -> None:
    assert getattr(naive, name, None), f"tests/kernels/naive.py has no twin of {name}"
    assert getattr(naive, name).__doc__, f"the twin of {name} does not say what it computes"
    assert f"def test_twin_{name}(" in TESTS, f"no test holds {name} against its twin"


@examples(4, quick=1)
@given(programs(), st.booleans())
def test_twin_run_program(program: Program, commits: bool) -> None:
    compare(program, commits=commits)
