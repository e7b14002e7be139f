"""Plays a script of pushes, epochs, installs and retirements on an engine and on the model, and compares.

A script is a list of plain steps that name inputs, views and data by number, so that it shrinks to few and small
ones. Whatever is read is compared with the program evaluated from scratch, by the model, on the inputs as of
that epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ikebana import model
from ikebana.engine import Engine, View
from ikebana.errors import DataflowError, TimeError
from ikebana.runtime.messages import Demand
from ikebana.trace import Handle
from tests.dataflow.expressions import Data, Program, TooLarge, built, evaluated
from tests.dataflow.harness import Domain, Setup, cluster_of, collected, engine_of, settle

DIFFS = [1, 1, 1, -1, -1, 2, -3, 0]
AHEAD = [0, 0, 0, 1, 2]
Change = tuple[int, int, int, int]  # key, value, diff, epochs ahead of the present one


class Push(NamedTuple):
    """Changes of an input, in one push."""

    input: int
    changes: list[Change]


class Undo(NamedTuple):
    """Take back all that an input was given, or half of it."""

    input: int
    half: bool


class Close(NamedTuple):
    """Close some epochs."""

    epochs: int


class End(NamedTuple):
    """Close an input: it does not change any more."""

    input: int


class Work(NamedTuple):
    """Run some actions of the scheduler, then check the answers of the views."""

    actions: int


class Read(NamedTuple):
    """Read a view at the last closed epoch."""

    view: int


class Install(NamedTuple):
    """Install a view of a collection of the program."""

    of: int


class Drop(NamedTuple):
    """Drop a view."""

    view: int


class Hold(NamedTuple):
    """A reader of a view that stays where it is: from now on it can be read at every epoch."""

    view: int


class Release(NamedTuple):
    """That reader moves on, and is dropped."""

    hold: int


Step = Push | Undo | Close | End | Work | Read | Install | Drop | Hold | Release


@dataclass(frozen=True)
class Script:
    """Views that are there from the start, and what happens."""

    first: list[int]
    steps: list[Step]


@st.composite
def scripts(draw: Any, domain: Domain, program: Program, most: int = 10) -> Script:
    """Any script; numbers are of the domain and the program."""
    sizes = (len(domain.keys), len(domain.vals), len(DIFFS), len(AHEAD))

    def change(number: int) -> Change:
        parts = []
        for size in sizes:
            number, part = divmod(number, size)
            parts.append(part)
        return parts[0], parts[1], DIFFS[parts[2]], AHEAD[parts[3]]

    total = 1
    for size in sizes:
        total *= size
    numbers, nodes = st.integers(0, 3), st.integers(0, program.size - 1).map(lambda n: program.size - 1 - n)
    changes = st.lists(st.integers(0, total - 1).map(change), min_size=1, max_size=6)
    push = st.builds(Push, st.integers(0, program.inputs - 1), changes)
    step: SearchStrategy[Step] = st.one_of(
        push,
        push,
        push,
        st.builds(Close, st.sampled_from([1, 1, 2, 3])),
        st.builds(Close, st.sampled_from([1, 1, 2, 3])),
        st.builds(Read, numbers),
        st.builds(Undo, st.integers(0, program.inputs - 1), st.booleans()),
        st.builds(End, st.integers(0, program.inputs - 1)),
        st.builds(Work, st.integers(1, 40)),
        st.builds(Work, st.integers(1, 200)),
        st.builds(Install, nodes),
        st.builds(Drop, numbers),
        st.builds(Hold, numbers),
        st.builds(Release, numbers),
    )
    first = draw(st.lists(nodes, min_size=1, max_size=3))
    return Script(first, draw(st.lists(step, min_size=1, max_size=most)))


# Histories: nothing but changes, epoch by epoch, several epochs to a sweep; every epoch is looked at in the end.
Sweep = list[list[list[Change]]]  # for each epoch, for each input, its changes


def histories(domain: Domain, program: Program, most: int = 3) -> SearchStrategy[list[Sweep]]:
    """Sweeps of up to three epochs, mostly of single rows that come and go."""
    changes = st.builds(
        lambda k, v, n: (k, v, n, 0),
        st.integers(0, len(domain.keys) - 1),
        st.integers(0, len(domain.vals) - 1),
        st.sampled_from([1, 1, -1, 2]),
    )
    epoch = st.tuples(*(st.lists(changes, max_size=3) for _ in range(program.inputs))).map(list)
    return st.lists(st.lists(epoch, min_size=1, max_size=3), min_size=1, max_size=most)


@dataclass
class Held:
    """A reader that was held back: since an epoch, on every worker."""

    view: View
    of: int
    since: int
    handles: list[Handle]


class DataflowRun:
    """An engine with inputs and views, and all that was given to the inputs, in the model's form."""

    def __init__(self, engine: Engine, domain: Domain, program: Program) -> None:
        self.engine, self.domain, self.program = engine, domain, program
        self.inputs = [engine.input(f"input {at}", domain.fields) for at in range(program.inputs)]
        self.collections = built(domain, self.inputs, program.nodes)
        self.updates: list[list[Any]] = [[] for _ in self.inputs]
        self.views: list[tuple[View, int]] = []
        self.holds: list[Held] = []
        self.names = 0
        self.ended: set[int] = set()
        self.seen: list[Data] = []
        self.expected = cache(self._expected)

    def take(self, step: Step) -> None:
        match step:
            case Push(at, changes) if at not in self.ended:
                self.push(at, changes)
            case Undo(at, half) if at not in self.ended:
                now = self.engine.epoch
                given = [(*row, -n, max(0, epoch - now)) for row, (epoch,), n in self.updates[at]]
                self.push(at, given[::2] if half else given)
            case Close(epochs):
                self.engine.advance(self.engine.epoch + epochs)
            case End(at):
                self.inputs[at].close()
                self.ended.add(at)
            case Work(actions):
                cluster_of(self.engine).run_some(actions)
                for view, of in self.views:
                    self.peek(view, of)
            case Install(of):
                self.install(of)
            case Drop(at) if self.views:
                view, _ = self.views.pop(at % len(self.views))
                self.holds = [held for held in self.holds if held.view is not view]
                view.drop()
            case Read(at) if self.views and self.engine.epoch:
                self.check(*self.views[at % len(self.views)])
            case Hold(at) if self.views and self.engine.epoch:
                self.hold(*self.views[at % len(self.views)])
            case Release(at) if self.holds:
                self.release(self.holds.pop(at % len(self.holds)))

    def push(self, at: int, changes: Sequence[Change]) -> None:
        rows = [(k, v) for k, v, _, _ in changes]
        epochs = [self.engine.epoch + ahead for _, _, _, ahead in changes]
        diffs = [diff for _, _, diff, _ in changes]
        self.inputs[at].push(self.domain.columns(rows), diffs, epochs)
        self.updates[at] += [(row, (epoch,), n) for row, epoch, n in zip(rows, epochs, diffs, strict=True)]

    def install(self, of: int) -> None:
        self.names += 1
        name = f"view {self.names % 4}"  # names are used again
        if name not in [view.name for view, _ in self.views]:
            self.views.append((self.engine.install(name, self.collections[of]), of))

    def _expected(self, epoch: int) -> list[Data]:
        """Every collection of the program at a closed epoch."""
        inputs = [model.accumulate(updates, (epoch,)) for updates in self.updates]
        try:
            return evaluated(self.domain, inputs, self.program.nodes)
        except TooLarge:
            assume(False)
            raise

    def numbers(self, table: pa.Table) -> Data:
        rows = self.domain.numbers({name: table[name] for name in table.column_names})
        return dict(zip(rows, collected(table).values(), strict=True))

    def check(self, view: View, of: int) -> None:
        """Read a view at the last closed epoch."""
        epoch = self.engine.epoch - 1
        expected = self.expected(epoch)[of]
        self.complete(view)
        self.seen.append(self.numbers(view.read()))
        assert self.seen[-1] == expected, f"{view.name}, collection {of}, epoch {epoch}"

    def peek(self, view: View, of: int) -> None:
        """Whatever a view answers in the middle of things is right."""
        for epoch in range(self.engine.epoch):
            try:
                table = cluster_of(self.engine).read(view.dataflow, (epoch,))
            except (TimeError, DataflowError):  # not any more, not yet, or not installed yet
                continue
            assert self.numbers(table) == self.expected(epoch)[of], f"{view.name}, collection {of}, epoch {epoch}"

    def complete(self, view: View) -> None:
        self.engine.cluster.command(Demand(view.dataflow, self.engine.epoch))
        settle(self.engine)
        view.wait(self.engine.epoch - 1)

    def hold(self, view: View, of: int) -> None:
        self.complete(view)
        readers = [worker.flows[view.dataflow].reader for worker in cluster_of(self.engine).workers]
        self.holds.append(Held(view, of, self.engine.epoch - 1, [reader.clone() for reader in readers]))

    def release(self, held: Held) -> None:
        """Read it at every epoch since it was held back."""
        self.complete(held.view)
        for epoch in range(held.since, self.engine.epoch):
            rows = self.numbers(pa.concat_tables([handle.read((epoch,)) for handle in held.handles]))
            assert rows == self.expected(epoch)[held.of], f"held {held.view.name}, {held.of}, epoch {epoch}"
        for handle in held.handles:
            handle.drop()

    def play(self, script: Script) -> None:
        """The whole script, and then everything that is left read once more."""
        for of in script.first:
            self.install(of)
        for step in script.steps:
            self.take(step)
        self.engine.advance()
        for view, of in self.views:
            self.check(view, of)
        while self.holds:
            self.release(self.holds.pop())

    def close_epochs(self, sweep: Sweep) -> None:
        """Give the inputs the changes of some epochs, and close them."""
        for ahead, epoch in enumerate(sweep):
            for at, changes in enumerate(epoch):
                self.push(at, [(k, v, n, ahead) for k, v, n, _ in changes])
        self.engine.advance(self.engine.epoch + len(sweep))
        self.expected(self.engine.epoch - 1)  # the model goes first, so that what is too large never starts

    def live_through(self, history: list[Sweep]) -> None:
        """A reader of the last collections, held back from the start, sees all epochs of a history."""
        for of in range(self.program.size)[-2:]:
            self.install(of)
        self.engine.advance()
        for view, of in self.views:
            self.hold(view, of)
        for sweep in history:
            self.close_epochs(sweep)
            self.complete(self.views[-1][0])
        for held in self.holds:
            self.release(held)


def play(setup: Setup, domain: Domain, program: Program, script: Script) -> None:
    """A script on an engine of its own."""
    with engine_of(setup) as engine:
        DataflowRun(engine, domain, program).play(script)
