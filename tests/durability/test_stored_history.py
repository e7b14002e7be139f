"""History that is kept for a time: it comes back after a close or a crash, on any number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine, View, epoch_times
from ikebana.engine.epoch_times import EpochTimes
from ikebana.errors import DataflowError, StorageError, TimeError
from tests.dataflow.harness import collected
from tests.durability.conftest import IN_MEMORY, Place, anywhere
from tests.durability.test_recovery import crashed
from tests.engine.test_retention import Clock, Versions, check_changes, check_reads, numbers
from tests.profiles import examples

KEPT = 10


@contextmanager
def stored_clock() -> Iterator[Clock]:
    """A clock that only the test moves on, also for what is stored."""
    with Clock().used() as clock, patch("ikebana.storage.transactions.time.time_ns", lambda: round(clock.now * 1e9)):
        yield clock


def counts(engine: Engine) -> View:
    """The view, whose history is kept as before if there was any."""
    assert engine.history is not None
    view = engine.install("counts", engine.tables["t"].count("v"))
    if "counts" in engine.history.entries():
        engine.history.restore("counts", view)
    else:
        view.retain(timedelta(seconds=KEPT))
        engine.history.save("counts", view.retention)
    engine.end_recovery()
    return view


@examples(0.3, 0.2)
@given(st.data())
def test_oracle_history_comes_back(data: Any) -> None:
    versions, begun = Versions(), None
    with stored_clock() as clock, TemporaryDirectory(dir=IN_MEMORY) as folder:
        place = Path(folder) / "store"
        for _ in range(data.draw(st.integers(2, 3))):
            with Engine(data.draw(st.integers(1, 3)), storage=str(place), restores_history=True) as engine:
                if not versions.rows:
                    numbers(engine)
                    change(engine, versions, clock, 0)
                view = counts(engine)
                begun = engine.epoch - 1 if begun is None else begun
                check(view, versions, clock, begun)
                for _ in range(data.draw(st.integers(0, 8))):
                    clock.now += data.draw(st.integers(0, 3))
                    change(engine, versions, clock, data.draw(st.integers(0, 3)))
                    engine.coordinator.retentions.advance()
                    if data.draw(st.integers(0, 3)) == 0:
                        assert engine.storage is not None
                        engine.storage.snapshot()
                check(view, versions, clock, begun)
                if data.draw(st.booleans()):
                    place = crashed(engine, place)
            clock.now += data.draw(st.sampled_from([0, 2, 2 * KEPT]))


def change(engine: Engine, versions: Versions, clock: Clock, key: int) -> None:
    """Give a key a value that it did not have."""
    versions.rows[key] = versions.rows.get(key, -1) + 1
    engine.tables["t"].upsert({"k": [key], "v": [versions.rows[key]]})
    versions.close(engine.epoch - 1, clock.now)


def check(view: View, versions: Versions, clock: Clock, begun: int) -> None:
    """All epochs since the history began, and of the time for which it is kept, can be read and followed."""
    view._coordinator.retentions.advance()
    first = max([begun, *(epoch for epoch, closed in versions.times.items() if closed <= clock.now - KEPT)])
    assert view.retention is not None and view.retention.epoch == first
    check_reads(view, versions, first)
    check_changes(view, versions, first, first)
    moment = datetime.fromtimestamp(max(versions.times[first], clock.now - KEPT / 2))
    assert collected(view.read(moment)) == collected(view.read(versions.at(moment.timestamp())))


@anywhere
def test_history_that_was_not_stored_begins_anew(place: Place) -> None:
    """As that of views of an earlier version, which did not store since when there was any."""
    with Engine(storage=str(place), restores_history=True) as engine:
        numbers(engine).insert({"k": [1], "v": [1]})
        counts(engine)
        engine.tables["t"].upsert({"k": [1], "v": [2]})
        assert engine.storage is not None
        engine.storage.store.catalog.put("retention", "counts", {"seconds": 60.0, "bytes": None})
    with Engine(storage=str(place), restores_history=True) as engine:
        view = counts(engine)
        with pytest.raises(TimeError, match="epoch 1 and later are kept"):
            view.read(0)
        assert engine.history is not None
        with pytest.raises(StorageError, match="does not know that 'other' keeps"):
            engine.history.restore("other", view)
        engine.history.save("counts", None)
        assert not engine.history.entries()


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_regression_history_before_a_column_was_added(has_snapshot: bool, place: Path) -> None:
    """The rows are copied then: a snapshot had them as if there had been none before."""
    with Engine(storage=str(place), restores_history=True) as engine:
        numbers(engine).insert({"k": [1], "v": [1]})
        view = counts(engine)
        billing = view.changes(name="billing")
        billing.ack(next(billing)[0])
        engine.tables["t"].insert({"k": [2], "v": [1]})
        engine.add_column("t", pa.field("w", pa.int64()), 7).insert({"k": [3], "v": [2], "w": [1]})
        now = {(1, 2): 1, (2, 1): 1}
        assert engine.epoch == 4 and collected(view.read()) == now
        if has_snapshot:
            assert engine.storage is not None
            engine.storage.snapshot()
        place = crashed(engine, place)
    for _ in range(2):
        with Engine(storage=str(place), restores_history=True) as engine:
            view = counts(engine)
            assert collected(view.read(3)) == now and collected(view.read(2)) == {(1, 2): 1}
            if has_snapshot:
                with pytest.raises(TimeError, match="epoch 2 and later are kept"):
                    view.read(1)
                with pytest.raises(DataflowError, match="a column was added to the table"):
                    view.changes(name="billing")
            else:
                assert collected(view.read(1)) == {(1, 2): 1} and collected(view.read(0)) == {(1, 1): 1}
                with view.changes(name="billing") as billing:
                    assert [epoch for epoch, _ in (next(billing), next(billing))] == [1, 3]
                place = crashed(engine, place)


def test_workers_keep_no_history_once_all_is_restored(place: Path) -> None:
    for is_restored in (False, True):
        with Engine(storage=str(place), restores_history=True) as engine:
            table = engine.tables.get("t") or numbers(engine)
            table.upsert({"k": [1], "v": [int(is_restored)]})
            table.upsert({"k": [1], "v": [7 + is_restored]})
            assert (engine.coordinator.definitions.kept is not None) == is_restored
            if is_restored:
                engine.end_recovery()
                assert engine.coordinator.definitions.kept is None
            else:
                counts(engine)
                table.upsert({"k": [1], "v": [9]})


def test_times_are_stored_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_times, "STORED", 5)
    times = EpochTimes()
    assert times.to_json() == [[], []]
    for epoch in range(100):
        times.close(epoch)
    times.needed = 50
    epochs, stored = times.to_json()
    assert (epochs[0], epochs[-1], len(epochs), len(stored)) == (50, 99, 5, 5)
    restored = EpochTimes()
    restored.restore([epochs, stored], [(99, 0), (100, 0), (101, stored[-1] + 5)])
    assert restored.at(stored[-1]) == 100 and restored.at(stored[-1] + 5) == 101
    assert restored.of(50) == stored[0]
