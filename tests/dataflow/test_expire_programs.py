"""Programs call `expire`: what they write is what visits write, and they change its state only when they commit."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.cluster.inprocess import Faults
from ikebana.engine import Engine
from ikebana.engine.collection import Collection
from ikebana.kernels import opcodes
from ikebana.operators.expire import Expire, SortedRun
from ikebana.runtime.dataflow import Dataflow
from ikebana.runtime.program import Program
from tests.dataflow.harness import Setup, cluster_of, engine_of, examples, read, setups
from tests.dataflow.test_joint_sweeps import counted
from tests.dataflow.test_programs import fused, programs_run

FIELDS = [
    pa.field("k", pa.int64(), nullable=False),
    pa.field("start", pa.int64()),
    pa.field("end", pa.int64()),
    pa.field("text", pa.string()),
]
NOW = [pa.field("now", pa.int64(), nullable=False)]
TEXTS = [None, "", "a", "a longer text"]
Row = tuple[int, int | None, int | None, str | None]


def valid(rows: Collection, clock: Collection) -> Collection:
    return rows.expire(clock, valid_from="start", valid_until="end")


VIEWS: dict[str, Callable[[Collection, Collection], Collection]] = {
    "valid": valid,
    "counts": lambda rows, clock: rows.expire(clock, valid_until="end").count("text"),
    "greatest": lambda rows, clock: rows.expire(clock, valid_from="start").select("k", "end").max("k"),
    "joined": lambda rows, clock: valid(rows, clock).join(rows.select("k", other="text"), on="k").distinct(),
    "twice": lambda rows, clock: valid(rows.expire(clock, valid_until="end"), clock).select("k", "text").distinct(),
}
NAMES = st.lists(st.sampled_from(list(VIEWS)), min_size=1, max_size=3, unique=True)


class Changes:
    """A table of rows and one of a clock, changed at random."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self.random, self.now = engine, random.Random(seed), 0
        self.rows, self.clock = engine.table("rows", FIELDS), engine.table("clock", NOW)
        self.present: list[Row] = []
        self.clock.insert({"now": [0]})

    def make(self) -> None:
        """Change some rows, or advance the clock, or both."""
        kind = self.random.random()
        with self.engine.transaction():
            if kind < 0.5:
                self.tick(self.random.randint(1, 4))
            if kind > 0.3:
                self._change()

    def tick(self, by: int) -> None:
        self.clock.delete({"now": [self.now]})
        self.now += by
        self.clock.insert({"now": [self.now]})

    def _change(self) -> None:
        r = self.random
        if self.present and r.random() < 0.4:
            self.rows.delete(columns([self.present.pop(r.randrange(len(self.present)))]))
            return
        new = [
            (r.randrange(4), self._time(), self._time(), TEXTS[r.randrange(len(TEXTS))]) for _ in range(r.randint(1, 4))
        ]
        self.present += new
        self.rows.insert(columns(new))

    def _time(self) -> int | None:
        return None if self.random.random() < 0.2 else self.now + self.random.randint(-3, 9)


def columns(rows: list[Row]) -> dict[str, Any]:
    return {field.name: pa.array([row[at] for row in rows], field.type) for at, field in enumerate(FIELDS)}


def play(engine: Engine, names: list[str], seed: int, *, runs: bool = False) -> Iterator[Any]:
    """Changes, in some of which others are under way; a view that is installed later; what all views have."""
    changes, r = Changes(engine, seed), random.Random(seed)
    installed = {name: engine.install(name, VIEWS[name](changes.rows, changes.clock)) for name in names[1:]}
    for turn in range(14):
        changes.make()
        actions = r.choice([0, r.randint(1, 60)])
        if runs:
            cluster_of(engine).run_some(actions)
        if turn == 3:
            installed[names[0]] = engine.install(names[0], VIEWS[names[0]](changes.rows, changes.clock))
        if r.random() < 0.7 or turn == 13:
            yield {name: read(view) for name, view in installed.items()}


def expected(names: list[str], seed: int) -> list[Any]:
    with fused("never"), Engine() as engine:
        return list(play(engine, names, seed))


@pytest.mark.parametrize("mode", ["small", "always", "both"])
def test_oracle_expire_in_programs(mode: str) -> None:
    """The answers are those of visits on one worker; programs do sweeps of `expire` and of what reads from it."""
    ran = []

    @examples(1, quick=0.4)
    @given(setups(3), NAMES, st.integers(0, 1000))
    def check(setup: Setup, names: list[str], seed: int) -> None:
        with fused(mode), engine_of(replace(setup, hash_bits=64)) as engine:
            assert list(play(engine, names, seed, runs=True)) == expected(names, seed)
            ran.append(programs_run(engine))

    check()
    assert sum(ran) > 2 * len(ran)


@pytest.mark.parametrize("status", [opcodes.FULL, opcodes.RAISED])
@examples(1, quick=0.4)
@given(setups(3), NAMES, st.integers(0, 1000))
def test_oracle_programs_that_fail_after_they_have_called_expire(
    status: int, setup: Setup, names: list[str], seed: int
) -> None:
    """They try again, or visits do the sweep: as if the call had not been made."""
    check_failures(status, replace(setup, hash_bits=64), names, seed)


@pytest.mark.parametrize("seed", [3, 891])
def test_regression_a_dataflow_that_was_left_out_got_the_rows_of_another(seed: int) -> None:
    """Left out of a joint sweep, it was still offered what a dataflow that it imports had written, and kept that."""
    for names in (["joined", "valid"], ["valid", "joined"]):
        check_failures(opcodes.FULL, Setup(workers=3, seed=seed), names, seed)


def test_regression_workers_agree_on_whether_a_dataflow_takes_part_in_joint_sweeps() -> None:
    """After groups had been too large, one worker left the dataflow out of a joint sweep, and the other did not."""
    faults = Faults(delay=0, reorder=0, pause=0.05, longest=50)
    check_failures(opcodes.FULL, Setup(workers=2, faults=faults, hash_bits=64), ["joined", "greatest"], 217)


def check_failures(status: int, setup: Setup, names: list[str], seed: int) -> None:
    """Programs fail at random, after the calls that they make."""
    r, call = random.Random(seed), Program._call

    def fails(program: Program, workspace: Any, epoch: int) -> int:
        reached = call(program, workspace, epoch)
        return status if r.random() < 0.3 else reached

    with fused("always"), engine_of(setup) as engine, patch.object(Program, "_call", fails):
        assert list(play(engine, names, seed, runs=True)) == expected(names, seed)


@pytest.mark.parametrize("workers", [1, 3])
def test_rows_that_come_and_go_in_programs(workers: int) -> None:
    """Programs do every sweep, and forget what was due."""
    with fused("small"), Engine(workers) as engine:
        changes = Changes(engine, 0)
        view = engine.install("valid", valid(changes.rows, changes.clock).count("k"))
        engine.wait()
        for at in range(6):
            changes.rows.insert(columns([(0, at, at + 2, "text")]))
            assert read(view) == {(0, min(at + 1, 2)): 1}
            with engine.transaction():
                changes.tick(1)
            assert read(view) == {(0, 1): 1}
        flows = [flow for worker in cluster_of(engine).workers for flow in worker.flows.values()]
        assert not any(flow.visits_run for flow in flows)
        assert sum(len(operator._pending) for flow in flows for operator in operators(flow)) == 1


def operators(flow: Dataflow) -> list[Expire]:
    return [operator for operator in flow._root.operators() if isinstance(operator, Expire)]


def test_changes_of_rows_do_not_wait_for_the_clock() -> None:
    """Where the clock does not change, nobody sends a message for it."""
    with fused("small"), Engine(2) as engine:
        changes = Changes(engine, 0)
        view = engine.install("counts", valid(changes.rows, changes.clock).count("k"))
        sent: list[Counter[str]] = []
        for at in range(6):
            with counted(engine) as messages:
                changes.rows.insert(columns([(at, None, 9, "text")]))
                engine.wait()
            sent.append(messages)
        assert not sent[-1]["single"] and sent[-1]["depth"] <= 2, "one exchange by key, and the end"
        assert len(read(view)) == 6


@pytest.mark.usefixtures("no_garbage_collection")
def test_a_dropped_view_frees_its_pending_changes_at_once() -> None:
    """Programs are part of reference cycles, for which Python searches rarely."""
    before = runs()
    with fused("small"), Engine() as engine:
        changes = Changes(engine, 0)
        view = engine.install("counts", valid(changes.rows, changes.clock).count("k"))
        for key in range(2):
            changes.rows.insert(columns([(key, None, 9, "text")]))
            assert len(read(view)) == key + 1
        assert programs_run(engine)
        assert runs() > before
        view.drop()
        engine.run()
        assert runs() == before


def runs() -> int:
    """How many runs of pending changes are in memory."""
    return sum(isinstance(item, SortedRun) for item in gc.get_objects())
