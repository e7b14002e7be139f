"""Clients talk to workers directly, within limits; processes with other keys cannot connect."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from ikebana.cluster import authentication
from ikebana.cluster import client as client_module
from ikebana.cluster.authentication import KeyPair
from ikebana.cluster.client import Client
from ikebana.cluster.processes import Processes
from ikebana.cluster.protocol import Grant
from ikebana.errors import DataflowError, TimeError
from ikebana.runtime.messages import Ping, Read, ReadChanges, ReadErrors, Wait
from ikebana.runtime.staging import stages
from tests.cluster.clients import LONG, Job
from tests.clusters import Brake

pytestmark = pytest.mark.usefixtures("forked_workers")


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    with Processes(2) as cluster:
        yield cluster


def test_clients_load_and_read(two: Processes) -> None:
    job, size = Job(two), 100_000
    with Client(pickle.loads(pickle.dumps(job.credentials)), timeout=8) as client:
        for part in range(3):
            for worker, stage in job.stages(range(part * size, (part + 1) * size), part):
                client.send(worker, stage)
    epoch = job.commit(0, 1, 2)
    with job.held(epoch) as (credentials, read), Client(credentials, timeout=8) as client:
        shards = [client.ask(worker, read) for worker in range(client.size)]
        rows = pa.concat_tables([shard.rows for shard in shards])
        assert sorted(rows["k"].to_pylist()) == list(range(3 * size))
        assert all(text == f"row {key}" for key, text in zip(*(rows[name].to_pylist() for name in "ks"), strict=True))
        assert not client.ask(0, ReadErrors(read.dataflow, epoch, read.hold))


def test_clients_read_changes(two: Processes) -> None:
    job = Job(two)
    first = job.table.insert({"k": range(10), "s": ["a"] * 10})
    with job.held(first) as (credentials, read):
        last = job.table.delete({"k": [3, 4]})
        job.view.wait(last)
        with Client(credentials, timeout=8) as client:
            request = ReadChanges(read.dataflow, first, last, read.hold or 0)
            answers = [client.ask(worker, request) for worker in range(2)]
            changed = [
                (epoch, *row.values())
                for epochs, rows in answers
                if rows is not None
                for epoch, row in zip(epochs, rows.to_pylist(), strict=True)
            ]
            assert sorted(changed) == [(last, 3, "a", -1), (last, 4, "a", -1)]
            nothing = ReadChanges(read.dataflow, last, last, read.hold or 0)
            assert client.ask(0, nothing) == (None, None)


def test_invalid_requests_of_clients_are_refused(two: Processes) -> None:
    job = Job(two)
    epoch = job.table.insert({"k": [1], "s": ["a"]})
    job.table.insert({"k": [2], "s": ["b"]})
    with job.held(epoch + 1) as (credentials, read), Client(credentials, timeout=8) as client:
        with pytest.raises(TimeError):
            client.ask(1, replace(read, at=(epoch,)))
        with pytest.raises(DataflowError, match="there is no worker 2"):
            client.ask(2, read)
        with pytest.raises(DataflowError, match="a client cannot send Wait"):
            client.ask(0, Wait(read.dataflow, 1))  # type: ignore[arg-type]
        assert client.ask(0, read).rows.num_rows <= 2  # other requests are not affected


def test_an_answer_is_waited_for_but_not_forever(two: Processes) -> None:
    job = Job(two)
    epoch = job.engine.epoch
    with job.held(epoch) as (credentials, read), Client(credentials, timeout=8) as client:
        with pytest.raises(DataflowError, match=r"worker 0 has not answered for 0\.2 s"):
            client.ask(0, read, timeout=0.2)
        job.table.insert({"k": [1], "s": ["a"]})
        job.view.wait(epoch)
        assert client.ask(1, read).rows.num_rows <= 1


def test_regression_a_busy_worker_is_waited_for(
    two: Processes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job, brake = Job(two), Brake(tmp_path / "brake")
    slow = job.engine.install("slow", job.table.filter(brake))
    two.ask(Ping(slow.dataflow))  # the workers know the dataflow, before clients ask for it
    job.view = slow
    with job.held(job.engine.epoch) as (credentials, read):
        job.table.insert({"k": range(10), "s": ["a"] * 10})
        hours = SimpleNamespace(monotonic=itertools.count(0, 3600).__next__)  # pass whenever the time is read
        monkeypatch.setattr(client_module, "time", hours)
        threading.Timer(0.1, brake.release).start()
        with Client(credentials) as patient:
            patient.send(1, read)
            assert patient.ask(0, read).rows.num_rows <= 10


def test_a_worker_that_is_silent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_HEARTBEAT_MS", 100)
    monkeypatch.setattr(authentication, "_HEARTBEAT_TIMEOUT_MS", 1000)
    with Processes(1) as cluster:
        job = Job(cluster)
        with job.held(0) as (credentials, read), Client(credentials) as client:
            with pytest.raises(DataflowError, match="has not answered"):
                client.ask(0, replace(read, at=(99,)), timeout=0.1)
            os.kill(cluster.pids[0], signal.SIGSTOP)
            with pytest.raises(DataflowError, match=r"worker 0 is gone(.|\n)*on 127\.0\.0\.1"):
                client.ask(0, replace(read, at=(99,)))
            os.kill(cluster.pids[0], signal.SIGCONT)


def test_what_is_unanswered_is_bounded(two: Processes) -> None:
    job = Job(two)
    epoch = job.engine.epoch
    with job.held(epoch) as (credentials, read):
        client = Client(credentials, limit=3, timeout=0.3)
        for _ in range(3):
            client.send(0, read)
        with pytest.raises(DataflowError, match="has not answered"):
            client.send(0, read)
        job.table.insert({"k": [1], "s": ["a"]})
        job.view.wait(epoch)
        client.send(0, read)
        client.finish()
        client.close()
        with pytest.raises(DataflowError, match="client is closed"):
            client.ask(0, read)


def test_workers_bound_what_is_unanswered_too(two: Processes) -> None:
    job = Job(two)
    with job.held(job.engine.epoch) as (credentials, read), Client(credentials, limit=1000, timeout=8) as client:
        for _ in range(100):
            client.send(0, read)
        with pytest.raises(DataflowError, match="64 unanswered requests"):
            client.finish()
        client._unanswered.clear()


def test_only_clients_connect_to_the_client_endpoint(two: Processes) -> None:
    job = Job(two)
    with job.held(0) as (credentials, read):
        unknown = Client(replace(credentials, keys=KeyPair.new()), timeout=5)
        for _ in range(3):  # trying again does not help, and does not hang
            with pytest.raises(DataflowError, match=r"rejects the key|is gone|has not answered"):
                unknown.ask(0, read)
        unknown.close()
        intruder = Client(replace(credentials, endpoints=(two._connections.endpoint,)), timeout=0.5)
        with pytest.raises(DataflowError, match=r"is gone|has not answered"):  # a client at an endpoint for members
            intruder.ask(0, read)
        intruder.close()
    two.run()


def test_secrets_are_not_shown(two: Processes) -> None:
    credentials = two.keys.issue(Grant(LONG))
    assert credentials.keys.secret.decode() not in repr(credentials)


def test_a_worker_that_ends_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its connection, which is closed: not because it is silent."""
    monkeypatch.setattr(authentication, "_HEARTBEAT_TIMEOUT_MS", 3_600_000)
    cluster = Processes(1)
    job = Job(cluster)
    later = Read(job.view.dataflow, (99,), 1, wait=True)
    credentials = cluster.keys.issue(Grant(LONG, holds=((1, job.view.dataflow),)))
    client = Client(credentials)
    with pytest.raises(DataflowError, match="has not answered"):
        client.ask(0, later, timeout=0.1)
    os.kill(cluster.pids[0], signal.SIGKILL)
    with pytest.raises(DataflowError, match="worker 0 is gone"):
        client.ask(0, later)
    late = Client(credentials)
    with pytest.raises(DataflowError, match="worker 0 is gone"):
        late.ask(0, later)
    for open_ in (client, late, cluster):
        open_.close()


def test_arrays_of_any_type_are_staged(two: Processes) -> None:
    engine = Job(two).engine
    types = {"k": pa.string(), "d": pa.decimal128(20, 2), "l": pa.list_(pa.int32()), "b": pa.bool_()}
    table = engine.table("of many types", types, key="k")
    two.ask(Ping(engine.install("view of many types", table).dataflow))
    columns = {
        "k": pa.array([f"key {at}" for at in range(100)]),
        "d": pa.array(np.arange(100, dtype=np.int32)).cast(pa.decimal128(20, 2)),
        "l": pa.array([[at] * (at % 3) for at in range(100)], pa.list_(pa.int32())),
        "b": pa.array([at % 2 == 0 for at in range(100)]),
    }
    transaction = engine.transaction()
    credentials = two.keys.issue(Grant(LONG, stages=((transaction.number, "of many types"),)))
    with Client(credentials, timeout=8) as client:
        sliced = {name: column.slice(30) for name, column in columns.items()}
        ops = ["insert"] * 60 + ["upsert"] * 10
        for worker, stage in stages(
            table.spec, sliced, ops, transaction=transaction.number, part=(0, 0), workers=client.size
        ):
            client.send(worker, stage)
    transaction._adopt(table, [((0, 0), 0)])
    transaction.commit()
    view = engine.install("read back", table)
    assert sorted(view.to_arrow()["k"].to_pylist()) == sorted(columns["k"].to_pylist()[30:])
