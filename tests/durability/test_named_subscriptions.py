"""Named subscriptions: after any restart, exactly the epochs after the last acknowledged one, with the same changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine, Table, View, retention
from ikebana.engine.subscriptions import Subscription
from ikebana.errors import DataflowError, EvaluationError, WorkerLostError
from tests.clusters import SOON, within
from tests.dataflow.harness import cluster_of, collected
from tests.durability.conftest import IN_MEMORY, Place, anywhere, everywhere
from tests.durability.test_recovery import crashed, open_
from tests.engine.test_following import items
from tests.engine.test_retention import Clock, changed, clock  # noqa: F401  # a fixture
from tests.profiles import examples

Rows = Counter[tuple[Any, ...]]


@contextmanager
def quiet() -> Iterator[None]:
    """The thread that advances holds does nothing: the test does."""
    with patch.object(retention, "PERIOD_SECONDS", 1e6):
        yield


def tables_of(engine: Engine) -> tuple[Table, Table]:
    columns = {"k": pa.int64(), "v": pa.int64()}
    if not engine.tables:
        engine.table("t", columns, key="k")
        engine.table("u", {"v": pa.int64(), "w": pa.int64()})
    return engine.tables["t"], engine.tables["u"]


def install(engine: Engine) -> dict[str, View]:
    """Two views that share an index of `t`, and one that nobody follows."""
    t, u = tables_of(engine)
    queries = {"joined": t.join(u, "v").count("w"), "counts": t.count("v"), "all": t}
    return {name: engine.install(name, query) for name, query in queries.items()}


@dataclass
class Model:
    """The rows of both tables, and the results of the followed views at each epoch with changes."""

    t: dict[int, int] = field(default_factory=dict)
    u: Rows = field(default_factory=Counter)
    versions: dict[int, dict[str, Rows]] = field(default_factory=dict)

    def close(self, epoch: int) -> None:
        joined = Counter[int]()
        for v in self.t.values():
            for (v_, w), copies in self.u.items():
                joined[w] += copies if v_ == v else 0
        counts = Counter(self.t.values())
        self.versions[epoch] = {
            "joined": Counter({(w, n): 1 for w, n in joined.items() if n}),
            "counts": Counter({(v, n): 1 for v, n in counts.items()}),
        }

    def at(self, view: str, epoch: int) -> Rows:
        known = [at for at in self.versions if at <= epoch]
        return self.versions[max(known)][view] if known else Counter()

    def changes(self, view: str, position: int | None, last: int) -> list[tuple[int, dict[tuple[Any, ...], int]]]:
        """What is delivered after a position, up to the last closed epoch."""
        if position is None:
            everything = changed(Counter(), self.at(view, last))
            return [(last, everything)] if everything else []
        pairs = ((e, changed(self.at(view, e - 1), self.at(view, e))) for e in sorted(self.versions) if e > position)
        return [(epoch, changes) for epoch, changes in pairs if changes]


@examples(0.6, 0.25)
@given(st.data())
def test_oracle_subscriptions_continue(data: Any) -> None:
    model, positions = Model(), dict[str, int | None]()
    with TemporaryDirectory(dir=IN_MEMORY) as folder, quiet():
        place = Path(folder) / "store"
        for life in range(data.draw(st.integers(2, 4))):
            with Engine(data.draw(st.integers(1, 3)), storage=str(place), restarts=100) as engine:
                assert engine.storage is not None
                t, u = tables_of(engine)
                if life == 0:
                    t.insert({"k": [0], "v": [0]})
                    model.t[0] = 0
                    model.close(engine.epoch - 1)
                views = install(engine)
                readers: dict[str, Subscription] = {}
                delivered: dict[str, int] = {}  # the epochs up to which they were read
                for step in data.draw(st.lists(st.sampled_from("ttuusrackmdd"), max_size=12)):
                    view = data.draw(st.sampled_from(["joined", "counts"]))
                    if step == "t":
                        rows = data.draw(st.dictionaries(st.integers(0, 3), st.integers(0, 2), min_size=1, max_size=3))
                        t.upsert({"k": list(rows), "v": list(rows.values())})
                        model.t.update(rows)
                        model.close(engine.epoch - 1)
                    elif step == "u":
                        row = data.draw(st.sampled_from([(0, 7), (1, 7), (1, 8), (2, 9)]))
                        is_there = model.u[row] > 0 and data.draw(st.booleans())
                        (u.delete if is_there else u.insert)({"v": [row[0]], "w": [row[1]]})
                        model.u[row] += -1 if is_there else 1
                        model.close(engine.epoch - 1)
                    elif step == "s":
                        with suppress(WorkerLostError):
                            engine.storage.snapshot()
                    elif step == "d":  # a worker dies
                        cluster_of(engine).kill(0)
                        engine.run()
                        for name, reader in readers.items():
                            if name in delivered:
                                expected = model.changes(name, delivered[name], engine.epoch - 1)
                                assert items(reader) == expected
                                delivered[name] = engine.epoch - 1
                    elif step == "m":
                        engine.run()
                        engine.coordinator.retentions.advance()
                        for name in positions:
                            before, now = positions[name], engine.storage and position_of(engine, name)
                            if now != before:  # the view has not changed meanwhile
                                assert before is not None and now is not None
                                assert not [e for e, _ in model.changes(name, before, engine.epoch - 1) if e <= now]
                                positions[name] = now
                    elif view not in readers:
                        readers[view] = views[view].changes(name=view)
                        positions.setdefault(view, None)
                        if check_delivery(readers[view], model, view, positions, engine.epoch - 1, data):
                            delivered[view] = engine.epoch - 1
                    elif step == "c":
                        readers.pop(view).close()
                        delivered.pop(view, None)
                if data.draw(st.booleans()):
                    place = crashed(engine, place)


def position_of(engine: Engine, name: str) -> int | None:
    return next(status.epoch for status in engine.subscriptions if status.name == name)


def check_delivery(
    reader: Subscription, model: Model, view: str, positions: dict[str, int | None], last: int, data: Any
) -> bool:
    """A reader gets what was not acknowledged; some of it is acknowledged. Return whether there was anything."""
    delivered = items(reader)
    assert delivered == model.changes(view, positions[view], last)
    if delivered and data.draw(st.booleans()):
        epoch = data.draw(st.sampled_from([epoch for epoch, _ in delivered]))
        reader.ack(epoch)
        positions[view] = epoch
    return bool(delivered)


@anywhere
def test_a_subscription_continues_with_other_workers(place: Place) -> None:
    """Workers die when the last snapshot is later than the position, with and without a reader."""
    with quiet(), open_(place, 2) as engine:
        table, view = small(engine)
        table.insert({"k": [1], "v": [5]})
        billing = view.changes(name="billing")
        assert items(billing) == [(0, {(5, 1): 1})]
        billing.ack()
        table.insert({"k": [2], "v": [5]})
        table.insert({"k": [3], "v": [6]})
        assert engine.storage is not None
        engine.storage.snapshot()
        cluster_of(engine).kill(0)
        expected = [(1, {(5, 1): -1, (5, 2): 1}), (2, {(6, 1): 1})]
        assert items(billing) == expected
        engine.storage.snapshot()
        billing.close()
        cluster_of(engine).kill(1)
        again = view.changes(name="billing")
        assert items(again) == expected
        again.ack()
        epoch = table.delete({"k": [3]})
        cluster_of(engine).kill(0)
        assert items(again) == [(epoch, {(6, 1): -1})]


@anywhere
def test_regression_changes_after_a_replacement_do_not_hide_earlier_ones(place: Place) -> None:
    """Batches that new workers seal have lost nothing, so a snapshot with them still has the history before them."""
    with quiet(), open_(place, 1) as engine:
        table, view = small(engine)
        table.insert({"k": [1], "v": [5]})
        billing = view.changes(name="billing")
        assert items(billing) == [(0, {(5, 1): 1})]
        billing.ack()
        table.insert({"k": [2], "v": [6]})
        table.insert({"k": [3], "v": [7]})
    with quiet(), open_(place, 1) as engine:
        table, view = small(engine)
        later = view.changes(since="now")  # so that new workers repeat the next changes, both in one sweep
        table.insert({"k": [4], "v": [8]})
        table.insert({"k": [5], "v": [9]})
        cluster_of(engine).kill(0)
        assert [epoch for epoch, _ in items(later)] == [3, 4]
        assert engine.storage is not None
        engine.storage.snapshot()
        place = crashed(engine, place)
    with quiet(), open_(place, 1) as engine:
        _, view = small(engine)
        assert items(view.changes(name="billing")) == [(epoch, {(epoch + 5, 1): 1}) for epoch in range(1, 5)]


def small(engine: Engine) -> tuple[Table, View]:
    """A table, and a view of it."""
    table = engine.tables.get("t") or engine.table("t", {"k": pa.int64(), "v": pa.int64()}, key="k")
    return table, engine.install("counts", table.count("v"))


@anywhere
def test_a_subscription_continues_where_it_was(place: Place) -> None:
    with quiet(), open_(place, 2) as engine:
        table, view = small(engine)
        table.insert({"k": [1], "v": [5]})
        billing = view.changes(name="billing")
        assert items(billing) == [(0, {(5, 1): 1})]
        with pytest.raises(DataflowError, match="is being read"):
            view.changes(name="billing")
        with pytest.raises(DataflowError, match="it is at epoch 0"):
            billing.ack(1)
        billing.ack()
        table.insert({"k": [2], "v": [5]})
        table.insert({"k": [3], "v": [6]})
        assert [epoch for epoch, _ in items(billing)] == [1, 2]
        billing.close()
        again = view.changes(name="billing")
        assert items(again) == [(1, {(5, 1): -1, (5, 2): 1}), (2, {(6, 1): 1})]
        again.ack(1)
        assert engine.storage is not None
        engine.storage.snapshot()
        table.delete({"k": [3]})
        place = crashed(engine, place)
    with quiet(), open_(place, 3) as engine:
        table, view = small(engine)
        third = view.changes(name="billing")
        expected = [(2, {(6, 1): 1}), (3, {(6, 1): -1})]
        assert items(third) == expected
        (status,) = engine.subscriptions
        assert (status.name, status.view, status.state, status.epoch) == ("billing", "counts", "read", 1)
        assert status.bytes > 0
        third.ack()
        epoch = table.insert({"k": [9], "v": [9]})
        assert items(third) == [(epoch, {(9, 1): 1})]
    with quiet(), open_(place) as engine:
        assert engine.subscriptions[0].state == "waiting"
        table, view = small(engine)
        assert items(view.changes(name="billing")) == [(epoch, {(9, 1): 1})]
        view.drop()
        assert not engine.subscriptions
    with quiet(), open_(place) as engine:
        assert not engine.subscriptions
        table, view = small(engine)
        assert items(view.changes(since="now", name="billing")) == []


@everywhere
def test_an_acknowledgement_in_a_transaction_is_part_of_it(place: Place) -> None:
    with quiet(), open_(place) as engine:
        table, view = small(engine)
        sums = engine.table("sums", {"epoch": pa.int64(), "rows": pa.int64()}, key="epoch")
        other = view.changes("now", name="other")
        reader = view.changes("now", name="exact")
        table.insert({"k": [1], "v": [1]})
        ((first, changes),) = [reader.take(SOON)]
        with pytest.raises(ZeroDivisionError), engine.transaction():
            sums.insert({"epoch": [first], "rows": [len(changes)]})
            reader.ack()
            raise ZeroDivisionError
        assert reader.acknowledged == -1
        with engine.transaction():
            sums.insert({"epoch": [first], "rows": [len(changes)]})
            reader.ack()
            other.take(SOON)
            with pytest.raises(DataflowError, match="one subscription only"):
                other.ack()
        assert reader.acknowledged == first
        with engine.transaction():  # changes nothing that is stored
            other.ack()
        assert other.acknowledged == first
        table.insert({"k": [2], "v": [2]})
        place = crashed(engine, place)
    with quiet(), open_(place) as engine:
        table, view = small(engine)
        assert [epoch for epoch, _ in items(view.changes(name="exact"))] == [engine.epoch - 1]
        assert engine.tables["sums"].lookup(epoch=first).num_rows == 1


@anywhere
def test_a_callback_acknowledges(place: Place) -> None:
    seen: list[int] = []

    def handle(epoch: int, changes: pa.Table) -> None:
        if changes["v"].to_pylist() == [13]:
            raise ZeroDivisionError
        seen.append(epoch)

    with quiet(), open_(place) as engine:
        table, view = small(engine)
        subscription = view.subscribe(handle, "now", name="billing")
        first = table.insert({"k": [1], "v": [1]})
        assert within(SOON, lambda: subscription.acknowledged == first)
        table.insert({"k": [2], "v": [13]})
        assert within(SOON, lambda: subscription.closed) and seen == [first]
        assert items(view.changes(name="billing")) == [(first + 1, {(13, 1): 1})]


@anywhere
def test_what_exceeds_the_bounds_fails_alone(place: Place, clock: Clock) -> None:  # noqa: F811
    with open_(place) as engine:
        table, view = small(engine)
        slow = view.changes("now", name="slow", retain="1 hour")
        large = view.changes("now", name="large", retain_bytes=1_000)
        good = view.changes("now", name="good")
        table.insert({"k": [0], "v": [0]})
        assert len(items(slow)) == len(items(good)) == 1
        good.ack()
        clock.now += 3599
        engine.coordinator.retentions.advance()
        assert [status.state for status in engine.subscriptions] == ["read"] * 3
        clock.now += 2
        engine.coordinator.retentions.advance()
        for k in range(1, 25):
            table.insert({"k": [k], "v": [k]})
        engine.coordinator.retentions.advance()
        assert [status.state for status in engine.subscriptions] == ["failed", "failed", "read"]
        with pytest.raises(DataflowError, match=r"changes of 1:00:00 ago or more, after epoch -1, were not acknow"):
            slow.take(0)
        with pytest.raises(DataflowError, match="has failed"):
            slow.ack()
        with pytest.raises(DataflowError, match=r"kB of changes .* were not acknowledged"):
            large.take(0)
        with pytest.raises(DataflowError, match="subscription 'large' has failed"):
            view.changes(name="large")
        assert len(items(good)) == 24
        place = crashed(engine, place)
    with open_(place) as engine:
        table, view = small(engine)
        with pytest.raises(DataflowError, match="were not acknowledged"):
            view.changes(name="slow")
        assert len(items(view.changes(name="good"))) == 24
        engine.drop_subscription("slow")
        assert len(items(view.changes(name="slow"))) == 1
        with pytest.raises(DataflowError, match="there is no subscription 'x'"):
            engine.drop_subscription("x")


@anywhere
def test_a_view_that_does_not_change_holds_nothing_up(place: Place) -> None:
    with quiet(), open_(place, 2) as engine:
        table, _ = small(engine)
        view = engine.install("large", table.filter(lambda columns: [v > 100 for v in columns["v"].to_pylist()]))
        view.changes("now", name="billing").close()
        table.insert({"k": [1], "v": [1]})
        last = table.upsert({"k": [1], "v": [2]})
        engine.run()
        engine.coordinator.retentions.advance()
        assert position_of(engine, "billing") == last and engine.subscriptions[0].bytes == 0
        place = crashed(engine, place)
    with quiet(), open_(place) as engine:
        assert position_of(engine, "billing") == last


@anywhere
def test_what_cannot_continue_is_refused(place: Place) -> None:
    with Engine() as engine, pytest.raises(DataflowError, match="there is no storage directory"):
        small(engine)[1].changes(name="billing")
    with quiet(), open_(place) as engine:
        table, view = small(engine)
        stream = engine.table("s", {"x": pa.int64()}, kind="stream")
        with pytest.raises(DataflowError, match="it reads 's', which is a stream"):
            engine.install("of a stream", stream).changes(name="x")
        with pytest.raises(DataflowError, match="which is not stored"):
            engine.install("of an input", engine.input("i", {"x": pa.int64()})).changes(name="x")
        with pytest.raises(DataflowError, match="without a name"):
            view.changes().ack()
        with pytest.raises(DataflowError, match="cannot create subscription 'x' since 0"):
            view.changes(0, name="x")
        view.changes("now", name="billing").close()
        with pytest.raises(DataflowError, match="exists, and continues after epoch"):
            view.changes("now", name="billing")
        with pytest.raises(DataflowError, match="belongs to view 'counts'"):
            engine.install("other", table).changes(name="billing")
        new = engine.install("counts", table.count("k"), beside=view)
        engine.replace(view, new)
        with pytest.raises(DataflowError, match="replaced by another query"):
            new.changes(name="billing")
        engine.drop_subscription("billing")
        new.changes("now", name="billing").close()
    with quiet(), open_(place) as engine:
        view = engine.install("counts", engine.tables["t"])
        with pytest.raises(DataflowError, match="other columns than before"):
            view.changes(name="billing")


def test_history_has_errors_where_they_were(place: Path) -> None:
    def inverse(columns: Any) -> Any:
        return {"k": columns["k"], "w": [6 // v for v in columns["v"].to_pylist()]}

    def installed(engine: Engine) -> View:
        table, _ = small(engine)
        rows = table.map({"k": pa.int64(), "w": pa.int64()}, inverse)
        engine.install("shared", rows.arrange("w"))
        return engine.install("inverse", rows.arrange("w").rows().count("w"))

    with quiet(), open_(place) as engine:
        installed(engine).changes("now", name="billing").close()
        table = engine.tables["t"]
        epochs = [table.insert({"k": [1], "v": [2]}), table.insert({"k": [2], "v": [0]}), table.delete({"k": [2]})]
        place = crashed(engine, place)
    with quiet(), open_(place) as engine:
        changes = installed(engine).changes(name="billing")
        engine.run()
        first = changes.take(SOON)
        assert first is not None and (first[0], collected(first[1])) == (epochs[0], {(3, 1): 1})
        with pytest.raises(EvaluationError):
            changes.take(SOON)
        assert items(changes) == [(epochs[2], {})]


@anywhere
def test_history_is_kept_by_merges_and_snapshots_as_long_as_it_is_needed(place: Place) -> None:
    with quiet(), open_(place) as engine:
        table, view = small(engine)
        view.changes("now", name="billing").close()
        for v in range(600):
            table.upsert({"k": [1], "v": [v]})
        for _ in range(50):
            engine.run()  # which merges a little
        assert engine.storage is not None
        engine.storage.snapshot()
        place = crashed(engine, place)
    with quiet(), open_(place) as engine:
        table, view = small(engine)
        reader = view.changes(name="billing")
        assert len(items(reader)) == 600
        reader.ack()
        for v in range(600, 900):
            table.upsert({"k": [1], "v": [v]})
            items(reader)
            reader.ack()
        for _ in range(50):
            engine.run()  # which merges a little
        sizes = {name: status.rows for status in engine.status() for name in status.names}
        assert sizes["t"] < 300
