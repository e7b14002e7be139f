"""Subscriptions to single bindings: each has the changes and errors of its own rows, however workers send them."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.cluster.inprocess import Faults, InProcess
from ikebana.engine import Engine, View, subscriptions
from ikebana.engine.subscriptions import Subscription
from ikebana.errors import DataflowError, EvaluationError
from ikebana.operators.row_errors import BINDING
from tests.profiles import examples

BINDINGS = 4
FIELDS = {BINDING: pa.int64(), "id": pa.int64(), "v": pa.int64()}
Row = tuple[int, int, int]
"""A binding, an id and a value, which is an error if it is zero."""


def view_of(engine: Engine) -> tuple[Any, View]:
    rows = engine.input("rows", FIELDS, "id")
    parts = rows.map(FIELDS, lambda columns: {**columns, "v": pc.divide(100, columns["v"])})
    return rows, engine.install("parts", parts.arrange(BINDING))


class Follower:
    """What a subscriber has seen: the result after each item, by epoch, and the epochs before which errors came."""

    def __init__(self, view: View, binding: int, epoch: int, now: bool) -> None:
        self.binding, self.start, self.now = binding, epoch, now
        self.changes: Subscription = view.changes("now" if now else None, timeout=0, binding=binding)
        self.rows: Counter[tuple[int, int]] = Counter()
        self.epochs: list[int] = []
        self.errors = 0

    def take(self, engine: Engine, states: list[list[Row]]) -> None:
        """Take all that is available; every item must lead to the result of its epoch, which has no errors."""
        if self.now and not self.epochs and not self.errors:
            self.rows = good_rows(states[self.start], self.binding)
        idle = 0
        while idle < 3:  # changes that are withheld return credit, for which others may wait
            engine.run()
            try:
                item = self.changes.take(0)
            except EvaluationError:
                self.errors += 1
                continue
            if item is None:
                idle += 1
                continue
            epoch, table = item
            for row in table.to_pylist():
                assert row[BINDING] == self.binding
                self.rows[row["id"], row["v"]] += row["diff"]
            assert not self.epochs or epoch > self.epochs[-1]
            self.epochs.append(epoch)
            assert +self.rows == results(states[epoch], self.binding)


def good_rows(rows: list[Row], binding: int) -> Counter[tuple[int, int]]:
    """The rows of a binding that are not errors."""
    return Counter((number, 100 // value) for of, number, value in rows if of == binding and value)


def results(rows: list[Row], binding: int) -> Counter[tuple[int, int]] | None:
    """The result for a binding; None if it has errors."""
    has_errors = any(of == binding and not value for of, _, value in rows)
    return None if has_errors else good_rows(rows, binding)


def rows_in() -> st.SearchStrategy[list[Row]]:
    row = st.tuples(st.integers(0, BINDINGS - 1), st.integers(0, 5), st.sampled_from([0, 1, 2, 3, 5, 7]))
    return st.lists(row, max_size=8, unique_by=lambda row: row[1])


def followers() -> st.SearchStrategy[list[tuple[int, int, bool]]]:
    return st.lists(st.tuples(st.integers(0, BINDINGS - 1), st.integers(0, 4), st.booleans()), max_size=6)


@given(
    workers=st.integers(1, 3),
    states=st.lists(rows_in(), min_size=1, max_size=8),
    opened=followers(),
    takes=st.sets(st.integers(0, 8)),
    credit=st.integers(1, 4),
    seed=st.integers(0, 9),
)
@examples(2, quick=1)
def test_oracle_every_binding_has_its_own_changes(
    workers: int,
    states: list[list[Row]],
    opened: list[tuple[int, int, bool]],
    takes: set[int],
    credit: int,
    seed: int,
) -> None:
    faults = Faults(delay=0.2, reorder=0.2, pause=0.1)
    cluster = InProcess(workers, seed=seed, faults=faults)
    with patch.object(subscriptions, "CREDIT", credit), Engine(cluster=cluster) as engine:
        rows, view = view_of(engine)
        following: list[Follower] = []
        before: Counter[Row] = Counter()
        for epoch, state in enumerate(states):
            changes = Counter(state)
            changes.subtract(before)
            before = Counter(state)
            changed = [(row, diff) for row, diff in changes.items() if diff]
            columns = zip(*(row for row, _ in changed), strict=True) if changed else ([], [], [])
            rows.push(dict(zip(FIELDS, map(list, columns), strict=True)), [diff for _, diff in changed])
            engine.advance()
            following += [Follower(view, binding, epoch, now) for binding, at, now in opened if at == epoch]
            if epoch in takes:
                for follower in following:
                    follower.take(engine, states)
        for follower in following:
            follower.take(engine, states)
            final = results(states[-1], follower.binding)
            if final is None:
                assert follower.errors
            else:
                assert +follower.rows == final
            had_errors = any(results(state, follower.binding) is None for state in states[follower.start :])
            assert bool(follower.errors) == had_errors


@pytest.mark.parametrize("workers", [1, 2])
def test_a_binding_that_nobody_changes_receives_nothing(workers: int) -> None:
    with Engine(workers) as engine:
        rows, view = view_of(engine)
        engine.advance()
        followed = [view.changes("now", timeout=0, binding=binding) for binding in range(50)]
        engine.run()
        messages = Counter[int]()
        for number, subscription in enumerate(followed):
            received = subscription._on_notification

            def count(worker: int, notification: Any, number: int = number, received: Any = received) -> None:
                messages[number] += 1
                received(worker, notification)

            object.__setattr__(subscription, "_on_notification", count)
            engine.coordinator._listeners[subscription._number] = lambda count=count: count  # type: ignore[assignment]
        for at in range(5):
            rows.push({BINDING: [7], "id": [at], "v": [1]}, 1)
            engine.advance()
            engine.run()
        assert messages == {7: 5}
        assert [epoch for epoch, _ in followed[7]] == [1, 2, 3, 4, 5]
        assert not list(followed[8])
        view.drop()
        assert all(subscription.closed for subscription in followed)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reader_of_a_binding_that_is_too_slow_is_ended_alone(workers: int) -> None:
    with patch.object(subscriptions, "CREDIT", 1), Engine(workers) as engine:
        rows, view = view_of(engine)
        engine.advance()
        slow = view.changes("now", timeout=0, backlog=3, binding=1)
        other = view.changes("now", timeout=0, backlog=3, binding=2)
        for at in range(8):
            rows.push({BINDING: [1, 2], "id": [at, 100 + at], "v": [1, 1]}, 1)
            engine.advance()
            engine.run()
            assert [epoch for epoch, _ in other] == [at + 1]
        with pytest.raises(DataflowError, match="cannot follow view 'parts'") as raised:
            list(slow)
        assert "the subscriber is too slow" in str(raised.value)
