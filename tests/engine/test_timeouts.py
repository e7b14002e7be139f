"""Calls that wait no longer than asked: each says what took too long, and leaves nothing half done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, Table, View
from ikebana.errors import IkebanaError, WaitTimeoutError
from tests.dataflow.harness import collected

pytestmark = pytest.mark.usefixtures("forked_workers")

SOON = 0.01


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(cluster=Processes(1)) as engine:
        engine.table("t", {"k": pa.int64(), "v": pa.int64()}, key="k").insert({"k": [1], "v": [1]})
        engine.install("all", engine.tables["t"])
        yield engine


@contextmanager
def busy(engine: Engine) -> Iterator[None]:
    """Workers that answer nothing until the block ends."""
    over, cluster = threading.Event(), engine.cluster
    ask, run = cluster.ask, cluster.run

    def late(work: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*arguments: Any) -> Any:
            over.wait()
            return work(*arguments)

        return wait

    with patch.object(cluster, "ask", late(ask)), patch.object(cluster, "run", late(run)):
        try:
            yield
        finally:
            over.set()


ROW = {"k": [2], "v": [2]}


def in_a_block(engine: Engine) -> None:
    with engine.transaction(timeout=SOON):
        engine.tables["t"].insert(ROW)


WAITING: dict[str, tuple[Callable[[Engine, Table, View], Any], str]] = {
    "insert": (lambda e, t, v: t.insert(ROW, timeout=SOON), "a change of 't', of which nothing was applied, took"),
    "upsert": (lambda e, t, v: t.upsert(ROW, timeout=SOON), "a change of 't'"),
    "delete": (lambda e, t, v: t.delete({"k": [1]}, timeout=SOON), "a change of 't'"),
    "transaction": (lambda e, t, v: in_a_block(e), "a change of 't'"),
    "read": (lambda e, t, v: v.read(timeout=SOON), "reading 'all' at epoch 0 took longer than 0.01 s"),
    "to_arrow": (lambda e, t, v: v.to_arrow(timeout=SOON), "reading 'all'"),
    "to_pandas": (lambda e, t, v: v.to_pandas(timeout=SOON), "reading 'all'"),
    "wait": (lambda e, t, v: v.wait(0, timeout=SOON), "waiting for epoch 0 of 'all'"),
    "hold": (lambda e, t, v: v.hold(timeout=SOON), "holding 'all' at epoch 0"),
    "wait for all": (lambda e, t, v: e.wait(timeout=SOON), "waiting for epoch 0 of all views"),
    "status": (lambda e, t, v: e.status(timeout=SOON), "asking for the arrangements"),
    "explain": (lambda e, t, v: e.explain(t, timeout=SOON), "asking for the arrangements"),
    "run": (lambda e, t, v: e.run(timeout=SOON), "working until nothing is left to do"),
}


@pytest.mark.parametrize("name", WAITING)
def test_a_call_ends_when_its_time_is_over(engine: Engine, name: str) -> None:
    table, view = engine.tables["t"], engine.views["all"]
    call, what = WAITING[name]
    with busy(engine), pytest.raises(WaitTimeoutError, match=what) as expired:
        call(engine, table, view)
    assert isinstance(expired.value, TimeoutError) and "timeout=" in expired.value.hint
    assert engine.epoch == 1 and collected(view.read(timeout=60)) == {(1, 1): 1}


def test_what_was_not_applied_in_time_is_not_applied_later(engine: Engine) -> None:
    table, view = engine.tables["t"], engine.views["all"]
    with busy(engine), pytest.raises(WaitTimeoutError):
        table.insert(ROW, timeout=SOON)
    table.insert(ROW)
    table.delete({"k": [2]})
    assert collected(view.read()) == {(1, 1): 1}
    engine_epoch = engine.epoch
    with pytest.raises(IkebanaError):  # as it would have been before
        table.insert({"k": [1], "v": [5]}, timeout=60)
    assert engine.epoch == engine_epoch


def test_a_transaction_does_not_wait_longer_for_another(engine: Engine) -> None:
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with engine.coordinator.lock:
            held.set()
            over.wait()

    late = engine.transaction()
    late.insert(engine.tables["t"], ROW)
    epoch, thread = engine.epoch, threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        with pytest.raises(WaitTimeoutError, match="a change of 't'"):
            late.commit(timeout=SOON)
    finally:
        over.set()
        thread.join()
    engine.tables["t"].upsert({"k": [1], "v": [1]})
    assert engine.epoch == epoch + 1 and collected(engine.views["all"].read()) == {(1, 1): 1}


def test_the_engine_says_how_long_is_usual() -> None:
    with Engine(timeout=SOON) as engine:
        view = engine.install("all", engine.table("t", {"k": pa.int64()}))
        engine.advance()
        with busy(engine), pytest.raises(WaitTimeoutError, match=r"took longer than 0\.01 s"):
            view.read()
        assert len(view.read(timeout=float("inf"))) == 0


def test_following_ends_in_time_while_workers_do_not_answer(engine: Engine) -> None:
    with (
        engine.views["all"].changes(since="now") as changes,
        busy(engine),
        patch("ikebana.engine.subscriptions._HEALTH_CHECK_SECONDS", 0.0),
    ):
        assert changes.take(timeout=SOON) is None
