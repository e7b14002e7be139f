"""What small changes avoid: visits of unreachable operators, empty exchanges, reading batches one by one."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ikebana.engine import Engine, Table, View
from ikebana.engine.collection import Collection
from ikebana.errors import DataflowError, TimeError
from ikebana.operators import join
from ikebana.plan import reachability
from ikebana.runtime.channels import Channels
from ikebana.runtime.messages import PROGRAM_MESSAGES
from ikebana.runtime.staging import stages
from tests.dataflow.harness import cluster_of

PAIR = {"k": pa.int64(), "v": pa.int64()}
Rows = Counter[tuple[int, int]]


def exchanges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The dataflows of all exchanges from now on, except those of joint sweeps."""
    names: list[str] = []
    send_all = Channels.send_all

    def record(channels: Channels, channel: int, number: int, parts: list[Any]) -> None:
        if channel >= PROGRAM_MESSAGES:
            names.append(channels.dataflow)
        send_all(channels, channel, number, parts)

    monkeypatch.setattr(Channels, "send_all", record)
    return names


def of_pairs(engine: Engine, name: str, kind: str = "table") -> Table:
    return engine.table(name, PAIR, kind=kind)


def insert(table: Table, rows: list[tuple[int, int]]) -> None:
    table.insert({"k": [k for k, _ in rows], "v": [v for _, v in rows]})


def with_stream(stream: Table, table: Table) -> Collection:
    """How many rows of a stream there are for each key that a table has."""
    return stream.select("k").arrange("k").join(table.arrange("k")).count("k")


# Reachability.


def test_a_join_is_reached_when_both_sides_ever_were() -> None:
    left, right = reachability.Signal(), reachability.Signal()
    both, probe = reachability.JoinSignal(left, right), reachability.LookupSignal(left, right)
    changes = [(True, False), (False, False), (False, True), (False, True), (True, False), (False, False)]
    states = []
    for on_left, on_right in changes:
        left.set(on_left, False)
        right.set(on_right, False)
        both.update()
        probe.update()
        states.append((both.now, probe.now))
    assert states == [(False, False), (False, False), (True, False), (True, False), (True, True), (False, False)]
    assert both.ever and probe.ever


def test_later_changes_and_several_inputs() -> None:
    one, two = reachability.Signal(), reachability.Signal()
    late, some = reachability.AfterStartSignal(one), reachability.AnySignal([one, two])
    one.set(True, False)
    late.update()
    some.update()
    assert (late.now, late.ever, some.now, some.after_start) == (False, False, True, False)
    one.set(True, True)
    late.update()
    some.update()
    assert (late.now, late.after_start, some.after_start) == (True, True, True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_query_over_a_stream_exchanges_nothing_before_it_has_any_rows(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(workers=workers) as engine:
        stream, table = of_pairs(engine, "stream", "stream"), of_pairs(engine, "table")
        insert(table, [(k, k % 3) for k in range(50)])
        table.arrange(by="k")
        engine.run()
        names = exchanges(monkeypatch)
        view = engine.install("view", with_stream(stream, table))
        assert view.to_arrow().num_rows == 0
        assert not names
        insert(stream, [(k, 0) for k in range(0, 10_000, 2)])  # more than joint sweeps take
        assert sorted(view.to_arrow()["k"].to_pylist()) == list(range(0, 50, 2))
        assert bool(names) == (workers > 1)


def test_what_a_query_arranges_of_a_stream_stays_in_its_dataflow() -> None:
    with Engine() as engine:
        stream, table = of_pairs(engine, "stream", "stream"), of_pairs(engine, "table")
        engine.install("view", with_stream(stream, table))
        engine.run()
        assert [status.names for status in engine.status()] == [("table",), ("view",)]


def joined(stream: Rows, table: Rows, other: Rows) -> Counter[int]:
    """How many rows each key has: those of the stream that meet the table, and the table's that meet the other."""
    counts: Counter[int] = Counter()
    for (k, _), count in stream.items():
        counts[k] += count * sum(n for (key, _), n in table.items() if key == k)
    for (k, v), count in table.items():
        counts[k] += count * sum(n for (key, _), n in other.items() if key == v)
    return +counts


def shown(view: View) -> Counter[int]:
    return Counter({row["k"]: row["count"] for row in view.to_arrow().to_pylist()})


@pytest.mark.parametrize("few", [join.SMALL_BATCH_ROWS, 0], ids=["together", "batch by batch"])
@pytest.mark.parametrize("seed", range(10))
def test_oracle_joins_of_what_is_empty_for_a_while(seed: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "SMALL_BATCH_ROWS", few)
    monkeypatch.setattr(join, "QUANTUM", 1 + seed % 3 * 40)
    r = random.Random(seed)
    names = ["stream", "table", "other"]
    rows: dict[str, Rows] = {name: Counter() for name in names}
    with Engine(workers=1 + seed % 3, seed=seed) as engine:
        tables = {name: of_pairs(engine, name, "stream" if name == "stream" else "table") for name in names}

        def change() -> None:
            name = r.choice(names[: r.randint(1, 3)])
            new = [(r.randrange(5), r.randrange(5)) for _ in range(r.randint(1, 4))]
            rows[name].update(new)
            insert(tables[name], new)

        for _ in range(r.randint(0, 4)):
            change()
        rows["stream"].clear()
        met = tables["stream"].join(tables["table"].select("k", w="v"), on="k").select("k")
        meets = tables["table"].join(tables["other"].select(v="k", w="v"), on="v").select("k")
        view = engine.install("view", met.concat(meets).count("k"))
        for _ in range(10):
            for _ in range(r.randint(1, 3)):
                change()
            assert shown(view) == joined(rows["stream"], rows["table"], rows["other"])


# Waiting.


@pytest.mark.parametrize("workers", [1, 2])
def test_all_views_are_waited_for_at_once(workers: int) -> None:
    with Engine(workers=workers) as engine:
        engine.wait()  # there is none
        one, two = of_pairs(engine, "one"), of_pairs(engine, "two")
        views = [engine.install(f"view {at}", table.count("k")) for at, table in enumerate([one, one, two])]
        engine.wait()
        insert(one, [(1, 1), (2, 2)])
        engine.wait()
        assert [cluster_of(engine).complete(view.dataflow) for view in views] == [engine.epoch] * 3
        with pytest.raises(TimeError, match="still open"):
            engine.wait(engine.epoch)


def test_waiting_for_all_views_tells_which_one_has_failed() -> None:
    with Engine() as engine:
        table = of_pairs(engine, "table")
        engine.install("good", table.count("k"))
        engine.install("bad", table.filter(lambda columns: columns["k"].tolist()).count("k"))  # no boolean array
        insert(table, [(1, 1)])
        with pytest.raises(DataflowError, match="'bad' has failed"):
            engine.wait()


def test_what_a_query_arranges_for_itself_is_counted() -> None:
    with Engine() as engine:
        words = engine.table("words", {"word": pa.large_string(), "n": pa.int64()}, kind="stream")
        view = engine.install("sums", words.sum("word", "n"))
        empty = engine.status()
        words.insert({"word": ["a", "b", "b"], "n": [1, 2, 3]})
        engine.wait()
        (status,) = engine.status()
        assert status.dataflow == view.dataflow and status.bytes > 0
        assert status.inner_bytes > empty[0].inner_bytes == 0


def test_many_rows_of_a_stream_go_to_all_workers_and_few_to_one() -> None:
    with Engine(3) as engine:
        numbers = engine.table("numbers", {"n": pa.int64()}, kind="stream")
        for count, workers in ((10, 1), (20_000, 3)):
            data = {"n": np.arange(count)}
            staged = list(stages(numbers.spec, data, "insert", transaction=0, part=0, workers=3, stream_worker=1))
            assert len(staged) == workers
            assert sorted(n for _, stage in staged for n in stage.columns[0].to_pylist()) == list(range(count))
