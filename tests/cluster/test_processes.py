"""Workers in processes: the same answers as in one process, and a clean end however things go wrong.

The workers are forked (`tests.forked_workers`); `test_launch` has the tests of how interpreters start and end. The
clusters on which nothing goes wrong are shared by all tests.
"""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
import zmq

from ikebana.cluster import Cluster
from ikebana.cluster.inprocess import InProcess
from ikebana.cluster.processes import Processes
from ikebana.engine import Engine
from ikebana.errors import DataflowError, DroppedError, EvaluationError, TimeError
from ikebana.operators.changes import Changes
from ikebana.runtime.messages import Advance, Push, Read, Wait
from tests.clusters import EDGES, SOON, Brake, all_end, endless, interrupted, program, reach, rows, within

pytestmark = pytest.mark.usefixtures("forked_workers")


@pytest.fixture(scope="module")
def one() -> Iterator[Processes]:
    with Processes(1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    with Processes(2) as cluster:
        yield cluster


# Answers.


def test_same_answers_as_in_one_process(one: Processes, two: Processes) -> None:
    expected = program(InProcess(1), "a")
    assert any(len(answer) > 5 for answer in expected)
    assert program(one, "a") == expected
    assert program(two, "a") == expected


def test_large_results_and_inputs(two: Processes) -> None:
    engine = Engine(cluster=two)
    edges = engine.input("large", EDGES)
    view = engine.install("large by dst", edges.select("dst", "src").arrange("dst"))
    size = 200_000
    edges.insert({"src": np.arange(size), "dst": np.arange(size)[::-1]})
    engine.advance()
    table = view.read()
    assert table.num_rows == size
    assert (np.add(*(table[name].to_numpy() for name in ("src", "dst"))) == size - 1).all()


def test_run_returns_when_nothing_is_left_to_do(two: Processes) -> None:
    engine = Engine(cluster=two)
    edges, roots = engine.input("run edges", EDGES), engine.input("run roots", {"node": pa.int64()})
    view = engine.install("run reach", reach(edges, roots))
    for epoch in range(8):
        edges.insert({"src": np.arange(10) + 10 * epoch, "dst": np.arange(10) + 10 * epoch + 1})
        roots.insert({"node": [epoch]})
        engine.advance()
        engine.run()
        shards = two.ask(Read(view.dataflow, (epoch,)))  # no request has demanded it before
        assert sum(shard.rows.num_rows for shard in shards) == 10 * (epoch + 1) + 1


def test_an_idle_worker_frees_the_memory_that_a_slow_reader_has_held() -> None:
    live = 2000
    with Processes(1) as cluster, Engine(cluster=cluster) as engine:
        table = engine.table("t", {"k": pa.int64(), "v": pa.int64()}, key="k")
        view = engine.install("by value", table.arrange("v"))

        def stored() -> int:
            return sum(status.rows for status in engine.status())

        with view.hold():
            for value in range(20):
                table.upsert({"k": np.arange(live), "v": np.arange(live) + value})
                view.read()
            assert stored() > 20 * live
        assert within(SOON, lambda: stored() <= 8 * live)


# Errors that are not the end.


def test_a_function_that_raises_takes_the_answer_of_its_query_alone(two: Processes) -> None:
    engine = Engine(cluster=two)
    edges = engine.input("raising edges", EDGES)
    well = engine.install("well", edges.count("src"))
    ill = engine.install("ill", edges.flat_map({"x": pa.int64()}, lambda row: [(1 // row["src"],)]))
    edges.insert({"src": [1, 2], "dst": [0, 0]})
    engine.advance()
    assert rows(ill.read()) == [(0, 1), (1, 1)]
    edges.insert({"src": [0], "dst": [0]})
    engine.advance()
    with pytest.raises(EvaluationError, match=r"ill.*ZeroDivisionError.*\n.*src = 0"):
        ill.read()
    assert rows(well.read()) == [(0, 1, 1), (1, 1, 1), (2, 1, 1)]
    edges.remove({"src": [0], "dst": [0]})
    engine.advance()
    assert rows(ill.read()) == [(0, 1), (1, 1)]
    ill.drop()
    engine.run()


class CannotBeUnpickled:
    """A function that can be pickled, but not unpickled."""

    def __call__(self, columns: Any) -> Any:
        return True

    def __reduce__(self) -> Any:
        return int, ("nothing",)


def test_a_plan_that_cannot_be_opened_fails_its_dataflow_alone(two: Processes) -> None:
    engine = Engine(cluster=two)
    edges = engine.input("unpickled edges", EDGES)
    ill = engine.install("cannot be unpickled", edges.filter(CannotBeUnpickled()).distinct())
    edges.insert({"src": [1], "dst": [2]})
    engine.advance()
    with pytest.raises(DataflowError, match="invalid literal"):
        ill.read()
    assert rows(engine.install("plain", edges.distinct()).read()) == [(1, 2, 1)]


def test_what_cannot_be_answered_is_refused(two: Processes) -> None:
    engine = Engine(cluster=two)
    edges = engine.input("refused edges", EDGES)
    view = engine.install("refused", edges.count("src"))
    engine.advance()
    view.read()
    with pytest.raises(DataflowError, match="no dataflow 'nowhere'"):
        two.ask(Read("nowhere", (0,)))
    with pytest.raises(DataflowError, match="cannot complete epoch 98"):
        two.ask(Wait(view.dataflow, 99))
    with pytest.raises(DataflowError, match="does not know the request 'what'"):
        two.ask("what", 1)
    with pytest.raises(DataflowError, match="cannot send Ask"):
        two.ask(threading.Lock())
    engine.advance(10)
    view.read()
    with pytest.raises(TimeError):
        two.ask(Read(view.dataflow, (0,)))
    assert rows(view.read()) == []


def test_an_interrupted_call_leaves_the_cluster_usable(two: Processes, tmp_path: Path) -> None:
    engine, brake = Engine(cluster=two), Brake(tmp_path / "brake")
    edges = engine.input("slow edges", EDGES)
    view = engine.install("slow", edges.filter(brake).count("src"))
    edges.insert({"src": [1], "dst": [2]})
    engine.advance()
    interrupted(view.read, lambda: brake.works() and waiting_calls(two))
    brake.release()
    assert rows(view.read()) == [(1, 1, 1)]


# Threads and notifications.


def waiting_calls(cluster: Processes) -> int:
    return len(cluster._connections._calls)


def slowly(seconds: float) -> Callable[[dict[str, pa.Array]], Any]:
    def keep(columns: dict[str, pa.Array]) -> Any:
        time.sleep(seconds)
        return columns["src"].is_valid()

    return keep


def test_requests_are_answered_by_all_workers_or_by_one(two: Processes) -> None:
    engine = Engine(cluster=two)
    edges = engine.input("asked edges", EDGES)
    view = engine.install("asked", edges.count("src"))
    edges.insert({"src": np.arange(100), "dst": np.arange(100)})
    engine.advance()
    view.wait(0)
    shards = two.ask(Read(view.dataflow, (0,)))
    assert sum(shard.rows.num_rows for shard in shards) == 100 and len(shards) == 2
    assert [two.ask(Read(view.dataflow, (0,)), worker)[0].rows.num_rows for worker in (0, 1)] == [
        shard.rows.num_rows for shard in shards
    ]


def test_a_waiting_thread_does_not_block_others(two: Processes, tmp_path: Path) -> None:
    engine, brake = Engine(cluster=two), Brake(tmp_path / "brake")
    edges, others = engine.input("thread edges", EDGES), engine.input("thread others", EDGES)
    slow = engine.install("thread slow", edges.filter(brake).count("src"))
    quick = engine.install("thread quick", others.count("src"))
    edges.insert({"src": [1], "dst": [2]})
    engine.advance()
    order: list[str] = []
    waiting = threading.Thread(target=lambda: (slow.wait(0), order.append("slow")))
    waiting.start()
    assert within(SOON, lambda: brake.works() and waiting_calls(two) == 1)
    releasing = threading.Thread(target=lambda: within(SOON, lambda: waiting_calls(two) == 2) and brake.release())
    releasing.start()
    with pytest.raises(DataflowError, match="no dataflow"):
        two.ask(Read("nowhere", (0,)), 0)  # answered when the function returns at the latest
    quick.read()
    order.append("quick")
    waiting.join(SOON)
    releasing.join(SOON)
    assert sorted(order) == ["quick", "slow"]


def test_many_threads_ask_at_once(two: Processes) -> None:
    engine = Engine(cluster=two)
    edges = engine.input("many edges", EDGES)
    views = [engine.install(f"many {at}", edges.filter(slowly(0.01 * at)).count("src")) for at in range(4)]
    edges.insert({"src": [1, 2, 3], "dst": [0, 0, 0]})
    engine.advance()
    errors: list[BaseException] = []

    def use(at: int) -> None:
        try:
            for _ in range(50):
                assert two.ask(Wait(views[at % 4].dataflow, 1), at % 2) == [None]
                shards = two.ask(Read(views[at % 4].dataflow, (0,)))
                assert sum(shard.rows.num_rows for shard in shards) == 3
        except BaseException as error:
            errors.append(error)

    for view in views:
        view.wait(0)
    threads = [threading.Thread(target=use, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in threads)
    assert not waiting_calls(two)


def test_a_death_reaches_every_thread_that_waits() -> None:
    cluster = Processes(2)
    view, errors = endless(cluster), list[Exception]()

    def wait() -> None:
        try:
            view.wait(0)
        except DataflowError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert within(SOON, lambda: waiting_calls(cluster) == 3)
    os.kill(cluster.pids[0], signal.SIGKILL)
    for thread in threads:
        thread.join(SOON)
    assert len({id(error) for error in errors}) == 3
    assert all("worker 0 has died" in str(error) for error in errors)


def test_closing_ends_the_waiting_of_others() -> None:
    cluster = Processes(1)
    view, errors = endless(cluster), list[Exception]()

    def wait() -> None:
        try:
            view.wait(0)
        except DroppedError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert within(SOON, lambda: waiting_calls(cluster) == 1)
    cluster.close()
    waiting.join(SOON)
    assert len(errors) == 1


def notifying(columns: dict[str, pa.Array]) -> Any:
    """A function that adds its rows to the notifications of the worker that calls it."""
    import inspect

    from ikebana.runtime.worker import Worker

    callers = (frame.frame.f_locals.get("self") for frame in inspect.stack(0))
    worker = next(caller for caller in callers if isinstance(caller, Worker))
    worker.notifications.extend(columns["src"].to_pylist())
    return columns["src"].is_valid()


@pytest.mark.parametrize("in_process", [True, False], ids=["in process", "processes"])
def test_notifications_come_in_order_and_before_the_answer(two: Processes, in_process: bool) -> None:
    cluster: Cluster = InProcess(2) if in_process else two
    engine = Engine(cluster=cluster)
    edges = engine.input("notified edges", EDGES)
    view = engine.install("notified", edges.filter(notifying).count("src"))
    received: dict[int, list[int]] = {0: [], 1: []}

    def listen(worker: int, item: Any) -> None:
        received[worker].append(item)
        if item == 50 and not in_process:
            with pytest.raises(DataflowError, match="a listener cannot send requests"):
                cluster.ask(Wait(view.dataflow, 1))
        if item == 60:
            raise ValueError("an error of the listener, which must not end the workers")

    if in_process:
        cluster.listen(lambda worker, item: received[worker].append(item))
    else:
        cluster.listen(listen)
    for at in range(30):
        edges.insert({"src": [at * 10], "dst": [0]})
        engine.advance()
        view.wait(at)
        assert at * 10 in {*received[0], *received[1]}
    assert all(items and items == sorted(items) for items in received.values())


def test_a_listening_method_does_not_keep_its_object(two: Processes) -> None:
    class Listener:
        def hear(self, worker: int, item: Any) -> None: ...

    listener = Listener()
    two.listen(listener.hear)
    gone = weakref.ref(listener)
    del listener
    gc.collect()
    assert gone() is None
    two.run()


def test_a_cluster_without_references_ends() -> None:
    cluster = Processes(1)
    pids, gone = cluster.pids, weakref.ref(cluster)
    del cluster
    gc.collect()
    assert gone() is None and all_end(pids)


def test_idle_workers_use_no_processor(two: Processes) -> None:
    two.run()
    processes = [psutil.Process(pid) for pid in two.pids]
    before = [sum(process.cpu_times()[:2]) for process in processes]
    time.sleep(1)
    after = [sum(process.cpu_times()[:2]) for process in processes]
    assert max(np.subtract(after, before)) <= 0.03


# Strangers.


class Payload:
    """A pickle that leaves a mark where it is opened."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._mark),)


def listening(pid: int) -> list[str]:
    connections = psutil.Process(pid).net_connections("tcp")
    return [
        f"tcp://{connection.laddr.ip}:{connection.laddr.port}"
        for connection in connections
        if connection.status == psutil.CONN_LISTEN
    ]


@pytest.mark.parametrize("with_keys", [False, True], ids=["without keys", "with keys of its own"])
def test_connections_without_allowed_keys_are_refused_and_affect_nobody(
    two: Processes, with_keys: bool, tmp_path: Path
) -> None:
    sockets = two._connections._sockets
    endpoints = [two._connections.endpoint, *(address for pid in two.pids for address in listening(pid))]
    assert len(endpoints) == 5 and all(address.startswith("tcp://127.0.0.1:") for address in endpoints)
    servers = [sockets._keys.public, *two.keys._worker_keys] if with_keys else [b""]
    context = zmq.Context()
    refused = []
    for kind, endpoint, server in itertools.product((zmq.DEALER, zmq.PUSH), endpoints, servers):
        socket = context.socket(kind)
        if with_keys:
            socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
            socket.curve_serverkey = server
        socket.connect(endpoint)
        with suppress(zmq.Again):  # it has been refused already
            socket.send(pickle.dumps(Payload(tmp_path / "mark")), zmq.NOBLOCK)
        refused.append(socket)
    try:
        for attempt in range(5):  # they keep sending
            name = f"refused {with_keys} {attempt}"
            assert program(two, name, 2) == program(InProcess(1), name, 2)
        assert not any(socket.poll(20) for socket in refused if socket.type == zmq.DEALER)
    finally:
        context.destroy(linger=0)
    two.run()
    assert not (tmp_path / "mark").exists()


# Ends.


def test_a_worker_killed_between_calls_is_noticed_by_the_next() -> None:
    cluster = Processes(2)
    pids = cluster.pids
    os.kill(pids[0], signal.SIGKILL)
    assert all_end(pids), "the other worker ends by itself"
    with pytest.raises(DataflowError, match=r"worker 0 has died\n.*killed by SIGKILL"):
        cluster.command(Advance(1))


def test_an_exception_outside_of_dataflows_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    cluster = Processes(2)
    fields = (pa.field("x", pa.int64(), nullable=False),)
    cluster.command(Push("nowhere", Changes.of(fields, {"x": [1]}, (0,))), 1)
    with pytest.raises(DataflowError, match=r"worker 1 has failed\n.*KeyError: 'nowhere'"):
        cluster.run()
    assert all_end(cluster.pids)
    assert "Traceback" in capfd.readouterr().err
