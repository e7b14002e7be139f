"""Views that are replaced by others of the same name, and their first rows."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine
from ikebana.errors import DataflowError

CHANGES = st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 3)), max_size=12)


@given(CHANGES, st.integers(0, 8), st.integers(1, 3))
def test_oracle_first_rows(changes: list[tuple[int, int]], limit: int, workers: int) -> None:
    """Any rows of the result, as many as there are up to the limit, and the number of all."""
    with Engine(workers) as engine:
        source = engine.input("numbers", {"x": pa.int64()})
        view = engine.install("view", source)
        expected: Counter[int] = Counter()
        for x, diff in changes:
            diff = max(diff, -expected[x])
            expected[x] += diff
            source.push({"x": [x]}, [diff])
        engine.advance()
        rows, total = view.first_rows(limit)
        assert total == expected.total() and rows.num_rows == min(limit, total)
        assert Counter(rows["x"].to_pylist()) <= expected


@pytest.mark.parametrize("workers", [1, 2])
def test_a_view_replaces_another(workers: int) -> None:
    with Engine(workers) as engine:
        table = engine.table("numbers", {"x": pa.int64()})
        table.insert({"x": [1, 2, 3]})
        old = engine.install("view", table.filter(lambda c: pc.less(c["x"], 3)))
        reader = engine.install("reader", old.rows())
        new = engine.install("view", table.filter(lambda c: pc.greater(c["x"], 1)), beside=old)
        assert engine.views["view"] is old
        engine.replace(old, new)
        assert engine.views["view"] is new
        assert sorted(old.to_arrow()["x"].to_pylist()) == [1, 2]  # still readable
        old.drop()
        table.insert({"x": [0, 4]})
        assert sorted(new.to_arrow()["x"].to_pylist()) == [2, 3, 4]
        assert sorted(reader.to_arrow()["x"].to_pylist()) == [0, 1, 2]
        with pytest.raises(DataflowError, match="taken"):
            engine.install("view", table)
        with pytest.raises(DataflowError, match="'view', 'reader'"):
            engine.drop_table("numbers")
        new.drop()
        reader.drop()
        engine.install("view", table).drop()  # the name is free again
        engine.drop_table("numbers")
        assert not engine.status()


def test_an_unfinished_replacement_leaves_the_view() -> None:
    with Engine() as engine:
        table = engine.table("numbers", {"x": pa.int64()})
        old = engine.install("view", table)
        engine.install("view", table.negate(), beside=old).drop()
        assert engine.views == {"view": old}
        with pytest.raises(DataflowError, match="taken"):
            engine.install("view", table)
        old.drop()
        engine.install("view", table)


def test_when_epochs_were_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("ikebana.engine.epoch_times.time.time", lambda: now)
    with Engine() as engine:
        for _ in range(3):
            engine.advance()
            now += 1
        engine.advance(7)
        now += 1
        coordinator = engine.coordinator
        assert [coordinator.seconds_since(epoch) for epoch in (0, 2, 3, 6, 7)] == [4, 2, 1, 1, 0]
        engine.table("t", {"x": pa.int64()}).insert({"x": [1]})
        assert coordinator.seconds_since(7) == 0 and engine.epoch == 8
