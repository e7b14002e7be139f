"""What the keys of Spark's processes allow, as the driver of a session sees it; without a Spark session."""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from ikebana.cluster.client import Client
from ikebana.cluster.client_keys import ClientCredentials
from ikebana.cluster.client_protocol import ClientHello, ClientQuestion
from ikebana.cluster.plain import decode, encode
from ikebana.cluster.processes import Processes
from ikebana.engine import Engine
from ikebana.engine.subscription_readers import NamedStream
from ikebana.errors import DataflowError, IkebanaError
from ikebana.runtime.messages import Read
from ikebana.runtime.staging import stages
from ikebana.spark.readers import BatchReader, StreamReader
from ikebana.spark.snapshot_server import SnapshotServer
from ikebana.spark.snapshots import (
    DriverRequest,
    Readable,
    SnapshotRequest,
    TableDefinition,
    WriteRequest,
    ask_driver,
)
from ikebana.spark.source import _source
from tests.cluster.test_client_protocol import ReducesTo

pytestmark = pytest.mark.usefixtures("forked_workers")
FIELDS = {"k": pa.int64(), "s": pa.string()}


class Tables:
    """Two tables, and the server that answers questions about them."""

    def __init__(self, cluster: Processes) -> None:
        self.engine = Engine(cluster=cluster)
        self.tables = {name: self.engine.table(name, FIELDS, key="k") for name in ("orders", "people")}
        self.views = {name: self.engine.install(f"v {name}", table) for name, table in self.tables.items()}
        for table in self.tables.values():
            table.insert({"k": range(10), "s": ["a"] * 10})
        executions = SimpleNamespace(is_running=lambda number: True, tables=lambda number: set())
        self.server = SnapshotServer(
            self.engine.coordinator,
            lambda: cluster.keys,
            self.readable,
            self.table,
            executions,  # type: ignore[arg-type]
            self.follow,
        )

    def readable(self, name: str) -> Readable:
        if name not in self.views:
            raise DataflowError(f"there is no table or view {name!r}")
        return Readable(name, "1", self.views[name].dataflow, self.tables[name].spec.fields)

    def follow(self, name: str, subscription: str) -> NamedStream:
        raise DataflowError("nothing is stored")

    def table(self, name: str) -> Any:
        return SimpleNamespace(name=name, _inner=self.tables[name], _last_batches={})


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    with Processes(2) as cluster:
        tables = Tables(cluster)
        yield tables
        cluster.close()
        tables.server.close()
        assert not Path(tables.server.address.path).exists()


def refuses(credentials: ClientCredentials, request: SnapshotRequest | WriteRequest) -> bool:
    with Client(credentials, timeout=8) as client:
        try:
            ask_driver(client, request)
        except DataflowError as error:
            return "does not allow" in error.what or "no longer valid" in error.what
    return False


def read_key(tables: Tables, name: str = "orders") -> ClientCredentials:
    credentials = tables.server.address.ask(SnapshotRequest("check", name)).credentials
    assert credentials is not None
    return credentials


def test_the_session_key_is_in_a_file_that_only_the_user_can_read(tables: Tables) -> None:
    path = Path(tables.server.address.path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700 and path.stat().st_uid == os.getuid()
    secret = decode(path.read_bytes(), ClientCredentials).keys.secret
    source = _source("ikebana", tables.server.address)
    readers = [
        BatchReader(tables.server.address, SnapshotRequest("check", "orders"), None, pa.schema([])),
        StreamReader(tables.server.address, "orders", False, pa.schema([])),
    ]
    for carried in (source, *readers):
        assert secret not in cloudpickle.dumps(carried)  # type: ignore[no-untyped-call]


def test_the_session_key_reads_and_stages_nothing_itself(tables: Tables) -> None:
    credentials = tables.server.address._credentials()
    start = tables.server.address.ask(SnapshotRequest("begin", "orders")).start
    assert start is not None
    snapshot = start.snapshot
    with Client(credentials, timeout=8) as client, pytest.raises(DataflowError, match="does not allow reading"):
        client.ask(0, Read(snapshot.dataflow, (snapshot.epoch,), snapshot.hold, wait=True))


def test_a_job_that_reads_sees_its_table_and_nothing_else(tables: Tables) -> None:
    credentials = read_key(tables)
    request = SnapshotRequest("snapshot", "orders", reader="r1", execution=1)
    with Client(credentials, timeout=8) as client:
        snapshot = ask_driver(client, request).snapshot
        assert snapshot is not None
        read = Read(snapshot.dataflow, (snapshot.epoch,), snapshot.hold, wait=True)
        assert sum(client.ask(worker, read).rows.num_rows for worker in range(2)) == 10
        for other in (
            SnapshotRequest("snapshot", "people", reader="r1", execution=1),
            SnapshotRequest("describe", "orders"),
            SnapshotRequest("check", "orders"),
            SnapshotRequest("begin", "orders"),
            SnapshotRequest("batch", "orders", hold=snapshot.hold),
            SnapshotRequest("commit", "orders", 3, snapshot.hold),
            WriteRequest("begin", "orders", job="j"),
            WriteRequest("commit", "orders", job="j"),
        ):
            assert refuses(credentials, other), other
    with Client(read_key(tables), timeout=8) as client, pytest.raises(DataflowError, match="does not allow reading"):
        client.ask(0, read)  # another job's snapshot


def test_a_micro_batch_has_a_key_of_its_own(tables: Tables) -> None:
    address = tables.server.address
    start = address.ask(SnapshotRequest("begin", "orders")).start
    assert start is not None
    snapshot = start.snapshot
    keys = [address.ask(SnapshotRequest("batch", "orders", hold=snapshot.hold)).credentials for _ in range(2)]
    first, second = keys
    assert first is not None and second is not None
    read = Read(snapshot.dataflow, (snapshot.epoch,), snapshot.hold, wait=True)
    with Client(second, timeout=8) as client:
        assert sum(client.ask(worker, read).rows.num_rows for worker in range(2)) == 10
    assert refuses(second, SnapshotRequest("snapshot", "orders", reader="r2"))
    with Client(first, timeout=8) as client, pytest.raises(DataflowError, match="rejects the key of this job"):
        client.ask(0, read)


def test_a_job_that_writes_does_so_to_its_table_until_it_ends(tables: Tables) -> None:
    reply = tables.server.address.ask(WriteRequest("describe", "people"))
    assert reply.credentials is not None and reply.table is not None
    credentials, spec = reply.credentials, reply.table.spec
    assert spec.schema is not None and spec.schema.key.fields == tables.tables["people"].spec.key
    for other in (
        WriteRequest("begin", "orders", job="w1"),
        WriteRequest("commit", "orders", job="w1"),
        SnapshotRequest("snapshot", "people", reader="r3"),
        SnapshotRequest("describe", "people"),
    ):
        assert refuses(credentials, other), other
    with Client(credentials, timeout=8) as client:
        number = ask_driver(client, WriteRequest("begin", "people", job="w1")).number
        assert number == ask_driver(client, WriteRequest("begin", "people", job="w1")).number
        data = {"k": range(100, 150), "s": ["new"] * 50}
        for worker, stage in stages(spec, data, "insert", transaction=number, part=(0, 0), workers=2):
            client.send(worker, stage)
        client.finish()
        commit = WriteRequest("commit", "people", job="w1", parts=(((0, 0), 0),), rows=50)
        ask_driver(client, commit)
    assert tables.views["people"].to_arrow().num_rows == 60
    late = Client(credentials, timeout=8)
    with pytest.raises(DataflowError, match="rejects the key of this job"):
        ask_driver(late, WriteRequest("begin", "people", job="w2"))
    late.close()


@pytest.mark.parametrize("question", [b"", b"{}", b'{"snapshot": 5}', b'{"snapshot": {"kind": "describe"}}', b"\x80"])
def test_what_is_no_question_is_refused(tables: Tables, question: bytes) -> None:
    with Client(read_key(tables), timeout=8) as client:
        with pytest.raises(IkebanaError):
            client.ask(0, ClientQuestion(question))
        assert ask_driver(client, SnapshotRequest("snapshot", "orders", reader="r4")).snapshot is not None


def test_the_driver_opens_no_pickle(tables: Tables, tmp_path: Path) -> None:
    mark = tmp_path / "unpickled"
    evil = ClientQuestion(pickle.dumps(ReducesTo(str(mark))))
    with Client(tables.server.address._credentials(), timeout=8) as client:
        client.ask(0, ClientHello())
        with pytest.raises(IkebanaError, match="not JSON"):
            client.ask(0, evil)
    assert not mark.exists()


def test_requests_survive() -> None:
    request = WriteRequest("commit", "orders", "upsert", True, "j", (((1, 2), 3), ((4, 5), 6)), 7, "s", 8)
    for question in (DriverRequest.of(request), DriverRequest.of(SnapshotRequest("begin", "t", 1, 2, "i", "r", 3))):
        assert decode(encode(question, DriverRequest), DriverRequest) == question


def test_definitions_survive(tables: Tables) -> None:
    spec = tables.tables["orders"].spec
    copy = decode(encode(TableDefinition.of(spec), TableDefinition), TableDefinition).spec
    assert (copy.name, copy.fields, copy.kind, copy.dataflow) == (spec.name, spec.fields, spec.kind, spec.dataflow)
    assert copy.key == spec.key and str(copy.schema) == str(spec.schema)
