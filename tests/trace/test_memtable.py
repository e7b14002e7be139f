"""Memtables: whatever programs and batches insert, readers of a trace see what the model says.

Programs are single instructions here: they arrange rows at one time, and store them. Values are integers; where the
schema has texts, their digits, or null for 0.
"""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema, slots
from ikebana.kernels import opcodes, run_program
from ikebana.operators import Arrange
from ikebana.time import Antichain, Time
from ikebana.trace import Handle
from ikebana.trace.handle import Trace
from ikebana.trace.memtable import (
    FEW_ROWS,
    GROWTH,
    LARGEST_ROWS,
    LEAST_HEAP,
    MOST_HEAP,
    MOST_ROWS,
    MOST_ROWS_IF_FILLED_FAST,
    can_have_memtable,
)
from tests.trace import compare
from tests.trace.strategies import HASTE, examples
from tests.trace.trace_run import slow_spines

LEAST, GREATEST = -(2**63), 2**63 - 1
NUMBERS = [LEAST, -1, 0, 1, 7, GREATEST]
PAIRS = Schema({"k": pa.int64()}, {"v": pa.int64()})
SUMS = Schema({"k": pa.int64()}, {"v": pa.int64()}, diffs=("count", "sum"))
TEXTS = Schema({"k": pa.int64()}, [pa.field("v", pa.string(), nullable=True)])
Row = tuple[int, int, tuple[int, ...]]


def value_of(schema: Schema, number: int) -> int | str | None:
    """The value that stands for a number."""
    if schema is not TEXTS:
        return number
    return str(number) * 9 if number else None


def store(trace: Trace, rows: list[Row], time: Time, *, commits: bool = True) -> int:
    """Run a program that arranges rows at a time and stores them in a trace, with room made where it lacks.

    Return how often that was, or -1 if there is no room, and the program was undone.
    """
    schema = trace.schema
    lanes, epoch, round_ = len(schema.diffs), time[0], time[1] if len(time) > 1 else 0
    payload = int(schema.hashed)
    arena = np.zeros((1 + 2 * (2 + lanes + 2 * payload), max(1, len(rows))), np.int64)
    values = pa.array([value_of(schema, val) for _, val, _ in rows], schema.val.fields[0].type)
    arena[1, : len(rows)] = [key for key, _, _ in rows]
    arena[2, : len(rows)] = schema.val.encode([values], len(rows))[0]
    for row, (_, _, diffs) in enumerate(rows):
        arena[3 : 3 + lanes, row] = diffs
    numbers = range(1, len(arena))
    given, fresh = numbers[: 2 + lanes], numbers[2 + lanes : 2 * (2 + lanes)]
    operands = [1, 2, 0, lanes, payload, *given[:2], *fresh[:2], *given[2:], *fresh[2:]]
    if payload:
        texts = slots.values(values, schema.val.fields[0])
        assert texts is not None
        value, null, *_ = columns = list(numbers[2 * (2 + lanes) :])
        arena[value, : len(rows)], arena[null, : len(rows)] = texts[0], slots.nulls(values)
        operands += [*columns, 1]
    state = np.zeros(opcodes.STATE_CELLS, np.int64)
    state[opcodes.ROUND_NOW], state[opcodes.COMMITS] = round_, commits
    code = np.array([opcodes.ARRANGE, 2 + len(operands), *operands], np.int64)
    counts, scratch = np.array([0, len(rows), 0], np.int64), np.zeros((6, arena.shape[1]), np.int64)

    def run() -> int:
        tables = [np.array([trace.address()], np.int64)] * 2
        return run_program(code, *tables, state, arena, counts, scratch, np.zeros((2, 256), np.int64), epoch)

    grown = 0
    while run() != opcodes.DONE:
        if not trace.grow_memtable():
            state[opcodes.PC] = -1
            assert run() == opcodes.DONE
            return -1
        grown += 1
    return grown


class Stored(NamedTuple):
    """Rows that a program inserts at the next epoch, each at a round."""

    rows: list[tuple[int, Row]]


class Sealed(NamedTuple):
    """Rows that come as a batch, at the next epoch, each at a round."""

    rows: list[tuple[int, Row]]


class Many(NamedTuple):
    """So many rows that a program inserts at the next epoch, from a number on."""

    start: int
    rows: int


class Cloned(NamedTuple):
    """Another reader."""

    reader: int


class Moved(NamedTuple):
    """A reader moves on by some epochs, or, with 0, is dropped unless it is the last."""

    reader: int
    epochs: int


class Idle(NamedTuple):
    """Idle time, for so many rows."""

    rows: int


class Kept(NamedTuple):
    """Take the batches as they are, and look at them again later."""


Step = Stored | Sealed | Many | Cloned | Moved | Idle | Kept


class MemtableRun:
    """A trace with a memtable, its readers, and all updates it was given, in the model's form."""

    def __init__(self, schema: Schema, dimensions: int, effort: str) -> None:
        self.schema, self.dimensions, self.epoch = schema, dimensions, 0
        self.arrange = Arrange(schema, dimensions=dimensions, effort=effort)
        self.readers = [self.arrange.handle()]
        self.trace = self.readers[0].trace
        self.updates: list[compare.Update] = []
        self.kept: list[tuple[Any, list[compare.Update]]] = []

    def take(self, step: Step) -> None:
        match step:
            case Stored(rows):
                self.store(rows)
            case Sealed(rows):
                self.seal(rows)
            case Many(start, rows):
                numbers = range(start, start + rows)
                self.store([(0, (number, -number, (1,) * len(self.schema.diffs))) for number in numbers])
            case Cloned(reader):
                self.readers.append(self.readers[reader % len(self.readers)].clone())
            case Moved(reader, 0) if len(self.readers) > 1:
                self.readers.pop(reader % len(self.readers)).drop()
            case Moved(reader, epochs):
                chosen = self.readers[reader % len(self.readers)]
                chosen.advance(self.time(chosen_epoch(chosen) + epochs))
            case Idle(rows):
                self.trace.merge_some(rows)
            case Kept():
                self.kept += [(batch, compare.batch_triples(batch)) for batch in self.readers[0].batches()]

    def time(self, epoch: int, round_: int = 0) -> Time:
        return (epoch, round_)[: self.dimensions]

    def store(self, rows: list[tuple[int, Row]]) -> None:
        """Round by round, as a loop does."""
        for round_ in sorted({round_ for round_, _ in rows}):
            time = self.time(self.epoch, round_)
            assert store(self.trace, [row for at, row in rows if at == round_], time) >= 0
        self.close(rows)
        self.trace.publish(None, Antichain.of(self.time(self.epoch)))

    def seal(self, rows: list[tuple[int, Row]]) -> None:
        for round_, (key, val, diffs) in rows:
            lanes = dict(zip(self.schema.diffs, ([diff] for diff in diffs), strict=True))
            diff = lanes if len(diffs) > 1 else [diffs[0]]
            value = pa.array([value_of(self.schema, val)], self.schema.val.fields[0].type)
            self.arrange.update({"k": [key], "v": value}, [self.time(self.epoch, round_)], diff)
        self.close(rows)
        self.arrange.advance(self.time(self.epoch))

    def close(self, rows: list[tuple[int, Row]]) -> None:
        """Note the updates of an epoch, which is then complete."""
        values = [value_of(self.schema, v) for _, (_, v, _) in rows]
        pairs = zip(rows, values, strict=True)
        self.updates += [(((k,), (v,)), self.time(self.epoch, at), diffs) for (at, (k, _, diffs)), v in pairs]
        self.epoch += 1

    def check(self, probe: int) -> None:
        """All readers see what the model says at some time; what was kept has not changed."""
        for reader in self.readers:
            first = chosen_epoch(reader)
            if first < self.epoch:
                at = self.time(first + probe % (self.epoch - first), probe % 4)
                expected = compare.accumulate(self.updates, at)
                assert compare.collection(reader.read(at), self.schema) == expected
                keys = [(number,) for number in NUMBERS[probe % 3 :: 2]]
                assert compare.looked_up(reader, keys, at) == compare.with_keys(expected, keys)
        for batch in self.readers[0].batches():
            compare.assert_sorted(batch)
        for batch, triples in self.kept:
            assert compare.batch_triples(batch) == triples, "a batch has changed"
        self.check_bytes()

    def check_bytes(self) -> None:
        """The memtable is counted, beside the batches."""
        memtable = self.trace.spine.memtable
        settled = sum(batch.nbytes for batch in self.trace.spine._settled_batches())
        lanes = 4 + len(self.schema.diffs) + 2 * self.schema.hashed
        least = 0 if memtable is None else 8 * lanes * 2 * memtable.capacity
        heap = 2 * MOST_HEAP if self.schema.hashed else 0
        assert settled + least <= self.readers[0].nbytes <= settled + least + heap + 8 * 20 * 300


def chosen_epoch(reader: Handle) -> int:
    """The first epoch at which a reader can read."""
    return next(iter(reader.frontier))[0]


@st.composite
def steps(draw: Any, lanes: int, rounds: int) -> list[Step]:
    numbers, diff = st.sampled_from(NUMBERS), st.sampled_from([1, -1, 3])
    row = st.tuples(numbers, numbers, st.tuples(*[diff] * lanes))
    rows = st.lists(st.tuples(st.integers(0, rounds - 1), row), max_size=5)
    small = st.integers(0, 3)
    step: st.SearchStrategy[Step] = st.one_of(
        st.builds(Stored, rows),
        st.builds(Stored, rows),
        st.builds(Stored, rows),
        st.builds(Sealed, rows),
        st.builds(Many, small, st.sampled_from([20, 64, 65, 300, 512])),
        st.builds(Cloned, small),
        st.builds(Moved, small, small),
        st.builds(Idle, st.sampled_from([1, 1000])),
        st.just(Kept()),
    )
    return draw(st.lists(step, min_size=1, max_size=10))


@examples(4, quick=1)
@given(
    st.sampled_from([PAIRS, SUMS, TEXTS]),
    st.integers(1, 2),
    st.sampled_from(list(HASTE)),
    st.integers(0, 99),
    st.data(),
)
def test_oracle_trace_with_a_memtable(
    schema: Schema, dimensions: int, effort: str, probe: int, data: st.DataObject
) -> None:
    dimensions = 1 if schema.hashed else dimensions
    script = data.draw(steps(len(schema.diffs), 4 if dimensions > 1 else 1))
    with slow_spines(data.draw(st.sampled_from([1, 4, 256]))):
        world, probes = MemtableRun(schema, dimensions, effort), count(probe)
        for step in script:
            world.take(step)
            world.check(next(probes))


# One by one.


def started(schema: Schema = PAIRS) -> tuple[Arrange, Handle]:
    arrange = Arrange(schema, name="pairs")
    return arrange, arrange.handle()


def ones(numbers: range) -> list[Row]:
    return [(number, 0, (1,)) for number in numbers]


def test_a_memtable_grows_and_is_then_flushed() -> None:
    _, handle = started()
    trace = handle.trace
    assert store(trace, ones(range(FEW_ROWS)), (0,)) >= 0
    memtable = trace.spine.memtable
    assert memtable is not None and (memtable.capacity, len(memtable)) == (FEW_ROWS, FEW_ROWS)
    assert store(trace, ones(range(1)), (1,)) >= 0
    assert (memtable.capacity, len(memtable)) == (GROWTH * FEW_ROWS, FEW_ROWS + 1)
    assert store(trace, ones(range(MOST_ROWS - FEW_ROWS - 1)), (2,)) >= 0
    trace.keep_small()
    assert len(memtable) == MOST_ROWS and len(trace.spine._settled_batches()) == 0
    assert store(trace, ones(range(2)), (3,)) >= 0
    trace.keep_small()
    assert len(memtable) == 0 and sum(map(len, trace.spine._settled_batches())) == MOST_ROWS + 2


def test_the_texts_of_a_memtable_are_its_own() -> None:
    """They stay when the heap grows, when the memtable grows, and when it is flushed."""
    _, handle = started(TEXTS)
    trace, expected = handle.trace, []
    for epoch in range(40):
        row = epoch, 10**17 + epoch, (1,)
        assert store(trace, [row], (epoch,)) >= 0
        trace.publish(None, Antichain.of((epoch + 1,)))
        expected.append((epoch, value_of(TEXTS, row[1])))
        if epoch == 30:
            trace.flush_memtable()
        table = handle.read((epoch,))
        assert sorted(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True)) == expected


def test_a_program_goes_on_when_there_is_room_for_its_texts() -> None:
    _, handle = started(TEXTS)
    trace = handle.trace
    assert store(trace, [(0, 10**17, (1,))], (0,)) == 1
    assert store(trace, [(1, 10**17, (1,))], (1,)) == 0
    memtable = trace.spine.memtable
    assert memtable is not None and len(memtable) == 2


@given(st.lists(st.integers(1, 2 * MOST_ROWS), max_size=6))
def test_oracle_memtables_that_grow_while_programs_write(sizes: list[int]) -> None:
    _, handle = started()
    trace, rows = handle.trace, 0
    for epoch, size in enumerate(sizes):
        assert store(trace, [(key, 0, (1,)) for key in range(size)], (epoch,)) >= 0
        trace.publish(None, Antichain.of((epoch + 1,)))
        trace.keep_small()
        rows += size
        assert sum(len(batch) for batch in trace.spine.batches()) == rows
    assert trace.spine.memtable is None or trace.spine.memtable.capacity <= MOST_ROWS_IF_FILLED_FAST


def test_a_program_that_has_let_its_memtable_grow_can_be_undone() -> None:
    _, handle = started()
    trace = handle.trace
    assert store(trace, ones(range(3)), (0,)) == 0
    before = [compare.batch_triples(batch) for batch in handle.batches()]
    assert store(trace, ones(range(FEW_ROWS)), (1,), commits=False) == 1
    memtable = trace.spine.memtable
    assert memtable is not None and len(memtable) == 3
    assert memtable.grow()
    assert [compare.batch_triples(batch) for batch in handle.batches()] == before
    trace.commit_memtable()
    assert len(memtable) == 3 + FEW_ROWS


def test_regression_texts_that_need_a_little_more_than_an_empty_heap() -> None:
    """What lacked a few bytes got another piece of the heap that was as small, again and again."""
    _, handle = started(TEXTS)
    trace = handle.trace
    assert store(trace, [(0, 10**17, (1,))], (0,)) >= 0
    trace.publish(None, Antichain.of((1,)))
    trace.flush_memtable()  # leaves an empty heap
    rows = [(key, 10**17 + key, (1,)) for key in range(26)]
    bytes_ = sum(len(str(value_of(TEXTS, val))) for _, val, _ in rows)
    assert LEAST_HEAP < bytes_ < LEAST_HEAP + LEAST_HEAP // GROWTH
    assert store(trace, rows, (1,)) < 10


def test_rows_that_no_memtable_can_hold_change_nothing() -> None:
    _, handle = started()
    trace = handle.trace
    assert store(trace, ones(range(3)), (0,)) >= 0
    before = [compare.batch_triples(batch) for batch in handle.batches()]
    assert store(trace, ones(range(LARGEST_ROWS + 1)), (1,)) == -1
    assert [compare.batch_triples(batch) for batch in handle.batches()] == before


def test_a_memtable_is_large_only_for_a_large_change() -> None:
    _, handle = started()
    trace = handle.trace
    assert store(trace, ones(range(MOST_ROWS + 1)), (0,)) >= 0
    memtable = trace.spine.memtable
    assert memtable is not None and (memtable.capacity, len(memtable)) == (GROWTH * MOST_ROWS, MOST_ROWS + 1)
    trace.keep_small()
    assert (memtable.capacity, len(memtable)) == (MOST_ROWS, 0)
    assert store(trace, ones(range(3)), (1,)) >= 0
    assert [len(batch) for batch in handle.batches()] == [MOST_ROWS + 1, 3]


def test_a_batch_comes_after_the_memtable() -> None:
    arrange, handle = started()
    store(handle.trace, ones(range(3)), (0,))
    arrange.update({"k": [9], "v": [9]}, (1,))
    arrange.advance((2,))
    memtable = handle.trace.spine.memtable
    assert memtable is not None and len(memtable) == 0
    compare.assert_stored_well(handle.batches(), Antichain.of((0,)), 4)
    assert [len(batch) for batch in handle.batches()] == [3, 1]


def test_what_an_import_is_given_does_not_change_with_the_memtable() -> None:
    _, handle = started()
    trace = handle.trace
    store(trace, ones(range(2)), (0,))
    trace.publish(None, Antichain.of((1,)))
    queue = handle.import_()
    store(trace, ones(range(5)), (1,))
    (history,) = queue.history
    assert len(history) == 2 and queue.take() == []


def test_what_may_yet_be_undone_is_not_seen() -> None:
    """A program that waits for other workers has not committed what it has written."""
    _, handle = started()
    trace = handle.trace
    store(trace, ones(range(2)), (0,))
    trace.publish(None, Antichain.of((1,)))
    before = [compare.batch_triples(batch) for batch in handle.batches()]
    assert store(trace, ones(range(5)), (1,), commits=False) == 0
    assert [compare.batch_triples(batch) for batch in handle.batches()] == before
    trace.commit_memtable()
    assert [len(batch) for batch in handle.batches()] == [7]


def test_the_table_of_addresses_holds_no_batches_that_were_merged() -> None:
    """The batches of an earlier table are released when the spine changes, not when a program runs again."""
    arrange, handle = started()
    trace = handle.trace
    for epoch in range(40):
        arrange.update({"k": list(range(100)), "v": [epoch] * 100}, (epoch,))
        arrange.advance((epoch + 1,))
        if epoch == 30:
            trace.address()
    memtable = trace.spine.memtable
    assert memtable is not None
    stored = {id(batch) for batch in trace.spine._settled_batches()}
    assert {id(batch) for batch in memtable._batches} <= stored


@pytest.mark.parametrize(
    ("key", "dimensions", "expected"),
    [(pa.int64(), 2, True), (pa.int64(), 3, False), (pa.string(), 1, True), (pa.string(), 2, False)],
)
def test_which_traces_have_memtables(key: pa.DataType, dimensions: int, expected: bool) -> None:
    assert can_have_memtable(Schema({"k": key}, {"v": pa.int64()}), dimensions) == expected
