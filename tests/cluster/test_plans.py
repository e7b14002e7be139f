"""Plans reach workers with their functions and digests, are sent once, and are forgotten when there are too many."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from ikebana.cluster import codec, plans
from ikebana.cluster.plans import KeptPlans, SealedInstall, SentPlans
from ikebana.cluster.processes import Processes
from ikebana.engine import Engine
from ikebana.engine.collection import Collection, constant
from ikebana.errors import DataflowError
from ikebana.operators import linear
from ikebana.operators.changes import Changes
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from ikebana.runtime.messages import Install
from tests.clusters import rows

pytestmark = pytest.mark.usefixtures("forked_workers")

FIELDS = (pa.field("n", pa.int64(), nullable=False),)


def above(least: int) -> Any:
    return lambda columns: columns["k"].to_numpy() > least


def install(function: Any, dataflow: str = "view") -> Install:
    source = Collection(ir.make(ir.Source, name="edges", fields=FIELDS))
    return Install(dataflow, source.filter(function).count("n").node)


def sent(sealed: SealedInstall) -> SealedInstall:
    """A command as a worker receives it."""
    received: SealedInstall = codec.decode(codec.encode([sealed]))[0]
    return received


def opened(command: Install) -> Install:
    return KeptPlans().open(sent(SentPlans().seal(command)))


def test_plans_travel_with_their_functions_and_digests() -> None:
    least = 3
    command = install(lambda columns: columns["n"].to_numpy() > least)
    received = opened(command)
    assert received.dataflow == "view"
    steps = next(node for node in walk(received.plan) if isinstance(node, ir.Steps))
    changes = Changes.of(FIELDS, {"n": range(8)}, (3,))
    assert [row for row, _, _ in steps.steps[0](changes).triples()] == [(4,), (5,), (6,), (7,)]
    assert [node.digest for node in walk(received.plan)] == [node.digest for node in walk(command.plan)]


def test_regression_the_memory_limit_of_a_view_reaches_its_workers() -> None:
    assert opened(replace(install(len), memory=12_345)).memory == 12_345


class CannotBeUnpickled:
    """A function that can be pickled, but not unpickled."""

    def __call__(self, columns: Any) -> Any:
        return True

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise LookupError("not here")


def test_a_plan_stays_sealed_until_it_is_opened_and_fails_each_time() -> None:
    driver, worker = SentPlans(), KeptPlans()
    for dataflow in ("view", "again"):
        sealed = sent(driver.seal(install(CannotBeUnpickled(), dataflow)))
        assert (sealed.plan is None) == (dataflow == "again")
        with pytest.raises(LookupError, match="not here"):
            worker.open(sealed)


def test_a_function_that_cannot_be_sent_is_refused_each_time() -> None:
    plan = install(lambda columns: True).plan
    step = linear.Filter(threading.Lock())  # type: ignore[arg-type]
    unsendable = ir.Steps(source=plan, steps=(step,), diff_lanes=1, digest="x")
    driver = SentPlans()
    for _ in range(2):
        with pytest.raises(DataflowError, match=r"cannot send dataflow 'view'[^$]*lock"):
            driver.seal(Install("view", unsendable))


def test_an_equal_plan_is_sent_once_and_opened_once() -> None:
    driver, worker = SentPlans(), KeptPlans()
    first = worker.open(sent(driver.seal(install(len, "one"))))
    sealed = sent(driver.seal(replace(install(len, "two"), owner="two 7")))
    second = worker.open(sealed)
    assert sealed.plan is None and (second.dataflow, second.owner) == ("two", "two 7")
    assert second.plan is first.plan


@pytest.mark.parametrize("limit", ["MAX_PLANS", "MAX_BYTES"])
def test_workers_keep_what_the_driver_believes(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(SentPlans().seal(install(above(0))).plan or b"")
    monkeypatch.setattr(plans, limit, 3 if limit == "MAX_PLANS" else 3 * size + size // 2)
    driver, worker, chance, resent = SentPlans(), KeptPlans(), random.Random(4), 0
    commands = [install(above(number), f"view {number}") for number in range(5)]
    for _ in range(200):
        command = chance.choice(commands)
        sealed = sent(driver.seal(command))
        resent += sealed.plan is not None
        assert worker.open(sealed).plan.digest == command.plan.digest
        assert len(worker) <= 3
    assert 5 < resent < 200


def test_a_plan_larger_than_the_limit_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_BYTES", 10)
    driver, worker = SentPlans(), KeptPlans()
    for _ in range(2):
        assert worker.open(sent(driver.seal(install(len)))).plan.digest == install(len).plan.digest
        assert not len(worker)


# On workers.


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(cluster=Processes(2)) as engine:
        yield engine


def test_instances_of_a_plan_are_separate(engine: Engine) -> None:
    stream = engine.table("events", {"k": pa.int64()}, kind="stream")
    query = stream.filter(lambda columns: columns["k"].to_numpy() > 1).count("k")
    stream.insert({"k": [1, 2, 3]})
    first = engine.install("first", query)
    stream.insert({"k": [2, 3]})
    second = engine.install("second", query)
    stream.insert({"k": [3]})
    assert rows(first.to_arrow()) == [(2, 1), (3, 2)]
    assert rows(second.to_arrow()) == [(3, 1)]
    total = engine.install("total", first.rows().sum((), "count"))
    first.drop()
    stream.insert({"k": [4]})
    assert rows(second.to_arrow()) == [(3, 1), (4, 1)]
    assert rows(total.to_arrow()) == [(4,)]
    for view in (second, total):
        view.drop()
    engine.drop_table("events")


def test_a_plan_that_was_forgotten_is_sent_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_PLANS", 2)
    stream = engine.table("events", {"k": pa.int64()}, kind="stream")
    queries = [stream.filter(above(least)).count("k") for least in range(4)]
    for number in (0, 1, 0, 2, 3, 0, 1):
        view = engine.install("view", queries[number])
        stream.insert({"k": [2, 4]})
        assert rows(view.to_arrow()) == [(k, 1) for k in (2, 4) if k > number]
        view.drop()
    engine.drop_table("events")


def test_a_plan_that_cannot_be_opened_fails_its_view_alone(engine: Engine) -> None:
    stream = engine.table("events", {"k": pa.int64()}, kind="stream")
    counts = engine.install("counts", stream.count("k"))
    engine.advance()  # before the first epoch is closed, nothing is read
    for _ in range(2):  # the second time by digest
        bad = engine.install("bad", stream.filter(CannotBeUnpickled()).count("k"))
        with pytest.raises(DataflowError, match=r"dataflow 'bad[^']*' has failed"):
            bad.read()
        bad.drop()
    stream.insert({"k": [1]})
    assert rows(counts.to_arrow()) == [(1, 1)]
    counts.drop()
    engine.drop_table("events")


def test_other_workers_are_sent_the_same_plan_again() -> None:
    query = constant(pa.table({"k": [5, 5]})).count("k")  # has the same digest in all engines
    for _ in range(2):
        with Engine(cluster=Processes(1)) as engine:
            engine.advance()
            assert rows(engine.install("counts", query).to_arrow()) == [(5, 2)]
