"""Addresses, names, ports: where processes listen, and what others are told."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pyarrow as pa
import pytest
import zmq

from ikebana.cluster.authentication import KeyPair, Sockets
from ikebana.cluster.network import ListenAddress, host_of, parse_ports, port_of, resolve, resolved
from ikebana.cluster.processes import Processes
from ikebana.errors import DataflowError, IkebanaError
from tests.cluster.clients import Job


def free_range(size: int) -> tuple[int, int]:
    """A range of free ports."""
    for first in range(42_000, 60_000, 97):
        with ExitStack() as stack:
            try:
                for port in range(first, first + size):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first, first + size - 1
    raise AssertionError("no free ports")


@pytest.mark.parametrize("ports", ["", "x", "0", "70000", "20-10", "1-", 7000, "7000,7001"])
def test_what_is_not_a_range_of_ports(ports: str) -> None:
    with pytest.raises(IkebanaError, match=r'is not a range of ports(.|\n)*"7000-7020"'):
        parse_ports(ports)


def test_names_are_resolved_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "both": [(socket.AF_INET6, ("fd00::7", 0, 0, 0)), (socket.AF_INET, ("10.0.0.7", 0))],
        "six": [(socket.AF_INET6, ("fd00::6", 0, 0, 0))],
    }

    def getaddrinfo(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if name not in known:
            raise socket.gaierror("unknown")
        return [(family, socket.SOCK_STREAM, 6, "", address) for family, address in known[name]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert (resolve("both"), resolve("six")) == ("10.0.0.7", "fd00::6")
    assert resolved("tcp://six:80") == "tcp://[fd00::6]:80"
    with pytest.raises(IkebanaError, match="'nowhere' cannot be resolved"):
        resolve("nowhere")


def test_sockets_use_the_first_free_ports_of_a_range() -> None:
    first, last = free_range(3)
    sockets = Sockets(KeyPair.new(), ListenAddress("127.0.0.1", ports=(first, last)))
    with socket.create_server(("127.0.0.1", first)):
        listening = [sockets.listen(zmq.ROUTER) for _ in range(2)]  # a socket that nobody refers to is closed
        assert [port_of(endpoint) for _, endpoint in listening] == [first + 1, last]
        with pytest.raises(DataflowError, match=f"no port from {first} to {last} is free(.|\n)*larger range"):
            sockets.listen(zmq.ROUTER)


def test_others_are_told_the_host_and_not_where_it_listens() -> None:
    sockets = Sockets(KeyPair.new(), ListenAddress("localhost", bind="0.0.0.0"))
    listening, endpoint = sockets.listen(zmq.ROUTER)
    assert host_of(endpoint) == "localhost"
    assert listening.get_string(zmq.LAST_ENDPOINT).startswith("tcp://0.0.0.0:")
    sockets.close()
    with pytest.raises(IkebanaError, match="cannot be resolved"):
        Sockets(KeyPair.new(), ListenAddress("no such host.invalid")).listen(zmq.ROUTER)
    with pytest.raises(DataflowError, match=r"cannot listen on '203\.0\.113\.7'"):
        Sockets(KeyPair.new(), ListenAddress("203.0.113.7")).listen(zmq.ROUTER)


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_a_cluster_with_all_of_this(host: str) -> None:
    if host == "::1":
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
    first, last = free_range(7)
    options = {} if host == "::1" else {"bind": "0.0.0.0"}
    with Processes(2, host=host, ports=f"{first}-{last}", **options) as cluster:
        job = Job(cluster)
        assert cluster.hosts == [host, host]
        engine = job.engine
        table = engine.table("t", {"k": pa.int64()}, key="k")
        table.insert({"k": range(100)})
        assert engine.install("v", table).to_arrow().num_rows == 100
        endpoints = [*job.credentials.endpoints, cluster._connections.endpoint]
        assert {host_of(endpoint) for endpoint in endpoints} == {host}
        assert all(first <= port_of(endpoint) <= last for endpoint in endpoints)
