"""Handles: who owns a trace, who sees what of it, and what an import is given."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import dedent

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.operators import Arrange
from ikebana.time import Antichain
from ikebana.trace import BatchQueue, Handle
from tests.trace import compare
from tests.trace.strategies import HASTE, Script, examples, readable, scripts
from tests.trace.tables import feed, shown
from tests.trace.trace_run import TraceRun, idle, merge_all, slow_spines

PAIRS = Schema({"k": pa.int64()}, {"v": pa.int64()})


@contextmanager
def no_collector() -> Iterator[None]:
    """What is freed here is freed by reference counts alone."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def started(epochs: int = 3) -> tuple[Arrange, Handle, weakref.ref]:
    """An arrangement with some history, its handle, and a weak reference to its spine."""
    arrange = Arrange(PAIRS, name="pairs")
    handle = arrange.handle()
    for epoch in range(epochs):
        arrange.update({"k": [epoch, 7], "v": [0, epoch]}, (epoch,))
        arrange.advance((epoch + 1,))
    return arrange, handle, weakref.ref(handle._trace.spine)


# Ownership.
def test_oracle_last_drop_frees_the_spine_at_once() -> None:
    with no_collector():
        arrange, handle, spine = started()
        other = handle.clone()
        lane = weakref.ref(handle.batches()[0].updates.key)
        handle.drop()
        assert spine() is not None and other.readers == 1
        other.drop()
        assert spine() is None and lane() is None
        arrange.update({"k": [1], "v": [2]}, (9,))
        assert len(arrange.advance((9,))) == 0
        sealed = arrange.advance((10,))  # batches are still emitted
        assert compare.batch_triples(sealed) == [(((1,), (2,)), (9,), (1,))]
        assert (sealed.description.lower, sealed.description.upper) == (Antichain.of((9,)), Antichain.of((10,)))


def test_oracle_losing_a_handle_is_dropping_it() -> None:
    with no_collector():
        arrange, handle, spine = started()
        view = handle.filter(lambda columns: np.ones(len(columns["k"]), bool))
        del handle
        assert spine() is not None  # the view has the handle
        del view
        assert spine() is None
        assert len(arrange.close()) == 0


def test_oracle_a_handle_that_was_not_taken_keeps_the_trace() -> None:
    with no_collector():
        arrange = Arrange(PAIRS)
        arrange.update({"k": [1], "v": [2]}, (0,))
        arrange.advance((1,))
        with arrange.handle() as handle:
            assert handle.read((0,)).num_rows == 1
            spine = weakref.ref(handle._trace.spine)
        assert handle.dropped and spine() is None
        unused = Arrange(PAIRS)
        spine = weakref.ref(unused._first._trace.spine)
        assert spine() is not None
        del unused
        assert spine() is None


def test_oracle_an_import_does_not_own_the_trace() -> None:
    """Nor does one that was made through a view."""
    with no_collector():
        arrange, handle, spine = started()
        plain, viewed = handle.import_(), handle.negate().enter().import_()
        arrange.update({"k": [5], "v": [5]}, (3,))
        arrange.advance((4,))
        del handle
        assert spine() is None
        arrange.update({"k": [6], "v": [6]}, (4,))
        arrange.advance((5,))
        for imported in (plain, viewed):
            assert [len(batch) for batch in imported.take()] == [1]  # what came before the end, and nothing since
            assert imported.take() == []
            assert sum(len(compare.batch_triples(batch)) for batch in imported.history) == 6


def test_oracle_a_lost_import_is_not_fed() -> None:
    with no_collector():
        arrange, handle, _ = started()
        imported = handle.import_()
        arrange.update({"k": [5], "v": [5]}, (3,))
        lane = weakref.ref(arrange.advance((4,)).updates.key)
        merge_all(handle)
        assert lane() is not None  # waiting to be taken
        del imported
        assert lane() is None


# Frontiers.
def test_invariance_handles_do_not_mind_each_other() -> None:
    arrange, first, _ = started()
    second = first.clone()
    second.advance((2,))
    assert (first.frontier, second.frontier) == (Antichain.of((0,)), Antichain.of((2,)))
    third = second.clone()
    assert third.frontier == second.frontier and third.readers == 3
    expected = compare.collection(first.read((0,)), PAIRS)
    second.drop()
    third.advance(Antichain())
    arrange.advance((9,))
    merge_all(first)
    assert compare.collection(first.read((0,)), PAIRS) == expected == {((0,), (0,)): (1,), ((7,), (0,)): (1,)}
    first.drop()
    assert third.readers == 1 and second.dropped and not third.dropped


def test_oracle_compaction_is_to_the_meet_of_the_handles() -> None:
    """Two handles at incomparable frontiers: updates stay apart that either can tell apart."""
    arrange = Arrange(PAIRS, dimensions=2)
    one = arrange.handle()
    two = one.clone()
    feed(
        arrange,
        """
        k v time diff
        1 1 0,0  1
        1 1 0,1  1
        1 1 1,0  1
        1 1 2,1  1
        1 1 3,3  -2
        """,
    )
    arrange.advance([(4, 0), (0, 4)])
    one.advance((2, 1))
    two.advance((1, 2))

    def compacted() -> str:
        merge_all(one)
        return shown(compare.triples(one.updates()))

    assert compacted() == "1 1 1,1 3\n1 1 2,1 1\n1 1 3,3 -2"
    two.drop()
    assert compacted() == "1 1 2,1 4\n1 1 3,3 -2"
    one.advance((3, 3))
    assert compacted() == "1 1 3,3 2"


def test_prints_what_it_holds() -> None:
    _, handle, _ = started()
    assert repr(handle).startswith("<handle on 'pairs' at {(0,)}: 6 updates in ")
    assert repr(handle).endswith(f"{handle.nbytes} bytes, complete up to {{(3,)}}>")
    handle.drop()
    assert repr(handle) == "<handle on 'pairs': dropped>"


# Imports.
def test_oracle_import_of_the_full_and_of_the_compacted_history() -> None:
    arrange = Arrange(PAIRS)
    full = arrange.handle()
    feed(
        arrange,
        """
        k v time diff
        1 1 0    1
        1 1 1    -1
        2 1 1    1
        2 1 2    1
        """,
    )
    arrange.advance((2,))
    arrange.advance((3,))
    late = full.clone()
    late.advance((2,))

    def history(imported: BatchQueue) -> str:
        return shown(update for batch in imported.history for update in compare.batch_triples(batch))

    assert history(full.import_()) == "1 1 0 1\n1 1 1 -1\n2 1 1 1\n2 1 2 1"
    compacted = late.import_()
    assert history(compacted) == "1 1 2 -1\n1 1 2 1\n2 1 2 1\n2 1 2 1"
    assert all(Antichain.of((2,)).precedes(batch.description.since) for batch in compacted.history)
    full.drop()
    merge_all(late)
    assert history(late.import_()) == "2 1 2 2"


@examples(2, quick=1)
@given(scripts(), st.integers(0, 15), st.integers(0, 7), st.lists(st.booleans(), min_size=1, max_size=5))
def test_oracle_import(script: Script, start: int, number: int, takes: list[bool]) -> None:
    """History and what comes after it, through any handle at any moment: all of it, once, without a gap."""
    with slow_spines(script.head):
        world = TraceRun(script)
        for step in script.steps[: start % (len(script.steps) + 1)]:
            world.take(step)
        handle, frontier = world.handles[number % len(world.handles)]
        imported, upper = handle.import_(), world.upper
        assert imported.upper == upper
        untouched = all(f == world.lower for _, f in world.handles)
        batches = list(imported.history)
        lower = world.lower
        for batch in batches:
            assert batch.description.lower == lower
            lower = batch.description.upper
        for n, step in enumerate(script.steps[start % (len(script.steps) + 1) :]):
            before = world.upper
            world.take(step)
            if takes[n % len(takes)]:
                batches += (taken := imported.take())
                assert not taken or taken[-1].description.upper == world.upper == imported.upper
            assert before.precedes(world.upper)
        batches += imported.take()
        assert imported.take() == []
        for batch in batches[len(imported.history) :]:
            assert batch.description.lower == upper
            upper = batch.description.upper
        assert upper == world.upper

        updates = [update for batch in batches for update in compare.batch_triples(batch)]
        complete = [update for update in world.updates if not world.upper.less_equal(update[1])]
        for at in readable(frontier, world.upper, world.dimensions)[:: 1 + number]:
            assert compare.accumulate(updates, at) == compare.accumulate(complete, at)
        if untouched:
            assert compare.compact(updates, world.lower) == compare.compact(complete, world.lower)


@pytest.mark.parametrize("effort", HASTE)
def test_invariance_imports_get_each_batch_once_whatever_is_merged(effort: str) -> None:
    with slow_spines(1):
        arrange = Arrange(PAIRS, effort=effort)
        handle = arrange.handle()
        imports: list[BatchQueue] = []
        for epoch in range(20):
            arrange.update({"k": [epoch] * (1 + epoch % 5), "v": range(1 + epoch % 5)}, (epoch,))
            arrange.advance((epoch + 1,))
            imports.append(handle.import_())
            if epoch % 5 == 4:
                merge_all(handle)
            else:
                idle(handle, epoch)
        everything = compare.compact(compare.triples(handle.updates()), [(0,)])
        for imported in imports:
            batches = [*imported.history, *imported.take()]
            updates = [update for batch in batches for update in compare.batch_triples(batch)]
            assert compare.compact(updates, [(0,)]) == everything and len(updates) == len(everything)


def test_oracle_imports_of_views() -> None:
    arrange, handle, _ = started(epochs=2)
    handle.advance((1,))
    odd = handle.filter(lambda columns: np.asarray(columns["k"]) % 2 == 1)
    imported = odd.negate().enter().import_()
    assert imported.upper == Antichain.of((2, 0))
    arrange.update({"k": [1, 2], "v": [3, 3]}, (2,))
    arrange.advance((3,))
    (live,) = imported.take()
    assert imported.upper == Antichain.of((3, 0))
    assert str(live.description) == "[{(2, 0)}, {(3, 0)}) since {(0, 0)}"
    history = [update for batch in imported.history for update in compare.batch_triples(batch)]
    assert shown(history) == dedent(
        """\
        1 0 1,0 -1
        7 0 1,0 -1
        7 1 1,0 -1"""
    )
    assert shown(compare.batch_triples(live)) == "1 3 2,0 -1"
