"""A client with the key of a job can do what the job may do, for its time, and nothing else; it disturbs nobody."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ikebana.cluster import client_protocol, codec
from ikebana.cluster.authentication import Sockets
from ikebana.cluster.client import Client
from ikebana.cluster.client_keys import IssuedKeys, KnownKeys, allow_hold, allow_stage
from ikebana.cluster.client_protocol import ClientHello, ClientQuestion, encode_request
from ikebana.cluster.processes import Processes
from ikebana.cluster.protocol import Ask, Grant
from ikebana.errors import DataflowError, SchemaError, TimeError
from ikebana.runtime import messages
from ikebana.runtime.messages import Read, ReadChanges, ReadErrors, Stage
from ikebana.runtime.staging import check_stage
from tests.cluster.clients import LONG, Job
from tests.cluster.test_client_protocol import ReducesTo
from tests.clusters import SOON, within

pytestmark = pytest.mark.usefixtures("forked_workers")


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    with Processes(2) as cluster:
        yield cluster


@pytest.fixture
def job(two: Processes) -> Job:
    return Job(two)


def send_raw(client: Client, frames: list[bytes], worker: int = 0) -> None:
    """Send frames that are no message, over a connection that exists."""
    if worker not in client._sockets_by_worker:
        client.ask(worker, ClientHello())
    client._unanswered.setdefault(worker, set()).add(0)
    codec.send(client._sockets_by_worker[worker], frames)


def assert_usable(job: Job) -> None:
    """Everything still works, for a client that has done nothing wrong."""
    with Client(job.credentials, timeout=8) as client:
        for worker, stage in job.stages(range(50), part=77):
            client.send(worker, stage)
    epoch = job.commit(77)
    with job.held(epoch) as (credentials, read), Client(credentials, timeout=8) as client:
        assert sum(client.ask(worker, read).rows.num_rows for worker in range(2)) == 50


# What is not a message.


def test_a_pickle_is_not_opened_and_ends_only_its_sender(job: Job, tmp_path: Path) -> None:
    mark = tmp_path / "unpickled"
    with Client(job.credentials, timeout=8) as bystander:
        bystander.ask(0, ClientHello())
        for attack in (
            [pickle.dumps(ReducesTo(str(mark)))],
            codec.encode(Ask(0, messages.Retire(job.view.dataflow))),
            codec.encode([messages.Advance(1000)]),
            [b""],
            [b"\x80" * 1000, b"x"],
            [b"{}"] * 5,
            [encode_request(Ask(0, next(job.stages([1]))[1]))[0], b"no stream"],
        ):
            client = Client(job.credentials, timeout=8)
            send_raw(client, attack)
            with pytest.raises(DataflowError):
                client.finish()
            with pytest.raises(DataflowError, match="has not answered"):  # it is not listened to any more
                client.ask(0, ClientHello(), timeout=0.05)
            client.close()
        bystander.ask(0, ClientHello())
    assert not mark.exists()
    assert_usable(job)


def test_a_driver_question_that_is_a_pickle_is_not_opened_either(two: Processes, job: Job, tmp_path: Path) -> None:
    heard: list[Any] = []
    two.listen(lambda worker, item: heard.append(item))
    credentials = two.keys.issue(Grant(LONG, server=99))
    mark = tmp_path / "unpickled"
    evil = pickle.dumps(ReducesTo(str(mark)))
    with Client(credentials, timeout=0.3) as client, pytest.raises(DataflowError, match="has not answered"):
        client.ask(0, ClientQuestion(evil))
    assert [(item.number, item.question, item.client) for item in heard] == [(99, evil, credentials.keys.public)]
    assert not mark.exists()


def test_another_version_is_told_so(job: Job) -> None:
    with Client(job.credentials, timeout=8) as client:
        header = json.loads(encode_request(Ask(5, ClientHello()))[0])
        send_raw(client, [json.dumps({**header, "protocol": 2}).encode()])
        with pytest.raises(DataflowError, match=r"version 2 .*version 1(.|\n)*same version of ikebana"):
            client.finish()
        client._unanswered.clear()


def test_the_handshake_names_the_version(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_protocol, "PROTOCOL_VERSION", 7)
    client = Client(job.credentials, timeout=8)
    with pytest.raises(DataflowError, match=r"version 1 of the client protocol, and this process has version 7"):
        client.ask(0, ClientHello())
    client.close()


# What the key does not allow.


def test_a_job_stages_only_in_its_transaction_for_its_table(job: Job, two: Processes) -> None:
    other = Job(two)
    with Client(job.credentials, timeout=8) as client:
        worker, stage = next(job.stages(range(10)))
        for forbidden in (
            replace(stage, transaction=stage.transaction + 1),
            replace(stage, table=other.table.spec.name),
            next(other.stages(range(10)))[1],
        ):
            with pytest.raises(DataflowError, match="does not allow staging these rows"):
                client.ask(worker, forbidden)
        for forbidden in (
            Read(job.view.dataflow, (0,), 1, wait=True),
            ReadErrors(job.view.dataflow, 0, 1),
            ReadChanges(job.view.dataflow, 0, 1, 1),
        ):
            with pytest.raises(DataflowError, match="does not allow reading"):
                client.ask(0, forbidden)
        with pytest.raises(DataflowError, match="does not allow asking the driver"):
            client.ask(0, ClientQuestion(b"what"))
    assert_usable(job)


def test_a_job_reads_only_what_is_held_for_it(job: Job, two: Processes) -> None:
    other = Job(two)
    epoch = other.table.insert({"k": [1], "s": ["a"]})
    with (
        other.held(epoch) as (_, theirs),
        job.held(epoch) as (credentials, own),
        Client(credentials, timeout=8) as client,
    ):
        client.ask(0, own)
        for forbidden in (
            theirs,
            replace(theirs, hold=own.hold),
            replace(own, hold=theirs.hold),
            replace(own, hold=12345),
        ):
            with pytest.raises(DataflowError, match="does not allow reading these rows"):
                client.ask(0, forbidden)
        with pytest.raises(DataflowError, match="does not allow staging"):
            client.ask(0, next(job.stages([1]))[1])
    with Client(credentials, timeout=8) as client, pytest.raises(TimeError, match="is held"):
        client.ask(0, own)  # released


def test_a_key_is_useless_after_its_time(two: Processes) -> None:
    job = Job(two, seconds=0.2)
    client = Client(job.credentials, timeout=8)
    client.ask(0, ClientHello())
    job.cluster.run()
    assert within(SOON, lambda: two.keys.purpose(job.credentials.keys.public) is None)
    _, stage = next(job.stages(range(10)))
    for request in (ClientHello(), stage):  # the connection is refused everything
        with pytest.raises(DataflowError, match="key of this job is no longer valid"):
            client.ask(0, request)
    client.close()


def test_a_revoked_key_is_useless_at_once(job: Job, two: Processes) -> None:
    client = Client(job.credentials, timeout=8)
    client.ask(0, ClientHello())
    two.keys.revoke(job.credentials.keys.public)
    with pytest.raises(DataflowError, match="key of this job is no longer valid"):
        client.ask(0, ClientHello())
    client.close()
    late = Client(job.credentials, timeout=8)
    with pytest.raises(DataflowError, match=r"worker 0 on 127\.0\.0\.1 rejects the key of this job"):
        late.ask(0, ClientHello())
    late.close()
    job.credentials = two.keys.issue(job.grant)
    assert_usable(job)


def test_regression_a_rejection_that_comes_at_once_is_noticed(
    job: Job, two: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that began to watch its connection after the key was rejected waited for ever."""
    watch = Sockets.watch

    def watch_late(*arguments: Any) -> Any:
        time.sleep(0.5)
        return watch(*arguments)

    monkeypatch.setattr(Sockets, "watch", staticmethod(watch_late))
    two.keys.revoke(job.credentials.keys.public)
    with Client(job.credentials, timeout=8) as client, pytest.raises(DataflowError, match="rejects the key"):
        client.ask(0, ClientHello())


# Rows that do not fit the table.


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"columns": (pa.array([1, 2]),)}, "columns are not those of the table"),
        ({"columns": (pa.array([1, 2]), pa.array([1, 2]))}, "columns are not those of the table"),
        ({"columns": (pa.array([1, 2], pa.int32()), pa.array(["a", "b"]))}, "columns are not those of the table"),
        ({"columns": ()}, "columns are not those of the table"),
        ({"columns": (pa.array([1, None]), pa.array(["a", "b"]))}, "key"),
        ({"columns": (pa.array([1, 2]), pa.array(["a", None]))}, "null"),
        ({"ops": 9}, "ops are not valid"),
        ({"ops": -1}, "ops are not valid"),
        ({"ops": np.array([0, 7], np.int8)}, "ops are not valid"),
    ],
)
def test_rows_that_do_not_fit_the_table_are_refused(job: Job, change: Any, reason: str) -> None:
    columns = (pa.array([1, 2]), pa.array(["a", "b"]))
    stage = replace(Stage(job.transaction.number, job.table.spec.name, (0, 0), 0, columns, 0), **change)
    with Client(job.credentials, timeout=8) as client, pytest.raises((SchemaError, DataflowError), match=reason):
        client.ask(0, stage)
    with pytest.raises(SchemaError, match=reason):
        check_stage(job.table.spec, stage, 0, 1)


def test_there_must_be_an_op_for_each_row(job: Job) -> None:
    columns = (pa.array([1, 2]), pa.array(["a", "b"]))
    stage = Stage(job.transaction.number, job.table.spec.name, (0, 0), 0, columns, np.array([0], np.int8))
    with pytest.raises(SchemaError, match="ops are not valid"):
        check_stage(job.table.spec, stage, 0, 1)


def test_rows_of_other_owners_are_refused(job: Job) -> None:
    parts = dict(job.stages(range(100)))
    with Client(job.credentials, timeout=8) as client:
        for worker in range(2):
            with pytest.raises(SchemaError, match=f"do not belong to worker {worker}"):
                client.ask(worker, parts[1 - worker])
            client.ask(worker, parts[worker])


# Grants, without processes.


def test_a_grant_expires_by_the_clock_of_the_worker() -> None:
    now = [100.0]
    keys = KnownKeys(clock=lambda: now[0])
    assert keys.set(b"a", Grant(10, server=4)) == [b"a"]
    assert keys.check(b"a", ClientQuestion(b"")) == 4
    now[0] += 9.9
    keys.check(b"a", ClientHello())
    assert keys.set(b"b", Grant(10)) == [b"a", b"b"]
    now[0] += 0.2
    with pytest.raises(DataflowError, match="no longer valid"):
        keys.check(b"a", ClientHello())
    assert keys.set(b"c", Grant(10)) == [b"b", b"c"]  # what has expired cannot connect any more
    with pytest.raises(DataflowError, match="no longer valid"):
        keys.check(b"unknown", ClientHello())
    assert keys.set(b"c", None) == [b"b"]


def test_grants_grow_by_what_a_job_turns_out_to_need() -> None:
    grant = allow_stage(allow_hold(Grant(10), 1, "view"), 7, "people")
    assert grant == Grant(10, stages=((7, "people"),), holds=((1, "view"),))
    assert allow_stage(allow_hold(grant, 1, "view"), 7, "people") is grant
    for hold in range(100):
        grant = allow_hold(grant, hold, "view")
    assert len(grant.holds) == 64 and grant.holds[-1] == (99, "view")


def test_a_key_is_renewed_while_it_is_used(two: Processes) -> None:
    now = [0.0]
    keys = IssuedKeys(two._connections, ["tcp://127.0.0.1:1"], [b"k"], clock=lambda: now[0])
    key = keys.issue(Grant(10), ("read", "orders")).keys.public
    for _ in range(5):
        now[0] += 6
        keys.renew(key, lambda grant: grant)
        assert keys.purpose(key) == ("read", "orders")
    now[0] += 11
    assert keys.purpose(key) is None
