"""Clients talk to workers directly, within limits; processes with other keys cannot connect."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ikebana.cluster import authentication
from ikebana.cluster import client as client_module
from ikebana.cluster.authentication import KeyPair
from ikebana.cluster.client import Client, ClientCredentials
from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, Input, View
from ikebana.errors import DataflowError, TimeError
from ikebana.operators.changes import Changes
from ikebana.runtime.messages import Ping, Push, Read, Wait

pytestmark = pytest.mark.usefixtures("forked_workers")


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    with Processes(2) as cluster:
        yield cluster


@pytest.fixture
def client(two: Processes) -> Iterator[Client]:
    credentials: ClientCredentials = pickle.loads(pickle.dumps(two.credentials))
    with Client(credentials, timeout=8) as client:
        yield client


def counted(engine: Engine, name: str) -> tuple[Input, View]:
    numbers = engine.input(f"{name} numbers", {"n": pa.int64()})
    return numbers, engine.install(name, numbers.count("n"))


def push(numbers: Input, values: Any, epoch: int) -> Push:
    return Push(numbers.name, Changes.of(numbers.node.columns, {"n": values}, (epoch,)))


def test_clients_load_and_read(two: Processes, client: Client) -> None:
    engine = Engine(cluster=two)
    numbers, view = counted(engine, "loaded")
    two.run()  # the workers know the input
    size, parts = 200_000, 10
    for part in range(parts):
        client.send(part % 2, push(numbers, np.arange(size) + part * size, 0))
    client.finish()
    engine.advance()
    view.wait(0)
    shards = [client.ask(worker, Read(view.dataflow, (0,))) for worker in range(client.size)]
    assert sum(shard.rows.num_rows for shard in shards) == size * parts
    assert view.read().num_rows == size * parts


def test_invalid_requests_of_clients_are_refused(two: Processes, client: Client) -> None:
    engine = Engine(cluster=two)
    numbers, view = counted(engine, "refused")
    engine.advance(5)
    view.wait(4)
    with pytest.raises(DataflowError, match="no dataflow 'nowhere'"):
        client.ask(0, Read("nowhere", (0,)))
    with pytest.raises(TimeError):
        client.ask(1, Read(view.dataflow, (0,)))
    client.send(0, Push("nowhere", push(numbers, [1], 5).changes))
    with pytest.raises(DataflowError, match=r"cannot answer Push.*nowhere"):
        client.finish()
    with pytest.raises(DataflowError, match="there is no worker 2"):
        client.ask(2, Wait("refused", 1))
    assert client.ask(0, Wait(view.dataflow, 5)) is None  # other requests are not affected
    assert view.read().num_rows == 0


def test_an_answer_is_waited_for_but_not_forever(two: Processes, client: Client) -> None:
    engine = Engine(cluster=two)
    _, view = counted(engine, "awaited")
    two.run()
    with pytest.raises(DataflowError, match=r"worker 0 has not answered for 0\.2 s"):
        client.ask(0, Wait(view.dataflow, 1), timeout=0.2)
    engine.advance()
    view.wait(0)
    assert client.ask(1, Wait(view.dataflow, 1)) is None


def test_regression_a_busy_worker_is_waited_for(
    two: Processes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = Engine(cluster=two)
    numbers, view = counted(engine, "busy")
    free = tmp_path / "free"
    slow = engine.install("slow", numbers.filter(lambda columns: waits_for(free, columns["n"])))
    two.ask(Ping(slow.dataflow))  # the workers know the dataflows, before clients ask for them
    numbers.insert({"n": range(10)})
    engine.advance()
    hours = SimpleNamespace(monotonic=itertools.count(0, 3600).__next__)  # pass whenever the time is read
    monkeypatch.setattr(client_module, "time", hours)
    threading.Timer(0.1, free.touch).start()
    with Client(two.credentials) as patient:
        patient.send(1, Wait(view.dataflow, 0))
        assert patient.ask(0, Read(slow.dataflow, (0,), wait=True)).rows.num_rows <= 10


def waits_for(file: Path, column: Any) -> Any:
    while len(column) and not file.exists():
        time.sleep(0.01)
    return column.is_valid()


def test_a_worker_that_is_silent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_HEARTBEAT_MS", 100)
    monkeypatch.setattr(authentication, "_HEARTBEAT_TIMEOUT_MS", 1000)
    with Processes(1) as cluster, Client(cluster.credentials) as client:
        with pytest.raises(DataflowError, match="there is no dataflow"):
            client.ask(0, Wait("nothing", 1))
        os.kill(cluster.pids[0], signal.SIGSTOP)
        with pytest.raises(DataflowError, match="worker 0 is gone"):
            client.ask(0, Wait("nothing", 1))
        os.kill(cluster.pids[0], signal.SIGCONT)


def test_what_is_unanswered_is_bounded(two: Processes) -> None:
    engine = Engine(cluster=two)
    _, view = counted(engine, "bounded")
    two.run()
    client = Client(two.credentials, limit=3, timeout=0.3)
    for _ in range(3):
        client.send(0, Wait(view.dataflow, 1))
    with pytest.raises(DataflowError, match="has not answered"):
        client.send(0, Wait(view.dataflow, 1))
    engine.advance()
    view.wait(0)
    client.send(0, Wait(view.dataflow, 1))
    client.finish()
    client.close()
    with pytest.raises(DataflowError, match="client is closed"):
        client.ask(0, Wait(view.dataflow, 1))


def test_only_clients_connect_to_the_client_endpoint(two: Processes) -> None:
    stranger = Client(replace(two.credentials, keys=KeyPair.new()), timeout=5)
    for _ in range(3):  # trying again does not help, and does not hang
        with pytest.raises(DataflowError, match=r"is gone|has not answered"):
            stranger.ask(0, Wait("x", 1))
    stranger.close()
    intruder = Client(replace(two.credentials, endpoints=(two._connections.endpoint,)), timeout=0.5)
    with pytest.raises(DataflowError, match=r"is gone|has not answered"):  # a client at an endpoint for members
        intruder.ask(0, Wait("x", 1))
    intruder.close()
    two.run()


def test_secrets_are_not_shown(two: Processes) -> None:
    assert two.credentials.keys.secret.decode() not in repr(two.credentials)


def test_a_worker_that_ends_is_noticed() -> None:
    cluster = Processes(1)
    engine = Engine(cluster=cluster)
    _, view = counted(engine, "ended")
    cluster.run()
    client = Client(cluster.credentials)
    with pytest.raises(DataflowError, match="has not answered"):
        client.ask(0, Wait(view.dataflow, 9), timeout=0.1)
    os.kill(cluster.pids[0], signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(DataflowError, match="worker 0 is gone"):
        client.ask(0, Wait(view.dataflow, 9))
    late = Client(cluster.credentials)
    with pytest.raises(DataflowError, match="worker 0 is gone"):
        late.ask(0, Wait(view.dataflow, 9))
    assert time.monotonic() - start < 5
    for open_ in (client, late, cluster):
        open_.close()
