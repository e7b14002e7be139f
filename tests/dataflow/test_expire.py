"""Rows that become valid and expire by a clock: against a twin that looks at all rows at each epoch, and by example."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import model
from ikebana.engine import Engine, Input, View
from ikebana.engine.collection import Collection, constant
from ikebana.errors import DataflowError, SchemaError
from ikebana.operators.expire import Expire
from ikebana.runtime.messages import Demand
from tests.dataflow.harness import Setup, cluster_of, collected, engine_of, examples, read, settle, setups

NOW = pa.field("now", pa.int64(), nullable=False)
FIELDS = [pa.field("start", pa.int64()), pa.field("end", pa.int64()), pa.field("name", pa.string())]
BOUNDS = [("start", "end"), ("start", None), (None, "end"), (None, None)]
Row = tuple[int | None, int | None, str]


class Push(NamedTuple):
    """Rows that come or go, some epochs ahead."""

    changes: list[tuple[Row, int, int]]


class Tick(NamedTuple):
    """Advance the clock by an amount, some epochs ahead."""

    by: int
    ahead: int


class Close(NamedTuple):
    """Close some epochs."""

    epochs: int


class Read(NamedTuple):
    """All views are read."""


class Install(NamedTuple):
    """One more view."""

    bounds: int


bound = st.none() | st.integers(-2, 8)
row = st.tuples(bound, bound, st.sampled_from(["a", "b"]))
change = st.tuples(row, st.sampled_from([1, 1, -1, 2]), st.sampled_from([0, 0, 1, 2]))
step = st.one_of(
    st.builds(Push, st.lists(change, min_size=1, max_size=5)),
    st.builds(Push, st.lists(change, min_size=1, max_size=5)),
    st.builds(Tick, st.integers(0, 4), st.integers(0, 2)),
    st.builds(Tick, st.integers(0, 4), st.integers(0, 2)),
    st.builds(Close, st.integers(1, 3)),
    st.builds(Read),
    st.builds(Install, st.integers(0, 3)),
)


def is_valid(row: Row, bounds: tuple[str | None, str | None], now: int) -> bool:
    start, end = row[0] if bounds[0] else None, row[1] if bounds[1] else None
    return (start is None or start <= now) and (end is None or now < end)


class ExpireRun:
    """An engine with rows and a clock, and all that was given to them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.rows, self.clock = engine.input("rows", FIELDS), engine.input("clock", [NOW])
        self.given: list[Any] = []
        self.ticks: list[tuple[int, int]] = []  # epoch, value
        self.views: list[tuple[View, int]] = []

    def take(self, step: Any) -> None:
        match step:
            case Push(changes):
                self.push(changes)
            case Tick(by, ahead):
                self.tick(by, ahead)
            case Close(epochs):
                self.engine.advance(self.engine.epoch + epochs)
            case Read() if self.engine.epoch:
                self.check()
            case Install(at):
                self.install(at)

    def push(self, changes: list[tuple[Row, int, int]]) -> None:
        columns = {
            field.name: pa.array([row[at] for row, _, _ in changes], field.type) for at, field in enumerate(FIELDS)
        }
        epochs = [self.engine.epoch + ahead for _, _, ahead in changes]
        self.rows.push(columns, [diff for _, diff, _ in changes], epochs)
        self.given += [(row, (epoch,), diff) for (row, diff, _), epoch in zip(changes, epochs, strict=True)]

    def tick(self, by: int, ahead: int) -> None:
        last, now = self.ticks[-1] if self.ticks else (0, 0)
        epoch = max(last, self.engine.epoch + ahead)
        gone = [now] if self.ticks else []
        self.clock.push({"now": [*gone, now + by]}, [*[-1] * len(gone), 1], [epoch] * (len(gone) + 1))
        self.ticks.append((epoch, now + by))

    def install(self, at: int) -> None:
        start, end = BOUNDS[at]
        valid = self.rows.expire(self.clock, valid_from=start, valid_until=end)
        self.views.append((self.engine.install(f"view {len(self.views)}", valid), at))

    def expected(self, at: int, epoch: int) -> dict[Row, int]:
        shown = [value for tick, value in self.ticks if tick <= epoch]
        rows = model.accumulate(self.given, (epoch,))
        return model.filter(rows, lambda row: is_valid(row, BOUNDS[at], shown[-1])) if shown else {}

    def check(self) -> None:
        for view, at in self.views:
            assert read(view) == self.expected(at, self.engine.epoch - 1), f"{view.name}, {BOUNDS[at]}"


def operators(engine: Engine) -> list[Expire]:
    """Those in all dataflows of all workers."""
    flows = [flow for worker in cluster_of(engine).workers for flow in worker.flows.values()]
    return [operator for flow in flows for operator in flow._root.operators() if isinstance(operator, Expire)]


def pending(engine: Engine) -> int:
    """How many changes wait for the clock."""
    return sum(len(operator._pending) for operator in operators(engine))


@examples(1)
@given(setups(3), st.integers(0, 3), st.lists(step, min_size=2, max_size=12))
def test_oracle_expire(setup: Setup, first: int, steps: list[Any]) -> None:
    with engine_of(setup) as engine:
        world = ExpireRun(engine)
        world.install(first)
        for action in steps:
            world.take(action)
        engine.advance(engine.epoch + 3)
        world.check()


@examples(1, quick=0.6)
@given(setups(2), st.integers(0, 3), st.lists(step, min_size=2, max_size=12))
def test_oracle_expire_at_every_epoch(setup: Setup, at: int, steps: list[Any]) -> None:
    """However many epochs, and however many ticks, a sweep covers."""
    with engine_of(setup) as engine:
        world = ExpireRun(engine)
        world.install(at)
        view, _ = world.views[0]
        engine.advance()
        with view.hold() as held:
            for action in steps:
                world.take(action if not isinstance(action, Install) else Close(1))
            engine.advance(engine.epoch + 3)
            engine.cluster.command(Demand(view.dataflow, engine.epoch))
            settle(engine)
            for epoch in range(engine.epoch):
                assert collected(held.read(epoch)) == world.expected(at, epoch), f"epoch {epoch}"


# By example.
def table(*rows: Row) -> dict[str, pa.Array]:
    return {field.name: pa.array([row[at] for row in rows], field.type) for at, field in enumerate(FIELDS)}


@pytest.fixture(params=[1, 3])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(request.param)


@pytest.fixture
def rows(engine: Engine) -> Input:
    return engine.input("rows", FIELDS)


@pytest.fixture
def clock(engine: Engine) -> Input:
    return engine.input("clock", [NOW])


def test_nothing_waits_that_nothing_will_happen_to(engine: Engine, rows: Input, clock: Input) -> None:
    view = engine.install("valid", rows.expire(clock, valid_from="start", valid_until="end"))
    clock.insert({"now": [5]})
    rows.insert(table((None, None, "always"), (0, 5, "late"), (3, 3, "never"), (5, 9, "now"), (9, None, "later")))
    engine.advance()
    assert {name for _, _, name in read(view)} == {"always", "now"}
    assert pending(engine) == 2  # that it expires, and that it becomes valid
    rows.remove(table((0, 5, "late"), (9, None, "later")))
    engine.advance()
    assert {name for _, _, name in read(view)} == {"always", "now"}
    clock.push({"now": [5, 9]}, [-1, 1])
    engine.advance()
    assert {name for _, _, name in read(view)} == {"always"}
    assert pending(engine) == 0
    rows.remove(table((5, 9, "now"), (None, None, "always")))
    engine.advance()
    assert read(view) == {}


def test_ticks_touch_what_they_release(engine: Engine, rows: Input, clock: Input) -> None:
    many = 10_000
    view = engine.install("valid", rows.expire(clock, valid_until="end").count(()))
    clock.insert({"now": [0]})
    ends = np.arange(1, many + 1)
    rows.insert({"start": pa.nulls(many, pa.int64()), "end": ends, "name": pa.array([""] * many)})
    engine.advance()
    assert read(view) == {(many,): 1}
    for now in range(5):
        clock.push({"now": [now, now + 1]}, [-1, 1])
        engine.advance()
        assert read(view) == {(many - now - 1,): 1}
        assert pending(engine) == many - now - 1


def test_equal_windows_are_shared(engine: Engine, rows: Input, clock: Input) -> None:
    valid = rows.expire(clock, valid_until="end")
    doubled = valid.threshold(lambda counts: 2 * counts)
    views = [engine.install("distinct", valid.distinct()), engine.install("doubled", doubled)]
    clock.insert({"now": [1]})
    rows.insert(table((None, 5, "x")))
    engine.advance()
    assert [read(view) for view in views] == [{(None, 5, "x"): 1}, {(None, 5, "x"): 2}]
    assert len(operators(engine)) == engine.cluster.size
    assert engine.explain(valid) == "valid until end\n├─ input rows\n└─ input clock"


def test_windows_over_streams(engine: Engine, clock: Input) -> None:
    """Of a stream nothing is kept but what is still valid."""
    stream = engine.table("stream", FIELDS, kind="stream")
    view = engine.install("valid", stream.expire(clock, valid_until="end").count(()))
    clock.insert({"now": [0]})
    engine.advance()
    for now in range(1, 20):
        stream.insert(table((None, now + 3, "x")))
        clock.push({"now": [now - 1, now]}, [-1, 1])
        engine.advance()
        assert read(view) == {(min(now, 3),): 1}
        assert pending(engine) == min(now, 3)


def test_timestamps(engine: Engine) -> None:
    kind = pa.timestamp("us", "UTC")
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
    events = engine.input("events", [pa.field("at", kind), pa.field("until", kind)])
    clock = engine.input("clock", [pa.field("now", kind, nullable=False)])
    hour, instant = dt.timedelta(hours=1), dt.timedelta(microseconds=1)
    view = engine.install("last hour", events.expire(clock, valid_until="until").select("at"))
    events.insert({"at": [noon], "until": [noon + hour + instant]})
    clock.insert({"now": [noon]})
    engine.advance()
    before = noon
    for now, is_shown in [(noon + hour, True), (noon + hour + instant, False)]:
        clock.push({"now": [before, now]}, [-1, 1])
        engine.advance()
        assert bool(read(view)) is is_shown
        before = now


@pytest.mark.parametrize(
    ("values", "diffs", "message"),
    [
        ([5, 4], [-1, 1], "the clock goes back at epoch 1\n  detail: from 5 to 4"),
        ([5], [-1], "does not have exactly one row at epoch 1\n  detail: its rows are none"),
        ([6], [1], "does not have exactly one row at epoch 1\n  detail: its rows are 5, 6"),
        ([5], [1], "does not have exactly one row at epoch 1\n  detail: its rows are 5"),
    ],
)
def test_clocks_that_fail(
    engine: Engine, rows: Input, clock: Input, values: list[int], diffs: list[int], message: str
) -> None:
    view = engine.install("valid", rows.expire(clock, valid_until="end"))
    clock.insert({"now": [5]})
    engine.advance()
    read(view)
    clock.push({"now": values}, diffs)
    engine.advance()
    with pytest.raises(DataflowError, match=message):
        view.read()


def test_a_clock_that_stands_still(engine: Engine, rows: Input) -> None:
    five = constant(pa.table({"now": [5]}, pa.schema([NOW])))
    view = engine.install("valid", rows.expire(five, valid_from="start", valid_until="end"))
    rows.insert(table((0, 5, "late"), (0, 6, "now"), (6, None, "never")))
    engine.advance()
    assert {name for _, _, name in read(view)} == {"now"}


def test_what_is_refused(rows: Input, clock: Input) -> None:
    with pytest.raises(SchemaError, match="there is no column 'finish'"):
        rows.expire(clock, valid_until="finish")
    with pytest.raises(SchemaError, match="'name' and the clock have different types"):
        rows.expire(clock, valid_until="name")
    for bad in (rows, rows.select("start"), rows.select("name"), rows.select()):
        with pytest.raises(SchemaError, match="a clock must have exactly one column"):
            rows.expire(bad, valid_until="end")

    def body(inside: Collection) -> Collection:
        return inside.expire(clock, valid_until="end")

    with pytest.raises(SchemaError, match="inside a loop"):
        rows.iterate(body)
