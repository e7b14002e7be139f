"""Workers on several hosts, which are network namespaces of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from ikebana.cluster import authentication
from ikebana.cluster.client import Client
from ikebana.cluster.driver import Driver
from ikebana.errors import DataflowError
from tests.cluster import namespaces
from tests.cluster.clients import Job
from tests.cluster.namespaces import DRIVER, Hosts, OnHosts


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if namespaces.why_not():
        pytest.skip(namespaces.why_not())
    with Hosts(2) as hosts:
        yield hosts


def test_workers_on_two_hosts(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_HEARTBEAT_TIMEOUT_MS", 1500)  # the driver's; workers have the default
    monkeypatch.setattr(authentication, "_HEARTBEAT_MS", 100)
    with Driver(OnHosts(hosts), 2, host=DRIVER, ports="7400-7410") as cluster:
        assert cluster.hosts == hosts.addresses
        assert not any(link.shares_memory for link in cluster._connections._links)  # no memory is shared between hosts
        job, size = Job(cluster), 300_000
        engine = job.engine
        table = engine.table("t", {"k": pa.int64(), "v": pa.int64()}, key="k")
        table.insert({"k": np.arange(size), "v": np.arange(size)[::-1]})  # large messages to, from and between hosts
        view = engine.install("by v", table.arrange("v"))
        assert view.to_arrow().num_rows == size
        with Client(job.credentials, timeout=20) as client:
            for worker, stage in job.stages(range(1000)):
                client.send(worker, stage)
        epoch = job.commit(0)
        with job.held(epoch) as (credentials, read), Client(credentials, timeout=20) as client:
            assert sum(client.ask(worker, read).rows.num_rows for worker in range(2)) == 1000
            hosts.unplug(1)
            with pytest.raises(DataflowError, match=r"worker 1 is gone(.|\n)*on 10\.213\.7\.12"):
                client.ask(1, read)
        with pytest.raises(DataflowError, match=r"10\.213\.7\.12"):
            while True:
                view.read()
