"""Retained history: every epoch and every moment within it can be read and followed, and nothing before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine, Table, View, retention
from ikebana.engine.epoch_times import KEPT, EpochTimes
from ikebana.errors import DataflowError, EvaluationError, SchemaError, TimeError
from tests.clusters import SOON, within
from tests.dataflow.harness import collected
from tests.engine.test_following import items
from tests.profiles import examples

START = 1_700_000_000.0
Rows = Counter[tuple[Any, ...]]


@dataclass
class Clock:
    """The time, which only the test moves on; the thread that advances holds waits for ever."""

    now: float = START

    @contextmanager
    def used(self) -> Iterator[Clock]:
        with (
            patch("ikebana.engine.epoch_times.time.time", lambda: self.now),
            patch.object(retention, "PERIOD_SECONDS", 1e6),
        ):
            yield self


@pytest.fixture
def clock() -> Iterator[Clock]:
    with Clock().used() as clock:
        yield clock


def numbers(engine: Engine) -> Table:
    return engine.table("t", {"k": pa.int64(), "v": pa.int64()}, key="k")


def changed(before: Rows, after: Rows) -> dict[tuple[Any, ...], int]:
    difference = Counter(after)
    difference.subtract(before)
    return {row: diff for row, diff in difference.items() if diff}


@dataclass
class Versions:
    """All versions of a table, and when each epoch was closed."""

    rows: dict[int, int] = field(default_factory=dict)
    results: dict[int, Rows] = field(default_factory=dict)  # by epoch: how many rows have each v
    times: dict[int, float] = field(default_factory=dict)

    def close(self, epoch: int, now: float) -> None:
        self.results[epoch], self.times[epoch] = Counter((v,) for v in self.rows.values()), now

    def at(self, time: float) -> int:
        return max(epoch for epoch, closed in self.times.items() if closed <= time)


def check_reads(view: View, versions: Versions, first: int) -> None:
    """All epochs from `first` on can be read; an earlier one as well, or that is an error."""
    for epoch, counts in versions.results.items():
        try:
            assert collected(view.read(epoch)) == {(*v, n): 1 for v, n in counts.items()}
        except TimeError as error:
            assert epoch < first and f"epoch {first} and later are kept" in str(error)


def check_changes(view: View, versions: Versions, since: int, given: int | datetime) -> None:
    """The changes after an epoch are those between its result and the later ones."""
    expected = []
    for epoch in sorted(epoch for epoch in versions.results if epoch > since):
        before, after = ({(*v, n): 1 for v, n in versions.results[e].items()} for e in (epoch - 1, epoch))
        difference = changed(Counter(before), Counter(after))
        if difference:
            expected.append((epoch, difference))
    with view.changes(given) as changes:
        assert items(changes) == expected


@examples(0.5, 0.3)
@given(st.data())
def test_oracle_history(data: Any) -> None:
    after = data.draw(st.integers(0, 6))
    with Clock().used() as clock, Engine(data.draw(st.integers(1, 3)), seed=data.draw(st.integers(0, 9))) as engine:
        table, versions = numbers(engine), Versions()
        table.insert({"k": [0, 1], "v": [5, 6]})
        versions.rows = {0: 5, 1: 6}
        versions.close(0, clock.now)
        view = engine.install("counts", table.count("v"), retain=timedelta(seconds=after))
        assert view.retention is not None
        for _ in range(data.draw(st.integers(1, 10))):
            clock.now += data.draw(st.integers(0, 3))
            if data.draw(st.booleans()):
                rows = data.draw(st.dictionaries(st.integers(0, 3), st.integers(0, 2), max_size=3))
                table.upsert({"k": list(rows), "v": list(rows.values())})
                versions.rows.update(rows)
            elif versions.rows and data.draw(st.booleans()):
                table.delete({"k": [versions.rows.popitem()[0]]})
            else:
                engine.advance()
            versions.close(engine.epoch - 1, clock.now)
            if data.draw(st.booleans()):
                engine.run()
            engine.coordinator.retentions.advance()
            first = versions.at(clock.now - after) if clock.now - after >= START else 0
            if data.draw(st.booleans()):
                assert view.retention.epoch == first
                check_reads(view, versions, first)
            moment = data.draw(st.floats(max(START, clock.now - after), clock.now))
            asked = datetime.fromtimestamp(moment)
            then = versions.at(round(asked.timestamp() * 1e6) / 1e6)
            assert collected(view.read(asked)) == collected(view.read(then))
            since = data.draw(st.sampled_from([asked, *range(first, engine.epoch)]))
            check_changes(view, versions, then if isinstance(since, datetime) else since, since)


def test_what_is_not_retained_is_refused(clock: Clock) -> None:
    with Engine() as engine:
        table = numbers(engine)
        view = engine.install("counts", table.count("v"), retain="10 minutes")
        plain = engine.install("plain", table.filter(lambda columns: columns["v"].is_valid()))
        for k in range(4):
            table.insert({"k": [k], "v": [k]})
            clock.now += 400
        engine.coordinator.retentions.advance()
        since = datetime.fromtimestamp(START + 800).strftime("%Y-%m-%d %H:%M:%S")
        for use in (view.read, view.to_arrow, view.errors, view.changes, lambda at: view.lookup(v=1, at=at)):
            with pytest.raises(TimeError, match=rf"epoch 2 and later .* since {since}[^~]*retain 0:10:00"):
                use(1)
        with pytest.raises(TimeError, match="cannot read view 'counts' at 2023"):
            view.read(datetime.fromtimestamp(START - 1))
        with pytest.raises(TimeError, match="only epoch 3 and later are kept"):
            plain.changes(since=2)
        for since in (True, "yesterday"):
            with pytest.raises(DataflowError, match="`since` is None"):
                view.changes(since)
        with pytest.raises(TimeError, match="epoch 4 is still open"):
            view.changes(since=4)
        with pytest.raises(SchemaError, match="retain='soon' is not a time"):
            view.retain("soon")
        with pytest.raises(SchemaError):
            engine.install("other", table.count("k"), retain="x")
        assert "other" not in engine.views
        assert view.lookup(v=2, at=2).num_rows == 1 and not view.lookup(v=3, at=2).num_rows


@pytest.mark.parametrize("at", [1.5, "yesterday", b"1"])
def test_regression_an_epoch_that_is_no_integer_was_taken_for_one(at: Any) -> None:
    """Between two epochs, the later one was read."""
    with Engine() as engine:
        view = engine.install("view", engine.table("items", {"id": pa.int64()}, key="id").count("id"))
        for read in (view.to_arrow, view.read):
            with pytest.raises(DataflowError, match="cannot read view 'view' at"):
                read(at=at)
        with pytest.raises(DataflowError, match=r"cannot (read|follow) view 'view'"):
            view.changes(since=at)


def test_a_retention_can_be_changed_and_ended(clock: Clock) -> None:
    with Engine(2) as engine:
        table = numbers(engine)
        view = engine.install("counts", table.count("v"), retain="1 hour")
        for k in range(3):
            table.insert({"k": [k], "v": [0]})
        view.retain("1 day")
        assert collected(view.read(0)) == {(0, 1): 1}
        view.retain(None)
        assert view.retention is None and engine.coordinator.epoch_times.needed is None
        with pytest.raises(TimeError):
            view.read(0)
        view.retain("1 hour")
        view.drop()
        assert engine.coordinator.epoch_times.needed is None


def test_a_limit_of_bytes_is_kept(clock: Clock) -> None:
    with Engine() as engine:
        table = numbers(engine)
        view = engine.install("all", table, retain="1 hour", retain_bytes=20_000)
        for value in range(40):
            table.upsert({"k": list(range(50)), "v": [value] * 50})
            engine.coordinator.retentions.advance()
            assert view.retention is not None and view.retention.bytes <= 20_000
        assert 20 < view.retention.epoch < 39
        assert collected(view.read(view.retention.epoch)) == {(k, view.retention.epoch): 1 for k in range(50)}


def test_history_has_errors_where_they_were(clock: Clock) -> None:
    with Engine() as engine:
        table = numbers(engine)

        def inverse(columns: Any) -> Any:
            return {**columns, "w": [6 // v for v in columns["v"].to_pylist()]}

        columns = {"k": pa.int64(), "v": pa.int64(), "w": pa.int64()}
        view = engine.install("inverse", table.map(columns, inverse), retain="1 hour")
        table.insert({"k": [1], "v": [2]})
        table.insert({"k": [2], "v": [0]})
        table.upsert({"k": [2], "v": [3]})
        with pytest.raises(EvaluationError):
            view.read(1)
        assert view.errors(1).num_rows == 1 and not view.errors(2).num_rows
        assert collected(view.read(0)) == {(1, 2, 3): 1}
        with view.changes(since=0) as changes:
            engine.run()
            with pytest.raises(EvaluationError):
                changes.take(0)
            assert items(changes) == [(2, {(2, 3, 2): 1})]


def test_a_thread_gives_up_what_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PERIOD_SECONDS", 0.01)
    with Engine() as engine:
        table = numbers(engine)
        view = engine.install("counts", table.count("v"), retain="0.01 seconds")
        for k in range(3):
            table.insert({"k": [k], "v": [k]})
        assert view.retention is not None and within(SOON, lambda: view.retention.epoch == 2)
        thread = engine.coordinator.retentions._thread
        assert thread is not None and thread.is_alive()
    assert not thread.is_alive()


def test_times_of_epochs(clock: Clock) -> None:
    times = EpochTimes()
    assert times.of(0) is None and times.at(0) is None
    times.needed = 5
    for epoch in range(3 * KEPT):
        times.close(epoch)
        clock.now += 1
    assert times.of(5) == round((START + 5) * 1e6) and times.at(round((START + 5.5) * 1e6)) == 5
    times.needed = None
    for epoch in range(3 * KEPT, 6 * KEPT):
        times.close(epoch)
    assert len(times._epochs) <= 4 * KEPT and times.at(round((START + 5.5) * 1e6)) is None
    clock.now -= 100
    times.close(6 * KEPT)
    assert times.of(6 * KEPT) == round((clock.now + 100) * 1e6) and times.at(round((clock.now + 99) * 1e6)) is None


def test_a_time_that_is_yet_to_come_cannot_be_read(clock: Clock) -> None:
    with Engine() as engine:
        table = numbers(engine)
        view = engine.install("counts", table.count("v"), retain="1 hour")
        table.insert({"k": [1], "v": [1]})
        now = datetime.fromtimestamp(clock.now)
        assert view.to_arrow(at=now).num_rows == view.to_arrow(at=now + timedelta(seconds=1)).num_rows == 1
        with pytest.raises(TimeError, match="yet to come"):
            view.to_arrow(at=now + timedelta(hours=1))
        clock.now -= 1000  # the clock is set back: times at which epochs were closed can be read all the same
        assert view.to_arrow(at=now).num_rows == 1
