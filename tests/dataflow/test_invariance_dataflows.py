"""What must not matter does not: the same input gives the same views with any number of workers, in any interleaving,
with any merging, with and without sharing, in one push or many, epoch by epoch or all at once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.dataflow.dataflow_run import Change, DataflowRun, Script, scripts
from tests.dataflow.expressions import Data, programs
from tests.dataflow.harness import INTEGERS, Setup, engine_of, examples, setups


def results(setup: Setup, program: Any, script: Script) -> list[Data]:
    """Everything that a script reads."""
    with engine_of(setup) as engine:
        world = DataflowRun(engine, INTEGERS, program)
        world.play(script)
    return world.seen


@examples(0.2)
@given(setups(), setups(), programs(most=5, depth=1), st.data())
def test_invariance_of_setups(one: Setup, other: Setup, program: Any, data: Any) -> None:
    script = data.draw(scripts(INTEGERS, program))
    assert results(one, program, script) == results(other, program, script)


def _epochs(changes: list[list[Change]], pieces: int, together: bool, program: Any, setup: Setup) -> list[Data]:
    """The last results, of changes by epoch, pushed in pieces, the epochs closed one by one or together."""
    with engine_of(setup) as engine:
        world = DataflowRun(engine, INTEGERS, program)
        for of in range(program.size)[-3:]:
            world.install(of)
        for epoch, some in enumerate(changes):
            for start in range(0, len(some), pieces):
                part = [(k, v, n, epoch - engine.epoch) for k, v, n, _ in some[start : start + pieces]]
                world.push(start % program.inputs if pieces == 1 else 0, part)
            if not together:
                engine.advance()
                world.check(*world.views[epoch % len(world.views)])
        engine.advance(len(changes))
        for view, of in world.views:
            world.check(view, of)
    return world.seen[-len(world.views) :]


@examples(0.15)
@given(setups(3), programs(most=4, depth=1), st.data())
def test_invariance_of_batches(setup: Setup, program: Any, data: Any) -> None:
    row = st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from([1, -1, 2]), st.just(0))
    changes = data.draw(st.lists(st.lists(row, max_size=4), min_size=1, max_size=5))
    first = _epochs(changes, 100, False, program, setup)
    assert _epochs(changes, 100, True, program, setup) == first
    if program.inputs == 1:
        assert _epochs(changes, 1, True, program, setup) == _epochs(changes, 1, False, program, setup) == first
