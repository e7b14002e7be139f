"""Joint sweeps: the answers do not depend on what arrives when; few messages; nothing for workers without rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import graph
from ikebana.cluster.inprocess import Faults, InProcess
from ikebana.engine import Engine, Table, View
from ikebana.engine.collection import Collection
from ikebana.engine.delta_join import natural_join
from ikebana.errors import DataflowError
from ikebana.kernels import opcodes
from ikebana.runtime import joint_sweeps
from ikebana.runtime import program as fusing
from ikebana.runtime.joint_sweep import JointSweep
from ikebana.runtime.messages import DataflowMessage, JointMessage
from ikebana.runtime.program import Program
from tests.dataflow import dataflow_run, expressions
from tests.dataflow.dataflow_run import Close, End, Script
from tests.dataflow.harness import INTEGERS, Setup, cluster_of, engine_of, examples, read, setups
from tests.dataflow.test_programs import fused, programs_run

COLUMNS = {"k": pa.int64(), "v": pa.int64(), "t": pa.string()}
Views = dict[str, Callable[[Collection, Collection], Collection]]


@pytest.fixture(autouse=True)
def enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joint sweeps are enabled, and small sweeps are done by programs, however the tests are run."""
    monkeypatch.setattr(joint_sweeps, "ENABLED", True)
    monkeypatch.setattr(fusing, "FUSE", "small")


def plus_one(columns: dict[str, Any]) -> dict[str, Any]:
    """A function of the user's, which no program calls."""
    return {"k": columns["k"], "v": [value + 1 for value in columns["v"].to_pylist()]}


def mapped(table: Collection) -> Collection:
    """An arrangement that views share, and that is not maintained by programs."""
    return table.select("k", "v").map({"k": pa.int64(), "v": pa.int64()}, plus_one).arrange("k").rows()


VIEWS: Views = {
    "least mapped": lambda a, b: mapped(a).min("k"),
    "mapped by table": lambda a, b: mapped(a).join(b.select("k", w="v"), on="k").count("k"),
    "counts": lambda a, b: a.count("k"),
    "texts": lambda a, b: a.select("k", "t").join(b.select("k", other="t"), on="k").count(["t", "other"]),
    "sums by value": lambda a, b: a.select("v", w="k").join(b.select("v", "k"), on="v").sum("k", "w"),
    "of counts": lambda a, b: a.count("k").select("k", n="count").join(b.count("v").select(k="v", m="count"), on="k"),
    "reach": lambda a, b: graph.reach(a.select(src="k", dst="v").distinct(), b.select(node="k").distinct()),
    "delta join": lambda a, b: natural_join(a.select("k", "v"), b.select("v", w="k")).count("w"),
    "other delta join": lambda a, b: natural_join(b.select("v", w="k"), a.select("k", "v")).sum("k", "w"),
    "greatest": lambda a, b: a.select("v", "k").concat(b.select("v", "k")).max("v"),
}


def row(number: int, key: int, value: int) -> tuple[int, int, str]:
    return key, value, f"text {number % 3}" * (number % 4)


def change(table: Table, rows: list[tuple[int, int, str]], r: random.Random) -> None:
    """Insert a few rows into a table, or delete one of those that it has."""
    if rows and r.random() < 0.3:
        table.delete(columns_of([rows.pop(r.randrange(len(rows)))]))
        return
    new = [row(r.randrange(9), r.randrange(6), r.randrange(6)) for _ in range(r.randint(1, 4))]
    rows += new
    table.insert(columns_of(new))


def columns_of(rows: list[tuple[int, int, str]]) -> dict[str, list[Any]]:
    return {name: [row[at] for row in rows] for at, name in enumerate(COLUMNS)}


def play(engine: Engine, names: list[str], seed: int, *, runs: bool) -> Iterator[Any]:
    """Changes, in some of which others are under way; views that come and go; what all views have, now and then."""
    r = random.Random(seed)
    tables = [engine.table(name, COLUMNS) for name in "ab"]
    rows: list[list[tuple[int, int, str]]] = [[], []]
    views = {name: engine.install(name, VIEWS[name](*tables)) for name in names[1:]}
    for turn in range(12):
        for _ in range(r.randint(1, 3)):
            at = r.randrange(2)
            change(tables[at], rows[at], r)
            actions = r.randint(0, 60)
            if runs:
                cluster_of(engine).run_some(actions)
        if turn == 4:
            views[names[0]] = engine.install(names[0], VIEWS[names[0]](*tables))
        if turn == 8 and len(views) > 1:
            views.pop(names[-1]).drop()
        if r.random() < 0.5 or turn == 11:
            yield {name: read(view) for name, view in views.items()}


NAMES = st.lists(st.sampled_from(list(VIEWS)), min_size=1, max_size=5, unique=True)


def test_oracle_joint_sweeps_in_any_order_of_messages() -> None:
    """With several workers, faults and views, the answers are those of visits on one worker."""
    ran = []

    @examples(2, quick=0.3)
    @given(setups(3), NAMES, st.integers(0, 1000), st.sampled_from([joint_sweeps.LONG, 2]))
    def check(setup: Setup, names: list[str], seed: int, long: int) -> None:
        with fused("never"), Engine() as engine:
            expected = list(play(engine, names, seed, runs=False))
        setup = replace(setup, workers=1 + max(setup.workers, 1), hash_bits=64)
        with fused("small"), patch.object(joint_sweeps, "LONG", long), engine_of(setup) as engine:
            assert list(play(engine, names, seed, runs=True)) == expected
            ran.append(programs_run(engine))

    check()
    assert sum(ran) > 5 * len(ran)


@examples(1, quick=0.2)
@given(setups(3), NAMES, st.integers(0, 1000), st.sampled_from([opcodes.FULL, opcodes.SPILL, opcodes.RAISED]))
def test_oracle_programs_that_fail_now_and_then(setup: Setup, names: list[str], seed: int, status: int) -> None:
    """Where a program fails on one worker, all leave its dataflow and its importers to sweeps of their own."""
    r, proceed = random.Random(seed), Program._resume

    def fails(program: Program, workspace: Any, epoch: int) -> int:
        reached = proceed(program, workspace, epoch)
        if r.random() < 0.1 and not workspace.state[opcodes.COMMITS] and reached != opcodes.SPILL:
            program.undo(workspace, epoch)
            return opcodes.FULL if status == opcodes.SPILL else status
        return reached

    with fused("never"), Engine() as engine:
        expected = list(play(engine, names, seed, runs=False))
    setup = replace(setup, workers=1 + setup.workers, hash_bits=64)
    with fused("small"), engine_of(setup) as engine, patch.object(Program, "_resume", fails):
        assert list(play(engine, names, seed, runs=True)) == expected


# Counts.


@contextmanager
def counted(engine: Engine) -> Iterator[Counter[str]]:
    """How many messages of each kind workers send, and how many programs get rows."""
    counts: Counter[str] = Counter()
    cluster, send = cluster_of(engine), InProcess._send
    begin, wake = Program.begin, Program.wake

    def count_messages(cluster: InProcess, index: int) -> None:
        for _, message in cluster.workers[index].outbox:
            if isinstance(message, JointMessage):
                counts["joint" if message.depth else "proposals"] += 1
                counts["depth"] = max(counts["depth"], message.depth)
            elif isinstance(message, DataflowMessage):
                counts["single"] += 1
        send(cluster, index)

    def count_begun(program: Program, *arguments: Any) -> int:
        counts["programs"] += 1
        return begin(program, *arguments)

    def count_woken(program: Program, *arguments: Any) -> None:
        counts["programs"] += 1
        wake(program, *arguments)

    with (
        patch.object(InProcess, "_send", count_messages),
        patch.object(Program, "begin", count_begun),
        patch.object(Program, "wake", count_woken),
    ):
        assert cluster
        yield counts


def with_views(workers: int, number: int) -> tuple[Engine, Table, list[View]]:
    """An engine with two tables, and views that count their pairs, each by a column of its own name."""
    engine = Engine(workers)
    orders = engine.table("orders", {"id": pa.int64(), "who": pa.int64()}, key="id")
    people = engine.table("people", {"who": pa.int64(), "city": pa.int64()}, key="who")
    people.insert({"who": list(range(60)), "city": [who % 20 for who in range(60)]})
    orders.insert({"id": list(range(300)), "who": [at % 60 for at in range(300)]})
    joined = orders.join(people, on="who")
    views = [
        engine.install(f"view {at}", joined.count("city").select("city", **{f"n{at}": "count"}).arrange("city").rows())
        for at in range(number)
    ]
    engine.wait()
    for at in range(3):  # small sweeps before those that are counted: the first ones start programs
        orders.insert({"id": [1000 + at], "who": [at]})
        engine.wait()
    return engine, orders, views


def test_messages_do_not_depend_on_the_number_of_views() -> None:
    sent = []
    for number in (1, 12):
        engine, orders, _ = with_views(2, number)
        with counted(engine) as counts:
            orders.insert({"id": [5000], "who": [7]})
            engine.wait()
        sent.append((counts["proposals"], counts["joint"]))
        assert not counts["single"]
        engine.close()
    assert sent[0] == sent[1]


@pytest.mark.parametrize("workers", [4, 8])
def test_a_small_change_concerns_few_of_many_workers(workers: int) -> None:
    engine, orders, views = with_views(workers, 10)
    dataflows = len(cluster_of(engine).workers[0].flows)
    with counted(engine) as counts:
        orders.insert({"id": [5000], "who": [7]})
        engine.wait()
    assert counts["proposals"] == workers * (workers - 1)
    assert counts["joint"] <= 8 * (workers - 1), "few workers speak at each depth"
    assert counts["programs"] <= 3 * dataflows, "programs run where there are rows"
    assert all(sum(read(view).values()) == 20 for view in views)
    engine.close()


def test_a_delta_join_does_not_wait_for_an_index_that_it_does_not_read() -> None:
    """Changes of orders are looked up among people, and then counted: the index of orders is for changes of people."""
    with Engine(2) as engine:
        orders = engine.table("orders", {"id": pa.int64(), "who": pa.int64()}, key="id")
        people = engine.table("people", {"who": pa.int64(), "city": pa.int64()}, key="who")
        people.insert({"who": list(range(60)), "city": [who % 20 for who in range(60)]})
        view = engine.install("view", natural_join(orders, people).count("city"))
        for at in range(20):
            with counted(engine) as counts:
                orders.insert({"id": [at], "who": [at]})
                engine.wait()
            assert at < 3 or counts["depth"] <= 3, "one for each of two exchanges, and one for the end"
            assert at < 3 or not counts["single"]
        people.upsert({"who": [3], "city": [21]})  # now the index is read, with all that was changed
        assert read(view) == {(city, 1): 1 for city in (*range(3), *range(4, 20), 21)}


# Isolation.


def test_a_worker_sends_all_it_has_to_say_before_it_commits() -> None:
    """Otherwise its peers would commit after it, and not at the same time."""
    unsent, take = list[int](), JointSweep.take

    def spied(sweep: JointSweep, messages: Any) -> Any:
        if sweep.has_ended:
            unsent.append(len(cluster_of(engine).workers[sweep._worker].outbox))
        return take(sweep, messages)

    with Engine(2) as engine:
        table = engine.table("a", COLUMNS)
        views = [engine.install(f"counts {n}", table.select("v", "k").count("v")) for n in range(3)]
        engine.run()
        with patch.object(JointSweep, "take", spied):
            for number in range(20):
                table.insert({"k": [number], "v": [number % 5], "t": ["text"]})
                engine.run()
        assert read(views[0]) == {(value, 4): 1 for value in range(5)}
    assert len(unsent) >= 20 and not any(unsent)


def test_a_program_that_fails_leaves_other_dataflows_in_the_joint_sweep() -> None:
    with Engine(2, share=False) as engine:
        table = engine.table("table", {"k": pa.int64(), "v": pa.int64()})
        views = [engine.install(name, table.count("k").select("k", **{name: "count"})) for name in ("one", "two")]
        for at in range(3):
            table.insert({"k": [at, at + 1], "v": [at, at]})
            engine.wait()
        proceed = Program._resume
        failing = cluster_of(engine).workers[1].flows[views[0].dataflow].program

        def raises(program: Program, workspace: Any, epoch: int) -> int:
            if program is failing:
                raise MemoryError("no room at all")
            return proceed(program, workspace, epoch)

        with patch.object(Program, "_resume", raises):
            table.insert({"k": list(range(10)), "v": [0] * 10})
            engine.run()
        with pytest.raises(DataflowError, match="no room at all"):
            views[0].read()
        assert sum(count for _, count in read(views[1])) == 16


def test_a_view_that_is_dropped_in_the_middle_of_a_joint_sweep() -> None:
    for actions in range(0, 40, 3):
        with Engine(3, seed=actions) as engine:
            table = engine.table("table", {"k": pa.int64(), "v": pa.int64()})
            kept = engine.install("kept", table.count("k"))
            dropped = engine.install("dropped", table.join(table.select("k", w="v"), on="k").sum("v", "w"))
            for at in range(3):
                table.insert({"k": [at, at + 1], "v": [at, at]})
                engine.wait()
            table.insert({"k": list(range(10)), "v": [0] * 10})
            cluster_of(engine).run_some(actions)
            dropped.drop()
            table.insert({"k": list(range(5)), "v": [0] * 5})
            assert sum(count for _, count in read(kept)) == 21


def test_an_input_that_ends_while_dataflows_wait_for_a_joint_sweep() -> None:
    """Dataflows that cannot take part any more, since a source has ended, go on by themselves."""
    program = expressions.Program(1, (expressions.Apply("semijoin", (0, 0), 0),))
    for seed in range(10):
        setup = Setup(workers=2, seed=seed, faults=Faults(reorder=0.2, pause=0.3, longest=5))
        dataflow_run.play(setup, INTEGERS, program, Script([0, 1], [Close(1), Close(1), End(0)]))


def test_a_long_loop_does_not_delay_other_dataflows() -> None:
    nodes = 100
    with Engine(2) as engine, patch.object(fusing, "MOST_RESTARTS", 8):
        edges = engine.input("edges", {"src": pa.int32(), "dst": pa.int32()})
        roots = engine.input("roots", {"node": pa.int32()})
        far = engine.install("far", graph.reach(edges.distinct(), roots.distinct()))
        degrees = engine.install("degrees", edges.count("src"))
        roots.insert({"node": [0]})
        edges.insert({"src": list(range(1, nodes)), "dst": list(range(2, nodes + 1))})
        engine.advance()
        for _ in range(2):
            edges.insert({"src": [nodes + 5], "dst": [nodes + 6]})
            engine.advance()
            engine.wait()
        edges.insert({"src": [0], "dst": [1]})
        engine.advance()
        cluster = cluster_of(engine)
        while cluster.complete(degrees.dataflow) < engine.epoch:
            cluster.run_some(1)
        assert cluster.complete(far.dataflow) < engine.epoch
        edges.insert({"src": [nodes + 7], "dst": [nodes + 6]})
        engine.advance()
        while cluster.complete(degrees.dataflow) < engine.epoch:
            cluster.run_some(1)
        assert cluster.complete(far.dataflow) < engine.epoch
        assert len(read(far)) == nodes + 1
